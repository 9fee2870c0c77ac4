# SPDX-License-Identifier: Apache-2.0
"""Tensors may have any name: names of the compiler's functions, states and results, and odd characters.

One network is compiled under every name; the parameter is trained, read, saved, loaded and exported under its own name.
"""
import subprocess

import numpy as np
import onnx
import pytest
from onnx import helper, numpy_helper

import mpt
from conftest import build_folder

FUNCTIONS = ["main", "forward", "step", "evaluate", "evaluation", "predict", "gradients", "initialize", "initialization",
             "accumulate", "algorithm.0", "replica", "between_0", "shard_0", "combine", "kernel0", "kernel0_1", "kernels"]
STATES = ["metrics", "learning_rate", "target", "x.master", "mpt_loss", "model", "y_next", "core"]
RESULTS = ["loss", "skipped", "loss_scale", "grad_norm", "replica.sum.0", "replica.max.0", "replica.kept.0", "replica.number"]
ODD = ["'main", "'", "''step", "a b", "a\"b", "a\\b", "größe", "x/y:0", "onnx::MatMul_3", "7", "@step", "%0", "{w}", "a\nb", "a,b=c"]
RANDOM = np.random.default_rng(0)
X, TARGET = RANDOM.standard_normal((4, 6)).astype(np.float32), RANDOM.standard_normal((4, 3)).astype(np.float32)
W = RANDOM.standard_normal((6, 3)).astype(np.float32)


def model(name):
    node = helper.make_node("MatMul", ["x.in", name], ["y.out"], name="product")
    graph = helper.make_graph([node], "g", [helper.make_tensor_value_info("x.in", 1, [4, 6])],
                              [helper.make_tensor_value_info("y.out", 1, [4, 3])], [numpy_helper.from_array(W, name)])
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)


def feed(trainer, function="step"):
    values = {"x.in": X}
    for name in trainer.inputs(function):
        if name not in values and name != "learning_rate":
            values[name] = TARGET
    return values


@pytest.fixture(scope="module", autouse=True)
def built():
    if not (build_folder() / "bin" / "mpt-opt").exists():
        pytest.skip("mpt-opt is not built")


@pytest.mark.parametrize("name", FUNCTIONS + STATES + RESULTS + ODD)
def test_trains_under_its_name(name, tmp_path):
    onnx.save(model(name), tmp_path / "model.onnx")
    folder = mpt.compile(tmp_path / "model.onnx", out=tmp_path / "lib", loss="mse", optimizer="sgd,lr=0.1,momentum=0.9",
                         policy="amp-bf16")
    trainer = mpt.Trainer(folder, threads=1)
    assert sorted(trainer.parameters(trained=True)) == [name]
    gradient = 2 * X.T @ (X @ W - TARGET) / TARGET.size
    _, gradients = trainer.gradients(feed(trainer, "gradients"))
    assert set(gradients) == {name}
    assert np.linalg.norm(gradients[name] - gradient) <= 0.03 * np.linalg.norm(gradient)
    trainer.step(feed(trainer))
    moved = trainer.parameter(name)
    assert np.linalg.norm(W - moved - 0.1 * gradient) <= 0.03 * np.linalg.norm(0.1 * gradient)
    trainer.save(tmp_path / "state.safetensors")
    again = mpt.Trainer(folder, threads=1)
    again.load(tmp_path / "state.safetensors")
    assert np.array_equal(again.parameter(name), moved)


@pytest.mark.parametrize("name", FUNCTIONS[:6] + ODD[:3])
def test_leaves_and_returns_as_a_file(name, tmp_path):
    onnx.save(model(name), tmp_path / "model.onnx")
    tool = str(build_folder() / "bin" / "mpt-opt")
    subprocess.run([tool, tmp_path / "model.onnx", "--loss=mse", "--optimizer=adam,lr=0.1", "--policy=amp-bf16", "--emit=onnx",
                    "-o", tmp_path / "step.onnx"], check=True)
    written = onnx.load(tmp_path / "step.onnx")
    onnx.checker.check_model(written, full_check=True)
    assert {name, f"{name}.master"} <= {tensor.name for tensor in written.graph.initializer}
    trainers = []
    for file, flags in (("model.onnx", {"loss": "mse", "optimizer": "adam,lr=0.1", "policy": "amp-bf16"}), ("step.onnx", {})):
        folder = mpt.compile(tmp_path / file, out=tmp_path / f"lib-{file}", **flags)
        trainers.append(mpt.Trainer(folder, threads=1))
        trainers[-1].step(feed(trainers[-1]), learning_rate=0.1)
    assert np.array_equal(trainers[0].parameter(name), trainers[1].parameter(name))


@pytest.fixture(scope="module")
def replicated(tmp_path_factory):
    """Results and final parameter of three steps of two replicas with divided states, by the names of tensors."""
    def train(called):
        one, folder = model("w"), tmp_path_factory.mktemp("replicas")
        for names in [part for node in one.graph.node for part in (node.input, node.output)]:
            names[:] = [called.get(name, name) for name in names]
        for value in [*one.graph.input, *one.graph.output, *one.graph.initializer]:
            value.name = called.get(value.name, value.name)
        onnx.save(one, folder / "model.onnx")
        mpt.compile(folder / "model.onnx", out=folder / "lib", loss="mse", optimizer="adam,lr=0.1", policy="amp-f16", clip_norm=1,
                    replicas=2, shard_optimizer=True)
        trainer = mpt.Trainer(folder / "lib", threads=1)
        inputs = {called.get("x.in", "x.in"): np.concatenate([X, -X]), "target": np.concatenate([TARGET, TARGET])}
        return [trainer.step(inputs) for _ in range(3)], trainer.parameter(called.get("w", "w"))

    plain = train({})
    return train, plain


@pytest.mark.parametrize("place", ["x.in", "w"])
@pytest.mark.parametrize("name", ["skipped", "replica.sum.0", "replica.max.0", "replica.scatter.0", "replica.kept.0", "replica.number"])
def test_replicas_take_no_tensor_for_their_own(name, place, replicated):
    train, (steps, moved) = replicated
    same, other = train({place: name})
    assert steps == same and np.array_equal(moved, other)
    assert steps[-1].grad_norm > 0 and steps[-1].loss_scale > 1 and not steps[-1].skipped


def test_results_of_an_algorithm_are_no_metrics(tmp_path):
    """Two algorithms called as parts of a step of replicas, which return a result with the name of a metric."""
    training = "ai.onnx.preview.training"
    scalar = {name: helper.make_tensor_value_info(name, 1, []) for name in ["cost", "loss_scale", "grad_norm", "skipped"]}
    one = model("w")
    one.opset_import.append(helper.make_opsetid(training, 1))
    one.graph.node.append(helper.make_node("ReduceMean", ["y.out"], ["cost"], keepdims=0))
    one.graph.output.append(scalar["cost"])
    for number, name in enumerate(["replica", "combine"]):
        nodes = [helper.make_node("Gradient", ["w"], ["g"], domain=training, xs=["w"], y="cost"),
                 helper.make_node("Sub", ["w", "g"], ["w_next"]), helper.make_node("Identity", ["three"], ["skipped"]),
                 helper.make_node("Identity", ["three"], ["loss_scale"]), helper.make_node("Identity", ["three"], ["grad_norm"])]
        outputs = [helper.make_tensor_value_info("w_next", 1, [6, 3]), *list(scalar.values())[1:]]
        graph = helper.make_graph(nodes, name, [], outputs, [numpy_helper.from_array(np.float32(3), "three")])
        one.training_info.append(helper.make_training_info(graph, [("w", "w_next")], None, None))
    onnx.save(one, tmp_path / "model.onnx")
    trainer = mpt.Trainer(mpt.compile(tmp_path / "model.onnx", out=tmp_path / "lib", policy="amp-f16"), threads=1)
    for function in ("replica", "combine"):
        step = trainer.step({"x.in": X}, function=function)
        assert not step.skipped and step.loss_scale > 3 and np.isfinite(step.loss)
        results = trainer._outputs(function)
        assert [float(results[name]) for name in ("grad_norm", "loss_scale_1", "skipped_1")] == [3, 3, 3]
        assert float(results["loss_scale"]) == step.loss_scale and not results["skipped"]
