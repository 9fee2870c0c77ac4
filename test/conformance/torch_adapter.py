# SPDX-License-Identifier: Apache-2.0
"""PyTorch's autograd behind gradient.py: each node by the function that PyTorch has for it, in FP64.

    gradient.py --adapter torch_adapter.Adapter --results FILE

Nodes without a rule (torch_ops.py and its neighbours) raise NoRule: PyTorch has no such operator, or not in this form.
"""
import numpy as np
from onnx import helper


class Adapter:
    """Gradients of a model's weighted sum of outputs; raises ImportError where PyTorch is not installed."""

    def __init__(self, _build=None):
        import torch
        self.torch = torch

    def gradients(self, model, inputs: dict, variables: list, weights: dict) -> dict:
        import torch_attention  # noqa: F401 rules enter themselves
        import torch_movement  # noqa: F401
        import torch_ops
        import torch_recurrent  # noqa: F401
        import torch_resample  # noqa: F401
        import torch_windows  # noqa: F401
        torch = self.torch
        values = {"": None}
        for name, value in inputs.items():
            array = np.asarray(value)
            small = array.dtype.kind == "V" or array.dtype.name.startswith(("float8", "float4", "int4", "uint4", "int2", "uint2", "bfloat16"))
            values[name] = torch.tensor(array.astype(np.float64) if small or array.dtype == np.float32 else array)
        for name in variables:
            values[name].requires_grad_()
        opset = max((entry.version for entry in model.opset_import if entry.domain in ("", "ai.onnx")), default=18)
        for node in model.graph.node:
            attributes = {entry.name: helper.get_attribute_value(entry) for entry in node.attribute}
            attributes = {key: value.decode() if isinstance(value, bytes) else value for key, value in attributes.items()}
            results = torch_ops.call(node, [values[name] for name in node.input], attributes, opset)
            values |= {name: result for name, result in zip(node.output, results) if name}
        loss = sum((values[name] * torch.tensor(weight)).sum() for name, weight in weights.items())
        wanted = [values[name] for name in variables]
        found = torch.autograd.grad(loss, wanted, allow_unused=True) if loss.requires_grad else [None] * len(wanted)
        return {name: np.zeros_like(inputs[name]) if slope is None else slope.numpy() for name, slope in zip(variables, found)}
