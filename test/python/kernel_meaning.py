# SPDX-License-Identifier: Apache-2.0
"""What a kernel has to write, at single points of its outputs, from its fusion alone.

Phase buffers leaves a kernel as a fusion between tensors of its buffers. This file reads such a module in the generic form and computes an output's
elements from the elements of inputs that they depend on, however large the tensors are. Each operation rounds to its result's type, as the
interpreter of the compiler does; sums are made in FP64.
"""
import re
from dataclasses import dataclass, field

import numpy as np
import torch
from cuda_kernels import split
from mpt_run import KINDS

TYPES = {name: np.dtype(kind) for kind, _, name in KINDS}
OP = re.compile(r'^ +(?:(%\w+)(?::\d+)? = )?"([\w.]+)"\(([^)]*)\)(.*)$')
LARGEST_SUM = 1 << 21  # elements of inputs of one sum
MASKED = {"e4m3": 448.0, "e5m2": 57344.0}


class Unknown(Exception):
    """An operation that this file has no meaning of, or a sum that is too long."""


@dataclass(frozen=True)
class Shaped:
    """A tensor's or buffer's type; strides are a buffer's, in elements."""
    shape: tuple
    element: str
    strides: tuple = ()

    @staticmethod
    def read(text: str) -> "Shaped":
        shape, element, rest = re.match(r"(?:tensor|memref)<((?:\d+x)*)(\w+)(.*)>$", text).groups()
        extents = tuple(int(n) for n in shape.split("x")[:-1])
        given = re.search(r"strided<\[([\d, ]*)\]", rest)
        dense = tuple(int(np.prod(extents[i + 1:], dtype=np.int64)) for i in range(len(extents)))
        return Shaped(extents, element, tuple(map(int, given[1].split(","))) if given and given[1] else dense)

    @property
    def is_float(self) -> bool:
        return self.element[0] in "fb"


@dataclass(frozen=True)
class Op:
    name: str
    operands: tuple
    attributes: str
    type: Shaped

    def numbers(self, name: str) -> list:
        return [int(n) for n in re.search(rf"\b{name} = (?:array<i64(?:: )?)?([-\d, ]*)", self.attributes)[1].split(",") if n.strip()]

    def word(self, name: str) -> str:
        return re.search(rf"\b{name} = #mpt<\w+ (\w+)>", self.attributes)[1]


@dataclass
class Kernel:
    """A declared kernel: types of its buffers, inputs first, and the operations of its fusion."""
    buffers: list
    inputs: dict = field(default_factory=dict)  # values of the fusion that are arguments: their numbers
    ops: dict = field(default_factory=dict)  # values: what makes them
    results: list = field(default_factory=list)

    @property
    def outputs(self) -> range:
        return range(len(self.buffers) - len(self.results), len(self.buffers))


def declared(text: str) -> dict:
    """The kernels of a module after phase buffers, by name."""
    found = {}
    for types, name, body in re.findall(r'"func\.func"\(\) <\{function_type = \((memref[^\n]*)\) -> \(\), sym_name = "(\w+)", [^\n]*\(\{\n(.*?)^  \}\)', text,
                                        re.M | re.S):
        if '"mpt.fusion"' not in body:
            continue
        kernel, aliases = Kernel([Shaped.read(part) for part in split(types)]), {}
        arguments = re.findall(r"%\w+(?=: memref)", body.split("\n", 1)[0])
        for line in body.splitlines():
            if block := re.match(r"    \^bb0\((.*)\):$", line):
                given = re.findall(r"%\w+(?=: tensor)", block[1])
                kernel.inputs = {value: arguments.index(aliases[source]) for value, source in zip(given, fused)}
            if not (match := OP.match(line)):
                continue
            value, op, operands, rest = match.groups()
            operands = tuple(re.findall(r"%\w+(?:#\d+)?", operands))
            if op in ("memref.assume_alignment", "bufferization.to_tensor"):
                aliases[value] = aliases.get(operands[0], operands[0])
            elif op == "mpt.fusion":
                fused = operands
            elif op == "mpt.yield":
                kernel.results = list(operands)
            elif op.startswith("mpt."):
                results = split(re.sub(r"^\((.*)\)$", r"\1", rest.rsplit(") -> ", 1)[1]))
                for i, result in enumerate(results):
                    own = f"{value}#{i}" if len(results) > 1 else value
                    kernel.ops[own] = Op(op[4:] if i == 0 else f"{op[4:]}#{i}", operands, rest.rsplit(" : (", 1)[0], Shaped.read(result))
        found[name] = kernel
    return found


def rounded(values, kind: Shaped, saturates=False):
    """Values as the type holds them, as float64, int64 or bool."""
    if not kind.is_float:
        return values.astype(bool) if kind.element == "i1" else values.astype(np.int64)
    if saturates:
        most = float(np.finfo(np.float16).max) if kind.element == "f16" else next((m for n, m in MASKED.items() if n in kind.element.lower()), np.inf)
        values = np.clip(values, -most, most)
    with np.errstate(over="ignore", invalid="ignore"):
        return np.asarray(values, np.float64).astype(TYPES[kind.element]).astype(np.float64)


ELEMENTWISE = {
    "add": np.add, "sub": np.subtract, "mul": np.multiply, "div": np.divide, "max": np.maximum, "min": np.minimum, "abs": np.abs, "neg": np.negative,
    "sqrt": np.sqrt, "rsqrt": lambda x: 1 / np.sqrt(x), "reciprocal": lambda x: 1 / x, "exp": np.exp, "log": np.log, "pow": np.power, "tanh": np.tanh,
    "erf": lambda x: torch.erf(torch.from_numpy(x)).numpy(), "and": np.logical_and, "or": np.logical_or, "not": np.logical_not,
    "is_finite": np.isfinite, "relu": lambda x: np.where(x < 0, 0.0, x), "relu_backward": lambda g, y: np.where(y > 0, g, 0.0),
    "select": np.where,
}
COMPARE = {"eq": np.equal, "ne": np.not_equal, "lt": np.less, "le": np.less_equal, "gt": np.greater, "ge": np.greater_equal}
REDUCE = {"sum": np.sum, "mean": np.mean, "max": np.max, "min": np.min}


class Points:
    """Elements of a kernel's values. `contents(argument, places)` are the elements of a buffer before the kernel runs."""

    def __init__(self, kernel: Kernel, contents):
        self.kernel, self.contents, self.known = kernel, contents, {}

    def at(self, value: str, index):
        """Elements of `value` at the rows of `index`."""
        key = value, index.shape, index.tobytes()
        if key not in self.known:
            with np.errstate(all="ignore"):
                self.known[key] = self.compute(value, index)
        return self.known[key]

    def compute(self, value, index):
        if value in self.kernel.inputs:
            number = self.kernel.inputs[value]
            buffer = self.kernel.buffers[number]
            return self.contents(number, index @ np.array(buffer.strides, np.int64) if buffer.shape else np.zeros(len(index), np.int64))
        op = self.kernel.ops[value]
        if op.name in ELEMENTWISE:
            return rounded(ELEMENTWISE[op.name](*(self.at(operand, index) for operand in op.operands)), op.type)
        own = getattr(self, op.name.replace("#", "_"), None)
        if own is None or op.name in ("at", "compute"):
            raise Unknown(op.name)
        return own(op, index)

    def shape_of(self, value) -> tuple:
        return (self.kernel.buffers[self.kernel.inputs[value]] if value in self.kernel.inputs else self.kernel.ops[value].type).shape

    def constant(self, op, index):
        number = re.search(r"value = dense<(-?[\d.]+(?:[eE][-+]?\d+)?|true|false|0x\w+)> :", op.attributes)
        if not number:
            raise Unknown("constant with several elements")
        text = number[1]
        if text.startswith("0x"):  # bits of a number that has no decimal form
            kind = TYPES[op.type.element]
            one = np.array(int(text, 16), f"u{kind.itemsize}").view(kind).astype(np.float64)
        else:
            one = {"true": 1.0, "false": 0.0}.get(text) if text in ("true", "false") else float(text)
        return rounded(np.full(len(index), one), op.type)

    def cast(self, op, index):
        return rounded(self.at(op.operands[0], index), op.type, op.word("overflow") == "saturate")

    def gelu(self, op, index):
        x = self.at(op.operands[0], index)
        inner = np.tanh(np.sqrt(2 / np.pi) * (x + 0.044715 * x**3)) if op.word("form") == "tanh" else ELEMENTWISE["erf"](x / np.sqrt(2))
        return rounded(x / 2 * (1 + inner), op.type)

    def compare(self, op, index):
        return COMPARE[op.word("predicate")](*(self.at(operand, index) for operand in op.operands))

    def broadcast(self, op, index):
        shape = self.shape_of(op.operands[0])
        kept = np.where(np.array(shape, np.int64) == 1, 0, index[:, op.numbers("dims")]) if shape else index[:, :0]
        # A row's mean is read by all of the row's elements, and computed once.
        flat = np.ravel_multi_index(kept.T, shape) if shape else np.zeros(len(index), np.int64)
        once, places = np.unique(flat, return_inverse=True)
        return self.at(op.operands[0], np.stack(np.unravel_index(once, shape), 1).astype(np.int64) if shape else kept[:1])[places]

    def iota(self, op, index):
        return index[:, op.numbers("axis")[0]]

    def transpose(self, op, index):
        source = np.empty_like(index)
        source[:, op.numbers("permutation")] = index
        return self.at(op.operands[0], source)

    def reshape(self, op, index):
        flat = np.ravel_multi_index(index.T, op.type.shape) if op.type.shape else np.zeros(len(index), np.int64)
        shape = self.shape_of(op.operands[0])
        return self.at(op.operands[0], np.stack(np.unravel_index(flat, shape), 1).astype(np.int64) if shape else index[:, :0])

    def gather(self, op, index):
        x, indices = op.operands
        axis, rank = op.numbers("axis")[0], len(self.shape_of(indices))
        row = np.clip(self.at(indices, index[:, axis:axis + rank]), 0, self.shape_of(x)[axis] - 1)
        return self.at(x, np.concatenate([index[:, :axis], row[:, None], index[:, axis + rank:]], 1))

    def reduce(self, op, index):
        shape, axes = self.shape_of(op.operands[0]), op.numbers("axes")
        extents = [shape[axis] for axis in axes]
        terms = int(np.prod(extents))
        if len(index) * terms > LARGEST_SUM:
            raise Unknown(f"sum of {terms} terms")
        source = np.empty((len(index), terms, len(shape)), np.int64)
        source[:, :, [axis for axis in range(len(shape)) if axis not in axes]] = index[:, None, :]
        source[:, :, axes] = np.stack(np.unravel_index(np.arange(terms), extents), 1)
        return rounded(REDUCE[op.word("kind")](self.at(op.operands[0], source.reshape(-1, len(shape))).reshape(len(index), terms), axis=1), op.type)


def difference(kernel: Kernel, output: int, places, values, contents) -> str:
    """How elements `values` at `places` of an output's buffer differ from the kernel's meaning by more than roundings; nothing where they do not."""
    buffer = kernel.buffers[kernel.outputs[output]]
    index, rest = np.zeros((len(places), len(buffer.shape)), np.int64), np.asarray(places, np.int64)
    for axis in sorted(range(len(buffer.shape)), key=lambda axis: -buffer.strides[axis]):
        if buffer.shape[axis] > 1:
            index[:, axis], rest = np.divmod(rest, buffer.strides[axis])
    want, got = Points(kernel, contents).at(kernel.results[output], index), np.asarray(values).astype(np.float64)
    want = np.asarray(want, np.float64)
    finite = np.isfinite(want)
    largest = float(np.max(np.abs(want), initial=0, where=finite))
    digits = {"f16": 11, "bf16": 8, "f8E4M3FN": 4, "f8E5M2": 3}.get(buffer.element, 24)
    step = 2.0 ** (np.floor(np.log2(np.maximum(np.where(finite, np.abs(want), 1), 2.0**-126))) - digits + 1) if buffer.is_float else 0
    with np.errstate(invalid="ignore"):
        wrong = ~((got == want) | (np.isnan(got) & np.isnan(want)) | (np.abs(got - want) <= 2 * step + 1e-4 * largest * buffer.is_float))
    if not wrong.any():
        return ""
    at = np.flatnonzero(wrong)[0]
    return f"{wrong.sum()} of {len(got)} elements of result {output}: {got[at]:.6g} at {tuple(map(int, index[at]))}, expected {want[at]:.6g}"
