# SPDX-License-Identifier: Apache-2.0
"""Checkpoints for ONNX Runtime Training: its own reader and the importer find the values that a trainer writes, in every policy."""
import os
import sys

import numpy as np
import pytest

import mpt

sys.path.insert(0, os.path.dirname(__file__))
from runtime_artifacts import classifier, flatbuffer  # noqa: E402


class Flat:
    """Reads tables of a flatbuffer by the format's description alone (flatbuffers.dev, "Internals")."""

    def __init__(self, data):
        self.data = data

    def number(self, at, kind):
        return np.frombuffer(self.data, kind, 1, at)[0].item()

    def field(self, table, slot):
        """The place of a field; None where it has its default."""
        vtable = table - self.number(table, "<i4")
        entry = 4 + 2 * slot
        distance = self.number(vtable + entry, "<u2") if entry < self.number(vtable, "<u2") else 0
        return table + distance if distance else None

    def child(self, table, slot):
        at = self.field(table, slot)
        return None if at is None else at + self.number(at, "<u4")

    def vector(self, table, slot, kind):
        at = self.child(table, slot)
        return [] if at is None else np.frombuffer(self.data, kind, self.number(at, "<u4"), at + 4)

    def tables(self, table, slot):
        at = self.child(table, slot)
        places = [] if at is None else range(at + 4, at + 4 + 4 * self.number(at, "<u4"), 4)
        return [place + self.number(place, "<u4") for place in places]

    def tensors(self, table, slot):
        result = {}
        for at in self.tables(table, slot):
            assert self.number(self.field(at, 3), "<i4") == 1  # FP32
            assert self.field(at, 6) is None  # nothing in another file
            place = self.child(at, 4)
            assert (place + 4) % 8 == 0
            values = np.frombuffer(self.data, "<f4", self.number(place, "<u4") // 4, place + 4)  # counted in bytes
            result[self.text(at, 0)] = values.reshape(self.vector(at, 2, "<i8"))
        return result

    def text(self, table, slot):
        return bytes(self.vector(table, slot, "<u1")).decode()


def read(path):
    """(trained, frozen, {parameter: moments}, steps) of a checkpoint; the last two None without an optimizer."""
    data = path.read_bytes()
    assert data[4:8] == b"ODTC"
    flat = Flat(data)
    root = flat.number(0, "<u4")
    assert flat.number(flat.field(root, 0), "<i4") == 2  # the version that 1.19 reads
    module = flat.child(root, 1)
    groups = flat.tables(root, 2)
    moments = steps = None
    if groups:
        group, = groups
        assert flat.text(group, 0) == "group0"
        at = flat.field(group, 1)
        steps = flat.number(at, "<i8") if at else 0
        moments = {flat.text(state, 0): flat.tensors(state, 1) for state in flat.tables(group, 3)}
    return flat.tensors(module, 0), flat.tensors(module, 1), moments, steps


def batch(rng):
    x = rng.standard_normal((64, 2)).astype(np.float32)
    return {"x": x, "labels": (x[:, 0] > x[:, 1]).astype(np.int64)}


def trained(folder, tmp_path, name, **options):
    mpt.compile(folder, out=tmp_path / name, **options)
    return mpt.Trainer(tmp_path / name)


@pytest.mark.parametrize("policy", ["fp32", "amp-f16", "amp-bf16", "fp8-e5m2"])
def test_a_checkpoint_is_the_state(policy, tmp_path):
    classifier(tmp_path / "artifacts")
    trainer = trained(tmp_path / "artifacts", tmp_path, "first", policy=policy)
    rng = np.random.default_rng(5)
    steps = sum(not trainer.step(batch(rng), learning_rate=0.02).skipped for _ in range(7))
    trainer.save_onnxruntime(tmp_path / "artifacts" / "checkpoint")
    parameters, frozen, moments, counted = read(tmp_path / "artifacts" / "checkpoint")
    assert set(parameters) == set(trainer.parameters()) and not frozen and counted == steps > 0
    for name, value in parameters.items():
        np.testing.assert_array_equal(value, trainer.parameter(name))  # of the master, where there is one
        for k in (0, 1):
            np.testing.assert_array_equal(moments[name][f"momentum{k}"], trainer.parameter(f"{name}.moment{k + 1}"))
            assert np.any(moments[name][f"momentum{k}"])
    # The importer takes it for the folder's, and the run goes on where it was.
    second = trained(tmp_path / "artifacts", tmp_path, "second", policy=policy)
    for name in parameters:
        np.testing.assert_array_equal(second.parameter(name), trainer.parameter(name))
    if policy == "fp32":
        for _ in range(3):
            given = batch(rng)
            assert second.step(given, learning_rate=0.02).loss == trainer.step(given, learning_rate=0.02).loss
        np.testing.assert_array_equal(second.parameter("w"), trainer.parameter("w"))


def test_parameters_alone(tmp_path):
    classifier(tmp_path / "artifacts")
    trainer = trained(tmp_path / "artifacts", tmp_path, "x", policy="amp-f16")
    trainer.save_onnxruntime(tmp_path / "out", optimizer_state=False)
    parameters, frozen, moments, _ = read(tmp_path / "out")
    assert set(parameters) == {"w", "b"} and not frozen and moments is None


def test_frozen_parameters_stay_frozen(tmp_path):
    values = classifier(tmp_path / "artifacts")
    (tmp_path / "artifacts" / "checkpoint").write_bytes(flatbuffer(values))
    trainer = trained(tmp_path / "artifacts", tmp_path, "x", policy="fp32", freeze=["b"])
    trainer.save_onnxruntime(tmp_path / "out")
    parameters, frozen, moments, _ = read(tmp_path / "out")
    assert set(parameters) == {"w"} == set(moments) and set(frozen) == {"b"}
    np.testing.assert_array_equal(frozen["b"], values["b"])


def test_other_optimizers_say_what_to_do(tmp_path):
    classifier(tmp_path / "artifacts")
    trainer = trained(tmp_path / "artifacts", tmp_path, "x", policy="fp32", optimizer="sgd,momentum=0.9")
    with pytest.raises(mpt.Error, match=r"expected moments of Adam or AdamW.*save without the optimizer's state, or by mpt_trainer_save"):
        trainer.save_onnxruntime(tmp_path / "out")
    assert not (tmp_path / "out").exists()
    trainer.save_onnxruntime(tmp_path / "out", optimizer_state=False)
    assert set(read(tmp_path / "out")[0]) == {"w", "b"}


def test_a_file_in_the_way_stays_whole(tmp_path):
    classifier(tmp_path / "artifacts")
    trainer = trained(tmp_path / "artifacts", tmp_path, "x", policy="fp32")
    (tmp_path / "folder").mkdir()
    with pytest.raises(mpt.Error, match="folder"):
        trainer.save_onnxruntime(tmp_path / "folder")
    assert list((tmp_path / "folder").iterdir()) == []
