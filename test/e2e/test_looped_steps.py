# SPDX-License-Identifier: Apache-2.0
"""Training steps whose states are inputs: stock ONNX Runtime loops them; portable files have no FP64."""
import os
import re
import subprocess
import sys

import numpy as np
import onnx
import pytest

sys.path.insert(0, os.path.dirname(__file__))
import step_files  # noqa: E402
from test_step_onnx import build, flags  # noqa: E402

ort = pytest.importorskip("onnxruntime")
pytestmark = pytest.mark.skipif(not (step_files.BUILD / "bin" / "mpt-opt").exists(), reason="mpt-opt is not built")
LOOPED = "--onnx-state=inputs"


def next_states(proto):
    return {entry.get("initializer", name): entry["next"] for name, entry in step_files.states_of(proto).items() if "next" in entry}


def loop(path, feeds, count):
    """Losses, skipped steps and the last states of `count` steps: the first run feeds no state."""
    session = ort.InferenceSession(str(path), providers=["CPUExecutionProvider"])
    names = [value.name for value in session.get_outputs()]
    updates, state, history = next_states(onnx.load(path)), {}, []
    for _ in range(count):
        values = dict(zip(names, session.run(None, {**{name: np.asarray(value) for name, value in feeds.items()}, **state})))
        state = {name: values[output] for name, output in updates.items()}
        history.append((float(values["loss"]), bool(values.get("skipped", False))))
    return history, state


def kinds_of(proto):
    """Element types of all values that the file's graph and functions hold or cast to."""
    kinds = {tensor.data_type for tensor in proto.graph.initializer}
    kinds |= {value.type.tensor_type.elem_type for value in (*proto.graph.input, *proto.graph.output)}
    kinds |= {value.type.tensor_type.elem_type for value in onnx.shape_inference.infer_shapes(proto).graph.value_info}
    for nodes in (proto.graph.node, *(function.node for function in proto.functions)):
        kinds |= {attribute.i for node in nodes if node.op_type == "Cast" for attribute in node.attribute if attribute.name == "to"}
    return kinds - {0}


@pytest.mark.parametrize("policy", ["fp32", "amp-f16", "fp8-e5m2", "bf16-kahan"])
def test_states_are_inputs_and_the_bits_are_the_same(policy, tmp_path):
    model, feeds = build("cnn", tmp_path)
    proto, _ = step_files.compare(model, flags(policy), feeds, tmp_path, "joint", LOOPED)
    inputs, initializers = [value.name for value in proto.graph.input], {tensor.name for tensor in proto.graph.initializer}
    updates = next_states(proto)
    assert set(inputs) == set(feeds) | set(updates) and set(updates) <= initializers
    types = {value.name: value.type for value in (*proto.graph.input, *proto.graph.output)}
    assert all(types[name] == types[output] for name, output in updates.items())


@pytest.mark.parametrize("name, policy", [("cnn", "fp32"), ("cnn", "amp-f16"), ("attention", "als-f16"), ("dropout", "amp-f16")])
def test_onnx_runtime_loops_to_the_library_s_losses(name, policy, tmp_path):
    model, feeds = build(name, tmp_path)
    # A scale at which no step overflows: values that overflow in f16 alone are finite where ONNX Runtime computes f16 in f32.
    words = flags(policy, "adamw,lr=0.01,schedule=cosine,warmup=5,steps=40", *(["--loss-scale=dynamic,init=1024"] if policy == "amp-f16" else []))
    feeds["learning_rate"] = np.float32(0.01)
    path = step_files.export(model, words, tmp_path / "step.onnx", "joint", LOOPED)
    history, _ = loop(path, feeds, 30)
    ours, state = [], None
    for i in range(30):
        results, state = step_files.steps(model, words, feeds, tmp_path, "ours", 1, state)
        ours.append((float(results["loss"]), bool(results.get("skipped", False))))
    assert [skipped for _, skipped in history] == [skipped for _, skipped in ours]
    losses, wanted = (np.array([loss for loss, _ in rows]) for rows in (history, ours))
    # The first losses, before different rounding has led them apart, and the last ones.
    np.testing.assert_allclose(losses[:3], wanted[:3], rtol=1e-5 if policy == "fp32" else 5e-3)
    assert losses[-1] < 0.8 * losses[0] and abs(losses[-1] - wanted[-1]) < 0.1 * wanted[0]


@pytest.mark.parametrize("name", ["cnn", "activations", "dropout", "resize", "longer"])
def test_portable_files_have_no_fp64(name, tmp_path):
    model, feeds = build(name, tmp_path)
    paths = [step_files.export(model, flags("amp-f16"), tmp_path / f"{ops}.onnx", "joint", LOOPED, f"--onnx-ops={ops}") for ops in ("all", "portable")]
    free, portable = (step_files.check(path) for path in paths)
    assert onnx.TensorProto.DOUBLE in kinds_of(free), "the model shows nothing"
    floats = {onnx.TensorProto.FLOAT, onnx.TensorProto.FLOAT16}
    assert kinds_of(portable) <= floats | {onnx.TensorProto.INT64, onnx.TensorProto.INT32, onnx.TensorProto.BOOL}
    (history, state), (other, changed) = loop(paths[0], feeds, 3), loop(paths[1], feeds, 3)
    assert [skipped for _, skipped in history] == [skipped for _, skipped in other]
    np.testing.assert_allclose([loss for loss, _ in other], [loss for loss, _ in history], rtol=5e-3)
    assert set(state) == set(changed)


def test_portable_functions_are_within_their_bound(tmp_path):
    """In FP32 the gradients of a portable file agree with the other's within some units in the last place."""
    model, feeds = build("activations", tmp_path)
    before = {tensor.name: onnx.numpy_helper.to_array(tensor) for tensor in onnx.load(model).graph.initializer}
    states = []
    for ops in ("all", "portable"):
        path = step_files.export(model, flags("fp32", "sgd,lr=1"), tmp_path / f"{ops}.onnx", "joint", f"--onnx-ops={ops}")
        states.append(step_files.steps(path, [], feeds, tmp_path, ops, 1)[1])
    for name in ("w1", "b1"):
        moves = [(state[name].astype(np.float64) - before[name]) for state in states]
        assert np.linalg.norm(moves[0] - moves[1]) <= 1e-5 * np.linalg.norm(moves[0]) and np.any(moves[0])


def test_stochastic_rounding_of_portable_files_is_exact(tmp_path):
    """The same random bits lead to the same f16 parameters wherever 24 of them decide, which is where they are normal."""
    model, feeds = build("attention", tmp_path)
    words = flags("pure-f16-static", "sgd,lr=0.05")
    first = {}
    for ops in ("all", "portable"):
        path = step_files.export(model, words, tmp_path / f"{ops}.onnx", "joint", f"--onnx-ops={ops}")
        first[ops] = step_files.steps(path, [], feeds, tmp_path, ops, 1)[1]
    same = [np.mean(first["all"][name] == first["portable"][name]) for name in ("wq", "wk", "w2") if first["all"][name].dtype == np.float16]
    assert len(same) == 3 and min(same) > 0.9


def test_gemm_takes_the_place_of_transposes(tmp_path):
    model, feeds = build("activations", tmp_path)
    proto, _ = step_files.compare(model, flags("amp-f16"), feeds, tmp_path)
    makers = {output: node for node in proto.graph.node for output in node.output}
    assert sum(node.op_type == "Gemm" for node in proto.graph.node) >= 4
    assert not [node.name for node in proto.graph.node if node.op_type == "MatMul" for name in node.input
                if name in makers and makers[name].op_type == "Transpose"]


def test_gradients_of_convolutions_are_neither_transposed_nor_read_one_by_one(tmp_path):
    """Weights' gradients are GEMMs in the weights' order; scalars beside [O, I, 1, 1] have its rank, else ONNX Runtime is 40 times slower."""
    model, feeds = build("points", tmp_path)
    proto, _ = step_files.compare(model, flags("fp32", "adam"), feeds, tmp_path, "joint", LOOPED)
    values = onnx.shape_inference.infer_shapes(proto).graph
    shapes = {value.name: [dim.dim_value for dim in value.type.tensor_type.shape.dim] for value in (*values.value_info, *values.input, *values.output)}
    shapes |= {tensor.name: list(tensor.dims) for tensor in proto.graph.initializer}
    assert not [node.name for node in proto.graph.node if node.op_type == "Transpose" and shapes[node.output[0]] in (shapes["w1"], shapes["w2"])]
    ranks = {len(shapes[name]) for node in proto.graph.node if node.output[0].startswith("w2/") and node.op_type in ("Add", "Div", "Mul", "Sub")
             for name in node.input if shapes[node.output[0]] == shapes["w2"]}
    assert shapes["w2"][2:] == [1, 1] and ranks == {4}


@pytest.mark.parametrize("words, text", [
    ([LOOPED, "--onnx-form=training-info", "--optimizer=sgd"], "expected --onnx-form=joint for --onnx-state=inputs, got training-info"),
    ([LOOPED], "expected a training step for --onnx-state=inputs, got a graph whose nodes are rewritten"),
    (["--onnx-ops=portable"], "expected a training step for --onnx-ops=portable, got a graph whose nodes are rewritten"),
    (["--onnx-ops=portable", "--optimizer=sgd", "--policy=amp-bf16"], "expected a policy of f16 and f32 for --onnx-ops=portable, got 'bf16'"),
    (["--onnx-ops=some", "--optimizer=sgd"], "expected all|portable"),
])
def test_refusals(words, text, tmp_path):
    model, _ = build("cnn", tmp_path)
    loss = ["--loss=softmax-cross-entropy"] if any(word.startswith("--optimizer") for word in words) else []
    done = subprocess.run([str(step_files.BUILD / "bin" / "mpt-opt"), str(model), *loss, *words, "--emit=onnx", "-o", str(tmp_path / "out.onnx")],
                          capture_output=True, text=True)
    assert done.returncode != 0 and text in done.stderr and not (tmp_path / "out.onnx").exists(), done.stderr


def test_the_example_loops(tmp_path):
    model, feeds = build("attention", tmp_path)
    step_files.export(model, flags("amp-f16"), tmp_path / "step.onnx", "joint", LOOPED)
    np.savez(tmp_path / "data.npz", **{**feeds, "x": np.concatenate([feeds["x"]] * 3), "labels": np.concatenate([feeds["labels"]] * 3)})
    done = subprocess.run([sys.executable, str(step_files.ROOT / "examples/onnxruntime/train.py"), str(tmp_path / "step.onnx"), str(tmp_path / "data.npz"), "60"],
                          capture_output=True, text=True)
    losses = [float(value) for value in re.findall(r"loss ([0-9.]+)", done.stdout)]
    assert done.returncode == 0 and len(losses) == 4 and losses[-1] < 0.8 * losses[0], done.stdout + done.stderr


def test_the_example_in_cpp_loops(tmp_path):
    """Where ONNX Runtime's C++ headers are, on CMAKE_PREFIX_PATH or in the system; the wheel of PyPI has none, nor has Debian 12."""
    source, folder = step_files.ROOT / "examples/onnxruntime", tmp_path / "build"
    made = subprocess.run(["cmake", "-G", "Ninja", "-S", str(source), "-B", str(folder), "-DCMAKE_CXX_COMPILER=clang++-22"], capture_output=True, text=True)
    if "Could not find ONNXRUNTIME" in made.stderr:
        pytest.skip("no headers of ONNX Runtime's C++ interface, or no library")
    subprocess.run(["cmake", "--build", str(folder)], check=True, capture_output=True)
    model, feeds = build("attention", tmp_path)
    path = step_files.export(model, flags("amp-f16"), tmp_path / "step.onnx", "joint", LOOPED)
    for name, values in feeds.items():
        np.concatenate([np.atleast_1d(values)] * 2).tofile(tmp_path / f"{name}.bin")
    done = subprocess.run([str(folder / "train"), str(path), "60", *[f"{name}={tmp_path}/{name}.bin" for name in feeds]], capture_output=True, text=True)
    losses = [float(value) for value in re.findall(r"loss ([0-9.]+)", done.stdout)]
    assert done.returncode == 0, done.stderr
    history, _ = loop(path, feeds, 60)
    np.testing.assert_allclose(losses, [history[step][0] for step in (0, 20, 40, 59)], rtol=1e-5, atol=1e-6)  # as printed


def test_nothing_is_computed_or_copied_twice(tmp_path):
    """No two nodes are equal, outputs are results of nodes, and labels are compared with classes without tables of either."""
    model, feeds = build("cnn", tmp_path)
    proto, _ = step_files.compare(model, flags("fp32"), feeds, tmp_path, "joint", LOOPED)
    keys = []
    for node in proto.graph.node:
        key = onnx.NodeProto()
        key.CopyFrom(node)
        key.ClearField("output"), key.ClearField("name")
        keys.append(key.SerializeToString(deterministic=True))
    assert len(set(keys)) == len(keys)
    makers = {output: node for node in proto.graph.node for output in node.output}
    copies = [node for node in proto.graph.node if node.op_type == "Identity" and node.input[0] in makers]
    outputs = {value.name for value in proto.graph.output}
    assert not [node.output for node in copies if node.input[0] not in outputs]
    compared = [makers[name].op_type for node in proto.graph.node if node.op_type == "Equal" for name in node.input if name in makers]
    assert compared and "Expand" not in compared
    values = onnx.shape_inference.infer_shapes(proto).graph
    shapes = {value.name: value.type.tensor_type.shape for value in (*values.value_info, *values.input, *values.output)}
    cuts = [node for node in proto.graph.node if node.op_type == "Slice"]
    assert not [node.name for node in cuts if shapes[node.input[0]] == shapes[node.output[0]]]
