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

    @property
    def name(self) -> str:
        settings = "".join(f"_{key}_{value}" for key, value in sorted(self.attributes.items()))
        return f"seam_{self.op.lower()}{settings}_at_{self.x:g}"


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
    # Where slopes differ, those of training frameworks: the mean, or the one from the side that the formula names.
    yield Seam("Relu", 0.0, 0)
    yield Seam("Abs", 0.0, 0)


SEAMS = list({seam.name: seam for seam in _seams()}.values())


def run(seam: Seam, adapter, row: table.Row) -> table.Row:
    from onnx import TensorProto, helper
    node = helper.make_node(seam.op, ["x"], ["y"], **seam.attributes)
    value = {name: helper.make_tensor_value_info(name, TensorProto.FLOAT, [2]) for name in ("x", "y")}
    model = helper.make_model(helper.make_graph([node], "seam", [value["x"]], [value["y"]]), ir_version=10,
                              opset_imports=[helper.make_opsetid("", seam.opset)])
    try:
        found = adapter.gradients(model, {"x": np.array([seam.x, seam.x], np.float32)}, ["x"], {"y": np.array([1, 2], np.float32)})
    except Exception as refusal:  # whatever a backend raises
        return row._replace(status="refused", detail=table.one_line(refusal))
    got = np.asarray(found["x"], np.float64)
    want = np.array([seam.slope, 2 * seam.slope])
    if np.allclose(got, want, rtol=1e-5, atol=1e-12):
        return row
    return row._replace(status="wrong", detail=f"expected slopes {want.tolist()}, got {got.tolist()}")
