# SPDX-License-Identifier: Apache-2.0
"""Training that is killed and started again: a random rank at a random moment, checkpoints, another number of processes.

    python world_restarts.py COUNT [FIRST_SEED]    errors, and how long survivors took

Each world trains a classifier with dropout and skipped steps, and saves every few steps. After the kill all survivors have to
return the status of a lost rank in the stated time, and every state file has to load. The run is then started again, on
another number of processes, and has to end in the bytes of one that was never killed. Ranks are forks of this process, so
that a world takes a fraction of a second.
"""
import os
import pathlib
import random
import re
import signal
import sys
import tempfile
import time
import traceback

import numpy as np

import mpt
from replica_models import ROWS, batch, classifier
from world_processes import TOLD, free_port

REPLICAS, STEPS, EVERY = 4, 24, 3
TIMEOUT, START = 2, 5  # seconds, the stated times
LOST = 11              # the status of a rank that met PeerLost
FLAGS = {"loss": "softmax-cross-entropy", "optimizer": "adamw,lr=1e-2", "policy": "amp-f16", "replicas": REPLICAS}


def compile_model(folder: pathlib.Path) -> pathlib.Path:
    mpt.compile(classifier(folder / "model.onnx", norm=True, dropout=True), out=folder / "lib", **FLAGS)
    return folder / "lib"


def rows_of(step: int, rank: int, size: int) -> dict:
    """The rows that a rank passes in a step; every seventh step has an infinity in one row, and is skipped."""
    inputs = batch(REPLICAS, seed=step)
    if step % 7 == 5:
        inputs["x"][step % len(inputs["x"]), 0] = np.inf
    share = REPLICAS * ROWS // size
    return {name: values[rank * share:(rank + 1) * share] for name, values in inputs.items()}


def checkpoints(folder: pathlib.Path) -> list[int]:
    return sorted(int(path.stem) for path in folder.glob("*.state") if re.fullmatch(r"\d+", path.stem))


def train(library, folder: pathlib.Path, rank: int, size: int, port: int) -> None:
    """Goes on from the last checkpoint to the end."""
    with mpt.init(rank=rank, size=size, address="127.0.0.1", port=port, token="kills", timeout=TIMEOUT, start_timeout=START) as world:
        trainer = mpt.Trainer(library, threads=1, world=world)
        begin = np.array(max(checkpoints(folder), default=0))
        world.broadcast(begin)
        if begin:
            trainer.load(folder / f"{begin}.state")
        for step in range(int(begin), STEPS):
            trainer.step(rows_of(step, rank, size))
            if (step + 1) % EVERY == 0:
                trainer.save(folder / f"{step + 1}.state")
        trainer.close()


def fork(body, log: pathlib.Path) -> int:
    """Runs `body` in a process of its own, whose status says how it ended."""
    process = os.fork()
    if process:
        return process
    status = 1
    try:
        body()
        status = 0
    except mpt.PeerLost as error:
        log.write_text(str(error))
        status = LOST
    except BaseException:  # whatever it is: this process must not return into its parent's code
        log.write_text(traceback.format_exc())
    os._exit(status)


def start(library, folder: pathlib.Path, size: int) -> list[int]:
    port = free_port()
    return [fork(lambda rank=rank: train(library, folder, rank, size, port), folder / f"rank{rank}.log") for rank in range(size)]


def wait(process: int, seconds: float) -> int:
    """A process's status, negative for a signal; it is killed where it does not end in time."""
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        done, status = os.waitpid(process, os.WNOHANG)
        if done:
            return os.waitstatus_to_exitcode(status)
        time.sleep(0.002)
    os.kill(process, signal.SIGKILL)
    os.waitpid(process, 0)
    raise AssertionError(f"a process did not return within {seconds} s")


def finish(library, folder: pathlib.Path, size: int) -> bytes:
    """Trains to the end; the bytes of the last state."""
    statuses = [wait(process, 120) for process in start(library, folder, size)]
    assert statuses == [0] * size, (statuses, [log.read_text() for log in folder.glob("rank*.log")])
    return (folder / f"{STEPS}.state").read_bytes()


def load_all(library, folder: pathlib.Path) -> None:
    trainer = mpt.Trainer(library, threads=1)
    for step in checkpoints(folder):
        trainer.load(folder / f"{step}.state")
    trainer.close()


def kill_and_restart(library, folder: pathlib.Path, expected: bytes, duration: float, seed: int) -> float | None:
    """The seconds that survivors took to return; None where training was over before the kill."""
    choice = random.Random(seed)
    size, again = choice.choice([2, 4]), choice.choice([1, 2, 4])
    victim = choice.randrange(size)
    processes = start(library, folder, size)
    time.sleep(choice.random() * duration)
    os.kill(processes[victim], signal.SIGKILL)
    killed = time.monotonic()
    statuses = [wait(process, START + TIMEOUT + TOLD) for process in processes]
    seconds = time.monotonic() - killed
    if statuses == [0] * size:
        return None
    logs = [log.read_text() for log in sorted(folder.glob("rank*.log"))]
    survivors = [status for rank, status in enumerate(statuses) if rank != victim]
    # The others may have been through already when the last one to leave was killed.
    assert statuses[victim] in (-signal.SIGKILL, 0) and set(survivors) <= {LOST, 0}, (statuses, logs)
    # Whoever was told of a loss during training was told which rank. One that never came is one that has not come.
    assert all(f"rank {victim} " in log or "not come" in log or "start-up" in log or "cannot be reached" in log or
               "closed the connection" in log or "did not answer" in log for log in logs), (victim, logs)
    for log in folder.glob("rank*.log"):
        log.unlink()
    check = fork(lambda: load_all(library, folder), folder / "load.log")
    assert wait(check, 120) == 0, (folder / "load.log").read_text()
    assert finish(library, folder, again) == expected, f"other bytes after a restart on {again} processes"
    return seconds


def main() -> None:
    count, first = int(sys.argv[1]), int(sys.argv[2]) if len(sys.argv) > 2 else 0
    wrong, times = 0, []
    with tempfile.TemporaryDirectory() as place:
        folder = pathlib.Path(place)
        library = compile_model(folder)
        (folder / "whole").mkdir()
        begin = time.monotonic()
        expected = finish(library, folder / "whole", 4)
        duration = time.monotonic() - begin
        for seed in range(first, first + count):
            run = folder / str(seed)
            run.mkdir()
            try:
                seconds = kill_and_restart(library, run, expected, duration, seed)
                times += [] if seconds is None else [seconds]
            except AssertionError as error:
                wrong += 1
                print(f"seed {seed}: {error}", flush=True)
            for path in run.iterdir():
                path.unlink()
            if (seed + 1 - first) % 50 == 0:
                print(f"{seed + 1 - first} kills, {wrong} wrong", flush=True)
    times.sort()
    print(f"{len(times)} of {count} kills met training; {wrong} went wrong; survivors returned after {times[len(times) // 2]:.3f} s "
          f"(median), {times[-1]:.3f} s (longest); stated: {TIMEOUT} s, {START} s for a start")
    sys.exit(bool(wrong))


if __name__ == "__main__":
    main()
