# SPDX-License-Identifier: Apache-2.0
"""Parameters without narrow copies (--masters=packed): the bits of a step that keeps copies, on any number of processes, and states
that each of the two reads of the other. As a script, `test_packed_masters.py STEPS`: the same over so many steps."""
import json
import pathlib
import sys
import tempfile

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

import mpt
from mpt_run import read_tensors
from test_shard_optimizer import on_ranks

ROWS, WORDS, WIDTH, V = 16, 176, 40, 4
POLICIES = ["amp-f16", "amp-bf16"]
COPIED, PACKED = {"masters": "copied"}, {"masters": "packed"}


def tied(path):
    """ids [rows, 5] and x [rows, WIDTH] to scores of words: a table that is both gathered from and multiplied with, two layers with
    biases, and a parameter that a kernel reads, so that it keeps its copy."""
    random = np.random.default_rng(0)
    weights = {"table": random.standard_normal((WORDS, WIDTH)) * 0.3, "w1": random.standard_normal((WIDTH, 56)) * 0.2,
               "b1": np.zeros(56), "w2": random.standard_normal((56, WIDTH)) * 0.2, "gate": np.ones((ROWS, WIDTH))}
    nodes = [helper.make_node("Gather", ["table", "ids"], ["words"], name="embed"),
             helper.make_node("ReduceMean", ["words"], ["mean"], name="mean", axes=[1], keepdims=0),
             helper.make_node("Add", ["mean", "x"], ["sum"], name="sum"),
             helper.make_node("Gemm", ["sum", "w1", "b1"], ["h"], name="fc1"), helper.make_node("Relu", ["h"], ["a"], name="relu"),
             helper.make_node("MatMul", ["a", "w2"], ["o"], name="fc2"), helper.make_node("Mul", ["o", "gate"], ["g"], name="gate"),
             helper.make_node("Gemm", ["g", "table"], ["scores"], name="head", transB=1)]
    graph = helper.make_graph(nodes, "tied", [helper.make_tensor_value_info("ids", TensorProto.INT64, [ROWS, 5]),
                                              helper.make_tensor_value_info("x", TensorProto.FLOAT, [ROWS, WIDTH])],
                              [helper.make_tensor_value_info("scores", TensorProto.FLOAT, [ROWS, WORDS])],
                              [numpy_helper.from_array(value.astype(np.float32), name) for name, value in weights.items()])
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8), path)
    return path


def batch(step, replicas=1, bad=False):
    random = np.random.default_rng(step)
    x = random.standard_normal((replicas * ROWS, WIDTH)).astype(np.float32)
    if bad:
        x[3, 0] = np.inf
    return {"ids": random.integers(0, WORDS, (replicas * ROWS, 5)), "x": x, "labels": random.integers(0, WORDS, replicas * ROWS)}


def build(folder, policy, name, **flags):
    model = folder / "tied.onnx"
    options = {"loss": "softmax-cross-entropy", "optimizer": "adamw,lr=1e-2", "policy": policy, "name": "model", **flags}
    return mpt.compile(model if model.exists() else tied(model), out=folder / f"{policy}-{name}", **options)


def bad_of(policy):
    return (2,) if policy == "amp-f16" else ()


def train(trainer, policy, first, last, replicas=1):
    return [trainer.step(batch(step, replicas, step in bad_of(policy))).loss.hex() for step in range(first, last)]


def wide(state):
    """Of a saved state, the FP32 values of parameters and all else but copies."""
    return {name.removesuffix(".master"): value for name, value in state.items() if f"{name}.master" not in state}


def same(a, b):
    a, b = wide(read_tensors(a)), wide(read_tensors(b))
    assert a.keys() == b.keys()
    for name, value in a.items():
        assert value.dtype == b[name].dtype and value.tobytes() == b[name].tobytes(), name


@pytest.mark.parametrize("policy", POLICIES)
def test_bits_are_those_of_copies_and_states_are_read_both_ways(tmp_path, policy, steps=40):
    copied, packed = build(tmp_path, policy, "copied", **COPIED), build(tmp_path, policy, "packed", **PACKED)
    assert copied != packed
    libraries = {"copied": copied, "packed": packed}
    losses, files = {}, {}
    for name, library in libraries.items():
        trainer = mpt.Trainer(library, threads=1)
        losses[name] = train(trainer, policy, 0, steps)
        trainer.save(files.setdefault(name, tmp_path / f"{name}.state"))
    assert losses["copied"] == losses["packed"] and len(set(losses["copied"])) > steps // 2
    same(files["copied"], files["packed"])
    names = read_tensors(files["packed"])
    # The table and both weights have no copies; the parameters that kernels read have one.
    assert {name for name in names if name.endswith(".master")} == {"b1.master", "gate.master"}
    assert {"table.master", "w1.master", "w2.master"} <= read_tensors(files["copied"]).keys()
    further = {}
    for name, library in libraries.items():
        for source, file in files.items():
            trainer = mpt.Trainer(library, threads=1)
            trainer.load(file)
            further[name, source] = train(trainer, policy, steps, steps + 5)
            trainer.save(tmp_path / f"{name}-{source}.state")
            same(tmp_path / f"{name}-{source}.state", tmp_path / "copied-copied.state")
            # As initial values too.
            started = mpt.Trainer(library, threads=1, weights=file)
            for parameter, value in wide(read_tensors(files["copied"])).items():
                if parameter in started.parameters():
                    assert np.array_equal(started.parameter(parameter), value), parameter
    assert len({tuple(seen) for seen in further.values()}) == 1


@pytest.mark.parametrize("policy", POLICIES)
def test_a_damaged_state_of_the_other_layout_is_refused(tmp_path, policy):
    copied, packed = build(tmp_path, policy, "copied", **COPIED), build(tmp_path, policy, "packed", **PACKED)
    mpt.Trainer(copied).save(tmp_path / "state")
    text = bytearray((tmp_path / "state").read_bytes())
    text[-8] ^= 1
    (tmp_path / "state").write_bytes(text)
    with pytest.raises(mpt.Error, match="the file is damaged"):
        mpt.Trainer(packed).load(tmp_path / "state")


@pytest.mark.parametrize("policy", POLICIES)
def test_processes_and_shards_have_the_same_bits(tmp_path, policy, steps=12):
    one = build(tmp_path, policy, "copied", replicas=V, **COPIED)
    packed = build(tmp_path, policy, "packed", replicas=V, **PACKED)
    sharded = build(tmp_path, policy, "sharded", replicas=V, shard_optimizer=True)
    trainer = mpt.Trainer(one, threads=1)
    expected = train(trainer, policy, 0, steps, V)
    trainer.save(tmp_path / "expected.state")
    for name, library in {"packed": packed, "sharded": sharded}.items():
        for size in (1, 2, 4):
            def body(world):
                trainer = mpt.Trainer(library, threads=1, world=world)
                losses = []
                for step in range(steps):
                    inputs = batch(step, V, step in bad_of(policy))
                    losses.append(trainer.step({key: np.split(rows, size)[world.rank] for key, rows in inputs.items()}).loss.hex())
                trainer.save(tmp_path / f"{name}{size}.state")
                return losses
            (tmp_path / f"{name}{size}").mkdir()
            assert on_ranks(size, tmp_path / f"{name}{size}", body) == [expected] * size
            same(tmp_path / f"{name}{size}.state", tmp_path / "expected.state")
    trainer = mpt.Trainer(packed, threads=1)
    trainer.load(tmp_path / "sharded4.state")
    trainer.save(tmp_path / "again.state")
    same(tmp_path / "again.state", tmp_path / "expected.state")


def test_default_and_report(tmp_path):
    """Large parameters alone by default; the report has the bytes that they save."""
    random = np.random.default_rng(0)
    weights = {"w1": random.standard_normal((64, 1024)) * 0.1, "w2": random.standard_normal((1024, 3)) * 0.1}
    nodes = [helper.make_node("MatMul", ["x", "w1"], ["h"], name="fc1"), helper.make_node("Relu", ["h"], ["a"], name="relu"),
             helper.make_node("MatMul", ["a", "w2"], ["y"], name="fc2")]
    graph = helper.make_graph(nodes, "large", [helper.make_tensor_value_info("x", TensorProto.FLOAT, [8, 64])],
                              [helper.make_tensor_value_info("y", TensorProto.FLOAT, [8, 3])],
                              [numpy_helper.from_array(value.astype(np.float32), name) for name, value in weights.items()])
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8), tmp_path / "large.onnx")
    peaks = {}
    for masters in (None, "copied", "packed"):
        report = tmp_path / f"{masters}.json"
        flags = {"masters": masters} if masters else {}
        library = mpt.compile(tmp_path / "large.onnx", loss="mse", optimizer="sgd,lr=0.1", policy="amp-f16", mcpu="x86-64-v3",
                              out=tmp_path / str(masters), report=f"memory={report}", **flags)
        made = json.loads(report.read_text())
        rung = made["rungs"]["packed_masters"]
        sizes = {None: [64 * 1024], "copied": [], "packed": [64 * 1024, 3 * 1024]}[masters]
        assert (rung["parameters"], rung["saves"]) == (len(sizes), 2 * sum(sizes)) and rung["copies_left"] == 2 * (67 * 1024 - sum(sizes))
        # Forward and, behind the first layer, backward.
        assert rung["step_reads_more"] == {None: 2 * 64 * 1024, "copied": 0, "packed": 2 * (64 + 3 + 3) * 1024}[masters]
        peaks[masters] = made["functions"]["step"]["peak"]
        assert mpt.Trainer(library).memory()["state_bytes"] >= sum(made["state"].values())
    assert peaks["copied"] - peaks[None] == 2 * 64 * 1024 and peaks["packed"] < peaks[None]


@pytest.mark.parametrize("flags, message", [({"policy": "fp32"}, "expected a parameter whose readers all round it for --masters=packed"),
                                            ({"policy": "amp-f16", "emit": "onnx"}, "expected a library for --masters=packed, got --emit=onnx")])
def test_where_nothing_is_packed(tmp_path, flags, message):
    with pytest.raises(mpt.CompileError, match=message):
        build(tmp_path, flags.pop("policy"), "refused", **PACKED, **flags)


if __name__ == "__main__":
    for policy in POLICIES:
        for test in (test_bits_are_those_of_copies_and_states_are_read_both_ways, test_processes_and_shards_have_the_same_bits):
            with tempfile.TemporaryDirectory() as folder:
                test(pathlib.Path(folder), policy, steps=int(sys.argv[1]))
            print(policy, test.__name__, "passed over", sys.argv[1], "steps")
