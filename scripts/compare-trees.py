#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Fingerprints of a built tree's outputs for models, and the differences between two trees.

  compare-trees.py record TREE FILE MODELS... [--cells onnx,ptx,traffic,memory,step] [--only REGEX]
  compare-trees.py compare BEFORE AFTER
  compare-trees.py times BEFORE_TREE AFTER_TREE MODELS... [--only REGEX] [--policies P,P] [--rounds N]

`record` runs build/release of TREE over every .onnx and .onnxtxt file under MODELS and writes one hash (traffic and memory: figures) a cell to FILE:

  onnx     the rewritten graph, policies amp-f16, amp-bf16 and fp8-e5m2
  ptx      the kernels of the CUDA target's program for sm_90, whatever their names and order
  traffic  bytes that these kernels move, and launches (--report=kernels)
  memory   the plan of the CPU's step (--report=memory): arena and peak
  step     losses and every bit of the state after ten training steps on the CPU, one thread

A model may lie beside <stem>.npz or <stem before the first dot>.npz with its inputs; others get inputs made from their names. `compare` prints the cells that
differ and ends with status 1 when there are any; figures that became smaller are named but are no difference. `times` prints the CPU
time of a training step, one thread, of both trees that take turns: medians, and the median of the turns' ratios. A redesign runs all three
before it lands.
"""
import argparse
import concurrent.futures
import functools
import hashlib
import json
import os
import pathlib
import re
import statistics
import subprocess
import sys
import tempfile
import time

CELLS = "onnx,ptx,traffic,memory,step"
STEPS = 10
GRAPH_POLICIES = ("amp-f16", "amp-bf16", "fp8-e5m2")
STEP_POLICIES = ("fp32", "amp-f16", "amp-bf16", "als-f16", "fp8-hybrid")
DEVICE_POLICIES = ("fp32", "amp-f16", "amp-bf16", "fp8-hybrid", "fp8-current")
OPTIMIZER = "--optimizer=adamw,lr=0.001,weight-decay=0.01"
TIME_LIMIT = 900  # seconds a cell


def digest(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()[:20]


# ---- one cell

def compiler_output(tree, model, *flags) -> tuple[str, bytes]:
    """The first line of the errors, or nothing; and the compiler's output."""
    with tempfile.TemporaryDirectory() as scratch:
        out = pathlib.Path(scratch, "out")
        done = subprocess.run([f"{tree}/build/release/bin/mpt-opt", str(model), "--quiet", *flags, "-o", str(out)],
                              capture_output=True, text=True, timeout=TIME_LIMIT)
        if done.returncode or not out.exists():
            return refusal(done.stderr), b""
        return "", b"".join(file.read_bytes() for file in sorted(out.glob("*.ll"))) if out.is_dir() else out.read_bytes()


@functools.lru_cache
def without_assembler(tree: str) -> list[str]:
    """PTX alone is compared: machine code would only cost time. Trees without the flag take the variable that record() sets."""
    text = subprocess.run([f"{tree}/build/release/bin/mpt-opt", "--help"], capture_output=True, text=True).stdout
    return ["--ptxas=none"] if "--ptxas" in text else []


def refusal(errors: str) -> str:
    """The first line of a command's errors, without folders."""
    return "refused: " + re.sub(r"\S*/", "", (errors.strip().splitlines() or ["no reason"])[0])


def ptx_of(text: bytes) -> str:
    """The kernels of the PTX behind a program's listing, without names and comments and in an order of their own."""
    found = set()
    for piece in re.split(r"(?=^\s*\.visible \.entry)", text.decode(errors="replace"), flags=re.M)[1:]:
        piece = re.sub(r"//.*", "", piece)
        piece = re.sub(r"\$L__BB\d+_", "$L__BB_", piece)  # labels carry the kernel's number
        names = dict.fromkeys(re.findall(r"\b(?:kernel\w*|__\w+|table\w*|shared\w*)", piece))
        for number, name in enumerate(names):
            piece = re.sub(rf"\b{re.escape(name)}\b", f"N{number}", piece)
        found.add(piece)
    return f"{len(found)} kernels " + digest("\n".join(sorted(found)).encode())


def loss_flags(model: pathlib.Path) -> list[str]:
    """--loss for files that end in their predictions, by the file beside them that says so."""
    note = model.with_suffix(".flags")
    return note.read_text().split() if note.exists() else []


def cell(tree: str, model: pathlib.Path, kind: str, policy: str):
    policy_flag = f"--policy={policy}"
    if kind == "onnx":
        problem, data = compiler_output(tree, model, policy_flag, "--emit=onnx")
        return problem or digest(data)
    training = [policy_flag, OPTIMIZER, *loss_flags(model)]
    if kind == "ptx":
        problem, data = compiler_output(tree, model, *training, "--target=cuda", "--arch=sm_90", "--emit=llvm", *without_assembler(tree))
        return problem or ptx_of(data)
    if kind in ("traffic", "memory"):
        with tempfile.TemporaryDirectory() as scratch:
            target = ["--target=cuda", "--arch=sm_90", f"--report=kernels={scratch}/r.json"] if kind == "traffic" else [f"--report=memory={scratch}/r.json"]
            done = subprocess.run([f"{tree}/build/release/bin/mpt-opt", str(model), "--quiet", "--dry-run", *training, *target], capture_output=True,
                                  text=True, timeout=TIME_LIMIT)
            file = pathlib.Path(scratch, "r.json")
            return figures(json.loads(file.read_text())) if done.returncode == 0 and file.exists() else refusal(done.stderr)
    done = subprocess.run([sys.executable, __file__, "step", str(model), *training], capture_output=True, text=True, timeout=TIME_LIMIT,
                          env={**os.environ, "PYTHONPATH": f"{tree}/python", "OMP_WAIT_POLICY": "passive"})
    lines = done.stdout.strip().splitlines()
    return lines[-1] if done.returncode == 0 and lines else refusal((done.stderr.strip().splitlines() or [""])[-1])


def figures(report, path="") -> dict:
    """The numbers of a report by where they stand in it; lists of kernels are left out."""
    found = {}
    for key, value in report.items() if isinstance(report, dict) else []:
        where = f"{path}/{key}"
        if isinstance(value, dict):
            found.update(figures(value, where))
        elif isinstance(value, (int, float)) and not isinstance(value, bool):
            found[where] = value
    return found


def made_inputs(trainer, model: pathlib.Path) -> dict:
    """Inputs of the step: from the file beside the model, else numbers that follow from the inputs' names."""
    import numpy as np
    for name in (model.stem, model.name.split(".")[0]):
        for folder in (model.parent, model.parent.parent):
            if (folder / f"{name}.npz").exists():
                with np.load(folder / f"{name}.npz") as archive:
                    given = {key: archive[key] for key in archive.files}
                if trainer.inputs("step").keys() - {"learning_rate"} <= given.keys():
                    return {key: given[key] for key in trainer.inputs("step") if key in given}
    inputs = {}
    for name, (kind, shape) in trainer.inputs("step").items():
        rng = np.random.default_rng(int(digest(name.encode())[:8], 16))
        kind = np.dtype(str(kind).replace("bool", "bool_"))
        inputs[name] = (rng.standard_normal(shape) if kind.kind == "f" else rng.integers(0, 2, shape)).astype(kind)
    inputs.pop("learning_rate", None)
    return inputs


def train(model: str, flags: list[str]) -> None:
    """Prints the hash of ten steps."""
    import numpy as np
    import mpt
    from mpt import _native
    with tempfile.TemporaryDirectory() as scratch:
        done = subprocess.run([_native.find_compiler(), model, "--quiet", *flags, "-o", scratch], capture_output=True, text=True)
        if done.returncode:
            sys.exit(done.stderr.strip().splitlines()[0])
        with mpt.Trainer(scratch, threads=1) as trainer:
            inputs = made_inputs(trainer, pathlib.Path(model))
            losses = [trainer.step(inputs).loss for _ in range(STEPS)]
            state = {name: np.array(value) for name, value in trainer.state().items()}
    text = repr(losses).encode() + b"".join(name.encode() + state[name].tobytes() for name in sorted(state))
    print(f"loss {losses[0]:.6g} to {losses[-1]:.6g} {digest(text)}")


# ---- times

def take_turns(model: str, flags: list[str]) -> None:
    """A child that is asked for CPU seconds a step, a chunk of half a second a line of standard input."""
    import mpt
    from mpt import _native
    with tempfile.TemporaryDirectory() as scratch:
        subprocess.run([_native.find_compiler(), model, "--quiet", *flags, "-o", scratch], check=True, stderr=subprocess.DEVNULL)
        with mpt.Trainer(scratch, threads=1) as trainer:
            inputs = made_inputs(trainer, pathlib.Path(model))
            trainer.step(inputs)
            for _ in sys.stdin:
                start, steps = time.process_time(), 0
                while steps == 0 or time.process_time() - start < 0.5:
                    trainer.step(inputs)
                    steps += 1
                print((time.process_time() - start) / steps, flush=True)


def times(a) -> int:
    slower = 0
    for model in models_under(a):
        for policy in a.policies.split(","):
            flags = [f"--policy={policy}", OPTIMIZER, *loss_flags(model)]
            children = [subprocess.Popen([sys.executable, __file__, "turns", str(model), *flags], stdin=subprocess.PIPE, stdout=subprocess.PIPE,
                                         text=True, env={**os.environ, "PYTHONPATH": f"{tree}/python"}) for tree in (a.before, a.after)]
            rounds = []
            for turn in range(a.rounds + 1):
                order = children if turn % 2 else children[::-1]
                found = {}
                for child in order:
                    child.stdin.write("\n")
                    child.stdin.flush()
                    found[child.pid] = float(child.stdout.readline() or "nan")
                if turn:  # the first warms up
                    rounds.append([found[child.pid] for child in children])
            for child in children:
                child.stdin.close()
                child.wait()
            before, after = (statistics.median(column) for column in zip(*rounds))
            ratio = statistics.median(y / x for x, y in rounds)
            slower += not ratio <= 1.03
            print(f"{model.name} {policy}: {before * 1e3:.2f} ms before, {after * 1e3:.2f} ms after, ratio {ratio:.3f}", flush=True)
    return 1 if slower else 0


# ---- the commands

def models_under(a) -> list[pathlib.Path]:
    models = sorted({path for root in a.models for path in ([root] if root.is_file() else [*root.rglob("*.onnx"), *root.rglob("*.onnxtxt")])})
    return [model for model in models if not a.only or re.search(a.only, str(model))]


def record(a) -> int:
    jobs = []
    for model in models_under(a):
        for kind in a.cells.split(","):
            policies = {"onnx": GRAPH_POLICIES, "step": STEP_POLICIES, "memory": STEP_POLICIES}.get(kind, DEVICE_POLICIES)
            jobs += [(model, kind, policy) for policy in policies]
    os.environ["MPT_PTXAS"] = "none"
    known = json.loads(a.file.read_text()) if a.file.exists() else {}

    def work(job):
        model, kind, policy = job
        try:
            return cell(str(a.tree), model, kind, policy)
        except subprocess.TimeoutExpired:
            return "refused: ran too long"
    names = [f"{model.parent.name}/{model.name} {kind} {policy}" for model, kind, policy in jobs]
    with concurrent.futures.ThreadPoolExecutor(a.jobs) as pool:
        for number, (name, result) in enumerate(zip(names, pool.map(work, jobs)), 1):
            known[name] = result
            if number % 20 == 0:
                a.file.write_text(json.dumps(known, indent=1))
    a.file.write_text(json.dumps(known, indent=1) + "\n")
    refused = sum(isinstance(value, str) and value.startswith("refused") for value in known.values())
    print(f"{len(known)} cells, {refused} of them refusals")
    return 0


def compare(a) -> int:
    before, after = (json.loads(path.read_text()) for path in (a.before, a.after))
    differences, better = [], []
    for name in sorted(before.keys() & after.keys()):
        old, new = before[name], after[name]
        if isinstance(old, dict) and isinstance(new, dict):
            for key in sorted(old.keys() | new.keys()):
                x, y = old.get(key), new.get(key)
                if x != y:
                    (better if x is None or (y is not None and y < x) else differences).append(f"{name} {key}: {x} became {y}")
        elif old != new:
            differences.append(f"{name}: {old} became {new}")
    for line in differences:
        print(f"differs: {line}")
    for line in better:
        print(f"smaller or new: {line}")
    both = len(before.keys() & after.keys())
    print(f"{both} cells compared, {len(differences)} differences, {len(better)} figures smaller or new, "
          f"{len(before.keys() ^ after.keys())} in one record alone")
    return 1 if differences or not both else 0


def main() -> int:
    if sys.argv[1:2] in (["step"], ["turns"]):
        {"step": train, "turns": take_turns}[sys.argv[1]](sys.argv[2], sys.argv[3:])
        return 0
    parse = argparse.ArgumentParser(description=__doc__.split("\n", maxsplit=1)[0])
    commands = parse.add_subparsers(dest="command", required=True)
    one = commands.add_parser("record")
    one.add_argument("tree", type=pathlib.Path)
    one.add_argument("file", type=pathlib.Path)
    one.add_argument("models", type=pathlib.Path, nargs="+")
    one.add_argument("--cells", default=CELLS)
    one.add_argument("--only", help="regular expression over the models' paths")
    one.add_argument("--jobs", type=int, default=1)
    two = commands.add_parser("compare")
    two.add_argument("before", type=pathlib.Path)
    two.add_argument("after", type=pathlib.Path)
    three = commands.add_parser("times")
    three.add_argument("before", type=pathlib.Path)
    three.add_argument("after", type=pathlib.Path)
    three.add_argument("models", type=pathlib.Path, nargs="+")
    three.add_argument("--only", help="regular expression over the models' paths")
    three.add_argument("--policies", default="fp32,amp-f16")
    three.add_argument("--rounds", type=int, default=9)
    a = parse.parse_args()
    return {"record": record, "compare": compare, "times": times}[a.command](a)


if __name__ == "__main__":
    sys.exit(main())
