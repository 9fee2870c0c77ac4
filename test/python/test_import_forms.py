# SPDX-License-Identifier: Apache-2.0
"""Forms of graphs that some producers write: weights as Constant nodes, quantized weights, old attributes, random tensors."""
import ml_dtypes
import numpy as np
import onnx
import onnx.external_data_helper
import onnx.parser
import pytest
from mpt_run import tool
from onnx import TensorProto

import mpt


def trainer_of(model, folder, **flags):
    if not (tool().parent / "mpt-opt").exists():
        pytest.skip("mpt-opt is not built")
    onnx.save(onnx.parser.parse_model(model) if isinstance(model, str) else model, folder / "m.onnx")
    if not flags.get("forward_only"):
        flags.setdefault("optimizer", "sgd,lr=0.1")
    mpt.compile(folder / "m.onnx", quiet=True, out=folder / "out", **flags)
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


W = np.array([[0, 0], [0, 2], [0, 0], [-3, 0]], np.float32)
PLACES = {"flat": np.int64([3, 6]), "coordinates": np.int64([[1, 1], [3, 0]])}


def sparse_of(places, values=(2, -3), dims=(4, 2), name="w", kind=TensorProto.FLOAT):
    at = onnx.numpy_helper.from_array(np.asarray(places, np.int64), "at")
    return onnx.helper.make_sparse_tensor(onnx.helper.make_tensor(name, kind, [len(values)], values), at, dims)


def with_sparse(sparse, form):
    """A model whose weight is `sparse`: an initializer, a Constant's value, or an initializer of a subgraph."""
    result = [onnx.helper.make_tensor_value_info("loss", TensorProto.FLOAT, [])]
    nodes = [onnx.helper.make_node("MatMul", ["x", "w"], ["h"]), onnx.helper.make_node("Mul", ["h", "h"], ["s"]),
             onnx.helper.make_node("ReduceSum", ["s"], ["loss"], keepdims=0)]
    graph = onnx.helper.make_graph(nodes, "g", [onnx.helper.make_tensor_value_info("x", TensorProto.FLOAT, [3, 4])], result)
    if form == "initializer":
        graph.sparse_initializer.append(sparse)
    elif form == "constant":
        graph.node.insert(0, onnx.helper.make_node("Constant", [], ["w"], sparse_value=sparse))
    else:
        branch = onnx.helper.make_graph(nodes, "branch", [], result)
        branch.sparse_initializer.append(sparse)
        chosen = onnx.helper.make_node("If", ["yes"], ["loss"], then_branch=branch, else_branch=branch)
        yes = onnx.helper.make_node("Constant", [], ["yes"], value=onnx.helper.make_tensor("yes", TensorProto.BOOL, [], [True]))
        graph = onnx.helper.make_graph([yes, chosen], "g", graph.input, result)
    return onnx.helper.make_model(graph, opset_imports=[onnx.helper.make_opsetid("", 17)], ir_version=8)


@pytest.mark.parametrize("form", ["initializer", "constant"])
@pytest.mark.parametrize("places", PLACES)
def test_sparse_tensors_are_dense_ones(form, places, tmp_path):
    trainer = trainer_of(with_sparse(sparse_of(PLACES[places]), form), tmp_path, loss="none")
    x = np.arange(12, dtype=np.float32).reshape(3, 4)
    loss, gradients = trainer.gradients({"x": x})
    assert loss == pytest.approx(float(((x @ W)**2).sum()))
    np.testing.assert_allclose(gradients["w"], 2 * x.T @ (x @ W), rtol=1e-6)  # zeros are elements like others


def test_sparse_tensors_of_subgraphs(tmp_path):
    onnx.save(with_sparse(sparse_of(PLACES["flat"]), "subgraph"), tmp_path / "m.onnx")
    mpt.compile(tmp_path / "m.onnx", forward_only=True, out=tmp_path / "out")
    x = np.arange(12, dtype=np.float32).reshape(3, 4)
    with mpt.Trainer(tmp_path / "out", threads=1) as trainer:
        assert trainer.run("evaluate", {"x": x})["loss"] == pytest.approx(float(((x @ W)**2).sum()))


REFUSED_SPARSE = {
    "order": (dict(places=[6, 3]), "in ascending order, each once, got element 3 after 6"),
    "twice": (dict(places=[3, 3]), "in ascending order, each once, got element 3 after 3"),
    "beyond": (dict(places=[3, 8]), "indices of a sparse tensor below 8, got 8"),
    "negative": (dict(places=[-1, 3]), "indices of a sparse tensor below 8, got -1"),
    "column": (dict(places=[[0, 1], [0, 2]]), "indices of a sparse tensor below 2, got 2"),
    "count": (dict(places=[3]), r"int64 indices \[2\] or \[2, 2\] of a sparse tensor"),
    "empty": (dict(places=[0, 1], dims=(0, 2)), "indices of a sparse tensor below 0"),
    "size": (dict(dims=(1 << 12, 1 << 12)), "at most 16 times its bytes when it is dense, got 67108864 bytes for"),
    "overflow": (dict(dims=(1 << 31, 1 << 31)), "fewer than 2\\^40 elements"),
    "extents": (dict(dims=(-4, -2)), "extents that are not negative"),
    "type": (dict(kind=TensorProto.INT4), "expected a type that has arithmetic"),
}


@pytest.mark.parametrize("form", ["initializer", "constant"])
@pytest.mark.parametrize("what", REFUSED_SPARSE)
def test_sparse_tensors_that_are_none(what, form, tmp_path):
    changes, message = REFUSED_SPARSE[what]
    model = with_sparse(sparse_of(**{"places": PLACES["flat"], **changes}), form)
    with pytest.raises(mpt.CompileError, match="at node 'w': .*" + message):
        trainer_of(model, tmp_path, loss="none")


@pytest.mark.parametrize("external", [False, True])
@pytest.mark.parametrize("form", ["initializer", "constant"])
@pytest.mark.parametrize("name", ["int4", "uint4", "int2", "uint2", "float4_e2m1fn"])
def test_weights_of_packed_types(name, form, external, tmp_path):
    """Weights of fewer than 8 bits, with rows that do not end with a byte, raw, in a typed field and beside the model."""
    dtype = np.dtype(getattr(ml_dtypes, name))
    values = np.array([[1, 0, -2], [-1, 1, 0], [0, 1, -2], [1, 1, 1], [0, 0, 1]]).astype(dtype)
    if name.startswith("uint"):
        values = (np.arange(15).reshape(5, 3) % 4).astype(dtype)
    tensor = onnx.numpy_helper.from_array(values, "q")
    if not external:  # typed fields have one entry a byte
        tensor = TensorProto(name="q", dims=tensor.dims, data_type=tensor.data_type, int32_data=tensor.raw_data)
    given = [onnx.numpy_helper.from_array(np.float32([0.5, 2, -1]), "scale")]
    nodes = [onnx.helper.make_node("DequantizeLinear", ["q", "scale"], ["w"], axis=1), onnx.helper.make_node("MatMul", ["x", "w"], ["y"]),
             onnx.helper.make_node("ReduceSum", ["y"], ["loss"], keepdims=0)]
    if form == "constant":
        nodes.insert(0, onnx.helper.make_node("Constant", [], ["q"], value=tensor))
    else:
        given.append(tensor)
    graph = onnx.helper.make_graph(nodes, "g", [onnx.helper.make_tensor_value_info("x", TensorProto.FLOAT, [2, 5])],
                                   [onnx.helper.make_tensor_value_info("loss", TensorProto.FLOAT, [])], given)
    model = onnx.helper.make_model(graph, opset_imports=[onnx.helper.make_opsetid("", 25)], ir_version=13)
    if external and form == "initializer":
        onnx.external_data_helper.convert_model_to_external_data(model, location="data", size_threshold=0)
    trainer = trainer_of(model, tmp_path, loss="none", train="scale")
    x = np.arange(10, dtype=np.float32).reshape(2, 5)
    loss, gradients = trainer.gradients({"x": x})
    wide = values.astype(np.float32)
    assert loss == pytest.approx(float((x @ (wide * np.float32([0.5, 2, -1]))).sum()))
    np.testing.assert_allclose(gradients["scale"], (x @ wide).sum(0), rtol=1e-6)


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
        entry.metadata_props.add(key=KIND if kind else "pkg.onnxscript.optimizer.folded_from", value=kind or "['val_3']")
    trainer = trainer_of(model, tmp_path, loss="none")
    assert set(trainer.parameters()) == {"mul_3", "block.weight"}
    again = trainer_of(model, tmp_path, loss="none", train=["table", "mul_3"])
    assert set(again.parameters()) == {"mul_3", "table"}


@pytest.mark.parametrize("kind, zero", [("int8", 3), ("uint8", 130)])
def test_quantized_weights_and_values(kind, zero, tmp_path):
    trainer = trainer_of(f"""<ir_version: 8, opset_import: ["" : 17], producer_name: "pytorch"> m (float[2, 3] x) => (float loss)
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
    held = trainer.trained()["held"]
    assert set(gradients) == {"b"} and held["scales"] == "scale of a quantization" and f" {len(held)} held>" in repr(trainer)
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
    """The parameters that a step changes are the trained ones, in Python and in C, and a state serves the model with none frozen too."""
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
    if policy == "fp32":  # others keep no master of a frozen parameter
        trainer.load(tmp_path / "state")
    before = trainer.parameters()
    trainer.step({"x": np.full((2, 3), 2.0 ** -7, np.float32), "target": np.zeros((2, 2), np.float32)})
    changed = {name for name, value in trainer.parameters().items() if (value != before[name]).any()}
    assert set(before) == {"a.weight", "b.weight"} and changed == set(trainer.parameters(trained=True)) == {"b.weight"}
    assert [t.name for t in trainer._runtime.tensors("mpt_trainer_parameter", trainer._trainer)] == [b"b.weight"]
    assert set(free.parameters(trained=True)) == set(before)


@pytest.mark.parametrize("size", [8, 64])
def test_rewriting_keeps_packed_weights(size, tmp_path):
    """--emit=onnx of a graph leaves them as they are, where inference sees them and where it does not; sparse ones become dense."""
    codes = (np.arange(size * size) % 16 - 8).reshape(size, size).astype(ml_dtypes.int4)
    nodes = [onnx.helper.make_node("DequantizeLinear", ["q", "s"], ["v"], axis=1), onnx.helper.make_node("MatMul", ["x", "v"], ["h"]),
             onnx.helper.make_node("MatMul", ["h", "w"], ["y"])]
    graph = onnx.helper.make_graph(nodes, "g", [onnx.helper.make_tensor_value_info("x", TensorProto.FLOAT, [2, size])],
                                   [onnx.helper.make_tensor_value_info("y", TensorProto.FLOAT, [2, size])],
                                   [onnx.numpy_helper.from_array(codes, "q"), onnx.numpy_helper.from_array(np.full(size, 0.5, np.float32), "s")])
    graph.sparse_initializer.append(sparse_of([1, size + 3], dims=(size, size)))
    onnx.save(onnx.helper.make_model(graph, opset_imports=[onnx.helper.make_opsetid("", 25)], ir_version=13), tmp_path / "m.onnx")
    mpt.compile(tmp_path / "m.onnx", emit="onnx", quiet=True, out=tmp_path / "r.onnx")
    written = onnx.load(tmp_path / "r.onnx")
    onnx.checker.check_model(written)
    tensors = {tensor.name: onnx.numpy_helper.to_array(tensor) for tensor in written.graph.initializer}
    dense = np.zeros((size, size), np.float32)
    dense.reshape(-1)[[1, size + 3]] = 2, -3
    np.testing.assert_array_equal(tensors["w"], dense)
    assert tensors["q"].dtype == codes.dtype and (tensors["q"] == codes).all()


@pytest.mark.parametrize("reduction", ["mean", "sum"])
@pytest.mark.parametrize("policy", ["fp32", "amp-f16"])
def test_losses_of_single_samples(reduction, policy, tmp_path):
    """The file's loss without a reduction: its mean or sum trains, and the losses of the samples stay a result."""
    model = """<ir_version: 8, opset_import: ["" : 17]> m (float[4, 3] x, int64[4] t) => (float[4] each) <float[3, 5] w = {%s}> {
        h = MatMul (x, w)
        each = SoftmaxCrossEntropyLoss <reduction = "none"> (h, t)
      }""" % ", ".join(str(i % 7 / 4) for i in range(15))
    with pytest.raises(mpt.CompileError, match="--loss=none,reduction=mean or --loss=none,reduction=sum"):
        trainer_of(model, tmp_path, loss="none")
    with pytest.raises(mpt.CompileError, match="reduction=mean|sum, output=NAME or weight=NUMBER after none, got 'reduction=max'"):
        trainer_of(model, tmp_path, loss="none,reduction=max")
    x, t = np.arange(12, dtype=np.float32).reshape(4, 3) / 8, np.int64([0, 4, 2, 2])
    w = (np.arange(15) % 7 / 4).astype(np.float32).reshape(3, 5)
    p = np.exp(x @ w) / np.exp(x @ w).sum(1, keepdims=True)
    each, share = -np.log(p[np.arange(4), t]), 1 / 4 if reduction == "mean" else 1
    trainer = trainer_of(model, tmp_path, loss=f"none,reduction={reduction}", policy=policy, loss_scale=None if policy == "fp32" else 1024)
    loss, gradients = trainer.gradients({"x": x, "t": t})
    exact = policy == "fp32"
    assert loss == pytest.approx(float(each.sum() * share), rel=1e-5 if exact else 2e-3)
    np.testing.assert_allclose(gradients["w"], x.T @ (p - np.eye(5)[t]) * share, rtol=1e-4 if exact else 2e-2, atol=1e-6 if exact else 2e-3)
    np.testing.assert_allclose(trainer.evaluate({"x": x, "t": t})["each"], each, rtol=1e-5 if exact else 5e-3)
