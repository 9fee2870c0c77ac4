# SPDX-License-Identifier: Apache-2.0
"""Ranks as processes: build/bin/WorldWorker (test/world/WorldWorker.cpp) started several times, by hand or by mpirun."""
import os
import random
import re
import shutil
import socket
import subprocess
import time

import pytest

from conftest import build_folder

TOKEN = "a token for tests"
TOLD = 20  # seconds beyond a stated time within which a process has to have ended, on a machine that is busy


def worker() -> str:
    path = build_folder() / "bin" / "WorldWorker"
    if not path.is_file():
        pytest.skip("build WorldWorker first")
    return str(path)


def free_port() -> int:
    """A port below the ones that the system gives to connections, one of which could take it before rank 0 does."""
    while True:
        port = random.randrange(10000, 32000)
        with socket.socket() as probe:
            try:
                probe.bind(("127.0.0.1", port))
            except OSError:
                continue
            return port


def clean_environment(**more) -> dict:
    """Without the variables that a launcher of this test run may have set."""
    names = re.compile("RANK$|WORLD_SIZE$|MASTER_|PMI|OMPI_|SLURM_|TORCHELASTIC_|MPI_LOCAL")
    return {key: value for key, value in os.environ.items() if not names.search(key)} | more


class Ranks:
    """Processes of one world over TCP. `results` waits for the ranks in `ranks`: a list of (status, output, errors)."""

    def __init__(self, mode: str, size: int, prefix=lambda rank: [], **keys):
        keys = {"size": size, "address": "127.0.0.1", "port": free_port(), "token": TOKEN, "start_seconds": 60} | keys
        self.port = int(keys["port"])
        self.processes = [self.start(mode, prefix(rank), keys | {"rank": rank}) for rank in range(size)]

    @staticmethod
    def start(mode: str, prefix: list, keys: dict):
        command = [*prefix, worker(), mode, *(f"{key}={value}" for key, value in keys.items() if value is not None)]
        return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=clean_environment())

    def __enter__(self):
        return self

    def __exit__(self, *_):
        for process in self.processes:
            process.kill()
            process.communicate()

    def wait_for_training(self):
        """Until every rank has done its first step."""
        for process in self.processes:
            assert process.stdout.readline() == "training\n", process.communicate()

    def results(self, ranks=None, timeout: float = 120):
        end = time.monotonic() + timeout
        found = []
        for rank in range(len(self.processes)) if ranks is None else ranks:
            process = self.processes[rank]
            output, errors = process.communicate(timeout=max(0.1, end - time.monotonic()))
            found.append((process.returncode, output, errors))
        return found


MPIRUN = {"openmpi": ["mpirun.openmpi", "--allow-run-as-root", "--oversubscribe"], "mpich": ["mpirun.mpich"]}


def run_mpi(kind: str, size: int, *arguments: str, options=(), timeout: float = 180, environment=None):
    """The finished mpirun; all that the ranks wrote is in one output."""
    if not shutil.which(MPIRUN[kind][0]):
        pytest.skip(f"{kind} is not installed (scripts/setup.sh --tests)")
    return subprocess.run([*MPIRUN[kind], *options, "-n", str(size), *arguments], capture_output=True, text=True, timeout=timeout,
                          env=environment or clean_environment())
