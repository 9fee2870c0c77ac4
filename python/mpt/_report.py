# SPDX-License-Identifier: Apache-2.0
"""mpt.report: the folder of a run as one HTML page without external resources."""
import html
import json
import os
import pathlib
import re

from ._charts import FORMATS, bars, exponents, lines, number, stack
from ._run_folder import read_log, write_text

STYLE = """
:root { --ink: #1c2430; --dim: #5b6575; --line: #d9dee6; --paper: #fff; --mark: #1f5fa8; }
@media (prefers-color-scheme: dark) { :root { --ink: #e6e9ef; --dim: #98a2b3; --line: #344054; --paper: #14181f; --mark: #63a9e0; } }
body { font: 15px/1.45 system-ui, sans-serif; color: var(--ink); background: var(--paper); margin: 24px auto; max-width: 1200px; padding: 0 16px; }
h1 { font-size: 22px; margin: 0 0 4px; } h2 { font-size: 17px; margin: 28px 0 8px; } p { color: var(--dim); margin: 4px 0; max-width: 75ch; }
.charts { display: grid; gap: 18px 28px; grid-template-columns: repeat(auto-fit, minmax(min(100%, 430px), 1fr)); }
figure { margin: 0; max-width: 600px; } figcaption { font-weight: 600; } figure p { font-size: 13px; } svg { display: block; width: 100%; }
svg text { font: 12px system-ui, sans-serif; fill: var(--ink); } .end { text-anchor: end; } .middle { text-anchor: middle; }
.grid { stroke: var(--line); } .line { fill: none; stroke: var(--mark); stroke-width: 1.6; } .mark { stroke: var(--ink); stroke-width: 1.6; }
.cell { fill: var(--mark); } .area { stroke: var(--ink); stroke-width: 0.6; } svg .on { paint-order: stroke; stroke: var(--paper); stroke-width: 3; } .range { fill: none; stroke: var(--ink); stroke-width: 2.5; }
.wide { overflow-x: auto; } table { border-collapse: collapse; } td, th { text-align: left; padding: 3px 14px 3px 0; border-bottom: 1px solid var(--line);
vertical-align: top; } td.n, th.n { text-align: right; font-variant-numeric: tabular-nums; } code { font: 13px ui-monospace, monospace; word-break: break-word; }
"""


def table(head: list, rows: list) -> str:
    """Numbers stand at the right; texts are escaped."""
    def cell(tag, value):
        return f"<{tag} class=n>{number(value)}</{tag}>" if isinstance(value, (int, float)) else f"<{tag}>{html.escape(str(value))}</{tag}>"
    body = "".join("<tr>" + "".join(cell("td", value) for value in row) + "</tr>" for row in rows)
    return f'<div class="wide"><table><tr>{"".join(cell("th", name) for name in head)}</tr>{body}</table></div>' if rows else ""


def page(title: str, parts: list) -> str:
    return (f'<!doctype html><html lang="en"><head><meta charset="utf-8"><meta name="viewport" content="width=device-width">'
            f"<title>{html.escape(title)}</title><style>{STYLE}</style></head><body>{''.join(filter(None, parts))}</body></html>\n")


def outside(found: dict, shift: float) -> list:
    """Of each format, the shares of values below its smallest and above its largest one, once they are multiplied by 2^shift."""
    total = sum(found["counts"]) or 1
    rows = []
    for name, (smallest, _, largest) in FORMATS.items():
        at = lambda i: found["first"] + i + shift
        rows.append([name, f"{100 * sum(n for i, n in enumerate(found['counts']) if at(i) < smallest) / total:.2f} %",
                     f"{100 * sum(n for i, n in enumerate(found['counts']) if at(i) > largest) / total:.2f} %"])
    return rows


def curves(log: list) -> str:
    """Loss and metrics, learning rate, loss scale with skipped steps, norms."""
    steps = [record for record in log if record["kind"] == "step"]
    epochs = [record for record in log if record["kind"] == "epoch"]
    looks = [record for record in log if record["kind"] == "watch"]
    of = lambda records, key: [(record["step"], record.get(key)) for record in records]
    skipped = [record["step"] for record in steps if record["skipped"]]
    losses = {"steps": of(steps, "loss"), "validation": of(epochs, "val_loss")}
    parts = [lines("loss", losses, logarithmic=True)]
    names = sorted({key for record in epochs for key in record if key.startswith("val_") and key != "val_loss"})
    parts += [lines(name.removeprefix("val_"), {name.removeprefix("val_"): of(epochs, name)}) for name in names]
    parts.append(lines("learning rate", {"rate": of(steps, "learning_rate")}))
    parts.append(lines("loss scale", {"scale": of(steps, "loss_scale")}, logarithmic=True, marks=skipped[:500],
                       note=f"{len(skipped)} of {len(steps)} steps were skipped" + (": crosses" if skipped else "")))
    if any("grad_norm" in record for record in steps):
        parts.append(lines("gradient norm before clipping", {"norm": of(steps, "grad_norm")}, logarithmic=True))
    parts.append(lines("seconds a step", {"time": of(steps, "seconds")}, logarithmic=True))
    if looks:
        last = looks[-1]["gradient_norms"]
        largest = sorted(last, key=last.get)[-6:]
        series = {name: [(look["step"], look["gradient_norms"].get(name)) for look in looks] for name in largest}
        parts.append(lines("gradient norm by parameter", series, logarithmic=True, note=f"the {len(largest)} largest of {len(last)}"))
    return f'<div class="charts">{"".join(parts)}</div>'


def skipped(log: list) -> str:
    """The steps that were skipped, with the parameters whose gradients were too large."""
    rows = []
    for record in log:
        if record["kind"] == "step" and record["skipped"]:
            found = record.get("culprits", {})
            said = ("not finite: " + ", ".join(found["not_finite"]) if "not_finite" in found
                    else f"finite; the largest is of {found['largest']}" if found else "not looked at")
            rows.append([record["step"], f"{record['loss_scale']:g}", said])
    more = f"<p>and {len(rows) - 20} more</p>" if len(rows) > 20 else ""
    return ("<h2>Skipped steps</h2>" + table(["step", "loss scale", "gradients under the next scale"], rows[:20]) + more) if rows else ""


def times(profile: str) -> str:
    """The tables of Trainer.profile: of each function the slowest calls."""
    parts = []
    for text in re.split(r"\n(?=\S[^\n]*: \d+ runs of )", profile):
        head, *lines_ = text.strip().splitlines()
        rows = [line.split(None, 5) for line in lines_[1:]]
        shares = {}
        for share, *_, what in rows[:8]:
            call, node = what.rstrip("]").rsplit(" [", 1)
            name = f"{node}: {call.split()[0]}"
            shares[name if name not in shares else f"{name}, {call}"] = float(share.rstrip("%"))
        parts.append(f"<h2>Times of {html.escape(head)}</h2>" + bars("share of the time, by first node", shares, "%")
                     + "<details><summary>all calls</summary>" + table(lines_[0].split(None, 5), rows) + "</details>")
    return "".join(parts)


def values(log: list) -> str:
    """Exponents of gradients and parameters, and the shares of them outside of formats."""
    looks = [record for record in log if record["kind"] == "watch"]
    if not looks:
        return ""
    scales = {record["step"]: record["loss_scale"] for record in log if record["kind"] == "step"}
    last = looks[-1]
    shift = max(0, len(bin(int(scales.get(last["step"], 1)))) - 3)
    charts = "".join(exponents(kind, [(look["step"], look[kind]) for look in looks], "of each look the most frequent exponent is darkest; "
                               "bars are ranges of formats, dashed where values are subnormal") for kind in ("gradients", "parameters"))
    rows = [[*wide, *scaled[1:], *weights[1:]] for wide, scaled, weights in
            zip(outside(last["gradients"], 0), outside(last["gradients"], shift), outside(last["parameters"], 0))]
    head = ["format", "gradients below", "above", f"times loss scale 2^{shift}: below", "above", "parameters below", "above"]
    return f'<h2>Values and formats</h2><div class="charts">{charts}</div>' + table(head, rows)


def compiled(found: dict) -> str:
    """Sections of mpt-opt's JSON reports: decisions, memory, or measured ranges."""
    if "steps" in found:
        return ranges(found["values"])
    if "values" in found:
        rows = [[value["node"], value["op"], value["type"], value.get("rule", "")] for value in found["values"] if value["function"] == "step"]
        return (f"<h2>Precision decisions of {html.escape(found['policy'])}</h2>"
                + table(["function", "narrow bytes", "wide bytes", "casts", "rounding"],
                        [[t["function"], t["narrow_bytes"], t["wide_bytes"], t["casts"], t["rounding_casts"]] for t in found["totals"]])
                + f"<details><summary>{len(rows)} values of the step</summary>{table(['node', 'op', 'type', 'rule'], rows)}</details>")
    if "functions" in found:
        name = "step" if "step" in found["functions"] else next(iter(found["functions"]))
        step = found["functions"][name]
        peak = {key: value for key, value in step["at_peak"].items() if isinstance(value, (int, float))}
        plan = stack("scratch over the step, bytes", step.get("timeline", []), ["saved", "gradients", "workspace", "other"],
                     f"a bar marks its peak, at node {step['at_peak']['node']}")
        saved = [[value["node"], value["until"], value["type"], value["bytes"]] for value in step["saved_values"]]
        return (f'<h2>Memory of {html.escape(name)}</h2><div class="charts">' + plan
                + bars("scratch at its peak", peak, "bytes", f"at node {step['at_peak']['node']}; the arena has {step['arena']:,} bytes, "
                       f"at least {step['lower_bound']:,} are needed") + "</div>"
                + table(["saved by", "until", "type", "bytes"], saved))
    raise ValueError("expected JSON of mpt-opt --report=precision or memory, or of mpt-run --calibrate")


def ranges(measured: dict) -> str:
    """Exponents that mpt-run --calibrate counted: a chart of each kind of value, one column a value, by name."""
    charts = []
    for kind in ("weight", "activation", "gradient"):
        found = []
        for key, value in sorted(measured.items()):
            if value["kind"] == kind and value["exponents"]:
                counts = {int(exponent): count for exponent, count in value["exponents"].items()}
                low = min(counts)
                found.append((key.split("|")[1], {"first": low, "counts": [counts.get(low + i, 0) for i in range(max(counts) - low + 1)]}))
        charts.append(exponents(f"{kind}s", found, "of each value the most frequent exponent is darkest", axis="value"))
    return f'<h2>Measured ranges</h2><div class="charts">{"".join(charts)}</div>'


def report(run, out=None, compiler=()) -> str:
    """Writes one HTML page about a run of mpt.fit, by default report.html in its folder, and returns its path. `compiler` are JSON
    files of mpt-opt's --report=precision and --report=memory, and of mpt-run --calibrate. A trainer with the option `profile` leaves
    its times in the folder."""
    run = pathlib.Path(os.fspath(run))
    log = read_log(run / "log.jsonl")
    if not any(record["kind"] == "step" for record in log):
        raise ValueError(f"expected the folder of a run of mpt.fit with steps in its log.jsonl, got '{run}'")
    about = json.loads((run / "run.json").read_text(encoding="utf-8"))
    head = (f"<h1>{html.escape(about['model'])}: {html.escape(about['policy'])} on {html.escape(about['device'])}</h1>"
            f"<p>{html.escape(about['trainer'])}</p><p>library <code>{html.escape(about['library'])}</code></p>")
    files = [compiler] if isinstance(compiler, (str, os.PathLike)) else compiler
    target = pathlib.Path(os.fspath(out)) if out is not None else run / "report.html"
    profile = run / "profile.txt"
    measured = times(profile.read_text(encoding="utf-8")) if profile.exists() else ""
    write_text(target, page(f"run of {about['model']}", [head, curves(log), skipped(log), values(log), measured, *(compiled(CompilerReport(file)) for file in files)]))
    return str(target)


class CompilerReport(dict):
    """The JSON of --report=precision, --report=memory or --calibrate, which notebooks show as the page of a run does."""

    def __init__(self, path):
        super().__init__(json.loads(pathlib.Path(os.fspath(path)).read_text(encoding="utf-8")))

    def _repr_html_(self) -> str:
        return f"<style>{STYLE}</style>{compiled(self)}"


class Memory(dict):
    """Bytes by what they hold (Trainer.memory), in notebooks as bars."""

    def _repr_html_(self) -> str:
        parts = {name.removesuffix("_bytes").replace("_", " "): value for name, value in self.items() if name != "peak_bytes"}
        return f"<style>{STYLE}</style>" + bars("memory of a trainer", parts, "bytes", f"together {self['peak_bytes']:,} bytes")


def describe(trainer) -> str:
    """A trainer as a table, for notebooks."""
    manifest, found, memory = trainer.manifest, trainer.trained(), trainer.memory()
    rows = [["model", trainer.name], ["policy", manifest.get("policy", "fp32")], ["target", manifest.get("target", "cpu")],
            ["trains", f"{len(found['tensors'])} tensors, {found['values']:,} values"], ["held", ", ".join(found["held"]) or "nothing"],
            ["state", f"{memory['state_bytes']:,} bytes"]]
    return f"<style>{STYLE.split('body', 1)[0]}</style>" + table(["mpt.Trainer", ""], rows)
