# SPDX-License-Identifier: Apache-2.0
"""Replicas on GPUs, whose values NCCL carries, without a GPU: the stand-in of each process exchanges values with those of the others and
notes what the real NCCL would hang or go wrong with."""
import json
import os
import subprocess
import sys

import numpy as np
import pytest

import mpt
from conftest import build_folder
from replica_models import classifier
from standin import environment, library
from test_world_training import SCALED, SCRIPT, clean_environment, free_port

WORKER = SCRIPT.with_name("nccl_training.py")
POLICIES = ["fp32", "amp-f16", "amp-bf16", "fp8-hybrid"]
STEPS = 12
FLAGS = {"loss": "softmax-cross-entropy", "optimizer": "adamw,lr=1e-2", "target": "cuda", "arch": "host"}


@pytest.fixture(scope="module")
def libraries(tmp_path_factory):
    if not os.path.exists(library(build_folder())):
        pytest.skip("build cuda_standin first")
    folder = tmp_path_factory.mktemp("libraries")
    model = classifier(folder / "model.onnx", norm=True, dropout=True, inner=1)
    for policy in POLICIES:
        for kind, more in (("whole", {}), ("sharded", {"shard_optimizer": True})):
            mpt.compile(model, out=folder / f"{policy}-{kind}", name="model", policy=policy, replicas=4, **more, **FLAGS)
    mpt.compile(model, out=folder / "narrow", name="model", policy="amp-bf16", replicas=4, reduce_type="bf16", **FLAGS)
    mpt.compile(model, out=folder / "three", name="model", policy="fp32", replicas=12, clip_norm=0.5, **FLAGS)
    mpt.compile(model, out=folder / "any", name="model", policy="fp32", replicas="any", **FLAGS)
    return folder


def train(libraries, out, size, names, steps=STEPS, options=None, variables=None, check=True, **world):
    """What the ranks saw, and the bytes of the states by name; `variables` are those of the stand-in, by rank."""
    out.mkdir()
    runs = [{"name": name, "library": str(libraries / name), "below": {"labels": 3}, "bad": name.split("-sharded")[0].split("-whole")[0] in SCALED}
            for name in names]
    place = {"size": size, "address": "127.0.0.1", "port": free_port(), "token": "t", "start_timeout": 120, **world}
    (out / "spec.json").write_text(json.dumps({"runs": runs, "steps": steps, "out": str(out), "world": place}))
    build = build_folder()
    started = []
    for rank in range(size):
        of_rank = clean_environment(**environment(build, options=options, **((variables or {}).get(rank, {}))))
        started.append(subprocess.Popen([sys.executable, str(WORKER), str(out / "spec.json"), str(rank)], stderr=subprocess.PIPE, text=True,
                                        env=of_rank))
    ended = [(process.communicate(timeout=300)[1], process.returncode) for process in started]
    if not check:
        return ended
    assert [status for _, status in ended] == [0] * size, ended
    ranks = [json.loads((out / f"{rank}.json").read_text()) for rank in range(size)]
    for seen in ranks:
        assert seen["standin"]["violations"] == "" and seen["standin"]["live"] == 0
    return ranks, {name: (out / f"{name}.state").read_bytes() for name in names}


@pytest.fixture(scope="module")
def expected(libraries, tmp_path_factory):
    names = [*(f"{policy}-whole" for policy in POLICIES), "narrow", "three"]
    return train(libraries, tmp_path_factory.mktemp("one") / "out", 1, names)


@pytest.mark.parametrize("size", [2, 4])
def test_states_are_those_of_one_process(libraries, expected, tmp_path, size):
    ranks, states = train(libraries, tmp_path / "out", size, list(expected[1]))
    for name in expected[1]:
        assert all(seen[name] == expected[0][0][name] for seen in ranks), name
        assert states[name] == expected[1][name], name


@pytest.mark.parametrize("size", [2, 4])
def test_divided_states_are_those_of_whole_ones(libraries, expected, tmp_path, size):
    names = [f"{policy}-sharded" for policy in POLICIES]
    ranks, _ = train(libraries, tmp_path / "out", size, names)
    for policy in POLICIES:
        assert all(seen[f"{policy}-sharded"] == expected[0][0][f"{policy}-whole"] for seen in ranks), policy


def test_bits_are_those_of_values_that_pass_through_the_host(libraries, expected, tmp_path):
    names = list(expected[1])
    ranks, states = train(libraries, tmp_path / "out", 2, names, options={"nccl": "none"})
    assert all(seen[name] == expected[0][0][name] for seen in ranks for name in names)
    assert states == expected[1]


@pytest.mark.parametrize("name", ["fp32-whole", "amp-f16-sharded"])
def test_a_step_is_one_graph_and_the_host_sees_the_metrics_alone(libraries, tmp_path, name):
    ranks, _ = train(libraries, tmp_path / "out", 2, [name])
    for seen in ranks:
        # The first step runs call by call, the second is recorded, and each later one is one launch.
        assert (seen["standin"]["captures"], seen["standin"]["graphs"]) == (1, STEPS - 1)


def test_the_order_of_ranks_without_replicas_is_fixed(libraries, tmp_path):
    first = train(libraries, tmp_path / "one", 2, ["any"])
    assert first[1] == train(libraries, tmp_path / "two", 2, ["any"])[1]
