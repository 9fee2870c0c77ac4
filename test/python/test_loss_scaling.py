# SPDX-License-Identifier: Apache-2.0
"""Loss scaling end to end in the reference interpreter: skipped steps, the scale's state machine, underflow."""
import os
import subprocess

import numpy as np
import pytest
from conftest import read_safetensors, write_safetensors

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
BUILD = os.environ.get("MPT_BUILD", os.path.join(ROOT, "build", "release"))
LINEAR = os.path.join(ROOT, "test/passes/precision/Inputs/linear.mlir")
PASSES = ["--precision-insert-casts", "--precision-master-weights", "--precision-loss-scaling",
          "--precision-widen-reductions", "--precision-fold-casts", "--precision-verify"]
pytestmark = pytest.mark.skipif(not os.path.exists(os.path.join(BUILD, "bin", "mpt-run")), reason="mpt-run is not built")


class Machine:
    """A step of linear.mlir under a policy; every call goes on from the state of the one before."""

    def __init__(self, folder, *assign):
        self.folder, self.module = folder, folder / "step.mlir"
        subprocess.run([os.path.join(BUILD, "bin", "mpt-opt"), LINEAR, "--precision-assign=" + " ".join(assign), *PASSES, "-o",
                        self.module], check=True)
        self.state = {}

    def step(self, x, target, lr=0.125):
        folder = self.folder
        write_safetensors(folder / "in", {"x": x.astype(np.float32), "target": target.astype(np.float32),
                                      "learning_rate": np.array(lr, np.float32)})
        write_safetensors(folder / "state", self.state)
        subprocess.run([os.path.join(BUILD, "bin", "mpt-run"), self.module, "--function=step", f"--inputs={folder / 'in'}",
                        f"--state={folder / 'state'}", f"--outputs={folder / 'out'}", f"--new-state={folder / 'new'}"], check=True)
        self.state = read_safetensors(folder / "new")[0]
        return read_safetensors(folder / "out")[0]


# Gradients below 1: scaled by 65536 they must fit in FP16, in which they wait for the finite check.
X = np.array([[1.0, -2.0, 0.5, 0.25], [0.5, 1.0, -1.0, 2.0], [0.125, 0.5, 1.0, -0.5]]) / 4
TARGET = np.array([[1.0, 2.0], [0.0, -1.0], [0.5, 0.5]]) / 4


@pytest.mark.parametrize("policy", ["amp-f16", "amp-bf16"])
@pytest.mark.parametrize("poison", [np.inf, -np.inf, np.nan])
def test_nonfinite_step_changes_nothing_but_the_scale(tmp_path, policy, poison):
    machine = Machine(tmp_path, "policy=" + policy)
    good = machine.step(X, TARGET)
    assert not good["skipped"]
    before = dict(machine.state)
    bad = X.copy()
    bad[1, 2] = poison
    out = machine.step(bad, TARGET)
    assert out["skipped"]
    for name, value in before.items():
        if name not in ("mpt.loss_scale", "mpt.good_steps", "mpt.hysteresis"):
            assert machine.state[name].tobytes() == value.tobytes(), name
    if policy == "amp-f16":
        assert (good["loss_scale"], out["loss_scale"]) == (65536, 65536)
        assert machine.state["mpt.loss_scale"] == 32768
        assert machine.state["mpt.good_steps"] == 0
    after = machine.step(X, TARGET)
    assert not after["skipped"] and after["loss_scale"] == (32768 if policy == "amp-f16" else 1)
    assert machine.state["mpt.step"] == 2
    assert np.any(machine.state["w.master"] != before["w.master"])


def test_narrow_copy_is_the_rounded_master(tmp_path):
    machine = Machine(tmp_path, "policy=amp-f16")
    for _ in range(3):
        machine.step(X, TARGET, lr=0.1)
        assert machine.state["w"].tobytes() == machine.state["w.master"].astype(np.float16).tobytes()


def test_growth_hysteresis_and_bounds(tmp_path):
    policy = tmp_path / "policy.mlir"
    with open(os.path.join(ROOT, "lib/Precision/policies/amp-f16.mlir"), encoding="utf-8") as stream:
        lines = [line for line in stream if "loss_scaling" not in line]
    lines.insert(len(lines) - 1, "policy.loss_scaling dynamic {init = 8.0, growth = 2.0, backoff = 0.5, interval = 2 : i64, "
                                 "hysteresis = 2 : i64, min = 4.0, max = 16.0}\n")
    policy.write_text("".join(lines))
    machine = Machine(tmp_path, f"policy={policy}")
    bad = X.copy()
    bad[0, 0] = np.inf
    scale, good, left = 8.0, 0, 2
    for finite in [1, 1, 1, 1, 1, 0, 0, 0, 0, 1, 0, 1, 0, 0, 1, 1]:
        out = machine.step(X if finite else bad, TARGET)
        assert bool(out["skipped"]) != bool(finite)
        if finite:
            left, good = 2, good + 1
            if good == 2:
                scale, good = min(scale * 2, 16), 0
        else:
            left, good = left - 1, 0
            if left <= 0:
                scale = max(scale / 2, 4)
        state = (machine.state["mpt.loss_scale"], machine.state["mpt.good_steps"], machine.state["mpt.hysteresis"])
        assert state == (scale, good, left)


def test_gradients_beyond_f16_bring_the_scale_below_one(tmp_path):
    machine = Machine(tmp_path, "policy=amp-f16", "loss-scale=dynamic,init=4")
    large = {"x": 400 * X, "target": -2e5 * np.abs(TARGET)}  # gradients of some 1e7
    scales = [machine.step(**large, lr=0.0) for _ in range(16)]
    assert scales[0]["skipped"] and not scales[-1]["skipped"], "no step fits"
    assert 2.0**-14 < scales[-1]["loss_scale"] < 1


def test_f16_gradients_underflow_without_a_scale(tmp_path):
    random = np.random.default_rng(1)
    x = np.ldexp(random.integers(1, 16, (3, 4)), -10).astype(np.float64)
    error = random.uniform(1e-9, 3e-8, (3, 2)) * random.choice([-1, 1], (3, 2))
    target = x @ np.full((4, 2), 0.5) - error
    exact = x.T @ ((x @ np.full((4, 2), 0.5)) - target.astype(np.float32)) / 3
    updates = {}
    for scaling in ("none", "16777216"):
        folder = tmp_path / scaling
        folder.mkdir()
        machine = Machine(folder, "policy=amp-f16", "loss-scale=" + scaling)
        machine.step(x, target, lr=1e8)
        updates[scaling] = (0.5 - machine.state["w.master"].astype(np.float64)) / 1e8
    assert np.all(updates["none"] == 0.0), "every value of the gradient is flushed to zero"
    assert np.all(updates["16777216"] != 0.0)
    np.testing.assert_allclose(updates["16777216"], exact, rtol=0.02)


def machine_under(folder, scaling, base="amp-f16"):
    """A step of linear.mlir under a built-in policy whose loss scaling is `scaling`."""
    policy = folder / "policy.mlir"
    lines = [line for line in open(os.path.join(ROOT, f"lib/Precision/policies/{base}.mlir"), encoding="utf-8")
             if "loss_scaling" not in line]
    lines.insert(len(lines) - 1, f"policy.loss_scaling {scaling}\n")
    policy.write_text("".join(lines))
    return Machine(folder, f"policy={policy}")


def test_floors_hold_against_stray_overflows_and_give_way_to_lasting_ones(tmp_path):
    machine = machine_under(tmp_path, "dynamic {init = 8.0, interval = 4 : i64, max = 64.0, patience = 3 : i64, "
                                      "floor_steps = array<i64: 0, 14>, floors = array<f64: 8.0, 32.0>}")
    bad = X.copy()
    bad[0, 0] = np.inf
    scale, good, row, trail = 8.0, 0, 0, []
    for step, finite in enumerate([0, 1, 0, 0, 1, 0, 0, 0, 0, 1, 1, 1, 1, 0, 1, 0, 0, 0, 1], start=1):
        before = scale
        machine.step(X if finite else bad, TARGET)
        row, good = (0, good + 1) if finite else (row + 1, 0)
        if good == 4:
            scale, good = scale * 2, 0
        elif not finite:
            scale = max(scale / 2, 1)
        floor = 32 if step >= 14 else 8
        if step in (1, 14) or (before >= floor and row < 3):
            scale = max(scale, floor)
        trail.append(scale)
        assert machine.state["mpt.loss_scale"] == scale, (step, trail)
    assert min(trail[:7]) == 8 and 2 in trail and trail[13] == 32 and trail[-1] == 16, trail


@pytest.mark.parametrize("words", ["loss-scale=dynamic,init=4096,floors=4096", "policy=fp8-e5m2"])
def test_no_floor_traps_a_model_that_cannot_bear_it(tmp_path, words):
    """Gradients that overflow with more than a small scale: training goes on below the floor, whatever the floor is."""
    assign = ["policy=amp-f16", words] if "loss" in words else [words]
    machine = Machine(tmp_path, *assign)
    large = 200 * X
    skipped = [bool(machine.step(large, 400 * TARGET, lr=1e-6)["skipped"]) for _ in range(40)]
    assert skipped[0] and not skipped[-1], skipped


def test_layer_scales_are_kept_between_updates_and_chosen_anew_after_a_skipped_step(tmp_path):
    text = subprocess.run([os.path.join(BUILD, "bin", "mpt-opt"), os.path.join(ROOT, "test/passes/precision/Inputs/three.mlir"),
                           "--precision-assign=policy=als-f16-2020-01", "--precision-insert-casts", "--precision-master-weights",
                           "--precision-adaptive-scales", *PASSES[2:]], capture_output=True, text=True, check=True).stdout
    machine = Machine.__new__(Machine)
    machine.folder, machine.module, machine.state = tmp_path, tmp_path / "step.mlir", {}
    machine.module.write_text(text.replace("dense<1000> : tensor<i32>", "dense<3> : tensor<i32>"))
    assert machine.module.read_text() != text

    def step(x):
        write_safetensors(tmp_path / "in", {"x": x.astype(np.float32), "learning_rate": np.array(2.0 ** -30, np.float32)})
        write_safetensors(tmp_path / "state", machine.state)
        subprocess.run([os.path.join(BUILD, "bin", "mpt-run"), machine.module, "--function=step", f"--inputs={tmp_path / 'in'}",
                        f"--state={tmp_path / 'state'}", f"--outputs={tmp_path / 'out'}", f"--new-state={tmp_path / 'new'}"], check=True)
        machine.state = read_safetensors(tmp_path / "new")[0]
        return machine.state["mpt.scale_steps"].item(), machine.state["mpt.layer_scales"]

    x = np.ones((8, 4)) / 8
    _, first = step(x)
    machine.state["c"], machine.state["c.master"] = (machine.state[name] * machine.state[name].dtype.type(2.0 ** -18)
                                                     for name in ("c", "c.master"))  # the next factor would be larger
    assert step(x)[0] == 2 and np.all(machine.state["mpt.layer_scales"] == first)
    assert step(x)[0] == 0 and np.all(machine.state["mpt.layer_scales"] == first)
    count, later = step(x)
    assert count == 1 and np.any(later > first), (first, later)
    assert step(np.full((8, 4), np.inf))[0] == 0, "a skipped step has them chosen anew"
