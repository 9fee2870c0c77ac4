# SPDX-License-Identifier: Apache-2.0
"""Rows of matrices on GPUs: --memory-verify-alignment over compiled training steps whose extents are odd."""
import os
import re
import subprocess
import sys

import numpy as np
import pytest
from onnx import TensorProto, helper

import cuda_models
import standin
from conftest import build_folder

pytestmark = pytest.mark.slow

ROWS, WIDTH, CLASSES = 512, 520, 1001


def compiled(tmp_path, policy, transposed, rows=ROWS):
    """The training step alone, on buffers. Weights [outputs, inputs] have rows of even length, others odd ones."""
    nodes = [helper.make_node("Gemm", ["x", "w0"], ["h"], name="fc0"), helper.make_node("Relu", ["h"], ["r"], name="relu"),
             helper.make_node("Gemm", ["r", "w1"], ["logits"], name="fc1", transB=int(transposed))]
    shape = (CLASSES, WIDTH) if transposed else (WIDTH, CLASSES)
    cuda_models.model(tmp_path / "m.onnx", "classifier", nodes, {"w0": cuda_models.values(1, 64, WIDTH), "w1": cuda_models.values(2, *shape)},
                      {"x": [rows, 64]}, ("logits", TensorProto.FLOAT, [rows, CLASSES]))
    mpt_opt(tmp_path / "m.onnx", "--loss=softmax-cross-entropy", "--optimizer=adamw,lr=1e-3", f"--policy={policy}", "--target=cuda", "--to=memory",
            "--emit=mlir", "--quiet", "-o", tmp_path / "all.mlir", check=True)
    # Results of the other functions lie as their callers have them.
    text = re.sub(r"^  func\.func @(?!step\b).*?^  }\n", "", (tmp_path / "all.mlir").read_text(), flags=re.M | re.S)
    assert "func.func @step" in text and text.count("rt.gemm") >= 5
    (tmp_path / "step.mlir").write_text(text)
    return text


def mpt_opt(*words, check=False):
    opt = build_folder() / "bin" / "mpt-opt"
    if not opt.exists():
        pytest.skip("the compiler is not built")
    return subprocess.run([str(word) for word in (opt, *words)], capture_output=True, text=True, check=check)


@pytest.mark.parametrize("policy", ["fp32", "amp-bf16", "amp-f16", "als-f16", "fp8-hybrid"])
def test_rows_of_a_steps_own_matrices_are_aligned(tmp_path, policy):
    text = compiled(tmp_path, policy, transposed=True)
    assert re.search(rf"memref<{ROWS}x{CLASSES}x\w+, strided<\[100[48], 1\]", text), "nothing was made longer"
    done = mpt_opt(tmp_path / "step.mlir", "--memory-verify-alignment", "-o", tmp_path / "same.mlir")
    assert done.returncode == 0, done.stderr
    for length in (1008, 1004):  # as if nothing had been made longer
        text = text.replace(f"strided<[{length}, 1]", f"strided<[{CLASSES}, 1]")
    (tmp_path / "step.mlir").write_text(text)
    done = mpt_opt(tmp_path / "step.mlir", "--memory-verify-alignment", "-o", tmp_path / "same.mlir")
    assert done.returncode and f"got {CLASSES * (4 if policy == 'fp32' else 2)} bytes from row to row" in done.stderr


@pytest.mark.parametrize("policy", ["fp32", "amp-bf16", "amp-f16", "als-f16", "fp8-hybrid"])
def test_stored_weights_are_read_with_aligned_rows(tmp_path, policy):
    """States lie as their checkpoints do; GEMMs with many rows read copies."""
    text = compiled(tmp_path, policy, transposed=False)
    assert re.search(rf"rt.state @w1 : memref<{WIDTH}x{CLASSES}x\w+>", text)
    done = mpt_opt(tmp_path / "step.mlir", "--memory-verify-alignment", "-o", tmp_path / "same.mlir")
    assert done.returncode == 0, done.stderr


def test_few_rows_are_not_worth_a_copy(tmp_path):
    compiled(tmp_path, "amp-bf16", transposed=False, rows=ROWS - 1)
    done = mpt_opt(tmp_path / "step.mlir", "--memory-verify-alignment", "-o", tmp_path / "same.mlir")
    assert done.returncode and f"expected matrix b with rows at multiples of 16 bytes, got {2 * CLASSES} bytes" in done.stderr


# Runs in a process of its own, which opens the fake driver and not the machine's own.
STEPS = """
import json, sys
import numpy as np
from standin import standin as library, trainer as make_trainer
folder, kind = sys.argv[1:]
data = np.load(folder + "/data.npz")
with make_trainer(folder + "/" + kind) as trainer:
    label = [n for n in trainer.inputs() if n not in ("x", "learning_rate")][0]
    losses = [trainer.step({"x": data["x"], label: data["labels"]}).loss for _ in range(3)]
    trainer.save(folder + "/" + kind + ".state")
    trainer.load(folder + "/" + kind + ".state")
    losses.append(trainer.step({"x": data["x"], label: data["labels"]}).loss)
    np.savez(folder + "/" + kind + ".npz", losses=losses, **trainer.parameters())
print(library().standin_violations().decode(), end="")
"""


@pytest.mark.parametrize("policy, seed", [("amp-bf16", 1), ("amp-f16", 2), ("fp32", 3), ("amp-bf16", 4), ("amp-f16", 5)])
def test_aligned_copies_change_no_bit(tmp_path, policy, seed):
    """A weight [inputs, classes] with ragged rows, of which GEMMs read copies, trains as [classes, inputs] with aligned ones, of which they do not."""
    rng = np.random.default_rng(seed)
    if not os.path.exists(standin.library(build_folder())):
        pytest.skip("the stand-in is not built")
    rows, width, classes = int(rng.integers(512, 600)), 8 * int(rng.integers(8, 16)), 2 * int(rng.integers(260, 300)) + 1
    first, last = cuda_models.values(seed, 24, width), cuda_models.values(seed + 50, width, classes)
    np.savez(tmp_path / "data.npz", x=cuda_models.values(seed + 99, rows, 24), labels=rng.integers(0, classes, rows))
    found = {}
    for kind, head in (("ragged", last), ("aligned", np.ascontiguousarray(last.T))):
        nodes = [helper.make_node("MatMul", ["x", "w0"], ["h"], name="fc0"), helper.make_node("Relu", ["h"], ["r"], name="relu"),
                 helper.make_node("Gemm", ["r", "w1"], ["logits"], name="fc1", transB=int(kind == "aligned"))]
        cuda_models.model(tmp_path / f"{kind}.onnx", "classifier", nodes, {"w0": first, "w1": head}, {"x": [rows, 24]},
                          ("logits", TensorProto.FLOAT, [rows, classes]))
        words = [tmp_path / f"{kind}.onnx", "--loss=softmax-cross-entropy", "--optimizer=sgd,lr=0.1,momentum=0.9", f"--policy={policy}", "--target=cuda",
                 "--arch=host", "--quiet"]
        mpt_opt(*words, "--to=memory", "--emit=mlir", "-o", tmp_path / "m.mlir", check=True)
        step = re.search(r"^  func\.func @step\b.*?^  }\n", (tmp_path / "m.mlir").read_text(), re.M | re.S)[0]
        of_state = re.search(r"(%\w+) = rt.state @w1 :", step)[1]
        copies = re.findall(rf"rt\.launch @\w+\({of_state}, %\w+\).*strided<\[\d+, 1\]>", step)
        assert len(copies) == 2 * (kind == "ragged"), "one each way"  # forward, and for the hidden layer's gradient
        mpt_opt(*words, "-o", tmp_path / kind, check=True)
        done = subprocess.run([sys.executable, "-c", STEPS, str(tmp_path), kind], capture_output=True, text=True, env=standin.environment(build_folder()))
        assert done.returncode == 0 and done.stdout == "", (done.stdout, done.stderr)
        found[kind] = dict(np.load(tmp_path / f"{kind}.npz"))
    ragged, aligned = found["ragged"], found["aligned"]
    assert ragged["w1"].shape == (width, classes) and len(set(ragged["losses"])) == 4
    np.testing.assert_array_equal(ragged["w1"].T, aligned["w1"])
    np.testing.assert_array_equal(ragged["w0"], aligned["w0"])
    np.testing.assert_array_equal(ragged["losses"], aligned["losses"])
