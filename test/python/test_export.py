# SPDX-License-Identifier: Apache-2.0
"""--emit=onnx: the whole rewritten training step as standard operators, against the compiled library."""
import os
import subprocess
import sys

import numpy as np
import onnx
import onnx.reference
import pytest

import mpt
from conftest import build_folder

sys.path.insert(0, os.path.join(os.path.dirname(__file__), "..", "..", "examples", "quickstart"))
import models

BATCH = 4


def feeds():
    random = np.random.default_rng(0)
    return {"x": random.random((BATCH, 1, 8, 8), dtype=np.float32), "labels": random.integers(0, 10, BATCH)}


@pytest.fixture(scope="module")
def cnn(tmp_path_factory):
    return models.digits_cnn(str(tmp_path_factory.mktemp("export") / "digits.onnx"), BATCH)


@pytest.mark.parametrize("policy, tolerance", [("fp32", 1e-5), ("amp-f16", 2e-3)])
def test_step_is_valid_and_computes_what_the_library_does(cnn, tmp_path, policy, tolerance):
    options = {"loss": "softmax-cross-entropy", "optimizer": "sgd,lr=0.1,momentum=0.9", "policy": policy}
    path = str(tmp_path / "step.onnx")
    mpt.compile(cnn, out=path, emit="onnx", **options)
    model = onnx.load(path)
    onnx.checker.check_model(model, full_check=True)
    results = dict(zip([o.name for o in model.graph.output],
                       onnx.reference.ReferenceEvaluator(model).run(None, {**feeds(), "learning_rate": np.float32(0.1)})))

    mpt.compile(cnn, out=str(tmp_path / "library"), **options)
    trainer = mpt.Trainer(str(tmp_path / "library"))
    result = trainer.step(feeds(), learning_rate=0.1)
    assert result.loss == pytest.approx(float(results["loss"]), rel=tolerance)
    for name, value in trainer.parameters().items():
        exported = results.get(f"{name}.master_next", results[f"{name}_next"]).astype(np.float32)
        assert np.abs(exported - value).max() <= tolerance * max(1.0, np.abs(value).max()), name
    if policy == "amp-f16":
        kinds = {i.name: i.data_type for i in model.graph.initializer}
        assert kinds["conv2.weight"] == onnx.TensorProto.FLOAT16
        assert kinds["conv2.weight.master"] == onnx.TensorProto.FLOAT
        assert bool(results["skipped"]) == result.skipped


def test_output_to_a_folder_that_is_not_there(cnn, tmp_path):
    with pytest.raises(mpt.CompileError, match="cannot write"):
        mpt.compile(cnn, out=str(tmp_path / "missing" / "step.onnx"), emit="onnx", loss="softmax-cross-entropy")


def test_slopes_that_are_no_fp32_numbers(tmp_path):
    (tmp_path / "f.mlir").write_text("""module attributes {mpt.name = "f"} {
      func.func @forward(%x: tensor<64xf64> {mpt.name = "x"}) -> (tensor<64xf64> {mpt.name = "h"}, tensor<64xf64> {mpt.name = "l"}) {
        %h = mpt.hard_sigmoid %x {alpha = 0.4, beta = 0.45} : tensor<64xf64>
        %l = mpt.leaky_relu %x {alpha = 0.3} : tensor<64xf64>
        return %h, %l : tensor<64xf64>, tensor<64xf64>
      }
    }""")
    subprocess.run([build_folder() / "bin" / "mpt-opt", tmp_path / "f.mlir", "--from=precision", "--forward-only", "--emit=onnx", "--quiet",
                    "-o", tmp_path / "f.onnx"], check=True)
    x = np.linspace(-3, 3, 64)
    h, l = onnx.reference.ReferenceEvaluator(str(tmp_path / "f.onnx")).run(None, {"x": x})
    assert np.array_equal(h, np.clip(0.4 * x + 0.45, 0, 1)) and np.array_equal(l, np.where(x < 0, 0.3 * x, x))
