# SPDX-License-Identifier: Apache-2.0
"""ONNX's reference evaluator, with those operators that it lacks, or computes otherwise than ONNX says."""
import numpy as np
from onnx.reference import ReferenceEvaluator
from onnx.reference.op_run import OpRun
from onnx.reference.ops.op_conv_transpose import ConvTranspose as UngroupedConvTranspose


class LpNormalization(OpRun):
    """x / ||x||_p along an axis; the evaluator sums x instead of |x| for p = 1."""

    def _run(self, x, axis=-1, p=2):
        norm = np.power(np.power(np.abs(x), p).sum(axis=axis, keepdims=True), 1 / p)
        return (x / np.where(norm == 0, 1, norm),)


class MeanVarianceNormalization(OpRun):
    """(x - E x) / sqrt(Var x), in the type of x; the evaluator's function has constants in FP32."""

    def _run(self, x, axes=(0, 2, 3)):
        axes = tuple(axes)
        centered = x - x.mean(axis=axes, keepdims=True)
        return (centered / (np.sqrt((centered**2).mean(axis=axes, keepdims=True)) + 1e-9),)


class LRN(OpRun):
    """x / (bias + alpha / size * sum of squares of near channels)^beta; the evaluator goes through as many channels as samples."""

    def _run(self, x, alpha=1e-4, beta=0.75, bias=1.0, size=None):
        before, channels = (size - 1) // 2, x.shape[1]
        squares = [(x[:, max(0, c - before):c + size - before] ** 2).sum(axis=1) for c in range(channels)]
        return (x / (bias + alpha / size * np.stack(squares, axis=1)) ** beta,)


class Scatter(OpRun):
    """ScatterElements as it was called before opset 11."""

    def _run(self, data, indices, updates, axis=0):
        made = np.array(data)
        np.put_along_axis(made, np.where(indices < 0, indices + data.shape[axis], indices), updates, axis)
        return (made,)


class ConvTranspose(UngroupedConvTranspose):
    """Groups beside each other, as many channels of x and w each; the evaluator takes the channels of w wrongly."""

    def _run(self, x, w, b=None, group=1, **attributes):
        count = group or 1
        biases = np.split(b, count) if b is not None else [None] * count
        parts = [super(ConvTranspose, self)._run(*part, group=1, **attributes)[0]
                 for part in zip(np.split(x, count, axis=1), np.split(w, count), biases)]
        return (np.concatenate(parts, axis=1),)


def evaluator_of(model) -> ReferenceEvaluator:
    return ReferenceEvaluator(model, new_ops=[ConvTranspose, LRN, LpNormalization, MeanVarianceNormalization, Scatter])
