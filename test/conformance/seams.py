# SPDX-License-Identifier: Apache-2.0
"""Points at which a formula by cases changes hands, with the derivative that mathematics has there."""
import math
from dataclasses import dataclass, field

import numpy as np

import table


@dataclass
class Seam:
    """d op(x) / dx at `x` is `slope`."""
    op: str
    x: float
    slope: float
    attributes: dict = field(default_factory=dict)
    opset: int = 22
    group: str = "seam"
    shape: tuple = (2,)
    result: tuple = (2,)

    @property
    def name(self) -> str:
        settings = "".join(f"_{key}_{value}" for key, value in sorted(self.attributes.items()))
        sizes = "" if self.shape == (2,) else "_of_" + "x".join(map(str, self.shape))
        return f"seam_{self.op.lower()}{settings}{sizes}_at_{self.x:g}"


def _seams():
    # Both sides have the same slope, and so must the seam.
    smooth = {"Asinh": 1, "Atan": 1, "Asin": 1, "Acos": -1, "Atanh": 1, "Sinh": 1, "Cosh": 0, "Tan": 1, "Tanh": 1, "Sin": 1, "Cos": 0,
              "Exp": 1, "Sigmoid": 0.25, "Softplus": 0.5, "Softsign": 1, "Erf": 2 / math.sqrt(math.pi), "Mish": 0.6, "Gelu": 0.5,
              "Elu": 1, "Celu": 1, "Swish": 0.5}
    opsets = {"Swish": 24}
    for op, slope in smooth.items():
        for x in (0.0, -0.0):
            yield Seam(op, x, slope, opset=opsets.get(op, 22))
    yield Seam("Gelu", 0.0, 0.5, {"approximate": "tanh"})
    for sign in (1, -1):
        yield Seam("Atan", float(sign), 0.5)  # where the reciprocal's formula begins
        yield Seam("Atan", sign * 1e10, 1e-20)
        yield Seam("Asinh", sign * 1e-4, 1 / math.sqrt(1 + 1e-8))
        yield Seam("Asinh", sign * 1e10, 1e-10)
        yield Seam("Celu", sign * 1e-6, 1 if sign > 0 else math.exp(-1e-6), {"alpha": 1.0})
        yield Seam("Softplus", sign * 40.0, 1 if sign > 0 else math.exp(-40))
        yield Seam("Tanh", sign * 30.0, 0)
        yield Seam("Erf", sign * 10.0, 0)
        yield Seam("Mish", sign * 60.0, 1 if sign > 0 else 0)
    # Where slopes differ, the slopes of training frameworks: the mean, or the one from the side that the formula names.
    yield Seam("Relu", 0.0, 0)
    yield Seam("Abs", 0.0, 0)
    # Products with factors of 0, and moments of equal numbers.
    yield Seam("ReduceProd", 0.0, 0, {"axes": [1]}, opset=13, shape=(2, 3), result=(2, 1))
    yield Seam("ReduceProd", 0.0, 1, {"axes": [1]}, opset=13, shape=(2, 1), result=(2, 1))
    yield Seam("MeanVarianceNormalization", 3.0, 0, {"axes": [1]}, shape=(2, 3), result=(2, 3))
    yield Seam("ReduceLogSumExp", -100.0, 1 / 3, {"axes": [1]}, opset=13, shape=(2, 3), result=(2, 1))
    yield Seam("LRN", 0.0, 1, {"size": 3}, shape=(2, 3, 1, 1), result=(2, 3, 1, 1))
    # Norms of vectors of zeros.
    yield Seam("ReduceL2", 0.0, 0, {"axes": [1]}, opset=13, shape=(2, 3), result=(2, 1))
    yield Seam("ReduceL1", 0.0, 0, {"axes": [1]}, opset=13, shape=(2, 3), result=(2, 1))
    yield Seam("LpPool", 0.0, 0, {"kernel_shape": [3]}, shape=(2, 1, 3), result=(2, 1, 1))
    yield Seam("GlobalLpPool", 0.0, 0, shape=(2, 1, 3), result=(2, 1, 1))
    yield Seam("LpNormalization", 0.0, 1, shape=(2, 3), result=(2, 3))


SEAMS = list({seam.name: seam for seam in _seams()}.values())


def spread(shape) -> np.ndarray:
    """1 in the first part of a tensor of two, 2 in the other."""
    return np.broadcast_to(np.array([1.0, 2.0]).reshape(2, *[1] * (len(shape) - 1)), shape)


def slopes(seam: Seam, adapter) -> np.ndarray:
    """The backend's derivative at each element."""
    from onnx import TensorProto, helper
    node = helper.make_node(seam.op, ["x"], ["y"], **seam.attributes)
    value = {name: helper.make_tensor_value_info(name, TensorProto.FLOAT, shape)
             for name, shape in (("x", seam.shape), ("y", seam.result))}
    model = helper.make_model(helper.make_graph([node], "seam", [value["x"]], [value["y"]]), ir_version=10,
                              opset_imports=[helper.make_opsetid("", seam.opset)])
    found = adapter.gradients(model, {"x": np.full(seam.shape, seam.x, np.float32)}, ["x"], {"y": spread(seam.result).astype(np.float32)})
    return np.asarray(found["x"], np.float64)


def is_right(seam: Seam, got) -> bool:
    return np.allclose(got, seam.slope * spread(seam.shape), rtol=1e-5, atol=1e-12)


def run(seam: Seam, adapter, row: table.Row) -> table.Row:
    try:
        got = slopes(seam, adapter)
    except Exception as refusal:  # whatever a backend raises
        return row._replace(status="refused", detail=table.one_line(refusal))
    if is_right(seam, got):
        return row
    want = seam.slope * spread(seam.shape)
    return row._replace(status="wrong", detail=f"expected slopes {want.tolist()}, got {got.tolist()}")


def beside(seam: Seam, peer) -> str:
    """The detail on a peer at a seam where ours is right: mathematics decides there, and not the peer."""
    try:
        got = slopes(seam, peer)
    except Exception as refusal:
        return table.why_none(refusal)
    return table.AGREES if is_right(seam, got) else f"{table.PEER_OTHERWISE}{got.reshape(-1)[0]:g} where {seam.slope:g} is right"
