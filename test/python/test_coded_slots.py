# SPDX-License-Identifier: Apache-2.0
"""Optimizer states in 8 bits: codes and scales against the published formulas, training, state files, replicas."""
import pathlib

import ml_dtypes
import mpt
import numpy as np
import pytest
from mpt_run import tool
from onnx import numpy_helper, parser, save
from standin import library

ROWS, COLUMNS, BLOCK = 64, 128, 256
F32 = np.float32


def dynamic_map(signed):
    """The 256 values of arXiv 1511.04561 as bitsandbytes and torchao have them."""
    values = [0.0, 1.0]
    for decade in range(7):
        parts = (1 if signed else 2) * 2 ** decade
        middles = (0.1 + 0.9 * (np.arange(parts) + 0.5) / parts) * 10.0 ** (decade - 6)
        values += [*middles, *(-middles if signed else ())]
    return np.sort(np.array(values, F32))


def decode(codes, scales, kind, signed):
    values = dynamic_map(signed)[codes] if kind == "i8" else codes.astype(F32)
    return (values.reshape(-1, BLOCK) * scales[:, None]).reshape(codes.shape)


def encode(x, kind, signed):
    """torchao's order of operations in FP32, but for averages of squares, of which none but 0 has the code of 0."""
    rows = x.reshape(-1, BLOCK)
    scales = np.maximum(np.abs(rows).max(axis=1), F32(1e-12))
    if kind == "f8":
        scales = scales / F32(448)
        shares = rows / scales[:, None]
        shares = shares if signed else np.where(shares == 0, shares, np.maximum(shares, F32(2**-9)))
        return shares.astype(ml_dtypes.float8_e4m3fn).reshape(x.shape), scales
    table, rows = dynamic_map(signed), rows / scales[:, None]
    low = np.maximum(np.searchsorted(table, rows, side="right") - 1, 0)
    high = np.minimum(low + 1, 255)
    up = rows - table[low] >= (table[high] - table[low]) * F32(0.5)
    codes = np.where(up, high, low)
    return (codes if signed else np.maximum(codes, rows > 0)).astype(np.uint8).reshape(x.shape), scales


def model(folder):
    made = parser.parse_model(f"""<ir_version: 9, opset_import: ["" : 18]>
m (float[N,{ROWS}] x) => (float[N,16] y) {{
  h = MatMul(x, w)
  b = Add(h, c)
  r = Relu(b)
  y = MatMul(r, v)
}}""")
    rng = np.random.default_rng(0)
    for name, shape in (("w", (ROWS, COLUMNS)), ("c", (COLUMNS,)), ("v", (COLUMNS, 16))):
        made.graph.initializer.append(numpy_helper.from_array((rng.standard_normal(shape) / 8).astype(F32), name))
    save(made, folder / "m.onnx")
    return folder / "m.onnx"


def compiled(folder, slots, policy="fp32", optimizer="adamw,lr=1e-3", **flags):
    return mpt.Trainer(mpt.compile(model(folder), out=folder / "lib", loss="mse", optimizer=optimizer, policy=policy, slots=slots,
                                   bind={"N": 8}, **flags))


def batches(count, seed=1):
    rng = np.random.default_rng(seed)
    for _ in range(count):
        x = rng.standard_normal((8, ROWS)).astype(F32)
        yield {"x": x, "target": np.tanh(x[:, :16])}


@pytest.mark.parametrize("kind", ["i8", "f8"])
def test_codes_are_those_of_the_formula(tmp_path, kind):
    """Over 100 steps, bit by bit; w has 8,192 elements in 32 blocks, v 2,048 and c 128, which stay in FP32."""
    with compiled(tmp_path, kind) as trainer:
        assert {n for n in trainer.state() if n.endswith(".scale")} == {"w.moment1.scale", "w.moment2.scale"}
        state = {n: a.copy() for n, a in trainer.state().items()}
        for feed in batches(100):
            gradient = trainer.gradients(feed)[1]["w"]
            trainer.step(feed)
            for slot, signed, beta, term in (("w.moment1", True, 0.9, gradient), ("w.moment2", False, 0.999, gradient * gradient)):
                old = decode(state[slot], state[slot + ".scale"], kind, signed)
                state[slot], state[slot + ".scale"] = encode(old * F32(beta) + term * F32(1 - beta), kind, signed)
                got = trainer.state()
                np.testing.assert_array_equal(got[slot + ".scale"], state[slot + ".scale"])
                np.testing.assert_array_equal(got[slot].view(np.uint8), state[slot].view(np.uint8))


@pytest.mark.parametrize("kind", ["i8", "f8"])
def test_small_squares_are_not_lost(tmp_path, kind):
    """One input is small, so that the squares of its gradients are far below their block's largest, and then zero: an average of
    squares that became 0 before the average of the gradients would be divided by eps alone."""
    with compiled(tmp_path, kind, optimizer="adam,lr=1e-3") as trainer:
        before = trainer.parameter("w")
        for i, feed in enumerate(batches(20)):
            feed["x"][:, 3] *= F32(1e-5 if i < 5 else 0)
            trainer.step(feed)
            after = trainer.parameter("w")
            assert np.abs(after - before).max() < 0.02, i
            before = after


def losses(trainer, steps=60):
    return [trainer.step(feed).loss for feed in batches(steps)]


@pytest.mark.parametrize("kind, policy, optimizer", [
    ("i8", "fp32", "sgd,lr=0.05,momentum=0.9"), ("f8", "fp32", "lion,lr=1e-3"), ("i8", "fp32", "adagrad,lr=1e-2"),
    ("i8", "fp32", "rmsprop,lr=1e-3,centered,momentum=0.5"), ("f8", "amp-f16", "adamw,lr=3e-3"), ("i8", "bf16-sr", "adamw,lr=3e-3")])
def test_training_reaches_the_loss_of_fp32(tmp_path, kind, policy, optimizer):
    with compiled(tmp_path, "f32", optimizer=optimizer) as trainer:
        want, wide = np.mean(losses(trainer)[-10:]), trainer.memory()
    with compiled(tmp_path, kind, policy, optimizer) as trainer:
        assert np.mean(losses(trainer)[-10:]) == pytest.approx(want, rel=0.02)
        coded = sum(name.startswith("w.") and name.endswith(".scale") for name in trainer.state()) * ROWS * COLUMNS
        assert trainer.memory()["slot_bytes"] == wide["slot_bytes"] - coded * (3 - 4 / BLOCK)
        assert policy != "fp32" or trainer.memory()["arena_bytes"] == wide["arena_bytes"]  # no FP32 moments


def test_training_goes_on_from_a_file(tmp_path):
    with compiled(tmp_path, "i8", "amp-f16") as trainer:
        losses(trainer, 5)
        trainer.save(tmp_path / "middle.st")
        want = losses(trainer, 5)
        trainer.load(tmp_path / "middle.st")
        assert losses(trainer, 5) == want
    with compiled(tmp_path, "f32", "amp-f16") as trainer, pytest.raises(mpt.Error, match="fingerprint"):
        trainer.load(tmp_path / "middle.st")


@pytest.mark.parametrize("kind", ["i8", "f8"])
def test_torch_gets_moments_and_gives_them_back(tmp_path, kind):
    with compiled(tmp_path, kind) as trainer:
        losses(trainer, 5)
        given, state = trainer.optimizer_state_dict(), trainer.state()
        for slot, name, signed in (("moment1", "exp_avg", True), ("moment2", "exp_avg_sq", kind == "f8")):
            want = decode(state[f"w.{slot}"], state[f"w.{slot}.scale"], kind, signed)
            np.testing.assert_array_equal(np.asarray(given["state"][0][name]), want)
        trainer.reset()
        trainer.load_optimizer_state_dict(given)
        for slot in ("moment1", "moment2"):
            np.testing.assert_array_equal(trainer.state()[f"w.{slot}"].view(np.uint8), state[f"w.{slot}"].view(np.uint8))


def test_a_skipped_step_leaves_codes_and_scales(tmp_path):
    with compiled(tmp_path, "i8", "amp-f16") as trainer:
        losses(trainer, 3)
        before = {name: value.copy() for name, value in trainer.state().items()}
        feed = next(batches(1))
        feed["x"][0, 0] = np.inf
        assert trainer.step(feed).skipped
        for name, value in trainer.state().items():
            assert "moment" not in name or value.tobytes() == before[name].tobytes(), name


@pytest.mark.parametrize("kind", ["i8", "f8"])
def test_shards_hold_whole_blocks(tmp_path, kind):
    """The bits of replicas that divide nothing, in files that each reads."""
    for sharded in (None, True):
        with compiled(tmp_path, kind, "amp-f16", replicas=2, shard_optimizer=sharded) as trainer:
            for feed in batches(4):
                trainer.step({name: np.concatenate([value, value[::-1]]) for name, value in feed.items()})
            trainer.save(tmp_path / f"{sharded}.st")
            assert bool(sharded) == ("w.moment1.scale" in trainer.manifest.get("shards", {}).get("states", {}))
            trainer.load(tmp_path / "None.st")
    assert (tmp_path / "None.st").read_bytes() == (tmp_path / "True.st").read_bytes()


@pytest.mark.parametrize("kind", ["i8", "f8"])
def test_a_step_that_leaves_as_a_file_has_the_same_bits(tmp_path, kind):
    options = {"loss": "mse", "optimizer": "adamw,lr=1e-3", "slots": kind, "bind": {"N": 8}}
    mpt.compile(model(tmp_path), out=tmp_path / "step.onnx", emit="onnx", **options)
    with compiled(tmp_path, kind) as trainer, mpt.Trainer(mpt.compile(tmp_path / "step.onnx", out=tmp_path / "again")) as again:
        for feed in batches(10):
            assert trainer.step(feed).loss == again.step(feed, learning_rate=1e-3).loss
        for name, value in trainer.state().items():
            assert value.tobytes() == again.state()[name].tobytes(), name


@pytest.mark.parametrize("kind", ["i8", "f8"])
@pytest.mark.parametrize("columns", [COLUMNS, BLOCK])  # rows that are no blocks, and rows that are
def test_cuda_has_the_same_codes_and_no_wide_moments(tmp_path, monkeypatch, kind, columns):
    """Kernels for CUDA on the host, whose GEMMs add up in another order."""
    driver = library(pathlib.Path(tool()).parents[1])
    if not pathlib.Path(driver).exists():
        pytest.skip("the stand-in is not built")
    monkeypatch.setitem(globals(), "COLUMNS", columns)
    options = {**dict.fromkeys(("driver", "cublaslt", "cudnn"), driver), "cache": ""}
    flags = {"loss": "mse", "optimizer": "adamw,lr=1e-3", "bind": {"N": 8}, "target": "cuda", "arch": "host"}
    arenas = {}
    for slots in ("f32", kind):
        with mpt.Trainer(mpt.compile(model(tmp_path), out=tmp_path / "cuda", slots=slots, **flags), options=options) as trainer:
            losses(trainer, 10)
            state, arenas[slots] = trainer.state(), trainer.memory()["arena_bytes"]
    assert arenas[kind] <= arenas["f32"]
    with compiled(tmp_path, kind) as trainer:
        losses(trainer, 10)
        for slot in ("w.moment1", "w.moment2"):
            np.testing.assert_allclose(state[f"{slot}.scale"], trainer.state()[f"{slot}.scale"], rtol=1e-4)
            assert np.mean(state[slot].view(np.uint8) != trainer.state()[slot].view(np.uint8)) < 1e-3
