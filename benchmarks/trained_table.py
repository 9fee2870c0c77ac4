#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Trained tensors of modules that torch.onnx.export writes with its default options, and their gradients beside float64 autograd's.

    .venv/bin/python benchmarks/trained_table.py --definitions DIR [--models mlp,bert] [--exporters script,dynamo] [--results FILE.json]

DIR holds models.py with REGISTRY and build(name).  Modules of torch alone, and of torchvision, timm and transformers where these are
installed, are joined to them.  Each is exported twice: with weights as a new module has them, whose equal tensors exporters merge, and with
weights that all differ, by which tensors of the file are told from one another whatever their names, order and form.  "numbered" is the
TorchScript exporter with the names of torch before 1.13.  Batch norms are folded into convolutions by both exporters: a scale
is gone then, the filters are scaled by channel, and so are their gradients.
"""
from __future__ import annotations

import argparse
import contextlib
import copy
import io
import json
import logging
import pathlib
import sys
import tempfile
import traceback
import warnings

import numpy as np
import onnx
import torch
from torch import nn

import mpt
import trained_models

EXPORTERS = ("script", "numbered", "dynamo")


class Case:
    """A module in its form for inference, with inputs, and gradients of the sum of its outputs' losses in float64."""

    def __init__(self, module, inputs: dict, differ: bool):
        self.module, self.inputs = copy.deepcopy(module).eval(), inputs
        generator = torch.Generator().manual_seed(1)
        noise = lambda t, scale: scale * torch.randn(t.shape, generator=generator)
        with torch.no_grad():
            for tensor in self.module.parameters() if differ else ():
                tensor += noise(tensor, 0.1)
            for name, tensor in self.module.named_buffers() if differ else ():
                if name.endswith("running_mean"):
                    tensor += noise(tensor, 0.1)
        names = {}
        for name, tensor in self.module.named_parameters():
            names.setdefault(id(tensor), name)
        self.values = {name: t.detach().numpy().copy() for name, t in self.module.named_parameters() if id(t) in names}

    def gradients(self, targets: list) -> dict:
        """Of the means of squares, or of the outputs themselves where there are no targets; a tensor that nothing reads has none."""
        double = copy.deepcopy(self.module).double()
        args = [t.double() if t.is_floating_point() else t for t in self.inputs.values()]
        loss = 0
        for k, out in enumerate(outputs_of(double(*args))):
            loss = loss + (((out - torch.from_numpy(targets[k]).double()) ** 2).mean() if targets else out.sum())
        loss.backward()
        return {name: t.grad.numpy() for name, t in double.named_parameters() if t.grad is not None}


def outputs_of(result) -> list:
    if isinstance(result, torch.Tensor):
        return [result]
    values = result.values() if hasattr(result, "values") else result
    return [t for value in values for t in outputs_of(value) if t.is_floating_point()]


def export(case: Case, exporter: str, path: pathlib.Path) -> list:
    """Writes the file and returns the names of its float outputs."""
    args = tuple(case.inputs.values())
    names = [f"in{k}" for k in range(len(args))]
    with contextlib.redirect_stdout(io.StringIO()), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        if exporter == "dynamo":
            torch.onnx.export(copy.deepcopy(case.module), args, path, input_names=names, external_data=False)
        else:
            torch.onnx.export(copy.deepcopy(case.module), args, path, dynamo=False, input_names=names)
    model = onnx.load(path)
    if exporter == "numbered":
        number(model)
        onnx.save(model, path)
    return [o.name for o in model.graph.output if o.type.tensor_type.elem_type == onnx.TensorProto.FLOAT]


def number(model) -> None:
    """Old exporters name folded tensors by plain numbers, and say nothing of modules in names of nodes."""
    renamed = {t.name: str(1000 + k) for k, t in enumerate(model.graph.initializer) if t.name.startswith("onnx::")}
    for tensor in model.graph.initializer:
        tensor.name = renamed.get(tensor.name, tensor.name)
    for k, node in enumerate(model.graph.node):
        node.input[:] = [renamed.get(name, name) for name in node.input]
        node.name = f"{node.op_type}_{k}"
    model.producer_version = "1.10"


def train(path: pathlib.Path, folder: pathlib.Path, outputs: list):
    loss = [f"mse,output={name}" for name in outputs] if len(outputs) > 1 else f"mse,output={outputs[0]}"
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return mpt.Trainer(mpt.compile(path, out=folder, loss=loss, optimizer="sgd,lr=1e-3"), threads=2)


class Places:
    """Where elements of a module's tensor are in one of the file, by their values."""

    def __init__(self, values: np.ndarray):
        flat = values.reshape(-1)
        self.order = np.argsort(flat, kind="stable")
        self.sorted = flat[self.order]
        self.once = np.ones(flat.size, bool)
        same = self.sorted[1:] == self.sorted[:-1]
        self.once[1:] &= ~same
        self.once[:-1] &= ~same

    def of(self, values: np.ndarray):
        """(places, which of the values are here, which of these are certain), or nothing where the two have few values in common: either
        may be a part of the other, as rows of a table and parts of a matrix of several are."""
        flat = values.reshape(-1)
        at = np.minimum(np.searchsorted(self.sorted, flat), self.sorted.size - 1)
        here = self.sorted[at] == flat
        return (self.order[at], here, here & self.once[at]) if 2 * here.sum() >= max(1, min(flat.size, self.sorted.size)) else None


def by_channel(values: np.ndarray, file: np.ndarray):
    """The factor of each filter, in the shape of the module's tensor, where the file's tensor has one factor a channel."""
    for axis in range(min(values.ndim, 2)) if values.ndim >= 2 and values.shape == file.shape else ():
        a, b = (np.moveaxis(t, axis, 0).reshape(t.shape[axis], -1).astype(np.float64) for t in (values, file))
        factor = (a * b).sum(1) / (a * a).sum(1)
        if np.allclose(a * factor[:, None], b, rtol=1e-4, atol=1e-6 * np.abs(b).max()):
            return factor.reshape([-1 if k == axis else 1 for k in range(values.ndim)])
    return None


def off(got, want, least=1e-30) -> float:
    return float(np.linalg.norm(np.ravel(got) - np.ravel(want)) / max(np.linalg.norm(want), least))


def of_folded_norms(case: Case, trained: dict, gradients: dict) -> dict:
    """Gradients of convolutions, and of the batch norms behind them, that the exporter has made one: by the chain rule from the gradients
    of the file's filters w s / d and bias (b - m) s / d + t, where d is the root of the norm's variance."""
    found = {}
    norms = [(name, m) for name, m in case.module.named_modules() if isinstance(m, nn.modules.batchnorm._BatchNorm) and m.affine]
    for name, values in case.values.items():
        for tensor, file in trained.items():
            file, gradient = (t.T if values.ndim == 2 and values.shape != t.shape else t for t in (file, gradients[tensor]))
            factor = by_channel(values, file)
            if factor is None:
                continue
            for norm, m in norms:
                s, t, mean, var = (v.detach().numpy().astype(np.float64) for v in (m.weight, m.bias, m.running_mean, m.running_var))
                if s.size != factor.size or not np.allclose(s / np.sqrt(var + m.eps), factor.reshape(-1), rtol=1e-4):
                    continue
                bias = name.removesuffix("weight") + "bias"
                b = case.values.get(bias, np.zeros(s.size)) - mean
                same = [k for k, v in trained.items() if v.size == s.size and np.allclose(v.reshape(-1), b * factor.reshape(-1) + t, rtol=1e-4, atol=1e-5)]
                found[name] = gradient * factor
                if same:
                    beside = gradients[same[0]].reshape(-1)
                    across = tuple(k for k in range(values.ndim) if factor.shape[k] == 1)
                    found |= {norm + ".bias": beside, bias: beside * factor.reshape(-1),
                              norm + ".weight": ((gradient * values).sum(across) + beside * b) / np.sqrt(var + m.eps)}
    return found


def compare(case: Case, trained: dict, gradients: dict, true: dict) -> dict:
    """{module's tensor: relative difference of its gradient}, tensors that the exporter has made one with another, and tensors of
    which nothing that trains holds a value with a gradient."""
    places = {name: Places(values) for name, values in trained.items()}
    folded = of_folded_norms(case, trained, gradients)
    row = {"off": {}, "folded": [], "parts": [], "missing": []}
    least = 1e-4 * max(np.linalg.norm(g) for g in true.values())  # some gradients are zero but for rounding: biases before norms
    for name, values in case.values.items():
        if name not in true:
            continue
        found, certain, got = np.zeros(values.size, bool), np.ones(values.size, bool), np.zeros(values.size)
        for tensor in places:
            if at := places[tensor].of(values):
                place, here, sure = at
                found, certain = found | here, certain & (sure | ~here)
                got[here] += gradients[tensor].reshape(-1)[place[here]]
        if not found.any() and name in folded:
            found[:], got = True, folded[name].reshape(-1)
            row["folded"].append(name)
        want = true[name].reshape(-1)
        if np.abs(want[~found]).max(initial=0) > least / max(1, np.sqrt(values.size)):
            row["missing"].append(name)
        row["parts"] += [name] if 0 < found.sum() < values.size else []
        if found.any():
            row["off"][name] = off(got[certain & found], want[certain & found], least)
    return row


def measure(module, inputs: dict, exporter: str, folder: pathlib.Path) -> dict:
    row = {}
    for differ in (False, True):
        case = Case(module, inputs, differ)
        path = folder / "model.onnx"
        outputs = export(case, exporter, path)
        trainer = train(path, folder / f"lib{differ}", outputs)
        said = trainer.trained()
        read = {n: v for n, v in case.values.items() if n in case.gradients([])}
        if not differ:
            row.update(tensors=len(said["tensors"]), values=said["values"], held=said["held"], module=len(read),
                       module_values=int(sum(v.size for v in read.values())), apart=len(trainer.manifest.get("separated", {})))
            continue
        rng = np.random.default_rng(3)
        feed = {f"in{k}": t.numpy() for k, t in enumerate(inputs.values())}
        targets = [n for n in trainer.inputs("gradients") if n not in feed and n != "learning_rate"]
        feed |= {n: rng.standard_normal(trainer.inputs("gradients")[n][1]).astype(np.float32) for n in targets}
        # Targets are in the order of the losses.
        gradients = trainer.gradients({n: v for n, v in feed.items() if n in trainer.inputs("gradients")})[1]
        row.update(compare(case, trainer.parameters(trained=True), gradients, case.gradients([feed[n] for n in targets])))
        trainer.close()
    return row


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--definitions", help="folder of models.py")
    parser.add_argument("--models", help="only these, separated by commas")
    parser.add_argument("--exporters", default=",".join(EXPORTERS))
    parser.add_argument("--results", type=pathlib.Path, help="rows as JSON, one a line; those that are there are not made again")
    options = parser.parse_args()
    logging.getLogger("mpt").setLevel(logging.ERROR)
    logging.disable(logging.WARNING)
    rows = {}
    if options.results and options.results.exists():
        rows = {(r["model"], r["exporter"]): r for r in map(json.loads, options.results.read_text().splitlines()) if "failed" not in r}
    for name, build in trained_models.all_of(options.definitions).items():
        if options.models and name not in options.models.split(","):
            continue
        for exporter in options.exporters.split(","):
            if (name, exporter) in rows:
                continue
            torch.manual_seed(0)
            row = {"model": name, "exporter": exporter}
            try:
                with tempfile.TemporaryDirectory() as folder:
                    row |= measure(*build(), exporter, pathlib.Path(folder))
            except Exception as problem:
                row["failed"] = f"{type(problem).__name__}: {str(problem).strip().splitlines()[0][:300]}"
                traceback.print_exc(limit=-1)
            rows[name, exporter] = row
            print(json.dumps(row), flush=True)
            if options.results:
                options.results.write_text("".join(json.dumps(r) + "\n" for r in rows.values()))


if __name__ == "__main__":
    sys.exit(main())
