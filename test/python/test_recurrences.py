# SPDX-License-Identifier: Apache-2.0
"""Recurrences as calls of the runtime: which forms become one, every policy trains through them, and long sequences stay small."""
import json
import pathlib
import subprocess

import numpy as np
import onnx
import pytest
from mpt_run import tool

import mpt
import test_recurrent
from test_recurrent import Form, model_of

POLICIES = sorted(path.stem for path in (pathlib.Path(__file__).parents[2] / "lib/Precision/policies").glob("*.mlir"))
WHOLE = {
    "LSTM": Form("LSTM"),
    "LSTM-both": Form("LSTM", "bidirectional", layout=1),
    "LSTM-full-lengths": Form("LSTM", lens=[4, 4, 4]),
    "GRU-linear": Form("GRU", "reverse", before=1),
    "RNN-relu": Form("RNN", activations=["Relu"]),
    "RNN-named": Form("RNN", "bidirectional", activations=["Tanh", "Relu"]),
    "LSTM-lengths": Form("LSTM", "bidirectional", lens=[4, 2, 3]),
    "GRU-lengths": Form("GRU", "reverse", lens=[0, 4, 3], layout=1, before=1),
    "RNN-lengths": Form("RNN", lens=[1, 2, 3]),
    "GRU-reset-first": Form("GRU", "bidirectional"),
    "GRU-reset-first-lengths": Form("GRU", "reverse", lens=[1, 4, 2]),
}
UNROLLED = {
    "sequence lengths with Relu": Form("RNN", lens=[4, 2, 3], activations=["Relu"]),
    "clip": Form("GRU", clip=0.5, before=1),
    "peepholes": Form("LSTM", peepholes=True),
    "input_forget": Form("LSTM", forget=1),
    "activations other than the default": Form("RNN", activations=["Elu"]),
}


def values_of(form):
    random = np.random.default_rng(3)
    return {key: random.standard_normal(shape) * 0.5 for key, shape in form.shapes().items()}


def compiled(path, folder, *flags):
    """The kernel report, and mpt-opt's messages."""
    mpt_opt = tool().parent / "mpt-opt"
    if not mpt_opt.exists():
        pytest.skip("mpt-opt is not built")
    report = folder / "kernels.json"
    done = subprocess.run([mpt_opt, path, "--quiet", f"--report=kernels={report}", "--dry-run", *flags], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return json.loads(report.read_text()), done.stderr


@pytest.mark.parametrize("name", WHOLE)
def test_whole(name, tmp_path):
    form = WHOLE[name]
    onnx.save(model_of(form, values_of(form)), tmp_path / "m.onnx")
    report, said = compiled(tmp_path / "m.onnx", tmp_path, "--loss=none", "--optimizer=sgd,lr=0.1")
    assert report["step"]["recurrences"] == 2 * form.directions and "unrolled" not in said
    # Inputs of all steps in one GEMM and its two gradients, the recurrent weights' gradient in another; where reset comes
    # first, the last gate's weights in one of their own.
    assert report["step"]["gemms"] == (5 if form.op == "GRU" and not form.before else 4) * form.directions


@pytest.mark.parametrize("why", UNROLLED)
def test_unrolled(why, tmp_path):
    form = UNROLLED[why]
    onnx.save(model_of(form, values_of(form)), tmp_path / "m.onnx")
    report, said = compiled(tmp_path / "m.onnx", tmp_path, "--loss=none", "--optimizer=sgd,lr=0.1")
    assert report["step"]["recurrences"] == 0 and f"unrolled over its 4 steps because of {why}" in said


def drawn_whole(seed):
    """A form that becomes a call, of extents that are drawn too."""
    random = np.random.default_rng(seed)

    def maybe():
        return bool(random.random() < 0.5)

    op, extents = str(random.choice(["RNN", "LSTM", "GRU"])), [int(n) for n in random.integers([1, 1, 1, 1], [7, 35, 6, 71])]
    lens = [int(n) for n in random.integers(0, extents[0] + 1, extents[1])] if maybe() else None
    form = Form(op, str(random.choice(["forward", "reverse", "bidirectional"])), int(maybe()), before=int(op == "GRU" and maybe()),
                bias=maybe(), lens=lens, h0=maybe(), c0=maybe())
    return form, extents


@pytest.mark.parametrize("policy", ["fp32", "amp-f16", "amp-bf16"])
@pytest.mark.parametrize("seed", range(8))
def test_whole_as_unrolled(seed, policy, tmp_path, monkeypatch):
    """A clip that clips nothing has the steps unrolled: loss and gradients agree with the call's."""
    form, extents = drawn_whole(seed)
    for name, extent in zip("TNIH", extents):
        monkeypatch.setattr(test_recurrent, name, extent)
    random = np.random.default_rng(seed)
    values = {key: random.standard_normal(shape) / np.sqrt(extents[3]) for key, shape in form.shapes().items()}
    lengths = form.lens is not None and seed % 2 == 0
    found = []
    for clip in (None, 1e4):
        form.clip = clip
        model, folder = model_of(form, values), tmp_path / str(clip)
        feeds = {f"one_{key}": np.ones(shape, np.float32) for key, shape in form.shapes().items()}
        if lengths:  # known at run time alone
            model.graph.initializer.remove(next(t for t in model.graph.initializer if t.name == "lens"))
            model.graph.input.append(onnx.helper.make_tensor_value_info("lens", onnx.TensorProto.INT32, [len(form.lens)]))
            feeds["lens"] = np.array(form.lens, np.int32)
        onnx.save(model, tmp_path / "m.onnx")
        mpt.compile(tmp_path / "m.onnx", loss="none", optimizer="sgd,lr=0.1", policy=policy, quiet=True, out=folder)
        found.append(mpt.Trainer(folder, threads=1).gradients(feeds))
    (loss, gradients), (expected, wanted) = found
    tolerance = {"fp32": 2e-5, "amp-f16": 1e-2, "amp-bf16": 6e-2}[policy]
    assert loss == pytest.approx(expected, rel=tolerance, abs=1e-6)
    assert set(gradients) == set(wanted)
    whole = np.sqrt(sum(float(np.sum(np.square(g))) for g in wanted.values()))
    for key, gradient in wanted.items():
        scale = max(np.linalg.norm(gradient), 1e-2 * whole, 1e-12)
        assert np.linalg.norm(gradients[key] - gradient) <= tolerance * scale, key


def language_model(op, steps=12, batch=4, width=16, words=8, layers=2):
    """Embedding, recurrent layers, and a softmax over the words; all weights are parameters."""
    random, node = np.random.default_rng(1), onnx.helper.make_node
    op, form = op.split("-")[0], op
    gates = {"LSTM": 4, "GRU": 3}[op]
    weights = {"table": random.standard_normal((words, width)), "head": random.standard_normal((width, words)) / 4}
    nodes, last = [node("Gather", ["table", "ids"], ["x0"])], "x0"
    for i in range(layers):
        weights[f"w{i}"] = random.standard_normal((1, gates * width, width)) / 4
        weights[f"r{i}"] = random.standard_normal((1, gates * width, width)) / 4
        weights[f"b{i}"] = np.zeros((1, 2 * gates * width))
        more = {"linear_before_reset": 1} if form == "GRU" else {}
        nodes += [node(op, [last, f"w{i}", f"r{i}", f"b{i}"], [f"y{i}"], hidden_size=width, **more),
                  node("Squeeze", [f"y{i}", "one"], [f"x{i + 1}"])]
        last = f"x{i + 1}"
    nodes += [node("MatMul", [last, "head"], ["z"]), node("Reshape", [ "z", "rows"], ["logits"]),
              node("SoftmaxCrossEntropyLoss", ["logits", "next"], ["loss"])]
    tensor = onnx.helper.make_tensor_value_info
    graph = onnx.helper.make_graph(
        nodes, "lm", [tensor("ids", onnx.TensorProto.INT64, (steps, batch)), tensor("next", onnx.TensorProto.INT64, (steps * batch,))],
        [tensor("loss", onnx.TensorProto.FLOAT, [])],
        [onnx.numpy_helper.from_array(value.astype(np.float32), name) for name, value in weights.items()])
    for name, value in (("one", [1]), ("rows", [steps * batch, words])):
        graph.initializer.append(onnx.numpy_helper.from_array(np.array(value, np.int64), name))
    return onnx.helper.make_model(graph, opset_imports=[onnx.helper.make_opsetid("", 17)], ir_version=10)


@pytest.mark.parametrize("op", ["LSTM", "GRU", "GRU-reset-first"])
@pytest.mark.parametrize("policy", POLICIES)
def test_every_policy_trains(op, policy, tmp_path):
    onnx.save(language_model(op), tmp_path / "m.onnx")
    flags = ["--loss=none", "--optimizer=adamw,lr=2e-2", f"--policy={policy}"]
    report, _ = compiled(tmp_path / "m.onnx", tmp_path, *flags)
    assert report["step"]["recurrences"] == 4
    mpt.compile(tmp_path / "m.onnx", loss="none", optimizer="adamw,lr=2e-2", policy=policy, quiet=True, out=tmp_path / "out")
    trainer = mpt.Trainer(tmp_path / "out", threads=1)
    random, losses = np.random.default_rng(2), []
    for _ in range(60):
        # Each row counts on from a word of its own.
        words = (random.integers(0, 8, (1, 4)) + np.arange(13)[:, None]) % 8
        losses.append(trainer.step({"ids": words[:-1].astype(np.int64), "next": words[1:].reshape(-1).astype(np.int64)}).loss)
    assert np.isfinite(losses[-1]) and np.mean(losses[-5:]) < 0.25 * losses[0], losses


@pytest.mark.parametrize("op, per_step", [("LSTM", 1), ("GRU", 1), ("GRU-reset-first", 2)])
@pytest.mark.parametrize("policy", ["fp32", "amp-f16", "amp-bf16"])
def test_launches_of_a_step(op, per_step, policy, tmp_path):
    """On a GPU a step more of a sequence is so many GEMMs and kernels each way, and moves nothing but by them."""
    found = []
    for steps in (7, 17):
        onnx.save(language_model(op, steps=steps, layers=1), tmp_path / "m.onnx")
        report, _ = compiled(tmp_path / "m.onnx", tmp_path, "--loss=none", "--optimizer=sgd,lr=0.1", f"--policy={policy}", "--target=cuda")
        found.append(report["step"])
    assert found[0]["recurrences"] == 2
    assert {kind: found[1][kind] - found[0][kind] for kind in ("gemms", "kernels", "copies", "fills")} == \
        {"gemms": 20 * per_step, "kernels": 20 * per_step, "copies": 0, "fills": 0}


@pytest.mark.parametrize("flags", [("--to=fusion",), ("--target=cuda", "--arch=sm_90", "--to=memory", "--emit=mlir")], ids=["cpu", "cuda"])
def test_long_sequences_stay_small(flags, tmp_path):
    """About as many ops for 20,000 steps, more than are unrolled, as for 20."""
    counts = {}
    for steps in (20, 20000):
        onnx.save(language_model("LSTM", steps=steps, batch=1, width=2, layers=1), tmp_path / "m.onnx")
        done = subprocess.run([tool().parent / "mpt-opt", tmp_path / "m.onnx", "--quiet", "--loss=none", "--optimizer=sgd,lr=0.1",
                               *flags, "-o", "-"], capture_output=True, text=True)
        assert done.returncode == 0, done.stderr
        counts[steps] = done.stdout.count(" = ")
    assert 10 < counts[20] and counts[20000] < 1.5 * counts[20], counts
