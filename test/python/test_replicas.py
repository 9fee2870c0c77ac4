# SPDX-License-Identifier: Apache-2.0
"""Steps with replicas on one process: bits of the simulated replicas, equality with one large batch, refused models and flags.

test_world.py has the same on several processes."""
import subprocess

import numpy as np
import pytest

import cuda_steps
import mpt
from conftest import build_folder
from mpt_run import read_tensors, write_tensors
from replica_models import ROWS, batch, classifier

POLICIES = ["fp32", "amp-f16", "amp-bf16", "als-f16", "als-f16-2020-01", "fp8-hybrid", "fp8-e5m2", "pure-f16-static"]
FLAGS = {"loss": "softmax-cross-entropy", "optimizer": "adamw,lr=1e-2"}


def tool(name, *arguments):
    return subprocess.run([build_folder() / "bin" / name, *map(str, arguments)], capture_output=True, text=True)


def simulate(folder, model, inputs, steps, *more, **flags):
    """Loss and state after steps of all replicas in the interpreter."""
    words = [*more, *(f"--{name.replace('_', '-')}={value}" for name, value in flags.items())]
    made = tool("mpt-opt", model, "--quiet", *words, "--to=distribution", "-o", folder / "step.mlir")
    assert made.returncode == 0, made.stderr
    write_tensors(folder / "in", {**inputs, "learning_rate": np.array(1e-2, np.float32)})
    ran = tool("mpt-run", folder / "step.mlir", "--function=step", f"--inputs={folder / 'in'}", f"--steps={steps}",
               f"--new-state={folder / 'state'}", f"--outputs={folder / 'out'}")
    assert ran.returncode == 0, ran.stderr
    return read_tensors(folder / "out"), read_tensors(folder / "state")


@pytest.mark.parametrize("policy, more", [*((policy, {}) for policy in POLICIES), ("fp8-hybrid", {"loss_scale": "dynamic"})])
def test_library_is_what_the_interpreter_simulates(tmp_path, policy, more):
    model = classifier(tmp_path / "model.onnx", norm=True, dropout=True, inner=2)
    inputs = batch(4)
    flags = {"policy": policy, "replicas": 4, **FLAGS, **more}
    mpt.compile(model, out=tmp_path / "lib", **flags)
    trainer = mpt.Trainer(tmp_path / "lib", threads=1)
    for _ in range(4):
        result = trainer.step(inputs)
    outputs, expected = simulate(tmp_path, model, inputs, 4, **flags)
    assert result.loss == pytest.approx(float(outputs["loss"]), rel=2e-3 if "8" in policy or "16" in policy else 1e-5)
    for name, value in trainer.state().items():
        if np.issubdtype(value.dtype, np.integer):
            assert np.array_equal(value, expected[name]), name
        else:
            wide, exact = value.astype(np.float64), expected[name].astype(np.float64)
            limit = 1e-5 if policy == "fp32" else 2e-3
            assert np.abs(wide - exact).max() <= limit * max(1, np.abs(exact).max()), name


@pytest.mark.parametrize("replicas", [2, 3, 4])
def test_replicas_learn_as_one_large_batch_does(tmp_path, replicas):
    inputs = batch(replicas)
    states = []
    for count, rows in ((replicas, ROWS), (1, ROWS * replicas)):
        folder = tmp_path / str(count)
        mpt.compile(classifier(tmp_path / f"{rows}.onnx", rows=rows), out=folder, replicas=count, **FLAGS)
        trainer = mpt.Trainer(folder, threads=1)
        losses = [trainer.step(inputs).loss for _ in range(5)]
        states.append((losses, trainer.parameters()))
    assert states[0][0] == pytest.approx(states[1][0], rel=1e-5)
    for name, value in states[0][1].items():
        assert np.allclose(value, states[1][1][name], rtol=1e-4, atol=1e-6), name


def test_replicas_draw_masks_of_their_own(tmp_path):
    """The same rows in every replica: with one mask for all, the mean would be a single replica's."""
    model = classifier(tmp_path / "model.onnx", dropout=True)
    one, rows = batch(1), batch(1)
    same = {name: np.concatenate([value] * 4) for name, value in rows.items()}
    losses = []
    for count, inputs in ((1, one), (4, same)):
        mpt.compile(model, out=tmp_path / str(count), replicas=count, **FLAGS)
        losses.append(mpt.Trainer(tmp_path / str(count), threads=1).step(inputs).loss)
    assert losses[0] != pytest.approx(losses[1], rel=1e-4)


@pytest.mark.parametrize("policy", ["amp-f16", "als-f16", "fp8-hybrid"])
def test_one_bad_replica_skips_the_step(tmp_path, policy):
    mpt.compile(classifier(tmp_path / "model.onnx", norm=True, inner=2), out=tmp_path / "lib", policy=policy, replicas=4, **FLAGS)
    trainer = mpt.Trainer(tmp_path / "lib", threads=1)
    good = batch(4)
    while trainer.step(good).skipped:
        pass
    before = trainer.state()
    bad = {name: value.copy() for name, value in good.items()}
    bad["x"][2 * ROWS + 1, 0] = np.inf
    assert trainer.step(bad).skipped
    after = trainer.state()
    moved = [name for name in before if not np.array_equal(before[name], after[name], equal_nan=True)]
    assert all(name.startswith("mpt.") for name in moved), moved
    assert not trainer.step(good).skipped


def test_debugging_names_the_node_and_the_scale_still_falls(tmp_path):
    mpt.compile(classifier(tmp_path / "model.onnx"), out=tmp_path / "lib", policy="amp-f16", replicas=2, debug_nonfinite=True,
                **FLAGS)
    trainer = mpt.Trainer(tmp_path / "lib", threads=1)
    good = batch(2)
    bad = {**good, "x": good["x"] * np.float32(1e4)}  # finite inputs, infinite products in FP16
    scale = trainer.parameter("mpt.loss_scale")
    with pytest.raises(mpt.Error, match="fc1|fc2|relu|loss"):
        trainer.step(bad)
    assert trainer.parameter("mpt.loss_scale") < scale


def test_any_number_of_replicas_on_one_process_is_a_plain_step(tmp_path):
    model = classifier(tmp_path / "model.onnx", norm=True, dropout=True)
    states = []
    for replicas in ("any", 1):
        mpt.compile(model, out=tmp_path / str(replicas), policy="amp-f16", replicas=replicas, **FLAGS)
        trainer = mpt.Trainer(tmp_path / str(replicas), threads=1)
        losses = [trainer.step(batch(1)).loss for _ in range(4)]
        states.append((losses, trainer.parameters()))
    assert states[0][0] == pytest.approx(states[1][0], rel=1e-4)
    for name, value in states[0][1].items():
        assert np.allclose(value, states[1][1][name], rtol=1e-3, atol=1e-5), name


def test_state_goes_on_with_the_same_bits(tmp_path):
    mpt.compile(classifier(tmp_path / "model.onnx", norm=True, dropout=True), out=tmp_path / "lib", policy="amp-f16", replicas=3,
                **FLAGS)
    trainer = mpt.Trainer(tmp_path / "lib", threads=1)
    inputs = batch(3)
    for _ in range(3):
        trainer.step(inputs)
    trainer.save(tmp_path / "state")
    for _ in range(3):
        trainer.step(inputs)
    again = mpt.Trainer(tmp_path / "lib", threads=1)
    again.load(tmp_path / "state")
    for _ in range(3):
        again.step(inputs)
    for name, value in trainer.state().items():
        assert value.tobytes() == again.state()[name].tobytes(), name


def test_inputs_are_checked_as_a_whole(tmp_path):
    mpt.compile(classifier(tmp_path / "model.onnx"), out=tmp_path / "lib", replicas=2, **FLAGS)
    trainer = mpt.Trainer(tmp_path / "lib", threads=1)
    assert trainer.inputs("step")["x"] == ("float32", (2 * ROWS, 4))
    before = trainer.state()
    with pytest.raises(mpt.Error, match=r"input 'x' of 'step': expected float32\[16,4\], got float32\[8,4\]"):
        trainer.step({**batch(2), "x": batch(1)["x"]})
    with pytest.raises(mpt.Error, match="input 'x' of 'step' is missing"):
        trainer.step({"labels": batch(2)["labels"]})
    wrong = batch(2)
    wrong["labels"][ROWS + 3] = 7
    with pytest.raises(mpt.Error, match="labels.*7"):
        trainer.step(wrong)
    for name, value in trainer.state().items():
        assert np.array_equal(value, before[name]), name
    assert np.isfinite(trainer.step(batch(2)).loss)


@pytest.mark.parametrize("flags, text", [
    ({"replicas": 2, "accumulate": 2}, "expected --accumulate=1 with --replicas"),
    ({"replicas": 2, "emit": "onnx"}, "ONNX has no operators for collectives"),
    ({"replicas": "many"}, "expected a whole number from 1 to 32767, or any for --replicas, got 'many'"),
    ({"replicas": 0}, "expected a whole number from 1 to 32767"),
])
def test_what_replicas_do_not_go_with_is_refused(tmp_path, flags, text):
    with pytest.raises(mpt.CompileError, match=text):
        mpt.compile(classifier(tmp_path / "model.onnx"), out=tmp_path / "lib", **{**FLAGS, **flags})


@pytest.mark.parametrize("policy, more", [("fp32", []), ("amp-f16", []), ("fp8-hybrid", []), ("fp32", ["--shard-optimizer"]),
                                          ("amp-f16", ["--shard-optimizer", "--reduce-type=bf16"])])
def test_steps_on_a_device_are_those_of_the_cpu(tmp_path, policy, more):
    """The device is fake; the values that replicas exchange come to the host and go back."""
    if not (build_folder() / "lib" / "libcuda_standin.so").exists():
        pytest.skip("the stand-in is not built")
    model = classifier(tmp_path / "model.onnx", norm=True, dropout=True, inner=2)
    flags = [f"--loss={FLAGS['loss']}", "--replicas=3", *more]
    runs = [cuda_steps.run(build_folder(), model, [*flags, f"--policy={kind}"], batch(3), tmp_path / f"{kind}{cuda}", cuda)
            for kind, cuda in ((policy, True), (policy, False), ("fp32", False))]
    text, problems = cuda_steps.judge(*runs)
    assert not problems, (text, problems)
