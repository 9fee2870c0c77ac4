# SPDX-License-Identifier: Apache-2.0
"""Convolutions whose operands have 8 bits, forward and both gradients: emitted code against the reference interpreter."""
import os
import pathlib
import re
import subprocess
import sys

import numpy as np
import pytest

import mpt
from mpt_run import read_tensors, write_tensors

ROOT = pathlib.Path(__file__).resolve().parents[2]
BUILD = pathlib.Path(os.environ.get("MPT_BUILD", ROOT / "build" / "release"))
onnx = pytest.importorskip("onnx")
pytestmark = pytest.mark.skipif(not (BUILD / "bin" / "mpt-opt").exists(), reason="mpt-opt is not built")
sys.path.insert(0, str(ROOT / "examples" / "quickstart"))
BATCH = 4
FLAGS = {"loss": "softmax-cross-entropy", "optimizer": "sgd,lr=1"}


def network(path):
    """A first convolution, then ones with 3 x 3 and 1 x 1 filters, strides, groups and a transposed one; few and many channels."""
    from models import Graph
    from onnx import TensorProto
    g = Graph(4)

    def conv(x, name, shape, kind="Conv", **more):
        fan = int(np.prod(shape[1:]))
        return g.op("Relu", g.op(kind, x, g.normal(f"{name}.weight", shape, (2.0 / fan) ** 0.5), name=f"/{name}", **more))

    x = conv("x", "first", (8, 2, 3, 3), kernel_shape=[3, 3], pads=[1] * 4)
    x = conv(x, "strided", (32, 8, 3, 3), kernel_shape=[3, 3], pads=[1] * 4, strides=[2, 2])
    x = conv(x, "wide", (32, 32, 3, 3), kernel_shape=[3, 3], pads=[1] * 4)
    x = conv(x, "pointwise", (24, 32, 1, 1), kernel_shape=[1, 1])
    x = conv(x, "groups", (32, 6, 3, 3), kernel_shape=[3, 3], pads=[1] * 4, group=4)
    x = conv(x, "few", (64, 32, 3, 3), kernel_shape=[3, 3], pads=[1] * 4, strides=[3, 3])
    x = conv(x, "up", (64, 4, 2, 2), kind="ConvTranspose", kernel_shape=[2, 2], strides=[2, 2])
    logits = g.linear(g.op("Flatten", x), "last", 4 * 4 * 4, 5)
    return g.save(str(path), [("x", TensorProto.FLOAT, [BATCH, 2, 10, 10])], logits, [BATCH, 5])


@pytest.mark.parametrize("policy", ["fp8-e5m2", "fp8-current", "fp8-hybrid"])
def test_convolutions_step_as_the_interpreter(policy, tmp_path):
    mpt.use_build(BUILD)
    model = network(tmp_path / "network.onnx")
    mpt.compile(model, policy=policy, out=tmp_path / "library", **FLAGS)
    mpt.compile(model, policy=policy, out=tmp_path / "step.mlir", emit="mlir", to="precision", **FLAGS)
    step = (tmp_path / "step.mlir").read_text().split("func.func @step")[1].split("func.func")[0]
    eight = {op: len(re.findall(rf"mpt\.{op} .*: \(tensor<[0-9x]*f8E\w+>, tensor<[0-9x]*f8E\w+>\)", step))
             for op in ("conv", "conv_backward_data", "conv_backward_weights")}
    # Seven layers, of which the first one stays wide; its input needs no gradient. A transposed convolution is the gradient of
    # a convolution, and its gradient is one.
    assert eight == {"conv": 6, "conv_backward_data": 6, "conv_backward_weights": 6}, eight

    random = np.random.default_rng(7)
    feeds = {"x": random.standard_normal((BATCH, 2, 10, 10)).astype(np.float32), "labels": random.integers(0, 5, BATCH)}
    trainer = mpt.Trainer(tmp_path / "library", threads=1)
    for _ in range(2):  # the second step has scales of its own
        write_tensors(tmp_path / "in", {**feeds, "learning_rate": np.array(0.1, np.float32)})
        write_tensors(tmp_path / "state", before := trainer.state())
        subprocess.run([BUILD / "bin" / "mpt-run", tmp_path / "step.mlir", "--function=step", f"--inputs={tmp_path / 'in'}",
                        f"--state={tmp_path / 'state'}", f"--outputs={tmp_path / 'out'}", f"--new-state={tmp_path / 'new'}"],
                       check=True)
        loss = trainer.step(feeds, learning_rate=0.1).loss
        expected = read_tensors(tmp_path / "new")
        assert loss == pytest.approx(float(read_tensors(tmp_path / "out")["loss"]), rel=2e-3)
        state = trainer.state()
        for name in (name for name in state if name.endswith(".weight")):
            moved = [side[name].astype(np.float64) - before[name].astype(np.float64) for side in (state, expected)]
            # Sums in another order fall to another 8-bit neighbour now and then.
            assert np.linalg.norm(moved[0] - moved[1]) <= 0.05 * np.linalg.norm(moved[1]), name
