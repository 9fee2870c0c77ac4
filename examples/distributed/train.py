#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Trains digits or a byte-level GPT on one process or many, bitwise identical, and goes on from its last checkpoint.

    python examples/distributed/train.py digits
    mpirun -n 2 python examples/distributed/train.py gpt --policy amp-bf16 --steps 300
    torchrun --nproc-per-node=2 --rdzv-backend=c10d --rdzv-endpoint=localhost:29400 --rdzv-id=$(openssl rand -hex 16) \\
        examples/distributed/train.py digits

A global step has four replicas; 1, 2 or 4 processes share them. Started again, also on another number of processes, it goes
on from the last checkpoint in --out and ends bitwise identical.
"""
import argparse
import pathlib
import re
import sys

import numpy as np

import mpt

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent / "quickstart"))
import models
from quickstart import digits, library_text

REPLICAS = 4


def digits_data():
    x, labels, _, _ = digits()
    return len(labels), lambda rows: {"x": x[rows], "labels": labels[rows]}


def gpt_data(context: int):
    """A sample is a stretch of text; its labels are the bytes that follow."""
    text = library_text()
    count = min(20000, (len(text) - 1) // context)

    def rows_of(rows):
        taken = np.stack([text[row * context:(row + 1) * context + 1] for row in rows]).astype(np.int64)
        return {"ids": taken[:, :-1], "labels": taken[:, 1:].reshape(-1)}

    return count, rows_of


def compile_model(a, world):
    """(library, rows of one replica, data). Rank 0 writes the model and compiles it, unless it has before; the others wait."""
    batch, context = (16, 0) if a.model == "digits" else (2, 64)
    path, library = a.out / f"{a.model}.onnx", a.out / f"{a.model}-{a.policy}"
    data = digits_data() if a.model == "digits" else gpt_data(context)
    if world.broadcast(np.array((library / f"lib{a.model}.so").exists())):
        return library, batch, data
    if world.rank == 0:
        a.out.mkdir(parents=True, exist_ok=True)
        if a.model == "digits":
            models.digits_cnn(str(path), batch)
        else:
            models.byte_gpt(str(path), batch, context, dropout=0.1)
    mpt.compile(path, loss="softmax-cross-entropy", optimizer="adamw,lr=1e-3", policy=a.policy, replicas=REPLICAS, out=library,
                world=world)
    return library, batch, data


def last_checkpoint(folder: pathlib.Path, world) -> int:
    """The step of the newest one, as rank 0 sees it."""
    found = [int(path.stem) for path in folder.glob("*.state") if re.fullmatch(r"\d+", path.stem)]
    return int(world.broadcast(np.array(max(found, default=0))))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model", choices=["digits", "gpt"])
    parser.add_argument("--policy", default="amp-f16")
    parser.add_argument("--steps", type=int, default=200)
    parser.add_argument("--save-every", type=int, default=50)
    parser.add_argument("--threads", type=int, default=0)
    parser.add_argument("--out", type=pathlib.Path, default=pathlib.Path("build/distributed"))
    a = parser.parse_args()
    with mpt.init() as world:
        library, batch, (samples, rows_of) = compile_model(a, world)
        trainer = mpt.Trainer(library, threads=a.threads, world=world)
        begin = last_checkpoint(library, world)
        if begin:
            trainer.load(library / f"{begin}.state")
        rows = mpt.shard(samples, REPLICAS * batch, world=world, start=begin)
        for step in range(begin, a.steps):
            result = trainer.step(rows_of(next(rows)))
            done = step + 1
            if done % a.save_every == 0 or done == a.steps:
                trainer.save(library / f"{done}.state")  # all call it, one rank writes
            if world.rank == 0 and (done % 20 == 0 or done == a.steps):
                stats = world.statistics()
                print(f"step {done} loss {result.loss:.6f}, {world.size} processes, waited {stats.waited_seconds:.2f} s for others, "
                      f"sent {stats.bytes_sent / 1e6:.1f} MB", flush=True)
        trainer.close()


if __name__ == "__main__":
    main()
