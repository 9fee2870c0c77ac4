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
import cases  # noqa: E402
import forward  # noqa: E402
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
