# SPDX-License-Identifier: Apache-2.0
"""Two losses with a scale each, and an optimizer for each group of parameters, through emitted libraries."""
import numpy as np
import onnx
import pytest

import mpt
from conftest import build_folder

MODEL = """
  <ir_version: 9, opset_import: ["" : 18]>
  net (float[16, 8] x) => (float[16, 4] logits, float[16, 8] image) {
    trunk = MatMul(x, shared)
    active = Tanh(trunk)
    logits = MatMul(active, classify)
    image = MatMul(active, draw)
  }"""
LOSSES = ["softmax-cross-entropy,output=logits", "mse,output=image,weight=0.25"]
OPTIMIZERS = ["sgd,lr=0.1", "sgd,lr=0.2,momentum=0.9,params=cla.*"]


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    if not (build_folder() / "bin" / "mpt-opt").exists():
        pytest.skip("mpt-opt is not built")
    folder, random = tmp_path_factory.mktemp("losses"), np.random.default_rng(0)
    model = onnx.parser.parse_model(MODEL)
    for name, shape in {"shared": (8, 8), "classify": (8, 4), "draw": (8, 8)}.items():
        value = (random.standard_normal(shape) / 3).astype(np.float32)
        model.graph.initializer.append(onnx.numpy_helper.from_array(value, name))
    onnx.save(model, folder / "net.onnx")
    return folder


def batch(seed=0):
    random = np.random.default_rng(seed)
    return {"x": random.standard_normal((16, 8)).astype(np.float32), "logits_labels": random.integers(0, 4, 16),
            "image_target": random.standard_normal((16, 8)).astype(np.float32)}


def expected(weights, feeds):
    """Loss of the sum and its gradients in float64."""
    w = {name: value.astype(np.float64) for name, value in weights.items()}
    x, labels, target = feeds["x"].astype(np.float64), feeds["logits_labels"], feeds["image_target"]
    active = np.tanh(x @ w["shared"])
    logits, image = active @ w["classify"], active @ w["draw"]
    p = np.exp(logits - logits.max(1, keepdims=True))
    p /= p.sum(1, keepdims=True)
    loss = -np.log(p[np.arange(16), labels]).mean() + 0.25 * ((image - target) ** 2).mean()
    p[np.arange(16), labels] -= 1
    dlogits, dimage = p / 16, 0.25 * 2 * (image - target) / image.size
    dtrunk = (dlogits @ w["classify"].T + dimage @ w["draw"].T) * (1 - active**2)
    return loss, {"shared": x.T @ dtrunk, "classify": active.T @ dlogits, "draw": active.T @ dimage}


@pytest.mark.parametrize("policy", ["fp32", "amp-f16", "als-f16"])
def test_sum_and_gradients(folder, policy):
    trainer = mpt.Trainer(mpt.compile(folder / "net.onnx", loss=LOSSES, optimizer=OPTIMIZERS, policy=policy,
                                      out=folder / policy), threads=1)
    feeds, weights = batch(), trainer.parameters()
    loss, gradients = trainer.gradients(feeds)
    exact, exact_gradients = expected(weights, feeds)
    rtol = 1e-5 if policy == "fp32" else 5e-3
    assert loss == pytest.approx(exact, rel=rtol)
    for name, value in exact_gradients.items():
        np.testing.assert_allclose(gradients[name], value, rtol=rtol, atol=rtol * np.abs(value).max(), err_msg=name)
    # One step: each group with its own rate, which a schedule moves alike.
    trainer.step(feeds, learning_rate=0.05)
    for name, value in exact_gradients.items():
        rate = 0.1 if name == "classify" else 0.05
        np.testing.assert_allclose(trainer.parameter(name), weights[name] - rate * value, rtol=1e-3,
                                   atol=rate * rtol * np.abs(value).max(), err_msg=name)
    state = trainer.state()
    assert "classify.momentum" in state and "shared.momentum" not in state


def test_each_loss_has_a_scale_of_its_own(folder):
    trainer = mpt.Trainer(mpt.compile(folder / "net.onnx", loss=LOSSES, optimizer=OPTIMIZERS, policy="amp-f16",
                                      out=folder / "scales"), threads=1)
    trainer.step(batch())
    before = trainer.state()
    assert before["mpt.loss_scale.logits"] == before["mpt.loss_scale.image"] == 65536
    feeds = batch(1)
    feeds["image_target"][3, 2] = np.inf
    assert trainer.step(feeds).skipped
    after = trainer.state()
    assert after["mpt.loss_scale.image"] == 32768 and after["mpt.loss_scale.logits"] == 65536
    for name in ("shared", "classify", "draw", "classify.momentum"):
        assert after[name].tobytes() == before[name].tobytes(), name
    result = trainer.step(batch(2))
    assert not result.skipped and result.loss_scale == 32768


def test_a_loss_that_is_spoilt_for_all_lowers_all_scales(folder):
    trainer = mpt.Trainer(folder / "scales", threads=1)
    feeds = batch()
    feeds["x"][0, 0] = np.nan
    assert trainer.step(feeds).skipped
    state = trainer.state()
    assert state["mpt.loss_scale.image"] == state["mpt.loss_scale.logits"] == 32768


@pytest.mark.parametrize("flags, message", [
    ({"loss": ["mse,output=image", "mse"]}, "expected each of several losses to name an output of its own"),
    ({"loss": ["mse,output=image", "mse,output=picture"]}, "expected a float tensor as a result named 'picture'"),
    ({"loss": LOSSES, "optimizer": ["sgd,params=cla.*"]}, "expected an optimizer for parameter"),
    ({"loss": LOSSES, "optimizer": ["sgd", "adam,params=("]}, "expected a regular expression for params of adam"),
])
def test_mistakes_are_explained(folder, flags, message):
    with pytest.raises(mpt.CompileError) as caught:
        mpt.compile(folder / "net.onnx", out=folder / "bad", **flags)
    assert message in str(caught.value)
