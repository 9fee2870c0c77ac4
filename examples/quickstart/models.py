# SPDX-License-Identifier: Apache-2.0
"""The quickstart's two models as ONNX files: a CNN for 8x8 digits and a byte-level GPT.

Both are written with the onnx package alone, in training form (BatchNormalization with training_mode=1, Dropout with
training=True), so that the quickstart needs no framework. Initial values are random with a given seed.
"""
from __future__ import annotations

import math

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper


class Graph:
    """Collects nodes and parameters; every method returns the name of the value it makes."""

    def __init__(self, seed: int):
        self.random = np.random.default_rng(seed)
        self.nodes, self.parameters, self.constants = [], [], 0

    def op(self, kind: str, *inputs: str, name: str = "", outputs: int = 1, **attributes):
        name = name or f"{kind.lower()}_{len(self.nodes)}"
        results = [name + ("" if i == 0 else f".{i}") for i in range(outputs)]
        self.nodes.append(helper.make_node(kind, list(inputs), results, name=name, **attributes))
        return results[0] if outputs == 1 else results

    def parameter(self, name: str, value) -> str:
        self.parameters.append(numpy_helper.from_array(np.asarray(value, np.float32), name))
        return name

    def normal(self, name: str, shape, scale: float) -> str:
        return self.parameter(name, self.random.standard_normal(shape) * scale)

    def constant(self, value) -> str:
        name = f"constant_{len(self.nodes)}"
        self.nodes.append(helper.make_node("Constant", [], [name], name=name, value=numpy_helper.from_array(np.asarray(value))))
        return name

    def linear(self, x: str, name: str, inputs: int, outputs: int, scale: float | None = None) -> str:
        weight = self.normal(f"{name}.weight", (inputs, outputs), scale or 1.0 / math.sqrt(inputs))
        bias = self.parameter(f"{name}.bias", np.zeros(outputs))
        return self.op("Add", self.op("MatMul", x, weight, name=f"/{name}/MatMul"), bias, name=f"/{name}/Add")

    def conv(self, x: str, name: str, inputs: int, outputs: int, kernel: int) -> str:
        weight = self.normal(f"{name}.weight", (outputs, inputs, kernel, kernel), math.sqrt(2.0 / (inputs * kernel * kernel)))
        pad = kernel // 2
        return self.op("Conv", x, weight, name=f"/{name}/Conv", kernel_shape=[kernel, kernel], pads=[pad] * 4)

    def batch_norm(self, x: str, name: str, channels: int) -> str:
        inputs = [self.parameter(f"{name}.{part}", np.full(channels, value))
                  for part, value in (("weight", 1), ("bias", 0), ("running_mean", 0), ("running_var", 1))]
        return self.op("BatchNormalization", x, *inputs, name=f"/{name}/BatchNormalization", outputs=3, training_mode=1,
                       momentum=0.9)[0]

    def layer_norm(self, x: str, name: str, width: int) -> str:
        scale, bias = self.parameter(f"{name}.weight", np.ones(width)), self.parameter(f"{name}.bias", np.zeros(width))
        return self.op("LayerNormalization", x, scale, bias, name=f"/{name}/LayerNormalization", axis=-1, epsilon=1e-5)

    def dropout(self, x: str, ratio: float) -> str:
        if ratio == 0:
            return x
        return self.op("Dropout", x, self.constant(np.float32(ratio)), self.constant(np.array(True)))

    def save(self, path: str, inputs, output: str, shape, loss: str = "", **more) -> str:
        """Writes the model. Its results: the scalar `loss` where the graph has its own, `output` as "logits", and more, given
        as name=(value, shape)."""
        values = [helper.make_tensor_value_info(name, kind, dims) for name, kind, dims in inputs]
        results = []
        for name, (value, dims) in {"logits": (output, shape), **more}.items():
            results.append(helper.make_tensor_value_info(self.op("Identity", value, name=name), TensorProto.FLOAT, dims))
        if loss:
            results.insert(0, helper.make_tensor_value_info(loss, TensorProto.FLOAT, []))
        graph = helper.make_graph(self.nodes, "model", values, results, self.parameters)
        model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 20)], ir_version=10)
        onnx.checker.check_model(model, full_check=True)
        onnx.save(model, path)
        return path


def digits_cnn(path: str, batch: int, seed: int = 0) -> str:
    """Two convolution blocks with batch norm, then two linear layers: x [batch, 1, 8, 8] -> logits [batch, 10]."""
    g = Graph(seed)
    y = g.op("Relu", g.batch_norm(g.conv("x", "conv1", 1, 32, 3), "bn1", 32))
    y = g.op("Relu", g.batch_norm(g.conv(y, "conv2", 32, 64, 3), "bn2", 64))
    y = g.op("Flatten", g.op("MaxPool", y, kernel_shape=[2, 2], strides=[2, 2]))
    y = g.op("Relu", g.linear(y, "fc1", 64 * 16, 128, math.sqrt(2.0 / 1024)))
    return g.save(path, [("x", TensorProto.FLOAT, [batch, 1, 8, 8])], g.linear(y, "fc2", 128, 10), [batch, 10])


def byte_gpt(path: str, batch: int, context: int = 64, width: int = 128, layers: int = 2, heads: int = 4, seed: int = 0,
             dropout: float = 0.0) -> str:
    """Pre-norm decoder over bytes: ids [batch, context] -> logits [batch * context, 256]."""
    g = Graph(seed)
    head = width // heads
    shape = g.constant(np.array([batch, context, heads, head], np.int64))
    back = g.constant(np.array([batch, context, width], np.int64))
    mask = g.constant(np.triu(np.full((context, context), -1e9, np.float32), 1))
    tokens = g.op("Gather", g.normal("tok.weight", (256, width), 0.02), "ids", name="/tok/Gather")
    x = g.op("Add", tokens, g.normal("pos.weight", (context, width), 0.02), name="/pos/Add")
    for i in range(layers):
        p = f"blocks.{i}"
        y = g.layer_norm(x, f"{p}.norm1", width)
        q, k, v = (g.op("Transpose", g.op("Reshape", g.linear(y, f"{p}.{part}", width, width), shape),
                        perm=[0, 2, 3, 1] if part == "k" else [0, 2, 1, 3]) for part in "qkv")
        scores = g.op("Mul", g.op("MatMul", q, k, name=f"/{p}/scores"), g.constant(np.float32(head ** -0.5)))
        weights = g.op("Softmax", g.op("Add", scores, mask), name=f"/{p}/Softmax", axis=-1)
        y = g.op("Transpose", g.op("MatMul", weights, v, name=f"/{p}/context"), perm=[0, 2, 1, 3])
        y = g.linear(g.op("Reshape", y, back), f"{p}.out", width, width, 0.02)
        x = g.op("Add", x, g.dropout(y, dropout))
        y = g.linear(g.layer_norm(x, f"{p}.norm2", width), f"{p}.up", width, 4 * width)
        y = g.linear(g.op("Gelu", y, name=f"/{p}/Gelu", approximate="tanh"), f"{p}.down", 4 * width, width, 0.02)
        x = g.op("Add", x, g.dropout(y, dropout))
    logits = g.linear(g.layer_norm(x, "norm", width), "head", width, 256, 0.02)
    flat = g.op("Reshape", logits, g.constant(np.array([batch * context, 256], np.int64)))
    return g.save(path, [("ids", TensorProto.INT64, [batch, context])], flat, [batch * context, 256])
