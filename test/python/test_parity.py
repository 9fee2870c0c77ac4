# SPDX-License-Identifier: Apache-2.0
"""Parity with FP32 on its smallest task, and the need for mechanisms: policies have to reach FP32, and broken ones must not."""
import json
import os
import subprocess
import sys

import pytest

from conftest import ROOT, build_folder

pytestmark = pytest.mark.slow

POLICIES = ROOT / "lib" / "Precision" / "policies"


@pytest.fixture
def parity(tmp_path):
    """Runs the benchmark with words, and returns the process and the rows of its JSON, where it wrote one."""
    pytest.importorskip("sklearn.datasets")
    if not (build_folder() / "bin" / "mpt-opt").exists():
        pytest.skip("mpt-opt is not built")
    environment = {**os.environ, "MPT_BUILD": str(build_folder()), "PYTHONPATH": str(ROOT / "python"), "OMP_NUM_THREADS": "1"}

    def run(*words):
        found = tmp_path / "parity.json"
        found.unlink(missing_ok=True)
        done = subprocess.run([sys.executable, ROOT / "benchmarks" / "parity", "--out", tmp_path, *words], env=environment,
                              capture_output=True, text=True)
        return done, json.loads(found.read_text()) if found.exists() else []
    return run


def lenet(tmp_path, policies, *words):
    return ["--tasks", "lenet", "--policies", policies, "--json", tmp_path / "parity.json", "--results", tmp_path / "rows", *words]


def test_policies_reach_fp32(parity, tmp_path):
    """Three seeds of the whole training; the limit of 0.5 points is the benchmark's own, and its status says so."""
    done, results = parity(*lenet(tmp_path, "amp-f16,amp-bf16,als-f16,fp8-hybrid"))
    assert [r["policy"] for r in results] == ["fp32", "amp-f16", "amp-bf16", "als-f16", "fp8-hybrid"], done.stderr
    assert done.returncode == 0 and all(r["within"] for r in results), done.stdout
    assert all(len(r["values"]) == 3 for r in results)


def test_a_policy_that_falls_behind_is_told(parity, tmp_path):
    """Gradients below FP16's range are lost: the row says NO, and so does the status."""
    broken = tmp_path / "broken.mlir"
    text = (POLICIES / "pure-f16-static.mlir").read_text()
    assert "fixed {init = 1024.0}" in text
    broken.write_text(text.replace("fixed {init = 1024.0}", "fixed {init = 1.0e-5, min = 1.0e-5}"))
    done, results = parity(*lenet(tmp_path, str(broken), "--seeds", "1", "--steps-scale", "0.4"))
    assert done.returncode == 1 and [r["within"] for r in results] == [True, False], done.stdout + done.stderr
    assert results[0]["values"][0] - results[1]["values"][0] > 0.5
    assert done.stdout.splitlines()[-1].split("|")[-2].strip() == "NO"


def test_runs_that_are_written_down_are_not_repeated(parity, tmp_path):
    words = lenet(tmp_path, "amp-f16", "--seeds", "1", "--steps-scale", "0.1")
    done, _ = parity(*words)
    rows = (tmp_path / "rows").read_text().splitlines()
    assert [line.split("|")[2].strip() for line in done.stdout.splitlines()[2:]] == ["fp32", "amp-f16"], done.stderr
    again, _ = parity(*words)
    assert again.stdout == done.stdout and (tmp_path / "rows").read_text().splitlines() == rows and len(rows) == 2
    (tmp_path / "rows").write_text(rows[0] + "\n")
    parity(*words)
    repeated = [json.loads(line) for line in (tmp_path / "rows").read_text().splitlines()]
    assert [{**row, "cpu_seconds": 0} for row in repeated] == [{**json.loads(row), "cpu_seconds": 0} for row in rows]


@pytest.mark.parametrize("case, without", [("loss scale", "fails, as it must"), ("floor of the loss scale", "fails, as it must"),
                                           ("loss times 1e-08", "flushes, as it must"), ("loss times 10000", "skips, as it must")])
def test_mechanisms_are_missed_where_they_are_off(parity, case, without):
    done, _ = parity("--mechanisms", "--tasks", case, "--seeds", "1")
    verdicts = [line.split("|")[-2].strip() for line in done.stdout.splitlines()[2:]]
    assert done.returncode == 0 and without in verdicts and "trains" in verdicts, done.stdout + done.stderr
    assert not any(verdict.startswith("DOES") for verdict in verdicts), done.stdout
