# SPDX-License-Identifier: Apache-2.0
"""Joint graphs at random: small networks with their backward pass, and optimizers written out in many spellings; with float64's answer."""
import numpy as np
import onnx
import onnx.parser
from onnx import numpy_helper

BATCH = 8


class Text:
    """Nodes of a graph as text; constants by value."""

    def __init__(self, rng):
        self.rng, self.lines, self.numbers, self.count = rng, [], {}, 0

    def number(self, value):
        name = f"k{len(self.numbers)}"
        self.numbers[name] = np.float32(value)
        return name

    def op(self, kind, *inputs, name=None, attributes=""):
        self.count += 1
        name = name or f"t{self.count}"
        inputs = [i if isinstance(i, str) else self.number(i) for i in inputs]
        self.lines.append(f"{name} = {kind}{attributes}({', '.join(inputs)})")
        return name

    def choose(self, *spellings):
        return spellings[self.rng.integers(len(spellings))]()

    def add(self, a, b, **more):
        return self.op("Add", *((a, b) if self.rng.integers(2) else (b, a)), **more)

    def scale(self, a, value):
        """a * value in one of several spellings."""
        return self.choose(lambda: self.op("Mul", a, value), lambda: self.op("Mul", self.number(value), a), lambda: self.op("Div", a, 1 / value))

    def minus(self, a, b, name=None):
        return self.choose(lambda: self.op("Sub", a, b, name=name), lambda: self.add(a, self.op("Neg", b), name=name))

    def square(self, a):
        return self.choose(lambda: self.op("Mul", a, a), lambda: self.op("Pow", a, 2.0))

    def mean(self, state, value, decay, name):
        """state * decay + value * (1 - decay), named."""
        return self.choose(lambda: self.add(self.scale(state, decay), self.scale(value, 1 - decay), name=name),
                           lambda: self.add(state, self.scale(self.op("Sub", value, state), 1 - decay), name=name),
                           lambda: self.op("Sub", value, self.scale(self.op("Sub", value, state), decay), name=name))

    def total(self, a):
        return self.op("ReduceSum", self.square(a), attributes="<keepdims = 0>")

    def norm(self, a):
        return self.op("Sqrt", self.total(a))


# Networks: (shapes of parameters, forward pass and gradients of these). The loss is weight * mean of squares.
def backward_of_loss(t, y, target, weight, count):
    d = t.op("Sub", y, target)
    t.op("Mul", t.op("ReduceMean", t.square(d), attributes="<keepdims = 0>"), weight, name="loss")
    return t.choose(lambda: t.op("Mul", d, 2 * weight / count),
                    lambda: t.op("Mul", t.op("Div", t.op("Mul", d, 2.0), float(count)), weight))


def matmul_gradient(t, x, dy):
    return t.choose(lambda: t.op("MatMul", t.op("Transpose", x, attributes="<perm = [1, 0]>"), dy),
                    lambda: t.op("Gemm", x, dy, attributes="<transA = 1>"),
                    lambda: t.op("Transpose", t.op("MatMul", t.op("Transpose", dy, attributes="<perm = [1, 0]>"), x), attributes="<perm = [1, 0]>"))


def bias_gradient(t, dy, name="axis0"):
    return t.op("ReduceSum", dy, name, attributes="<keepdims = 0>")


def linear(t, weight):
    dy = backward_of_loss(t, t.op("MatMul", "x", "w"), "t", weight, BATCH * 4)
    return {"w": matmul_gradient(t, "x", dy)}


def affine(t, weight):
    dy = backward_of_loss(t, t.op("Add", t.op("MatMul", "x", "w"), "b"), "t", weight, BATCH * 4)
    return {"w": matmul_gradient(t, "x", dy), "b": bias_gradient(t, dy)}


def relu(t, weight):
    h = t.op("Add", t.op("MatMul", "x", "w"), "b")
    a = t.op("Relu", h)
    dy = backward_of_loss(t, t.op("MatMul", a, "v"), "t", weight, BATCH * 4)
    da = t.op("MatMul", dy, t.op("Transpose", "v", attributes="<perm = [1, 0]>"))
    dh = t.choose(lambda: t.op("Mul", da, t.op("Cast", t.op("Greater", h, 0.0), attributes="<to = 1>")),
                  lambda: t.op("Where", t.op("Greater", a, 0.0), da, 0.0))
    return {"w": matmul_gradient(t, "x", dh), "b": bias_gradient(t, dh), "v": matmul_gradient(t, a, dy)}


def tanh(t, weight):
    a = t.op("Tanh", t.op("MatMul", "x", "w"))
    dy = backward_of_loss(t, t.op("Add", t.op("MatMul", a, "v"), "b"), "t", weight, BATCH * 4)
    da = t.op("MatMul", dy, t.op("Transpose", "v", attributes="<perm = [1, 0]>"))
    dh = t.op("Mul", da, t.op("Sub", 1.0, t.square(a)))
    return {"w": matmul_gradient(t, "x", dh), "v": matmul_gradient(t, a, dy), "b": bias_gradient(t, dy)}


def tied(t, weight):
    """One square matrix twice: its gradient is a sum."""
    h = t.op("Tanh", t.op("MatMul", "x", "w"))
    dy = backward_of_loss(t, t.op("MatMul", h, "w"), "t", weight, BATCH * 6)
    dh = t.op("Mul", t.op("MatMul", dy, t.op("Transpose", "w", attributes="<perm = [1, 0]>")), t.op("Sub", 1.0, t.square(h)))
    return {"w": t.add(matmul_gradient(t, h, dy), matmul_gradient(t, "x", dh))}


def scaled(t, weight):
    """A scale that is multiplied element by element, and a bias of one element."""
    h = t.op("Mul", "x", "s")
    y = t.op("Add", t.op("MatMul", h, "w"), "b")
    dy = backward_of_loss(t, y, "t", weight, BATCH)
    dh = t.op("MatMul", dy, t.op("Transpose", "w", attributes="<perm = [1, 0]>"))
    return {"w": matmul_gradient(t, h, dy), "b": bias_gradient(t, dy), "s": bias_gradient(t, t.op("Mul", dh, "x"))}


NETS = {"linear": (linear, 4, {"w": (6, 4)}), "affine": (affine, 4, {"w": (6, 4), "b": (4,)}),
        "relu": (relu, 4, {"w": (6, 5), "b": (5,), "v": (5, 4)}), "tanh": (tanh, 4, {"w": (6, 5), "v": (5, 4), "b": (4,)}),
        "tied": (tied, 6, {"w": (6, 6)}), "scaled": (scaled, 1, {"s": (6,), "w": (6, 1), "b": (1,)})}


# Optimizers: new values of p and its states from the gradient g. `rate` is a number or the value of one.
def slot(t, p, kind, states, shape):
    states[f"{p}_{kind}"] = shape
    return f"{p}_{kind}", f"{p}_{kind}_next"


def step(t, p, move, rate):
    """p - rate * move."""
    return t.choose(lambda: t.minus(p, t.scale(move, rate), name=f"{p}_next"), lambda: t.add(p, t.scale(move, -rate), name=f"{p}_next"))


def sgd(t, p, g, rate, states, shape):
    return step(t, p, g, rate)


def decoupled(t, p, g, rate, states, shape):
    return t.choose(lambda: t.minus(t.minus(p, t.scale(p, 1e-3)), t.scale(g, rate), name=f"{p}_next"),
                    lambda: t.minus(t.scale(p, 1 - 1e-3), t.scale(g, rate), name=f"{p}_next"),
                    lambda: t.minus(p, t.add(t.scale(g, rate), t.scale(p, 1e-3)), name=f"{p}_next"))


def decay(t, p, g, rate, states, shape):
    return step(t, p, t.add(g, t.scale(p, 1e-3)), rate)


def momentum(t, p, g, rate, states, shape):
    m, new = slot(t, p, "m", states, shape)
    kind = t.rng.integers(5)
    if kind == 0:
        return step(t, p, t.add(t.scale(m, .9), g, name=new), rate)
    if kind == 1:  # the rate inside
        return t.minus(p, t.add(t.scale(m, .9), t.scale(g, rate), name=new), name=f"{p}_next")
    if kind == 2:
        return step(t, p, t.mean(m, g, .9, new), rate)
    if kind == 3:  # Nesterov's
        return step(t, p, t.add(g, t.scale(t.add(t.scale(m, .9), g, name=new), .9)), rate)
    moved = t.scale(g, rate)  # Nesterov's as Keras writes it: two values read the product with the rate
    return t.add(p, t.minus(t.scale(t.minus(t.scale(m, .9), moved, name=new), .9), moved), name=f"{p}_next")


def adam(t, p, g, rate, states, shape):
    (m, m2), (v, v2) = slot(t, p, "m", states, shape), slot(t, p, "v", states, shape)
    root = t.op("Sqrt", t.mean(v, t.square(g), .99, v2))
    move = t.op("Div", t.mean(m, g, .9, m2), t.add(root, t.number(t.tiny)))
    decayed = t.rng.integers(2) and t.add(t.scale(move, t.rate_of_units), t.scale(p, 1e-3))
    return t.minus(p, decayed, name=f"{p}_next") if decayed else step(t, p, move, t.rate_of_units)


def adagrad(t, p, g, rate, states, shape):
    v, v2 = slot(t, p, "v", states, shape)
    return step(t, p, t.op("Div", g, t.add(t.op("Sqrt", t.add(v, t.square(g), name=v2)), t.number(t.tiny))), t.rate_of_units)


def rmsprop(t, p, g, rate, states, shape):
    (v, v2), (m, m2) = slot(t, p, "v", states, shape), slot(t, p, "m", states, shape)
    move = t.op("Div", g, t.add(t.op("Sqrt", t.mean(v, t.square(g), .9, v2)), t.number(t.tiny)))
    return step(t, p, t.add(t.scale(m, .5), move, name=m2), t.rate_of_units)


def lion(t, p, g, rate, states, shape):
    m, m2 = slot(t, p, "m", states, shape)
    move = t.op("Tanh", t.op("Div", t.mean(m, g, .9, f"{p}_c"), t.number(t.tiny_sign)))  # a sign that roundings do not turn
    t.mean(m, g, .99, m2)
    return step(t, p, move, t.rate_of_units)


def adan(t, p, g, rate, states, shape):
    (m, m2), (q, q2), (old, old2) = (slot(t, p, kind, states, shape) for kind in "mqg")
    difference = t.op("Sub", g, old)
    t.op("Identity", g, name=old2)
    return step(t, p, t.add(t.mean(m, g, .9, m2), t.mean(q, difference, .9, q2)), rate)


def lars(t, p, g, rate, states, shape):
    ratio = t.op("Div", t.norm(p), t.add(t.norm(g), t.number(t.tiny)))
    return step(t, p, t.op("Mul", g, ratio), t.rate_of_units)


def muon(t, p, g, rate, states, shape):
    if len(shape) < 2 or min(shape) < 2:
        return momentum(t, p, g, rate, states, shape)
    m, m2 = slot(t, p, "m", states, shape)
    t.add(t.scale(m, .9), g, name=m2)
    x = t.op("Div", m2, t.add(t.norm(m2), t.number(t.tiny)))
    for _ in range(2):
        a = t.op("MatMul", x, t.op("Transpose", x, attributes="<perm = [1, 0]>"))
        x = t.op("Sub", t.scale(x, 1.5), t.scale(t.op("MatMul", a, x), .5))
    return step(t, p, x, t.rate_of_units)


def by_value(t, p, g, rate, states, shape):
    clipped = t.choose(lambda: t.op("Clip", g, -t.limit, t.limit), lambda: t.op("Min", t.op("Max", g, -t.limit), t.limit))
    return t.choose(lambda: step(t, p, clipped, rate), lambda: momentum(t, p, clipped, rate, states, shape))


OPTIMIZERS = {f.__name__: f for f in (sgd, decoupled, decay, momentum, adam, adagrad, rmsprop, lion, adan, lars, muon, by_value)}


def by_norm(t, gradients):
    total = None
    for g in gradients.values():
        total = t.total(g) if total is None else t.add(total, t.total(g))
    factor = t.op("Min", t.op("Div", t.number(t.limit), t.add(t.op("Sqrt", total), t.number(t.tiny))), 1.0)
    return {p: t.op("Mul", g, factor) for p, g in gradients.items()}


def generate(seed):
    """A model, its states, its parameters, a feed, a description, and the names of gradients."""
    rng = np.random.default_rng(seed)
    net = str(rng.choice(list(NETS)))
    function, width, shapes = NETS[net]
    size = float(rng.choice([1e-7, 1e-4, 1.0, 1.0, 300.0]))  # of the loss, and so of gradients
    t = Text(rng)
    t.tiny, t.limit, t.rate_of_units = 1e-4 * size, .05 * size, .01
    t.tiny_sign = .1 * size
    gradients = function(t, size)
    names = dict(gradients)
    if rng.integers(3) == 0:
        gradients = by_norm(t, gradients)
        net += " clipped by norm"
    groups = [list(OPTIMIZERS)[seed % len(OPTIMIZERS)], str(rng.choice(list(OPTIMIZERS)))][:1 + int(rng.integers(3) == 0)]
    states = {}
    for i, (p, g) in enumerate(gradients.items()):
        OPTIMIZERS[groups[i % len(groups)]](t, p, g, .02 / size, states, shapes[p])
    # Nodes in an order that computes.
    outputs = "".join(f", float[{','.join(map(str, shape))}] {name}_next" for name, shape in {**shapes, **states}.items())
    model = onnx.parser.parse_model('<ir_version: 8, opset_import: ["" : 17]>\n'
                                    f"g (float[{BATCH},6] x, float[{BATCH},{width}] t) => (float loss{outputs}) {{\n" + "\n".join(t.lines) + "}")
    held = {p: (.5 * rng.standard_normal(shape)).astype(np.float32) for p, shape in shapes.items()}
    held.update({name: np.zeros(shape, np.float32) for name, shape in states.items()})
    tensors = {**held, **t.numbers, "axis0": np.array([0], np.int64)}
    model.graph.initializer.extend(numpy_helper.from_array(np.asarray(value), name) for name, value in tensors.items())
    feed = {"x": rng.standard_normal((BATCH, 6)).astype(np.float32), "t": rng.standard_normal((BATCH, width)).astype(np.float32)}
    return model, held, list(shapes), feed, f"seed {seed}: {net}, {'+'.join(groups)}, loss times {size:g}", names


def wide(model):
    """The model in double."""
    model = onnx.ModelProto.FromString(model.SerializeToString())
    for tensor in model.graph.initializer:
        if tensor.data_type == 1:
            tensor.CopyFrom(numpy_helper.from_array(numpy_helper.to_array(tensor).astype(np.float64), tensor.name))
    for value in [*model.graph.input, *model.graph.output]:
        if value.type.tensor_type.elem_type == 1:
            value.type.tensor_type.elem_type = 11
    for node in model.graph.node:
        for attribute in node.attribute:
            if node.op_type == "Cast" and attribute.name == "to":
                attribute.i = 11
    return model


def trained(model, held, feed, steps=3, wanted=()):
    """The states after some steps in float64, and further values at the first."""
    from onnx.reference import ReferenceEvaluator
    model = wide(model)
    model.graph.output.extend(onnx.helper.make_tensor_value_info(name, 11, None) for name in wanted)
    at = {tensor.name: i for i, tensor in enumerate(model.graph.initializer)}
    names, first = [output.name for output in model.graph.output], {}
    for number in range(steps):
        found = dict(zip(names, ReferenceEvaluator(model).run(None, {name: value.astype(np.float64) for name, value in feed.items()})))
        first = first or {name: found[name] for name in wanted}
        for name in held:
            model.graph.initializer[at[name]].CopyFrom(numpy_helper.from_array(np.asarray(found[f"{name}_next"], np.float64), name))
    return {name: numpy_helper.to_array(model.graph.initializer[at[name]]) for name in held}, first
