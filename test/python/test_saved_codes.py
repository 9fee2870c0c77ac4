# SPDX-License-Identifier: Apache-2.0
"""Activations that wait for the backward pass in 8 bits (--saved=f8, rules `saved`): the bound of a gradient's error, exact
values, rules by node, and training as good as FP32's."""
import json
import subprocess

import numpy as np
import pytest
from conftest import build_folder

import mpt

onnx = pytest.importorskip("onnx")
from onnx import TensorProto, helper, numpy_helper  # noqa: E402

ROWS, WIDTH = 256, 128
UNIT = 2.0**-4  # rounding of 3 bits
COMPILER = build_folder() / "bin" / "mpt-opt"


@pytest.fixture(scope="module")
def model(tmp_path_factory):
    """x W0, W1, tanh, W2: three layers, the last of them behind a tanh."""
    random = np.random.default_rng(3)
    weights = [numpy_helper.from_array(random.standard_normal((WIDTH, WIDTH)).astype(np.float32) / 11, f"w{i}") for i in range(3)]
    nodes = [helper.make_node("MatMul", ["x", "w0"], ["h0"], name="first"), helper.make_node("MatMul", ["h0", "w1"], ["h1"], name="second"),
             helper.make_node("Tanh", ["h1"], ["a"], name="tanh"), helper.make_node("MatMul", ["a", "w2"], ["y"], name="third")]
    info = [helper.make_tensor_value_info(name, TensorProto.FLOAT, [ROWS, WIDTH]) for name in ("x", "y")]
    path = tmp_path_factory.mktemp("saved") / "layers.onnx"
    onnx.save(helper.make_model(helper.make_graph(nodes, "layers", info[:1], info[1:], weights),
                                opset_imports=[helper.make_opsetid("", 17)], ir_version=8), path)
    return path


def build(model, folder, *flags):
    folder.mkdir()
    subprocess.run([COMPILER, model, "--quiet", "--loss=mse", "--optimizer=sgd,lr=0.1", "--train=w[0-9]",
                    f"--report=memory={folder / 'report.json'}", "-o", folder, *flags], check=True)
    return json.loads((folder / "report.json").read_text()), mpt.Trainer(folder, threads=1)


def batch(trainer):
    random = np.random.default_rng(5)
    # Rows of very different magnitude: each has a scale of its own.
    scale = np.exp2(random.integers(-20, 20, (ROWS, 1)))
    return {name: (random.standard_normal((ROWS, WIDTH)) * scale).astype(np.float32) for name in trainer.inputs("gradients")}


def test_gradients_are_within_the_bound(model, tmp_path):
    plain, codes = build(model, tmp_path / "plain"), build(model, tmp_path / "codes", "--saved=f8", "--rule", 'saved "(second|tanh)" -> storage')
    feeds = batch(plain[1])
    (loss, wide), (same, coded) = (trainer.gradients(feeds) for _, trainer in (plain, codes))
    assert loss == same
    # The first layer's gradient reads the input, the last one's the tanh, which the rule exempts.
    for name in ("w0", "w2"):
        assert wide[name].tobytes() == coded[name].tobytes(), name
    weights = {name: value.astype(np.float64) for name, value in plain[1].parameters().items()}
    x, target = (feeds[name].astype(np.float64) for name in ("x", next(name for name in feeds if name != "x")))
    h0 = x @ weights["w0"]
    a = np.tanh(h0 @ weights["w1"])
    dh1 = 2 / target.size * (a @ weights["w2"] - target) @ weights["w2"].T * (1 - a**2)
    # Of each element 2^-4, or half the smallest number under the row's scale.
    error = np.maximum(np.abs(h0) * UNIT, np.abs(h0).max(1, keepdims=True) / 448 * 2.0**-10)
    bound = error.T @ np.abs(dh1)
    difference = np.abs(wide["w1"].astype(np.float64) - coded["w1"])
    assert (difference <= bound * 1.001 + 1e-6 * np.abs(wide["w1"]).max()).all()
    assert (difference > bound / 1000).any(), "codes were read"


@pytest.mark.parametrize("policy", ["fp32", "amp-f16", "amp-bf16"])
def test_plan_is_smaller_by_what_the_report_says(model, tmp_path, policy):
    plain, codes = (build(model, tmp_path / name, f"--policy={policy}", *flags)[0]
                    for name, flags in (("plain", []), ("codes", ["--saved=f8"])))
    rung = codes["rungs"]["coded_activations"]
    saved = [report["functions"]["step"]["saved"] for report in (plain, codes)]
    assert rung["values"] == 2 and "coded_activations" not in plain["rungs"]
    assert saved[0] - saved[1] == pytest.approx(rung["saves"], rel=0.03)
    assert {value["type"] for value in codes["functions"]["step"]["saved_values"] if "f8E4M3FN" in value["type"]}


def test_rules_of_a_policy_file(model, tmp_path):
    text = subprocess.run([COMPILER, "--help"], capture_output=True, text=True).stdout
    assert "--saved=TYPE" in text
    policy = tmp_path / "mine.mlir"
    policy.write_text('policy.policy @mine storage = f32 compute = f32 accumulate = f32 master = f32 gradients = f32 {\n'
                      '  policy.saved ".*" -> narrow\n  policy.saved "first" -> storage\n}\n')
    values = {}
    for name, flags in (("file", []), ("rule", ["--rule", 'saved "tanh|second" -> storage']), ("off", ["--saved=storage"])):
        report = build(model, tmp_path / name, f"--policy={policy}", *flags)[0]
        values[name] = report["rungs"].get("coded_activations", {}).get("values", 0)
    assert values["file"] >= 1 and values["rule"] == values["off"] == 0


@pytest.mark.parametrize("flags, words", [
    (["--rule", 'saved "thrid" -> narrow'], "expected a rule about nodes of the model, got 'rule saved \"thrid\" -> narrow'"),
    (["--rule", 'saved "third" -> wide'], "C1: expected narrow or storage, got wide"),
    (["--rule", 'saved "(" -> narrow'], "expected a regular expression"),
    (["--saved=f16"], "--saved"),
    (["--saved=f8", "--emit=onnx"], "expected a library for activations that wait in 8 bits")])
def test_what_is_refused(model, tmp_path, flags, words):
    done = subprocess.run([COMPILER, model, "--loss=mse", *flags, "-o", tmp_path / "out.onnx"], capture_output=True, text=True)
    assert done.returncode != 0 and words in done.stderr, done.stderr
