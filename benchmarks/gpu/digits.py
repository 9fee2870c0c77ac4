# SPDX-License-Identifier: Apache-2.0
"""Trains data/digits on this machine: digits.py FOLDER. A JSON line: losses by epoch, how many held-out digits are recognized, and
how many the same training on the processor recognized when the bundle was packed."""
from __future__ import annotations

import argparse
import json
import pathlib

import numpy as np
import standin
import trainers

EPOCHS, SEED = 6, 0


def load(folder) -> dict:
    return dict(np.load(pathlib.Path(folder) / "digits.npz"))


def train(library, data: dict, batch: int, options: dict) -> dict:
    """Steps over shuffled batches, then the held-out part: {"losses", "accuracy"}."""
    import mpt
    x, y = data["x"].astype(np.float32) / 16, data["y"]
    random, losses = np.random.default_rng(SEED), []
    with mpt.Trainer(library, seed=SEED, options=options) as trainer:
        target = next(n for n in trainer.inputs() if n not in ("x", "learning_rate"))
        for _ in range(EPOCHS):
            order = random.permutation(len(y))
            picks = [order[at:at + batch] for at in range(0, len(y) - batch + 1, batch)]
            losses.append(float(np.mean([trainer.step({"x": x[p], target: y[p]}).loss for p in picks])))
        held, labels, right = data["held_x"].astype(np.float32) / 16, data["held_y"], 0
        for at in range(0, len(labels), batch):
            rows = np.arange(at, at + batch) % len(labels)
            answer = next(iter(trainer.evaluate({"x": held[rows]}).values())).argmax(1)
            right += int((answer == labels[rows])[:min(batch, len(labels) - at)].sum())
    return {"losses": losses, "accuracy": right / len(labels)}


def main() -> None:
    parse = argparse.ArgumentParser()
    parse.add_argument("folder", type=pathlib.Path)
    trainers.add_argument(parse)
    a = parse.parse_args()
    trainers.take(a.option)
    expected = json.loads((a.folder / "expected.json").read_text())
    row = {"case": f"digits {expected['policy']}", **train(a.folder / "cuda", load(a.folder), expected["batch"], trainers.options)}
    row["expected"] = expected["accuracy"]
    # Two runs of the same training differ by some digits of the 359.
    row["ok"] = standin.is_dry() or bool(row["accuracy"] >= expected["accuracy"] - 0.03 and row["losses"][-1] < row["losses"][0] / 2)
    if not row["ok"]:
        row["problem"] = f"expected about {expected['accuracy']:.1%} of the held-out digits, got {row['accuracy']:.1%}; losses {row['losses']}"
    if text := standin.violations():
        row.update(ok=False, problem=text)
    print(json.dumps(row))


if __name__ == "__main__":
    main()
