# SPDX-License-Identifier: Apache-2.0
"""Kinds of models whose values mean something. Each grows a part that means something on a draft, and joins it to a part that trains."""
import numpy as np
from onnx import TensorProto

from .draft import Draft

INT64, FLOAT = TensorProto.INT64, TensorProto.FLOAT
KINDS = {}


def kind(function):
    KINDS[function.__name__] = function
    return function


def make(name, seed, opset, style):
    """The case of a kind and a seed."""
    d = Draft(seed, opset, style)
    y, shape = KINDS[name](d)
    return d.finish(y, shape, name)


def features(d, *shape):
    """A trained product of raw inputs, in the range that layers have."""
    x = d.input("x", d.normal(*shape[:-1], 6))
    return d.linear(x, 6, shape[-1], len(shape))


def head(d, z, *shape):
    """Behind the part that means something: layers that train, in one of the forms that a model may have here."""
    columns, rank = shape[-1], len(shape)
    form = d.pick("linear", "twice", "residual", "gate")
    if form == "linear":
        return d.linear(z, columns, 3, rank), (*shape[:-1], 3)
    h = d.unary(d.linear(z, columns, columns, rank))
    if form == "residual":
        h = d.emit("Add", h, z)
    if form == "gate":
        h = d.emit("Mul", h, d.emit("Sigmoid", d.linear(z, columns, columns, rank)))
    return d.linear(h, columns, 3, rank), (*shape[:-1], 3)


def joined(d, meaning, *shape):
    """Features of an input meet the part that means something."""
    form = d.pick("add", "mul", "concat")
    h = features(d, *shape)
    if form == "concat":
        z = d.concat(h, meaning)
        return head(d, z, *shape[:-1], 2 * shape[-1])
    return head(d, d.emit("Add" if form == "add" else "Mul", h, meaning), *shape)


def steps(d, *shape, low=2049, high=9000):
    """Positions or counts as an exporter has them: integers of an input, as they come or cast."""
    value = d.rng.integers(low, high, shape) | 1
    return d.input("positions", value.astype(d.pick(np.int64, np.int64, np.int32)))


def as_float(d, x):
    """Exact arithmetic may lie between a cast and its reader."""
    y = d.cast(x)
    for _ in range(d.rng.integers(0, 3)):
        form = d.pick("add", "unsqueeze", "double", "identity", "where", "max")
        if form == "add":
            y = d.emit("Add", y, d.constant(float(d.rng.integers(1, 50))), exact=True)
        elif form == "double":
            y = d.emit("Mul", y, d.constant(2.0), exact=True)
        elif form == "unsqueeze":
            y = d.squeeze(d.unsqueeze(y, 0), 0)
        elif form == "identity":
            y = d.emit("Identity", y, exact=True)
        elif form == "where":
            y = d.emit("Where", d.emit("Greater", y, d.constant(0.0)), y, d.constant(1.0), exact=True)
        else:
            y = d.emit("Max", y, d.constant(1.0), exact=True)
    return y


@kind
def cast_bounded(d):
    """An integer with bounds that the graph states becomes a divisor, a factor or a logarithm."""
    b, columns = 4, 5
    x = d.input("n", d.rng.integers(10**4, 10**6, (b,)))
    bound = int(d.pick(3001, 6007, 50021, 80021))
    if d.pick(True, False):
        n = d.emit("Mod", x, d.constant(np.int64(bound)))
        n = d.emit("Add", n, d.constant(np.int64(bound)))
    else:
        n = d.emit("Max", x, d.constant(np.int64(7))) if d.opset >= 12 else x
        n = d.emit("Min", n, d.constant(np.int64(bound))) if d.opset >= 12 else n
    return divided(d, d.unsqueeze(as_float(d, n), 1), b, columns, bound)


@kind
def cast_unbounded(d):
    b, columns = 4, 5
    largest = int(d.pick(3000, 10**5, 10**6))
    n = d.input("n", d.rng.integers(largest // 2, largest, (b,)).astype(d.pick(np.int64, np.int32)))
    return divided(d, d.unsqueeze(as_float(d, n), 1), b, columns, largest)


def divided(d, n, b, columns, size):
    """A count meets features: as a divisor, through its reciprocal, its root, its logarithm, or brought to the range of features."""
    form = d.pick("div", "reciprocal", "sqrt", "log", "ratio", "difference")
    if form in ("div", "reciprocal"):
        scale = min(size, 2000.0)
        h = d.linear(d.input("x", d.normal(b, 6)), 6, columns, 2, scale=scale / 2.5)
        z = d.emit("Div", h, n) if form == "div" else d.emit("Mul", h, d.emit("Reciprocal", n, exact=True))
        if size > 5000:
            z = d.linear(z, columns, columns, 2, scale=size / 2000)
        return head(d, z, b, columns)
    if form == "sqrt":
        z = d.emit("Div", features(d, b, columns), d.emit("Div", d.emit("Sqrt", n, exact=True), d.constant(float(size)**0.5), exact=True))
    elif form == "log":
        z = d.emit("Mul", features(d, b, columns), d.emit("Log", n, exact=True))
    elif form == "ratio":
        z = d.emit("Mul", features(d, b, columns), d.emit("Div", n, d.constant(float(size)), exact=True))
    else:
        away = d.emit("Sub", n, d.constant(float(size)), exact=True)
        turned = d.emit("Sin", away)
        z = d.emit("Mul", features(d, b, columns), turned)
    return head(d, z, b, columns)


@kind
def table(d):
    """Values of a table (years, prices, frequencies in Hz) of which differences matter."""
    b, columns, rows = 4, 5, 7
    base = float(d.pick(1013.25, 1970.0, 44100.0, 299792.0, -273.15))
    values = (base + d.normal(rows, columns, scale=2.0)).astype(np.float32)
    index = d.input("index", d.rng.integers(0, rows, (b,)))
    got = d.emit("Gather", d.table(values), index, axis=0, exact=True) if d.pick(True, False) else d.emit("Gather", d.constant(values), index, axis=0, exact=True)
    away = d.emit("Sub", got, d.constant(base), exact=True)
    z = d.emit("Mul", away, d.constant(0.5), exact=True) if d.pick(True, False) else away
    return joined(d, z, b, columns)


@kind
def standardized(d):
    """Raw inputs less their mean, over their deviation; numbers as nodes or as initializers."""
    b, columns = 8, 6
    mean = float(d.pick(1013.25, 127.5, 1.6e5, 3.0e6, -40.0))
    spread = abs(mean) * float(d.pick(1e-3, 3e-3))
    means = (mean + d.normal(columns, scale=spread)).astype(np.float32)
    spreads = (spread * (0.5 + np.abs(d.normal(columns)))).astype(np.float32)
    x = d.input("raw", (means + spreads * d.normal(b, columns)).astype(np.float32))
    m, s = (d.table(means, "mean"), d.table(spreads, "std")) if d.pick(True, False) else (d.constant(means), d.constant(spreads))
    form = d.pick("div", "mul", "add", "chain")
    if form == "mul":
        z = d.emit("Mul", d.emit("Sub", x, m, exact=True), d.emit("Reciprocal", s, exact=True), exact=True)
    elif form == "add":
        z = d.emit("Div", d.emit("Add", x, d.emit("Neg", m, exact=True), exact=True), s, exact=True)
    elif form == "chain":
        z = d.reshape(d.emit("Div", d.emit("Sub", d.emit("Identity", x, exact=True), m, exact=True), s, exact=True), b, columns, exact=True)
    else:
        z = d.emit("Div", d.emit("Sub", x, m, exact=True), s, exact=True)
    return head(d, z, b, columns)


@kind
def constant(d):
    """A constant of any magnitude, on features or on raw inputs, and one that brings the result back."""
    b, columns = 4, 6
    size = float(np.float32(d.pick(*(10.0**e for e in range(-12, 13))) * d.rng.uniform(1, 9) * d.pick(1, -1)))
    large = not all(2.0**-14 <= abs(c) <= 65504 for c in (size, 1 / size))
    on_raw = large and d.pick(True, False)
    if on_raw:
        form = d.pick("mul", "div", "sub")
        c = d.constant(size)
        if form == "sub":
            spread = abs(size) * 1e-2
            x = d.input("raw", (size + d.normal(b, columns) * spread).astype(np.float32))
            z = d.emit("Div", d.emit("Sub", x, c, exact=True), d.constant(spread), exact=True)
        else:
            x = d.input("raw", (d.normal(b, columns) * (1 / size if form == "mul" else size)).astype(np.float32))
            z = d.emit("Mul" if form == "mul" else "Div", x, c, exact=True)
        return head(d, z, b, columns)
    h = features(d, b, columns)
    return scaled_and_back(d, h, size, b, columns, large)


def scaled_and_back(d, h, size, b, columns, large):
    """Features times a constant, something that changes no magnitude, and over the constant again."""
    c = d.constant(size, exact=large)
    form = d.pick("mul-div", "div-mul", "mul-mul", "factors", "compare", "where", "clip", "pow", "epsilon")
    if form == "factors":
        return head(d, in_factors(d, h, abs(size)), b, columns)
    if form == "compare":
        limit = d.emit("Greater", h, d.constant(-abs(size) if large else 30.0 * size))
        return head(d, d.emit("Mul", h, d.cast(limit)), b, columns)
    if form == "where":
        mask = d.input("mask", d.rng.random((b, columns)) < 0.3)
        picked = d.emit("Where", mask, c, h, exact=large)
        back = d.emit("Where", mask, h, picked)
        return head(d, back, b, columns)
    if form == "clip":
        bound = abs(size) if abs(size) > 20 else 20.0
        z = d.emit("Clip", h, d.constant(-bound, exact=bound > 65504), d.constant(bound, exact=bound > 65504))
        return head(d, z, b, columns)
    if form == "epsilon":
        square = d.emit("Mul", h, h)
        total = d.reduce("Mean", square, 1)
        tiny = d.constant(min(abs(size), 1e-5))
        return head(d, d.emit("Div", h, d.emit("Sqrt", d.emit("Add", total, tiny))), b, columns)
    if form == "pow":
        z = d.emit("Pow", d.emit("Softplus", h), d.constant(float(d.pick(0.5, 2.0, 1.5, 3.0))))
        return head(d, z, b, columns)
    first, second = {"mul-div": ("Mul", "Div"), "div-mul": ("Div", "Mul"), "mul-mul": ("Mul", "Mul")}[form]
    middle = d.emit(first, h, c, exact=large)
    for _ in range(d.rng.integers(0, 3)):
        middle = d.emit(d.pick("Neg", "Identity"), middle, exact=large) if d.pick(True, False) else d.reshape(middle, b, columns, exact=large)
    back = c if form != "mul-mul" else d.constant(1.0 / size, exact=large)
    return head(d, d.emit(second, middle, back), b, columns)


def in_factors(d, h, size):
    """Features times a number and over it again, in factors that the narrow types hold where the product is beyond them."""
    count = int(d.rng.integers(2, 5))
    reached = 1.0
    for step in (1, -1):
        for _ in range(count):
            reached *= size ** (step / count)
            h = d.emit("Mul", h, d.constant(size ** (step / count)), exact=not 2.0**-14 <= reached <= 1000)
    return h


@kind
def rotary(d):
    """Angles of positions turn queries: by MatMul, Einsum or a product, with integers of an input or positions counted by the graph."""
    b, t, half = 2, 4, 3
    inv = (1.0 / 10000 ** (np.arange(half) / half)).astype(np.float32)
    p = d.cast(steps(d, b, t))
    form = d.pick("matmul", "einsum", "mul", "outer") if d.opset >= 12 else d.pick("matmul", "mul")
    buffer = d.table(inv, "inv_freq") if d.pick(True, False) else d.constant(inv)
    if form == "matmul":
        angle = d.emit("MatMul", d.unsqueeze(p, 2), d.unsqueeze(buffer, 0), exact=True)
        if d.pick(True, False):  # as Hugging Face has it
            rows = d.emit("Expand", d.unsqueeze(buffer, 0, 2), d.ints(b, half, 1), exact=True)
            angle = d.emit("Transpose", d.emit("MatMul", rows, d.unsqueeze(p, 1), exact=True), perm=[0, 2, 1], exact=True)
    elif form == "einsum":
        angle = d.emit("Einsum", p, buffer, equation="bt,h->bth", exact=True)
    elif form == "outer":
        angle = d.emit("Einsum", buffer, p, equation="h,bt->bth", exact=True)
    else:
        angle = d.emit("Mul", d.unsqueeze(p, 2), buffer, exact=True)
    angle = d.concat(angle, angle, exact=True)
    if d.pick(True, False):
        angle = d.emit("Mul", angle, d.constant(float(d.pick(0.5, 0.25, 1.0))), exact=True)
    cos, sin = d.emit("Cos", angle), d.emit("Sin", angle)
    q = features(d, b, t, 2 * half)
    first, second = d.split(q, 2, half, half)
    turned = d.concat(d.emit("Neg", second), first)
    z = d.emit("Add", d.emit("Mul", q, cos), d.emit("Mul", turned, sin))
    return head(d, z, b, t, 2 * half)


@kind
def time_embedding(d):
    """Sine and cosine of a time step, an integer or a float, as diffusion models have it."""
    b, half = 4, 4
    top = float(d.pick(1000, 5000, 40000))
    if d.pick(True, False):
        t = as_float(d, d.input("timestep", d.rng.integers(int(top / 2), int(top), (b,))))
    else:
        t = d.input("timestep", (top * (0.5 + 0.5 * d.rng.random(b))).astype(np.float32))
    if d.pick(True, False):
        exponent = d.emit("Mul", d.cast(d.emit("Range", d.constant(np.int64(0)), d.constant(np.int64(half)), d.constant(np.int64(1)))),
                          d.constant(float(-np.log(10000.0) / half)), exact=True)
        frequencies = d.emit("Exp", exponent, exact=True)
    else:
        frequencies = d.constant(np.exp(-np.log(10000.0) * np.arange(half) / half).astype(np.float32))
    if d.pick(True, False):
        angle = d.emit("Mul", d.unsqueeze(t, 1), d.unsqueeze(frequencies, 0), exact=True)
    else:
        angle = d.emit("MatMul", d.unsqueeze(t, 1), d.unsqueeze(frequencies, 0), exact=True)
    z = d.concat(d.emit("Sin", angle), d.emit("Cos", angle))
    return joined(d, z, b, 2 * half) if d.pick(True, False) else head(d, z, b, 2 * half)


@kind
def sinusoid(d):
    """Sinusoidal positions that the graph makes: Range or a running count, Pow or Exp, division."""
    b, t, half = 1, 6, 3
    start = int(d.rng.integers(2049, 6000))
    if d.pick(True, False):
        p = d.cast(d.emit("Range", d.constant(np.int64(start)), d.constant(np.int64(start + t)), d.constant(np.int64(1))))
    else:
        ones = d.input("mask", np.ones((t,), np.float32))
        p = d.emit("Add", d.emit("CumSum", ones, d.constant(np.int64(0)), exact=True), d.cast(d.input("past", np.int64(start))), exact=True)
    i = d.constant((np.arange(half) / half).astype(np.float32))
    frequency = d.emit("Pow", d.constant(10000.0), i, exact=True)
    angle = d.emit("Div", d.unsqueeze(p, 1), d.unsqueeze(frequency, 0), exact=True)
    z = d.unsqueeze(d.concat(d.emit("Sin", angle), d.emit("Cos", angle)), 0, exact=False)
    return joined(d, z, b, t, 2 * half)


@kind
def counted(d):
    """Counts by a running sum, a product with a triangle or an Einsum end in a lookup."""
    t = int(d.pick(300, 600, 2100))
    b, columns = 1, 4
    mask = (d.rng.random((b, t)) < 0.95).astype(np.float32)
    form = d.pick("cumsum", "cumsum", *(["matmul"] if t < 700 else []), *(["einsum"] if d.opset >= 12 and t < 700 else []))
    if d.pick(True, False):
        m = d.input("mask", mask)
    else:
        m = d.cast(d.input("mask", mask.astype(np.int64)))
    if form == "cumsum":
        p = d.emit("CumSum", m, d.constant(np.int64(1)), exact=True)
    else:
        triangle = np.triu(np.ones((t, t), np.float32))
        triangle = d.table(triangle, "triangle")
        p = d.emit("MatMul", m, triangle, exact=True) if form == "matmul" else d.emit("Einsum", m, triangle, equation="bs,st->bt", exact=True)
    if d.pick(True, False):
        p = d.emit("Mul", p, m, exact=True)
    i = d.cast(p, INT64)
    if d.pick(True, False):
        i = d.emit("Add", i, d.constant(np.int64(1)))
    e = d.emit("Gather", d.weight(t + 2, columns, scale=1.0), i, axis=0)
    e = d.slice(e, 1, t - 16, t)
    return joined(d, e, b, 16, columns)


@kind
def looked_up(d):
    """Arithmetic on floats that ends in a row number: of a Gather, an OneHot, a comparison."""
    b, columns, rows = 8, 4, 9
    offset = int(d.rng.integers(2049, 60000))
    n = d.input("n", offset + d.rng.integers(0, rows, (b,)))
    p = d.cast(n)
    step = float(d.pick(1.0, 0.5, 0.25))
    p = d.emit("Mul", d.emit("Sub", d.emit("Mul", p, d.constant(step), exact=True), d.constant(offset * step), exact=True), d.constant(1 / step), exact=True)
    if d.pick(True, False):
        p = d.emit("Floor", d.emit("Add", p, d.constant(0.5), exact=True), exact=True)
    form = d.pick("gather", "onehot", "equal", "less")
    if form == "gather":
        z = d.emit("Gather", d.weight(rows + 1, columns, scale=1.0), d.cast(p, INT64), axis=0)
    elif form == "onehot":
        hot = d.emit("OneHot", d.cast(p, INT64), d.constant(np.int64(rows)), d.constant(np.array([0, 1], np.float32)))
        z = d.linear(hot, rows, columns, 2)
    else:
        places = d.constant(np.arange(rows).astype(np.float32) + (0.5 if form == "less" else 0.0))
        near = d.emit("Less" if form == "less" else "Equal", d.unsqueeze(p, 1), places)
        z = d.linear(d.cast(near, exact=False), rows, columns, 2)
    return joined(d, z, b, columns)


@kind
def grid(d):
    """Sample positions by affine grids or arithmetic; texture so fine that half a pixel matters."""
    if d.opset < 17:
        return looked_up(d)
    b, channels, width, n = 1, 2, int(d.pick(600, 3000)), 5
    form = d.pick("arithmetic", "matmul", *(["affine"] if d.opset >= 20 else []))
    shift = d.input("shift", np.float32(d.rng.uniform(-0.2, 0.2)))
    zoom = float(d.rng.uniform(0.5, 0.7))
    if form == "affine":  # with aligned corners, tools differ on an extent of one
        b = d.pick(1, 2)
        image = d.input("image", d.normal(b, channels, 1, width))
        theta = d.concat(d.reshape(d.constant(zoom), 1, 1, 1, exact=True), d.constant(np.zeros((1, 1, 1), np.float32)), d.reshape(shift, 1, 1, 1, exact=True), exact=True)
        theta = d.concat(theta, d.constant(np.array([[[0, 1, 0]]], np.float32)), axis=1, exact=True)
        theta = d.concat(theta, theta, axis=0, exact=True) if b == 2 else theta
        points = d.emit("AffineGrid", theta, d.ints(b, channels, 1, n), align_corners=0, exact=True)
    elif form == "matmul":
        base = np.stack([np.linspace(-1, 1, n), np.zeros(n), np.ones(n)], 1).astype(np.float32)
        row = d.concat(d.reshape(d.constant(zoom), 1, 1, exact=True), d.constant(np.zeros((1, 1), np.float32)), d.reshape(shift, 1, 1, exact=True), axis=0, exact=True)
        xs = d.emit("MatMul", d.table(base, "base"), row, exact=True)
        points = d.reshape(d.concat(xs, d.constant(np.zeros((n, 1), np.float32)), exact=True), 1, 1, n, 2, exact=True)
    else:
        pixels = d.cast(d.input("pixels", d.rng.integers(width // 4, 3 * width // 4, (n,))))
        xs = d.emit("Sub", d.emit("Div", d.emit("Add", pixels, shift, exact=True), d.constant((width - 1) / 2), exact=True), d.constant(1.0), exact=True)
        xs = d.reshape(xs, n, 1, exact=True)
        points = d.reshape(d.concat(xs, d.constant(np.zeros((n, 1), np.float32)), exact=True), 1, 1, n, 2, exact=True)
    if form != "affine":
        image = d.input("image", d.normal(b, channels, 1, width))
    mode = "linear" if d.opset >= 20 else "bilinear"
    seen = d.emit("GridSample", image, points, align_corners=1, mode=mode)
    rows = d.reshape(d.emit("Transpose", seen, perm=[0, 2, 3, 1]), b * n, channels)
    return head(d, rows, b * n, channels)


@kind
def count_by_sum(d):
    """The number of valid positions, by a reduction, divides a sum of features."""
    b, t, columns = 2, int(d.pick(40, 500, 3000)), 3
    tokens = d.input("tokens", d.rng.integers(0, 9, (b, t)))
    valid = d.cast(d.emit("Greater", tokens, d.constant(np.int64(0))))
    count = d.reduce(d.pick("Sum", "Sum", "L1", "SumSquare"), valid, 1, exact=True)
    if d.pick(True, False):
        count = d.emit("Max" if d.pick(True, False) else "Clip", count, d.constant(1e-9 if d.pick(True, False) else 1.0), exact=True)
    h = features(d, b, columns)
    form = d.pick("div", "rate", "pool")
    if form == "pool":
        x = d.input("x2", d.normal(b, t, 2))
        total = d.reduce("Sum", d.emit("Mul", x, d.unsqueeze(valid, 2), exact=True), 1, keepdims=0, exact=True)
        z = d.linear(d.emit("Div", total, count, exact=True), 2, columns, 2, scale=float(t)**0.5)
        return head(d, d.emit("Add", h, z), b, columns)
    if form == "rate":
        rate = d.emit("Div", count, d.constant(float(t)), exact=True)
        return head(d, d.emit("Mul", h, rate), b, columns)
    z = d.emit("Mul", d.emit("Div", h, count), d.constant(float(t)))
    return head(d, z, b, columns)


@kind
def distances(d):
    """Differences of positions, large by themselves, are compared: bands, buckets, masks of attention."""
    b, t, columns = 1, 6, 4
    p = as_float(d, steps(d, t, low=3000, high=3400))
    away = d.emit("Sub", d.unsqueeze(p, 1), d.unsqueeze(p, 0), exact=True)
    form = d.pick("band", "bucket", "sine")
    h = features(d, t, columns)
    if form == "sine":
        return head(d, d.emit("MatMul", d.emit("Sin", away), h), t, columns)
    if form == "band":
        near = d.emit("Less", d.emit("Abs", away, exact=True), d.constant(64.5 + float(d.rng.integers(0, 90))))
        scores = d.emit("Where", near, d.emit("MatMul", h, d.emit("Transpose", h, perm=[1, 0])), d.constant(float(d.pick(-1e9, -10000.0, -3.4e38)), exact=False))
        return head(d, d.emit("MatMul", d.emit("Softmax", scores, axis=-1), h), t, columns)
    size = d.emit("Max", d.emit("Abs", away, exact=True), d.constant(1.0), exact=True)
    bucket = d.emit("Floor", d.emit("Mul", d.emit("Log", size, exact=True), d.constant(float(d.pick(3.0, 7.3, 19.1))), exact=True), exact=True)
    bias = d.emit("Gather", d.weight(160, 1, scale=1.0), d.cast(bucket, INT64), axis=0)
    scores = d.reshape(bias, t, t)
    return head(d, d.emit("MatMul", d.emit("Softmax", scores, axis=-1), h), t, columns)


@kind
def spectrum(d):
    """Powers, exponentials and sums of squares beyond FP16's range go into a product, or into a logarithm before."""
    b, n, bins, columns = 2, 32, 6, 5
    angle = 2 * np.pi * np.outer(np.arange(n), np.arange(bins)) / n
    x = d.input("audio", d.normal(b, n, scale=float(d.pick(30, 300, 3000))))
    form = d.pick("power", "power", "exp", "cube")
    if form == "exp":
        h = d.linear(d.input("x", d.normal(b, 6)), 6, bins, 2, scale=2.0)
        power = d.emit("Exp", d.emit("Add", h, d.constant(float(d.pick(4.0, 9.0)), exact=False)))
    else:
        re = d.emit("MatMul", x, d.constant(np.cos(angle).astype(np.float32)))
        im = d.emit("MatMul", x, d.constant(np.sin(angle).astype(np.float32)))
        if form == "power" and d.pick(True, False):
            re, im = d.emit("Pow", re, d.constant(2.0)), d.emit("Pow", im, d.constant(2.0))
        else:
            re, im = d.emit("Mul", re, re), d.emit("Mul", im, im)
        power = d.emit("Add", re, im)
    filters = np.abs(d.normal(bins, columns, scale=0.5)) + np.float32(0.05)
    mel = d.emit("MatMul", power, d.table(filters, "filters") if d.pick(True, False) else d.constant(filters))
    log = d.emit("Log", d.emit("Add", mel, d.constant(float(d.pick(1e-6, 1e-10, 1.0)))))
    return head(d, log, b, columns)


@kind
def long_sum(d):
    """Sums of thousands of features, whole or running, brought back to their range."""
    b, t, columns = 1, int(d.pick(700, 3000)), 3
    x = d.input("x", d.rng.random((b, t, 6)).astype(np.float32))
    h = d.emit("Add", d.linear(x, 6, columns, 3), d.constant(1.0, exact=False))
    form = d.pick("cumsum", "sum", "mean", "einsum")
    if form == "cumsum":
        total = d.emit("CumSum", h, d.constant(np.int64(1)))
        return head(d, d.slice(d.emit("Mul", total, d.constant(1.0 / t)), 1, t - 8, t), b, 8, columns)
    if form == "mean":
        return head(d, d.reduce("Mean", h, 1, keepdims=0), b, columns)
    if form == "einsum" and d.opset >= 12:
        total = d.emit("Einsum", h, d.constant(np.full(t, 1.0 / t, np.float32), exact=False), equation="btc,t->bc")
        return head(d, total, b, columns)
    total = d.reduce("Sum", h, 1, keepdims=0)
    return head(d, d.emit("Mul", total, d.constant(1.0 / t)), b, columns)
