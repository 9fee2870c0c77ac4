# SPDX-License-Identifier: Apache-2.0
"""Results of a conformance run: the stored file, its comparison with a new run, and the page by operator."""
import collections
import re
from pathlib import Path
from typing import NamedTuple

import cases

COUNTED = ("plain", "expanded")
# Behind the name of a float input that was compiled in.
FLOAT = "(float)"
# The end of the detail of a case whose gradient is right as soon as nothing but its first result counts.
FIRST_RESULT = "; right for the first result alone"
# The detail of a right gradient that PyTorch shares, and the beginning of the detail of one that it does not share.
AGREES, DIFFERS = "PyTorch agrees", "PyTorch differs"
# The beginnings of the detail of a gradient that is right and that PyTorch was not compared with, or has otherwise at a seam.
NO_RULE, PEER_REFUSES, PEER_OTHERWISE = "PyTorch has no rule: ", "PyTorch refuses: ", "PyTorch's slope is "
# (the reason for a case of ONNX Runtime Training, a pattern of its detail), the first that fits.
THEIR_REASONS = (("not in opset 21 or unknown", "is newer than|not a registered function"),
                 ("lost or refused through results behind the first", FIRST_RESULT),
                 ("no gradient", "gradient builder has not been registered"),
                 ("a gradient that has no kernel on CPUs", "Could not find an implementation"))


class Row(NamedTuple):
    """`detail`: of a case that is right, the inputs that were compiled in, floats marked, or the comparison with a peer; otherwise why it is not."""
    name: str
    op: str
    group: str
    status: str
    detail: str


def one_line(text) -> str:
    line = next((line for line in str(text).splitlines() if "error:" in line), str(text).strip().split("\n")[0])
    return re.sub(r"\s+", " ", line.removeprefix("error: "))[:240] or "no message"


def why_none(refusal: Exception) -> str:
    """The detail of a case that a peer has no gradients of."""
    if type(refusal).__name__ == "NoRule":
        return NO_RULE + one_line(refusal)
    return PEER_REFUSES + f"{type(refusal).__name__}: {one_line(refusal)}"


def read(path: Path) -> dict:
    lines = path.read_text().splitlines()[1:]
    return {row.name: row for row in (Row(*line.split("\t")) for line in lines)}


def write(path: Path, rows, make_page) -> None:
    """The rows in the file, and the page of the same name beside it where `make_page` makes one."""
    text = ["\t".join(Row._fields), *("\t".join(row) for row in rows)]
    path.write_text("\n".join(text) + "\n")
    if make_page:
        path.with_suffix(".md").write_text(make_page(rows))


def cells(values) -> str:
    return "| " + " | ".join(str(value) for value in values) + " |"


def reasons(rows):
    """(operator, message, cases) of rows that are not right, the same messages together."""
    found = collections.defaultdict(list)
    for row in rows:
        if row.group == "plain" and row.status != "right":
            text = re.sub(r"^at node '[^']*': ", "", row.detail)
            text = re.sub(r"; supported names near it.*", "", text).replace("|", "\\|")
            found[row.op, row.status, text].append(row.name)
    return sorted((op, status, text, names) for (op, status, text), names in found.items())


def page(rows) -> str:
    import onnx
    by_op = collections.defaultdict(list)
    for row in rows:
        if row.group in COUNTED:
            by_op[row.op, row.group].append(row)
    lines = [
        "# Conformance, forward", "",
        "The node suite of `onnx.backend.test`, onnx " + onnx.__version__ + ", through libraries that `mpt-opt` emits for the CPU",
        "(`python/mpt/backend.py`). Written by `scripts/conformance.sh --write`; `scripts/conformance.sh` compares with the stored",
        "[conformance.tsv](conformance.tsv), which has every case. Tolerances are the suite's own.", "",
        cells(["cases", "right", "refused", "wrong", "died"]), cells(["---"] * 5)]
    for what, chosen in subsets(rows):
        found = counts(chosen)
        lines.append(cells([what, share(chosen), found["refused"], found["wrong"], found["died"]]))
    left = collections.Counter(row.detail for row in rows if row.group not in COUNTED)
    lines += ["", "Not counted: " + "; ".join(f"{count} cases {what}" for what, count in sorted(left.items())) + ".",
              "\"Not tensors\" are strings, sequences and optional values; \"random\" are results that depend on a generator;",
              "\"outside\" are " + ", ".join(f"{op} ({why})" for op, why in sorted(cases.OUTSIDE.items())) + ".",
              "The expanded cases are the plain ones through the operator's function. Where a shape depends on the values of",
              "inputs, these were compiled in; the file names them. Most are integers, such as shapes and axes. These are floats, which",
              "means that a model that computes them is refused where the result's shape depends on them:", "",
              cells(["operator", "cases", "float inputs compiled in"]), cells(["---"] * 3), *float_constants(rows),
              "", "## Not right", "", cells(["operator", "cases", "", "message"]), cells(["---"] * 4)]
    lines += [cells([op, len(names), status, text]) for op, status, text, names in reasons(rows)] or [cells(["none", 0, "", ""])]
    lines += ["", "## By operator", "", cells(["operator", "plain", "expanded"]), cells(["---"] * 3)]
    for op in sorted({op for op, _ in by_op}):
        shown = []
        for group in COUNTED:
            chosen = by_op.get((op, group), [])
            right = counts(chosen)["right"]
            shown.append("" if not chosen else str(right) if right == len(chosen) else f"{right} of {len(chosen)}")
        lines.append(cells([op, *shown]))
    return "\n".join(lines) + "\n"


def float_constants(rows) -> list:
    """Lines by operator: the cases with float inputs that were compiled in, and their names."""
    found = collections.defaultdict(list)
    for row in rows:
        names = [word.removesuffix(FLOAT) for word in row.detail.split() if word.endswith(FLOAT)]
        if row.group in COUNTED and row.status == "right" and names:
            found[row.op].append(names)
    return [cells([op, len(of), ", ".join(sorted({name for names in of for name in names}))]) for op, of in sorted(found.items())]


def regressions(before: dict, rows) -> list:
    problems = [f"{row.name}: {row.status}: {row.detail}" for row in rows if row.status in ("wrong", "died")]
    problems += [f"{row.name}: was right, is now {row.status}: {row.detail}" for row in rows
                 if row.status == "refused" and row.name in before and before[row.name].status == "right"]
    problems += [f"{row.name}: was compared with PyTorch, is now not: {row.detail}" for row in rows
                 if row.detail.startswith((NO_RULE, PEER_REFUSES)) and row.name in before and before[row.name].detail == AGREES]
    return problems


def counts(rows) -> collections.Counter:
    return collections.Counter(row.status for row in rows)


def share(rows) -> str:
    rows = list(rows)
    right = counts(rows)["right"]
    return f"{right} of {len(rows)} ({100 * right / max(len(rows), 1):.1f} %)"


def summary(rows) -> str:
    lines = []
    for what, chosen in subsets(rows):
        found = counts(chosen)
        lines.append(f"{what}: {share(chosen)} right, {found['refused']} refused, {found['wrong']} wrong, {found['died']} died")
    return "\n".join(lines)


def subsets(rows):
    """(name, rows) of the sets that the targets are stated for."""
    counted = [row for row in rows if row.group in COUNTED]
    yield "operators of training graphs, plain", [row for row in counted if row.group == "plain" and row.op in cases.NAMED]
    yield "all plain", [row for row in counted if row.group == "plain"]
    yield "all, with expanded", counted


def gradient_page(rows, theirs=()) -> str:
    """`theirs`: rows of ONNX Runtime Training for the same cases."""
    counted = [row for row in rows if row.status != "left out"]
    found, left = counts(counted), collections.Counter(row.detail.split(":")[0] for row in rows if row.status == "left out")
    lines = [
        "# Conformance, gradient", "",
        "Gradients of the float cases of `onnx.backend.test` along random directions, beside differences of ONNX's reference",
        "evaluator in FP64, all set to FP32; of attributes that the suite leaves out (`test/conformance/attributes.py`); and of",
        "formulas by cases at their seams (`seams.py`). Where PyTorch has the operator (`torch_ops.py`), every element is compared",
        "with its autograd in FP64. Written by `scripts/conformance.sh --gradient --write`; [gradients.tsv](gradients.tsv) has every",
        "case. Another backend takes one adapter class (`mpt_adapter.py`, `torch_adapter.py`).", "",
        f"{share(counted)} right, {found['refused']} refused, {found['wrong']} wrong, {found['died']} died. "
        f"{sum(row.detail == AGREES for row in counted)} of these agree with PyTorch's autograd, element by element.",
        *beside_peer(counted),
        "", "## Not counted", "", cells(["cases", "why", "operators"]), cells(["---"] * 3),
        *(cells([count, what, of_operators(row for row in rows if row.status == "left out" and row.detail.split(":")[0] == what)])
          for what, count in left.most_common()),
        "", "## Not right", "", cells(["operator", "cases", "", "message"]), cells(["---"] * 4)]
    plain = [row._replace(group="plain") for row in counted]
    lines += [cells([op, len(names), status, text]) for op, status, text, names in reasons(plain)] or [cells(["none", 0, "", ""])]
    theirs = {row.name: row for row in theirs}
    if theirs:
        lines += beside(counted, theirs)
    lines += ["", "## By operator", "", cells(["operator", "right", "of", "PyTorch agrees", *["ONNX Runtime Training"] * bool(theirs)]),
              cells(["---"] * (5 if theirs else 4))]
    for op in sorted({row.op for row in counted}):
        chosen = [row for row in counted if row.op == op]
        other = [theirs[row.name] for row in chosen if row.name in theirs]
        lines.append(cells([op, counts(chosen)["right"], len(chosen), sum(row.detail == AGREES for row in chosen) or "",
                            *[verdict(other)] * bool(theirs)]))
    return "\n".join(lines) + "\n"


def beside_peer(counted) -> list:
    """Lines on gradients that are right and were not compared with PyTorch, or have another value there."""
    lines = []
    for beginning, title in ((NO_RULE, "PyTorch has no such operator, or not in this form"),
                             (PEER_REFUSES, "PyTorch has the operator, and fails"),
                             (PEER_OTHERWISE, "PyTorch's autograd finds another slope at a seam, where mathematics says which is right")):
        rows = [row for row in counted if row.detail.startswith(beginning)]
        if not rows:
            continue
        by_reason = collections.defaultdict(list)
        for row in rows:
            by_reason[row.detail.removeprefix(beginning)].append(row)
        lines += ["", f"{title}: {len(rows)} cases.", "", cells(["cases", "why", "operators"]), cells(["---"] * 3)]
        lines += [cells([len(of), why.replace("|", "\\|"), of_operators(of)]) for why, of in sorted(by_reason.items(), key=lambda entry: (-len(entry[1]), entry[0]))]
    return lines


def of_operators(rows) -> str:
    ops = collections.Counter(row.op for row in rows)
    return ", ".join(f"{op} {count}" if count > 1 else op for op, count in sorted(ops.items()))


def verdict(rows) -> str:
    """An operator's cases in a cell: how many are right, wrong, refused or died."""
    found = counts(rows)
    return ", ".join(f"{found[status]} {status}" for status in ("right", "wrong", "refused", "died") if found[status]) or "0"


def their_reason(row) -> str:
    return next((text for text, found in THEIR_REASONS if re.search(found, row.detail)),
                "wrong" if row.status == "wrong" else "one form or operand refused")


def beside(counted, theirs) -> list:
    """Lines on ONNX Runtime Training, over the cases that are counted for us."""
    other = [theirs[row.name] for row in counted if row.name in theirs]
    found, by_op, by_reason = counts(other), collections.defaultdict(list), collections.defaultdict(list)
    for row in other:
        if row.status != "right":
            by_reason[their_reason(row)].append(row)
        if their_reason(row) != THEIR_REASONS[0][0]:
            by_op[row.op].append(row)
    bad = sorted(op for op, rows in by_op.items() if counts(rows)["right"] < len(rows))
    none = [op for op in bad if not counts(by_op[op])["right"]]
    lines = ["", "## Beside ONNX Runtime Training 1.19.2", "",
             "The same cases through its own gradient graph on the CPU (`test/conformance/ort_adapter.py`), all in FP32, each in the",
             "opset 21 that it knows where it is valid there, and with those results named that its gradients read;",
             "[its table](gradients-onnxruntime.tsv) has its messages. Written by", "",
             "    gradient.py --adapter ort_adapter.Adapter --build PYTHON --results docs/results/gradients-onnxruntime.tsv --write", "",
             f"{share(other)} right, {found['refused']} refused, {found['wrong']} wrong, {found['died']} died. Without cases outside opset 21, it",
             f"refuses or fails cases of {len(bad)} operators, and all cases of {len(none)} of these (bold):", "",
             ", ".join(f"**{op}**" if op in none else op for op in bad) + ".", "",
             "No case is refused for want of FP32. The suite's GRU and LSTM have no initial state; with one their gradients are there.", "",
             cells(["why not right", "cases", "operators"]), cells(["---"] * 3)]
    for reason, rows in sorted(by_reason.items(), key=lambda entry: -len(entry[1])):
        lines.append(cells([reason, len(rows), of_operators(rows)]))
    return lines
