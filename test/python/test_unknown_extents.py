# SPDX-License-Identifier: Apache-2.0
"""Extents that a file does not know: -1 and 0 for them, and symbols of initializers that are graph inputs too."""
import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

import mpt

RANDOM = np.random.default_rng(3)
W = RANDOM.standard_normal((6, 3)).astype(np.float32)
X = RANDOM.standard_normal((4, 6)).astype(np.float32)


def saved(path, x, w=None, nodes=None, values=(), y=("N", 3)):
    """y = x w, where `x` and `w` are declared with these extents; w is no graph input without any."""
    declare = lambda name, shape: helper.make_tensor_value_info(name, TensorProto.FLOAT, shape)
    inputs = [declare("x", x)] + ([declare("w", w)] if w else [])
    graph = helper.make_graph(nodes or [helper.make_node("MatMul", ["x", "w"], ["y"])], "g", inputs, [declare("y", y)],
                              [numpy_helper.from_array(W, "w")], value_info=list(values))
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 13)], ir_version=7), path)
    return path


def loss(path, tmp_path, **flags):
    """The loss against zeros, which float64 has too."""
    with mpt.Trainer(mpt.compile(path, out=tmp_path / "lib", loss="mse", optimizer="sgd", **flags), threads=1) as trainer:
        feed = {"x": X, **{n: np.zeros(shape, kind) for n, (kind, shape) in trainer.inputs("step").items() if n not in ("x", "learning_rate")}}
        got = trainer.step(feed, learning_rate=0.0).loss
        assert set(trainer.parameters()) == {"w"}
    want = np.mean((X.astype(np.float64) @ W) ** 2)
    assert abs(got - want) < 1e-5 * want


@pytest.mark.parametrize("unknown", [-1, 0, None, "N", -7])
def test_unknown_extents_are_bound(unknown, tmp_path):
    path = saved(tmp_path / "m.onnx", [unknown, 6], y=[unknown, 3])
    loss(path, tmp_path, bind={unknown if unknown == "N" else "x.0": 4})


@pytest.mark.parametrize("unknown", [-1, None])
def test_what_is_not_bound_is_named(unknown, tmp_path):
    with pytest.raises(mpt.CompileError, match="bind it: --bind x.0=<extent>"):
        mpt.compile(saved(tmp_path / "m.onnx", [unknown, 6]), out=tmp_path / "lib", loss="mse")


def test_no_extent_may_be_an_empty_tensor(tmp_path):
    path = saved(tmp_path / "m.onnx", [0, 6], y=[0, 3])
    with pytest.warns(mpt.CompileWarning, match="'x' is taken to be empty, .* --bind x.0=<extent>"):
        mpt.compile(path, out=tmp_path / "lib", forward_only=True)


def test_inner_values_may_be_unknown_too(tmp_path):
    body = helper.make_graph([helper.make_node("MatMul", ["x", "w"], ["z"])], "then", [],
                             [helper.make_tensor_value_info("z", TensorProto.FLOAT, [-1, 3])])
    nodes = [helper.make_node("ReduceSum", ["x"], ["sum"], keepdims=0), helper.make_node("Greater", ["sum", "sum"], ["more"]),
             helper.make_node("If", ["more"], ["y"], then_branch=body, else_branch=body)]
    values = [helper.make_tensor_value_info("sum", TensorProto.FLOAT, [])]
    loss(saved(tmp_path / "m.onnx", [-1, 6], nodes=nodes, values=values, y=[-1, 3]), tmp_path, bind={"x.0": 4})


@pytest.mark.parametrize("x, w, bind", [
    (["N", "K"], ["K", "M"], {"N": 4}),          # K is w's first extent
    ([4, 6], [-1, 0], {}), ([4, 6], ["N", "N"], {}),
    ([4, "N"], ["N", "N"], {"N": 6}),            # 6 and 3: two extents of one name say nothing
    (["N", 6], ["N", 3], {"N": 4}),              # the user's N is about x
])
def test_initializers_have_extents(x, w, bind, tmp_path):
    loss(saved(tmp_path / "m.onnx", x, w, y=[None, None]), tmp_path, bind=bind)


def test_two_extents_of_one_name_are_not_guessed(tmp_path):
    with pytest.raises(mpt.CompileError, match="bind it: --bind N=<extent>"):
        mpt.compile(saved(tmp_path / "m.onnx", [4, "N"], ["N", "N"]), out=tmp_path / "lib", loss="mse")


def test_rewritten_files_keep_what_they_say(tmp_path):
    path = mpt.compile(saved(tmp_path / "m.onnx", [-1, 6], y=[-1, 3]), out=tmp_path / "out.onnx", emit="onnx", policy="amp-f16")
    x = onnx.load(path).graph.input[0].type.tensor_type.shape.dim[0]
    assert x.dim_value == -1
