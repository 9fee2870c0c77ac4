# SPDX-License-Identifier: Apache-2.0
"""results.jsonl as one table: table.py FILE."""
from __future__ import annotations

import json
import pathlib
import sys

import kernels
import parts


def read(path) -> list:
    path = pathlib.Path(path)
    return [json.loads(line) for line in path.read_text().splitlines() if line.strip()] if path.exists() else []


def latest(rows: list) -> list:
    """The rows of each item's last run; of a peer's rows the last one."""
    runs, kept = {}, []
    for row in rows:  # a run's rows stand together
        if runs != {"item": row["item"], "run": row.get("run")}:
            runs = {"item": row["item"], "run": row.get("run")}
            kept = [r for r in kept if r["item"] != row["item"]]
        if row.get("peer"):
            kept = [r for r in kept if (r["item"], r.get("peer")) != (row["item"], row["peer"])]
        kept.append(row)
    return kept


def precision_of(peer: str) -> str:
    kept = peer.split(":")[1]
    return "tf32" if "tf32" in kept else "fp32" if kept == "fp32" else "f16" if kept in ("f16", "amp-f16", "als-f16") else "bf16"


def number(value, form=".2f") -> str:
    return "-" if value is None else format(value, form)


def markdown(rows: list, left=()) -> str:
    ended, rows = {row["item"] for row in rows if row.get("end")}, [row for row in rows if not row.get("end") or "ok" in row]
    text = facts(rows) + checks(rows)
    if cut := list(dict.fromkeys(row["item"] for row in rows if row["item"] not in ended)):
        text += ["Cut off, with what was known until then: " + ", ".join(cut), ""]
    if left:
        text += ["Not run: " + ", ".join(left), ""]
    bad = [row for row in rows if row.get("ok") is False]
    if bad:
        text += ["Failures:", ""] + [f"- {row['item']} {row.get('case', '')}: {row.get('problem', '')[:400]}" for row in bad[:60]] + [""]
    for row in rows:
        if row["part"] == "digits" and "accuracy" in row:
            text += [f"{row['case']}: {row['accuracy']:.1%} of the held-out digits, {row['expected']:.1%} on the processor", ""]
    return "\n".join(text + speeds(rows) + tables(rows)) + "\n"


def facts(rows: list) -> list:
    text = []
    for row in rows:
        if row["part"] == "probe" and row.get("gpu"):
            found = [row["gpu"], f"PyTorch {row.get('torch')}"]
            found += [f"{k} {row[k]:.0f}" for k in ("copy_gb_s", "bfloat16_tflop_s", "float16_tflop_s") if k in row]
            text += [", ".join(found), ""]
    return text


def checks(rows: list) -> list:
    counts = {}
    for row in rows:
        if not row["part"].startswith(("speed", "probe")):
            count = counts.setdefault(row["item"], [0, 0, 0, 0.0])
            count[0 if row.get("ok") else 2 if row.get("ok") is None else 1] += 1
            count[3] = max(count[3], row.get("share", 0.0))
    if not counts:
        return []
    text = ["| check | passed | failed | not run | worst gradient, of what it may be off |", "|---|---|---|---|---|"]
    return text + [f"| {item} | {c[0]} | {c[1]} | {c[2]} | {f'{c[3]:.2f}' if c[3] else '-'} |" for item, c in counts.items()] + [""]


def speeds(rows: list) -> list:
    timed = [row for row in rows if row["part"].startswith("speed") and "ms" in row]
    if not timed:
        return []
    text = ["| item | peer | ms | alone | rounds | x best PyTorch | x own bf16 | peak MiB | x best PyTorch | first losses | off by | gradients |",
            "|---|---|---|---|---|---|---|---|---|---|---|---|"]
    for row in timed:
        # Of the same item, whose peers ran in turns: other rounds are not comparable.
        beside = [r for r in timed if r["item"] == row["item"]]
        peers = [r for r in beside if not r["peer"].startswith("mpt") and precision_of(r["peer"]) == precision_of(row["peer"])]
        best = min((r["ms"] for r in peers), default=None)
        least = min((r["peak_mib"] for r in peers if "peak_mib" in r), default=None)
        own = next((r["ms"] for r in beside if r["peer"] == "mpt:amp-bf16"), None)
        wrong = "" if row.get("ok") else " (wrong)"
        text.append(f"| {row['item']} | {row['peer']}{wrong} | {row['ms']:.2f} | {number(row.get('solo_ms'))} | {row.get('rounds', 0)} | "
                    f"{number(best and best / row['ms'])} | {number(own and own / row['ms'])} | "
                    f"{number(row.get('peak_mib'), '.0f')} | {number(least and row.get('peak_mib') and row['peak_mib'] / least)} | "
                    f"{', '.join(f'{x:.4f}' for x in row['losses'])} | {number(row.get('loss_error'), '.1e')} | {number(row.get('gradient_share'))} |")
    return text + ["", "Speed over PyTorch is its time over ours: more than 1 is faster. With rounds both ran in turns; without, alone while others were getting "
                   "ready. Losses and gradients of one model's peers start from the same weights; gradients are in shares of what they may be off."]


def tables(rows: list) -> list:
    text, copies = [], next((row["copy_gb_s"] for row in rows if "copy_gb_s" in row), None)
    for row in rows:
        if row.get("kernels"):
            own = parts.described(row["model"], row["peer"].split(":")[1]) if row["peer"].startswith("mpt") else {}
            text += ["", f"{row['item']}, {row['peer']}:", *kernels.markdown(row, own, copies)]
        if row["part"] == "products" and row.get("table"):
            text += ["", f"{row['case']}: {row['faster']} of {row['products']} products are faster in 8 bits, with their conversions", "",
                     "| product | us in 16 bits | us in 8 bits |", "|---|---|---|"]
            text += [f"| `{p['product']}` | {p['us_16']:.1f} | {p['us_8']:.1f} |" for p in row["table"]["products"]]
    return text


if __name__ == "__main__":
    print(markdown(latest(read(sys.argv[1]))))
