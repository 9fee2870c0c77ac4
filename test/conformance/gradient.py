#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Gradients of the node suite's float cases against differences in FP64, and of formulas by cases at their seams.

    gradient.py --results docs/results/gradients.tsv [--adapter mpt_adapter.Adapter] [--filter REGEX] [--write] [--jobs N]

For a case with float inputs x and float outputs y, the loss is the sum of y times fixed random weights. A backend's gradients
along random directions are held against central differences of ONNX's reference evaluator in FP64. Directions along which
differences of two steps, or from both sides, disagree cross a kink; they say nothing and are drawn again. Operands that ONNX's
schemas call non-differentiable stay constants. Another backend takes one class: see mpt_adapter.py.
"""
import importlib
import sys
import zlib
from pathlib import Path

import numpy as np

sys.path.insert(0, str(Path(__file__).resolve().parent))
import cases  # noqa: E402
import forward  # noqa: E402
import seams  # noqa: E402
import suite  # noqa: E402
import table  # noqa: E402

OURS = "mpt_adapter.Adapter"
DIRECTIONS, DRAWS, STEP = 2, 10, 1e-4
NOISE = 3e-4  # of a difference quotient: some operators of the evaluator compute in FP32
TOLERANCE = 2e-3  # of a directional derivative, relative to the sizes of what is added up
# Operators whose results do not depend on their operands' values by slopes.
FLAT = {"ArgMax", "ArgMin", "Ceil", "ConstantOfShape", "Equal", "EyeLike", "Floor", "Greater", "GreaterOrEqual", "Hardmax",
        "IsInf", "IsNaN", "Less", "LessOrEqual", "NonZero", "OneHot", "Range", "Round", "Shape", "Sign", "Size",
        "QuantizeLinear", "DequantizeLinear", "DynamicQuantizeLinear", "QLinearConv", "QLinearMatMul", "NonMaxSuppression",
        "Binarizer", "MelWeightMatrix", "HannWindow", "HammingWindow", "BlackmanWindow", "Unique", "BitCast", "Adam", "Adagrad",
        "Momentum"}
# Cases in which ONNX's evaluator is not the function, or has no derivative along any direction.
NO_REFERENCE = {"test_l1normalization": "the evaluator sums x instead of |x|",
                "test_maxpool_3d_default": "among 98,304 elements some cross a kink in every direction"}


def float_type(value) -> bool:
    return value.type.tensor_type.elem_type == 1


def is_differentiable(formals, i: int) -> bool:
    """What the schema says of operand or result `i`; the last one may stand for several."""
    from onnx.defs import OpSchema
    return not formals or formals[min(i, len(formals) - 1)].differentiation_category != OpSchema.DifferentiationCategory.NonDifferentiable


def constants_of(model) -> set:
    """Values that are no variables and count in no loss: operands and results that the schema of the only node excludes."""
    from onnx import defs
    opsets = {opset.domain: opset.version for opset in model.opset_import}
    excluded = set()
    for node in model.graph.node:
        try:
            schema = defs.get_schema(node.op_type, opsets.get(node.domain, 1), node.domain)
        except defs.SchemaError:
            continue
        for names, formals in ((node.input, schema.inputs), (node.output, schema.outputs)):
            excluded |= {name for i, name in enumerate(names) if not is_differentiable(formals, i)}
    return excluded


def draws(case, model) -> bool:
    """Dropout before opset 12 does not say whether it drops: in training it does."""
    return case.op == "Dropout" and model.opset_import[0].version < 12


class Problem:
    """A case as a scalar function of its float inputs."""

    def __init__(self, case):
        import onnx
        from onnx.reference import ReferenceEvaluator
        self.model = onnx.load_model_from_string(case.model)
        arrays = forward.as_arrays(case.data_sets[0][0])
        self.inputs = dict(zip([value.name for value in self.model.graph.input], arrays))
        self.wanted = forward.as_arrays(case.data_sets[0][1])
        excluded = constants_of(self.model)
        self.variables = [value.name for value in self.model.graph.input
                          if float_type(value) and self.inputs[value.name].size and value.name not in excluded]
        random = np.random.default_rng(zlib.crc32(case.name.encode()))
        self.weights = {value.name: random.standard_normal(want.shape).astype(np.float32)
                        for value, want in zip(self.model.graph.output, self.wanted)
                        if float_type(value) and value.name not in excluded}
        self.random = random
        self.evaluator = ReferenceEvaluator(cases.in_double(self.model))
        self.names = [value.name for value in self.model.graph.output]

    def loss(self, moved: dict) -> float:
        given = {name: moved.get(name, value) for name, value in self.inputs.items()}
        results = dict(zip(self.names, self.evaluator.run(None, given)))
        return sum(float(np.sum(np.asarray(results[name], np.float64) * weight)) for name, weight in self.weights.items())

    def directions(self):
        """(direction, difference quotient) in which the function is smooth."""
        wide = {name: self.inputs[name].astype(np.float64) for name in self.variables}
        found = 0
        for _ in range(DRAWS):
            way = {name: self.random.standard_normal(value.shape) for name, value in wide.items()}

            def at(step):
                return self.loss({name: value + step * way[name] for name, value in wide.items()})

            quotients, gaps = [], []
            for step in (STEP, STEP / 2):
                here, up, down = at(0), at(step), at(-step)
                quotients.append((up - down) / (2 * step))
                gaps.append(abs(up - 2 * here + down) / step)
            noise = NOISE * max(1, abs(quotients[0]))
            # Where the function is smooth, both sides come together with the step.
            if not np.isfinite(quotients).all() or abs(quotients[0] - quotients[1]) > noise or gaps[1] > max(0.6 * gaps[0], noise):
                continue
            yield way, (4 * quotients[1] - quotients[0]) / 3
            found += 1
            if found == DIRECTIONS:
                return


def compare(gradients: dict, way: dict, expected: float) -> str:
    got = size = 0.0
    for name, direction in way.items():
        if name not in gradients:
            return f"no gradient of {name}"
        terms = np.asarray(gradients[name], np.float64) * direction
        got += float(np.sum(terms))
        size += float(np.sqrt(np.sum(terms**2)))
    if abs(got - expected) <= TOLERANCE * max(size, abs(expected), 1e-2):
        return ""
    return f"expected a derivative of {expected:.6g}, got {got:.6g}"


def load_adapter(name: str):
    module, _, attribute = name.rpartition(".")
    return getattr(importlib.import_module(module), attribute)


def run_case(case, setting) -> table.Row:
    adapter, build = setting
    row = table.Row(case.name, case.op, case.group, "right", "")
    if isinstance(case, seams.Seam):
        return seams.run(case, load_adapter(adapter)(build), row)
    if case.op in FLAT:
        return row._replace(status="left out", detail="no slope")
    for prefix, why in NO_REFERENCE.items():
        if case.name.startswith(prefix):
            return row._replace(status="left out", detail="no reference: " + why)
    try:
        problem = Problem(case)
        if draws(case, problem.model):
            return row._replace(status="left out", detail="random")
        ways = list(problem.directions()) if problem.variables and problem.weights else []
    except Exception as refusal:  # the reference evaluator has FP64 for most operators, not for all
        return row._replace(status="left out", detail="no reference: " + table.one_line(refusal))
    if not ways:
        return row._replace(status="left out", detail="no float input, or no smooth direction")
    backend = load_adapter(adapter)(build)
    status, detail = judge(backend, problem, ways)
    if status != "right" and len(problem.weights) > 1:
        problem.weights = dict(list(problem.weights.items())[:1])
        ways = list(problem.directions())
        if ways and judge(backend, problem, ways)[0] == "right":
            detail += table.FIRST_RESULT
    return row._replace(status=status, detail=detail)


def judge(backend, problem, ways) -> tuple:
    """(status, detail) of a backend's gradients along `ways`."""
    try:
        gradients = backend.gradients(problem.model, problem.inputs, problem.variables, problem.weights)
    except Exception as refusal:  # whatever a backend raises
        return "refused", table.one_line(refusal)
    for way, expected in ways:
        if text := compare(gradients, way, expected):
            return "wrong", text
    return "right", ""


def rows_of(path: Path) -> list:
    return list(table.read(path).values()) if path.exists() else []


def main() -> int:
    parser = suite.options_of(__doc__)
    parser.add_argument("--adapter", default=OURS)
    options = parser.parse_args()
    plain = [case for case in cases.load(options.cache) if case.group == "plain"]
    ours, theirs = (options.results.with_name(name) for name in ("gradients.tsv", "gradients-onnxruntime.tsv"))
    is_ours = options.adapter == OURS

    def page(rows):
        return table.gradient_page(rows, rows_of(theirs))

    status = suite.run(options, suite.named(plain + seams.SEAMS, options), run_case, (options.adapter, options.build), died=suite.died,
                       summary=suite.counted("gradients"), page=page if is_ours else None)
    if options.write and not is_ours and ours.exists():
        ours.with_suffix(".md").write_text(page(rows_of(ours)))
    return status


if __name__ == "__main__":
    sys.exit(main())
