#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Compiles an ONNX model (or takes a compiled one) and trains it on the arrays of an .npz file.

    train.py MODEL.onnx DATA.npz --loss softmax-cross-entropy --optimizer adamw,lr=1e-3 --policy amp-f16
    train.py COMPILED_FOLDER DATA.npz

DATA holds one array an input of the model, by name, with all samples along the first axis; the batch size is the model's.
"""
import argparse
import pathlib
import time

import mpt
import numpy as np


def batches(data: dict, size: int, seed: int):
    count = min(len(values) for values in data.values())
    if count < size:
        raise SystemExit(f"train.py: expected at least {size} samples (one batch), got {count}")
    random = np.random.default_rng(seed)
    while True:
        order = random.permutation(count)
        for start in range(0, count - size + 1, size):
            pick = order[start:start + size]
            yield {name: values[pick] for name, values in data.items()}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model")
    parser.add_argument("data")
    parser.add_argument("--loss", default="softmax-cross-entropy")
    parser.add_argument("--optimizer", default="adamw,lr=1e-3")
    parser.add_argument("--policy", default="amp-f16")
    parser.add_argument("--steps", type=int, default=200)
    parser.add_argument("--learning-rate", type=float)
    parser.add_argument("--threads", type=int, default=0)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--save", help="where the trained state goes")
    a = parser.parse_args()

    folder = a.model
    if folder.endswith((".onnx", ".onnxtxt", ".textproto")):
        folder = str(pathlib.Path(a.model).with_suffix("")) + "-" + a.policy
        mpt.compile(a.model, loss=a.loss, optimizer=a.optimizer, policy=a.policy, out=folder)
    trainer = mpt.Trainer(folder, threads=a.threads, seed=a.seed)

    wanted = {name: spec for name, spec in trainer.inputs().items() if name != "learning_rate"}
    archive = np.load(a.data)
    data = {name: archive[name].astype(kind, copy=False) for name, (kind, _) in wanted.items()}
    size = next(iter(wanted.values()))[1][0]
    start = time.perf_counter()
    for step, feeds in zip(range(a.steps), batches(data, size, a.seed)):
        result = trainer.step(feeds, a.learning_rate)
        if step % 20 == 0 or step + 1 == a.steps:
            note = " (skipped: gradient not finite)" if result.skipped else ""
            print(f"step {step} loss {result.loss:.6f}{note}", flush=True)
    print(f"{1e3 * (time.perf_counter() - start) / max(a.steps, 1):.2f} ms a step; "
          f"{trainer.memory()['peak_bytes'] / 1e6:.2f} MB")
    if a.save:
        trainer.save(a.save)


if __name__ == "__main__":
    main()
