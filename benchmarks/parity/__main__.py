# SPDX-License-Identifier: Apache-2.0
"""Trains the same networks in FP32 and in each policy, over several seeds, and prints one table of the results.

  python benchmarks/parity [--policies a,b] [--tasks lenet,gpt] [--seeds N] [--steps-scale F] [--out DIR] [--json FILE]
                           [--results FILE [--any-build]]
  python benchmarks/parity --sums=sm_90 [...]
  python benchmarks/parity --mechanisms [--seeds N]
  python benchmarks/parity --networks [--tasks alexnet,ssd] [--seeds N] [--steps-scale F] [--results FILE]

The second form takes the sums of a Tensor Core in GEMMs of 8- and 16-bit operands (ninja tensor-core-gemm; names as of mpt-run --as).
The third trains with and without each mechanism (loss scale, ...) and shows the results lost without it. The fourth trains the
networks of the papers on mixed precision in FP32, by their recipe, and with a mechanism of it off; the status is 1 where a recipe
does not reach FP32's result.

A policy has reached FP32's result when the mean over the seeds is within 0.5 points of accuracy, or 1 % of the loss. The
status is 1 where one has not. Tasks whose seeds differ much run more of them than --seeds asks for, in every policy.
Policies are names of built-in ones or paths of policy files, with options as in amp-bf16+saved=f8+slots=i8. Data: scikit-learn's
digits and the text of the Python standard library's own sources. With --results each run is written down when it ends, and runs
that are there are not repeated (results.py says which).
"""
from __future__ import annotations

import argparse
import ctypes
import json
import os
import pathlib
import statistics
import sys
import time

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))
import fidelity  # noqa: E402
import mechanisms  # noqa: E402
import policies as builtin  # noqa: E402
import tasks as parity_tasks  # noqa: E402
from mpt._native import find_runtime  # noqa: E402
from results import Results, Row, build  # noqa: E402

POLICIES = ",".join(name for name in builtin.NAMES if name != "fp32")


def print_table(head, rows) -> None:
    widths = [max(len(row[i]) for row in [head] + rows) for i in range(len(head))]
    for row in [head, ["-" * w for w in widths]] + rows:
        print("| " + " | ".join(cell.ljust(w) for cell, w in zip(row, widths)) + " |", flush=True)


def unit(task, value: float) -> str:
    return f"{value:.2f} %" if task.measure == "accuracy" else f"{value:.4f}"


def compare(task, policy: str, runs, reference):
    """A table row, and whether the policy stays within the limit. Better than FP32 is within it."""
    mean, wanted = (statistics.mean(run.value for run in side) for side in (runs, reference))
    worse = wanted - mean if task.measure == "accuracy" else 100.0 * (mean / wanted - 1.0)
    difference = f"{mean - wanted:+.2f} points" if task.measure == "accuracy" else f"{worse:+.2f} %"
    fine = worse <= task.limit
    row = [task.name, policy, ", ".join(unit(task, run.value) for run in runs), unit(task, mean),
           "" if policy == "fp32" else difference, str(sum(run.skipped for run in runs)), f"{runs[-1].scale:g}",
           "" if policy == "fp32" else "yes" if fine else "NO"]
    return row, fine


def tensor_core(name: str):
    """The preloaded library that computes GEMMs with this Tensor Core's sums; without it the program starts itself again with it."""
    path = pathlib.Path(find_runtime()).parent / "libtensor-core-gemm.so"
    if not path.exists():
        sys.exit(f"parity: expected {path}: ninja -C {path.parent.parent} tensor-core-gemm")
    if str(path) not in os.environ.get("LD_PRELOAD", ""):
        os.execve(sys.executable, [sys.executable, *sys.argv], {**os.environ, "LD_PRELOAD": str(path)})
    library = ctypes.CDLL(path)
    library.tensor_core_gemms.restype = library.tensor_core_check.restype = ctypes.c_int64
    if not library.tensor_core_select(name.encode()):
        sys.exit(f"parity: expected a Tensor Core as mpt-run --as has it, got '{name}'")
    if different := library.tensor_core_check(ctypes.c_int64(20000)):
        sys.exit(f"parity: {different} of 20000 dot products differ from lib/Support/TensorCores")
    return library


def train(results: Results, task, folder: str, policy: str, seed: int, steps: int, sums: str) -> Row:
    step = task.fingerprint(folder, policy, seed) + (f" with sums of {sums}" if sums else "")
    if known := results.find(task.name, policy, seed, steps, step):
        return known
    start = time.process_time()
    run = task.run(folder, policy, seed, steps)
    row = Row(task.name, policy, seed, steps, step, build(), run.value, run.skipped, run.scale, time.process_time() - start)
    parity_tasks.progress("")
    print(f"{task.name}, {policy}, seed {seed}: {unit(task, row.value)} ({row.cpu_seconds:.0f} s)", file=sys.stderr, flush=True)
    return results.add(row)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--policies", default=POLICIES, help="compared with fp32")
    parser.add_argument("--tasks", default="", help="parts of names of tasks (or mechanisms); all by default")
    parser.add_argument("--sums", default="", help="a Tensor Core: GEMMs add up as it does")
    parser.add_argument("--mechanisms", action="store_true")
    parser.add_argument("--networks", action="store_true")
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--steps-scale", type=float, default=1.0, help="train this many times as long")
    parser.add_argument("--out", default="build/parity")
    parser.add_argument("--json", default="")
    parser.add_argument("--results", default="", help="file of the runs so far, a line each")
    parser.add_argument("--any-build", action="store_true", help="take runs of other builds whose rewritten step is the same")
    a = parser.parse_args()
    os.makedirs(a.out, exist_ok=True)
    gemms = tensor_core(a.sums) if a.sums else None
    if a.mechanisms:
        return 0 if mechanisms.report(a.out, a.seeds, a.tasks, print_table) else 1
    results, policies = Results(a.results, a.any_build), ["fp32", *a.policies.split(",")]
    if a.networks:
        return 0 if fidelity.report(results, a.out, a.seeds, a.tasks, a.steps_scale, print_table, unit) else 1
    tasks = [task for task in [*parity_tasks.TASKS, *fidelity.TASKS]
             if not a.tasks or any(part.lower() in task.name.lower() for part in a.tasks.split(","))]
    runs = {}
    seeds = {task.name: max(a.seeds, task.seeds) for task in tasks}
    for seed in range(max(seeds.values(), default=0)):  # outermost: a failure shows early, in every task
        for task in tasks:
            for policy in policies if seed < seeds[task.name] else []:
                steps = max(1, round(task.steps * a.steps_scale))
                runs.setdefault((task.name, policy), []).append(train(results, task, a.out, policy, seed, steps, a.sums))
    rows, summary, fine = [], [], True
    for task in tasks:
        for policy in policies:
            done = runs[task.name, policy]
            row, within = compare(task, policy, done, runs[task.name, "fp32"])
            rows.append(row)
            fine &= within
            summary.append({"task": task.name, "policy": policy, "values": [run.value for run in done], "within": within,
                            "steps": done[0].steps, "skipped": [run.skipped for run in done], "scale": done[-1].scale,
                            "builds": sorted({run.build for run in done}), "cpu_seconds": sum(run.cpu_seconds for run in done)})
    print_table(["task", "policy", "held out, by seed", "mean", "to fp32", "skipped", "last scale", "reached"], rows)
    builds = {run.build for done in runs.values() for run in done}
    if builds != {build()}:
        print(f"(runs of {len(builds)} builds)")
    if gemms:
        print(f"({gemms.tensor_core_gemms():,} GEMMs with the sums of {a.sums})")
    if a.json:
        pathlib.Path(a.json).write_text(json.dumps(summary, indent=1))
    return 0 if fine else 1


if __name__ == "__main__":
    sys.exit(main())
