# SPDX-License-Identifier: Apache-2.0
"""Compiled small models of every family against ONNX's reference evaluator in float64.

The evaluator shares nothing with the compiler: the loss is compared with its loss, every parameter's gradient with its
central difference along random directions, and SGD and AdamW with the published formulas in float64, fed with gradients
that were just checked. Kinks (ReLU, max-pooling) are far from the values that the seeds give.
"""
import os
import pathlib

import numpy as np
import pytest
from onnx import TensorProto, helper, numpy_helper, parser
from onnx.reference import ReferenceEvaluator

import mpt

ROOT = pathlib.Path(__file__).resolve().parents[2]
BUILD = pathlib.Path(os.environ.get("MPT_BUILD", ROOT / "build" / "release"))
pytestmark = pytest.mark.skipif(not (BUILD / "bin" / "mpt-opt").exists(), reason="mpt-opt is not built")

HEAD = '<ir_version: 9, opset_import: ["" : 20], producer_name: "test">\n'
MLP = """mlp (float[8, 12] x, {target}) => (float loss) {{
  h = Gemm<transB = 1>(x, w1, b1)
  t = Tanh(h)
  z = Gemm<transB = 1>(t, w2, b2)
  {loss}
}}"""
MLP_SHAPES = {"w1": (20, 12), "b1": (20,), "w2": (6, 20), "b2": (6,)}
CLASSES, VALUES = "int64[8] y", "float[8, 6] y"
# graph, shapes of the parameters
MODELS = {
    "mlp_cross_entropy": (MLP.format(target=CLASSES, loss='loss = SoftmaxCrossEntropyLoss<reduction = "mean">(z, y)'), MLP_SHAPES),
    "mlp_mse": (MLP.format(target=VALUES, loss="d = Sub(z, y)  s = Mul(d, d)  loss = ReduceMean<keepdims = 0>(s)"), MLP_SHAPES),
    "mlp_l1": (MLP.format(target=VALUES, loss="d = Sub(z, y)  a = Abs(d)  loss = ReduceMean<keepdims = 0>(a)"), MLP_SHAPES),
    "mlp_bce": (MLP.format(target=VALUES, loss="""r = Relu(z)
  p = Mul(z, y)
  a = Abs(z)
  m = Neg(a)
  e = Exp(m)
  one = Constant<value = float {1}>()
  o = Add(e, one)
  l = Log(o)
  d = Sub(r, p)
  s = Add(d, l)
  loss = ReduceMean<keepdims = 0>(s)"""), MLP_SHAPES),
    # Stem, residual block with depthwise convolution and squeeze, pooling: batch norm behind each convolution.
    "residual": ("""residual (float[4, 3, 16, 16] x, int64[4] y) => (float loss) {
  c0 = Conv<pads = [1, 1, 1, 1]>(x, stem)
  n0, m0, v0 = BatchNormalization<training_mode = 1>(c0, s0, b0, mean0, var0)
  r0 = Relu(n0)
  p0 = MaxPool<kernel_shape = [2, 2], strides = [2, 2]>(r0)
  c1 = Conv(p0, expand)
  n1, m1, v1 = BatchNormalization<training_mode = 1>(c1, s1, b1, mean1, var1)
  r1 = HardSwish(n1)
  c2 = Conv<group = 24, pads = [1, 1, 1, 1]>(r1, depthwise)
  n2, m2, v2 = BatchNormalization<training_mode = 1>(c2, s2, b2, mean2, var2)
  g = GlobalAveragePool(n2)
  q = Conv(g, squeeze, squeeze_b)
  gate = Sigmoid(q)
  r2 = Mul(n2, gate)
  c3 = Conv(r2, project)
  n3, m3, v3 = BatchNormalization<training_mode = 1>(c3, s3, b3, mean3, var3)
  sum = Add(n3, p0)
  pooled = GlobalAveragePool(sum)
  flat = Flatten(pooled)
  z = Gemm<transB = 1>(flat, fc, fc_b)
  loss = SoftmaxCrossEntropyLoss<reduction = "mean">(z, y)
}""", {"stem": (8, 3, 3, 3), "expand": (24, 8, 1, 1), "depthwise": (24, 1, 3, 3), "squeeze": (24, 24, 1, 1), "squeeze_b": (24,),
       "project": (8, 24, 1, 1), "fc": (5, 8), "fc_b": (5,),
       **{f"{kind}{i}": (n,) for i, n in enumerate((8, 24, 24, 8)) for kind in ("s", "b", "mean", "var")}}),
    # Transposed convolutions, as generators and U-Nets have them.
    "generator": ("""generator (float[4, 6, 4, 4] x, float[4, 2, 16, 16] y) => (float loss) {
  c0 = ConvTranspose<strides = [2, 2], pads = [1, 1, 1, 1]>(x, up0)
  n0, m0, v0 = BatchNormalization<training_mode = 1>(c0, s0, b0, mean0, var0)
  r0 = LeakyRelu<alpha = 0.2>(n0)
  c1 = ConvTranspose<strides = [2, 2], pads = [1, 1, 1, 1]>(r0, up1)
  t = Tanh(c1)
  d = Sub(t, y)
  s = Mul(d, d)
  loss = ReduceMean<keepdims = 0>(s)
}""", {"up0": (6, 8, 4, 4), "up1": (8, 2, 4, 4), **{f"{kind}0": (8,) for kind in ("s", "b", "mean", "var")}}),
    # A causal transformer block in primitives, embeddings to tied logits. (The evaluator rounds erf to float32.)
    "transformer": ("""transformer (int64[2, 12] tokens, int64[24] y) => (float loss) {
  e0 = Gather(table, tokens)
  e = Add(e0, position)
  l1 = LayerNormalization<axis = -1>(e, ln1_s, ln1_b)
  q0 = MatMul(l1, wq)
  k0 = MatMul(l1, wk)
  v0 = MatMul(l1, wv)
  split = Constant<value = int64[4] {2, 12, 2, 8}>()
  q1 = Reshape(q0, split)
  k1 = Reshape(k0, split)
  v1 = Reshape(v0, split)
  q = Transpose<perm = [0, 2, 1, 3]>(q1)
  k = Transpose<perm = [0, 2, 3, 1]>(k1)
  v = Transpose<perm = [0, 2, 1, 3]>(v1)
  s0 = MatMul(q, k)
  root = Constant<value = float {0.35355339}>()
  s1 = Mul(s0, root)
  s2 = Add(s1, mask)
  a = Softmax<axis = -1>(s2)
  o0 = MatMul(a, v)
  o1 = Transpose<perm = [0, 2, 1, 3]>(o0)
  join = Constant<value = int64[3] {2, 12, 16}>()
  o2 = Reshape(o1, join)
  o = MatMul(o2, wo)
  h = Add(e, o)
  l2 = LayerNormalization<axis = -1>(h, ln2_s, ln2_b)
  f0 = MatMul(l2, up)
  f1 = Add(f0, up_b)
  f2 = Gelu<approximate = "tanh">(f1)
  f3 = MatMul(f2, down)
  h2 = Add(h, f3)
  rows = Constant<value = int64[2] {24, 16}>()
  h3 = Reshape(h2, rows)
  z = Gemm<transB = 1>(h3, table)
  loss = SoftmaxCrossEntropyLoss<reduction = "mean">(z, y)
}""", {"table": (30, 16), "position": (12, 16), "up_b": (48,), "up": (16, 48), "down": (48, 16),
       **{w: (16, 16) for w in ("wq", "wk", "wv", "wo")}, **{f"ln{i}_{kind}": (16,) for i in (1, 2) for kind in "sb"}}),
}
NOT_TRAINED = ("mean", "var", "mask")


def parameters_of(name):
    random = np.random.default_rng(1)
    values = {}
    for key, shape in MODELS[name][1].items():
        fan_in = max(1, int(np.prod(shape[1:]))) if len(shape) > 1 else 25
        value = random.standard_normal(shape) / np.sqrt(fan_in)
        values[key] = (1 + np.abs(value) if key.startswith(("s", "ln", "var")) and len(shape) == 1 else value).astype(np.float32)
    if name == "transformer":
        values["mask"] = np.triu(np.full((12, 12), -1e4, np.float32), 1)
    return values


def feeds_of(model):
    random = np.random.default_rng(2)
    feeds = {}
    for value in model.graph.input:
        shape = [d.dim_value for d in value.type.tensor_type.shape.dim]
        whole = value.type.tensor_type.elem_type == 7
        feeds[value.name] = random.integers(0, 5, shape) if whole else random.standard_normal(shape).astype(np.float32)
    return feeds


class Oracle:
    """The graph in float64, its parameters inputs, so that one evaluator serves all points."""

    def __init__(self, text, feeds, parameters):
        model = parser.parse_model(HEAD + text.replace("float", "double"))
        model.graph.input.extend(helper.make_tensor_value_info(k, TensorProto.DOUBLE, v.shape) for k, v in parameters.items())
        self.evaluator = ReferenceEvaluator(model)
        self.feeds = {k: v if v.dtype == np.int64 else v.astype(np.float64) for k, v in feeds.items()}

    def loss(self, parameters):
        return float(self.evaluator.run(None, {**self.feeds, **parameters})[0])

    def slope(self, parameters, name, direction, step=1e-5):
        ahead, behind = ({**parameters, name: parameters[name] + s * step * direction} for s in (1, -1))
        return (self.loss(ahead) - self.loss(behind)) / (2 * step)


def compiled(name, optimizer, folder, loss="none"):
    """A trainer of the model, its feeds, and its parameters; with `loss` the graph ends in the MLP's z."""
    model, parameters = parser.parse_model(HEAD + MODELS[name][0]), parameters_of(name)
    feeds = feeds_of(model)
    if loss != "none":
        model = parser.parse_model(HEAD + "mlp (float[8, 12] x) => (float[8, 6] z) {\n" + MLP[MLP.index("  h = "):MLP.index("  {loss}")] + "}")
        feeds["labels" if loss == "softmax-cross-entropy" else "target"] = feeds.pop("y")
    model.graph.initializer.extend(numpy_helper.from_array(v, k) for k, v in parameters.items())
    path = folder / f"{name}.onnx"
    path.write_bytes(model.SerializeToString())
    frozen = [] if name != "transformer" else ["mask"]
    mpt.compile(path, loss=loss, optimizer=optimizer, policy="fp32", freeze=frozen, quiet=True, out=folder / "lib")
    return mpt.Trainer(folder / "lib", threads=1), feeds, {k: v.astype(np.float64) for k, v in parameters.items()}


@pytest.fixture(autouse=True)
def tools():
    mpt.use_build(BUILD)


def sgd(p, g, state, t):
    return p - 0.01 * g


def adamw(p, g, state, t):
    """Decoupled weight decay (Loshchilov and Hutter, 2019), bias-corrected, epsilon outside the root."""
    m, v = state.get("m", 0 * g), state.get("v", 0 * g)
    state["m"], state["v"] = m, v = 0.9 * m + 0.1 * g, 0.999 * v + 0.001 * g * g
    p = p - 0.001 * 0.01 * p
    return p - 0.001 * (m / (1 - 0.9**t)) / (np.sqrt(v / (1 - 0.999**t)) + 1e-8)


def check_gradients(trainer, feeds, parameters, oracle):
    loss, gradients = trainer.gradients(feeds)
    assert loss == pytest.approx(oracle.loss(parameters), rel=1e-6)
    trained = {k for k in parameters if not k.startswith(NOT_TRAINED)}
    assert set(gradients) == trained
    floor = 1e-3 * max(np.linalg.norm(g) for g in gradients.values())
    random = np.random.default_rng(3)
    for key in sorted(trained):
        g = np.asarray(gradients[key], np.float64)
        for _ in range(2):
            direction = random.standard_normal(g.shape)
            # Half along the gradient, so that the slope is of its size.
            direction = direction / np.linalg.norm(direction) + g / max(np.linalg.norm(g), 1e-30)
            error = abs(oracle.slope(parameters, key, direction) - np.sum(g * direction))
            assert error <= 1e-5 * max(np.linalg.norm(g), floor), key


@pytest.mark.parametrize("name", MODELS)
def test_loss_and_gradients(name, tmp_path):
    trainer, feeds, parameters = compiled(name, "sgd,lr=0.01", tmp_path)
    check_gradients(trainer, feeds, parameters, Oracle(MODELS[name][0], feeds, parameters))


@pytest.mark.parametrize("name, loss", [("mlp_cross_entropy", "softmax-cross-entropy"), ("mlp_mse", "mse"), ("mlp_l1", "l1"),
                                        ("mlp_bce", "bce-with-logits")])
def test_loss_that_the_compiler_adds(name, loss, tmp_path):
    trainer, feeds, parameters = compiled(name, "sgd,lr=0.01", tmp_path, loss)
    own = feeds_of(parser.parse_model(HEAD + MODELS[name][0]))
    check_gradients(trainer, feeds, parameters, Oracle(MODELS[name][0], own, parameters))


@pytest.mark.parametrize("optimizer, rule", [("sgd,lr=0.01", sgd), ("adamw,lr=0.001,weight-decay=0.01", adamw)])
@pytest.mark.parametrize("name", ["mlp_l1", "residual", "transformer"])
def test_ten_steps(name, optimizer, rule, tmp_path):
    trainer, feeds, parameters = compiled(name, optimizer, tmp_path)
    oracle = Oracle(MODELS[name][0], feeds, parameters)
    trained = [k for k in parameters if not k.startswith(NOT_TRAINED)]
    expected, states = {k: parameters[k] for k in trained}, {k: {} for k in trained}
    for t in range(1, 11):
        _, gradients = trainer.gradients(feeds)
        for key in trained:
            expected[key] = rule(expected[key], np.asarray(gradients[key], np.float64), states[key], t)
        now = {**parameters, **{k: v.astype(np.float64) for k, v in trainer.parameters().items()}}
        assert trainer.step(feeds).loss == pytest.approx(oracle.loss(now), rel=1e-6)
    values = trainer.parameters()
    for key in trained:
        np.testing.assert_allclose(values[key], expected[key], rtol=1e-5, atol=1e-6, err_msg=key)
