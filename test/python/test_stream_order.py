# SPDX-License-Identifier: Apache-2.0
"""Indices on the device whose producer is not done yet: a step waits for the default stream, and the fake driver notes who does not wait."""
import subprocess
import sys

import numpy as np
from conftest import build_folder
from cuda_models import model, values
from onnx import TensorProto, helper
from standin import environment

STEPS = """
import ctypes, sys
import numpy as np
from mpt import _arrays
from standin import standin, trainer as make_trainer
folder, who = sys.argv[1:]
ids, driver = np.arange(24, dtype=np.int64).reshape(4, 6) % 7, standin()
pointer, locked, context, stream = (ctypes.c_uint64(), ctypes.c_void_p(), ctypes.c_void_p(), ctypes.c_void_p())
driver.cuDevicePrimaryCtxRetain(ctypes.byref(context), 0)
driver.cuCtxPushCurrent_v2(context)
driver.cuMemAlloc_v2(ctypes.byref(pointer), ctypes.c_size_t(ids.nbytes))
driver.cuMemHostAlloc(ctypes.byref(locked), ctypes.c_size_t(ids.nbytes), 0)
ctypes.memmove(locked, ids.ctypes.data, ids.nbytes)
if who != "default":
    driver.cuStreamCreate(ctypes.byref(stream), 1)  # ordered with no other
with make_trainer(folder) as trainer:
    target = next(name for name in trainer.inputs() if name not in ("ids", "learning_rate"))
    labels = np.arange(4, dtype=np.int64)
    trainer.step({"ids": ids, target: labels})
    driver.cuMemcpyHtoDAsync_v2(pointer, locked, ctypes.c_size_t(ids.nbytes), stream)  # executed when somebody waits for it
    given = _arrays.DeviceArray(_arrays.describe(b"ids", "int64", ids.shape, pointer.value), 0, None)
    try:
        print("loss", trainer.step({"ids": given, target: labels}).loss)
    except Exception as problem:
        print("refused", problem)
print(driver.standin_violations().decode())
"""


def step(tmp_path, who):
    nodes = [helper.make_node("Gather", ["table", "ids"], ["e"], name="lookup"), helper.make_node("Flatten", ["e"], ["f"], name="flat"),
             helper.make_node("Gemm", ["f", "w"], ["logits"], name="fc")]
    model(tmp_path / "m.onnx", "lookup", nodes, {"table": values(1, 7, 8), "w": values(2, 48, 5)}, {"ids": [4, 6]}, ("logits", TensorProto.FLOAT, [4, 5]))
    subprocess.run([build_folder() / "bin" / "mpt-opt", tmp_path / "m.onnx", "--quiet", "-o", tmp_path / "cuda", "--loss=softmax-cross-entropy",
                    "--optimizer=sgd,lr=0.1", "--target=cuda", "--arch=host"], check=True)
    done = subprocess.run([sys.executable, "-c", STEPS, str(tmp_path / "cuda"), who], env=environment(build_folder()), capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_a_step_waits_for_indices_of_the_default_stream(tmp_path):
    said = step(tmp_path, "default").split()
    assert said[0] == "loss" and np.isfinite(float(said[1])) and len(said) == 2, said


def test_a_producer_that_nothing_orders_is_noted(tmp_path):
    assert "a copy to the device touches memory that another stream reads, and nothing orders them" in step(tmp_path, "another")
