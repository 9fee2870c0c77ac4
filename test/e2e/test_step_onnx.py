# SPDX-License-Identifier: Apache-2.0
"""Training steps as .onnx: valid, bitwise identical in the reference interpreter after re-import, executable from the file alone."""
import os
import pathlib
import sys

import numpy as np
import onnx
import onnx.reference
import pytest
from onnx import helper, numpy_helper, parser

sys.path[:0] = [os.path.dirname(__file__), str(pathlib.Path(__file__).resolve().parents[2] / "benchmarks")]
import spawn  # noqa: E402
import step_files  # noqa: E402

pytestmark = pytest.mark.skipif(not (step_files.BUILD / "bin" / "mpt-opt").exists(), reason="mpt-opt is not built")

HEAD = '<ir_version: 9, opset_import: ["" : 20], producer_name: "test">\n'
CLASSES = np.array([2, 0, 1, 2])
# Per model: graph, shapes of the parameters, shape of x, flags. Between them every way in which an op leaves as several.
MODELS = {
    "cnn": ("""cnn (float[4, 2, 8, 8] x) => (float[4, 3] z) {
  c = Conv<pads = [1, 1, 1, 1]>(x, w1)
  n, m, v = BatchNormalization<training_mode = 1>(c, s, b, mean, var)
  r = Relu(n)
  p = MaxPool<kernel_shape = [3, 3], strides = [2, 2], pads = [1, 1, 1, 1]>(r)
  a = AveragePool<kernel_shape = [3, 3], strides = [1, 1], pads = [1, 1, 1, 1], count_include_pad = 0>(p)
  q = Conv<strides = [2, 2]>(a, w2)
  f = Flatten(q)
  z = Gemm<transB = 1>(f, w3, b3)
}""", {"w1": (4, 2, 3, 3), "s": (4,), "b": (4,), "mean": (4,), "var": (4,), "w2": (4, 4, 2, 2), "w3": (3, 16), "b3": (3,)}, (4, 2, 8, 8)),
    "points": ("""points (float[4, 2, 9, 8] x) => (float[4, 3] z) {
  c = Conv<dilations = [2, 1], strides = [1, 2], pads = [2, 0, 1, 1]>(x, w1)
  r = Relu(c)
  q = Conv(r, w2)
  f = GlobalAveragePool(q)
  g = Flatten(f)
  z = Gemm<transB = 1>(g, w3, b3)
}""", {"w1": (4, 2, 3, 3), "w2": (5, 4, 1, 1), "w3": (3, 5), "b3": (3,)}, (4, 2, 9, 8)),
    # Transposed convolutions whose results are longer than the samples that their windows write: their gradients leave samples out.
    "longer": ("""longer (float[4, 2, 5] x) => (float[4, 3] z) {
  t = ConvTranspose<strides = [3], output_padding = [2]>(x, w1)
  a = Tanh(t)
  u = ConvTranspose<strides = [2], output_shape = [42], group = 2, pads = [0, 0]>(a, w2)
  f = Flatten(u)
  z = MatMul(f, w3)
}""", {"w1": (2, 4, 3), "w2": (4, 2, 3), "w3": (168, 3)}, (4, 2, 5)),
    "batched": ("""batched (float[4, 2, 5] x) => (float[4, 3] z) {
  h = MatMul(x, w1)
  at = Constant<value = int64[4, 2, 2, 1] {4, 0, 1, 1, -1, 2, 3, 3, 0, 0, 0, 0, 2, 4, 1, -5}>()
  g = GatherND<batch_dims = 2>(h, at)
  f = Flatten(g)
  z = MatMul(f, w2)
}""", {"w1": (5, 5), "w2": (4, 3)}, (4, 2, 5)),
    "activations": ("""activations (float[4, 6] x) => (float[4, 3] z) {
  h = Gemm<transB = 1>(x, w1, b1)
  g = Gelu(h)
  t = Tanh(g)
  s = Sigmoid(t)
  u = Mul(s, t)
  e = Gelu<approximate = "tanh">(u)
  one = Constant<value = float {1}>()
  n = LayerNormalization<axis = -1>(e, scale, bias)
  q = Mul(n, n)
  r = Add(q, one)
  d = Sqrt(r)
  v = Reciprocal(d)
  o = HardSwish(v)
  y = HardSigmoid(o)
  l = LeakyRelu(y)
  c = Elu(l)
  i = Selu(c)
  z = Gemm<transB = 1>(i, w2, b2)
}""", {"w1": (8, 6), "b1": (8,), "scale": (8,), "bias": (8,), "w2": (3, 8), "b2": (3,)}, (4, 6)),
    "attention": ("""attention (float[4, 4, 6] x) => (float[4, 3] z) {
  q = MatMul(x, wq)
  k = MatMul(x, wk)
  kt = Transpose<perm = [0, 2, 1]>(k)
  a = MatMul(q, kt)
  p = Softmax<axis = -1>(a)
  v = MatMul(p, q)
  axis = Constant<value = int64[1] {1}>()
  m = ReduceMean<keepdims = 0>(v, axis)
  z = Gemm<transB = 1>(m, w2, b2)
}""", {"wq": (6, 5), "wk": (6, 5), "w2": (3, 5), "b2": (3,)}, (4, 4, 6)),
    "dropout": ("""dropout (float[4, 6] x) => (float[4, 3] z) {
  h = Gemm<transB = 1>(x, w1, b1)
  ratio = Constant<value = float {0.3}>()
  train = Constant<value = bool {1}>()
  d = Dropout(h, ratio, train)
  r = Relu(d)
  z = Gemm<transB = 1>(r, w2, b2)
}""", {"w1": (9, 6), "b1": (9,), "w2": (3, 9), "b2": (3,)}, (4, 6)),
    "resize": ("""resize (float[4, 2, 3, 3] x) => (float[4, 3] z) {
  c = Conv(x, w1)
  scales = Constant<value = float[4] {1.0, 1.0, 2.5, 2.5}>()
  u = Resize<mode = "linear">(c, , scales)
  t = ConvTranspose<strides = [2, 2]>(u, w2)
  g = GlobalAveragePool(t)
  f = Flatten(g)
  z = Gemm<transB = 1>(f, w3, b3)
}""", {"w1": (4, 2, 2, 2), "w2": (4, 2, 3, 3), "w3": (3, 2), "b3": (3,)}, (4, 2, 3, 3)),
}
HARD = ("""hard (float[4, 6] x) => (float[4, 3] z) {
  h = Gemm<transB = 1>(x, w1, b1)
  s = HardSwish(h)
  y = HardSigmoid<alpha = 0.25, beta = 0.5>(s)
  z = Gemm<transB = 1>(y, w2, b2)
}""", {"w1": (64, 6), "b1": (64,), "w2": (3, 64), "b2": (3,)}, (4, 6))


def build(name, folder):
    text, shapes, x = HARD if name == "hard" else MODELS[name]
    model = parser.parse_model(HEAD + text)
    random = np.random.default_rng(3)
    for parameter, shape in shapes.items():
        value = np.abs(random.normal(1, 0.2, shape)) if parameter == "var" else random.normal(0, 0.5, shape)
        model.graph.initializer.append(numpy_helper.from_array(value.astype(np.float32), parameter))
    path = pathlib.Path(folder) / f"{name}.onnx"
    onnx.save(model, path)
    return path, {"x": random.normal(size=x).astype(np.float32), "labels": CLASSES, "learning_rate": np.float32(0.05)}


def flags(policy, optimizer="adamw,lr=0.05,weight-decay=0.01", *more):
    return ["--loss=softmax-cross-entropy", f"--optimizer={optimizer}", f"--policy={policy}", *more]


@pytest.mark.parametrize("policy", step_files.POLICIES)
@pytest.mark.parametrize("name", ["cnn", "activations"])
def test_every_policy_keeps_its_bits(name, policy, tmp_path):
    model, feeds = build(name, tmp_path)
    proto, (results, states) = step_files.compare(model, flags(policy), feeds, tmp_path)
    assert np.isfinite(results["loss"].astype(np.float32)) and proto.opset_import[0].version == 22 and proto.ir_version == 10
    roles = {entry["role"] for entry in step_files.states_of(proto).values()}
    assert {"parameter", "slot"} <= roles and ("master" in roles) == (policy.startswith(("amp", "als")) or policy in ("fp8-hybrid", "fp8-current"))


@pytest.mark.parametrize("name", ["attention", "batched", "dropout", "longer", "points", "resize"])
@pytest.mark.parametrize("policy", ["fp32", "amp-f16", "fp8-e5m2"])
def test_more_graphs(name, policy, tmp_path):
    model, feeds = build(name, tmp_path)
    step_files.compare(model, flags(policy), feeds, tmp_path)


@pytest.mark.parametrize("policy,name", [("fp8-e5m2", "attention"), ("fp32", "dropout")])
def test_the_generator_counts_beyond_32_bits(policy, name, tmp_path):
    """A step's upper half is a part of the stream, in rounding and in dropout: before export, after it, and not the stream of step 5."""
    model, feeds = build(name, tmp_path)
    path = step_files.export(model, flags(policy), tmp_path / "step.onnx")
    states = step_files.states_of(step_files.check(path))
    first = step_files.steps(model, flags(policy), feeds, tmp_path, "first", 1)
    keys = [name for name in first[1] if first[1][name].dtype == np.int64 and first[1][name].shape == (2,)]
    assert keys and set(keys) <= set(states)
    late, early = ({**first[1], **{key: np.array([7, step]) for key in keys}} for step in (2**32 + 5, 5))
    before, after = (step_files.steps(source, words, feeds, tmp_path, "late", 1, late) for source, words in ((model, flags(policy)), (path, [])))
    assert before[1][keys[0]].tolist() == [7, 2**32 + 6]
    assert not step_files.differences(before[1], {key: after[1][key] for key in states})
    assert step_files.differences(before[1], step_files.steps(model, flags(policy), feeds, tmp_path, "early", 1, early)[1]) != keys


@pytest.mark.parametrize("optimizer", ["sgd,lr=0.05", "sgd,lr=0.05,momentum=0.9,nesterov=true,weight-decay=0.1", "adam,lr=0.05", "adagrad,lr=0.05"])
def test_every_optimizer(optimizer, tmp_path):
    model, feeds = build("attention", tmp_path)
    step_files.compare(model, flags("amp-f16", optimizer, "--clip-norm=0.5", "--accumulate=2"), feeds, tmp_path)


def test_an_overflowing_step_is_skipped_from_the_file_alone(tmp_path):
    model, feeds = build("cnn", tmp_path)
    path = step_files.export(model, flags("amp-f16"), tmp_path / "step.onnx")
    proto = step_files.check(path)
    states = step_files.states_of(proto)
    scale, = [name for name, entry in states.items() if entry["role"] == "scale" and "scale" in name and
              next(t for t in proto.graph.initializer if t.name == name).data_type == onnx.TensorProto.FLOAT]
    for tensor in proto.graph.initializer:
        if tensor.name == scale:
            tensor.CopyFrom(numpy_helper.from_array(np.float32(2.0**127), scale))
    before = {tensor.name: numpy_helper.to_array(tensor) for tensor in proto.graph.initializer}
    outputs = [value.name for value in proto.graph.output]
    after = dict(zip(outputs, onnx.reference.ReferenceEvaluator(proto).run(None, feeds)))
    assert bool(after["skipped"])
    for name, entry in states.items():
        if entry["role"] in ("parameter", "master", "slot", "statistic"):
            assert step_files.is_same(before[name], after[entry["next"]]), name
    assert after[states[scale]["next"]] == np.float32(2.0**126)


@pytest.mark.parametrize("name, policy", [("cnn", "amp-bf16"), ("cnn", "fp8-hybrid"), ("hard", "amp-bf16")])
def test_wide_arithmetic_has_no_bf16_operators_and_the_same_bits(name, policy, tmp_path):
    """The exact operations of the cnn round the same whether they are computed in bf16 or in f32 first; the hard sigmoid does in FP64."""
    model, feeds = build(name, tmp_path)
    proto, _ = step_files.compare(model, flags(policy), feeds, tmp_path, "joint", "--onnx-arithmetic=wide")
    inferred = onnx.shape_inference.infer_shapes(proto)
    kinds = {value.name: value.type.tensor_type.elem_type
             for values in (inferred.graph.value_info, inferred.graph.input, inferred.graph.output) for value in values}
    kinds.update((tensor.name, tensor.data_type) for tensor in proto.graph.initializer)
    touching = {node.op_type for node in proto.graph.node if onnx.TensorProto.BFLOAT16 in {kinds[name] for name in (*node.input, *node.output)}}
    assert "Cast" in touching and touching <= {"Cast", "Reshape", "Transpose", "Identity"}


def test_training_information(tmp_path):
    model, feeds = build("cnn", tmp_path)
    proto, (results, states) = step_files.compare(model, flags("amp-f16"), feeds, tmp_path, "training-info")
    info, = proto.training_info
    bindings = {binding.key: binding.value for binding in info.update_binding}
    entries = step_files.states_of(proto)
    assert bindings == {name: entry["next"] for name, entry in entries.items() if "next" in entry}
    assert {value.name for value in info.algorithm.output} >= set(bindings.values())
    # The model's own graph is the model in use: inputs and outputs of the source, no labels.
    assert [value.name for value in proto.graph.input] == ["x"] and [value.name for value in proto.graph.output] == ["z"]


def test_the_step_is_a_step_already(tmp_path):
    model, feeds = build("attention", tmp_path)
    path = step_files.export(model, flags("amp-f16"), tmp_path / "step.onnx")
    for words in (["--optimizer=sgd"], ["--policy=amp-f16", "--to=precision"], ["--loss=mse"]):
        with pytest.raises(step_files.Failed, match="is a training step already"):
            step_files.call("mpt-opt", path, *words, "-o", tmp_path / "again")


def test_large_states_stream_to_a_file_beside(tmp_path):
    """1.2 GB of state (weights, master, two moments): resident memory stays far below, and the file has them whole."""
    rows = 9216
    first = np.arange(rows, dtype=np.float32) / rows
    with open(tmp_path / "large.data", "wb") as data:
        data.write(first.tobytes())
        data.truncate(rows * rows * 4)
    weights = onnx.TensorProto(name="w", data_type=onnx.TensorProto.FLOAT, dims=[rows, rows], data_location=onnx.TensorProto.EXTERNAL)
    for key, value in (("location", "large.data"), ("offset", "0"), ("length", str(rows * rows * 4))):
        weights.external_data.add(key=key, value=value)
    graph = helper.make_graph([helper.make_node("MatMul", ["x", "w"], ["h"], "fc"),
                               helper.make_node("ReduceMean", ["h"], ["loss"], "mean", keepdims=0)],
                              "large", [helper.make_tensor_value_info("x", 1, [1, rows])],
                              [helper.make_tensor_value_info("loss", 1, [])], [weights])
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 20)], ir_version=9), tmp_path / "large.onnx")
    status, _, peak, said = spawn.measure([step_files.BUILD / "bin" / "mpt-opt", tmp_path / "large.onnx", "--loss=none", "--optimizer=adam,lr=0.1",
                                           "--policy=amp-f16", "--emit=onnx", "--quiet", "-o", tmp_path / "step.onnx"])
    assert status == 0, said
    assert peak < 300, f"{peak} MiB"
    data = tmp_path / "step.onnx.data"
    proto = onnx.load(tmp_path / "step.onnx", load_external_data=False)
    beside = {tensor.name: {entry.key: entry.value for entry in tensor.external_data}
              for tensor in proto.graph.initializer if tensor.external_data}
    assert set(beside) == {"w", "w.master", "w.moment1", "w.moment2"}
    assert data.stat().st_size < rows * rows * 14 + (1 << 20) and (tmp_path / "step.onnx").stat().st_size < 1 << 20
    for name, kind in (("w", np.float16), ("w.master", np.float32)):
        row = np.fromfile(data, kind, rows, offset=int(beside[name]["offset"]))
        assert np.array_equal(row, first.astype(kind)), name
    data.unlink()
