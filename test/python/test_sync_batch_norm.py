# SPDX-License-Identifier: Apache-2.0
"""Batch norms over the rows of all replicas (--sync-batch-norm): one large batch under an ordinary batch norm, bitwise identical on any
number of processes, the interpreter's simulation, and refused models."""
import json
import subprocess
import sys

import numpy as np
import pytest

import cuda_steps
import mpt
from conftest import build_folder
from replica_models import ROWS, batch, classifier, images, residual
from test_replicas import simulate
from test_world_training import SCRIPT, environment
from world_processes import free_port, run_mpi

pytestmark = pytest.mark.slow

V = 4
POLICIES = ["fp32", "amp-f16", "amp-bf16", "als-f16", "fp8-hybrid"]
SCALED = ["amp-f16", "als-f16", "fp8-hybrid"]
FLAGS = {"loss": "softmax-cross-entropy", "optimizer": "sgd,lr=0.05,momentum=0.9"}


def state_after(folder, model, inputs, steps=3, **flags):
    mpt.compile(model, out=folder, **{**FLAGS, **flags})
    trainer = mpt.Trainer(folder, threads=1)
    before = trainer.state()
    losses = [trainer.step(inputs).loss for _ in range(steps)]
    after = trainer.state()
    return losses, {name: (before[name].astype(np.float64), after[name].astype(np.float64)) for name in after
                    if np.issubdtype(after[name].dtype, np.floating) and not name.startswith("mpt.")}


def apart(one, other) -> float:
    """How far two runs have come apart, as a part of the way that the first one went: the largest over all states."""
    return max(np.linalg.norm(one[name][1] - other[name][1]) / max(np.linalg.norm(one[name][1] - one[name][0]), 1e-12) for name in one)


@pytest.mark.parametrize("policy, limit", [("fp32", 2e-5), ("amp-f16", 0.02), ("amp-bf16", 0.02)])
@pytest.mark.parametrize("replicas, rows", [(2, 8), (3, 4), (4, 1), (8, 3)])
def test_replicas_are_one_large_batch(tmp_path, policy, limit, replicas, rows):
    """The limits are how far rounding may take them apart. A replica's gradients come from a mean over fewer rows, so are larger: at the loss
    scale that training starts with, one of them skips the first step."""
    inputs, flags = images(replicas, rows), {"policy": policy, **({"loss_scale": 256} if policy == "amp-f16" else {})}
    large = state_after(tmp_path / "large", residual(tmp_path / "large.onnx", rows * replicas), inputs, **flags)
    model = residual(tmp_path / "model.onnx", rows)
    synced = state_after(tmp_path / "synced", model, inputs, replicas=replicas, sync_batch_norm=True, **flags)
    assert synced[0] == pytest.approx(large[0], rel=1e-5 if policy == "fp32" else 2e-2)
    assert apart(large[1], synced[1]) < limit
    if policy == "fp32":  # statistics of a replica's own lead elsewhere
        own = state_after(tmp_path / "own", model, inputs, replicas=replicas, **flags)
        assert apart(large[1], own[1]) > 0.5


def test_statistics_of_values_far_from_zero_keep_their_digits(tmp_path):
    """A mean a thousand times the deviation: a sum of squares in FP32 would leave nothing of the variance."""
    inputs = batch(V)
    inputs["x"] = (inputs["x"] + 1000).astype(np.float32)
    large = state_after(tmp_path / "large", classifier(tmp_path / "large.onnx", norm=True, rows=V * ROWS), inputs, steps=1)
    model = classifier(tmp_path / "model.onnx", norm=True)
    synced = state_after(tmp_path / "synced", model, inputs, steps=1, replicas=V, sync_batch_norm=True)
    for name in ("mean", "variance"):
        assert np.allclose(synced[1][name][1], large[1][name][1], rtol=1e-4), name


@pytest.mark.parametrize("policy", ["als-f16-2020-01", "fp8-e5m2", "pure-f16-static"])
def test_other_policies_train(tmp_path, policy):
    """Scales that a replica computes again from values that it has kept are told to be the same ones."""
    mpt.compile(residual(tmp_path / "model.onnx"), out=tmp_path / "lib", policy=policy, replicas=2, sync_batch_norm=True, **FLAGS)
    trainer = mpt.Trainer(tmp_path / "lib", threads=1)
    losses = [trainer.step(images(2)).loss for _ in range(12)]
    assert losses[-1] < losses[0]


@pytest.mark.parametrize("policy", POLICIES)
@pytest.mark.parametrize("shards, clip", [(None, {}), (True, {}), (True, {"clip_norm": 0.25})])
def test_library_is_what_the_interpreter_simulates(tmp_path, policy, shards, clip):
    model = classifier(tmp_path / "model.onnx", norm=True, dropout=True, inner=2)
    inputs = batch(V)
    flags = {**FLAGS, "optimizer": "adamw,lr=1e-2", "policy": policy, "replicas": V, **clip}
    mpt.compile(model, out=tmp_path / "lib", sync_batch_norm=True, shard_optimizer=shards, **flags)
    trainer = mpt.Trainer(tmp_path / "lib", threads=1)
    for _ in range(4):
        result = trainer.step(inputs)
    words = ["--sync-batch-norm", *(["--shard-optimizer"] if shards else [])]
    outputs, expected = simulate(tmp_path, model, inputs, 4, *words, **flags)
    assert result.loss == pytest.approx(float(outputs["loss"]), rel=2e-3 if "8" in policy or "16" in policy else 1e-5)
    for name, value in trainer.state().items():
        wide, exact = value.astype(np.float64), expected[name].astype(np.float64)
        assert np.abs(wide - exact).max() <= (1e-5 if policy == "fp32" else 2e-3) * max(1, np.abs(exact).max()), name


# ---- several processes

@pytest.fixture(scope="module")
def libraries(tmp_path_factory):
    """The residual network in every policy, and with divided states, dropout and gradients in BF16."""
    folder = tmp_path_factory.mktemp("libraries")
    model = residual(folder / "residual.onnx")
    runs = []
    for policy in POLICIES:
        mpt.compile(model, out=folder / policy, policy=policy, replicas=V, sync_batch_norm=True, **FLAGS)
        runs.append({"name": policy, "library": str(folder / policy), "below": {"labels": 3}, "bad": policy in SCALED})
    more = classifier(folder / "classifier.onnx", norm=True, dropout=True, rows=6)
    for name, flags in (("divided", {"shard_optimizer": True, "policy": "amp-f16"}), ("narrow", {"reduce_type": "bf16"})):
        mpt.compile(more, out=folder / name, replicas=V, sync_batch_norm=True, **{**FLAGS, **flags})
        runs.append({"name": name, "library": str(folder / name), "below": {"labels": 3}, "bad": name == "divided"})
    return runs


def spec_of(runs, out, world, steps=25):
    out.mkdir()
    (out / "spec.json").write_text(json.dumps({"runs": runs, "steps": steps, "out": str(out), "world": world}))
    return str(out / "spec.json")


def read(runs, out, size):
    ranks = [json.loads((out / f"{rank}.json").read_text()) for rank in range(size)]
    for seen in ranks:
        seen.pop("world")
    assert all(seen == ranks[0] for seen in ranks), "ranks saw different losses"
    return ranks[0], {run["name"]: (out / f"{run['name']}.state").read_bytes() for run in runs}


def over_tcp(runs, out, size):
    spec = spec_of(runs, out, {"size": size, "address": "127.0.0.1", "port": free_port(), "token": "t", "start_timeout": 120})
    started = [subprocess.Popen([sys.executable, str(SCRIPT), spec, str(rank)], stderr=subprocess.PIPE, text=True, env=environment())
               for rank in range(size)]
    for process in started:
        errors = process.communicate(timeout=300)[1]
        assert process.returncode == 0, errors
    return read(runs, out, size)


@pytest.fixture(scope="module")
def expected(libraries, tmp_path_factory):
    return over_tcp(libraries, tmp_path_factory.mktemp("one") / "out", 1)


def test_planted_infinities_skip_steps(expected):
    for name, seen in expected[0].items():
        assert ({3, 17} <= set(seen["skipped"])) == (name in SCALED or name == "divided"), name


@pytest.mark.parametrize("size", [2, 4])
def test_states_over_tcp_are_those_of_one_process(libraries, expected, tmp_path, size):
    seen, states = over_tcp(libraries, tmp_path / "out", size)
    assert seen == expected[0]
    assert [name for name in states if states[name] != expected[1][name]] == []


@pytest.mark.parametrize("kind", ["openmpi", "mpich"])
def test_states_over_mpi_are_those_of_one_process(libraries, expected, tmp_path, kind):
    spec = spec_of(libraries, tmp_path / "out", {})
    done = run_mpi(kind, 2, sys.executable, str(SCRIPT), spec, timeout=300, environment=environment())
    assert done.returncode == 0, done.stderr
    seen, states = read(libraries, tmp_path / "out", 2)
    assert seen == expected[0] and states == expected[1]


# ---- errors

def test_bad_labels_are_refused_before_anything_runs(tmp_path):
    """Labels are read behind the last synchronization point of the forward pass."""
    mpt.compile(residual(tmp_path / "model.onnx"), out=tmp_path / "lib", replicas=2, sync_batch_norm=True, **FLAGS)
    trainer = mpt.Trainer(tmp_path / "lib", threads=1)
    assert trainer.inputs("step")["labels"][1] == (2 * ROWS,)
    before, wrong = trainer.state(), images(2)
    wrong["labels"][ROWS + 3] = 7
    with pytest.raises(mpt.Error, match="labels.*7"):
        trainer.step(wrong)
    assert all(value.tobytes() == before[name].tobytes() for name, value in trainer.state().items())
    assert np.isfinite(trainer.step(images(2)).loss)


def test_debugging_names_the_node_and_the_scale_still_falls(tmp_path):
    mpt.compile(residual(tmp_path / "model.onnx"), out=tmp_path / "lib", policy="amp-f16", replicas=2, sync_batch_norm=True,
                debug_nonfinite=True, **FLAGS)
    trainer = mpt.Trainer(tmp_path / "lib", threads=1)
    bad = images(2)
    bad["x"] = bad["x"] * np.float32(1e4)  # finite inputs, infinite products in FP16
    scale = trainer.parameter("mpt.loss_scale")
    with pytest.raises(mpt.Error, match="node '(x|stem.conv)'"):
        trainer.step(bad)
    assert trainer.parameter("mpt.loss_scale") < scale


def test_what_replicas_keep_is_in_memory(tmp_path):
    """Twice as many local replicas keep twice as much; the results of the functions are a part that stays."""
    kept = []
    for replicas in (2, 4):
        mpt.compile(residual(tmp_path / "model.onnx"), out=tmp_path / str(replicas), replicas=replicas, sync_batch_norm=True, **FLAGS)
        trainer = mpt.Trainer(tmp_path / str(replicas), threads=1)
        trainer.step(images(replicas))
        kept.append(trainer.memory()["output_bytes"])
    # The outputs of four convolutions of 8 x 6 x 6 values and more, in FP32.
    assert kept[1] - kept[0] > 2 * 4 * 8 * 6 * 6 * (4 + 5 + 5 + 5)


@pytest.mark.parametrize("flags, text", [
    ({"sync_batch_norm": True}, "expected --replicas=V with --sync-batch-norm, got --replicas=1"),
    ({"sync_batch_norm": True, "replicas": "any"}, "expected --replicas=V with --sync-batch-norm, got --replicas=any"),
    ({"sync_batch_norm": True, "replicas": 2}, "expected a batch normalization of the model's inputs"),
])
def test_what_it_does_not_go_with_is_refused(tmp_path, flags, text):
    with pytest.raises(mpt.CompileError, match=text):
        mpt.compile(classifier(tmp_path / "model.onnx"), out=tmp_path / "lib", **FLAGS, **flags)


@pytest.mark.parametrize("policy", ["fp32", "amp-f16", "fp8-hybrid"])
def test_steps_on_a_device_are_those_of_the_cpu(tmp_path, policy):
    """The device is fake."""
    if not (build_folder() / "lib" / "libcuda_standin.so").exists():
        pytest.skip("the stand-in is not built")
    model = residual(tmp_path / "model.onnx")
    flags = [f"--loss={FLAGS['loss']}", "--replicas=3", "--sync-batch-norm"]
    runs = [cuda_steps.run(build_folder(), model, [*flags, f"--policy={kind}"], images(3), tmp_path / f"{kind}{cuda}", cuda)
            for kind, cuda in ((policy, True), (policy, False), ("fp32", False))]
    text, problems = cuda_steps.judge(*runs)
    assert not problems, (text, problems)
