# SPDX-License-Identifier: Apache-2.0
"""Long runs hold no more memory and files in the end: a short form of scripts/robustness.py, and that it notices growth."""
import mmap
import os
import pathlib
import subprocess
import sys

from mpt_run import ROOT, tool

sys.path.insert(0, str(ROOT / "scripts"))
import robustness  # noqa: E402


def test_steps_and_reloads_hold_no_more_in_the_end():
    env = os.environ | {"MPT_BUILD": str(tool().parents[1]), "PYTHONPATH": str(ROOT / "python")}
    words = [sys.executable, ROOT / "scripts" / "robustness.py", "--steps=2000", "--reloads=40"]
    result = subprocess.run(words, env=env, capture_output=True, text=True)
    assert result.returncode == 0 and result.stdout.endswith("no growth\n"), result.stdout + result.stderr
    assert result.stdout.count("2000 steps") == 4 and "40 reloads" in result.stdout


def test_growth_is_noticed(tmp_path):
    before = robustness.held()
    with mmap.mmap(-1, 4 << 20) as kept:  # new pages, where the heap may have some left of earlier tests
        kept[::4096] = b"x" * len(kept[::4096])
        assert robustness.has_grown(before, robustness.held())
    before = robustness.held()
    with open(pathlib.Path(tmp_path) / "left open", "w"):
        assert robustness.has_grown(before, robustness.held())
    assert not robustness.has_grown(before, before)
