#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Trains files with TrainingInfoProto and holds three steps against a torch interpretation of the same files.

  check_algorithms.py FILES DATA --scripts FOLDER [--models a,b] [--policy P] [--spread RUNS]

FILES holds NAME.OPTIMIZER.train.onnx, DATA the inputs NAME.npz, and FOLDER the corpus' own make_traininginfo.py and torch_onnx.py, whose
interpretation in float64 is the reference and whose one in float32 says how much rounding may lose. The measure is
check_corpus.py's: an error passes at four times float32's error there, or 1e-5. A file beyond that is looked at again, as there: float32
then loses its largest over RUNS (16) more interpretations whose variables start one rounding unit, at random, from the file's, since a ReLU or
a maximum near a tie splits trajectories in two and one run shows one side; the line says so. Parameters after Adam and Adagrad count where the first
gradient is above 1e-3 of the largest; below, rounding noise becomes whole steps. With a narrow policy only the losses of
steps that are not skipped are compared, to a hundredth of the first one. Needs torch. Prints a line a file; the status is non-zero when any failed.
"""
import argparse
import glob
import os
import sys

import numpy as np

import corpus_measure as measure
import training_report as report

STEPS = 3


def reference(scripts, path, data, real, random=None):
    """Losses, parameters and states after the steps, and the first gradients; `random` moves their initial values by one unit of float32."""
    sys.path.insert(0, scripts)
    import make_traininginfo
    import onnx
    import torch
    import torch_onnx

    model = onnx.load(path)
    whole, info = make_traininginfo.combined(model), model.training_info[0]
    keys = {binding.key: binding.value for binding in info.update_binding}
    values = {tensor.name: torch_onnx.to_torch(tensor) for tensor in whole.graph.initializer if tensor.name in keys}
    values = {name: value.to(real) if value.is_floating_point() else value for name, value in values.items()}
    if random is not None:
        values = {name: value * (1 + 2.0**-24 * torch.from_numpy(random.standard_normal(value.shape))).to(real)
                  if value.is_floating_point() else value for name, value in values.items()}
    losses, first = [], None
    for _ in range(STEPS):
        feeds = {name: torch.from_numpy(np.array(array)) for name, array in data.items()}
        feeds.update({name: value.clone().requires_grad_(value.is_floating_point()) for name, value in values.items()})
        _, found = torch_onnx.run(whole, feeds, real=real)
        losses.append(found[model.graph.output[0].name].item())
        first = first or {n[:-5]: found[n].detach().double().numpy() for n in found if n.endswith("_grad") and n[:-5] in keys}
        values = {name: found[value].detach() for name, value in keys.items()}
    return losses, {name: value.double().numpy() for name, value in values.items()}, first


def check(path, data, arguments, folder):
    import mpt
    import torch

    exact, single = (reference(arguments.scripts, path, data, real) for real in (torch.float64, torch.float32))
    with mpt.Trainer(mpt.compile(path, out=folder, policy=arguments.policy, dropout=False), threads=1) as trainer:
        feeds = {name: data[name] for name in trainer.inputs() if name in data}
        losses = report.committed(trainer, feeds, STEPS)
        after = {name: trainer.parameter(name) for name in exact[1]}
    if arguments.policy != "fp32":
        return [measure.Row("loss", report.parting(losses, exact[0]), 1e-2 / measure.FACTOR)], ""
    rows = compared(path, exact, losses, after, [single])
    if arguments.spread and not all(row.ok for row in rows):
        random = np.random.default_rng(0)
        moved = [reference(arguments.scripts, path, data, torch.float32, random) for _ in range(arguments.spread)]
        return compared(path, exact, losses, after, [single, *moved]), f"of {arguments.spread} float32 runs"
    return rows, ""


def compared(path, exact, losses, after, singles):
    """Rows of the loss and each variable, beside the largest error of the float32 runs `singles`."""
    def lost(measured):
        return max(measured(single) for single in singles)

    scale = max(abs(loss) for loss in exact[0])

    def parting(of):
        return max(abs(a - b) for a, b in zip(of, exact[0])) / scale

    rows = [measure.Row("loss", parting(losses), lost(lambda single: parting(single[0])))]
    noise = 1e-3 * max(measure.largest(gradient) for gradient in exact[2].values())
    adaptive = ".adam." in path or ".adagrad." in path
    for name, value in exact[1].items():
        owner = name if name in exact[2] else name.rsplit(".", 1)[0]
        counts = np.abs(exact[2][owner]) > noise if adaptive and owner in exact[2] else np.ones(value.shape, bool)
        if counts.any():
            def error(of, name=name, value=value, counts=counts):
                return measure.error(of[name][counts], value[counts], 1e-6)

            rows.append(measure.Row("after " + name, error(after), lost(lambda single, error=error: error(single[1]))))
    return rows


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("files")
    parser.add_argument("data")
    parser.add_argument("--scripts", required=True)
    parser.add_argument("--models", default="")
    parser.add_argument("--policy", default="fp32")
    parser.add_argument("--spread", type=int, default=16, metavar="RUNS")
    arguments = parser.parse_args()
    wanted = set(filter(None, arguments.models.split(",")))

    def run(path, folder):
        with np.load(os.path.join(arguments.data, os.path.basename(path).split(".")[0] + ".npz")) as data:
            return check(path, dict(data), arguments, folder)

    paths = sorted(glob.glob(os.path.join(arguments.files, "*.train.onnx")))
    files = [(os.path.basename(path).removesuffix(".train.onnx"), path) for path in paths]
    return report.run("algorithms", [entry for entry in files if not wanted or entry[0].split(".")[0] in wanted], run)


if __name__ == "__main__":
    sys.exit(main())
