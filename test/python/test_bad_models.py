# SPDX-License-Identifier: Apache-2.0
"""Models that are not in order end in a located message and a non-zero status, never in a crash."""
import os
import subprocess

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper, parser

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
BUILD = os.environ.get("MPT_BUILD", os.path.join(ROOT, "build", "release"))
MPT_OPT = os.path.join(BUILD, "bin", "mpt-opt")

MLP = """
<ir_version: 9, opset_import: ["" : 18]>
mlp (float[4, 6] x) => (float[4, 3] y) {
  hidden = Gemm<transB = 1>(x, w1, b1)
  active = Relu(hidden)
  y = Gemm<transB = 1>(active, w2, b2)
}
"""


def mlp(text=MLP):
    rng = np.random.default_rng(0)
    model = parser.parse_model(text)
    for name, shape in {"w1": (5, 6), "b1": (5,), "w2": (3, 5), "b2": (3,)}.items():
        model.graph.initializer.append(numpy_helper.from_array(rng.standard_normal(shape).astype(np.float32), name))
    return model


def compile_model(path, *options):
    return subprocess.run([MPT_OPT, str(path), "--to=import", "--quiet", *options], capture_output=True, text=True, errors="replace",
                          timeout=60, cwd=os.path.dirname(path))


def refused(tmp_path, model, *words):
    """Compiling `model` fails with a message that has every one of `words`."""
    path = tmp_path / "model.onnx"
    path.write_bytes(model if isinstance(model, bytes) else model.SerializeToString())
    result = compile_model(path)
    assert result.returncode == 1, f"status {result.returncode}: {result.stderr[-2000:]}"
    assert "error:" in result.stderr
    for word in words:
        assert word in result.stderr, result.stderr
    return result.stderr


def test_a_good_model_compiles(tmp_path):
    path = tmp_path / "model.onnx"
    onnx.save(mlp(), path)
    result = compile_model(path)
    assert result.returncode == 0, result.stderr


def test_truncated(tmp_path):
    whole = mlp().SerializeToString()
    for length in range(1, len(whole) - 1, max(1, len(whole) // 24)):
        refused(tmp_path, whole[:length])


def test_flipped_bits_never_crash(tmp_path):
    whole = mlp().SerializeToString()
    rng = np.random.default_rng(1)
    path = tmp_path / "model.onnx"
    for _ in range(40):
        broken = bytearray(whole)
        for at in rng.integers(0, len(whole), 3):
            broken[at] ^= 1 << int(rng.integers(0, 8))
        path.write_bytes(bytes(broken))
        result = compile_model(path)
        assert result.returncode in (0, 1), f"status {result.returncode}: {result.stderr[-2000:]}"
        assert result.returncode == 0 or "error:" in result.stderr


def test_missing_file(tmp_path):
    result = compile_model(tmp_path / "absent.onnx")
    assert result.returncode == 1 and "absent.onnx" in result.stderr


def test_empty_file(tmp_path):
    refused(tmp_path, b"")


def test_cycle(tmp_path):
    model = mlp()
    model.graph.node[0].input[0] = "active"
    refused(tmp_path, model)


def test_duplicate_value_name(tmp_path):
    model = mlp()
    model.graph.node[1].output[0] = "hidden"
    model.graph.node[2].input[0] = "hidden"
    refused(tmp_path, model, "hidden")


def test_unknown_operator_is_named(tmp_path):
    model = mlp()
    model.graph.node[1].op_type = "Frobnicate"
    model.graph.node[1].name = "strange_node"
    refused(tmp_path, model, "Frobnicate", "strange_node")


def test_shapes_that_do_not_fit(tmp_path):
    model = mlp()
    model.graph.initializer[0].CopyFrom(numpy_helper.from_array(np.zeros((5, 7), np.float32), "w1"))
    refused(tmp_path, model)


def test_types_that_do_not_fit(tmp_path):
    model = mlp()
    model.graph.initializer[1].CopyFrom(numpy_helper.from_array(np.zeros(5, np.int64), "b1"))
    refused(tmp_path, model)


def external(location, length=120, offset=None):
    model = mlp()
    weight = model.graph.initializer[0]
    weight.ClearField("raw_data")
    weight.data_location = TensorProto.EXTERNAL
    entries = {"location": location, "length": str(length)}
    if offset is not None:
        entries["offset"] = str(offset)
    for key, value in entries.items():
        weight.external_data.add(key=key, value=value)
    return model


def test_external_data_is_read(tmp_path):
    (tmp_path / "weights.bin").write_bytes(b"\0" * 120)
    path = tmp_path / "model.onnx"
    path.write_bytes(external("weights.bin").SerializeToString())
    result = compile_model(path)
    assert result.returncode == 0, result.stderr


@pytest.mark.parametrize("axis", [2**63 - 1, -2**63, 2**31, -4, 4])
@pytest.mark.parametrize("op", ["LayerNormalization", "Flatten", "Softmax", "Concat", "OneHot"])
def test_axis_beyond_the_rank(tmp_path, op, axis):
    if (op, axis) == ("OneHot", -4):
        axis = -5  # one more axis in the result
    operands = {"LayerNormalization": "(x, s)", "Concat": "(x, x)", "OneHot": "(x, d, v)"}.get(op, "(x)")
    refused(tmp_path, parser.parse_model(f"""<ir_version: 9, opset_import: ["" : 18]>
        axes (float[2, 3, 4] x, float[4] s, int64 d, float[2] v) => (float[a, b, c, e] y) {{
          {"y, mean" if op == "LayerNormalization" else "y"} = {op}<axis = {axis}>{operands} }}"""), op)


def test_axis_beyond_the_rank_beside_an_op_that_is_expanded(tmp_path):
    """Expanding CenterCropPad infers the shapes before it."""
    refused(tmp_path, parser.parse_model("""<ir_version: 10, opset_import: ["" : 20]>
        axes (float[2, 3, 4] x, float[4] s, int64[3] t) => (float[a, b, c] z) {
          y, mean = LayerNormalization<axis = 9223372036854775807>(x, s)
          z = CenterCropPad(y, t) }"""), "LayerNormalization")


@pytest.mark.parametrize("count", [-2, -2**63, 2, 2**63 - 1])
def test_more_batch_dimensions_than_indices_have(tmp_path, count):
    refused(tmp_path, parser.parse_model(f"""<ir_version: 9, opset_import: ["" : 18]>
        batches (float[2, 3] x, int64[2, 1] i) => (float[a] y) {{ y = GatherND<batch_dims = {count}>(x, i) }}"""), "batch_dims")


@pytest.mark.parametrize("op", ["Unsqueeze", "Squeeze", "ReduceSum"])
@pytest.mark.parametrize("axis", [-2**63, 5, 2**63 - 1])
def test_axes_beyond_the_rank(tmp_path, op, axis):
    refused(tmp_path, parser.parse_model(f"""<ir_version: 6, opset_import: ["" : 11]>
        axes (float[1, 3, 4] x) => (float[a, b, c] y) {{ y = {op}<axes = [{axis}]>(x) }}"""), op)


def test_split_into_more_parts_than_results(tmp_path):
    refused(tmp_path, parser.parse_model("""<ir_version: 9, opset_import: ["" : 20]>
        parts (float[6] x) => (float[a] y, float[b] z) { y, z = Split<num_outputs = 1099511627776>(x) }"""), "num_outputs", "2")


@pytest.mark.parametrize("location", ["../outside.bin", "/etc/passwd", "absent.bin", "short.bin", "link.bin"])
def test_external_data_that_must_not_or_cannot_be_read(tmp_path, location):
    folder = tmp_path / "model"
    folder.mkdir()
    (tmp_path / "outside.bin").write_bytes(b"\0" * 120)
    (folder / "short.bin").write_bytes(b"\0" * 100)
    (folder / "link.bin").symlink_to(tmp_path / "outside.bin")
    refused(folder, external(location), "w1")


def test_external_data_beyond_the_file(tmp_path):
    (tmp_path / "weights.bin").write_bytes(b"\0" * 120)
    refused(tmp_path, external("weights.bin", offset=64), "w1")
    refused(tmp_path, external("weights.bin", length=-1), "w1")
    refused(tmp_path, external("weights.bin", length="many"), "w1")


def test_initializer_with_too_little_data(tmp_path):
    model = mlp()
    model.graph.initializer[0].raw_data = model.graph.initializer[0].raw_data[:-4]
    refused(tmp_path, model, "w1")


def test_huge_declared_shape(tmp_path):
    model = mlp()
    model.graph.initializer[0].dims[:] = [1 << 40, 1 << 40]
    refused(tmp_path, model)


def test_graph_without_nodes(tmp_path):
    refused(tmp_path, helper.make_model(helper.make_graph([], "empty", [], [])))


def test_unwritable_output(tmp_path):
    path = tmp_path / "model.onnx"
    onnx.save(mlp(), path)
    for out in ("/dev/full", str(tmp_path / "absent" / "out.mlir")):
        result = compile_model(path, "-o", out)
        assert result.returncode == 1 and out in result.stderr, f"{out}: {result.returncode} {result.stderr}"


def joint(*nodes):
    """A graph over a parameter w with a gradient and a new value, from `nodes`."""
    info = helper.make_tensor_value_info
    outputs = [info("loss", TensorProto.FLOAT, []), info("w_grad", TensorProto.FLOAT, [3]), info("w_next", TensorProto.FLOAT, [3])]
    graph = helper.make_graph([helper.make_node("ReduceSum", ["w"], ["loss"], keepdims=0), *nodes], "joint",
                              [info("learning_rate", TensorProto.FLOAT, [])], outputs, [numpy_helper.from_array(np.ones(3, np.float32), "w")])
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=9)


@pytest.mark.parametrize("update", [["w"], [], ["w", "step"]])
def test_an_update_that_lacks_operands(update, tmp_path):
    nodes = [helper.make_node("Identity", ["w"], ["w_grad"]), helper.make_node("Mul", ["learning_rate"], ["step"]), helper.make_node("Sub", update, ["w_next"])]
    refused(tmp_path, joint(*nodes))


def test_identities_in_a_cycle(tmp_path):
    nodes = [helper.make_node("Identity", ["b"], ["a"]), helper.make_node("Identity", ["a"], ["b"]), helper.make_node("Identity", ["a"], ["w_grad"]),
             helper.make_node("Sub", ["w", "a"], ["w_next"])]
    refused(tmp_path, joint(*nodes))
