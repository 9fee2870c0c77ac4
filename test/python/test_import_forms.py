# SPDX-License-Identifier: Apache-2.0
"""Forms of graphs that some producers write: weights as Constant nodes, quantized weights, old attributes, random tensors."""
import numpy as np
import onnx
import onnx.parser
import pytest
from mpt_run import tool

import mpt


def trainer_of(model, folder, **flags):
    if not (tool().parent / "mpt-opt").exists():
        pytest.skip("mpt-opt is not built")
    onnx.save(onnx.parser.parse_model(model) if isinstance(model, str) else model, folder / "m.onnx")
    mpt.compile(folder / "m.onnx", optimizer="sgd,lr=0.1", quiet=True, out=folder / "out", **flags)
    return mpt.Trainer(folder / "out", threads=1)


def test_weights_that_are_constant_nodes_are_trained(tmp_path):
    trainer = trainer_of("""<ir_version: 8, opset_import: ["" : 17]> m (float[2, 3] x, float[2, 2] y) => (float loss) {
        w = Constant <value = float[3, 2] {1, 2, 3, 4, 5, 6}> ()
        b = Constant <value = float[2] {1, -1}> ()
        h = MatMul (x, w)
        z = Add (h, b)
        d = Sub (z, y)
        s = Mul (d, d)
        loss = ReduceSum <keepdims = 0> (s)
      }""", tmp_path, loss="none")
    x, y = np.array([[1, 2, 3], [0, 1, 0]], np.float32), np.zeros((2, 2), np.float32)
    w, b = np.array([[1, 2], [3, 4], [5, 6]], np.float32), np.array([1, -1], np.float32)
    d = x @ w + b - y
    loss, gradients = trainer.gradients({"x": x, "y": y})
    assert loss == pytest.approx(float((d * d).sum()))
    assert set(gradients) == {"w", "b"}
    np.testing.assert_allclose(gradients["w"], 2 * x.T @ d, rtol=1e-6)
    np.testing.assert_allclose(gradients["b"], 2 * d.sum(0), rtol=1e-6)


def test_constants_of_a_model_with_initializers_stay(tmp_path):
    trainer = trainer_of("""<ir_version: 8, opset_import: ["" : 17]> m (float[2, 3] x) => (float loss)
        <float[3, 2] w = {1, 2, 3, 4, 5, 6}> {
        b = Constant <value = float[2] {1, -1}> ()
        h = MatMul (x, w)
        z = Mul (h, b)
        loss = ReduceSum <keepdims = 0> (z)
      }""", tmp_path, loss="none")
    assert set(trainer.parameters()) == {"w"}


def test_a_gemm_that_takes_nothing_of_its_third_operand(tmp_path):
    """JAX's exporter writes beta = 0 beside a C."""
    trainer = trainer_of("""<ir_version: 8, opset_import: ["" : 17]> m (float[2, 3] x, float nothing) => (float loss) <float[3, 2] w = {1, 2, 3, 4, 5, 6}> {
        h = Gemm <beta = 0.0> (x, w, nothing)
        loss = ReduceSum <keepdims = 0> (h)
      }""", tmp_path, loss="none")
    x = np.array([[1, 2, 3], [0, 1, 0]], np.float32)
    loss, gradients = trainer.gradients({"x": x, "nothing": np.array(np.nan, np.float32)})
    assert loss == pytest.approx(float((x @ np.array([[1, 2], [3, 4], [5, 6]])).sum()))
    np.testing.assert_allclose(gradients["w"], x.sum(0)[:, None].repeat(2, 1), rtol=1e-6)


def test_optional_values(tmp_path):
    """A tensor and a sequence in optional values, and an empty one, whose branch is not taken."""
    trainer = trainer_of("""<ir_version: 8, opset_import: ["" : 18]> m (float[2, 3] x) => (float loss) <float[3, 2] w = {1, 2, 3, 4, 5, 6}> {
        h = MatMul (x, w)
        several = SequenceConstruct (h, h)
        some = Optional (h)
        list = Optional (several)
        none = Optional <type = float[2, 2]> ()
        a = OptionalGetElement (some)
        b = OptionalGetElement (list)
        c = ConcatFromSequence <axis = 0> (b)
        has = OptionalHasElement (none)
        d = If (has) <then_branch = yes () => (float[2, 2] t) { t = Exp (h) }, else_branch = no () => (float[2, 2] e) { e = Identity (a) }>
        sum = ReduceSum <keepdims = 0> (c)
        more = ReduceSum <keepdims = 0> (d)
        loss = Add (sum, more)
      }""", tmp_path, loss="none")
    x = np.array([[1, 2, 3], [0, 1, 0]], np.float32)
    loss, gradients = trainer.gradients({"x": x})
    assert loss == pytest.approx(3 * float((x @ np.array([[1, 2], [3, 4], [5, 6]])).sum()))
    np.testing.assert_allclose(gradients["w"], 3 * x.sum(0)[:, None].repeat(2, 1), rtol=1e-6)


@pytest.mark.parametrize("policy", ["fp32", "amp-f16"])
def test_an_output_that_is_an_input(policy, tmp_path):
    trainer = trainer_of("""<ir_version: 8, opset_import: ["" : 17]> m (float[2, 3] x) => (float loss, float[2, 3] x) <float[3, 2] w = {1, 2, 3, 4, 5, 6}> {
        h = MatMul (x, w)
        loss = ReduceSum <keepdims = 0> (h)
      }""", tmp_path, loss="none", policy=policy)
    x = np.array([[1, 2, 3], [0, 1, 0]], np.float32)
    assert trainer.step({"x": x}).loss == pytest.approx(57)
    np.testing.assert_array_equal(trainer.evaluate({"x": x})["x"], x)


def test_a_sparse_initializer_is_named(tmp_path):
    model = onnx.parser.parse_model("""<ir_version: 8, opset_import: ["" : 17]> m (float[2, 3] x) => (float loss) {
        h = MatMul (x, w)
        loss = ReduceSum <keepdims = 0> (h)
      }""")
    values = onnx.helper.make_tensor("w", onnx.TensorProto.FLOAT, [1], [2.0])
    model.graph.sparse_initializer.append(onnx.helper.make_sparse_tensor(values, onnx.helper.make_tensor("at", onnx.TensorProto.INT64, [1], [3]), [3, 2]))
    with pytest.raises(mpt.CompileError, match="at node 'w': expected dense initializers, got a sparse one; convert it"):
        trainer_of(model, tmp_path, loss="none")


KIND = "pkg.torch.export.graph_signature.InputSpec.kind"


@pytest.mark.parametrize("on_tensor", [False, True])
@pytest.mark.parametrize("producer", ["pytorch", "rewriter"])
def test_exporters_say_what_is_trained(producer, on_tensor, tmp_path):
    """Against each rule that names and uses give: a parameter called like a folded value, weights that are none."""
    model = onnx.parser.parse_model(f"""<ir_version: 10, opset_import: ["" : 17], producer_name: "{producer}"> m (float[2, 3] x) => (float loss)
        <float[3, 3] mul_3 = {{1, 2, 3, 4, 5, 6, 7, 8, 9}}, float[3, 3] table = {{1, 2, 3, 4, 5, 6, 7, 8, 9}}, float[3] "block.constant" = {{1, 2, 3}},
         float[3] "block.folded" = {{1, 2, 3}}, float[3] "block.weight" = {{1, 2, 3}}> {{
        a = MatMul (x, mul_3)
        b = MatMul (a, table)
        c = Add (b, "block.constant")
        d = Mul (c, "block.folded")
        e = Mul (d, "block.weight")
        loss = ReduceMean <keepdims = 0> (e)
      }}""")
    kinds = {"mul_3": "PARAMETER", "table": "BUFFER", "block.constant": "CONSTANT_TENSOR", "block.folded": None, "block.weight": "PARAMETER"}
    for tensor in model.graph.initializer:
        entry = tensor
        if not on_tensor:
            entry = model.graph.value_info.add(name=tensor.name)
            entry.type.CopyFrom(onnx.helper.make_tensor_type_proto(tensor.data_type, tensor.dims))
        kind = kinds[tensor.name]
        entry.metadata_props.add(key=KIND if kind else "pkg.onnxscript.optimizer.folded_from", value=kind or "['x']")
    trainer = trainer_of(model, tmp_path, loss="none")
    assert set(trainer.parameters()) == {"mul_3", "block.weight"}
    again = trainer_of(model, tmp_path, loss="none", train=["table", "mul_3"])
    assert set(again.parameters()) == {"mul_3", "table"}


@pytest.mark.parametrize("kind, zero", [("int8", 3), ("uint8", 130)])
def test_quantized_weights_and_values(kind, zero, tmp_path):
    trainer = trainer_of(f"""<ir_version: 8, opset_import: ["" : 17]> m (float[2, 3] x) => (float loss)
        <{kind}[3, 2] q = {{10, 20, 30, 40, 50, 60}}, float[2] scales = {{0.5, 0.25}}, {kind}[2] zeros = {{1, {zero}}}, float[2] b = {{0, 0}},
         float step = {{0.125}}, {kind} middle = {{{zero}}}> {{
        w = DequantizeLinear <axis = 1> (q, scales, zeros)
        xi = QuantizeLinear (x, step, middle)
        xq = DequantizeLinear (xi, step, middle)
        h = MatMul (xq, w)
        z = Add (h, b)
        s = Mul (z, z)
        loss = ReduceSum <keepdims = 0> (s)
      }}""", tmp_path, loss="none")
    x = np.array([[0.3, -0.2, 100], [0.06, 1, -100]], np.float32)
    low, high = (-128, 127) if kind == "int8" else (0, 255)
    xq = (np.clip(np.round(x / 0.125) + zero, low, high) - zero) * 0.125
    w = (np.array([[10, 20], [30, 40], [50, 60]]) - np.array([1, zero])) * np.array([0.5, 0.25])
    loss, gradients = trainer.gradients({"x": x})
    assert loss == pytest.approx(float(((xq @ w) ** 2).sum()), rel=1e-6)
    np.testing.assert_allclose(gradients["b"], 2 * (xq @ w).sum(0), rtol=1e-5)


def test_upsample_with_scales_as_attribute(tmp_path):
    trainer = trainer_of("""<ir_version: 3, opset_import: ["" : 7]> m (float[1, 1, 2, 2] x) => (float[1, 1, 4, 6] y) {
        y = Upsample <mode = "nearest", scales = [1.0, 1.0, 2.0, 3.0]> (x)
      }""", tmp_path, forward_only=True)
    x = np.arange(4, dtype=np.float32).reshape(1, 1, 2, 2)
    np.testing.assert_array_equal(trainer.evaluate({"x": x})["y"], x.repeat(2, 2).repeat(3, 3))


def test_normal_tensors_have_their_moments(tmp_path):
    """Mean and deviation of 40,000 values within five standard errors; a variational autoencoder's noise."""
    trainer = trainer_of("""<ir_version: 8, opset_import: ["" : 17]> m (float[200, 200] x) => (float[200, 200] y, float[200, 200] z) {
        y = RandomNormalLike <mean = 1.0, scale = 2.0> (x)
        z = RandomNormal <shape = [200, 200]> ()
      }""", tmp_path, forward_only=True)
    got = trainer.evaluate({"x": np.zeros((200, 200), np.float32)})
    for name, mean, scale in (("y", 1, 2), ("z", 0, 1)):
        value = np.asarray(got[name], np.float64)
        assert abs(value.mean() - mean) < 5 * scale / 200
        assert abs(value.std() - scale) < 5 * scale / (200 * np.sqrt(2))
    assert abs(np.corrcoef(np.ravel(got["y"]), np.ravel(got["z"]))[0, 1]) < 5 / 200


@pytest.mark.parametrize("policy", ["amp-f16", "als-f16", "fp8-hybrid"])
def test_double_precision_inside_a_narrow_model(policy, tmp_path):
    trainer = trainer_of("""<ir_version: 8, opset_import: ["" : 17]> m (float[2, 3] x) => (float loss) <float[3, 2] w = {1, 2, 3, 4, 5, 6}> {
        h = MatMul (x, w)
        a = Asinh (h)
        s = Mul (a, a)
        loss = ReduceSum <keepdims = 0> (s)
      }""", tmp_path, loss="none", policy=policy)
    x = np.array([[1, 2, 3], [0, 1, 0]], np.float32)
    wanted = float((np.arcsinh(x @ np.array([[1, 2], [3, 4], [5, 6]])) ** 2).sum())
    steps = [trainer.step({"x": x}) for _ in range(4)]
    assert steps[0].loss == pytest.approx(wanted, rel=0.05 if policy == "fp8-hybrid" else 2e-3)
    assert steps[-1].loss < steps[0].loss


@pytest.mark.parametrize("policy", ["fp32", "amp-f16", "amp-bf16", "fp8-hybrid"])
@pytest.mark.parametrize("kind", ["float16", "bfloat16"])
def test_weights_that_the_file_stores_narrow_are_trained_in_fp32(kind, policy, tmp_path):
    """Small steps add up, which are lost in 16 bits; among the weights are some that are read from the file in place."""
    if not (tool().parent / "mpt-opt").exists():
        pytest.skip("mpt-opt is not built")
    model = onnx.parser.parse_model(f"""<ir_version: 8, opset_import: ["" : 17]> m (float[8, 48] x, float[8, 32] y) => (float loss) {{
        narrow = CastLike (x, b)
        h = MatMul (narrow, w)
        z = Add (h, b)
        wide = Cast <to = 1> (z)
        d = Sub (wide, y)
        s = Mul (d, d)
        loss = ReduceSum <keepdims = 0> (s)
      }}""")
    random, number = np.random.default_rng(2), getattr(onnx.TensorProto, kind.upper())
    w, b = random.integers(-8, 8, (48, 32)) / 64, np.ones(32)
    for name, value in (("w", w), ("b", b)):
        model.graph.initializer.append(onnx.helper.make_tensor(name, number, value.shape, value.flatten().tolist()))
    onnx.save(model, tmp_path / "m.onnx")
    mpt.compile(tmp_path / "m.onnx", optimizer="sgd,lr=1e-6", loss="none", policy=policy, quiet=True, out=tmp_path / "out")
    trainer = mpt.Trainer(tmp_path / "out", threads=1)
    feeds = {"x": random.integers(-2, 3, (8, 48)).astype(np.float32), "y": random.standard_normal((8, 32)).astype(np.float32)}
    d = feeds["x"] @ w + b - feeds["y"]
    loss, gradients = trainer.gradients(feeds)
    assert loss == pytest.approx((d * d).sum(), rel=1e-2)
    assert gradients["b"].dtype == np.float32
    if np.isfinite(gradients["w"]).all():  # the first loss scale may be too large
        assert np.linalg.norm(gradients["w"] - 2 * feeds["x"].T @ d) < 0.05 * np.linalg.norm(2 * feeds["x"].T @ d)
    taken = sum(not trainer.step(feeds).skipped for _ in range(12))
    assert taken > 3
    moved = b - trainer.parameter("b")
    np.testing.assert_allclose(moved, taken * 2e-6 * d.sum(0), rtol=0.05, atol=2e-6)


def test_gradients_of_a_file_that_are_narrower_than_its_weights(tmp_path):
    trainer = trainer_of("""<ir_version: 8, opset_import: ["" : 17]> m (float16[4, 3] x) => (float loss, float16[3] w_grad)
        <float[3] w = {1, 2, 3}> {
        h = Cast <to = 10> (w)
        s = Mul (x, h)
        total = ReduceSum <keepdims = 0> (s)
        loss = Cast <to = 1> (total)
        axis = Constant <value_ints = [0]> ()
        w_grad = ReduceSum <keepdims = 0> (x, axis)
      }""", tmp_path)
    x = np.arange(12, dtype=np.float16).reshape(4, 3)
    loss, gradients = trainer.gradients({"x": x})
    assert loss == pytest.approx(float((x * [1, 2, 3]).sum())) and gradients["w"].dtype == np.float32
    np.testing.assert_array_equal(gradients["w"], x.astype(np.float32).sum(0))
    trainer.step({"x": x})
    np.testing.assert_allclose(trainer.parameter("w"), np.array([1, 2, 3]) - 0.1 * x.astype(np.float32).sum(0), rtol=1e-6)


@pytest.mark.parametrize("policy", ["fp32", "amp-f16", "pure-f16-static"])
def test_frozen_parameters_are_told_from_trained_ones(policy, tmp_path):
    """Those that a step changes are the trained ones, in Python and in C, and a state serves the model with none frozen too."""
    text = """<ir_version: 8, opset_import: ["" : 17]> m (float[2, 3] x) => (float[2, 2] y)
        <float[3, 4] "a.weight" = {1, 2, 3, 4, 5, 6, 7, 8, 9, 1, 2, 3}, float[4, 2] "b.weight" = {0.01, 0.02, 0.03, 0.04, 0.05, 0.06, 0.07, 0.08}> {
        h = MatMul (x, "a.weight")
        y = MatMul (h, "b.weight")
      }"""
    folders = [tmp_path / "free", tmp_path / "frozen"]
    for folder in folders:
        folder.mkdir()
    free = trainer_of(text, folders[0], loss="mse", policy=policy)
    free.save(tmp_path / "state")
    trainer = trainer_of(text, folders[1], loss="mse", policy=policy, freeze="a.weight")
    if policy == "fp32":  # others keep no master of what is frozen
        trainer.load(tmp_path / "state")
    before = trainer.parameters()
    trainer.step({"x": np.full((2, 3), 2.0 ** -7, np.float32), "target": np.zeros((2, 2), np.float32)})
    changed = {name for name, value in trainer.parameters().items() if (value != before[name]).any()}
    assert set(before) == {"a.weight", "b.weight"} and changed == set(trainer.parameters(trained=True)) == {"b.weight"}
    assert [t.name for t in trainer._runtime.tensors("mpt_trainer_parameter", trainer._trainer)] == [b"b.weight"]
    assert set(free.parameters(trained=True)) == set(before)
