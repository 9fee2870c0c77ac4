# SPDX-License-Identifier: Apache-2.0
"""ONNX Runtime's operators against the same graph in standard ones: loss and every gradient of two compiled models."""
import numpy as np
import onnx
import onnx.parser
import pytest
from mpt_run import tool

import mpt

NORM = "LayerNormalization <axis = -1, epsilon = 0.00001>"
HEADS = """shape = Constant <value = int64[4] {0, 0, 2, -1}> ()
  q1 = Reshape (q0, shape)
  k1 = Reshape (k0, shape)
  v1 = Reshape (v0, shape)
  q = Transpose <perm = [0, 2, 1, 3]> (q1)
  k = Transpose <perm = [0, 2, 3, 1]> (k1)
  v = Transpose <perm = [0, 2, 1, 3]> (v1)
  s0 = MatMul (q, k)
  root = Constant <value = float {0.5}> ()
  s1 = Mul (s0, root)
  """
JOIN = """o0 = MatMul (a, v)
  o1 = Transpose <perm = [0, 2, 1, 3]> (o0)
  rows = Constant <value = int64[3] {0, 0, -1}> ()
  r = Reshape (o1, rows)"""
CAUSAL = """ones = Constant <value = float[4, 4] {0, -1e9, -1e9, -1e9, 0, 0, -1e9, -1e9, 0, 0, 0, -1e9, 0, 0, 0, 0}> ()
  s2 = Add (s1, ones)
  a = Softmax <axis = -1> (s2)
  """
X, V, W = (2, 4, 8), (8,), (8, 24)
# the operator, the same in standard ones, shapes of the parameters
CASES = {
    "BiasGelu": ("r = com.microsoft.BiasGelu (x, b)", "s = Add (x, b)  r = Gelu (s)", dict(x=X, b=V)),
    "FastGelu": ("r = com.microsoft.FastGelu (x, b)", 's = Add (x, b)  r = Gelu <approximate = "tanh"> (s)', dict(x=X, b=V)),
    "BiasSplitGelu": ("r = com.microsoft.BiasSplitGelu (x, b)", "s = Add (x, b)  c, d = Split <axis = -1, num_outputs = 2> (s)  g = Gelu (d)  r = Mul (c, g)",
                      dict(x=X, b=V)),
    "BiasAdd": ("r = com.microsoft.BiasAdd (x, b, y)", "s = Add (x, b)  r = Add (s, y)", dict(x=X, b=V, y=X)),
    "BiasSoftmax": ("r = com.microsoft.BiasSoftmax <axis = -1, is_inner_broadcast = 0> (x, y)", "s = Add (x, y)  r = Softmax <axis = -1> (s)",
                    dict(x=X, y=(1, 4, 8))),
    "SkipLayerNormalization": (
        "t, , , u = com.microsoft.SkipLayerNormalization <epsilon = 0.00001> (x, y, s, b, c)  r = Mul (t, u)",
        f"w = Add (x, y)  u = Add (w, c)  t = {NORM} (u, s, b)  r = Mul (t, u)", dict(x=X, y=X, s=V, b=V, c=V)),
    "SkipSimplifiedLayerNormalization": (
        "r = com.microsoft.SkipSimplifiedLayerNormalization <epsilon = 0.00001> (x, y, s)",
        "u = Add (x, y)  r = RMSNormalization <epsilon = 0.00001> (u, s)", dict(x=X, y=X, s=V)),
    "SimplifiedLayerNormalization": ("r = SimplifiedLayerNormalization <axis = -1, epsilon = 0.00001> (x, s)",
                                     "r = RMSNormalization <epsilon = 0.00001> (x, s)", dict(x=X, s=V)),
    "GroupNorm": ("r = com.microsoft.GroupNorm <groups = 2, activation = 1> (x, s, b)",
                  """n = Transpose <perm = [0, 2, 1]> (x)  g = GroupNormalization <num_groups = 2> (n, s, b)  e = Sigmoid (g)
                     f = Mul (g, e)  r = Transpose <perm = [0, 2, 1]> (f)""", dict(x=X, s=V, b=V)),
    "Attention": ("r = com.microsoft.Attention <num_heads = 2, unidirectional = 1> (x, w, b)",
                  f"all = MatMul (x, w)  sum = Add (all, b)  q0, k0, v0 = Split <axis = -1, num_outputs = 3> (sum) {HEADS} {CAUSAL} {JOIN}",
                  dict(x=X, w=W, b=(24,))),
    "MultiHeadAttention": ("r = com.microsoft.MultiHeadAttention <num_heads = 2> (q0, k0, v0)", f"{HEADS} a = Softmax <axis = -1> (s1) {JOIN}",
                           dict(q0=X, k0=(2, 5, 8), v0=(2, 5, 8))),
    "FusedMatMul": (
        "r = com.microsoft.FusedMatMul <transBatchA = 1, transB = 1, transBatchB = 1, alpha = 0.5> (x, y)",
        """p = Transpose <perm = [1, 2, 0, 3]> (x)  q = Transpose <perm = [1, 2, 3, 0]> (y)  m = MatMul (p, q)
           half = Constant <value = float {0.5}> ()  r = Mul (m, half)""", dict(x=(5, 2, 3, 4), y=(6, 2, 3, 4))),
    "FusedMatMul, columns first": (
        "r = com.microsoft.FusedMatMul <transA = 1, transBatchA = 1> (x, y)",
        "p = Transpose <perm = [1, 2, 0]> (x)  r = MatMul (p, y)", dict(x=(4, 3, 5), y=(3, 4, 2))),
    "FusedConv": (
        'r = com.microsoft.FusedConv <activation = "LeakyRelu", activation_params = [0.25], pads = [1, 1, 1, 1]> (x, w, b, z)',
        "c = Conv <pads = [1, 1, 1, 1]> (x, w, b)  s = Add (c, z)  r = LeakyRelu <alpha = 0.25> (s)",
        dict(x=(2, 3, 4, 4), w=(4, 3, 3, 3), b=(4,), z=(2, 4, 4, 4))),
    "FusedConv, clipped": (
        'r = com.microsoft.FusedConv <activation = "Clip", activation_params = [-1.0, 2.5]> (x, w)',
        "c = Conv (x, w)  low = Constant <value = float {-1}> ()  high = Constant <value = float {2.5}> ()  r = Clip (c, low, high)",
        dict(x=(2, 3, 4), w=(4, 3, 2))),
    "FusedConv, hard sigmoid": (
        'r = com.microsoft.FusedConv <activation = "HardSigmoid", activation_params = [0.125, 0.25]> (x, w)',
        "c = Conv (x, w)  r = HardSigmoid <alpha = 0.125, beta = 0.25> (c)", dict(x=(2, 3, 4), w=(4, 3, 2))),
    "NhwcConv": (
        "r = com.microsoft.NhwcConv <strides = [2, 1]> (x, w, b)",
        """p = Transpose <perm = [0, 3, 1, 2]> (x)  q = Transpose <perm = [0, 3, 1, 2]> (w)  c = Conv <strides = [2, 1]> (p, q, b)
           r = Transpose <perm = [0, 2, 3, 1]> (c)""", dict(x=(2, 5, 4, 3), w=(4, 3, 2, 3), b=(4,))),
    "FusedGemm": (
        'r = com.microsoft.FusedGemm <activation = "Elu", activation_alpha = 0.5, transB = 1, alpha = 0.5> (x, w, b)',
        "g = Gemm <transB = 1, alpha = 0.5> (x, w, b)  r = Elu <alpha = 0.5> (g)", dict(x=(4, 8), w=(3, 8), b=(3,))),
    "FusedGemm, selu": (
        'r = com.microsoft.FusedGemm <activation = "Selu", activation_alpha = 1.5, activation_gamma = 0.5> (x, w)',
        "g = Gemm (x, w)  r = Selu <alpha = 1.5, gamma = 0.5> (g)", dict(x=(4, 8), w=(8, 3))),
    "FusedGemm, defaults": (
        'r = com.microsoft.FusedGemm <activation = "HardSigmoid"> (x, w)', "g = Gemm (x, w)  r = HardSigmoid (g)", dict(x=(4, 8), w=(8, 3))),
    "RotaryEmbedding": ("r = com.microsoft.RotaryEmbedding (x, places, c, s)",
                        "c3 = Gather (c, places)  s3 = Gather (s, places)  r = RotaryEmbedding <num_heads = 2> (x, c3, s3)",
                        dict(x=X, c=(6, 2), s=(6, 2))),
}


def trainer_of(body, shapes, folder):
    """Every parameter is a product with an input of ones, which makes it one whatever reads it."""
    inputs = ", ".join(f"float[{', '.join(map(str, shape))}] one_{name}" for name, shape in shapes.items())
    products = "\n".join(f"{name} = Mul (p_{name}, one_{name})" for name in shapes)
    model = onnx.parser.parse_model(f"""<ir_version: 10, opset_import: ["" : 23, "com.microsoft" : 1]>
      m ({inputs}) => (float loss) <int64[2, 4] places = {{0, 1, 2, 3, 2, 3, 4, 5}}> {{
        {products}
        {body}
        square = Mul (r, r)
        cube = Mul (square, r)
        both = Add (square, cube)
        loss = ReduceMean <keepdims = 0> (both)
      }}""")
    random = np.random.default_rng(4)
    for name, shape in shapes.items():
        model.graph.initializer.append(onnx.numpy_helper.from_array(random.standard_normal(shape).astype(np.float32), f"p_{name}"))
    folder.mkdir()
    onnx.save(model, folder / "m.onnx")
    mpt.compile(folder / "m.onnx", loss="none", optimizer="sgd,lr=0.1", quiet=True, out=folder / "out")
    return mpt.Trainer(folder / "out", threads=1)


@pytest.mark.parametrize("name", CASES)
def test_same_as_standard_operators(name, tmp_path):
    if not (tool().parent / "mpt-opt").exists():
        pytest.skip("mpt-opt is not built")
    own, plain, shapes = CASES[name]
    feeds = {f"one_{key}": np.ones(shape, np.float32) for key, shape in shapes.items()}
    results = [trainer_of(body, shapes, tmp_path / form).gradients(feeds) for form, body in (("own", own), ("plain", plain))]
    (loss, gradients), (wanted_loss, wanted) = results
    assert loss == pytest.approx(wanted_loss, rel=1e-5)
    assert set(gradients) == set(wanted) == {f"p_{key}" for key in shapes}
    for key in wanted:
        scale = max(np.abs(wanted[key]).max(), 1e-3)
        assert np.abs(wanted[key]).max() > 0, key
        np.testing.assert_allclose(gradients[key] / scale, wanted[key] / scale, atol=2e-5, err_msg=key)
