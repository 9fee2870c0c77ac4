# SPDX-License-Identifier: Apache-2.0
"""ONNX Runtime Training behind gradient.py, in a Python of its own.

    gradient.py --adapter ort_adapter.Adapter --build PYTHON --results docs/results/gradients-onnxruntime.tsv --write

PYTHON has onnxruntime-training 1.19.2, onnx 1.16.2 and numpy below 2, which do not go together with the onnx that has the cases.
ort_worker.py runs there, for all cases of a process.
"""
import atexit
import io
import json
import subprocess
from pathlib import Path

import numpy as np
from mpt_adapter import LOSS, with_loss


class Worker:
    """A process that answers a model and names of variables with gradients: frames of a length and an .npz archive."""

    shared = None

    def __init__(self, python):
        self.process = subprocess.Popen([python, "-W", "ignore", str(Path(__file__).with_name("ort_worker.py"))], stdin=subprocess.PIPE,
                                        stdout=subprocess.PIPE, stderr=subprocess.DEVNULL)
        atexit.register(self.process.kill)

    @classmethod
    def of(cls, python):
        if cls.shared is None or cls.shared.process.poll() is not None:
            cls.shared = cls(python)
        return cls.shared

    def ask(self, model, question: dict) -> dict:
        frame = io.BytesIO()
        np.savez(frame, model=np.frombuffer(model, np.uint8), question=np.frombuffer(json.dumps(question).encode(), np.uint8))
        self.process.stdin.write(len(frame.getvalue()).to_bytes(8, "little") + frame.getvalue())
        self.process.stdin.flush()
        length = self.process.stdout.read(8)
        if len(length) < 8:
            raise RuntimeError(f"died of signal {-self.process.wait()}")
        with np.load(io.BytesIO(self.process.stdout.read(int.from_bytes(length, "little")))) as archive:
            answer = {name: archive[name] for name in archive.files}
        if "refusal" in answer:
            raise RuntimeError(bytes(answer["refusal"]).decode())
        return answer


class Adapter:
    """Gradients of a model's weighted sum of outputs by ONNX Runtime's own gradient graph."""

    def __init__(self, build):
        if not build:
            raise ValueError("expected --build=PYTHON, a Python with onnxruntime-training")
        self.python = build

    def gradients(self, model, inputs: dict, variables: list, weights: dict) -> dict:
        made = with_loss(model, inputs, variables, weights)
        found = Worker.of(self.python).ask(made.SerializeToString(), {"variables": variables, "loss": LOSS})
        # As for mpt: a variable without a gradient is taken for one that the loss does not depend on.
        return {name: found.get(name, np.zeros_like(inputs[name])) for name in variables}
