"""benchmarks/rewriters.py: what it counts, and that a peer that is not there is said to be missing."""
import json
import subprocess
import sys

import numpy as np
import onnx
import pytest
from onnx import parser

from conftest import ROOT, build_folder

sys.path.insert(0, str(ROOT / "benchmarks"))
import reference
import rewriters


def save(folder, body, signature="(float[4, 8] x) => (float[4, 8] y)"):
    model = parser.parse_model(f'<ir_version: 9, opset_import: ["" : 18]>\ngraph {signature} {{\n{body}\n}}')
    onnx.save(model, folder / "m.onnx")
    return str(folder / "m.onnx"), model


def test_casts_between_float_types_are_counted_in_bodies_too(tmp_path):
    path, _ = save(tmp_path, """
        n = Cast<to = 7>(x)
        h = Cast<to = 10>(x)
        y = If(c)<then_branch = graph() => (float[4, 8] t) { t = Cast<to = 1>(h) },
                  else_branch = graph() => (float[4, 8] e) { e = Identity(x) }>""", "(float[4, 8] x, bool c) => (float[4, 8] y, int64[4, 8] n)")
    assert rewriters.cast_cost(path) == (2, 2 * 32 * 6)


def test_drift_is_of_the_worst_group():
    names = ["loss", "a_grad", "b_grad"]
    given = [[np.array(2.0), np.array([3.0, 4.0]), np.array([0.0])]]
    assert rewriters.drift(given, [[np.array(2.0), np.array([3.0, 4.0]), np.array([0.5])]], names) == pytest.approx(0.1)
    assert rewriters.drift(given, [[np.array(2.2), np.array([3.0, 4.0]), np.array([0.0])]], names) == pytest.approx(0.1)
    assert rewriters.drift(given, [[np.array(np.nan), *given[0][1:]]], names) == np.inf


def test_the_evaluator_pools_and_scatters_as_the_operators_say(tmp_path):
    _, model = save(tmp_path, """
        p, i = MaxPool<kernel_shape = [2, 2], strides = [2, 2], pads = [0, 0, 1, 1]>(x)
        flat = Reshape(i, all)
        ones = Reshape(p, all)
        y = ScatterElements<reduction = "add">(zeros, flat, ones)""",
                    "(float[2, 1, 3, 3] x, int64[1] all, float[18] zeros) => (float[2, 1, 2, 2] p, float[18] y)")
    x = np.arange(18, dtype=np.float32).reshape(2, 1, 3, 3)
    p, y = reference.evaluator(model).run(None, {"x": x, "all": np.array([-1]), "zeros": np.zeros(18, np.float32)})
    assert p.ravel().tolist() == [4, 5, 7, 8, 13, 14, 16, 17]
    assert np.flatnonzero(y).tolist() == [4, 5, 7, 8, 13, 14, 16, 17] and y[17] == 17


def test_missing_peers_are_named(tmp_path):
    compiler = build_folder() / "bin" / "mpt-opt"
    if not compiler.exists():
        pytest.skip("mpt-opt is not built")
    hidden = "import sys; sys.modules['onnxconverter_common'] = None; sys.path.insert(0, sys.argv.pop(1)); import rewriters; rewriters.main()"
    done = subprocess.run([sys.executable, "-c", hidden, str(ROOT / "benchmarks"), "--compiler", str(compiler), "--tools", "mpt",
                           "painting", "common", "--adam", "2", "--json", str(tmp_path / "rows.json")], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert "common is left out" in done.stderr and "common: not installed" in done.stdout and "| missing |" in done.stdout
    row, = json.loads((tmp_path / "rows.json").read_text())["rows"]
    assert {t: row["tools"][t]["casts"] for t in row["tools"]} == {"mpt": 0, "painting": 0}
    assert row["tools"]["mpt"]["drift"] == 0 and row["tools"]["mpt"]["peak"] < 400
