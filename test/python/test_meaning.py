# SPDX-License-Identifier: Apache-2.0
"""The meaning of values decides their types: positions, counts, angles, constants and raw inputs, in steps and in files.

Each model is held against float64: the loss of a training step under each policy, and the output of the rewritten file.
"""
import numpy as np
import onnx
import pytest
from onnx import numpy_helper
from onnx.reference import ReferenceEvaluator

import mpt
from conftest import build_folder

RANDOM = np.random.default_rng(0)
HEAD = '<ir_version: 8, opset_import: ["": 17]>\n'


def f(*shape, scale=1.0):
    return (RANDOM.standard_normal(shape) * scale).astype(np.float32)


FREQUENCIES = (1.0 / 10000 ** (np.arange(0, 16, 2) / 16)).astype(np.float32).reshape(1, 8, 1)
SAMPLES = np.arange(400)
DFT = np.stack([np.cos(2 * np.pi * b * SAMPLES / 400) for b in range(1, 9)] + [np.sin(2 * np.pi * b * SAMPLES / 400) for b in range(1, 9)])
MEAN = (np.full(6, 1013.25) + f(6, scale=3)).astype(np.float32)
LARGE = np.array([70001, 80003, 90007, 100003])
SCORE, NEAR_ZERO = f(6, 1), f(40, 6)
NEAR_ZERO = (NEAR_ZERO - (NEAR_ZERO @ SCORE + f(40, 1, scale=.004)) / (SCORE.T @ SCORE) * SCORE.T).astype(np.float32)  # scores of some thousandths

# name: (graph, weights, inputs, bounds by policy)
USUAL = {"amp-f16": .03, "amp-bf16": .1}
CASES = {
    "angles of positions, by a product": (
        "g (float[1,6,16] x, int64[1,6] ids) => (float[1,6,3] y) { one = Constant<value_ints=[1]>() p = Unsqueeze(ids, one) pf = Cast<to=1>(p)"
        " fr = MatMul(inv_freq, pf) ft = Transpose<perm=[0,2,1]>(fr) emb = Concat<axis=-1>(ft, ft) co = Cos(emb) si = Sin(emb)"
        " q = MatMul(x, wq) a = Mul(q, co) b = Mul(q, si) z = Add(a, b) y = MatMul(z, wo) }",
        {"inv_freq": FREQUENCIES, "wq": f(16, 16, scale=.3), "wo": f(16, 3)},
        {"x": f(1, 6, 16), "ids": np.array([[3001, 3003, 3007, 4099, 4101, 5003]])}, USUAL),
    "angles of positions, by einsum": (
        "g (float[1,6,16] x, int64[6] ids) => (float[1,6,3] y) { pf = Cast<to=1>(ids) fr = Einsum<equation=\"i,j->ij\">(pf, freq)"
        " emb = Concat<axis=-1>(fr, fr) co = Cos(emb) q = MatMul(x, wq) z = Mul(q, co) y = MatMul(z, wo) }",
        {"freq": FREQUENCIES.reshape(8), "wq": f(16, 16, scale=.3), "wo": f(16, 3)},
        {"x": f(1, 6, 16), "ids": np.array([3001, 3003, 3007, 4099, 4101, 5003])}, USUAL),
    "positions counted by a triangular product": (
        "g (float[1,600] mask, float[1,600,4] x) => (float[1,600,3] y) { p = MatMul(mask, triangle) i = Cast<to=7>(p) e = Gather(pos, i)"
        " h = MatMul(x, w) z = Add(h, e) y = MatMul(z, v) }",
        {"triangle": np.triu(np.ones((600, 600), np.float32)), "pos": f(601, 5), "w": f(4, 5), "v": f(5, 3)},
        {"mask": np.ones((1, 600), np.float32), "x": f(1, 600, 4)}, USUAL),
    "positions counted by a running sum": (
        "g (int64[1,600] mask, float[1,600,4] x) => (float[1,600,3] y) { m = Cast<to=1>(mask) ax = Constant<value_int=1>() p = CumSum(m, ax)"
        " i = Cast<to=7>(p) e = Gather(pos, i) h = MatMul(x, w) z = Add(h, e) y = MatMul(z, v) }",
        {"pos": f(601, 5), "w": f(4, 5), "v": f(5, 3)}, {"mask": np.ones((1, 600), np.int64), "x": f(1, 600, 4)}, USUAL),
    "nearest rows of a table": (
        "g (float[64,8] x) => (float[64,3] y) { z = Gemm<transB=1>(x, we, be) zz = Mul(z, z) u = Constant<value_ints=[1]>()"
        " a = ReduceSum<keepdims=1>(zz, u) cc = Mul(code, code) b = ReduceSum<keepdims=0>(cc, u) t = Transpose(code) p = MatMul(z, t)"
        " two = Constant<value_float=2.0>() p2 = Mul(p, two) s = Add(a, b) d = Sub(s, p2) i = ArgMin<axis=1,keepdims=0>(d)"
        " q = Gather(code, i) m = Constant<value_float=-20.0>() r = Add(q, m) y = MatMul(r, v) }",
        {"we": f(8, 8), "be": np.full(8, 20, np.float32), "code": (20 + f(400, 8)).astype(np.float32), "v": f(8, 3)}, {"x": f(64, 8)}, USUAL),
    "distances of inputs by their squares": (
        "g (float[16,3] x) => (float[16,2] y) { xx = Mul(x, x) u = Constant<value_ints=[1]>() a = ReduceSum<keepdims=1>(xx, u)"
        " b = Transpose(a) t = Transpose(x) p = MatMul(x, t) two = Constant<value_float=-2.0>() p2 = Mul(p, two) s = Add(a, p2)"
        " d = Add(s, b) c = Constant<value_float=-0.02>() e = Mul(d, c) k = Exp(e) y = MatMul(k, w) }",
        {"w": f(16, 2)}, {"x": (1000 + f(16, 3, scale=3)).astype(np.float32)}, {"amp-f16": .03, "amp-bf16": .03}),
    "logarithms of a spectrum, less their mean": (
        "g (float[4,64] x) => (float[4,3] y) { s = MatMul(x, dft) p = Mul(s, s) m = MatMul(p, mel) z = Log(m)"
        " a = ReduceMean<axes=[1],keepdims=1>(z) c = Sub(z, a) y = MatMul(c, w) }",
        {"dft": np.cos(np.outer(np.arange(64), np.arange(33)) * np.pi / 32).astype(np.float32), "mel": np.abs(f(33, 8)) + .5, "w": f(8, 3)},
        {"x": f(4, 64, scale=1e4)}, USUAL),
    "division by lengths": (
        "g (float[4,8] x, int64[4] n) => (float[4,5] y) { nf = Cast<to=1>(n) u = Constant<value_ints=[1]>() nc = Unsqueeze(nf, u)"
        " h = MatMul(x, w1) d = Div(h, nc) y = MatMul(d, w2) }",
        {"w1": f(8, 6, scale=1000), "w2": f(6, 5, scale=10)}, {"x": f(4, 8), "n": LARGE}, {"amp-f16": .05, "amp-bf16": .05}),
    "division by a count of flags": (
        "g (float[4,900,8] x, bool[4,900] mask) => (float[4,5] y) { m = Cast<to=1>(mask) ax = Constant<value_ints=[1]>()"
        " n = ReduceSum<keepdims=1>(m, ax) o = Constant<value_float=-896.0>() k = Add(n, o) s = ReduceMean<axes=[1],keepdims=0>(x)"
        " h = MatMul(s, w1) d = Div(h, k) y = MatMul(d, w2) }",
        {"w1": f(8, 6, scale=10), "w2": f(6, 5)}, {"x": f(4, 900, 8), "mask": np.ones((4, 900), bool)}, USUAL),
    "a divisor beyond the range": (
        "g (float[4,6] x) => (float[4,3] y) { h = MatMul(x, w1) k = Constant<value_float=100000.0>() d = Div(h, k) y = MatMul(d, w2) }",
        {"w1": f(6, 5, scale=1000), "w2": f(5, 3, scale=100)}, {"x": f(4, 6)}, {"amp-f16": .02, "als-f16": .02, "amp-bf16": .05}),
    "a factor among subnormal numbers": (
        "g (float[4,6] x) => (float[4,3] y) { h = MatMul(x, w1) k = Constant<value_float=1e-7>() d = Mul(h, k) y = MatMul(d, w2) }",
        {"w1": f(6, 5, scale=500), "w2": f(5, 3, scale=1000)}, {"x": f(4, 6)}, {"amp-f16": .02}),
    "a floor among subnormal numbers": (
        "g (float[4,6] x) => (float[4,3] y) { h = MatMul(x, w1) z = Sub(h, h) k = Constant<value_float=1e-9>() d = Max(z, k) l = Log(d)"
        " y = MatMul(l, w2) }",
        {"w1": f(6, 5), "w2": f(5, 3)}, {"x": f(4, 6)}, USUAL),
    "standardization by tables": (
        "g (float[16,6] x) => (float[16,3] y) { d = Sub(x, mean) z = Div(d, std) h = Gemm(z, w1, b1) r = Relu(h) y = MatMul(r, w2) }",
        {"mean": MEAN, "std": (np.abs(f(6)) * .5 + 1).astype(np.float32), "w1": f(6, 8), "b1": f(8), "w2": f(8, 3)},
        {"x": (MEAN + f(16, 6)).astype(np.float32)}, {"amp-f16": .02, "amp-bf16": .05}),
    "a power spectrum": (
        "g (float[1,1,1200] x) => (float[1,6,4] y) { s = Conv<kernel_shape=[400], strides=[160]>(x, dft) re, im = Split<axis=1>(s, half)"
        " r2 = Mul(re, re) i2 = Mul(im, im) p = Add(r2, i2) pt = Transpose<perm=[0,2,1]>(p) mel = MatMul(pt, fb)"
        " e = Constant<value_float=0.000001>() me = Max(mel, e) l = Log(me) y = MatMul(l, w) }",
        {"dft": DFT.astype(np.float32).reshape(16, 1, 400), "half": np.array([8, 8]), "fb": np.abs(f(8, 8, scale=.3)), "w": f(8, 4, scale=.2)},
        {"x": (np.sin(np.arange(1200) * .21) * 1000 + f(1200, scale=100)).astype(np.float32).reshape(1, 1, -1) * np.float32(8)},
        {"amp-f16": .03, "amp-bf16": .05}),
    "a long running sum": (
        "g (float[2,4000,4] x) => (float[2,4000,3] y) { h = MatMul(x, w) ax = Constant<value_int=1>() c = CumSum(h, ax)"
        " k = Constant<value_float=0.0005>() s = Mul(c, k) y = MatMul(s, v) }",
        {"w": np.abs(f(4, 4)), "v": f(4, 3)}, {"x": RANDOM.random((2, 4000, 4)).astype(np.float32)}, {"amp-f16": .01, "amp-bf16": .05}),
    "factors that fit, of both operands of a product": (
        "g (float[4,6] x) => (float[4,3] y) { a = MatMul(x, w1) b = MatMul(x, w2) k = Constant<value_float=300.0>() ka = Mul(a, k) kb = Mul(b, k)"
        " p = Mul(ka, kb) z = Constant<value_float=1e-5>() q = Mul(p, z) y = MatMul(q, v) }",
        {"w1": f(6, 5), "w2": f(6, 5), "v": f(5, 3)}, {"x": f(4, 6)}, {"amp-f16": .02}),
    "small factors, normalized behind a layer": (
        "g (float[1,2,6,6] x) => (float[1,3,6,6] y) { h = Conv<kernel_shape=[1,1]>(x, w1) k = Constant<value_float=0.0001>() d = Mul(h, k) e = Mul(d, k)"
        " c = Conv<kernel_shape=[1,1]>(e, w2) n = InstanceNormalization<epsilon=1e-30>(c, s, b) y = Conv<kernel_shape=[1,1]>(n, w3) }",
        {"w1": f(4, 2, 1, 1), "w2": f(4, 4, 1, 1), "s": 1 + f(4, scale=.1), "b": f(4), "w3": f(3, 4, 1, 1)}, {"x": f(1, 2, 6, 6)}, USUAL),
    "ids of an input, compared with counted ones": (
        "g (float[6] id, float[6,4] x) => (float[6,3] y) { u = Constant<value_ints=[1]>() iu = Unsqueeze(id, u) z = Constant<value_float=0.0>()"
        " n = Constant<value_float=5000.0>() s = Constant<value_float=1.0>() r = Range(z, n, s) eq = Equal(iu, r) q = Cast<to=1>(eq)"
        " e = MatMul(q, emb) h = MatMul(x, w) t = Add(h, e) y = MatMul(t, v) }",
        {"emb": f(5000, 5), "w": f(4, 5), "v": f(5, 3)}, {"id": np.array([4999, 4097, 1, 2049, 3001, 259], np.float32), "x": f(6, 4)}, USUAL),
    "rows of the largest score": (
        "g (float[6,4] x) => (float[6,3] y) { h = MatMul(x, wr) k = Constant<value_ints=[1]>() v, i = TopK<axis=-1>(h, k)"
        " ax = Constant<value_ints=[1]>() i1 = Squeeze(i, ax) e = Gather(ex, i1) e2 = Mul(e, x) y = MatMul(e2, wo) }",
        {"wr": np.repeat(f(4, 1), 300, 1) + f(4, 300, scale=1e-3), "ex": f(300, 4), "wo": f(4, 3)}, {"x": f(6, 4)}, USUAL),
    "rows by the sign of a score": (
        "g (float[40,6] x) => (float[40,3] y) { h = MatMul(x, w) k = Constant<value_float=0.0>() g = Greater(h, k) i = Cast<to=7>(g)"
        " ax = Constant<value_ints=[1]>() i1 = Squeeze(i, ax) e = Gather(emb, i1) xe = MatMul(x, we) z = Add(e, xe) y = MatMul(z, v) }",
        {"w": SCORE, "emb": f(2, 5, scale=3), "we": f(6, 5), "v": f(5, 3)}, {"x": NEAR_ZERO}, USUAL),
}
# Values that FP16 serves must stay narrow: (graph, weights, nodes that compute in f16).
NARROW = {
    "a mask before a softmax": (
        "g (float[2,4,8] x, int64[2,4] mask) => (float[2,4,3] y) { q = MatMul(x, wq) k = MatMul(x, wk) kt = Transpose<perm=[0,2,1]>(k)"
        " s = MatMul(q, kt) u = Constant<value_ints=[1]>() mu = Unsqueeze(mask, u) mf = Cast<to=1>(mu) one = Constant<value_float=1.0>()"
        " inv = Sub(one, mf) low = Constant<value_float=-10000.0>() m = Mul(inv, low) t = Add(s, m) p = Softmax<axis=-1>(t)"
        " c = MatMul(p, x) y = MatMul(c, w) }", {"wq": f(8, 8), "wk": f(8, 8), "w": f(8, 3)}, {"q", "k", "s", "c", "y"}),
    "a squared activation behind a norm": (
        "g (float[2,4,8] x) => (float[2,4,3] y) { h = MatMul(x, w0) n = LayerNormalization<axis=-1>(h, g, b) r = Relu(n) z = MatMul(r, w1)"
        " y = MatMul(z, w2) }", {"w0": f(8, 8), "g": f(8), "b": f(8), "w1": f(8, 8), "w2": f(8, 3)}, {"h", "z", "y"}),
    "bytes as inputs": (
        "g (uint8[2,3,8,8] x) => (float[2,4,6,6] y) { f = Cast<to=1>(x) k = Constant<value_float=255.0>() n = Div(f, k) y = Conv(n, w) }",
        {"w": f(4, 3, 3, 3)}, {"y"}),
    "a mean by a factor over many": (
        "g (float[1,2,224,224] x) => (float[1,3] y) { h = Conv<kernel_shape=[1,1]>(x, w) ax = Constant<value_ints=[2,3]>() s = ReduceSum<keepdims=0>(h, ax)"
        " k = Constant<value_float=1.993e-5>() d = Mul(s, k) y = MatMul(d, v) }", {"w": f(4, 2, 1, 1), "v": f(4, 3)}, {"y"}),
    "a branch with a small scale": (
        "g (float[4,8] x) => (float[4,3] y) { h = MatMul(x, w0) b = MatMul(h, w1) k = Constant<value_float=1e-5>() d = Mul(b, k) r = Add(h, d)"
        " y = MatMul(r, v) }", {"w0": f(8, 8), "w1": f(8, 8), "v": f(8, 3)}, {"h", "y"}),
}


def model(graph, weights):
    made = onnx.parser.parse_model(HEAD + graph)
    made.graph.initializer.extend(numpy_helper.from_array(np.asarray(v), n) for n, v in weights.items())
    return made


def wide(made):
    """The model in float64, as the reference."""
    made = onnx.ModelProto.FromString(made.SerializeToString())
    for tensor in made.graph.initializer:
        if tensor.data_type == onnx.TensorProto.FLOAT:
            tensor.CopyFrom(numpy_helper.from_array(numpy_helper.to_array(tensor).astype(np.float64), tensor.name))
    for value in [*made.graph.input, *made.graph.output]:
        if value.type.tensor_type.elem_type == onnx.TensorProto.FLOAT:
            value.type.tensor_type.elem_type = onnx.TensorProto.DOUBLE
    for node in made.graph.node:
        for attribute in node.attribute:
            if node.op_type == "Cast" and attribute.i == onnx.TensorProto.FLOAT:
                attribute.i = onnx.TensorProto.DOUBLE
            if node.op_type == "Constant" and attribute.name == "value_float":
                attribute.CopyFrom(onnx.helper.make_attribute("value", numpy_helper.from_array(np.float64(np.float32(attribute.f)))))
    return made


def evaluate(made, inputs):
    with np.errstate(all="ignore"):
        return ReferenceEvaluator(made).run(None, inputs)[0]


@pytest.fixture(scope="module", autouse=True)
def built():
    if not (build_folder() / "bin" / "mpt-opt").exists():
        pytest.skip("mpt-opt is not built")


@pytest.mark.parametrize("name", CASES)
def test_is_float64s(name, tmp_path):
    graph, weights, inputs, bounds = CASES[name]
    made = model(graph, weights)
    onnx.save(made, tmp_path / "model.onnx")
    right = evaluate(wide(made), {k: v.astype(np.float64) if v.dtype == np.float32 else v for k, v in inputs.items()})
    assert np.isfinite(right).all()
    target = (right + RANDOM.standard_normal(right.shape) * .3 * np.abs(right).mean()).astype(np.float32)
    for policy, bound in bounds.items():
        folder = mpt.compile(tmp_path / "model.onnx", out=tmp_path / policy, loss="mse", optimizer="sgd,lr=1e-3", policy=policy)
        trainer = mpt.Trainer(folder, threads=1)
        feed = {n: inputs[n] if n in inputs else target for n in trainer.inputs() if n != "learning_rate"}
        for _ in range(40): # until a dynamic loss scale fits
            result = trainer.step(feed, learning_rate=0.0)
            if not result.skipped:
                break
        loss = np.mean((right - target.astype(np.float64)) ** 2)
        assert abs(result.loss - loss) <= bound * loss, f"loss under {policy}"
        if policy == "als-f16":
            continue
        mpt.compile(tmp_path / "model.onnx", out=tmp_path / "out.onnx", emit="onnx", policy=policy)
        rewritten = onnx.load(tmp_path / "out.onnx")
        onnx.checker.check_model(rewritten, full_check=True)
        error = np.linalg.norm(evaluate(rewritten, inputs).astype(np.float64) - right) / np.linalg.norm(right)
        assert error <= bound, f"output rewritten for {policy}"


@pytest.mark.parametrize("name", NARROW)
def test_stays_narrow(name, tmp_path):
    graph, weights, narrow = NARROW[name]
    onnx.save(model(graph, weights), tmp_path / "model.onnx")
    mpt.compile(tmp_path / "model.onnx", out=tmp_path / "out.onnx", emit="onnx", policy="amp-f16")
    inferred = onnx.shape_inference.infer_shapes(onnx.load(tmp_path / "out.onnx"))
    types = {value.name: value.type.tensor_type.elem_type for value in inferred.graph.value_info}
    producers = {node.output[0].removesuffix("_f16"): types.get(node.output[0]) for node in inferred.graph.node if node.op_type != "Cast"}
    casts = {node.output[0]: types.get(node.input[0]) for node in inferred.graph.node if node.op_type == "Cast"}
    wide_ones = {n for n in narrow if onnx.TensorProto.FLOAT16 not in (producers.get(n), types.get(n), casts.get(n))}
    assert not wide_ones
