# SPDX-License-Identifier: Apache-2.0
"""FP32 accumulation: a compiled step learns from sums of thousands of terms, the same step with 16-bit accumulators does not."""
import os
import sys

import pytest

from conftest import ROOT, build_folder

sys.path.insert(0, str(ROOT / "benchmarks" / "parity"))


@pytest.mark.parametrize("narrow", ["bf16", "f16"])
def test_narrow_accumulators_lose_the_sum(tmp_path, narrow):
    datasets = pytest.importorskip("sklearn.datasets")
    if not (build_folder() / "bin" / "mpt-run").exists():
        pytest.skip("mpt-run is not built")
    os.environ.setdefault("MPT_BUILD", str(build_folder()))
    import accumulation
    case = next(case for case in accumulation.CASES if case.narrow == narrow)
    losses = accumulation.losses(datasets.load_digits().images / 16.0, tmp_path, case)
    assert losses["f32"] < 1e-5 and losses[narrow] > case.margin * losses["f32"], losses
