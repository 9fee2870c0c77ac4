# SPDX-License-Identifier: Apache-2.0
"""Which kinds of calls a dry run made, from the fake driver's log: calls.py LOG [OF_CHECKS]. Kinds tell types, forms and flags apart, not
extents. With a second log, the checks', kinds that LOG has beyond it are listed, and the status is 1 where there are any."""
from __future__ import annotations

import pathlib
import re
import sys

EPILOGUES = {1: "", 2: "ReLU", 4: "bias", 6: "bias, ReLU", 32: "GELU", 36: "bias, GELU", 160: "GELU that keeps its operand", 164: "bias, GELU that keeps its operand",
             130: "ReLU that keeps its mask", 134: "bias, ReLU that keeps its mask", 136: "ReLU's gradient", 152: "ReLU's gradient, sums",
             192: "GELU's gradient", 208: "GELU's gradient, sums", 256: "sums of A", 512: "sums of B"}
TYPES = {0: "f32", 1: "f64", 2: "f16", 14: "bf16", 28: "e4m3", 29: "e5m2"}  # cudaDataType_t
DNN_TYPES = {0: "f32", 2: "f16", 9: "bf16"}
WAYS = {0: "backward data", 1: "backward weights", 2: "forward"}


def kind_of(line: str) -> str:
    """The kind of a line of the log; empty for kernels of a model's own, which are no calls."""
    if match := re.match(r"gemm \d+ x \d+ x \d+ x (\d+) types (\d+) (\d+) (\d+) (..) epilogue (\d+)(.*)", line):
        batch, a, b, d, order, epilogue, more = match.groups()
        types = [TYPES[int(t)] for t in (a, b, d)]
        text = f"gemm {' x '.join(types[:2])} -> {types[2]} {'batch ' if batch != '1' else ''}{order}"
        return ", ".join(filter(None, [text, EPILOGUES[int(epilogue)]])) + more
    if match := re.match(r"((?:wide )?convolution) (\d) type (\d+)( rounded apart)?", line):
        what, way, kind, apart = match.groups()
        return f"{what} {DNN_TYPES[int(kind)]} {WAYS[int(way)]}{apart or ''}"
    if match := re.match(r"(convolution with .*?) type (\d+)( summed as (\d+))?( by (\d+))?", line):
        what, kind, _, summed, _, last = match.groups()
        return f"{what} {DNN_TYPES[int(kind)]}" + (f" of {DNN_TYPES[int(summed)]}" if summed else "") + (f" by operation {last}" if last else "")
    if match := re.match(r"((?:gradient of )?attention) type (\d+)", line):
        return f"{match[1]} {DNN_TYPES[int(match[2])]}"
    if match := re.match(r"launch (mpt_\w+?)(_n\d+_c\d+_\w+|_\d+)?$", line):
        return f"kernel {match[1]}"
    return ""


def kinds(log: str) -> dict:
    """{kind: calls}"""
    counts: dict = {}
    for line in log.splitlines():
        if kind := kind_of(line):
            counts[kind] = counts.get(kind, 0) + 1
    return dict(sorted(counts.items()))


def markdown(counts: dict) -> str:
    return "\n".join(["| call | times |", "|---|---|", *(f"| {kind} | {times} |" for kind, times in counts.items())])


def main() -> int:
    found, *checks = (kinds(pathlib.Path(path).read_text()) for path in sys.argv[1:])
    if checks:
        found = {kind: times for kind, times in found.items() if kind not in checks[0]}
    print(markdown(found))
    return 1 if checks and found else 0


if __name__ == "__main__":
    sys.exit(main())
