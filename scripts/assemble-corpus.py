#!/usr/bin/env python3
"""Assembles every distinct kernel of the models in a folder: assemble-corpus.py FOLDER [--policies a,b] [--archs sm_90] [--only REGEX]

Each *.onnx under FOLDER with the loss in its graph (*.loss.onnx where there are any) is compiled for every policy and
architecture as a training step. Kernels that are the same text but for names are assembled once. Prints registers, shared
memory and spills by model and policy; ends with status 1 when a model does not compile or a kernel spills. --results FILE
keeps what is known, so that a run that was cut off goes on; --shard I/N takes every N-th model.
"""
from __future__ import annotations

import argparse
import collections
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


def kernels(text: str) -> dict[str, str]:
    """{hash: module text} of each entry of a PTX module, with its own names replaced by neutral ones."""
    start = text.index(".visible .entry")
    # Declarations in front of the first entry; comments about shared memory name what the entries declare themselves.
    head, body = text[:start], text[start:]
    directives = "\n".join(re.findall(r"^\.(?:version|target|address_size).*$", head, re.M))
    tables = {name: line for line, name in re.findall(r"^(\.(?:global|const|shared|visible|extern)[^\n;]*?(\w+)\[[^;]*;)$", head, re.M)}
    found = {}
    for piece in re.split(r"(?=^\.visible \.entry)", body, flags=re.M):
        name = re.match(r"\.visible \.entry (\w+)", piece)
        if not name:
            continue
        piece = re.sub(r"^\s*//.*$\n?", "", piece, flags=re.M)
        piece = re.sub(r"\s*//.*$", "", piece, flags=re.M)
        piece = re.sub(rf"\b{name[1]}\b(?!_\d)", "KERNEL", piece)
        piece = re.sub(rf"\b{name[1]}_param", "KERNEL_param", piece)
        piece = re.sub(r"\$L__BB\d+_", "$L__BB0_", piece)
        used = [line for table, line in tables.items() if re.search(rf"\b{table}\b", piece)]
        for number, own in enumerate(dict.fromkeys(re.findall(r"\bmpt_shared_\d+\b", piece))):
            piece = re.sub(rf"\b{own}\b", f"SHARED{number}", piece)
        piece = "\n".join(used + [piece])
        found[hashlib.sha256((directives + piece).encode()).hexdigest()[:24]] = directives + "\n\0" + piece
    return found


def assemble(ptxas: str, arch: str, texts: dict[str, str]) -> dict[str, dict]:
    """Registers, shared bytes and spilled bytes of each."""
    module, names = "", {}
    for number, (key, text) in enumerate(texts.items()):
        directives, piece = text.split("\0", 1)
        module = module or directives
        names[f"k{number}"] = key
        # Tables keep their content but not their name, which another kernel's may have.
        for table in dict.fromkeys(re.findall(r"^\.(?:global|const)[^\n;]*?(\w+)\[", piece, re.M)):
            piece = re.sub(rf"\b{table}\b", f"t{number}_{table}", piece)
        module += re.sub(r"\bKERNEL", f"k{number}", re.sub(r"\bSHARED(\d+)", rf"s{number}_\1", piece)) + "\n"
    with tempfile.NamedTemporaryFile("w", suffix=".ptx") as file:
        file.write(module)
        file.flush()
        done = subprocess.run([ptxas, "-v", f"-arch={arch}", file.name, "-o", "/dev/null"], capture_output=True, text=True)
    if done.returncode:
        raise RuntimeError(f"ptxas: {done.stderr[-2000:]}")
    results, current = {}, None
    for line in done.stderr.splitlines():
        if entry := re.search(r"Compiling entry function '(\w+)'", line):
            current = results.setdefault(names[entry[1]], {"registers": 0, "shared": 0, "spilled": 0})
        if spill := re.search(r"(\d+) bytes spill stores, (\d+) bytes spill loads", line):
            current["spilled"] = int(spill[1]) + int(spill[2])
        if used := re.search(r"Used (\d+) registers", line):
            current["registers"] = int(used[1])
            shared = re.search(r"(\d+) bytes smem", line)
            current["shared"] = int(shared[1]) if shared else 0
    return results


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
    parse.add_argument("--build", type=pathlib.Path, default=ROOT / "build" / "release")
    a = parse.parse_args()
    ptxas = os.environ.get("MPT_PTXAS") or shutil.which("ptxas") or shutil.which("ptxas", path="/usr/local/cuda/bin")
    if not ptxas:
        print("no ptxas: nothing was assembled")
        return 0
    models = sorted(a.folder.rglob("*.onnx"), key=lambda m: (m.stat().st_size, m))
    models = [m for m in models if m.name.endswith(".loss.onnx")] or models
    part, parts = map(int, a.shard.split("/"))
    models = [m for m in models if re.search(a.only, str(m))][part::parts]
    known = json.loads(a.results.read_text()) if a.results and a.results.exists() else {"kernels": {}, "programs": {}}
    opt, failed = a.build / "bin" / "mpt-opt", 0
    for arch in a.archs.split(","):
        for model in models:
            for policy in a.policies.split(","):
                program = f"{model.relative_to(a.folder)} {policy} {arch}"
                if program not in known["programs"]:
                    with tempfile.TemporaryDirectory() as scratch:
                        steps = [[str(model), f"--policy={policy}", f"--optimizer={a.optimizer}", "--target=cuda", f"--arch={arch}",
                                  "--to=memory", "--emit=mlir", "--quiet", *(f"--bind={b}" for b in a.bind), "-o", f"{scratch}/m.mlir"],
                                 [f"{scratch}/m.mlir", f"--lowering-emit-ptx=arch={arch} file={scratch}/m.ptx", "-o", os.devnull]]
                        problem = ""
                        for step in steps:
                            done = subprocess.run([opt, *step], capture_output=True, text=True)
                            if done.returncode and not problem:
                                problem = (done.stderr.strip().splitlines() or [f"status {done.returncode}"])[0]
                        found = {} if problem else kernels(pathlib.Path(f"{scratch}/m.ptx").read_text())
                    if not problem:
                        missing = [k for k in found if k not in known["kernels"]]
                        for first in range(0, len(missing), BATCH):
                            batch = {k: found[k] for k in missing[first:first + BATCH]}
                            known["kernels"].update(assemble(ptxas, arch, batch))
                    known["programs"][program] = {"problem": problem, "kernels": sorted(found)}
                    if a.results:
                        a.results.write_text(json.dumps(known))
                entry = known["programs"][program]
                used = [known["kernels"][k] for k in entry["kernels"]]
                spills = sum(k["spilled"] > 0 for k in used)
                failed += bool(entry["problem"]) or spills > 0
                print(f"{program}: " + (entry["problem"] or f"{len(used)} kernels, at most {max(k['registers'] for k in used)} registers, "
                      f"{max(k['shared'] for k in used)} bytes shared, {spills} spill"), flush=True)
    counts = collections.Counter(known["kernels"][k]["spilled"] > 0 for p in known["programs"].values() for k in set(p["kernels"]))
    print(f"{len(known['programs'])} programs, {len(known['kernels'])} distinct kernels, "
          f"{sum(k['spilled'] > 0 for k in known['kernels'].values())} spill; {failed} programs failed ({sum(counts.values())} kernels in all)")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
