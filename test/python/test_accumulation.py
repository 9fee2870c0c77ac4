# SPDX-License-Identifier: Apache-2.0
"""FP32 accumulation: a step compiled for amp-bf16 learns from sums of 4,096 terms, the same step with BF16 accumulators does not."""
import os
import sys

import pytest

from conftest import ROOT, build_folder

sys.path.insert(0, str(ROOT / "benchmarks" / "parity"))


def test_narrow_accumulators_lose_the_sum(tmp_path):
    datasets = pytest.importorskip("sklearn.datasets")
    if not (build_folder() / "bin" / "mpt-run").exists():
        pytest.skip("mpt-run is not built")
    os.environ.setdefault("MPT_BUILD", str(build_folder()))
    import accumulation
    losses = accumulation.losses(datasets.load_digits().images / 16.0, tmp_path)
    assert losses["f32"] < 1e-5 and losses["bf16"] > 1e-4, losses
