# SPDX-License-Identifier: Apache-2.0
"""Peers of the GPU bundle that are timed in turns: their limits, ends, losses and memory, with processes that compute nothing."""
import io
import json
import os
import pathlib
import shutil
import signal
import subprocess
import sys
import time
import types

import pytest

GPU = pathlib.Path(__file__).resolve().parents[2] / "benchmarks" / "gpu"

PEER = """
import json, os, sys, time
name = sys.argv[1]
if name == "eager:crash":
    sys.exit("no such device")
if name == "compile:hang":
    sys.stdin.read()
losses = {"mpt:fp32": [2.0, 1.5], "eager:bf16": [2.01, 1.91]}.get(name, [2.0, 1.9])
print("noise", flush=True)
print(json.dumps({"peer": name, "losses": losses, "ok": True, "pid": os.getpid()}), flush=True)
rounds = 0
for line in sys.stdin:
    if line.strip() != "run":
        break
    with open(sys.argv[0] + ".order", "a") as file:
        print(name, os.getpid(), file=file)
    rounds += 1
    if name == "eager:stuck-bf16" and rounds == 3:
        time.sleep(1000)
    print(json.dumps({"times": [float(len(name))]}), flush=True)
print(json.dumps({"last": 1.0, "times": [1.0]}), flush=True)
"""


@pytest.fixture
def scripts(monkeypatch):
    monkeypatch.syspath_prepend(str(GPU))
    for name in ("standin", "trainers", "parts", "duel", "table"):  # the tests have a standin of their own
        monkeypatch.delitem(sys.modules, name, raising=False)


@pytest.fixture
def duel(scripts, tmp_path, monkeypatch):
    import duel
    monkeypatch.setattr(duel, "HERE", tmp_path)
    (tmp_path / "bench.py").write_text(PEER)
    return duel


def turns(folder) -> list:
    """(name, process) of each round."""
    path = folder / "bench.py.order"
    return [line.split() for line in path.read_text().splitlines()] if path.exists() else []


def is_running(pid) -> bool:
    try:
        return pathlib.Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0] not in "ZX"
    except FileNotFoundError:
        return False


def test_peers_run_in_turns_and_losses_are_compared(duel, tmp_path):
    peers = ["mpt:amp-bf16", "eager:crash", "eager:bf16", "mpt:fp32", "eager:fp32", "compile:hang"]
    rows = {row["peer"]: row for row in duel.duel("m", peers, [], 3, 10)}
    assert list(rows) == peers and all(row["model"] == "m" for row in rows.values())
    good = rows["mpt:amp-bf16"]
    assert good["ok"] and good["times"] == [12, 12, 12] and good["ms"] == 12 and good["last"] == 1 and good["rounds"] == 3
    assert good["compared"] == "eager:bf16" and 0.004 < good["loss_error"] < 0.006
    assert not rows["mpt:fp32"]["ok"] and "expected the losses [2.0, 1.9] of eager:fp32" in rows["mpt:fp32"]["problem"]
    assert "no such device" in rows["eager:crash"]["problem"] and "no answer" in rows["compile:hang"]["problem"]
    one = ["mpt:amp-bf16", "eager:bf16", "mpt:fp32", "eager:fp32"]
    assert [name for name, _ in turns(tmp_path)] == one + one[::-1] + one


def test_each_peer_has_a_limit_of_its_own(duel, monkeypatch):
    limits = {}

    class Peer(duel.Peer):
        def read(self, limit):
            limits.setdefault(self.name, limit)  # until it is ready
            return super().read(limit)

    monkeypatch.setattr(duel, "Peer", Peer)
    rows = duel.duel("m", ["mpt:amp-bf16", "compile:bf16", "autotune:bf16"], [], 1, 50)
    assert all(row["ok"] for row in rows), rows
    assert limits == {"mpt:amp-bf16": 50, "compile:bf16": 50, "autotune:bf16": 100}


@pytest.mark.parametrize("how", ["asked", "killed"])
def test_who_is_ended_leaves_no_peer_and_prints_whole_rounds(tmp_path, how):
    for script in ("duel.py", "parts.py", "standin.py", "trainers.py"):
        shutil.copy(GPU / script, tmp_path)
    (tmp_path / "bench.py").write_text(PEER)
    process = subprocess.Popen([sys.executable, tmp_path / "duel.py", "m", "mpt:amp-bf16", "eager:stuck-bf16", "--limit=100"], stdout=subprocess.PIPE,
                               text=True, start_new_session=True)
    while len(turns(tmp_path)) < 6:  # the last of three rounds has begun
        assert process.poll() is None
        time.sleep(0.05)
    if how == "asked":
        process.terminate()
    else:
        os.killpg(process.pid, signal.SIGKILL)
    said, _ = process.communicate(timeout=60)
    while any(is_running(pid) for _, pid in turns(tmp_path)):  # a limit of the test's runner ends this
        time.sleep(0.05)
    rows = [json.loads(line) for line in said.splitlines()]
    assert [(row["peer"], row["rounds"], len(row["times"]), row["ms"]) for row in rows] == \
        ([("mpt:amp-bf16", 2, 2, 12), ("eager:stuck-bf16", 2, 2, 16)] if how == "asked" else [])


def test_rows_come_as_they_are_printed(scripts, monkeypatch):
    import parts
    import run
    monkeypatch.setattr(run, "GRACE", 0.2)
    text = """trap '' TERM; sleep 1000 & echo "{\\"ok\\": true, \\"pid\\": $!}"; echo noise; wait; wait"""
    log, came = io.StringIO(), []
    rows = run.run_item(parts.Item("smoke", "x", ["bash", "-c", text, "bash"], 3), 3, log, {}, lambda row: came.append((row, is_running(row.get("pid")))))
    assert rows == [row for row, _ in came] and came[0][1], "the row came when all was over"
    assert not is_running(rows[0]["pid"]) and "noise" in log.getvalue()
    assert [row["ok"] for row in rows] == [True, False] and "no end within 3 s" in rows[1]["problem"]


def test_steps_that_either_side_skips_are_not_compared(duel):
    def row(peer, second, **more):
        return {"peer": peer, "losses": [2.0, second], "ok": True, **more}

    for own, theirs, is_good in ((0, 0, False), (0, 1, True), (1, 0, True)):
        rows = [row("mpt:amp-f16", 2.0 if own else 1.8, skipped=own), row("compile:f16", 2.0 if theirs else 1.7, skipped=theirs)]
        duel.compare(rows)
        assert rows[0]["ok"] == is_good, rows[0]
    rows = [row("mpt:amp-f16", 2.0), {**row("compile:f16", 2.0, skipped=1), "losses": [2.1, 2.1]}]
    duel.compare(rows)
    assert not rows[0]["ok"], "the first loss is of the weights alone"


def test_memory_of_the_device_is_read_before_others_start(scripts, monkeypatch, capsys):
    bench = pytest.importorskip("bench")
    free = [1000 * 2**20]

    class Trainer:
        def __init__(self, *_, **__):
            free[0] -= 70 * 2**20

        __enter__, __exit__ = lambda self: self, lambda self, *_: None
        step = lambda self, batch: types.SimpleNamespace(loss=1.0, skipped=False)  # noqa: E731
        start = synchronize = lambda self, *_: None  # noqa: E731
        memory = lambda self: {"peak_bytes": 2**20}  # noqa: E731
        metrics = lambda self: types.SimpleNamespace(loss=1.0)  # noqa: E731

    class Lines:
        """After "ready" another process takes memory."""

        def __iter__(self):
            ready = json.loads(capsys.readouterr().out)
            assert ready["device_mib"] == 70
            free[0] -= 500 * 2**20
            return iter(["run\n", "end\n"])

    cuda = types.SimpleNamespace(is_available=lambda: True, mem_get_info=lambda: (free[0], 0))
    monkeypatch.setitem(sys.modules, "torch", types.SimpleNamespace(cuda=cuda))
    monkeypatch.setitem(sys.modules, "models", types.SimpleNamespace(build=lambda name: types.SimpleNamespace(module=None, inputs={})))
    monkeypatch.setitem(sys.modules, "mpt", types.SimpleNamespace(Trainer=Trainer))
    monkeypatch.setattr(bench, "write_weights", lambda *_: None)
    monkeypatch.setattr(sys, "stdin", Lines())
    row = bench.mpt_peer("amp-bf16", "m", types.SimpleNamespace(scratch=None, profile=False, tiny=False, wait=True, peer="mpt:amp-bf16"))
    assert row["device_mib"] == 70 and len(row["times"]) == 1


def test_peers_of_other_items_are_no_measure(scripts):
    import table

    def row(item, peer, ms):
        return {"item": item, "part": item.split("/")[0], "model": "m", "peer": peer, "ms": ms, "peak_mib": 100 * ms, "losses": [1.0], "ok": True}

    rows = [row("speed-bf16/m/compile", "mpt:amp-bf16", 10.0), row("speed-bf16/m/compile", "compile:bf16", 15.0),
            row("speed-first/m/compile", "mpt:amp-bf16", 8.0), row("speed-first/m/compile", "compile:bf16", 4.0)]
    lines = [[cell.strip() for cell in line.split("|")[1:7]] for line in table.markdown(rows).splitlines() if "mpt:" in line]
    assert lines == [["speed-bf16/m/compile", "mpt:amp-bf16", "10.00", "1.50", "1.00", "1000"],
                     ["speed-first/m/compile", "mpt:amp-bf16", "8.00", "0.50", "1.00", "800"]]
