#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Projects data-parallel steps to many GPUs: scaling.py MODEL.onnx STEP_MS [flags of mpt-opt]

Measured are the buckets that the compiled step reduces, and their order. Assumptions are in `Links` and in STEP_MS, the time
of a step on one GPU, of which the backward pass is two thirds. Buckets are ready evenly over the backward pass, by their bytes; they travel
one after the other beside it. An all-reduce sums inside nodes, then each GPU its share between nodes, and gathers inside.
"""
import math
import os
import pathlib
import re
import subprocess
import sys
from dataclasses import dataclass

ROOT = pathlib.Path(__file__).resolve().parents[1]
REDUCED = re.compile(r"shard\.all_reduce .*-> tensor<(\d+)(?:x\w+)?xf32>")
SIZES = [1, 8, 16, 64, 256, 1024]


@dataclass
class Links:
    """Bytes a second a GPU sends, seconds a message takes, and the share of a link's rate that programs reach."""
    node: int = 8
    inside: float = 450e9          # NVLink 4, each direction
    between: float = 50e9          # NDR InfiniBand, 400 Gbit/s a GPU
    latency_inside: float = 3e-6
    latency_between: float = 10e-6
    share: float = 0.8


def buckets(model, flags):
    """Bytes of each sum of the step, in the order of the backward pass."""
    build = pathlib.Path(os.environ.get("MPT_BUILD", ROOT / "build" / "release"))
    done = subprocess.run([build / "bin" / "mpt-opt", model, "--quiet", "--replicas=any", *flags, "--to=distribution", "-o", "-"],
                          capture_output=True, text=True)
    if done.returncode:
        sys.exit(done.stderr)
    return [4 * int(count) for count in REDUCED.findall(done.stdout)]


def all_reduce(size, gpus, links):
    """Seconds until every GPU has the sum of `size` bytes."""
    if gpus == 1:
        return 0.0
    here, nodes = min(gpus, links.node), max(1, gpus // links.node)
    inside = 2 * (here - 1) / here * size / (links.inside * links.share) + 2 * math.ceil(math.log2(here)) * links.latency_inside
    if nodes == 1:
        return inside
    between = 2 * (nodes - 1) / nodes * size / here / (links.between * links.share)
    return inside + between + 2 * math.ceil(math.log2(nodes)) * links.latency_between


def step(sizes, gpus, single, links):
    """(seconds of a step, of communication, of communication that no backward pass hides)."""
    backward = single * 2 / 3
    total, ready, end, busy = sum(sizes), 0, single - backward, 0.0
    for size in sizes:
        ready += size
        took = all_reduce(size, gpus, links)
        end = max(end, single - backward + backward * ready / total) + took
        busy += took
    return max(single, end), busy, max(0.0, end - single)


def main(model, single_ms, *flags):
    links, sizes, single = Links(), buckets(model, flags), float(single_ms) / 1e3
    print(f"{len(sizes)} buckets, {sum(sizes) / 2**20:.1f} MiB; one GPU: {single * 1e3:.1f} ms\n")
    print("| GPUs | sent a GPU and step | communication | not hidden | step | efficiency |\n|---|---|---|---|---|---|")
    for gpus in SIZES:
        seconds, busy, open_ = step(sizes, gpus, single, links)
        sent = 2 * (gpus - 1) / gpus * sum(sizes) / 2**20
        print(f"| {gpus} | {sent:.1f} MiB | {busy * 1e3:.2f} ms | {open_ * 1e3:.2f} ms | {seconds * 1e3:.2f} ms | {single / seconds:.3f} |")


if __name__ == "__main__":
    if len(sys.argv) < 3:
        sys.exit(__doc__)
    main(*sys.argv[1:])
