# SPDX-License-Identifier: Apache-2.0
"""A training step for CUDA and one for the CPU, both run here: kernels for the GPU as loops on the host, and a fake library in the
place of driver, cuBLASLt and cuDNN. As a program: trains one library (cuda_steps.py LIBRARY BATCH.npz OUT.npz)."""
import pathlib
import subprocess
import sys
from dataclasses import dataclass

import numpy as np

sys.path.insert(0, str(pathlib.Path(__file__).parent))
from standin import environment  # noqa: E402

ROOT = pathlib.Path(__file__).resolve().parents[2]
TAKEN, MOST = 2, 24  # steps that moved the parameters, and steps in all (a loss scale may skip some)


@dataclass
class Distance:
    """How far one training run's result is from another's: of the movement that SGD gave the parameters, which is their gradients."""
    loss: float  # relative, the largest of the steps'
    all: float   # relative to the movement, over all parameters
    each: dict   # of every parameter, absolute
    moved: dict  # every parameter's movement in the other run


def compile_step(build, model, out, flags, cuda):
    words = [build / "bin" / "mpt-opt", model, "--quiet", "-o", out, *flags, *(["--target=cuda", "--arch=host"] if cuda else [])]
    done = subprocess.run([str(word) for word in words], capture_output=True, text=True)
    if done.returncode:
        raise RuntimeError(f"not compiled: {done.stderr.strip()[-600:]}")


def train(build, library, batch, cudnn=True, limit=600):
    """{"loss": of each step, "taken": steps that moved the parameters, "violations": calls that the real driver would have forbidden,
    "before/NAME", "after/NAME"}; raises with the text of the error."""
    np.savez(f"{library}.in.npz", **batch)
    done = subprocess.run([sys.executable, __file__, str(library), f"{library}.in.npz", f"{library}.out.npz"], timeout=limit,
                          env=environment(build, cudnn), capture_output=True, text=True)
    if done.returncode:
        raise RuntimeError(f"status {done.returncode}: {done.stderr.strip()[-600:]}")
    with np.load(f"{library}.out.npz") as archive:
        return {name: archive[name] for name in archive.files}


def distance(got, want) -> Distance:
    moved, off = {}, {}
    for name in (n.removeprefix("after/") for n in want if n.startswith("after/")):
        moved[name] = float(np.linalg.norm(want["after/" + name].astype(np.float64) - want["before/" + name]))
        off[name] = float(np.linalg.norm(got["after/" + name].astype(np.float64) - want["after/" + name]))
    norm = lambda values: float(np.sqrt(sum(v * v for v in values)))  # noqa: E731
    # A run whose loss scale skipped more steps did some of them over again.
    losses = got["loss"][-TAKEN:], want["loss"][-TAKEN:]
    loss = np.abs(losses[0] - losses[1]) / np.maximum(np.abs(losses[1]), 1e-30)
    return Distance(float(loss.max()), norm(off.values()) / max(norm(moved.values()), 1e-30), off, moved)


def run(build, model, flags, batch, folder, cuda, cudnn=True):
    folder = pathlib.Path(folder)
    compile_step(build, model, folder, [*flags, "--optimizer=sgd,lr=0.01,momentum=0.9"], cuda)
    return train(build, folder, batch, cudnn)


def judge(cuda, cpu, exact):
    """(text, problems): the policy's own distance from FP32 (`exact`) is the measure for CUDA's step: it may lie half as far
    again from FP32 as the CPU's does, a single parameter four times; 1e-3 of the movement is always allowed."""
    near, far, rounding = distance(cuda, cpu), distance(cuda, exact), distance(cpu, exact)
    problems = []
    allowed = max(1e-3, 1.5 * rounding.all)
    if not far.all <= allowed:
        problems.append(f"update {far.all:.2g} from FP32's, allowed {allowed:.2g}")
    if not near.loss <= max(1e-5, 2 * rounding.loss, 0.5 * rounding.all):
        problems.append(f"loss {near.loss:.2g} from the CPU's")
    size = np.sqrt(sum(m * m for m in rounding.moved.values()))
    for name, off in far.each.items():
        limit = 4 * max(rounding.each[name], max(rounding.all, 1e-3) * rounding.moved[name]) + 1e-5 * size
        if not off <= limit:
            problems.append(f"'{name}' {off:.2g} from FP32's, allowed {limit:.2g}")
    if cuda["violations"]:
        problems.append(str(cuda["violations"]))
    if cuda["taken"] < TAKEN or cpu["taken"] < TAKEN:
        problems.append(f"{cuda['taken']} and {cpu['taken']} steps that moved the parameters, expected {TAKEN}")
    text = f"loss {near.loss:.1e}, update {near.all:.1e} from the CPU's; from FP32's {far.all:.1e}, the CPU's {rounding.all:.1e}; " \
        f"{len(cuda['loss'])} steps"
    return text, problems


def main(library, batch, out):
    from standin import standin, trainer as make_trainer
    feeds = dict(np.load(batch))
    with make_trainer(library) as trainer:
        feeds = {name: value for name, value in feeds.items() if name in trainer.inputs()}
        found = {"before/" + name: value for name, value in trainer.parameters().items()}
        losses, taken = [], 0
        while taken < TAKEN and len(losses) < MOST:
            result = trainer.step(feeds)
            losses.append(result.loss)
            taken += not result.skipped
        found.update({"after/" + name: value for name, value in trainer.parameters().items()})
        cuda = trainer.manifest["target"] == "cuda"
    violations = standin().standin_violations().decode() if cuda else ""
    np.savez(out, loss=np.float64(losses), taken=taken, violations=violations, **found)


if __name__ == "__main__":
    main(*sys.argv[1:])
