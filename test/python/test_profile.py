# SPDX-License-Identifier: Apache-2.0
"""Option "profile" prints where the time of a function goes, by runtime call, with the names of the model's nodes."""
import os
import pathlib
import re
import subprocess
import sys

import numpy as np
import onnx
import pytest

import mpt
from conftest import build_folder

MODEL = """
<ir_version: 9, opset_import: ["" : 18]>
net (float[8, 64] x) => (float[8, 32] y) {
  [hidden] h = Gemm<transB = 1>(x, w1, b1)
  [squash] a = Tanh(h)
  [out] y = MatMul(a, w2)
}
"""
TRAIN = """
import sys, numpy as np, mpt
mpt.use_build(sys.argv[3])
trainer = mpt.Trainer(sys.argv[1], threads=1, options={"profile": sys.argv[2]} if sys.argv[2] else None)
for _ in range(4):
    trainer.step({"x": np.ones((8, 64), np.float32), "target": np.zeros((8, 32), np.float32)})
trainer.close()
"""


@pytest.fixture(scope="module")
def compiled(tmp_path_factory):
    build, folder = build_folder(), tmp_path_factory.mktemp("profile")
    if not (build / "bin" / "mpt-opt").exists():
        pytest.skip("mpt-opt is not built")
    model, random = onnx.parser.parse_model(MODEL), np.random.default_rng(1)
    for name, shape in {"w1": (48, 64), "b1": (48,), "w2": (48, 32)}.items():
        model.graph.initializer.append(onnx.numpy_helper.from_array(random.standard_normal(shape).astype(np.float32), name))
    onnx.save(model, folder / "net.onnx")
    return mpt.compile(folder / "net.onnx", loss="mse", optimizer="sgd,lr=0.01", policy="fp32", out=folder / "out")


def train(folder, rows="") -> str:
    path = os.pathsep.join([str(pathlib.Path(mpt.__file__).parents[1]), os.environ.get("PYTHONPATH", "")])
    return subprocess.run([sys.executable, "-c", TRAIN, str(folder), rows, str(build_folder())], env={**os.environ, "PYTHONPATH": path}, check=True,
                          capture_output=True, text=True, timeout=60).stderr


def test_rows_name_calls_and_nodes(compiled):
    lines = train(compiled, "100").splitlines()
    # The first of the four steps is left out.
    head = re.fullmatch(r"step: 3 runs of ([\d.]+) ms CPU time, ([\d.]+) ms in (\d+) calls", lines[0])
    assert head and 0 < float(head[2]) <= float(head[1])
    rows = [re.match(r" *([\d.]+)% +([\d.]+) +(\d+) +[\d.]+ +([\d.]+)  (.*)", line).groups() for line in lines[2:]]
    assert sum(int(calls) for _, _, calls, _, _ in rows) == int(head[3])
    times = [float(ms) for _, ms, *_ in rows]
    assert times == sorted(times, reverse=True) and sum(times) == pytest.approx(float(head[2]), abs=0.001 * len(rows))
    products = [(flops, what) for _, _, _, flops, what in rows if what.startswith("gemm")]
    assert any(what.startswith("gemm 8x48x64 NT f32 f32 -> f32") and what.endswith("[hidden]") for _, what in products)
    assert all(float(flops) > 0 for flops, _ in products)
    assert any("tanh" in what and what.endswith("[squash]") for *_, what in rows)


def test_profile_is_there_at_any_time(compiled, capfd):
    inputs = {"x": np.ones((8, 64), np.float32), "target": np.zeros((8, 32), np.float32)}
    with mpt.Trainer(compiled, threads=1, options={"profile": 100}) as trainer:
        assert trainer.profile() == ""
        for _ in range(3):
            trainer.step(inputs)
        text = trainer.profile()
        assert text.startswith("step: 2 runs of ") and text == trainer.profile()
    assert capfd.readouterr().err == text
    assert mpt.Trainer(compiled).profile() == ""


def test_number_limits_rows_and_silence_without(compiled):
    assert len(train(compiled, "2").splitlines()) == 4
    assert train(compiled) == "" and train(compiled, "0") == ""


def test_unknown_and_wrong_options_are_refused(compiled):
    for options, message in (({"profil": 1}, "unknown option 'profil': this runtime has profile"),
                             ({"profile": "many"}, "option 'profile': expected a whole number of 0 or more, got 'many'"),
                             ({"profile": -1}, "got '-1'")):
        with pytest.raises(mpt.Error, match=re.escape(message)):
            mpt.Trainer(compiled, options=options)
