# SPDX-License-Identifier: Apache-2.0
"""Random steps: states are read, shown as views and repeated, replaced, and their old values are read again."""
import numpy as np
import random_graphs as graphs
from random_functions import Function, Value, array, mlir_type


class Step(Function):
    """A function `step` over states of fitting shapes. Updates stand anywhere between the operations."""

    def __init__(self, seed):
        self.rng = np.random.default_rng([seed, 77])
        self.name, self.operation, self.exact, self.sums, self.count = "step", "state", False, True, 0
        self.arguments, self.lines, self.results = {}, [], []
        shape = [int(self.choose([2, 3, 4, 8])), int(self.choose([4, 5, 8, 16]))]
        self.states = {"s0": shape, "s1": shape, "s2": shape[1:], "s3": shape[::-1]}
        self.values = [self.argument(shape, "f32", -1, 1)]
        old, order = {}, list(self.states)
        self.rng.shuffle(order)
        for name in order:
            old[name] = Value(f"%{name}", self.states[name], "f32")
            self.lines.append(f"%{name} = train.read @{name} : {old[name].type}")
            self.values.append(old[name])
        for name in order:
            self.compute(int(self.rng.integers(1, 5)))
            self.update(name, old[name])
        self.compute(int(self.rng.integers(1, 6)))
        self.results = [value for value in self.values[1:] if self.happens(0.2)] + [self.values[-1]]
        states = "".join(f"train.state parameter @{name} : {mlir_type(extents, 'f32')} = dense<0.0> : {mlir_type(extents, 'f32')}\n"
                         for name, extents in self.states.items())
        self.text = 'module attributes {mpt.name = "case"} {\n' + states + self.print().replace("@NAME", "@step") + "}\n"

    def compute(self, count):
        for _ in range(count):
            x = self.values[-1] if self.happens(0.4) else self.choose(self.values)
            way = self.rng.integers(12)
            if way < 2 or not x.shape:
                y = graphs.unary(self, x)
            elif way < 5:
                y = graphs.binary(self, x, self.values)
            elif way == 7:
                dims = array(range(1, len(x.shape) + 1))
                y = self.emit("mpt.broadcast", [x], [Value("", [int(self.choose([2, 3])), *x.shape], x.kind)], f"dims = {dims}")
            elif way == 9:
                y = graphs.joined(self, x, self.values)
            elif way == 10 and len(x.shape) >= 2:
                y = graphs.multiplied(self, x)
            else:
                y = {5: graphs.reduced, 6: graphs.turned, 8: graphs.cut}.get(int(way), graphs.picked)(self, x)
            if np.prod(y.shape) <= 4000:
                self.values.append(y)

    def update(self, name, old):
        alike = [value for value in self.values if value.shape == old.shape and not value.name.startswith("%a")]
        new = self.choose(alike)
        if self.happens(0.75):
            new = self.emit("mpt." + self.choose(["sub", "add", "mul"]), [old, new])
            self.values.append(new)
        self.lines.append(f"train.write @{name}, {new.name} : {new.type}")
