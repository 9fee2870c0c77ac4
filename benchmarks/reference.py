# SPDX-License-Identifier: Apache-2.0
"""onnx.reference with the operators that it gets wrong or cannot finish: pooling's indices, scatter with a reduction, transposed
convolutions in groups, negative padding, gathering from larger data."""
from __future__ import annotations

import numpy as np
from onnx.reference import ReferenceEvaluator
from onnx.reference.op_run import OpRun


class ScatterElements(OpRun):
    """As arrays, not element by element; sums are rounded to the elements' type at each addition."""

    def _run(self, data, indices, updates, axis=None, reduction=None):
        out, axis = data.copy(), axis or 0
        at = list(np.ogrid[tuple(slice(n) for n in indices.shape)])
        at[axis] = np.where(indices < 0, indices + data.shape[axis], indices)
        combine = {"add": np.add, "mul": np.multiply, "max": np.maximum, "min": np.minimum}.get(reduction)
        if combine:
            combine.at(out, tuple(at), updates)
        else:
            out[tuple(at)] = updates
        return (out,)


class GatherElements(OpRun):
    """With indices of fewer rows than the data has."""

    def _run(self, data, indices, axis=None):
        at = list(np.ogrid[tuple(slice(n) for n in indices.shape)])
        at[axis or 0] = np.where(indices < 0, indices + data.shape[axis or 0], indices)
        return (data[tuple(at)],)


class MaxPool(OpRun):
    """Indices count through the whole tensor, as the operator's text has it."""

    def _run(self, x, auto_pad=None, ceil_mode=None, dilations=None, kernel_shape=None, pads=None, storage_order=None, strides=None):
        rank = len(kernel_shape)
        strides, dilations, pads = list(strides or [1] * rank), list(dilations or [1] * rank), list(pads or [0] * 2 * rank)
        if storage_order or auto_pad not in (None, "NOTSET"):
            raise NotImplementedError("MaxPool with storage_order or auto_pad")
        span = [(k - 1) * d + 1 for k, d in zip(kernel_shape, dilations)]
        if ceil_mode:
            for i in range(rank):
                rest = (x.shape[2 + i] + pads[i] + pads[rank + i] - span[i]) % strides[i]
                pads[rank + i] += strides[i] - rest if rest else 0
        width = [(0, 0), (0, 0), *zip(pads[:rank], pads[rank:])]

        def windows(array):
            view = np.lib.stride_tricks.sliding_window_view(array, span, axis=tuple(range(2, 2 + rank)))
            view = view[(slice(None), slice(None), *(slice(None, None, s) for s in strides), *(slice(None, None, d) for d in dilations))]
            return view.reshape(*view.shape[:2 + rank], -1)

        values = windows(np.pad(x.astype(np.float64), width, constant_values=-np.inf))
        where = windows(np.pad(np.arange(x.size).reshape(x.shape), width))
        best = values.argmax(-1)[..., None]
        pick = lambda array: np.take_along_axis(array, best, -1)[..., 0]
        return (pick(values).astype(x.dtype), pick(where).astype(np.int64))[:len(self.onnx_node.output)]


class Pad(OpRun):
    """Negative numbers take away."""

    def _run(self, data, pads, constant_value=None, axes=None, mode=None):
        axes = range(data.ndim) if axes is None else [int(a) % data.ndim for a in axes]
        widths = [(0, 0)] * data.ndim
        for i, axis in enumerate(axes):
            widths[axis] = int(pads[i]), int(pads[len(axes) + i])
        mode = mode or "constant"
        fill = {"constant_values": 0 if constant_value is None else np.asarray(constant_value).item()} if mode == "constant" else {}
        padded = np.pad(data, [(max(a, 0), max(b, 0)) for a, b in widths], mode=mode, **fill)
        return (padded[tuple(slice(max(-a, 0), n - max(-b, 0)) for (a, b), n in zip(widths, padded.shape))],)


class ConvTranspose(OpRun):
    """With groups of any size; the sum is rounded once."""

    def _run(self, x, w, b=None, auto_pad=None, dilations=None, group=None, kernel_shape=None, output_padding=None, output_shape=None,
             pads=None, strides=None):
        rank, group = x.ndim - 2, group or 1
        strides, dilations = list(strides or [1] * rank), list(dilations or [1] * rank)
        pads, more = list(pads or [0] * 2 * rank), list(output_padding or [0] * rank)
        if output_shape or auto_pad not in (None, "NOTSET"):
            raise NotImplementedError("ConvTranspose with output_shape or auto_pad")
        full = [strides[i] * (x.shape[2 + i] - 1) + more[i] + (w.shape[2 + i] - 1) * dilations[i] + 1 for i in range(rank)]
        y = np.zeros((x.shape[0], group, w.shape[1], *full))
        parts = x.astype(np.float64).reshape(x.shape[0], group, -1, *x.shape[2:])
        kernel = w.astype(np.float64).reshape(group, -1, *w.shape[1:])
        for at in np.ndindex(*w.shape[2:]):
            window = tuple(slice(k * d, k * d + s * (n - 1) + 1, s) for k, d, s, n in zip(at, dilations, strides, x.shape[2:]))
            y[(slice(None), slice(None), slice(None), *window)] += np.einsum("ngc...,gco->ngo...", parts, kernel[(..., *at)])
        y = y.reshape(x.shape[0], -1, *full)[(..., *(slice(pads[i], full[i] - pads[rank + i]) for i in range(rank)))]
        return ((y if b is None else y + b.astype(np.float64).reshape(-1, *[1] * rank)).astype(x.dtype),)


def evaluator(model) -> ReferenceEvaluator:
    return ReferenceEvaluator(model, new_ops=[ScatterElements, GatherElements, MaxPool, Pad, ConvTranspose])
