#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Writes every form of training graph as .onnx and for CUDA under some policies, and reads the former again.

  check_products.py --results FILE [--forward FOLDER]... [--joint FOLDER]... [--algorithms FOLDER]... [--artifacts FOLDER]...
                    [--only REGEX] [--onnx amp-f16] [--nodes amp-f16] [--cuda amp-f16,amp-bf16,fp8-hybrid] [--ptxas PATH] [--limit SECONDS]

The files are the ones of check_policies.py, smallest first, and FILE keeps a line for each file, policy and product in the same way.
  onnx   ONNX's full checker passes the step; in the reference interpreter results and states of three steps, and
         of one that overflows, are bitwise identical before export and after re-import (step_files.py)
         (joint graphs with --optimizer=sgd, without which their own nodes are rewritten)
  nodes  joint graphs: the file rewritten node by node is imported again and trains: three finite losses, the first within four roundings of
         the policy's operands of the loss of the file in FP32
  cuda   a library for sm_90 is written, each kernel assembled by ptxas where there is one; nothing runs
The status is non-zero when one fails. Without a GPU.
"""
import argparse
import csv
import os
import pathlib
import re
import subprocess
import sys
import tempfile
import time

import numpy as np

sys.path.insert(0, os.path.dirname(__file__))
import check_corpus  # noqa: E402
import check_policies  # noqa: E402
import step_files  # noqa: E402

FIELDS = ("case", "policy", "product", "result", "seconds", "text")


def prepared(case):
    """(flags, inputs) of a file."""
    feeds, extents = check_policies.artifact_feeds(case) if isinstance(case.feeds, tuple) else (check_corpus.load(case.feeds), {})
    flags = ["--no-dropout", *(f"--bind={name}={extent}" for name, extent in extents.items())]
    return flags, feeds


def step_flags(case):
    """Flags that make a training step of a form that does not bring one whole, or whose own graph would be written instead."""
    return {"F": ["--optimizer=sgd,lr=0.01", "--loss=none"], "J": ["--optimizer=sgd,lr=0.01"]}.get(case.key[0], [])


def onnx_again(case, policy, given, folder):
    flags, feeds = prepared(case)
    # A step asks for the rate as an input where its optimizer has one.
    flags, feeds = [*flags, *step_flags(case), f"--policy={policy}"], {**feeds, "learning_rate": np.float32(0.01)}
    proto, (results, states) = step_files.compare(case.path, flags, feeds, folder)
    return f"{len(results) + len(states)} values, {len(proto.graph.node)} nodes"


def nodes_again(case, policy, given, folder):
    import mpt

    _, feeds = prepared(case)
    rewritten, losses = pathlib.Path(folder, "rewritten.onnx"), {}
    step_files.call("mpt-opt", case.path, f"--policy={policy}", "--emit=onnx", "--quiet", "-o", rewritten)
    for what, path in (("wide", case.path), ("narrow", rewritten)):
        with mpt.Trainer(mpt.compile(path, out=pathlib.Path(folder, what), dropout=False), threads=1) as trainer:
            losses[what] = [trainer.step({name: feeds[name] for name in trainer.inputs() if name in feeds}).loss for _ in range(3)]
    apart = abs(losses["narrow"][0] - losses["wide"][0]) / abs(losses["wide"][0])
    if not np.isfinite(losses["narrow"]).all() or not apart <= 4 * check_policies.unit_of(policy):
        raise step_files.Failed(f"losses {losses['narrow']}, in FP32 {losses['wide']}")
    return f"first loss {apart:.1e} apart"


def cuda(case, policy, given, folder):
    flags, _ = prepared(case)
    flags += step_flags(case) if case.key[0] == "F" else []
    ptxas = [f"--ptxas={given.ptxas}"] if given.ptxas else []
    step_files.call("mpt-opt", case.path, *flags, f"--policy={policy}", "--target=cuda", "--arch=sm_90", *ptxas, "--quiet", "-o",
                    f"{folder}/library", limit=given.limit)
    size = sum(file.stat().st_size for file in pathlib.Path(folder, "library").rglob("*") if file.is_file())
    return f"{size >> 10} KiB"


PRODUCTS = {"onnx": onnx_again, "nodes": nodes_again, "cuda": cuda}


def check(case, policy, product, given):
    """A row."""
    start, row = time.time(), {"case": case.key, "policy": policy, "product": product}
    with tempfile.TemporaryDirectory() as folder:
        try:
            row.update(result="ok", text=PRODUCTS[product](case, policy, given, folder))
        except subprocess.TimeoutExpired:
            row.update(result="late", text=f"no result within {given.limit:.0f} s")
        except Exception as problem:  # the row says it
            row.update(result="FAIL", text=f"{type(problem).__name__}: " + " ".join(str(problem).split())[-400:])
    return {**row, "seconds": f"{time.time() - start:.1f}"}


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    for form in ("forward", "joint", "algorithms", "artifacts"):
        parser.add_argument("--" + form, type=pathlib.Path, action="append", default=[])
    parser.add_argument("--results", type=pathlib.Path, required=True)
    parser.add_argument("--only", default="")
    parser.add_argument("--onnx", default="amp-f16")
    parser.add_argument("--nodes", default="amp-f16")
    parser.add_argument("--cuda", default="amp-f16,amp-bf16,fp8-hybrid")
    parser.add_argument("--ptxas")
    parser.add_argument("--limit", type=float, default=300)
    given = parser.parse_args()
    import mpt

    mpt.use_build(step_files.BUILD)
    rows = []
    if given.results.exists():
        with open(given.results, newline="") as file:
            rows = list(csv.DictReader(file, delimiter="\t"))
    known = {(row["case"], row["policy"], row["product"]) for row in rows}
    wanted = [(policy, product) for product in PRODUCTS for policy in re.findall(r"[^,]+", getattr(given, product))]
    with open(given.results, "a", newline="") as file:
        writer = csv.DictWriter(file, FIELDS, delimiter="\t", restval="")
        if not rows:
            writer.writeheader()
        for case in check_policies.cases(given):
            for policy, product in wanted:
                if (case.key, policy, product) not in known and (product != "nodes" or case.key[0] == "J"):
                    rows.append(check(case, policy, product, given))
                    writer.writerow(rows[-1])
                    file.flush()
                    if rows[-1]["result"] != "ok":
                        print("\t".join(str(rows[-1][field]) for field in FIELDS), flush=True)
    bad = sum(row["result"] != "ok" for row in rows)
    print(f"products: {len(rows) - bad} passed, {bad} failed")
    return bad != 0 or not rows


if __name__ == "__main__":
    sys.exit(main())
