# SPDX-License-Identifier: Apache-2.0
"""The repository checks find what they are for, and accept a repository in order."""
import os
import shutil
import subprocess
import sys

import pytest

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
PASSES_TD = 'def InsertCasts : Pass<"precision-insert-casts"> {}\n'
LONG_RUN = "".join(f"  value{i} = compute{i}(input, {i});\n" for i in range(14))


@pytest.fixture
def repository(tmp_path):
    shutil.copytree(os.path.join(ROOT, ".ci"), tmp_path / ".ci", ignore=shutil.ignore_patterns("__pycache__"))
    shutil.copy(os.path.join(ROOT, ".clang-format"), tmp_path)
    subprocess.run(["git", "init", "-q", tmp_path], check=True)
    return tmp_path


def run(repository, check, files):
    for name, text in files.items():
        path = repository / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    command = [repository / ".ci" / check] if not check.endswith(".py") else [sys.executable, repository / ".ci" / check]
    result = subprocess.run(command, capture_output=True, text=True)
    return result.returncode, result.stdout + result.stderr


def include(header):
    return f'#include "{header}"\n'


@pytest.mark.parametrize("path, header, message", [
    ("lib/Support/A.cpp", "mpt/Dialect/MPT/X.h", "Dialect lies above Support"),
    ("lib/Import/A.cpp", "mpt/Export/X.h", "Import and Export are siblings"),
    ("lib/Target/CPU/A.cpp", "mpt/Target/CUDA/X.h", "siblings"),
    ("passes/fusion/A.cpp", "passes/memory/Passes.h", "siblings"),
    ("lib/Lowering/A.cpp", "passes/memory/Passes.h", "lies above"),
    ("lib/Runtime/cpu/A.cpp", "mpt/Support/X.h", "the runtime sees include/mpt-c alone"),
    ("lib/CAPI/A.cpp", "lib/Runtime/core/X.h", "reached through include/mpt-c"),
    ("include/mpt-c/a.h", "mpt/Support/X.h", "the C interface includes nothing of ours"),
    ("lib/Novel/A.cpp", "vector", "Novel has no layer"),
])
def test_layers_refused(repository, path, header, message):
    status, output = run(repository, "check_layers.py", {path: include(header)})
    assert status == 1 and message in output and path in output


def test_layers_accepted(repository):
    status, output = run(repository, "check_layers.py", {
        "lib/Import/A.cpp": include("mpt/Dialect/MPT/X.h") + include("mpt/Support/X.h") + "#include <vector>\n",
        "lib/Target/CPU/A.cpp": include("mpt/Target/Target.h") + include("mpt/Lowering/X.h"),
        "passes/fusion/A.cpp": include("passes/fusion/Passes.h") + include("mpt/Target/Target.h"),
        "passes/Pipelines.cpp": include("passes/fusion/Passes.h") + include("passes/memory/Passes.h"),
        "lib/Runtime/cpu/A.cpp": include("../core/B.h") + include("mpt-c/runtime.h"),
        "lib/Runtime/core/B.h": "",
    })
    assert status == 0, output


def test_names(repository):
    files = {"passes/precision/Passes.td": PASSES_TD, "passes/precision/InsertCasts.cpp": "",
             "test/passes/precision/insert-casts.mlir": "", "test/passes/precision/insert-casts.doctest.mlir": ""}
    assert run(repository, "check_names.py", files)[0] == 0
    for removed, message in (("passes/precision/Passes.td", "no pass --precision-insert-casts"),
                             ("passes/precision/InsertCasts.cpp", "has no file"),
                             ("test/passes/precision/insert-casts.mlir", "no test"),
                             ("test/passes/precision/insert-casts.doctest.mlir", "no test")):
        text = (repository / removed).read_text()
        (repository / removed).unlink()
        status, output = run(repository, "check_names.py", {})
        assert status == 1 and message in output
        (repository / removed).write_text(text)


def test_sizes(repository):
    assert run(repository, "check_sizes.py", {"lib/Import/A.cpp": "\n" * 800, "include/mpt/A.h": "\n" * 150})[0] == 0
    status, output = run(repository, "check_sizes.py", {"tools/mpt-opt/main.cpp": "\n" * 61, "lib/B.cpp": "\n" * 801})
    assert status == 1 and "main.cpp: 61 lines" in output and "B.cpp: 801 lines" in output


def test_duplicates(repository):
    status, output = run(repository, "check_duplicates.py", {"lib/A.cpp": "int a;\n" + LONG_RUN, "lib/B.cpp": LONG_RUN[:-60]})
    assert status == 1 and "lib/B.cpp:1-" in output and "lib/A.cpp:2-" in output
    status, output = run(repository, "check_duplicates.py", {"lib/B.cpp": "\n".join(LONG_RUN.splitlines()[:11])})
    assert status == 0, output


@pytest.mark.skipif(not shutil.which("clang-format-22"), reason="needs clang-format-22")
def test_format(repository):
    status, output = run(repository, "check_format", {"lib/A.cpp": "int   a;\n"})
    assert status == 1 and "lib/A.cpp: 1 places" in output
    assert subprocess.run([repository / ".ci" / "check_format", "--fix"]).returncode == 0
    assert (repository / "lib/A.cpp").read_text() == "int a;\n"


def test_docs_links(repository):
    status, output = run(repository, "check_docs.py", {"README.md": "[here](docs/a.md) [gone](docs/b.md)", "docs/a.md": ""})
    assert status == 1 and "docs/b.md" in output and "docs/a.md, which" not in output
