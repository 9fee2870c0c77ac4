# SPDX-License-Identifier: Apache-2.0
"""Trains two models from .onnx in fp32, amp-f16 and amp-bf16 and prints one table.

  quickstart.py [--out DIR] [--epochs N] [--gpt-steps N] [--policies a,b] [--threads N]

The CNN learns scikit-learn's digits (1,797 real 8x8 images, a fifth held out); the byte-level GPT learns the text of the
Python standard library's own sources. Columns: held-out accuracy or loss, median step time, peak of the memory plan, and
the bytes of weights (with masters), optimizer state and scratch.
"""
from __future__ import annotations

import argparse
import os
import pathlib
import statistics
import sys
import sysconfig
import time

import numpy as np

import mpt

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
import models

POLICIES = "fp32,amp-f16,amp-bf16"


def progress(text: str) -> None:
    if sys.stderr.isatty():
        print(f"\r\033[K{text}", end="", file=sys.stderr, flush=True)


def digits():
    """Training and held-out digits: images [n, 1, 8, 8] scaled to [0, 1], labels [n]."""
    from sklearn.datasets import load_digits
    data = load_digits()
    order = np.random.default_rng(0).permutation(len(data.target))
    x = (data.images[order, None] / 16.0).astype(np.float32)
    y = data.target[order].astype(np.int64)
    cut = len(y) // 5
    return x[cut:], y[cut:], x[:cut], y[:cut]


def library_text() -> np.ndarray:
    """The bytes of the standard library's top-level modules, in name order."""
    files = sorted(pathlib.Path(sysconfig.get_paths()["stdlib"]).glob("*.py"))
    return np.frombuffer(b"\n".join(f.read_bytes() for f in files), np.uint8)


def train_digits(library: str, epochs: int, batch: int, threads: int, seed: int):
    x, y, held_x, held_y = digits()
    trainer = mpt.Trainer(library, threads=threads, seed=seed)
    random, times = np.random.default_rng(seed), []
    for epoch in range(epochs):
        order = random.permutation(len(y))
        for at in range(0, len(y) - batch + 1, batch):
            pick = order[at:at + batch]
            start = time.perf_counter()
            result = trainer.step({"x": x[pick], "labels": y[pick]})
            times.append(time.perf_counter() - start)
        progress(f"digits: epoch {epoch + 1}/{epochs} loss {result.loss:.4f}")
    right = 0
    for at in range(0, len(held_y), batch):
        rows = np.arange(at, at + batch) % len(held_y)
        answer = trainer.evaluate({"x": held_x[rows]})["logits"].argmax(1)
        right += int((answer == held_y[rows])[:min(batch, len(held_y) - at)].sum())
    return f"{100.0 * right / len(held_y):.2f} %", times, trainer


def train_gpt(library: str, steps: int, batch: int, context: int, threads: int, seed: int):
    text = library_text()
    cut = len(text) * 9 // 10
    trainer = mpt.Trainer(library, threads=threads, seed=seed)
    random, times = np.random.default_rng(seed), []

    def sample(low: int, high: int):
        starts = random.integers(low, high - context - 1, batch)
        rows = np.stack([text[s:s + context + 1] for s in starts]).astype(np.int64)
        return {"ids": rows[:, :-1], "labels": rows[:, 1:].reshape(-1)}

    for step in range(steps):
        feeds = sample(0, cut)
        start = time.perf_counter()
        result = trainer.step(feeds)
        times.append(time.perf_counter() - start)
        if step % 20 == 0:
            progress(f"gpt: step {step}/{steps} loss {result.loss:.4f}")
    random = np.random.default_rng(12345)
    losses = []
    for _ in range(20):
        feeds = sample(cut, len(text))
        logits = trainer.evaluate({"ids": feeds["ids"]})["logits"].astype(np.float64)
        logits -= logits.max(1, keepdims=True)
        picked = logits[np.arange(len(logits)), feeds["labels"]]
        losses.append(float((np.log(np.exp(logits).sum(1)) - picked).mean()))
    return f"{statistics.mean(losses):.4f} nats", times, trainer


def why_slower(rows: list[list[str]], processor: str) -> list[str]:
    """A line for each policy whose step took longer than its model's in fp32; `processor` is the text of /proc/cpuinfo."""
    lines = []
    wide = {row[0]: float(row[3]) for row in rows if row[1] == "fp32"}
    for model, policy, _, step, peak, *_ in rows:
        times = float(step) / wide.get(model, float("inf"))
        if times > 1:
            narrow = "bf16" in policy and "avx512_bf16" in processor
            why = (f"at {peak} MB conversions cost more than narrow products save" if narrow else
                   "this processor's products are FP32's, so that each widens its operands first; at "
                   f"{peak} MB there is little memory traffic to save for it")
            lines.append(f"{model}: {policy} takes {times:.2f} times as long as fp32: {why}.")
    return lines


def megabytes(value: int) -> str:
    return f"{value / 1e6:.2f}"


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", default="build/quickstart")
    parser.add_argument("--epochs", type=int, default=8)
    parser.add_argument("--gpt-steps", type=int, default=300)
    parser.add_argument("--policies", default=POLICIES)
    parser.add_argument("--threads", type=int, default=os.cpu_count())
    parser.add_argument("--seed", type=int, default=0)
    a = parser.parse_args()
    os.makedirs(a.out, exist_ok=True)
    cnn_batch, gpt_batch, context = 64, 8, 64
    cnn = models.digits_cnn(os.path.join(a.out, "digits.onnx"), cnn_batch, a.seed)
    gpt = models.byte_gpt(os.path.join(a.out, "gpt.onnx"), gpt_batch, context, seed=a.seed)
    tasks = [
        ("digits CNN", cnn, "adamw,lr=1e-3", lambda lib: train_digits(lib, a.epochs, cnn_batch, a.threads, a.seed)),
        ("byte GPT", gpt, "adamw,lr=1e-3", lambda lib: train_gpt(lib, a.gpt_steps, gpt_batch, context, a.threads, a.seed)),
    ]
    rows = []
    for name, path, optimizer, train in tasks:
        for policy in a.policies.split(","):
            out = os.path.join(a.out, f"{pathlib.Path(path).stem}-{policy}")
            progress(f"{name}: compiling for {policy}")
            mpt.compile(path, loss="softmax-cross-entropy", optimizer=optimizer, policy=policy, out=out)
            result, times, trainer = train(out)
            memory = trainer.memory()
            rows.append([name, policy, result, f"{1e3 * statistics.median(times):.2f}",
                         *(megabytes(memory[k]) for k in ("peak_bytes", "weight_bytes", "slot_bytes", "arena_bytes"))])
    progress("")
    head = ["model", "policy", "held out", "step ms", "peak MB", "weights MB", "optimizer states MB", "activations MB"]
    widths = [max(len(row[i]) for row in [head] + rows) for i in range(len(head))]
    for row in [head, ["-" * w for w in widths]] + rows:
        print(" | ".join(cell.ljust(w) for cell, w in zip(row, widths)))
    cpuinfo = pathlib.Path("/proc/cpuinfo")
    print("\n".join(why_slower(rows, cpuinfo.read_text() if cpuinfo.exists() else "")))
    return 0


if __name__ == "__main__":
    sys.exit(main())
