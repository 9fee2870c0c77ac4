# SPDX-License-Identifier: Apache-2.0
"""The examples, on the hand-written model: they build, train and lower the loss."""
import os
import re
import shutil
import subprocess
import sys

import numpy as np
import pytest

import mpt
from conftest import ROOT
from installation import build, installed  # noqa: F401, a fixture
from replica_models import batch, classifier
from world_processes import clean_environment, run_mpi

pytestmark = pytest.mark.slow

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


def build_cpp_trainer(model, folder, prefix):
    build(ROOT / "examples/cpp-trainer", folder, prefix, f"-DMPT_MODEL_DIR={model}")
    return str(folder / "cpp-trainer")


def test_cpp_trainer(linear, installed, tmp_path):
    X.tofile(tmp_path / "x.bin")
    Y.tofile(tmp_path / "y.bin")
    program = build_cpp_trainer(linear, tmp_path / "example", installed)
    done = subprocess.run([program, "200", f"x={tmp_path}/x.bin", f"y={tmp_path}/y.bin"], cwd=tmp_path, capture_output=True, text=True,
                          env=clean_environment())
    assert done.returncode == 0, done.stderr
    assert losses(done.stdout)[-1] < 1e-3 * losses(done.stdout)[0]
    assert (tmp_path / "linear.trained.safetensors").exists()


def test_cpp_trainer_on_two_processes(installed, tmp_path):
    mpt.compile(classifier(tmp_path / "model.onnx", norm=True, dropout=True), out=tmp_path / "lib", policy="amp-f16", replicas=4,
                loss="softmax-cross-entropy", optimizer="adamw,lr=1e-2")
    inputs = batch(8)  # two global batches
    for name, values in inputs.items():
        values.tofile(tmp_path / f"{name}.bin")
    program = build_cpp_trainer(tmp_path / "lib", tmp_path / "example", installed)
    arguments = ["30", *(f"{name}={tmp_path}/{name}.bin" for name in inputs)]
    states, printed = [], []
    for size in (1, 2):
        done = run_mpi("openmpi", size, "sh", "-c", f'cd {tmp_path}; exec "$@"', "sh", program, *arguments)
        assert done.returncode == 0, done.stderr
        states.append((tmp_path / "model.trained.safetensors").read_bytes())
        printed.append(done.stdout)
    assert states[0] == states[1] and printed[0] == printed[1]


def test_distributed_example_goes_on_with_another_number_of_processes(tmp_path):
    """Two processes for the first steps, one for the rest, against one for all."""
    command = [sys.executable, str(ROOT / "examples/distributed/train.py"), "digits", "--threads", "1", "--save-every", "4"]
    environment = clean_environment(PYTHONPATH=os.pathsep.join(path for path in sys.path if path))

    def train(size, steps, out):
        done = run_mpi("mpich", size, *command, "--steps", str(steps), "--out", str(out), environment=environment)
        assert done.returncode == 0, done.stderr
        return done.stdout

    assert train(2, 6, tmp_path / "cut").count("loss") == 1, "one rank prints"
    shutil.copytree(tmp_path / "cut", tmp_path / "whole", ignore=shutil.ignore_patterns("*.state"))
    train(1, 10, tmp_path / "cut")
    train(1, 10, tmp_path / "whole")
    name = "digits-amp-f16/10.state"
    assert (tmp_path / "cut" / name).read_bytes() == (tmp_path / "whole" / name).read_bytes()
