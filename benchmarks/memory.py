# SPDX-License-Identifier: Apache-2.0
"""Measures the memory of training steps against their plan and against PyTorch eager FP32, and prints one table.

  memory.py [--models a,b] [--policies fp32,amp-f16,amp-bf16] [--threads N] [--flags "--memory-budget=..."] [--no-eager]

plan: state (weights, masters, optimizer state) and arena of the step, as --report=memory counts them. growth: how far the peak of the
resident set (VmHWM) of a fresh process rises from before the trainer is made to the end of the third step; the code of the
runtime and the inputs are in memory before. eager: the same for PyTorch FP32, from before the module is built, gradients freed
between steps (set_to_none). saved: bytes of activations alive where the backward pass begins. Each figure comes from a process
of its own; compilation is yet another. Needs torch and onnx beside mpt; --python names an interpreter that has them.
"""
from __future__ import annotations

import argparse
import ctypes
import json
import os
import subprocess
import sys
import tempfile

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
    losses = [trainer.step(feeds).loss for _ in range(STEPS)]
    return {"growth": status("VmHWM") - base, "losses": losses}


def child_eager(model: str, threads: int) -> dict:
    import torch
    import models
    torch.set_num_threads(threads)
    base = baseline()
    case = models.build(model)
    name, *settings = case.optimizer.split(",")
    settings = {k.replace("-", "_"): float(v) for k, v in (s.split("=") for s in settings)}
    module = case.module.train()
    optimizer = {"sgd": torch.optim.SGD, "adamw": torch.optim.AdamW}[name](module.parameters(), **settings)
    losses = []
    for _ in range(STEPS):
        optimizer.zero_grad(set_to_none=True)
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


def compile_model(folder: str, policy: str, flags: list) -> tuple:
    """The library's folder and the memory report of its step and state."""
    from mpt import _native
    library, report = os.path.join(folder, policy), os.path.join(folder, policy + ".json")
    with open(os.path.join(folder, "optimizer")) as f:
        optimizer = f.read()
    subprocess.run([_native.find_compiler(), os.path.join(folder, "model.onnx"), "-o", library, "--loss=none", "--quiet",
                    f"--optimizer={optimizer}", f"--policy={policy}", f"--report=memory={report}", *flags], check=True)
    with open(report) as f:
        return library, json.load(f)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--models", default=MODELS)
    parser.add_argument("--policies", default="fp32,amp-f16,amp-bf16")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--flags", default="", help="further flags of mpt-opt")
    parser.add_argument("--folder", default=os.path.join(tempfile.gettempdir(), "mpt-benchmarks"), help="where models are kept")
    parser.add_argument("--python", default=sys.executable, help="interpreter with torch")
    parser.add_argument("--no-eager", action="store_true")
    parser.add_argument("--json", help="also write the figures to this file")
    parser.add_argument("--child", nargs=argparse.REMAINDER, help=argparse.SUPPRESS)
    a = parser.parse_args()
    if a.child:
        kind, *words, threads = a.child
        print(json.dumps({"mpt": child_mpt, "eager": child_eager}[kind](*words, int(threads))))
        return 0
    records = []
    mib = lambda n: f"{n / 2**20:.1f}"
    print("| model | policy | state MiB | arena MiB | plan MiB | growth MiB | growth : plan | x eager fp32 | saved MiB | saved : fp32 |")
    print("|---|---|---|---|---|---|---|---|---|---|")
    for model in a.models.split(","):
        folder = os.path.join(a.folder, model)
        if not os.path.exists(os.path.join(folder, "model.onnx")):
            subprocess.run([a.python, os.path.join(HERE, "export.py"), model, folder], check=True, stdout=subprocess.DEVNULL)
        eager = None if a.no_eager else run_child(a.python, "eager", model, a.threads)
        if eager:
            print(f"| {model} | eager fp32 | | | | {mib(eager['growth'])} | | 1.00 | | |", flush=True)
            records.append({"model": model, "policy": "eager", **eager})
        wide = None
        for policy in a.policies.split(","):
            library, report = compile_model(folder, policy, a.flags.split())
            step = report["functions"]["step"]
            state = sum(report["state"].values())
            plan, saved = state + step["arena"], step["saved"]
            wide = saved if policy == "fp32" else wide
            ours = run_child(sys.executable, "mpt", folder, library, a.threads)
            share = f"{ours['growth'] / eager['growth']:.2f}" if eager else ""
            print(f"| {model} | {policy} | {mib(state)} | {mib(step['arena'])} | {mib(plan)} | {mib(ours['growth'])} | "
                  f"{ours['growth'] / plan:.2f} | {share} | {mib(saved)} | {saved / wide if wide else 0:.2f} |", flush=True)
            records.append({"model": model, "policy": policy, "state": state, "arena": step["arena"], "saved": saved, **ours})
    if a.json:
        with open(a.json, "w") as f:
            json.dump(records, f, indent=1)
    return 0


if __name__ == "__main__":
    sys.exit(main())
