#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Writes the training steps of the corpus as .onnx, and holds them against the steps they were made of.

  check_steps.py CORPUS [--models a,b] [--forms opt] [--policies fp32,amp-f16] [--optimizer SPEC] [--onnx-form joint]
                 [--onnx-arithmetic native] [--markdown FILE]

CORPUS is the folder that scripts/corpus.sh made. For each graph and policy: `mpt-opt --emit=onnx` writes the step; ONNX's
full checker passes it; in the reference interpreter results and states of three steps, and of one that
overflows, are bitwise identical before export and after re-import; ONNX Runtime, where Python has it, loads the file and runs a step, whose loss
is printed beside the interpreter's (of --onnx-form=training-info it runs the graph for inference). Ends with a summary; the
status is non-zero when a graph failed. Run it with a Python that has onnxruntime to see the last column.
"""
import argparse
import os
import sys
import tempfile
import time

import numpy as np

import step_files
from check_corpus import ADDED_LOSS, MODELS, load


def source_of(corpus, form, model):
    """(path, loss, feeds) of the model's graph with its loss, or of its logits."""
    feeds = load(os.path.join(corpus, "forward", model + ".npz"))
    for variant in ("loss", "logits"):
        path = os.path.join(corpus, "forward", form, f"{model}.{variant}.onnx")
        if os.path.exists(path):
            if variant == "loss":
                return path, "none", feeds
            loss = ADDED_LOSS[model]
            feeds["labels" if loss.startswith("softmax") else "target"] = feeds.pop("y")
            return path, loss, feeds
    return None


def run_once(path, proto, feeds):
    """The loss of one step in ONNX Runtime, or the reason why there is none."""
    try:
        import onnxruntime
    except ImportError:
        return "not installed"
    onnxruntime.set_default_logger_severity(4)
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = 1
    try:
        session = onnxruntime.InferenceSession(str(path), options, providers=["CPUExecutionProvider"])
        wanted = {value.name for value in proto.graph.input}
        given = {name: np.asarray(value) for name, value in feeds.items() if name in wanted}
        # NumPy has no arrays of the narrower types; the step computes them all the same.
        names = [value.name for value in session.get_outputs() if "bfloat16" not in value.type and "float8" not in value.type]
        values = dict(zip(names, session.run(names, given)))
    except Exception as problem:  # a graph that it cannot run is a result of this table
        return " ".join(str(problem).split())[:160]
    return float(np.asarray(values["loss"], np.float32).reshape(())) if "loss" in values else f"ran, outputs {names[0]}"


def row_of(corpus, form, model, policy, optimizer, onnx_form, arithmetic, folder):
    path, loss, feeds = source_of(corpus, form, model)
    flags = [f"--loss={loss}", f"--optimizer={optimizer}", f"--policy={policy}"]
    feeds = {**feeds, "learning_rate": np.float32(0.01)}
    start = time.time()
    proto, (results, states) = step_files.compare(path, flags, feeds, folder, onnx_form, f"--onnx-arithmetic={arithmetic}")
    graphs = [proto.graph] + [info.algorithm for info in proto.training_info]
    nodes = sum(len(graph.node) for graph in graphs)
    one = step_files.steps(path, flags, feeds, folder, "one", 1)[0]
    ort = run_once(f"{folder}/step-{onnx_form}.onnx", proto, feeds)
    loss_one = float(one["loss"].astype(np.float32).reshape(())) if "loss" in one else float("nan")
    if isinstance(ort, float) and onnx_form != "joint":
        ort = f"{ort:.6g}, evaluated"
    elif isinstance(ort, float):
        ort = f"{ort:.6g} ({abs(ort - loss_one) / max(abs(loss_one), 1e-30):.0e})"
    return nodes, len(results) + len(states), f"{loss_one:.6g}", ort, time.time() - start


def main():
    ap = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    ap.add_argument("corpus")
    ap.add_argument("--models", default=",".join(MODELS))
    ap.add_argument("--forms", default="opt")
    ap.add_argument("--policies", default=",".join(step_files.POLICIES))
    ap.add_argument("--optimizer", default="adamw,lr=0.01,weight-decay=0.01")
    ap.add_argument("--onnx-form", default="joint")
    ap.add_argument("--onnx-arithmetic", default="native")
    ap.add_argument("--markdown", metavar="FILE", help="append a table row for every graph")
    args = ap.parse_args()
    same = failed = 0
    for model in args.models.split(","):
        for form in args.forms.split(","):
            if source_of(args.corpus, form, model) is None:
                continue
            for policy in args.policies.split(","):
                with tempfile.TemporaryDirectory() as folder:
                    try:
                        nodes, values, loss, ort, seconds = row_of(args.corpus, form, model, policy, args.optimizer,
                                                                   args.onnx_form, args.onnx_arithmetic, folder)
                        cells = [str(nodes), f"{values} of {values}", loss, ort]
                        same += 1
                    except Exception as problem:  # one graph's failure is its row
                        cells, seconds = ["", "**" + " ".join(str(problem).split())[-300:] + "**", "", ""], 0
                        failed += 1
                print(f"{form}/{model} {policy}: " + "  ".join(cells) + f"  {seconds:.0f} s", flush=True)
                if args.markdown:
                    with open(args.markdown, "a", encoding="utf-8") as file:
                        file.write(f"| {model} | {form} | {policy} | " + " | ".join(cells) + " |\n")
    print(f"{same} steps with the same bits after re-import, {failed} failed")
    return 1 if failed or not same else 0


if __name__ == "__main__":
    sys.exit(main())
