# SPDX-License-Identifier: Apache-2.0
"""Peers' training steps of one model, timed alone and in turns: duel.py MODEL PEER... [--tiny], with bench.py's peers.

Each peer is a process that makes its model, warms up and waits. All start at once, but one alone uses the GPU. Who is ready is timed
right away, so that a number survives whatever comes. When all are ready they run in turns, in another order each round, so that a GPU that warms up or is
shared slows all of them; last each writes down its kernels. Prints a JSON line a peer as bench.py does whenever there is more to say
of it: the last one holds. Losses of a peer of ours are compared with a PyTorch peer's, from the same weights and batch. A peer
that fails or takes too long stops no other: each has a limit of its own until it is ready. On SIGTERM the peers are ended, and
results so far are printed.
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

import gradients
import parts
import standin
import trainers

HERE = pathlib.Path(__file__).resolve().parent
ROUNDS, SOLO = 10, 3  # in turns, and alone (bench.py)
# Relative, of the first losses: the differences that the arithmetic of both sides may cause.
LIMITS = {"fp32": 1e-4, "tf32": 2e-3, "f16": 1e-2, "bf16": 2e-2, "fp8": 6e-2}


def kind_of(peer: str) -> str:
    return gradients.kind_of(peer.split(":")[1])


def compare(rows: list) -> None:
    """Fails rows of ours whose first losses are not PyTorch's: of the same type where a peer has it, else of any."""
    theirs = [row for row in rows if row.get("losses") and not row["peer"].startswith("mpt") and row["ok"]]
    for row in rows:
        if not row["peer"].startswith("mpt") or not row.get("losses") or not row["ok"]:
            continue
        same = [t for t in theirs if kind_of(t["peer"]) == kind_of(row["peer"])] or theirs
        if not same:
            row["compared"] = "nothing"
            continue
        # A step that either side's loss scaling skips repeats the loss: the first one is by the weights alone.
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

    def __init__(self, name: str, model: str, words: list, limit: float):
        self.row, self.times, self.solo, self.name, self.limit = None, [], [], name, limit
        self.deadline = time.monotonic() + limit  # until it is ready
        self.runs = False  # it was ready, and has answered since; a step that is wrong is timed too: its kernels tell where time goes
        command = [sys.executable, str(HERE / "bench.py"), name, model, "--wait", *words]
        self.said, self.log = b"", tempfile.TemporaryFile()  # a pipe that nobody reads would fill up
        self.process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=self.log)

    def hears(self) -> bool:
        """Takes a piece of output; whether it completes an answer, or is the end."""
        piece = os.read(self.process.stdout.fileno(), 1 << 16)
        self.said += piece
        return not piece or any(line.startswith(b"{") for line in self.said.split(b"\n")[:-1])

    def read(self, limit: float, told: float = 0):
        """The next line's object; None, and the row then says why, when none comes within `limit` s, of `told` in all."""
        waiting = selectors.DefaultSelector()
        waiting.register(self.process.stdout, selectors.EVENT_READ)
        deadline, problem = time.monotonic() + limit, f"no answer within {told or limit:.0f} s"
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
        self.runs = False
        self.row = {**(self.row or {"peer": self.name}), "ok": False, "problem": problem}
        return None

    def round(self, limit: float) -> list:
        try:
            self.process.stdin.write(b"run\n")
            self.process.stdin.flush()
        except OSError:  # read() says why
            pass
        answer = self.read(limit)
        return answer["times"] if answer else []

    def begin(self) -> None:
        """Its row when it is ready, and rounds alone."""
        if row := self.read(max(0.0, self.deadline - time.monotonic()), self.limit):
            self.row, self.runs = row, True
            for _ in range(SOLO):
                self.solo += self.round(60) if self.runs else []

    def known(self) -> dict:
        """The row of it so far."""
        row = dict(self.row or {"peer": self.name, "ok": False, "problem": "stopped before it was ready"})
        if self.solo:
            row.update(solo=self.solo, solo_ms=statistics.median(self.solo), ms=statistics.median(self.solo), rounds=0)
        elif row.get("ok"):
            row.update(ok=False, problem="stopped before the first round")
        return row

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
            self.row.update({key: value for key, value in answer.items() if key != "times"})
        self.stop()


def make_ready(peers: list, tell) -> None:
    """Each peer alone as soon as it is ready; `tell` is called after each."""
    waiting = selectors.DefaultSelector()
    for peer in peers:
        waiting.register(peer.process.stdout, selectors.EVENT_READ, peer)
    while waiting.get_map():
        expected = [key.data for key in waiting.get_map().values()]
        spoken = [key.data for key, _ in waiting.select(max(0.0, min(peer.deadline for peer in expected) - time.monotonic()))]
        for peer in [peer for peer in expected if peer in spoken and peer.hears() or peer.deadline <= time.monotonic()]:
            waiting.unregister(peer.process.stdout)
            peer.begin()
            tell()


def take_turns(peers: list, rounds: int) -> None:
    for number in range(rounds):
        alive = [peer for peer in peers if peer.runs]
        for peer in alive if number % 2 == 0 else reversed(alive):
            peer.times += peer.round(60)


def rows_of(model: str, peers: list) -> list:
    """The rows so far: medians of whole rounds, or of rounds alone, and losses compared."""
    rows = [{"model": model, **peer.known()} for peer in peers]
    timed = [(peer, row) for peer, row in zip(peers, rows) if peer.runs]
    whole = min((len(peer.times) for peer, _ in timed), default=0)
    for peer, row in timed if whole else ():
        row.update(times=peer.times[:whole], ms=statistics.median(peer.times[:whole]), rounds=whole)
    compare(rows)
    return rows


def duel(model: str, names: list, words: list, rounds: int, limit: float, tell=lambda rows: None) -> list:
    """A row a peer; `limit`: seconds until a peer is ready. `tell` gets rows as more is known."""
    peers = []
    try:
        peers += [Peer(name, model, words, parts.limit_of(name, limit)) for name in names]
        make_ready(peers, lambda: tell([row for peer, row in zip(peers, rows_of(model, peers)) if peer.row]))
        take_turns(peers, rounds)
        tell(rows_of(model, peers))
        for peer in peers:
            if peer.runs:
                peer.end()
    except Stopped:
        pass
    for peer in peers:
        peer.stop()
    return rows_of(model, peers)


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
    said = {}

    def tell(rows: list) -> None:
        for row in rows:
            if said.get(row["peer"]) != row:
                print(json.dumps(row), flush=True)
                said[row["peer"]] = row

    tell(duel(a.model, a.peers, words, 2 if a.tiny else ROUNDS, a.limit, tell))


if __name__ == "__main__":
    main()
