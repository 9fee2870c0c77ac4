# SPDX-License-Identifier: Apache-2.0
"""The examples, on the hand-written model: they build, train and lower the loss."""
import re
import shutil
import subprocess
import sys

import numpy as np
import pytest

from conftest import ROOT, build_folder

RANDOM = np.random.default_rng(0)
X = RANDOM.standard_normal((32, 3)).astype(np.float32)
Y = (X @ np.array([[1, 2], [3, 4], [5, 6]]) + [1, -1]).astype(np.float32)


def losses(text: str):
    return [float(value) for value in re.findall(r"loss ([0-9.]+)", text)]


def test_python_trainer(linear, tmp_path):
    np.savez(tmp_path / "data.npz", x=X, y=Y)
    command = [sys.executable, str(ROOT / "examples/python/train.py"), str(linear), str(tmp_path / "data.npz"),
               "--steps", "200", "--save", str(tmp_path / "trained")]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert losses(done.stdout)[-1] < 1e-3 * losses(done.stdout)[0] and (tmp_path / "trained").exists()


def test_cpp_trainer(linear, tmp_path):
    if not shutil.which("cmake") or not shutil.which("ninja"):
        pytest.skip("needs cmake and ninja on the PATH")
    X.tofile(tmp_path / "x.bin")
    Y.tofile(tmp_path / "y.bin")
    build = tmp_path / "example"
    for command in (["cmake", "-G", "Ninja", "-S", str(ROOT / "examples/cpp-trainer"), "-B", str(build),
                     f"-DMPT_MODEL_DIR={linear}", f"-DMPT_BUILD={build_folder()}", "-DCMAKE_CXX_COMPILER=clang++-22"],
                    ["cmake", "--build", str(build)]):
        done = subprocess.run(command, capture_output=True, text=True)
        assert done.returncode == 0, done.stdout + done.stderr
    done = subprocess.run([str(build / "cpp-trainer"), "200", f"x={tmp_path}/x.bin", f"y={tmp_path}/y.bin"],
                          cwd=tmp_path, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert losses(done.stdout)[-1] < 1e-3 * losses(done.stdout)[0]
    assert (tmp_path / "linear.trained.safetensors").exists()
