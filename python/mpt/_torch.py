# SPDX-License-Identifier: Apache-2.0
"""PyTorch modules to ONNX in training form: batch norm and dropout stay what they are in training, and every parameter
keeps its name. torch.onnx.export's defaults fold batch norm into convolutions and merge equal parameters."""
import copy
import os


def batch_norm_translation() -> dict:
    """The exporter's own translation of batch norm is the inference form; this one says training_mode=1."""
    import torch
    from onnxscript import opset20 as op

    def translate(input, weight=None, bias=None, running_mean=None, running_var=None, training: bool = True,
                  momentum: float = 0.1, eps: float = 1e-5):
        y, mean, variance = op.BatchNormalization(input, weight, bias, running_mean, running_var, epsilon=eps,
                                                  momentum=1.0 - momentum, training_mode=1)
        return y, mean, variance, mean, variance

    return {torch.ops.aten._native_batch_norm_legit_functional.default: translate}


def training_copy(module):
    """The module in training mode. Dropout in place would be decomposed into random numbers and comparisons."""
    import torch
    module = copy.deepcopy(module).train()
    for part in module.modules():
        if isinstance(part, torch.nn.modules.dropout._DropoutNd):
            part.inplace = False
    return module


def export(module, path, inputs, input_names=None) -> None:
    """Writes `module` as ONNX; `inputs` is a tuple of example tensors, or a dict by the names of forward's arguments."""
    import torch
    if inputs is None:
        raise TypeError("compiling a torch module needs example inputs: inputs=(tensor, ...) or inputs={name: tensor}")
    if isinstance(inputs, torch.Tensor):
        inputs = (inputs,)
    keywords = dict(inputs) if isinstance(inputs, dict) else None
    names = list(keywords) if keywords else input_names
    torch.onnx.export(training_copy(module), () if keywords else tuple(inputs), os.fspath(path), kwargs=keywords,
                      input_names=list(names) if names else None, dynamo=True, optimize=False, verbose=False,
                      external_data=False, opset_version=20, custom_translation_table=batch_norm_translation())
