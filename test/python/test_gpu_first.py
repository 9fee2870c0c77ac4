# SPDX-License-Identifier: Apache-2.0
"""The bundle's plan `first` against the fake driver, cut off at ten random places: rows survive, and a second run resumes. And its clock."""
import json
import random
import re
import shutil
import signal
import subprocess
import sys
import tarfile
import time

import gpu_bundle
import pytest

pytestmark = pytest.mark.slow

CUTS, SEED = 10, 20
MODELS = ("resnet50-gpu", "bert-gpu", "gpt2-gpu", "gpt4096-gpu")


@pytest.fixture(scope="module")
def bundle(tmp_path_factory):
    gpu_bundle.needs_standin()
    pytest.importorskip("torch")
    folder = tmp_path_factory.mktemp("gpu") / "bundle"
    gpu_bundle.pack(folder, "--models=small", "--policies=amp-bf16,autocast-cuda-bf16", "--types=f32", "--conformance=^matmul[.].*$", "--training=^own-mlp$")
    return folder


def kept_rows(archive, folder) -> list:
    """The rows that an archive brings back."""
    shutil.rmtree(folder, ignore_errors=True)
    if not archive.exists():
        return []
    with tarfile.open(archive) as file:
        file.extractall(folder, filter="data")
    return gpu_bundle.rows_of(folder / "results")


def test_first_cut_off_anywhere(bundle, tmp_path):
    """The folder of results is lost each time: the archive alone comes back."""
    out, archive, said, random_places = tmp_path / "out", tmp_path / "back" / "r.tar.gz", [], random.Random(SEED)
    for cut in range(CUTS + 1):
        before = kept_rows(archive, tmp_path / "was")
        process = subprocess.Popen(gpu_bundle.command(bundle, "first", "--tiny", f"--archive={archive}", out=out), env=gpu_bundle.environment(),
                                   stdout=subprocess.PIPE, text=True)
        if cut < CUTS:
            try:
                process.wait(random_places.uniform(0.5, 5.0))
            except subprocess.TimeoutExpired:
                process.send_signal(signal.SIGKILL if cut % 2 else signal.SIGTERM)
        told = process.communicate(timeout=300)[0]
        said += re.findall(r"^\[ *[\d.]+ s\] ([^:]+): ", told, re.M)
        rows = kept_rows(archive, tmp_path / "is")
        ended = [row["item"] for row in rows if row.get("end")]
        assert {item for item in said} <= set(ended), "an item was told of whose end did not come back"
        assert rows[:len(before)] == before, "what came back once is there for good"
        shutil.rmtree(out, ignore_errors=True)
    assert process.returncode == 0, told
    assert sorted(said) == sorted(set(said)), "what ended well is not run again"
    parts = [row["part"] for row in rows if row.get("ok")]
    assert {"smoke", "gradients", "conformance", "probe", "speed-first"} <= set(parts)
    timed = {row["peer"]: row for row in rows if row.get("peer")}
    assert set(timed) == {"mpt:amp-bf16", "mpt:autocast-cuda-bf16", "compile:bf16"}
    assert all(row["ok"] and len(row["solo"]) == 3 and row["rounds"] == 2 for row in timed.values()), timed
    assert timed["mpt:amp-bf16"]["compared"] == "compile:bf16" and 0 < timed["mpt:amp-bf16"]["gradient_share"] < 1


def test_rows_come_back_into_a_folder_that_an_item_left(tmp_path, monkeypatch):
    """A process of an item outlives a call that is killed, and writes into the folder after it is gone."""
    monkeypatch.syspath_prepend(str(gpu_bundle.GPU))
    from kept import Results
    out, archive = tmp_path / "out", tmp_path / "r.tar.gz"
    results = Results(out, archive)
    results.add(item="a", part="smoke", end=True)
    results.keep()
    results.file.close()
    shutil.rmtree(out)
    (out / "compiling").mkdir(parents=True)
    assert Results(out, archive).done() == {"a"} and (out / "table.md").exists() and (out / "compiling").exists()


def test_kernels_have_rates_and_no_mistake_in_a_table_loses_rows(bundle, tmp_path, monkeypatch):
    """The names in the compiler's report are the names that a GPU's profiler gives."""
    gpu_bundle.run(bundle, "probe", out=tmp_path / "probe")  # which extracts the data
    monkeypatch.syspath_prepend(str(bundle))
    for name in ("kept", "parts", "table"):
        monkeypatch.delitem(sys.modules, name, raising=False)
    import kept
    import parts
    import table
    known = parts.described("small", "amp-bf16")
    assert len(known) >= 5 and all(bytes > 0 for bytes in known.values())
    name = next(iter(known))
    row = {"item": "speed-first/small/compile", "part": "speed-first", "model": "small", "peer": "mpt:amp-bf16", "ok": True, "ms": 1.0, "losses": [1.0],
           "us_busy": 9.0, "us_wall": 10.0, "kernels": [[name, "[1, 1, 1]", "[32, 1, 1]", 2.0, 8.0, 40, 0], ["nvjet|x", "None", "None", 1.0, 1.0, None, None]]}
    text = table.markdown([row, {"item": "probe/machine", "part": "probe", "copy_gb_s": 4000.0}])
    assert f"| `{name}` | [1, 1, 1] | 2 | 8.0 | 40 | {2 * known[name] / 8e3:.0f} |" in text and "`nvjet/x`" in text
    results = kept.Results(tmp_path / "out", tmp_path / "r.tar.gz")
    results.add(**row)
    monkeypatch.setattr(table, "markdown", lambda *_: 1 / 0)
    results.keep()
    assert kept_rows(tmp_path / "r.tar.gz", tmp_path / "back") == [row] and "ZeroDivisionError" in (tmp_path / "out" / "table.md").read_text()


def test_a_solo_time_survives_a_peer_that_never_gets_ready(bundle, tmp_path):
    (tmp_path / "bundle").mkdir()
    for entry in bundle.iterdir():
        (tmp_path / "bundle" / entry.name).symlink_to(entry)
    (tmp_path / "bundle" / "bench.py").unlink()
    text = (bundle / "bench.py").read_text().replace("def torch_peer(", "def torch_peer(*_):\n    import time\n    time.sleep(1000)\n\n\ndef never(")
    (tmp_path / "bundle" / "bench.py").write_text(text)
    archive = tmp_path / "r.tar.gz"
    process = subprocess.Popen(gpu_bundle.command(tmp_path / "bundle", "speed-first", "--tiny", f"--archive={archive}", out=tmp_path / "out"),
                               env=gpu_bundle.environment(), stdout=subprocess.PIPE, text=True)
    deadline = time.monotonic() + 200
    while not {row["peer"] for row in kept_rows(archive, tmp_path / "was") if row.get("solo")} >= {"mpt:amp-bf16", "mpt:autocast-cuda-bf16"}:
        assert process.poll() is None and time.monotonic() < deadline
        time.sleep(0.2)
    process.send_signal(signal.SIGKILL)
    process.communicate()
    timed = [row for row in kept_rows(archive, tmp_path / "was") if row.get("peer", "").startswith("mpt") and row["ok"]]
    assert timed and all(row["ms"] > 0 for row in timed)


@pytest.fixture
def plan(tmp_path, monkeypatch):
    """Modules of the bundle, and a folder with everything that is packed by default."""
    monkeypatch.syspath_prepend(str(gpu_bundle.GPU))
    import parts
    monkeypatch.setattr(parts, "HERE", tmp_path)
    for name in [f"conformance/{file}-{kind}" for file in ("conv", "reduce") for kind in ("f32", "f16", "bf16")]:
        (tmp_path / "data" / name).mkdir(parents=True)
    small = [f"training/own-{model}/{policy}" for model in ("mlp", "gpt", "block", "shared-wgmma") for policy in ("fp32", "amp-bf16", "amp-f16", "fp8-hybrid")]
    for name in [*small, "digits/amp-bf16"]:
        (tmp_path / "data" / name).mkdir(parents=True)
        (tmp_path / "data" / name / "expected.json").write_text("{}")
    for name in [f"speed/{model}/{policy}" for model in MODELS for policy in ("amp-bf16", "autocast-cuda-bf16", "amp-f16", "fp8-hybrid")]:
        (tmp_path / "data" / name).mkdir(parents=True)
    return parts


def test_the_clock_of_first(plan):
    """The whole fits its command, and wherever it is cut, the items that tell most have come before."""
    times = plan.clock(plan.choose(plan.items(False, "/tmp"), ["first"], set()))
    assert times[-1][2] <= 470, f"expected a plan within the command's 470 s, got {times[-1][2]:.0f}"
    keys = [item.key for item, _, _ in times]
    order = ["smoke/machine-code", "gradients/amp-bf16", "conformance/f32", "digits/amp-bf16", "probe/machine", "speed-first/gpt2-gpu/compile",
             "speed-first/bert-gpu/compile", "speed-first/resnet50-gpu/compile", "speed-first/gpt4096-gpu/fp8-hybrid"]
    assert [key for key in keys if key in order] == order
    assert {item.key: item.options.get("search") for item, _, _ in times}["speed-first/resnet50-gpu/compile"] == "full"
    for at in (random.Random(SEED).uniform(0, 470) for _ in range(CUTS)):
        whole = [item.key for item, _, end in times if end <= at]
        assert ("gradients/amp-bf16" in whole) == (at >= times[1][2])
        assert at < 250 or "speed-first/gpt2-gpu/compile" in whole
    starts = {item.key: start for item, start, _ in times}
    assert starts["speed-first/gpt2-gpu/compile"] >= 110, "PyTorch has had time to compile in the background"


def test_what_first_found_decides_the_second(plan, tmp_path):
    def second(rows, done=()):
        return [item.key for item in plan.choose(plan.items(False, "/tmp", rows), ["second"], set(done))]

    first = [item.key for item in plan.choose(plan.items(False, "/tmp"), ["first"], set())]
    right = second([], first)
    assert right[0] == "ncu/gpt2-gpu/amp-bf16"
    assert [key for key in right if "speed" in key][:3] == [f"speed-f16/{model}/eager" for model in ("gpt2-gpu", "bert-gpu", "resnet50-gpu")] and not any("diagnose" in key for key in right)
    left = second([], first[:-2])
    assert left[:2] == first[-2:], "what the first had no time for comes first"
    wrong = second([{"item": "gradients/amp-bf16", "part": "gradients", "ok": False, "folder": "/data/training/own-gpt/amp-bf16"},
                    {"item": "speed-first/bert-gpu/compile", "part": "speed-first", "ok": False, "peer": "mpt:amp-bf16", "model": "bert-gpu"}], first)
    assert wrong[:2] == ["diagnose/own-gpt-amp-bf16/synchronous", "diagnose/own-gpt-amp-bf16/no-cudnn"] and "diagnose/bert-gpu/amp-bf16" in wrong[:6]


def test_hardware_counters_are_those_of_the_longest_kernels(plan):
    row = {"item": "speed-first/gpt2-gpu/compile", "part": "speed-first", "peer": "mpt:amp-bf16", "model": "gpt2-gpu", "ok": True,
           "kernels": [["kernel7", "", "", 1, 9.0, 32, 0], ["nvjet_x", "", "", 1, 8.0, 32, 0], ["kernel12", "", "", 1, 7.0, 32, 0]]}
    item, = (item for item in plan.items(False, "/tmp", [row]) if item.part == "ncu")
    assert item.late and "regex:^(kernel7|kernel12)$" in item.command
    assert json.dumps(item.command).count("launch-skip-before-match") == 1
