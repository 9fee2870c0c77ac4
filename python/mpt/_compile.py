# SPDX-License-Identifier: Apache-2.0
"""mpt.compile: runs mpt-opt on an ONNX file or a PyTorch module."""
import os
import pathlib
import subprocess
import tempfile

import numpy as np

from ._native import find_compiler


class CompileError(RuntimeError):
    """mpt-opt refused the model; the text is its diagnostic."""


def option(name: str, value) -> list:
    """Keyword to command line: keep_f32="/head.*" is --keep-f32=/head.*, dropout=False is --no-dropout, a list repeats the
    flag, a dict is NAME=VALUE each, and a list in it is
    VALUE,VALUE."""
    flag = "--" + name.replace("_", "-")
    if value is None:
        return []
    if value is True:
        return [flag]
    if value is False:
        return ["--no-" + name.replace("_", "-")]
    if isinstance(value, dict):
        joined = lambda item: ",".join(map(str, item)) if isinstance(item, (list, tuple)) else item
        return [f"{flag}={joined(k)}={joined(v)}" for k, v in value.items()]
    if isinstance(value, (list, tuple)):
        return [item for v in value for item in option(name, v)]
    return [f"{flag}={value}"]


def compile(model, *, out, loss=None, optimizer=None, policy=None, bind=None, inputs=None,
            input_names=None, name=None, emit="library", replicas=None, world=None, **flags) -> str:
    """Compiles a model for training into the folder `out`, which it returns.

    model        path of an .onnx file, or a torch.nn.Module
    loss         loss to add: softmax-cross-entropy, mse, l1, bce-with-logits, or none (the default): the model has one; or a
                 list of losses that name their outputs, such as "mse,output=image,weight=0.5"
    optimizer    name and settings, such as "adamw,lr=1e-3,weight-decay=0.01"; or a list, those after the first with the
                 parameters that they update, such as "sgd,lr=0.1,params=head\\..*"
    policy       fp32 (the default), amp-f16, amp-bf16, or a policy file; an 8-bit one may end in ",measure=FILE", which keeps
                 8 bits where a table of `python -m mpt.measure` has them faster
    bind         {"N": 32}: sizes of symbolic dimensions; {"N": [1, 8, 32]} makes a library of all these sizes,
                 and {("N", "M"): 32} binds both symbols
    inputs       example inputs of a torch module: a tuple of tensors, or a dict by name
    input_names  names for the inputs of a torch module given as a tuple
    name         name of the library; the file's stem by default
    replicas     batches of the model that a global step takes, divided over processes: the same bits on any number of them; or
                 "any", one batch a process, which is the default in a world of several processes; with shard_optimizer=True
                 masters and slots are divided over them, so that a process holds those of its own alone; with
                 sync_batch_norm=True batch norms take the statistics of all their rows
    world        mpt.init(): rank 0 compiles and the others wait, so that a folder that all see is written once
    flags        further options of mpt-opt: keep_f32="/head.*" is --keep-f32=/head.*, dropout=False is --no-dropout

    Raises CompileError with mpt-opt's diagnostic.
    """
    if world is not None:
        replicas = replicas or ("any" if world.size > 1 else None)
        return _compile_once(world, lambda: compile(
            model, out=out, loss=loss, optimizer=optimizer, policy=policy, bind=bind, inputs=inputs, input_names=input_names,
            name=name, emit=emit, replicas=replicas, **flags), os.fspath(out))
    flags["replicas"] = replicas
    if isinstance(model, (str, os.PathLike)):
        return run(model, out, loss=loss, optimizer=optimizer, policy=policy, emit=emit, name=name, bind=bind, **flags)
    from ._torch import export
    with tempfile.TemporaryDirectory() as folder:
        path = pathlib.Path(folder) / f"{name or type(model).__name__.lower()}.onnx"
        export(model, path, inputs, input_names)
        return run(path, out, loss=loss, optimizer=optimizer, policy=policy, emit=emit, name=name, bind=bind, **flags)


def _compile_once(world, make, out: str) -> str:
    """What `make` writes on rank 0, known to be there on all ranks; its error on all of them."""
    problem = ""
    if world.rank == 0:
        try:
            make()
        except Exception as error:  # whatever it is, the others must not wait for a folder that never comes
            problem = str(error) or type(error).__name__
    text = np.zeros(4096, np.uint8)
    raw = problem.encode()[:text.size]
    text[:len(raw)] = np.frombuffer(raw, np.uint8)
    problem = bytes(world.broadcast(text)).rstrip(b"\0").decode(errors="replace")
    if problem:
        raise CompileError(problem)
    return out


def run(path, out, **flags) -> str:
    command = [find_compiler(), os.fspath(path), "--quiet"]
    for flag, value in flags.items():
        command += option(flag, value)
    try:
        done = subprocess.run([*command, "-o", os.fspath(out)], stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                              stderr=subprocess.PIPE, text=True, errors="replace")
    except OSError as problem:
        raise CompileError(f"cannot run {command[0]}: {problem}") from problem
    if done.returncode:
        text = (done.stderr or done.stdout).strip()
        how = f"died of signal {-done.returncode}" if done.returncode < 0 else f"failed with status {done.returncode}"
        raise CompileError(text if text and done.returncode > 0 else f"mpt-opt {how}: {text}")
    return os.fspath(out)
