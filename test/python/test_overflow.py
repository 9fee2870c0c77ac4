# SPDX-License-Identifier: Apache-2.0
"""Injected Inf, NaN and overflow through emitted libraries: the state that a skipped step keeps, and how the loss scale moves.

Expected behaviour is a model in numpy of the scaler's state machine (arXiv 1710.03740 with hysteresis and bounds).
"""
import os
import pathlib
import shutil
import subprocess

import numpy as np
import onnx
import pytest

import mpt
from conftest import ROOT, build_folder

SCALER = ("mpt.loss_scale", "mpt.good_steps", "mpt.hysteresis")
MODEL = """
  <ir_version: 9, opset_import: ["" : 18]>
  net (float[8, 5] x) => (float[8, 37] y) {
    hidden = Gemm<transB = 1>(x, w1, b1)
    normed, mean_out, variance_out = BatchNormalization<training_mode = 1>(hidden, scale, shift, mean, variance)
    active = Relu(normed)
    ratio = Constant<value_float = 0.25>()
    yes = Constant<value = bool {1}>()
    dropped = Dropout(active, ratio, yes)
    wide = Gemm<transB = 1>(dropped, w2, b2)
    y = Mul(wide, gain)
  }"""
SHAPES = {"w1": (16, 5), "b1": (16,), "scale": (16,), "shift": (16,), "mean": (16,), "variance": (16,), "w2": (37, 16),
          "b2": (37,), "gain": (37,)}
RANDOM = np.random.default_rng(0)
X = RANDOM.standard_normal((8, 5)).astype(np.float32)
TARGET = RANDOM.standard_normal((8, 37)).astype(np.float32)
STATE = dict(init=64.0, growth=2.0, backoff=0.5, interval=3, hysteresis=2, min=4.0, max=256.0)


@pytest.fixture(scope="module")
def compiled(tmp_path_factory):
    """A function from compiler flags to a fresh trainer; each set of flags is compiled once."""
    folder, done = tmp_path_factory.mktemp("overflow"), {}
    build = build_folder()
    if not (build / "bin" / "mpt-opt").exists():
        pytest.skip("mpt-opt is not built")
    os.environ.setdefault("MPT_BUILD", str(build))
    model, random = onnx.parser.parse_model(MODEL), np.random.default_rng(1)
    for name, shape in SHAPES.items():
        value = np.ones(shape) if name in ("scale", "variance", "gain") else random.standard_normal(shape) * 0.3
        model.graph.initializer.append(onnx.numpy_helper.from_array(value.astype(np.float32), name))
    onnx.save(model, folder / "net.onnx")

    def make(policy="amp-f16", optimizer="adamw,lr=1e-2", **flags):
        key = (policy, optimizer, *sorted(flags.items()))
        if key not in done:
            done[key] = mpt.compile(folder / "net.onnx", loss="mse", optimizer=optimizer, policy=policy,
                                    out=folder / str(len(done)), **flags)
        trainer = mpt.Trainer(done[key], threads=1, seed=7)
        trainer.folder = done[key]
        return trainer

    return make


def settings(**changes) -> str:
    return ",".join(["dynamic", *(f"{key}={value:g}" for key, value in {**STATE, **changes}.items())])


def feeds(poison=None, where=(3, 2)):
    """A good batch, or one with `poison` in the input ("x", value) or the target ("target", value)."""
    batch = {"x": X.copy(), "target": TARGET.copy()}
    if poison:
        batch[poison[0]][where] = poison[1]
    return batch


POISONS = [("x", np.inf), ("x", -np.inf), ("x", np.nan), ("target", np.inf), ("target", np.nan), ("target", 1e30), ("x", 3e38)]


def assert_same(before: dict, after: dict, but=()):
    assert before.keys() == after.keys()
    for name, value in before.items():
        if name not in but:
            assert value.tobytes() == after[name].tobytes(), name


def assert_skipped(trainer, result, before):
    """Every bit of the state is as before, but for the scaler's and the generator's, which draws on."""
    assert result.skipped
    after = trainer.state()
    assert_same(before, after, (*SCALER, "mpt.rng"))
    assert list(after["mpt.rng"] - before["mpt.rng"]) == [0, 1]


@pytest.mark.parametrize("poison", POISONS, ids=str)
@pytest.mark.parametrize("flags", [dict(), dict(clip_norm=1.0), dict(loss_scale=1024), dict(policy="amp-bf16")], ids=str)
def test_skipped_step_changes_no_bit(compiled, flags, poison):
    if abs(poison[1]) < np.inf and flags.get("policy") == "amp-bf16":
        pytest.skip("bf16 has the range of f32: the step is finite")
    trainer = compiled(**flags)
    dynamic = "mpt.loss_scale" in trainer.state()
    for _ in range(2):
        assert not trainer.step(feeds()).skipped
    before = trainer.state()
    result = trainer.step(feeds(poison))
    assert_skipped(trainer, result, before)
    assert result.loss_scale == (65536 if dynamic else flags.get("loss_scale", 1))
    if dynamic:
        assert [float(trainer.state()[name]) for name in SCALER] == [32768, 0, 0]
    after = trainer.step(feeds())
    assert not after.skipped and after.loss_scale == (32768 if dynamic else result.loss_scale)
    assert np.isfinite(after.loss) and after.loss < 10
    changed = trainer.state()
    assert changed["mpt.step"] == before["mpt.step"] + 1
    assert all(np.any(changed[name] != before[name]) for name in ("w1.master", "w2.master", "gain", "mean", "variance"))


@pytest.mark.parametrize("value", [np.inf, np.nan])
def test_one_bad_value_anywhere_is_seen(compiled, value):
    """Column j of the target reaches element j of the gain's gradient; vectors and their remainders are all checked."""
    trainer = compiled(policy="amp-bf16")
    before = trainer.state()
    for column in range(37):
        assert trainer.step(feeds(("target", value), (column % 8, column))).skipped, column
    assert_same(before, trainer.state(), ("mpt.rng",))


def test_good_steps_are_those_of_a_run_without_the_bad_ones(compiled):
    """With a fixed scale and no dropout nothing of a skipped step is left: parameters, optimizer state and the step count agree."""
    plain, disturbed = (compiled(loss_scale=1024, dropout=False, clip_norm=0.5) for _ in range(2))
    for step in range(12):
        batch = {"x": np.roll(X, step, 0), "target": np.roll(TARGET, step, 0)}
        assert not plain.step(batch).skipped
        if step % 3 == 1:
            assert disturbed.step(feeds(POISONS[step % len(POISONS)])).skipped
        assert not disturbed.step(batch).skipped
    assert_same(plain.state(), disturbed.state())


class Scaler:
    """The state machine in FP32: scale, good steps since it moved, units of hysteresis left."""

    def __init__(self, init, growth, backoff, interval, hysteresis, min, max):
        self.__dict__.update(growth=np.float32(growth), backoff=np.float32(backoff), interval=interval, full=hysteresis,
                             least=np.float32(min), most=np.float32(max), scale=np.float32(init), good=0, left=hysteresis)

    def step(self, finite: bool):
        if finite:
            self.left, self.good = self.full, self.good + 1
            if self.good == self.interval:
                grown = np.minimum(self.scale * self.growth, self.most)
                self.scale, self.good = grown if np.isfinite(grown) else self.scale, 0
        else:
            self.left, self.good = self.left - 1, 0
            if self.left <= 0:
                self.scale = np.maximum(self.scale * self.backoff, self.least)

    def state(self):
        return [self.scale, self.good, self.left]


@pytest.mark.parametrize("changes", [dict(), dict(growth=3.0, backoff=0.3, hysteresis=1, interval=1, init=5.0),
                                     dict(hysteresis=3, interval=4, min=0.25, max=1024.0)], ids=str)
def test_scaler_follows_its_state_machine(compiled, changes):
    trainer, scaler = compiled(loss_scale=settings(**changes), clip_norm=1.0), Scaler(**{**STATE, **changes})
    random = np.random.default_rng(5)
    seen = set()
    for chance in np.repeat([0.1, 0.6, 0.9, 0.3, 0.0], 40):
        finite = bool(random.random() >= chance)
        result = trainer.step(feeds(None if finite else POISONS[random.integers(len(POISONS))]))
        assert result.loss_scale == scaler.scale and result.skipped != finite
        scaler.step(finite)
        state = trainer.state()
        assert [state[name] for name in SCALER] == scaler.state()
        seen.add(float(scaler.scale))
    assert {scaler.least, scaler.most} <= seen and len(seen) > 4


def test_overflow_of_scaled_gradients_lowers_the_scale_until_they_fit(compiled):
    trainer = compiled(loss_scale="dynamic,init=16777216,interval=4")
    big = {"x": X, "target": TARGET + 2000.0}  # gradients of y near 2 * 2000 / 296, which f16 holds at scales below 4,900
    scales, start = [], trainer.state()
    while (result := trainer.step(big)).skipped:
        scales.append(result.loss_scale)
        assert_same(start, trainer.state(), (*SCALER, "mpt.rng"))
        assert len(scales) < 20
    assert scales == [2.0**(24 - i) for i in range(len(scales))] and 2**4 <= result.loss_scale <= 2**12
    results = [trainer.step(big) for _ in range(40)]
    assert any(r.skipped for r in results), "every fourth good step tries a larger scale"
    assert all(b.loss_scale == a.loss_scale / 2 for a, b in zip(results, results[1:]) if a.skipped)
    assert sum(not r.skipped for r in results) >= 30 and np.isfinite(trainer.parameter("w2")).all()


@pytest.mark.parametrize("flags", [dict(loss_scale=settings(hysteresis=1)), dict(loss_scale=512), dict(policy="amp-bf16")], ids=str)
def test_accumulation_skips_the_whole_update(compiled, flags):
    trainer = compiled(accumulate=3, clip_norm=1.0, **flags)
    dynamic = "mpt.loss_scale" in trainer.state()

    def update(poisons):
        micro = [bool(trainer.run("accumulate", feeds(poison))["skipped"]) for poison in poisons[:-1]]
        return micro, trainer.step(feeds(poisons[-1]))

    assert update([None] * 3)[1].skipped is False
    for place in range(3):
        scale = float(trainer.state()["mpt.loss_scale"]) if dynamic else None
        poisons = [None] * 3
        poisons[place] = ("x", np.nan)
        before = trainer.state()
        micro, result = update(poisons)
        after = trainer.state()
        assert micro == [place == 0, place == 1] and result.skipped
        # Statistics belong to the micro-steps, which had finite gradients but for one.
        assert_same(before, after, (*SCALER, "mpt.rng", "mean", "variance"))
        assert np.isfinite(after["mean"]).all() and after["mpt.rng"][1] == before["mpt.rng"][1] + 3
        assert not any(after[name].any() for name in after if name.endswith(".accumulator"))
        if dynamic:
            assert result.loss_scale == scale and after["mpt.loss_scale"] == scale / 2, "halved once an update"
        good = update([None] * 3)[1]
        assert not good.skipped and trainer.state()["mpt.step"] == before["mpt.step"] + 1


def test_accumulated_update_is_the_mean(compiled):
    trainer = compiled(accumulate=3, optimizer="sgd,lr=0.5", dropout=False, loss_scale=256)
    batches = [{"x": np.roll(X, i, 0), "target": TARGET * (i + 1)} for i in range(3)]
    gradients = [trainer.gradients(batch)[1] for batch in batches]
    before = trainer.parameters()
    for batch in batches[:-1]:
        trainer.run("accumulate", batch)
    trainer.step(batches[-1])
    for name, value in trainer.parameters().items():
        mean = sum(g[name].astype(np.float64) for g in gradients) / 3
        np.testing.assert_allclose(value, before[name] - 0.5 * mean, rtol=1e-6, atol=1e-7)


def test_training_recovers(compiled):
    """The loss after 60 good steps with 20 bad ones between them is the loss of the run without the bad ones."""
    losses = {}
    for disturb in (False, True):
        trainer = compiled(dropout=False, clip_norm=1.0)
        for step in range(60):
            if disturb and step % 3 == 0:
                trainer.step(feeds(POISONS[step // 3 % len(POISONS)]))
            losses[disturb] = trainer.step(feeds()).loss
        assert trainer.state()["mpt.step"] == 60
    assert losses[True] < 0.8 and losses[True] == pytest.approx(losses[False], rel=0.02)


def test_c_program_sees_the_skip(compiled, tmp_path):
    compiler = shutil.which("clang-22") or shutil.which("cc")
    if not compiler:
        pytest.skip("needs a C compiler")
    trainer, build = compiled(clip_norm=1.0), build_folder()
    source = pathlib.Path(__file__).parent / "Inputs" / "overflow.c"
    done = subprocess.run([compiler, "-std=c11", f"-I{ROOT / 'include'}", str(source), f"-L{build / 'lib'}", "-lmpt_rt", "-lm",
                           f"-Wl,-rpath,{build / 'lib'}", "-o", str(tmp_path / "overflow")], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    done = subprocess.run([str(tmp_path / "overflow"), str(trainer.folder)], capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout.split("\n")[:4] == ["0 65536", "1 65536", "0 32768", "0 32768"]
