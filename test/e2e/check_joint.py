#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Trains joint forward and backward graphs with the backward pass that they bring, and with our own.

  check_joint.py FOLDER [--models a,b] [--policies amp-f16,...] [--markdown FILE]

FOLDER holds NAME.joint.onnx and NAME.npz as make_joint.py --sgd writes them. For each file:
  agree    gradients of the file's backward pass and of ours, both in float64 in the reference interpreter
  loss, gradient   of the compiled library in FP32 against those float64 ones of ours; the limit is four times the error of ONNX Runtime's
           own run of the file, or 1e-5 (corpus_measure.py)
  step     parameters after a step of the library against the file's P_next as ONNX Runtime computes them, same limit
  POLICY   relative error of all gradients together in that policy, the file's backward pass against our own of the same file (four
           times; left out where both overflow at the first scale); steps: losses of the steps among ten that count, file against own,
           in units of the first; the limit is 2 %, or four times our own's distance from FP32, since some trajectories magnify every rounding;
           skipped: steps that only one of both skips, none of which may be
Rows of an embedding that the file leaves out of training (torch's padding_idx) are named beside it, and are held to the zero that the
file gives them: no forward graph says so. A row counts as such where its gradient in the file is all zero, ours is not, and the file
compares indices with that row's number.
Prints a line for every file; the status is non-zero when one fails. Needs a Python with onnxruntime.
"""
import argparse
import dataclasses
import os
import pathlib
import sys

import numpy as np

sys.path.insert(0, os.path.dirname(__file__))
import corpus_measure as measure  # noqa: E402
import step_files  # noqa: E402
import training_report as report  # noqa: E402
import mpt_run  # noqa: E402  (step_files has put its folder on the path)

AGREE = 1e-7
STEPS = 10


@dataclasses.dataclass
class Row:
    """A comparison whose limit is stated."""
    what: str
    error: float
    limit: float

    @property
    def ok(self):
        return bool(self.error <= self.limit)  # False for NaN


def interpret(model, feeds, folder, *flags):
    """Loss and gradients in float64."""
    mpt_run.write_tensors(folder / "in.safetensors", feeds)
    step_files.call("mpt-run", model, *flags, "--function=gradients", f"--inputs={folder}/in.safetensors",
                    f"--outputs={folder}/out.safetensors", "--fp64", "--no-dropout")
    return mpt_run.read_tensors(folder / "out.safetensors")


def run_file(model, feeds):
    """ONNX Runtime's results of the file."""
    import onnxruntime

    onnxruntime.set_default_logger_severity(4)
    session = onnxruntime.InferenceSession(str(model), providers=["CPUExecutionProvider"])
    names = [value.name for value in session.get_outputs()]
    return dict(zip(names, session.run(names, feeds)))


def compared_numbers(model):
    """Constants that the file compares integers with."""
    import onnx

    graph = onnx.load(str(model)).graph
    values = {tensor.name: onnx.numpy_helper.to_array(tensor) for tensor in graph.initializer}
    for node in graph.node:  # in topological order
        if node.op_type == "Constant" and node.attribute[0].name == "value":
            values[node.output[0]] = onnx.numpy_helper.to_array(node.attribute[0].t)
        elif node.op_type in ("Cast", "Identity") and node.input[0] in values:
            values[node.output[0]] = values[node.input[0]]
    constants = [values[name] for node in graph.node if node.op_type == "Equal" for name in node.input if name in values]
    return {int(value.flat[0]) for value in constants if value.size == 1 and value.dtype.kind == "i"}


def padded_rows(model, files, ours):
    """{parameter: rows that the file's backward pass leaves at zero and no forward graph could}."""
    rows = {}
    for name, value in ours.items():
        if name != "loss" and value.ndim == 2:
            apart = [row for row in range(len(value)) if np.any(value[row]) and not np.any(files[name][row])]
            if apart and set(apart) <= compared_numbers(model):
                rows[name] = apart
    return rows


def without(gradients, padded):
    """Copies with the padded rows at zero."""
    result = {name: np.array(value) for name, value in gradients.items()}
    for name, rows in padded.items():
        result[name][rows] = 0
    return result


class Run:
    """Gradients, losses and skips of a file under a policy."""

    def __init__(self, model, feeds, folder, backward, policy):
        import mpt

        trainer = mpt.Trainer(mpt.compile(model, out=folder / f"{policy}-{backward}", policy=policy, backward=backward, no_dropout=True),
                              threads=1)
        self.gradients = trainer.gradients(feeds)[1]
        done = [trainer.step(feeds) for _ in range(STEPS)]
        self.losses = [step.loss for step in done if not step.skipped]
        self.skipped = [bool(step.skipped) for step in done]


def policy_rows(model, feeds, folder, policy, exact, padded, wide):
    files, own = (Run(model, feeds, folder, whose, policy) for whose in ("file", "own"))
    apart = [report.distance(gradients, exact) for gradients in (files.gradients, without(own.gradients, padded))]
    rows = [measure.Row(policy, *apart)] if np.isfinite(apart).any() else []
    lost = max(report.parting(own.losses, wide.losses[:len(own.losses)]), 2e-2 / measure.FACTOR)
    rows.append(measure.Row(f"{policy}-steps", report.parting(files.losses, own.losses), lost))
    rows.append(Row(f"{policy}-skipped", float(sum(a != b for a, b in zip(files.skipped, own.skipped))), 0.0))
    return rows


def check(model, policies, folder):
    """Rows of one file."""
    import mpt

    with np.load(model.parent / (model.name.split(".")[0] + ".npz")) as archive:
        feeds = {name: archive[name] for name in archive.files}
    ours, files = (interpret(model, feeds, folder, f"--backward={whose}") for whose in ("own", "file"))
    padded = padded_rows(model, files, ours)
    ours, rows = without(ours, padded), []
    floor = 1e-3 * max(measure.largest(value) for name, value in ours.items() if name != "loss")
    agree = max(measure.error(files[name], value, floor) for name, value in ours.items())
    rows.append(Row("agree", agree, AGREE))
    runtime = run_file(model, feeds)
    single = max(measure.error(runtime[name + "_grad"], value, floor) for name, value in ours.items() if name != "loss")
    library = folder / "library"
    mpt.compile(model, out=library, no_dropout=True)
    trainer = mpt.Trainer(library)
    loss, gradients = trainer.gradients(feeds)
    limit = max(measure.FACTOR * single, measure.SMALLEST)
    rows.append(Row("loss", measure.relative(loss, float(ours["loss"])), measure.SMALLEST))
    rows.append(Row("gradient", max(measure.error(gradients[name], value, floor) for name, value in ours.items() if name != "loss"),
                 limit))
    trainer.step(feeds)
    after = trainer.parameters()
    rows.append(Row("step", max(measure.error(after[name[:-5]], value, floor) for name, value in runtime.items()
                             if name.endswith("_next") and name[:-5] in after), limit))
    exact = {name: value for name, value in ours.items() if name != "loss"}
    wide = Run(model, feeds, folder, "own", "fp32") if policies else None
    for policy in policies:
        rows += policy_rows(model, feeds, folder, policy, exact, padded, wide)
    return rows, ", ".join(f"padding: row {', '.join(map(str, at))} of {name}" for name, at in padded.items())


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
    policies = [name for name in given.policies.split(",") if name]
    models = [(path.name.split(".")[0], path) for path in sorted(given.folder.glob("*.joint.onnx"))]
    return report.run("joint graphs", [entry for entry in models if not wanted or entry[0] in wanted],
                      lambda model, folder: check(model, policies, folder), given.markdown)


if __name__ == "__main__":
    sys.exit(main())
