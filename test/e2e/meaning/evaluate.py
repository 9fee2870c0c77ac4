# SPDX-License-Identifier: Apache-2.0
"""Values and gradients of an ONNX graph in float64, as they are or moved by roundings; and of a typed graph, rounded as its types say."""
import warnings

import numpy as np
import onnx
import torch
from onnx import TensorProto, helper, numpy_helper

torch.set_num_threads(1)
warnings.filterwarnings("ignore", message="Since version 1.3.0")
FLOATS = {TensorProto.FLOAT: torch.float32, TensorProto.FLOAT16: torch.float16, TensorProto.BFLOAT16: torch.bfloat16, TensorProto.DOUBLE: torch.float64}
PRODUCTS = ("MatMul", "Gemm", "Conv", "Einsum")
FP32 = 2.0**-24
KINK = 0.02  # of the largest value: how near to a kink a value that may be rounded may lie


class Kink(ValueError):
    """A value lies so near to where a function jumps or bends that right answers part."""


class Moved(torch.autograd.Function):
    """A value moved by at most one rounding, and its cotangent by another."""

    @staticmethod
    def forward(context, x, forward, backward, generator):
        context.settings = backward, generator
        return move(x, *forward, generator)

    @staticmethod
    def backward(context, gradient):
        backward, generator = context.settings
        return move(gradient, *backward, generator), None, None, None


class Saturating(torch.autograd.Function):
    """Tanh or sigmoid, whose gradient is made of its stored, rounded result."""

    @staticmethod
    def forward(context, x, kind, unit, smallest, generator):
        y = move(torch.tanh(x) if kind == "Tanh" else torch.sigmoid(x), unit, smallest, generator)
        context.kind = kind
        context.save_for_backward(y)
        return y

    @staticmethod
    def backward(context, gradient):
        y, = context.saved_tensors
        return gradient * (1 - y * y if context.kind == "Tanh" else y * (1 - y)), None, None, None, None


def move(x, unit, smallest, generator):
    """Each element by a random share of `unit`, relative, and of `smallest`."""
    draw = lambda: torch.rand(x.shape, generator=generator, dtype=x.dtype) * 2 - 1
    moved = x * (1 + unit * draw())
    return moved + smallest * draw() if smallest else moved


def axes_of(node, values, place=1):
    given = [a for a in node.attribute if a.name == "axes"]
    if given:
        return list(given[0].ints)
    return values[place].tolist() if len(values) > place and values[place] is not None else None


def sliced(x, begins, ends, axes=None, steps=None):
    for place, (begin, end) in enumerate(zip(begins.tolist(), ends.tolist())):
        axis = axes[place].item() if axes is not None else place
        step = steps[place].item() if steps is not None else 1
        x = x.index_select(axis, torch.tensor(range(x.shape[axis])[begin:end:step], dtype=torch.int64))
    return x


def reduced(kind):
    def rule(node, x, *rest):
        axes, keep = axes_of(node, (x, *rest)), bool(attribute(node, "keepdims", 1))
        axes = list(range(x.ndim)) if axes is None else axes
        if kind in ("Max", "Min"):
            return (torch.amax if kind == "Max" else torch.amin)(x, axes, keep)
        if kind == "LogSumExp":
            return torch.logsumexp(x, axes, keep)
        total = {"Sum": x, "Mean": x, "SumSquare": x * x, "L2": x * x, "L1": x.abs(), "LogSum": x}[kind].sum(axes, keep)
        if kind == "Mean":
            return total / np.prod([x.shape[a] for a in axes])
        return {"L2": torch.sqrt, "LogSum": torch.log}.get(kind, lambda t: t)(total)
    return rule


def attribute(node, name, default=None):
    return next((helper.get_attribute_value(a) for a in node.attribute if a.name == name), default)


def gemm(node, a, b, c=None):
    a, b = (t.T if attribute(node, "trans" + n, 0) else t for t, n in ((a, "A"), (b, "B")))
    product = attribute(node, "alpha", 1.0) * (a @ b)
    return product if c is None else product + attribute(node, "beta", 1.0) * c


def conv(node, x, w, b=None):
    rank = w.ndim - 2
    pads = attribute(node, "pads", [0] * 2 * rank)
    x = torch.nn.functional.pad(x, [p for i in reversed(range(rank)) for p in (pads[i], pads[i + rank])])
    function = {1: torch.nn.functional.conv1d, 2: torch.nn.functional.conv2d}[rank]
    return function(x, w, b, stride=attribute(node, "strides", [1] * rank), dilation=attribute(node, "dilations", [1] * rank), groups=attribute(node, "group", 1))


def one_hot(node, index, depth, values):
    index = index.long() % int(depth)
    hot = torch.nn.functional.one_hot(index, int(depth)).to(values.dtype)
    hot = values[0] + (values[1] - values[0]) * hot
    return hot.movedim(-1, attribute(node, "axis", -1))


def layer_norm(node, x, scale, bias=None):
    axis = attribute(node, "axis", -1) % x.ndim
    return torch.nn.functional.layer_norm(x, x.shape[axis:], scale, bias, attribute(node, "epsilon", 1e-5))


def cum_sum(node, x, axis):
    axis = int(axis)
    total = torch.cumsum(x, axis)
    if attribute(node, "reverse", 0):
        total = torch.flip(torch.cumsum(torch.flip(x, [axis]), axis), [axis])
    return total - x if attribute(node, "exclusive", 0) else total


def grid_sample(node, x, grid):
    mode = {b"linear": "bilinear", b"bilinear": "bilinear", b"nearest": "nearest"}[attribute(node, "mode", b"linear")]
    return torch.nn.functional.grid_sample(x, grid.to(x.dtype), mode, attribute(node, "padding_mode", b"zeros").decode(), bool(attribute(node, "align_corners", 0)))


def affine_grid(node, theta, size):
    return torch.nn.functional.affine_grid(theta, size.tolist(), bool(attribute(node, "align_corners", 0)))


def mod(node, a, b):
    return torch.fmod(a, b) if attribute(node, "fmod", 0) else torch.remainder(a, b)


def divided(node, a, b):
    return a / b if a.is_floating_point() else torch.div(a, b, rounding_mode="trunc")


def clip(node, x, low=None, high=None):
    x = x if low is None else torch.maximum(x, low)
    return x if high is None else torch.minimum(x, high)


def cast(node, x):
    to = attribute(node, "to")
    if to in FLOATS:
        return x.to(torch.float64) if not x.is_floating_point() else x
    return {TensorProto.INT64: x.to(torch.int64), TensorProto.INT32: x.to(torch.int64), TensorProto.BOOL: x != 0}[to]


def gather(node, x, index):
    axis = attribute(node, "axis", 0) % x.ndim
    flat = x.index_select(axis, index.reshape(-1) % x.shape[axis])
    return flat.reshape(*x.shape[:axis], *index.shape, *x.shape[axis + 1:])


def einsum(node, *operands):
    return torch.einsum(attribute(node, "equation").decode(), *operands)


def unsqueezed(node, x, *rest):
    for axis in sorted(axes_of(node, (x, *rest))):
        x = x.unsqueeze(axis)
    return x


def shape_of(node, x):
    return torch.tensor(x.shape)


def expand(node, x, shape):
    return x * torch.ones(shape.tolist(), dtype=x.dtype) if x.dtype != torch.bool else x & torch.ones(shape.tolist(), dtype=torch.bool)


def plain(function):
    return lambda node, *inputs: function(*inputs)


RULES = {
    "Cast": cast, "MatMul": plain(torch.matmul), "Gemm": gemm, "Conv": conv, "Einsum": einsum, "Div": divided, "Mod": mod, "Clip": clip,
    "Add": plain(torch.add), "Sub": plain(torch.sub), "Mul": plain(torch.mul), "Pow": plain(lambda a, b: torch.pow(a, b.to(a.dtype))),
    "Max": plain(torch.maximum), "Min": plain(torch.minimum), "Where": plain(torch.where), "Equal": plain(torch.eq), "Less": plain(torch.lt),
    "LessOrEqual": plain(torch.le), "Greater": plain(torch.gt), "GreaterOrEqual": plain(torch.ge), "And": plain(torch.logical_and),
    "Or": plain(torch.logical_or), "Not": plain(torch.logical_not), "Abs": plain(torch.abs), "Neg": plain(torch.neg), "Exp": plain(torch.exp),
    "Log": plain(torch.log), "Sqrt": plain(torch.sqrt), "Reciprocal": plain(torch.reciprocal), "Sin": plain(torch.sin), "Cos": plain(torch.cos),
    "Tanh": plain(torch.tanh), "Sigmoid": plain(torch.sigmoid), "Relu": plain(torch.relu), "Softplus": plain(torch.nn.functional.softplus),
    "Erf": plain(torch.erf), "Floor": plain(torch.floor), "Ceil": plain(torch.ceil), "Round": plain(torch.round), "Identity": plain(lambda x: x),
    "Transpose": lambda node, x: x.permute(attribute(node, "perm")), "Reshape": plain(lambda x, s: x.reshape(s.tolist())),
    "Unsqueeze": unsqueezed, "Squeeze": lambda node, x, *rest: x.squeeze(tuple(axes_of(node, (x, *rest)))),
    "Concat": lambda node, *xs: torch.cat(xs, attribute(node, "axis")), "Slice": plain(sliced), "Expand": expand, "Shape": shape_of,
    "Split": lambda node, x, *rest: torch.split(x, attribute(node, "split") or rest[0].tolist(), attribute(node, "axis", 0)),
    "Range": plain(lambda a, b, s: a + s * torch.arange(int(torch.ceil((b - a) / s)), dtype=a.dtype)), "CumSum": cum_sum, "Gather": gather,
    "ConstantOfShape": lambda node, s: torch.full(s.tolist(), float(numpy_helper.to_array(attribute(node, "value")).item()), dtype=torch.float64),
    "GatherElements": lambda node, x, i: torch.gather(x, attribute(node, "axis", 0), i), "OneHot": one_hot, "GridSample": grid_sample,
    "AffineGrid": affine_grid, "LayerNormalization": layer_norm, "Softmax": lambda node, x: torch.softmax(x, attribute(node, "axis", -1)),
    "ArgMax": lambda node, x: torch.argmax(x, attribute(node, "axis", 0), bool(attribute(node, "keepdims", 1))),
    "GlobalAveragePool": plain(lambda x: x.mean(list(range(2, x.ndim)), keepdim=True)),
    **{"Reduce" + kind: reduced(kind) for kind in ("Sum", "Mean", "Max", "Min", "SumSquare", "L2", "L1", "LogSum", "LogSumExp")},
}
JUMPS = {"Floor": 1.0, "Ceil": 1.0, "Round": 2.0}  # steps of 1 / number
COMPARISONS = ("Equal", "Less", "LessOrEqual", "Greater", "GreaterOrEqual")
BENDS = ("Relu", "Abs", "Clip", "Max", "Min")


def results(outputs):
    """The results of a rule as a list."""
    return list(outputs) if isinstance(outputs, tuple) else [outputs]


def check_kinks(node, inputs, exact):
    """Refuses data for which rounding decides: at jumps of exact values, at bends and jumps of others."""
    kind = node.op_type
    if kind == "Cast" and attribute(node, "to") not in FLOATS and inputs[0].is_floating_point():
        kind = "Floor"
    if kind not in JUMPS and kind not in COMPARISONS and kind not in BENDS or not inputs[0].is_floating_point():
        return
    if kind in JUMPS:
        away = inputs[0] * JUMPS[kind] - torch.round(inputs[0] * JUMPS[kind])
        where = inputs[0]
    elif kind in ("Relu", "Abs"):
        away = where = inputs[0]
    else:
        away = torch.cat([(inputs[0] - other).reshape(-1) for other in inputs[1:] if other is not None])
        where = inputs[0]
    size = where.abs().max() if where.numel() else torch.tensor(0.0)
    near = 1e-4 * size if exact else KINK * size
    if ((away.abs() < near) & (away != 0 if exact else torch.tensor(True))).any():
        raise Kink(f"{node.op_type} {node.name}")


class Graph:
    """A model, ready to be evaluated many times."""

    def __init__(self, model):
        self.model, self.nodes = model, list(model.graph.node)
        self.tensors = {i.name: i for i in model.graph.initializer}
        self.constants = {}
        for node in self.nodes:
            if node.op_type == "Constant":
                self.tensors[node.output[0]] = node.attribute[0].t
        for name, tensor in self.tensors.items():
            kind = tensor.data_type
            array = numpy_helper.to_array(tensor)
            self.constants[name] = torch.from_numpy(np.array(array, np.float64 if kind in FLOATS else None))
            if self.constants[name].dtype == torch.int32:
                self.constants[name] = self.constants[name].long()

    def leaves(self, feeds):
        values = {"": None, **self.constants}
        for name, value in feeds.items():
            tensor = torch.from_numpy(np.asarray(value))
            values[name] = tensor.double() if tensor.is_floating_point() else tensor.long() if tensor.dtype != torch.bool else tensor
        return values

    def run(self, feeds, exact=frozenset(), rounding=None, seed=0, gradients=(), target=None, kinks=False, cotangents=None):
        """(values, {name: gradient of the mean of squares}); `rounding` (a check.Rounding) moves the values that may be rounded, `cotangents`
        takes the largest gradient of each value that may be."""
        generator = torch.Generator().manual_seed(seed)
        values = self.leaves(feeds)
        leaf = {}
        for name in gradients:
            values[name] = leaf[name] = self.constants[name].clone().requires_grad_()
        if rounding:
            for name in self.constants:
                if name not in exact and values[name].is_floating_point():
                    values[name] = move(values[name], rounding.storage, 0, generator)
        for node in self.nodes:
            if node.op_type == "Constant":
                continue
            inputs = [values[name] for name in node.input]
            free = node.output[0] not in exact
            if kinks:
                check_kinks(node, inputs, node.input[0] in exact)
            if rounding:
                outputs = self.rounded(node, inputs, free, rounding, generator)
            else:
                outputs = results(RULES[node.op_type](node, *inputs))
            for name, value in zip(node.output, outputs):
                if cotangents is not None and free and value.requires_grad:
                    value.register_hook(lambda g, name=name: cotangents.update({name: g.abs().max().item()}))
                values[name] = value
        if cotangents is not None:
            for name, tensor in leaf.items():
                tensor.register_hook(lambda g, name=name: cotangents.update({name: g.abs().max().item()}))
        if target is None:
            return values, {}
        loss = ((values["y"] - torch.from_numpy(target).double()) ** 2).mean()
        found = torch.autograd.grad(loss, list(leaf.values()), allow_unused=True) if leaf else []
        values["loss"] = loss.detach()
        return values, {n: (torch.zeros_like(leaf[n]) if g is None else g).numpy() for n, g in zip(leaf, found)}

    def rounded(self, node, inputs, free, rounding, generator):
        """Results of a node, moved as roundings may move them: `free` ones as narrow numbers, others as FP32."""
        if free and node.op_type in PRODUCTS:
            inputs = [self.moved(t, rounding.operand, rounding, generator) if t is not None else None for t in inputs]
        if node.op_type == "GridSample":  # counts pixels from -1, in FP32: of 3,000 in a row a rounding moves by 1e-4
            inputs[1] = move(inputs[1] + 1, FP32, 0, generator) - 1
        if free and node.op_type in ("Tanh", "Sigmoid"):
            outputs = results(Saturating.apply(inputs[0], node.op_type, rounding.storage, rounding.smallest, generator))
        else:
            outputs = results(RULES[node.op_type](node, *inputs))
        if node.op_type == "CumSum":  # n sums one after the other, each rounded: a random walk
            outputs = [move(value, FP32 * value.shape[int(inputs[1])] ** 0.5, 0, generator) for value in outputs]
        for i, value in enumerate(outputs):
            if value.is_floating_point():
                outputs[i] = self.moved(value, rounding.storage, rounding, generator) if free else self.wide(value, generator)
        return outputs

    def moved(self, value, unit, rounding, generator):
        floor = rounding.operand_floor * value.detach().abs().max().item() if rounding.operand_floor and value.numel() else 0.0
        return Moved.apply(value, (unit, rounding.smallest + floor), (rounding.gradient, rounding.gradient_smallest), generator)

    def wide(self, value, generator):
        """FP32's own rounding, of values that FP32 does not hold exactly."""
        held = value.detach().float().double() == value.detach()
        if held.all():
            return value
        moved = Moved.apply(value, (FP32, 0.0), (FP32, 0.0), generator)
        return torch.where(held, value, moved)


def typed(model, feeds):
    """Values of a graph whose types are narrow in part: each result is rounded to its type; products and sums gather in FP32, but
    running sums round each step, as the reference evaluator has them."""
    graph, kinds, values = Graph(model), {}, {"": None}
    for name, tensor in graph.tensors.items():
        kinds[name] = tensor.data_type
        values[name] = graph.constants[name].float() if tensor.data_type in FLOATS else graph.constants[name]
    for value in model.graph.input:
        kinds[value.name] = value.type.tensor_type.elem_type
        if value.name in feeds:
            tensor = torch.from_numpy(np.asarray(feeds[value.name]))
            values[value.name] = tensor.float() if tensor.is_floating_point() else tensor.long() if tensor.dtype != torch.bool else tensor
    for node in graph.nodes:
        if node.op_type == "Constant":
            continue
        inputs = [values[name] for name in node.input]
        kind = result_type(node, kinds)
        if node.op_type == "CumSum" and kind in FLOATS:
            outputs = running_sum(node, inputs, FLOATS[kind])
        else:
            outputs = RULES[node.op_type](node, *inputs)
        for name, value in zip(node.output, outputs if isinstance(outputs, tuple) else (outputs,)):
            kinds[name] = kind
            values[name] = value.to(FLOATS[kind]).float() if kind in FLOATS and value.is_floating_point() else value
    return values, kinds


def running_sum(node, inputs, kind):
    x, axis = inputs[0].to(kind), int(inputs[1])
    if attribute(node, "reverse", 0) or attribute(node, "exclusive", 0) or kind == torch.float32:
        return cum_sum(node, inputs[0], inputs[1])
    total = torch.zeros_like(x.select(axis, 0))
    parts = []
    for place in range(x.shape[axis]):
        total = (total.float() + x.select(axis, place).float()).to(kind)
        parts.append(total)
    return torch.stack(parts, axis).float()


def result_type(node, kinds):
    if node.op_type == "Cast":
        return attribute(node, "to")
    if node.op_type in (*COMPARISONS, "And", "Or", "Not"):
        return TensorProto.BOOL
    if node.op_type in ("Shape", "ArgMax"):
        return TensorProto.INT64
    if node.op_type == "ConstantOfShape":
        return attribute(node, "value").data_type
    place = {"Where": 1, "OneHot": 2}.get(node.op_type, 0)
    return kinds[node.input[place]]


def names_of(model):
    return [o for node in model.graph.node for o in node.output]


def load(path):
    return onnx.load(path)
