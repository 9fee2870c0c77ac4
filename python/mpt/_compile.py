# SPDX-License-Identifier: Apache-2.0
"""mpt.compile: runs mpt-opt on an ONNX file or a PyTorch module."""
import json
import os
import pathlib
import subprocess
import tempfile
import warnings

import numpy as np

from . import _errors
from ._errors import CompileError, CompileWarning
from ._native import find_compiler

LIBRARIES = ("library", "static", "object", "llvm")  # outputs with a template beside them

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
    optimizer    name and settings, such as "adamw,lr=1e-3,weight-decay=0.01"; or a list, all after the first with the
                 parameters that they update, such as "sgd,lr=0.1,params=head\\..*"
    policy       fp32 (the default), amp-f16, amp-bf16, or a policy file; an 8-bit one may end in ",measure=FILE", which keeps
                 8 bits where a table of `python -m mpt.measure` has them faster
    bind         {"N": 32}: sizes of symbolic dimensions; {"N": [1, 8, 32]} makes a library of all these sizes,
                 and {("N", "M"): 32} binds both symbols
    inputs       example inputs of a torch module: a tuple of tensors, or a dict by name
    input_names  names for the inputs of a torch module given as a tuple
    name         name of the library; the file's stem by default
    replicas     batches of the model that a global step takes, divided over processes: bitwise identical on any number of
                 them; or "any", one batch a process, which is the default in a world of several processes; with
                 shard_optimizer=True masters and optimizer state are divided over them, so that a process holds its own part
                 alone; with sync_batch_norm=True batch norms take the statistics of all their rows
    world        mpt.init(): rank 0 compiles and the others wait, so that a folder that all see is written once
    flags        further options of mpt-opt: keep_f32="/head.*" is --keep-f32=/head.*, dropout=False is --no-dropout

    A torch module trains with autograd's gradients: detach, torch.no_grad, autograd.Functions and checkpointed blocks keep their
    meaning, parameters with requires_grad=False are held, and modules whose gradients cannot be kept are refused (docs/onnx.md).

    Raises CompileError with mpt-opt's diagnostics, errors first. Its warnings are mpt.CompileWarning of Python's warnings; the lists
    of trained and held tensors go to the logger "mpt". A library that an earlier call left in `out` is replaced, unless `name` is given.
    """
    if world is not None:
        replicas = replicas or ("any" if world.size > 1 else None)
        return _compile_once(world, lambda: compile(
            model, out=out, loss=loss, optimizer=optimizer, policy=policy, bind=bind, inputs=inputs, input_names=input_names,
            name=name, emit=emit, replicas=replicas, **flags), os.fspath(out))
    flags["replicas"] = replicas
    with tempfile.TemporaryDirectory() as folder:
        module = None if isinstance(model, (str, os.PathLike)) else model
        if module is not None:
            model = exported(model, folder, inputs, input_names, name, flags, loss or optimizer or emit != "onnx", emit)
        earlier = libraries(out)
        run(model, out, loss=loss, optimizer=optimizer, policy=policy, emit=emit, name=name, bind=bind, **flags)
    if emit in ("library", "llvm"):
        stem = name or pathlib.Path(model).stem
        if module is not None:
            from ._weights import write
            write(out, stem, module)
        replace(earlier, os.fspath(out), f"lib{stem}.so", named=name is not None)
    return os.fspath(out)


def exported(module, folder, inputs, input_names, name, flags: dict, trains, emit) -> str:
    """The module's file in `folder`; parameters without gradients join the ones that `flags` freezes."""
    from ._torch import export, export_inference, pattern
    path = os.path.join(folder, f"{name or type(module).__name__.lower()}.onnx")
    if trains:
        flags.setdefault("tie", ".*")  # this export merges nothing: one tensor was one in the module
    held = pattern(export(module, path, inputs, input_names, gradients=bool(trains)))
    if held and not flags.get("forward_only"):
        given = flags.get("freeze") or []
        flags["freeze"] = [*([given] if isinstance(given, str) else given), held]
    form = os.path.join(folder, "inference.onnx")
    if emit in LIBRARIES and not flags.get("inference_model") and export_inference(module, form, inputs, input_names):
        flags["inference_model"] = form
    return path


def libraries(folder) -> dict:
    """{library: files of its model} of the libraries that mpt-opt wrote into a folder earlier."""
    found, folder = {}, pathlib.Path(os.fspath(folder))
    for library in folder.glob("lib*.so") if folder.is_dir() else ():
        stem = library.stem.removeprefix("lib")
        try:
            ours = "policy" in json.loads((folder / f"{stem}.json").read_text())
        except (OSError, ValueError):
            continue
        if ours:
            found[library.name] = [folder / f"{stem}{ending}" for ending in (".json", ".h", ".safetensors", ".template", ".module")] + [library]
    return found


def replace(earlier: dict, out: str, library: str, named: bool) -> None:
    """A folder that is loaded by its name holds one library. Libraries that were given a name of their own stay."""
    others = {name: files for name, files in earlier.items() if name != library}
    if not others:
        return
    if named:
        warnings.warn(f"'{out}' also holds {', '.join(others)}: load {os.path.join(out, library)}, as the folder has several libraries",
                      CompileWarning, stacklevel=3)
        return
    for files in others.values():
        for file in files:
            file.unlink(missing_ok=True)
    warnings.warn(f"{library} replaces {', '.join(others)} in '{out}'; give name= to keep several libraries in a folder",
                  CompileWarning, stacklevel=3)


def _compile_once(world, make, out: str) -> str:
    """Lets `make` write on rank 0, and returns on all ranks when the files are there; raises its error on all of them."""
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


def run(words, out, **flags) -> str:
    """mpt-opt with words as they are, a path alone or several, and flags in Python's form."""
    command = [find_compiler(), *([os.fspath(words)] if isinstance(words, (str, os.PathLike)) else words)]
    for flag, value in flags.items():
        command += option(flag, value)
    try:
        done = subprocess.run([*command, "-o", os.fspath(out)], stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                              stderr=subprocess.PIPE, text=True, errors="replace")
    except OSError as problem:
        raise CompileError(f"cannot run {command[0]}: {problem}") from problem
    if done.returncode:
        text = _errors.failure((done.stderr or done.stdout).strip())
        how = f"died of signal {-done.returncode}" if done.returncode < 0 else f"failed with status {done.returncode}"
        raise CompileError(text if text and done.returncode > 0 else f"mpt-opt {how}: {text}")
    _errors.report(done.stderr, stacklevel=3)
    return os.fspath(out)
