# SPDX-License-Identifier: Apache-2.0
"""The pictures of docs/generated/recipe-*.svg have the types that each policy's file states."""
import re
import sys

from conftest import ROOT

sys.path.insert(0, str(ROOT / ".ci"))
import recipes  # noqa: E402


def test_pictures_show_the_types_of_policies():
    words = {}
    for path in (ROOT / "lib/Precision/policies").glob("*.mlir"):
        picture = recipes.picture(path.stem, path.read_text())
        words[path.stem] = re.search(r"<title>(.*)</title>", picture)[1]
        assert picture.count("<rect ") == words[path.stem].count(";") + 1 and "None" not in picture
    assert "parameter, FP32, master; narrow copy, FP16" in words["amp-f16"] and "loss × 65536, then dynamic" in words["amp-f16"]
    assert "GEMM, E4M3 operands, FP32 sums, scale a tensor" in words["fp8-hybrid"] and "no loss scale" in words["fp8-hybrid"]
    assert "backward GEMM, E5M2 operands" in words["fp8-hybrid"] and "kept as E5M2" in words["fp8-e5m2-saved"]
    assert "narrow copy" not in words["bf16-sr"] and "round stochastically" in words["bf16-sr"] and "compensated sum" in words["bf16-kahan"]
    assert "skip" not in words["fp32"] and "slots FP16" in words["pure-f16-static"]
