# SPDX-License-Identifier: Apache-2.0
"""Random graphs of a dozen operations, for random_functions.py: they test fusion, planning in one memory, and views."""
import numpy as np
from random_functions import OPERATIONS, Value, array


def unary(f, x):
    return f.emit("mpt." + f.choose(["neg", "abs", "tanh", "relu", "sigmoid"]), [x])


def binary(f, x, others):
    alike = [v for v in others if v.shape == x.shape]
    return f.emit("mpt." + f.choose(["add", "sub", "mul", "max"]), [x, f.choose(alike)])


def reduced(f, x):
    axes = [i for i in range(len(x.shape)) if f.happens(0.5)]
    kept = [i for i in range(len(x.shape)) if i not in axes]
    y = f.emit("mpt.reduce " + f.choose(["sum", "mean", "max"]), [x], [Value("", [x.shape[i] for i in kept], x.kind)], f"axes = {array(axes)}")
    return f.emit("mpt.broadcast", [y], [Value("", x.shape, x.kind)], f"dims = {array(kept)}") if f.happens(0.6) else y


def turned(f, x):
    order = f.rng.permutation(len(x.shape))
    return f.emit("mpt.transpose", [x], [Value("", [x.shape[i] for i in order], x.kind)], f"permutation = {array(order)}")


def reshaped(f, x):
    size = int(np.prod(x.shape))
    front = f.choose([d for d in range(1, size + 1) if size % d == 0])
    return f.emit("mpt.reshape", [x], [Value("", f.choose([[size], [front, size // front], [1, *x.shape]])[:4] if len(x.shape) < 4 else [size], x.kind)])


def cut(f, x):
    starts = [int(f.rng.integers(0, extent)) for extent in x.shape]
    sizes = [int(f.rng.integers(1, extent - start + 1)) for extent, start in zip(x.shape, starts)]
    return f.emit("mpt.slice", [x], [Value("", sizes, x.kind)],
                  f"starts = {array(starts)}, sizes = {array(sizes)}, strides = {array([1] * len(sizes))}")


def joined(f, x, others):
    axis = int(f.rng.integers(len(x.shape)))
    fitting = [v for v in others if len(v.shape) == len(x.shape) and all(a == b for i, (a, b) in enumerate(zip(v.shape, x.shape)) if i != axis)]
    other = f.choose(fitting)
    shape = list(x.shape)
    shape[axis] += other.shape[axis]
    return f.emit("mpt.concat", [x, other], [Value("", shape, x.kind)], f"axis = {axis} : i64")


def multiplied(f, x):
    columns = int(f.choose([1, 2, 5, 8, 17]))
    if len(x.shape) == 2 or f.happens(0.5):
        w = f.argument([*x.shape[:-2], x.shape[-1], columns], x.kind, -1, 1)
    else:  # weights that all rows of the batch share
        w = f.argument([x.shape[-1], columns], x.kind, -1, 1)
        w = f.emit("mpt.broadcast", [w], [Value("", [*x.shape[:-1][:-1], x.shape[-1], columns], x.kind)],
                   f"dims = {array([len(x.shape) - 2, len(x.shape) - 1])}")
    return f.emit("mpt.matmul", [x, w], [Value("", [*x.shape[:-1], columns], x.kind)])


def picked(f, x):
    axis = int(f.rng.integers(len(x.shape)))
    indices = f.argument([int(f.choose([1, 3, 8]))], "i64", 0, x.shape[axis])
    shape = list(x.shape)
    shape[axis] = indices.shape[0]
    y = f.emit("mpt.gather", [x, indices], [Value("", shape, x.kind)], f"axis = {axis} : i64")
    return f.emit("mpt.scatter_add", [indices, y], [Value("", x.shape, x.kind)], f"axis = {axis} : i64") if f.happens(0.5) else y


def graph(f):
    f.exact, f.sums = False, True
    kind = f.choose(["f32", "f32", "f64", "f16"])
    shape = f.shape(1, 3, 0)
    values = [f.argument(shape, kind, -1, 1) for _ in range(2)]
    for _ in range(f.rng.integers(3, 14)):
        x = values[-1] if f.happens(0.6) else f.choose(values)
        way = f.rng.integers(11)
        if not x.shape or way < 2:
            y = unary(f, x)
        elif way < 4:
            y = binary(f, x, values)
        elif way == 4:
            y = reduced(f, x)
        elif way == 5:
            y = turned(f, x)
        elif way == 6:
            y = reshaped(f, x)
        elif way == 7:
            y = cut(f, x)
        elif way == 8:
            y = joined(f, x, values)
        elif way == 9 and len(x.shape) >= 2:
            y = multiplied(f, x)
        elif way == 10:
            y = picked(f, x)
        else:
            y = f.emit("mpt.softmax", [x], [Value("", x.shape, kind)], f"axis = {len(x.shape) - 1} : i64")
        if np.prod(y.shape) <= 8000:
            values.append(y)
    f.results.extend(value for value in values[2:] if value is values[-1] or f.happens(0.25))
    if not f.results:
        f.results.append(unary(f, values[0]))


OPERATIONS[graph.__name__] = graph
