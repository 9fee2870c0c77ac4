# SPDX-License-Identifier: Apache-2.0
"""Files that bring their training in the standard's form: TrainingInfoProto with Gradient and the optimizers of ai.onnx.preview.training."""
import os
import pathlib
import re
import subprocess

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

import mpt
from mpt._native import find_compiler

DOMAIN = "ai.onnx.preview.training"
RANDOM = np.random.default_rng(11)
SHAPES = {"w1": (8, 6), "b1": (8,), "w2": (3, 8), "b2": (3,)}
WEIGHTS = {name: RANDOM.normal(0, 0.5, shape).astype(np.float32) for name, shape in SHAPES.items()}
INPUTS = {"x": RANDOM.normal(size=(5, 6)).astype(np.float32), "labels": np.array([0, 2, 1, 1, 2])}
SETTINGS = {
    "Momentum": {"norm_coefficient": 0.01, "alpha": 0.9, "beta": 0.8, "mode": "standard"},
    "Nesterov": {"norm_coefficient": 0.0, "alpha": 0.9, "beta": 1.0, "mode": "nesterov"},
    "Plain": {"norm_coefficient": 0.0, "alpha": 0.0, "beta": 1.0, "mode": "standard"},
    "Adam": {"alpha": 0.8, "beta": 0.95, "epsilon": 1e-3, "norm_coefficient": 0.02, "norm_coefficient_post": 0.001},
    "Adagrad": {"epsilon": 1e-4, "decay_factor": 0.1, "norm_coefficient": 0.01},
}
OPERATORS = {"Nesterov": "Momentum", "Plain": "Momentum"}
STATES = {"Adam": ("v", "h")}


def value(array, name):
    return numpy_helper.from_array(np.asarray(array), name)


def info(name, dtype, shape):
    return helper.make_tensor_value_info(name, dtype, shape)


def classifier():
    nodes = [helper.make_node("Gemm", ["x", "w1", "b1"], ["a"], transB=1), helper.make_node("Relu", ["a"], ["r"]),
             helper.make_node("Gemm", ["r", "w2", "b2"], ["z"], transB=1),
             helper.make_node("SoftmaxCrossEntropyLoss", ["z", "labels"], ["cost"])]
    graph = helper.make_graph(nodes, "classifier", [info("x", TensorProto.FLOAT, [5, 6]), info("labels", TensorProto.INT64, [5])],
                              [info("z", TensorProto.FLOAT, [5, 3]), info("cost", TensorProto.FLOAT, [])],
                              [value(array, name) for name, array in WEIGHTS.items()])
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17), helper.make_opsetid(DOMAIN, 1)], ir_version=8)


def floats(names):
    return [info(name, TensorProto.FLOAT, None) for name in names]


def algorithm(kind, xs, y="cost", rate=0.05, name="algorithm", domain=DOMAIN, shapes=None, prefix=""):
    """A TrainingInfoProto: Gradient, one optimizer over all of xs, a counter; initialization zeroes its states."""
    shapes = shapes or SHAPES
    states = STATES.get(kind, ("v",))
    slots = [[f"{x}.{s}" for x in xs] for s in states]
    counter = prefix + "T"
    # Adam corrects by the number of this step, the others ask how many are done.
    step = counter + "_next" if kind == "Adam" else counter
    nodes = [helper.make_node("Gradient", xs, [x + "_grad" for x in xs], domain=domain, xs=xs, y=y),
             helper.make_node("Constant", [], [prefix + "one"], value=value(np.int64(1), "one")),
             helper.make_node("Add", [counter, prefix + "one"], [counter + "_next"]),
             helper.make_node(OPERATORS.get(kind, kind), ["R", step, *xs, *[x + "_grad" for x in xs], *sum(slots, [])],
                              [n + "_next" for n in (*xs, *sum(slots, []))], domain=domain, name=name + "/update", **SETTINGS[kind])]
    bound = [counter, *xs, *sum(slots, [])]
    tensors = [value(np.float32(rate), "R"), value(np.int64(0), counter),
               *[value(np.zeros(shapes[s.split(".")[0]], np.float32), s) for s in sum(slots, [])]]
    graph = helper.make_graph(nodes, name, [], [info(counter + "_next", TensorProto.INT64, []), *floats(n + "_next" for n in bound[1:])], tensors)
    zeros = [helper.make_node("Constant", [], [t.name + "_zero"], value=t) for t in tensors[1:]]
    start = helper.make_graph(zeros, "initialization", [], [info(t.name + "_zero", t.data_type, list(t.dims)) for t in tensors[1:]])
    return helper.make_training_info(graph, [(n, n + "_next") for n in bound], start, [(t.name, t.name + "_zero") for t in tensors[1:]])


def write(model, *infos, folder):
    for one in infos:
        model.training_info.append(one)
    onnx.save(model, folder / "model.onnx")
    return folder / "model.onnx"


def trainer(path, folder, **flags):
    return mpt.Trainer(mpt.compile(path, out=folder / "library", **flags), threads=1)


def expected(kind, settings, rate, step, x, g, states):
    """The standard's formulas in FP64; `step` counts from 0."""
    g = g + settings.get("norm_coefficient", 0) * x
    if kind == "Adam":
        v = settings["alpha"] * states[0] + (1 - settings["alpha"]) * g
        h = settings["beta"] * states[1] + (1 - settings["beta"]) * g * g
        r = rate * np.sqrt(1 - settings["beta"]**(step + 1)) / (1 - settings["alpha"]**(step + 1))
        return (1 - settings["norm_coefficient_post"]) * (x - r * v / (np.sqrt(h) + settings["epsilon"])), [v, h]
    if kind == "Adagrad":
        h = states[0] + g * g
        return x - rate / (1 + step * settings["decay_factor"]) * g / (np.sqrt(h) + settings["epsilon"]), [h]
    v = settings["alpha"] * states[0] + (settings["beta"] if step else 1) * g
    return x - rate * (g + settings["alpha"] * v if settings["mode"] == "nesterov" else v), [v]


@pytest.mark.parametrize("kind", SETTINGS)
def test_a_file_trains_by_its_own_optimizer(kind, tmp_path):
    """Three steps against the formulas in FP64 on the gradients of the step."""
    xs = list(WEIGHTS)
    model = trainer(write(classifier(), algorithm(kind, xs), folder=tmp_path), tmp_path)
    slots = STATES.get(kind, ("v",))
    kept = {x: (WEIGHTS[x].astype(np.float64), [np.zeros(SHAPES[x]) for _ in slots]) for x in xs}
    losses = []
    for step in range(3):
        loss, gradients = model.gradients(INPUTS)
        assert loss == model.evaluate(INPUTS)["loss"]
        losses.append(model.step(INPUTS).loss)
        assert losses[-1] == loss
        for x in xs:
            kept[x] = expected(OPERATORS.get(kind, kind), SETTINGS[kind], 0.05, step, kept[x][0], gradients[x].astype(np.float64), kept[x][1])
            np.testing.assert_allclose(model.parameter(x), kept[x][0], rtol=2e-6, atol=2e-7, err_msg=f"{x} after step {step}")
            for slot, state in zip(slots, kept[x][1]):
                np.testing.assert_allclose(model.parameter(f"{x}.{slot}"), state, rtol=2e-6, atol=2e-7)
        assert model.state()["T"] == step + 1
    assert losses[2] < losses[0]


def test_the_step_is_that_of_the_graph_and_the_flags(tmp_path):
    """Gradient asks for our own backward pass: bitwise identical to --optimizer on the graph alone."""
    xs = list(WEIGHTS)
    path = write(classifier(), algorithm("Plain", xs), folder=tmp_path)
    graph = classifier()
    graph.graph.output.remove(graph.graph.output[0])
    onnx.save(graph, tmp_path / "graph.onnx")
    ours = mpt.Trainer(mpt.compile(tmp_path / "graph.onnx", out=tmp_path / "ours", loss="none", optimizer="sgd,lr=0.05"), threads=1)
    file = trainer(path, tmp_path)
    for _ in range(3):
        assert ours.step(INPUTS).loss == file.step(INPUTS).loss
    for x in xs:
        np.testing.assert_array_equal(ours.parameter(x), file.parameter(x))


@pytest.mark.parametrize("flag,text", [({}, "Momentum .*used all$"), ({"optimizer": "adamw,lr=0.01"}, "used all but the optimizer, which is --optimizer=adamw")])
def test_what_was_found_is_said_and_in_the_manifest(flag, text, tmp_path):
    path = write(classifier(), algorithm("Momentum", list(WEIGHTS)), folder=tmp_path)
    words = [find_compiler(), path, "-o", tmp_path / "library", *[f"--{k}={v}" for k, v in flag.items()]]
    said = subprocess.run(words, capture_output=True, text=True, check=True).stderr
    line, = [line for line in said.splitlines() if "TrainingInfoProto" in line]
    for part in ("loss 'cost'", "of 4 tensors by Gradient", "Momentum \\(", "9 tensors bound, 5 initialized", text):
        assert re.search(part, line), line
    model = mpt.Trainer(tmp_path / "library", threads=1)
    noted = model.manifest["training"]
    assert noted["form"] == "TrainingInfoProto" and noted["loss"] == "'cost'" and noted["used"].startswith("all")
    assert "w1.v" in model.state() if not flag else "w1.moment1" in model.state()
    assert model.step(INPUTS).loss > model.step(INPUTS).loss


def test_a_loss_given_replaces_the_training_of_the_file(tmp_path):
    path = write(classifier(), algorithm("Momentum", list(WEIGHTS)), folder=tmp_path)
    model = trainer(path, tmp_path, loss="none,output=cost", optimizer="sgd,lr=0.05")
    assert model.manifest["training"]["used"] == "nothing: --loss asks for another step"
    assert "w1.v" not in model.state() and model.step(INPUTS).loss > model.step(INPUTS).loss


def test_aliases_and_identities_after_the_node(tmp_path):
    """As pytorch-pfn-extras writes it: the shorter domain, and xs that name copies made later."""
    xs = list(WEIGHTS)
    one = algorithm("Plain", xs)
    gradient = one.algorithm.node[0]
    gradient.domain = "ai.onnx.preview"
    gradient.attribute[0].strings[:] = [(x + "_copy").encode() for x in xs]
    for x in xs:
        one.algorithm.node.append(helper.make_node("Identity", [x], [x + "_copy"]))
    plain = trainer(write(classifier(), algorithm("Plain", xs), folder=tmp_path), tmp_path)
    model = classifier()
    model.opset_import[1].domain = "ai.onnx.preview"
    other = tmp_path / "other"
    other.mkdir()
    model.opset_import.append(helper.make_opsetid(DOMAIN, 1))
    alias = trainer(write(model, one, folder=other), other)
    for run in (plain, alias):
        run.step(INPUTS)
    for x in xs:
        np.testing.assert_array_equal(plain.parameter(x), alias.parameter(x))


@pytest.mark.parametrize("policy", ["amp-f16", "amp-bf16", "als-f16", "fp8-hybrid", "pure-f16-static"])
def test_every_policy_trains_a_file(policy, tmp_path):
    xs = list(WEIGHTS)
    path = write(classifier(), algorithm("Momentum", xs), folder=tmp_path)
    wide = trainer(path, tmp_path)
    narrow = mpt.Trainer(mpt.compile(path, out=tmp_path / "narrow", policy=policy), threads=1)
    assert ("w1.master" in narrow.state()) == (policy != "pure-f16-static")
    for _ in range(5):
        a, b = wide.step(INPUTS), narrow.step(INPUTS)
        assert not b.skipped and b.loss == pytest.approx(a.loss, rel=0.1)
    for x in xs:
        np.testing.assert_allclose(narrow.parameter(x), wide.parameter(x), atol=0.05)


def test_an_overflowing_step_is_skipped(tmp_path):
    path = write(classifier(), algorithm("Adam", list(WEIGHTS)), folder=tmp_path)
    model = trainer(path, tmp_path, policy="amp-f16")
    before = model.state()
    result = model.step({**INPUTS, "x": INPUTS["x"] * np.float32(1e38)})
    after = model.state()
    assert result.skipped
    assert all(np.array_equal(before[name], after[name]) for name in before if not name.startswith("mpt."))


def test_reset_starts_anew(tmp_path):
    model = trainer(write(classifier(), algorithm("Adam", list(WEIGHTS)), folder=tmp_path), tmp_path, policy="amp-f16")
    losses = [model.step(INPUTS).loss for _ in range(3)]
    model.reset()
    assert model.state()["T"] == 0 and not model.parameter("w1.h").any()
    assert [model.step(INPUTS).loss for _ in range(3)] == losses


def test_initialization_graphs_compute_what_they_bind(tmp_path):
    """Their constants are their own, and random ones differ from call to call."""
    one = algorithm("Plain", list(WEIGHTS))
    start = one.initialization
    start.initializer.append(value(np.full((8, 6), 0.5, np.float32), "w1"))
    start.node.append(helper.make_node("Neg", ["w1"], ["w1_new"]))
    start.node.append(helper.make_node("RandomNormal", [], ["w2_new"], shape=[3, 8], scale=0.1))
    for name, shape in (("w1", [8, 6]), ("w2", [3, 8])):
        start.output.append(info(name + "_new", TensorProto.FLOAT, shape))
        one.initialization_binding.add(key=name, value=name + "_new")
    model = trainer(write(classifier(), one, folder=tmp_path), tmp_path, policy="amp-bf16")
    np.testing.assert_array_equal(model.parameter("w1"), WEIGHTS["w1"])
    model.reset()
    assert (model.parameter("w1") == -0.5).all() and (model.state()["w1.master"] == -0.5).all()
    drawn = model.parameter("w2")
    assert 0.03 < drawn.std() < 0.2 and not np.array_equal(drawn, WEIGHTS["w2"])
    np.testing.assert_array_equal(model.parameter("b1"), WEIGHTS["b1"])


def gan():
    """Two networks, two losses: g makes samples, d scores them and real ones."""
    nodes = [helper.make_node("MatMul", ["noise", "g"], ["made"]),
             helper.make_node("MatMul", ["made", "h"], ["fake"]), helper.make_node("MatMul", ["real", "h"], ["true"]),
             helper.make_node("ReduceMean", ["fake"], ["fooled"], keepdims=0), helper.make_node("ReduceMean", ["true"], ["kept"], keepdims=0),
             helper.make_node("Sub", ["fooled", "kept"], ["critic"]), helper.make_node("Neg", ["fooled"], ["maker"])]
    weights = {"g": RANDOM.normal(size=(4, 2)).astype(np.float32), "h": RANDOM.normal(size=(2, 1)).astype(np.float32)}
    graph = helper.make_graph(nodes, "gan", [info("noise", TensorProto.FLOAT, [6, 4]), info("real", TensorProto.FLOAT, [6, 2])],
                              [info("made", TensorProto.FLOAT, [6, 2])], [value(v, k) for k, v in weights.items()])
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17), helper.make_opsetid(DOMAIN, 1)], ir_version=8)
    shapes = {k: v.shape for k, v in weights.items()}
    infos = [algorithm("Plain", ["h"], y="critic", rate=0.1, name="critic_step", shapes=shapes),
             algorithm("Plain", ["g"], y="maker", rate=0.01, name="maker_step", shapes=shapes)]
    return model, weights, infos


@pytest.mark.parametrize("flags", [{}, {"policy": "amp-f16"}, {"optimizer": "sgd,lr=0.1"}])
def test_each_of_several_algorithms_is_a_function(flags, tmp_path):
    """The halves of a GAN: each moves its own variables, with its own rate and counter, although both call them R and T."""
    model, weights, infos = gan()
    both = trainer(write(model, *infos, folder=tmp_path), tmp_path, **flags)
    feeds = {"noise": RANDOM.normal(size=(6, 4)).astype(np.float32), "real": RANDOM.normal(size=(6, 2)).astype(np.float32)}
    tolerance = {"rtol": 1e-2, "atol": 1e-3} if "policy" in flags else {"rtol": 1e-5}
    made = feeds["noise"] @ weights["g"]
    slope = (made.mean(0) - feeds["real"].mean(0))[:, None]
    result = both.step(feeds, function="critic_step")
    assert result.loss == pytest.approx(float((slope * weights["h"]).sum()), rel=1e-2)
    np.testing.assert_allclose(both.parameter("h"), weights["h"] - 0.1 * slope, **tolerance)
    np.testing.assert_array_equal(both.parameter("g"), weights["g"])
    moved = both.parameter("h")
    both.step(feeds, function="maker_step")
    np.testing.assert_array_equal(both.parameter("h"), moved)
    rate = 0.1 if "optimizer" in flags else 0.01
    np.testing.assert_allclose(both.parameter("g"), weights["g"] + rate * feeds["noise"].mean(0)[:, None] * moved.T, **tolerance)
    assert set(both.run("predict", feeds)) == {"made"}


@pytest.mark.parametrize("form", ["joint", "training-info"])
def test_several_algorithms_are_no_onnx_file(form, tmp_path):
    model, _, infos = gan()
    path = write(model, *infos, folder=tmp_path)
    done = subprocess.run([find_compiler(), path, "--emit=onnx", f"--onnx-form={form}", "-o", tmp_path / "step.onnx"], capture_output=True, text=True)
    assert done.returncode == 1 and not (tmp_path / "step.onnx").exists()
    assert f"expected --emit=library for the 2 algorithms of '{path}', got --emit=onnx: a file holds one step" in done.stderr
    # Phases of it can be seen as text, and one algorithm is a file.
    assert subprocess.run([find_compiler(), path, "--to=training", "-o", os.devnull], capture_output=True).returncode == 0
    path = write(gan()[0], infos[0], folder=tmp_path)
    assert subprocess.run([find_compiler(), path, "--emit=onnx", f"--onnx-form={form}", "-o", tmp_path / "step.onnx"], capture_output=True).returncode == 0


@pytest.mark.parametrize("policy", ["fp32", "amp-f16"])
def test_sizes_of_a_file_that_brings_its_training(tmp_path, policy):
    """Algorithms of both halves of a GAN, each in two sizes; resetting runs the one initialization graph."""
    model, weights, infos = gan()
    for given in (*model.graph.input, *model.graph.output):
        given.type.tensor_type.shape.dim[0].dim_param = "N"
    path = write(model, *infos, folder=tmp_path)
    joint, *alone = (mpt.Trainer(mpt.compile(path, out=tmp_path / f"lib{i}", bind={"N": n}, policy=policy), threads=1)
                     for i, n in enumerate(([6, 4], 6, 4)))
    rng = np.random.default_rng(2)
    for function in ("critic_step", "maker_step"):
        for single, n in zip(alone, (6, 4)):
            feeds = {"noise": rng.standard_normal((n, 4)).astype(np.float32), "real": rng.standard_normal((n, 2)).astype(np.float32)}
            for name in weights:
                single.set_parameter(name, joint.parameter(name))
            assert joint.step(feeds, function=function).loss == single.step(feeds, function=function).loss
            assert all(np.array_equal(joint.parameter(name), single.parameter(name)) for name in weights)
    joint.reset()
    assert joint.parameter("g").shape == weights["g"].shape and np.array_equal(joint.parameter("h"), weights["h"])


def test_rates_that_an_algorithm_computes(tmp_path):
    """R is state: it shrinks by a tenth a step."""
    one = algorithm("Plain", list(WEIGHTS), rate=0.5)
    one.algorithm.node.append(helper.make_node("Mul", ["R", "factor"], ["R_next"]))
    one.algorithm.initializer.append(value(np.float32(0.9), "factor"))
    one.algorithm.output.append(info("R_next", TensorProto.FLOAT, []))
    one.update_binding.add(key="R", value="R_next")
    model = trainer(write(classifier(), one, folder=tmp_path), tmp_path)
    assert "learning_rate" not in model.inputs()
    for rate in (0.5, 0.45, 0.405):
        before, (_, gradients) = model.parameter("w1"), model.gradients(INPUTS)
        model.step(INPUTS)
        np.testing.assert_allclose(model.parameter("w1"), before - rate * gradients["w1"], rtol=1e-5, atol=1e-7)


def test_arithmetic_between_gradient_and_optimizer(tmp_path):
    """Gradients clipped by operators of the file, under a narrow policy too: computed on unscaled FP32 gradients."""
    xs = ["w2"]
    one = algorithm("Plain", xs)
    one.algorithm.node[0].output[0] = "raw"
    one.algorithm.node.insert(1, helper.make_node("Mul", ["raw", "small"], ["w2_grad"]))
    one.algorithm.initializer.append(value(np.float32(1e-6), "small"))
    model = trainer(write(classifier(), one, folder=tmp_path), tmp_path, policy="amp-f16")
    _, gradients = model.gradients(INPUTS)
    model.step(INPUTS)
    np.testing.assert_allclose(model.parameter("w2.v"), gradients["w2"] * 1e-6, rtol=1e-5)


def test_freezing_and_clipping(tmp_path):
    path = write(classifier(), algorithm("Momentum", list(WEIGHTS)), folder=tmp_path)
    frozen = trainer(path, tmp_path, freeze="w1|b1", clip_norm=0.01)
    result = frozen.step(INPUTS)
    assert result.grad_norm > 0.01
    np.testing.assert_array_equal(frozen.parameter("w1"), WEIGHTS["w1"])
    moved = np.sqrt(sum(((frozen.parameter(x) - WEIGHTS[x])**2).sum() for x in ("w2", "b2")))
    assert 0 < moved < 0.05 * 0.011 + 0.05 * 0.01 * np.sqrt(sum((WEIGHTS[x]**2).sum() for x in ("w2", "b2")))


def gradient_graph(nodes, inputs, outputs, **attributes):
    graph = helper.make_graph(nodes, "graph", [info(n, TensorProto.FLOAT, [3]) for n in inputs], [info(n, TensorProto.FLOAT, [3]) for n in outputs])
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17), helper.make_opsetid(DOMAIN, 1)], ir_version=8)


@pytest.mark.parametrize("points,zs,want", [
    (["a", "b"], [], lambda a, b: (2 * a + b, a)),            # d = (a + b) a
    (["a", "b", "c"], ["c"], lambda a, b: (a + b, 0 * a)),     # c = a + b held: d = c a
    (["b", "a"], [], lambda a, b: (2 * b + a, b)),             # at another point
    (["c", "b"], [], lambda a, b: (2 * (a + b) + b, a + b)),
])
def test_derivatives_are_those_that_the_names_say(points, zs, want, tmp_path):
    names = ["a", "b", *zs]
    model = gradient_graph([helper.make_node("Add", ["a", "b"], ["c"]), helper.make_node("Mul", ["c", "a"], ["d"]),
                            helper.make_node("Gradient", points, ["da", "db"], domain=DOMAIN, xs=["a", "b"], y="d", **({"zs": zs} if zs else {}))],
                           ["a", "b"], ["d", "da", "db"])
    onnx.save(model, tmp_path / "model.onnx")
    run = mpt.Trainer(mpt.compile(tmp_path / "model.onnx", out=tmp_path / "library", forward_only=True), threads=1)
    a, b = np.float32([1, -2, 3]), np.float32([0.5, 4, -1])
    got = run.run("evaluate", {"a": a, "b": b})
    assert len(names) == len(points)
    for name, wanted in zip(("da", "db"), want(a, b)):
        np.testing.assert_allclose(got[name], wanted, rtol=1e-6)


def test_an_intermediate_tensor_cuts_and_a_gradient_is_derived_again(tmp_path):
    """With respect to c alone nothing goes through a; the derivative of a derivative is the second one."""
    model = gradient_graph([helper.make_node("Mul", ["a", "a"], ["c"]), helper.make_node("Mul", ["c", "a"], ["d"]),
                            helper.make_node("Gradient", ["c", "a"], ["dc", "da"], domain=DOMAIN, xs=["c", "a"], y="d"),
                            helper.make_node("Gradient", ["a"], ["first"], domain=DOMAIN, xs=["a"], y="d"),
                            helper.make_node("Gradient", ["a"], ["second"], domain=DOMAIN, xs=["a"], y="first")],
                           ["a"], ["dc", "da", "first", "second"])
    onnx.save(model, tmp_path / "model.onnx")
    run = mpt.Trainer(mpt.compile(tmp_path / "model.onnx", out=tmp_path / "library", forward_only=True), threads=1)
    a = np.float32([1, -2, 3])
    got = run.run("evaluate", {"a": a})
    for name, wanted in {"dc": a, "da": a * a, "first": 3 * a * a, "second": 6 * a}.items():
        np.testing.assert_allclose(got[name], wanted, rtol=1e-6, err_msg=name)


def broken(change):
    one = algorithm("Momentum", list(WEIGHTS))
    change(one.algorithm, one)
    return one


@pytest.mark.parametrize("change,text", [
    (lambda a, _: a.node[0].attribute.pop(1), "expected attributes xs and y that name tensors, got no y"),
    (lambda a, _: a.node[0].input.pop(), "expected an input for each of 4 tensors in xs and zs, got 3"),
    (lambda a, _: a.node[3].input.pop(), "algorithm/update.*expected consistent types and shapes"),
    (lambda a, _: next(x for x in a.node[3].attribute if x.name == "mode").__setattr__("s", b"sideways"), "expected mode standard or nesterov, got 'sideways'"),
    (lambda a, _: a.node[0].attribute[0].strings.__setitem__(0, b"nothing"), "expected a defined value, got 'nothing'"),
    (lambda a, i: i.update_binding[1].__setattr__("value", "z"), "expected the new value of state 'w1' in its type"),
])
def test_bad_algorithms_are_refused_where_they_are_bad(change, text, tmp_path):
    path = write(classifier(), broken(change), folder=tmp_path)
    with pytest.raises(mpt.CompileError, match=text):
        mpt.compile(path, out=tmp_path / "library")


@pytest.mark.parametrize("policy", ["fp32", "amp-f16"])
@pytest.mark.parametrize("form", ["joint", "training-info"])
def test_the_step_leaves_as_onnx(form, policy, tmp_path):
    """No flag asks for training: the file does. The written file, read again, trains bitwise identically."""
    path = write(classifier(), algorithm("Adam", list(WEIGHTS)), folder=tmp_path)
    step = mpt.compile(path, out=tmp_path / "step.onnx", emit="onnx", onnx_form=form, policy=policy)
    ours, again = trainer(path, tmp_path, policy=policy), mpt.Trainer(mpt.compile(step, out=tmp_path / "again"), threads=1)
    for _ in range(3):
        ours.step(INPUTS)
        again.step({**INPUTS, "learning_rate": np.float32(0.05)})
    for name, array in ours.state().items():
        np.testing.assert_array_equal(array, again.state()[name], err_msg=name)


def node_cases():
    """The standard's own tests of its training operators."""
    from onnx.backend.test.loader import load_model_tests
    names = "adam adam_multiple adagrad adagrad_multiple momentum momentum_multiple nesterov_momentum".split()
    cases = [case for case in load_model_tests(kind="node") if case.name.removeprefix("test_") in names]
    return cases + [case for case in load_model_tests(kind="simple") if "gradient" in case.name]


def stored_data(case):
    for folder in sorted(pathlib.Path(case.model_dir).glob("test_data_set_*")):
        yield tuple([numpy_helper.to_array(onnx.load_tensor(path)) for path in sorted(folder.glob(f"{kind}_*.pb"))] for kind in ("input", "output"))


@pytest.mark.parametrize("case", node_cases(), ids=lambda case: case.name)
def test_the_standards_own_cases(case, tmp_path):
    model = case.model or onnx.load(case.model_dir + "/model.onnx")
    onnx.save(model, tmp_path / "model.onnx")
    run = mpt.Trainer(mpt.compile(tmp_path / "model.onnx", out=tmp_path / "library", forward_only=True), threads=1)
    for inputs, outputs in case.data_sets or stored_data(case):
        got = run.run("evaluate", {value.name: array for value, array in zip(model.graph.input, inputs)})
        for value, array in zip(model.graph.output, outputs):
            np.testing.assert_allclose(got[value.name], array, rtol=max(case.rtol, 1e-5), atol=max(case.atol, 1e-6))
