# SPDX-License-Identifier: Apache-2.0
"""PyTorch modules to ONNX in training form: batch norm and dropout stay as they are in training, every parameter keeps its
name, and gradients stay autograd's. torch.onnx.export's defaults fold batch norm into convolutions, merge equal parameters,
and drop a module's changes to its gradients."""
import contextlib
import inspect
import logging
import os
import re
import warnings

from . import _gradients
from ._errors import CompileError, CompileWarning
from ._gradient_check import compare, copied


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
    module = copied(module).train()
    for part in module.modules():
        if isinstance(part, torch.nn.modules.dropout._DropoutNd):
            part.inplace = False
    return module


@contextlib.contextmanager
def told(name: str):
    """Errors of torch's exporter as one line of ours: the innermost one has the reason, the others say how to report it to torch."""
    try:
        yield
    except CompileError:
        raise
    except Exception as problem:
        cause = problem
        while cause.__cause__ is not None:
            cause = cause.__cause__
        line = re.sub(r"\x1b\[[0-9;]*m", "", next(iter(str(cause).strip().splitlines()), "") or type(cause).__name__)
        raise CompileError(f"cannot export {name}: {line}: write that part of its forward in operations that torch.onnx.export takes") from problem


def captured(module, arguments, keywords):
    """The module's graph, in which autograd.Functions have the operators of _gradients, and the names of these functions."""
    import torch
    with _gradients.recorded() as functions:
        try:
            program = torch.export.export(module, arguments, keywords, strict=False)
        except _gradients.CompileError:
            raise
        except Exception:  # code that only TorchDynamo understands; gradients are compared afterwards
            functions.clear()
            program = torch.export.export(module, arguments, keywords, strict=True)
    return program, functions


def example(inputs, input_names) -> tuple:
    """Positional arguments, keyword arguments and names of inputs of a call of forward."""
    import torch
    if inputs is None:
        raise TypeError("compiling a torch module needs example inputs: inputs=(tensor, ...) or inputs={name: tensor}")
    if isinstance(inputs, torch.Tensor):
        inputs = (inputs,)
    keywords = dict(inputs) if isinstance(inputs, dict) else None
    return () if keywords else tuple(inputs), keywords, list(keywords) if keywords else input_names


def check_names(module, names) -> None:
    """In a file an input that is called like a tensor would be that tensor."""
    tensors = {**dict(module.named_parameters()), **dict(module.named_buffers())}
    for name in names:
        if name in tensors:
            raise CompileError(f"expected inputs with names of their own, got '{name}', which is a parameter or buffer of {type(module).__name__} too: "
                               "give the inputs as a tuple, and other names, input_names=[...]")


def export_inference(module, path, inputs, input_names=None) -> bool:
    """Writes `module` as eval() has it, which trained values are saved in. A module that has no such form still trains."""
    import torch
    arguments, keywords, names = example(inputs, input_names)
    try:
        torch.onnx.export(copied(module).eval(), arguments, os.fspath(path), kwargs=keywords,
                          input_names=list(names) if names else None, dynamo=True, optimize=False, verbose=False,
                          external_data=False, opset_version=20)
    except Exception as problem:  # whatever an exporter raises of a module that nobody has asked to export
        why = next(iter(str(problem).strip().splitlines()), type(problem).__name__)
        warnings.warn(f"{type(module).__name__} cannot be exported as eval() has it, so that save_onnx saves its form for training: {why}",
                      CompileWarning, stacklevel=4)
        return False
    return True


def export(module, path, inputs, input_names=None, gradients: bool = True) -> list:
    """Writes `module` as ONNX; `inputs` is a tuple of example tensors, or a dict by the names of forward's arguments. Returns the
    names of parameters that are not to be trained. Without `gradients` the file is for inference."""
    import torch
    arguments, keywords, names = example(inputs, input_names)
    check_names(module, names or list(inspect.signature(module.forward).parameters)[:len(arguments)])
    trained = training_copy(module)
    settings = {"input_names": list(names) if names else None, "dynamo": True, "optimize": False, "verbose": False,
                "external_data": False, "opset_version": 20, "custom_translation_table": batch_norm_translation()}
    with told(type(module).__name__):
        if not gradients:
            torch.onnx.export(trained, arguments, os.fspath(path), kwargs=keywords, **settings)
            return []
        program, functions = captured(trained, arguments, keywords)
        compare(trained, program, arguments, keywords or {})
        stops = _gradients.mark_stops(program)
        settings["custom_translation_table"] |= _gradients.translations()
        torch.onnx.export(program, (), os.fspath(path), **settings)
    held = [name for name, parameter in trained.named_parameters() if not parameter.requires_grad]
    say(type(module).__name__, stops, functions, held)
    return held


def say(name: str, stops: dict, functions, held: list) -> None:
    """The census of the module's changes to its gradients, on one line; nothing where there are none."""
    def some(items):
        items = list(dict.fromkeys(items))
        return ", ".join(items[:4]) + (f" and {len(items) - 4} more" if len(items) > 4 else "")

    parts = [f"{len(places)} stopped by {what} ({some(places)})" for what, places in stops.items()]
    if functions:
        parts.append(f"stated by autograd.Function {some(f'{f} ({n})' for f, n in functions.items())}")
    if parts:
        logging.getLogger("mpt").info("gradients of %s: %s", name, "; ".join(parts))
    if held:
        logging.getLogger("mpt").info("held, as requires_grad is False: %s", some(held))


def pattern(names: list) -> str | None:
    """The regular expression that matches these names and no others; in POSIX form, which mpt-opt takes."""
    return "|".join("^" + re.sub(r"([][.*+?{}()|^$\\])", r"\\\1", name) + "$" for name in names) or None
