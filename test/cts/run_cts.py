#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Conformance suite: every case in every float type, on a target and in the reference interpreter.

Cases are the functions of test/cts/cases and test/autodiff/cases, written in f64; the suite rewrites them in each type, fills
arguments with random values in [check.low, check.high] (default [-2, 2]; integers in [0, check.high)), and runs

* oracle: the interpreter with types and roundings against the interpreter in FP64 (holds the error model itself);
* cpu: the library that mpt-opt emits against the interpreter;
* gpu-on-cpu: the schedules of GPU kernels, run in loops, against the interpreter, and their PTX through ptxas where that is found;
* cuda: libraries for CUDA on the fake driver, cuBLASLt and cuDNN, whose list of violations has to stay empty.

Results must agree within the error model of include/mpt/Reference/ErrorModel.h. skips.txt lists the cases that a target may skip, and why.
"""
import argparse
import collections
import ctypes
import os
import pathlib
import re
import subprocess
import sys
import tempfile

import numpy as np

HERE = pathlib.Path(__file__).resolve().parent
ROOT = HERE.parents[1]
sys.path[:0] = [str(ROOT / "test" / "python"), str(ROOT / "python")]
from mpt_run import KINDS, ptxas, tool, write_tensors  # noqa: E402
from standin import library  # noqa: E402

TYPES = {mlir: np.dtype(kind) for kind, _, mlir in KINDS}
FUNCTION = re.compile(r"^func\.func @(\w+)\((.*?)\)\s*(?:->\s*(\([^)]*\)|tensor<[^>]*>)\s*)?\{\n(.*?)^\}", re.S | re.M)
ARGUMENT = re.compile(r"%(\w+): tensor<((?:\d+x)*)(\w+)>(?:\s*\{([^}]*)\})?")


class Case:
    """One function in one type."""

    def __init__(self, file, match, kind):
        retype = lambda text: re.sub(r"\b((?:\d+x)*)f64>", rf"\g<1>{kind}>", text)  # noqa: E731
        self.name, self.kind = f"{file.stem}.{match[1]}", kind
        self.function = match[1]
        self.arguments = [(name, tuple(int(d) for d in shape.split("x")[:-1]), element, attributes or "")
                          for name, shape, element, attributes in ARGUMENT.findall(retype(match[2]))]
        results = re.findall(r"tensor<[^>]*>", retype(match[3] or ""))
        inputs = ", ".join(f'%{name}: tensor<{"".join(f"{d}x" for d in shape)}{element}> {{mpt.name = "{name}"}}'
                           for name, shape, element, _ in self.arguments)
        outputs = ", ".join(f'{type_} {{mpt.name = "out{i}"}}' for i, type_ in enumerate(results))
        self.text = f"func.func @{self.function}({inputs}) -> ({outputs}) {{\n{retype(match[4])}}}\n"

    def inputs(self, seed):
        rng = np.random.default_rng([seed, *self.name.encode()])
        values = {}
        for name, shape, element, attributes in self.arguments:
            bound = {key: float(value) for key, value in re.findall(r"check\.(low|high) = ([-\d.e]+)", attributes)}
            if element.startswith("i"):
                high = 2 if element == "i1" else int(bound.get("high", 2))
                values[name] = rng.integers(int(bound.get("low", 0)), high, shape).astype(TYPES[element])
            else:
                values[name] = rng.uniform(bound.get("low", -2), bound.get("high", 2), shape).astype(TYPES[element])
        return values


def cases(kind):
    """{file: its cases in type `kind`}."""
    folders = [HERE / "cases", ROOT / "test" / "autodiff" / "cases"]
    files = sorted(path for folder in folders for path in folder.glob("*.mlir"))
    return {file: [Case(file, match, kind) for match in FUNCTION.finditer(file.read_text())] for file in files}


def interpret(module, case, folder, *arguments):
    command = [tool(), module, f"--function={case.function}", f"--inputs={folder}/in.safetensors", *arguments]
    return subprocess.run(command, capture_output=True, text=True)


def run_tool(name, *arguments):
    result = subprocess.run([tool().with_name(name), *arguments], capture_output=True, text=True)
    if result.returncode:
        raise RuntimeError(result.stderr)


class Oracle:
    """The interpreter in FP64."""

    def __init__(self, module, folder, options):
        self.module, self.folder = module, folder

    def run(self, case, inputs):
        result = interpret(self.module, case, self.folder, "--fp64", f"--outputs={self.folder}/out.safetensors")
        if result.returncode:
            raise RuntimeError(result.stderr)


class Cpu:
    """A library emitted by mpt-opt."""

    def __init__(self, module, folder, options):
        import mpt
        start = "fusion"
        if options.kernels_for:
            self.mpt_opt(module, "--from=fusion", "--to=memory", f"--mcpu={options.kernels_for}", "-o", f"{folder}/planned.mlir")
            module, start = f"{folder}/planned.mlir", "target"
        self.mpt_opt(module, f"--from={start}", f"--mcpu={options.mcpu}", "--emit=library", "-o", f"{folder}/library")
        self.folder, self.trainer = folder, mpt.Trainer(f"{folder}/library")

    @staticmethod
    def mpt_opt(*arguments):
        run_tool("mpt-opt", *arguments, "--quiet")

    def run(self, case, inputs):
        outputs = self.trainer.run(case.function, inputs)
        write_tensors(f"{self.folder}/out.safetensors", {name: np.asarray(value) for name, value in outputs.items()})


class GpuSchedules(Cpu):
    """A library whose kernels are a GPU's, run in loops over blocks and threads; library calls are the processor's.

    PTX of the kernels that target cuda makes is assembled for the architectures of --assemble too, where ptxas is found; one that
    spills fails.
    """

    def __init__(self, module, folder, options):
        import mpt
        architectures = [arch for arch in options.assemble.split(",") if arch and ASSEMBLER]
        if architectures:
            self.mpt_opt(module, "--from=fusion", "--to=memory", "--target=cuda", "-o", f"{folder}/planned.mlir")
        for arch in architectures:
            run_tool("mpt-opt", f"{folder}/planned.mlir", f"--lowering-emit-ptx=arch={arch} file={folder}/{arch}.ptx", "-o", os.devnull)
            assemble(f"{folder}/{arch}.ptx", arch)
        run_tool("mpt-opt-toy", module, "--from=fusion", "--target=gpu-on-cpu", "--emit=library", "-o", f"{folder}/library", "--quiet")
        self.folder, self.trainer = folder, mpt.Trainer(f"{folder}/library")


class Cuda(Cpu):
    """A library for CUDA whose kernels run on the host; a fake driver and fake libraries take the place of the real ones."""

    def __init__(self, module, folder, options):
        import mpt
        self.mpt_opt(module, "--from=fusion", "--target=cuda", "--arch=host", "--emit=library", "-o", f"{folder}/library")
        options = {name: library(tool().parents[1]) for name in ("driver", "cublaslt", "cudnn")}
        self.folder, self.trainer = folder, mpt.Trainer(f"{folder}/library", options={**options, "cache": ""})
        self.standin = ctypes.CDLL(options["driver"])
        self.standin.standin_violations.restype = ctypes.c_char_p

    def run(self, case, inputs):
        for _ in range(2):  # call by call, then as a graph
            super().run(case, inputs)
        violations = self.standin.standin_violations().decode()
        self.standin.standin_reset()
        if violations:
            raise RuntimeError(violations)


ASSEMBLER = ptxas()
assembled = collections.Counter()  # kernels, by architecture


def assemble(path, arch):
    """Has ptxas make machine code of a file of PTX and throws that away; kernels whose values leave the registers fail."""
    result = subprocess.run([ASSEMBLER, f"-arch={arch}", "-v", "-o", os.devnull, path], capture_output=True, text=True)
    if result.returncode:
        raise RuntimeError(result.stderr)
    for name, report in re.findall(r"entry function '(\w+)'(.*?)(?=Compiling entry|\Z)", result.stderr, re.S):
        assembled[arch] += 1
        spills = [int(count) for count in re.findall(r"(\d+) bytes spill", report)]
        if any(spills):
            raise RuntimeError(f"{name} spills on {arch}: {report}")


TARGETS = {"oracle": Oracle, "cpu": Cpu, "gpu-on-cpu": GpuSchedules, "cuda": Cuda}


def read_skips():
    lines = (line.split("#")[0].split() for line in (HERE / "skips.txt").read_text().splitlines())
    return {tuple(words[:3]) for words in lines if words}


def run_module(options, group, kind):
    """{case: the error, or ""} of a module of cases; when the module fails as a whole, each case by itself."""
    with tempfile.TemporaryDirectory() as folder:
        module = os.path.join(folder, "module.mlir")
        pathlib.Path(module).write_text('module attributes {mpt.name = "case"} {\n' + "".join(case.text for case in group) + "}\n")
        try:
            target = TARGETS[options.target](module, folder, options)
        except Exception as problem:  # the target's refusal
            if len(group) == 1:
                return {group[0].name: str(problem)}
            return {name: error for case in group for name, error in run_module(options, [case], kind).items()}
        outcomes = {}
        for case in group:
            inputs = case.inputs(options.seed)
            write_tensors(f"{folder}/in.safetensors", inputs)
            try:
                target.run(case, inputs)
                result = interpret(module, case, folder, f"--expect={folder}/out.safetensors")
                outcomes[case.name] = result.stderr if result.returncode else ""
            except Exception as problem:
                outcomes[case.name] = str(problem)
        return outcomes


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--target", choices=TARGETS, default="oracle")
    parser.add_argument("--types", default="f32,f16,bf16")
    parser.add_argument("--filter", default="", help="regular expression over FILE.FUNCTION")
    parser.add_argument("--mcpu", default="native", help="processor to compile for, which this machine must be able to stand in for")
    parser.add_argument("--kernels-for", metavar="CPU", help="form kernels with the vectors of another processor, then compile them for --mcpu")
    parser.add_argument("--assemble", metavar="ARCHS", default="sm_80,sm_90,sm_100", help="for gpu-on-cpu: what ptxas assembles the kernels for")
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args()
    import mpt
    mpt.use_build(tool().parents[1])
    skips, passed, failed, skipped = read_skips(), 0, 0, 0
    for kind in options.types.split(","):
        for file, group in cases(kind).items():
            group = [case for case in group if re.search(options.filter, case.name)]
            wanted = [case for case in group if (options.target, case.name, kind) not in skips
                      and (options.target, case.name, "*") not in skips]
            skipped += len(group) - len(wanted)
            outcomes = run_module(options, wanted, kind) if wanted else {}
            for name, error in outcomes.items():
                passed, failed = passed + (not error), failed + bool(error)
                if error:
                    print(f"FAIL {name} {kind}: {error.strip()}")
    print(f"{options.target}: {passed} passed, {failed} failed, {skipped} skipped"
          + "".join(f", {count} kernels assembled for {arch}" for arch, count in assembled.items()))
    return 1 if failed or not passed else 0


if __name__ == "__main__":
    sys.exit(main())
