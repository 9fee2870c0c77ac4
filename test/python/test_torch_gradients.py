# SPDX-License-Identifier: Apache-2.0
"""mpt.compile(module) trains with the gradients of autograd, or refuses: modules that stop, reverse, replace or recompute them."""
import copy
import logging
import re

import numpy as np
import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("onnxscript")

import gradient_modules as modules  # noqa: E402
import mpt  # noqa: E402
from mpt import _gradients, _torch  # noqa: E402


def made(kind):
    torch.manual_seed(3)
    return kind(), (torch.randn(4, 6), torch.randn(4, 6))


def compiled(kind, folder, **flags):
    module, inputs = made(kind)
    mpt.compile(module, inputs=inputs, input_names=["a", "b"], optimizer="adamw,lr=0.1,weight-decay=0.1", out=folder, **flags)
    return module, inputs


def autograd(module, inputs) -> dict:
    """In FP64; None where no gradient arrives."""
    module = copy.deepcopy(module).double().train()
    module(*(x.double() for x in inputs)).backward()
    return {name: None if p.grad is None else p.grad.numpy() for name, p in module.named_parameters()}


def check(module, inputs, folder):
    expected = autograd(module, inputs)
    with mpt.Trainer(folder) as trainer:
        feeds = {name: x.numpy() for name, x in zip("ab", inputs) if name in trainer.inputs()}
        _, found = trainer.gradients(feeds)
        before = {name: trainer.parameter(name).copy() for name in expected if name in trainer._shapes}
        trainer.step(feeds)
        for name, gradient in expected.items():
            if gradient is None:
                assert not np.any(found.get(name, 0)), name
                assert name not in before or np.array_equal(trainer.parameter(name), before[name]), name
            else:
                error = np.linalg.norm(found[name] - gradient) / np.linalg.norm(gradient)
                assert error < 2e-5, (name, error)


@pytest.mark.parametrize("kind", modules.MODULES, ids=lambda kind: kind.__name__)
def test_gradients_are_autograds(kind, tmp_path):
    check(*compiled(kind, tmp_path / "lib"), tmp_path / "lib")


def test_the_comparison_fails_without_the_marks(tmp_path, monkeypatch):
    monkeypatch.setattr(_gradients, "mark_stops", lambda program: {})
    module, inputs = compiled(modules.SimSiam, tmp_path / "lib")
    with pytest.raises(AssertionError):
        check(module, inputs, tmp_path / "lib")


@pytest.mark.parametrize("kind, says", modules.REFUSED, ids=lambda value: getattr(value, "__name__", ""))
def test_what_cannot_be_kept_is_refused(kind, says, tmp_path):
    with pytest.raises(mpt.CompileError, match=says):
        compiled(kind, tmp_path / "lib")
    assert not (tmp_path / "lib").exists()


@pytest.mark.parametrize("kind, line", [
    (modules.DANN, r"gradients of DANN: stated by autograd.Function Reversal \(1\)"),
    (modules.GAN, r"gradients of GAN: 1 stopped by detach \(gradient_modules.py:\d+\)"),
    (modules.BYOL, r"held, as requires_grad is False: target.weight, target.bias"),
], ids=["function", "detach", "held"])
def test_the_census_is_said_once(kind, line, tmp_path, caplog):
    caplog.set_level(logging.INFO, "mpt")
    module, inputs = made(kind)
    _torch.export(module, tmp_path / "model.onnx", inputs)
    said = "\n".join(caplog.messages)
    assert re.search(line, said), said
    assert len(caplog.messages) == len(set(caplog.messages))


def test_a_file_without_training_has_standard_operators(tmp_path):
    onnx = pytest.importorskip("onnx")
    module, inputs = made(modules.DANN)
    mpt.compile(module, inputs=inputs, policy="amp-bf16", emit="onnx", out=tmp_path / "model.onnx")
    assert not any(node.domain == "mpt" for node in onnx.load(tmp_path / "model.onnx").graph.node)
