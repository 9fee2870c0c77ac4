# SPDX-License-Identifier: Apache-2.0
"""mpt.compile: the command line it makes, and how it reports what mpt-opt says."""
import os
import stat

import pytest

import mpt
from mpt import _compile


@pytest.fixture
def compiler(tmp_path, monkeypatch):
    """A stand-in for mpt-opt that notes its arguments; `script` is what else it does."""

    def install(script: str = ""):
        path = tmp_path / "mpt-opt"
        path.write_text(f'#!/bin/sh\nprintf "%s\\n" "$@" > {tmp_path}/arguments\n{script}\n')
        path.chmod(path.stat().st_mode | stat.S_IXUSR)
        monkeypatch.setattr("mpt._compile.find_compiler", lambda: str(path))
        return lambda: (tmp_path / "arguments").read_text().split("\n")[:-1]

    return install


def test_command_line(compiler, tmp_path):
    arguments = compiler()
    out = mpt.compile("model.onnx", loss="mse", optimizer="sgd,lr=0.1", policy="amp-f16", bind={"N": 4, "T": 8},
                      dropout=False, keep_f32=["/a/.*", "/b/.*"], clip_norm=1.0, out=tmp_path / "lib")
    assert out == str(tmp_path / "lib")
    assert arguments() == ["model.onnx", "--quiet", "--loss=mse", "--optimizer=sgd,lr=0.1", "--policy=amp-f16", "--emit=library",
                           "--bind=N=4", "--bind=T=8", "--no-dropout", "--keep-f32=/a/.*", "--keep-f32=/b/.*",
                           "--clip-norm=1.0", "-o", str(tmp_path / "lib")]


def test_options():
    assert _compile.option("verbose", True) == ["--verbose"] and _compile.option("name", None) == []


def test_diagnostic(compiler, tmp_path):
    compiler('echo "model.onnx: error: /conv1: expected 4 dimensions, got 3" >&2; exit 1')
    with pytest.raises(mpt.CompileError, match="/conv1: expected 4 dimensions, got 3$"):
        mpt.compile("model.onnx", out=tmp_path)


def test_crash(compiler, tmp_path):
    compiler("kill -SEGV $$")
    with pytest.raises(mpt.CompileError, match="died of signal 11"):
        mpt.compile("model.onnx", out=tmp_path)


def test_missing_compiler(monkeypatch, tmp_path):
    monkeypatch.setattr("mpt._compile.find_compiler", lambda: str(tmp_path / "none"))
    with pytest.raises(mpt.CompileError, match="cannot run"):
        mpt.compile("model.onnx", out=tmp_path)


def test_torch_module_keeps_its_training_form(compiler, tmp_path):
    torch = pytest.importorskip("torch")
    onnx = pytest.importorskip("onnx")
    pytest.importorskip("onnxscript")
    compiler(f'cp "$1" {tmp_path}/exported.onnx')
    module = torch.nn.Sequential(torch.nn.Conv2d(3, 4, 3), torch.nn.BatchNorm2d(4), torch.nn.Dropout(0.5, inplace=True),
                                 torch.nn.Flatten(), torch.nn.Linear(144, 2)).eval()
    mpt.compile(module, inputs=(torch.randn(2, 3, 8, 8),), input_names=["image"], loss="mse", out=tmp_path / "lib")
    model = onnx.load(os.path.join(tmp_path, "exported.onnx"))
    kept = {i.name for i in model.graph.initializer}
    assert {name for name, _ in module.named_parameters()} <= kept
    norm, = [n for n in model.graph.node if n.op_type == "BatchNormalization"]
    assert {a.name: a.i for a in norm.attribute}["training_mode"] == 1
    assert any(n.op_type == "Dropout" for n in model.graph.node)
    assert model.graph.input[0].name == "image" and not module.training
