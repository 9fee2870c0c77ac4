# SPDX-License-Identifier: Apache-2.0
"""Long chains whose steps all train: the number of ops behind fusion grows as they do."""
import subprocess

import numpy as np
import onnx
from conftest import build_folder
from onnx import TensorProto, helper, numpy_helper


def chain(pairs, path):
    """Mul by a trained row, Sum with the input, again and again; then a product."""
    weights = {f"c{i}": np.full(8, .9, np.float32) for i in range(pairs)} | {"w": np.full((8, 3), .1, np.float32)}
    nodes, value = [], "x"
    for i in range(pairs):
        nodes += [helper.make_node("Mul", [value, f"c{i}"], [f"m{i}"]), helper.make_node("Sum", [f"m{i}", "x"], [f"s{i}"])]
        value = f"s{i}"
    nodes.append(helper.make_node("MatMul", [value, "w"], ["y"]))
    graph = helper.make_graph(nodes, "chain", [helper.make_tensor_value_info("x", TensorProto.FLOAT, [4, 8])],
                              [helper.make_tensor_value_info("y", TensorProto.FLOAT, [4, 3])],
                              [numpy_helper.from_array(value, name) for name, value in weights.items()])
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8), path)


def test_a_chain_twice_as_long_has_twice_as_many_operations(tmp_path):
    counts = []
    for pairs in (100, 200, 400):
        chain(pairs, tmp_path / "chain.onnx")
        done = subprocess.run([str(build_folder() / "bin" / "mpt-opt"), str(tmp_path / "chain.onnx"), "--loss=softmax-cross-entropy",
                               "--optimizer=sgd,lr=0.1", "--policy=amp-f16", "--to=fusion"], capture_output=True, text=True, timeout=300)
        assert done.returncode == 0, done.stderr
        counts.append(sum(done.stdout.count(f"mpt.{op} ") for op in ("mul", "add", "broadcast")))
    assert counts[0] > 500 and counts[1] < 2.2 * counts[0] and counts[2] < 2.2 * counts[1], counts
