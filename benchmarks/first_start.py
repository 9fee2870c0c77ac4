#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""From an empty Debian 12 to a trained model: seconds and megabytes of mpt and of what else trains without a cluster.

    scripts/wheel.sh build/wheel && cmake --install build/release --prefix build/prefix --strip
    benchmarks/first_start.py --wheel build/wheel/*.whl --prefix build/prefix [--peers] [--llm-c CHECKOUT]

needs root's rights, debootstrap, and the packages of Debian and PyPI. Each row has a root of its own, a copy of
`debootstrap --variant=minbase`. "Packages" are Debian's, fetched and installed; "install" puts wheels, fetched before, into an
environment or builds what the row builds; "train" starts where that ends and goes to the first trained model: README's
classifier of digits, twelve epochs. MB is what the root holds more than an empty one."""
import argparse
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile
import time

ROOT = pathlib.Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT / "test/e2e"))
from empty_root import inside, readme_example, run  # noqa: E402

MIRROR = "http://deb.debian.org/debian"
PYTHON = ["python3", "python3-venv"]
MODEL, COMPILE, TRAIN = readme_example()

# The loop of README's example in each peer's own interface.
DATA = TRAIN[TRAIN.index("images, labels = load_digits"):TRAIN.index("trainer = ")]
TORCH = f"""
import numpy as np
import torch
from sklearn.datasets import load_digits
{DATA}
images, labels = torch.from_numpy(images), torch.from_numpy(labels)
model = torch.nn.Sequential(torch.nn.Linear(64, 48), torch.nn.ReLU(), torch.nn.Linear(48, 10))
optimizer = torch.optim.AdamW(model.parameters(), lr=3e-3)
for epoch in range(12):
    for start in range(0, 1408, 32):
        with torch.autocast("cpu", torch.bfloat16):
            loss = torch.nn.functional.cross_entropy(model(images[start:start + 32]), labels[start:start + 32])
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
with torch.no_grad():
    right = (model(images[1408:1792]).argmax(1) == labels[1408:1792]).float().mean().item()
print(f"accuracy on digits it has not seen: {{right:.3f}}")
"""
ONNX_RUNTIME = f"""
import os
import numpy as np
import onnx
from onnxruntime.training import artifacts
from onnxruntime.training.api import CheckpointState, Module, Optimizer
from sklearn.datasets import load_digits
os.mkdir("artifacts")
artifacts.generate_artifacts(onnx.load("digits.onnx"), requires_grad=["weight1", "bias1", "weight2", "bias2"],
                             loss=artifacts.LossType.CrossEntropyLoss, optimizer=artifacts.OptimType.AdamW, artifact_directory="artifacts")
{DATA}
state = CheckpointState.load_checkpoint("artifacts/checkpoint")
model = Module("artifacts/training_model.onnx", state, "artifacts/eval_model.onnx")
optimizer = Optimizer("artifacts/optimizer_model.onnx", model)
optimizer.set_learning_rate(3e-3)
for epoch in range(12):
    model.train()
    for start in range(0, 1408, 32):
        model(images[start:start + 32], labels[start:start + 32])
        optimizer.step()
        model.lazy_reset_grad()
model.export_model_for_inferencing("trained.onnx", ["logits"])
import onnxruntime
session = onnxruntime.InferenceSession("trained.onnx")
right = 0
for start in range(1408, 1792, 32):
    logits, = session.run(["logits"], {{"x": images[start:start + 32]}})
    right += int((logits.argmax(1) == labels[start:start + 32]).sum())
print(f"accuracy on digits it has not seen: {{right / 384:.3f}}")
"""


def megabytes(root) -> float:
    return int(run("du", "-sx", "--block-size=1M", "--exclude=./proc", "--exclude=./dev", ".", cwd=root).split()[0])


class Row:
    """A copy of the empty root, and what its stages took."""

    def __init__(self, name: str, base: pathlib.Path, folder: pathlib.Path):
        self.name, self.root, self.seconds, self.text = name, folder / "root", {}, ""
        run("cp", "-a", base, self.root)
        self.empty = megabytes(self.root)

    def timed(self, stage: str, *commands) -> None:
        start = time.monotonic()
        for command in commands:
            self.text = inside(self.root, *command)
        self.seconds[stage] = self.seconds.get(stage, 0) + time.monotonic() - start

    def packages(self, *names) -> None:
        install = ["apt-get", "-qq", "-o", "Dpkg::Use-Pty=0", "install", "--no-install-recommends", "-y", *names]
        self.timed("packages", ["apt-get", "-qq", "update"], install, ["apt-get", "clean"])

    def wheels(self, *requirements) -> None:
        """Fetches wheels, not counted, and installs them into /env."""
        run(sys.executable, "-m", "pip", "download", "-q", "--python-version=3.11", "--only-binary=:all:", "-d", self.root / "wheels",
            *requirements)
        names = [pathlib.Path(name).name.split("-")[0] if str(name).endswith(".whl") else name for name in requirements]
        self.timed("install", ["python3", "-m", "venv", "/env"],
                   ["/env/bin/pip", "install", "-q", "--no-index", "--find-links=/wheels", *names])
        shutil.rmtree(self.root / "wheels")

    def write(self, **texts) -> None:
        for name, text in texts.items():
            (self.root / "work" / f"{name}.py").write_text(text)

    def report(self) -> None:
        found = re.findall(r"has not seen: ([0-9.]+)", self.text)
        if found and float(found[-1]) < 0.9:
            sys.exit(f"{self.name}: expected an accuracy above 0.9, found:\n{self.text}")
        stages = " | ".join(f"{self.seconds[stage]:.0f} s" if stage in self.seconds else "–" for stage in ("packages", "install", "train"))
        print(f"| {self.name} | {stages} | {megabytes(self.root) - self.empty:,.0f} | {found[-1] if found else '–'} |", flush=True)


def mpt_wheel(row: Row, options) -> None:
    row.packages(*PYTHON)
    row.wheels(str(options.wheel), "numpy", "onnx", "scikit-learn", "onnxruntime", "tqdm")
    row.write(make_model=MODEL, train=TRAIN)
    row.timed("train", ["/env/bin/python", "make_model.py"], [f"/env/bin/{COMPILE[0]}", *COMPILE[1:]],
              ["/env/bin/python", "train.py"])


def mpt_programs(row: Row, options) -> None:
    """README's programs in C++ and Fortran against an installed prefix."""
    row.packages("cmake", "make", "g++", "gfortran")
    start = time.monotonic()
    run("cp", "-a", options.prefix, row.root / "opt/mpt")
    row.seconds["install"] = time.monotonic() - start
    work = row.root / "work/digits"
    shutil.copytree(ROOT / "examples/digits", work)
    (work / "make_model.py").write_text(MODEL)
    for script in ("make_model.py", "data.py"):
        run(sys.executable, script, cwd=work)
    at = ["env", "-C", "digits"]
    row.timed("train", [*at, "cmake", "-S", ".", "-B", "build", "-DCMAKE_PREFIX_PATH=/opt/mpt"], [*at, "cmake", "--build", "build"],
              [*at, "build/train_fortran", "build/digits.model"], [*at, "build/train"])


def pytorch(row: Row, options) -> None:
    row.packages(*PYTHON)
    row.wheels("torch==2.13.0", "numpy", "scikit-learn")
    row.write(train=TORCH)
    row.timed("train", ["/env/bin/python", "train.py"])


def onnxruntime_training(row: Row, options) -> None:
    row.packages(*PYTHON)
    row.wheels("onnxruntime-training==1.19.2", "torch==2.13.0", "onnx==1.16.2", "numpy<2", "scikit-learn")  # its package imports torch
    row.write(make_model=MODEL, train=ONNX_RUNTIME)
    row.timed("train", ["/env/bin/python", "make_model.py"], ["/env/bin/python", "train.py"])


def llm_c(row: Row, options) -> None:
    """Its only model is GPT-2, whose weights (500 MB) come from elsewhere: built, not trained."""
    row.packages("gcc", "make", "libc6-dev", "libgomp1")
    shutil.copytree(options.llm_c, row.root / "work/llm.c")
    row.timed("install", ["env", "-C", "llm.c", "make", "train_gpt2", "CC=gcc"])


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--wheel", type=pathlib.Path, help="of scripts/wheel.sh")
    parser.add_argument("--prefix", type=pathlib.Path, help="of cmake --install")
    parser.add_argument("--llm-c", type=pathlib.Path, help="checkout of karpathy/llm.c")
    parser.add_argument("--peers", action="store_true", help="PyTorch and ONNX Runtime Training too")
    options = parser.parse_args()
    rows = [("mpt, wheel and Python", mpt_wheel, options.wheel), ("mpt, prefix, C++ and Fortran", mpt_programs, options.prefix),
            ("PyTorch 2.13.0", pytorch, options.peers), ("ONNX Runtime Training 1.19.2", onnxruntime_training, options.peers),
            ("llm.c, built alone", llm_c, options.llm_c)]
    print("| tool | packages | install | train | MB | accuracy |\n|---|---|---|---|---|---|", flush=True)
    with tempfile.TemporaryDirectory() as folder:
        base = pathlib.Path(folder) / "base"
        run("debootstrap", "--variant=minbase", "bookworm", base, MIRROR)
        (base / "work").mkdir()
        for name, make, wanted in rows:
            if not wanted:
                continue
            with tempfile.TemporaryDirectory(dir=folder) as own:
                row = Row(name, base, pathlib.Path(own))
                make(row, options)
                row.report()


if __name__ == "__main__":
    main()
