# SPDX-License-Identifier: Apache-2.0
"""The purpose of FP32 accumulators: sums of thousands of terms, trained with them and with narrower ones.

A linear layer learns how much ink is on a sheet of digits: 4,096 terms are more than BF16's eight bits can count, and 32,768 are
more than FP16's eleven. No compiled library can narrow an accumulator (precision-verify
refuses it), so the step runs in the reference interpreter, which adds in the accumulator's type: once as compiled for a
policy, and once with every accumulator of its GEMMs in 16 bits.
"""
from __future__ import annotations

import json
import os
import pathlib
import struct
import subprocess
from dataclasses import dataclass

import numpy as np
import onnx

import mpt
import policies
from mpt._native import find_compiler

MODEL = """
  <ir_version: 9, opset_import: ["" : 18]>
  ink (float[32, {terms}] x) => (float[32, 1] ink) {{ ink = Gemm<transB = 1>(x, weight, bias) }}"""
STEPS = 40


def sheets(images, places: int, seed: int = 0):
    """32 sheets of `places` places, each place blank or a digit, with their mean ink; from blank sheets to full ones."""
    random = np.random.default_rng(seed)
    picked = images[random.integers(0, len(images), (32, places))].reshape(32, places, 64)
    picked = picked * (random.random((32, places)) < np.linspace(0, 1, 32)[:, None])[..., None]
    x = picked.reshape(32, 64 * places).astype(np.float32)
    return x, x.mean(1, keepdims=True)


def write_safetensors(path, tensors: dict) -> None:
    header, at = {}, 0
    for name, array in tensors.items():
        header[name] = {"dtype": "F32", "shape": array.shape, "data_offsets": [at, at + array.nbytes]}
        at += array.nbytes
    text = json.dumps(header).encode()
    pathlib.Path(path).write_bytes(b"".join([struct.pack("<Q", len(text)), text, *(a.tobytes() for a in tensors.values())]))


def read_scalar(path, name: str) -> float:
    raw = pathlib.Path(path).read_bytes()
    start = 8 + struct.unpack("<Q", raw[:8])[0]
    begin, end = json.loads(raw[8:start])[name]["data_offsets"]
    return float(np.frombuffer(raw[start + begin:start + end], np.float32)[0])


@dataclass
class Case:
    policy: str
    changes: tuple               # (old text, new text) of the policy's file
    operands: str                # type of the GEMMs' operands
    narrow: str = "bf16"         # the accumulators that FP32 is held against
    places: int = 64             # digits of 64 terms
    margin: float = 100.0        # least factor between the losses

    @property
    def name(self) -> str:
        return f"{self.policy}, {self.operands}"

    @property
    def terms(self) -> int:
        return 64 * self.places


# One layer is the first and the last of its network, which the 8-bit policies keep wider.
FIRST, LAST = ("  policy.where first -> storage\n", ""), ("  policy.where last -> storage\n", "")
RECIPES = {"amp-bf16": ((), "bf16"), "amp-f16": ((), "f16"), "fp8-current": ((FIRST, LAST), "f8E4M3FN"),
            "fp8-e5m2": ((FIRST, LAST), "f8E5M2")}
CASES = [*(Case(name, *RECIPES[name]) for name in ("amp-bf16", "fp8-current", "fp8-e5m2")),
         *(Case(name, *RECIPES[name], narrow="f16", places=512) for name in ("amp-f16", "fp8-current", "fp8-e5m2"))]


def losses(images, folder, case: Case = CASES[0]) -> dict:
    """{type of the accumulators: loss after 40 steps of gradient descent}."""
    folder = pathlib.Path(folder, f"accumulation-{case.policy}-{case.narrow}")
    os.makedirs(folder, exist_ok=True)
    model = onnx.parser.parse_model(MODEL.format(terms=case.terms))
    for name, shape in {"weight": (1, case.terms), "bias": (1,)}.items():
        model.graph.initializer.append(onnx.numpy_helper.from_array(np.zeros(shape, np.float32), name))
    onnx.save(model, folder / "ink.onnx")
    x, target = sheets(images, case.places)
    rate = 2e-3 * 64 / case.places  # the curvature grows with the terms
    write_safetensors(folder / "inputs", {"x": x, "target": target, "learning_rate": np.array(rate, np.float32)})
    flags = dict(loss="mse", optimizer=f"sgd,lr={rate}", policy=policies.changed(case.policy, case.changes, folder / "policy.mlir"))
    mpt.compile(folder / "ink.onnx", out=folder / "library", **flags)  # for the file with the initial state
    mpt.compile(folder / "ink.onnx", out=folder / "f32.mlir", emit="mlir", to="precision", **flags)
    text = (folder / "f32.mlir").read_text()
    wide, narrow = (f"in = {case.operands}, acc = {kind}" for kind in ("f32", case.narrow))
    if wide not in text:
        raise ValueError(f"policy {case.policy} made no GEMM of {case.operands}")
    (folder / f"{case.narrow}.mlir").write_text(text.replace(wide, narrow))
    results = {}
    for kind in ("f32", case.narrow):
        run = pathlib.Path(find_compiler()).with_name("mpt-run")
        subprocess.run([run, folder / f"{kind}.mlir", "--function=step", f"--steps={STEPS}", f"--inputs={folder / 'inputs'}",
                        f"--state={folder / 'library' / 'ink.safetensors'}", f"--outputs={folder / 'outputs'}"], check=True)
        results[kind] = read_scalar(folder / "outputs", "loss")
    return results


def report(images, folder, print_table) -> bool:
    """Prints the table of all cases; false where narrow accumulators were not missed."""
    rows, fine = [], True
    for case in CASES:
        found = losses(images, folder, case)
        missed = not found[case.narrow] < case.margin * found["f32"]
        fine &= missed
        rows += [[case.name, f"{case.terms:,}", "f32", f"{found['f32']:.2e}", ""],
                 [case.name, f"{case.terms:,}", case.narrow, f"{found[case.narrow]:.2e}",
                  "fails, as it must" if missed else "DOES NOT FAIL"]]
    print_table(["operands", "terms", "accumulators", "loss", ""], rows)
    return fine
