# SPDX-License-Identifier: Apache-2.0
"""Evaluation models beside training models: a function over the same parameters, with the results that the file has."""
import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper
from runtime_artifacts import classifier, flatbuffer, node

import mpt

ROWS = 64
RNG = np.random.default_rng(0)
X = RNG.normal(0, 1, (ROWS, 2)).astype(np.float32)
LABELS = (X[:, 0] > X[:, 1]).astype(np.int64)


def evaluation(folder, *, name="eval_model.onnx", shape=(2, 2), nodes=None, inputs=()):
    """Loss and probabilities of the classifier, times a temperature that only this graph has; `w` has `shape`."""
    info, float_ = helper.make_tensor_value_info, TensorProto.FLOAT
    nodes = nodes or [node("Gemm", "x,w,b", "raw"), node("Mul", "raw,temperature", "logits"), node("Softmax", "logits", "probabilities", axis=1),
                      node("SoftmaxCrossEntropyLoss", "logits,labels", "loss")]
    graph = helper.make_graph(
        nodes, "evaluation", [info("x", float_, [ROWS, 2]), info("labels", TensorProto.INT64, [ROWS]), info("w", float_, shape),
                              info("b", float_, [2]), *inputs],
        [info("loss", float_, []), info("probabilities", float_, [ROWS, 2])], [numpy_helper.from_array(np.float32([2]), "temperature")])
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9), folder / name)
    return folder / name


def expected(w, b):
    logits = 2 * (X.astype(np.float64) @ w + b)
    e = np.exp(logits - logits.max(1, keepdims=True))
    p = e / e.sum(1, keepdims=True)
    return -np.log(p[np.arange(ROWS), LABELS]).mean(), p


@pytest.mark.parametrize("policy,tolerance", [("fp32", 1e-5), ("amp-f16", 2e-3), ("amp-bf16", 2e-2), ("fp8-hybrid", 2e-2)])
def test_the_results_are_those_of_the_file(policy, tolerance, tmp_path):
    classifier(tmp_path / "artifacts")
    evaluation(tmp_path / "artifacts")
    trainer = mpt.Trainer(mpt.compile(tmp_path / "artifacts", out=tmp_path / "lib", policy=policy), threads=1)
    assert "'loss', 'probabilities'" in trainer.manifest["training"]["evaluation"]
    feeds = {"x": X, "labels": LABELS}
    for _ in range(3):
        found = trainer.evaluate(feeds)
        loss, probabilities = expected(trainer.parameter("w"), trainer.parameter("b"))
        assert set(found) == {"loss", "probabilities"}
        assert float(found["loss"]) == pytest.approx(loss, rel=tolerance)
        np.testing.assert_allclose(found["probabilities"], probabilities, atol=tolerance)
        trainer.step(feeds)


def test_files_named_one_by_one(tmp_path):
    folder = tmp_path / "artifacts"
    classifier(folder)
    path = evaluation(tmp_path, name="other.onnx")
    trainer = mpt.Trainer(mpt.compile(folder / "training_model.onnx", out=tmp_path / "lib", checkpoint=folder / "checkpoint",
                                      optimizer_model=folder / "optimizer_model.onnx", eval_model=path), threads=1)
    found = trainer.evaluate({"x": X, "labels": LABELS})
    assert float(found["loss"]) == pytest.approx(expected(trainer.parameter("w"), trainer.parameter("b"))[0], rel=1e-5)


def test_beside_a_graph_without_a_loss(tmp_path):
    """Whoever names loss and evaluation gets both."""
    info, float_ = helper.make_tensor_value_info, TensorProto.FLOAT
    values = {"w": RNG.normal(0, 1, (2, 2)).astype(np.float32), "b": np.float32([0.25, -0.5])}
    graph = helper.make_graph([node("Gemm", "x,w,b", "logits")], "forward", [info("x", float_, [ROWS, 2])], [info("logits", float_, [ROWS, 2])],
                              [numpy_helper.from_array(value, name) for name, value in values.items()])
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9), tmp_path / "model.onnx")
    trainer = mpt.Trainer(mpt.compile(tmp_path / "model.onnx", out=tmp_path / "lib", loss="softmax-cross-entropy", optimizer="sgd,lr=0.1",
                                      eval_model=evaluation(tmp_path)), threads=1)
    feeds = {"x": X, "labels": LABELS}
    for _ in range(2):
        found = trainer.evaluate(feeds)
        loss, probabilities = expected(trainer.parameter("w"), trainer.parameter("b"))
        assert float(found["loss"]) == pytest.approx(loss, rel=1e-5)
        np.testing.assert_allclose(found["probabilities"], probabilities, atol=1e-5)
        trainer.step(feeds)


def test_a_tensor_that_only_the_checkpoint_and_the_evaluation_have(tmp_path):
    folder = tmp_path / "artifacts"
    values = classifier(folder)
    (folder / "checkpoint").write_bytes(flatbuffer(values, frozen={"scale": np.float32([3, 3])}))
    evaluation(folder, nodes=[node("Gemm", "x,w,b", "raw"), node("Mul", "raw,scale", "probabilities"), node("ReduceMean", "probabilities", "loss", keepdims=0)],
               inputs=[helper.make_tensor_value_info("scale", TensorProto.FLOAT, [2])])
    trainer = mpt.Trainer(mpt.compile(folder, out=tmp_path / "lib"), threads=1)
    found = trainer.evaluate({"x": X, "labels": LABELS})
    np.testing.assert_allclose(found["probabilities"], 3 * (X @ values["w"] + values["b"]), rtol=1e-5, atol=1e-6)


def test_one_that_does_not_fit_is_an_error_where_it_was_asked_for(tmp_path):
    folder = tmp_path / "artifacts"
    classifier(folder)
    path = evaluation(folder, shape=(2, 2, 1), nodes=[node("Identity", "x", "probabilities"), node("ReduceMean", "w", "loss", keepdims=0)])
    with pytest.raises(mpt.CompileError, match="expected 'w' in evaluation model .* as .*2x2xf32.*, as the training model has it, got .*2x2x1xf32"):
        mpt.compile(folder, out=tmp_path / "lib", eval_model=path)
    # Beside the training model it is left out, and evaluation made from that.
    trainer = mpt.Trainer(mpt.compile(folder, out=tmp_path / "lib"), threads=1)
    assert "evaluation" not in trainer.manifest["training"]
    assert set(trainer.evaluate({"x": X, "labels": LABELS})) == {"loss"}


def test_a_missing_file(tmp_path):
    classifier(tmp_path / "artifacts")
    with pytest.raises(mpt.CompileError, match="cannot open evaluation model"):
        mpt.compile(tmp_path / "artifacts", out=tmp_path / "lib", eval_model=tmp_path / "none.onnx")


def test_batch_normalization_that_the_runtime_took_out_of_training(tmp_path):
    """It keeps the results of training mode, which the standard does not have there."""
    folder = tmp_path / "artifacts"
    values = classifier(folder)
    shapes = {"scale": 3.0, "shift": 0.5, "mean": 1.0, "variance": 4.0}
    frozen = {name: np.full(2, number, np.float32) for name, number in shapes.items()}
    (folder / "checkpoint").write_bytes(flatbuffer(values, frozen=frozen))
    evaluation(folder, nodes=[node("Gemm", "x,w,b", "raw"),
                              node("BatchNormalization", "raw,scale,shift,mean,variance", "probabilities,mean.new,variance.new", training_mode=0, epsilon=0.0),
                              node("ReduceMean", "probabilities", "loss", keepdims=0)],
               inputs=[helper.make_tensor_value_info(name, TensorProto.FLOAT, [2]) for name in shapes])
    trainer = mpt.Trainer(mpt.compile(folder, out=tmp_path / "lib"), threads=1)
    found = trainer.evaluate({"x": X, "labels": LABELS})
    wanted = 3 * ((X @ values["w"] + values["b"]) - 1) / 2 + 0.5
    np.testing.assert_allclose(found["probabilities"], wanted, rtol=1e-4, atol=1e-5)
