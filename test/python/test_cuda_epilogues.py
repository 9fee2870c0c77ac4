# SPDX-License-Identifier: Apache-2.0
"""Results that calls of GEMMs compute on the way: GELU, its gradient and bias gradients, by cuBLASLt or apart from it."""
import re

import numpy as np
import pytest
from cuda_models import feedforward
from test_cuda import TOLERANCE, train

CHAINED = {32 + 128 + 4, 192, 256, 512}  # GELU that keeps its operand, behind a bias; its gradient; sums of A and of B


def epilogues(tmp_path, share=1.0):
    """The numbers of the epilogues that GEMMs were called with, in the last share of all calls."""
    calls = (tmp_path / "calls").read_text().splitlines()
    found = (re.match(r"gemm .* epilogue (\d+)", call) for call in calls[int(len(calls) * (1 - share)):])
    return {int(match[1]) for match in found if match}


@pytest.mark.parametrize("way", ["together", "apart"])
@pytest.mark.parametrize("policy", ["amp-bf16", "amp-f16"])
def test_products_make_activations_and_sums(tmp_path, policy, way):
    result = train(tmp_path, feedforward, policy, **({"MPT_STANDIN_NO_EPILOGUES": "1"} if way == "apart" else {}))
    np.testing.assert_allclose(result["cuda"], result["cpu"], rtol=TOLERANCE[policy])
    assert result["cuda"][-1] < result["cuda"][0]
    assert result["violations"] == "" and result["live"] == 0 and result["resumed"]
    assert (result["waits"], result["graphs"]) == (0, 4), "one graph launch a step, whatever it is made of"
    gradients = {name: value for name, value in result["cpu state"].items() if ".moment1" in name}  # of the first step
    assert len(gradients) == 6
    for name, value in gradients.items():
        np.testing.assert_allclose(result["cuda state"][name], value, rtol=0, atol=1e-2 * np.abs(value).max(), err_msg=name)
    assert epilogues(tmp_path) & CHAINED == (CHAINED if way == "together" else set())


def test_the_faster_way_is_taken_and_remembered(tmp_path):
    variables = {"MPT_STANDIN_SLOW_EPILOGUES": "1", "options": {"cache": str(tmp_path / "algorithms"), "eager": 1}}
    result = train(tmp_path, feedforward, "amp-bf16", **variables)
    np.testing.assert_allclose(result["cuda"], result["cpu"], rtol=TOLERANCE["amp-bf16"])
    assert epilogues(tmp_path) & CHAINED == CHAINED, "every epilogue was tried"
    assert not epilogues(tmp_path, 0.5) & CHAINED, "and none of them taken"
    (tmp_path / "calls").unlink()
    again = train(tmp_path, feedforward, "amp-bf16", **variables)
    assert again["cuda"] == result["cuda"] and again["violations"] == ""
    assert not epilogues(tmp_path) & CHAINED, "the file says so"


def test_fp32_keeps_its_kernels(tmp_path):
    result = train(tmp_path, feedforward, "fp32")
    np.testing.assert_allclose(result["cuda"], result["cpu"], rtol=TOLERANCE["fp32"])
    assert result["violations"] == "" and not epilogues(tmp_path) - {1, 4}
