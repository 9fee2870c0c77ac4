#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Dot products of lib/Support/TensorCores beside MMA-Sim's, bit for bit.

    git clone https://github.com/microsoft/MMA-Sim
    benchmarks/tensor_core_sums.py --mma-sim MMA-Sim --dots 1000000

needs PyTorch and the program TensorCoresTest of a build. MMA-Sim takes about 0.1 ms a dot product, so counts grow evenly, and every
round prints them. Status 1: a dot product differs, which is shown."""
import argparse
import os
import pathlib
import subprocess
import sys

import numpy as np

ROOT = pathlib.Path(__file__).resolve().parents[1]
# Instructions of MMA-Sim by architecture and format: class, name of the architecture, shape.
INSTRUCTIONS = {
    "sm_80": ("mma", "Ampere", {"f16": "m16n8k8", "bf16": "m16n8k8", "tf32": "m16n8k4"}),
    "sm_89": ("mma", "Ada Lovelace", {"f16": "m16n8k8", "bf16": "m16n8k8", "tf32": "m16n8k4", "e4m3": "m16n8k16", "e5m2": "m16n8k16"}),
    "sm_90": ("wgmma", "Hopper", {"f16": "m64n8k16", "bf16": "m64n8k16", "tf32": "m64n8k8", "e4m3": "m64n8k32", "e5m2": "m64n8k32"}),
    "sm_100": ("tcgen05mma", "Blackwell", {"f16": "m64n8k16", "bf16": "m64n8k16", "tf32": "m64n8k8", "e4m3": "m64n8k32", "e5m2": "m64n8k32"}),
}


def program() -> pathlib.Path:
    return pathlib.Path(os.environ.get("MPT_BUILD", ROOT / "build" / "release")) / "bin" / "TensorCoresTest"


def instruction(core: str, form: str, nv_ptx):
    kind, architecture, shapes = INSTRUCTIONS[core]
    types = f"f32.{form}.{form}" + (".f32" if kind == "mma" else "")
    return getattr(nv_ptx, kind)(architecture, f"{shapes[form]}.{types}")


def numbers(random, shape, dtype, kind: int):
    """Operands of one kind: normal, of any bits (without NaN and infinities, unless the last kind), or of few distinct magnitudes, so
    that sums cancel; a tenth of them zero."""
    import torch

    if kind == 0:
        values = torch.from_numpy(random.standard_normal(shape) * 2.0 ** random.integers(-4, 5)).to(dtype)
    elif kind == 1:
        values = torch.from_numpy(random.choice([-1.0, 1.0], shape) * 2.0 ** random.integers(-6, 7, shape)).to(dtype)
    else:
        bits = {1: np.uint8, 2: np.int16, 4: np.int32}[dtype.itemsize]
        raw = random.integers(0, 256, (*shape, dtype.itemsize), dtype=np.uint8).view(bits).reshape(shape)
        values = torch.from_numpy(raw.copy()).view(dtype)
        if kind == 2:
            values = torch.where(torch.isfinite(values.float()), values, torch.ones((), dtype=dtype))
    return torch.where(torch.from_numpy(random.random(shape) < 0.1), torch.zeros((), dtype=dtype), values)


def compare(core: str, form: str, count: int, random, nv_ptx) -> int:
    """Compares at least `count` dot products; how many there were."""
    import torch

    mma = instruction(core, form, nv_ptx)
    records, expected = [], []
    while len(expected) * mma.m * mma.n < count:
        kind = (0, 0, 1, 1, 2, 2, 2, 3)[random.integers(8)]
        a, b = numbers(random, (mma.m, mma.k), mma.a_type, kind), numbers(random, (mma.k, mma.n), mma.b_type, kind)
        # Running sums of the products' magnitude, of any, and zero.
        c = numbers(random, (mma.m, mma.n), torch.float32, kind if kind < 3 else 0)
        if kind == 2 and random.integers(2):
            c = numbers(random, (mma.m, mma.n), torch.float32, 0)
        expected.append(mma(a, b, c).numpy().view(np.uint32).ravel())
        if form == "tf32":
            a, b = ((x.view(torch.int32) & ~0x1FFF).view(torch.float32) for x in (a, b))
        rows = np.broadcast_to(a.float().numpy()[:, None], (mma.m, mma.n, mma.k))
        columns = np.broadcast_to(b.float().numpy().T[None], (mma.m, mma.n, mma.k))
        records.append(np.concatenate([c.numpy()[..., None], rows, columns], axis=2).reshape(mma.m * mma.n, -1))
    records, expected = np.concatenate(records), np.concatenate(expected)
    out = subprocess.run([program(), core, form, form, str(mma.k)], input=records.tobytes(), capture_output=True, check=True).stdout
    got = np.frombuffer(out, np.uint32)
    wrong = np.flatnonzero(got != expected)
    for i in wrong[:3]:
        print(f"{core} {form}: expected {expected[i]:#x}, got {got[i]:#x} of {records[i].tolist()}")
    if len(wrong):
        sys.exit(1)
    return len(expected)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--mma-sim", type=pathlib.Path, required=True, help="checkout of microsoft/MMA-Sim")
    parser.add_argument("--dots", type=int, default=10000, help="dot products of each format on each architecture")
    parser.add_argument("--seed", type=int, default=0)
    arguments = parser.parse_args()
    sys.path.insert(0, str(arguments.mma_sim))
    import torch
    from mmasim.simulator import nv_ptx

    torch.set_num_threads(1)
    random = np.random.default_rng(arguments.seed)
    counts = {(core, form): 0 for core, (_, _, shapes) in INSTRUCTIONS.items() for form in shapes}
    while min(counts.values()) < arguments.dots:
        for core, form in counts:
            counts[core, form] += compare(core, form, min(10000, arguments.dots), random, nv_ptx)
        print("equal:", ", ".join(f"{core} {form} {count}" for (core, form), count in counts.items()), flush=True)


if __name__ == "__main__":
    main()
