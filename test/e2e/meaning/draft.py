# SPDX-License-Identifier: Apache-2.0
"""A model in the making: nodes in the manner of an exporter and an opset, weights, data, and which values a policy may round."""
import collections

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

OPSETS = (11, 13, 17, 21)
STYLES = ("torchscript", "dynamo", "numbers")  # torch's two exporters, and the plain numbers of the first one before torch 1.13
IR = {11: 6, 13: 7, 17: 8, 21: 10}
TYPES = {np.dtype(np.float32): TensorProto.FLOAT, np.dtype(np.int64): TensorProto.INT64, np.dtype(np.int32): TensorProto.INT32,
         np.dtype(np.bool_): TensorProto.BOOL}

# exact   values that count, point, turn or lie beyond the narrow range: no policy may round them
# feeds   inputs by name; tables: initializers that are no weights; weights: initializers that train
# target  the loss's target less the result, over the result's mean size; ranges where a policy's type must not overflow are the generator's care
Case = collections.namedtuple("Case", "model exact feeds weights tables target kind")


class Draft:
    """Grows a graph. Values are names; a node's results may be rounded unless it is emitted with exact=True."""

    def __init__(self, seed, opset, style):
        self.rng, self.opset, self.style = np.random.default_rng(seed), opset, style
        self.nodes, self.initializers, self.inputs, self.exact, self.feeds = [], {}, [], set(), {}
        self.weights, self.tables, self.count = [], [], 0

    # Choices.

    def pick(self, *choices):
        return choices[self.rng.integers(len(choices))]

    def normal(self, *shape, scale=1.0):
        return (self.rng.standard_normal(shape) * scale).astype(np.float32)

    # Names.

    def name(self, kind):
        self.count += 1
        if self.style == "dynamo":
            return f"val_{self.count}"
        return f"/{kind}_{self.count}_output_0" if self.style == "torchscript" else str(100 + self.count)

    def node_name(self, kind):
        return {"dynamo": f"node_{kind}_{self.count}", "torchscript": f"/{kind}_{self.count}", "numbers": f"{kind}_{self.count}"}[self.style]

    # Leaves.

    def input(self, name, value):
        value = np.asarray(value)
        self.inputs.append(helper.make_tensor_value_info(name, TYPES[value.dtype], value.shape))
        self.feeds[name] = value
        return name

    def weight(self, *shape, scale=None):
        """A trainable tensor. The optimizing exporters rename the matrices of matrix products."""
        self.count += 1
        scale = scale or 1.0 / np.sqrt(shape[0] if len(shape) == 2 else np.prod(shape[1:]))
        name = f"layers.{self.count}.weight"
        if len(shape) == 2 and self.rng.random() < 0.3:
            name = {"dynamo": f"val_{self.count}", "torchscript": f"onnx::MatMul_{self.count}", "numbers": str(100 + self.count)}[self.style]
        self.initializers[name] = self.normal(*shape, scale=scale)
        self.weights.append(name)
        return name

    def table(self, value, name="buffer"):
        """An initializer that is no weight."""
        self.count += 1
        name = f"{name}_{self.count}"
        self.initializers[name] = np.asarray(value)
        self.tables.append(name)
        self.exact.add(name)
        return name

    def constant(self, value, exact=True):
        """A constant, as the exporter at hand writes it: a node, or an initializer."""
        value = np.asarray(value)
        value = value.astype(np.float32) if value.dtype == np.float64 else value
        name = self.name("Constant")
        if self.rng.random() < (0.2 if self.style == "dynamo" else 0.8):
            self.nodes.append(helper.make_node("Constant", [], [name], name=self.node_name("Constant"), value=numpy_helper.from_array(value)))
        else:
            self.initializers[name] = value
            if value.dtype == np.float32 and value.ndim:  # at a product or a lookup it would train
                self.tables.append(name)
        if exact:
            self.exact.add(name)
        return name

    def ints(self, *values):
        return self.constant(np.array(values, np.int64))

    # Nodes.

    def emit(self, kind, *inputs, exact=False, outputs=1, **attributes):
        names = [self.name(kind) for _ in range(outputs)]
        self.nodes.append(helper.make_node(kind, list(inputs), names, name=self.node_name(kind), **attributes))
        if exact:
            self.exact.update(names)
        return names[0] if outputs == 1 else names

    def cast(self, x, to=TensorProto.FLOAT, exact=True):
        return self.emit("Cast", x, to=to, exact=exact)

    def axes(self, kind, since, x, axes, exact, **attributes):
        """A node whose axes were an attribute before an opset, and an input since."""
        if self.opset < since:
            return self.emit(kind, x, axes=list(axes), exact=exact, **attributes)
        return self.emit(kind, x, self.ints(*axes), exact=exact, **attributes)

    def unsqueeze(self, x, *axes, exact=True):
        return self.axes("Unsqueeze", 13, x, axes, exact)

    def squeeze(self, x, *axes, exact=True):
        return self.axes("Squeeze", 13, x, axes, exact)

    def reduce(self, how, x, *axes, keepdims=1, exact=False):
        return self.axes("Reduce" + how, 13 if how == "Sum" else 18, x, axes, exact, keepdims=keepdims)

    def slice(self, x, axis, begin, end, exact=False):
        return self.emit("Slice", x, self.ints(begin), self.ints(end), self.ints(axis), exact=exact)

    def reshape(self, x, *shape, exact=False):
        return self.emit("Reshape", x, self.ints(*shape), exact=exact)

    def concat(self, *values, axis=-1, exact=False):
        return self.emit("Concat", *values, axis=axis, exact=exact)

    def split(self, x, axis, *sizes, exact=False):
        if self.opset < 13:
            return self.emit("Split", x, axis=axis, split=list(sizes), outputs=len(sizes), exact=exact)
        return self.emit("Split", x, self.ints(*sizes), axis=axis, outputs=len(sizes), exact=exact)

    def unary(self, x):
        return self.emit(self.pick("Tanh", "Sigmoid", "Softplus", "Identity"), x)

    def linear(self, x, rows, columns, rank, scale=None):
        """A trained product, as exporters write it."""
        form = self.pick("MatMul", "Transpose", "Bias", *(["Gemm", "Gemm"] if rank == 2 else []), *(["Einsum"] if self.opset >= 12 and rank < 4 else []))
        if form == "Gemm":
            return self.emit("Gemm", x, self.weight(columns, rows, scale=scale or rows**-0.5), self.weight(columns, scale=0.1), transB=1)
        if form == "Einsum":
            letters = "abc"[:rank - 1]
            return self.emit("Einsum", x, self.weight(rows, columns, scale=scale), equation=f"{letters}i,io->{letters}o")
        if form == "Transpose":
            return self.emit("MatMul", x, self.emit("Transpose", self.weight(columns, rows, scale=scale or rows**-0.5), perm=[1, 0]))
        y = self.emit("MatMul", x, self.weight(rows, columns, scale=scale))
        return self.emit("Add", y, self.weight(columns, scale=0.1)) if form == "Bias" else y

    def finish(self, y, shape, kind):
        """The case whose result is `y`; its graph output has a name of its own."""
        for node in self.nodes:
            node.output[:] = ["y" if o == y else o for o in node.output]
            node.input[:] = ["y" if i == y else i for i in node.input]
        used = {i for node in self.nodes for i in node.input}
        initializers = [numpy_helper.from_array(v, n) for n, v in self.initializers.items() if n in used]
        inputs = [i for i in self.inputs if i.name in used]
        graph = helper.make_graph(self.nodes, "main_graph", inputs, [helper.make_tensor_value_info("y", TensorProto.FLOAT, shape)], initializers)
        model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", self.opset)], ir_version=IR[self.opset])
        model.producer_name = "pytorch"
        feeds = {i.name: self.feeds[i.name] for i in inputs}
        return Case(model, frozenset(self.exact), feeds, [n for n in self.weights if n in used], [n for n in self.tables if n in used],
                    self.normal(*shape), kind)
