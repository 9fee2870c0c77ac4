"""Code in the documentation is code: the C trainer of docs/c-api.md compiles and links."""
import os
import re
import subprocess

import pytest

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
BUILD = os.environ.get("MPT_BUILD", os.path.join(ROOT, "build", "release"))


def blocks(page, language):
    with open(os.path.join(ROOT, page), encoding="utf-8") as stream:
        return re.findall(rf"^```{language}\n(.*?)^```", stream.read(), re.M | re.S)


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
