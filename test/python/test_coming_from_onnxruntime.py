# SPDX-License-Identifier: Apache-2.0
"""docs/coming-from-onnxruntime-training.md: both programs differ by ten lines, and ours trains what the page says."""
import difflib
import math
import os
import re
import subprocess
import sys

import numpy as np
import onnx
import pytest
from onnx import helper, numpy_helper

sys.path.insert(0, os.path.dirname(__file__))
from runtime_artifacts import flatbuffer, ms  # noqa: E402

import mpt

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
BUILD = os.path.abspath(os.environ.get("MPT_BUILD", os.path.join(ROOT, "build", "release")))


def programs():
    with open(os.path.join(ROOT, "docs", "coming-from-onnxruntime-training.md"), encoding="utf-8") as page:
        return re.findall(r"^```cpp\n(.*?)^```", page.read(), re.M | re.S)


def classifier(folder):
    """Artifacts of x w + b with softmax cross entropy, as generate_artifacts names things. Returns the parameters."""
    info, float_, rows = helper.make_tensor_value_info, onnx.TensorProto.FLOAT, 64
    values = {"w": np.array([[0.1, -0.2], [0.3, 0.1]], np.float32), "b": np.zeros(2, np.float32)}
    nodes = [helper.make_node("Gemm", ["x", "w", "b"], ["logits"]),
             helper.make_node("SoftmaxCrossEntropyLoss", ["logits", "labels"], ["loss", "log_prob"]),
             ms("SoftmaxCrossEntropyLossGrad", "loss_grad,log_prob,labels", "logits_grad", reduction="mean"),
             helper.make_node("Gemm", ["x", "logits_grad"], ["w_grad"], transA=1),
             helper.make_node("ReduceSum", ["logits_grad", "first"], ["b_grad"], keepdims=0)]
    inputs, outputs = [info("x", float_, [rows, 2]), info("labels", onnx.TensorProto.INT64, [rows])], [info("loss", float_, [])]
    inputs += [info(name, float_, value.shape) for name, value in values.items()]
    for name, value in values.items():
        nodes.append(ms("InPlaceAccumulatorV2", f"{name}_grad.accumulation.buffer,{name}_grad,lazy_reset_grad", f"{name}_grad.accumulation.out"))
        inputs.append(info(f"{name}_grad.accumulation.buffer", float_, value.shape))
        outputs.append(info(f"{name}_grad.accumulation.out", onnx.TensorProto.BOOL, [1]))
    inputs.append(info("lazy_reset_grad", onnx.TensorProto.BOOL, [1]))
    constants = [numpy_helper.from_array(np.float32(1), "loss_grad"), numpy_helper.from_array(np.array([0]), "first")]
    opsets = [helper.make_opsetid("", 17), helper.make_opsetid("com.microsoft", 1)]
    folder.mkdir()
    onnx.save(helper.make_model(helper.make_graph(nodes, "training", inputs, outputs, constants), opset_imports=opsets, ir_version=9),
              folder / "training_model.onnx")
    adam = ms("AdamWOptimizer", "learning_rate,step,params,gradients,first_order_moments,second_order_moments", "done", adam_mode=1,
              alpha=0.9, beta=0.999, epsilon=1e-6, weight_decay=0.0, correct_bias=1)
    onnx.save(helper.make_model(helper.make_graph([adam], "optimizer", [info("learning_rate", float_, [1])], [info("done", 9, [1])]),
                                opset_imports=opsets, ir_version=9), folder / "optimizer_model.onnx")
    (folder / "checkpoint").write_bytes(flatbuffer(values))
    return values


def test_ten_lines_change():
    before, after = (program.splitlines() for program in programs())
    changed = [line for line in difflib.ndiff(before, after) if line[:2] in ("+ ", "- ")]
    assert 0 < sum(line[0] == "+" for line in changed) <= 10
    assert any("Ort::TrainingSession" in line for line in before) and not any("Ort" in line for line in after)


@pytest.mark.parametrize("policy", ["fp32", "amp-f16", "amp-bf16"])
def test_our_program_trains(policy, tmp_path):
    library = os.path.join(BUILD, "lib", "libmpt_rt.so")
    if not os.path.exists(library):
        pytest.skip("libmpt_rt is not built")
    classifier(tmp_path / "artifacts")
    mpt.compile(tmp_path / "artifacts", out=tmp_path / "classifier", policy=policy)
    (tmp_path / "program.cpp").write_text(programs()[1])
    built = subprocess.run(["clang++-22", "-std=c++17", "-Wall", "-Wextra", "-Werror", f"-I{ROOT}/include", "program.cpp", library, "-o", "program",
                            f"-Wl,-rpath,{os.path.dirname(library)}"], cwd=tmp_path, capture_output=True, text=True)
    assert built.returncode == 0, built.stderr
    run = subprocess.run(["./program"], cwd=tmp_path, capture_output=True, text=True)
    assert run.returncode == 0, run.stderr
    losses = [float(line.split()[1]) for line in run.stdout.splitlines()]
    assert len(losses) == 200 and losses[0] == pytest.approx(math.log(2), rel=0.3)
    assert np.mean(losses[-20:]) < 0.5 * np.mean(losses[:20])
    assert (tmp_path / "trained.safetensors").exists()
