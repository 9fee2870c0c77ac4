# SPDX-License-Identifier: Apache-2.0
"""Runs libraries of data/conformance or data/training on this machine: conform.py [--jobs N] FOLDER...

Each library runs in a process of its own, since a kernel that faults takes its process's device along. Prints a JSON line a
case: its name and the largest error, and where something is wrong, the error's text (which names the ONNX node).
"""
from __future__ import annotations

import argparse
import json
import multiprocessing
import os
import pathlib
import struct
import traceback

import gradients
import numpy as np
import standin
import trainers

# Relative, of the first step's loss; later ones ten times that.
TOLERANCE = {"fp32": 1e-5, "f16": 4e-3, "bf16": 2e-2, "fp8": 5e-2}
TYPES = {"F64": "float64", "F32": "float32", "F16": "float16", "BF16": "bfloat16", "F8_E4M3": "float8_e4m3fn",
         "F8_E5M2": "float8_e5m2", "I64": "int64", "I32": "int32", "I8": "int8", "BOOL": "bool"}


def read_tensors(path) -> dict:
    import ml_dtypes  # noqa: F401  numpy then knows the names of narrow types
    raw = pathlib.Path(path).read_bytes()
    length, = struct.unpack("<Q", raw[:8])
    found = {}
    for name, entry in json.loads(raw[8:8 + length]).items():
        if name != "__metadata__":
            begin, end = entry["data_offsets"]
            found[name] = np.frombuffer(raw[8 + length + begin:8 + length + end], np.dtype(TYPES[entry["dtype"]])).reshape(entry["shape"])
    return found


def compare(got, want, tolerance):
    """(largest error, text of the first element that is off)"""
    got, want = np.asarray(got), np.asarray(want)
    if standin.is_dry() and got.shape == want.shape:
        return 0.0, ""
    if got.shape != want.shape:
        return float("inf"), f"expected the shape {want.shape}, got {got.shape}"
    g, w = got.astype(np.float64).reshape(-1), want.astype(np.float64).reshape(-1)
    with np.errstate(invalid="ignore"):
        error = np.where((g == w) | (np.isnan(g) & np.isnan(w)), 0, np.abs(g - w))
    error = np.where(np.isnan(error), np.inf, error)
    bad = np.flatnonzero(error > tolerance)
    text = f"element {bad[0]} of {len(g)} ({len(bad)} off): expected {w[bad[0]]:.9g} within {tolerance:.3g}, got {g[bad[0]]:.9g}" if len(bad) else ""
    return float(error.max(initial=0)), text


def run_cases(folder):
    import mpt
    tensors = read_tensors(folder / "cases.safetensors")
    with mpt.Trainer(folder, options=trainers.options) as trainer:
        for function in sorted({name.split("/")[0] for name in tensors}):
            part = lambda what: {name.split("/", 2)[2]: value for name, value in tensors.items()  # noqa: E731
                                 if name.startswith(f"{function}/{what}/")}
            row = {"case": f"{folder.name}.{function}", "folder": str(folder), "ok": True}
            try:
                for run in ("call by call", "as a graph"):
                    outputs = trainer.run(function, part("in"))
                    tolerances = part("tolerance")
                    for name, want in part("out").items():
                        error, text = compare(outputs[name], want, float(tolerances[name]))
                        row["error"] = max(row.get("error", 0), error)
                        if text and row["ok"]:
                            row.update(ok=False, problem=f"{run}, {name}: {text}")
            except Exception as problem:
                row.update(ok=False, problem=str(problem))
            yield row
            if "CUDA_ERROR" in row.get("problem", ""):
                return


def apart(got, want) -> list:
    """Relative errors of losses."""
    return [abs(a - b) / max(abs(b), 1e-30) if np.isfinite(a) else float("inf") for a, b in zip(got, want)]


def run_training(folder):
    """Gradients of all parameters, from two batches, as the first run, a recorded one and a graph's, then losses in evaluation form, which
    has kernels of its own, and of steps."""
    import mpt
    want = json.loads((folder / "expected.json").read_text())
    batches = [dict(np.load(folder / f"batch{i}.npz")) for i in range(2)]
    exact = [] if standin.is_dry() else [gradients.grown(dict(np.load(folder / f"gradients{i}.npz"))) for i in range(2)]
    row = {"case": f"{folder.parent.name} {folder.name}", "policy": want["policy"], "folder": str(folder), "share": 0.0}
    problems = []
    with mpt.Trainer(folder / "cuda", options=trainers.options) as trainer:
        for _ in range(want["skips"]):
            trainer.step(batches[0])
        for run, number in (("call by call", 0), ("recorded", 1), ("as a graph", 0)):
            _, found = trainer.gradients(batches[number])
            if standin.is_dry():
                continue
            share, where, wrong = gradients.compare(found, exact[number], want["policy"], want["noise"][number])
            problems += [f"{run}, {text}" for text in wrong]
            if share >= row["share"]:
                row.update(share=share, where=where)
        evaluated = [float(trainer.evaluate(batch)["loss"]) for batch in batches]
        losses = [trainer.step(batches[0]).loss for _ in want["losses"]]
    errors, limit = apart(losses, want["losses"]), TOLERANCE[gradients.kind_of(want["policy"])]
    if max(apart(evaluated, want["evaluated"])) > limit and not standin.is_dry():
        problems.append(f"expected the losses {want['evaluated']} in evaluation form, got {evaluated}")
    # Updates amplify the first roundings, through batch norm over few values above all.
    if not (errors[0] <= limit and max(errors) <= 10 * limit) and not standin.is_dry():
        problems.append(f"expected the losses {want['losses']}, got {losses}")
    row.update(losses=losses, first_error=errors[0], error=max(errors), ok=not problems)
    if problems:
        row.update(problem="; ".join(problems[:4]), wrong=len(problems))
    yield row


def run(folder, out) -> None:
    try:
        for row in run_training(folder) if (folder / "expected.json").exists() else run_cases(folder):
            if text := standin.violations():
                row.update(ok=False, problem=text)
            out(row)
    except Exception as problem:
        out({"case": folder.name, "folder": str(folder), "ok": False, "problem": f"{problem}", "where": traceback.format_exc(limit=-2)})


def child(folder, lines) -> None:
    run(folder, lambda row: lines.put(row))


def main() -> None:
    parse = argparse.ArgumentParser()
    parse.add_argument("folders", type=pathlib.Path, nargs="+")
    parse.add_argument("--jobs", type=int, default=1, help="processes at a time; 0: all in this one")
    parse.add_argument("--limit", type=float, default=60, help="seconds of one library")
    trainers.add_argument(parse)
    a = parse.parse_args()
    trainers.take(a.option)
    show = lambda row: print(json.dumps(row), flush=True)  # noqa: E731
    if not a.jobs:
        for folder in a.folders:
            run(folder, show)
        return
    context = multiprocessing.get_context("fork")  # nothing of CUDA is open here
    waiting, running = list(a.folders), []
    while waiting or running:
        while waiting and len(running) < a.jobs:
            folder, lines = waiting.pop(0), context.SimpleQueue()
            process = context.Process(target=child, args=(folder, lines))
            process.start()
            running.append((folder, process, lines, time_now() + a.limit))
        for entry in list(running):
            folder, process, lines, deadline = entry
            process.join(0.02)
            done = not process.is_alive()
            while not lines.empty():
                show(lines.get())
            if not done and time_now() > deadline:
                process.kill()
                show({"case": folder.name, "folder": str(folder), "ok": False, "problem": f"no end within {a.limit:g} s"})
            elif done and process.exitcode:
                show({"case": folder.name, "folder": str(folder), "ok": False, "problem": f"the process ended with status {process.exitcode}"})
            elif not done:
                continue
            running.remove(entry)


def time_now() -> float:
    import time
    return time.monotonic()


if __name__ == "__main__":
    os.environ.setdefault("OMP_NUM_THREADS", "1")
    main()
