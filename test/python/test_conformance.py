# SPDX-License-Identifier: Apache-2.0
"""Some operators of the node suite in every run; scripts/conformance.sh has all."""
import pathlib
import sys

import numpy as np
import pytest

onnx = pytest.importorskip("onnx")
from onnx import TensorProto, helper  # noqa: E402

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "test/conformance"))
import attributes  # noqa: E402
import cases  # noqa: E402
import forward  # noqa: E402
import gradient  # noqa: E402
import seams  # noqa: E402
import storage  # noqa: E402
import table  # noqa: E402
from conftest import build_folder  # noqa: E402

MODULES = ("bitcast", "bitshift", "center_crop_pad", "compress", "cumprod", "deformconv", "det", "flexattention", "mod", "nonmaxsuppression",
           "optionalgetelement", "qlinearmatmul", "roialign", "spacetodepth", "unique")


def test_modules_keep_their_results():
    stored = table.read(ROOT / "docs/results/conformance.tsv")
    chosen = cases.make(MODULES)
    assert len(chosen) > 60
    rows = [forward.run_case(case, ("mpt.backend", str(build_folder()))) for case in chosen]
    assert not table.regressions(stored, rows)


ADAPTER = "mpt_adapter.Adapter"


def test_slopes_at_seams():
    setting = (ADAPTER, str(build_folder()), "")
    rows = [gradient.run_case(seam, setting) for seam in seams.SEAMS if seam.op in ("Asinh", "Atan", "LpPool", "ReduceL2", "Softplus")]
    assert len(rows) > 10
    assert [row for row in rows if row.status != "right"] == []


@pytest.mark.parametrize("modules", [("lpnormalization", "reducel2"), ("roialign", "rotaryembedding"), ("swiglu", "gelu")])
def test_gradients_keep_their_results(modules):
    stored = table.read(ROOT / "docs/results/gradients.tsv")
    chosen = [case for case in cases.make(modules) if case.group == "plain"]
    rows = [gradient.run_case(case, (ADAPTER, str(build_folder()), "")) for case in chosen]
    assert sum(row.status == "right" for row in rows) >= 5
    assert not table.regressions(stored, rows)


class Doubled:
    """A backend whose gradients are wrong."""

    def __init__(self, _):
        pass

    def gradients(self, model, inputs, variables, weights):
        return {name: 2 * (1 - np.tanh(inputs[name]) ** 2) * weights["y"] for name in variables}


def test_wrong_gradients_are_seen(monkeypatch):
    monkeypatch.setattr(gradient, "load_adapter", lambda name: Doubled)
    case, = (case for case in cases.make(("tanh",)) if case.name == "test_tanh")
    row = gradient.run_case(case, ("", "", ""))
    assert row.status == "wrong", row


@pytest.mark.parametrize("adapter", [ADAPTER, "torch_adapter.Adapter"])
def test_attributes_have_gradients(adapter):
    pytest.importorskip("torch", reason="PyTorch is the peer here")
    chosen = attributes.make({"Conv", "LeakyRelu", "Softmax"})
    rows = [gradient.run_case(case, (adapter, str(build_folder()), "torch_adapter.Adapter")) for case in chosen]
    assert len(rows) > 10
    assert {(row.status, row.detail) for row in rows} == {("right", table.AGREES)}, rows


def test_another_gradient_than_the_peers_is_seen(monkeypatch):
    pytest.importorskip("torch", reason="PyTorch is the peer here")
    import torch_adapter
    problem = gradient.Problem(attributes.make({"LeakyRelu"})[0])
    ours = torch_adapter.Adapter()
    assert gradient.beside(ours, torch_adapter.Adapter, problem) == ("right", table.AGREES)
    found = ours.gradients(problem.model, problem.inputs, problem.variables, problem.weights)
    found["x0"] = found["x0"] + (np.arange(12).reshape(3, 4) == 7)
    monkeypatch.setattr(ours, "gradients", lambda *_: found)
    status, detail = gradient.beside(ours, torch_adapter.Adapter, problem)
    assert status == "wrong" and "1 of 12 slopes of x0, first at [1, 3]" in detail, detail


@pytest.mark.parametrize("failure, said", [(ValueError("an odd shape"), "PyTorch refuses: ValueError: an odd shape"),
                                           ("no rule", "PyTorch has no rule: no such operator"), (np.nan, "PyTorch refuses: no slope is finite")])
def test_a_peer_that_was_not_compared_says_why(failure, said):
    """Nothing is dropped in silence, and a row that was compared before and is not any more is a regression."""
    pytest.importorskip("torch", reason="PyTorch is the peer here")
    import torch_adapter
    import torch_ops

    class Peer:
        def __init__(self, _):
            pass

        def gradients(self, model, inputs, *_):
            if failure == "no rule":
                torch_ops.call(onnx.helper.make_node("Nothing", ["x0"], ["y"]), [None], {}, 22)
            if isinstance(failure, Exception):
                raise failure
            return {name: np.full(np.shape(value), failure) for name, value in inputs.items()}

    problem = gradient.Problem(attributes.make({"LeakyRelu"})[0])
    assert gradient.beside(torch_adapter.Adapter(), Peer, problem) == ("right", said)
    before, after = (table.Row("case", "LeakyRelu", "attribute", "right", detail) for detail in (table.AGREES, said))
    assert table.regressions({"case": before}, [after]) == [f"case: was compared with PyTorch, is now not: {said}"]
    assert f"| 1 | {said.split(': ', 1)[1]} | LeakyRelu |" in table.gradient_page([after])


@pytest.mark.parametrize("seam, said", [("seam_tanh_at_0", table.AGREES), ("seam_lpnormalization_of_2x3_at_0", "PyTorch's slope is nan where 1 is right")])
def test_seams_are_held_against_the_peer(seam, said):
    pytest.importorskip("torch", reason="PyTorch is the peer here")
    point, = (point for point in seams.SEAMS if point.name == seam)
    row = gradient.run_case(point, (ADAPTER, str(build_folder()), "torch_adapter.Adapter"))
    assert (row.status, row.detail) == ("right", said), row


def test_float_inputs_that_were_compiled_in_are_told():
    rows = [table.Row("a", "Unique", "plain", "right", "X(float)"), table.Row("b", "Reshape", "plain", "right", "shape"),
            table.Row("c", "Unique", "plain", "right", "X(float) k"), table.Row("d", "Unique", "plain", "refused", "X(float)")]
    assert table.float_constants(rows) == ["| Unique | 2 | X |"]
    assert forward.named("x", np.float16(1)) == "x(float)" and forward.named("x", np.int8(1)) == "x"


@pytest.mark.parametrize("module, name, reason", [
    ("add", "test_add_uint8", "no float input of 16 bits or more"), ("argmax", "test_argmax_default_axis_example", "results of integers"),
    ("reducesum", "test_reduce_sum_empty_set", "nothing but empty float inputs"), ("sign", "test_sign", "slope 0, or none")])
def test_what_is_left_out_says_why(module, name, reason):
    case, = (case for case in cases.make((module,)) if case.name == name)
    row = gradient.run_case(case, ("", "", ""))
    assert row.status == "left out" and row.detail.startswith(reason), row


def test_kinks_are_left():
    case, = (case for case in cases.make(("relu",)) if case.name == "test_relu")
    x = onnx.numpy_helper.from_array(np.zeros((3, 4, 5), np.float32))
    case.data_sets = [([x], case.data_sets[0][1])]
    problem = gradient.Problem(case)
    assert problem.directions() and np.abs(problem.inputs["x"]).min() > 0


class FirstResult:
    """A backend that loses the gradients that come through the results behind the first."""

    def __init__(self, _):
        pass

    def gradients(self, model, inputs, variables, weights):
        first = weights[model.graph.output[0].name]
        return {name: np.concatenate([first, np.zeros(inputs[name].size - first.size)]) for name in variables}


def test_gradients_of_the_first_result_alone_are_told(monkeypatch):
    monkeypatch.setattr(gradient, "load_adapter", lambda name: FirstResult)
    case, = (case for case in cases.make(("split",)) if case.name == "test_split_equal_parts_1d_opset13")
    row = gradient.run_case(case, ("", "", ""))
    assert row.status == "wrong" and row.detail.endswith(table.FIRST_RESULT), row


def test_another_backend_has_its_reasons():
    def row(name, op, status, detail):
        return table.Row(name, op, "plain", status, detail)

    theirs = [row("a", "Add", "right", ""), row("b", "Acos", "refused", "The gradient builder has not been registered: Acos for node"),
              row("c", "Add", "wrong", "expected 1, got 2"), row("d", "Attention", "refused", "opset 23 is newer than 21: No Op"),
              row("e", "Split", "wrong", "expected 1, got 2" + table.FIRST_RESULT)]
    page = table.gradient_page([case._replace(status="right", detail="") for case in theirs], theirs)
    assert "1 of 5 (20.0 %) right, 2 refused, 2 wrong, 0 died" in page
    assert "cases of 3 operators, and all cases of 2 of these (bold):\n\n**Acos**, Add, **Split**." in page
    for line in ("| no gradient | 1 | Acos |", "| wrong | 1 | Add |", "| not in opset 21 or unknown | 1 | Attention |",
                 "| lost or refused through results behind the first | 1 | Split |"):
        assert line in page


@pytest.mark.parametrize("kind", list(storage.UNITS))
def test_narrow_storage(kind):
    names = ("test_softmax_axis_1", "test_group_normalization_example", "test_batchnorm_example_training_mode")
    chosen = [case for case in cases.make(("softmax", "groupnormalization", "batch_normalization")) if case.name in names]
    rows = [storage.run_case((case, kind), str(build_folder())) for case in chosen]
    assert [row.status for row in rows] == ["right"] * 3, rows


def test_narrow_results_are_judged():
    unit, least = storage.UNITS["FLOAT16"]
    exact = np.array([1.0, -2.0, np.nan, np.inf])
    assert not storage.is_near(exact * (1 + 2 * unit), exact, unit, least)
    assert storage.is_near(exact * (1 + 9 * unit), exact, unit, least)
    assert storage.is_near(np.nan_to_num(exact), exact, unit, least)


def test_regressions_are_seen():
    before = {"a": table.Row("a", "Add", "plain", "right", "")}
    refused = table.Row("a", "Add", "plain", "refused", "why")
    wrong = table.Row("b", "Add", "plain", "wrong", "values")
    assert len(table.regressions(before, [refused, wrong])) == 2
    assert not table.regressions({}, [refused])


@pytest.mark.parametrize("want, got", [(1.0, 1.01), (np.inf, 1.0), (np.nan, 1.0), (1.0, np.nan)])
def test_differences_are_seen(want, got):
    assert forward.differ(np.array([0, got], np.float32), np.array([0, want], np.float32), 1e-3, 1e-7)
    assert not forward.differ(np.array([0, want], np.float32), np.array([0, want], np.float32), 1e-3, 1e-7)


def model_of(node, inputs, outputs, opset=28):
    graph = helper.make_graph([node], "g", [helper.make_tensor_value_info(n, t, s) for n, t, s in inputs],
                              [helper.make_tensor_value_info(n, t, s) for n, t, s in outputs])
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)])


def test_backend_compiles_shapes_in_again():
    import mpt.backend
    model = model_of(helper.make_node("Reshape", ["x", "shape"], ["y"]),
                     [("x", TensorProto.FLOAT, [2, 3]), ("shape", TensorProto.INT64, [2])], [("y", TensorProto.FLOAT, ["rows", "columns"])])
    x = np.arange(6, dtype=np.float32).reshape(2, 3)
    rep = mpt.backend.prepare(model)
    for shape in ([3, 2], [1, 6], [1, 6]):
        got, = rep.run([x, np.array(shape, np.int64)])
        assert got.tolist() == x.reshape(shape).tolist()
    assert not mpt.backend.supports_device("CUDA")
