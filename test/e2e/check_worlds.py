#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Digits and byte GPT on 1, 2 and 4 processes, over TCP and both implementations of MPI: are the state files the same bytes?

    check_worlds.py OUT [--steps 100] [--models digits,gpt] [--policies a,b] [--ways tcp-2,mpich-4] [--divided] [--markdown FILE]

Each model is compiled for four replicas; the GPT has dropout, and steps with an infinity are planted into the digits. Prints a
row a model and policy: whether each way of running it gave the bytes of one process, losses, and bytes sent a step. With --divided
several processes divide masters and optimizer state, and the one that they are compared with does not.
"""
import argparse
import hashlib
import json
import os
import pathlib
import subprocess
import sys

ROOT = pathlib.Path(__file__).resolve().parents[2]
for folder in ("test/python", "examples/quickstart", "python"):
    sys.path.insert(0, str(ROOT / folder))

import models
import mpt
from world_processes import clean_environment, free_port, run_mpi

POLICIES = "fp32,amp-f16,amp-bf16,als-f16,fp8-hybrid"
WAYS = [("tcp", 2), ("tcp", 4), ("openmpi", 2), ("openmpi", 4), ("mpich", 2), ("mpich", 4)]
SCRIPT = str(ROOT / "test/python/world_training.py")


def compile_all(out: pathlib.Path, names: list[str], policies: list[str], divided: bool) -> list[dict]:
    """The runs that compile; the others are named."""
    digits = models.digits_cnn(str(out / "digits.onnx"), 16)
    gpt = models.byte_gpt(str(out / "gpt.onnx"), 2, context=32, width=64, dropout=0.1)
    runs = []
    for name, model, below, bad in (("digits", digits, {"labels": 10}, True), ("gpt", gpt, {"ids": 256, "labels": 256}, False)):
        for policy in policies if name in names else []:
            try:
                library = mpt.compile(model, loss="softmax-cross-entropy", optimizer="adamw,lr=1e-3", policy=policy, replicas=4,
                                      shard_optimizer=divided or None, out=out / f"{name}-{policy}{'-divided' if divided else ''}")
            except mpt.CompileError as error:
                print(f"{name}, {policy}: {str(error).splitlines()[0]}", flush=True)
                continue
            scaled = policy in ("amp-f16", "als-f16", "fp8-hybrid")
            runs.append({"name": f"{name}-{policy}", "library": str(library), "below": below, "bad": bad and scaled})
    return runs


def train(out: pathlib.Path, runs: list[dict], steps: int, transport: str, size: int) -> dict:
    """Rank 0's results, and each state's digest."""
    out = out / f"{transport}-{size}"
    out.mkdir(exist_ok=True)
    world = {} if transport in ("openmpi", "mpich") else {
        "size": size, "address": "127.0.0.1", "port": free_port(), "token": "check", "start_timeout": 300}
    spec = out / "spec.json"
    spec.write_text(json.dumps({"runs": runs, "steps": steps, "out": str(out), "world": world}))
    environment = clean_environment(PYTHONPATH=os.pathsep.join(path for path in sys.path if path))
    if world:
        started = [subprocess.Popen([sys.executable, SCRIPT, str(spec), str(rank)], env=environment) for rank in range(size)]
        statuses = [process.wait() for process in started]
    else:
        done = run_mpi(transport, size, sys.executable, SCRIPT, str(spec), timeout=7200, environment=environment)
        statuses = [done.returncode]
        print(done.stderr, file=sys.stderr, end="")
    if any(statuses):
        raise SystemExit(f"check_worlds: {transport} with {size} processes ended with {statuses}")
    ranks = [json.loads((out / f"{rank}.json").read_text()) for rank in range(size)]
    seen = ranks[0]
    for run in runs:
        name = run["name"]
        assert all(rank[name] == seen[name] for rank in ranks), f"{name}: ranks saw different losses"
        seen[name]["digest"] = hashlib.sha256((out / f"{name}.state").read_bytes()).hexdigest()
    return seen


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("out", type=pathlib.Path)
    parser.add_argument("--steps", type=int, default=100)
    parser.add_argument("--models", default="digits,gpt")
    parser.add_argument("--policies", default=POLICIES)
    parser.add_argument("--ways", default=",".join(f"{transport}-{size}" for transport, size in WAYS))
    parser.add_argument("--divided", action="store_true")
    parser.add_argument("--markdown", type=pathlib.Path)
    a = parser.parse_args()
    out = a.out.resolve()
    out.mkdir(parents=True, exist_ok=True)
    wanted = a.models.split(","), a.policies.split(",")
    ways = [(transport, int(size)) for transport, _, size in (way.partition("-") for way in a.ways.split(","))]
    runs = compile_all(out, *wanted, False)
    alone = train(out, runs, a.steps, "tcp", 1)
    runs = compile_all(out, *wanted, True) if a.divided else runs
    worlds = {way: train(out, runs, a.steps, *way) for way in ways}
    lines = ["| model, policy | " + " | ".join(f"{transport} × {size}" for transport, size in ways) + " | first loss | last loss | skipped |",
             "|---" * (len(ways) + 4) + "|"]
    wrong = 0
    for run in runs:
        name, cells = run["name"], []
        for way in ways:
            same = worlds[way][name] == alone[name]
            wrong += not same
            cells.append("same" if same else "**differs**")
        losses = [float.fromhex(loss) for loss in alone[name]["losses"]]
        cells += [f"{losses[0]:.4f}", f"{losses[-1]:.4f}", str(len(alone[name]["skipped"]))]
        lines.append(f"| {name} | " + " | ".join(cells) + " |")
    print("\n".join(lines))
    if a.markdown:
        a.markdown.write_text("\n".join(lines) + "\n")
    return 1 if wrong or len(runs) < len(wanted[0]) * len(wanted[1]) else 0


if __name__ == "__main__":
    sys.exit(main())
