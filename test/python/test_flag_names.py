# SPDX-License-Identifier: Apache-2.0
"""Names and expressions in flags that nothing in the model has are errors with the nearest names."""
import json
import subprocess

import numpy as np
import onnx
import pytest
from onnx import numpy_helper

import mpt
from mpt_run import tool

FORWARD = """<ir_version: 8, opset_import: ["" : 17]>
  g (float[4,6] x) => (float[4,3] y) {
    [first] h = MatMul(x, fc1_weight)  [shift] s = Add(h, fc1_bias)  [active] a = Tanh(s)  [second] y = MatMul(a, fc2_weight)
  }"""
# The parameters' updates mix both gradients, and each is a multiple of `share` nowhere but in one of two terms.
JOINT = """<ir_version: 8, opset_import: ["" : 17]>
  g (float[8,4] x) => (float loss, float[4,4] w_grad) {
    y = MatMul(x, w)  q = Mul(y, y)  loss = ReduceMean<keepdims = 0>(q)
    dy = Mul(y, share)  xt = Transpose(x)  gw = MatMul(xt, dy)  w_grad = %s  unused = Mul(other, loss)
  }"""
WEIGHTS = {"fc1_weight": (6, 5), "fc1_bias": (5,), "fc2_weight": (5, 3)}


def saved(text, values, path):
    model = onnx.parser.parse_model(text)
    model.graph.initializer.extend(numpy_helper.from_array(np.asarray(value, np.float32), name) for name, value in values.items())
    onnx.save(model, path)
    return path


@pytest.fixture
def forward(tmp_path):
    return saved(FORWARD, {name: np.ones(shape) for name, shape in WEIGHTS.items()}, tmp_path / "m.onnx")


STEP = {"loss": "mse", "optimizer": "sgd"}
CASES = [
    ({"freeze": "fc1_wieght", **STEP}, "--freeze: expected an expression that matches a whole name, got 'fc1_wieght'", "near it: 'fc1_weight'"),
    ({"train": "fc1", **STEP}, "--train: expected an expression that matches a whole name", "near it: 'fc1_bias', 'fc1_weight'"),
    ({"train": "encoder.*", **STEP}, "got 'encoder.*'", "there are 'fc1_bias', 'fc1_weight', 'fc2_weight'"),
    ({"keep_f32": "frist", **STEP}, "got 'keep-f32 \"frist\" -> wide', which matches none", "near it: 'first'"),
    ({"keep_narrow": "secnd", "policy": "amp-f16", **STEP}, "got 'keep-narrow \"secnd\" -> narrow'", "near it: 'second'"),
    ({"keep_f32": "frist", "policy": "amp-f16", "emit": "onnx"}, "got 'keep-f32 \"frist\" -> wide'", "near it: 'first'"),
    ({"rule": 'op "mpt.gelu" -> wide', **STEP}, "expected a rule about ops of the model", "'mpt.matmul'"),
    ({"rule": 'op "onnx.Gelu" -> wide', "policy": "amp-f16", "emit": "onnx"}, "expected a rule about ops of the model", "there are 'onnx.Add'"),
    ({"rule": 'node "activ" operand 0 -> wide', **STEP}, "expected a rule about nodes of the model", "near it: 'active'"),
    ({"gradient": "fc1_wieght=y", **STEP}, "--gradient: expected an initializer, got 'fc1_wieght'", "near it: 'fc1_weight'"),
    ({"next": "fc1_weight=yy", **STEP}, "--next: expected an output of the graph, got 'yy'", "near it: 'y'"),
    ({"seed": "y", **STEP}, "--seed: expected a backward pass of the file that is used", "a graph without gradients"),
    ({"freeze": "fc1_bias", "policy": "amp-f16", "emit": "onnx"}, "expected a training step for --freeze=fc1_bias", ""),
]


@pytest.mark.parametrize("flags, message, names", CASES, ids=lambda value: "-".join(value) if isinstance(value, dict) else "")
def test_what_matches_nothing(flags, message, names, forward, tmp_path):
    with pytest.raises(mpt.CompileError) as refusal:
        mpt.compile(forward, out=tmp_path / "out.onnx", **flags)
    assert message in str(refusal.value) and names in str(refusal.value), refusal.value


@pytest.mark.parametrize("flag", [{"loss": "mse"}, {"optimizer": "sgd"}, {"clip_norm": 1.0}, {"ema": 0.9}], ids=lambda flag: next(iter(flag)))
def test_a_forward_pass_has_no_use_for_flags_of_a_step(flag, forward, tmp_path):
    with pytest.raises(mpt.CompileError, match=f"expected no --{next(iter(flag)).replace('_', '-')} with --forward-only"):
        mpt.compile(forward, out=tmp_path / "lib", forward_only=True, **flag)


def test_mpt_run_says_so_too(forward):
    done = subprocess.run([tool(), forward, "--loss=mse", "--keep-f32=frist", "--function=step"], capture_output=True, text=True)
    assert done.returncode != 0 and "near it: 'first'" in done.stderr, done.stderr


@pytest.mark.parametrize("flags", [
    {"freeze": "fc1_bias|none"}, {"train": ["none|fc2.*", "fc1.*"]}, {"keep_f32": "first|none"}, {"keep_narrow": ".*"},
    {"rule": ['op "mpt.tanh" -> wide', 'node "sec.*" operand 1 -> wide']}])
def test_one_alternative_is_enough(flags, forward, tmp_path):
    mpt.compile(forward, out=tmp_path / "lib", to="precision", policy="amp-f16", **STEP, **flags)


def test_the_summary_says_what_flags_hold(forward, tmp_path, caplog):
    def said(**flags):
        caplog.clear()
        with caplog.at_level("INFO", logger="mpt"):
            mpt.compile(forward, out=tmp_path / "lib", **STEP, **flags)
        held = json.loads(next((tmp_path / "lib").glob("*.json")).read_text()).get("held", {})
        return caplog.text, held
    text, held = said(train="fc2.*")
    assert "trains 1 tensor, 15 values; --train holds 2 tensors that would train without it" in text
    assert held == {"fc1_weight": "not in --train", "fc1_bias": "not in --train"}
    text, held = said(freeze="fc2.*")
    assert "trains 2 tensors, 35 values; --freeze holds 1 tensor" in text and held == {"fc2_weight": "--freeze"}
    assert "holds" not in said()[0]


def joint(gradient, path):
    values = {"w": np.eye(4), "share": 1 / 16, "half": .5, "other": 2.0}
    return saved(JOINT % gradient, values, path)


def test_a_seed_is_the_value_that_is_scaled(tmp_path):
    path = joint("Identity(gw)", tmp_path / "m.onnx")
    mpt.compile(path, out=tmp_path / "lib", policy="amp-f16", seed="share", optimizer="sgd")
    for seed, message in {"shar": "near it: 'share'", "other": "got 'other', which none needs", "half": "got 'half', which none needs",
                          "y": "--seed: expected the value that every gradient is a multiple of, and nothing else, got 'y'"}.items():
        with pytest.raises(mpt.CompileError) as refusal:
            mpt.compile(path, out=tmp_path / "lib", policy="amp-f16", seed=seed, optimizer="sgd")
        assert message in str(refusal.value), refusal.value
    with pytest.raises(mpt.CompileError, match="got one that is made anew"):
        mpt.compile(path, out=tmp_path / "lib", seed="share", backward="own", optimizer="sgd")


def test_a_seed_that_changes_nothing_is_refused(tmp_path):
    """The error that advises --seed is about a bound that no seed can go through."""
    path = joint("Tanh(gw)", tmp_path / "m.onnx")
    with pytest.raises(mpt.CompileError, match="--seed NAME"):
        mpt.compile(path, out=tmp_path / "lib", policy="amp-f16", optimizer="sgd")
    with pytest.raises(mpt.CompileError, match="from here on the gradient of 'w' is none; name another value"):
        mpt.compile(path, out=tmp_path / "lib", policy="amp-f16", seed="share", optimizer="sgd")
