# SPDX-License-Identifier: Apache-2.0
"""The quickstart's table never shows mixed precision slower than fp32 without the reason."""
import pathlib
import sys

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[2] / "examples" / "quickstart"))
import quickstart  # noqa: E402


def row(model, policy, step):
    return [model, policy, "98.00 %", step, "5.35", "0.61", "1.21", "3.41"]


def test_says_why_a_narrow_step_is_slower():
    rows = [row("cnn", "fp32", "2.00"), row("cnn", "amp-f16", "2.10"), row("cnn", "amp-bf16", "3.00"),
            row("gpt", "fp32", "2.50"), row("gpt", "amp-f16", "2.40")]
    plain = quickstart.why_slower(rows, "flags: avx2 f16c")
    assert [line.split(":")[:2] for line in plain] == [["cnn", " amp-f16 takes 1.05 times as long as fp32"],
                                                       ["cnn", " amp-bf16 takes 1.50 times as long as fp32"]]
    assert all("widens its operands" in line for line in plain)
    native = quickstart.why_slower(rows, "flags: avx2 f16c avx512_bf16")
    assert native[0] == plain[0] and "conversions cost more" in native[1]


def test_says_nothing_without_fp32_to_compare_with():
    assert quickstart.why_slower([row("cnn", "amp-f16", "2.10")], "") == []
