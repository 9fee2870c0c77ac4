# SPDX-License-Identifier: Apache-2.0
"""Memory plans through the whole compiler: the kept values, the values that a budget makes the step compute again, and that bits stay."""
import json
import os
import pathlib
import re
import subprocess

import numpy as np
import pytest

import mpt

onnx = pytest.importorskip("onnx")
from onnx import TensorProto, helper, numpy_helper  # noqa: E402

ROOT = pathlib.Path(__file__).resolve().parents[2]
BUILD = pathlib.Path(os.environ.get("MPT_BUILD", ROOT / "build/release"))
COMPILER = BUILD / "bin" / "mpt-opt"
pytestmark = pytest.mark.skipif(not COMPILER.exists(), reason="mpt-opt is not built")
BATCH, WIDTH, LAYERS = 256, 128, 4


@pytest.fixture(scope="module")
def model(tmp_path_factory):
    """A stack of fully connected layers, each with the error-function GELU written out."""
    random = np.random.default_rng(3)
    nodes, weights, value = [], [], "x"

    def constant(name, number):
        weights.append(numpy_helper.from_array(np.array(number, np.float32), name))
        return name

    root, one, half = constant("root", np.sqrt(2)), constant("one", 1), constant("half", 0.5)
    for i in range(LAYERS):
        weights.append(numpy_helper.from_array(random.standard_normal((WIDTH, WIDTH)).astype(np.float32) / 12, f"w{i}"))
        for op, inputs, output in [("MatMul", [value, f"w{i}"], f"h{i}"), ("Div", [f"h{i}", root], f"d{i}"), ("Erf", [f"d{i}"], f"e{i}"),
                                   ("Add", [f"e{i}", one], f"a{i}"), ("Mul", [f"h{i}", f"a{i}"], f"m{i}"), ("Mul", [f"m{i}", half], f"y{i}")]:
            nodes.append(helper.make_node(op, inputs, [output], name=f"{op}{output}"))
        value = f"y{i}"
    graph = helper.make_graph(nodes, "gelus", [helper.make_tensor_value_info("x", TensorProto.FLOAT, [BATCH, WIDTH])],
                              [helper.make_tensor_value_info(value, TensorProto.FLOAT, [BATCH, WIDTH])], weights)
    path = tmp_path_factory.mktemp("memory") / "gelus.onnx"
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8), path)
    return path


def build(model, folder, *flags):
    """Compiles; returns the step's memory report and the parameters after three steps."""
    report = folder / "report.json"
    subprocess.run([COMPILER, model, "--quiet", "--loss=mse", "--optimizer=sgd,lr=0.1,momentum=0.9", "--train=w[0-9]",
                    f"--report=memory={report}", "-o", folder, *flags], check=True)
    trainer = mpt.Trainer(folder, threads=1)
    random = np.random.default_rng(5)
    names = list(trainer.inputs())
    feeds = {name: random.standard_normal((BATCH, WIDTH)).astype(np.float32) for name in names if name != "learning_rate"}
    for _ in range(3):
        trainer.step(feeds)
    parameters = {name: np.array(value) for name, value in trainer.parameters().items()}
    return json.loads(report.read_text()), parameters


def test_only_products_operands_are_kept(model, tmp_path):
    step = build(model, tmp_path)[0]["functions"]["step"]
    value = BATCH * WIDTH * 4
    # Of each layer its GEMM's result and its activation (the last one's also feeds the loss); no error function.
    assert step["saved"] <= (2 * LAYERS + 1) * value + 4096
    assert step["lower_bound"] <= step["arena"] <= 1.1 * step["lower_bound"]
    assert step["saved"] >= sum(v["bytes"] for v in step["saved_values"]) - 1


def test_half_precision_keeps_half(model, tmp_path):
    saved = {}
    for policy in ("fp32", "amp-f16", "amp-bf16"):
        (tmp_path / policy).mkdir()
        saved[policy] = build(model, tmp_path / policy, f"--policy={policy}")[0]["functions"]["step"]["saved"]
    assert saved["amp-f16"] <= 0.52 * saved["fp32"] and saved["amp-bf16"] <= 0.52 * saved["fp32"]


@pytest.mark.parametrize("policy", ["fp32", "amp-f16"])
def test_budget_takes_memory_and_no_bit(model, tmp_path, policy):
    for name in ("free", "tight"):
        (tmp_path / name).mkdir()
    flags = [f"--policy={policy}", *(["--masters=copied"] if policy != "fp32" else [])]
    free, expected = build(model, tmp_path / "free", *flags)
    budget = free["functions"]["step"]["peak"] - BATCH * WIDTH * (4 if policy == "fp32" else 2)
    tight, parameters = build(model, tmp_path / "tight", *flags, f"--memory-budget={budget}")
    assert tight["functions"]["step"]["peak"] <= budget < free["functions"]["step"]["peak"]
    assert tight["functions"]["step"]["saved"] < free["functions"]["step"]["saved"]
    for name, value in expected.items():
        assert parameters[name].tobytes() == value.tobytes(), name


def test_budget_that_cannot_be_met(model, tmp_path):
    done = subprocess.run([COMPILER, model, "--quiet", "--loss=mse", "--memory-budget=1K", "-o", tmp_path / "none"], stderr=subprocess.PIPE,
                          text=True)
    assert done.returncode != 0 and "expected a plan of at most 1024 bytes (--memory-budget), got" in done.stderr
    done = subprocess.run([COMPILER, model, "--memory-budget=1T"], stderr=subprocess.PIPE, text=True)
    assert done.returncode != 0 and "which may end in K, M or G" in done.stderr


def test_budget_counts_evaluation(model, tmp_path):
    graph = onnx.load(model)
    value = graph.graph.output[0].name
    graph.graph.node.append(helper.make_node("Concat", [value] * 32, ["wide"], axis=1))
    graph.graph.output.append(helper.make_tensor_value_info("wide", TensorProto.FLOAT, [BATCH, 32 * WIDTH]))
    onnx.save(graph, tmp_path / "wide.onnx")
    command = [COMPILER, tmp_path / "wide.onnx", "--quiet", f"--loss=mse,output={value}", "--train=w[0-9]", "-o", tmp_path / "library"]
    subprocess.run([*command, f"--report=memory={tmp_path / 'report.json'}"], check=True)
    peaks = {name: entry["peak"] for name, entry in json.loads((tmp_path / "report.json").read_text())["functions"].items()}
    assert peaks["step"] < peaks["predict"] < peaks["evaluate"]
    done = subprocess.run([*command, f"--memory-budget={peaks['step']}"], stderr=subprocess.PIPE, text=True)
    assert done.returncode != 0 and f"got {peaks['evaluate']} of 'evaluate'" in done.stderr


def test_narrow_weights_are_read_piece_by_piece(tmp_path):
    """Stored in FP32, kept in FP16: a weight of several pieces, the last of them short, arrives whole."""
    weights = np.random.default_rng(5).standard_normal((331, 401)).astype(np.float32)
    graph = helper.make_graph([helper.make_node("MatMul", ["x", "w"], ["y"])], "wide",
                              [helper.make_tensor_value_info("x", TensorProto.FLOAT, [2, 331])],
                              [helper.make_tensor_value_info("y", TensorProto.FLOAT, [2, 401])], [numpy_helper.from_array(weights, "w")])
    path = tmp_path / "wide.onnx"
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8), path)
    trainer = mpt.Trainer(mpt.compile(path, loss="mse", optimizer="sgd,lr=0.1", policy="amp-f16", masters="copied",
                                      out=tmp_path / "out"))
    state = trainer.state()
    assert (state["w"] == weights.astype(np.float16)).all() and state["w"].dtype == np.float16
    assert (trainer.parameter("w") == weights).all()


@pytest.mark.parametrize("policy", ["fp32", "amp-f16", "amp-bf16"])
def test_gradients_over_micro_steps_wait_in_their_accumulators(model, tmp_path, policy):
    (tmp_path / "alone").mkdir(), (tmp_path / "sums").mkdir()
    flags = [f"--policy={policy}", "--clip-norm=1"]
    alone = build(model, tmp_path / "alone", *flags)[0]["functions"]["step"]
    sums = build(model, tmp_path / "sums", *flags, "--accumulate=3")[0]["functions"]
    weight = WIDTH * WIDTH * (4 if policy == "fp32" else 2)
    assert alone["gradients"] >= LAYERS * weight
    # One gradient at a time, with partial results of its norm; under a loss scale one kernel adds small ones up together. The
    # sums themselves, in FP32, take nothing of the arena.
    most = 1.3 * weight if policy == "fp32" else LAYERS * weight + 4096
    for function in ("step", "accumulate"):
        assert weight <= sums[function]["gradients"] <= most, function
    assert sums["step"]["arena"] <= alone["arena"]


def test_sums_in_accumulators_are_the_sums(model, tmp_path):
    """Each update is the mean of the gradients, also in the second round: the accumulators are empty in between."""
    subprocess.run([COMPILER, model, "--quiet", "--loss=mse", "--optimizer=sgd,lr=0.5", "--train=w[0-9]", "--accumulate=3", "-o", tmp_path], check=True)
    trainer = mpt.Trainer(tmp_path, threads=1)
    names = [name for name in trainer.inputs() if name != "learning_rate"]
    random = np.random.default_rng(5)
    for _ in range(2):
        batches = [{name: random.standard_normal((BATCH, WIDTH)).astype(np.float32) for name in names} for _ in range(3)]
        gradients, before = [trainer.gradients(batch)[1] for batch in batches], trainer.parameters()
        for batch in batches[:-1]:
            trainer.run("accumulate", batch)
        trainer.step(batches[-1])
        for name, value in trainer.parameters().items():
            total = np.float32(0)
            for gradient in gradients:
                total = total + gradient[name]
            expected = before[name] - np.float32(0.5) * (total * np.float32(1 / 3))
            np.testing.assert_array_max_ulp(value, expected, 2)
        assert not any(value.any() for name, value in trainer.state().items() if name.endswith(".accumulator"))


def test_budget_leaves_gradients_out(model, tmp_path):
    for name in ("free", "tight", "wide"):
        (tmp_path / name).mkdir()
    flags = ["--accumulate=2"]
    peaks = {name: entry["peak"] for name, entry in build(model, tmp_path / "free", *flags)[0]["functions"].items()}
    budget = max(peak for name, peak in peaks.items() if name != "gradients")
    assert budget < peaks["gradients"]
    tight, parameters = build(model, tmp_path / "tight", *flags, f"--memory-budget={budget}")
    assert max(entry["peak"] for entry in tight["functions"].values()) <= budget and "gradients" not in tight["functions"]
    with pytest.raises(mpt.Error, match="no function 'gradients'"):
        mpt.Trainer(tmp_path / "tight").gradients({})
    wide, expected = build(model, tmp_path / "wide", *flags, f"--memory-budget={peaks['gradients']}")
    assert "gradients" in wide["functions"]
    for name, value in expected.items():
        assert parameters[name].tobytes() == value.tobytes(), name
    done = subprocess.run([COMPILER, model, "--quiet", "--loss=mse", "--optimizer=sgd,lr=0.1,momentum=0.9", "--train=w[0-9]", *flags,
                           f"--memory-budget={budget}", "-o", tmp_path / "again"], stderr=subprocess.PIPE, text=True, check=True)
    assert "warning: 'gradients', which hands all gradients out at once, needs" in done.stderr


def test_budget_prefers_what_changes_no_bit(model, tmp_path):
    """Activations wait in 8 bits where the budget permits it and all rematerialization is not enough, and not before."""
    for name in ("free", "lossless", "codes"):
        (tmp_path / name).mkdir()
    free, expected = build(model, tmp_path / "free")
    peak = free["functions"]["step"]["peak"]
    command = [COMPILER, model, "--quiet", "--loss=mse", "--optimizer=sgd,lr=0.1,momentum=0.9", "--train=w[0-9]"]
    done = subprocess.run([*command, "--memory-budget=1K", "-o", tmp_path / "none"], stderr=subprocess.PIPE, text=True)
    least = int(re.search(r"got (\d+) of 'step'", done.stderr)[1])
    lossless, parameters = build(model, tmp_path / "lossless", f"--memory-budget={(peak + least) // 2},saved=f8")
    assert "coded_activations" not in lossless["rungs"]
    for name, value in expected.items():
        assert parameters[name].tobytes() == value.tobytes(), name
    done = subprocess.run([*command, f"--memory-budget={least - 1}", "-o", tmp_path / "none"], stderr=subprocess.PIPE, text=True)
    assert done.returncode != 0 and f"got {least} of 'step' with all rematerialized that can be\n" in done.stderr
    codes = build(model, tmp_path / "codes", f"--memory-budget={least - 1},saved=f8")[0]
    assert codes["rungs"]["coded_activations"]["saves"] > 0 and codes["functions"]["step"]["peak"] < least
