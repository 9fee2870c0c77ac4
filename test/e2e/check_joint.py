#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Trains joint forward and backward graphs with the backward pass that they bring, and with our own.

  check_joint.py FOLDER [--models a,b] [--policies amp-f16,...] [--markdown FILE]

FOLDER holds NAME.joint.onnx and NAME.npz as make_joint.py --sgd writes them. For each file:
  agree    gradients of the file's backward pass and of ours, both in float64 in the reference interpreter
  loss, gradient   of the compiled library in FP32 against those float64 ones of ours; the limit is four times what ONNX Runtime's
           own run of the file loses, or 1e-5 (corpus_measure.py)
  step     parameters after a step of the library against the file's P_next as ONNX Runtime computes them, same limit
  policy   losses of ten steps with the file's backward pass and with ours, per policy, and steps skipped by each
Prints a line for every file; the status is non-zero when one fails. Needs a Python with onnxruntime.
"""
import argparse
import os
import pathlib
import sys
import tempfile

import numpy as np

sys.path.insert(0, os.path.dirname(__file__))
import corpus_measure as measure  # noqa: E402
import step_files  # noqa: E402
import mpt_run  # noqa: E402  (step_files has put its folder on the path)

AGREE = 1e-7


def interpret(model, feeds, folder, *flags):
    """Loss and gradients in float64."""
    mpt_run.write_tensors(folder / "in.safetensors", feeds)
    step_files.call("mpt-run", model, *flags, "--function=gradients", f"--inputs={folder}/in.safetensors",
                    f"--outputs={folder}/out.safetensors", "--fp64", "--no-dropout")
    return mpt_run.read_tensors(folder / "out.safetensors")


def run_file(model, feeds):
    """What ONNX Runtime makes of the file."""
    import onnxruntime

    onnxruntime.set_default_logger_severity(4)
    session = onnxruntime.InferenceSession(str(model), providers=["CPUExecutionProvider"])
    names = [value.name for value in session.get_outputs()]
    return dict(zip(names, session.run(names, feeds)))


def trajectory(model, feeds, folder, backward, policy, steps=10):
    import mpt

    mpt.compile(model, out=folder, policy=policy, backward=backward, no_dropout=True)
    trainer = mpt.Trainer(folder)
    done = [trainer.step(feeds) for _ in range(steps)]
    return [step.loss for step in done], sum(bool(step.skipped) for step in done)


def check(model, policies, folder):
    """[(what, error, limit)] of one file."""
    import mpt

    with np.load(model.parent / (model.name.split(".")[0] + ".npz")) as archive:
        feeds = {name: archive[name] for name in archive.files}
    ours, files = (interpret(model, feeds, folder, f"--backward={whose}") for whose in ("own", "file"))
    rows = []
    floor = 1e-3 * max(measure.largest(value) for name, value in ours.items() if name != "loss")
    agree = max((measure.error(files[name], value, floor), name) for name, value in ours.items())
    rows.append(("agree", agree[0], AGREE))
    runtime = run_file(model, feeds)
    single = max(measure.error(runtime[name + "_grad"], value, floor) for name, value in ours.items() if name != "loss")
    library = folder / "library"
    mpt.compile(model, out=library, no_dropout=True)
    trainer = mpt.Trainer(library)
    loss, gradients = trainer.gradients(feeds)
    limit = max(measure.FACTOR * single, measure.SMALLEST)
    rows.append(("loss", measure.relative(loss, float(ours["loss"])), measure.SMALLEST))
    rows.append(("gradient", max(measure.error(gradients[name], value, floor) for name, value in ours.items() if name != "loss"),
                 limit))
    trainer.step(feeds)
    after = trainer.parameters()
    rows.append(("step", max(measure.error(after[name[:-5]], value, 0.0 + floor) for name, value in runtime.items()
                             if name.endswith("_next") and name[:-5] in after), limit))
    for policy in policies:
        (a, skipped_a), (b, skipped_b) = (trajectory(model, feeds, folder / f"{policy}-{whose}", whose, policy)
                                          for whose in ("file", "own"))
        apart = max(abs(x - y) / max(abs(y), 1e-6) for x, y in zip(a, b))
        rows.append((f"{policy} (skipped {skipped_a}, {skipped_b})", apart, 2e-2))
    return rows


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=pathlib.Path)
    parser.add_argument("--models", default="")
    parser.add_argument("--policies", default="amp-f16")
    parser.add_argument("--markdown")
    given = parser.parse_args()
    import mpt

    mpt.use_build(step_files.BUILD)
    wanted = [name for name in given.models.split(",") if name]
    bad, lines = 0, []
    models = sorted(given.folder.glob("*.joint.onnx"))
    for model in models:
        name = model.name.split(".")[0]
        if wanted and name not in wanted:
            continue
        with tempfile.TemporaryDirectory() as folder:
            try:
                rows = check(model, [p for p in given.policies.split(",") if p], pathlib.Path(folder))
                ok = all(error <= limit for _, error, limit in rows)
                cells = [f"{what} {error:.1e}/{limit:.0e}" for what, error, limit in rows]
            except Exception as problem:  # the line says it
                ok, cells = False, [" ".join(str(problem).split())[:300]]
        bad += not ok
        print(f"{name:14s} {'ok  ' if ok else 'FAIL'} " + "  ".join(cells), flush=True)
        lines.append(f"| {name} | {'ok' if ok else 'FAIL'} | " + " | ".join(cells) + " |")
    print(f"{len(lines) - bad} passed, {bad} failed")
    if given.markdown:
        pathlib.Path(given.markdown).write_text("\n".join(lines) + "\n")
    return bad != 0 or not lines


if __name__ == "__main__":
    sys.exit(main())
