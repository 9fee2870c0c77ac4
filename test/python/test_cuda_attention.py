# SPDX-License-Identifier: Apache-2.0
"""Attention that the CUDA target computes as one call each way: steps against the CPU's, without a GPU."""
import json
import re
import subprocess

import mpt_run
import numpy as np
import pytest
from conftest import build_folder
from cuda_models import attention
from test_cuda import TOLERANCE, train

pytestmark = pytest.mark.slow


GRADIENTS = {"amp-f16": 4e-3, "amp-bf16": 3e-2}  # of the largest: both sides round probabilities and their gradients, each its own way


def attentions(model, *flags) -> int:
    """Calls of attention in a step."""
    return report(model, *flags)["attentions"]


def report(model, *flags) -> dict:
    """The --report=kernels of a step."""
    done = subprocess.run([build_folder() / "bin" / "mpt-opt", model, "--loss=softmax-cross-entropy", "--optimizer=sgd,lr=0.01",
                           "--target=cuda", "--arch=host", "--quiet", "--dry-run", "--report=kernels=-.json", *flags],
                          check=True, capture_output=True, text=True, cwd=model.parent)
    return json.loads((model.parent / "-.json").read_text() if not done.stdout else done.stdout)["step"]


@pytest.mark.parametrize("mask, policy, cudnn", [("none", "amp-f16", True), ("causal", "amp-bf16", False), ("causal", "amp-f16", True),
                                                 ("padding", "amp-f16", False), ("both", "amp-bf16", True), ("both", "amp-f16", False)])
def test_steps_agree_with_the_cpu(tmp_path, mask, policy, cudnn):
    result = train(tmp_path, lambda path: attention(path, mask), policy, cudnn, lr="1e-3")
    assert attentions(tmp_path / "m.onnx", f"--policy={policy}") == 2
    np.testing.assert_allclose(result["cuda"], result["cpu"], rtol=TOLERANCE[policy])
    assert result["cuda"][-1] < result["cuda"][0]
    assert result["violations"] == "" and result["live"] == 0 and result["resumed"]
    assert (result["waits"], result["graphs"]) == (0, 4)
    calls = (tmp_path / "calls").read_text()
    assert ("gradient of attention" in calls) == cudnn


# Grouped queries: cuDNN's where there is one, else the kernels in tiles; dropout: always theirs. Lengths in fours and not, depths of one tile
# and of several, more rows than a tile has.
@pytest.mark.parametrize("mask, policy, cudnn, shape", [
    ("both", "amp-bf16", True, {"heads": 4, "key_heads": 2}), ("causal", "amp-f16", False, {"heads": 4, "key_heads": 2}),
    ("none", "amp-bf16", False, {"heads": 4, "key_heads": 1}), ("padding", "amp-f16", True, {"dropout": 0.25}),
    ("both", "amp-bf16", False, {"dropout": 0.5, "length": 15, "depth": 40}), ("causal", "amp-f16", False, {"dropout": 0.1, "heads": 2, "key_heads": 1, "length": 70, "batch": 1})])
def test_shared_keys_and_dropout(tmp_path, mask, policy, cudnn, shape):
    result = train(tmp_path, lambda path: attention(path, mask, **shape), policy, cudnn, lr="1e-3")
    assert attentions(tmp_path / "m.onnx", f"--policy={policy}") == 2
    np.testing.assert_allclose(result["cuda"], result["cpu"], rtol=TOLERANCE[policy])
    assert result["violations"] == "" and result["live"] == 0 and result["resumed"]
    assert (result["waits"], result["graphs"]) == (0, 4)
    calls = (tmp_path / "calls").read_text()
    gradients = {name: np.array(value) for name, value in result["cpu state"].items() if ".moment1" in name}  # of the first step
    assert any("qkv" in name for name in gradients)
    for name, value in gradients.items():
        np.testing.assert_allclose(result["cuda state"][name], value, rtol=0, atol=GRADIENTS[policy] * np.abs(value).max(), err_msg=name)
    tiles = [kind for kind in ("forward", "queries", "keys") if f"launch mpt_attention_tiles_{kind}" in calls]
    assert tiles == ([] if cudnn and "dropout" not in shape else ["forward", "queries", "keys"])


def test_cudnn_may_decline(tmp_path):
    result = train(tmp_path, lambda path: attention(path, "causal"), "amp-bf16", lr="1e-3", MPT_STANDIN_NO_ATTENTION="1")
    np.testing.assert_allclose(result["cuda"], result["cpu"], rtol=TOLERANCE["amp-bf16"])
    assert result["violations"] == "" and "launch mpt_attention_gradient" in (tmp_path / "calls").read_text()


@pytest.mark.parametrize("most", ["4000", "7000"])
def test_heads_take_turns(tmp_path, most):
    """Scratch for the scores of one head, and for the scores of one batch."""
    result = train(tmp_path, lambda path: attention(path, "both"), "amp-f16", cudnn=False, lr="1e-3", options={"score-bytes": most})
    np.testing.assert_allclose(result["cuda"], result["cpu"], rtol=TOLERANCE["amp-f16"])
    assert result["violations"] == "" and result["live"] == 0 and (result["waits"], result["graphs"]) == (0, 4)


@pytest.mark.parametrize("flags, expected", [(["--policy=amp-f16"], 2), (["--policy=amp-f16", "--no-fused-attention"], 0),
                                             (["--policy=fp32"], 0), (["--policy=amp-f16", "--debug-nonfinite"], 0)])
def test_where_it_is_one_call(tmp_path, flags, expected):
    attention(tmp_path / "m.onnx")
    assert attentions(tmp_path / "m.onnx", *flags) == expected


def test_what_stays_apart_is_reported(tmp_path):
    attention(tmp_path / "m.onnx")
    found, = report(tmp_path / "m.onnx", "--policy=fp32")["unfused_attentions"]
    assert found == {"node": "softmax", "reason": "not an attention: expected operands and a result all of FP16 or all of BF16, got others"}
    assert report(tmp_path / "m.onnx", "--policy=amp-f16")["unfused_attentions"] == []


@pytest.mark.parametrize("policy, arch, depth, dropout", [("amp-bf16", "sm_80", 128, 0.1), ("amp-f16", "sm_90", 64, 0.1), ("amp-bf16", "sm_100", 128, 0.0),
                                                          ("amp-bf16", "sm_90a", 64, 0.1), ("amp-f16", "sm_90a", 128, 0.1)])
def test_tiles_do_not_spill(tmp_path, policy, arch, depth, dropout):
    """The program as the compiler assembles it: shared memory of one block, and registers of all threads of it."""
    assembler = mpt_run.ptxas()
    if not assembler:
        pytest.skip("no ptxas")
    attention(tmp_path / "m.onnx", "both", batch=2, heads=4, key_heads=2, length=64, depth=depth, dropout=dropout)
    subprocess.run([build_folder() / "bin" / "mpt-opt", tmp_path / "m.onnx", "--loss=softmax-cross-entropy", "--optimizer=sgd", f"--policy={policy}",
                    "--target=cuda", f"--arch={arch}", "--name=m", "--quiet", "-o", tmp_path / "out"], check=True)
    ptx = re.search(rb"//\n// Generated by LLVM[^\0]*", (tmp_path / "out" / "libm.so").read_bytes())[0]
    (tmp_path / "m.ptx").write_bytes(ptx)
    said = subprocess.run([assembler, "-v", f"-arch={arch}", tmp_path / "m.ptx", "-o", tmp_path / "m.cubin"], check=True, capture_output=True, text=True).stderr
    kernels = re.findall(r"entry function '(mpt_attention_tiles_\w+)'.*?(\d+) bytes spill stores.*?Used (\d+) registers.*?(\d+) bytes smem", said, re.S)
    assert len(kernels) == (4 if dropout else 3), "the loss is evaluated without dropout"
    for name, spilled, registers, shared in kernels:
        assert spilled == "0" and int(registers) <= 255 and int(shared) <= 48 << 10, (name, spilled, registers, shared)
    assert ptx.count(b"\twmma.mma.sync") > 20
    assert (b"wgmma.mma_async" in ptx) == (arch == "sm_90a") and "(C75" not in said, "products of warpgroups that the assembler serializes"
