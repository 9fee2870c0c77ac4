# SPDX-License-Identifier: Apache-2.0
"""Rows of matrices on GPUs: --memory-verify-alignment over compiled training steps whose extents are odd."""
import re
import subprocess

import pytest
from onnx import TensorProto, helper

import cuda_models
from conftest import build_folder

ROWS, WIDTH, CLASSES = 512, 520, 1001


def compiled(tmp_path, policy, transposed):
    """The training step alone, on buffers. Weights [outputs, inputs] have rows of even length, others odd ones."""
    nodes = [helper.make_node("Gemm", ["x", "w0"], ["h"], name="fc0"), helper.make_node("Relu", ["h"], ["r"], name="relu"),
             helper.make_node("Gemm", ["r", "w1"], ["logits"], name="fc1", transB=int(transposed))]
    shape = (CLASSES, WIDTH) if transposed else (WIDTH, CLASSES)
    cuda_models.model(tmp_path / "m.onnx", "classifier", nodes, {"w0": cuda_models.values(1, 64, WIDTH), "w1": cuda_models.values(2, *shape)},
                      {"x": [ROWS, 64]}, ("logits", TensorProto.FLOAT, [ROWS, CLASSES]))
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


def test_states_lie_as_their_checkpoints_do(tmp_path):
    compiled(tmp_path, "amp-bf16", transposed=False)
    done = mpt_opt(tmp_path / "step.mlir", "--memory-verify-alignment", "-o", tmp_path / "same.mlir")
    assert done.returncode and f"expected matrix b with rows at multiples of 16 bytes, got {2 * CLASSES} bytes" in done.stderr
