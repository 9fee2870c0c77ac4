# SPDX-License-Identifier: Apache-2.0
"""Worlds of processes over TCP and both implementations of MPI: bits, bytes, launchers, and who may not join."""
import os
import socket
import struct
import subprocess
import sys
import textwrap
import time

import pytest

import mpt
from world_processes import TOKEN, Ranks, clean_environment, free_port, run_mpi, worker

pytestmark = pytest.mark.slow

KINDS = ["openmpi", "mpich"]


@pytest.mark.parametrize("size", [2, 3, 4])
def test_reductions_over_tcp_have_the_bits_of_the_tree(size):
    with Ranks("bits", size) as ranks:
        assert ranks.results() == [(0, "ok\n", "")] * size


@pytest.mark.parametrize("size", [2, 4])
@pytest.mark.parametrize("kind", KINDS)
def test_reductions_over_mpi_have_the_bits_of_the_tree(kind, size):
    done = run_mpi(kind, size, worker(), "bits")
    # MPICH's launcher joins the output of ranks without regard to ends of lines.
    said = [line for line in done.stdout.splitlines() if " UCX  WARN " not in line]  # of MPI's transport, on a loaded machine
    assert done.returncode == 0 and "".join(said).replace(" ", "") == "ok" * size, done


def test_training_has_one_state_for_all_numbers_of_processes():
    with Ranks("train", 1) as ranks:
        (status, expected, _), = ranks.results()
    assert status == 0 and "state " in expected
    for size in (2, 4):
        with Ranks("train", size) as ranks:
            assert ranks.results() == [(0, expected, "")] * size
    for kind in KINDS:
        done = run_mpi(kind, 2, worker(), "train")
        assert done.returncode == 0 and done.stdout.count(expected.splitlines()[1]) == 2, done


@pytest.mark.parametrize("size", [2, 4])
def test_bytes_are_the_least_possible(size):
    elements = 1 << 20
    least = 2 * (size - 1) * elements * 4 // size
    with Ranks("bytes", size, elements=elements) as ranks:
        assert ranks.results() == [(0, f"sent {least} received {least}\n", "")] * size


# ---- who may not join -----------------------------------------------------------------------------------------------

HELLO = struct.Struct("<8sIIiiiIQ256s")  # lib/Runtime/world/Door.h


def hello(magic=b"MPTWORLD", version=1, channel=1, rank=1, size=2, port=1234, world=0, token=TOKEN.encode()):
    return HELLO.pack(magic, version, channel, rank, size, port, 0, world, token)


STRANGERS = {
    "says nothing": b"",
    "speaks HTTP": b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n" * 20,
    "other magic": hello(magic=b"MPTWORLE"),
    "no token": hello(token=b""),
    "a longer token": hello(token=TOKEN.encode() + b"x"),
    "other token": hello(token=b"b" + TOKEN.encode()[1:]),
    "all ones": b"\xff" * 100000,
    "half of a greeting": hello()[:100],
    "a rank that is out of range": hello(rank=7),
    "a negative rank": hello(rank=-1),
    "an oversized world": hello(size=2**31 - 1),
    "a channel that does not exist": hello(channel=77),
    "a connection of values before its time": hello(channel=3),
    "other version": hello(version=2),
    "a port out of range": hello(port=2**31 - 1),
}


def connect(port: int) -> socket.socket:
    """As soon as rank 0 listens."""
    for _ in range(600):
        try:
            return socket.create_connection(("127.0.0.1", port), timeout=30)
        except ConnectionRefusedError:
            time.sleep(0.02)
    raise AssertionError("rank 0 does not listen")


def test_strangers_are_turned_away_and_do_no_harm():
    """All of them come before rank 1, some stay; none is told anything but why a rank that knows the token does not fit."""
    port = free_port()
    keys = {"size": 2, "address": "127.0.0.1", "port": port, "token": TOKEN, "start_seconds": 60}
    first = Ranks.start("bits", [], keys | {"rank": 0})
    guests = []
    try:
        for name, data in STRANGERS.items():
            guest = connect(port)
            guests.append(guest)
            try:
                guest.sendall(data)
            except ConnectionError:
                continue  # turned away before it had said all
            if not data or len(data) < HELLO.size:
                continue  # stays open while the others come
            try:
                answer = guest.recv(4096)
            except ConnectionError:
                answer = b""
            knows = data[40:].startswith(TOKEN.encode() + b"\0") and data.startswith(b"MPTWORLD")
            assert (b"expected" in answer) == knows, (name, answer)
        second = Ranks.start("bits", [], keys | {"rank": 1})
        for process in (first, second):
            assert process.communicate(timeout=120) == ("ok\n", "") and process.returncode == 0
    finally:
        first.kill()
        for guest in guests:
            guest.close()


def test_a_crowd_of_strangers_does_not_keep_ranks_out():
    port = free_port()
    keys = {"size": 2, "address": "127.0.0.1", "port": port, "token": TOKEN, "start_seconds": 60}
    first = Ranks.start("bits", [], keys | {"rank": 0})
    guests = [connect(port) for _ in range(700)]
    second = Ranks.start("bits", [], keys | {"rank": 1})
    for process in (first, second):
        assert process.communicate(timeout=120) == ("ok\n", "")
    for guest in guests:
        guest.close()


def test_other_tokens_are_told_on_both_sides():
    port = free_port()
    keys = {"size": 2, "address": "127.0.0.1", "port": port, "start_seconds": 6}
    first = Ranks.start("bits", [], keys | {"rank": 0, "token": "one"})
    second = Ranks.start("bits", [], keys | {"rank": 1, "token": "two"})
    output, errors = second.communicate(timeout=60)
    assert second.returncode == 11 and "is the token the same on all ranks?" in errors
    output, errors = first.communicate(timeout=60)
    assert first.returncode == 11 and "rank 1 has not come" in errors and "is the token the same on all ranks?" in errors


@pytest.mark.parametrize("keys, text", [
    ({"size": 3}, "expected a world of 2 ranks, as rank 0 was told, got 3"),
    ({"rank": 0}, None),
])
def test_misfits_are_told(keys, text):
    port = free_port()
    common = {"size": 2, "address": "127.0.0.1", "port": port, "token": TOKEN, "start_seconds": 4}
    first = Ranks.start("bits", [], common | {"rank": 0})
    connect(port).close()
    second = Ranks.start("bits", [], common | {"rank": 1} | keys)
    _, errors = second.communicate(timeout=60)
    if text:
        assert second.returncode == 5 and text in errors
    else:
        assert second.returncode == 3 and "Address already in use: give another port" in errors
    _, errors = first.communicate(timeout=60)
    assert first.returncode == 11 and "rank 1 has not come to rank 0" in errors


def test_two_processes_of_one_rank_are_told():
    port = free_port()
    common = {"size": 3, "address": "127.0.0.1", "port": port, "token": TOKEN, "start_seconds": 30}
    started = [Ranks.start("bits", [], common | {"rank": rank}) for rank in (0, 1, 1)]
    while all(process.poll() is None for process in started[1:]):
        pass
    refused = next(process for process in started[1:] if process.poll() is not None)
    assert "there are two processes of rank 1" in refused.communicate()[1] and refused.returncode == 5
    started.remove(refused)
    started.append(Ranks.start("bits", [], common | {"rank": 2}))
    assert [process.communicate(timeout=60)[0] for process in started] == ["ok\n"] * 3


# ---- launchers ------------------------------------------------------------------------------------------------------

def start_by(environment: dict, *keys: str):
    return subprocess.Popen([worker(), "bits", *keys], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
                            env=clean_environment(**environment))


def torchrun(rank, size, port):
    return {"RANK": rank, "WORLD_SIZE": size, "LOCAL_RANK": rank, "MASTER_ADDR": "localhost", "MASTER_PORT": port,
            "TORCHELASTIC_RUN_ID": "a secret", "TORCHELASTIC_RESTART_COUNT": 0}


def slurm(rank, size, port):
    return {"SLURM_PROCID": rank, "SLURM_STEP_NUM_TASKS": size, "SLURM_LOCALID": rank, "SLURM_JOB_ID": port - 20000,
            "SLURM_STEP_NODELIST": "localhost,other[01-03]"}


@pytest.mark.parametrize("launcher, keys", [(torchrun, ()), (slurm, ("token=x",))])
def test_launchers_tell_ranks(launcher, keys):
    port = free_port()
    while not 20000 <= port < 40000:
        port = free_port()
    started = [start_by({key: str(value) for key, value in launcher(rank, 2, port).items()}, *keys) for rank in range(2)]
    assert [process.communicate(timeout=60) for process in started] == [("ok\n", "")] * 2


def test_the_agent_of_torchrun_keeps_its_port():
    with socket.socket() as agent:
        agent.bind(("127.0.0.1", 0))
        agent.listen()
        port = agent.getsockname()[1]
        started = [start_by({key: str(value) for key, value in (torchrun(rank, 2, port) |
                             {"TORCHELASTIC_USE_AGENT_STORE": "True"}).items()}) for rank in range(2)]
        assert [process.communicate(timeout=60) for process in started] == [("ok\n", "")] * 2


@pytest.mark.parametrize("environment, keys, text", [
    ({"RANK": "0", "WORLD_SIZE": "2"}, (), "expected the address of rank 0"),
    ({"RANK": "0", "WORLD_SIZE": "2", "MASTER_ADDR": "localhost"}, (), "expected a port of rank 0"),
    ({"RANK": "0", "WORLD_SIZE": "2", "MASTER_ADDR": "localhost", "MASTER_PORT": "1"}, (), "expected a token"),
    ({"RANK": "0", "WORLD_SIZE": "2", "MASTER_ADDR": "localhost", "MASTER_PORT": "1", "TORCHELASTIC_RUN_ID": "none"}, (),
     "expected a token"),
    ({}, ("rank=2", "size=2"), "expected a rank from 0 on and below the size, got rank 2 of 2"),
    ({}, ("rank=1",), "expected the world's size with rank 1"),
    ({}, ("transport=pigeon",), "expected transport tcp, mpi or auto, got 'pigeon'"),
    ({}, ("timeout_seconds=-1",), "timeout_seconds: expected a number of seconds above 0, got -1"),
    ({}, ("size=2", "address=localhost", "port=1", "token=" + "x" * 256), "expected a token of at most 255 bytes, got 256"),
    ({}, ("size=2", "transport=mpi", "mpi_library=/nowhere/libmpi.so"), "cannot open the MPI library: /nowhere/libmpi.so"),
])
def test_what_is_missing_is_told(environment, keys, text):
    process = start_by(environment, *keys)
    _, errors = process.communicate(timeout=60)
    assert process.returncode in (1, 2) and text in errors, errors


def test_an_mpi_library_of_another_launcher_is_told():
    done = run_mpi("openmpi", 2, worker(), "bits", "mpi_library=libmpich.so.12")
    assert done.returncode != 0 and "is it the library of the launcher?" in done.stderr


# ---- Python ---------------------------------------------------------------------------------------------------------

def run_script(text: str, size: int, **keys):
    """Runs a script once a rank, with `init()` for mpt.init with its arguments; (status, output, errors) of each."""
    port = free_port()
    head = "import sys, numpy as np, mpt\n"
    if "MPT_BUILD" in os.environ:
        head += f"mpt.use_build({os.environ['MPT_BUILD']!r})\n"
    head += (f"def init(**more): return mpt.init(**(dict(rank=int(sys.argv[1]), size={size}, address='127.0.0.1', port={port}, "
             f"token='t', start_timeout=60) | more))\n")
    paths = os.pathsep.join(path for path in sys.path if path)
    started = [subprocess.Popen([sys.executable, "-c", head + textwrap.dedent(text), str(rank)], stdout=subprocess.PIPE,
                                stderr=subprocess.PIPE, text=True, env=clean_environment(PYTHONPATH=paths)) for rank in range(size)]
    return [(process.returncode, output, errors) for process in started for output, errors in [process.communicate(timeout=120)]]


def test_a_world_without_a_launcher_is_one_process(monkeypatch):
    for name in set(os.environ) - set(clean_environment()):
        monkeypatch.delenv(name)
    with mpt.init() as world:
        assert (world.rank, world.size, world.local_rank, world.transport) == (0, 1, 0, "none")
        world.barrier()
        world.agree("the model", "x")
        assert world.statistics().bytes_sent == 0 and world.statistics().slowest_rank is None
    with pytest.raises(ValueError, match="the world is closed"):
        world.barrier()
    with pytest.raises(ValueError, match="expected rank and size together"):
        mpt.init(rank=0)


def test_collectives_from_python():
    results = run_script("""
        with init() as world:
            values = np.full((3, 5), world.rank, np.float32)
            assert (world.broadcast(values, root=2) == 2).all()
            world.barrier()
            world.agree("the data", "digits")
            try:
                world.agree("the policy", "fp32" if world.rank != 1 else "amp-f16")
            except mpt.Error as error:
                print(error.status, error)
            stats = world.statistics()
            assert stats.collectives == 4 and stats.seconds > 0 and stats.overhead_bytes > 0
            print(world)
    """, 3)
    told = "5 the policy of rank 1 is not that of rank 0: expected 'fp32', got 'amp-f16'\n"
    assert results == [(0, told + f"<mpt.World: rank {rank} of 3, tcp>\n", "") for rank in range(3)]


def test_an_exception_on_one_rank_reaches_all():
    results = run_script("""
        with init() as world:
            if world.rank == 1:
                world.barrier()
                raise KeyError("no such file of data")
            try:
                world.barrier()
                world.barrier()
            except mpt.PeerLost as error:
                print(error)
    """, 3)
    told = "rank 1 cannot go on: KeyError: 'no such file of data'\n"
    assert [result[:2] for result in results] == [(0, told), (1, ""), (0, told)]


def test_leaving_early_is_told():
    results = run_script("""
        world = init()
        world.barrier()
        if world.rank == 0:
            world.close()
        else:
            try:
                world.barrier()
            except mpt.PeerLost as error:
                print(error)
    """, 2)
    assert results[0] == (0, "", "")
    assert results[1][1] == "rank 0 is lost: it has left the world before a barrier (collective 2)\n"


def test_ranks_that_go_apart_are_told():
    results = run_script("""
        world = init()
        try:
            world.barrier() if world.rank else world.agree("x", "y")
        except mpt.Error as error:
            print(error.status, error)
    """, 2)
    for status, output, _ in results:
        assert status == 0 and output.startswith("5 ranks went apart: ")
        assert "a barrier (collective 1)" in output and "a comparison of texts (collective 1)" in output
