# SPDX-License-Identifier: Apache-2.0
"""Optimizers that training graphs of ONNX Runtime have as nodes: SGDOptimizer, AdamOptimizer and LambOptimizer of com.microsoft, with loss
scale, norm, 16-bit copy and update signal, against their formulas in float64."""
import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

from mpt_run import tool
from runtime_artifacts import MS, ms, node

mpt = pytest.importorskip("mpt")

RNG = np.random.default_rng(5)
WEIGHTS, BIAS = (RNG.standard_normal(shape).astype(np.float32) for shape in ((4, 3), (3,)))
X, TARGET = (RNG.standard_normal(shape).astype(np.float32) for shape in ((5, 4), (5, 3)))
SCALE, RATE = 64.0, 0.1
STEP = 1e-4 * RATE  # of an update: 1 - 0.999^t cancels all but four digits of FP32


def write(path, optimizers, extra=(), inputs=(), scaled=False, half=False):
    """y = x w + b with the mean squared error of sums over outputs, its backward pass, and `optimizers` behind it, in place as the
    runtime writes them: no output has a new value."""
    weights = "w16" if half else "w"
    nodes = [node("Cast", "x", "xh", to=10 if half else 1), node("MatMul", f"xh,{weights}", "z0"), node("Cast", "z0", "z", to=1),
             node("Add", "z,b", "y"), node("Sub", "y,target", "d"), node("Mul", "d,d", "dd"), node("ReduceMean", "dd", "loss", keepdims=0),
             node("Mul", "d,factor", "dy"), node("Cast", "dy", "dyh", to=10 if half else 1),
             node("Transpose", "xh", "xt", perm=[1, 0]), node("MatMul", "xt,dyh", "gw"), node("ReduceSum", "dy,axes", "gb", keepdims=0),
             *optimizers]
    zeros = {name + kind: np.zeros_like(value) for name, value in (("w", WEIGHTS), ("b", BIAS)) for kind in ("_m1", "_m2")}
    tensors = {"w": WEIGHTS, "b": BIAS, "factor": np.float32(2 / TARGET.size * (SCALE if scaled else 1)), "axes": np.array([0]),
               "rate": np.array([RATE], np.float32), "count": np.array([1]), **zeros, **dict(extra)}
    if half:
        tensors["w16"] = WEIGHTS.astype(np.float16)
    info = helper.make_tensor_value_info
    graph = helper.make_graph(nodes, "runtime", [info("x", 1, X.shape), info("target", 1, TARGET.shape), *inputs], [info("loss", 1, [])],
                              [numpy_helper.from_array(np.asarray(value), name) for name, value in tensors.items()])
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 20), helper.make_opsetid(MS, 1)], ir_version=9), path)
    return path


def trainer(path, out, **flags):
    tool()  # skips where nothing is built
    return mpt.Trainer(mpt.compile(path, out=out, **flags))


class Reference:
    """The same in float64."""

    def __init__(self):
        self.p = {"w": WEIGHTS.astype(np.float64), "b": BIAS.astype(np.float64)}
        self.m = {name: [np.zeros_like(value), np.zeros_like(value)] for name, value in self.p.items()}
        self.steps = 0

    def gradients(self):
        d = X @ self.p["w"] + self.p["b"] - TARGET
        return {"w": X.T @ (2 / d.size * d), "b": (2 / d.size * d).sum(0)}

    def moments(self, name, g, beta1, beta2):
        m, v = self.m[name]
        beta1, beta2 = np.float64(np.float32(beta1)), np.float64(np.float32(beta2))  # attributes are FP32
        self.m[name] = [beta1 * m + (1 - beta1) * g, beta2 * v + (1 - beta2) * g * g]
        return self.m[name]

    def adam(self, clip=1.0, beta1=0.9, beta2=0.999, epsilon=1e-8, decay=0.0, mode=0, corrects=True):
        self.steps += 1
        for name, g in self.gradients().items():
            m, v = self.moments(name, g / clip, beta1, beta2)
            c1, c2 = (1 - beta1**self.steps, 1 - beta2**self.steps) if corrects else (1, 1)
            if mode == 0:
                self.p[name] = self.p[name] - RATE * (m / c1 / (np.sqrt(v / c2) + epsilon) + decay * self.p[name])
            else:
                q = self.p[name] - RATE * np.sqrt(c2) / c1 * m / (np.sqrt(v) + epsilon)
                self.p[name] = q - RATE * decay * q

    def lamb(self, beta1=0.9, beta2=0.999, epsilon=1e-6, decays=(0.0, 0.0)):
        self.steps += 1
        for (name, g), decay in zip(self.gradients().items(), decays):
            m, v = self.moments(name, g, beta1, beta2)
            u = m / (1 - beta1**self.steps) / (np.sqrt(v / (1 - beta2**self.steps)) + epsilon) + decay * self.p[name]
            self.p[name] = self.p[name] - RATE * np.linalg.norm(self.p[name]) / np.linalg.norm(u) * u

    def sgd(self):
        for name, g in self.gradients().items():
            self.p[name] = self.p[name] - RATE * g


def adam(name, more="", **attributes):
    return ms("AdamOptimizer", f"rate,{name}_count,{name},g{name},{name}_m1,{name}_m2{more}",
              f"{name}_t,{name}_n1,{name}_n2,{name}_new", **attributes)


COUNTS = [("w_count", np.array([1])), ("b_count", np.array([1]))]


@pytest.mark.parametrize("options", [{}, {"decay": 0.1, "beta1": 0.8, "beta2": 0.99, "epsilon": 1e-3}, {"mode": 1, "decay": 0.1},
                                     {"mode": 1, "corrects": False}, {"corrects": False}])
def test_adam(tmp_path, options):
    names = {"decay": "lambda", "beta1": "alpha", "beta2": "beta", "mode": "weight_decay_mode", "corrects": "do_bias_correction"}
    attributes = {names.get(key, key): int(value) if key in ("mode", "corrects") else value for key, value in options.items()}
    ours = trainer(write(tmp_path / "m.onnx", [adam("w", **attributes), adam("b", **attributes)], COUNTS), tmp_path / "lib")
    exact = Reference()
    for step in range(4):
        ours.step({"x": X, "target": TARGET})
        exact.adam(**options)
        for name in exact.p:
            np.testing.assert_allclose(ours.parameter(name), exact.p[name], rtol=2e-5, atol=STEP)
            np.testing.assert_allclose(ours.parameter(name + "_m2"), exact.m[name][1], rtol=1e-5, atol=1e-9)
    assert ours.state()["w_count"] == 5


def test_scale_norm_and_signal(tmp_path):
    """The gradient has a scale, the norm too; it is clipped where the norm is above the largest; and nothing changes without the signal."""
    info = helper.make_tensor_value_info
    inputs = [info("norm", 1, [1]), info("go", TensorProto.BOOL, [1])]
    optimizers = [adam(name, ",,scale,norm,go", max_norm_clip=0.5) for name in ("w", "b")]
    path = write(tmp_path / "m.onnx", optimizers, [*COUNTS, ("scale", np.array([SCALE], np.float32))], inputs, scaled=True)
    ours, exact = trainer(path, tmp_path / "lib"), Reference()
    for norm, go in ((0.25, True), (2.0, True), (2.0, False), (0.5, True)):
        before = ours.state()
        ours.step({"x": X, "target": TARGET, "norm": np.array([norm * SCALE], np.float32), "go": np.array([go])})
        if not go:
            after = ours.state()
            assert all(np.array_equal(before[name], after[name]) for name in before)
            continue
        exact.adam(clip=max(1.0, norm / 0.5))
        for name in exact.p:
            np.testing.assert_allclose(ours.parameter(name), exact.p[name], rtol=2e-5, atol=STEP)


def test_a_copy_in_16_bits(tmp_path):
    """The forward pass reads the copy, whose gradient is FP16; the weights themselves are FP32."""
    wide = ms("AdamOptimizer", "rate,w_count,w,gw,w_m1,w_m2,w16", "w_t,w_n1,w_n2,w_new,,w16_new")
    ours, exact = trainer(write(tmp_path / "m.onnx", [wide, adam("b")], COUNTS, half=True), tmp_path / "lib"), Reference()
    for _ in range(4):
        ours.step({"x": X, "target": TARGET})
        exact.adam()
        np.testing.assert_allclose(ours.parameter("w"), exact.p["w"], atol=4e-3)
    state = ours.state()
    assert "w16" not in state and state["w"].dtype == np.float32, "a cast of the weights, stored where a policy says so"
    assert np.abs(state["w"] - WEIGHTS).max() > 0.2
    narrow = X.astype(np.float16).astype(np.float32) @ state["w"].astype(np.float16).astype(np.float32)
    loss = ours.gradients({"x": X, "target": TARGET})[0]
    d = narrow.astype(np.float16).astype(np.float32) + state["b"] - TARGET
    np.testing.assert_allclose(loss, np.mean(d * d), rtol=1e-4)


def test_lamb_of_several_tensors(tmp_path):
    groups = ",".join(f"{n},g{n},{n}_m1,{n}_m2," for n in ("w", "b")), ",".join(f"{n}_new,,{n}_n1,{n}_n2," for n in ("w", "b"))
    optimizer = ms("LambOptimizer", ",,,rate,count," + groups[0], "count_new," + groups[1], **{"lambda": [0.1, 0.0], "alpha": [0.8, 0.8]})
    ours, exact = trainer(write(tmp_path / "m.onnx", [optimizer]), tmp_path / "lib"), Reference()
    for _ in range(4):
        ours.step({"x": X, "target": TARGET})
        exact.lamb(beta1=0.8, decays=(0.1, 0.0))
        for name in exact.p:
            np.testing.assert_allclose(ours.parameter(name), exact.p[name], rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("policy", ["fp32", "amp-f16", "amp-bf16"])
def test_sgd_under_policies(tmp_path, policy):
    """The gradients are known as such, so that a policy scales the loss and keeps FP32 weights."""
    optimizers = [ms("SGDOptimizer", f"rate,{n},g{n}", f"{n}_new") for n in ("w", "b")]
    ours, exact = trainer(write(tmp_path / "m.onnx", optimizers), tmp_path / "lib", policy=policy), Reference()
    done = 0
    for _ in range(30):
        if done < 4 and not ours.step({"x": X, "target": TARGET}).skipped:
            exact.sgd()
            done += 1
    assert done == 4
    for name in exact.p:
        np.testing.assert_allclose(ours.parameter(name), exact.p[name], atol=1e-5 if policy == "fp32" else 2e-2)


@pytest.mark.parametrize("optimizer,message", [
    (adam("w", weight_decay_mode=2), "expected weight_decay_mode 0 or 1, got 2"),
    (adam("w", do_bias_correction=0, **{"lambda": 0.5}), "expected do_bias_correction with weight_decay_mode 0 and a lambda, got 0"),
    (ms("LambOptimizer", ",,,rate,count,w,gw,w_m1,w_m2,", "c,w_new,,w_n1,w_n2,", ratio_max=2.0), "expected ratio_min and ratio_max that bound"),
    (ms("LambOptimizer", ",,,rate,count,w,gw,w_m1,w_m2,,b,gb,b_m1,b_m2,", "c,w_new,,w_n1,w_n2,,b_new,,b_n1,b_n2,", alpha=[0.5]),
     "expected a float for each tensor in 'alpha', got 1"),
    (ms("SGDOptimizer", "rate,w,gb", "w_new"), "expected floats of the weights' shape"),
])
def test_refusals(tmp_path, optimizer, message):
    tool()
    with pytest.raises(mpt.CompileError, match=message):
        mpt.compile(write(tmp_path / "m.onnx", [optimizer], COUNTS), out=tmp_path / "lib")
