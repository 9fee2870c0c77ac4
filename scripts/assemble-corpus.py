#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Assembles every distinct kernel of the models in a folder: assemble-corpus.py FOLDER [--policies a,b] [--archs sm_90] [--only REGEX]

Each *.onnx under FOLDER with the loss in its graph (*.loss.onnx where there are any) is compiled for every policy and
architecture as a training step. Kernels that are the same text but for names are assembled once. Prints registers, shared
memory and spills by model and policy; ends with status 1 when a model does not compile or a kernel spills. --results FILE
keeps the results, so that a run that was cut off goes on; --shard I/N takes every N-th model.
"""
from __future__ import annotations

import argparse
import hashlib
import json
import os
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile

ROOT = pathlib.Path(__file__).resolve().parent.parent
POLICIES = "fp32,amp-f16,amp-bf16,als-f16,fp8-e5m2,fp8-hybrid,fp8-current,pure-f16-static"
BATCH = 64  # kernels a run of ptxas


def named_kernels(text: str) -> list[tuple[str, str]]:
    """Name and text of every kernel of a module that is lowered to memory: a function @KERNEL and the globals that it names."""
    names = {name: f"{line}\n" for line, name in re.findall(r'^(  memref\.global "private" [^@\n]*@(\w+) .*)$', text, re.M)}
    aliases = dict(re.findall(r"^(#\w+) = (.*)$", text, re.M))
    found = []
    for name, function in re.findall(r"^  func\.func private @(\w+)(\(.*?^  }$)", text, re.M | re.S):
        if "mpt.grid" not in function:
            continue
        # The printer's aliases and the numbers of tables and shared buffers differ from module to module.
        function = re.sub(r"#\w+\b", lambda m: aliases.get(m[0], m[0]), function)
        used = [own for own in dict.fromkeys(re.findall(r"@(\w+)", function)) if own in names]
        before = ""
        for number, own in enumerate(used):
            function = re.sub(rf"@{own}\b", f"@KERNEL_{number}", function)
            before += re.sub(rf"@{own}\b", f"@KERNEL_{number}", names[own])
        found.append((name, f"{before}  func.func private @KERNEL{function}\n"))
    return found


def key_of(piece: str) -> str:
    return hashlib.sha256(piece.encode()).hexdigest()[:24]


def module_of(pieces) -> str:
    """A module of such kernels, named @k0, @k1 and so on."""
    numbered = [re.sub(r"@KERNEL(?=\W)", f"@k{n}", text).replace("@KERNEL_", f"@t{n}_") for n, text in enumerate(pieces)]
    return "module {\n" + "".join(numbered) + "}\n"


def run(command: list) -> str:
    """The first line of a command's errors, or nothing."""
    done = subprocess.run([str(word) for word in command], capture_output=True, text=True)
    return (done.stderr.strip().splitlines() or [f"status {done.returncode}"])[0] if done.returncode else ""


def assemble(opt, ptxas: str, arch: str, texts: dict[str, str]) -> dict[str, dict]:
    """Registers, shared bytes and spilled bytes of each, or its problem."""
    with tempfile.TemporaryDirectory() as scratch:
        pathlib.Path(scratch, "m.mlir").write_text(module_of(texts.values()))
        problem = run([opt, f"{scratch}/m.mlir", f"--lowering-emit-ptx=arch={arch} file={scratch}/m.ptx", "-o", os.devnull])
        lines, ptx = "", pathlib.Path(scratch, "m.ptx")
        for _ in range(0 if problem else 2):
            done = subprocess.run([ptxas, "-v", f"-arch={arch}", ptx, "-o", "/dev/null"], capture_output=True, text=True)
            lines, problem = done.stderr, f"ptxas: {done.stderr[-2000:]}" if done.returncode else ""
            # As the compiler does (lib/Target/CUDA/Images.cpp): kernels that spill may have more registers.
            spilling = re.findall(r"Function properties for (\w+)\n *\d+ bytes stack frame, (?!0 bytes spill stores, 0 bytes)", lines)
            if problem or not spilling:
                break
            text = ptx.read_text()
            for name in spilling:
                text = re.sub(rf"(\.entry {name}\([^{{]*?)(\n\.minnctapersm \d+)?\n{{", r"\1\n.minnctapersm 1\n{", text, count=1)
            ptx.write_text(text)
    if problem and len(texts) > 1:  # which of them it is
        return {key: found for name, text in texts.items() for key, found in assemble(opt, ptxas, arch, {name: text}).items()}
    if problem:
        return {next(iter(texts)): {"problem": problem}}
    results, current, keys = {}, None, list(texts)
    for line in lines.splitlines():
        if entry := re.search(r"Compiling entry function 'k(\d+)'", line):
            current = results.setdefault(keys[int(entry[1])], {"registers": 0, "shared": 0, "spilled": 0})
        if spill := re.search(r"(\d+) bytes spill stores, (\d+) bytes spill loads", line):
            current["spilled"] = int(spill[1]) + int(spill[2])
        if used := re.search(r"Used (\d+) registers", line):
            current["registers"] = int(used[1])
            shared = re.search(r"(\d+) bytes smem", line)
            current["shared"] = int(shared[1]) if shared else 0
    return results


def lowered(opt, model, policy: str, arch: str, a) -> tuple[str, dict[str, str]]:
    """The problem, and the kernels of one program."""
    with tempfile.TemporaryDirectory() as scratch:
        file = pathlib.Path(scratch, "m.mlir")
        problem = run([opt, model, f"--policy={policy}", f"--optimizer={a.optimizer}", "--target=cuda", f"--arch={arch}", "--to=memory",
                       "--emit=mlir", "--quiet", *(f"--bind={b}" for b in a.bind), "-o", file])
        return problem, {} if problem else {key_of(piece): piece for _, piece in named_kernels(file.read_text())}


def markdown(known: dict, a) -> str:
    """Of every model and policy: kernels of one architecture's program, and over all architectures the most registers and KiB of
    shared memory, and the kernels that spill where there are any."""
    policies, rows = a.policies.split(","), {}
    for program, entry in known["programs"].items():
        name, policy, arch = program.split()
        rows.setdefault(name.removesuffix(".onnx"), {}).setdefault(policy, []).append((entry, [known["kernels"][f"{arch} {k}"] for k in entry["kernels"]]))
    text = "| model | " + " | ".join(policies) + " |\n" + "|---" * (len(policies) + 1) + "|\n"
    for name, row in sorted(rows.items()):
        cells = []
        for policy in policies:
            programs = row.get(policy, [])
            used = [k for _, kernels in programs for k in kernels]
            problem = next((e["problem"] for e, _ in programs if e["problem"]), "") or next((k["problem"] for k in used if "problem" in k), "")
            spills = sum(k.get("spilled", 0) > 0 for k in used)
            cells.append("" if not programs else problem or f"{max(len(k) for _, k in programs)} / {max(k['registers'] for k in used)} / "
                         f"{max(k['shared'] for k in used) / 1024:.1f}" + (f", {spills} spill" if spills else ""))
        text += f"| {name} | " + " | ".join(cells) + " |\n"
    return text


def main() -> int:
    parse = argparse.ArgumentParser()
    parse.add_argument("folder", type=pathlib.Path)
    parse.add_argument("--policies", default=POLICIES)
    parse.add_argument("--archs", default="sm_80,sm_90,sm_100")
    parse.add_argument("--only", default="", help="models whose path matches")
    parse.add_argument("--optimizer", default="adamw,lr=1e-3")
    parse.add_argument("--bind", action="append", default=[], help="as mpt-opt's")
    parse.add_argument("--shard", default="0/1")
    parse.add_argument("--results", type=pathlib.Path)
    parse.add_argument("--markdown", type=pathlib.Path, help="writes the table of models and policies to a file")
    parse.add_argument("--build", type=pathlib.Path, default=ROOT / "build" / "release")
    a = parse.parse_args()
    ptxas = shutil.which("ptxas") or shutil.which("ptxas", path="/usr/local/cuda/bin")
    if not ptxas:
        print("no ptxas: nothing was assembled")
        return 0
    models = sorted(a.folder.rglob("*.onnx"), key=lambda m: (m.stat().st_size, m))
    models = [m for m in models if m.name.endswith(".loss.onnx")] or models
    part, parts = map(int, a.shard.split("/"))
    models = [m for m in models if re.search(a.only, str(m))][part::parts]
    known = json.loads(a.results.read_text()) if a.results and a.results.exists() else {"kernels": {}, "programs": {}}
    opt, failed = a.build / "bin" / "mpt-opt", 0

    def describe(program: str) -> bool:
        entry = known["programs"][program]
        used = [known["kernels"][f"{program.split()[-1]} {k}"] for k in entry["kernels"]]
        problem = entry["problem"] or next((k["problem"] for k in used if "problem" in k), "")
        spills = [] if problem else [k["spilled"] for k in used if k["spilled"]]
        print(f"{program}: " + (problem or f"{len(used)} kernels, at most {max(k['registers'] for k in used)} registers, "
              f"{max(k['shared'] for k in used)} bytes shared, {len(spills)} spill"), flush=True)
        return not problem and not spills

    for model in models:
        name = model.relative_to(a.folder)
        for policy in a.policies.split(","):
            # Only whether every architecture has 8-bit products makes programs differ.
            for eight in (False, True):
                archs = [arch for arch in a.archs.split(",") if (int(arch.removeprefix("sm_")) >= 89) == eight]
                new = [arch for arch in archs if f"{name} {policy} {arch}" not in known["programs"]]
                problem, texts = lowered(opt, model, policy, new[0], a) if new else ("", {})
                for arch in new:
                    missing = [k for k in texts if f"{arch} {k}" not in known["kernels"]]
                    for first in range(0, len(missing), BATCH):
                        batch = {k: texts[k] for k in missing[first:first + BATCH]}
                        known["kernels"].update({f"{arch} {k}": what for k, what in assemble(opt, ptxas, arch, batch).items()})
                    known["programs"][f"{name} {policy} {arch}"] = {"problem": problem, "kernels": sorted(texts)}
                if new and a.results:
                    a.results.write_text(json.dumps(known))
            for arch in a.archs.split(","):
                failed += not describe(f"{name} {policy} {arch}")
    if a.markdown:
        a.markdown.write_text(markdown(known, a))
    used = [f"{program.split()[-1]} {k}" for program, entry in known["programs"].items() for k in entry["kernels"]]
    distinct = set(used)
    spilling = sum(known["kernels"][k].get("spilled", 0) > 0 for k in distinct)
    print(f"{len(known['programs'])} programs, {len(used)} kernels of which {len(distinct)} are "
          f"distinct, {spilling} spill; {failed} programs failed")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
