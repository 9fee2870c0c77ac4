#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Compiles the corpus models and holds loss, gradients and ten optimizer steps against the float64 references.

  check_corpus.py CORPUS [--models a,b] [--forms ts,dyn,opt] [--variants loss,composed,logits] [--steps sgd,adamw|none]
                  [--dynamic] [--aarch64] [--markdown FILE]

CORPUS is the folder that scripts/corpus.sh made (forward/ and ref/). Variants: loss and composed have the loss in the graph;
logits has not, and mpt adds it (models whose loss --loss= can name; compared with the reference of loss). Prints a line for every graph and ends with a
summary; the status is non-zero when any graph failed. Each graph is compiled in a process of its own, so that a crash
counts as that graph's failure. --dynamic takes the graphs with symbolic dimensions (dynamic/ and ref/dynamic/), bound to the extents
of the model's batch, in the variant loss.
"""
import argparse
import multiprocessing
import os
import sys
import tempfile
import time
import traceback

import numpy as np
import onnx

import corpus_measure as measure

MODELS = ("mlp mlp_mse mlp_l1 mlp_bce lenet lenet_classic alexnet vgg11_bn resnet18 resnet50 inception mobilenet unet "
          "unet_resize dcgan_g dcgan_d bert bert_sdpa gpt2 gpt2_sdpa vit llama transformer dlrm").split()
OPTIMIZERS = {"sgd": ("sgd,lr=0.01", ""), "adamw": ("adamw,lr=0.001,weight-decay=0.01", ".adamw")}
# The --loss= of a graph that ends in logits.
ADDED_LOSS = {"mlp_mse": "mse", "mlp_l1": "l1", "mlp_bce": "bce-with-logits", "dcgan_g": "mse", "dcgan_d": "bce-with-logits",
              "dlrm": "bce-with-logits"}
ADDED_LOSS.update(dict.fromkeys("bert bert_sdpa gpt2 gpt2_sdpa llama transformer".split(),
                                "softmax-cross-entropy,class-axis=-1,ignore-index=-100"))
ADDED_LOSS.update(dict.fromkeys("mlp lenet lenet_classic alexnet vgg11_bn resnet18 resnet50 inception mobilenet unet "
                                "unet_resize vit".split(), "softmax-cross-entropy"))
DYNAMIC = "bert dcgan_d dlrm gpt2 lenet lstm_cls mlp resnet18 unet vit".split()
STEPS = 10


def extents(model, feeds):
    """The --bind= with which the graph's inputs have the shapes of `feeds`."""
    symbols = {}
    for given in onnx.load(model, load_external_data=False).graph.input:
        for dim, extent in zip(given.type.tensor_type.shape.dim, feeds[given.name].shape if given.name in feeds else ()):
            if dim.dim_param and symbols.setdefault(dim.dim_param, extent) != extent:
                raise ValueError(f"'{dim.dim_param}' is {symbols[dim.dim_param]} and {extent} in the batch")
    return symbols


def load(path):
    with np.load(path) as archive:
        return {key: archive[key] for key in archive.files}


def machine(emulates):
    """(trainers of libraries, flags of mpt-opt): on this machine, or under emulation of AArch64."""
    import mpt

    if not emulates:
        return mpt.Trainer, {}
    sys.path.insert(0, os.path.join(os.path.dirname(__file__), "..", "emulated"))
    import emulated

    return emulated.Trainer, {"mtriple": emulated.TRIPLE}


def rows_of(corpus, key, steps, emulates, out):
    """Compiles one graph once per optimizer and returns [(the compared value, row)]."""
    import mpt

    make_trainer, flags = machine(emulates)
    dynamic = key.endswith(".dynamic")
    graphs, references = (os.path.join(corpus, *parts) for parts in ((("dynamic",), ("ref", "dynamic")) if dynamic else (("forward",), ("ref",))))
    model = os.path.join(graphs, key + ".onnx")
    model_name = key.split("/")[1].split(".")[0]
    feeds, loss = load(os.path.join(graphs, model_name + ".npz")), "none"
    bind = extents(model, feeds)
    if dynamic and not bind:
        raise ValueError("expected symbolic dimensions, got none")
    if key.endswith(".logits"):
        loss = ADDED_LOSS[model_name]
        feeds["labels" if loss.startswith("softmax") else "target"] = feeds.pop("y")
        # The fused loss is not in every export (l1 in none); the composed one has the same values.
        fused = key[:-len("logits")] + "loss"
        key = fused if os.path.exists(os.path.join(references, fused + ".f64.npz")) else fused[:-len("loss")] + "composed"
    first = {kind: load(os.path.join(references, f"{key}.{kind}.npz")) for kind in ("f64", "f32")}
    rows = []
    for name in steps or ["sgd"]:
        optimizer, suffix = OPTIMIZERS[name]
        folder = os.path.join(out, name)
        mpt.compile(model, loss=loss, optimizer=optimizer, policy="fp32", no_dropout=True, quiet=True, bind=bind, out=folder, **flags)
        trainer = make_trainer(folder)
        if not rows:
            value, gradients = trainer.gradients(feeds)
            rows.append(("loss", measure.losses([value], **first)))
            rows += [("gradient", row) for row in measure.gradients(gradients, **first)]
        if steps:
            reference = {kind: load(os.path.join(references, f"{key}{suffix}.{kind}.npz")) for kind in first}
            spread = os.path.join(references, f"{model_name}{suffix}.spread.npz")
            reference["spread"] = load(spread) if os.path.exists(spread) else None
            losses = [trainer.step(feeds).loss for _ in range(STEPS)]
            rows.append((name, measure.losses(losses, **reference)))
            rows.append((name, measure.after_steps(trainer.parameters(), **reference)))
            statistics = {k: trainer.parameter(k) for k in measure.named(reference["f64"], "state/")}
            if statistics:
                rows.append((name, measure.after_steps(statistics, **reference, kind="state/")))
    return rows


def child(connection, *arguments):
    try:
        connection.send(rows_of(*arguments))
    except BaseException as problem:  # the parent prints it as this graph's result
        connection.send(f"{type(problem).__name__}: {problem}" if not isinstance(problem, AssertionError) else traceback.format_exc())
    connection.close()


def run_apart(limit, *arguments):
    """Rows, or a text that says why there are none."""
    ours, theirs = multiprocessing.Pipe(duplex=False)
    process = multiprocessing.Process(target=child, args=(theirs, *arguments))
    process.start()
    theirs.close()
    try:
        result = ours.recv() if ours.poll(limit) else f"no result within {limit} s"
    except EOFError:
        process.join()
        result = f"died with status {process.exitcode}"
    process.kill()
    process.join()
    return result


COLUMNS = ("loss", "gradient", "sgd", "adamw")


def cells_of(result):
    """For each column "worst error / its limit", or nothing where it was not compared."""
    cells = []
    for kind in COLUMNS:
        of_kind = [row for k, row in result if k == kind]
        worst = max(of_kind, key=lambda row: row.error / row.limit if row.error == row.error else float("inf"), default=None)
        cells.append(f"{worst.error:.1e}/{worst.limit:.1e}" if worst else "")
    return cells


def line_of(result):
    """(passed, text) of one graph."""
    if isinstance(result, str):
        return False, "FAIL  " + " ".join(result.split())[:400]
    bad = [(kind, row) for kind, row in result if not row.ok]
    text = f"{'FAIL' if bad else 'ok  '}  " + "  ".join(f"{kind} {cell}" for kind, cell in zip(COLUMNS, cells_of(result)) if cell)
    if bad:
        text += f"  {len(bad)} of {len(result)} beyond: " + ", ".join(
            f"{kind} {row.what} {row.error:.2g} > {row.limit:.2g}" for kind, row in bad[:3])
    return not bad, text


def markdown_row(model, form, variant, ok, result):
    cells = ["", "", "", ""] if isinstance(result, str) else cells_of(result)
    return f"| {model} | {form} | {variant} | " + " | ".join(cells) + f" | {'yes' if ok else '**no**'} |\n"


def main():
    ap = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    ap.add_argument("corpus")
    ap.add_argument("--models")
    ap.add_argument("--forms", default="ts,dyn,opt")
    ap.add_argument("--variants")
    ap.add_argument("--dynamic", action="store_true", help="graphs with symbolic dimensions")
    ap.add_argument("--aarch64", action="store_true", help="libraries for AArch64, under emulation (test/emulated)")
    ap.add_argument("--steps", default="sgd,adamw", help="optimizers whose ten steps are compared; 'none' for gradients alone")
    ap.add_argument("--markdown", metavar="FILE", help="append a table row for every graph")
    ap.add_argument("--limit", type=float, default=300, help="seconds for one graph")
    args = ap.parse_args()
    models = args.models.split(",") if args.models else DYNAMIC if args.dynamic else MODELS
    variants = args.variants.split(",") if args.variants else ["loss"] if args.dynamic else ["loss", "composed", "logits"]
    steps = [] if args.steps == "none" else args.steps.split(",")
    multiprocessing.set_start_method("fork")
    passed = failed = skipped = 0
    print("each cell: worst error / its limit (4x float32's own error, or 1e-5), both against float64")
    for model in models:
        for form in args.forms.split(","):
            for variant in variants:
                key = f"{form}/{model}.{variant}" + (".dynamic" if args.dynamic else "")
                if variant == "logits" and model not in ADDED_LOSS:
                    continue
                if not os.path.exists(os.path.join(args.corpus, "dynamic" if args.dynamic else "forward", key + ".onnx")):
                    skipped += 1
                    print(f"{key:28s} skip  the exporter cannot write this graph", flush=True)
                    continue
                start = time.time()
                with tempfile.TemporaryDirectory() as out:
                    result = run_apart(args.limit, args.corpus, key, steps, args.aarch64, out)
                ok, text = line_of(result)
                if args.markdown:
                    with open(args.markdown, "a") as file:
                        file.write(markdown_row(model, form, variant, ok, result))
                passed, failed = passed + ok, failed + (not ok)
                print(f"{key:28s} {text}  ({time.time() - start:.1f} s)", flush=True)
    print(f"corpus: {passed} passed, {failed} failed, {skipped} skipped")
    return 1 if failed or not passed else 0


if __name__ == "__main__":
    sys.exit(main())
