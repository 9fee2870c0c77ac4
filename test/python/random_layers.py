# SPDX-License-Identifier: Apache-2.0
"""Random functions of windows, contractions, normalizations, recurrences and dropout, for random_functions.py."""
from random_functions import FLOATS, OPERATIONS, Value, array


class Window:
    """Random kernel, strides, dilations and margins that fit over `rank` extents."""

    def __init__(self, f, rank, pooling=False):
        self.kernel, self.strides, self.dilations, self.low, self.high, self.extents, self.out = [], [], [], [], [], [], []
        for _ in range(rank):
            kernel, stride, dilation = int(f.choose([1, 1, 2, 3, 4, 5])), int(f.choose([1, 1, 2, 3])), int(f.choose([1, 1, 1, 2, 3]))
            span = (kernel - 1) * dilation + 1
            margins = range(0, kernel if pooling else span + 2)
            low, high = int(f.choose(margins)), int(f.choose(margins))
            extent = int(f.choose([1, 2, 3, 5, 7, 8, 9, 13]))
            extent = max(extent, span - low - high, 1 - low, 1 - high, 1)
            if pooling:
                extent = max(extent, span)
            self.kernel.append(kernel), self.strides.append(stride), self.dilations.append(dilation), self.low.append(low)
            self.high.append(high), self.extents.append(extent), self.out.append((extent + low + high - span) // stride + 1)

    def text(self, kernel=True):
        return ((f"kernel = {array(self.kernel)}, " if kernel else "")
                + f"strides = {array(self.strides)}, dilations = {array(self.dilations)}, pads_low = {array(self.low)}, "
                  f"pads_high = {array(self.high)}")


def max_pool(f):
    f.sums = True
    w = Window(f, int(f.rng.integers(1, 4)), pooling=True)
    lead = [int(f.choose([1, 2, 3])), int(f.choose([1, 3, 8, 17]))]
    x = f.operand([*lead, *w.extents], f.choose(FLOATS))
    y, indices = f.emit("mpt.max_pool", [x], [Value("", [*lead, *w.out], x.kind), Value("", [*lead, *w.out], "i32")], w.text())
    f.give(y)
    if f.happens(0.6):
        dy = f.operand([*lead, *w.out], x.kind)
        f.exact = False
        f.give(f.emit("mpt.max_pool_backward", [dy, indices], [Value("", x.shape, x.kind)], w.text()))
    else:
        f.results.append(indices)


def avg_pool(f):
    f.sums = True
    f.exact = False
    w = Window(f, int(f.rng.integers(1, 4)), pooling=True)
    lead = [int(f.choose([1, 2, 3])), int(f.choose([1, 3, 8, 17]))]
    attributes = w.text() + f", count_include_pad = {f.choose(['true', 'false'])}"
    kind = f.choose(FLOATS)
    if f.happens(0.5):
        x = f.operand([*lead, *w.extents], kind)
        f.give(f.emit("mpt.avg_pool", [x], [Value("", [*lead, *w.out], kind)], attributes))
    else:
        dy = f.operand([*lead, *w.out], kind)
        f.give(f.emit("mpt.avg_pool_backward", [dy], [Value("", [*lead, *w.extents], kind)], attributes))


def convolve(f):
    f.exact = False
    w = Window(f, int(f.rng.integers(1, 4)))
    groups = int(f.choose([1, 1, 1, 2, 3]))
    inputs, outputs = groups * int(f.choose([1, 2, 3, 8, 16, 32])), groups * int(f.choose([1, 2, 5, 8, 16, 64]))
    batch = 0 if f.happens(0.03) else int(f.choose([1, 2, 3]))
    kind = f.choose(["f32", "f32", "f16", "bf16", "f8E4M3FN"])
    wide = "f32" if kind.startswith("f8") else kind
    shapes = [batch, inputs, *w.extents], [outputs, inputs // groups, *w.kernel], [batch, outputs, *w.out]
    attributes = w.text(kernel=False) + f", groups = {groups} : i64"
    if wide != kind:
        attributes += f", numerics = #mpt.numerics<in = {kind}, acc = f32, out = f32>"
    which = f.rng.integers(3)
    name, operands, result = [("conv", (0, 1), 2), ("conv_backward_data", (2, 1), 0), ("conv_backward_weights", (0, 2), 1)][which]
    values = [f.argument(shapes[i], kind, -1, 1) for i in operands]
    f.give(f.emit("mpt." + name, values, [Value("", shapes[result], wide)], attributes))


def multiply(f):
    f.exact = False
    kind = f.choose(["f32", "f32", "f16", "bf16", "f64", "f8E4M3FN", "f8E5M2"])
    wide = "f32" if kind.startswith("f8") else kind
    batch = f.shape(0, 2, 0.03)
    m, n, k = (0 if f.happens(0.03) else int(f.choose([1, 2, 3, 5, 8, 17, 31, 33, 65])) for _ in range(3))
    if f.happens(0.1):
        k = int(f.choose([400, 1025]))
        batch = []
    turn_a, turn_b = f.happens(0.4), f.happens(0.4)
    a = f.argument([*batch, k, m] if turn_a else [*batch, m, k], kind, -1, 1)
    b = f.argument([*batch, n, k] if turn_b else [*batch, k, n], kind, -1, 1)
    attributes = f"transpose_a = {str(turn_a).lower()}, transpose_b = {str(turn_b).lower()}"
    if wide != kind:
        attributes += f", numerics = #mpt.numerics<in = {kind}, acc = f32, out = f32>"
    y = f.emit("mpt.matmul", [a, b], [Value("", [*batch, m, n], wide)], attributes)
    if f.happens(0.3):
        bias = f.argument([n], wide, -1, 1)
        spread = f.emit("mpt.broadcast", [bias], [Value("", y.shape, wide)], f"dims = {array([len(y.shape) - 1])}")
        y = f.emit("mpt.add", [y, spread])
        y = f.emit("mpt." + f.choose(["relu", "gelu", "tanh"]), [y])
    f.give(y)


def normalize(f):
    f.sums = True
    f.exact = False
    kind = f.choose(FLOATS)
    shape = f.shape(2, 3, 0)
    x = f.argument(shape, kind)
    if f.happens(0.5):
        axis = int(f.rng.integers(len(shape)))
        f.give(f.emit("mpt." + f.choose(["softmax", "log_softmax"]), [x], [Value("", shape, kind)], f"axis = {axis} : i64"))
        return
    wide = "f64" if kind == "f64" else "f32"
    axis = int(f.rng.integers(1, len(shape)))
    scale, bias = f.argument(shape[axis:], wide, 0.5, 1.5), f.argument(shape[axis:], wide, -1, 1)
    stats = [Value("", shape[:axis], wide) for _ in range(2)]
    y, *_ = f.emit("mpt.layer_norm", [x, scale, bias], [Value("", shape, kind), *stats], f"axis = {axis} : i64, epsilon = 1.0e-5 : f64")
    f.give(y)


def recur(f):
    f.exact = False
    cell = f.choose(["lstm", "gru", "gru_first", "tanh", "relu"])
    gates = {"lstm": 4, "gru": 3, "gru_first": 3}.get(cell, 1)
    steps, batch, hidden = int(f.choose([1, 2, 3, 5])), int(f.choose([1, 2, 3, 17, 49])), int(f.choose([1, 2, 3, 5, 8, 16, 31, 32, 33, 64]))
    kind = f.choose(["f32", "f16", "bf16"])
    x = f.argument([steps, batch, gates * hidden], kind, -1, 1)
    r, h0 = f.argument([gates * hidden, hidden], kind, -0.5, 0.5), f.argument([batch, hidden], kind, -1, 1)
    y = Value("", [steps, batch, hidden], kind)
    more, saved = [], []
    if cell == "lstm":
        more = [f.argument([batch, hidden], "f32", -1, 1)]
        saved = [Value("", [steps, batch, 4 * hidden], kind), Value("", [steps, batch, hidden], "f32")]
    elif cell == "gru":
        more = [f.argument([hidden], "f32", -1, 1)]
        saved = [Value("", [steps, batch, 4 * hidden], kind)]
    elif cell == "gru_first":
        saved = [Value("", [steps, batch, 3 * hidden], kind), Value("", [steps, batch, hidden], kind)]
    reverse = "reverse" if f.happens(0.4) else ""
    results = f.emit(f"mpt.recurrence {cell.split('_')[0]}", [x, r, h0, *more], [y, *saved], reverse)
    f.give(results[0] if saved else results)
    if f.happens(0.6):
        y = results[0] if saved else results
        dy = f.argument(y.shape, kind, -1, 1)
        gradients = [Value("", x.shape, kind), Value("", h0.shape, kind)]
        if cell == "lstm":
            gradients.append(Value("", h0.shape, "f32"))
            extra = [*results[1:], *more]
        elif cell == "gru":
            gradients.append(Value("", y.shape, kind))
            extra = [results[1]]
        else:
            extra = [results[1]] if cell == "gru_first" else []
        given = f.emit(f"mpt.recurrence_backward {cell.split('_')[0]}", [dy, r, h0, y, *extra], gradients, reverse)
        f.results.extend(given)


def drop(f):
    f.exact = False
    kind = f.choose(FLOATS)
    x, key = f.operand(f.shape(), kind), f.argument([2], "i64", 0, 1 << 62)
    f.give(f.emit("mpt.dropout", [x, key], [Value("", x.shape, kind)],
                  f"ratio = {f.choose(['0.5', '0.1', '0.0', '0.999999'])} : f64, stream = {f.rng.integers(1000)} : i64"))


OPERATIONS.update({f.__name__: f for f in [max_pool, avg_pool, convolve, multiply, normalize, recur, drop]})
