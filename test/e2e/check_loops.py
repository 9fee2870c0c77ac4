#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Loops the training steps of the corpus in stock ONNX Runtime, and holds the losses against the library's.

  check_loops.py CORPUS [--models a,b] [--forms ts,dyn] [--policies fp32] [--optimizer SPEC] [--steps 100] [--markdown FILE]

CORPUS is the folder that scripts/corpus.sh made. Each step is written with --onnx-state=inputs and looped on the model's batch without dropout.
Rounding leads two right trajectories apart, faster where a network amplifies it, so a third one says how far: the library's with
every parameter moved by one unit in the last place. In the first steps, losses differ by no more than 16 times that run's difference so far, or
1e-5 (f16 arithmetic is FP32 in ONNX Runtime: 5e-3); after all of them the loss has fallen at least half as far. Of `ts` and
`dyn` the first that the exporter can write is taken. The status is non-zero when a graph failed.
"""
import argparse
import os
import pathlib
import sys
import tempfile
import time

import numpy as np
import onnx
import onnxruntime

import check_corpus
import check_saved
import step_files
from test_looped_steps import LOOPED, loop

EARLY = 10


def library_losses(folder, feeds, steps, moved):
    import mpt
    trainer = mpt.Trainer(folder / "lib", threads=1)
    if moved:
        for name, value in trainer.parameters(trained=True).items():
            trainer.set_parameter(name, np.nextafter(value, np.float32(np.inf), dtype=np.float32))
    given = {name: value for name, value in feeds.items() if name in trainer.inputs("step")}
    return np.array([trainer.step(given).loss for _ in range(steps)])


def check(path, loss, feeds, policy, optimizer, steps, folder):
    """(largest relative difference of early losses, its limit, first loss, last loss here and there)"""
    import mpt
    flags = {"loss": loss, "optimizer": optimizer, "policy": policy}
    if policy == "amp-f16":  # a scale at which no step overflows here alone, where f16 arithmetic is f16's
        flags["loss_scale"] = "dynamic,init=1024"
    words = ["--no-dropout", *(f"--{name.replace('_', '-')}={value}" for name, value in flags.items())]
    file = step_files.export(path, words, folder / "step.onnx", "joint", LOOPED)
    mpt.compile(path, out=folder / "lib", quiet=True, no_dropout=True, **flags)
    ours, moved = (library_losses(folder, feeds, steps, m) for m in (False, True))
    rate = float(dict(word.split("=") for word in optimizer.split(",")[1:])["lr"])
    history, _ = loop(file, {**feeds_of(file, feeds), "learning_rate": np.float32(rate)}, steps)
    theirs = np.array([value for value, _ in history])
    differences, spread = (np.abs(other[:EARLY] - ours[:EARLY]) / np.maximum(np.abs(ours[:EARLY]), 1e-3) for other in (theirs, moved))
    limit = np.maximum(16 * np.maximum.accumulate(spread), 1e-5 if policy == "fp32" else 5e-3)
    worst = int(np.argmax(differences / limit))
    if not np.all(np.isfinite(theirs)) or differences[worst] > limit[worst]:
        raise step_files.Failed(f"step {worst}: {theirs[worst]:.8g}, the library's {ours[worst]:.8g}, within {limit[worst]:.1e}")
    if ours[0] - theirs[-1] < 0.5 * (ours[0] - ours[-1]):
        raise step_files.Failed(f"falls from {ours[0]:.5g} to {theirs[-1]:.5g}, the library's to {ours[-1]:.5g}")
    return differences[worst], limit[worst], ours[0], ours[-1], theirs[-1]


def feeds_of(path, feeds):
    names = {value.name for value in onnx.load(path, load_external_data=False).graph.input}
    return {name: value for name, value in feeds.items() if name in names}


def main():
    ap = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    ap.add_argument("corpus")
    ap.add_argument("--models", default=",".join([*check_corpus.MODELS, *check_saved.LOSS_IN_GRAPH]))
    ap.add_argument("--forms", default="ts,dyn")
    ap.add_argument("--policies", default="fp32")
    ap.add_argument("--optimizer", default="sgd,lr=0.01")
    ap.add_argument("--steps", type=int, default=100)
    ap.add_argument("--markdown", metavar="FILE", help="append a table row for every graph")
    args = ap.parse_args()
    onnxruntime.set_default_logger_severity(4)
    passed = failed = 0
    for model in args.models.split(","):
        found = next(filter(None, ((check_saved.model_of(args.corpus, form, model)) for form in args.forms.split(","))), None)
        for policy in args.policies.split(",") if found else ():
            start = time.time()
            with tempfile.TemporaryDirectory() as folder:
                try:
                    cells = "{:.0e} | {:.0e} | {:.5g} | {:.5g} | {:.5g}".format(*check(*found, policy, args.optimizer, args.steps, pathlib.Path(folder)))
                    passed += 1
                except Exception as problem:  # one graph's failure is its row
                    cells = f"**{type(problem).__name__}: " + " ".join(str(problem).split())[-300:] + "** | | | |"
                    failed += 1
            print(f"{model} {policy}: {cells}  {time.time() - start:.0f} s", flush=True)
            if args.markdown:
                with open(args.markdown, "a", encoding="utf-8") as file:
                    file.write(f"| {model} | {policy} | {cells} |\n")
    print(f"{passed} steps looped to the library's losses, {failed} failed")
    return 1 if failed or not passed else 0


if __name__ == "__main__":
    sys.exit(main())
