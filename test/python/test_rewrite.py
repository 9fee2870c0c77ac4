# SPDX-License-Identifier: Apache-2.0
"""--emit=onnx without a training step: the model's own graph, node by node, in the policy's types."""
import os
import subprocess
import sys

import numpy as np
import onnx
import onnx.reference
import pytest
from onnx import TensorProto, helper, numpy_helper

import mpt
from conftest import ROOT, build_folder

sys.path.insert(0, str(ROOT / "benchmarks"))
import adam
import spawn

FLOAT, HALF = TensorProto.FLOAT, TensorProto.FLOAT16


def model(nodes, inputs, outputs, initializers=(), opset=17, ir=8, **graph):
    info = lambda spec: [helper.make_tensor_value_info(n, FLOAT if len(r) < 2 else r[1], r[0]) for n, *r in spec]
    made = helper.make_graph(nodes, "graph", info(inputs), info(outputs),
                             [numpy_helper.from_array(v, n) for n, v in initializers], **graph)
    opsets = [helper.make_opsetid("", opset), helper.make_opsetid("custom", 1)]
    return helper.make_model(made, opset_imports=opsets, ir_version=ir, producer_name="maker")


def rewrite(source, folder, policy="amp-f16", name="out", **options):
    path = source
    if isinstance(source, onnx.ModelProto):
        path = str(folder / f"{name}.in.onnx")
        onnx.save(source, path)
    out = str(folder / f"{name}.onnx")
    mpt.compile(path, out=out, emit="onnx", policy=policy, **options)
    return out


def nodes_of(path, kind=None):
    graph = onnx.load(path, load_external_data=False).graph
    return [n for n in graph.node if kind in (None, n.op_type)]


def weight(rows, columns, seed=0):
    return np.random.default_rng(seed).standard_normal((rows, columns)).astype(np.float32) / 4


def two_layers(**more):
    nodes = [helper.make_node("MatMul", ["x", "w"], ["h"], name="first", doc_string="kept"),
             helper.make_node("Relu", ["h"], ["r"], name="relu"),
             helper.make_node("MatMul", ["r", "w"], ["s"], name="second"),
             helper.make_node("Softmax", ["s"], ["y"], name="softmax", axis=-1)]
    return model(nodes, [("x", ["N", 8])], [("y", ["N", 8])], [("w", weight(8, 8))], **more)


def test_nodes_names_and_interface_are_kept(tmp_path):
    source = two_layers()
    path = rewrite(source, tmp_path)
    result = onnx.load(path)
    onnx.checker.check_model(result, full_check=True)
    assert (result.ir_version, result.opset_import[0].version, result.producer_name) == (8, 17, "maker")
    assert result.graph.input == source.graph.input and result.graph.output == source.graph.output
    assert [n.name for n in result.graph.node if n.op_type != "Cast"] == ["first", "relu", "second", "softmax"]
    assert next(n for n in result.graph.node if n.name == "first").doc_string == "kept"
    assert len(nodes_of(path, "Cast")) == 2  # x before the first GEMM, s before the softmax
    assert {i.name: i.data_type for i in result.graph.initializer} == {"w": HALF}
    x = np.random.default_rng(1).standard_normal((3, 8)).astype(np.float32)
    got, want = (onnx.reference.ReferenceEvaluator(m).run(None, {"x": x})[0] for m in (result, source))
    assert got.dtype == np.float32 and np.abs(got - want).max() < 5e-3


@pytest.mark.parametrize("policy", ["amp-f16", "amp-bf16"])
def test_a_second_run_changes_no_byte(tmp_path, policy):
    first = rewrite(two_layers(), tmp_path, policy)
    second = rewrite(first, tmp_path, policy, name="again")
    assert open(first, "rb").read() == open(second, "rb").read()


def test_fp32_keeps_every_node(tmp_path):
    source = two_layers()
    result = onnx.load(rewrite(source, tmp_path, "fp32"))
    assert result.graph.node == source.graph.node


def test_custom_operators_stay_and_are_fed_float(tmp_path):
    nodes = [helper.make_node("MatMul", ["x", "w"], ["h"], name="product"),
             helper.make_node("Mystery", ["h"], ["m"], name="mystery", domain="custom", level=3),
             helper.make_node("MatMul", ["m", "w"], ["y"], name="last")]
    source = model(nodes, [("x", [4, 8])], [("y", [4, 8])], [("w", weight(8, 8))],
                   value_info=[helper.make_tensor_value_info("m", FLOAT, [4, 8])])
    path = rewrite(source, tmp_path)
    onnx.checker.check_model(path, full_check=True)
    mystery = next(n for n in nodes_of(path) if n.name == "mystery")
    assert mystery.attribute[0].i == 3
    assert {v.name: v.type.tensor_type.elem_type for v in onnx.load(path).graph.value_info}["m"] == FLOAT
    cast = next(n for n in nodes_of(path) if list(n.output) == list(mystery.input))
    assert cast.op_type == "Cast" and cast.attribute[0].i == FLOAT


def test_subgraphs_are_rewritten_too(tmp_path):
    branch = lambda kind, inputs: helper.make_graph([helper.make_node(kind, inputs, [kind + "_out"], name=kind)], kind,
                                                    [], [helper.make_tensor_value_info(kind + "_out", FLOAT, [8, 8])])
    nodes = [helper.make_node("If", ["c"], ["y"], name="if", then_branch=branch("MatMul", ["x", "w"]),
                              else_branch=branch("Add", ["x", "w"]))]
    source = model(nodes, [("x", [8, 8]), ("c", [], TensorProto.BOOL)], [("y", [8, 8])], [("w", weight(8, 8))])
    path = rewrite(source, tmp_path)
    onnx.checker.check_model(path, full_check=True)
    session = onnx.reference.ReferenceEvaluator(path)
    bodies = {a.name: a.g for a in nodes_of(path, "If")[0].attribute}
    assert [n.op_type for n in bodies["then_branch"].node] == ["MatMul", "Cast"]
    assert [n.op_type for n in bodies["else_branch"].node] == ["Add"]
    for flag in (True, False):
        x = weight(8, 8, 1)
        want = x @ weight(8, 8) if flag else x + weight(8, 8)
        assert np.abs(session.run(None, {"x": x, "c": np.array(flag)})[0] - want).max() < 2e-3


def test_optimizers_stay_wide_and_the_report_says_why(tmp_path):
    source = adam.adam(3)
    report = str(tmp_path / "report.txt")
    path = rewrite(source, tmp_path, report=f"precision={report}", keep_narrow="Addh_1")
    assert onnx.load(path).graph.node == source.graph.node
    assert all(i.data_type == FLOAT for i in onnx.load(path).graph.initializer)
    said = {line.split()[0]: line for line in open(report).read().splitlines() if " : tensor" in line}
    for node in ("Muld", "Mule", "Mulc", "Addv_next", "Sqrtf"):
        assert "because optimizer.second_moment -> wide" in said[f"{node}_2"]
    for node in ("Addh", "Divi"):
        assert "because optimizer.epsilon -> wide" in said[f"{node}_2"]
    assert "keep-narrow" in said["Addh_1"] and "does not apply" in said["Addh_1"]
    assert "only results of the graph depend on it" in said["Subp_next_0"]


def test_external_data_is_streamed_and_small_memory(tmp_path):
    rows = 512
    source = two_layers()
    source.graph.initializer[0].CopyFrom(numpy_helper.from_array(weight(8, 8), "w"))
    big = [helper.make_node("MatMul", ["y", "big"], ["z"], name="big")]
    source.graph.node.extend(big)
    source.graph.initializer.append(numpy_helper.from_array(weight(8, rows * 64), "big"))
    source.graph.output[0].CopyFrom(helper.make_tensor_value_info("z", FLOAT, ["N", rows * 64]))
    given = str(tmp_path / "given.onnx")
    onnx.save(source, given, save_as_external_data=True, location="given.data", size_threshold=0)
    path = rewrite(given, tmp_path)
    onnx.checker.check_model(path, full_check=True)
    assert os.path.getsize(path) < 4096
    stored = {i.name: numpy_helper.to_array(i) for i in onnx.load(path).graph.initializer}
    assert np.array_equal(stored["big"], weight(8, rows * 64).astype(np.float16))


def test_small_tensors_need_no_file_of_their_own(tmp_path):
    source = model([helper.make_node("MatMul", ["x", "w"], ["y"], name="one")], [("x", [2, 8])], [("y", [2, 4])], [("w", weight(8, 4))])
    onnx.save(source, tmp_path / "in.onnx", save_as_external_data=True, location="in.data", size_threshold=0)
    subprocess.run([build_folder() / "bin" / "mpt-opt", tmp_path / "in.onnx", "--policy=amp-f16", "--emit=onnx", "-o", tmp_path / "out.onnx"], check=True)
    assert not (tmp_path / "out.onnx.data").exists() and onnx.load(tmp_path / "out.onnx").graph.initializer[0].raw_data


@pytest.mark.parametrize("element, wide", [(.5, False), (1e5, True)])
def test_elements_of_large_weights_are_read_without_memory(tmp_path, element, wide):
    """A product whose one of 2^25 weights leaves the range stays wide, however large the file is."""
    big = np.full((64, 1 << 19), .25, np.float32)
    big[-1, -1] = element
    nodes = [helper.make_node("MatMul", ["x", "w"], ["h"], name="one"), helper.make_node("MatMul", ["h", "big"], ["y"], name="two")]
    source = model(nodes, [("x", [2, 8])], [("y", [2, 1 << 19])], [("w", weight(8, 64)), ("big", big)])
    onnx.save(source, tmp_path / "in.onnx", save_as_external_data=True, location="in.data")
    status, _, peak, _ = spawn.measure([build_folder() / "bin" / "mpt-opt", tmp_path / "in.onnx", "--policy=amp-f16", "--emit=onnx", "-o", tmp_path / "out.onnx"])
    assert status == 0 and peak < 80, f"{peak} MiB"
    stored = {i.name: i.data_type for i in onnx.load(tmp_path / "out.onnx", load_external_data=False).graph.initializer}
    assert stored == {"w": HALF, "big": FLOAT if wide else HALF}


def test_range_of_constants(tmp_path):
    values = np.array([[-1e9, 1e-12, -1e-12, np.inf], [65504, 6e-8, 0, -3.4e38]], np.float32)
    nodes = [helper.make_node("MatMul", ["x", "w"], ["y"], name="product")]
    source = model(nodes, [("x", [1, 2])], [("y", [1, 4])], [("w", values)])
    path = rewrite(source, tmp_path, keep_narrow="product")
    tiny = np.float16(6e-8)
    want = np.array([[-65504, tiny, -tiny, np.inf], [65504, tiny, 0, -65504]], np.float16)
    assert np.array_equal(numpy_helper.to_array(onnx.load(path).graph.initializer[0]), want)


@pytest.mark.parametrize("scale, wide", [(1.0, False), (1e6, True), (1e-6, True)])
def test_products_with_weights_outside_the_range_stay_wide(tmp_path, scale, wide):
    nodes = [helper.make_node("MatMul", ["x", "w"], ["h"], name="one"), helper.make_node("MatMul", ["h", "big"], ["s"], name="two"),
             helper.make_node("Tanh", ["s"], ["d"], name="bend"), helper.make_node("Gemm", ["d", "w", "b"], ["t"], name="three"), helper.make_node("Relu", ["t"], ["y"], name="end")]
    # A bias may be as small as it likes. Constants that fit go narrow where others do not.
    given = [("w", weight(8, 8)), ("big", weight(8, 8, 1) * np.float32(scale)), ("b", np.full(8, 1e-7, np.float32))]
    path = rewrite(model(nodes, [("x", [2, 8])], [("y", [2, 8])], given), tmp_path)
    onnx.checker.check_model(path, full_check=True)
    kinds = {i.name: i.data_type for i in onnx.load(path).graph.initializer}
    assert kinds == {"w": HALF, "big": FLOAT if wide else HALF, "b": HALF}


def test_root_mean_square_norms_keep_one_type(tmp_path):
    nodes = [helper.make_node("MatMul", ["x", "w"], ["h"]), helper.make_node("RMSNormalization", ["h", "scale"], ["n"]),
             helper.make_node("MatMul", ["n", "w"], ["y"])]
    path = rewrite(model(nodes, [("x", [2, 8])], [("y", [2, 8])], [("w", weight(8, 8)), ("scale", np.ones(8, np.float32))], 23, 11), tmp_path)
    onnx.checker.check_model(path, full_check=True)
    assert {i.name: i.data_type for i in onnx.load(path).graph.initializer} == {"w": HALF, "scale": FLOAT}


def test_filled_tensors_keep_the_types_of_their_version(tmp_path):
    nodes = [helper.make_node("Shape", ["x"], ["extents"]),
             helper.make_node("ConstantOfShape", ["extents"], ["half"], value=numpy_helper.from_array(np.array([0.5], np.float32))),
             helper.make_node("MatMul", ["x", "w"], ["h"]), helper.make_node("Add", ["h", "half"], ["s"]), helper.make_node("MatMul", ["s", "w"], ["y"])]
    for opset in 17, 21: # results in bf16 came with version 20
        source = model(nodes, [("x", [2, 8])], [("y", [2, 8])], [("w", weight(8, 8))], opset, 8 if opset < 21 else 10)
        path = rewrite(source, tmp_path, "amp-bf16")
        onnx.checker.check_model(path, full_check=True)
        filled, = nodes_of(path, "ConstantOfShape")
        assert filled.attribute[0].t.data_type == (FLOAT if opset < 20 else TensorProto.BFLOAT16)


@pytest.mark.parametrize("policy, terms, wide", [("amp-bf16", 200, False), ("amp-bf16", 300, True), ("amp-f16", 1024, False), ("amp-f16", 4096, True)])
def test_long_sums_are_wide(tmp_path, policy, terms, wide):
    nodes = [helper.make_node("Conv", ["x", "k"], ["h"], name="first"), helper.make_node("GlobalAveragePool", ["h"], ["p"], name="mean"),
             helper.make_node("Conv", ["p", "k"], ["y"], name="last")]
    source = model(nodes, [("x", [1, 4, 1, terms])], [("y", [1, 4, 1, 1])], [("k", weight(4, 4).reshape(4, 4, 1, 1))], 22, 10)
    path = rewrite(source, tmp_path, policy)
    onnx.checker.check_model(path, full_check=True)
    before = next(n for n in nodes_of(path) if n.name == "mean").input[0]
    assert any(n.op_type == "Cast" and n.output[0] == before for n in nodes_of(path)) == wide


def test_a_rule_for_normalized_data_leaves_statistics_on_every_run(tmp_path):
    nodes = [helper.make_node("Conv", ["x", "k"], ["h"]), helper.make_node("BatchNormalization", ["h", "s", "b", "m", "v"], ["n"], name="norm"),
             helper.make_node("Conv", ["n", "k"], ["y"])]
    given = [("k", weight(2, 2).reshape(2, 2, 1, 1)), *((name, np.ones(2, np.float32)) for name in "sbmv")]
    source = model(nodes, [("x", [1, 2, 3, 3])], [("y", [1, 2, 3, 3])], given)
    first = rewrite(source, tmp_path, keep_narrow=".*")
    second = rewrite(first, tmp_path, name="again", keep_narrow=".*")
    assert {i.name: i.data_type for i in onnx.load(first).graph.initializer} == {"k": HALF, **dict.fromkeys("sbmv", FLOAT)}
    assert open(first, "rb").read() == open(second, "rb").read()


def test_nodes_that_stay_are_fed_what_they_were(tmp_path):
    nodes = [helper.make_node("MatMul", ["x", "w"], ["h"]), helper.make_node("QuantizeLinear", ["h", "scale", "zero"], ["q"], name="quantize"),
             helper.make_node("DequantizeLinear", ["q", "scale", "zero"], ["d"]), helper.make_node("MatMul", ["d", "w"], ["y"])]
    given = [("w", weight(8, 8)), ("scale", np.array(0.02, np.float32)), ("zero", np.array(128, np.uint8))]
    path = rewrite(model(nodes, [("x", [2, 8])], [("y", [2, 8])], given, 23, 11), tmp_path)  # whose scale has a type of its own
    onnx.checker.check_model(path, full_check=True)
    made = {n.output[0]: n for n in nodes_of(path)}
    feeding = made[next(n for n in nodes_of(path) if n.name == "quantize").input[0]]
    assert feeding.op_type == "Cast" and feeding.attribute[0].i == FLOAT
    assert {i.name: i.data_type for i in onnx.load(path).graph.initializer}["scale"] == FLOAT


def test_a_second_run_keeps_what_follows_other_domains(tmp_path):
    nodes = [helper.make_node("Scaler", ["x"], ["s"], domain="ai.onnx.ml", offset=[0.1], scale=[2.0]),
             helper.make_node("MatMul", ["s", "w"], ["h"]), helper.make_node("Relu", ["h"], ["r"]), helper.make_node("MatMul", ["r", "w"], ["y"])]
    source = model(nodes, [("x", [2, 8])], [("y", [2, 8])], [("w", weight(8, 8))])
    source.opset_import.append(helper.make_opsetid("ai.onnx.ml", 3))
    first = rewrite(source, tmp_path)
    second = rewrite(first, tmp_path, name="again")
    onnx.checker.check_model(first, full_check=True)
    assert open(first, "rb").read() == open(second, "rb").read()


def test_sequences_keep_the_type_of_their_tensors(tmp_path):
    nodes = [helper.make_node("MatMul", ["x", "w"], ["h"], name="product"),
             helper.make_node("SplitToSequence", ["h", "parts"], ["q"], name="split", axis=-1),
             helper.make_node("SequenceAt", ["q", "at"], ["e"], name="at"),
             helper.make_node("MatMul", ["e", "u"], ["y"], name="last")]
    source = model(nodes, [("x", [4, 8])], [("y", [4, 8])],
                   [("w", weight(8, 8)), ("u", weight(4, 8)), ("parts", np.int64(4)), ("at", np.int64(1))])
    onnx.checker.check_model(rewrite(source, tmp_path), full_check=True)


def test_training_info_is_refused(tmp_path):
    source = two_layers()
    source.training_info.add().algorithm.name = "algorithm"
    with pytest.raises(mpt.CompileError, match="TrainingInfoProto"):
        rewrite(source, tmp_path)


def test_a_small_rewrite_is_not_mostly_start(tmp_path):
    """Pages touched do not depend on how busy the machine is: 820, where loading LLVM, MLIR and all schemas took 4550."""
    tool = build_folder() / "bin" / "mpt-opt"
    sanitized = subprocess.run(["grep", "-q", "^MPT_SANITIZE:STRING=.", build_folder() / "CMakeCache.txt"], check=False).returncode == 0
    if not tool.exists() or sanitized:
        pytest.skip("mpt-opt is not built, or with sanitizers")
    small = model([helper.make_node("MatMul", ["x", "w"], ["y"])], [("x", [2, 4])], [("y", [2, 4])], [("w", np.eye(4, dtype=np.float32))])
    onnx.save(small, tmp_path / "small.onnx")
    words = [str(tool), str(tmp_path / "small.onnx"), "--policy=amp-f16", "--emit=onnx", "--quiet", "-o", str(tmp_path / "out.onnx")]
    _, status, used = os.wait4(os.posix_spawn(words[0], words, os.environ), 0)
    assert status == 0 and used.ru_minflt < 2000, used.ru_minflt


@pytest.mark.parametrize("policy", ["amp-f16", "amp-bf16"])
def test_a_second_run_keeps_casts_of_the_file(tmp_path, policy):
    """Counts as floats, casts that do nothing, and one to FP64 and back, between products."""
    source = onnx.parser.parse_model("""<ir_version: 8, opset_import: ["": 17]> g (float[4,8] x, int64[4,1] n) => (float[4,8] y) {
        c = Cast<to = 1>(n) h = MatMul(x, w) same = Cast<to = 1>(h) d = Div(same, c) wide = Cast<to = 11>(d) back = Cast<to = 1>(wide)
        r = Relu(back) y = MatMul(r, w) }""")
    source.graph.initializer.append(numpy_helper.from_array(weight(8, 8), "w"))
    first = rewrite(source, tmp_path, policy=policy)
    onnx.checker.check_model(first, full_check=True)
    assert open(first, "rb").read() == open(rewrite(first, tmp_path, name="again", policy=policy), "rb").read()
    x, n = weight(4, 8), np.array([[1], [70001], [3], [2049]])
    w = numpy_helper.to_array(source.graph.initializer[0]).astype(np.float64)
    want = np.maximum(x @ w / n, 0) @ w
    got = onnx.reference.ReferenceEvaluator(onnx.load(first)).run(None, {"x": x, "n": n})[0]
    assert np.linalg.norm(got - want) <= 0.02 * np.linalg.norm(want)


@pytest.mark.parametrize("policy", ["amp-f16", "amp-bf16"])
def test_operators_of_the_runtime_in_the_default_domain_stay(tmp_path, policy):
    """ONNX Runtime's optimizer writes them so; no opset has a schema of them."""
    source = onnx.parser.parse_model("""<ir_version: 8, opset_import: ["": 14]> g (float[2,3,8] x) => (float[2,3,8] y) {
        h = MatMul(x, w) n = SimplifiedLayerNormalization<axis = -1, epsilon = 0.00001, stash_type = 1>(h, s) y = MatMul(n, w) }""")
    source.graph.initializer.extend(numpy_helper.from_array(v, k) for k, v in (("w", weight(8, 8)), ("s", np.ones(8, np.float32))))
    path = rewrite(source, tmp_path, policy=policy)
    made = nodes_of(path)
    assert [n.op_type for n in made if n.op_type != "Cast"] == ["MatMul", "SimplifiedLayerNormalization", "MatMul"]
    assert open(path, "rb").read() == open(rewrite(path, tmp_path, name="again", policy=policy), "rb").read()
