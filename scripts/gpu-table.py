#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Holds whole training steps to a GPU's demands on their kernels:
gpu-table.py MODEL.onnx[:NAME=EXTENT]... [--policies P] [--archs A] [--results FILE]

Each model is compiled for every policy and architecture. Of each program's step it counts the kernels that spill, the matrices of GEMMs whose rows
are not aligned (--memory-verify-alignment), the kernels of at least --from bytes whose busiest pipe takes longer than their bytes (sass-budget.py),
and, of the ten with the most bytes, the kernels whose waves are less than 0.8 full. --results FILE keeps the figures of each distinct kernel, so that
a run that was cut off goes on. --over lists the kernels over their budget, by the time that they lose. Ends with status 1 where a program fails in
one of the four. A file `optimizer` beside a model is its optimizer; NAME=EXTENT binds a symbol of its shapes.
"""
from __future__ import annotations

import argparse
import dataclasses
import importlib.util
import json
import os
import pathlib
import re
import subprocess
import sys
import tempfile

ROOT = pathlib.Path(__file__).resolve().parent.parent


def script(name: str):
    spec = importlib.util.spec_from_file_location(name.replace("-", "_"), ROOT / "scripts" / f"{name}.py")
    module = sys.modules[spec.name] = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


budget, corpus = script("sass-budget"), script("assemble-corpus")
LARGEST, LEAST_FULL = 10, 0.8


@dataclasses.dataclass
class Facts:
    """Of one kernel on one architecture."""
    schedule: str
    ops: str
    bytes: int
    element_bytes: float
    instructions: float  # an element
    pipe: str
    ratio: float
    seconds: float
    moving: float  # seconds of the bytes alone
    registers: int
    spilled: int
    blocks: int
    full: float

    @property
    def lost(self) -> float:
        return self.seconds - self.moving


def facts_of(kernel, arch: str) -> Facts:
    device = budget.DEVICES[budget.USUAL[arch]]
    counts = budget.count(kernel, arch)
    ratio, pipe = budget.ratio_of(kernel, counts, device)
    seconds, moving = budget.seconds_of(kernel, counts, device)
    blocks, waves = budget.occupancy(kernel, device)
    instructions = counts.pipes["issue"] * kernel.threads * kernel.blocks / kernel.elements
    return Facts(kernel.schedule, kernel.ops, counts.bytes, counts.bytes / kernel.elements, instructions, pipe, ratio, seconds, moving, kernel.registers,
                 kernel.spilled, blocks, budget.full_of(waves))


def measure(opt, arch: str, pieces: list[str]) -> list[Facts]:
    """Of kernels by their texts, in their order."""
    found = []
    with tempfile.TemporaryDirectory() as folder:
        module, ptx = pathlib.Path(folder, "m.mlir"), pathlib.Path(folder, "m.ptx")
        for first in range(0, len(pieces), corpus.BATCH):
            module.write_text(corpus.module_of(pieces[first:first + corpus.BATCH]))
            kernels = budget.kernels_of(module.read_text())
            budget.call(opt, module, f"--lowering-emit-ptx=arch={arch} file={ptx}", "-o", os.devnull)
            budget.disassemble(kernels, ptx, arch)
            found += [facts_of(kernel, arch) for kernel in kernels]
    return found


def unaligned(opt, module) -> int:
    done = subprocess.run([opt, module, "--memory-verify-alignment", "-o", os.devnull], capture_output=True, text=True)
    return done.stderr.count("error: ") or done.returncode


def lower(opt, given: str, policy: str, arch: str, module: pathlib.Path, phase: str = "memory") -> None:
    model, _, bind = given.partition(":")
    own = pathlib.Path(model).parent / "optimizer"
    optimizer = own.read_text().strip() if own.exists() else "adamw,lr=1e-3"
    budget.call(opt, model, f"--policy={policy}", f"--optimizer={optimizer}", "--target=cuda", f"--arch={arch}", f"--to={phase}", "--emit=mlir",
                "--quiet", *([f"--bind={bind}"] if bind else []), "-o", module)


def launches_of(text: str) -> dict[str, int]:
    """How often a step launches each kernel; the further launches of a kernel have its name and a number."""
    counts: dict[str, int] = {}
    for name in re.findall(r"rt\.launch @(\w+)\(", re.search(r"^  func\.func @step\b.*?^  }$", text, re.M | re.S)[0]):
        counts[name] = counts.get(name, 0) + 1
    return counts


def program(opt, model: str, policy: str, archs: list[str], known: dict, save) -> dict[str, dict]:
    """For each architecture: unaligned GEMMs, and the step's kernels as (number of launches, key)."""
    with tempfile.TemporaryDirectory() as folder:
        module = pathlib.Path(folder, "m.mlir")
        lower(opt, model, policy, archs[0], module)
        text = module.read_text()
        wrong, launches, found = unaligned(opt, module), launches_of(text), {}
    named = [(launches.get(re.sub(r"(kernel\d+)_\d+$", r"\1", name), 0), corpus.key_of(piece), piece) for name, piece in corpus.named_kernels(text)]
    for arch in archs:
        missing = {key: piece for _, key, piece in named if f"{arch} {key}" not in known}
        for key, facts in zip(missing, measure(opt, arch, list(missing.values()))):
            known[f"{arch} {key}"] = dataclasses.asdict(facts)
        save()
        found[arch] = {"unaligned": wrong, "kernels": [(count, key) for count, key, _ in named]}
    return found


@dataclasses.dataclass
class Cell:
    """A program on an architecture."""
    kernels: list[tuple[int, Facts]]
    unaligned: int
    least: float

    @property
    def spills(self):
        return [f for _, f in self.kernels if f.spilled]

    @property
    def over(self):
        return sorted(((n, f) for n, f in self.kernels if f.bytes >= self.least and f.ratio > 1), key=lambda row: -row[0] * row[1].lost)

    @property
    def sparse(self):
        """Of the largest kernels, the ones whose waves are not full."""
        largest = sorted((f for _, f in self.kernels), key=lambda f: -f.bytes)[:LARGEST]
        return [f for f in largest if f.full < LEAST_FULL]

    def holds(self) -> bool:
        return not (self.spills or self.unaligned or self.over or self.sparse)

    def text(self) -> str:
        worst = max((f.ratio for _, f in self.over), default=0)
        lost = sum(n * f.lost for n, f in self.over)
        total = sum(n * f.seconds for n, f in self.kernels)
        over = f"{len(self.over)} (to {worst:.2f}, {lost * 1e3:.2f} of {total * 1e3:.1f} ms)" if self.over else "0"
        return f"{len(self.spills)} / {self.unaligned} / {over} / {len(self.sparse)}"


def main() -> int:
    parse = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parse.add_argument("models", nargs="+")
    parse.add_argument("--policies", default="amp-f16,amp-bf16,fp8-hybrid")
    parse.add_argument("--archs", default="sm_80,sm_90,sm_100")
    parse.add_argument("--from", type=float, default=4e6, dest="least", help="bytes from which a kernel is bound by memory")
    parse.add_argument("--over", type=int, default=0, metavar="N", help="lines for each program: kernels over their budget")
    parse.add_argument("--results", type=pathlib.Path)
    parse.add_argument("--build", type=pathlib.Path, default=ROOT / "build" / "release")
    a = parse.parse_args()
    if missing := budget.missing_tools():
        print(missing)
        return 77
    known = json.loads(a.results.read_text()) if a.results and a.results.exists() else {}

    def save() -> None:
        if a.results:
            a.results.write_text(json.dumps(known))

    archs, opt, failed = a.archs.split(","), a.build / "bin" / "mpt-opt", 0
    print("| model | policy | " + " | ".join(f"{arch} ({budget.USUAL[arch]})" for arch in archs) + " |\n" + "|---" * (len(archs) + 2) + "|")
    for model in a.models:
        file = pathlib.Path(model.partition(":")[0])
        name = file.stem if file.stem != "model" else file.parent.name
        for policy in a.policies.split(","):
            cells, listing = [], ""
            # Only whether every architecture has 8-bit GEMMs makes programs differ.
            of = {arch: int(arch.removeprefix("sm_")) >= 89 for arch in archs}
            for eight in sorted(set(of.values())):
                for arch, found in program(opt, model, policy, [arch for arch in archs if of[arch] == eight], known, save).items():
                    step = [(n, Facts(**known[f"{arch} {key}"])) for n, key in found["kernels"] if n]
                    cell = Cell(step, found["unaligned"], a.least)
                    cells.append((archs.index(arch), cell))
                    for n, f in cell.over[:a.over]:
                        listing += (f"    {arch}: {n} x {f.schedule} ({f.ops[:110]}): {f.element_bytes:.1f} bytes, {f.instructions:.1f} instructions an element, "
                                    f"{f.pipe} {f.ratio:.2f}, loses {n * f.lost * 1e3:.3f} ms\n")
                    for f in cell.sparse[:a.over]:
                        listing += f"    {arch}: {f.schedule} ({f.ops[:110]}): waves {f.full:.2f} full\n"
            failed += sum(not cell.holds() for _, cell in cells)
            print(f"| {name} | {policy} | " + " | ".join(cell.text() for _, cell in sorted(cells, key=lambda c: c[0])) + " |\n" + listing, end="", flush=True)
    print(f"\nkernels that spill / unaligned matrices of GEMMs / kernels over their budget / of the {LARGEST} largest, waves less than {LEAST_FULL} full; "
          f"{failed} programs do not hold all four")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
