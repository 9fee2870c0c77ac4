#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Estimates a step's time on a GPU from its instructions, bytes and floating-point operations: gpu-estimate.py MODEL [--policy P] [--bind N=4]

Nothing of this is measured. A kernel takes the longer of its bytes' time and its busiest pipe's (sass-budget.py), and the pipe's time grows where the
last wave of blocks is not full. A library call takes the longer of its bytes' time and its operations at a share of the peak, which is an
assumption and an option; the last column has half of it. Each launch adds its cost inside a CUDA graph.
"""
from __future__ import annotations

import argparse
import importlib.util
import math
import os
import pathlib
import re
import sys
import tempfile

ROOT = pathlib.Path(__file__).resolve().parent.parent
_spec = importlib.util.spec_from_file_location("sass_budget", ROOT / "scripts" / "sass-budget.py")
budget = sys.modules["sass_budget"] = importlib.util.module_from_spec(_spec)
_spec.loader.exec_module(budget)

# Dense operations a second of an H100 or H200 SXM by the type of the operands (NVIDIA's data sheets, without sparsity). FP32 is not TF32.
PEAK = {"f8E4M3FN": 1979e12, "f8E5M2": 1979e12, "f16": 989e12, "bf16": 989e12, "f32": 67e12, "f64": 67e12}
LAUNCH = 1.5e-6  # of a node of a CUDA graph


def extents(memref: str) -> list[int]:
    return [int(n) for n in re.match(r"memref<((?:\d+x)*)", memref)[1].split("x")[:-1]]


def element(memref: str) -> str:
    return re.match(r"memref<(?:\d+x)*(\w+)", memref)[1]


def operations(kind: str, types: list[str]) -> float:
    """Floating-point operations of a call with operands and results of these types."""
    shapes = [extents(t) for t in types]
    if kind == "gemm":  # a, b, ..., result
        return 2.0 * math.prod(shapes[-1]) * shapes[0][-1]
    if kind == "conv":  # x, w, y, whichever of them is the result
        return 2.0 * math.prod(shapes[2]) * math.prod(shapes[1][1:])
    queries, keys = shapes[0], shapes[1]
    products = 2 if kind == "attention" else 5
    return products * 2.0 * math.prod(queries) * keys[-2]


def calls_of(step: str):
    """Each library call of a function: its kind, operations, operands' type and bytes."""
    for line in step.splitlines():
        if call := re.match(r"\s+rt\.(gemm|conv|attention|attention_gradient)\b", line):
            tail = line[line.rindex("} : ") + 4:] if "} : " in line else line[line.rindex(" : ") + 3:]
            types = re.findall(r"memref<[^>]*>+", tail)
            flops = operations(call[1], types)
            if "causal" in line:
                flops /= 2
            yield call[1], flops, element(types[0]), sum(budget.bytes_of(t)[1] for t in types)


def launches_of(step: str) -> list[str]:
    return re.findall(r"rt\.launch @(\w+)\(", step)


def main() -> int:
    parse = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parse.add_argument("model", type=pathlib.Path)
    budget.add_program_options(parse)
    parse.add_argument("--share", action="append", default=[], metavar="KIND=X", help="of the peak: gemm (0.7), conv (0.55), attention (0.5), attention_gradient (0.45)")
    a = parse.parse_args()
    share = {"gemm": 0.7, "conv": 0.55, "attention": 0.5, "attention_gradient": 0.45} | {k: float(v) for k, v in (text.split("=") for text in a.share)}
    device = budget.device_of(a)
    if missing := budget.missing_tools():
        print(missing)
        return 77
    with tempfile.TemporaryDirectory() as scratch:
        text, kernels = budget.assembled(a, pathlib.Path(scratch))
    step = re.search(r"^  func\.func @step\b.*?^  }$", text, re.M | re.S)[0]
    named: dict[str, list] = {}
    for kernel in kernels:  # a launch's further kernels have its name and a number
        named.setdefault(re.sub(r"_\d+$", "", kernel.name), []).append(budget.seconds_of(kernel, budget.count(kernel, a.arch), device))
    rows: dict[str, list[float]] = {}

    def add(kind: str, count: int, *seconds: float) -> None:
        row = rows.setdefault(kind, [0, 0.0, 0.0, 0.0])
        for i, value in enumerate((count, *seconds)):
            row[i] += value

    for name in launches_of(step):
        own, by_bytes = (sum(part) for part in zip(*named[name]))
        add("own kernels", len(named[name]), by_bytes, own, own)
    for kind, flops, type_, moved in calls_of(step):
        by_bytes, at_peak = moved / device.bytes_a_second, flops / PEAK[type_]
        add(f"{kind} {type_}", 1, by_bytes, max(by_bytes, at_peak / share[kind]), max(by_bytes, 2 * at_peak / share[kind]))
    launches = sum(int(row[0]) for row in rows.values())
    rows["launches"] = [launches, 0.0, launches * LAUNCH, launches * LAUNCH]
    total = [sum(row[i] for row in rows.values()) for i in (1, 2, 3)]
    print("| kind | launches | ms by bytes alone | ms | ms at half the share |\n|---|---|---|---|---|")
    for kind, (count, *seconds) in rows.items():
        print(f"| {kind} | {count} | " + " | ".join(f"{value * 1e3:.2f}" for value in seconds) + " |")
    print(f"| **{a.model.stem}, {a.policy}, {a.device or budget.USUAL[a.arch]}** | | " + " | ".join(f"**{value * 1e3:.1f}**" for value in total) + " |")
    return 0


if __name__ == "__main__":
    sys.exit(main())
