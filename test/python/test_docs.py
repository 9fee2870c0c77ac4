# SPDX-License-Identifier: Apache-2.0
"""Code in the documentation is code: the README's example trains, the C trainer of docs/c-api.md compiles and links."""
import os
import re
import subprocess
import sys

import pytest
from doc_blocks import BUILD, ROOT, blocks, environment


def test_c_trainer_compiles(tmp_path):
    source = tmp_path / "trainer.c"
    source.write_text(blocks("docs/c-api.md", "c")[0])
    command = ["clang-22", "-std=c11", "-Wall", "-Wextra", "-Werror", f"-I{ROOT}/include", "-c", source, "-o", tmp_path / "trainer.o"]
    assert subprocess.run(command, capture_output=True, text=True).stderr == ""
    library = os.path.join(BUILD, "lib", "libmpt_rt.so")
    if not os.path.exists(library):
        pytest.skip("libmpt_rt is not built")
    link = subprocess.run(["clang-22", tmp_path / "trainer.o", library, "-o", tmp_path / "trainer"], capture_output=True, text=True)
    assert link.returncode == 0, link.stderr
    run = subprocess.run([tmp_path / "trainer", tmp_path / "nothing"], capture_output=True, text=True,
                         env={**os.environ, "LD_LIBRARY_PATH": os.path.dirname(library)})
    assert run.returncode == 1 and "nothing" in run.stderr


def test_c_compiler_runs(tmp_path):
    library = os.path.join(BUILD, "lib", "libmpt_compiler.so")
    if not os.path.exists(library):
        pytest.skip("libmpt_compiler is not built")
    (tmp_path / "program.c").write_text(blocks("docs/c-api.md", "c")[1])
    command = ["clang-22", "-std=c11", "-Wall", "-Wextra", "-Werror", f"-I{ROOT}/include", "program.c", library, "-o", "program",
               f"-Wl,-rpath,{os.path.dirname(library)}"]
    built = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True)
    assert built.returncode == 0, built.stderr
    missing = subprocess.run(["./program", "nothing.onnx"], cwd=tmp_path, capture_output=True, text=True)
    assert missing.returncode != 0 and "nothing.onnx" in missing.stderr and "refused" in missing.stdout
    (tmp_path / "make_model.py").write_text(blocks("README.md", "python")[0])
    assert subprocess.run([sys.executable, "make_model.py"], cwd=tmp_path).returncode == 0
    result = subprocess.run(["./program"], cwd=tmp_path, capture_output=True, text=True)
    assert result.returncode == 0 and "compiled" in result.stdout, result.stderr
    assert (tmp_path / "digits" / "digits.json").exists()


def test_readme_example(tmp_path):
    make_model, train = blocks("README.md", "python")
    commands, = blocks("README.md", "bash")
    (tmp_path / "make_model.py").write_text(make_model)
    (tmp_path / "train.py").write_text(train)
    result = subprocess.run(["bash", "-euc", commands + "python train.py"], cwd=tmp_path, env=environment(), capture_output=True, text=True)
    assert result.returncode == 0, result.stdout + result.stderr
    accuracy = float(re.search(r"has not seen: ([0-9.]+)", result.stdout).group(1))
    assert accuracy > 0.9, result.stdout
