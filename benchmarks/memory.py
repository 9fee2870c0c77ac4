# SPDX-License-Identifier: Apache-2.0
"""Measures the memory of training steps against their plan and against PyTorch, and prints one table.

  memory.py [--models a,b] [--policies fp32,amp-f16+slots=i8,...] [--threads N] [--flags "--memory-budget=..."]
            [--peers eager,autocast,adamw8bit] [--eager MIB]
  memory.py --sweep [--models a,b] [--policies amp-f16] [--shares 1,0.9,...]

A policy may have options of the compiler, as amp-f16+slots=i8+saved=f8. The second form compiles each model under shares of its peak as
--memory-budget, all rungs allowed, down to the least that the compiler names, and times the steps.

plan: state (weights, masters, optimizer state) and arena of the step, as --report=memory counts them. growth: how far the peak of the
resident set (VmHWM) of a fresh process rises from before the trainer is made to the end of the third step; the code of the
runtime and the inputs are in memory before. memory: trainer.memory() without inputs, beside the plan. eager: the growth of PyTorch FP32,
from before the module is built, gradients freed between steps (set_to_none); autocast: its forward pass in BF16; adamw8bit: the same
with torchao's optimizer. --eager gives FP32's growth where it was measured before. saved: bytes of activations alive where the backward pass begins. Each figure comes from a process
of its own; compilation is yet another. Needs torch and onnx beside mpt; --python names an interpreter that has them.
"""
from __future__ import annotations

import argparse
import ctypes
import json
import os
import re
import subprocess
import sys
import tempfile
import time

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, HERE)
MODELS = "mlp,resnet18,resnet50,bert,gpt2"
STEPS = 3


def status(field: str) -> int:
    with open("/proc/self/status") as f:
        return next(int(line.split()[1]) * 1024 for line in f if line.startswith(field + ":"))


def baseline() -> int:
    """Reads in the code of all libraries that are loaded, makes VmHWM the present size, and returns that."""
    populate_read = 22  # MADV_POPULATE_READ; older kernels refuse it, and count pages of code as growth
    libc = ctypes.CDLL(None)
    with open("/proc/self/maps") as f:
        mappings = [line.split() for line in f]
    for words in mappings:
        if len(words) == 6 and words[5].startswith("/") and words[1].startswith("r"):
            start, end = (int(word, 16) for word in words[0].split("-"))
            libc.madvise(ctypes.c_void_p(start), ctypes.c_size_t(end - start), populate_read)
    with open("/proc/self/clear_refs", "w") as f:
        f.write("5")
    return status("VmRSS")


def child_mpt(folder: str, library: str, threads: int) -> dict:
    import numpy as np
    import mpt
    from mpt import _native
    _native.runtime_of(library)
    feeds = dict(np.load(os.path.join(folder, "inputs.npz")))
    base = baseline()
    trainer = mpt.Trainer(library, threads=threads)
    losses, seconds = [], []
    for _ in range(STEPS):
        start = time.process_time()
        losses.append(trainer.step(feeds).loss)
        seconds.append(time.process_time() - start)
    memory = trainer.memory()
    return {"growth": status("VmHWM") - base, "losses": losses, "cpu_seconds": min(seconds),
            "memory": memory["peak_bytes"] - memory["staging_bytes"]}


def child_torch(peer: str, model: str, threads: int) -> dict:
    import torch
    import models
    if peer == "adamw8bit":
        from torchao.optim import AdamW8bit
    torch.set_num_threads(threads)
    base = baseline()
    case = models.build(model)
    name, *settings = case.optimizer.split(",")
    settings = {k.replace("-", "_"): float(v) for k, v in (s.split("=") for s in settings)}
    module = case.module.train()
    optimizer = AdamW8bit if peer == "adamw8bit" else {"sgd": torch.optim.SGD, "adamw": torch.optim.AdamW}[name]
    optimizer, losses = optimizer(module.parameters(), **settings), []
    for _ in range(STEPS):
        optimizer.zero_grad(set_to_none=True)
        with torch.autocast("cpu", torch.bfloat16, enabled=peer != "eager"):
            loss = module(*case.inputs.values())
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    return {"growth": status("VmHWM") - base, "losses": losses}


def run_child(python: str, *words) -> dict:
    threads = str(words[-1])
    result = subprocess.run([python, os.path.abspath(__file__), "--child", *map(str, words)], check=True, text=True,
                            stdout=subprocess.PIPE, env=dict(os.environ, OMP_NUM_THREADS=threads))
    return json.loads(result.stdout.splitlines()[-1])


def flags_of(policy: str) -> list:
    name, *options = policy.split("+")
    return [f"--policy={name}", *("--" + option for option in options)]


def compiler(folder: str, policy: str, flags: list) -> list:
    from mpt import _native
    with open(os.path.join(folder, "optimizer")) as f:
        optimizer = f.read()
    return [_native.find_compiler(), os.path.join(folder, "model.onnx"), "--loss=none", "--quiet", f"--optimizer={optimizer}",
            *flags_of(policy), *flags]


def compile_model(folder: str, policy: str, flags: list) -> tuple:
    """The library's folder and its memory report."""
    library, report = os.path.join(folder, policy), os.path.join(folder, policy + ".json")
    subprocess.run([*compiler(folder, policy, flags), "-o", library, f"--report=memory={report}"], check=True)
    with open(report) as f:
        return library, json.load(f)


def least(folder: str, policy: str, flags: list) -> int:
    """Bytes of the lowest rung, as the compiler names them where a budget cannot be met."""
    done = subprocess.run([*compiler(folder, policy, flags), "--memory-budget=1,lossy", "--dry-run"], stderr=subprocess.PIPE, text=True)
    return int(re.search(r"--memory-budget\), got (\d+) of", done.stderr)[1])


def error_of(rung: str) -> str:
    """The bound of docs/memory.md#a-budget."""
    bounds = [bound for words, bound in (("activations", "2^-4 of activations read backward"), ("in bf16", "2^-7 of states"),
                                         ("in i8", "nearest of 256 values of states"), ("in f8", "2^-4 of states")) if words in rung]
    return "; ".join(bounds) or "none"


def sweep(a, folder: str, model: str, policy: str, mib) -> None:
    flags = a.flags.split()
    whole = max(f["peak"] for name, f in compile_model(folder, policy, [*flags, "--dry-run"])[1]["functions"].items() if name != "gradients")
    lowest = least(folder, policy, flags)
    budgets = [int(whole * float(share)) for share in a.shares.split(",")]
    first = None
    for budget in [*(budget for budget in budgets if budget > lowest), lowest]:
        library, report = compile_model(folder, policy, [*flags, f"--memory-budget={budget},lossy"])
        rung = next(row for row in report["budget"]["rungs"] if row["taken"])
        ours = run_child(sys.executable, "mpt", folder, library, a.threads)
        first = first or ours
        step = report["functions"]["step"]
        print(f"| {model} | {policy} | {budget / whole:.2f} | {mib(budget)} | {mib(rung['peak'])} | {mib(ours['growth'])} | {rung['rung']} | "
              f"{rung['time']:.2f} | {ours['cpu_seconds'] / first['cpu_seconds']:.2f} | {error_of(rung['rung'])} |", flush=True)
        assert step["peak"] <= budget


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--models", default=MODELS)
    parser.add_argument("--policies", default="fp32,amp-f16,amp-bf16")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--flags", default="", help="further flags of mpt-opt")
    parser.add_argument("--folder", default=os.path.join(tempfile.gettempdir(), "mpt-benchmarks"), help="where models are kept")
    parser.add_argument("--python", default=sys.executable, help="interpreter with torch")
    parser.add_argument("--peers", default="eager", help="of PyTorch: eager, autocast, adamw8bit, or none")
    parser.add_argument("--eager", type=float, help="MiB of PyTorch FP32, measured before")
    parser.add_argument("--sweep", action="store_true", help="over --memory-budget")
    parser.add_argument("--shares", default="1,0.9,0.8,0.7,0.6,0.5,0.4")
    parser.add_argument("--json", help="also write the figures to this file")
    parser.add_argument("--child", nargs=argparse.REMAINDER, help=argparse.SUPPRESS)
    a = parser.parse_args()
    if a.child:
        kind, *words, threads = a.child
        print(json.dumps({"mpt": child_mpt, "torch": child_torch}[kind](*words, int(threads))))
        return 0
    records = []
    mib = lambda n: f"{n / 2**20:.1f}"
    head = "model | policy | state MiB | arena MiB | plan MiB | growth MiB | growth : plan | memory : plan | x eager fp32 | saved MiB | saved : fp32"
    if a.sweep:
        head = "model | policy | share | budget MiB | planned MiB | growth MiB | rungs | modelled time | time | error"
    print(f"| {head} |\n|" + "---|" * len(head.split("|")))
    for model in a.models.split(","):
        folder = os.path.join(a.folder, model)
        if not os.path.exists(os.path.join(folder, "model.onnx")):
            subprocess.run([a.python, os.path.join(HERE, "export.py"), model, folder], check=True, stdout=subprocess.DEVNULL)
        if a.sweep:
            for policy in a.policies.split(","):
                sweep(a, folder, model, policy, mib)
            continue
        eager = a.eager * 2**20 if a.eager else None
        for peer in a.peers.split(",") if a.peers != "none" else []:
            found = run_child(a.python, "torch", peer, model, a.threads)
            eager = found["growth"] if peer == "eager" else eager
            print(f"| {model} | PyTorch {peer} | | | | {mib(found['growth'])} | | | {found['growth'] / eager if eager else 0:.2f} | | |", flush=True)
            records.append({"model": model, "policy": peer, **found})
        wide = None
        for policy in a.policies.split(","):
            library, report = compile_model(folder, policy, a.flags.split())
            step = report["functions"]["step"]
            state = sum(report["state"].values())
            plan, saved = state + step["arena"], step["saved"]
            wide = saved if policy == "fp32" else wide
            ours = run_child(sys.executable, "mpt", folder, library, a.threads)
            share = f"{ours['growth'] / eager:.2f}" if eager else ""
            print(f"| {model} | {policy} | {mib(state)} | {mib(step['arena'])} | {mib(plan)} | {mib(ours['growth'])} | "
                  f"{ours['growth'] / plan:.2f} | {ours['memory'] / plan:.2f} | {share} | {mib(saved)} | {saved / wide if wide else 0:.2f} |",
                  flush=True)
            records.append({"model": model, "policy": policy, "state": state, "arena": step["arena"], **{**ours, "saved": saved}})
    if a.json:
        with open(a.json, "w") as f:
            json.dump(records, f, indent=1)
    return 0


if __name__ == "__main__":
    sys.exit(main())
