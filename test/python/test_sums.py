# SPDX-License-Identifier: Apache-2.0
"""No sum is narrow: every operator that sums, forward or backward, in every narrow policy, against FP64.

sum_chains.py has a chain for each ONNX operator that sums. Which core operations sum is asked of the compiler (CoverageTest --sums):
one that no chain becomes is named.
"""
import pathlib
import re
import subprocess

import numpy as np
import onnx
import pytest

import mpt
import sum_chains
from conftest import ROOT, build_folder
from mpt_run import read_tensors, tool, write_tensors

pytestmark = pytest.mark.slow

POLICIES = sorted(path.stem for path in (ROOT / "lib" / "Precision" / "policies").glob("*.mlir") if path.stem != "fp32")
UNIT = {"f16": 2.0**-11, "bf16": 2.0**-8, "f8E4M3FN": 2.0**-4, "f8E5M2": 2.0**-3}


def run(*command):
    result = subprocess.run([str(part) for part in command], capture_output=True, text=True)
    assert result.returncode == 0, result.stderr
    return result.stdout


def program(name):
    path = build_folder() / "bin" / name
    if not path.exists():
        pytest.skip(f"{name} is not built")
    return path


def narrowest(policy):
    """The unit roundoff of the narrowest type that `policy` computes in."""
    text = (ROOT / "lib" / "Precision" / "policies" / f"{policy}.mlir").read_text()
    header = re.search(r"policy\.policy[^{]*", text)[0]
    return max(unit for name, unit in UNIT.items() if re.search(rf"= {name}\b", header))


class Chains:
    """The model, its inputs, and its gradients in FP64."""

    def __init__(self, folder):
        self.folder, self.file = folder, folder / "chains.onnx"
        onnx.save(sum_chains.model(), self.file)
        self.inputs = sum_chains.inputs()
        write_tensors(folder / "in.safetensors", self.inputs)
        self.exact = self.interpret("fp32", "--fp64")

    def flags(self, policy):
        """Adaptive policies choose scales; the chains suit a scale of 1."""
        return [f"--policy={policy}", *([] if policy.startswith("als") else ["--loss-scale=1"]), "--quiet"]

    def precise(self, policy, optimizer, *flags, results=False, scores=False):
        """The step after phase precision, as text: of the chains with their loss or their results, or of scores of classes, step by step."""
        path, model = self.folder / f"{policy}.mlir", self.folder / "results.onnx"
        onnx.save(sum_chains.scores() if scores else sum_chains.model(loss=not results), model)
        run(program("mpt-opt"), model, *self.flags(policy), f"--optimizer={optimizer},lr=1e-3", "--clip-norm=1", *flags, "--to=precision", "-o", path)
        return path.read_text()

    def interpret(self, policy, *flags):
        path = self.folder / f"{policy}.safetensors"
        run(tool(), self.file, *self.flags(policy), "--function=gradients", f"--inputs={self.folder}/in.safetensors", f"--outputs={path}", *flags)
        return read_tensors(path)

    def library(self, policy):
        folder = self.folder / policy
        run(program("mpt-opt"), self.file, *self.flags(policy), "--emit=library", "-o", folder)
        return {name: np.asarray(value) for name, value in mpt.Trainer(str(folder)).run("gradients", self.inputs).items()}


@pytest.fixture(scope="module")
def chains(tmp_path_factory):
    program("mpt-run")
    return Chains(tmp_path_factory.mktemp("sums"))


def error(value, exact):
    value, exact = np.asarray(value, np.float64), np.asarray(exact, np.float64)
    return np.linalg.norm(value - exact) / np.linalg.norm(exact) if np.isfinite(value).all() else np.inf


@pytest.mark.parametrize("policy", POLICIES)
def test_chains(policy, chains):
    """The library's gradients are as far from FP64 as the interpreter's, whose sums are FP32; gradients of positive chains are off by
    a few roundings of the narrowest type."""
    outputs, interpreted = chains.library(policy), chains.interpret(policy)
    write_tensors(chains.folder / "library.safetensors", outputs)
    chains.interpret(policy, f"--expect={chains.folder}/library.safetensors")  # the error model's own tolerance
    wrong, unit = [], narrowest(policy)
    for name, exact in chains.exact.items():
        if name == "loss":
            continue
        operator, positive = sum_chains.chain_of(name)
        found, own = error(outputs[name], exact), error(interpreted[name], exact)
        if not found <= 2 * own + 2 * unit * (1 if positive else own) or (positive and not own <= 4 * unit):
            wrong.append(f"{operator}, gradient of {name}: {found:.2g} off, {own:.2g} in the interpreter")
    assert not wrong, "\n".join(wrong)


def test_every_operation_that_sums_has_a_chain(chains):
    sums = run(program("CoverageTest"), "--sums").split()
    operators = [name for name in sums if "." not in name]
    core = [name for name in sums if "." in name and ":" not in name]  # and com.microsoft:Name become these
    assert len(core) > 20 and len(operators) > 15
    text = chains.precise("amp-bf16", "sgd", "--loss=softmax-cross-entropy", results=True) + chains.precise("als-f16", "sgd")
    text += "".join(chains.precise("amp-bf16", name) for name in ("lamb", "lars", "adafactor"))  # their numbers: test_optimizers.py
    text += chains.precise("amp-bf16", "sgd", "--loss=ctc,max-labels=2", scores=True)  # its numbers: test_ctc.py
    missing = [name for name in core if not re.search(rf"{re.escape(name)}\b", text)]
    known = {name.split()[0] for name in sum_chains.CHAINS} | set(sum_chains.WITHOUT)
    missing += [name for name in operators if name not in known]
    assert not missing, f"expected a chain in test/python/sum_chains.py that becomes each of {missing}"
