# SPDX-License-Identifier: Apache-2.0
"""Replicas on GPUs, whose values NCCL carries, without a GPU: each process's fake NCCL exchanges values with the others' and
notes calls with which the real NCCL would hang or go wrong."""
import json
import os
import signal
import subprocess
import sys
import time

import pytest

import mpt
from conftest import build_folder
from cuda_models import cnn
from replica_models import classifier
from standin import environment, library
from test_world_training import SCALED, SCRIPT
from world_processes import TOLD, clean_environment, free_port

pytestmark = pytest.mark.slow

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
    mpt.compile(model, out=folder / "amp-f16-whole-synced", name="model", policy="amp-f16", replicas=4, sync_batch_norm=True, **FLAGS)
    mpt.compile(model, out=folder / "narrow", name="model", policy="amp-bf16", replicas=4, reduce_type="bf16", **FLAGS)
    mpt.compile(model, out=folder / "three", name="model", policy="fp32", replicas=12, clip_norm=0.5, **FLAGS)
    mpt.compile(model, out=folder / "any", name="model", policy="fp32", replicas="any", **FLAGS)
    return folder


def train(libraries, out, size, names, steps=STEPS, options=None, variables=None, check=True, dies=None, **world):
    """The ranks' results, and the bytes of the states by name; `variables` are environment variables of the fake driver, by rank."""
    out.mkdir()
    runs = [{"name": name, "library": str(libraries / name), "below": {"labels": 3}, "bad": name.split("-sharded")[0].split("-whole")[0] in SCALED}
            for name in names]
    place = {"size": size, "address": "127.0.0.1", "port": free_port(), "token": "t", "start_timeout": 120, **world}
    (out / "spec.json").write_text(json.dumps({"runs": runs, "steps": steps, "out": str(out), "world": place, "dies": dies}))
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
    for rank, seen in enumerate(ranks):
        assert seen["standin"]["violations"] == "" and seen["standin"]["live"] == 0
        assert (seen["world"]["rank"], seen["world"]["size"], seen["world"]["bytes_sent"] > 0) == (rank, size, size > 1)
    return ranks, {name: (out / f"{name}.state").read_bytes() for name in names}


@pytest.fixture(scope="module")
def expected(libraries, tmp_path_factory):
    names = [*(f"{policy}-whole" for policy in POLICIES), "amp-f16-whole-synced", "narrow", "three"]
    return train(libraries, tmp_path_factory.mktemp("one") / "out", 1, names)


@pytest.mark.parametrize("size", [2, 4])
def test_states_are_those_of_one_process(libraries, expected, tmp_path, size):
    ranks, states = train(libraries, tmp_path / "out", size, list(expected[1]))
    for name in expected[1]:
        assert all(seen[name] == expected[0][0][name] for seen in ranks), name
        assert states[name] == expected[1][name], name


@pytest.mark.parametrize("ranks_that_refuse", [(0,), (0, 1)])
def test_a_step_that_cannot_be_recorded_runs_call_by_call(libraries, expected, tmp_path, ranks_that_refuse):
    name = "amp-bf16-whole"
    ranks, states = train(libraries, tmp_path / "out", 2, [name], variables={rank: {"MPT_STANDIN_REFUSE_CAPTURE": "cublaslt"} for rank in ranks_that_refuse})
    assert all(seen[name] == expected[0][0][name] for seen in ranks) and states[name] == expected[1][name]
    for rank, seen in enumerate(ranks):
        tried, ran = seen["standin"]["captures"], seen["standin"]["graphs"]
        assert (tried > 0 and ran == 0) if rank in ranks_that_refuse else ran > 0


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


@pytest.mark.parametrize("name, metrics", [("fp32-whole", 1), ("amp-f16-sharded", 3), ("amp-f16-whole-synced", 3)])
def test_a_step_is_one_graph_and_the_host_sees_the_metrics_alone(libraries, tmp_path, name, metrics):
    ranks, _ = train(libraries, tmp_path / "out", 2, [name])
    for seen in ranks:
        # The first step runs call by call, the second is recorded, and each later one is one launch.
        assert (seen["standin"]["captures"], seen["standin"]["graphs"]) == (1, STEPS - 1)
        # Loss, scale and whether the step was skipped, a copy each; the rest is the state, at the start and for the file.
        assert 0 <= seen["standin"]["to_host"] - STEPS * metrics <= 4


def test_the_order_of_ranks_without_replicas_is_fixed(libraries, tmp_path):
    first = train(libraries, tmp_path / "one", 2, ["any"])
    assert first[1] == train(libraries, tmp_path / "two", 2, ["any"])[1]


def test_ranks_compute_with_the_algorithms_of_the_first(tmp_path):
    inputs = cnn(tmp_path / "cnn.onnx")
    mpt.compile(tmp_path / "cnn.onnx", out=tmp_path / "cnn", policy="fp32", replicas=2, **FLAGS)
    variables = {rank: {"MPT_STANDIN_LOG": str(tmp_path / str(rank))} for rank in range(2)}
    variables[1]["MPT_STANDIN_FASTEST_ENGINE"] = "7"  # which is the fastest on rank 1 alone
    train(tmp_path, tmp_path / "out", 2, ["cnn"], options={"search": "full"}, variables=variables)
    engines = [[line for line in (tmp_path / str(rank)).read_text().splitlines() if ", engine " in line][-len(inputs):] for rank in range(2)]
    assert engines[0] and engines[0] == engines[1]


# ---- faults

def faulty(libraries, tmp_path, size=2, names=("fp32-whole",), **more):
    """[(standard error, status)] of ranks of which one has a fault, and how long they took."""
    begin = time.monotonic()
    return train(libraries, tmp_path / "out", size, list(names), check=False, **more), time.monotonic() - begin


@pytest.mark.parametrize("step, size", [(0, 2), (1, 2), (5, 4)])
def test_a_rank_that_is_killed_is_named_by_all(libraries, tmp_path, step, size):
    ended, took = faulty(libraries, tmp_path, size, dies=(1, step), timeout=3)
    assert ended[1][1] == -signal.SIGKILL
    for rank in set(range(size)) - {1}:
        assert ended[rank][1] == 1 and "PeerLost" in ended[rank][0] and "rank 1" in ended[rank][0], ended[rank]
        assert ended[rank][0].rstrip().endswith("the stand-in:"), "nothing else was wrong"
    assert took < TOLD + 20


@pytest.mark.parametrize("group", [1, 3, 20])  # of the first step, which runs call by call, and of one that is a graph
def test_an_error_of_nccl_is_told_and_ends_all(libraries, tmp_path, group):
    ended, took = faulty(libraries, tmp_path, variables={1: {"MPT_STANDIN_NCCL_FAIL": str(group)}})
    assert ended[1][1] == 1 and "asked to fail" in ended[1][0], ended
    assert ended[0][1] == 1 and "PeerLost" in ended[0][0] and "rank 1" in ended[0][0], ended
    assert took < TOLD + 20


@pytest.mark.parametrize("group", [2, 20])
def test_a_device_that_hangs_is_given_up(libraries, tmp_path, group):
    ended, took = faulty(libraries, tmp_path, variables={1: {"MPT_STANDIN_NCCL_HANG": str(group)}}, patience=8)
    assert [status for _, status in ended] == [1, 1]
    assert any("did not come to the end of a step within 8 s" in errors for errors, _ in ended), ended
    assert 8 <= took < TOLD + 20


def test_versions_of_nccl_that_differ_are_refused(libraries, tmp_path):
    ended, _ = faulty(libraries, tmp_path, variables={1: {"MPT_STANDIN_NCCL": "22605"}})
    for errors, status in ended:
        assert status == 1 and "NCCL of rank 1 is not that of rank 0: expected '2.27.3', got '2.26.5'" in errors, errors


def test_an_nccl_that_is_too_old_leaves_values_to_the_host(libraries, expected, tmp_path):
    old = {rank: {"MPT_STANDIN_NCCL": "21200"} for rank in range(2)}
    _, states = train(libraries, tmp_path / "out", 2, ["fp32-whole"], variables=old)
    assert states["fp32-whole"] == expected[1]["fp32-whole"]


def test_the_stand_in_notes_a_message_that_is_too_short(libraries, tmp_path):
    ended, _ = faulty(libraries, tmp_path, names=["fp32-sharded"], variables={1: {"MPT_STANDIN_NCCL_SHORT": "2"}})
    assert "expected a receive of" in ended[0][0] and "and rank 1 is at a send of" in ended[0][0], ended
    assert [status for _, status in ended] == [1, 1]
