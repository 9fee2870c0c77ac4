#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Trains the models of the corpus, saves them as .onnx, and holds the files against the trainers that wrote them.

  check_saved.py CORPUS [--models a,b] [--forms ts,dyn] [--policies fp32,...] [--steps 10] [--markdown FILE]

CORPUS is the folder that scripts/corpus.sh made. For each graph and policy, after the steps:
  checker   ONNX's full checker takes the saved file
  runtime   ONNX Runtime, on the file with its norms and dropouts in the form for inference, is within the error model's tolerance of
            `predict`, and nearer to it than ONNX Runtime's results of the original file
  bits      mpt-run's results of the saved file and of the original one with the trainer's state are bitwise identical
  kept      all bytes but the elements of trained tensors are the original ones, in the same places
Models whose loss is in the graph alone are compared by `evaluate`. Ends with a summary; the status is non-zero when a graph failed.
"""
import argparse
import os
import pathlib
import sys
import tempfile
import time

import numpy as np
import onnx
import onnxruntime

import check_corpus
import step_files
from step_files import mpt_run

POLICIES = ("fp32", "amp-f16", "amp-bf16", "fp8-hybrid")
LOSS_IN_GRAPH = "lstm_cls gru_lm tcn seq2seq deepspeech ssd".split()
PARAMETER, MASTER, STATISTIC = 0, 1, 3  # mpt_role
GRAPH, INITIALIZER, NODE, ATTRIBUTE, NODE_TENSOR, NODE_GRAPH, NAME, RAW = 7, 5, 1, 5, 5, 6, 8, 9  # fields of onnx.proto


def fields(data, begin, end):
    """(field, start, end) of each field with a length, and of the others their place."""
    def varint(at):
        value = shift = 0
        while True:
            value |= (data[at] & 127) << shift
            at, shift = at + 1, shift + 7
            if data[at - 1] < 128:
                return value, at
    while begin < end:
        tag, begin = varint(begin)
        kind, size = tag & 7, {1: 8, 5: 4}.get(tag & 7)
        if kind == 0:
            _, begin = varint(begin)
            continue
        if kind == 2:
            size, begin = varint(begin)
        yield tag >> 3, begin, begin + size
        begin += size


def elements(data, begin=0, end=None, inside=(GRAPH,)):
    """(name of the tensor, start, end) of all raw elements of a file's initializers and constants."""
    for field, first, last in fields(data, begin, len(data) if end is None else end):
        if inside == "tensor":
            continue
        if inside == (GRAPH,) and field == GRAPH or inside == "attribute" and field == NODE_GRAPH:
            yield from elements(data, first, last, "graph")
        elif inside == "graph" and field == NODE:
            yield from elements(data, first, last, "node")
        elif inside == "node" and field == ATTRIBUTE:
            yield from elements(data, first, last, "attribute")
        elif inside == "graph" and field == INITIALIZER or inside == "attribute" and field == NODE_TENSOR:
            parts = {part: (a, b) for part, a, b in fields(data, first, last)}
            if NAME in parts and RAW in parts:
                yield bytes(data[slice(*parts[NAME])]).decode(), *parts[RAW]


def changed_elsewhere(before, after, trained):
    """The difference outside the elements of trained tensors; nothing where the files agree there."""
    if len(before) != len(after):
        return f"{len(after)} bytes, not {len(before)}"
    differs = np.frombuffer(before, np.uint8) != np.frombuffer(after, np.uint8)
    for name, first, last in elements(before):
        if name in trained:
            differs[first:last] = False
    return f"{differs.sum()} bytes elsewhere, the first at {np.argmax(differs)}" if differs.any() else ""


def for_inference(model):
    """The file's graph with norms and dropouts as after training."""
    for nodes in (model.graph.node, *(function.node for function in model.functions)):
        for node in nodes:
            if node.op_type == "BatchNormalization":
                del node.output[1:]
                for attribute in node.attribute:
                    if attribute.name == "training_mode":
                        attribute.i = 0
            elif node.op_type == "Dropout":
                del node.input[2:], node.output[1:]
    made = {output for node in model.graph.node for output in node.output} | {tensor.name for tensor in model.graph.initializer}
    kept = [value for value in model.graph.output if value.name in made]
    del model.graph.output[:]
    model.graph.output.extend(kept)
    return model.SerializeToString()


def in_onnxruntime(path, feeds, result):
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads, options.log_severity_level = 1, 4
    session = onnxruntime.InferenceSession(for_inference(onnx.load(path)), options, providers=["CPUExecutionProvider"])
    names = {value.name for value in session.get_inputs()}
    return session.run([result], {name: value for name, value in feeds.items() if name in names})[0]


def model_of(corpus, form, model):
    """(path, flags, feeds) of a model whose loss the compiler adds, else of the one with its loss."""
    feeds = check_corpus.load(os.path.join(corpus, "forward", model + ".npz"))
    loss = check_corpus.ADDED_LOSS.get(model, "none")
    if loss != "none":
        feeds["labels" if loss.startswith("softmax") else "target"] = feeds.pop("y")
    path = os.path.join(corpus, "forward", form, f"{model}.{'loss' if loss == 'none' else 'logits'}.onnx")
    return (path, loss, feeds) if os.path.exists(path) else None


def check(path, loss, feeds, policy, steps, folder):
    """Error in ONNX Runtime over its tolerance, and how many tensors have changed; raises step_files.Failed."""
    import mpt
    flags = {"loss": loss, "optimizer": "sgd,lr=0.01", "policy": policy}
    words = [f"--{name}={value}" for name, value in flags.items()]
    mpt.compile(path, out=folder / "lib", quiet=True, **flags)
    trainer = mpt.Trainer(folder / "lib", threads=1)
    for _ in range(steps):
        trainer.step({name: value for name, value in feeds.items() if name in trainer.inputs("step")})
    saved = folder / "saved.onnx"
    trainer.save_onnx(saved)
    trainer.save(folder / "state")
    onnx.checker.check_model(str(saved), full_check=True)
    trained = {tensor.name.decode() for tensor, role in trainer._state() if role in (PARAMETER, STATISTIC)}
    if where := changed_elsewhere(pathlib.Path(path).read_bytes(), saved.read_bytes(), trained):
        raise step_files.Failed("kept: " + where)
    function = "evaluate" if loss == "none" else "predict"
    given = {name: feeds[name] for name in trainer.inputs(function)}
    result, value = next(iter(trainer.run(function, given).items()))
    # The file computes in its own types, but for which the error model has the policy's.
    outside = {name: value for name, value in feeds.items()} | {"labels": feeds.get("labels")}
    theirs, untrained = (np.asarray(in_onnxruntime(file, outside, result)) for file in (saved, path))
    tolerance = compare_bits(path, saved, words, function, given, trainer, folder, result)
    error = float(np.max(np.abs(theirs.astype(np.float64) - value)))
    before = float(np.max(np.abs(untrained.astype(np.float64) - value)))
    if not error <= max(tolerance, 1e-30) or not error < before:
        raise step_files.Failed(f"runtime: {error:.1e} from predict, expected at most {tolerance:.1e} and less than the untrained {before:.1e}")
    return error, tolerance, before


def compare_bits(path, saved, words, function, given, trainer, folder, result):
    """Runs both files in the interpreter; returns the error model's tolerance of the result."""
    state = mpt_run.read_tensors(folder / "state")
    roles = {tensor.name.decode(): role for tensor, role in trainer._state()}
    in_file = {name for name, _, _ in elements(pathlib.Path(saved).read_bytes())}
    mpt_run.write_tensors(folder / "rest", {name: value for name, value in state.items()  # scales of 8-bit types have no place in the file
                                            if name not in in_file and roles[name] not in (PARAMETER, MASTER)})
    mpt_run.write_tensors(folder / "in", given)
    for file, states, out in ((path, "state", "a"), (saved, "rest", "b")):
        step_files.call("mpt-run", file, *words, f"--function={function}", f"--inputs={folder}/in", f"--state={folder}/{states}",
                        f"--outputs={folder}/{out}", f"--tolerances={folder}/{out}.tolerances")
    wrong = step_files.differences(mpt_run.read_tensors(folder / "a"), mpt_run.read_tensors(folder / "b"))
    if wrong:
        raise step_files.Failed("bits: " + ", ".join(wrong))
    return float(mpt_run.read_tensors(folder / "b.tolerances")[result])


def main():
    ap = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    ap.add_argument("corpus")
    ap.add_argument("--models", default=",".join([*check_corpus.MODELS, *LOSS_IN_GRAPH]))
    ap.add_argument("--forms", default="ts,dyn")
    ap.add_argument("--policies", default=",".join(POLICIES))
    ap.add_argument("--steps", type=int, default=10)
    ap.add_argument("--markdown", metavar="FILE", help="append a table row for every graph")
    args = ap.parse_args()
    passed = failed = 0
    for model in args.models.split(","):
        for form in args.forms.split(","):
            if (found := model_of(args.corpus, form, model)) is None:
                print(f"{form}/{model}: the exporter cannot write this graph", flush=True)
                continue
            cells = []
            for policy in args.policies.split(","):
                start = time.time()
                with tempfile.TemporaryDirectory() as folder:
                    try:
                        cells.append("{:.0e}/{:.0e}/{:.0e}".format(*check(*found, policy, args.steps, pathlib.Path(folder))))
                        passed += 1
                    except Exception as problem:  # one graph's failure is its cell
                        cells.append(f"**{type(problem).__name__}: " + " ".join(str(problem).split())[-300:] + "**")
                        failed += 1
                print(f"{form}/{model} {policy}: {cells[-1]}  {time.time() - start:.0f} s", flush=True)
            if args.markdown:
                with open(args.markdown, "a", encoding="utf-8") as file:
                    file.write(f"| {model} | {form} | " + " | ".join(cells) + " |\n")
    print(f"{passed} saved files, {failed} failed")
    return 1 if failed or not passed else 0


if __name__ == "__main__":
    sys.exit(main())
