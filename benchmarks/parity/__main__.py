"""Trains the same networks in FP32 and in each policy, over several seeds, and prints one table of the results.

  python benchmarks/parity [--policies a,b] [--tasks lenet,gpt] [--seeds N] [--steps-scale F] [--out DIR] [--json FILE]
  python benchmarks/parity --mechanisms [--seeds N]

The second form trains with and without each mechanism (loss scale, ...) and shows what is lost without it.

A policy has reached FP32's result when the mean over the seeds is within 0.5 points of accuracy, or 1 % of the loss. The
status is 1 where one has not. Policies are names of built-in ones or paths of policy files. Data: scikit-learn's digits and the
text of the Python standard library's own sources.
"""
from __future__ import annotations

import argparse
import json
import os
import pathlib
import statistics
import sys
import time

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))
import mechanisms  # noqa: E402
import tasks as parity_tasks  # noqa: E402


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


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--policies", default="amp-f16,amp-bf16", help="compared with fp32")
    parser.add_argument("--tasks", default="", help="parts of names of tasks (or mechanisms); all by default")
    parser.add_argument("--mechanisms", action="store_true")
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--steps-scale", type=float, default=1.0, help="train this many times as long")
    parser.add_argument("--out", default="build/parity")
    parser.add_argument("--json", default="")
    a = parser.parse_args()
    os.makedirs(a.out, exist_ok=True)
    if a.mechanisms:
        return 0 if mechanisms.report(a.out, a.seeds, a.tasks, print_table) else 1
    rows, results, fine = [], [], True
    for task in parity_tasks.TASKS:
        if a.tasks and not any(part.lower() in task.name.lower() for part in a.tasks.split(",")):
            continue
        steps, reference = max(1, round(task.steps * a.steps_scale)), None
        for policy in ["fp32", *a.policies.split(",")]:
            start = time.process_time()
            runs = [task.train(a.out, policy, seed, steps) for seed in range(a.seeds)]
            reference = reference or runs
            row, within = compare(task, policy, runs, reference)
            rows.append(row)
            fine &= within
            results.append({"task": task.name, "policy": policy, "values": [run.value for run in runs], "within": within,
                            "steps": steps, "skipped": [run.skipped for run in runs], "scale": runs[-1].scale,
                            "cpu_seconds": time.process_time() - start})
            parity_tasks.progress("")
            print(f"{task.name}, {policy}: {row[2]} ({results[-1]['cpu_seconds']:.0f} s)", file=sys.stderr, flush=True)
    print_table(["task", "policy", "held out, by seed", "mean", "to fp32", "skipped", "last scale", "reached"], rows)
    if a.json:
        pathlib.Path(a.json).write_text(json.dumps(results, indent=1))
    return 0 if fine else 1


if __name__ == "__main__":
    sys.exit(main())
