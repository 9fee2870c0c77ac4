# SPDX-License-Identifier: Apache-2.0
"""Training on several processes: the same state files as on one, over TCP and both MPIs; all ranks refuse one rank's error."""
import json
import math
import os
import pathlib
import subprocess
import sys
import time

import numpy as np
import pytest

import mpt
import world_restarts
from replica_models import batch, classifier
from world_processes import clean_environment, free_port, run_mpi

pytestmark = pytest.mark.slow

POLICIES = ["fp32", "amp-f16", "amp-bf16", "als-f16", "fp8-hybrid"]
SCALED = ["amp-f16", "als-f16", "fp8-hybrid"]  # a value that is not finite skips a step
FLAGS = {"loss": "softmax-cross-entropy", "optimizer": "adamw,lr=1e-2"}
SCRIPT = pathlib.Path(__file__).with_name("world_training.py")


@pytest.fixture(scope="module")
def libraries(tmp_path_factory):
    """The classifier with batch norm and dropout for four replicas, in every policy."""
    folder = tmp_path_factory.mktemp("libraries")
    model = classifier(folder / "model.onnx", norm=True, dropout=True)
    for policy in POLICIES:
        mpt.compile(model, out=folder / policy, policy=policy, replicas=4, **FLAGS)
    return folder


def environment() -> dict:
    """For scripts that import the modules of this test."""
    paths = [str(pathlib.Path(__file__).parent), *(path for path in sys.path if path)]
    return clean_environment(PYTHONPATH=os.pathsep.join(paths))


def write_spec(libraries, out, world: dict, steps: int):
    out.mkdir()
    runs = [{"name": policy, "library": str(libraries / policy), "below": {"labels": 3}, "bad": policy in SCALED}
            for policy in POLICIES]
    spec = out / "spec.json"
    spec.write_text(json.dumps({"runs": runs, "steps": steps, "out": str(out), "world": world}))
    return str(spec)


def read(out, size: int):
    """The ranks' results, and the bytes of the states."""
    ranks = [json.loads((out / f"{rank}.json").read_text()) for rank in range(size)]
    places = [seen.pop("world") for seen in ranks]
    assert [place["rank"] for place in places] == list(range(size)) and {place["size"] for place in places} == {size}
    assert all(seen == ranks[0] for seen in ranks), "ranks saw different losses"
    return ranks[0], {policy: (out / f"{policy}.state").read_bytes() for policy in POLICIES}, places


def over_tcp(libraries, out, size: int, steps: int = 60):
    world = {"size": size, "address": "127.0.0.1", "port": free_port(), "token": "t", "start_timeout": 120}
    spec = write_spec(libraries, out, world, steps)
    started = [subprocess.Popen([sys.executable, str(SCRIPT), spec, str(rank)], stderr=subprocess.PIPE, text=True, env=environment())
               for rank in range(size)]
    for process in started:
        errors = process.communicate(timeout=600)[1]
        assert process.returncode == 0, errors
    return read(out, size)


@pytest.fixture(scope="module")
def expected(libraries, tmp_path_factory):
    return over_tcp(libraries, tmp_path_factory.mktemp("one") / "out", 1)


def test_planted_infinities_skip_steps(expected):
    seen, _, _ = expected
    for policy in POLICIES:
        losses = [float.fromhex(loss) for loss in seen[policy]["losses"]]
        assert ({3, 17, 40} <= set(seen[policy]["skipped"])) == (policy in SCALED), policy
        assert all(math.isfinite(loss) for step, loss in enumerate(losses) if step not in (3, 17, 40)), policy


@pytest.mark.parametrize("size", [2, 4])
def test_states_over_tcp_are_those_of_one_process(libraries, expected, tmp_path, size):
    seen, states, places = over_tcp(libraries, tmp_path / "out", size)
    assert seen == expected[0]
    assert [policy for policy in POLICIES if states[policy] != expected[1][policy]] == []
    assert all(place["bytes_sent"] > 0 for place in places)


@pytest.mark.parametrize("kind, size, name", [("openmpi", 2, "mpi (Open MPI)"), ("mpich", 4, "mpi (MPICH)")])
def test_states_over_mpi_are_those_of_one_process(libraries, expected, tmp_path, kind, size, name):
    spec = write_spec(libraries, tmp_path / "out", {}, 60)
    done = run_mpi(kind, size, sys.executable, str(SCRIPT), spec, timeout=600, environment=environment())
    assert done.returncode == 0, done.stderr
    seen, states, places = read(tmp_path / "out", size)
    assert {place["transport"] for place in places} == {name}
    assert seen == expected[0]
    assert [policy for policy in POLICIES if states[policy] != expected[1][policy]] == []


# ---- errors of one rank ---------------------------------------------------------------------------------------------

def on_two_ranks(library, folder, body):
    """Calls body(world, trainer, inputs of this rank) in two forks; its result, or the error's text."""
    port = free_port()

    def rank_of(rank):
        with mpt.init(rank=rank, size=2, address="127.0.0.1", port=port, token="t", timeout=20) as world:
            trainer = mpt.Trainer(library, threads=1, world=world)
            mine = {name: np.split(values, 2)[rank] for name, values in batch(4).items()}
            (folder / f"{rank}.txt").write_text(str(body(world, trainer, mine)))

    started = [world_restarts.fork(lambda rank=rank: rank_of(rank), folder / f"{rank}.txt") for rank in range(2)]
    statuses = [world_restarts.wait(process, 120) for process in started]
    texts = [(folder / f"{rank}.txt").read_text() for rank in range(2)]
    assert statuses == [0, 0], texts
    return texts


def refused(trainer, inputs, **more):
    """The text of a step's refusal, and whether it left the state as it was and the next step is fine."""
    before = trainer.state()
    try:
        trainer.step(inputs, **more)
        return "not refused"
    except mpt.Error as error:
        text = str(error)
    after = trainer.state()
    assert all(before[name].tobytes() == after[name].tobytes() for name in before), "a refused step changed the state"
    return text


def test_bad_labels_of_one_rank_are_refused_by_all(libraries, tmp_path):
    def body(world, trainer, mine):
        bad = {**mine, "labels": mine["labels"] + (9 if world.rank else 0)}
        text = refused(trainer, bad)
        assert np.isfinite(trainer.step(mine).loss)
        return text

    first, second = on_two_ranks(libraries / "fp32", tmp_path, body)
    assert "rank 1 could not take this step" in first and "labels" in second


def test_a_missing_input_of_one_rank_is_refused_by_all(libraries, tmp_path):
    def body(world, trainer, mine):
        text = refused(trainer, mine if world.rank else {"x": mine["x"]})
        assert np.isfinite(trainer.step(mine).loss)
        return text

    first, second = on_two_ranks(libraries / "fp32", tmp_path, body)
    assert "input 'labels' of 'step' is missing" in first and "rank 0 could not take this step" in second


def test_learning_rates_that_differ_are_refused(libraries, tmp_path):
    def body(world, trainer, mine):
        text = refused(trainer, mine, learning_rate=1e-3 * (1 + world.rank))
        assert np.isfinite(trainer.step(mine, learning_rate=1e-3).loss)
        return text

    for text in on_two_ranks(libraries / "fp32", tmp_path, body):
        assert "expected the same learning rate" in text


def test_a_state_that_one_rank_cannot_load_is_refused_by_all(libraries, tmp_path):
    trainer = mpt.Trainer(libraries / "fp32", threads=1)
    trainer.step(batch(4))
    trainer.save(tmp_path / "good")

    def body(world, trainer, mine):
        try:
            trainer.load(tmp_path / ("good" if world.rank else "none"))
            return "loaded"
        except mpt.Error as error:
            return error

    assert "loaded" not in on_two_ranks(libraries / "fp32", tmp_path, body)


def test_models_that_differ_are_refused(libraries, tmp_path):
    port = free_port()

    def rank_of(rank):
        with mpt.init(rank=rank, size=2, address="127.0.0.1", port=port, token="t", timeout=20) as world:
            try:
                mpt.Trainer(libraries / POLICIES[rank], threads=1, world=world)
            except mpt.Error as error:
                (tmp_path / f"{rank}.txt").write_text(str(error))

    started = [world_restarts.fork(lambda rank=rank: rank_of(rank), tmp_path / "log") for rank in range(2)]
    assert [world_restarts.wait(process, 60) for process in started] == [0, 0]
    for rank in range(2):
        assert "model of rank 1 is not that of rank 0" in (tmp_path / f"{rank}.txt").read_text()


# ---- kills ----------------------------------------------------------------------------------------------------------

def test_runs_restarted_after_kills_end_in_the_same_bits(tmp_path):
    """world_restarts.py does it more often."""
    library = world_restarts.compile_model(tmp_path)
    (tmp_path / "whole").mkdir()
    begin = time.monotonic()
    expected = world_restarts.finish(library, tmp_path / "whole", 2)
    duration = time.monotonic() - begin
    met = 0
    for seed in range(12):
        (tmp_path / str(seed)).mkdir()
        met += world_restarts.kill_and_restart(library, tmp_path / str(seed), expected, duration, seed) is not None
    assert met >= 3, "hardly any kill met training"
