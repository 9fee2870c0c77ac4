#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Gradients of the node suite's float cases against differences in FP64, and of formulas by cases at their seams.

    gradient.py --results docs/results/gradients.tsv [--adapter mpt_adapter.Adapter] [--peer torch_adapter.Adapter]
                [--filter REGEX] [--write] [--jobs N]

For a case with float inputs x and float outputs y, the loss is the sum of y times fixed random weights. A backend's gradients
along random directions are held against central differences of ONNX's reference evaluator in FP64, everything set to FP32.
Directions along which differences of two steps, or from both sides, disagree cross a kink; they say nothing and are drawn again,
and a point without others is moved. Operands that ONNX's schemas call non-differentiable stay constants. Attributes that the
suite leaves out have cases of their own (attributes.py). Where the peer has a gradient too, every element is compared with it.
Another backend takes one class: see mpt_adapter.py and torch_adapter.py.
"""
import importlib
import importlib.util
import sys
from pathlib import Path

import numpy as np

sys.path.insert(0, str(Path(__file__).resolve().parent))
import attributes  # noqa: E402
import cases  # noqa: E402
import seams  # noqa: E402
import suite  # noqa: E402
import table  # noqa: E402
from problem import NoSlope, Problem  # noqa: E402

OURS, PEER = "mpt_adapter.Adapter", "torch_adapter.Adapter"
TOLERANCE = 2e-3  # of a directional derivative, relative to the sizes of its terms
# Operators that are not compared, whatever the types of their operands.
LEFT_OUT = {op: why for why, ops in {
    "slope 0, or none": "Binarizer Ceil Floor Hardmax Round Sign",
    "bits read as another type": "BitCast",
    "an optimizer's step": "Adagrad Adam Momentum",
}.items() for op in ops.split()}


def draws(case) -> bool:
    """Dropout before opset 12 does not say whether it drops: in training it does."""
    import onnx
    return case.op == "Dropout" and onnx.load_model_from_string(case.model).opset_import[0].version < 12


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
    adapter, build, peer = setting
    row = table.Row(case.name, case.op, case.group, "right", "")
    if isinstance(case, seams.Seam):
        row = seams.run(case, load_adapter(adapter)(build), row)
        return row._replace(detail=seams.beside(case, load_adapter(peer)(None))) if row.status == "right" and peer else row
    if case.op in LEFT_OUT:
        return row._replace(status="left out", detail=LEFT_OUT[case.op])
    if draws(case):
        return row._replace(status="left out", detail="random")
    try:
        problem = Problem(case)
        ways = problem.directions()
    except NoSlope as why:
        return row._replace(status="left out", detail=str(why))
    except Exception as refusal:  # the reference evaluator has FP64 for most operators, not for all
        return row._replace(status="left out", detail="no reference: " + table.one_line(refusal))
    if not ways:
        return row._replace(status="left out", detail="not differentiable at the points tried")
    backend = load_adapter(adapter)(build)
    status, detail = judge(backend, problem, ways)
    if status == "right" and peer:
        status, detail = beside(backend, load_adapter(peer), problem)
    if status != "right" and len(problem.weights) > 1:
        problem.weights = dict(list(problem.weights.items())[:1])
        ways = problem.directions()
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


def beside(backend, peer, problem) -> tuple:
    """(status, detail) of a backend's gradients, element by element, beside the gradients of `peer`; the detail says why there are none."""
    given = (problem.model, problem.inputs, problem.variables, problem.weights)
    try:
        wanted = peer(None).gradients(*given)
    except Exception as refusal:
        return "right", table.why_none(refusal)
    found = backend.gradients(*given)
    if not any(np.isfinite(want).any() for want in wanted.values()):
        return "right", table.PEER_REFUSES + "no slope is finite"
    for name, want in wanted.items():
        got, want = np.asarray(found[name], np.float64), np.asarray(want, np.float64)
        finite = np.isfinite(want)  # norms of zeros divide by zero in PyTorch
        size = np.abs(want) + np.abs(want[finite]).mean() + 1e-3 if finite.any() else want
        far = finite & ~(np.abs(got - want) <= TOLERANCE * size)
        if far.any():
            at = tuple(int(i[0]) for i in np.nonzero(far)) if far.shape else ()
            return "wrong", f"{table.DIFFERS} in {far.sum()} of {far.size} slopes of {name}, first at {list(at)}: {want[at]:.6g}, got {got[at]:.6g}"
    return "right", table.AGREES


def rows_of(path: Path) -> list:
    return list(table.read(path).values()) if path.exists() else []


def main() -> int:
    parser = suite.options_of(__doc__)
    parser.add_argument("--adapter", default=OURS)
    parser.add_argument("--peer", help="another adapter, whose gradients ours must agree with; by default PyTorch's")
    options = parser.parse_args()
    plain = [case for case in cases.load(options.cache) if case.group == "plain"]
    ours, theirs = (options.results.with_name(name) for name in ("gradients.tsv", "gradients-onnxruntime.tsv"))
    is_ours = options.adapter == OURS

    def page(rows):
        return table.gradient_page(rows, rows_of(theirs))

    peer = options.peer or (PEER if is_ours and importlib.util.find_spec("torch") else "")
    if is_ours and not peer:
        print("gradients: PyTorch is not installed; none are compared with its own")
    items = suite.named(plain + attributes.make() + seams.SEAMS, options)
    status = suite.run(options, items, run_case, (options.adapter, options.build, peer), died=suite.died,
                       summary=suite.counted("gradients"), page=page if is_ours else None)
    if options.write and not is_ours and ours.exists():
        ours.with_suffix(".md").write_text(page(rows_of(ours)))
    return status


if __name__ == "__main__":
    sys.exit(main())
