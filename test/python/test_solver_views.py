# SPDX-License-Identifier: Apache-2.0
"""The precision solver decides a graph alike through its two views: imported to core ops, and node by node as in the file."""
import numpy as np
import onnx
import pytest
from onnx import numpy_helper

import policy_summary
from mpt_run import tool

# Each node's rule is another ground: followers between two contractions, an expanding op, an op that its range flows into, and a follower
# that nothing narrow flows into.
GRAPH = """<ir_version: 8, opset_import: ["" : 17]>
views (float[64,64] x) => (float[64,64] y) {
  before = Sqrt (x)
  first = MatMul (before, w4)
  tanh = Tanh (first)
  a = MatMul (tanh, w1)
  relu = Relu (a)
  b = MatMul (relu, w2)
  exp = Exp (b)
  scaled = Mul (exp, half)
  y = MatMul (scaled, w3)
}"""
EXPECTED = {
    "Sqrt": ("f32", "class neutral -> follow: nothing narrow flows in"),
    "Relu": ("f16", "class movement -> follow; fewest cast bytes"),
    "Exp": ("f32", "class range-expanding -> wide"),
    "Mul": ("f32", "class neutral -> follow: range of a wide op flows in"),
    "Tanh": ("f16", "class neutral -> follow; fewest cast bytes"),
}


@pytest.fixture(scope="module")
def model(tmp_path_factory):
    tool()  # skips where nothing is built
    model = onnx.parser.parse_model(GRAPH)
    rng = np.random.default_rng(0)
    weights = {f"w{i}": rng.standard_normal((64, 64)).astype(np.float32) / 8 for i in (1, 2, 3, 4)}
    weights["half"] = np.full((64, 64), 0.5, np.float32)
    model.graph.initializer.extend(numpy_helper.from_array(value, name) for name, value in weights.items())
    for node in model.graph.node:
        node.name = node.op_type if node.op_type != "MatMul" else node.output[0]
    path = tmp_path_factory.mktemp("views") / "views.onnx"
    onnx.save(model, path)
    return path


def decisions(model, *words):
    """{node: (element type of its result, rule)} of the nodes in EXPECTED."""
    values = policy_summary.report(model, ["--policy=amp-f16", *words])["values"]
    return {v["node"]: (v["type"].split("x")[-1].rstrip(">"), v["rule"]) for v in values if v["node"] in EXPECTED}


@pytest.mark.parametrize("words", [["--forward-only", "--to=precision"], ["--emit=onnx"]], ids=["core", "nodes"])
def test_one_graph_two_views(model, words):
    assert decisions(model, *words) == EXPECTED
