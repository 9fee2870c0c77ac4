# SPDX-License-Identifier: Apache-2.0
"""A library emitted from a hand-written step trains as numpy does."""
import os
import pathlib
import subprocess

import numpy as np
import pytest

import mpt

HERE = pathlib.Path(__file__).parent
ROOT = HERE.parent.parent


def build_folder():
    named = os.environ.get("MPT_BUILD_DIR")
    folders = [pathlib.Path(named)] if named else [ROOT / "build" / "release", ROOT / "build" / "dev"]
    return next((folder for folder in folders if (folder / "bin" / "mpt-opt").exists()), None)


@pytest.fixture(scope="module")
def library(tmp_path_factory):
    build = build_folder()
    if not build:
        pytest.skip("mpt-opt is not built")
    out = tmp_path_factory.mktemp("mlp")
    emit = f"--lowering-emit-library=out={out} runtime={build / 'lib' / 'libmpt_rt.so'}"
    subprocess.run([build / "bin" / "mpt-opt", HERE / "Inputs" / "mlp.mlir", "--library-convert-calls", "--library-fold-epilogues",
                    "--library-choose-layouts", "--memory-assign-destinations", "--memory-bufferize", "--lowering-emit-kernels", "--memory-plan", "--memory-verify-plan", emit, "-o", os.devnull], check=True)
    return out


def reference_step(p, x, y, lr):
    z = x @ p["w1"] + p["b1"]
    h = np.maximum(z, 0)
    d = h @ p["w2"] - y
    g = d * 2 / d.size
    dz = (g @ p["w2"].T) * (h > 0)
    new = {"w1": p["w1"] - lr * (x.T @ dz), "b1": p["b1"] - lr * dz.sum(0), "w2": p["w2"] - lr * (h.T @ g)}
    return new, (d * d).mean()


def test_trains_as_numpy_does(library):
    random = np.random.default_rng(3)
    start = {"w1": random.standard_normal((5, 16)), "b1": random.standard_normal(16),
             "w2": random.standard_normal((16, 3))}
    trainer = mpt.Trainer(library)
    for name, value in start.items():
        trainer.set_parameter(name, value.astype(np.float32))
    expected = {name: value.astype(np.float32).astype(np.float64) for name, value in start.items()}
    for step in range(20):
        x = random.standard_normal((8, 5)).astype(np.float32)
        y = random.standard_normal((8, 3)).astype(np.float32)
        expected, loss = reference_step(expected, x.astype(np.float64), y.astype(np.float64), 0.1)
        assert trainer.step({"x": x, "y": y}).loss == pytest.approx(loss, rel=1e-5)
    for name, value in expected.items():
        np.testing.assert_allclose(trainer.parameter(name), value, rtol=2e-5, atol=2e-6)
    assert trainer.state()["steps"] == 20
