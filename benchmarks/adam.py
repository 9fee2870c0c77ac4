#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""An Adam step in standard operators, 12 nodes a tensor, as exporters write it: adam.py TENSORS FILE.onnx.

Parameters, gradients and both moments are inputs and the new ones results, so that a driver feeds results back.
"""
from __future__ import annotations

import sys

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

CONSTANTS = {"b1": 0.9, "c1": 0.1, "b2": 0.999, "c2": 1e-3, "eps": 1e-8, "lr": 1e-3}
STEP = [("Mul", "m b1", "a"), ("Mul", "g c1", "b"), ("Add", "a b", "m_next"), ("Mul", "v b2", "c"), ("Mul", "g g", "d"),
        ("Mul", "d c2", "e"), ("Add", "c e", "v_next"), ("Sqrt", "v_next", "f"), ("Add", "f eps", "h"),
        ("Div", "m_next h", "i"), ("Mul", "i lr", "j"), ("Sub", "p j", "p_next")]


def nodes(index: int, gradient: str | None = None) -> list:
    """The nodes of one tensor; its names end in _INDEX."""
    local = lambda n: n if n in CONSTANTS else gradient if gradient and n == "g" else f"{n}_{index}"
    return [helper.make_node(kind, [local(n) for n in names.split()], [local(out)], name=local(kind + out))
            for kind, names, out in STEP]


def constants() -> list:
    return [numpy_helper.from_array(np.float32(value), name) for name, value in CONSTANTS.items()]


def adam(tensors: int, shape=(4, 8)) -> onnx.ModelProto:
    info = lambda n, i: helper.make_tensor_value_info(f"{n}_{i}", TensorProto.FLOAT, shape)
    graph = helper.make_graph([node for i in range(tensors) for node in nodes(i)], "graph",
                              [info(n, i) for i in range(tensors) for n in "pgmv"],
                              [info(n, i) for i in range(tensors) for n in ("p_next", "m_next", "v_next")], constants())
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)


def feeds(tensors: int, shape=(4, 8), seed=0) -> dict:
    """A step in the middle of training: gradients of 1e-7 to 1, moments to match, and some that are still 0."""
    rng = np.random.default_rng(seed)
    result = {}
    for i in range(tensors):
        size = (10.0 ** rng.uniform(-7, 0, shape)).astype(np.float32)
        fresh = rng.random(shape) < 0.1
        gradient = np.where(fresh, 0, size * rng.standard_normal(shape)).astype(np.float32)
        result |= {f"p_{i}": rng.standard_normal(shape).astype(np.float32), f"g_{i}": gradient,
                   f"m_{i}": np.where(fresh, 0, size * rng.standard_normal(shape)).astype(np.float32),
                   f"v_{i}": np.where(fresh, 0, size * size * rng.random(shape)).astype(np.float32)}
    return result


if __name__ == "__main__":
    onnx.save(adam(int(sys.argv[1])), sys.argv[2])
