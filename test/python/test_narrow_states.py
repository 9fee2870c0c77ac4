# SPDX-License-Identifier: Apache-2.0
"""States without a wide copy: BF16 parameters by stochastic rounding or with a remainder, and optimizer state in BF16."""
import pathlib

import mpt
import numpy as np
import pytest
from ml_dtypes import bfloat16
from onnx import numpy_helper, parser, save

POLICIES = pathlib.Path(__file__).parents[2] / "lib/Precision/policies"
SIZE = 512


def compiled(folder, policy, optimizer, **flags):
    """A trainer of y = x * w, whose gradients are almost the same in each step."""
    model = parser.parse_model(f"""<ir_version: 9, opset_import: ["" : 18]>
m (float[{SIZE}] x) => (float[{SIZE}] y) {{ y = Mul(x, w) }}""")
    model.graph.initializer.append(numpy_helper.from_array(np.ones(SIZE, np.float32), "w"))
    save(model, folder / "m.onnx")
    return mpt.Trainer(mpt.compile(folder / "m.onnx", out=folder / "lib", loss="mse", optimizer=optimizer, policy=policy, train="w", **flags))


def batch(far=3.0):
    return {"x": np.ones(SIZE, np.float32), "target": np.full(SIZE, far, np.float32)}


def to_nearest(folder, policy, of):
    """The policy with rounding to nearest of these values, so without its mechanism."""
    text = (POLICIES / f"{policy}.mlir").read_text()
    lines = [line for line in text.splitlines() if f"of {of}" not in line]
    lines.insert(-1, f'  policy.rounding "nearest_even" of {of}')
    (folder / "nearest.mlir").write_text("\n".join(lines) + "\n")
    return str(folder / "nearest.mlir")


def moved(folder, policy, steps=500):
    with compiled(folder, policy, "sgd,lr=1e-2") as trainer:
        for _ in range(steps):
            trainer.step(batch())
        return float(np.mean(trainer.parameter("w"))) - 1.0


def test_small_updates_add_up(tmp_path):
    """Each is a fiftieth of half a unit of the parameter."""
    want = moved(tmp_path, "fp32")
    assert want > 0.03
    assert moved(tmp_path, "bf16-sr") == pytest.approx(want, abs=4e-3)  # five deviations of the mean
    assert moved(tmp_path, "bf16-kahan") == pytest.approx(want, abs=2.0 ** -8 + 1e-3)  # half a unit, and the gradients'
    assert moved(tmp_path, to_nearest(tmp_path, "bf16-sr", "masters")) == 0.0


def test_compensation_is_kahans(tmp_path):
    """Bit by bit: BF16 parameter and remainder, added in FP32."""
    p, c = np.ones(SIZE, bfloat16), np.zeros(SIZE, bfloat16)
    rng = np.random.default_rng(3)
    with compiled(tmp_path, "bf16-kahan", "sgd,lr=0.5") as trainer:
        for _ in range(100):
            feed = {"x": rng.standard_normal(SIZE).astype(np.float32), "target": rng.standard_normal(SIZE).astype(np.float32)}
            gradient = trainer.gradients(feed)[1]["w"]
            trainer.step(feed)
            new = (p.astype(np.float32) + c.astype(np.float32)) - np.float32(0.5) * gradient
            p = new.astype(bfloat16)
            c = (new - p.astype(np.float32)).astype(bfloat16)
            np.testing.assert_array_equal(trainer.parameter("w"), p.astype(np.float32))
            np.testing.assert_array_equal(trainer.parameter("w.remainder"), c.astype(np.float32))
    assert np.count_nonzero(c) > SIZE / 2


def test_a_parameter_that_is_set_has_no_old_remainder(tmp_path):
    with compiled(tmp_path, "bf16-kahan", "sgd,lr=1e-2") as trainer:
        for _ in range(20):
            trainer.step(batch())
        assert np.abs(trainer.parameter("w.remainder")).max() > 1e-4
        trainer.set_parameter("w", np.full(SIZE, 2.0 ** -20, np.float32))
        trainer.step(batch(), learning_rate=0.0)
        np.testing.assert_array_equal(trainer.parameter("w"), np.full(SIZE, 2.0 ** -20))
        np.testing.assert_array_equal(trainer.parameter("w.remainder"), np.zeros(SIZE))


def test_training_goes_on_from_a_file(tmp_path):
    for policy in ("bf16-sr", "bf16-kahan"):
        with compiled(tmp_path, policy, "adamw,lr=1e-3", slots="bf16") as trainer:
            for _ in range(10):
                trainer.step(batch())
            trainer.save(tmp_path / "middle.st")
            for _ in range(10):
                trainer.step(batch())
            want = {name: trainer.parameter(name) for name in ("w", "w.moment1", "w.moment2")}
            trainer.load(tmp_path / "middle.st")
            for _ in range(10):
                trainer.step(batch())
            for name, value in want.items():
                np.testing.assert_array_equal(trainer.parameter(name), value)


def test_second_moments_in_bf16_keep_their_mean(tmp_path):
    """Steps of beta2 = 0.999 are below half a unit: to nearest, the average stops at a third of the squares that it is of."""
    def moment(policy, **flags):
        with compiled(tmp_path, policy, "adam,lr=1e-9", **flags) as trainer:
            for _ in range(2000):
                trainer.step(batch())
            return float(np.mean(trainer.parameter("w.moment2"))), trainer.memory()["slot_bytes"]

    (want, bytes_32), (got, bytes_16) = moment("fp32"), moment("fp32", slots="bf16")
    assert got == pytest.approx(want, rel=0.01)
    assert bytes_16 * 2 == bytes_32
    text = (POLICIES / "fp32.mlir").read_text()
    assert "master = f32" in text
    (tmp_path / "slots.mlir").write_text(text.replace("gradients = f32", "gradients = f32 slots = bf16"))
    nearest = (tmp_path / "slots.mlir").read_text().rstrip().rstrip("}") + '  policy.rounding "nearest_even" of slots\n}\n'
    (tmp_path / "nearest.mlir").write_text(nearest)
    assert moment(str(tmp_path / "nearest.mlir"))[0] < 0.5 * want


def test_slots_that_narrow_nothing_are_refused(tmp_path):
    with pytest.raises(mpt.CompileError, match="expected optimizer slots that may be bf16 for --slots=bf16, got none"):
        compiled(tmp_path, "bf16-sr", "sgd,lr=0.1", slots="bf16")
