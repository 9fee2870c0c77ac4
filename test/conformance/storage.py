#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Runs the node suite's FP32 cases of training operators in 16- and 8-bit storage and compares with FP64.

    storage.py --results docs/results/storage.tsv [--filter REGEX] [--write] [--jobs N]

A case's FP32 inputs are rounded to the type; the operator computes in it where its schema has the type, otherwise between casts,
and results are rounded to it. The reference is ONNX's evaluator in FP64 on the rounded inputs. A result may be off by ROUNDINGS
units of the type, relative to the larger of itself and the results' mean size.
"""
import re
import sys
from pathlib import Path

import numpy as np

sys.path.insert(0, str(Path(__file__).resolve().parent))
import cases  # noqa: E402
import forward  # noqa: E402
import suite  # noqa: E402
import table  # noqa: E402

ROUNDINGS = 4
# Units in the last place of 1, and the smallest normal number.
UNITS = {"FLOAT16": (2.0**-10, 2.0**-14), "BFLOAT16": (2.0**-7, 2.0**-126), "FLOAT8E4M3FN": (2.0**-3, 2.0**-6)}
# Operators whose FP32 operands are no measured values, or that round by themselves.
OUTSIDE = {"Cast", "CastLike", "Range", "Constant", "ConstantOfShape", "Size", "Shape"}


def in_type(model, element: int):
    """The model with another type in the place of FP32."""
    import onnx
    made = onnx.ModelProto()
    made.CopyFrom(model)
    for value in [*made.graph.input, *made.graph.output]:
        if value.type.tensor_type.elem_type == onnx.TensorProto.FLOAT:
            value.type.tensor_type.elem_type = element
    for node in made.graph.node:
        for attribute in node.attribute:
            if attribute.name in ("to", "dtype") and attribute.i == onnx.TensorProto.FLOAT:
                attribute.i = element
    return made


def between_casts(model, element: int):
    """The model in FP32 with its inputs and results in another type."""
    import onnx
    made = in_type(model, element)
    graph, before, after = made.graph, [], []
    own = list(model.graph.node)
    for value, plain in zip(graph.input, model.graph.input):
        if plain.type.tensor_type.elem_type == onnx.TensorProto.FLOAT:
            value.name = plain.name + ".stored"
            before.append(onnx.helper.make_node("Cast", [value.name], [plain.name], to=onnx.TensorProto.FLOAT))
    for value, plain in zip(graph.output, model.graph.output):
        if plain.type.tensor_type.elem_type == onnx.TensorProto.FLOAT:
            value.name = plain.name + ".stored"
            after.append(onnx.helper.make_node("Cast", [plain.name], [value.name], to=element))
    del graph.node[:]
    graph.node.extend([*before, *own, *after])
    for opset in made.opset_import:
        if opset.domain in ("", "ai.onnx"):
            opset.version = max(opset.version, 19)  # from which casts have 8-bit floats
    return made


def in_storage(model, element: int):
    import onnx
    if element in (onnx.TensorProto.FLOAT16, onnx.TensorProto.BFLOAT16):
        made = in_type(model, element)
        try:
            onnx.checker.check_model(made, full_check=True)
            return made
        except Exception:  # the checker's kinds
            pass
    return between_casts(model, element)


def is_near(got, exact, unit: float, least: float) -> str:
    got, exact = np.asarray(got).astype(np.float64), np.asarray(exact).astype(np.float64)
    if got.shape != exact.shape:
        return f"expected shape {list(exact.shape)}, got {list(got.shape)}"
    finite = np.isfinite(exact)
    typical = np.abs(exact[finite]).mean() if finite.any() else 0.0
    allowed = ROUNDINGS * unit * np.maximum(np.maximum(np.abs(exact), typical), least)
    bad = np.where(finite, ~(np.abs(got - np.where(finite, exact, 0)) <= allowed), ~((got == exact) | (np.isnan(got) & np.isnan(exact))))
    if not bad.any():
        return ""
    at = tuple(int(i[0]) for i in np.nonzero(bad))
    return f"{int(bad.sum())} of {exact.size} values differ, first at {list(at)}: expected {exact[at]:.6g}, got {got[at]:.6g}"


def run_case(item, setting) -> table.Row:
    import onnx
    from onnx.reference import ReferenceEvaluator

    import mpt
    import mpt.backend
    case, storage = item
    mpt.use_build(setting)
    row = table.Row(f"{case.name}@{storage}", case.op, storage, "right", "")
    element = getattr(onnx.TensorProto, storage)
    dtype = onnx.helper.tensor_dtype_to_np_dtype(element)
    model = onnx.load_model_from_string(case.model)
    inputs = forward.as_arrays(case.data_sets[0][0])
    narrow = [array.astype(dtype) if array.dtype == np.float32 else array for array in inputs]
    wide = {value.name: array.astype(np.float64) if array.dtype == dtype else array for value, array in zip(model.graph.input, narrow)}
    if case.op == "Dropout" and model.opset_import[0].version < 12:
        return row._replace(status="left out", detail="random")
    try:
        exact = ReferenceEvaluator(cases.in_double(model)).run(None, wide)
    except Exception as refusal:  # not every operator of the evaluator takes FP64
        return row._replace(status="left out", detail="no reference: " + table.one_line(refusal))
    made = in_storage(model, element)
    rep = mpt.backend.prepare(made)
    try:
        results = rep.run(dict(zip((value.name for value in made.graph.input), narrow)))
    except Exception as refusal:  # whatever a backend raises
        return row._replace(status="refused", detail=table.one_line(refusal))
    finally:
        rep.close()
    for got, want in zip(results, exact):
        if np.asarray(got).dtype == dtype:  # beyond the largest number, the type's own overflow
            with np.errstate(over="ignore"):
                rounded = np.asarray(want).astype(dtype).astype(np.float64)
            limit = float(onnx.numpy_helper.to_array(onnx.helper.make_tensor("", element, [1], [1e30])).astype(np.float64)[0])
            want = np.clip(want, -limit, limit) if dtype.itemsize == 1 else np.where(np.isinf(rounded), rounded, want)
        text = is_near(got, want, *UNITS[storage]) if np.asarray(want).dtype.kind == "f" else \
            forward.differ(np.asarray(got), want, 0, 0)
        if text:
            return row._replace(status="wrong", detail=text)
    return row


def chosen(cache: Path, expression: str) -> list:
    import onnx
    found = []
    for case in cases.load(cache):
        if case.group != "plain" or case.op not in cases.NAMED or case.op in OUTSIDE:
            continue
        graph = onnx.load_model_from_string(case.model).graph
        if any(value.type.tensor_type.elem_type == onnx.TensorProto.FLOAT for value in graph.input):
            found += [(case, storage) for storage in UNITS if re.search(expression, f"{case.name}@{storage}")]
    return found


def page(rows) -> str:
    import collections
    counted = [row for row in rows if row.status != "left out"]
    lines = [
        "# Conformance in narrow storage", "",
        "The FP32 cases of training operators in ONNX's node suite, with operands and results in 16 or 8 bits, against ONNX's",
        f"evaluator in FP64 on the rounded operands; a result may be off by {ROUNDINGS} units of the type. Written by",
        "`scripts/conformance.sh --storage --write`; [storage.tsv](storage.tsv) has every case.", "",
        table.cells(["type", "right", "refused", "wrong", "died"]), table.cells(["---"] * 5)]
    for storage in UNITS:
        part = [row for row in counted if row.group == storage]
        if not part:
            continue
        found = table.counts(part)
        lines.append(table.cells([storage, table.share(part), found["refused"], found["wrong"], found["died"]]))
    left = collections.Counter(row.detail.split(":")[0] for row in rows if row.status == "left out")
    lines += ["", "Not counted: " + "; ".join(f"{count} cases with {what}" for what, count in sorted(left.items())) + ".",
              "", "## Not right", "", table.cells(["operator", "cases", "", "message"]), table.cells(["---"] * 4)]
    plain = [row._replace(group="plain") for row in counted]
    lines += [table.cells([op, len(names), status, text]) for op, status, text, names in table.reasons(plain)]
    return "\n".join(lines) + "\n"


def main() -> int:
    options = suite.options_of(__doc__).parse_args()

    def died(item, why):
        return table.Row(f"{item[0].name}@{item[1]}", item[0].op, item[1], "died", why)

    return suite.run(options, chosen(options.cache, options.filter), run_case, options.build, died=died, summary=suite.counted("storage"),
                     page=page)


if __name__ == "__main__":
    sys.exit(main())
