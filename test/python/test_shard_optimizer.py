# SPDX-License-Identifier: Apache-2.0
"""Masters and optimizer state divided over replicas (--shard-optimizer): the bits of a step that divides nothing, on any number of processes;
memory, bytes on the wire, saved states in one file and in shards. Gradients that travel in BF16 (--reduce-type)."""
import json
import os
import pathlib
import re
import signal
import subprocess
import sys
import time

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

import mpt
import world_restarts
from mpt_run import read_tensors, write_tensors
from replica_models import ROWS, batch, classifier
from test_replicas import FLAGS, tool
from test_world_training import environment
from world_processes import free_port, run_mpi

V = 4
POLICIES = ["fp32", "amp-f16", "amp-bf16", "als-f16", "fp8-hybrid", "fp8-e5m2", "pure-f16-static", "bf16-kahan"]
OPTIMIZERS = ["sgd,lr=1e-2", "sgd,lr=1e-2,momentum=0.9", "adam,lr=1e-2", "adamw,lr=1e-2", "adagrad,lr=1e-2", "rmsprop,lr=1e-3",
              "lion,lr=1e-3"]


def build(folder, model, sharded, **flags):
    options = {"loss": "softmax-cross-entropy", "optimizer": "adamw,lr=1e-2", **flags}
    return mpt.compile(model, out=folder / ("sharded" if sharded else "whole"), name="model", replicas=V,
                       shard_optimizer=True if sharded else None, **options)


def train(library, steps=6, bad=(2,), file=None):
    trainer = mpt.Trainer(library, threads=1)
    losses = []
    for step in range(steps):
        inputs = batch(V, seed=step)
        if step in bad:
            inputs["x"][ROWS + 1, 0] = np.inf
        result = trainer.step(inputs)
        losses.append((result.loss.hex(), result.skipped))
    if file:
        trainer.save(file)
    return losses, trainer


@pytest.mark.parametrize("policy", POLICIES)
def test_bits_are_those_of_a_step_that_divides_nothing(tmp_path, policy):
    model = classifier(tmp_path / "model.onnx", norm=True, dropout=True, inner=2)
    bad = () if policy in ("fp32", "amp-bf16", "pure-f16-static", "bf16-kahan") else (2,)
    whole, _ = train(build(tmp_path, model, False, policy=policy), bad=bad, file=tmp_path / "whole.state")
    library = build(tmp_path, model, True, policy=policy)
    assert mpt.Trainer(library).manifest["shards"]["bytes"] > 0
    sharded, trainer = train(library, bad=bad, file=tmp_path / "sharded.state")
    assert sharded == whole and any(skipped for _, skipped in whole) == bool(bad)
    assert (tmp_path / "sharded.state").read_bytes() == (tmp_path / "whole.state").read_bytes()
    expected = read_tensors(tmp_path / "whole.state")
    for name, value in trainer.state().items():
        assert value.tobytes() == expected[name].tobytes(), name


@pytest.mark.parametrize("optimizer", OPTIMIZERS)
@pytest.mark.parametrize("policy", ["fp32", "amp-f16"])
def test_every_optimizer_that_works_element_by_element(tmp_path, policy, optimizer):
    model = classifier(tmp_path / "model.onnx")
    flags = {"policy": policy, "optimizer": optimizer}
    whole, _ = train(build(tmp_path, model, False, **flags), bad=(), file=tmp_path / "whole.state")
    sharded, _ = train(build(tmp_path, model, True, **flags), bad=(), file=tmp_path / "sharded.state")
    assert sharded == whole
    assert (tmp_path / "sharded.state").read_bytes() == (tmp_path / "whole.state").read_bytes()


@pytest.mark.parametrize("flags", [{"policy": "amp-f16", "ema": 0.9}, {"policy": "fp8-hybrid", "ema": 0.9}, {"policy": "amp-f16", "freeze": "w1"},
                                   {"policy": "amp-bf16", "optimizer": ["sgd,lr=0.1,params=w1", "adamw,lr=1e-2"]}])
def test_averages_frozen_parameters_and_several_optimizers(tmp_path, flags):
    model = classifier(tmp_path / "model.onnx", inner=2)
    whole, _ = train(build(tmp_path, model, False, **flags), bad=(), file=tmp_path / "whole.state")
    sharded, _ = train(build(tmp_path, model, True, **flags), bad=(), file=tmp_path / "sharded.state")
    assert sharded == whole
    assert (tmp_path / "sharded.state").read_bytes() == (tmp_path / "whole.state").read_bytes()


@pytest.mark.parametrize("policy", ["fp32", "amp-f16", "als-f16", "fp8-hybrid"])
@pytest.mark.parametrize("clip", [None, 0.1])
def test_library_is_what_the_interpreter_simulates(tmp_path, policy, clip):
    model = classifier(tmp_path / "model.onnx", norm=True, dropout=True, inner=2)
    flags = {"policy": policy, **({"clip_norm": clip} if clip else {})}
    library = build(tmp_path, model, True, **flags)
    trainer = mpt.Trainer(library, threads=1)
    inputs = batch(V)
    for _ in range(4):
        result = trainer.step(inputs)
    words = [f"--{name.replace('_', '-')}={value}" for name, value in {**FLAGS, **flags}.items()]
    made = tool("mpt-opt", model, "--quiet", "--shard-optimizer", "--replicas=4", "--to=distribution", "-o", tmp_path / "step.mlir", *words)
    assert made.returncode == 0, made.stderr
    text = (tmp_path / "step.mlir").read_text()
    assert "shard.reduce_scatter" in text and "shard.all_gather" in text and "dist.shard" in text
    write_tensors(tmp_path / "in", {**inputs, "learning_rate": np.array(1e-2, np.float32)})
    ran = tool("mpt-run", tmp_path / "step.mlir", "--function=step", f"--inputs={tmp_path / 'in'}", "--steps=4",
               f"--new-state={tmp_path / 'state'}", f"--outputs={tmp_path / 'out'}")
    assert ran.returncode == 0, ran.stderr
    outputs, expected = read_tensors(tmp_path / "out"), read_tensors(tmp_path / "state")
    assert result.loss == pytest.approx(float(outputs["loss"]), rel=2e-3 if policy != "fp32" else 1e-5)
    if clip:
        assert result.grad_norm == pytest.approx(float(outputs["grad_norm"]), rel=2e-2 if policy != "fp32" else 1e-5)
    for name, value in trainer.state().items():
        if np.issubdtype(value.dtype, np.integer):
            assert np.array_equal(value, expected[name]), name
        else:
            exact = expected[name].astype(np.float64)
            assert np.abs(value.astype(np.float64) - exact).max() <= (1e-5 if policy == "fp32" else 2e-3) * max(1, np.abs(exact).max()), name


def test_clipping_is_that_of_whole_gradients(tmp_path):
    model = classifier(tmp_path / "model.onnx")
    norms = []
    for sharded in (False, True):
        trainer = mpt.Trainer(build(tmp_path, model, sharded, clip_norm=0.1), threads=1)
        norms.append([trainer.step(batch(V, seed=step)).grad_norm for step in range(4)])
    assert norms[0] == pytest.approx(norms[1], rel=1e-5) and min(norms[0]) > 0.1


@pytest.mark.parametrize("optimizer", ["lamb,lr=1e-3", "lars,lr=1e-3", "adafactor,lr=1e-3"])
def test_updates_that_need_whole_parameters_are_refused(tmp_path, optimizer):
    with pytest.raises(mpt.CompileError, match="expected an update that is computed element by element for --shard-optimizer"):
        build(tmp_path, classifier(tmp_path / "model.onnx"), True, optimizer=optimizer)


@pytest.mark.parametrize("replicas", [None, "any"])
def test_a_number_of_replicas_is_needed(tmp_path, replicas):
    with pytest.raises(mpt.CompileError, match="expected --replicas=V with --shard-optimizer"):
        mpt.compile(classifier(tmp_path / "model.onnx"), out=tmp_path / "lib", replicas=replicas, shard_optimizer=True, **FLAGS)


# ---- several processes -----------------------------------------------------------------------------------------------

def on_ranks(size, folder, body):
    """body(world) in forks, one a rank; the result of each, as JSON."""
    port = free_port()

    def rank_of(rank):
        with mpt.init(rank=rank, size=size, address="127.0.0.1", port=port, token="t", timeout=30) as world:
            (folder / f"{rank}.txt").write_text(json.dumps(body(world)))

    started = [world_restarts.fork(lambda rank=rank: rank_of(rank), folder / f"{rank}.txt") for rank in range(size)]
    ended = [world_restarts.wait(process, 240) for process in started]
    texts = [(folder / f"{rank}.txt").read_text() for rank in range(size)]
    assert ended == [0] * size, texts
    return [json.loads(text) for text in texts]


def steps_of(trainer, world, first, last, bad=()):
    losses = []
    for step in range(first, last):
        inputs = batch(V, seed=step)
        if step in bad:
            inputs["x"][ROWS + 1, 0] = np.inf
        losses.append(trainer.step({name: np.split(rows, world.size)[world.rank] for name, rows in inputs.items()}).loss.hex())
    return losses


@pytest.mark.parametrize("policy", ["fp32", "amp-f16", "amp-bf16", "als-f16", "fp8-hybrid"])
def test_states_are_the_same_on_1_2_and_4_processes(tmp_path, policy):
    model = classifier(tmp_path / "model.onnx", norm=True, dropout=True)
    bad = () if policy in ("fp32", "amp-bf16") else (3,)
    whole, _ = train(build(tmp_path, model, False, policy=policy), 20, bad, tmp_path / "whole.state")
    library = build(tmp_path, model, True, policy=policy)
    for size in (2, 4):
        def body(world):
            trainer = mpt.Trainer(library, threads=1, world=world)
            losses = steps_of(trainer, world, 0, 20, bad)
            trainer.save(tmp_path / f"{size}.state")
            return losses
        seen = on_ranks(size, tmp_path, body)
        assert seen == [[loss for loss, _ in whole]] * size
        assert (tmp_path / f"{size}.state").read_bytes() == (tmp_path / "whole.state").read_bytes()


@pytest.mark.parametrize("kind, size", [("openmpi", 2), ("mpich", 4)])
def test_states_over_mpi_are_those_of_one_process(tmp_path, kind, size):
    model = classifier(tmp_path / "model.onnx", norm=True, dropout=True)
    states = []
    for sharded in (False, True):
        library, out = build(tmp_path, model, sharded, policy="amp-f16"), tmp_path / f"out{sharded}"
        out.mkdir()
        runs = [{"name": "one", "library": str(library), "below": {"labels": 3}, "bad": True}]
        spec = out / "spec.json"
        spec.write_text(json.dumps({"runs": runs, "steps": 20, "out": str(out), "world": {}}))
        command = [sys.executable, str(pathlib.Path(__file__).with_name("world_training.py")), str(spec)]
        done = (run_mpi(kind, size, *command, timeout=600, environment=environment()) if sharded else
                subprocess.run(command, env=environment(), capture_output=True, text=True, timeout=600))
        assert done.returncode == 0, done.stderr
        states.append((out / "one.state").read_bytes())
        assert json.loads((out / "0.json").read_text())["world"]["size"] == (size if sharded else 1)
    assert states[0] == states[1]


def wide(path, width=512):
    """Two layers of a million weights together, and biases."""
    random = np.random.default_rng(0)
    weights = {"w1": random.standard_normal((4, width)) * 0.4, "b1": np.zeros(width), "w2": random.standard_normal((width, width)) * 0.04,
               "b2": np.zeros(width), "w3": random.standard_normal((width, 3)) * 0.04}
    nodes = [helper.make_node("Gemm", ["x", "w1", "b1"], ["h1"]), helper.make_node("Relu", ["h1"], ["a1"]),
             helper.make_node("Gemm", ["a1", "w2", "b2"], ["h2"]), helper.make_node("Relu", ["h2"], ["a2"]),
             helper.make_node("MatMul", ["a2", "w3"], ["logits"])]
    graph = helper.make_graph(nodes, "wide", [helper.make_tensor_value_info("x", TensorProto.FLOAT, [ROWS, 4])],
                              [helper.make_tensor_value_info("logits", TensorProto.FLOAT, [ROWS, 3])],
                              [numpy_helper.from_array(value.astype(np.float32), name) for name, value in weights.items()])
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8), path)
    return path, sum(value.size for value in weights.values())


@pytest.mark.parametrize("policy, narrow", [("amp-f16", 2), ("fp32", 4)])
@pytest.mark.parametrize("size", [1, 2, 4])
def test_memory_and_bytes_are_the_least_possible(tmp_path, policy, narrow, size):
    model, weights = wide(tmp_path / "model.onnx")
    library = build(tmp_path, model, True, policy=policy)

    def body(world):
        trainer = mpt.Trainer(library, threads=1, world=world)
        steps_of(trainer, world, 0, 1)
        before = world.statistics().bytes_sent
        steps_of(trainer, world, 1, 3)
        sent = (world.statistics().bytes_sent - before) // 2
        kinds = {"master": 0, "slot": 0}
        for tensor, role in trainer._state():
            kinds["master"] += role == 1
            kinds["slot"] += role == 2
        return {**trainer.memory(), "sent": sent, **kinds}

    for memory in on_ranks(size, tmp_path, body):
        slots = 2 * 4 * weights // size
        assert memory["slot"] == 10 and abs(memory["slot_bytes"] - slots) <= 0.01 * slots
        masters, narrow_weights = (4 * weights // size, 2 * weights) if policy == "amp-f16" else (0, 4 * weights)
        assert abs(memory["weight_bytes"] - masters - narrow_weights) <= 0.01 * (masters + narrow_weights)
        assert memory["state_bytes"] <= 1.01 * (slots + masters + narrow_weights)
        # Gradients are scattered and weights gathered, (N - 1) / N of each; losses and checks are a few numbers.
        least = (4 + narrow) * weights * (size - 1) // size
        assert least <= memory["sent"] <= least * 1.001 + 2048, (memory["sent"], least)


# ---- states in shards ------------------------------------------------------------------------------------------------

@pytest.fixture(scope="module")
def library(tmp_path_factory):
    folder = tmp_path_factory.mktemp("libraries")
    model = classifier(folder / "model.onnx", norm=True, dropout=True)
    build(folder, model, False, policy="amp-f16")
    return build(folder, model, True, policy="amp-f16")


def save_on(size, library, folder, steps=5, file="state"):
    def body(world):
        trainer = mpt.Trainer(library, threads=1, world=world)
        steps_of(trainer, world, 0, steps)
        trainer.save(folder / file, sharded=True)
        trainer.save(folder / f"{file}.whole")
        return 0
    on_ranks(size, folder, body)
    return folder / file


@pytest.mark.parametrize("saved, loaded", [(4, 2), (2, 4), (4, 1), (1, 4), (2, 1)])
def test_shards_load_on_another_number_of_processes(library, tmp_path, saved, loaded):
    file = save_on(saved, library, tmp_path)
    assert len(list(tmp_path.glob("state.*.[0-9]*"))) == saved

    def body(world):
        trainer = mpt.Trainer(library, threads=1, world=world)
        trainer.load(file)
        trainer.save(tmp_path / "again")
        losses = steps_of(trainer, world, 5, 8)
        trainer.save(tmp_path / "end")
        return losses
    seen = on_ranks(loaded, tmp_path, body)
    assert (tmp_path / "again").read_bytes() == (tmp_path / "state.whole").read_bytes()
    losses, _ = train(library, 8, (), tmp_path / "expected")
    assert seen == [[loss for loss, _ in losses[5:]]] * loaded
    assert (tmp_path / "end").read_bytes() == (tmp_path / "expected").read_bytes()


def test_shards_load_where_nothing_is_divided(library, tmp_path):
    file = save_on(2, library, tmp_path)
    whole = mpt.Trainer(pathlib.Path(library).parent / "whole", threads=1)
    whole.load(file)
    whole.save(tmp_path / "again")
    assert (tmp_path / "again").read_bytes() == (tmp_path / "state.whole").read_bytes()


def test_shards_load_with_another_number_of_replicas(library, tmp_path):
    file = save_on(4, library, tmp_path)
    model = pathlib.Path(library).parent / "model.onnx"
    other = mpt.compile(model, out=tmp_path / "two", name="model", replicas=2, shard_optimizer=True, policy="amp-f16",
                        loss="softmax-cross-entropy", optimizer="adamw,lr=1e-2")
    trainer = mpt.Trainer(other, threads=1)
    trainer.load(file)
    trainer.save(tmp_path / "again")
    assert (tmp_path / "again").read_bytes() == (tmp_path / "state.whole").read_bytes()


def test_the_next_save_removes_the_shards_before(library, tmp_path):
    trainer = mpt.Trainer(library, threads=1)
    (tmp_path / "state.0123456789abcdef.7").write_bytes(b"left by a killed process")
    (tmp_path / "state.0123456789abcdef.8.tmp-100-1").write_bytes(b"left while it was written")
    (tmp_path / "state.mine.7").write_bytes(b"another's")
    for _ in range(3):
        trainer.step(batch(V))
        trainer.save(tmp_path / "state", sharded=True)
    assert len(list(tmp_path.glob("state.*"))) == 2 and (tmp_path / "state.mine.7").exists()
    again = mpt.Trainer(library, threads=1)
    again.load(tmp_path / "state")
    for name, value in trainer.state().items():
        assert value.tobytes() == again.state()[name].tobytes(), name


def damage(file, how):
    """A copy of the state with something wrong in the index or in a shard."""
    shards = sorted(file.parent.glob(file.name + ".*.[0-9]"))
    index = file.read_bytes()
    generation = re.search(rb'"generation":"([0-9a-f]{16})"', index).group(1)
    if how == "a flipped bit":
        raw = bytearray(shards[1].read_bytes())
        raw[-100] ^= 4
        shards[1].write_bytes(raw)
    elif how == "a missing shard":
        shards[1].unlink()
    elif how == "a truncated shard":
        shards[1].write_bytes(shards[1].read_bytes()[:-64])
    elif how == "shards exchanged":
        one, two = shards[0].read_bytes(), shards[1].read_bytes()
        shards[0].write_bytes(two)
        shards[1].write_bytes(one)
    elif how == "a path as generation":
        file.write_bytes(index.replace(generation, b"../../etc/passwd"))
    elif how == "too many shards":
        file.write_bytes(index.replace(b'"shards":"2"', b'"shards":"9"'))
    elif how == "no shards":
        file.write_bytes(index.replace(b'"shards":"2"', b'"shards":"0"'))
    elif how == "another generation":
        file.write_bytes(index.replace(generation, b"0" * 16))
    elif how == "a checksum that is none":
        file.write_bytes(re.sub(rb'("checksums":"[0-9a-f]{16}),', rb'\1;', index))
    elif how == "a flipped bit in the index":
        raw = bytearray(index)
        raw[-8] ^= 1
        file.write_bytes(raw)


@pytest.mark.parametrize("how", ["a flipped bit", "a missing shard", "a truncated shard", "shards exchanged", "a path as generation",
                                 "too many shards", "no shards", "another generation", "a checksum that is none",
                                 "a flipped bit in the index"])
def test_damaged_and_hostile_files_are_refused(library, tmp_path, how):
    file = save_on(2, library, tmp_path)
    damage(file, how)
    trainer = mpt.Trainer(library, threads=1)
    before = trainer.state()
    with pytest.raises(mpt.Error):
        trainer.load(file)
    after = trainer.state()
    assert all(before[name].tobytes() == after[name].tobytes() for name in before)


@pytest.mark.parametrize("seed", range(4))
def test_kills_leave_a_state_that_loads(library, tmp_path, seed):
    """Ranks save after every step until one is killed: the state is a step's, whole, and the run goes on to the same end."""
    random = np.random.default_rng(seed)
    file, port = tmp_path / "state", free_port()
    save_on(2, library, tmp_path, steps=1)

    def rank_of(rank):
        with mpt.init(rank=rank, size=2, address="127.0.0.1", port=port, token="t", timeout=5, start_timeout=60) as world:
            trainer = mpt.Trainer(library, threads=1, world=world)
            trainer.load(file)
            (tmp_path / f"ready{rank}").touch()
            for step in range(1, 100000):
                steps_of(trainer, world, step, step + 1)
                trainer.save(file, sharded=True)

    started = [world_restarts.fork(lambda rank=rank: rank_of(rank), tmp_path / f"{rank}.txt") for rank in range(2)]
    while not all((tmp_path / f"ready{rank}").exists() for rank in range(2)):
        time.sleep(0.01)
    time.sleep(random.uniform(0.05, 0.4))
    os.kill(started[int(random.integers(2))], signal.SIGKILL)
    for process in started:
        world_restarts.wait(process, 60)
    trainer = mpt.Trainer(library, threads=1)
    trainer.load(file)
    done = int(trainer.state()["mpt.rng"][1])  # skipped steps draw, too
    assert done >= 1
    trainer.save(tmp_path / "found")
    train(library, done, (), tmp_path / "expected")
    assert (tmp_path / "found").read_bytes() == (tmp_path / "expected").read_bytes()
    trainer.step(batch(V, seed=done))
    trainer.save(file, sharded=True)
    assert len(list(tmp_path.glob("state.*.[0-9]*"))) == 1


# ---- narrow gradients ------------------------------------------------------------------------------------------------

@pytest.mark.parametrize("sharded", [False, True])
def test_narrow_gradients_have_the_same_bits_on_all_numbers_of_processes(tmp_path, sharded):
    model = classifier(tmp_path / "model.onnx", norm=True, dropout=True)
    library = build(tmp_path, model, sharded, policy="amp-f16", reduce_type="bf16")
    whole, _ = train(library, 8, (3,), tmp_path / "1.state")
    assert [step for step, (_, skipped) in enumerate(whole) if skipped].count(3) == 1
    for size in (2, 4):
        def body(world):
            trainer = mpt.Trainer(library, threads=1, world=world)
            losses = steps_of(trainer, world, 0, 8, (3,))
            trainer.save(tmp_path / f"{size}.state")
            return losses
        assert on_ranks(size, tmp_path, body) == [[loss for loss, _ in whole]] * size
        assert (tmp_path / f"{size}.state").read_bytes() == (tmp_path / "1.state").read_bytes()


def test_narrow_gradients_are_off_by_their_rounding(tmp_path):
    """A step of plain descent at rate 1 subtracts the mean: it is off by 2^-9 of the mean magnitude at most, and it is off."""
    model = classifier(tmp_path / "model.onnx")
    means, magnitudes = [], {}
    for kind in ("f32", "bf16"):
        library = mpt.compile(model, out=tmp_path / kind, replicas=V, reduce_type=kind, loss="softmax-cross-entropy",
                              optimizer="sgd,lr=1")
        trainer = mpt.Trainer(library, threads=1)
        before = trainer.parameters()
        trainer.step(batch(V))
        means.append({name: before[name].astype(np.float64) - value for name, value in trainer.parameters().items()})
    single = mpt.Trainer(mpt.compile(model, out=tmp_path / "one", loss="softmax-cross-entropy", optimizer="sgd,lr=1"), threads=1)
    for rows in range(V):
        _, gradients = single.gradients({name: np.split(values, V)[rows] for name, values in batch(V).items()})
        for name, gradient in gradients.items():
            magnitudes[name] = magnitudes.get(name, 0) + np.abs(gradient.astype(np.float64)) / V
    for name, exact in means[0].items():
        error = np.abs(means[1][name] - exact)
        assert error.max() > 0 and (error <= 2.0**-9 * magnitudes[name] + 2.0**-22 * np.abs(before[name]) + 1e-30).all(), name


@pytest.mark.parametrize("sharded, parts", [(False, 2 + 4), (True, 2 + 2)])
def test_narrow_gradients_send_half(tmp_path, sharded, parts):
    model, weights = wide(tmp_path / "model.onnx")
    library = build(tmp_path, model, sharded, policy="amp-f16", reduce_type="bf16")

    def body(world):
        trainer = mpt.Trainer(library, threads=1, world=world)
        before = world.statistics().bytes_sent
        steps_of(trainer, world, 0, 2)
        return (world.statistics().bytes_sent - before) // 2
    for sent in on_ranks(V, tmp_path, body):
        least = parts * weights * (V - 1) // V
        assert least <= sent <= least * 1.001 + 2048, (sent, least)
