# SPDX-License-Identifier: Apache-2.0
"""A case of the node suite as a scalar function of its float operands, with directions along which it is smooth.

Everything is set to FP32, the type that backends are asked for; differences come from ONNX's reference evaluator in FP64.
"""
import zlib

import cases
import forward
import numpy as np
import references
from onnx import TensorProto, helper, load_model_from_string, numpy_helper

DIRECTIONS, DRAWS = 2, 10
NOISE = 3e-4  # of a difference quotient: some operators of the evaluator compute in FP32
# (how far inputs are moved, step, elements of a direction or None for all), tried until one has smooth directions: a point on a
# kink is left, operators that are evaluated in FP32 take a longer step, and few of very many elements cross no kink.
TRIALS = ((0, 1e-4, None), (0, 1e-2, None), (0, 1e-4, 8), (0.4, 1e-4, None), (0.4, 1e-4, 8), (2.0, 1e-4, None))
FLOATS = cases.NARROW | {TensorProto.DOUBLE}
WIDENED = {"float32", "float16", "bfloat16"}
# Conversions keep the types that they are about, between conversions from and to FP32.
CONVERSIONS = {"Cast", "CastLike"}
# Operands that are settings of the computation, whether or not schemas say so.
SETTINGS = {"CastLike": {1}, "Dropout": {1}, "MelWeightMatrix": {3, 4}, "OneHot": {0, 1}, "QuantizeLinear": {1}, "Range": {0, 1, 2},
            "Resize": {1, 2}, "Unique": {0}, "Upsample": {1}}
# Operators whose schemas call operands and results non-differentiable that have slopes.
UNMARKED = {"AffineGrid", "DFT", "STFT", "OneHot", "LSTM"}
MASKED = {"Attention", "FlexAttention"}
MANY = 20_000  # elements of all variables; of more, a direction has few


class NoSlope(Exception):
    """Why a case has no derivatives to compare."""


def type_of(value) -> int:
    return value.type.tensor_type.elem_type


def is_differentiable(formals, i: int) -> bool:
    """The differentiability of operand or result `i` by the schema; its last one may stand for several."""
    from onnx.defs import OpSchema
    return not formals or formals[min(i, len(formals) - 1)].differentiation_category != OpSchema.DifferentiationCategory.NonDifferentiable


def constants_of(model) -> set:
    """Values that are no variables and count in no loss: settings, and values that the schema of the only node excludes."""
    from onnx import defs
    opsets = {opset.domain: opset.version for opset in model.opset_import}
    excluded = set()
    for node in model.graph.node:
        excluded |= {name for i, name in enumerate(node.input) if i in SETTINGS.get(node.op_type, ())}
        if node.op_type in UNMARKED:
            continue
        try:
            schema = defs.get_schema(node.op_type, opsets.get(node.domain, 1), node.domain)
        except defs.SchemaError:
            continue
        for names, formals in ((node.input, schema.inputs), (node.output, schema.outputs)):
            excluded |= {name for i, name in enumerate(names) if not is_differentiable(formals, i)}
    return excluded


def in_single(model):
    """The model with FP32 in the place of other floats of at least 16 bits, but for the types that a conversion is about."""
    single = type(model)()
    single.CopyFrom(model)
    graph = single.graph
    if not any(node.op_type in CONVERSIONS for node in graph.node):
        cases.set_floats(graph, FLOATS, TensorProto.FLOAT)
        return single
    excluded = constants_of(model)
    for values, is_input in ((graph.input, True), (graph.output, False)):
        for value in values:
            kind = type_of(value)
            if value.name in excluded or kind not in FLOATS - {TensorProto.FLOAT}:
                continue
            inner = value.name + ".inner"
            for node in graph.node:
                names = node.input if is_input else node.output
                names[:] = [inner if name == value.name else name for name in names]
            value.type.tensor_type.elem_type = TensorProto.FLOAT
            if is_input:
                graph.node.insert(0, helper.make_node("Cast", [value.name], [inner], to=kind))
            else:
                graph.node.append(helper.make_node("Cast", [inner], [value.name], to=TensorProto.FLOAT))
    return single


class Problem:
    """A case's `model` in FP32, its `inputs`, the `variables` among them, and the `weights` of its results; all dictionaries
    by name. Raises NoSlope where there is nothing to differentiate."""

    def __init__(self, case):
        self.model = in_single(load_model_from_string(case.model))
        graph, excluded = self.model.graph, constants_of(self.model)
        kinds = {value.name: type_of(value) for value in graph.input}
        self.stored = {name: array.astype(np.float32) if kinds[name] == TensorProto.FLOAT else np.asarray(array)
                       for name, array in zip(kinds, forward.as_arrays(case.data_sets[0][0]))}
        self.inputs = dict(self.stored)
        floats = [name for name, kind in kinds.items() if kind == TensorProto.FLOAT]
        results = [value for value in graph.output if type_of(value) == TensorProto.FLOAT]
        if not floats:
            raise NoSlope("no float input of 16 bits or more")
        if not any(self.stored[name].size for name in floats):
            raise NoSlope("nothing but empty float inputs")
        if not results:
            raise NoSlope("results of integers, booleans or floats below 16 bits")
        self.variables = [name for name in floats if self.stored[name].size and name not in excluded]
        if not self.variables:
            raise NoSlope("float inputs that say how to compute, or decide a shape")
        self.random = np.random.default_rng(zlib.crc32(case.name.encode()))
        wanted = dict(zip([value.name for value in graph.output], forward.as_arrays(case.data_sets[0][1])))
        self.weights = {}
        for value in results:
            if value.name not in excluded:
                want = wanted[value.name].astype(np.float32)
                # Masked scores are infinite, and have no slope; a move makes inputs finite that are not.
                count = np.isfinite(want) | (case.op not in MASKED)
                self.weights[value.name] = np.where(count, self.random.standard_normal(want.shape), 0).astype(np.float32)
        if not any(weight.size for weight in self.weights.values()):
            raise NoSlope("empty results")
        if case.op in CONVERSIONS:  # gradients go through the narrow type as they are
            self.weights = {name: np.round(16 * weight) / np.float32(16) for name, weight in self.weights.items()}
        self.evaluator = references.evaluator_of(cases.in_double(self.model))
        self.names = [value.name for value in graph.output]

    def loss(self, moved: dict) -> float:
        given = {name: moved.get(name, value.astype(np.float64) if value.dtype.name in WIDENED else value)
                 for name, value in self.inputs.items()}
        results = dict(zip(self.names, self.evaluator.run(None, given)))
        return sum(float(np.sum(np.asarray(results[name], np.float64)[weight != 0] * weight[weight != 0]))
                   for name, weight in self.weights.items())

    def directions(self) -> list:
        """[(direction, difference quotient)] in which the function is smooth, at the stored point or one near it."""
        size = sum(self.stored[name].size for name in self.variables)
        for far, step, elements in TRIALS:
            if size > MANY and not elements:
                continue
            self.move(far)
            with np.errstate(all="ignore"):
                found = list(self._directions(step, elements))
            if found:
                return found
        return []

    def move(self, far: float) -> None:
        for name in self.variables if far else ():
            away = self.random.uniform(-far, far, self.stored[name].shape)
            finite = np.where(np.isfinite(self.stored[name]), self.stored[name], 1)
            self.inputs[name] = (finite + away).astype(np.float32)

    def _direction(self, shape, elements):
        way = self.random.standard_normal(shape)
        if elements and way.size > elements:
            way[np.unravel_index(self.random.permutation(way.size)[elements:], shape)] = 0
        return way

    def _directions(self, step, elements):
        wide = {name: self.inputs[name].astype(np.float64) for name in self.variables}
        found = 0
        for _ in range(DRAWS):
            way = {name: self._direction(value.shape, elements) for name, value in wide.items()}

            def at(length):
                return self.loss({name: value + length * way[name] for name, value in wide.items()})

            quotients, gaps = [], []
            for length in (step, step / 2):
                here, up, down = at(0), at(length), at(-length)
                quotients.append((up - down) / (2 * length))
                gaps.append(abs(up - 2 * here + down) / length)
            noise = NOISE * max(1, abs(quotients[0]))
            # Where the function is smooth, both sides come together with the step.
            if not np.isfinite(quotients).all() or abs(quotients[0] - quotients[1]) > noise or gaps[1] > max(0.6 * gaps[0], noise):
                continue
            yield way, (4 * quotients[1] - quotients[0]) / 3
            found += 1
            if found == DIRECTIONS:
                return
