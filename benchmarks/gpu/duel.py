# SPDX-License-Identifier: Apache-2.0
"""Peers' training steps of one model, timed in turns: duel.py MODEL PEER... [--tiny], with bench.py's peers.

Each peer is a process that makes its model, warms up and waits. Then they run in turns, in another order each round, so that a GPU
that warms up or is shared slows all of them. Prints a JSON line a peer as bench.py does, with the losses compared: those of a peer
of ours with those of a PyTorch peer, from the same weights and batch. A peer that fails or takes too long stops no other: each has
a limit of its own until it is ready. On SIGTERM the peers are ended, and whole rounds that were taken until then are printed.
"""
from __future__ import annotations

import argparse
import json
import os
import pathlib
import selectors
import signal
import statistics
import subprocess
import sys
import tempfile
import time

import parts
import standin
import trainers

HERE = pathlib.Path(__file__).resolve().parent
ROUNDS = 10
# Relative, of the first losses: what the arithmetic of both sides may differ by.
LIMITS = {"fp32": 1e-4, "tf32": 2e-3, "f16": 1e-2, "bf16": 2e-2, "fp8": 6e-2}


def kind_of(peer: str) -> str:
    kept = peer.split(":")[1]
    return next(kind for kind in ("fp32", "tf32", "fp8", "bf16", "f16") if kind in kept)


def compare(rows: list) -> None:
    """Fails rows of ours whose first losses are not those of PyTorch: of the same type where a peer has it, else of any."""
    theirs = [row for row in rows if row.get("losses") and not row["peer"].startswith("mpt") and row["ok"]]
    for row in rows:
        if not row["peer"].startswith("mpt") or not row.get("losses") or not row["ok"]:
            continue
        same = [t for t in theirs if kind_of(t["peer"]) == kind_of(row["peer"])] or theirs
        if not same:
            row["compared"] = "nothing"
            continue
        # A step that either side's loss scaling skips repeats the loss: the first one is that of the weights alone.
        skipped = row.get("skipped") or same[0].get("skipped")
        errors = [abs(a - b) / max(abs(b), 1e-30) for a, b in zip(row["losses"], same[0]["losses"])]
        limit = max(LIMITS[kind_of(row["peer"])], LIMITS[kind_of(same[0]["peer"])])
        row.update(compared=same[0]["peer"], loss_error=max(errors[:1] if skipped else errors))
        if not row["loss_error"] <= limit and not standin.is_dry():
            row.update(ok=False, problem=f"expected the losses {same[0]['losses']} of {same[0]['peer']} within {limit:g}, got {row['losses']}")


class Stopped(Exception):
    """SIGTERM came."""


class Peer:
    """A process of bench.py that times a round whenever it is told to. It stays in this process's group, so that who ends the group
    ends the peers too, which hold the GPU."""

    def __init__(self, name: str, model: str, words: list):
        self.row, self.times, self.name = None, [], name
        command = [sys.executable, str(HERE / "bench.py"), name, model, "--wait", *words]
        self.said, self.log = b"", tempfile.TemporaryFile()  # a pipe that nobody reads would fill up
        self.process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=self.log)

    def read(self, limit: float):
        """The next line's object; None, and the row then says why, when none comes in time."""
        waiting = selectors.DefaultSelector()
        waiting.register(self.process.stdout, selectors.EVENT_READ)
        deadline, problem = time.monotonic() + limit, f"no answer within {limit:.0f} s"
        while True:
            line, more, rest = self.said.partition(b"\n")
            if more:
                self.said = rest
                if line.startswith(b"{"):
                    return json.loads(line)
                continue
            if not waiting.select(max(0, deadline - time.monotonic())):
                break
            if piece := os.read(self.process.stdout.fileno(), 1 << 16):
                self.said += piece
                continue
            self.process.wait()
            self.log.seek(0)
            problem = f"status {self.process.returncode}: " + " | ".join(self.log.read().decode(errors="replace").strip().splitlines()[-3:])[-600:]
            break
        self.stop()
        self.row = {**(self.row or {"peer": self.name}), "ok": False, "problem": problem}
        return None

    def round(self, limit: float) -> None:
        try:
            self.process.stdin.write(b"run\n")
            self.process.stdin.flush()
        except OSError:  # read() says why
            pass
        if answer := self.read(limit):
            self.times += answer["times"]

    def stop(self) -> None:
        if self.process.poll() is None:
            self.process.kill()
            self.process.wait()

    def end(self) -> None:
        try:
            self.process.stdin.write(b"end\n")
            self.process.stdin.close()
        except OSError:
            pass
        if answer := self.read(60):
            self.row.update(answer)
        self.stop()


def take_turns(peers: list, model: str, names: list, words: list, rounds: int, limit: float) -> None:
    """Fills `peers` with one of each name, ready one after the other (what compiles would disturb what is measured), then times them."""
    for name in names:
        peer = Peer(name, model, words)
        peers.append(peer)
        if row := peer.read(parts.limit_of(name, limit)):
            peer.row = row
    alive = [peer for peer in peers if peer.row.get("ok")]
    for number in range(rounds):
        alive = [peer for peer in alive if peer.row["ok"]]
        for peer in alive if number % 2 == 0 else reversed(alive):
            peer.round(60)
    for peer in alive:
        if peer.row["ok"]:
            peer.end()


def duel(model: str, names: list, words: list, rounds: int, limit: float) -> list:
    """A row a peer; `limit`: seconds until a peer is ready."""
    peers = []
    try:
        take_turns(peers, model, names, words, rounds, limit)
    except Stopped:
        pass
    for peer in peers:
        peer.stop()
    timed = [peer for peer in peers if peer.row and peer.row.get("ok")]
    whole = min((len(peer.times) for peer in timed), default=0)
    for peer in timed:
        if whole:
            peer.row.update(times=peer.times[:whole], ms=statistics.median(peer.times[:whole]), rounds=whole)
        else:
            peer.row.update(ok=False, problem="stopped before the first round")
    rows = [{"model": model, **(peer.row or {"peer": peer.name, "ok": False, "problem": "stopped before it was ready"})} for peer in peers]
    compare(rows)
    return rows


def main() -> None:
    parse = argparse.ArgumentParser()
    parse.add_argument("model")
    parse.add_argument("peers", nargs="+")
    parse.add_argument("--tiny", action="store_true")
    parse.add_argument("--scratch", default=None)
    parse.add_argument("--limit", type=float, default=400, help="seconds until a peer is ready, each; twice that with max-autotune")
    trainers.add_argument(parse)
    a = parse.parse_args()

    def stop(*_):
        signal.signal(signal.SIGTERM, signal.SIG_IGN)  # once is enough
        raise Stopped

    signal.signal(signal.SIGTERM, stop)
    trainers.take(a.option)
    words = [*(["--tiny"] if a.tiny else []), *(["--scratch", a.scratch] if a.scratch else []), *trainers.words(trainers.options)]
    for row in duel(a.model, a.peers, words, 2 if a.tiny else ROUNDS, a.limit):
        print(json.dumps(row), flush=True)


if __name__ == "__main__":
    main()
