# SPDX-License-Identifier: Apache-2.0
"""The machine instructions of kernels that memory bounds: their pipes take no longer than their bytes (scripts/sass-budget.py)."""
import pathlib
import re
import subprocess
import sys

import numpy as np
import pytest
from mpt_run import ROOT, tool
from onnx import TensorProto, helper, numpy_helper, save

pytestmark = pytest.mark.slow

WORDS, WIDTH, VOCABULARY, IMAGES, CHANNELS, SIDE = 4096, 768, 50257, 32, 64, 56

# Time of the busiest pipe over the time of the bytes (an H200's), by schedule and operation: ratios above 1 today may not grow.
ALLOWED = {
    ("columns", "abs"): 2.2,  # the maximum of a matrix whose rows no vector divides
}


def save_model(path, nodes, inputs, weights, logits) -> None:
    rng = np.random.default_rng(0)
    values = [numpy_helper.from_array((0.02 * rng.standard_normal(shape)).astype(np.float32), name) for name, shape in weights.items()]
    infos = [helper.make_tensor_value_info(name, TensorProto.FLOAT, shape) for name, shape in inputs.items()]
    graph = helper.make_graph(nodes, path.stem, infos, [helper.make_tensor_value_info("logits", TensorProto.FLOAT, logits)], values)
    save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 20)], ir_version=9), path)


def language(path) -> None:
    """Norm, GELU both ways, residual, dropout, and a long vocabulary."""
    node = helper.make_node
    nodes = [node("LayerNormalization", ["x", "s1", "b1"], ["n1"], axis=-1), node("MatMul", ["n1", "w1"], ["h1"]), node("Add", ["h1", "c1"], ["a1"]),
             node("Gelu", ["a1"], ["g1"], approximate="tanh"), node("MatMul", ["g1", "w2"], ["h2"]), node("Add", ["h2", "x"], ["r"]),
             node("LayerNormalization", ["r", "s2", "b2"], ["n2"], axis=-1), node("MatMul", ["n2", "w3"], ["h3"]),
             node("Softmax", ["h3"], ["p"], axis=-1), node("MatMul", ["p", "w4"], ["h4"]), node("MatMul", ["h4", "w5"], ["logits"])]
    weights = {"s1": [WIDTH], "b1": [WIDTH], "w1": [WIDTH, WIDTH], "c1": [WIDTH], "w2": [WIDTH, WIDTH], "s2": [WIDTH], "b2": [WIDTH], "w3": [WIDTH, WIDTH],
               "w4": [WIDTH, 64], "w5": [64, VOCABULARY]}
    save_model(path, nodes, {"x": [WORDS, WIDTH]}, weights, [WORDS, VOCABULARY])


def vision(path) -> None:
    """Convolutions with norms, a sum of two branches, pooling."""
    node = helper.make_node

    def norm(number: int, given: str):
        return node("BatchNormalization", [given, *(f"{kind}{number}" for kind in "sbmv")], [f"n{number}", f"p{number}", f"q{number}"], training_mode=1)
    nodes = [node("Conv", ["x", "w1"], ["c1"], pads=[1] * 4), norm(1, "c1"), node("Relu", ["n1"], ["r1"]),
             node("MaxPool", ["r1"], ["m"], kernel_shape=[3, 3], strides=[2, 2], pads=[1] * 4),
             node("Conv", ["m", "w2"], ["c2"], pads=[1] * 4), norm(2, "c2"), node("Conv", ["m", "w3"], ["c3"]), norm(3, "c3"), node("Add", ["n2", "n3"], ["a"]),
             node("Relu", ["a"], ["r2"]), node("GlobalAveragePool", ["r2"], ["g"]), node("Flatten", ["g"], ["f"]), node("MatMul", ["f", "w4"], ["logits"])]
    weights = {"w1": [CHANNELS, 8, 3, 3], "w2": [CHANNELS, CHANNELS, 3, 3], "w3": [CHANNELS, CHANNELS, 1, 1], "w4": [CHANNELS, 10]}
    weights |= {f"{kind}{number}": [CHANNELS] for kind in "sbmv" for number in (1, 2, 3)}
    save_model(path, nodes, {"x": [IMAGES, 8, 2 * SIDE, 2 * SIDE]}, weights, [IMAGES, 10])


@pytest.mark.parametrize("policy", ["amp-bf16", "amp-f16", "fp8-hybrid"])
@pytest.mark.parametrize("model", [language, vision])
def test_no_kernel_is_over_its_budget(tmp_path, model, policy):
    model(tmp_path / "m.onnx")
    words = [sys.executable, ROOT / "scripts" / "sass-budget.py", tmp_path / "m.onnx", f"--policy={policy}", "--loss=softmax-cross-entropy", "--top=1000",
             "--width=200", f"--build={pathlib.Path(tool()).parents[1]}"]
    done = subprocess.run(words, capture_output=True, text=True)
    if done.returncode == 77:
        pytest.skip(done.stdout)
    assert done.returncode == 0, done.stderr
    rows = [[cell.strip() for cell in line.strip("|").split("|")] for line in done.stdout.splitlines()[2:]]
    assert len(rows) >= 10 and sum(float(row[3]) >= 4 for row in rows) >= 5, done.stdout
    over = []
    for row in rows:
        schedule, ops, megabytes, ratio = row[1], row[2], float(row[3]), float(row[11].split()[1])
        allowed = max([limit for (kind, op), limit in ALLOWED.items() if schedule == kind and op in re.split(r"[, ]+", ops)], default=1.0)
        if megabytes >= 4 and ratio > allowed:
            over.append((row[0], schedule, ops, ratio, allowed))
    assert not over, (over, done.stdout)
