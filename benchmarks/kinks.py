#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""How much of a rewritten training graph's drift comes from choices (ReLU's masks, max-pool's indices) that rounding turns over.

    build/peers/bin/python benchmarks/kinks.py --joint DIR [--models resnet18,unet] [--compiler build/release/bin/mpt-opt]

DIR holds MODEL.joint.onnx and MODEL.npz (make_joint.py).  A gradient jumps where a comparison of the forward pass comes out the
other way: with a share p of the masks turned over, gradients move by about the square root of p, whatever else is exact.  The table has
the drift of mpt's amp-f16 result as benchmarks/rewriters.py measures it, how many choices came out otherwise than in the given graph,
and the drift of the same file when it is given that graph's choices.
"""
from __future__ import annotations

import argparse
import glob
import os
import tempfile

import numpy as np
import onnx

import reference
import rewriters
import spawn

COMPARISONS = {"Equal", "Greater", "GreaterOrEqual", "Less", "LessOrEqual"}


def choices_of(model) -> dict[str, int]:
    """The values that state choices, with their element types."""
    found = {}
    for node in model.graph.node:
        if node.op_type in COMPARISONS and not node.domain:
            found[node.output[0]] = onnx.TensorProto.BOOL
        if node.op_type == "MaxPool" and len(node.output) > 1 and node.output[1]:
            found[node.output[1]] = onnx.TensorProto.INT64
    return found


def evaluate(model, feeds: dict, wanted=(), given=None) -> dict:
    """Outputs and `wanted` values by name; values `given` take the place of the ones that the graph computes."""
    model = rewriters.without_dropout(onnx.ModelProto.FromString(model.SerializeToString()))
    for node in model.graph.node:
        for i, name in enumerate(node.output):
            if given and name in given:
                node.output[i] = name + "/computed"
    model.graph.initializer.extend(onnx.numpy_helper.from_array(value, name) for name, value in (given or {}).items())
    model.graph.output.extend(onnx.helper.make_tensor_value_info(name, kind, None) for name, kind in dict(wanted).items())
    with np.errstate(all="ignore"):
        values = reference.evaluator(model).run(None, rewriters.inputs_of(model, feeds))
    return {output.name: np.asarray(value) for output, value in zip(model.graph.output, values)}


def row(path: str, compiler: str) -> list[str]:
    feeds, given = dict(np.load(path[:-len(".joint.onnx")] + ".npz")), onnx.load(path)
    with tempfile.TemporaryDirectory() as folder:
        out = os.path.join(folder, "out.onnx")
        status, _, _, said = spawn.measure([compiler, path, "--policy=amp-f16", "--emit=onnx", "--quiet", "-o", out])
        if status:
            raise SystemExit(said)
        made = onnx.load(out)
    wanted = choices_of(given)
    before, after = evaluate(given, feeds, wanted), evaluate(made, feeds, wanted)
    told = evaluate(made, feeds, given={name: before[name] for name in wanted})
    names = [output.name for output in given.graph.output]
    drift = lambda values: rewriters.drift(*([[np.asarray(v[n], np.float64) for n in names]] for v in (before, values)), names)
    other = sum(int((before[name] != after[name]).sum()) for name in wanted)
    return [f"{drift(after):.1e}", f"{other} of {sum(before[name].size for name in wanted)}", f"{drift(told):.1e}"]


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--joint", required=True)
    parser.add_argument("--models", default="")
    parser.add_argument("--compiler", default="build/release/bin/mpt-opt")
    options = parser.parse_args()
    print("| graph | drift | choices that came out otherwise | drift with the given graph's choices |\n|---|---|---|---|")
    for path in sorted(glob.glob(os.path.join(options.joint, "*.joint.onnx"))):
        name = os.path.basename(path).split(".")[0]
        if not options.models or name in options.models.split(","):
            print(f"| {name} | " + " | ".join(row(path, options.compiler)) + " |", flush=True)


if __name__ == "__main__":
    main()
