# SPDX-License-Identifier: Apache-2.0
"""Fills a folder with all that a machine with a GPU needs: pack.py FOLDER --scratch FOLDER [--corpus FOLDER] [--models a,b] ...

data.tar.xz in it holds
  conformance/<file>-<type>  the conformance suite as libraries, with inputs, the interpreter's results and their tolerances
  training/<model>/<policy>  small models (of the corpus too, where it is given) with their weights, two batches, and the gradients
                             and losses of five steps as the library for the CPU computed them
  digits/<policy>            a model that learns to recognize digits, its data, and the processor's result
  products/<model>/<policy>  the products of a model under an 8-bit policy, to be timed
  speed/<model>/<policy>     libraries of whole models; of large weights their origin alone travels (weights.json)
Parts that could not be made are named in left-out.json with their reasons. Cases of the conformance suite that have no form on a GPU
may be among them; anything else fails the call, unless --partial says that less will do.
"""
from __future__ import annotations

import argparse
import hashlib
import importlib.util
import json
import os
import pathlib
import re
import shutil
import struct
import subprocess
import sys
import tarfile
import tempfile
import time

import numpy as np
import pack_small
from compiling import compile

HERE = pathlib.Path(__file__).resolve().parent
ROOT = HERE.parent.parent
sys.path[:0] = [str(ROOT / "python"), str(ROOT / "test" / "python"), str(ROOT / "test" / "cts"), str(ROOT / "test" / "e2e")]
POLICIES = "fp32,amp-bf16,autocast-cuda-bf16,amp-f16,als-f16,fp8-hybrid,fp8-current,fp8-e5m2"
PRODUCTS = ("bert-gpu", "gpt2-gpu", "gpt4096-gpu")  # none of resnet50-gpu, whose convolutions are not in 8 bits
LARGE = 3  # tensors whose values are checked where they are made again
SMALL = 4096  # bytes of a state tensor that travels as it is


# ---- conformance

def pack_conformance(opt, kind, pattern, folder, arch):
    """{case: why it was left out}"""
    import run_cts
    left_out = {}
    for file, group in run_cts.cases(kind).items():
        group = [case for case in group if re.search(pattern, case.name)]
        for name, problem in pack_cases(opt, run_cts, group, folder / f"{file.stem}-{kind}", arch).items():
            left_out[f"conformance/{name}/{kind}"] = problem
    return left_out


def pack_cases(opt, run_cts, group, folder, arch):
    if not group:
        return {}
    with tempfile.TemporaryDirectory() as scratch:
        module = pathlib.Path(scratch, "module.mlir")
        module.write_text('module attributes {mpt.name = "case"} {\n' + "".join(case.text for case in group) + "}\n")
        problem = compile(opt, module, folder, "--from=fusion", "--target=cuda", f"--arch={arch}", "--emit=library")
        if problem and len(group) == 1:
            return {group[0].name: problem}
        if problem:
            return {name: text for case in group
                    for name, text in pack_cases(opt, run_cts, [case], folder.with_name(f"{case.name}-{case.kind}"), arch).items()}
        tensors, left_out = {}, {}
        for case in group:
            inputs = case.inputs(1)
            run_cts.write_tensors(f"{scratch}/in.safetensors", inputs)
            done = run_cts.interpret(module, case, scratch, f"--outputs={scratch}/out.safetensors",
                                     f"--tolerances={scratch}/tolerances.safetensors")
            if done.returncode:
                left_out[case.name] = done.stderr.strip()
                continue
            from mpt_run import read_tensors
            for what, found in (("in", inputs), ("out", read_tensors(f"{scratch}/out.safetensors")),
                                ("tolerance", read_tensors(f"{scratch}/tolerances.safetensors"))):
                tensors.update({f"{case.function}/{what}/{name}": value for name, value in found.items()})
        run_cts.write_tensors(folder / "cases.safetensors", tensors)
        return left_out


# ---- digits

def pack_digits(opt, _, policy, folder, arch):
    import digits
    place = importlib.util.spec_from_file_location("quickstart_models", ROOT / "examples" / "quickstart" / "models.py")
    examples = importlib.util.module_from_spec(place)  # benchmarks has models of its own
    place.loader.exec_module(examples)
    try:
        from sklearn.datasets import load_digits
    except ImportError as problem:
        return f"{problem}: install scikit-learn beside PyTorch"
    data, batch = load_digits(), 32
    order = np.random.default_rng(0).permutation(len(data.target))
    x, y, cut = data.images[order, None].astype(np.uint8), data.target[order].astype(np.int64), len(order) // 5
    with tempfile.TemporaryDirectory() as scratch:
        path = examples.digits_cnn(f"{scratch}/digits.onnx", batch, 0)
        flags = ["--loss=softmax-cross-entropy", f"--policy={policy}", "--optimizer=adamw,lr=1e-3"]
        problem = compile(opt, path, folder / "cuda", *flags, "--target=cuda", f"--arch={arch}") or compile(opt, path, folder / "cpu", *flags)
    if problem:
        return problem
    np.savez(folder / "digits.npz", x=x[cut:], y=y[cut:], held_x=x[:cut], held_y=y[:cut])
    (folder / "expected.json").write_text(json.dumps({"policy": policy, "batch": batch, **digits.train(folder / "cpu", digits.load(folder), batch, {})}))
    shutil.rmtree(folder / "cpu")
    return None


# ---- products

def pack_products(opt, model, policy, folder, arch, scratch):
    """A library that times a model's products in 16 and in 8 bits; `model` is a name, or the file of a small one with its flags."""
    path, flags = model if isinstance(model, tuple) else (export(model, scratch), [f"--bind=batch={rows_of(model)}"])
    return compile(opt, path, folder, f"--policy={policy}", "--emit=products", "--target=cuda", f"--arch={arch}", *flags)


def small_chain(scratch):
    """(file, flags) of three layers, of which the middle one has 8-bit operands."""
    import cuda_models
    path = scratch / "chain.onnx"
    cuda_models.chain(path)
    return path, ["--loss=softmax-cross-entropy"]


# ---- speed

def export(model, scratch):
    """The file of a whole model, exported once."""
    source = scratch / model
    if not (source / "model.onnx").exists():
        subprocess.run([sys.executable, ROOT / "benchmarks" / "export.py", model, source, "17", "2"], check=True, stdout=subprocess.DEVNULL)
    return source / "model.onnx"


def rows_of(model):
    import models
    return len(next(iter(models.build(model).inputs.values())))


def pack_model(opt, model, policy, folder, arch, scratch):
    """A library without its weights, and the compiler's reports on its kernels and memory."""
    import models
    source = export(model, scratch)
    case = models.build(model)
    rows = len(next(iter(case.inputs.values())))
    reports = {kind: scratch / f"{model}-{policy}-{kind}.json" for kind in ("kernels", "memory")}
    problem = compile(opt, source, folder, f"--policy={policy}", f"--optimizer={case.optimizer}", "--target=cuda",
                      f"--arch={arch}", f"--bind=batch={rows}", *(f"--report={kind}={path}" for kind, path in reports.items()))
    if problem:
        return problem
    (folder / "report.json").write_text(json.dumps({kind: json.loads(path.read_text()) for kind, path in reports.items()}))
    weights, = folder.glob("*.safetensors")
    try:
        text = json.dumps(describe_weights(weights, case.module))
    except ValueError as problem:
        return str(problem)
    weights.unlink()
    (folder / "weights.json").write_text(text)
    return None


def layout_of(origin, entry, elements, anyway):
    """The permutation that makes a tensor's elements of PyTorch's, which it need not equal where `anyway`; else None."""
    import bench
    import torch
    types = {"F32": torch.float32, "F16": torch.float16, "BF16": torch.bfloat16}
    if origin is None or entry["dtype"] not in types:
        return None
    there = bench.narrowed(origin, types[entry["dtype"]])
    plain = list(range(there.dim()))
    for permute in (plain, plain[:1] + plain[2:] + plain[1:2]):
        value = there.permute(permute).contiguous()
        if list(value.shape) == entry["shape"] and (anyway or (value.view(torch.uint8).numpy().reshape(-1).view(elements.dtype) == elements).all()):
            return permute
    return None


def describe_weights(path, module):
    """The header of a weights file, and of every tensor where its bytes come from: "hex" (they are small), "fill" (one value), or
    "torch" (the parameter or buffer of that name, in the layout that "permute" makes), which comes first where there are two."""
    import bench
    known, statistics = dict([*module.named_parameters(), *module.named_buffers()]), dict(module.named_buffers())
    with open(path, "rb") as file:
        length, = struct.unpack("<Q", file.read(8))
        header = json.loads(file.read(length))
    data = np.memmap(path, np.uint8, "r", 8 + length)
    for name, entry in header.items():
        if name == "__metadata__":
            continue
        begin, end = entry["data_offsets"]
        raw = data[begin:end]
        size = (end - begin) // int(np.prod(entry["shape"]))
        elements, isSmall = raw.view(f"u{size}"), end - begin <= SMALL
        if isSmall:
            entry["hex"] = raw.tobytes().hex()
        # Gigabytes: if the first elements differ, the rest is not looked at.
        elif (elements[:SMALL] == elements[0]).all() and (elements == elements[0]).all():
            entry["fill"] = raw[:size].tobytes().hex()
            continue
        origin = known.get(name.removesuffix(".master"))
        # Tracing moves the statistics of batch norm; the module's initial ones are meant. Small ones travel as they are.
        permute = layout_of(origin, entry, elements, anyway=name in statistics and not isSmall)
        if permute:
            entry.update(torch=name.removesuffix(".master"), permute=permute)
        elif not isSmall:
            raise ValueError(f"the weights '{name}' are not the module's" if origin is not None else f"no origin is known for the weights '{name}'")
    made = [entry for entry in header.values() if "torch" in entry and entry["torch"] not in statistics]
    for entry in sorted(made, key=lambda entry: -(entry["data_offsets"][1] - entry["data_offsets"][0]))[:LARGE]:
        entry["sha256"] = bench.hash_of(data[slice(*entry["data_offsets"])].tobytes())
    return header


class Packed:
    """The contents of a folder, the compiler that made them, and why something was left out."""

    def __init__(self, path, opt, arch):
        self.path, self.known = path, json.loads(path.read_text()) if path.exists() else {}
        self.maker = f"{hashlib.sha256(opt.read_bytes()).hexdigest()[:16]} {arch}"

    def has(self, name, choice=""):
        return self.known.get(name, {}).get("maker") == f"{self.maker} {choice}"

    def problem(self, name):
        return self.known[name]["problem"]

    def add(self, name, problem, choice=""):
        self.known[name] = {"maker": f"{self.maker} {choice}", "problem": problem}
        self.path.write_text(json.dumps(self.known, indent=1))


def finish(folder, data, build) -> None:
    """The archive, and the scripts and the runtime beside it."""
    # The files of a whole extraction: one that was cut off is noticed.
    (data / "files.json").write_text(json.dumps({str(p.relative_to(data)): p.stat().st_size for p in sorted(data.rglob("*")) if p.is_file()}))
    with tarfile.open(folder / "data.tar.xz", "w:xz", preset=9) as archive:
        archive.add(data, "data")
    shutil.rmtree(data)
    shutil.rmtree(folder / "unfinished", ignore_errors=True)
    lib = folder / "mpt" / "lib"
    shutil.rmtree(folder / "mpt", ignore_errors=True)
    shutil.copytree(ROOT / "python" / "mpt", folder / "mpt", ignore=shutil.ignore_patterns("__pycache__", "lib", "bin"))
    lib.mkdir(exist_ok=True)
    shutil.copy(build / "lib" / "libmpt_rt_cuda.so", lib)
    for script in HERE.glob("*.py"):
        if script.name not in ("pack.py", "pack_small.py", "compiling.py"):
            shutil.copy(script, folder)
    shutil.copy(ROOT / "benchmarks" / "models.py", folder)


def main() -> int:
    parse = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parse.add_argument("folder", type=pathlib.Path)
    parse.add_argument("--models", default="resnet50-gpu,bert-gpu,gpt2-gpu,gpt4096-gpu", help="to be timed; need PyTorch and onnx here")
    parse.add_argument("--policies", default=POLICIES)
    parse.add_argument("--types", default="f32,f16,bf16", help="of the conformance suite")
    parse.add_argument("--conformance", default="", help="regular expression over FILE.FUNCTION")
    parse.add_argument("--corpus", type=pathlib.Path, help="folder that scripts/corpus.sh made")
    parse.add_argument("--training", default="", help="regular expression over small models, `digits` among them")
    parse.add_argument("--hold", action="store_true", help="leave the archive for a later call with --resume")
    parse.add_argument("--resume", action="store_true", help="go on with a folder whose packing was cut off")
    parse.add_argument("--arch", default="sm_90", help="of all but small models with attention by wgmma, which have code for sm_90a")
    parse.add_argument("--dry", action="store_true", help="small models without results, for dry runs of their calls")
    parse.add_argument("--partial", action="store_true", help="end well although something is left out")
    parse.add_argument("--build", type=pathlib.Path, default=ROOT / "build" / "release")
    parse.add_argument("--scratch", type=pathlib.Path, required=True, help="keeps exported models")
    a = parse.parse_args()
    a.build = a.build.resolve()
    os.environ.setdefault("MPT_BUILD", str(a.build))
    sys.path.append(str(HERE.parent))
    import mpt
    mpt.use_build(a.build)
    opt, left_out = a.build / "bin" / "mpt-opt", {}
    data = a.folder / "data"
    if a.resume and not data.exists() and (a.folder / "data.tar.xz").exists():
        with tarfile.open(a.folder / "data.tar.xz") as archive:
            archive.extractall(a.folder)
    data.mkdir(parents=True, exist_ok=a.resume)
    a.scratch.mkdir(parents=True, exist_ok=True)
    packed = Packed(a.folder / "packed.json", opt, a.arch)
    for kind in filter(None, a.types.split(",")):
        name = f"conformance/{kind}"
        if not packed.has(name, a.conformance):
            for library in (data / "conformance").glob(f"*-{kind}"):
                shutil.rmtree(library)
            packed.add(name, pack_conformance(opt, kind, a.conformance, data / "conformance", a.arch), a.conformance)
        left_out.update(packed.problem(name))
    policies, models = a.policies.split(","), list(filter(None, a.models.split(",")))
    small = pack_small.models(a.scratch, a.corpus, a.training)
    jobs = [(f"training/{name}/{policy}", pack_small.pack_dry if a.dry else pack_small.pack, what) for name, what in small.items() for policy in what.policies or policies if policy in policies]
    jobs += [(f"digits/{policy}", pack_digits, None) for policy in policies if policy == "amp-bf16" and re.search(a.training, "digits")]
    jobs += [(f"speed/{model}/{policy}", pack_model, model) for model in models for policy in policies]
    if "fp8-hybrid" in policies:
        chosen = {"own-chain": small_chain(a.scratch), **{model: model for model in models if model in PRODUCTS}}
        jobs += [(f"products/{name}/fp8-hybrid", pack_products, what) for name, what in chosen.items()]
    for name, job, what in jobs:
        folder, unfinished = data / name, a.folder / "unfinished"
        if not packed.has(name) or not folder.exists():  # a failed job is tried again: the cause may be something that this machine lacks
            shutil.rmtree(folder, ignore_errors=True)
            shutil.rmtree(unfinished, ignore_errors=True)
            start = time.monotonic()
            problem = job(opt, what, name.split("/")[-1], unfinished, a.arch, *([a.scratch] if job in (pack_model, pack_products) else []))
            if not problem:
                folder.parent.mkdir(parents=True, exist_ok=True)
                unfinished.rename(folder)
            packed.add(name, problem)
            print(f"pack: {name}: {problem or 'ok'} ({time.monotonic() - start:.0f} s)", flush=True)
        if packed.problem(name):
            left_out[name] = packed.problem(name)
    (a.folder / "left-out.json").write_text(json.dumps(left_out, indent=1))
    for name, problem in left_out.items():
        print(f"pack: left out {name}: {problem}", file=sys.stderr)
    if lost := [name for name in left_out if not name.startswith("conformance/")]:
        if not a.partial:
            sys.exit(f"pack: expected all that was asked for, {len(lost)} could not be made: {', '.join(lost[:8])} (--partial leaves them out)")
    if a.hold:
        return 0
    finish(a.folder, data, a.build)
    return 0


if __name__ == "__main__":
    sys.exit(main())
