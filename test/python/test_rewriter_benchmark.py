# SPDX-License-Identifier: Apache-2.0
"""benchmarks/rewriters.py: its counts, and that a peer that is not there is said to be missing."""
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


def test_larger_drift_is_told_from_chance():
    ours = [1.0 + 0.01 * i for i in range(16)]
    assert rewriters.is_chance(ours, ours)
    assert rewriters.is_chance(ours, [2.0] * 5 + [0.5] * 11)       # 11 of 16: probability 0.105
    assert not rewriters.is_chance(ours, [2.0] * 4 + [0.5] * 12)   # 12 of 16: 0.038


def test_moved_inputs_keep_their_type_and_the_values_of_integers(tmp_path):
    ids = np.arange(12, dtype=np.int64).reshape(4, 3)
    np.savez(tmp_path / "m.npz", x=np.array([[1, 1], [3, 3]], np.float32), ids=ids, scale=np.float32(4))
    given, *moved = rewriters.batches(str(tmp_path / "m.npz"), 4)
    assert np.array_equal(given["ids"], ids) and len(moved) == 3
    for batch in moved:
        assert batch["x"].min() >= 0 and batch["x"].dtype == np.float32 and batch["scale"] == 4 and np.array_equal(np.sort(batch["ids"], 0), ids)
        assert not np.array_equal(batch["x"], given["x"])


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


def test_the_evaluator_transposes_convolutions_in_groups_and_takes_negative_padding(tmp_path):
    body = "{} = ConvTranspose<group = {}, strides = [2, 1], pads = [1, 0, 0, 1], output_padding = [1, 0]>({}, {})"
    _, model = save(tmp_path, "\n".join([body.format("y", 2, "x", "w"), "a, b = Split<axis = 1, num_outputs = 2>(x)",
                                         "v, u = Split<axis = 0, num_outputs = 2>(w)", body.format("c", 1, "a", "v"),
                                         body.format("d", 1, "b", "u"), "z = Concat<axis = 1>(c, d)", "s = Pad(x, pads)"]),
                    "(float[1, 4, 3, 5] x, float[4, 3, 2, 3] w, int64[8] pads) => (float[1, 6, 6, 6] y, float[1, 6, 6, 6] z, float[N, C, H, W] s)")
    rng = np.random.default_rng(0)
    x, w = (rng.standard_normal(s).astype(np.float32) for s in ((1, 4, 3, 5), (4, 3, 2, 3)))
    y, z, s = reference.evaluator(model).run(None, {"x": x, "w": w, "pads": np.array([0, 0, -1, 2, 0, 0, 1, -3])})
    # Element (row 0, column 0) by hand: row 1 of the full result is row 0 of x under row 1 of the kernel.
    assert y[0, 0, 0, 0] == pytest.approx(x[0, :2, 0, 0] @ w[:2, 0, 1, 0], rel=1e-5)
    assert y.shape == (1, 6, 6, 6) and np.array_equal(y, z)
    assert np.array_equal(s, np.pad(x, ((0, 0), (0, 0), (0, 1), (2, 0)))[:, :, 1:, :-3])


def test_missing_peers_are_named(tmp_path):
    compiler = build_folder() / "bin" / "mpt-opt"
    if not compiler.exists():
        pytest.skip("mpt-opt is not built")
    hidden = "import sys; sys.modules['onnxconverter_common'] = None; sys.path.insert(0, sys.argv.pop(1)); import rewriters; rewriters.main()"
    done = subprocess.run([sys.executable, "-c", hidden, str(ROOT / "benchmarks"), "--compiler", str(compiler), "--tools", "mpt",
                           "common", "--adam", "2", "--batches", "2", "--json", str(tmp_path / "rows.json")], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert "common is left out" in done.stderr and "common: not installed" in done.stdout and "| missing |" in done.stdout
    row, = json.loads((tmp_path / "rows.json").read_text())["rows"]
    assert {t: row["tools"][t]["casts"] for t in row["tools"]} == {"mpt": 0}
    assert row["tools"]["mpt"]["drift"] == 0 and row["tools"]["mpt"]["peak"] < 400
