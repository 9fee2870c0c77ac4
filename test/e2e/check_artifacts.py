#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Trains ONNX Runtime's training artifacts and holds them against FP64 and against ONNX Runtime Training's own numbers.

  check_artifacts.py FOLDER --data FOLDER --scripts FOLDER [--only REGEX] [--policies amp-f16,amp-bf16] [--markdown FILE]

FOLDER holds, at any depth, folders of artifacts as generate_artifacts writes them, with ONNX Runtime's values after a step beside
them (after_step.npz: __loss and each parameter). The data of FOLDER/FORM/NAME.VARIANT.OPTIMIZER are DATA/NAME.npz, or inputs.npz
in the folder itself, and the graph that it was made from is DATA/FORM/NAME.VARIANT.onnx where there is one. --scripts names the corpus'
own oracle.py and torch_onnx.py, whose float64 run is the reference. For each folder:
  loss, gradient   of the compiled library in FP32 against float64, from autograd on the forward graph where there is one; the limit is
                   four times the float32 error of the reference implementation (for the loss: or in ONNX Runtime), or 1e-5
                   (corpus_measure.py). A file whose gradients are not its forward pass's is held against itself, and that is said
  step             parameters after a step against the optimizer's formula on the float64 gradients; the limit is four times
                   ONNX Runtime's own distance. After Adam only where the gradient is above 1e-3 of the largest
  POLICY           relative error of all gradients together in that policy, the file's backward pass against our own of the same file (four
                   times; left out where both overflow at the first scale), and the losses of five steps against FP32's losses (a hundredth of the
                   first)
Dropout is switched off; files with a ratio above 0 have no step of ONNX Runtime to compare with. Needs torch. Prints a line a folder; the
status is non-zero when one fails.
"""
import argparse
import os
import pathlib
import re
import sys

import numpy as np
import onnx
from onnx import numpy_helper

sys.path.insert(0, os.path.dirname(__file__))
import corpus_measure as measure  # noqa: E402
import training_report as report  # noqa: E402

SUFFIX = "_grad.accumulation.buffer"
ALIASES = {"labels": "y", "target": "y"}
STEPS = 5


def load(path):
    with np.load(path) as archive:
        return {key: archive[key] for key in archive.files}


class Artifacts:
    """A folder of artifacts with its data."""

    def __init__(self, folder, root, data):
        self.folder, self.key = folder, str(folder.relative_to(root))
        self.model = onnx.load(folder / "training_model.onnx")
        form, name, variant = (*folder.parts[-2:-1], *(folder.name.split(".") + ["", ""])[:2])
        own = folder / "inputs.npz"
        given = load(own if own.exists() else data / f"{name}.npz")
        self.trained = [value.name[:-len(SUFFIX)] for value in self.model.graph.input if value.name.endswith(SUFFIX)]
        names = [value.name for value in self.model.graph.input]
        self.feeds = {n: given.get(n, given.get(ALIASES.get(n, ""))) for n in names[:names.index(self.trained[0])]}
        self.feeds = {n: value for n, value in self.feeds.items() if value is not None}
        self.forward = data / form / f"{name}.{variant}.onnx" if not own.exists() and variant == "loss" else None
        after = folder / "after_step.npz"
        self.after = load(after) if after.exists() else None
        self.extents = {}
        for value in self.model.graph.input:
            for dim, extent in zip(value.type.tensor_type.shape.dim, getattr(self.feeds.get(value.name), "shape", ())):
                if dim.dim_param:
                    self.extents[dim.dim_param] = extent
        drops = [node for node in self.model.graph.node if node.op_type == "Dropout"]
        ratios = {tensor.name: float(numpy_helper.to_array(tensor)) for tensor in self.model.graph.initializer
                  if any(tensor.name == node.input[1] for node in drops if len(node.input) > 1)}
        self.is_random = any(len(node.input) < 2 or ratios.get(node.input[1], 1) > 0 for node in drops)
        for tensor in self.model.graph.initializer:  # the reference's gradient operators take the ratio whatever the mode
            if tensor.name in ratios:
                tensor.CopyFrom(numpy_helper.from_array(np.zeros_like(numpy_helper.to_array(tensor)), tensor.name))

    def optimizer(self):
        for node in onnx.load(self.folder / "optimizer_model.onnx").graph.node:
            if node.op_type == "AdamWOptimizer":
                return {a.name: onnx.helper.get_attribute_value(a) for a in node.attribute}
        return None

    def by_autograd(self, real):
        """(loss, gradients) of the forward graph; nothing where there is none."""
        import oracle

        if not self.forward or not self.forward.exists():
            return None
        found = oracle.reference(onnx.load(self.forward), self.feeds, self.trained, real=real)
        return found["loss"][0], {name: found["grad/" + name] for name in self.trained}

    def by_file(self, real, weights):
        """(loss, gradients) as the training graph computes them."""
        import torch
        import torch_onnx

        feeds = {name: torch.from_numpy(np.array(value)) for name, value in {**self.feeds, **weights}.items()}
        for value in self.model.graph.input:
            if value.name.endswith(SUFFIX):
                feeds[value.name] = torch.zeros(weights[value.name[:-len(SUFFIX)]].shape)
        feeds["lazy_reset_grad"] = torch.tensor([True])
        (loss,), env = torch_onnx.run(self.model, feeds, [self.model.graph.output[0].name], real=real, dropout="off")
        return loss.item(), {name: env["__state__"][name + SUFFIX].detach().numpy() for name in self.trained}


def adamw(p, g, settings, rate=1e-3):
    """The first step of AdamWOptimizer."""
    beta1, beta2, epsilon = settings.get("alpha", .9), settings.get("beta", .999), settings.get("epsilon", 1e-8)
    decay, m, v = settings.get("weight_decay", 1e-2), (1 - beta1) * g, (1 - beta2) * g * g
    corrected = (1 - beta1, 1 - beta2) if settings.get("correct_bias", 1) else (1.0, 1.0)
    if settings.get("adam_mode", 0):
        p = p - rate * np.sqrt(corrected[1]) / corrected[0] * m / (np.sqrt(v) + epsilon)
        return p - rate * decay * p
    return p * (1 - rate * decay) - rate / corrected[0] * m / (np.sqrt(v / corrected[1]) + epsilon)


def step_row(case, before, gradients, ours):
    """All parameters after one step beside ONNX Runtime's, both against the formula in float64."""
    settings, worst = case.optimizer(), [0.0, 0.0]
    noise = 1e-3 * max(map(measure.largest, gradients.values()))
    for name, gradient in gradients.items():
        p, g = before[name].astype(np.float64), gradient.astype(np.float64)
        exact = p - 1e-3 * g if settings is None else adamw(p, g, settings)
        counts = np.ones(p.shape, bool) if settings is None else np.abs(g) > noise
        for i, value in enumerate((ours[name], case.after[name].reshape(p.shape))):
            worst[i] = max(worst[i], measure.error(value[counts], exact[counts], 1e-3) if counts.any() else 0.0)
    return measure.Row("step", *worst)


def check(case, policies, out):
    import mpt
    import torch

    def trainer(name, **flags):
        return mpt.Trainer(mpt.compile(case.folder, out=out / name, bind=case.extents, dropout=False, **flags), threads=1)

    single = trainer("fp32")
    feeds = {name: value for name, value in case.feeds.items() if name in single.inputs()}
    before = single.parameters()
    loss, gradients = single.gradients(feeds)
    losses = [single.step(feeds).loss]
    after = single.parameters()
    losses += [single.step(feeds).loss for _ in range(STEPS - 1)]
    said, truth = case.by_file(torch.float64, before), case.by_autograd(torch.float64)
    # The file's values are the reference where its backward pass is not its forward pass's, and we do not replace it.
    wrong = truth and report.distance(said[1], truth[1])
    takes_file = not truth or wrong > 1e-6 and report.distance(gradients, said[1]) < report.distance(gradients, truth[1])
    exact_loss, exact = said if takes_file else truth
    rounded_loss, rounded = case.by_file(torch.float32, before) if takes_file else case.by_autograd(torch.float32)
    floor = 1e-3 * max(map(measure.largest, exact.values()))
    theirs = measure.relative(np.ravel(case.after["__loss"])[0], exact_loss) if case.after and not case.is_random else 0.0
    rows = [measure.Row("loss", measure.relative(loss, exact_loss), max(measure.relative(rounded_loss, exact_loss), theirs))]
    if set(gradients) != set(exact):
        raise ValueError(f"expected gradients of {len(exact)} parameters, got {len(gradients)}")
    rows += [measure.Row("gradient " + name, measure.error(gradients[name], value, floor), measure.error(rounded[name], value, floor))
             for name, value in exact.items()]
    if case.after and not case.is_random:
        rows.append(step_row(case, before, exact, after))
    for policy in policies:
        narrow, own = (trainer(f"{policy}-{whose}", policy=policy, backward=whose) for whose in ("file", "own"))
        apart = [report.distance(model.gradients(feeds)[1], exact) for model in (narrow, own)]
        if np.isfinite(apart).any():  # where both overflow at the first scale, the steps decide
            rows.append(measure.Row(policy, *apart))
        rows.append(measure.Row(policy + " steps", report.parting(report.committed(narrow, feeds, STEPS), losses),
                                1e-2 / measure.FACTOR))
    return rows, f"gradients of the file, {wrong:.1e} from those of its forward pass" if truth and takes_file else ""


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=pathlib.Path)
    parser.add_argument("--data", type=pathlib.Path, required=True)
    parser.add_argument("--scripts", required=True)
    parser.add_argument("--only", default="")
    parser.add_argument("--policies", default="amp-f16,amp-bf16")
    parser.add_argument("--markdown")
    given = parser.parse_args()
    sys.path.insert(0, given.scripts)
    policies = [name for name in given.policies.split(",") if name]
    folders = [path.parent for path in sorted(given.folder.rglob("training_model.onnx")) if re.search(given.only, str(path.parent))]
    return report.run("artifacts", [(str(folder.relative_to(given.folder)), folder) for folder in folders],
                      lambda folder, out: check(Artifacts(folder, given.folder, given.data), policies, out), given.markdown)


if __name__ == "__main__":
    sys.exit(main())
