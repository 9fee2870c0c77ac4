# SPDX-License-Identifier: Apache-2.0
"""Trainers of several compilations in one process: each runs its own compilation, whatever has become of its files since."""
import fcntl
import gc
import os
import pathlib
import shutil
import threading

import numpy as np
import onnx
import pytest

import mpt

pytestmark = pytest.mark.slow

X = np.array([[1, 2, 3]], np.float32)
W = np.array([[1], [2], [4]], np.float32)


def compiled(folder, factor: float, weights=W):
    """Compiles y = factor (x w) and its gradients into `folder`, always under the same name."""
    source = f"""<ir_version: 9, opset_import: ["" : 18]>
    model (float[1, 3] x) => (float[1, 1] y) <float[3, 1] w, float factor = {{{factor}}}> {{
        a = MatMul(x, w)
        y = Mul(a, factor)
    }}"""
    model = onnx.parser.parse_model(source)
    model.graph.initializer.append(onnx.numpy_helper.from_array(weights, "w"))
    path = pathlib.Path(f"{folder}.onnx")
    onnx.save(model, path)
    return mpt.compile(path, out=folder, loss="mse", optimizer="sgd,lr=0.001")


def value(trainer) -> float:
    return float(trainer.evaluate({"x": X})["y"][0, 0])


def test_recompiled_beside_a_living_trainer(tmp_path):
    """A notebook's cell, run again and again with other settings."""
    trainers = [mpt.Trainer(compiled(tmp_path / "m", factor), threads=1) for factor in (1.0, 2.0, -3.0)]
    assert [value(t) for t in trainers] == [17.0, 34.0, -51.0]
    trainers[1].close()
    trainers.append(mpt.Trainer(compiled(tmp_path / "m", 5.0), threads=1))
    assert [value(trainers[i]) for i in (0, 2, 3)] == [17.0, -51.0, 85.0]
    assert trainers[0].step({"x": X, "target": np.zeros((1, 1), np.float32)}).loss == 289.0


def test_overwritten_in_place(tmp_path):
    """cp, rsync --inplace and some editors keep the file and change its content."""
    old = mpt.Trainer(compiled(tmp_path / "m", 1.0), threads=1)
    (tmp_path / "n").mkdir()
    compiled(tmp_path / "n" / "m", 2.0)
    shutil.copyfile(tmp_path / "n" / "m" / "libm.so", tmp_path / "m" / "libm.so")
    assert value(old) == 17.0
    assert value(mpt.Trainer(tmp_path / "m", threads=1)) == 34.0
    (tmp_path / "m" / "libm.so").write_bytes(b"")
    assert value(old) == 17.0
    with pytest.raises(mpt.Error, match="libm.so"):
        mpt.Trainer(tmp_path / "m")


def test_weights_are_those_of_the_loaded_compilation(tmp_path):
    """A compiler that exchanges the files while they are loaded: code and weights are of one compilation."""
    folder = tmp_path / "m"
    versions = []
    for i, factor in enumerate((1.0, -1.0)):
        compiled(folder, factor, W * factor)  # both compute 17
        shutil.copytree(folder, tmp_path / f"version{i}")
    done = threading.Event()

    def exchange():
        i = 0
        while not done.is_set():
            for name in ("libm.so", "m.safetensors"):
                shutil.copyfile(tmp_path / f"version{i}" / name, tmp_path / f"next-{name}")
            lock = os.open(folder, os.O_RDONLY)  # as the compiler does
            fcntl.flock(lock, fcntl.LOCK_EX)
            for name in ("libm.so", "m.safetensors"):
                os.rename(tmp_path / f"next-{name}", folder / name)
            os.close(lock)
            i ^= 1

    thread = threading.Thread(target=exchange)
    thread.start()
    try:
        for _ in range(200):
            with mpt.Trainer(folder, threads=1) as trainer:
                versions.append(value(trainer))
    finally:
        done.set()
        thread.join()
    assert set(versions) == {17.0}


def test_grad_norm_is_none_where_the_step_has_none(tmp_path):
    compiled(tmp_path / "m", 1.0)
    batch = {"x": X, "target": np.zeros((1, 1), np.float32)}
    assert mpt.Trainer(tmp_path / "m", threads=1).step(batch).grad_norm is None
    mpt.compile(f"{tmp_path / 'm'}.onnx", out=tmp_path / "m", loss="mse", optimizer="sgd,lr=0.001", clip_norm=1.0)
    assert mpt.Trainer(tmp_path / "m", threads=1).step(batch).grad_norm == pytest.approx(34 * 14**0.5, rel=1e-6)


def mappings() -> int:
    return len(pathlib.Path("/proc/self/maps").read_text().splitlines())


def resident() -> int:
    return int(pathlib.Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")


def test_a_thousand_reloads_leave_nothing(tmp_path):
    folder = tmp_path / "m"
    for i in range(2):
        compiled(folder, float(i + 1))
        shutil.copyfile(folder / "libm.so", tmp_path / f"version{i}")
    target = {"x": X, "target": np.zeros((1, 1), np.float32)}

    def reload(times):
        for i in range(times):
            shutil.copyfile(tmp_path / f"version{i % 2}", tmp_path / "next")
            os.replace(tmp_path / "next", folder / "libm.so")
            with mpt.Trainer(folder, threads=1) as trainer:
                assert trainer.step(target).loss == (17.0 * (i % 2 + 1)) ** 2
        gc.collect()

    reload(50)
    before = mappings(), len(os.listdir("/proc/self/fd")), resident()
    reload(1000)
    assert mappings() <= before[0] + 2
    assert len(os.listdir("/proc/self/fd")) == before[1]
    assert resident() <= before[2] + (1 << 20)
