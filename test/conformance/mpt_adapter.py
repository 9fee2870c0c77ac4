# SPDX-License-Identifier: Apache-2.0
"""mpt behind gradient.py. Another backend takes a class with this constructor and this method."""
import tempfile
from pathlib import Path

import numpy as np
from onnx import TensorProto, helper, numpy_helper

LOSS = "sum.of.weighted.outputs"  # no output of the suite is called that

NARROW = {"int2", "uint2", "int4", "uint4", "float4_e2m1fn"}  # numpy's names of types that no constant of mpt has


def left_open(inputs: dict) -> dict:
    """The inputs that stay inputs of the model."""
    return {name: value for name, value in inputs.items() if np.asarray(value).dtype.name in NARROW}


def with_loss(model, inputs: dict, variables: list, weights: dict):
    """The model with its variables as initializers, all other inputs as constants or left open, and LOSS, the sum of its float outputs
    times their weights, as its only output."""
    graph = model.graph
    nodes = list(graph.node)
    initializers = list(graph.initializer) + [numpy_helper.from_array(np.asarray(inputs[name]), name) for name in variables]
    for name, value in inputs.items():
        if name not in variables and name not in left_open(inputs):
            nodes.insert(0, helper.make_node("Constant", [], [name], value=numpy_helper.from_array(np.asarray(value), name)))
    terms = []
    for name, weight in weights.items():
        constant, product, term = f"{name}.weight", f"{name}.weighted", f"{name}.sum"
        nodes.append(helper.make_node("Constant", [], [constant], value=numpy_helper.from_array(weight, constant)))
        nodes.append(helper.make_node("Mul", [name, constant], [product]))
        nodes.append(helper.make_node("ReduceSum", [product], [term], keepdims=0))
        terms.append(term)
    # In additions of two: not every backend differentiates Sum.
    total = terms[0]
    for term in terms[1:]:
        nodes.append(helper.make_node("Add", [total, term], [f"{term}.so.far"]))
        total = f"{term}.so.far"
    nodes[-1].output[0] = LOSS
    opened = [value for value in graph.input if value.name in left_open(inputs)]
    made = helper.make_graph(nodes, "gradient", opened, [helper.make_tensor_value_info(LOSS, TensorProto.FLOAT, [])], initializers)
    opsets = list(model.opset_import)
    if not any(opset.domain in ("", "ai.onnx") for opset in opsets):
        opsets.append(helper.make_opsetid("", 18))
    return helper.make_model(made, opset_imports=opsets, ir_version=max(model.ir_version, 8))


class Adapter:
    """Gradients of a model's weighted sum of outputs."""

    def __init__(self, build):
        import mpt
        if build:
            mpt.use_build(build)

    def gradients(self, model, inputs: dict, variables: list, weights: dict) -> dict:
        """{variable: gradient}, of the type and shape of the variable; raises where the backend refuses."""
        import mpt
        from mpt.backend import compile_in_process
        with tempfile.TemporaryDirectory(prefix="mpt-gradient-") as folder:
            path = Path(folder) / "model.onnx"
            path.write_bytes(with_loss(model, inputs, variables, weights).SerializeToString())
            compile_in_process(path, Path(folder) / "lib", optimizer="sgd,lr=0", train=".*")
            with mpt.Trainer(Path(folder) / "lib", threads=1) as trainer:
                _, found = trainer.gradients(left_open(inputs))
        # A variable that the loss does not depend on has no gradient, which is zero.
        return {name: found.get(name, np.zeros_like(inputs[name])) for name in variables}
