# SPDX-License-Identifier: Apache-2.0
"""docs/coming-from-onnxruntime-training.md: both programs differ by ten lines, and ours trains what the page says."""
import difflib
import math
import os
import re
import subprocess
import sys

import numpy as np
import pytest

sys.path.insert(0, os.path.dirname(__file__))
from runtime_artifacts import classifier  # noqa: E402

import mpt

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
BUILD = os.path.abspath(os.environ.get("MPT_BUILD", os.path.join(ROOT, "build", "release")))


def programs():
    with open(os.path.join(ROOT, "docs", "coming-from-onnxruntime-training.md"), encoding="utf-8") as page:
        return re.findall(r"^```cpp\n(.*?)^```", page.read(), re.M | re.S)


def test_ten_lines_change():
    before, after = (program.splitlines() for program in programs())
    changed = [line for line in difflib.ndiff(before, after) if line[:2] in ("+ ", "- ")]
    assert 0 < sum(line[0] == "+" for line in changed) <= 10
    assert any("Ort::TrainingSession" in line for line in before) and not any("Ort" in line for line in after)


@pytest.mark.parametrize("policy", ["fp32", "amp-f16", "amp-bf16"])
def test_our_program_trains(policy, tmp_path):
    library = os.path.join(BUILD, "lib", "libmpt_rt.so")
    if not os.path.exists(library):
        pytest.skip("libmpt_rt is not built")
    classifier(tmp_path / "artifacts")
    mpt.compile(tmp_path / "artifacts", out=tmp_path / "classifier", policy=policy)
    (tmp_path / "program.cpp").write_text(programs()[1])
    built = subprocess.run(["clang++-22", "-std=c++17", "-Wall", "-Wextra", "-Werror", f"-I{ROOT}/include", "program.cpp", library, "-o", "program",
                            f"-Wl,-rpath,{os.path.dirname(library)}"], cwd=tmp_path, capture_output=True, text=True)
    assert built.returncode == 0, built.stderr
    run = subprocess.run(["./program"], cwd=tmp_path, capture_output=True, text=True)
    assert run.returncode == 0, run.stderr
    losses = [float(line.split()[1]) for line in run.stdout.splitlines()]
    assert len(losses) == 200 and losses[0] == pytest.approx(math.log(2), rel=0.3)
    assert np.mean(losses[-20:]) < 0.5 * np.mean(losses[:20])
    assert (tmp_path / "trained.safetensors").exists()
