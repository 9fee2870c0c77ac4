# SPDX-License-Identifier: Apache-2.0
"""A model of each form of training graph and of stored weights, whole and damaged, through the compiler: success or a message."""
import os
import pathlib
import subprocess
import sys

import pytest

pytestmark = pytest.mark.slow

ROOT = pathlib.Path(__file__).resolve().parents[2]
BUILD = pathlib.Path(os.environ.get("MPT_BUILD", ROOT / "build" / "release"))
FORMS = ("joint", "algorithm-Adam", "algorithm-Adagrad", "algorithm-Momentum", "algorithm-Adam-Momentum", "stored", "artifacts", "artifacts-whole")


@pytest.fixture(scope="module")
def seeds(tmp_path_factory):
    folder = tmp_path_factory.mktemp("seeds")
    subprocess.run([sys.executable, ROOT / "test/fuzz/make_seeds.py", folder], check=True)
    return folder


def test_every_seed_compiles_as_it_is(seeds):
    for form in FORMS[:6]:
        done = subprocess.run([BUILD / "bin/mpt-opt", seeds / f"{form}.onnx", "--to=training", "--quiet", "-o", os.devnull],
                              capture_output=True, text=True)
        assert done.returncode == 0, f"{form}: {done.stderr}"


def test_damaged_training_graphs_end_in_a_message(seeds, tmp_path):
    program = BUILD / "bin" / "MutationTest"
    if not program.exists():
        pytest.skip("MutationTest is not built")
    for form in FORMS:
        (tmp_path / f"{form}.onnx").write_bytes((seeds / f"{form}.onnx").read_bytes())
    done = subprocess.run([program, tmp_path, "0", "420"], capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "420 models, 0 failures" in done.stdout
