# SPDX-License-Identifier: Apache-2.0
"""Ranks that are killed, stopped or cut off: all others return the status of a lost rank, with its number, in time."""
import os
import shutil
import signal
import subprocess
import time

import pytest

from world_kills import ENDLESS, LOST, TIMEOUT, kill_once
from world_processes import TOLD, Ranks, free_port, run_mpi, worker

pytestmark = pytest.mark.slow


@pytest.mark.parametrize("seed", range(24))
def test_survivors_of_a_kill_name_the_rank(seed):
    """test/python/world_kills.py does it more often."""
    kill_once(seed)


def test_a_rank_that_hangs_is_named_and_learns_of_it():
    with Ranks("train", 3, replicas=3, **ENDLESS) as ranks:
        ranks.wait_for_training()
        ranks.processes[1].send_signal(signal.SIGSTOP)
        for status, _, errors in ranks.results([0, 2], TIMEOUT + TOLD):
            assert status == LOST and "rank 1 is lost: it gave no sign of life for 2 s" in errors
        ranks.processes[1].send_signal(signal.SIGCONT)
        (status, _, errors), = ranks.results([1], TIMEOUT + TOLD)
        assert status == LOST and "another rank took this one, which lives, for lost" in errors


def test_a_short_stop_and_slow_ranks_are_no_faults():
    """Slower than the time after which silence counts: signs of life come from a thread of their own."""
    with Ranks("train", 2, replicas=2, steps=3, pause=1500, timeout_seconds=1) as ranks:
        ranks.wait_for_training()
        ranks.processes[0].send_signal(signal.SIGSTOP)
        time.sleep(0.3)
        ranks.processes[0].send_signal(signal.SIGCONT)
        assert [status for status, _, _ in ranks.results()] == [0, 0]


def test_a_rank_that_lives_but_does_not_come_is_named_after_the_patience():
    keys = {"size": 2, "address": "127.0.0.1", "port": free_port(), "token": "t", "replicas": 2, "patience_seconds": 1}
    quick, slow = (Ranks.start("train", [], keys | {"rank": rank, "pause": pause}) for rank, pause in ((0, 0), (1, 60000)))
    _, errors = quick.communicate(timeout=TOLD + 1)
    slow.kill()
    slow.communicate()
    assert quick.returncode == LOST and "rank 1 is lost: it lives, but has not come for 1 s to bucket 0 of step 0" in errors


@pytest.mark.parametrize("kind, options, elements", [("openmpi", ["--enable-recovery"], 20000), ("mpich", ["-disable-auto-cleanup"], 500)])
def test_survivors_of_a_kill_under_mpi_name_the_rank(kind, options, elements, tmp_path):
    """The last rank is killed. MPI does not say so; silence does. Messages over MPICH are short ones: UCX below it ends processes
    that read a long one from the memory of a process that is gone."""
    script = tmp_path / "rank.sh"
    # Not before it trains: on a busy machine it was killed while MPI started, where nobody looks for signs of life.
    script.write_text(f'case "${{OMPI_COMM_WORLD_RANK:-$PMI_RANK}}" in 2) "$@" > {tmp_path}/said & until grep -q training {tmp_path}/said; do sleep 0.1; done; '
                      'kill -9 $!;; *) exec "$@";; esac\n')
    keys = [f"{key}={value}" for key, value in (ENDLESS | {"elements": elements}).items()]
    done = run_mpi(kind, 3, "sh", str(script), worker(), "train", "replicas=3", *keys, options=options, timeout=120)
    assert done.stderr.count("rank 2 is lost: it gave no sign of life for 2 s") == 2, done


# ---- cut networks ---------------------------------------------------------------------------------------------------

def ip(*words: str) -> bool:
    return subprocess.run(["ip", *words], capture_output=True).returncode == 0


@pytest.fixture
def network():
    """Two network namespaces joined by a pair of interfaces; the names of both, and the address of the first."""
    first, second = f"mpt-a-{os.getpid()}", f"mpt-b-{os.getpid()}"
    if not shutil.which("ip") or not ip("netns", "add", first):
        pytest.skip("network namespaces need root")
    try:
        assert ip("netns", "add", second)
        assert ip("link", "add", "mpt0", "netns", first, "type", "veth", "peer", "name", "mpt1", "netns", second)
        for name, device, address in ((first, "mpt0", "127.77.0.1/24"), (second, "mpt1", "127.77.0.2/24")):
            for words in (["link", "set", "lo", "up"], ["addr", "del", "127.0.0.1/8", "dev", "lo"]):
                ip("-n", name, *words)
            # Addresses of the loopback range alone, routed over the pair.
            assert subprocess.run(["ip", "netns", "exec", name, "sh", "-c",
                                   "echo 1 | tee /proc/sys/net/ipv4/conf/*/route_localnet"], capture_output=True).returncode == 0
            assert ip("-n", name, "addr", "add", address, "dev", device) and ip("-n", name, "link", "set", device, "up")
        yield first, second, "127.77.0.1"
    finally:
        ip("netns", "del", first)
        ip("netns", "del", second)


def inside(network):
    return lambda rank: ["ip", "netns", "exec", network[rank % 2]]


def test_ranks_that_are_cut_off_from_each_other_end(network):
    with Ranks("train", 2, prefix=inside(network), replicas=2, **(ENDLESS | {"address": network[2]})) as ranks:
        ranks.wait_for_training()
        assert ip("-n", network[0], "link", "set", "mpt0", "down")
        for rank, (status, _, errors) in enumerate(ranks.results(timeout=TIMEOUT + TOLD)):
            assert status == LOST and f"rank {1 - rank} is lost: it gave no sign of life for 2 s" in errors
