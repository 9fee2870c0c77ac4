# SPDX-License-Identifier: Apache-2.0
"""Subgraphs mean the same as graphs: each operator inside an If, and sides that are not taken leave no trace."""
import copy
import pathlib
import subprocess

import numpy as np
import onnx
import onnx.parser
import pytest
from mpt_run import tool
from onnx import TensorProto, helper, numpy_helper
from onnx.backend.test.case.node import collect_testcases

import mpt

pytestmark = pytest.mark.slow

EDGES = np.array([0, 1, -1, 2, -2, 100, -100, 1e30, -1e30], np.float32).reshape(3, 3)
# Operators of one operand with derivatives that are infinite, or that follow from results that are.
STEEP = """Acos Acosh Asin Asinh Atan Atanh Cos Cosh Elu Exp Log LpNormalization Mish Reciprocal ReduceL2 ReduceLogSum
ReduceLogSumExp ReduceProd Selu Sin Sinh Softplus Softsign Sqrt Tan""".split()
MORE = {"Div": "zero = Sub (x, x)  a = Div (x, zero)", "Pow": "half = Constant <value = float {0.5}> ()  a = Pow (x, half)",
        "Mod": "zero = Sub (x, x)  a = Mod <fmod = 1> (x, zero)", "Pow-both": "a = Pow (x, x)"}


def trainer(nodes, shapes, values, folder):
    inputs = ", ".join(f"float[{', '.join(map(str, shape))}] one_{name}" for name, shape in shapes.items())
    model = onnx.parser.parse_model(f"""<ir_version: 10, opset_import: ["" : 20]>
      m ({inputs}, bool is) => (float loss) {{ {" ".join(f"{name} = Mul (p_{name}, one_{name})" for name in shapes)} {nodes} }}""")
    named = {f"p_{name}" if name in shapes else name: value for name, value in values.items()}
    model.graph.initializer.extend(numpy_helper.from_array(value, name) for name, value in named.items())
    onnx.save(model, folder / "m.onnx")
    mpt.compile(folder / "m.onnx", loss="none", optimizer="sgd,lr=0", train="p_.*|scale_.*|bias_.*", quiet=True, out=folder / "out")
    return mpt.Trainer(folder / "out", threads=1)


@pytest.fixture(autouse=True)
def built():
    if not (tool().parent / "mpt-opt").exists():
        pytest.skip("mpt-opt is not built")


@pytest.mark.parametrize("op", [*STEEP, *MORE])
def test_infinite_derivatives_of_the_other_side_do_not_count(op, tmp_path):
    inside = MORE.get(op, f"t = {op} (x)  a = {'Add (t, x)' if op.startswith('Reduce') else 'Identity (t)'}")
    sides = f"then_branch = yes () => (float[3,3] a) {{ {inside} }}, else_branch = no () => (float[3,3] b) {{ b = Atan (x) }}"
    made = trainer(f"r = If (is) <{sides}>  loss = ReduceSum <keepdims = 0> (r)", {"x": (3, 3)}, {"x": EDGES}, tmp_path)
    loss, gradients = made.gradients({"one_x": np.ones((3, 3), np.float32), "is": np.array(False)})
    wide = EDGES.astype(np.float64)
    np.testing.assert_allclose(loss, np.arctan(wide).sum(), rtol=0, atol=1e-5)
    np.testing.assert_allclose(gradients["p_x"], (1 / (1 + wide**2)).astype(np.float32), rtol=1e-5)


def test_steps_behind_the_end_of_a_loop_do_not_count(tmp_path):
    """Steps stop where a root would have no derivative; the steps unrolled behind that one see its number."""
    body = """step (int64 i, bool k, float[2] v) => (bool k2, float[2] u) {
        one = Constant <value = float {1}> ()  s = Sqrt (v)  u = Sub (s, one)
        sum = ReduceSum <keepdims = 0> (u)  zero = Constant <value = float {0}> ()  k2 = Greater (sum, zero) }"""
    nodes = f"""n = Constant <value = int64 {{5}}> ()  r = Loop (n, is, x) <body = {body}>  loss = ReduceSum <keepdims = 0> (r)"""
    x = np.array([9, 1], np.float32)
    made = trainer(nodes, {"x": (2,)}, {"x": x}, tmp_path)
    loss, gradients = made.gradients({"one_x": np.ones(2, np.float32), "is": np.array(True)})
    steps, slope, v = 0, np.ones(2), x.astype(np.float64)
    while steps < 5 and (steps == 0 or v.sum() > 0):
        slope, v, steps = slope / (2 * np.sqrt(v)), np.sqrt(v) - 1, steps + 1
    assert loss == pytest.approx(v.sum(), abs=1e-5) and np.isfinite(slope).all() == np.isfinite(gradients["p_x"]).all()
    np.testing.assert_allclose(gradients["p_x"], slope, rtol=1e-5)


@pytest.mark.parametrize("taken", [True, False])
@pytest.mark.parametrize("both", [True, False])
def test_statistics_move_on_the_side_that_is_taken(taken, both, tmp_path):
    def norm(x, y):
        return f"{y}, {y}_mean, {y}_var = BatchNormalization <training_mode = 1> ({x}, scale_{y}, bias_{y}, mean, var)"

    x = np.random.default_rng(3).normal(size=(4, 3)).astype(np.float32)
    values = {"x": x, "mean": np.full(3, 0.5, np.float32), "var": np.ones(3, np.float32)}
    values |= {f"{kind}_{y}": np.full(3, kind == "scale", np.float32) for kind in ("scale", "bias") for y in "cd"}
    sides = f"""then_branch = yes () => (float[4,3] a) {{ {norm('x', 'c')} a = Relu (c) }},
                else_branch = no () => (float[4,3] b) {{ s = Sin (x) {norm('s', 'd') if both else 'd = Cos (s)'} b = Tanh (d) }}"""
    made = trainer(f"r = If (is) <{sides}>  loss = ReduceMean <keepdims = 0> (r)", {"x": (4, 3)}, values, tmp_path)
    made.step({"one_x": np.ones((4, 3), np.float32), "is": np.array(taken)})
    seen = x if taken else np.sin(x) if both else None
    wanted = values["mean"] if seen is None else 0.9 * values["mean"] + 0.1 * seen.mean(0)
    np.testing.assert_allclose(made.state()["mean"], wanted, rtol=1e-5)


def inside_if(model: onnx.ModelProto) -> onnx.ModelProto:
    """The model's nodes on both sides of an If with a condition that is an input."""
    graph = model.graph
    made = {name for node in graph.node for name in node.output if name}
    bodies = []
    for side in ("yes", "no"):
        body = onnx.GraphProto(name=side)
        for node in graph.node:
            copied = body.node.add()
            copied.CopyFrom(node)
            for names in (copied.input, copied.output):
                names[:] = [f"{side}_{name}" if name in made else name for name in names]
        for output in graph.output:
            declared = body.output.add()
            declared.CopyFrom(output)
            declared.name = f"{side}_{output.name}"
        bodies.append(body)
    wrapped = copy.deepcopy(model)
    del wrapped.graph.node[:]
    wrapped.graph.input.append(helper.make_tensor_value_info("is", TensorProto.BOOL, []))
    wrapped.graph.node.append(helper.make_node("If", ["is"], [value.name for value in graph.output], then_branch=bodies[0], else_branch=bodies[1]))
    return wrapped


def of_each_operator() -> dict:
    """The first case of tensors of each operator of the node suite, integers as constants: shapes hang on some."""
    found = {}
    for case in collect_testcases(None):
        if case.kind != "node" or case.model is None or "_expanded" in case.name or not case.data_sets:
            continue
        model, arrays = copy.deepcopy(case.model), case.data_sets[0][0]
        standard = {opset.domain for opset in model.opset_import} == {""}
        tensors = all(value.type.HasField("tensor_type") for value in [*model.graph.input, *model.graph.output])
        op = max((node.op_type for node in model.graph.node), key=len)
        if op in found or not standard or not tensors or any(np.asarray(array).dtype.kind not in "fiub" for array in arrays):
            continue
        for value, array in list(zip(model.graph.input, arrays)):
            if np.asarray(array).dtype.kind != "f":
                model.graph.initializer.append(numpy_helper.from_array(np.asarray(array), value.name))
                model.graph.input.remove(value)
        found[op] = model
    return found


def imports(model: onnx.ModelProto, path: pathlib.Path) -> str:
    """The importer's message about the model; empty where it takes it."""
    onnx.save(model, path)
    done = subprocess.run([tool().parent / "mpt-translate", "--import-core", path], capture_output=True, text=True)
    return done.stderr if done.returncode else ""


def test_what_imports_in_a_graph_imports_in_a_subgraph(tmp_path):
    accepted, refused = 0, {}
    for op, model in of_each_operator().items():
        if not imports(model, tmp_path / "outside.onnx"):
            accepted += 1
            said = imports(inside_if(model), tmp_path / "inside.onnx")
            # A choice has no arithmetic in types that are stored alone.
            if said and "cast it first" not in said:
                refused[op] = said
    assert accepted > 150 and not refused
