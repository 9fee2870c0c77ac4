# SPDX-License-Identifier: Apache-2.0
"""mpt.compile: the command line it makes, and how it reports mpt-opt's messages."""
import logging
import os
import stat

import pytest

import mpt
from mpt import _compile


@pytest.fixture
def compiler(tmp_path, monkeypatch):
    """A fake mpt-opt that notes its arguments, then runs `script`."""

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
    assert arguments() == ["model.onnx", "--loss=mse", "--optimizer=sgd,lr=0.1", "--policy=amp-f16", "--emit=library",
                           "--bind=N=4", "--bind=T=8", "--no-dropout", "--keep-f32=/a/.*", "--keep-f32=/b/.*",
                           "--clip-norm=1.0", "-o", str(tmp_path / "lib")]


def test_options():
    assert _compile.option("verbose", True) == ["--verbose"] and _compile.option("name", None) == []


def test_diagnostic(compiler, tmp_path):
    compiler('echo "model.onnx: error: /conv1: expected 4 dimensions, got 3" >&2; exit 1')
    with pytest.raises(mpt.CompileError, match="/conv1: expected 4 dimensions, got 3$"):
        mpt.compile("model.onnx", out=tmp_path)


def test_errors_come_first(compiler, tmp_path):
    compiler("""cat >&2 <<'END'
mpt-opt: importing model.onnx
warning: at node 'a': expected a loss
  a line about the warning
error: at node 'b': expected 4 dimensions, got 3
note: see b
END
exit 1""")
    with pytest.raises(mpt.CompileError) as raised:
        mpt.compile("model.onnx", out=tmp_path)
    assert str(raised.value).split("\n") == ["error: at node 'b': expected 4 dimensions, got 3", "note: see b",
                                             "warning: at node 'a': expected a loss", "  a line about the warning"]


def test_warnings_and_the_summary_reach_the_caller(compiler, tmp_path, caplog):
    compiler("""cat >&2 <<'END'
mpt-opt: importing model.onnx
mpt-opt: trains 4 tensors, 30 values; held: c (zeros)
warning: at node 'a': expected a loss
mpt-opt: phase training
END""")
    caplog.set_level(logging.INFO, "mpt")
    with pytest.warns(mpt.CompileWarning, match="^warning: at node 'a': expected a loss$") as warned:
        mpt.compile("model.onnx", out=tmp_path)
    assert len(warned) == 1 and warned[0].filename == __file__
    assert caplog.messages == ["trains 4 tensors, 30 values; held: c (zeros)"]


def test_the_summary_is_printed_where_logging_is_not_set_up(compiler, tmp_path, capsys, monkeypatch):
    compiler("echo 'mpt-opt: trains 4 tensors, 30 values' >&2")
    monkeypatch.setattr(logging.getLogger(), "handlers", [])
    mpt.compile("model.onnx", out=tmp_path)
    assert capsys.readouterr().err == "mpt: trains 4 tensors, 30 values\n"


def test_another_models_library_is_replaced(compiler, tmp_path):
    """Files that no compilation wrote stay, and so does a library beside one that has a name of its own."""
    out = tmp_path / "lib"
    out.mkdir()
    (out / "libother.so").touch()
    (out / "mine.json").write_text("{}")
    write = 'for word; do last=$word; done; stem=$(basename "$1" .onnx); for word; do case $word in --name=*) stem=${word#--name=};; esac; done\n'
    write += "echo '{\"policy\": \"fp32\"}' > $last/$stem.json; touch $last/lib$stem.so $last/$stem.safetensors"
    compiler(write)
    mpt.compile("a.onnx", out=out)
    mpt.compile("a.onnx", out=out)  # itself again: nothing to say
    with pytest.warns(mpt.CompileWarning, match="libb.so replaces liba.so"):
        mpt.compile("b.onnx", out=out)
    assert {p.name for p in out.iterdir()} == {"libother.so", "mine.json", "libb.so", "b.json", "b.safetensors"}
    with pytest.warns(mpt.CompileWarning, match="also holds libb.so: load .*/libc.so"):
        mpt.compile("b.onnx", out=out, name="c")
    assert (out / "libb.so").exists() and (out / "libc.so").exists()


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
