#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Runs the node suite of onnx.backend.test in an ONNX backend and compares with the stored results.

    forward.py --results docs/results/conformance.tsv [--backend mpt.backend] [--filter REGEX] [--write] [--jobs N]

A case is right, wrong (a value differs), refused (the backend said so), or died. Without --write a case that was right and
is not, one that is wrong, and one that died are failures; with --write the file is replaced (with --filter, those rows), and
the page beside it.
"""
import importlib
import sys
from pathlib import Path

import numpy as np

sys.path.insert(0, str(Path(__file__).resolve().parent))
import cases  # noqa: E402
import suite  # noqa: E402
import table  # noqa: E402


def find_bad(got, want, rtol: float, atol: float):
    """Where values differ by more than the tolerances."""
    if want.dtype.kind in "biu":
        return got != want
    if want.dtype.itemsize == 1:
        # The exact value: 8 bits are a choice among 256.
        a, b = got.astype(np.float32), want.astype(np.float32)
        return ~((a == b) | (np.isnan(a) & np.isnan(b)))
    if want.dtype.name == "bfloat16":
        rtol = max(rtol, 2**-6)  # as onnx.backend.test.runner: two units in the last place
    return ~np.isclose(got.astype(np.float64), want.astype(np.float64), rtol=rtol, atol=atol, equal_nan=True)


def differ(got, want, rtol: float, atol: float) -> str:
    """How a result differs from the expected one: type, shape or value; "" where it does not."""
    want = np.asarray(want)
    if got.shape != want.shape or got.dtype != want.dtype:
        return f"expected {want.dtype}{list(want.shape)}, got {got.dtype}{list(got.shape)}"
    bad = find_bad(got, want, rtol, atol)
    if not np.any(bad):
        return ""
    at = tuple(int(i[0]) for i in np.nonzero(bad)) if want.shape else ()
    return f"{int(np.sum(bad))} of {want.size} values differ, first at {list(at)}: expected {want[at]}, got {got[at]}"


def as_arrays(values) -> list:
    from onnx import TensorProto, numpy_helper
    return [numpy_helper.to_array(value) if isinstance(value, TensorProto) else value for value in values]


def is_nearer(case, inputs, results, wanted) -> bool:
    """True where results differ from the suite's, which round at every step, and lie nearer to an evaluation in FP64."""
    import onnx
    from onnx.reference import ReferenceEvaluator
    model = onnx.load_model_from_string(case.model)
    types = {value.name: value.type.tensor_type.elem_type for value in model.graph.input}
    wide = {name: array.astype(np.float64) if types[name] in cases.NARROW else array for name, array in zip(types, inputs)}
    try:
        exact = ReferenceEvaluator(cases.in_double(model)).run(None, wide)
    except Exception:  # not every operator of the evaluator takes FP64
        return False
    for got, want, reference in zip(results, wanted, exact):
        if got.shape != want.shape or got.dtype != want.dtype:
            return False
        bad = find_bad(got, want, case.rtol, case.atol)
        if np.any(bad) and (want.dtype.itemsize == 1 or want.dtype.kind in "biu"):
            return False
        ours, theirs = (np.abs(array.astype(np.float64) - reference)[bad].max(initial=0) for array in (got, want))
        if not ours <= theirs:
            return False
    return True


def named(name: str, value) -> str:
    """An input that was compiled in; floats are data that most models compute, and are marked."""
    return name + table.FLOAT * bool(np.issubdtype(np.asarray(value).dtype, np.floating) or np.asarray(value).dtype.name.startswith(("bfloat", "float")))


def takes_names(rep) -> bool:
    """Whether a backend's model takes its inputs by name."""
    import mpt.backend
    return isinstance(rep, mpt.backend.Rep)


def run_case(case, setting) -> table.Row:
    import onnx
    backend, build = setting
    if build:
        import mpt
        mpt.use_build(build)
    module = importlib.import_module(backend)
    row = table.Row(case.name, case.op, case.group, "right", "")
    if case.group not in table.COUNTED:
        return row._replace(status="left out", detail=case.group)
    model = onnx.load_model_from_string(case.model)
    rep = module.prepare(model)
    try:
        for inputs, wanted in case.data_sets:
            inputs, wanted = as_arrays(inputs), as_arrays(wanted)
            names = [value.name for value in model.graph.input]
            try:
                results = rep.run(dict(zip(names, inputs)) if takes_names(rep) else inputs)
            except Exception as refusal:  # whatever a backend raises
                return row._replace(status="refused", detail=table.one_line(refusal))
            for got, want in zip(results, wanted):
                text = differ(np.asarray(got), want, case.rtol, case.atol)
                if text and not is_nearer(case, inputs, results, wanted):
                    return row._replace(status="wrong", detail=text)
        return row._replace(detail=" ".join(named(name, value) for name, value in sorted(getattr(rep, "constants", {}).items())))
    finally:
        if hasattr(rep, "close"):
            rep.close()


def main() -> int:
    parser = suite.options_of(__doc__)
    parser.add_argument("--backend", default="mpt.backend")
    options = parser.parse_args()
    return suite.run(options, suite.named(cases.load(options.cache), options), run_case, (options.backend, options.build), died=suite.died,
                     summary=table.summary)


if __name__ == "__main__":
    sys.exit(main())
