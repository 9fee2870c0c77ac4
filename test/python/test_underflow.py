# SPDX-License-Identifier: Apache-2.0
"""Gradients too small for FP16, through emitted libraries: lost without a loss scale, kept and trained on with one."""
import os

import numpy as np
import onnx
import pytest

import mpt
from conftest import build_folder

WEIGHT = 1e-6  # of the loss; the learning rate makes up for it, so that in exact arithmetic it changes nothing
MODEL = f"""
  <ir_version: 9, opset_import: ["" : 18]>
  net (float[64, 64] x, int64[64] labels) => (float loss, float[64, 10] logits) {{
    hidden = Gemm<transB = 1>(x, w1, b1)
    active = Relu(hidden)
    logits = Gemm<transB = 1>(active, w2, b2)
    entropy = SoftmaxCrossEntropyLoss<reduction = "mean">(logits, labels)
    weight = Constant<value_float = {WEIGHT:.8f}>()
    loss = Mul(entropy, weight)
  }}"""


@pytest.fixture(scope="module")
def trained(tmp_path_factory):
    """{scale: (gradients at the initial weights, held-out accuracy, result of the last step)} of FP32 and amp-f16."""
    datasets = pytest.importorskip("sklearn.datasets")
    folder, build = tmp_path_factory.mktemp("underflow"), build_folder()
    if not (build / "bin" / "mpt-opt").exists():
        pytest.skip("mpt-opt is not built")
    os.environ.setdefault("MPT_BUILD", str(build))
    images, labels = datasets.load_digits(return_X_y=True)
    order = np.random.default_rng(0).permutation(len(labels))
    x, y = (images[order] / 16).astype(np.float32), labels[order].astype(np.int64)
    model, random = onnx.parser.parse_model(MODEL), np.random.default_rng(1)
    for name, shape in {"w1": (32, 64), "b1": (32,), "w2": (10, 32), "b2": (10,)}.items():
        value = random.standard_normal(shape) / 8 if len(shape) == 2 else np.zeros(shape)
        model.graph.initializer.append(onnx.numpy_helper.from_array(value.astype(np.float32), name))
    onnx.save(model, folder / "net.onnx")
    results = {}
    for name, policy, scale in (("fp32", "fp32", None), ("scale 1", "amp-f16", 1), ("dynamic", "amp-f16", "dynamic")):
        out = mpt.compile(folder / "net.onnx", optimizer=f"sgd,lr={0.2 / WEIGHT},momentum=0.9", policy=policy,
                          loss_scale=scale, out=folder / name)
        trainer = mpt.Trainer(out, threads=1)
        gradients = trainer.gradients({"x": x[:64], "labels": y[:64]})[1]
        for step in range(150):
            at = 64 * (step % 22)
            result = trainer.step({"x": x[at:at + 64], "labels": y[at:at + 64]})
        answers = [trainer.evaluate({"x": x[at:at + 64], "labels": y[at:at + 64]})["logits"].argmax(1)
                   for at in range(1408, 1728, 64)]
        results[name] = gradients, float((np.concatenate(answers) == y[1408:1728]).mean()), result
    return results


def flushed(trained, name) -> float:
    exact, got = trained["fp32"][0], trained[name][0]
    lost = sum(np.count_nonzero((got[key] == 0) & (exact[key] != 0)) for key in exact)
    return lost / sum(np.count_nonzero(value) for value in exact.values())


def test_without_a_scale_the_gradient_is_lost(trained):
    share, (_, accuracy, result) = flushed(trained, "scale 1"), trained["scale 1"]
    print(f"flushed to zero: {share:.1%}, accuracy {accuracy:.1%}")
    assert share == 1 and accuracy < 0.5 and result.loss_scale == 1


def test_with_dynamic_scaling_it_is_kept_and_trains_as_fp32(trained):
    share, (gradients, accuracy, result) = flushed(trained, "dynamic"), trained["dynamic"]
    print(f"flushed to zero: {share:.1%}, accuracy {accuracy:.1%}, fp32 {trained['fp32'][1]:.1%}")
    assert share < 0.01 and accuracy > 0.9 and accuracy >= trained["fp32"][1] - 0.02 and result.loss_scale == 65536
    for name, value in trained["fp32"][0].items():
        cosine = (value * gradients[name]).sum() / (np.linalg.norm(value) * np.linalg.norm(gradients[name]))
        assert cosine > 0.999, name
