#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Reference losses, gradients and ten optimizer steps for every loss graph of a corpus, in float64 and float32.

  make_references.py --generators DIR --forward DIR --out DIR [--models a,b] [--forms ts,dyn,opt] [--variants loss,composed]
                     [--spread RUNS]

Writes OUT/FORM/MODEL.VARIANT.{f64,f32}.npz (first step's loss and grad/NAME; loss list, after/NAME and state/NAME of ten
SGD steps, lr 0.01) and OUT/FORM/MODEL.VARIANT.adamw.{f64,f32}.npz (ten AdamW steps, lr 0.001, weight decay 0.01).
With --spread also OUT/MODEL[.adamw].spread.npz, once a model: the largest deviations from the float64 trajectory (loss of
each step, after, state) of RUNS float32 trajectories whose parameters start one rounding unit, at random, from the model's.
A trajectory with a ReLU near its kink splits in two under such a change, and one float32 run shows only one of them.
Needs torch and onnx, so it runs in the corpus' own environment. Files newer than their model are kept.
"""
import argparse
import json
import os
import sys
import time

os.environ.setdefault("OMP_NUM_THREADS", "1")
import numpy as np
import onnx
import onnx.numpy_helper

import corpus_measure as measure

STEPS = 10
RUNS = {"": ("sgd", 0.01), ".adamw": ("adamw", 0.001)}


def write(path, values):
    """Writes under another name first, so that a reader never sees half a file."""
    temporary = path + ".part.npz"
    np.savez(temporary, **values)
    os.replace(temporary, path)


def make(oracle, torch, model_path, data, trainable, out):
    model = None
    for suffix, (optimizer, lr) in RUNS.items():
        for kind, real in (("f64", torch.float64), ("f32", torch.float32)):
            path = f"{out}{suffix}.{kind}.npz"
            if os.path.exists(path) and os.path.getmtime(path) >= os.path.getmtime(model_path):
                continue
            model = model or onnx.load(model_path)
            values = oracle.reference(model, data, trainable, optimizer, lr, STEPS, real)
            if suffix:
                values = {k: v for k, v in values.items() if not k.startswith("grad/")}
            write(path, values)


def spread(oracle, torch, model_path, data, trainable, optimizer, lr, exact, runs):
    """Largest deviations over `runs` float32 trajectories from perturbed parameters."""
    model, random = onnx.load(model_path), np.random.default_rng(0)
    parameters = [i for i in model.graph.initializer if i.name in set(trainable)]
    start = [onnx.numpy_helper.to_array(i) for i in parameters]
    rows = []
    for _ in range(runs):
        for initializer, value in zip(parameters, start):
            moved = value * (1 + 2.0**-24 * random.standard_normal(value.shape))
            initializer.CopyFrom(onnx.numpy_helper.from_array(moved.astype(value.dtype), initializer.name))
        single = oracle.reference(model, data, trainable, optimizer, lr, STEPS, torch.float32)
        rows.append(measure.deviations(exact, single))
    return {key: np.max([row[key] for row in rows], axis=0) for key in rows[0]}


def make_spread(oracle, torch, args, index, name, data):
    """The spread of one model, from the first of its graphs that there is."""
    keys = [f"{form}/{name}.{variant}" for form in args.forms.split(",") for variant in args.variants.split(",")]
    key = next(k for k in keys if index.get(k, {}).get("trainable") is not None and
               os.path.exists(os.path.join(args.forward, k + ".onnx")))
    for suffix, (optimizer, lr) in RUNS.items():
        path = os.path.join(args.out, f"{name}{suffix}.spread.npz")
        if os.path.exists(path):
            continue
        exact = dict(np.load(os.path.join(args.out, f"{key}{suffix}.f64.npz")))
        model = os.path.join(args.forward, key + ".onnx")
        write(path, spread(oracle, torch, model, data, index[key]["trainable"], optimizer, lr, exact, args.spread))


def main():
    ap = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    ap.add_argument("--generators", required=True, help="folder of the corpus scripts (oracle.py, torch_onnx.py)")
    ap.add_argument("--forward", required=True, help="folder that make_forward.py wrote")
    ap.add_argument("--out", required=True)
    ap.add_argument("--models", help="comma-separated; all by default")
    ap.add_argument("--forms", default="ts,dyn,opt")
    ap.add_argument("--variants", default="loss,composed")
    ap.add_argument("--spread", type=int, default=0, metavar="RUNS")
    args = ap.parse_args()
    sys.path.insert(0, args.generators)
    import oracle
    import torch

    index = json.load(open(os.path.join(args.forward, "index.json")))
    wanted = args.models.split(",") if args.models else sorted({key.split("/")[1].split(".")[0] for key in index})
    failures = 0
    for name in wanted:
        data = dict(np.load(os.path.join(args.forward, name + ".npz")))
        for form in args.forms.split(","):
            os.makedirs(os.path.join(args.out, form), exist_ok=True)
            for variant in args.variants.split(","):
                key = f"{form}/{name}.{variant}"
                path = os.path.join(args.forward, key + ".onnx")
                trainable = index.get(key, {}).get("trainable")
                if trainable is None or not os.path.exists(path):
                    print(f"{key}: no such graph, or it was not exported", flush=True)
                    failures += 1
                    continue
                start = time.time()
                try:
                    make(oracle, torch, path, data, trainable, os.path.join(args.out, key))
                    print(f"{key}: {len(trainable)} parameters, {time.time() - start:.1f} s", flush=True)
                except Exception as error:  # one broken graph must not hide the others
                    print(f"{key}: failed: {error!r:.300}", flush=True)
                    failures += 1
        if args.spread:
            make_spread(oracle, torch, args, index, name, data)
            print(f"{name}: spread of {args.spread} float32 trajectories", flush=True)
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())
