# SPDX-License-Identifier: Apache-2.0
"""Abilities of this machine: driver, libraries, copy bandwidth, GEMMs. Prints one JSON line."""
from __future__ import annotations

import argparse
import ctypes
import json
import os
import subprocess

import trainers


def version_of(path: str, function: str):
    try:
        return int(getattr(ctypes.CDLL(path), function)())
    except (OSError, AttributeError) as problem:
        return str(problem)


def main() -> None:
    parse = argparse.ArgumentParser()
    trainers.add_argument(parse)
    trainers.take(parse.parse_args().option)
    smi = subprocess.run(["nvidia-smi", "--query-gpu=name,driver_version,memory.total,memory.used,clocks.sm,clocks.mem", "--format=csv,noheader"],
                         capture_output=True, text=True) if any(os.access(os.path.join(p, "nvidia-smi"), os.X_OK)
                                                               for p in os.environ.get("PATH", "").split(":")) else None
    row = {"gpu": smi.stdout.strip() if smi else "none", "libraries": {}}
    for option, function in (("cublaslt", "cublasLtGetVersion"), ("cudnn", "cudnnGetVersion")):
        if option in trainers.options:
            row["libraries"][trainers.options[option]] = version_of(trainers.options[option], function)
    try:
        import torch
        row["torch"] = torch.__version__
        if torch.cuda.is_available():
            row.update(measure(torch))
    except ImportError as problem:
        row["torch"] = str(problem)
    row["ok"] = True
    print(json.dumps(row))


def measure(torch) -> dict:
    def best(run, rounds=10):
        times = []
        for _ in range(rounds):
            start, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
            start.record()
            run()
            end.record()
            end.synchronize()
            times.append(start.elapsed_time(end))
        return sorted(times)[len(times) // 2]

    source = torch.empty(2**31, dtype=torch.uint8, device="cuda").random_()
    target = torch.empty_like(source)
    result = {"capability": list(torch.cuda.get_device_capability()), "copy_gb_s": 2 * source.numel() / best(lambda: target.copy_(source)) * 1e-6}
    for name in ("bfloat16", "float16"):
        a, b = (torch.randn(8192, 8192, device="cuda", dtype=getattr(torch, name)) for _ in range(2))
        result[f"{name}_tflop_s"] = 2 * 8192**3 / best(lambda: a @ b) * 1e-9
    result["vocabulary_us"] = {}
    for words in (50257, 50264):  # a head's products forward and backward, of an odd vocabulary and of one in eights
        x, w, dy = (torch.randn(*shape, device="cuda", dtype=torch.bfloat16) for shape in ((16384, 768), (words, 768), (16384, words)))
        result["vocabulary_us"][words] = [1e3 * best(run) for run in (lambda: x @ w.t(), lambda: dy @ w, lambda: dy.t() @ x)]  # noqa: B023
    return result


if __name__ == "__main__":
    main()
