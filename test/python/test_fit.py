# SPDX-License-Identifier: Apache-2.0
"""mpt.fit: the data it takes, the files it keeps, and that a run that is killed ends in the bits of one that was not."""
import json
import os
import signal
import subprocess
import sys

import numpy as np
import pytest
from conftest import write_safetensors
from replica_models import classifier

import mpt
from mpt._run_folder import read_log
from mpt.train import main as train

pytestmark = pytest.mark.slow

RANDOM = np.random.default_rng(3)
KILLS = 10
CHILD = """
import os, signal, sys
import numpy as np
import mpt
mpt.use_build({build!r})
run, kill_at, how = sys.argv[1], int(sys.argv[2]), sys.argv[3]
data = np.load({data!r})
def kill(record, trainer):
    if record["kind"] == "step" and record["step"] == kill_at:
        os.kill(os.getpid(), getattr(signal, how))
mpt.fit(mpt.Trainer({library!r}, threads=1), dict(data), epochs=4, run=run, validation=dict(data), save_every=3,
        learning_rate=lambda step: 0.01 / (1 + step), callbacks=[kill], progress=False)
"""


@pytest.fixture(scope="module")
def library(tmp_path_factory):
    folder = tmp_path_factory.mktemp("fit")
    mpt.compile(classifier(folder / "model.onnx", norm=True, dropout=True), out=folder / "lib", policy="amp-f16",
                loss="softmax-cross-entropy", optimizer="adamw,lr=1e-2", clip_norm=1)
    return folder / "lib"


def data_for(library, batches: int) -> dict:
    """Samples whose class a linear function of them gives."""
    inputs = mpt.Trainer(library).inputs("step")
    (x, (_, shape)), (y, _) = [(name, value) for name, value in inputs.items() if name != "learning_rate"]
    rows = shape[0] * batches
    values = RANDOM.standard_normal((rows, *shape[1:])).astype(np.float32)
    return {x: values, y: (values.reshape(rows, -1) @ RANDOM.standard_normal((values[0].size, 2))).argmax(1)}


def state(run, step=None) -> bytes:
    found = sorted((run / "checkpoints").glob("*.safetensors"))
    return found[-1].read_bytes()


@pytest.fixture(scope="module")
def child(library, tmp_path_factory):
    """Runs fit in a process of its own, which sends itself a signal at a step."""
    folder = tmp_path_factory.mktemp("child")
    np.savez(folder / "data.npz", **data_for(library, 7))
    script = folder / "child.py"
    script.write_text(CHILD.format(build=str(os.path.abspath(mpt._native._build or "build/release")), data=str(folder / "data.npz"),
                                   library=str(library)))
    return lambda run, kill_at=-1, how="SIGKILL": subprocess.run([sys.executable, script, run, str(kill_at), how], capture_output=True, text=True)


@pytest.fixture(scope="module")
def whole(child, tmp_path_factory):
    """A run that nothing interrupted."""
    run = tmp_path_factory.mktemp("whole") / "run"
    done = child(run)
    assert done.returncode == 0, done.stderr
    assert done.stderr.count("\n") == 1 and "28 steps, 4 epochs, best val_loss" in done.stderr and str(run) in done.stderr
    return run


def test_killed_ten_times(child, whole, tmp_path):
    steps = sorted(np.random.default_rng(5).choice(np.arange(1, 28), KILLS, replace=False))
    for step in steps:
        assert child(tmp_path / "run", step).returncode == -signal.SIGKILL
    assert child(tmp_path / "run").returncode == 0
    assert state(tmp_path / "run") == state(whole)
    assert (tmp_path / "run/best.safetensors").read_bytes() == (whole / "best.safetensors").read_bytes()
    logs = []
    for run in (tmp_path / "run", whole):
        records = [json.loads(line) for line in (run / "log.jsonl").read_text().splitlines()]
        logs.append([{**record, "seconds": 0} for record in records])
    assert logs[0] == logs[1] and [r["step"] for r in logs[0] if r["kind"] == "step"] == list(range(1, 29))


@pytest.mark.parametrize("how", ["SIGINT", "SIGTERM"])
def test_interrupted_run_saves_and_goes_on(child, whole, tmp_path, how):
    done = child(tmp_path / "run", 11, how)
    assert done.returncode != 0 and "11 steps, 1 epochs (interrupted)" in done.stderr
    assert (tmp_path / "run/checkpoints/step-000000011.safetensors").exists()
    assert child(tmp_path / "run").returncode == 0
    assert state(tmp_path / "run") == state(whole)


def test_keeps_newest_and_survives_a_torn_checkpoint(library, whole, tmp_path):
    assert len(list((whole / "checkpoints").glob("*.safetensors"))) == len(list((whole / "checkpoints").glob("*.json"))) == 3
    data = data_for(library, 2)
    mpt.fit(mpt.Trainer(library, threads=1), data, epochs=3, run=tmp_path / "a", progress=False)
    mpt.fit(mpt.Trainer(library, threads=1), data, epochs=2, run=tmp_path / "b", progress=False)
    newest = sorted((tmp_path / "b/checkpoints").glob("*.safetensors"))[-1]
    newest.write_bytes(newest.read_bytes()[:-9])
    again = mpt.fit(mpt.Trainer(library, threads=1), data, epochs=3, run=tmp_path / "b", progress=False)
    assert again.place["step"] == 6 and state(tmp_path / "a") == state(tmp_path / "b")
    for file in (tmp_path / "b/checkpoints").glob("*.safetensors"):
        file.write_bytes(b"")
    with pytest.raises(ValueError, match="got none that loads.*resume=False"):
        mpt.fit(mpt.Trainer(library), data, epochs=3, run=tmp_path / "b")
    mpt.fit(mpt.Trainer(library, threads=1), data, epochs=3, run=tmp_path / "b", resume=False, progress=False)
    assert state(tmp_path / "a") == state(tmp_path / "b")


def test_forms_of_data_end_alike(library, tmp_path):
    torch = pytest.importorskip("torch")
    data = data_for(library, 3)
    size = next(iter(mpt._batches.batch_sizes(mpt.Trainer(library), "step")))
    parts = [{name: value[i * size:(i + 1) * size] for name, value in data.items()} for i in range(3)]
    os.mkdir(tmp_path / "files")
    for i, part in enumerate(parts):
        write_safetensors(tmp_path / f"files/{i}.safetensors", part)
    dataset = torch.utils.data.TensorDataset(*(torch.from_numpy(value) for value in data.values()))
    forms = {"arrays": data, "folder": tmp_path / "files", "list": parts, "tuples": [tuple(part.values()) for part in parts],
             "function": lambda: iter(parts), "loader": torch.utils.data.DataLoader(dataset, batch_size=size)}
    for name, form in forms.items():
        mpt.fit(mpt.Trainer(library, threads=1), form, epochs=2, run=tmp_path / name, shuffle=False, progress=False)
        assert state(tmp_path / name) == state(tmp_path / "arrays"), name
    shuffled = torch.utils.data.DataLoader(dataset, batch_size=size, shuffle=True)
    for run in ("first", "second"):
        torch.manual_seed(hash(run) % 1000)
        mpt.fit(mpt.Trainer(library, threads=1), shuffled, epochs=2, run=tmp_path / run, progress=False)
    assert state(tmp_path / "first") == state(tmp_path / "second") != state(tmp_path / "arrays")


def test_stops_early_calls_back_and_exports(library, tmp_path):
    onnx = pytest.importorskip("onnx")
    data, seen = data_for(library, 2), []
    found = mpt.fit(mpt.Trainer(library), data, epochs=50, run=tmp_path / "run", validation=data, patience=2, metrics={"constant": lambda o, b: 1},
                    monitor="val_constant", callbacks=[lambda record, _: seen.append(record["kind"])], save_onnx=tmp_path / "model.onnx",
                    progress=False)
    assert found.place["epoch"] == 3 and "no better val_constant for 2 epochs" in found.stopped
    assert seen.count("step") == 6 and seen.count("epoch") == 3
    onnx.checker.check_model(str(tmp_path / "model.onnx"))
    again = mpt.fit(mpt.Trainer(library), data, epochs=50, run=tmp_path / "run", validation=data, patience=2,
                    metrics={"constant": lambda o, b: 1}, monitor="val_constant", progress=False)
    assert again.place["step"] == 6, "a run that ended early is over"
    stop = mpt.fit(mpt.Trainer(library), data, epochs=5, run=tmp_path / "stop", callbacks=[lambda *_: "stop"], progress=False)
    assert stop.place["step"] == 1 and "stopped by" in stop.stopped


def test_looking_changes_nothing(library, tmp_path):
    data = data_for(library, 2)
    for name in (True, False):
        mpt.fit(mpt.Trainer(library, threads=1), data, epochs=2, run=tmp_path / str(name), watch=name, progress=False)
    assert state(tmp_path / "True") == state(tmp_path / "False")
    records = [json.loads(line) for line in (tmp_path / "True/log.jsonl").read_text().splitlines()]
    watched = [record for record in records if record["kind"] == "watch"]
    assert len(watched) == 2 and all(norm > 0 for norm in watched[0]["gradient_norms"].values())
    found = watched[0]["gradients"]
    assert sum(found["counts"]) + found["zero"] + found["infinite"] == mpt.Trainer(library).trained()["values"]


def test_says_what_does_not_fit(library, tmp_path, caplog):
    data = data_for(library, 2)
    ragged = {name: value[:-1] for name, value in data.items()}
    with caplog.at_level("INFO", logger="mpt"):
        mpt.fit(mpt.Trainer(library), ragged, epochs=2, run=tmp_path / "ragged", progress=False)
    assert sum("are left out of an epoch" in message for message in caplog.messages) == 1
    first = next(iter(data))
    for wrong, words in (({first: data[first][:4], "other": data[first][:3]}, "one number of samples"), (iter([data]), "iterated once for each epoch"),
                         (tmp_path / "nothing", "expected a folder of .safetensors files"), (3, "expected arrays by name"),
                         ([(1,)], "expected batches as dicts, or tuples of"), ([], "expected batches in the data, got none")):
        with pytest.raises((ValueError, TypeError, FileNotFoundError), match=words):
            mpt.fit(mpt.Trainer(library), wrong, epochs=1, run=tmp_path / "wrong", progress=False)
    for keywords, words in (({"epochs": 0}, "epochs of 1 or more"), ({"epochs": 1, "monitor": "val_loss"}, "expected loss as monitor")):
        with pytest.raises(ValueError, match=words):
            mpt.fit(mpt.Trainer(library), data, run=tmp_path / "wrong", **keywords)


def test_from_the_command_line(library, tmp_path):
    data = data_for(library, 3)
    (tmp_path / "samples").mkdir()
    for i in range(3):
        write_safetensors(tmp_path / f"samples/{i}.safetensors", {name: value[i::3] for name, value in data.items()})
    words = [str(library.parent / "model.onnx"), "--loss=softmax-cross-entropy", "--optimizer", "adamw,lr=1e-2", "--policy=amp-f16", "--clip-norm=1"]
    own = ["--samples", str(tmp_path / "samples"), "--epochs=2", "--threads=1"]
    assert train(words + own + [f"--run={tmp_path / 'run'}", f"--save-onnx={tmp_path / 'model.onnx'}"]) == 0
    mpt.fit(mpt.Trainer(library, threads=1), tmp_path / "samples", epochs=2, run=tmp_path / "same", progress=False)
    assert state(tmp_path / "run") == state(tmp_path / "same")
    assert (tmp_path / "run/report.html").exists() and (tmp_path / "model.onnx").exists()
    assert train(words + [*own[:2], "--epochs=3", f"--run={tmp_path / 'run'}"]) == 0
    assert len(read_log(tmp_path / "run/log.jsonl")) > len(read_log(tmp_path / "same/log.jsonl"))


def test_command_line_says_what_is_wrong(library, tmp_path, capsys):
    assert train([str(library.parent / "model.onnx"), "--optimiser=sgd", f"--samples={tmp_path}", "--epochs=1", f"--run={tmp_path / 'run'}"]) == 1
    assert "unknown flag '--optimiser'; near it: '--optimizer'" in capsys.readouterr().err
    assert train([str(library.parent / "model.onnx"), "--loss=mse", f"--samples={tmp_path / 'none'}", "--epochs=1", f"--run={tmp_path / 'run'}"]) == 1
    assert "expected a folder of .safetensors files" in capsys.readouterr().err
