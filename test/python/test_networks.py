# SPDX-License-Identifier: Apache-2.0
"""The papers' networks by their recipes, in short: the score that they reach in FP32, that the recipe gets there, and that a broken one is told."""
import dataclasses
import sys

import pytest

from conftest import ROOT, build_folder

sys.path.insert(0, str(ROOT / "benchmarks" / "parity"))
sys.path.insert(0, str(ROOT / "python"))
pytest.importorskip("sklearn.datasets")

import fidelity  # noqa: E402
from results import Results  # noqa: E402

pytestmark = pytest.mark.slow

BROKEN = fidelity.Side("a scale that loses gradients", "amp-f16", {"loss_scale": 2.0 ** -24})


@pytest.fixture
def short(tmp_path, monkeypatch):
    """Values of FP32, the recipe, and the recipe without its mechanism (`off`), after a share of the network's steps."""
    if not (build_folder() / "bin" / "mpt-opt").exists():
        pytest.skip("mpt-opt is not built")
    monkeypatch.setenv("MPT_BUILD", str(build_folder()))

    def run(name, share, off=None):
        network = next(network for network in fidelity.NETWORKS if network.task.name == name)
        network = dataclasses.replace(network, off=off or network.off)
        return network, fidelity.run_seed(Results(""), network, str(tmp_path), 0, share)
    return run


# Untrained, 10 % of the digits, no sound and log(2048) = 7.6 nats. The bounds are the scores after a third of the training.
@pytest.mark.parametrize("name, share, least, most", [("DeepSpeech 2", 0.5, 85.0, 100.0), ("AlexNet", 0.6, 70.0, 100.0), ("bigLSTM", 0.3, 0.0, 5.4)])
def test_recipes_train_what_fp32_trains(short, name, share, least, most):
    network, rows = short(name, share, BROKEN)
    wide, recipe, broken = rows
    assert least < wide.value < most
    assert fidelity.verdict(network.task, wide.value, recipe.value, False) == "yes", (wide.value, recipe.value)
    assert fidelity.verdict(network.task, wide.value, broken.value, True) == "missed", (wide.value, broken.value)
    assert recipe.flushed < 5 < broken.flushed


@pytest.mark.parametrize("name, told", [("digits ResNet-18", True), ("byte encoder-decoder", True), ("digits DCGAN", False)])
def test_tasks_of_the_parity_benchmark_have_rows(short, name, told):
    """Three steps a side; two networks that alternate have no gradient of their own at common weights."""
    network, rows = short(name, 3 / next(network for network in fidelity.NETWORKS if network.task.name == name).task.steps)
    assert [row.policy for row in rows] == ["FP32", network.recipe.what, network.off.what]
    assert all((row.flushed is not None) == told and row.value == row.value for row in rows)


@pytest.mark.parametrize("network", fidelity.NETWORKS, ids=lambda network: network.task.name)
def test_every_recipe_compiles(network, tmp_path):
    """FP32, the recipe and the recipe without its mechanism are three different steps."""
    sides = (fidelity.FP32, network.recipe, network.off)
    marks = [side.task(network.task).fingerprint(str(tmp_path), side.file(str(tmp_path)), 0) for side in sides]
    assert len(set(marks)) == 3


@pytest.mark.parametrize("measure, value, told", [("accuracy", 98.9, "NO"), ("accuracy", 99.5, "yes"), ("accuracy", float("nan"), "NO"),
                                                  ("loss", 101.1, "NO"), ("loss", 100.9, "yes"), ("loss", float("nan"), "NO")])
def test_verdicts(measure, value, told):
    task = dataclasses.replace(fidelity.NETWORKS[0].task, measure=measure, limit=1.0)
    assert fidelity.verdict(task, 100.0, value, False) == told
