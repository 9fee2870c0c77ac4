# SPDX-License-Identifier: Apache-2.0
"""docs/coming-from-onnxruntime-training.md: each program differs from the one before by as many lines as the page says, and ours train."""
import difflib
import math
import os
import re
import subprocess
import sys

import numpy as np
import pytest

sys.path.insert(0, os.path.dirname(__file__))
import doc_blocks  # noqa: E402
from doc_blocks import BUILD, ROOT  # noqa: E402
from runtime_artifacts import classifier  # noqa: E402

import mpt

PAGE = "docs/coming-from-onnxruntime-training.md"


def page():
    with open(os.path.join(ROOT, PAGE), encoding="utf-8") as text:
        return text.read()


def blocks(language):
    return doc_blocks.blocks(PAGE, language)


@pytest.mark.parametrize("language,pattern", [("cpp", r"C\+\+ program below (\d+) lines go and (\d+) come"), ("python", r"Python one (\d+) go and (\d+) come")])
def test_page_counts_changed_lines(language, pattern):
    before, after = (program.splitlines() for program in blocks(language))
    changed = [line[0] for line in difflib.ndiff(before, after) if line[:2] in ("+ ", "- ")]
    stated, = re.findall(pattern, page())
    assert tuple(map(int, stated)) == (changed.count("-"), changed.count("+"))
    runtime = re.compile(r"Ort::|onnxruntime")
    assert any(map(runtime.search, before)) and not any(map(runtime.search, after))


def test_readme_leads_here():
    with open(os.path.join(ROOT, "README.md"), encoding="utf-8") as text:
        assert "[Coming from ONNX Runtime Training](docs/coming-from-onnxruntime-training.md)" in text.read()


def check_training(run, folder):
    assert run.returncode == 0, run.stderr
    losses = [float(line.split()[1]) for line in run.stdout.splitlines()]
    assert len(losses) == 200 and losses[0] == pytest.approx(math.log(2), rel=0.3)
    assert np.mean(losses[-20:]) < 0.5 * np.mean(losses[:20])
    assert (folder / "trained.safetensors").exists()


@pytest.mark.parametrize("policy", ["fp32", "amp-f16", "amp-bf16"])
def test_our_programs_train(policy, tmp_path):
    library = os.path.join(BUILD, "lib", "libmpt_rt.so")
    if not os.path.exists(library):
        pytest.skip("libmpt_rt is not built")
    classifier(tmp_path / "artifacts")
    mpt.compile(tmp_path / "artifacts", out=tmp_path / "classifier", policy=policy)
    (tmp_path / "program.cpp").write_text(blocks("cpp")[1])
    command, = blocks("bash")
    command = command.replace("$MPT/build/release", BUILD).replace("$MPT", ROOT).replace("clang++-22", "clang++-22 -Wall -Wextra -Werror")
    built = subprocess.run(["bash", "-euc", command], cwd=tmp_path, capture_output=True, text=True)
    assert built.returncode == 0, built.stderr
    check_training(subprocess.run(["./program"], cwd=tmp_path, capture_output=True, text=True), tmp_path)
    (tmp_path / "trained.safetensors").unlink()
    environment = {**os.environ, "PYTHONPATH": os.path.join(ROOT, "python")}
    check_training(subprocess.run([sys.executable, "-c", blocks("python")[1]], cwd=tmp_path, env=environment, capture_output=True, text=True), tmp_path)
