# SPDX-License-Identifier: Apache-2.0
"""A policy's decisions about a model, in a few numbers: how many values of each class are narrow, and the bytes of its casts.

  policy_summary.py CORPUS [--models a,b] [--policies p,q] [--expect FILE] [--update]

CORPUS is the folder that scripts/corpus.sh made. Each model is compiled up to phase precision under each policy; the command fails
where a row differs from --expect (golden/policies-corpus.json), which --update writes anew. Policies come from
lib/Precision/policies.
"""
import argparse
import collections
import json
import os
import pathlib
import subprocess
import sys
import tempfile

FOLDER = pathlib.Path(__file__).resolve().parents[2] / "lib" / "Precision" / "policies"
POLICIES = sorted(path.stem for path in FOLDER.glob("*.mlir"))


def compiler() -> pathlib.Path:
    root = pathlib.Path(__file__).resolve().parents[2]
    build = os.environ.get("MPT_BUILD") or max((root / "build").glob("*/bin/mpt-opt"), key=lambda p: p.stat().st_mtime).parents[1]
    return pathlib.Path(build) / "bin" / "mpt-opt"


def report(model, words) -> dict:
    """The precision report of one compilation up to phase precision; nothing else is written."""
    with tempfile.TemporaryDirectory() as folder:
        path = pathlib.Path(folder) / "report.json"
        done = subprocess.run([compiler(), model, *words, "--quiet", "--dry-run", f"--report=precision={path}"], capture_output=True,
                              text=True)
        if done.returncode:
            raise RuntimeError(f"{model} {words}: {done.stderr}")
        return json.loads(path.read_text())


def summary(precision: dict, function="step") -> dict:
    """{class: "narrow/all" values, casts: how many, how many round, their bytes}."""
    classes = collections.defaultdict(lambda: [0, 0])
    for value in precision["values"]:
        if value["function"] == function and value["class"]:
            classes[value["class"]][0] += not value["type"].endswith(("f32>", "f64>"))
            classes[value["class"]][1] += 1
    total = next((t for t in precision["totals"] if t["function"] == function), None)
    states = collections.Counter(state["type"].rsplit("x", 1)[-1].rstrip(">").removeprefix("tensor<") for state in precision["states"]
                                 if state["role"] in ("parameter", "master", "slot"))
    return {"values": {name: f"{narrow}/{all_}" for name, (narrow, all_) in sorted(classes.items())},
            "casts": [total["casts"], total["rounding_casts"], total["cast_bytes"]] if total else [0, 0, 0],
            "states": dict(sorted(states.items()))}


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("corpus", type=pathlib.Path)
    parser.add_argument("--models", default="")
    parser.add_argument("--policies", default=",".join(POLICIES))
    parser.add_argument("--expect", type=pathlib.Path, default=pathlib.Path(__file__).with_name("golden") / "policies-corpus.json")
    parser.add_argument("--update", action="store_true")
    wishes = parser.parse_args()
    known = json.loads(wishes.expect.read_text()) if wishes.expect.exists() else {}
    bad = 0
    for model in sorted((wishes.corpus / "forward" / "ts").glob("*.loss.onnx")):
        name = model.name.split(".")[0]
        if wishes.models and name not in wishes.models.split(","):
            continue
        for policy in wishes.policies.split(","):
            words = [f"--policy={policy}", "--optimizer=adamw,lr=0.001", "--to=precision"]
            ours = summary(report(model, words))
            print(f"{name:12} {policy:18} {ours['casts'][0]:5} casts {ours['casts'][2]:12} bytes", flush=True)
            if wishes.update:
                known.setdefault(name, {})[policy] = ours
            elif (expected := known.get(name, {}).get(policy)) and expected != ours:
                print(f"{name} {policy}: expected {expected}, got {ours}")
                bad += 1
    if wishes.update:
        write_golden(wishes.expect, known)
    return bad != 0


def write_golden(path: pathlib.Path, rows: dict) -> None:
    """One line a model and policy."""
    models = [f" {json.dumps(name)}: {{\n" + ",\n".join(f"  {json.dumps(policy)}: {json.dumps(row)}" for policy, row in policies.items()) + "\n }"
              for name, policies in rows.items()]
    path.write_text("{\n" + ",\n".join(models) + "\n}\n")


if __name__ == "__main__":
    sys.exit(main())
