# SPDX-License-Identifier: Apache-2.0
"""Optimizers, schedules, averages and losses by name: steps of emitted libraries against the papers' formulas in FP64."""
import math

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

import mpt

RANDOM = np.random.default_rng(5)
WEIGHTS = {"w1": RANDOM.normal(0, 0.5, (8, 6)).astype(np.float32), "b1": RANDOM.normal(0, 0.5, 8).astype(np.float32),
           "w2": RANDOM.normal(0, 0.5, (3, 8)).astype(np.float32)}
INPUTS = {"x": RANDOM.normal(size=(5, 6)).astype(np.float32), "labels": np.array([0, 2, 1, 1, 2])}


def network(folder, body=None, output="z"):
    nodes = body or [helper.make_node("Gemm", ["x", "w1", "b1"], ["a"], transB=1), helper.make_node("Tanh", ["a"], ["r"]),
                     helper.make_node("Gemm", ["r", "w2"], ["z"], transB=1)]
    graph = helper.make_graph(nodes, "network", [helper.make_tensor_value_info("x", TensorProto.FLOAT, [5, 6])],
                              [helper.make_tensor_value_info(output, TensorProto.FLOAT, [5, 3])],
                              [numpy_helper.from_array(array, name) for name, array in WEIGHTS.items()])
    path = folder / "network.onnx"
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8), path)
    return path


def trainer(folder, optimizer, loss="softmax-cross-entropy", **flags):
    return mpt.Trainer(mpt.compile(network(folder), out=folder / "library", loss=loss, optimizer=optimizer, **flags), threads=1)


def norm(x):
    return np.sqrt((x * x).sum())


def rms(x):
    return np.sqrt((x * x).mean())


def rmsprop(p, g, s, t, lr, alpha=0.99, eps=1e-8, momentum=0.0, centered=False, decay=0.0):
    g = g + decay * p
    s["square"] = alpha * s.get("square", 0) + (1 - alpha) * g * g
    below = s["square"]
    if centered:
        s["mean"] = alpha * s.get("mean", 0) + (1 - alpha) * g
        below = below - s["mean"]**2
    step = g / (np.sqrt(below) + eps)
    if momentum:
        step = s["buffer"] = momentum * s.get("buffer", 0) + step
    return p - lr * step


def lion(p, g, s, t, lr, decay=0.0):
    m = s.get("moment1", 0 * p)
    s["moment1"] = 0.99 * m + 0.01 * g
    return p - lr * (np.sign(0.9 * m + 0.1 * g) + decay * p)


def lamb(p, g, s, t, lr, decay=0.0):
    s["moment1"] = 0.9 * s.get("moment1", 0) + 0.1 * g
    s["moment2"] = 0.999 * s.get("moment2", 0) + 0.001 * g * g
    u = s["moment1"] / (1 - 0.9**t) / (np.sqrt(s["moment2"] / (1 - 0.999**t)) + 1e-6) + decay * p
    return p - lr * (norm(p) / norm(u) if norm(p) > 0 and norm(u) > 0 else 1) * u


def lars(p, g, s, t, lr, decay=0.0):
    rate = 1e-3 * norm(p) / (norm(g) + decay * norm(p)) if norm(p) > 0 and norm(g) > 0 else 1
    s["momentum"] = 0.9 * s.get("momentum", 0) + lr * rate * (g + decay * p)
    return p - s["momentum"]


def adafactor(p, g, s, t, lr, decay=0.0):
    width = max(1e-3, rms(p)) * min(lr, 1 / math.sqrt(t))
    p, b = p - lr * decay * p, t**-0.8
    if p.ndim > 1:
        s["rows"] = s.get("rows", 0) * (1 - b) + b * (g * g).mean(-1, keepdims=True)
        s["columns"] = s.get("columns", 0) * (1 - b) + b * (g * g).mean(-2, keepdims=True)
        square = s["rows"] * s["columns"] / np.maximum(s["rows"].mean(-2, keepdims=True), 2**-23)
    else:
        square = s["square"] = s.get("square", 0) * (1 - b) + b * g * g
    u = g / np.sqrt(np.maximum(square, 2.0**-46))
    return p - width / max(1, rms(u)) * u


def adam_hat(p, g, s, t, lr, decay=0.0, late=0.0, corrects=True):
    g = g + decay * p
    s["moment1"] = 0.9 * s.get("moment1", 0) + 0.1 * g
    s["moment2"] = 0.999 * s.get("moment2", 0) + 0.001 * g * g
    rate = lr * math.sqrt(1 - 0.999**t) / (1 - 0.9**t) if corrects else lr
    return (p - rate * s["moment1"] / (np.sqrt(s["moment2"]) + 1e-3)) * (1 - lr * late)


CASES = {
    "adam,lr=0.01,eps-hat=1e-3,weight-decay=0.1": (adam_hat, {"lr": 0.01, "decay": 0.1}),
    "adamw,lr=0.01,eps-hat=1e-3,weight-decay=0.1": (adam_hat, {"lr": 0.01, "late": 0.1}),
    "adamw,lr=0.001,eps=1e-3,bias-correction=false,weight-decay=0.1": (adam_hat, {"lr": 0.001, "late": 0.1, "corrects": False}),
    "rmsprop,lr=0.01": (rmsprop, {"lr": 0.01}),
    "rmsprop,lr=0.01,alpha=0.9,eps=1e-3,momentum=0.9,centered=true,weight-decay=0.1":
        (rmsprop, {"lr": 0.01, "alpha": 0.9, "eps": 1e-3, "momentum": 0.9, "centered": True, "decay": 0.1}),
    "lion,lr=0.01,weight-decay=0.1": (lion, {"lr": 0.01, "decay": 0.1}),
    "lamb,lr=0.01,weight-decay=0.1": (lamb, {"lr": 0.01, "decay": 0.1}),
    "lars,lr=1,weight-decay=0.01": (lars, {"lr": 1, "decay": 0.01}),
    "adafactor,lr=0.05,weight-decay=0.1": (adafactor, {"lr": 0.05, "decay": 0.1}),
}


@pytest.mark.parametrize("spec", CASES)
def test_five_steps_are_the_formulas(spec, tmp_path):
    formula, settings = CASES[spec]
    model = trainer(tmp_path, spec)
    kept = {name: (array.astype(np.float64), {}) for name, array in WEIGHTS.items()}
    for step in range(1, 6):
        _, gradients = model.gradients(INPUTS)
        model.step(INPUTS)
        for name, (p, slots) in kept.items():
            kept[name] = formula(p, gradients[name].astype(np.float64), slots, step, **settings), slots
            np.testing.assert_allclose(model.parameter(name), kept[name][0], rtol=1e-5, atol=2e-6, err_msg=f"{name} after {step}")
            for slot, array in slots.items():
                np.testing.assert_allclose(model.parameter(f"{name}.{slot}"), array, rtol=2e-5, atol=1e-7)


@pytest.mark.parametrize("spec", ["rmsprop", "lion,lr=0.01", "lamb,lr=0.01", "lars,lr=1", "adafactor"])
@pytest.mark.parametrize("policy", ["amp-f16", "amp-bf16"])
def test_masters_scaling_and_clipping(spec, policy, tmp_path):
    wide, narrow = (trainer(tmp_path / kind, spec, clip_norm=0.5, **flags) for kind, flags in
                    (("wide", {}), ("narrow", {"policy": policy})) if not (tmp_path / kind).mkdir())
    before = narrow.state()
    assert narrow.step({**INPUTS, "x": INPUTS["x"] * np.float32(1e38)}).skipped or policy == "amp-bf16"
    if policy == "amp-f16":
        assert all(np.array_equal(before[n], a) for n, a in narrow.state().items() if not n.startswith("mpt."))
    else:
        narrow.reset()
    for _ in range(5):
        a, b = wide.step(INPUTS), narrow.step(INPUTS)
        assert a.grad_norm == pytest.approx(b.grad_norm, rel=0.1) and not b.skipped
    assert b.loss == pytest.approx(a.loss, rel=0.1) and "w1.master" in narrow.state()


def share(kind, k, warmup=0, steps=0, least=0.0, gamma=0.1, every=1, rise=0.3, div=25.0, final=1e4):
    if kind == "one-cycle":
        peak, last = rise * steps - 1, steps - 1
        low, high, q = (1 / div, 1, k / peak) if k <= peak else (1, 1 / div / final, (min(k, last) - peak) / (last - peak))
        return high + (low - high) / 2 * (1 + math.cos(math.pi * q))
    if k < warmup:
        return (k + 1) / warmup
    q = min(1, (k - warmup) / max(steps - warmup, 1))
    return {"constant": 1, "linear": 1 + (least - 1) * q, "cosine": least + (1 - least) * (1 + math.cos(math.pi * q)) / 2,
            "step": gamma**((k - warmup) // every)}[kind]


@pytest.mark.parametrize("text,settings", [
    ("constant,warmup=3", {"kind": "constant", "warmup": 3}),
    ("linear,steps=6,min=0.1", {"kind": "linear", "steps": 6, "least": 0.1}),
    ("cosine,warmup=2,steps=7", {"kind": "cosine", "warmup": 2, "steps": 7}),
    ("step,every=2,gamma=0.5", {"kind": "step", "every": 2, "gamma": 0.5}),
    ("one-cycle,steps=10", {"kind": "one-cycle", "steps": 10}),
])
def test_schedules(text, settings, tmp_path):
    """The rate of each step, past the end too, from how far plain SGD goes; a rate given multiplies."""
    model = trainer(tmp_path, f"sgd,lr=0.5,schedule={text}")
    for k in range(10):
        _, gradients = model.gradients(INPUTS)
        before = model.parameter("w2").astype(np.float64)
        model.step(INPUTS, learning_rate=1.0 if k == 9 else None)
        moved = before - model.parameter("w2")
        rate = (moved * gradients["w2"]).sum() / (gradients["w2"].astype(np.float64)**2).sum()
        assert rate == pytest.approx((1.0 if k == 9 else 0.5) * share(k=k, **settings), rel=1e-3, abs=1e-6), k


@pytest.mark.parametrize("text,wanted", [("cosine", "steps above warmup"), ("step", "every=N"), ("saw", "constant, linear, cosine, step or one-cycle"),
                                         ("one-cycle,steps=9,warmup=2", "rise=SHARE"), ("linear,steps=2,warmup=4", "steps above warmup")])
def test_schedules_that_lack_something(text, wanted, tmp_path):
    with pytest.raises(mpt.CompileError, match=wanted):
        trainer(tmp_path, f"sgd,schedule={text}")


@pytest.mark.parametrize("policy", ["fp32", "amp-f16"])
def test_averages_follow_the_parameters(policy, tmp_path):
    model = trainer(tmp_path, "sgd,lr=0.5", ema=0.9, policy=policy)
    mean = WEIGHTS["w1"].astype(np.float64)
    np.testing.assert_array_equal(model.parameter("w1.ema"), WEIGHTS["w1"])
    for _ in range(4):
        model.step(INPUTS)
        mean = 0.9 * mean + 0.1 * model.parameter("w1")
        np.testing.assert_allclose(model.parameter("w1.ema"), mean, rtol=1e-5, atol=1e-6)
    averaged, own = model.run("predict_ema", {"x": INPUTS["x"]})["z"], model.run("predict", {"x": INPUTS["x"]})["z"]
    assert not np.allclose(averaged, own)
    for name in WEIGHTS:
        model.set_parameter(name, model.parameter(name + ".ema"))
    np.testing.assert_allclose(model.run("predict", {"x": INPUTS["x"]})["z"], averaged, rtol=1e-2 if policy == "amp-f16" else 1e-6, atol=1e-3)


def log_softmax(z):
    z = z - z.max(-1, keepdims=True)
    return z - np.log(np.exp(z).sum(-1, keepdims=True))


TARGET = RANDOM.normal(size=(5, 3)).astype(np.float32)
SHARES = np.abs(TARGET) * (TARGET > -0.3) + [0.1, 0, 0]  # no row is zero, some elements are
SHARES = (SHARES / SHARES.sum(-1, keepdims=True)).astype(np.float32)
LOSSES = {
    "nll": ("labels", lambda z, t: -z[np.arange(5), t].mean()),
    "nll,ignore-index=1": ("labels", lambda z, t: -z[np.arange(5), t][t != 1].mean()),
    "focal,gamma=1.5,alpha=0.25": ("labels", lambda z, t: (0.25 * (1 - np.exp(log_softmax(z)[np.arange(5), t]))**1.5 * -log_softmax(z)[np.arange(5), t]).mean()),
    "smooth-l1,beta=0.5": ("target", lambda z, t: np.where(np.abs(z - t) < 0.5, (z - t)**2, np.abs(z - t) - 0.25).mean()),
    "huber,delta=0.5": ("target", lambda z, t: np.where(np.abs(z - t) < 0.5, (z - t)**2 / 2, 0.5 * (np.abs(z - t) - 0.25)).mean()),
    "kl": ("shares", lambda z, t: np.where(t > 0, t * (np.log(np.where(t > 0, t, 1)) - z), 0).sum() / 5),
    "cosine": ("target", lambda z, t: (1 - (z * t).sum(-1) / np.sqrt((z * z).sum(-1) * (t * t).sum(-1))).mean()),
}


@pytest.mark.parametrize("spec", LOSSES)
def test_losses_and_their_gradients(spec, tmp_path):
    """Against the formula in FP64, the gradient by central differences of it."""
    kind, formula = LOSSES[spec]
    targets = {"labels": {"labels": INPUTS["labels"]}, "target": {"target": TARGET}, "shares": {"target": SHARES}}[kind]
    model = trainer(tmp_path, "sgd,lr=0.1", loss=spec)
    feeds = {"x": INPUTS["x"], **targets}
    w = {name: array.astype(np.float64) for name, array in WEIGHTS.items()}

    def value(w2):
        return formula(np.tanh(INPUTS["x"] @ w["w1"].T + w["b1"]) @ w2.T, next(iter(targets.values())))

    loss, gradients = model.gradients(feeds)
    assert loss == pytest.approx(value(w["w2"]), rel=1e-5)
    for _ in range(3):
        direction = RANDOM.normal(size=w["w2"].shape)
        slope = (value(w["w2"] + 1e-6 * direction) - value(w["w2"] - 1e-6 * direction)) / 2e-6
        assert (gradients["w2"] * direction).sum() == pytest.approx(slope, rel=1e-4, abs=1e-6)
