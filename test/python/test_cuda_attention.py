# SPDX-License-Identifier: Apache-2.0
"""Attention that the CUDA target computes as one call each way: steps against the CPU's, without a GPU."""
import json
import subprocess

import numpy as np
import pytest
from conftest import build_folder
from cuda_models import attention
from test_cuda import TOLERANCE, train


def attentions(model, *flags) -> int:
    """Calls of attention in a step."""
    done = subprocess.run([build_folder() / "bin" / "mpt-opt", model, "--loss=softmax-cross-entropy", "--optimizer=sgd,lr=0.01",
                           "--target=cuda", "--arch=host", "--quiet", "--dry-run", "--report=kernels=-.json", *flags],
                          check=True, capture_output=True, text=True, cwd=model.parent)
    return json.loads((model.parent / "-.json").read_text() if not done.stdout else done.stdout)["step"]["attentions"]


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


def test_cudnn_may_decline(tmp_path):
    result = train(tmp_path, lambda path: attention(path, "causal"), "amp-bf16", lr="1e-3", MPT_STANDIN_NO_ATTENTION="1")
    np.testing.assert_allclose(result["cuda"], result["cpu"], rtol=TOLERANCE["amp-bf16"])
    assert result["violations"] == "" and "launch mpt_attention_gradient" in (tmp_path / "calls").read_text()


@pytest.mark.parametrize("most", ["4000", "7000"])
def test_heads_take_turns(tmp_path, most):
    """Scratch for the scores of one head, and for those of one batch."""
    result = train(tmp_path, lambda path: attention(path, "both"), "amp-f16", cudnn=False, lr="1e-3", options={"score-bytes": most})
    np.testing.assert_allclose(result["cuda"], result["cpu"], rtol=TOLERANCE["amp-f16"])
    assert result["violations"] == "" and result["live"] == 0 and (result["waits"], result["graphs"]) == (0, 4)


@pytest.mark.parametrize("flags, expected", [(["--policy=amp-f16"], 2), (["--policy=amp-f16", "--no-fused-attention"], 0),
                                             (["--policy=fp32"], 0), (["--policy=amp-f16", "--debug-nonfinite"], 0)])
def test_where_it_is_one_call(tmp_path, flags, expected):
    attention(tmp_path / "m.onnx")
    assert attentions(tmp_path / "m.onnx", *flags) == expected
