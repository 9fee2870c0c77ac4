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

import pytest

pytestmark = pytest.mark.slow

GPU = pathlib.Path(__file__).resolve().parents[2] / "benchmarks" / "gpu"

PEER = """
import json, os, sys, time
name = sys.argv[1]
if name == "eager:crash":
    sys.exit("no such device")
if name == "compile:hang":
    sys.stdin.read()
wrong = {"ok": False, "problem": "gradients"} if name == "mpt:wrong-bf16" else {}
losses = {"mpt:fp32": [2.0, 1.5], "eager:bf16": [2.01, 1.91]}.get(name, [2.0, 1.9])
print("noise", flush=True)
print(json.dumps({"peer": name, "losses": losses, "ok": True, "pid": os.getpid(), **wrong}), flush=True)
rounds = 0
for line in sys.stdin:
    if line.strip() != "run":
        break
    with open(sys.argv[0] + ".order", "a") as file:
        print(name, os.getpid(), file=file)
    rounds += 1
    if name == "eager:stuck-bf16" and rounds == 6:
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
    assert [name for name, _ in turns(tmp_path)][3 * len(one):] == one + one[::-1] + one, "behind three rounds of each alone"


def test_a_wrong_step_is_timed_and_stays_wrong(duel, scripts):
    import table
    rows = duel.duel("m", ["mpt:wrong-bf16", "eager:bf16"], [], 2, 10)
    assert not rows[0]["ok"] and rows[0]["rounds"] == 2 and rows[0]["last"] == 1, "its kernels tell where time goes"
    assert any("mpt:wrong-bf16 (wrong)" in line for line in table.speeds([{**row, "item": "x", "part": "speed"} for row in rows]))


def test_each_peer_has_a_limit_of_its_own(duel, monkeypatch):
    limits = {}

    class Peer(duel.Peer):
        def __init__(self, *words):
            super().__init__(*words)
            limits[self.name] = self.limit  # until it is ready

    monkeypatch.setattr(duel, "Peer", Peer)
    rows = duel.duel("m", ["mpt:amp-bf16", "compile:bf16", "autotune:bf16"], [], 1, 50)
    assert all(row["ok"] for row in rows), rows
    assert limits == {"mpt:amp-bf16": 50, "compile:bf16": 50, "autotune:bf16": 100}


@pytest.mark.parametrize("how", ["asked", "killed"])
def test_who_is_ended_leaves_no_peer_and_prints_whole_rounds(tmp_path, how):
    for script in ("duel.py", "gradients.py", "kernels.py", "parts.py", "standin.py", "trainers.py"):
        shutil.copy(GPU / script, tmp_path)
    (tmp_path / "bench.py").write_text(PEER)
    process = subprocess.Popen([sys.executable, tmp_path / "duel.py", "m", "mpt:amp-bf16", "eager:stuck-bf16", "--limit=100"], stdout=subprocess.PIPE,
                               text=True, start_new_session=True)
    while len(turns(tmp_path)) < 12:  # the last of three rounds in turns has begun
        assert process.poll() is None
        time.sleep(0.05)
    if how == "asked":
        process.terminate()
    else:
        os.killpg(process.pid, signal.SIGKILL)
    said, _ = process.communicate(timeout=60)
    while any(is_running(pid) for _, pid in turns(tmp_path)):  # a limit of the test's runner ends this
        time.sleep(0.05)
    rows = {row["peer"]: row for row in map(json.loads, said.splitlines())}
    assert [(name, row["rounds"], len(row["solo"]), row["ms"]) for name, row in sorted(rows.items(), reverse=True)] == \
        [("mpt:amp-bf16", 2 if how == "asked" else 0, 3, 12), ("eager:stuck-bf16", 2 if how == "asked" else 0, 3, 16)]


def test_rows_come_as_they_are_printed(scripts, monkeypatch):
    import parts
    import run
    monkeypatch.setattr(run, "GRACE", 0.2)
    text = """trap '' TERM; sleep 1000 & echo "{\\"ok\\": true, \\"pid\\": $!}"; echo noise; wait; wait"""
    log, came = io.StringIO(), []
    rows = run.run_item(parts.Item("smoke", "x", ["bash", "-c", text, "bash"], 8), 8, log, {}, lambda row: came.append((row, is_running(row.get("pid")))))
    assert rows == [row for row, _ in came] and came[0][1], "the row came when all was over"
    assert not is_running(rows[0]["pid"]) and "noise" in log.getvalue()
    assert [row["ok"] for row in rows] == [True, False] and "no end within 8 s" in rows[1]["problem"]


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


def test_who_is_ready_first_is_timed_alone_at_once(duel, tmp_path):
    told = []
    peers = ["mpt:amp-bf16", "compile:hang", "eager:bf16"]
    rows = duel.duel("m", peers, [], 1, 3, lambda rows: told.append({row["peer"]: row for row in rows}))
    assert [name for name, _ in turns(tmp_path)].count("mpt:amp-bf16") == 4, "three rounds alone, one in turns"
    first = next(rows for rows in told if "compile:hang" not in rows)
    assert all(row["solo_ms"] == len(name) and row["rounds"] == 0 for name, row in first.items())
    assert [row["ok"] for row in rows] == [True, False, True] and "no answer within 3 s" in rows[1]["problem"]


def test_peers_of_other_items_are_no_measure(scripts):
    import table

    def row(item, peer, ms):
        return {"item": item, "part": item.split("/")[0], "model": "m", "peer": peer, "ms": ms, "peak_mib": 100 * ms, "losses": [1.0], "ok": True}

    rows = [row("speed-bf16/m/compile", "mpt:amp-bf16", 10.0), row("speed-bf16/m/compile", "compile:bf16", 15.0),
            row("speed-first/m/compile", "mpt:amp-bf16", 8.0), row("speed-first/m/compile", "compile:bf16", 4.0)]
    lines = [[cell.strip() for cell in line.split("|")[1:9] if cell.strip() not in ("-", "0")] for line in table.markdown(rows).splitlines() if "mpt:" in line]
    assert lines == [["speed-bf16/m/compile", "mpt:amp-bf16", "10.00", "1.50", "1.00", "1000"],
                     ["speed-first/m/compile", "mpt:amp-bf16", "8.00", "0.50", "1.00", "800"]]
