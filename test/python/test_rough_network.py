# SPDX-License-Identifier: Apache-2.0
"""Networks that delay packets and lose some change no bit of a training run; one that is cut ends it in the stated time."""
import json
import subprocess
import sys
import time

import pytest

import mpt
from replica_models import classifier
from rough_network import ADDRESSES, Link, Unavailable
from test_world_training import FLAGS, SCRIPT, environment
from world_kills import ENDLESS, LOST, TIMEOUT
from world_processes import TOLD, Ranks, free_port

pytestmark = pytest.mark.slow

STEPS = 20


@pytest.fixture
def rough():
    """Makes links, which go with the test."""
    made = []

    def make(**traits) -> Link:
        link = Link(**traits)
        try:
            link.__enter__()
        except Unavailable as problem:
            pytest.skip(f"no network of our own: {problem}")
        made.append(link)
        return link

    yield make
    for link in made:
        link.__exit__()


@pytest.mark.parametrize("traits", [{"delay": 0.05}, {"delay": 0.05, "jitter": 0.02, "loss": 0.05}, {"loss": 0.2}])
def test_reductions_have_their_bits(rough, traits):
    """Jitter lets packets overtake each other."""
    with Ranks("train", 1, steps=STEPS) as ranks:
        (_, expected, _), = ranks.results()
    link = rough(**traits)
    begin = time.monotonic()
    with Ranks("train", 2, prefix=link.command, steps=STEPS, address=ADDRESSES[0], timeout_seconds=10) as ranks:
        assert ranks.results() == [(0, expected, "")] * 2
    assert time.monotonic() - begin > 2 * STEPS * link.delay  # at least there and back once a step
    assert link.carried > 2 * STEPS and (link.lost > 0 or not link.loss)


def trained(folder, library, size, prefix=lambda rank: []):
    """The ranks' results, and the bytes of the state."""
    folder.mkdir()
    world = {"size": size, "address": ADDRESSES[0] if size > 1 else "127.0.0.1", "port": free_port(), "token": "t", "timeout": 10}
    runs = [{"name": "run", "library": str(library), "below": {"labels": 3}, "bad": True}]
    (folder / "spec.json").write_text(json.dumps({"runs": runs, "steps": STEPS, "out": str(folder), "world": world}))
    started = [subprocess.Popen([*prefix(rank), sys.executable, str(SCRIPT), str(folder / "spec.json"), str(rank)], stderr=subprocess.PIPE,
                                text=True, env=environment()) for rank in range(size)]
    for process in started:
        errors = process.communicate(timeout=120)[1]
        assert process.returncode == 0, errors
    seen = [json.loads((folder / f"{rank}.json").read_text())["run"] for rank in range(size)]
    assert all(one == seen[0] for one in seen)
    return seen[0], (folder / "run.state").read_bytes()


def test_training_ends_in_the_same_bits(rough, tmp_path):
    """With dropout, skipped steps and gradients large enough for several packets."""
    model = classifier(tmp_path / "model.onnx", norm=True, dropout=True, inner=40)
    mpt.compile(model, out=tmp_path / "lib", policy="amp-f16", replicas=2, **FLAGS)
    expected = trained(tmp_path / "one", tmp_path / "lib", 1)
    assert expected[0]["skipped"]
    link = rough(delay=0.05, jitter=0.01, loss=0.05)
    assert trained(tmp_path / "two", tmp_path / "lib", 2, link.command) == expected
    assert link.lost > 0


@pytest.mark.parametrize("ends", [{0, 1}, {0}, {1}])
def test_a_cut_is_told_in_time(rough, ends):
    """Packets of `ends` do not arrive any more. Who hears nothing names the other; who is heard no more learns that it is lost, or that its
    messages are."""
    link = rough(delay=0.01)
    with Ranks("train", 2, prefix=link.command, replicas=2, **(ENDLESS | {"address": ADDRESSES[0]})) as ranks:
        ranks.wait_for_training()
        link.cut = ends
        begin = time.monotonic()
        for rank, (status, _, errors) in enumerate(ranks.results(timeout=TIMEOUT + TOLD)):
            silent = f"rank {1 - rank} is lost: it gave no sign of life for 2 s"
            assert status == LOST and (silent in errors if 1 - rank in ends else "is lost" in errors or "took this one" in errors), (rank, errors)
        assert time.monotonic() - begin < TIMEOUT + TOLD
