# SPDX-License-Identifier: Apache-2.0
"""Joint graphs of others: their backward pass agrees with ours, trains in every policy, and is scaled where it begins."""
import json
import os
import pathlib
import subprocess
import sys

import mpt
import numpy as np
import onnx
import pytest
from onnx import helper, numpy_helper, parser

sys.path.insert(0, os.path.dirname(__file__))
import step_files  # noqa: E402

pytestmark = pytest.mark.skipif(not (step_files.BUILD / "bin" / "mpt-opt").exists(), reason="mpt-opt is not built")

INPUTS = pathlib.Path(__file__).parent / "Inputs"
SHAPES = {"w1": (5, 4), "b1": (5,), "w2": (3, 5), "b2": (3,)}
FEEDS = {"x": np.random.default_rng(3).standard_normal((6, 4)).astype(np.float32), "y": np.array([2, 0, -100, 1, 1, 0])}


def graph_of(text, values):
    model = parser.parse_model(text)
    for name, value in values.items():
        model.graph.initializer.append(numpy_helper.from_array(np.asarray(value, np.float32), name))
    return model


def weights(scale=0.5):
    rng = np.random.default_rng(7)
    return {name: (scale * rng.standard_normal(shape)).astype(np.float32) for name, shape in SHAPES.items()}


@pytest.fixture(scope="module")
def tanh(tmp_path_factory):
    path = tmp_path_factory.mktemp("joint") / "joint.onnx"
    onnx.save(graph_of((INPUTS / "joint_tanh.onnxtxt").read_text(), weights()), path)
    return path


def with_update(path, folder, update, outputs, values):
    """The file with further nodes and outputs after its gradients."""
    model = onnx.load(path)
    model.graph.node.extend(parser.parse_graph("u () => () {" + update + "}").node)
    for name, shape in outputs.items():
        model.graph.output.append(helper.make_tensor_value_info(name, onnx.TensorProto.FLOAT, shape))
    for name, value in values.items():
        model.graph.initializer.append(numpy_helper.from_array(np.asarray(value, np.float32), name))
    onnx.save(model, folder / "updated.onnx")
    return folder / "updated.onnx"


def gradients(model, folder, *flags):
    step_files.mpt_run.write_tensors(folder / "in.safetensors", FEEDS)
    step_files.call("mpt-run", model, *flags, "--function=gradients", f"--inputs={folder}/in.safetensors",
                    f"--outputs={folder}/out.safetensors")
    return step_files.mpt_run.read_tensors(folder / "out.safetensors")


def refusal(model, *flags):
    done = subprocess.run([step_files.BUILD / "bin" / "mpt-opt", model, *flags, "--to=training", "-o", os.devnull],
                          capture_output=True, text=True)
    assert done.returncode != 0
    return done.stderr


def test_file_and_own_backward_agree(tanh, tmp_path):
    files, ours = (gradients(tanh, tmp_path, f"--backward={whose}", "--fp64") for whose in ("file", "own"))
    assert set(files) == set(ours) == {"loss", *SHAPES}
    for name in ours:
        np.testing.assert_allclose(files[name], ours[name], rtol=1e-12, atol=1e-14)


@pytest.mark.parametrize("policy", step_files.POLICIES)
def test_every_policy_steps(tanh, tmp_path, policy):
    flags, feeds = ["--optimizer=sgd,lr=0.01", f"--policy={policy}"], {**FEEDS, "learning_rate": np.float32(0.01)}
    files, ours = (step_files.steps(tanh, [*flags, f"--backward={whose}"], feeds, tmp_path, whose, count=3) for whose in ("file", "own"))
    assert np.isfinite(files[0]["loss"]) and abs(files[0]["loss"] - ours[0]["loss"]) < 0.05 * abs(ours[0]["loss"])
    # The same masters, optimizer state and loss scale. Policies tell the first and the last layer by the nodes' names, which the
    # file's backward pass has of its own, so that one may quantize values there that it keeps wide on ours.
    quantized = {"mpt.amax_history", "mpt.tensor_scales"}
    assert set(files[1]) - quantized == set(ours[1]) - quantized


def test_scale_enters_where_the_gradients_begin(tanh, tmp_path):
    """Gradients below the range of f16 are lost without a scale and kept with one."""
    model = onnx.load(tanh)
    small = weights(1e-4)
    for tensor in model.graph.initializer:
        tensor.CopyFrom(numpy_helper.from_array(small[tensor.name] if tensor.name == "w2" else numpy_helper.to_array(tensor), tensor.name))
    onnx.save(model, tmp_path / "small.onnx")
    feeds = {"x": FEEDS["x"] * np.float32(1e-4), "y": FEEDS["y"]}
    step_files.mpt_run.write_tensors(tmp_path / "in.safetensors", feeds)
    found = {}
    for scale in ("none", "8192"):
        step_files.call("mpt-run", tmp_path / "small.onnx", "--policy=amp-f16", f"--loss-scale={scale}", "--function=gradients",
                        f"--inputs={tmp_path}/in.safetensors", f"--outputs={tmp_path}/out.safetensors")
        found[scale] = step_files.mpt_run.read_tensors(tmp_path / "out.safetensors")["w1"].astype(np.float64)
    step_files.call("mpt-run", tmp_path / "small.onnx", "--function=gradients", f"--inputs={tmp_path}/in.safetensors",
                    f"--outputs={tmp_path}/out.safetensors", "--fp64")
    exact = step_files.mpt_run.read_tensors(tmp_path / "out.safetensors")["w1"]
    errors = {scale: np.max(np.abs(value - exact)) / np.max(np.abs(exact)) for scale, value in found.items()}
    assert errors["8192"] < 5e-3 < errors["none"]


RATE = {**FEEDS, "learning_rate": np.float32(0.25)}
SGD = "".join(f"{p}_step = Mul({p}_grad, learning_rate)\n{p}_next = Sub({p}, {p}_step)\n" for p in SHAPES)


def test_sgd_of_the_file_is_the_optimizer(tanh, tmp_path):
    model = with_update(tanh, tmp_path, SGD, {f"{p}_next": shape for p, shape in SHAPES.items()}, {"learning_rate": 0.25})
    said = subprocess.run([step_files.BUILD / "bin" / "mpt-opt", model, "--to=training", "-o", os.devnull], capture_output=True,
                          text=True).stderr
    assert "joint graph: loss 'loss'; gradients of 4 tensors; optimizer sgd,lr=0.25; used all" in said
    _, state = step_files.steps(model, ["--clip-norm=1e9"], RATE, tmp_path, "sgd", count=1)
    grads = gradients(model, tmp_path)
    for name, value in weights().items():
        np.testing.assert_allclose(state[name], value - 0.25 * grads[name], rtol=1e-6, atol=1e-7)


def test_nodes_rewritten_one_by_one_keep_one_copy_of_what_is_trained(tanh, tmp_path):
    """A second copy in FP16 would stay as it was when the first one is replaced by its new value."""
    model = with_update(tanh, tmp_path, SGD, {f"{p}_next": shape for p, shape in SHAPES.items()}, {"learning_rate": 0.25})
    step_files.call("mpt-opt", model, "--policy=amp-f16", "--emit=onnx", "--quiet", "-o", tmp_path / "nodes.onnx")
    written = onnx.load(tmp_path / "nodes.onnx").graph
    assert any(node.op_type == "Cast" and node.input[0] in SHAPES for node in written.node)
    assert not [tensor.name for tensor in written.initializer for p in SHAPES if tensor.name != p and tensor.name.startswith(p)]
    exact, narrow = (gradients(path, tmp_path) for path in (model, tmp_path / "nodes.onnx"))
    for name in SHAPES:
        np.testing.assert_allclose(narrow[name], exact[name], rtol=5e-3, atol=5e-3 * np.max(np.abs(exact[name])))


def test_new_values_alone_are_enough_where_they_are_sgd(tanh, tmp_path):
    model = onnx.load(with_update(tanh, tmp_path, SGD, {f"{p}_next": shape for p, shape in SHAPES.items()}, {"learning_rate": 0.25}))
    kept = [value for value in model.graph.output if not value.name.endswith("_grad")]
    del model.graph.output[:]
    model.graph.output.extend(kept)
    onnx.save(model, tmp_path / "next.onnx")
    loss, state = step_files.steps(tmp_path / "next.onnx", ["--policy=amp-f16"], RATE, tmp_path, "next", count=1)
    reference = gradients(tanh, tmp_path)
    for name, value in weights().items():
        master = state.get(name + ".master", state[name])
        np.testing.assert_allclose(master, value - 0.25 * reference[name], rtol=2e-3, atol=2e-3)


MOMENTUM = "".join(f"{p}_kept = Mul({p}_v, mu)\n{p}_v_next = Add({p}_kept, {p}_grad)\n{p}_step = Mul({p}_v_next, rate)\n"
                   f"{p}_next = Sub({p}, {p}_step)\n" for p in SHAPES)


@pytest.mark.parametrize("policy", ["fp32", "amp-f16"])
def test_update_of_the_file_runs_as_it_is(tanh, tmp_path, policy):
    outputs = {f"{p}{kind}_next": shape for p, shape in SHAPES.items() for kind in ("", "_v")}
    slots = {f"{p}_v": np.full(shape, 0.125) for p, shape in SHAPES.items()}
    model = with_update(tanh, tmp_path, MOMENTUM, outputs, {**slots, "mu": 0.9, "rate": 0.5})
    _, state = step_files.steps(model, [f"--policy={policy}"], FEEDS, tmp_path, "momentum", count=1)
    grads = gradients(tanh, tmp_path)
    tolerance = 1e-6 if policy == "fp32" else 4e-3
    for name, value in weights().items():
        slot = 0.9 * 0.125 + grads[name]
        np.testing.assert_allclose(state[name + "_v"], slot, rtol=tolerance, atol=tolerance)
        np.testing.assert_allclose(state.get(name + ".master", state[name]), value - 0.5 * slot, rtol=tolerance, atol=tolerance)
    text = refusal(model, "--clip-norm=1")
    assert "--clip-norm needs --optimizer" in text


def compiler(model, *flags):
    return subprocess.run([step_files.BUILD / "bin" / "mpt-opt", model, *flags], capture_output=True, text=True)


@pytest.mark.parametrize("flags,used", [([], "all"), (["--optimizer=adamw,lr=0.01"], "all but the optimizer, which is --optimizer=adamw,lr=0.01"),
                                        (["--backward=own"], "all but the backward pass, which is made anew"),
                                        (["--backward=own", "--optimizer=adamw,lr=0.01"],
                                         "all but the backward pass, which is made anew, and the optimizer, which is --optimizer=adamw,lr=0.01")])
def test_what_is_used_of_the_file_is_said_and_in_the_manifest(tanh, tmp_path, flags, used):
    model = with_update(tanh, tmp_path, SGD, {f"{p}_next": shape for p, shape in SHAPES.items()}, {"learning_rate": 0.25})
    done = compiler(model, *flags, "-o", tmp_path / "library")
    assert done.returncode == 0, done.stderr
    line, = [line for line in done.stderr.splitlines() if "joint graph: loss" in line]
    assert line.endswith(f"optimizer sgd,lr=0.25; used {used}")
    noted = json.loads((tmp_path / "library" / "updated.json").read_text())["training"]
    assert noted["used"] == used and noted["form"] == "joint graph"


@pytest.mark.parametrize("wrong", [False, True])
def test_gradients_that_are_not_recognized_are_counted(tmp_path, wrong):
    """Twice the probability is in the gradient of no softmax."""
    text = (INPUTS / "joint_tanh.onnxtxt").read_text()
    if wrong:
        text = text.replace("probability = Exp(p)", "half = Exp(p)\n  probability = Add(half, half)")
    onnx.save(graph_of(text, weights()), tmp_path / "m.onnx")
    done = compiler(tmp_path / "m.onnx", "--to=import")
    assert done.returncode == 0 and f'recognized = "{"1" if wrong else "2"} of 2"' in done.stdout, done.stderr
    line = "joint graph: gradients of 1 of 2 operations were recognized; --debug-only=import-recognize-gradients names the others"
    assert (line in done.stderr) == wrong, done.stderr


def test_momentum_of_clipped_gradients_is_not_called_sgd(tanh, tmp_path):
    """The gradients are the values before the factor that all are multiplied with; the update behind it is the file's operators."""
    clipped = MOMENTUM + "factor = Sqrt(loss)\n" + "".join(f"{p}_clipped = Mul({p}_grad, factor)\n" for p in SHAPES)
    for p in SHAPES:
        clipped = clipped.replace(f"Add({p}_kept, {p}_grad)", f"Add({p}_kept, {p}_clipped)")
    lines = sorted(clipped.splitlines(), key=lambda line: [key in line.split("=")[0] for key in ("factor", "clipped", "kept")], reverse=True)
    outputs = {f"{p}{kind}_next": shape for p, shape in SHAPES.items() for kind in ("", "_v")}
    model = onnx.load(with_update(tanh, tmp_path, "\n".join(lines), outputs,
                                  {**{f"{p}_v": np.zeros(shape) for p, shape in SHAPES.items()}, "mu": 0.9, "rate": 0.5}))
    kept = [value for value in model.graph.output if not value.name.endswith("_grad")]
    del model.graph.output[:]
    model.graph.output.extend(kept)
    onnx.save(model, tmp_path / "clipped.onnx")
    said = compiler(tmp_path / "clipped.onnx", "--to=training", "-o", os.devnull).stderr
    assert "gradients of 4 tensors; optimizer operators of the file; state of 4 tensors; used all" in said, said


def test_nodes_of_a_joint_graph_say_that_no_step_is_made(tanh, tmp_path):
    written = tmp_path / "out.onnx"
    line = "joint graph: loss 'loss'; gradients of 4 tensors; used the nodes as they are"
    done = compiler(tanh, "--emit=onnx", "-o", written)
    assert done.returncode == 0 and line in done.stderr and "warning" not in done.stderr, done.stderr
    done = compiler(tanh, "--emit=onnx", "--policy=amp-f16", "-o", written)
    assert done.returncode == 0 and line in done.stderr, done.stderr
    assert "without masters or a loss scale; --backward=file writes the training step" in done.stderr
    names = {tensor.name for tensor in onnx.load(written).graph.initializer}
    assert "w1.master" not in names
    done = compiler(tanh, "--emit=onnx", "--policy=amp-f16", "--onnx-form=training-info", "-o", written)
    assert done.returncode == 1 and "expected a training step for --onnx-form=training-info" in done.stderr and "--backward=file" in done.stderr
    # The advice holds.
    done = compiler(tanh, "--emit=onnx", "--policy=amp-f16", "--onnx-form=training-info", "--backward=file", "--optimizer=sgd,lr=0.1", "-o", written)
    assert done.returncode == 0, done.stderr
    step = onnx.load(written)
    assert len(step.training_info) == 1 and "w1.master" in {tensor.name for tensor in step.graph.initializer}


def test_a_forward_graph_says_nothing_of_training(tanh, tmp_path):
    model = onnx.load(tanh)
    del model.graph.output[1:]
    onnx.save(model, tmp_path / "forward.onnx")
    done = compiler(tmp_path / "forward.onnx", "--emit=onnx", "--policy=amp-f16", "-o", tmp_path / "out.onnx")
    assert done.returncode == 0 and "joint graph" not in done.stderr and "warning" not in done.stderr, done.stderr


def test_roles_by_flags(tanh, tmp_path):
    model = onnx.load(tanh)
    for node in model.graph.node:
        for i, name in enumerate(node.output):
            node.output[i] = name.replace("_grad", "_cotangent")
    for value in model.graph.output:
        value.name = value.name.replace("_grad", "_cotangent")
    onnx.save(model, tmp_path / "named.onnx")
    flags = [f"--gradient={p}={p}_cotangent" for p in SHAPES]
    files, reference = gradients(tmp_path / "named.onnx", tmp_path, *flags, "--seed=seed"), gradients(tanh, tmp_path)
    for name in reference:
        np.testing.assert_array_equal(files[name], reference[name])
    assert "expected an initializer, got 'w9'" in refusal(tmp_path / "named.onnx", "--gradient=w9=w1_cotangent")
    assert "expected an output of the graph, got 'nothing'" in refusal(tmp_path / "named.onnx", "--gradient=w1=nothing")
    assert "expected a value of the graph, got 'nowhere'" in refusal(tmp_path / "named.onnx", *flags, "--seed=nowhere")
    assert "expected outputs that are gradients" in refusal(tmp_path / "named.onnx", "--backward=file")
    assert "expected no --loss" in refusal(tmp_path / "named.onnx", *flags, "--loss=mse")


def test_a_file_without_a_seed_says_how_to_name_it(tanh, tmp_path):
    clipped = "".join(f"{p}_square = Mul({p}_grad, {p}_grad)\n{p}_sum = ReduceSum<keepdims = 0>({p}_square)\n{p}_norm = Sqrt({p}_sum)\n"
                      f"{p}_unit = Div({p}_grad, {p}_norm)\n" for p in SHAPES)
    model = onnx.load(with_update(tanh, tmp_path, clipped, {}, {}))
    del model.graph.output[1:]
    model.graph.output.extend(helper.make_tensor_value_info(f"{p}_unit", onnx.TensorProto.FLOAT, shape) for p, shape in SHAPES.items())
    onnx.save(model, tmp_path / "clipped.onnx")
    flags = [f"--gradient={p}={p}_unit" for p in SHAPES]
    gradients(tmp_path / "clipped.onnx", tmp_path, *flags)
    done = subprocess.run([step_files.BUILD / "bin" / "mpt-opt", tmp_path / "clipped.onnx", *flags, "--policy=amp-f16",
                           "--to=precision", "-o", os.devnull], capture_output=True, text=True)
    assert done.returncode != 0 and "--seed NAME" in done.stderr and "at node '" in done.stderr


def test_parameters_without_values_start_at_zero(tanh, tmp_path):
    model = onnx.load(tanh)
    kept = [tensor for tensor in model.graph.initializer if tensor.name not in SHAPES]
    del model.graph.initializer[:]
    model.graph.initializer.extend(kept)
    for name, shape in SHAPES.items():
        model.graph.input.append(helper.make_tensor_value_info(name, onnx.TensorProto.FLOAT, shape))
    onnx.save(model, tmp_path / "fed.onnx")
    mpt.use_build(step_files.BUILD)
    with mpt.Trainer(mpt.compile(tmp_path / "fed.onnx", out=tmp_path / "lib", optimizer="sgd,lr=0.01"), threads=1) as trainer:
        assert {name: value.shape for name, value in trainer.parameters().items()} == SHAPES
        assert not any(value.any() for value in trainer.parameters().values())
        for name, value in weights().items():
            trainer.set_parameter(name, value)
        _, found = trainer.gradients(FEEDS)
    for name, wanted in gradients(tanh, tmp_path).items():
        if name in SHAPES:
            np.testing.assert_allclose(found[name], wanted, rtol=1e-5, atol=1e-7)


def test_deep_graphs_are_recognized_whole(tmp_path):
    """The gradients of 48 layers in primitives: more than could be compared one by one."""
    layers, text = 48, []
    for i in range(layers):
        text.append(f"p{i} = Softmax<axis=1>(x{i}) h{i} = Mul(p{i}, w) l{i} = ReduceSum<keepdims=0>(h{i}) s{i} = ReduceSum(h{i}, one)"
                    f" c{i} = Sub(w, s{i}) x{i}_grad = Mul(c{i}, p{i}) t{i} = " + (f"Add(t{i - 1}, l{i})" if i else "Identity(l0)"))
    inputs = ", ".join(["float[512, 512] w"] + [f"float[512, 512] x{i}" for i in range(layers)])
    outputs = ", ".join(["float loss"] + [f"float[512, 512] x{i}_grad" for i in range(layers)])
    text.append(f"loss = Identity(t{layers - 1})")
    model = parser.parse_model('<ir_version: 10, opset_import: ["": 21]> g (' + inputs + ") => (" + outputs + ") <int64[1] one = {1}> {" + " ".join(text) + "}")
    onnx.save(model, tmp_path / "deep.onnx")
    made = step_files.call("mpt-opt", tmp_path / "deep.onnx", "--to=import", "--quiet").stdout
    assert made.count("mpt.softmax_backward") == layers


def test_freezing_and_exporting(tanh, tmp_path):
    files = gradients(tanh, tmp_path, "--freeze=w1|b1")
    assert set(files) == {"loss", "w2", "b2"}
    step_files.export(tanh, ["--policy=amp-f16", "--optimizer=sgd,lr=0.1"], tmp_path / "step.onnx")
    assert json.dumps(step_files.states_of(step_files.check(tmp_path / "step.onnx"))).count("master") >= 2
    step_files.call("mpt-opt", tanh, "--policy=fp32", "--backward=file", "--emit=onnx", "-o", tmp_path / "plain.onnx", "--quiet")
    assert step_files.states_of(onnx.load(tmp_path / "plain.onnx"))
