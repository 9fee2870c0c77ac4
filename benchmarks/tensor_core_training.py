#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""A small network trained with the sums of Tensor Cores: a table of losses by policy and accumulator.

    benchmarks/tensor_core_training.py --steps 100

Digits (scikit-learn) through two hidden layers of 512; each step is a call of mpt-run, which keeps the state in files. Every
accumulator starts from one state and sees one order of batches."""
import argparse
import pathlib
import subprocess
import sys
import tempfile

import numpy as np
from onnx import numpy_helper, parser, save
from sklearn.datasets import load_digits

ROOT = pathlib.Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT / "test" / "python"))
from mpt_run import read_tensors, tool, write_tensors

BATCH, WIDTH = 64, 512
RUNS = [("fp32", ""), *((policy, core) for policy in ("fp8-hybrid", "fp8-current") for core in ("", "sm_90", "sm_90+fast-sums", "sm_100"))]


def write_model(path: pathlib.Path) -> None:
    model = parser.parse_model(f"""<ir_version: 8, opset_import: ["" : 17]>
m (float[{BATCH}, 64] x) => (float[{BATCH}, 16] logits) {{
h = MatMul(x, w0) r = Relu(h) g = MatMul(r, w1) s = Relu(g) logits = MatMul(s, w2) }}""".replace(") ", ")\n"))
    random = np.random.default_rng(0)
    for i, shape in enumerate([(64, WIDTH), (WIDTH, WIDTH), (WIDTH, 16)]):
        weights = random.standard_normal(shape) * np.sqrt(2 / shape[0])
        model.graph.initializer.append(numpy_helper.from_array(weights.astype(np.float32), f"w{i}"))
    save(model, path)


def batches(steps: int):
    """Batches of the first 1,600 digits in random order; the loss of the rest is taken on 128 of them."""
    digits = load_digits()
    x, labels = (digits.data / 16).astype(np.float32), digits.target.astype(np.int64)
    order = np.random.default_rng(1)
    for _ in range(steps):
        rows = order.permutation(1600)[:BATCH]
        yield {"x": x[rows], "labels": labels[rows]}
    for first in (1600, 1600 + BATCH):
        yield {"x": x[first:first + BATCH], "labels": labels[first:first + BATCH]}


def train(folder: pathlib.Path, policy: str, core: str, steps: int) -> tuple:
    words = ["--loss=softmax-cross-entropy", "--optimizer=adamw,lr=1e-3", f"--policy={policy}"]
    state, losses = None, []
    for i, batch in enumerate(batches(steps)):
        write_tensors(folder / "in.st", batch if i >= steps else batch | {"learning_rate": np.float32(1e-3).reshape(())})
        subprocess.run([tool(), folder / "m.onnx", *words, f"--function={'step' if i < steps else 'evaluate'}", f"--inputs={folder}/in.st",
                        f"--outputs={folder}/out.st", f"--new-state={folder}/{i % 2}.st", *([f"--state={state}"] if state else []),
                        *([f"--as={core}"] if core else [])], check=True, stdout=subprocess.DEVNULL)
        out = read_tensors(folder / "out.st")
        losses.append(float(out["loss"]))
        if i < steps:
            state = folder / f"{i % 2}.st"
    return np.mean(losses[steps - 10:steps]), np.mean(losses[steps:])


def main():
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("--steps", type=int, default=100)
    steps = options.parse_args().steps
    print(f"| policy | sums | loss, last 10 of {steps} steps | loss of {2 * BATCH} other digits |\n|---|---|---|---|")
    with tempfile.TemporaryDirectory() as name:
        folder = pathlib.Path(name)
        write_model(folder / "m.onnx")
        for policy, core in RUNS:
            trained, other = train(folder, policy, core, steps)
            print(f"| {policy} | {core or 'FP32'} | {trained:.5f} | {other:.5f} |", flush=True)


if __name__ == "__main__":
    main()
