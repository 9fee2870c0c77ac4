# SPDX-License-Identifier: Apache-2.0
"""CPU time of whole training steps under several policies or of several builds, one against another, with one thread.

  policy_steps.py [--policies amp-f16,als-f16] [--rounds N] [MODEL ...]

A model is a network of the parity benchmark (lenet, resnet18, gpt, gpt-wide, encoder-decoder, deep), or FILE.onnx:BATCH.npz,
whose first result is the loss. A policy may have flags, amp-f16+masters=copied, and a checkout with its build, amp-f16@../before.
Each policy has a process of its own; all take turns of about --seconds. The figures are medians over the turns, and the ratios medians of
the turns' ratios to the first policy. CPU time stays usable on a busy machine, if roughly: a policy named twice shows how roughly.
"""
from __future__ import annotations

import argparse
import os
import pathlib
import statistics
import subprocess
import sys
import tempfile
import time

import numpy as np

os.environ.setdefault("OMP_NUM_THREADS", "1")
HERE = pathlib.Path(__file__).resolve().parent
sys.path.insert(0, str(HERE / "parity"))
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


def serve(model: str, column: str) -> None:
    """Compiles the model; then, for each number on standard input, runs as many steps and prints their CPU seconds, each."""
    text, _, tree = column.partition("@")
    tree = pathlib.Path(tree or HERE.parent).resolve()
    sys.path.insert(0, str(tree / "python"))
    import mpt
    mpt.use_build(tree / "build" / "release")
    policy, *flags = text.split("+")
    with tempfile.TemporaryDirectory() as folder:
        if model in NETWORKS:
            make, feeds = NETWORKS[model]
            path, loss, feeds = make(os.path.join(folder, f"{model}.onnx")), "softmax-cross-entropy", feeds()
        else:
            path, batch = model.rsplit(":", 1)
            loss, feeds = "none", dict(np.load(batch))
        library = mpt.compile(path, loss=loss, optimizer="adamw,lr=1e-4", policy=policy, name="step", out=os.path.join(folder, "step"),
                              **{flag.split("=")[0].replace("-", "_"): flag.split("=", 1)[1] for flag in flags})
        trainer = mpt.Trainer(library, threads=1)
        for line in sys.stdin:
            start = time.process_time()
            for _ in range(int(line)):
                trainer.step(feeds)
            print((time.process_time() - start) / int(line), flush=True)


def turn(worker: subprocess.Popen, count: int) -> float:
    print(count, file=worker.stdin, flush=True)
    return float(worker.stdout.readline())


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("models", nargs="*", default=list(NETWORKS))
    parser.add_argument("--policies", default="amp-f16,als-f16")
    parser.add_argument("--rounds", type=int, default=15)
    parser.add_argument("--seconds", type=float, default=0.3)
    parser.add_argument("--serve", metavar="POLICY", help=argparse.SUPPRESS)
    a = parser.parse_args()
    if a.serve:
        return serve(a.models[0], a.serve)
    policies = a.policies.split(",")
    print("| model | " + " | ".join(f"{policy} ms" for policy in policies) + " | "
          + " | ".join(f"{policy} to {policies[0]}" for policy in policies[1:]) + " |")
    print("|" + "---|" * (2 * len(policies)))
    for model in a.models:
        steps = [subprocess.Popen([sys.executable, __file__, model, "--serve", policy], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
                 for policy in policies]
        counts = [max(1, round(a.seconds / max(max(turn(step, 3) for _ in range(2)), 1e-5))) for step in steps]
        turns = [[turn(step, count) for step, count in zip(steps, counts)] for _ in range(a.rounds)]
        for step in steps:
            step.communicate()
        times = [f"{1e3 * statistics.median(column):.3f}" for column in zip(*turns)]
        ratios = [f"{statistics.median(row[i] / row[0] for row in turns):.3f}" for i in range(1, len(policies))]
        print(f"| {pathlib.Path(model.rsplit(':', 1)[0]).name} | " + " | ".join(times + ratios) + " |", flush=True)


if __name__ == "__main__":
    main()
