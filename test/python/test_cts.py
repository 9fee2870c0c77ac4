# SPDX-License-Identifier: Apache-2.0
"""The conformance suite: the error model holds for the interpreter itself, and emitted libraries agree with it."""
import pathlib
import shutil
import subprocess
import sys

import pytest
from mpt_run import tool

SUITE = pathlib.Path(__file__).resolve().parents[1] / "cts" / "run_cts.py"


@pytest.mark.parametrize("target", ["oracle", "cpu", "gpu-on-cpu", "cuda"])
def test_conformance(target):
    if target != "oracle" and not (tool().parent / "mpt-opt").exists():
        pytest.skip("build mpt-opt first")
    if target == "cuda" and not (tool().parent.parent / "lib" / "libcuda_standin.so").exists():
        pytest.skip("the stand-in for CUDA is not built")
    result = subprocess.run([sys.executable, SUITE, f"--target={target}"], capture_output=True, text=True)
    assert result.returncode == 0, result.stdout + result.stderr


def test_every_gpu_kernel_assembles():
    """Part of the conformance test for gpu-on-cpu, which cannot do it where there is no ptxas."""
    if not (shutil.which("ptxas") or shutil.which("ptxas", path="/usr/local/cuda/bin")):
        pytest.skip("ptxas not found: kernels' PTX was not assembled")
