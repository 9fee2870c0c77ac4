#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Decisions of two builds of mpt-opt for the same files: compare_decisions.py OLD_OPT NEW_OPT FILE.onnx... prints a line for each file,
policy and form (rewritten node by node, or compiled to a step) with the number of narrow values, and below it the differences and why."""
from __future__ import annotations

import argparse
import collections
import json
import pathlib
import subprocess
import tempfile

FORMS = ("rewritten", "compiled")


def decide(opt: str, path: pathlib.Path, policy: str, form: str, folder: pathlib.Path):
    """{(node, op, number): (element type, rule)}, or the compiler's first words where it refuses."""
    report = folder / "report.json"
    own = "--loss=none" if ".loss" in path.name else "--forward-only"
    flags = ["--emit=onnx", "-o", folder / "rewritten.onnx"] if form == "rewritten" else [own, "--to=precision", "--dry-run"]
    done = subprocess.run([opt, path, f"--policy={policy}", *flags, "--quiet", f"--report=precision={report}"], capture_output=True, text=True)
    if done.returncode:
        return (done.stderr.strip().splitlines() or ["no words"])[0]
    found, seen = {}, collections.Counter()
    for value in json.loads(report.read_text())["values"]:
        if value.get("function", "step") not in ("gradients", "evaluate", "predict"):  # their ops are the step's
            key = value["node"], value["op"]
            seen[key] += 1
            kind = value["type"].replace("<", "x").split(",")[0].rstrip(">").rsplit("x", 1)[-1]
            found[(*key, seen[key])] = kind, value.get("rule", "")
    return found


def main() -> None:
    parse = argparse.ArgumentParser(description=__doc__)
    parse.add_argument("old")
    parse.add_argument("new")
    parse.add_argument("files", type=pathlib.Path, nargs="+")
    parse.add_argument("--policies", default="amp-f16,amp-bf16")
    a = parse.parse_args()
    with tempfile.TemporaryDirectory() as scratch:
        for path, policy, form in ((f, p, form) for f in a.files for p in a.policies.split(",") for form in FORMS):
            title = f"{path.parent.name}/{path.stem} {policy} {form}"
            old, new = (decide(opt, path, policy, form, pathlib.Path(scratch)) for opt in (a.old, a.new))
            if isinstance(old, str) or isinstance(new, str):
                print(f"{title}: refused: {old if isinstance(old, str) else 'no'} | {new if isinstance(new, str) else 'no'}", flush=True)
                continue
            narrow = [sum(kind in ("f16", "bf16") for kind, _ in decided.values()) for decided in (old, new)]
            differ = collections.Counter((key[1], old[key][0], *new[key]) for key in old if key in new and old[key][0] != new[key][0])
            print(f"{title}: narrow {narrow[0]} -> {narrow[1]}, {differ.total()} differ, {len(old.keys() ^ new.keys())} on one side", flush=True)
            for (op, was, now, why), count in differ.most_common():
                print(f"  {count} {op}: {was} -> {now}, {why}")


if __name__ == "__main__":
    main()
