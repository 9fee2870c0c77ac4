# SPDX-License-Identifier: Apache-2.0
"""Errors planted in the fake libraries: each makes the bundle's check of gradients fail, and without one it passes."""
import gpu_bundle
import pytest

pytestmark = pytest.mark.slow

# (error, small model, policy): where it shows.
PLANTED = [
    ("sign-of-dq", "own-gpt", "amp-bf16"), ("sign-of-dk", "own-gpt", "amp-bf16"), ("sign-of-dv", "own-gpt", "amp-bf16"),
    ("bias-sums-zero", "own-feedforward", "amp-bf16"), ("bias-sums-axis", "own-feedforward", "amp-bf16"), ("stale-kept", "own-feedforward", "amp-f16"),
    ("gelu-slope", "own-feedforward", "amp-bf16"), ("scale-of-8-bits", "own-chain", "fp8-hybrid"), ("statistics-channel", "own-block", "amp-bf16"),
    ("norm-sums-channel", "own-block", "amp-bf16"), ("statistics-channel", "own-block", "amp-f16"), ("norm-sums-channel", "own-block", "amp-f16")]
MODELS = sorted({f"{model}/{policy}" for _, model, policy in PLANTED})


@pytest.fixture(scope="module")
def bundle(tmp_path_factory):
    gpu_bundle.needs_standin()
    folder = tmp_path_factory.mktemp("gpu") / "bundle"
    gpu_bundle.pack(folder, "--types=", "--training=^own-(gpt|chain|block|feedforward)$", "--policies=amp-bf16,amp-f16,fp8-hybrid", "--partial")
    done, _ = gpu_bundle.run(folder, "gradients", "--list")  # extracts the packed files
    assert done.returncode == 0, done.stderr
    return folder


def test_right_libraries_pass(bundle):
    rows = gpu_bundle.conform(bundle, *MODELS)
    assert len(rows) == len(MODELS) and all(row["ok"] and 0 < row["share"] < 0.7 for row in rows), rows


@pytest.mark.parametrize("error, model, policy", PLANTED)
def test_wrong_ones_do_not(bundle, error, model, policy):
    row, = gpu_bundle.conform(bundle, f"{model}/{policy}", MPT_STANDIN_WRONG=error)
    assert not row["ok"] and "the gradient is" in row["problem"] and row["share"] > 1.2, row


def test_a_wrong_library_fails_the_run(bundle):
    done, rows = gpu_bundle.run(bundle, "gradients", "--only=fp8-hybrid", MPT_STANDIN_WRONG="scale-of-8-bits")
    assert done.returncode == 1 and "FAIL" in done.stdout and any(row.get("ok") is False for row in rows)
    follows = gpu_bundle.run(bundle, "second", "--list")[0].stdout.splitlines()
    # Models end in any order, and the error shows in each that multiplies 8 bits.
    assert follows[0].startswith("diagnose/"), follows
    assert any(line.startswith("diagnose/own-chain-fp8-hybrid/synchronous ") for line in follows), follows
