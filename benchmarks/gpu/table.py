# SPDX-License-Identifier: Apache-2.0
"""results.jsonl as one table: table.py FILE."""
from __future__ import annotations

import json
import pathlib
import sys


def read(path) -> list:
    path = pathlib.Path(path)
    return [json.loads(line) for line in path.read_text().splitlines() if line.strip()] if path.exists() else []


def latest(rows: list) -> list:
    """The rows of each item's last run."""
    runs, kept = {}, []
    for row in rows:  # a run's rows stand together
        if runs != {"item": row["item"], "run": row.get("run")}:
            runs = {"item": row["item"], "run": row.get("run")}
            kept = [r for r in kept if r["item"] != row["item"]]
        kept.append(row)
    return kept


def precision_of(peer: str) -> str:
    kept = peer.split(":")[1]
    return "tf32" if "tf32" in kept else "fp32" if kept == "fp32" else "f16" if kept in ("f16", "amp-f16", "als-f16") else "bf16"


def number(value, form=".2f") -> str:
    return "-" if value is None else format(value, form)


def markdown(rows: list, left=()) -> str:
    text = []
    for row in rows:
        if row["part"] == "probe" and row.get("gpu"):
            facts = [row["gpu"], f"PyTorch {row.get('torch')}"]
            facts += [f"{k} {row[k]:.0f}" for k in ("copy_gb_s", "bfloat16_tflop_s", "float16_tflop_s") if k in row]
            text += [", ".join(facts), ""]
    checks = {}
    for row in rows:
        if row["part"] in ("smoke", "conformance", "digits", "training", "products", "sanitizer", "ncu"):
            count = checks.setdefault(row["item"], [0, 0, 0])
            count[0 if row.get("ok") else 2 if row.get("ok") is None else 1] += 1
    if checks:
        text += ["| check | passed | failed | not run |", "|---|---|---|---|"]
        text += [f"| {item} | {c[0]} | {c[1]} | {c[2]} |" for item, c in checks.items()] + [""]
    bad = [row for row in rows if row.get("ok") is False]
    if bad:
        text += ["Failures:", ""] + [f"- {row['item']} {row.get('case', '')}: {row.get('problem', '')[:400]}" for row in bad[:60]] + [""]
    for row in rows:
        if row["part"] == "digits" and "accuracy" in row:
            text += [f"{row['case']}: {row['accuracy']:.1%} of the held-out digits, {row['expected']:.1%} on the processor", ""]
    timed = [row for row in rows if row["part"].startswith("speed") and "ms" in row]
    if timed:
        text += ["| item | peer | ms | x best PyTorch | x own bf16 | peak MiB | x best PyTorch | device MiB | first losses | off by |",
                 "|---|---|---|---|---|---|---|---|---|---|"]
    for row in timed:
        # Of the same item, whose peers ran in turns: other rounds are not comparable.
        beside = [r for r in timed if r["item"] == row["item"]]
        peers = [r for r in beside if not r["peer"].startswith("mpt") and precision_of(r["peer"]) == precision_of(row["peer"])]
        best = min((r["ms"] for r in peers), default=None)
        least = min((r["peak_mib"] for r in peers if "peak_mib" in r), default=None)
        own = next((r["ms"] for r in beside if r["peer"] == "mpt:amp-bf16"), None)
        text.append(f"| {row['item']} | {row['peer']} | {row['ms']:.2f} | {number(best and best / row['ms'])} | {number(own and own / row['ms'])} | "
                    f"{number(row.get('peak_mib'), '.0f')} | {number(least and row.get('peak_mib') and row['peak_mib'] / least)} | "
                    f"{number(row.get('device_mib'), '.0f')} | {', '.join(f'{x:.4f}' for x in row['losses'])} | "
                    f"{number(row.get('loss_error'), '.1e')} |")
    if timed:
        text += ["", "Speed over PyTorch is its time over ours: more than 1 is faster; both ran in turns, in one item. The losses of one model's peers start from the same weights."]
    for row in rows:
        if row["part"] == "products" and row.get("table"):
            text += ["", f"{row['case']}: {row['faster']} of {row['products']} products are faster in 8 bits, with their conversions", "",
                     "| product | us in 16 bits | us in 8 bits |", "|---|---|---|"]
            text += [f"| `{p['product']}` | {p['us_16']:.1f} | {p['us_8']:.1f} |" for p in row["table"]["products"]]
    for row in rows:
        if row["part"] == "profile" and row.get("profile"):
            text += ["", f"{row['item']}:", "", "```"] + row["profile"].strip().splitlines()[:45] + ["```"]
    if left:
        text += ["", "Not run for want of time: " + ", ".join(left)]
    return "\n".join(text) + "\n"


if __name__ == "__main__":
    print(markdown(latest(read(sys.argv[1]))))
