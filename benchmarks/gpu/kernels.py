# SPDX-License-Identifier: Apache-2.0
"""The kernels of a step as the GPU ran them, by PyTorch's profiler, which sees the kernels of the whole process, also inside CUDA graphs."""
from __future__ import annotations

import json
import re
import tempfile

MOST, STEPS = 80, 3


def kernels_of(step, wait) -> dict:
    """{"us_busy", "us_wall" of a step, "kernels": [name, grid, block, times a step, us a step, registers, shared bytes]}, the longest
    first; {} where there is no GPU."""
    import torch
    if not torch.cuda.is_available():
        return {}
    from torch.profiler import ProfilerActivity, profile
    with profile(activities=[ProfilerActivity.CUDA]) as recorded:
        for _ in range(STEPS):
            step()
        wait()
        torch.cuda.synchronize()
    with tempfile.NamedTemporaryFile(suffix=".json") as file:
        recorded.export_chrome_trace(file.name)
        return summary(json.load(open(file.name))["traceEvents"], STEPS)


def summary(events: list, steps: int) -> dict:
    events = [e for e in events if e.get("cat") in ("kernel", "gpu_memcpy", "gpu_memset")]
    rows, spans = {}, sorted((e["ts"], e["ts"] + e["dur"]) for e in events)
    for event in events:
        about = event.get("args", {})
        row = rows.setdefault((event["name"][:160], str(about.get("grid")), str(about.get("block"))),
                              [0, 0.0, about.get("registers per thread"), about.get("shared memory")])
        row[0] += 1
        row[1] += event["dur"]
    busy, end = 0.0, float("-inf")
    for start, stop in spans:
        busy += max(0.0, stop - max(start, end))
        end = max(end, stop)
    wall = end - spans[0][0] if spans else 0.0
    ordered = sorted(rows.items(), key=lambda entry: -entry[1][1])
    return {"us_busy": busy / steps, "us_wall": wall / steps,
            "kernels": [[*key, row[0] / steps, row[1] / steps, *row[2:]] for key, row in ordered[:MOST]]}


def own(row: dict) -> list:
    """Names of the library's own kernels in a row of bench.py, the longest first."""
    return list(dict.fromkeys(kernel[0] for kernel in row.get("kernels", ()) if re.fullmatch(r"kernel\d+\w*", kernel[0])))


def markdown(row: dict, described: dict, copies: float | None, most: int = 25) -> list:
    """Lines of a table. `described`: bytes that a kernel moves in a launch, by name; `copies`: GB/s that copies reach here."""
    text = [f"busy {row['us_busy'] / 1e3:.2f} of {row['us_wall'] / 1e3:.2f} ms a step", "",
            "| kernel | grid | times | us a step | registers | GB/s | of copies |", "|---|---|---|---|---|---|---|"]
    for name, grid, _, times, us, registers, *_ in row["kernels"][:most]:
        rate = described[name] * times / us / 1e3 if name in described and us else None
        text.append(f"| `{name[:90].replace('|', '/')}` | {grid} | {times:.0f} | {us:.1f} | {'-' if registers is None else registers} | "
                    f"{'-' if rate is None else f'{rate:.0f}'} | {'-' if rate is None or not copies else f'{rate / copies:.2f}'} |")
    return text
