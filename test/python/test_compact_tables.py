# SPDX-License-Identifier: Apache-2.0
"""Gradients of embeddings that keep the rows that a batch has read: their bits, and the memory of a tied table."""
import json
import pathlib
import subprocess

import numpy as np
import pytest
from conftest import build_folder

import mpt
import mpt_run

onnx = pytest.importorskip("onnx")
from onnx import TensorProto, helper, numpy_helper  # noqa: E402

TESTS = pathlib.Path(__file__).resolve().parents[1] / "passes" / "fusion"
COMPILER = build_folder() / "bin" / "mpt-opt"
pytestmark = pytest.mark.skipif(not COMPILER.exists(), reason="mpt-opt is not built")
TOKENS, ROWS, WIDTH = 64, 1024, 256


@pytest.mark.parametrize("function, part, kinds", [("tied", 0, 3 * [np.float32]), ("blocks", 1, [np.float16, np.float32])])
def test_bits_of_the_pass(tmp_path, function, part, kinds):
    """The pass's own test, interpreted before and after it: rows that are read several times, with negative indices too."""
    text = (TESTS / "compact-tables.mlir").read_text().split("// -----")[part]
    after = subprocess.run([COMPILER, "-", "--fusion-compact-tables"], input=text, capture_output=True, text=True)
    assert after.returncode == 0 and "tensor<6x512xf32>" in after.stdout, after.stderr
    random = np.random.default_rng(2)
    updates = random.standard_normal((2, 3, 512)).astype(np.float32)
    values = [np.array([[9, 3, -1], [7, 255, 7]]), updates, *(random.standard_normal((256, 512)).astype(kind) for kind in kinds)]
    inputs = {f"arg{i}": value for i, value in enumerate(values)}
    results = [mpt_run.run(module, function, inputs, tmp_path) for module in (text, after.stdout)]
    for name, value in results[0].items():
        assert value.tobytes() == results[1][name].tobytes(), name


@pytest.fixture(scope="module")
def model(tmp_path_factory):
    """An embedding whose table is the head's weight as well."""
    table = np.random.default_rng(3).standard_normal((ROWS, WIDTH)).astype(np.float32) / 8
    nodes = [helper.make_node("Gather", ["table", "ids"], ["x"], name="embed"), helper.make_node("Tanh", ["x"], ["h"], name="tanh"),
             helper.make_node("Transpose", ["table"], ["t"], perm=[1, 0]), helper.make_node("MatMul", ["h", "t"], ["logits"], name="head")]
    graph = helper.make_graph(nodes, "tied", [helper.make_tensor_value_info("ids", TensorProto.INT64, [TOKENS])],
                              [helper.make_tensor_value_info("logits", TensorProto.FLOAT, [TOKENS, ROWS])], [numpy_helper.from_array(table, "table")])
    path = tmp_path_factory.mktemp("tied") / "tied.onnx"
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8), path)
    return path


def test_gradient_is_the_sum_of_both_uses(model, tmp_path):
    """Against NumPy in FP64, with tokens that repeat."""
    trainer = mpt.Trainer(mpt.compile(model, loss="softmax-cross-entropy", optimizer="sgd,lr=0.1", out=tmp_path), threads=2)
    random = np.random.default_rng(4)
    ids, labels = random.integers(0, 9, TOKENS), random.integers(0, ROWS, TOKENS)
    ids[::2] = random.integers(0, ROWS, TOKENS // 2)
    feeds = {name: {"ids": ids}.get(name, labels) for name in trainer.inputs("gradients")}
    found = trainer.gradients(feeds)[1]["table"]
    table = trainer.parameter("table").astype(np.float64)
    h = np.tanh(table[ids])
    share = np.exp(h @ table.T - (h @ table.T).max(1, keepdims=True))
    share /= share.sum(1, keepdims=True)
    share[np.arange(TOKENS), labels] -= 1
    share /= TOKENS
    want = share.T @ h
    np.add.at(want, ids, share @ table * (1 - h**2))
    np.testing.assert_allclose(found, want, rtol=1e-4, atol=1e-7)
    assert (np.abs(want[ids]) > 1e-5).any()


@pytest.mark.parametrize("slots", ["f32", "bf16", "i8"])
def test_no_table_is_written(model, tmp_path, slots):
    """Under a finite check the head's gradient waits in FP16, and nothing else of the table's size does."""
    subprocess.run([COMPILER, model, "--quiet", "--loss=softmax-cross-entropy", "--optimizer=adamw", "--policy=amp-f16", f"--slots={slots}", "--dry-run",
                    f"--report=memory={tmp_path / 'report.json'}"], check=True)
    step = json.loads((tmp_path / "report.json").read_text())["functions"]["step"]
    logits, table = 2 * TOKENS * ROWS, 2 * ROWS * WIDTH
    assert step["gradients"] < 1.2 * table and step["arena"] < 1.2 * (logits + table)
