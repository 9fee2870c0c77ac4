# SPDX-License-Identifier: Apache-2.0
"""Of pack.py: small models in which every kind of library call and of the runtime's own kernels runs, with results of the library
for the CPU: losses, and gradients of all parameters."""
from __future__ import annotations

import json
import pathlib
import re
import shutil
from dataclasses import dataclass, field

import gradients
import numpy as np
from compiling import compile

STEPS = 5
EIGHT = ("fp8-hybrid", "fp8-current", "fp8-e5m2")
HALVES = ("amp-bf16", "amp-f16")


@dataclass
class Small:
    path: pathlib.Path
    batch: dict             # without its target
    target: np.ndarray | None
    flags: list = field(default_factory=lambda: ["--loss=softmax-cross-entropy"])
    policies: tuple = ()    # the only ones it is for; all if empty
    arch: str = ""          # its own


def models(scratch, corpus, wanted) -> dict:
    """{name: Small}"""
    import cuda_models as make
    attention = lambda **shape: lambda path: make.attention(path, **{"batch": 2, "heads": 2, "depth": 64, **shape})  # noqa: E731
    # Rows and keys that fill no tile; four keys at a time and one. The names of models with dropout say which code runs on a Hopper.
    dropped = {"length": 200, "dropout": 0.1, "mask": "causal"}
    odd = {"length": 201, "dropout": 0.1, "mask": "padding", "depth": 128, "batch": 1}
    shared = {"length": 200, "heads": 4, "key_heads": 1, "mask": "both", "depth": 128, "batch": 1}
    plans = {
        "mlp": (make.mlp, (), ""), "cnn": (make.cnn, (), ""), "attention": (attention(length=200, mask="both"), (), ""),
        "gpt": (make.language, (), ""), "bert": (lambda path: make.language(path, "bert", vocabulary=96), (), ""),
        "chain": (make.chain, ("amp-bf16", *EIGHT), ""), "block": (make.normalized, ("fp32", *HALVES, "autocast-cuda-bf16", "fp8-hybrid"), ""),
        "convolutions": (make.convolutions, ("fp32", "amp-bf16", "amp-f16", "fp8-hybrid"), ""), "depthwise": (make.depthwise, ("fp32", *HALVES), ""),
        # A head whose products run over rounded extents, of just enough operations.
        "vocabulary": (lambda path: make.language(path, layers=1, width=256, tokens=512, batch=4, vocabulary=2051), HALVES, ""),
        "feedforward": (make.feedforward, (), ""), "transformer": (make.transformer, ("amp-bf16", *EIGHT), ""),
        **{f"{name}{code}": (attention(**shape), HALVES, arch) for name, shape in (("dropped", dropped), ("dropped-odd", odd), ("shared", shared))
           for code, arch in (("", ""), ("-wgmma", "sm_90a"))}}
    found = {}
    for name, (build, policies, arch) in plans.items():
        path = scratch / f"{name}.onnx"
        x = build(path)
        isText = x.dtype == np.int64
        target = np.roll(x, -1).ravel() if isText else np.arange(len(x), dtype=np.int64) % 5
        found[f"own-{name}"] = Small(path, {"ids" if isText else "x": x}, target, policies=policies, arch=arch)
    if corpus:
        import check_corpus
        for name in check_corpus.MODELS:
            for form in ("loss", "composed"):
                path = corpus / "forward" / "ts" / f"{name}.{form}.onnx"
                if path.exists():
                    found[name] = Small(path, check_corpus.load(corpus / "forward" / f"{name}.npz"), None, ["--loss=none", "--no-dropout"])
                    break
    return {name: what for name, what in found.items() if re.search(wanted, name)}


def other(batch: dict) -> dict:
    """Another batch of the same values: rows in another order, each input in its own, so that results left of the last call are wrong."""
    return {name: np.roll(value, i + 1, 0 if len(value) > 1 else -1) if value.ndim else value for i, (name, value) in enumerate(batch.items())}


def trained(library, small) -> dict:
    """Results of the library for the CPU: {"batches", "gradients" of each, "skips" until they are finite, "evaluated": the loss of each
    in evaluation form, "losses" of steps}."""
    import mpt
    with mpt.Trainer(library) as trainer:
        inputs, batch = trainer.inputs(), small.batch
        if small.target is not None:
            batch = {**batch, next(n for n in inputs if n not in batch and n != "learning_rate"): small.target}
        batch = {name: value for name, value in batch.items() if name in inputs}
        batches, skips = [batch, other(batch)], 0
        while True:
            found = [trainer.gradients(each)[1] for each in batches]
            if all(np.isfinite(value).all() for each in found for value in each.values()):
                break
            if skips == 30 or not trainer.step(batch).skipped:  # a scale that is too large; parameters stay
                raise ValueError("expected finite gradients, got others in a step that was not skipped")
            skips += 1
        return {"batches": batches, "gradients": found, "skips": skips, "evaluated": [float(trainer.evaluate(each)["loss"]) for each in batches],
                "losses": [trainer.step(batch).loss for _ in range(STEPS)]}


exact: dict = {}  # gradients in FP32 by model


def pack_dry(opt, small, policy, folder, arch):
    """A library for CUDA, for dry runs alone: its expected results are placeholders."""
    problem = compile(opt, small.path, folder / "cuda", *small.flags, "--optimizer=adamw,lr=1e-3", f"--policy={policy}", "--target=cuda",
                      f"--arch={arch if arch == 'host' else small.arch or arch}")
    if problem:
        return problem
    manifest = json.loads(next(folder.glob("cuda/*.json")).read_text())
    names = [entry["name"] for entry in manifest["functions"]["step"]["inputs"] if entry["name"] not in (*small.batch, "learning_rate")]
    batch = {**small.batch, **({names[0]: small.target} if small.target is not None else {})}
    for number in range(2):
        np.savez(folder / f"batch{number}.npz", **batch)
    (folder / "expected.json").write_text(json.dumps({"losses": [1.0], "evaluated": [1.0, 1.0], "policy": policy, "skips": 0}))
    return None


def pack(opt, small, policy, folder, arch):
    """A library for CUDA with its expected results; why not, or None."""
    flags = [*small.flags, "--optimizer=adamw,lr=1e-3"]
    arch = arch if arch == "host" else small.arch or arch
    problem = compile(opt, small.path, folder / "cuda", *flags, f"--policy={policy}", "--target=cuda", f"--arch={arch}")
    for kind in dict.fromkeys(("fp32", policy)):
        if not problem and not (kind == "fp32" != policy and small.path in exact):
            problem = compile(opt, small.path, folder / kind, *flags, f"--policy={kind}")
    if not problem:
        try:
            if small.path not in exact:
                exact[small.path] = trained(folder / "fp32", small)
            own = exact[small.path] if policy == "fp32" else trained(folder / policy, small)
            write(folder, policy, own, exact[small.path])
        except Exception as error:  # a model that this machine cannot run is left out
            problem = str(error)
    for kind in ("fp32", policy):
        shutil.rmtree(folder / kind, ignore_errors=True)
    if problem:
        shutil.rmtree(folder, ignore_errors=True)
    return problem


def write(folder, policy, own, fp32) -> None:
    noise = []
    for number, (batch, got, want) in enumerate(zip(own["batches"], own["gradients"], fp32["gradients"])):
        np.savez(folder / f"batch{number}.npz", **batch)
        np.savez(folder / f"gradients{number}.npz", **gradients.shrunk(want))
        noise.append(gradients.noises(got, want))
    (folder / "expected.json").write_text(json.dumps({"losses": own["losses"], "evaluated": own["evaluated"], "policy": policy, "skips": own["skips"], "noise": noise}))
