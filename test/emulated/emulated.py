# SPDX-License-Identifier: Apache-2.0
"""Trainers of libraries for AArch64 under QEMU's user-mode emulation: the calls of mpt.Trainer that tests need, and an ONNX
backend (onnx.backend.base) on top of them. It takes what scripts/build-runtime.sh aarch64 has built."""
import pathlib
import shutil
import struct
import subprocess
from types import SimpleNamespace

import numpy as np

import mpt.backend
from mpt._arrays import NAMES, NUMBERS, numpy_type, stored

ROOT = pathlib.Path(__file__).resolve().parents[2]
TRIPLE = "aarch64-linux-gnu"
SERVER = ROOT / "build" / "aarch64" / "bin" / "library_server"
EMULATOR = "qemu-aarch64-static"
PARAMETERS, STATISTIC = 1 << 0 | 1 << 11, 1 << 3  # mpt_role: parameters, frozen ones too; running statistics


def missing() -> str:
    """The program that emulation lacks here; "" where it lacks none."""
    if not shutil.which(EMULATOR):
        return f"{EMULATOR} (install qemu-user-static)"
    return "" if SERVER.exists() else f"{SERVER.relative_to(ROOT)} (run scripts/build-runtime.sh aarch64)"


class Trainer:
    """`cpu` names one of the emulator's processors."""

    def __init__(self, path, threads: int = 1, cpu: str = "max"):
        command = [EMULATOR, "-cpu", cpu, "-L", f"/usr/{TRIPLE}", str(SERVER), str(path)]
        self.process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL)
        self._answer()

    def close(self) -> None:
        self.process.stdin.close()
        self.process.stdout.close()
        self.process.wait()

    def run(self, function: str, inputs: dict) -> dict:
        return self._run(function, inputs).tensors

    def step(self, inputs: dict):
        """Its `loss` is the step's."""
        return self._run("step", inputs)

    def gradients(self, inputs: dict):
        result = self._run("gradients", inputs)
        return result.loss, {name: value for name, value in result.tensors.items() if name in self.parameters()}

    def parameters(self) -> dict:
        return self._state(PARAMETERS)

    def parameter(self, name: str) -> np.ndarray:
        return self._state(PARAMETERS | STATISTIC)[name]

    # ---- inside ----

    def _run(self, function: str, inputs: dict):
        message = [self._number(0), self._text(function.encode()), self._number(len(inputs))]
        for name, value in inputs.items():
            array = np.ascontiguousarray(stored(np.asarray(value))).reshape(np.shape(value))
            message += [self._text(name.encode()), self._number(NUMBERS[array.dtype.name], array.ndim, *array.shape), self._text(array.tobytes())]
        return self._ask(b"".join(message))

    def _state(self, roles: int) -> dict:
        return self._ask(self._number(1, roles)).tensors

    def _number(self, *values: int) -> bytes:
        return struct.pack(f"<{len(values)}q", *values)

    def _text(self, text: bytes) -> bytes:
        return self._number(len(text)) + text

    def _ask(self, message: bytes):
        self.process.stdin.write(message)
        self.process.stdin.flush()
        return self._answer()

    def _read(self, kind: str = "q"):
        raw = self.process.stdout.read(8)
        if len(raw) < 8:
            raise RuntimeError(f"the emulated process died with status {self.process.wait()}")
        return struct.unpack("<" + kind, raw)[0]

    def _bytes(self) -> bytes:
        return self.process.stdout.read(self._read())

    def _answer(self):
        status, message = self._read(), self._bytes().decode()
        loss, skipped, tensors = self._read("d"), bool(self._read()), {}
        for _ in range(self._read()):
            name, kind = self._bytes().decode(), NAMES[self._read()]
            shape = [self._read() for _ in range(self._read())]
            tensors[name] = np.frombuffer(self._bytes(), numpy_type(kind)).reshape(shape)
        if status:
            raise mpt.Error(status, message)
        return SimpleNamespace(loss=loss, skipped=skipped, tensors=tensors)


class Rep(mpt.backend.Rep):
    Trainer, compile = Trainer, staticmethod(mpt._compile.run)


def prepare(model, device: str = "CPU", **flags) -> Rep:
    return Rep(model, {"mtriple": TRIPLE, **flags})
