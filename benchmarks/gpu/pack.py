"""Fills a folder with what a machine with a GPU needs: pack.py FOLDER [--models a,b] [--policies p,q] [--arch sm_90].

FOLDER/cases/<case>/<policy>: small models with their weights, five batches' losses as the CPU computed them.
FOLDER/speed/<model>/<policy>: libraries of whole models; of the weights only names, types and shapes travel.
"""
from __future__ import annotations

import argparse
import json
import os
import pathlib
import shutil
import struct
import subprocess
import sys

import numpy as np

HERE = pathlib.Path(__file__).resolve().parent
ROOT = HERE.parent.parent
sys.path[:0] = [str(ROOT / "python"), str(ROOT / "test" / "python")]
POLICIES = "fp32,amp-f16,amp-bf16,als-f16,fp8-hybrid,fp8-current,fp8-e5m2"
STEPS = 5


def compile(opt, model, out, policy, optimizer, *flags):
    command = [opt, model, f"--policy={policy}", f"--optimizer={optimizer}", "--quiet", "-o", out, *flags]
    done = subprocess.run([str(word) for word in command], stderr=subprocess.PIPE, text=True)
    if done.returncode:
        shutil.rmtree(out, ignore_errors=True)
        return done.stderr.strip().splitlines()[-1] if done.stderr.strip() else f"status {done.returncode}"
    for header in pathlib.Path(out).glob("*.h"):
        header.unlink()
    return None


def small_cases():
    """{name: (make(path) -> batch)} of the tests that train without a GPU."""
    import test_cuda
    return {"mlp": test_cuda.mlp, "cnn": test_cuda.cnn}


def pack_case(opt, name, make, policy, folder, arch):
    import mpt
    folder.mkdir(parents=True)
    x = make(folder / "model.onnx")
    labels = np.arange(len(x), dtype=np.int64) % 5
    loss = "--loss=softmax-cross-entropy"
    problem = compile(opt, folder / "model.onnx", folder / "cuda", policy, "adamw,lr=1e-2", loss, "--target=cuda", f"--arch={arch}")
    problem = problem or compile(opt, folder / "model.onnx", folder / "cpu", policy, "adamw,lr=1e-2", loss)
    if problem:
        shutil.rmtree(folder)
        return problem
    with mpt.Trainer(folder / "cpu") as trainer:
        target = next(n for n in trainer.inputs() if n not in ("x", "learning_rate"))
        batch = {"x": x, target: labels}
        losses = [trainer.step(batch).loss for _ in range(STEPS)]
    np.savez(folder / "batch.npz", **batch)
    (folder / "expected.json").write_text(json.dumps({"losses": losses, "policy": policy}))
    shutil.rmtree(folder / "cpu")
    (folder / "model.onnx").unlink()
    return None


def pack_model(opt, model, policy, folder, arch, scratch):
    source = scratch / model
    if not (source / "optimizer").exists():
        subprocess.run([sys.executable, ROOT / "benchmarks" / "export.py", model, source], check=True, stdout=subprocess.DEVNULL)
    optimizer = (source / "optimizer").read_text()
    problem = compile(opt, source / "model.onnx", folder, policy, optimizer, "--target=cuda", f"--arch={arch}",
                      f"--report=kernels={source}/{policy}.json", f"--report=memory={source}/{policy}-memory.json")
    if problem:
        return problem
    for name in (f"{policy}.json", f"{policy}-memory.json"):
        shutil.copy(source / name, folder / ("kernels.report" if "memory" not in name else "memory.report"))
    for weights in folder.glob("*.safetensors"):
        with open(weights, "rb") as file:
            length, = struct.unpack("<Q", file.read(8))
            (folder / "weights.json").write_bytes(file.read(length))
        weights.unlink()
    return None


def main() -> int:
    parse = argparse.ArgumentParser()
    parse.add_argument("folder", type=pathlib.Path)
    parse.add_argument("--models", default="resnet50-gpu,bert-gpu,gpt2-gpu")
    parse.add_argument("--policies", default=POLICIES)
    parse.add_argument("--arch", default="sm_90")
    parse.add_argument("--build", type=pathlib.Path, default=ROOT / "build" / "release")
    parse.add_argument("--scratch", type=pathlib.Path, required=True)
    a = parse.parse_args()
    opt = a.build / "bin" / "mpt-opt"
    os.environ.setdefault("MPT_OPT", str(opt))
    left_out = {}
    for policy in a.policies.split(","):
        for name, make in small_cases().items():
            problem = pack_case(opt, name, make, policy, a.folder / "cases" / name / policy, a.arch)
            if problem:
                left_out[f"cases/{name}/{policy}"] = problem
        for model in filter(None, a.models.split(",")):
            problem = pack_model(opt, model, policy, a.folder / "speed" / model / policy, a.arch, a.scratch)
            if problem:
                left_out[f"speed/{model}/{policy}"] = problem
    (a.folder / "left-out.json").write_text(json.dumps(left_out, indent=2))
    for name, problem in left_out.items():
        print(f"pack: left out {name}: {problem}", file=sys.stderr)
    lib = a.folder / "mpt" / "lib"
    shutil.copytree(ROOT / "python" / "mpt", a.folder / "mpt", ignore=shutil.ignore_patterns("__pycache__"))
    lib.mkdir(exist_ok=True)
    shutil.copy(a.build / "lib" / "libmpt_rt_cuda.so", lib)
    for script in ("run.py", "bench.py"):
        shutil.copy(HERE / script, a.folder)
    shutil.copy(ROOT / "benchmarks" / "models.py", a.folder)
    return 0


if __name__ == "__main__":
    sys.exit(main())
