# SPDX-License-Identifier: Apache-2.0
"""Writes one benchmark model as ONNX with its loss, its inputs and its optimizer: export.py MODEL FOLDER [OPSET [EXAMPLES]].

With EXAMPLES the model is traced on so many of its batch's examples, and the batch's extent stays symbolic, `batch`: tracing runs
the model, which takes a processor long on a batch that is meant for a GPU.
"""
from __future__ import annotations

import os
import sys

import numpy as np
import torch

import models


def main(name: str, folder: str, opset: str = "17", examples: str = "") -> None:
    os.makedirs(folder, exist_ok=True)
    case = models.build(name)
    case.module.train()
    np.savez(os.path.join(folder, "inputs.npz"), **{k: v.numpy() for k, v in case.inputs.items()})
    with open(os.path.join(folder, "optimizer"), "w") as f:
        f.write(case.optimizer)
    # The TorchScript exporter keeps BatchNormalization in training form and every parameter under its own name.
    arguments = tuple(v[:int(examples)] if examples else v for v in case.inputs.values())
    axes = {name: {0: "batch"} for name in case.inputs} if examples else None
    torch.onnx.export(case.module, arguments, os.path.join(folder, "model.onnx"), dynamo=False,
                      training=torch.onnx.TrainingMode.TRAINING, do_constant_folding=False, opset_version=int(opset),
                      input_names=list(case.inputs), output_names=["loss"], dynamic_axes=axes)


if __name__ == "__main__":
    main(*sys.argv[1:])
