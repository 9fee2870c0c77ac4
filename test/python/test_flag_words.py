# SPDX-License-Identifier: Apache-2.0
"""Every flag with a value takes it behind an equals sign or as the next word, in every tool."""
import re
import subprocess

import pytest

from conftest import build_folder

TOOLS = {"mpt-opt": ["mpt-opt"], "mpt-run": ["mpt-run", "mpt-opt"]}  # mpt-run hands on flags of mpt-opt


def run(tool, *words):
    return subprocess.run([str(build_folder() / "bin" / tool), *words], capture_output=True, text=True, timeout=60)


def flags(tool):
    return re.findall(r"^  (--?[\w-]+)=\S+", run(tool, "--help").stdout, re.M)


@pytest.mark.parametrize("tool", TOOLS)
def test_both_forms(tool, tmp_path):
    """Both say the same with the value; an unknown flag behind it shows where reading went on."""
    model = str(tmp_path / "none.onnx")
    names = dict.fromkeys(flag for other in TOOLS[tool] for flag in flags(other))
    assert len(names) > 20
    batch = ["--calibrate", "--batch=none"] if tool == "mpt-run" else ["--emit=library"]
    for flag in names:
        for value in ("1", "x", "a=b"):
            one, two = (run(tool, model, *batch, *words, "--no-such-flag") for words in ([f"{flag}={value}"], [flag, value]))
            assert (one.returncode, one.stdout, one.stderr) == (two.returncode, two.stdout, two.stderr), (flag, value)
            assert one.returncode != 0 and "one input file" not in two.stderr, (flag, two.stderr)


def test_both_forms_where_passes_run(tmp_path):
    path = tmp_path / "empty.mlir"
    path.write_text("module {}\n")
    for words in (["--debug-only=fusion-form"], ["--debug-only", "fusion-form"], ["--pass-pipeline", "builtin.module()"],
                  ["--pass-pipeline=builtin.module()"], ["-o", "-"], ["-o=-"]):
        assert run("mpt-opt", str(path), *words).returncode == 0, words
    assert "fusion-fork" in run("mpt-opt", str(path), "--debug-only", "fusion-fork").stderr
