#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Long runs without growth: many steps of one trainer, many loads of one folder that is compiled into again in between.

    MPT_BUILD=build/release PYTHONPATH=python scripts/robustness.py --steps 100000 --reloads 1000

Prints a table of the process's resources at the beginning (after a tenth) and at the end, and ends with status 1 where anything
has grown: resident memory by more than 1 MiB, mappings by more than 2, open files at all. Losses must stay finite, and every
load must give the loss of its compilation.
"""
import argparse
import gc
import os
import pathlib
import shutil
import sys
import tempfile
import time

import numpy as np
import onnx

import mpt

# Lookups, sums into shared rows, normalization, dropout, matrices: ops that run in several threads.
MODEL = """<ir_version: 9, opset_import: ["" : 20]>
model (int64[{rows}, 4] tokens, float[{rows}, {width}] x) => (float[{rows}, 5] y) {{
    e = Gather(table, tokens)
    s = ReduceSum<keepdims = 0>(e, axis)
    a = Add(s, x)
    b = MatMul(a, w1)
    c = Add(b, b1)
    n = LayerNormalization(c, scale, shift)
    d = Gelu(n)
    h = Dropout(d, ratio, training)
    y = MatMul(h, w2)
}}"""


def held() -> tuple:
    gc.collect()
    resident = int(pathlib.Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")
    mappings = len(pathlib.Path("/proc/self/maps").read_text().splitlines())
    return resident, mappings, len(os.listdir("/proc/self/fd"))


def write_model(path, rows: int = 16, width: int = 8) -> None:
    model = onnx.parser.parse_model(MODEL.format(rows=rows, width=width))
    rng = np.random.default_rng(0)
    for name, shape in {"table": (11, width), "w1": (width, 16), "b1": (16,), "scale": (16,), "shift": (16,), "w2": (16, 5)}.items():
        model.graph.initializer.append(onnx.numpy_helper.from_array(rng.normal(0, 0.3, shape).astype(np.float32), name))
    for name, value in {"axis": np.array([1]), "ratio": np.float32(0.2), "training": np.array(True)}.items():
        model.graph.initializer.append(onnx.numpy_helper.from_array(np.asarray(value), name))
    onnx.save(model, path)


def batches(count: int) -> list:
    rng = np.random.default_rng(1)
    return [{"tokens": rng.integers(0, 11, (16, 4)), "x": rng.normal(0, 1, (16, 8)).astype(np.float32),
             "labels": rng.integers(0, 5, 16)} for _ in range(count)]


def steps(folder, threads: int, count: int) -> tuple:
    """Resources held after a tenth of the steps, and at the end."""
    data = batches(64)
    with mpt.Trainer(folder, threads=threads, seed=3) as trainer:
        before = None
        for i in range(count):
            result = trainer.step(data[i % len(data)])
            if i == count // 10:
                before = held()
            if not np.isfinite(result.loss):
                raise SystemExit(f"step {i}: loss {result.loss}")
        return before, held()


def reloads(versions, folder, count: int) -> tuple:
    data, losses = batches(1)[0], {}
    before = None
    for i in range(count):
        version = i % len(versions)
        for name in ("libm.so", "m.safetensors"):
            shutil.copyfile(versions[version] / name, folder / "next")
            os.replace(folder / "next", folder / name)
        with mpt.Trainer(folder, threads=1, seed=3) as trainer:
            loss = trainer.step(data).loss
        if losses.setdefault(version, loss) != loss:
            raise SystemExit(f"reload {i}: loss {loss}, expected {losses[version]}")
        if i == count // 10:
            before = held()
    if len(set(losses.values())) != len(versions):
        raise SystemExit("the versions are not told apart")
    return before, held()


def has_grown(before, after) -> bool:
    return after[0] > before[0] + (1 << 20) or after[1] > before[1] + 2 or after[2] > before[2]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--steps", type=int, default=100000)
    parser.add_argument("--reloads", type=int, default=1000)
    parser.add_argument("--model", metavar="FILE", help="write the model, in a size whose loops run in several threads, and stop")
    words = parser.parse_args()
    if words.model:
        return write_model(words.model, 2048, 64)
    if os.environ.get("MPT_BUILD"):
        mpt.use_build(os.environ["MPT_BUILD"])
    rows = []
    with tempfile.TemporaryDirectory() as name:
        here = pathlib.Path(name)
        write_model(here / "m.onnx")
        for policy in ("fp32", "amp-f16"):
            common = dict(loss="softmax-cross-entropy", optimizer="adam,lr=1e-3", policy=policy, clip_norm=1.0)
            mpt.compile(here / "m.onnx", out=here / policy, **common)
            for threads in (1, 2):
                start = time.monotonic()
                rows.append((f"{words.steps} steps, {policy}, threads: {threads}", *steps(here / policy, threads, words.steps),
                             time.monotonic() - start))
        (here / "reloaded").mkdir()
        shutil.copyfile(here / "fp32" / "m.json", here / "reloaded" / "m.json")
        start = time.monotonic()
        rows.append((f"{words.reloads} reloads of two compilations under one path",
                     *reloads([here / "fp32", here / "amp-f16"], here / "reloaded", words.reloads), time.monotonic() - start))
    print("| run | resident MiB | mappings | open files | seconds |\n|---|---|---|---|---|")
    grown = False
    for what, before, after, seconds in rows:
        grown |= has_grown(before, after)
        print(f"| {what} | {before[0] / 2**20:.1f} → {after[0] / 2**20:.1f} | {before[1]} → {after[1]} | {before[2]} → {after[2]} "
              f"| {seconds:.0f} |")
    print("grown" if grown else "no growth")
    sys.exit(grown)


if __name__ == "__main__":
    main()
