# SPDX-License-Identifier: Apache-2.0
"""CPU time of whole training steps under several policies, one against another, with one thread.

  policy_steps.py [--policies amp-f16,als-f16] [--rounds N] [MODEL ...]

A model is a network of the parity benchmark (lenet, resnet18, gpt, gpt-wide, encoder-decoder, deep), or FILE.onnx:BATCH.npz,
whose first result is the loss. A policy may have flags: amp-f16+masters=copied. All policies take turns of about --seconds in one process; the figures are medians over the
turns, and the ratios medians of the turns' ratios to the first policy. CPU time stays usable on a busy machine, if roughly.
"""
from __future__ import annotations

import argparse
import os
import pathlib
import statistics
import sys
import tempfile
import time

import numpy as np

os.environ.setdefault("OMP_NUM_THREADS", "1")
HERE = pathlib.Path(__file__).resolve().parent
sys.path[:0] = [str(HERE / "parity"), str(HERE.parent / "python")]
import mpt  # noqa: E402
import networks  # noqa: E402

RANDOM = np.random.default_rng(0)


def digits(batch: int) -> dict:
    return {"x": RANDOM.random((batch, 1, 8, 8), np.float32), "labels": RANDOM.integers(0, 10, batch)}


def tokens(batch: int, length: int, *names: str) -> dict:
    return {**{name: RANDOM.integers(0, 256, (batch, length)) for name in names}, "labels": RANDOM.integers(0, 256, batch * length)}


NETWORKS = {
    "lenet": (lambda path: networks.lenet(path, 64), lambda: digits(64)),
    "deep": (lambda path: networks.deep(path, 64), lambda: digits(64)),
    "resnet18": (lambda path: networks.resnet18(path, 64), lambda: digits(64)),
    "gpt": (lambda path: networks.byte_gpt(path, 8, 64, 96), lambda: tokens(8, 64, "ids")),
    "gpt-wide": (lambda path: networks.byte_gpt(path, 4, 128, 384, 2, 6), lambda: tokens(4, 128, "ids")),
    "encoder-decoder": (lambda path: networks.encoder_decoder(path, 8), lambda: tokens(8, 32, "source", "ids")),
}


def trainers(model: str, policies: list, folder: str):
    """A step of each policy, and the names of inputs all take."""
    if model in NETWORKS:
        make, feeds = NETWORKS[model]
        path, loss, feeds = make(os.path.join(folder, f"{model}.onnx")), "softmax-cross-entropy", feeds()
    else:
        path, batch = model.rsplit(":", 1)
        loss, feeds = "none", dict(np.load(batch))
    for text in policies:
        policy, *flags = text.split("+")
        library = mpt.compile(path, loss=loss, optimizer="adamw,lr=1e-4", policy=policy, name="step",
                              out=os.path.join(folder, f"{pathlib.Path(path).stem}-{pathlib.Path(text).stem}"),
                              **dict(flag.split("=") for flag in flags))
        trainer = mpt.Trainer(library, threads=1)
        yield lambda trainer=trainer: trainer.step(feeds)


def turn(step, count: int) -> float:
    start = time.process_time()
    for _ in range(count):
        step()
    return (time.process_time() - start) / count


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("models", nargs="*", default=list(NETWORKS))
    parser.add_argument("--policies", default="amp-f16,als-f16")
    parser.add_argument("--rounds", type=int, default=15)
    parser.add_argument("--seconds", type=float, default=0.3)
    a = parser.parse_args()
    policies = a.policies.split(",")
    print("| model | " + " | ".join(f"{policy} ms" for policy in policies) + " | "
          + " | ".join(f"{policy} to {policies[0]}" for policy in policies[1:]) + " |")
    print("|" + "---|" * (2 * len(policies)))
    with tempfile.TemporaryDirectory() as folder:
        for model in a.models:
            steps = list(trainers(model, policies, folder))
            counts = [max(1, round(a.seconds / max(max(turn(step, 3) for _ in range(2)), 1e-5))) for step in steps]
            turns = [[turn(step, count) for step, count in zip(steps, counts)] for _ in range(a.rounds)]
            times = [f"{1e3 * statistics.median(column):.3f}" for column in zip(*turns)]
            ratios = [f"{statistics.median(row[i] / row[0] for row in turns):.3f}" for i in range(1, len(policies))]
            print(f"| {pathlib.Path(model.rsplit(':', 1)[0]).name} | " + " | ".join(times + ratios) + " |", flush=True)


if __name__ == "__main__":
    main()
