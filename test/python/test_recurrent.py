# SPDX-License-Identifier: Apache-2.0
"""RNN, LSTM and GRU in every form: loss and all gradients against the operators' formulas in FP64 and their central differences.

The reference below is written from the operators' text alone. Forms are drawn at random, so that attributes meet; each activation
has a case of its own.
"""
import numpy as np
import onnx
import pytest
from mpt_run import tool

import mpt

T, N, I, H = 4, 3, 2, 3
GATES = {"RNN": 1, "GRU": 3, "LSTM": 4}
FUNCTIONS = {"RNN": 1, "GRU": 2, "LSTM": 3}
USUAL = {"RNN": ["Tanh"], "GRU": ["Sigmoid", "Tanh"], "LSTM": ["Sigmoid", "Tanh", "Tanh"]}
# name: (function of x, alpha and beta; default alpha and beta, None where the activation takes none)
ACTIVATIONS = {
    "Relu": (lambda x, a, b: np.maximum(x, 0), None, None),
    "Tanh": (lambda x, a, b: np.tanh(x), None, None),
    "Sigmoid": (lambda x, a, b: 1 / (1 + np.exp(-x)), None, None),
    "Affine": (lambda x, a, b: a * x + b, 1.0, 0.0),
    "LeakyRelu": (lambda x, a, b: np.where(x >= 0, x, a * x), 0.01, None),
    "ThresholdedRelu": (lambda x, a, b: np.where(x >= a, x, 0), 1.0, None),
    "ScaledTanh": (lambda x, a, b: a * np.tanh(b * x), 1.0, 1.0),
    "HardSigmoid": (lambda x, a, b: np.clip(a * x + b, 0, 1), 0.2, 0.5),
    "Elu": (lambda x, a, b: np.where(x >= 0, x, a * np.expm1(x)), 1.0, None),
    "Softsign": (lambda x, a, b: x / (1 + np.abs(x)), None, None),
    "Softplus": (lambda x, a, b: np.log1p(np.exp(x)), None, None),
}


class Form:
    """One node's attributes."""

    def __init__(self, op, direction="forward", layout=0, activations=None, alphas=(), betas=(), clip=None, before=0, forget=0,
                 bias=True, lens=None, h0=True, c0=True, peepholes=False):
        self.op, self.direction, self.layout, self.alphas, self.betas, self.clip = op, direction, layout, alphas, betas, clip
        self.before, self.forget, self.bias, self.lens = before, forget, bias, lens
        self.h0, self.c0, self.peepholes = h0, c0 and op == "LSTM", peepholes and op == "LSTM"
        self.directions = 2 if direction == "bidirectional" else 1
        self.activations = activations
        self.step_functions = self.bind(activations or USUAL[op] * self.directions)

    def bind(self, names):
        alphas, betas, functions = list(self.alphas), list(self.betas), []
        for name in names:
            function, alpha, beta = ACTIVATIONS[name]
            a = None if alpha is None else alphas.pop(0) if alphas else alpha
            b = None if beta is None else betas.pop(0) if betas else beta
            functions.append(lambda x, f=function, a=a, b=b: f(x, a, b))
        assert not alphas and not betas
        return functions

    def shapes(self):
        d, g = self.directions, GATES[self.op]
        state = (N, d, H) if self.layout else (d, N, H)
        shapes = dict(x=(N, T, I) if self.layout else (T, N, I), w=(d, g * H, I), r=(d, g * H, H))
        shapes.update(b=(d, 2 * g * H)) if self.bias else None
        shapes.update(h0=state) if self.h0 else None
        shapes.update(c0=state) if self.c0 else None
        shapes.update(p=(d, 3 * H)) if self.peepholes else None
        return shapes

    def attributes(self):
        found = dict(hidden_size=H, direction=self.direction, layout=self.layout)
        for key, value in dict(activations=self.activations, activation_alpha=list(self.alphas), activation_beta=list(self.betas)).items():
            if value:
                found[key] = value
        if self.clip:
            found["clip"] = self.clip
        if self.before:
            found["linear_before_reset"] = 1
        if self.forget:
            found["input_forget"] = 1
        return found


def step(form, functions, x, h, c, w, r, b, p):
    """One step of one row or several: the new state and cell state."""
    def clip(v):
        return v if form.clip is None else np.clip(v, -form.clip, form.clip)

    g = GATES[form.op]
    wb, rb = b[:g * H], b[g * H:]
    xs = [x @ w[i * H:(i + 1) * H].T + wb[i * H:(i + 1) * H] for i in range(g)]
    hs = [h @ r[i * H:(i + 1) * H].T + rb[i * H:(i + 1) * H] for i in range(g)]
    if form.op == "RNN":
        return functions[0](clip(xs[0] + hs[0])), c
    if form.op == "GRU":
        z, reset = functions[0](clip(xs[0] + hs[0])), functions[0](clip(xs[1] + hs[1]))
        inner = reset * hs[2] if form.before else (reset * h) @ r[2 * H:].T + rb[2 * H:]
        return (1 - z) * functions[1](clip(xs[2] + inner)) + z * h, c
    i = functions[0](clip(xs[0] + hs[0] + p[:H] * c))
    f = 1 - i if form.forget else functions[0](clip(xs[2] + hs[2] + p[2 * H:] * c))
    new = f * c + i * functions[1](clip(xs[3] + hs[3]))
    o = functions[0](clip(xs[1] + hs[1] + p[H:2 * H] * new))
    return o * functions[2](new), new


def reference(form, v):
    """Y [T, D, N, H] and the last states [D, N, H] of each row on its own, in FP64."""
    x = v["x"].transpose(1, 0, 2) if form.layout else v["x"]
    y, last_h, last_c = np.zeros((T, form.directions, N, H)), np.zeros((form.directions, N, H)), np.zeros((form.directions, N, H))
    for d in range(form.directions):
        functions = form.step_functions[d * FUNCTIONS[form.op]:(d + 1) * FUNCTIONS[form.op]]
        b = v["b"][d] if form.bias else np.zeros(2 * GATES[form.op] * H)
        p = v["p"][d] if form.peepholes else np.zeros(3 * H)
        for n in range(N):
            def state(name, given, d=d, n=n):
                return np.zeros(H) if not given else v[name][n, d] if form.layout else v[name][d, n]

            h, c = state("h0", form.h0), state("c0", form.c0)
            steps = range(T if form.lens is None else form.lens[n])
            for t in reversed(steps) if form.direction == "reverse" or d == 1 else steps:
                h, c = step(form, functions, x[t, n], h, c, v["w"][d], v["r"][d], b, p)
                y[t, d, n] = h
            last_h[d, n], last_c[d, n] = h, c
    return y, last_h, last_c


def loss_of(form, v):
    y, h, c = reference(form, v)
    loss = np.mean(y**3 + y**2) + np.mean(h**3)
    return loss + np.mean(c**2) if form.op == "LSTM" else loss


def model_of(form, values):
    """The model of loss_of: every operand is a parameter times an input of ones."""
    node, shapes = onnx.helper.make_node, form.shapes()
    order = ["x", "w", "r", "b", "lens", "h0", "c0", "p"]
    inputs = [name if name in shapes or (name == "lens" and form.lens is not None) else "" for name in order]
    while not inputs[-1]:
        inputs.pop()
    cells = ["c"] if form.op == "LSTM" else []
    nodes = [node("Mul", [f"p_{name}", f"one_{name}"], [name]) for name in shapes]
    nodes += [node(form.op, inputs, ["y", "h", *cells], **form.attributes()),
              node("Mul", ["y", "y"], ["y2"]), node("Mul", ["y2", "y"], ["y3"]), node("Add", ["y2", "y3"], ["ys"]),
              node("Mul", ["h", "h"], ["h2"]), node("Mul", ["h2", "h"], ["h3"]),
              node("ReduceMean", ["ys"], ["my"], keepdims=0), node("ReduceMean", ["h3"], ["mh"], keepdims=0)]
    terms = ["my", "mh"]
    if cells:
        nodes += [node("Mul", ["c", "c"], ["c2"]), node("ReduceMean", ["c2"], ["mc"], keepdims=0)]
        terms.append("mc")
    nodes.append(node("Sum", terms, ["loss"]))
    tensor = onnx.helper.make_tensor_value_info
    graph = onnx.helper.make_graph(
        nodes, "m", [tensor(f"one_{name}", onnx.TensorProto.FLOAT, shape) for name, shape in shapes.items()],
        [tensor("loss", onnx.TensorProto.FLOAT, [])],
        [onnx.numpy_helper.from_array(values[name].astype(np.float32), f"p_{name}") for name in shapes])
    if form.lens is not None:
        graph.initializer.append(onnx.numpy_helper.from_array(np.array(form.lens, np.int32), "lens"))
    return onnx.helper.make_model(graph, opset_imports=[onnx.helper.make_opsetid("", 17)], ir_version=10)


def central_differences(form, values):
    gradients = {}
    for name, value in values.items():
        gradient = np.zeros_like(value)
        for index in np.ndindex(value.shape):
            ends = []
            for sign in (1, -1):
                moved = dict(values, **{name: value.copy()})
                moved[name][index] += sign * 1e-6
                ends.append(loss_of(form, moved))
            gradient[index] = (ends[0] - ends[1]) / 2e-6
        gradients[name] = gradient
    return gradients


def draw(seed):
    random = np.random.default_rng(seed)
    op = str(random.choice(["RNN", "LSTM", "GRU", "LSTM", "GRU"]))
    direction = str(random.choice(["forward", "reverse", "bidirectional"]))
    activations = None
    if random.random() < 0.5:
        count = FUNCTIONS[op] * (2 if direction == "bidirectional" else 1)
        activations = [str(name) for name in random.choice([a for a in ACTIVATIONS if a != "ThresholdedRelu"], count)]
    def maybe():
        return bool(random.random() < 0.5)

    return Form(op, direction, int(maybe()), activations, clip=0.4 if random.random() < 0.3 else None, before=int(op == "GRU" and maybe()),
                forget=int(op == "LSTM" and maybe()), bias=maybe(), lens=[4, 2, 3] if random.random() < 0.4 else None, h0=maybe(),
                c0=maybe(), peepholes=maybe())


FORMS = {f"drawn-{seed}": draw(seed) for seed in range(24)}
FORMS.update({f"{op}-{direction}": Form(op, direction, before=int(op == "GRU")) for op in GATES for direction in ("forward", "reverse", "bidirectional")})
FORMS.update({f"RNN-{name}": Form("RNN", activations=[name]) for name in ACTIVATIONS})
FORMS.update({
    "alpha-and-beta": Form("LSTM", "bidirectional", activations=["Tanh", "LeakyRelu", "Affine", "HardSigmoid", "Elu", "ScaledTanh"],
                           alphas=[0.3, 0.7, 0.4, 0.8, 1.3], betas=[0.1, 0.45, 0.9]),
    "empty-row": Form("LSTM", "bidirectional", lens=[0, 4, 1], peepholes=True),
    "GRU-lengths": Form("GRU", "bidirectional", lens=[1, 3, 4], before=1),
})


@pytest.mark.parametrize("name", FORMS)
def test_loss_and_gradients(name, tmp_path):
    if not (tool().parent / "mpt-opt").exists():
        pytest.skip("mpt-opt is not built")
    form = FORMS[name]
    random = np.random.default_rng(11)
    # Kinks of activations and clips are not where central differences look: the values are generic.
    values = {key: np.float64(np.float32(random.standard_normal(shape) * 0.8)) for key, shape in form.shapes().items()}
    onnx.save(model_of(form, values), tmp_path / "m.onnx")
    mpt.compile(tmp_path / "m.onnx", loss="none", optimizer="sgd,lr=0.1", quiet=True, out=tmp_path / "out")
    loss, gradients = mpt.Trainer(tmp_path / "out", threads=1).gradients(
        {f"one_{key}": np.ones(shape, np.float32) for key, shape in form.shapes().items()})
    assert loss == pytest.approx(loss_of(form, values), rel=1e-5)
    wanted = central_differences(form, values)
    assert set(gradients) == {f"p_{key}" for key in wanted}
    for key, gradient in wanted.items():
        scale = max(np.abs(gradient).max(), 1e-3)
        np.testing.assert_allclose(gradients[f"p_{key}"] / scale, gradient / scale, atol=2e-5, err_msg=key)
