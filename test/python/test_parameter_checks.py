# SPDX-License-Identifier: Apache-2.0
"""Finite checks by parameter: bitwise identical steps where nothing overflows, updates of parameters whose gradients are finite, and of no others."""
import json
import os
import pathlib
import subprocess

import numpy as np
import pytest
from conftest import write_safetensors

import mpt

onnx = pytest.importorskip("onnx")
from onnx import TensorProto, helper, numpy_helper  # noqa: E402

ROOT = pathlib.Path(__file__).resolve().parents[2]
COMPILER = pathlib.Path(os.environ.get("MPT_BUILD", ROOT / "build/release")) / "bin" / "mpt-opt"
pytestmark = pytest.mark.skipif(not COMPILER.exists(), reason="mpt-opt is not built")
BATCH, WIDTH, LAYERS, LARGE = 16, 64, 3, 64.0
SCALE = 2**19  # too large for the gradient of w0 alone
OWN = "--loss-scale=dynamic,init=1024,check=parameter"
SKIPS = {"mpt.loss_scale", "mpt.good_steps", "mpt.hysteresis"}


@pytest.fixture(scope="module")
def model(tmp_path_factory):
    """Fully connected layers; w0 is small, and its input large, so that its gradient is the first one to overflow."""
    random = np.random.default_rng(1)
    nodes, weights, value = [], [], "x"
    for i in range(LAYERS):
        size = 1.0 / (LARGE if i == 0 else 1.0) / np.sqrt(WIDTH)
        weights += [numpy_helper.from_array((size * random.standard_normal((WIDTH, WIDTH))).astype(np.float32), f"w{i}"),
                    numpy_helper.from_array(np.full(WIDTH, 0.1, np.float32), f"b{i}")]
        nodes += [helper.make_node("MatMul", [value, f"w{i}"], [f"m{i}"], name=f"m{i}"),
                  helper.make_node("Add", [f"m{i}", f"b{i}"], [f"a{i}"], name=f"a{i}")]
        value = f"a{i}"
        if i + 1 < LAYERS:
            nodes.append(helper.make_node("Relu", [value], [f"r{i}"], name=f"r{i}"))
            value = f"r{i}"
    graph = helper.make_graph(nodes, "layers", [helper.make_tensor_value_info("x", TensorProto.FLOAT, [BATCH, WIDTH])],
                              [helper.make_tensor_value_info(value, TensorProto.FLOAT, [BATCH, WIDTH])], weights)
    path = tmp_path_factory.mktemp("checks") / "layers.onnx"
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8), path)
    return path


def compiled(model, folder, *flags, loss="--loss=mse"):
    subprocess.run([COMPILER, model, "--quiet", loss, "-o", folder, *flags], check=True)
    return mpt.Trainer(folder, threads=1)


def batches(count, seed=2, large=LARGE):
    random = np.random.default_rng(seed)
    for _ in range(count):
        x = random.standard_normal((BATCH, WIDTH)).astype(np.float32)
        yield {"x": np.float32(large) * x, "target": x[:, ::-1].copy()}


def moved(before, after):
    return {name for name in after if before[name].tobytes() != after[name].tobytes()}


@pytest.mark.parametrize("policy, optimizer, more", [
    ("amp-f16", "adamw,lr=0.001,schedule=cosine,warmup=3,steps=40", ["--ema=0.9"]), ("amp-f16", "sgd,lr=0.01,momentum=0.9,dampening=0.5", []),
    ("amp-f16", "lamb,lr=0.001", []), ("amp-f16", "adafactor,lr=0.001", ["--masters=packed"]), ("amp-f16", "adam,lr=0.001,eps-hat=1e-8", ["--slots=i8"]),
    ("amp-bf16", "adamw,lr=0.001", []), ("als-f16", "adamw,lr=0.001", []), ("bf16-kahan", "adamw,lr=0.001", []), ("fp8-e5m2", "sgd,lr=0.01,momentum=0.9", [])])
def test_no_bit_changes_without_overflow(model, tmp_path, policy, optimizer, more):
    flags = [f"--policy={policy}", f"--optimizer={optimizer}", *more]
    scale = "dynamic,init=64" if policy in ("amp-f16", "fp8-e5m2") else ""
    step = compiled(model, tmp_path / "step", *flags, *([f"--loss-scale={scale}"] if scale else []))
    own = compiled(model, tmp_path / "own", *flags, f"--loss-scale={scale}{',' if scale else ''}check=parameter")
    for batch in batches(40, large=1):
        expected, found = step.step(batch), own.step(batch)
        assert not expected.skipped and (found.loss, found.skipped, found.loss_scale) == (expected.loss, False, expected.loss_scale)
    expected, found = step.state(), own.state()
    extra = found.keys() - expected.keys()
    assert {name: found[name].tobytes() for name in expected} == {name: value.tobytes() for name, value in expected.items()}
    counts = optimizer.split(",")[0] in ("adamw", "adam", "lamb", "adafactor") or "dampening" in optimizer
    assert extra == ({f"{p}{i}.extra_updates" for p in "wb" for i in range(LAYERS)} if counts else set())
    assert not any(found[name] for name in extra)


@pytest.mark.parametrize("optimizer", ["adamw,lr=0.001", "sgd,lr=0.01,momentum=0.9,dampening=0.5", "adagrad,lr=0.01,lr-decay=0.1"])
def test_overflow_in_one_layer_skips_that_layer_alone(model, tmp_path, optimizer):
    """Beside a step in which w0, whose gradient overflows, is frozen: bit by bit the same updates of all other parameters, step by step,
    though each step counts as skipped. Bias corrections and decays go by the updates that a parameter had."""
    flags = ["--policy=amp-f16", f"--optimizer={optimizer}"]
    own = compiled(model, tmp_path / "own", *flags, f"--loss-scale={SCALE},check=parameter")
    frozen = compiled(model, tmp_path / "frozen", *flags, f"--loss-scale={SCALE}", "--freeze=w0")
    before = own.state()
    for i, batch in enumerate(batches(20)):
        found, expected = own.step(batch), frozen.step(batch)
        assert found.skipped and not expected.skipped and found.loss == expected.loss, i
        after, wanted = own.state(), frozen.state()
        others = {name: value for name, value in wanted.items() if not name.startswith(("w0", "mpt."))}
        assert len(others) >= 2 * LAYERS and not [name for name, value in others.items() if after[name].tobytes() != value.tobytes()], i
    assert {name for name in moved(before, after) if name.startswith(("w0", "mpt."))} == set()
    assert {name: int(after[name]) for name in after if name.endswith(".extra_updates")} == {
        f"{p}{i}.extra_updates": 20 * (p + str(i) != "w0") for p in "wb" for i in range(LAYERS)}


def test_scale_falls_until_all_gradients_fit(model, tmp_path):
    own = compiled(model, tmp_path / "own", "--policy=amp-f16", "--optimizer=adamw,lr=1e-6", f"--loss-scale=dynamic,init={SCALE},check=parameter")
    skipped, scale = 0, SCALE
    for batch in batches(12):
        before = own.state()
        found = own.step(batch)
        after = own.state()
        assert found.loss_scale == scale
        skipped, scale = skipped + found.skipped, scale / (2 if found.skipped else 1)
        assert after["mpt.loss_scale"] == scale and after["mpt.step"] == before["mpt.step"] + (not found.skipped)
        assert after["w0.extra_updates"] == 0 and after["w1.extra_updates"] == skipped
        assert bool({"w0.master", "w0.moment1"} & moved(before, after)) != found.skipped and "w1.moment1" in moved(before, after)
    assert 2 <= skipped <= 8


def test_state_of_torch_has_each_parameters_own_steps(model, tmp_path):
    own = compiled(model, tmp_path / "own", "--policy=amp-f16", "--optimizer=adamw,lr=0", f"--loss-scale=dynamic,init={SCALE},check=parameter")
    skipped = sum(own.step(batch).skipped for batch in batches(20))
    state = own.optimizer_state_dict()
    names, steps = state["param_groups"][0]["param_names"], {k: int(v["step"]) for k, v in state["state"].items()}
    assert skipped and steps == {i: 20 - skipped if name == "w0" else 20 for i, name in enumerate(names)}
    again = compiled(model, tmp_path / "again", "--policy=amp-f16", "--optimizer=adamw,lr=0", OWN)
    again.load_optimizer_state_dict(state)
    assert {k: int(v["step"]) for k, v in again.optimizer_state_dict()["state"].items()} == steps


@pytest.mark.parametrize("check", ["step", "parameter"])
def test_nothing_moves_where_the_loss_is_not_finite(model, tmp_path, check):
    """A ReLU's mask makes 0 of NaN in the backward pass: without a check of the loss, b0 would be updated by some rows alone."""
    trainer = compiled(model, tmp_path / "out", "--policy=amp-f16", "--optimizer=adamw,lr=0.01", f"--loss-scale=dynamic,init=1,check={check}")
    first, second = batches(2)
    second["x"][3, 5] = np.nan
    assert not trainer.step(first).skipped
    before = trainer.state()
    assert trainer.step(second).skipped
    assert moved(before, trainer.state()) <= SKIPS


def test_onnx_has_the_bits_of_the_library(model, tmp_path):
    flags = ["--policy=amp-f16", "--optimizer=adamw,lr=0.001", f"--loss-scale=dynamic,init={SCALE},check=parameter"]
    library = compiled(model, tmp_path / "library", *flags)
    subprocess.run([COMPILER, model, "--quiet", "--loss=mse", "--emit=onnx", "-o", tmp_path / "step.onnx", *flags], check=True)
    subprocess.run([COMPILER, tmp_path / "step.onnx", "--quiet", "-o", tmp_path / "again"], check=True)
    again = mpt.Trainer(tmp_path / "again", threads=1)
    found = [(library.step(batch), again.step(batch, learning_rate=0.001)) for batch in batches(10)]
    assert any(a.skipped for a, _ in found) and not all(a.skipped for a, _ in found)
    expected, other = library.state(), again.state()
    for name in expected:
        assert name not in other or other[name].tobytes() == expected[name].tobytes(), name
    assert {"w0.master", "w1.moment1", "b2.master"} & other.keys()


def test_certificate_knows_that_skipped_steps_update(model, tmp_path):
    names = []
    for i, batch in enumerate(batches(3)):
        names.append(tmp_path / f"b{i}.safetensors")
        write_safetensors(names[-1], batch)
    words = [COMPILER.parent / "mpt-run", model, "--loss=mse", "--policy=amp-f16", "--optimizer=adamw,lr=0.001", "--certify", "--max-skipped=1",
             "--steps=3", *(f"--batch={name}" for name in names), "-o", tmp_path / "report.json"]
    scale = f"--loss-scale=dynamic,init={SCALE}"
    certified = subprocess.run([*words, scale + ",check=parameter", f"--library={tmp_path / 'own'}"], stderr=subprocess.PIPE, text=True)
    report = json.loads((tmp_path / "report.json").read_text())
    assert report["pass"] and any(row["skipped"] for row in report["steps"]), certified.stderr
    # A library that leaves all states of a skipped step as they are is another one, and the other way round.
    other = subprocess.run([*words, scale, f"--library={tmp_path / 'step'}"], stderr=subprocess.PIPE, text=True)
    assert other.returncode == 0, other.stderr
    for check, library in ((",check=parameter", "step"), ("", "own")):
        wrong = subprocess.run([*words, scale + check, f"--library={tmp_path / library}"], stderr=subprocess.PIPE, text=True)
        assert wrong.returncode and "it was skipped, and" in wrong.stderr, (check, wrong.stderr)


def report_of(model, folder, *flags):
    report = folder / "report.json"
    subprocess.run([COMPILER, model, "--quiet", "--loss=mse", "--optimizer=adamw", "--policy=amp-f16", "--dry-run", f"--report=memory={report}", *flags],
                   check=True)
    return json.loads(report.read_text())


@pytest.fixture(scope="module")
def wide(tmp_path_factory):
    """Eight layers of 256 x 256: gradients are most of what a step keeps."""
    random = np.random.default_rng(4)
    weights = [numpy_helper.from_array(random.standard_normal((256, 256)).astype(np.float32) / 16, f"w{i}") for i in range(8)]
    nodes = [helper.make_node("MatMul", [f"y{i}" if i else "x", f"w{i}"], [f"y{i + 1}"], name=f"y{i + 1}") for i in range(8)]
    graph = helper.make_graph(nodes, "wide", [helper.make_tensor_value_info("x", TensorProto.FLOAT, [8, 256])],
                              [helper.make_tensor_value_info("y8", TensorProto.FLOAT, [8, 256])], weights)
    path = tmp_path_factory.mktemp("wide") / "wide.onnx"
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8), path)
    return path


def test_gradients_do_not_wait(wide, tmp_path):
    step, own, none = (report_of(wide, tmp_path, *flags) for flags in ([], ["--loss-scale=check=parameter"], ["--loss-scale=none"]))
    gradient = 2 * 256 * 256
    assert step["functions"]["step"]["gradients"] > 7 * gradient and own["functions"]["step"]["gradients"] < 3 * gradient
    assert own["functions"]["step"]["arena"] < 1.1 * none["functions"]["step"]["arena"] < 0.5 * step["functions"]["step"]["arena"]
    assert own["rungs"]["own_checks"]["saves"] > 5 * gradient and "own_checks" not in step["rungs"]


def test_budget_takes_checks_before_loss(wide, tmp_path):
    own = report_of(wide, tmp_path, "--loss-scale=check=parameter")
    budget = own["functions"]["step"]["peak"]
    for words in (",check=parameter", ",lossy"):
        found = report_of(wide, tmp_path, f"--memory-budget={budget}{words}")
        taken, = (row["rung"] for row in found["budget"]["rungs"] if row["taken"])
        assert taken == "finite checks by parameter" and found["functions"]["step"]["peak"] <= budget
        assert found["state"] == own["state"] and found["rungs"] == own["rungs"]
    words = [COMPILER, wide, "--quiet", "--loss=mse", "--optimizer=adamw", "--policy=amp-f16", "--dry-run"]
    refused = subprocess.run([*words, f"--memory-budget={budget}"], stderr=subprocess.PIPE, text=True)
    assert refused.returncode == 1 and f"if you allow it with --memory-budget={budget},check=parameter\n" in refused.stderr
    chosen = subprocess.run([*words, f"--memory-budget={budget},check=parameter", "--loss-scale=1024,check=step"], stderr=subprocess.PIPE, text=True)
    assert chosen.returncode == 1 and "finite checks by parameter" not in chosen.stderr


@pytest.mark.parametrize("flags, message", [
    (["--policy=amp-f16", "--clip-norm=1"], "takes part in, as where gradients are clipped by their global norm; check the step as a whole: "),
    (["--policy=amp-f16", "--accumulate=2"], "expected a step without micro-steps for a finite check by parameter"),
    (["--policy=amp-f16", "--replicas=2", "--shard-optimizer"], "expected a finite check of the step as a whole for --shard-optimizer"),
    (["--policy=fp8-hybrid"], "expected casts that leave infinities as they are for a finite check by parameter"),
    (["--policy=fp32"], "expected a loss scale before its check, since the policy has no finite check"),
])
def test_refused(model, flags, message):
    done = subprocess.run([COMPILER, model, "--quiet", "--loss=mse", "--optimizer=adamw", "--loss-scale=check=parameter", "--dry-run", *flags],
                          stderr=subprocess.PIPE, text=True)
    assert done.returncode == 1 and message in done.stderr, done.stderr


def test_replicas_agree(model, tmp_path):
    """Gradients of replicas are added before they are checked: two replicas in one process leave the states of a larger batch's step."""
    trainer = compiled(model, tmp_path / "two", "--policy=amp-f16", "--optimizer=adamw,lr=0.001", "--replicas=2",
                       f"--loss-scale=dynamic,init={SCALE},check=parameter")
    first, second = batches(2)
    before = trainer.state()
    result = trainer.step({name: np.concatenate([first[name], second[name]]) for name in first})
    after = trainer.state()
    assert result.skipped and not {name for name in moved(before, after) if name.startswith("w0")} and {"w1.master", "b2.master"} & moved(before, after)


@pytest.mark.parametrize("check", ["step", "parameter"])
def test_trains_from_a_scale_that_overflows(tmp_path, check):
    """Clusters in 64 dimensions, from a scale of 2^24: the first steps overflow, and the trained network is as good as ever."""
    random = np.random.default_rng(6)
    weights = [numpy_helper.from_array((random.standard_normal(shape) / 8).astype(np.float32), name)
               for name, shape in (("w0", (64, 128)), ("w1", (128, 10)))]
    nodes = [helper.make_node("MatMul", ["x", "w0"], ["h"]), helper.make_node("Relu", ["h"], ["r"]), helper.make_node("MatMul", ["r", "w1"], ["y"])]
    graph = helper.make_graph(nodes, "clusters", [helper.make_tensor_value_info("x", TensorProto.FLOAT, [64, 64])],
                              [helper.make_tensor_value_info("y", TensorProto.FLOAT, [64, 10])], weights)
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8), tmp_path / "clusters.onnx")
    trainer = compiled(tmp_path / "clusters.onnx", tmp_path / "out", "--policy=amp-f16", "--optimizer=adamw,lr=0.002",
                       f"--loss-scale=dynamic,init=16777216,check={check}", loss="--loss=softmax-cross-entropy")
    labels = next(name for name in trainer.inputs() if name not in ("x", "learning_rate"))
    centers = random.standard_normal((10, 64)) * 0.45

    def batch():
        kind = random.integers(0, 10, 64)
        return {"x": (centers[kind] + random.standard_normal((64, 64))).astype(np.float32), labels: kind}

    results = [trainer.step(batch()) for _ in range(200)]
    skipped = [i for i, result in enumerate(results) if result.skipped]
    assert 3 <= len(skipped) and max(skipped) < 40
    right = 0
    for _ in range(16):
        given = batch()
        right += np.sum(np.argmax(trainer.run("predict", {"x": given["x"]})["y"], axis=1) == given[labels])
    assert right / (16 * 64) > 0.92


def test_several_losses_keep_scales_of_their_own(model, tmp_path):
    """Gradients of one loss alone, of the other alone, and of both: scales move alike with either check."""
    graph = onnx.load(model)
    graph.graph.output.append(helper.make_tensor_value_info("r1", TensorProto.FLOAT, [BATCH, WIDTH]))
    onnx.save(graph, tmp_path / "two.onnx")
    flags = ["--policy=amp-f16", "--optimizer=adamw,lr=1e-6", "--loss=mse,output=r1,weight=0.25"]
    results = {}
    for check in ("step", "parameter"):
        trainer = compiled(tmp_path / "two.onnx", tmp_path / check, *flags, f"--loss-scale=dynamic,init={SCALE},check={check}",
                           loss=f"--loss=mse,output=a{LAYERS - 1}")
        names = [name for name in trainer.inputs() if name not in ("x", "learning_rate")]
        results[check] = []
        for batch in batches(8):
            found = trainer.step({"x": batch["x"], **dict.fromkeys(names, batch["target"])})
            results[check].append((found.skipped, *(float(value) for name, value in trainer.state().items() if name.startswith("mpt.loss_scale."))))
    assert len(results["step"][0]) == 3 and results["parameter"] == results["step"]
    assert any(skipped for skipped, *_ in results["step"]) and not all(skipped for skipped, *_ in results["step"])
