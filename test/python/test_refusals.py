# SPDX-License-Identifier: Apache-2.0
"""docs/refusals.md: each code in a message has a section there, and each section's commands are refused and accepted as it says."""
import os
import pathlib
import re
import subprocess

import numpy as np
import onnx
import pytest
from onnx import numpy_helper

import mpt
from conftest import build_folder
from mpt_run import write_tensors

ROOT = pathlib.Path(__file__).resolve().parents[2]
PAGE = (ROOT / "docs/refusals.md").read_text()
HEAD, *SECTIONS = re.split(r"^## ", PAGE, flags=re.M)
SECTIONS = {section.split("\n")[0]: section for section in SECTIONS}
CODE = re.compile(r"\[(mpt-[a-z-]+)\]")
COMMANDS = ("mpt-opt ", "sed ", "cp ", "mkdir ")


def blocks(section):
    """The indented blocks of a section, without their indent."""
    found = re.findall(r"(?:^    .*\n)+", section, re.M)
    return [re.sub(r"^    ", "", block, flags=re.M) for block in found]


def write_models(text, folder):
    for block in blocks(text):
        if block.startswith("<ir_version"):
            name = re.search(r"^(\w+) \(", block, re.M)[1]
            (folder / f"{name}.onnxtxt").write_text(block)


def is_command(line):
    return line.startswith(COMMANDS) and not line.startswith("mpt-opt: ")


@pytest.fixture
def folder(tmp_path):
    for section in (HEAD, *SECTIONS.values()):
        write_models(section, tmp_path)
    large = onnx.parser.parse_model("""<ir_version: 9, opset_import: ["" : 18]>
        large (float[8, 4] x) => (float[8, 3] y) { y = MatMul(x, weight) }""")
    large.graph.initializer.append(numpy_helper.from_array(np.ones((4, 3), np.float32), "weight"))
    onnx.save(large, tmp_path / "large.onnx", save_as_external_data=True, location="large.onnx.data", size_threshold=0)
    (tmp_path / "batches").mkdir()
    batch = {"x": np.ones((8, 4), np.float32), "labels": np.zeros(8, np.int64)}
    write_tensors(tmp_path / "batches/0.safetensors", {"x": np.ones((8, 4), np.float32), "labels": np.zeros(8, np.int64)})
    return tmp_path


def shell(commands, folder):
    path = os.pathsep.join([str(build_folder() / "bin"), os.environ["PATH"]])
    return subprocess.run(["bash", "-euc", "\n".join(commands)], cwd=folder, env={**os.environ, "PATH": path},
                          capture_output=True, text=True)


@pytest.mark.parametrize("code", SECTIONS)
def test_the_commands_of_a_section(code, folder):
    refused, accepted = [block.splitlines() for block in blocks(SECTIONS[code]) if is_command(block)]
    done = shell([line for line in refused if is_command(line)], folder)
    assert done.returncode and CODE.findall(done.stderr) == [code], done.stderr
    last = done.stderr.strip().splitlines()[-1]
    assert last.endswith(f"[{code}]"), done.stderr
    for line in refused:
        assert is_command(line) or line in last, (line, last)
    done = shell(accepted, folder)
    assert done.returncode == 0 and all(map(is_command, accepted)), done.stderr


def written_codes():
    """{code: files} of all messages in the sources."""
    found = {}
    for part in ("lib", "passes", "python/mpt"):
        for path in (ROOT / part).rglob("*"):
            if path.suffix in (".cpp", ".h", ".py"):
                for code in CODE.findall(path.read_text()):
                    found.setdefault(code, []).append(path.name)
    return found


def test_codes_and_sections_are_the_same():
    written = written_codes()
    assert {code: files for code, files in written.items() if code not in SECTIONS} == {}, "codes without a section of docs/refusals.md"
    assert set(SECTIONS) - set(written) == set(), "sections of docs/refusals.md that no message leads to"
    assert len(SECTIONS) == 20


def ask(*words, name="mpt-opt"):
    return subprocess.run([str(build_folder() / "bin" / name), *words], capture_output=True, text=True)


@pytest.mark.parametrize("name", ["mpt-opt", "mpt-run"])
def test_explain(name):
    section = SECTIONS["mpt-nothing-trains"].strip() + "\n"
    for words in (["--explain=mpt-nothing-trains"], ["--explain", "mpt-nothing-trains"], ["--explain=[mpt-nothing-trains]"],
                  ["--explain=nothing-trains"]):
        assert ask(*words, name=name).stdout == section, words
    listed = ask("--explain", name=name).stdout.splitlines()
    assert [line.split()[0] for line in listed] == list(SECTIONS) and "The step would change no parameter." in listed[8]
    unknown = ask("--explain=mpt-nothing-train", name=name)
    assert unknown.returncode and "got 'mpt-nothing-train'; near it: 'mpt-nothing-trains'" in unknown.stderr


def test_the_exception_has_the_code(folder):
    with pytest.raises(mpt.CompileError) as refusal:
        mpt.compile(folder / "model.onnxtxt", out=folder / "lib", loss="softmax-cross-entropy", optimizer="sgd")
    assert refusal.value.code == "mpt-unbound-dimension"
    with pytest.raises(mpt.CompileError) as refusal:
        mpt.compile(folder / "none.onnx", out=folder / "lib")
    assert refusal.value.code is None
    words = {"loss": "softmax-cross-entropy", "bind": {"N": 8}}
    mpt.compile(folder / "model.onnxtxt", out=folder / "a", optimizer="sgd", **words)
    mpt.compile(folder / "model.onnxtxt", out=folder / "b", optimizer="adamw", **words)
    mpt.Trainer(folder / "a").save(folder / "state")
    with pytest.raises(mpt.Error) as refusal:
        mpt.Trainer(folder / "b").load(folder / "state")
    assert refusal.value.code == "mpt-other-state"
