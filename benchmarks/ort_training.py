# SPDX-License-Identifier: Apache-2.0
"""A benchmark model's training step in ONNX Runtime Training (onnxruntime-training 1.19.2, the last release), in FP32 on the CPU.

Its SGD has no momentum: a little less work than the other peers' steps do.
"""
from __future__ import annotations

import os
import subprocess
import sys

OPSET = 16  # its gradient of LayerNormalization knows only PyTorch's exports before opset 17: single steps


def prepare(model: str, folder: str) -> None:
    """Exports the model and lets ONNX Runtime write its training graphs and checkpoint into `folder`."""
    import onnx
    from onnxruntime.training import artifacts
    here = os.path.dirname(os.path.abspath(__file__))
    subprocess.run([sys.executable, os.path.join(here, "export.py"), model, folder, str(OPSET)], check=True,
                   stdout=subprocess.DEVNULL)
    graph = onnx.load(os.path.join(folder, "model.onnx"))
    names = [t.name for t in graph.graph.initializer]
    trained = [n for n in names if not n.endswith(("running_mean", "running_var", "num_batches_tracked")) and
               n in {i for node in graph.graph.node for i in node.input} and "onnx::" not in n]
    with open(os.path.join(folder, "optimizer")) as f:
        kind = artifacts.OptimType.AdamW if f.read().startswith("adamw") else artifacts.OptimType.SGD
    artifacts.generate_artifacts(graph, requires_grad=trained, frozen_params=[n for n in names if n not in trained],
                                 loss=None, optimizer=kind, artifact_directory=folder)


def step(model: str, folder: str, threads: int):
    """One training step on the model's batch; returns the loss. Threads as OMP_NUM_THREADS says to ONNX Runtime's pool."""
    import numpy as np
    import onnxruntime
    from onnxruntime.training.api import CheckpointState, Module, Optimizer
    if not os.path.exists(os.path.join(folder, "training_model.onnx")):
        subprocess.run([sys.executable, os.path.abspath(__file__), model, folder], check=True, stdout=subprocess.DEVNULL)
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = threads
    state = CheckpointState.load_checkpoint(os.path.join(folder, "checkpoint"))
    module = Module(os.path.join(folder, "training_model.onnx"), state, session_options=options)
    optimizer = Optimizer(os.path.join(folder, "optimizer_model.onnx"), module)
    with open(os.path.join(folder, "optimizer")) as f:
        settings = dict(s.split("=") for s in f.read().split(",")[1:])
    optimizer.set_learning_rate(float(settings["lr"]))
    feeds = dict(np.load(os.path.join(folder, "inputs.npz")))
    inputs = [feeds[name] for name in module.input_names()]
    module.train()

    def run() -> float:
        loss = module(*inputs)
        optimizer.step()
        module.lazy_reset_grad()
        return float(loss)

    return run


if __name__ == "__main__":
    prepare(*sys.argv[1:])
