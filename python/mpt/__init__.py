# SPDX-License-Identifier: Apache-2.0
"""Compile models to training libraries with mpt-opt, and train them.

    import mpt
    mpt.compile("model.onnx", loss="softmax-cross-entropy", optimizer="adamw,lr=1e-3", policy="amp-f16", out="lib")
    trainer = mpt.Trainer("lib")
    result = trainer.step({"x": images, "labels": labels})
"""
from ._compile import compile
from ._errors import CompileError, CompileWarning
from ._fit import Fit, fit
from ._native import Error, PeerLost, Stalled, use_build
from ._report import CompilerReport, report
from ._shard import shard
from ._trainer import StepResult, Trainer
from ._world import World, WorldStats, init

__all__ = ["CompileError", "CompileWarning", "CompilerReport", "Error", "Fit", "PeerLost", "Stalled", "StepResult", "Trainer", "World",
           "WorldStats", "compile", "fit", "init", "report", "shard", "use_build"]
