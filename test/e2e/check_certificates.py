#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Validation of emitted libraries against error bounds: each corpus model under each policy, all limits from the error model.

  check_certificates.py CORPUS [--models a,b] [--policies a,b] [--form dyn] [--steps 1] [--results FILE.jsonl] [--markdown FILE]

CORPUS is the folder that scripts/corpus.sh made. `mpt-run --certify --library` compiles the graph with its loss, trains the library for
a step on the model's batch, and compares it with the interpreter and with FP64. Dynamic scales start at 1024, so that the first step
is not skipped. With --results a cell is written when it ends and
not run again. The status is non-zero when a cell failed.
"""
import argparse
import json
import os
import pathlib
import subprocess
import sys
import tempfile
import time

import numpy as np

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "test" / "python"))
import mpt_run  # noqa: E402

MODELS = ("mlp mlp_mse mlp_l1 mlp_bce lenet lenet_classic dcgan_g dcgan_d dlrm gpt2 gpt2_sdpa bert bert_sdpa vit llama transformer "
          "unet unet_resize mobilenet resnet18 vgg11_bn alexnet inception resnet50").split()
# Policies whose loss scale is dynamic.
DYNAMIC = {"amp-f16", "autocast-cuda-f16", "fp8-e5m2", "fp8-e5m2-saved"}
POLICIES = sorted(path.stem for path in (ROOT / "lib/Precision/policies").glob("*.mlir"))


def certify(corpus, model, policy, form, steps) -> dict:
    """The row of one cell: the failures, and how much of their limits gradients, updates and tensors used."""
    with np.load(corpus / "forward" / f"{model}.npz") as archive:
        batch = {key: archive[key] for key in archive.files}
    with tempfile.TemporaryDirectory() as folder:
        mpt_run.write_tensors(f"{folder}/batch.st", batch)
        words = [corpus / "forward" / form / f"{model}.loss.onnx", "--optimizer=sgd,lr=0.01,momentum=0.9", f"--policy={policy}", "--quiet",
                 "--certify", f"--library={folder}/out", f"--batch={folder}/batch.st", f"--steps={steps}"]
        words += ["--loss-scale=dynamic,init=1024"] * (policy in DYNAMIC)
        start = time.monotonic()
        result = subprocess.run([mpt_run.tool(), *words], capture_output=True, text=True)
        row = {"model": model, "policy": policy, "form": form, "steps": steps, "seconds": round(time.monotonic() - start, 1)}
    if result.returncode not in (0, 1):
        return row | {"pass": False, "failures": [f"status {result.returncode}: {result.stderr.strip()[-400:]}"]}
    certificate = json.loads(result.stdout)
    return row | {"pass": certificate["pass"], "failures": certificate["failures"],
                  "used": {what: used(certificate[what]) for what in ("gradients", "updates", "meant", "tensors")},
                  "gradients": [g["relative_error"] for g in certificate["gradients"]]}


def used(rows) -> float:
    """The largest share of its limit that a row's error takes."""
    shares = []
    for row in rows:
        key = next(key for key in ("mean_ulp", "relative_error", "distance") if key in row)
        error, limit = row[key], row.get("limit", row.get("ulp_limit"))
        if isinstance(error, (int, float)) and isinstance(limit, (int, float)) and limit > 0:
            shares.append(error / limit)
    return max(shares, default=0.0)


def table(rows, models, policies) -> str:
    """A cell has the median relative error of the parameters' gradients, or the failures."""
    cells = {(row["model"], row["policy"]): row for row in rows}

    def cell(model, policy):
        row = cells.get((model, policy))
        if row is None:
            return ""
        return f"{np.median(row['gradients']):.0e}" if row["pass"] else "**failed**"
    lines = ["| model | " + " | ".join(policies) + " |", "|---|" + "---|" * len(policies)]
    lines += [f"| {model} | " + " | ".join(cell(model, policy) for policy in policies) + " |" for model in models]
    return "\n".join(lines) + "\n"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("corpus", type=pathlib.Path)
    parser.add_argument("--models", default=",".join(MODELS))
    parser.add_argument("--policies", default=",".join(POLICIES))
    parser.add_argument("--form", default="dyn")
    parser.add_argument("--steps", type=int, default=1)
    parser.add_argument("--results", type=pathlib.Path)
    parser.add_argument("--markdown", type=pathlib.Path)
    words = parser.parse_args()
    models, policies = words.models.split(","), words.policies.split(",")
    rows = []
    if words.results and words.results.exists():
        rows = [json.loads(line) for line in words.results.read_text().splitlines()]
    done = {(row["model"], row["policy"]) for row in rows}
    for model in models:
        for policy in policies:
            if (model, policy) in done:
                continue
            row = certify(words.corpus, model, policy, words.form, words.steps)
            rows.append(row)
            if words.results:
                with words.results.open("a") as file:
                    file.write(json.dumps(row) + "\n")
            print(f"{model}, {policy}: {'passes' if row['pass'] else 'FAILED'} in {row['seconds']} s", *row["failures"][:5], sep="\n  ", flush=True)
    rows = [row for row in rows if row["model"] in models and row["policy"] in policies]
    if words.markdown:
        words.markdown.write_text(table(rows, models, policies))
    failed = [row for row in rows if not row["pass"]]
    print(f"{len(rows) - len(failed)} passed, {len(failed)} failed")
    sys.exit(bool(failed) or not rows)


if __name__ == "__main__":
    main()
