# SPDX-License-Identifier: Apache-2.0
"""Libraries for CUDA compiled with --debug-nonfinite: the node that the library for the CPU names, found on the device."""
import json
import re
import subprocess
import sys

import ml_dtypes
import numpy as np
import onnx
import pytest
from conftest import build_folder
from planted import PLANTED, write_case
from standin import environment

pytestmark = pytest.mark.slow

# Prints the messages of each step of each library; arguments: LIBRARY and BATCH.npz in turn. Narrow types travel as bytes.
STEPS = """
import json, sys
import ml_dtypes, numpy as np
import mpt
from standin import standin as library, trainer as make_trainer
standin, said = library(), []
for folder, batch in zip(sys.argv[1::2], sys.argv[2::2]):
    batch = {name.partition("/")[0]: value.view(name.partition("/")[2] or value.dtype) for name, value in np.load(batch).items()}
    standin.standin_reset()
    with make_trainer(folder) as trainer:
        try:
            trainer.start(batch)
            said.append("")
        except mpt.Error as problem:
            said.append(f"{problem.status} {problem}")
        if trainer.manifest["target"] == "cuda" and standin.standin_violations():
            said[-1] += " VIOLATIONS " + standin.standin_violations().decode()
print(json.dumps(said))
"""


@pytest.fixture(scope="module")
def tools():
    build = build_folder()
    if not (build / "lib" / "libcuda_standin.so").exists() or not (build / "bin" / "mpt-opt").exists():
        pytest.skip("the compiler or the stand-in is not built")
    return build


def compile_for(build, target, words, out):
    flags = ["--target=cuda", "--arch=host"] if target == "cuda" else []
    subprocess.run([build / "bin" / "mpt-opt", *words, *flags, "--debug-nonfinite", "--quiet", "-o", out], check=True)
    return out


def run(build, libraries):
    """The messages of the first step of each of [(library, batch)]."""
    words = []
    for number, (library, batch) in enumerate(libraries):
        path = library.parent / f"batch{number}.npz"
        own = {n: v.dtype.isbuiltin == 1 for n, v in batch.items()}
        np.savez(path, **{n if own[n] else f"{n}/{v.dtype.name}": v if own[n] else v.view(f"u{v.itemsize}") for n, v in batch.items()})
        words += [library, path]
    done = subprocess.run([sys.executable, "-c", STEPS, *map(str, words)], env=environment(build), capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


@pytest.mark.parametrize("name", ["product", "convolution", "softmax without maximum", "gradient of a root at zero", "behind a mask", "logarithm", "loss scale"])
def test_the_device_names_the_cpus_node(tools, tmp_path, name):
    planted = PLANTED[name]
    words = write_case(tmp_path, name)
    batch = {**planted["inputs"], "target": np.zeros(planted["result"], np.float32)}
    cpu, cuda = run(tools, [(compile_for(tools, target, words, tmp_path / target), batch) for target in ("cpu", "cuda")])
    # Finite values differ in the last digits.
    part = re.compile(r"9 run 0 of 'step': node '(.*)' \((.*)\) gave (\d+) infinities and (\d+) NaN in (\d+) values of (\w+); ")
    assert part.match(cuda), cuda
    assert part.match(cuda).groups() == part.match(cpu).groups()
    assert re.findall("the type holds .*", cuda) == re.findall("the type holds .*", cpu)
    if planted["node"]:
        assert f"node '{planted['node']}'" in cuda


def test_good_steps_are_silent(tools, tmp_path):
    words = write_case(tmp_path, "product")
    batch = {"x": PLANTED["product"]["inputs"]["x"] * np.float32(1e-6), "target": np.zeros((4, 6), np.float32)}
    assert run(tools, [(compile_for(tools, "cuda", words, tmp_path / "cuda"), batch)]) == [""]


@pytest.mark.parametrize("kind, infinity", [("float32", True), ("float16", True), ("double", True), ("bfloat16", True), ("float8e5m2", True),
                                            ("float8e4m3fn", False)])
def test_every_type_of_data(tools, tmp_path, kind, infinity):
    """NaN, infinities and the largest numbers by their bits: largest number, infinity, NaN, and these negative."""
    element = {"float32": "float", "double": "double"}.get(kind, kind)
    dtype = {"float32": np.float32, "float16": np.float16, "double": np.float64}.get(kind) or np.dtype(
        {"bfloat16": "bfloat16", "float8e5m2": "float8_e5m2", "float8e4m3fn": "float8_e4m3fn"}[kind])
    text = f"""<ir_version: 10, opset_import: ["" : 21]>
m ({element}[3, 4] x) => (float[3, 2] y) <float[4, 2] w = {{1, 1, 1, 1, 1, 1, 1, 1}}> {{ a = Cast<to = 1>(x) y = MatMul(a, w) }}"""
    onnx.save(onnx.parser.parse_model(text), tmp_path / "m.onnx")
    library = compile_for(tools, "cuda", [tmp_path / "m.onnx", "--loss=mse", "--optimizer=sgd,lr=0"], tmp_path / "cuda")
    largest = ml_dtypes.finfo(dtype).max
    target = np.zeros((3, 2), np.float32)

    def batch(*values):
        x = np.zeros(12, dtype)
        x[-len(values):] = np.array(values, dtype)
        return library, {"x": x.reshape(3, 4), "target": target}

    cases = [batch(np.nan, 1, -np.nan), batch(0)] + ([batch(np.inf, 2, -np.inf, np.nan)] if infinity else [])
    said = run(tools, cases)
    assert "input 'x' of 'step' holds 0 infinities and 2 NaN in 12 values: mend the data" in said[0]
    assert said[1] == ""
    if infinity:
        assert "holds 2 infinities and 1 NaN in 12 values" in said[2]
    # The largest number passes as data, whatever becomes of it.
    assert "input 'x'" not in run(tools, [batch(largest, -largest)])[0]
