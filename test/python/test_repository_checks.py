# SPDX-License-Identifier: Apache-2.0
"""The repository checks find the errors that they look for, and accept a repository in order."""
import json
import os
import re
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
    ("lib/Lowering/Emission/A.cpp", "mpt/Lowering/Models/X.h", "Lowering/Models lies above Lowering/Emission"),
    ("lib/Lowering/CPU/A.cpp", "mpt/Lowering/GPU/X.h", "siblings"),
    ("lib/Lowering/Novel/A.cpp", "mpt/Lowering/GPU/X.h", "folder Lowering/Novel has no layer"),
    ("lib/Fusion/A.cpp", "mpt/Lowering/GPU/X.h", "Fusion and Lowering/GPU are siblings"),
    ("lib/Runtime/cpu/A.cpp", "mpt/Support/X.h", "the runtime sees include/mpt-c alone"),
    ("lib/CAPI/A.cpp", "lib/Runtime/core/X.h", "reached through include/mpt-c"),
    ("lib/Driver/A.cpp", "lib/CAPI/X.h", "CAPI lies above Driver"),
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
        "lib/Lowering/GPU/A.cpp": include("mpt/Lowering/Nest/X.h") + include("mpt/Lowering/Emission/X.h"),
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
    assert run(repository, "check_sizes.py", {"lib/Import/A.cpp": "\n" * 600, "include/mpt/A.h": "\n" * 150})[0] == 0
    status, output = run(repository, "check_sizes.py", {
        "tools/mpt-opt/main.cpp": "\n" * 61, "lib/B.cpp": "\n" * 601, "lib/Import/Proto/Merged.cpp": "\n" * 600})
    assert status == 1 and "main.cpp: 61 lines" in output and "B.cpp: 601 lines" in output
    assert "lib/Import/Proto/Merged.cpp: 600 lines fit its cap" in output


def test_duplicates(repository):
    status, output = run(repository, "check_duplicates.py", {"lib/A.cpp": "int a;\n" + LONG_RUN, "lib/B.cpp": LONG_RUN[:-60]})
    assert status == 1 and "lib/B.cpp:1-" in output and "lib/A.cpp:2-" in output
    status, output = run(repository, "check_duplicates.py", {"lib/B.cpp": "\n".join(LONG_RUN.splitlines()[:11])})
    assert status == 0, output


def test_environment(repository):
    files = {"lib/A.cpp": 'auto home = getenv("HOME");\n', "python/mpt/a.py": "import os\n", "test/b.py": 'os.environ["MPT_X"]\n'}
    status, output = run(repository, "check_environment.py", files)
    assert status == 0, output
    for path, text in (("lib/A.cpp", 'getenv("MPT_FAST")'), ("lib/A.cpp", "getenv(name)"), ("python/mpt/a.py", 'os.environ["MPT_FAST"]')):
        status, output = run(repository, "check_environment.py", {**files, path: text + "\n"})
        assert status == 1 and f"{path}:1: reads the environment" in output, output


def test_attributes(repository):
    ods = """def A_Dialect : Dialect {
  let name = "mpt";
  let description = [{ `mpt.grid` on kernels. }];
  let discardableAttrs = (ins "::mlir::UnitAttr":$grid);
}
"""
    files = {"include/mpt/Dialect/A.td": ods, "lib/A.cpp": 'auto name = "mptgrid"; // not "mpt.grid"\n'}
    status, output = run(repository, "check_attributes.py", files)
    assert status == 0, output
    status, output = run(repository, "check_attributes.py", {"lib/B.cpp": 'op->setAttr("mpt.grid", value);\n'})
    assert status == 1 and 'lib/B.cpp:1: "mpt.grid": declare it' in output
    twice = {"include/mpt/Dialect/B.td": ods.replace("A_", "B_"), "lib/B.cpp": ""}
    status, output = run(repository, "check_attributes.py", twice)
    assert status == 1 and "attribute mpt.grid is defined in include/mpt/Dialect/A.td too" in output
    undescribed = {"include/mpt/Dialect/B.td": "", "include/mpt/Dialect/A.td": ods.replace("`mpt.grid`", "")}
    status, output = run(repository, "check_attributes.py", undescribed)
    assert status == 1 and "`mpt.grid` is declared but not described" in output


@pytest.mark.skipif(not shutil.which("clang-format-22"), reason="needs clang-format-22")
def test_format(repository):
    status, output = run(repository, "check_format", {"lib/A.cpp": "int   a;\n"})
    assert status == 1 and "lib/A.cpp: 1 places" in output
    assert subprocess.run([repository / ".ci" / "check_format", "--fix"]).returncode == 0
    assert (repository / "lib/A.cpp").read_text() == "int a;\n"


def test_docs_links(repository):
    status, output = run(repository, "check_docs.py", {"README.md": "[here](docs/a.md) [gone](docs/b.md)", "docs/a.md": ""})
    assert status == 1 and "docs/b.md" in output and "docs/a.md, which" not in output


def test_docs_files(repository):
    status, output = run(repository, "check_docs.py", {
        "README.md": "`lib/A.cpp`, `lib/gone.cpp`, `passes/STAGE/Name.cpp`, `test/e2e/*.py`", "lib/A.cpp": "",
        "docs/results/a.md": "`lib/of-then.cpp`"})
    assert status == 1 and "README.md: names lib/gone.cpp, which does not exist" in output and output.count("does not exist") == 1


def test_docs_phases(repository):
    files = {"README.md": "", "passes/fusion/Passes.td": 'include "mlir/Pass/PassBase.td"\ndef Form : Pass<"fusion-form">;\n'
             'def Group : Pass<"fusion-group">;\n',
             "docs/phases.md": "| `fusion-form` | forms |\n`fusion-gone` and `mpt.fusion`\n"}
    status, output = run(repository, "check_docs.py", files)
    assert status == 1 and "does not name pass --fusion-group" in output and "names --fusion-gone, which is no pass" in output
    assert "fusion-form" not in output


def test_docs_site(repository):
    status, output = run(repository, "check_docs.py", {
        "README.md": "", "docs/README.md": "", "docs/a.md": "", "docs/results/b.md": "", "docs/c.md": "",
        "scripts/site/mkdocs.yml": "nav:\n  - A: [a.md]\n  - cc.md\n  - results/b.md\n"})
    assert status == 1 and "does not list c.md in its nav" in output and output.count("does not list") == 1


FAKE_TOOL = """#!/bin/sh
case "$*" in *"--to=?"*) echo "mpt-opt: expected import|target for --to, got '?'" >&2; exit 1;; esac
for last; do :; done
printf 'module {\\n  func.func @step() {\\n    return\\n  }\\n}\\n' > "$last"
"""


def test_docs_walkthrough(repository):
    tool = repository / "build" / "any" / "bin" / "mpt-opt"
    tool.parent.mkdir(parents=True)
    tool.write_text(FAKE_TOOL)
    tool.chmod(0o755)
    status, output = run(repository, "check_docs.py", {
        "README.md": "", ".gitignore": "build/\n", "test/walkthrough/Inputs/digits.onnxtxt": "a model\n",
        "docs/generated/walkthrough.md": "old\n"})
    assert status == 1 and "docs/generated/walkthrough.md is not what the sources generate" in output
    assert subprocess.run([sys.executable, repository / ".ci" / "check_docs.py", "--fix"]).returncode == 0
    page = (repository / "docs/generated/walkthrough.md").read_text()
    assert "## import" in page and "func.func @step() {" in page and "a model" in page


def test_docs_picture(repository):
    table = 'constexpr Phase phases[] = {\n    {"import", buildImport}, {"novel", buildNovel},\n};\n'
    status, output = run(repository, "check_docs.py", {"README.md": "", "passes/Pipelines.cpp": table, "docs/generated/flow.svg": "old\n"})
    assert status == 1 and "docs/generated/flow.svg is not what the sources generate" in output
    assert subprocess.run([sys.executable, repository / ".ci" / "check_docs.py", "--fix"]).returncode == 0
    assert "import, novel, target" in (repository / "docs/generated/flow.svg").read_text()


def test_functions(repository):
    pytest.importorskip("lizard")

    def nested(depth):  # 1 + 2 + ... + depth
        return "namespace a {\nint f(int x) {\n" + "".join(f"{'  ' * d}if (x > {d}) {{\n" for d in range(depth)) + \
            "}\n" * depth + "  return x;\n}\n} // namespace a\n"

    braces = 'const char *text = "{{{"; // {\nstruct S {\n  S() : value{1} {}\n  int value;\n};\n'
    python = "def g(x):\n" + "".join(f"{'    ' * d}for y in x:\n" for d in range(1, 10)) + "    " * 10 + "pass\n"
    flat = "int h(int x) {\n" + "  x += 1;\n" * 119 + "}\n"
    assert run(repository, "check_functions.py", {"lib/Support/A.cpp": braces + nested(8)})[0] == 0
    status, output = run(repository, "check_functions.py", {
        "lib/Support/B.cpp": braces + nested(9), "python/c.py": python, "lib/Support/C.cpp": flat})
    for message in ("lib/Support/B.cpp:7: a::f has cognitive complexity 45", "python/c.py:1: g has cognitive complexity 45",
                    "lib/Support/C.cpp:1: h has 121 lines"):
        assert status == 1 and message in output, output
    assert "A.cpp" not in output
    status, output = run(repository, "check_functions.py", {"lib/Import/Proto/Copies.cpp": "void Copies::join() {}\n"})
    assert status == 1 and "lib/Import/Proto/Copies.cpp: Copies::join is within the limit" in output, output


@pytest.mark.parametrize("first, second, is_split", [
    ("int Widget::a() { return 1; }\n", "int Widget::b() { return 2; }\n", True),
    ("namespace mpt {\nWidget::Widget() : a{1} {}\n}\n", "using namespace mpt;\nint mpt::Widget::b() { return 2; }\n", True),
    ("namespace {\nint Widget::a() { return 1; }\n}\n", "namespace {\nint Widget::a() { return 2; }\n}\n", False),
    ("using namespace mpt::left;\nint Widget::a() { return 1; }\n", "int right::Widget::a() { return 2; }\nnamespace right {}\n", False),
    ("int mpt::a() { return 1; }\n", "int mpt::b() { return 2; }\nnamespace mpt {}\n", False),
])
def test_classes(repository, first, second, is_split):
    status, output = run(repository, "check_classes.py", {"lib/Support/A.cpp": first, "lib/Support/B.cpp": second})
    assert status == int(is_split), output
    assert ("class Widget is defined in 2 files: lib/Support/A.cpp (1), lib/Support/B.cpp (1)" in output) == is_split


OP_LIST = "// A pass.\nbool f(Operation *op) {{\n  return {};\n}}\n"


@pytest.mark.parametrize("question", [
    "isa<AOp, mpt::BOp>(op)",
    "isa<AOp>(op) || isa_and_present<BOp>(op)",
    "dyn_cast<AOp>(op->getOperand(0)) || isa<BOp>(op->getOperand(0))",
    "op->getOperand(0).getDefiningOp<AOp>() || op->getOperand(0).getDefiningOp<BOp>()",
    "isa<AOp>(v.getDefiningOp()) || v.getDefiningOp<BOp>()",
    "TypeSwitch<Operation *, bool>(op).Case<AOp>([](auto) { return true; }).Case<BOp>([](auto) { return false; })",
])
def test_op_lists_refused(repository, question):
    status, output = run(repository, "check_op_lists.py", {"passes/export/A.cpp": OP_LIST.format(question)})
    assert status == 1 and "passes/export/A.cpp:2: f asks whether" in output and "AOp, BOp" in output


@pytest.mark.parametrize("path, text", [
    ("passes/export/A.cpp", OP_LIST.format("isa<AOp>(op) || isa<BOp>(op->getNextNode())")),
    ("passes/export/A.cpp", OP_LIST.format("isa<View>(op) // isa<AOp, BOp>(op)\n")),
    ("passes/export/A.cpp", "// Matcher: x * sigmoid(x), which is swish.\n" + OP_LIST.format("isa<AOp, BOp>(op)")),
    ("lib/Dialect/MPT/A.cpp", OP_LIST.format("isa<AOp, BOp>(op)")),
    ("lib/Lowering/A.cpp", "struct M : X::ExternalModel<M, AOp> {};\n" + OP_LIST.format("isa<AOp, BOp>(op)")),
])
def test_op_lists_accepted(repository, path, text):
    status, output = run(repository, "check_op_lists.py", {path: text})
    assert status == 0, output


def test_op_lists_matcher_without_a_reason(repository):
    text = "// Matcher: yes.\n" + OP_LIST.format("isa<AOp, BOp>(op)")
    assert run(repository, "check_op_lists.py", {"passes/export/A.cpp": text})[0] == 1


def test_spdx(repository):
    line = "SPDX-License-Identifier: Apache-2.0"
    good = {"LICENSE": line + "\n\nText.\n", "lib/A.cpp": f"// {line}\nint a;\n", "x.py": f"#!/usr/bin/env python3\n# {line}\n",
            "lib/CMakeLists.txt": f"# {line}\n", "docs/a.md": "no source\n"}
    status, output = run(repository, "check_spdx.py", good)
    assert status == 0, output
    status, output = run(repository, "check_spdx.py", {
        "lib/A.cpp": "int a;\n", "lib/B.td": f"// A table.\n// {line}\n", "x.py": "#!/usr/bin/env python3\nimport os\n",
        "lib/C.h": "// SPDX-License-Identifier: MIT\n", "empty.py": ""})
    assert status == 1 and "5 problems" in output
    for place in ("lib/A.cpp:1", "lib/B.td:1", "x.py:2", "lib/C.h:1", "empty.py:1"):
        assert place in output


def commit(repository, message, date="2030-01-01T00:00:00Z"):
    identity = {"GIT_AUTHOR_NAME": "a", "GIT_AUTHOR_EMAIL": "a@b", "GIT_COMMITTER_NAME": "a", "GIT_COMMITTER_EMAIL": "a@b"}
    subprocess.run(["git", "commit", "-q", "--allow-empty", "-m", message], cwd=repository, check=True,
                   env={**os.environ, **identity, "GIT_AUTHOR_DATE": date, "GIT_COMMITTER_DATE": date})


@pytest.mark.parametrize("message, complaint", [
    ("x" * 73 + "\n\nWhy.", "73 characters, expected at most 72"),
    ("Say nothing more", "expected a body that says why"),
    ("Run on\ninto the body", "expected a blank line"),
    ("x" * 72 + "\n\nWhy.", None),
])
def test_commits(repository, tmp_path_factory, message, complaint):
    commit(repository, "A commit of before the rule: " + "x" * 100, date="2026-01-01T00:00:00Z")
    commit(repository, message)
    commit(repository, "The last one\n\nIn order.")
    shallow = tmp_path_factory.mktemp("shallow") / "clone"
    subprocess.run(["git", "clone", "-q", "--depth=2", f"file://{repository}", shallow], check=True)
    shutil.copytree(repository / ".ci", shallow / ".ci")
    for place in (repository, shallow):
        status, output = run(place, "check_commits.py", {})
        assert status == int(complaint is not None) and (complaint or "2 commits") in output, output


def test_prose(repository):
    good = {"docs/a.md": "The pass inserts casts; `--blame` attributes the error.\n\n    what a command says\n",
            "lib/A.cpp": '// Results are bitwise identical.\nconst char *text = "what";\n', "python/a.py": '"""Casts."""\nmodule = """what"""\n',
            "test/a.mlir": "// RUN: what\n// A cast.\n", "scripts/a.sh": "# A step.\necho what\n"}
    status, output = run(repository, "check_prose.py", good)
    assert status == 0, output
    status, output = run(repository, "check_prose.py", {
        "docs/a.md": "What is\nblamed.", "lib/A.cpp": "/* Casts, and those\n * of it. */\nint slots;\n// A slot.",
        "python/a.py": '"""A head.\n\nWhat it is for certifying."""\n# What has the same bits.\n' * 90,
        "test/a.mlir": "// CHECK: a\n// That is a painting.\n", "scripts/a.sh": "# What it says of a stand-in.\n"})
    for kind in ("pages", "C++", "Python", "lit tests", "scripts"):
        for name in ("headless subjects", "words that have a term"):
            assert status == 1 and re.search(rf"{re.escape(kind)}: [0-9.]+ {name} per 1,000 words", output), output
    status, output = run(repository, "check_prose.py", {"docs/a.md": "What says what?\n"})
    assert status == 1 and "docs/a.md: 2 headless subjects" in output and "first at docs/a.md:1: What" in output, output


@pytest.mark.skipif(not shutil.which("clang-tidy-22"), reason="needs clang-tidy-22")
def test_tidy(repository):
    shutil.copy(os.path.join(ROOT, ".clang-tidy"), repository)
    os.makedirs(os.path.join(repository, "test"), exist_ok=True)
    shutil.copy(os.path.join(ROOT, "test", ".clang-tidy"), os.path.join(repository, "test"))
    commands = [{"directory": str(repository), "file": f"lib/{name}.cpp", "command": f"clang++-22 -std=c++17 -c lib/{name}.cpp"}
                for name in ("Good", "Bad", "Old")]
    bad = "int *nothing() { return 0; }\n"
    files = {".gitignore": "build/\n", "build/any/compile_commands.json": json.dumps(commands), "lib/Old.cpp": bad}
    run(repository, "check_sizes.py", files)
    for message in ("The first one\n\nSays why.", "The second one\n\nSays why."):
        subprocess.run(["git", "add", "lib"], cwd=repository, check=True)
        commit(repository, message)
    status, output = run(repository, "check_tidy.py", {"lib/Good.cpp": "int *nothing() { return nullptr; }\n"})
    assert status == 0 and "1 files, 1 of them anew" in output, output
    status, output = run(repository, "check_tidy.py", {"lib/Bad.cpp": bad})
    assert status == 1 and "lib/Bad.cpp:1:" in output and "modernize-use-nullptr" in output and "Old.cpp" not in output
    everything = subprocess.run([sys.executable, repository / ".ci" / "check_tidy.py", "--all"], capture_output=True, text=True)
    assert everything.returncode == 1 and "lib/Old.cpp:1:" in everything.stdout and "Good" not in everything.stdout
