# SPDX-License-Identifier: Apache-2.0
"""The conformance suite: the error model holds for the interpreter itself, and emitted libraries agree with it."""
import pathlib
import re
import subprocess
import sys

import pytest
from mpt_run import ptxas, tool

pytestmark = pytest.mark.slow

SUITE = pathlib.Path(__file__).resolve().parents[1] / "cts" / "run_cts.py"


@pytest.mark.parametrize("target", ["oracle", "cpu", "cuda"])
def test_conformance(target):
    if target != "oracle" and not (tool().parent / "mpt-opt").exists():
        pytest.skip("build mpt-opt first")
    if target == "cuda" and not (tool().parent.parent / "lib" / "libcuda_standin.so").exists():
        pytest.skip("the stand-in for CUDA is not built")
    result = subprocess.run([sys.executable, SUITE, f"--target={target}"], capture_output=True, text=True)
    assert result.returncode == 0, result.stdout + result.stderr


def test_every_gpu_kernel_assembles():
    """The conformance test for gpu-on-cpu: schedules compute the same as the interpreter, and ptxas takes every kernel without a spill."""
    if not tool().with_name("mpt-opt-toy").exists():
        pytest.skip("build mpt-opt-toy first")
    result = subprocess.run([sys.executable, SUITE, "--target=gpu-on-cpu"], capture_output=True, text=True)
    assert result.returncode == 0, result.stdout + result.stderr
    if not ptxas():
        pytest.skip("ptxas not found: kernels computed what they should, and were not assembled")
    passed = int(re.search(r"(\d+) passed", result.stdout)[1])
    counts = {arch: int(count) for count, arch in re.findall(r"(\d+) kernels assembled for (sm_\d+)", result.stdout)}
    assert counts.keys() == {"sm_80", "sm_90", "sm_100"} and all(count >= passed / 4 for count in counts.values()), result.stdout
