# SPDX-License-Identifier: Apache-2.0
"""Random functions of core operations: small and odd extents, all types, values at the edges of their types."""
import ml_dtypes
import numpy as np

TYPES = {"f64": np.float64, "f32": np.float32, "f16": np.float16, "bf16": ml_dtypes.bfloat16, "f8E4M3FN": ml_dtypes.float8_e4m3fn,
         "f8E5M2": ml_dtypes.float8_e5m2, "i64": np.int64, "i32": np.int32, "i8": np.int8, "i1": np.bool_, "i16": np.int16,
         "ui8": np.uint8, "ui16": np.uint16, "ui32": np.uint32, "ui64": np.uint64}
FLOATS = ["f32", "f32", "f16", "bf16", "f64"]
INTEGERS = ["i64", "i32", "i16", "i8", "ui8", "ui16", "ui32", "ui64"]
EXTENTS = [1, 1, 2, 3, 4, 5, 7, 8, 9, 16, 17, 33]


def mlir_type(shape, kind):
    return f"tensor<{''.join(f'{extent}x' for extent in shape)}{kind}>"


def array(values):
    return "array<i64" + (": " + ", ".join(str(int(v)) for v in values) if len(values) else "") + ">"


class Value:
    """A value of a function: its name, shape and element type."""

    def __init__(self, name, shape, kind):
        self.name, self.shape, self.kind = name, tuple(int(d) for d in shape), kind
        self.type = mlir_type(self.shape, kind)


class Function:
    """One random operation, with others before and behind it that may be computed in the same kernel."""

    def __init__(self, seed, operation=None):
        self.rng = np.random.default_rng(seed)
        self.name, self.arguments, self.lines, self.results, self.exact = "f", {}, [], [], True
        self.count = 0
        self.sums = False  # partial sums may overflow or vanish, depending on the order
        names = sorted(OPERATIONS)
        self.operation = operation or names[self.rng.integers(len(names))]
        OPERATIONS[self.operation](self)
        self.text = self.print()

    # ---- choices

    def choose(self, values):
        return values[self.rng.integers(len(values))]

    def happens(self, probability):
        return self.rng.random() < probability

    def extent(self, empty=0.04):
        return 0 if self.happens(empty) else int(self.choose(EXTENTS))

    def shape(self, low=0, high=4, empty=0.04):
        shape = [self.extent(empty) for _ in range(self.rng.integers(low, high + 1))]
        while np.prod(shape) > 4000:
            shape[self.rng.integers(len(shape))] = 2
        return shape

    # ---- values

    def argument(self, shape, kind, low=None, high=None):
        """A new argument. Floats are near 0; one in five has values at the edges of its type. Integers lie in [low, high)."""
        name = f"a{len(self.arguments)}"
        size = int(np.prod(shape))
        dtype = np.dtype(TYPES[kind])
        if kind == "i1":
            data = self.rng.integers(0, 2, size)
        elif kind[0] in "iu":
            info = np.iinfo(dtype)
            edges = low is None and self.happens(0.3)
            low, high = (max(-5, info.min), 6) if low is None else (low, high)
            data = self.rng.integers(low, max(high, low + 1), size)
            if edges:
                odd = np.array([info.min, info.max, info.max - 1, 0, info.max // 2, info.max // 2 + 1], dtype)
                data = np.where(self.rng.random(size) < 0.3, self.rng.choice(odd, size), data.astype(dtype))
        else:
            data = self.rng.normal(0, 1.5, size).round(3)
            if low is not None:
                data = self.rng.uniform(low, high, size)
            elif self.happens(0.2):
                top = float(ml_dtypes.finfo(dtype).max)
                tiny = float(ml_dtypes.finfo(dtype).smallest_subnormal)
                odd = [np.nan, np.inf, -np.inf, 0.0, -0.0, 1.0, *([] if self.sums else [top, -top, tiny, -3 * tiny])]
                data = np.where(self.rng.random(size) < self.choose([0.02, 0.4, 1.0]), self.rng.choice(odd, size), data)
        with np.errstate(all="ignore"):
            self.arguments[name] = data.astype(dtype).reshape(shape)
        return Value(f"%{name}", shape, kind)

    def operand(self, shape, kind, low=None, high=None):
        """An argument, now and then behind operations that a kernel may compute together with the operand's reader."""
        value = self.argument(shape, kind, low, high)
        if low is not None or not self.happens(0.3):
            return value
        if kind[0] in "fb":
            way = self.rng.integers(4)
            if way == 0:
                return self.emit("mpt.neg", [value])
            if way == 1:
                other = self.argument(shape, kind)
                return self.emit("mpt.add", [value, other])
            if way == 2 and len(shape) > 1:
                turned = self.argument(list(reversed(shape)), kind)
                return self.emit("mpt.transpose", [turned], [Value("", shape, kind)],
                                 f"permutation = {array(range(len(shape) - 1, -1, -1))}")
            return self.emit("mpt.abs", [value])
        return value

    def emit(self, name, operands, results=None, attributes="", mode=None):
        """Adds an operation; same-type form without `results`. Returns its result or results."""
        same = results is None
        results = [Value("", operands[0].shape, operands[0].kind)] if same else results
        for result in results:
            result.name = f"%v{self.count}"
            self.count += 1
        left = ", ".join(result.name for result in results)
        right = ", ".join(value.name for value in operands)
        attributes = f" {{{attributes}}}" if attributes else ""
        types = operands[0].type if same else (f"({', '.join(value.type for value in operands)}) -> "
                                               f"({', '.join(result.type for result in results)})")
        if mode:
            types = mode
        self.lines.append(f"{left} = {name} {right}{attributes} : {types}")
        return results[0] if len(results) == 1 else results

    def give(self, *values):
        """Results of the function; now and then with an operation behind them."""
        for value in values:
            if value.kind[0] in "fb" and not value.kind.startswith("f8") and self.happens(0.25):
                value = self.emit("mpt.neg", [value])
            elif value.kind in ("i1", "i64") and self.happens(0.2):
                value = self.emit("mpt.cast", [value], [Value("", value.shape, "f32")],
                                  mode=f"{value.type} to {mlir_type(value.shape, 'f32')}")
            self.results.append(value)

    def print(self):
        arguments = ", ".join(f'%{name}: {mlir_type(data.shape, kind_of(data))} {{mpt.name = "{name}"}}'
                              for name, data in self.arguments.items())
        results = ", ".join(f'{value.type} {{mpt.name = "r{i}"}}' for i, value in enumerate(self.results))
        body = "".join(f"  {line}\n" for line in self.lines)
        return (f"func.func @NAME({arguments}) -> ({results}) {{\n{body}  return {', '.join(v.name for v in self.results)} : "
                f"{', '.join(v.type for v in self.results)}\n}}\n")


def kind_of(data):
    return next(kind for kind, dtype in TYPES.items() if np.dtype(dtype) == data.dtype)


# ---- operations, by family

def unary(f):
    kind = f.choose(FLOATS + INTEGERS)
    x = f.operand(f.shape(), kind)
    if kind[0] in "fb":
        f.exact = False
        f.give(f.emit("mpt." + f.choose(["abs", "neg", "sign", "floor", "ceil", "round", "relu", "exp", "log", "sqrt", "rsqrt", "reciprocal",
                                         "sin", "cos", "tanh", "sigmoid", "erf", "softplus", "gelu", "hard_sigmoid"]), [x]))
    else:
        f.give(f.emit("mpt." + f.choose(["abs", "neg", "sign", "relu", "not"]), [x]))


def with_attributes(f):
    f.exact = False
    kind = f.choose(FLOATS)
    x = f.operand(f.shape(), kind)
    name, attributes = f.choose([("elu", "alpha = 0.5 : f64"), ("leaky_relu", "alpha = 0.1 : f64"), ("leaky_relu", "alpha = -0.5 : f64"),
                                 ("clamp", "low = -1.0 : f64, high = 1.0 : f64"), ("clamp", "low = 0.0 : f64, high = 0x7FF0000000000000 : f64"),
                                 ("swish", "alpha = 1.5 : f64"), ("gelu", "form = #mpt<gelu_form tanh>"), ("clamp", "low = 2.0 : f64, high = -1.0 : f64")])
    f.give(f.emit("mpt." + name, [x], attributes=attributes))


def clamp_integers(f):
    kind = f.choose(INTEGERS)
    x = f.argument(f.shape(), kind)
    data = f.arguments["a0"]
    if data.size and f.happens(0.5):
        data.flat[0] = np.iinfo(data.dtype).max
    low, high = f.choose([("-2.0", "3.0"), ("0.0", "0x7FF0000000000000"), ("0xFFF0000000000000", "4.0"), ("0.0", "9.3e18"), ("-1.0e30", "100.0")])
    f.give(f.emit("mpt.clamp", [x], attributes=f"low = {low} : f64, high = {high} : f64"))


def binary(f):
    kind = f.choose(FLOATS + INTEGERS)
    shape = f.shape()
    names = ["add", "sub", "mul", "max", "min"]
    if kind[0] in "fb":
        f.exact = False
        names += ["div", "mod", "pow", "relu_backward", "tanh_backward", "sigmoid_backward"]
        f.give(f.emit("mpt." + f.choose(names), [f.operand(shape, kind), f.operand(shape, kind)]))
    else:
        f.give(f.emit("mpt." + f.choose(names + ["and", "or", "xor"]), [f.argument(shape, kind), f.argument(shape, kind)]))


def divide_integers(f):
    kind = f.choose(INTEGERS)
    shape = f.shape()
    y = f.argument(shape, kind)
    data = f.arguments["a0"]
    x = f.argument(shape, kind)
    if data.size and kind[0] == "i" and f.happens(0.5):  # overflows
        data.flat[0], f.arguments["a1"].flat[0] = -1, np.iinfo(data.dtype).min
    f.give(f.emit("mpt." + f.choose(["div", "mod"]), [x, y]))


def compare(f):
    kind = f.choose(FLOATS + INTEGERS + ["i1"])
    shape = f.shape()
    x, y = f.operand(shape, kind), f.operand(shape, kind)
    flag = f.emit("mpt.compare " + f.choose(["eq", "ne", "lt", "le", "gt", "ge"]), [x, y], [Value("", shape, "i1")], mode=x.type)
    if f.happens(0.5):
        f.give(flag)
    else:
        f.give(f.emit("mpt.select", [flag, x, y], [Value("", shape, kind)], mode=f"{flag.type}, {x.type}"))


def classify(f):
    kind = f.choose(FLOATS)
    x = f.operand(f.shape(), kind)
    f.give(f.emit("mpt." + f.choose(["is_nan", "is_inf", "is_finite"]), [x], [Value("", x.shape, "i1")], mode=x.type))


def beside_ties(f, shape, kind):
    """Midpoints of neighbours of a narrow type, and values closer to them than FP32's numbers are."""
    dtype = np.dtype(TYPES[kind])
    bits = f.rng.integers(0, 1 << (8 * dtype.itemsize - 1), shape).astype(f"u{dtype.itemsize}")
    with np.errstate(all="ignore"):
        middle = (bits.view(dtype).astype(np.float64) + (bits + 1).astype(bits.dtype).view(dtype).astype(np.float64)) / 2
        return middle * f.rng.choice([1, -1], shape) * (1 + f.rng.choice([0, 2.0**-30, -2.0**-30, 2.0**-52], shape))


def cast(f):
    source, target = f.choose([(f.choose(list(TYPES)), f.choose(list(TYPES))), (f.choose(FLOATS), f.choose(INTEGERS)), ("f16", "bf16"),
                               ("bf16", "f16")])
    x = f.argument(f.shape(), source)
    if source in FLOATS:
        with np.errstate(over="ignore"):
            f.arguments["a0"] *= np.array(f.choose([1, 100, 3e10]), f.arguments["a0"].dtype)
    y = Value("", x.shape, target)
    attributes = ""
    if source == "f64" and target[0] in "fb" and target not in ("f32", "f64") and f.happens(0.5):
        f.arguments["a0"] = beside_ties(f, x.shape, target)
    if target[0] in "fb" and source in FLOATS:
        attributes = f.choose(["", "overflow = #mpt<overflow saturate>", "rounding = #mpt<rounding toward_zero>",
                               "rounding = #mpt<rounding toward_zero>, overflow = #mpt<overflow saturate>"])
    f.give(f.emit("mpt.cast", [x], [y], attributes, mode=f"{x.type} to {y.type}"))


def cast_stochastically(f):
    source, target = f.choose(["f32", "f16", "bf16"]), f.choose(["f16", "bf16", "f8E4M3FN", "f8E5M2"])
    x = f.argument(f.shape(), source)
    key = f.argument([2], "i64", 0, 1 << 62)
    y = Value("", x.shape, target)
    more = f.choose(["", ", overflow = #mpt<overflow saturate>"])
    y.name = f"%v{f.count}"
    f.count += 1
    f.lines.append(f"{y.name} = mpt.cast {x.name} key {key.name} : {key.type} {{rounding = #mpt<rounding stochastic>, stream = "
                   f"{f.rng.integers(100)} : i64{more}}} : {x.type} to {y.type}")
    f.results.append(y)


def reduce(f):
    f.sums = True
    kind = f.choose(FLOATS + INTEGERS + ["i1"])
    x = f.operand(f.shape(0, 4, 0.08), kind)
    axes = [i for i in range(len(x.shape)) if f.happens(0.5)]
    name = f.choose(["sum", "max", "min", "prod", "mean"])
    f.exact = name in ("max", "min") or kind[0] in "iu"
    f.give(f.emit(f"mpt.reduce {name}", [x], [Value("", [d for i, d in enumerate(x.shape) if i not in axes], kind)], f"axes = {array(axes)}"))


def arg_reduce(f):
    kind = f.choose(FLOATS + INTEGERS)
    x = f.operand(f.shape(1, 4, 0.02), kind)
    axis = int(f.rng.integers(len(x.shape)))
    if x.shape[axis] == 0:
        return unary(f)
    if f.happens(0.5):
        data = f.arguments["a0"]
        with np.errstate(invalid="ignore"):
            data[...] = np.round(data.astype(np.float64)).astype(data.dtype)
    attributes = f"kind = #mpt<reduce_kind {f.choose(['max', 'min'])}>, axis = {axis} : i64, last = {f.choose(['true', 'false'])}"
    f.give(f.emit("mpt.arg_reduce", [x], [Value("", [d for i, d in enumerate(x.shape) if i != axis], "i64")], attributes))


def cum_sum(f):
    f.sums = True
    kind = f.choose(FLOATS + INTEGERS)
    f.exact = kind[0] in "iu"
    x = f.operand(f.shape(1, 3), kind)
    attributes = (f"axis = {f.rng.integers(len(x.shape))} : i64, exclusive = {f.choose(['true', 'false'])}, "
                  f"reverse = {f.choose(['true', 'false'])}")
    f.give(f.emit("mpt.cum_sum", [x], [Value("", x.shape, kind)], attributes))


def movable(f):
    return f.choose(FLOATS + INTEGERS + ["i1", "f8E4M3FN", "f8E5M2"])


def transpose(f):
    x = f.argument(f.shape(1, 5), movable(f))
    order = f.rng.permutation(len(x.shape))
    f.give(f.emit("mpt.transpose", [x], [Value("", [x.shape[i] for i in order], x.kind)], f"permutation = {array(order)}"))


def broadcast(f):
    shape = f.shape(1, 4)
    dims = [i for i in range(len(shape)) if f.happens(0.6)]
    x = f.argument([1 if f.happens(0.4) else shape[i] for i in dims], movable(f))
    f.give(f.emit("mpt.broadcast", [x], [Value("", shape, x.kind)], f"dims = {array(dims)}"))


def concat(f):
    kind = movable(f)
    shape = f.shape(1, 3)
    axis = int(f.rng.integers(len(shape)))
    inputs, total = [], 0
    for _ in range(f.rng.integers(1, 5)):
        own = list(shape)
        own[axis] = f.extent(0.25)
        total += own[axis]
        inputs.append(f.operand(own, kind) if not kind.startswith("f8") else f.argument(own, kind))
    shape[axis] = total
    f.give(f.emit("mpt.concat", inputs, [Value("", shape, kind)], f"axis = {axis} : i64"))


def slices(f):
    x = f.argument(f.shape(1, 4), movable(f))
    starts, sizes, strides = [], [], []
    for extent in x.shape:
        stride = int(f.choose([1, 1, 2, 3]))
        start = int(f.rng.integers(0, extent + 1))
        most = (extent - start + stride - 1) // stride
        starts.append(start), strides.append(stride), sizes.append(int(f.rng.integers(0 if f.happens(0.1) else min(1, most), most + 1)))
    attributes = f"starts = {array(starts)}, sizes = {array(sizes)}, strides = {array(strides)}"
    f.give(f.emit("mpt.slice", [x], [Value("", sizes, x.kind)], attributes))


def pad(f):
    kind = movable(f)
    x = f.argument(f.shape(1, 4, 0.1), kind)
    low, high, interior, shape = [], [], [], []
    for extent in x.shape:
        between = int(f.choose([0, 0, 0, 1, 2]))
        whole = extent + max(extent - 1, 0) * between
        a, b = int(f.choose([0, 0, 1, 3, -1, -2])), int(f.choose([0, 0, 1, 4, -1, -3]))
        if whole + a + b < 0:
            a = b = 0
        low.append(a), high.append(b), interior.append(between), shape.append(whole + a + b)
    value = f.choose(["0.0", "1.0", "7.0", "0xFFF0000000000000", "-0.3"]) if kind[0] in "fb" else "1.0"
    attributes = f"low = {array(low)}, high = {array(high)}, interior = {array(interior)}, value = {value} : f64"
    f.give(f.emit("mpt.pad", [x], [Value("", shape, kind)], attributes))


def reverse(f):
    x = f.argument(f.shape(1, 4), movable(f))
    f.give(f.emit("mpt.reverse", [x], [Value("", x.shape, x.kind)], f"axes = {array([i for i in range(len(x.shape)) if f.happens(0.5)])}"))


def views(f):
    """Several movements one after the other."""
    value = f.argument(f.shape(2, 3), f.choose(FLOATS + ["i64"]))
    for _ in range(f.rng.integers(2, 5)):
        way = f.rng.integers(4)
        rank = len(value.shape)
        if way == 0 and rank:
            order = f.rng.permutation(rank)
            value = f.emit("mpt.transpose", [value], [Value("", [value.shape[i] for i in order], value.kind)], f"permutation = {array(order)}")
        elif way == 1:
            value = f.emit("mpt.reshape", [value], [Value("", [int(np.prod(value.shape))] if f.happens(0.5) else [1, *value.shape], value.kind)])
        elif way == 2 and rank:
            starts = [int(f.rng.integers(0, extent)) if extent else 0 for extent in value.shape]
            sizes = [extent - start for extent, start in zip(value.shape, starts)]
            value = f.emit("mpt.slice", [value], [Value("", sizes, value.kind)],
                           f"starts = {array(starts)}, sizes = {array(sizes)}, strides = {array([1] * rank)}")
        elif rank:
            value = f.emit("mpt.reverse", [value], [Value("", value.shape, value.kind)], "axes = array<i64: 0>")
    f.give(value)


def gather(f):
    shape = f.shape(1, 3, 0)
    axis = int(f.rng.integers(len(shape)))
    x = f.operand(shape, f.choose(FLOATS + ["i64"]))
    indices = f.argument(f.shape(0, 2), f.choose(["i64", "i32"]), -shape[axis], shape[axis])
    result = Value("", [*shape[:axis], *indices.shape, *shape[axis + 1:]], x.kind)
    f.give(f.emit("mpt.gather", [x, indices], [result], f"axis = {axis} : i64"))


def gather_elements(f):
    shape = f.shape(1, 3, 0)
    axis = int(f.rng.integers(len(shape)))
    x = f.operand(shape, f.choose(FLOATS + ["i64"]))
    own = [int(f.rng.integers(0 if f.happens(0.05) else 1, extent + 1)) for extent in shape]
    own[axis] = f.extent()
    indices = f.argument(own, f.choose(["i64", "i32"]), -shape[axis], shape[axis])
    f.give(f.emit("mpt.gather_elements", [x, indices], [Value("", own, x.kind)], f"axis = {axis} : i64"))


def tuples(f, shape, batch):
    width = int(f.rng.integers(1, len(shape) - batch + 1))
    own = [*shape[:batch], *f.shape(0, 2), width]
    indices = f.argument(own, "i64", 0, min(shape[batch:batch + width]))
    return indices, [*own[:-1], *shape[batch + width:]]


def gather_nd(f):
    shape = f.shape(1, 4, 0)
    batch = int(f.rng.integers(0, len(shape)))
    x = f.argument(shape, f.choose(FLOATS + ["i64"]))
    indices, result = tuples(f, shape, batch)
    f.give(f.emit("mpt.gather_nd", [x, indices], [Value("", result, x.kind)], f"batch_dims = {batch} : i64"))


def scatter_add(f):
    f.sums = True
    kind = f.choose(FLOATS + INTEGERS)
    f.exact = kind[0] in "iu"
    shape = f.shape(1, 3, 0.02)
    axis = int(f.rng.integers(len(shape)))
    count = f.shape(0, 2) if shape[axis] else [0]
    indices = f.argument(count, f.choose(["i64", "i32"]), -shape[axis], shape[axis])
    updates = f.operand([*shape[:axis], *count, *shape[axis + 1:]], kind)
    f.give(f.emit("mpt.scatter_add", [indices, updates], [Value("", shape, kind)], f"axis = {axis} : i64"))


SCATTERS = ["assign", "add", "mul", "min", "max"]


def scatter_elements(f):
    f.sums = True
    kind = f.choose(FLOATS + INTEGERS + ["i1"])
    how = f.choose(SCATTERS)
    f.exact = kind[0] in "iu" or how in ("assign", "min", "max")
    shape = f.shape(1, 3, 0)
    axis = int(f.rng.integers(len(shape)))
    data = f.operand(shape, kind)
    own = [extent if f.happens(0.6) else int(f.rng.integers(1, extent + 1)) for extent in shape]
    own[axis] = f.extent()
    if how == "assign":  # which of several updates wins is not said
        own[axis] = 1
    indices = f.argument(own, "i64", -shape[axis], shape[axis])
    updates = f.operand(own, kind)
    f.give(f.emit("mpt.scatter_elements", [data, indices, updates], [Value("", shape, kind)],
                  f"axis = {axis} : i64, kind = #mpt<scatter_kind {how}>"))


def scatter_nd(f):
    f.sums = True
    kind = f.choose(FLOATS + INTEGERS)
    how = f.choose(SCATTERS)
    f.exact = kind[0] in "iu" or how in ("assign", "min", "max")
    shape = f.shape(1, 4, 0.03)
    if 0 in shape:
        shape = [*shape, 0]
    batch = int(f.rng.integers(0, len(shape)))
    data = f.operand(shape, kind)
    indices, own = tuples(f, shape, batch) if 0 not in shape else (f.argument([*shape[:batch], 0, 1], "i64", 0, 1), [*shape[:batch], 0, *shape[batch + 1:]])
    updates = f.operand(own, kind)
    f.give(f.emit("mpt.scatter_nd", [data, indices, updates], [Value("", shape, kind)],
                  f"batch_dims = {batch} : i64, kind = #mpt<scatter_kind {how}>"))


OPERATIONS = {f.__name__: f for f in [
    unary, with_attributes, clamp_integers, binary, divide_integers, compare, classify, cast, cast_stochastically, reduce, arg_reduce, cum_sum,
    transpose, broadcast, concat, slices, pad, reverse, views, gather, gather_elements, gather_nd, scatter_add, scatter_elements, scatter_nd]}
