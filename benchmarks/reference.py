"""onnx.reference with the operators that it gets wrong or cannot finish: pooling's indices, scatter with a reduction."""
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


def evaluator(model) -> ReferenceEvaluator:
    return ReferenceEvaluator(model, new_ops=[ScatterElements, MaxPool])
