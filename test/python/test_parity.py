# SPDX-License-Identifier: Apache-2.0
"""The parity benchmark on its smallest task: it trains each policy, compares with FP32, and says so in a table and as JSON."""
import json
import os
import subprocess
import sys

import pytest

from conftest import ROOT, build_folder


def test_table_of_one_task(tmp_path):
    pytest.importorskip("sklearn.datasets")
    if not (build_folder() / "bin" / "mpt-opt").exists():
        pytest.skip("mpt-opt is not built")
    environment = {**os.environ, "MPT_BUILD": str(build_folder()), "PYTHONPATH": str(ROOT / "python"), "OMP_NUM_THREADS": "1"}
    command = [sys.executable, ROOT / "benchmarks" / "parity", "--tasks", "lenet", "--policies", "amp-f16", "--seeds", "1",
               "--steps-scale", "0.4", "--out", tmp_path, "--json", tmp_path / "parity.json", "--results", tmp_path / "rows"]
    done = subprocess.run(command, env=environment, capture_output=True, text=True)
    results = json.loads((tmp_path / "parity.json").read_text())
    assert [r["policy"] for r in results] == ["fp32", "amp-f16"] and all(r["values"][0] > 93 for r in results), done.stderr
    assert done.returncode == (0 if all(r["within"] for r in results) else 1)
    assert [line.split("|")[2].strip() for line in done.stdout.splitlines()[2:]] == ["fp32", "amp-f16"]

    # Runs that are written down are not repeated, and a run that is missing is.
    rows = (tmp_path / "rows").read_text().splitlines()
    again = subprocess.run(command, env=environment, capture_output=True, text=True)
    assert again.stdout == done.stdout and (tmp_path / "rows").read_text().splitlines() == rows and len(rows) == 2
    (tmp_path / "rows").write_text(rows[0] + "\n")
    subprocess.run(command, env=environment, capture_output=True)
    repeated = [json.loads(line) for line in (tmp_path / "rows").read_text().splitlines()]
    assert [{**row, "cpu_seconds": 0} for row in repeated] == [{**json.loads(row), "cpu_seconds": 0} for row in rows]
