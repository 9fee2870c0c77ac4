# SPDX-License-Identifier: Apache-2.0
"""Gradient operators of ONNX Runtime Training: each agrees with our own differentiation of its forward operator, in float64."""
import os
import subprocess
import sys

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

import mpt

sys.path.insert(0, os.path.dirname(__file__))
import mpt_run  # noqa: E402
from runtime_artifacts import MS, flatbuffer, ms, node  # noqa: E402

RNG = np.random.default_rng(11)


def values(*shape):
    return RNG.standard_normal(shape).astype(np.float32)


# Per case: forward nodes from p (and q) to y, backward nodes from dy to p_grad (and q_grad), parameters, constants.
CASES = {
    "Relu": ([node("Relu", "p", "y")], [ms("ReluGrad", "dy,y", "p_grad")], {"p": values(3, 4)}, {}),
    "Tanh": ([node("Tanh", "p", "y")], [ms("TanhGrad", "dy,y", "p_grad")], {"p": values(3, 4)}, {}),
    "Sigmoid": ([node("Sigmoid", "p", "y")], [ms("SigmoidGrad", "dy,y", "p_grad")], {"p": values(3, 4)}, {}),
    "LeakyRelu": ([node("LeakyRelu", "p", "y", alpha=0.2)], [ms("LeakyReluGrad", "dy,y", "p_grad", alpha=0.2)], {"p": values(3, 4)}, {}),
    "Gelu": ([ms("Gelu", "p", "y")], [ms("GeluGrad", "dy,p", "p_grad")], {"p": values(3, 4)}, {}),
    "GeluTanh": ([node("Gelu", "p", "y", approximate="tanh")], [ms("GeluGrad", "dy,p", "p_grad")], {"p": values(3, 4)}, {}),
    "FastGelu": ([ms("FastGelu", "p", "y")], [ms("FastGeluGrad", "dy,p", "p_grad")], {"p": values(3, 4)}, {}),
    "BiasGelu": ([ms("BiasGelu", "p,q", "y")],
                 [ms("BiasGeluGrad_dX", "dy,p,q", "p_grad"), node("ReduceSum", "p_grad,first", "q_grad", keepdims=0)],
                 {"p": values(3, 4), "q": values(4)}, {"first": np.array([0])}),
    "QuickGelu": ([ms("QuickGelu", "p", "y", alpha=1.0)], [ms("QuickGeluGrad", "dy,p", "p_grad", alpha=1.0)], {"p": values(3, 4)}, {}),
    "Softmax": ([node("Softmax", "p", "y", axis=1)], [ms("SoftmaxGrad_13", "dy,y", "p_grad", axis=1)], {"p": values(2, 4, 3)}, {}),
    "LogSoftmax": ([node("LogSoftmax", "p", "y", axis=-1)], [ms("LogSoftmaxGrad_13", "dy,y", "p_grad", axis=-1)], {"p": values(3, 4)}, {}),
    "Conv": ([node("Conv", "p,q,r", "y", pads=[1, 0, 1, 2], strides=[2, 1], dilations=[1, 2], group=2)],
             [ms("ConvGrad", "dy,p,q", "p_grad,q_grad,r_grad", pads=[1, 0, 1, 2], strides=[2, 1], dilations=[1, 2], group=2)],
             {"p": values(2, 4, 7, 6), "q": values(6, 2, 3, 2), "r": values(6)}, {}),
    "ConvTranspose": ([node("ConvTranspose", "p,q,r", "y", pads=[1, 1, 1, 1], strides=[2, 2], output_padding=[1, 0])],
                      [ms("ConvTransposeGrad", "dy,p,q", "p_grad,q_grad,r_grad", pads=[1, 1, 1, 1], strides=[2, 2], output_padding=[1, 0])],
                      {"p": values(2, 3, 4, 4), "q": values(3, 2, 3, 3), "r": values(2)}, {}),
    "BatchNormalization": ([ms("BatchNormInternal", "p,q,r,mean,var", "y,mean2,var2,m,i", training_mode=1, epsilon=1e-3)],
                           [ms("BatchNormalizationGrad", "dy,p,q,m,i", "p_grad,q_grad,r_grad", epsilon=1e-3)],
                           {"p": values(4, 3, 2, 2), "q": values(3), "r": values(3)},
                           {"mean": np.zeros(3, np.float32), "var": np.ones(3, np.float32)}),
    "LayerNormalization": ([node("LayerNormalization", "p,q,r", "y,m,i", axis=1)],
                           [ms("LayerNormalizationGrad", "dy,p,q,m,i", "p_grad,q_grad,r_grad", axis=1)],
                           {"p": values(3, 4, 5), "q": values(4, 5), "r": values(4, 5)}, {}),
    "SimplifiedLayerNormalization": ([node("SimplifiedLayerNormalization", "p,q", "y,i", axis=-1)],
                                     [ms("SimplifiedLayerNormalizationGrad", "dy,p,q,i", "p_grad,q_grad", axis=-1)],
                                     {"p": values(3, 5), "q": values(5)}, {}),
    "Gather": ([node("Gather", "p,index", "y", axis=1)], [node("Shape", "p", "shape"), ms("GatherGrad", "shape,index,dy", "p_grad", axis=1)],
               {"p": values(3, 5)}, {"index": np.array([4, 0, 4, -1])}),
    "GatherElements": ([node("GatherElements", "p,index", "y", axis=1)],
                       [node("Shape", "p", "shape"), ms("GatherElementsGrad", "dy,shape,index", "p_grad", axis=1)],
                       {"p": values(2, 4)}, {"index": np.array([[0, 3, 3], [1, 1, 2]])}),
    "GatherND": ([node("GatherND", "p,index", "y")], [node("Shape", "p", "shape"), ms("GatherNDGrad", "shape,index,dy", "p_grad")],
                 {"p": values(3, 4, 2)}, {"index": np.array([[0, 1], [2, 3], [0, 1]])}),
    "Concat": ([ms("ConcatTraining", "p,q", "y,lengths", axis=1)], [ms("SplitTraining", "dy,lengths", "p_grad,q_grad", axis=1)],
               {"p": values(2, 3), "q": values(2, 5)}, {}),
    "Slice": ([node("Slice", "p,starts,ends,axes,steps", "y")],
              [node("Shape", "p", "shape"), ms("SliceGrad", "dy,shape,starts,ends,axes,steps", "p_grad")],
              {"p": values(9, 8)}, {"starts": np.array([1, -1]), "ends": np.array([9, -8]), "axes": np.array([0, 1]), "steps": np.array([3, -2])}),
    "MaxPool": ([node("MaxPool", "p", "y,index", kernel_shape=[3, 3], strides=[2, 2], pads=[1, 1, 1, 1])],
                [node("MaxPoolGrad", "dy,index", "p_grad", kernel_shape=[3, 3], strides=[2, 2], pads=[1, 1, 1, 1])],
                {"p": values(2, 3, 6, 5)}, {}),
    "Div": ([node("Div", "p,q", "y")], [ms("DivGrad", "dy,p,q", "p_grad,q_grad")], {"p": values(3, 4), "q": 2 + np.abs(values(4))}, {}),
    "Resize": ([node("Resize", "p,,scales", "y", mode="linear")], [ms("ResizeGrad", "dy,p,,scales", "p_grad", mode="linear")],
               {"p": values(1, 2, 3, 4)}, {"scales": np.array([1, 1, 2, 2], np.float32)}),
    "MatMul": ([ms("FusedMatMul", "p,q", "y", transB=1, alpha=0.5)],
               [ms("FusedMatMul", "dy,q", "p_grad", alpha=0.5), ms("FusedMatMul", "dy,p", "q_grad", transA=1, alpha=0.5)],
               {"p": values(3, 4), "q": values(5, 4)}, {}),
    "Scale": ([node("Div", "p,four", "y")], [ms("Scale", "dy,count", "p_grad", scale_down=1)], {"p": values(3, 4)},
              {"four": np.float32(4), "count": np.array(4)}),
    # Before version 13 all axes from `axis` on are one.
    "Softmax-1": ([node("Shape", "p", "shape"), node("Flatten", "p", "rows", axis=1), node("Softmax", "rows", "share"), node("Reshape", "share,shape", "y")],
                  [ms("SoftmaxGrad", "dy,y", "p_grad", axis=1)], {"p": values(2, 4, 3)}, {}),
    "LogSoftmax-1": ([node("Shape", "p", "shape"), node("Flatten", "p", "rows", axis=2), node("LogSoftmax", "rows", "share"),
                      node("Reshape", "share,shape", "y")], [ms("LogSoftmaxGrad", "dy,y", "p_grad", axis=2)], {"p": values(2, 3, 2, 2)}, {}),
    "AveragePool": ([node("AveragePool", "p", "y", kernel_shape=[3, 2], strides=[2, 1], pads=[1, 0, 1, 1])],
                    [ms("AveragePoolGrad", "dy", "pooled", kernel_shape=[3, 2], strides=[2, 1], pads=[1, 0, 1, 1]), node("Identity", "pooled", "p_grad")],
                    {"p": values(2, 3, 6, 5)}, {}),
    "AveragePool-padded": ([node("AveragePool", "p", "y", kernel_shape=[2, 2], pads=[1, 1, 0, 1], count_include_pad=1)],
                           [ms("AveragePoolGrad", "dy", "pooled", kernel_shape=[2, 2], pads=[1, 1, 0, 1], count_include_pad=1),
                            node("Identity", "pooled", "p_grad")], {"p": values(2, 3, 6, 5)}, {}),
    "BiasFastGelu": ([ms("FastGelu", "p,q", "y")],
                     [ms("BiasFastGeluGrad_dX", "dy,p,q", "p_grad"), node("ReduceSum", "p_grad,first", "q_grad", keepdims=0)],
                     {"p": values(3, 4), "q": values(4)}, {"first": np.array([0])}),
    "Broadcast": ([node("Mul", "p,q", "y")],
                  [node("Shape", "p", "p_shape"), node("Shape", "q", "q_shape"), ms("BroadcastGradientArgs", "p_shape,q_shape", "p_axes,q_axes"),
                   node("Mul", "dy,q", "p_all"), node("Mul", "dy,p", "q_all"), ms("ReduceSumTraining", "p_all,p_axes", "p_sum", noop_with_empty_axes=1),
                   ms("ReduceSumTraining", "q_all,q_axes", "q_sum", keepdims=0, noop_with_empty_axes=1), node("Reshape", "p_sum,p_shape", "p_grad"),
                   node("Reshape", "q_sum,q_shape", "q_grad")], {"p": values(3, 1, 4), "q": values(5, 1)}, {}),
    "Broadcast-one": ([node("Mul", "p,q", "y")],
                      [node("Shape", "p", "p_shape"), node("Shape", "q", "q_shape"), ms("BroadcastGradientArgs", "p_shape,q_shape", "p_axes,q_axes"),
                       node("Mul", "dy,q", "p_all"), node("Mul", "dy,p", "q_all"), ms("ReduceSumTraining", "p_all,p_axes", "p_grad", noop_with_empty_axes=1),
                       ms("ReduceSumTraining", "q_all,q_axes", "q_grad", keepdims=0)], {"p": values(3, 4), "q": values(4)}, {}),
    "ReduceSum": ([node("Add", "table,p", "y")], [ms("ReduceSumTraining", "dy,every_axis", "p_grad", keepdims=0)], {"p": np.float32(0.5)},
                  {"table": values(2, 3), "every_axis": np.array([], np.int64)}),
    "Sin": ([node("Sin", "p", "y")], [node("SinGrad", "dy,p", "p_grad")], {"p": values(3, 4)}, {}),
    "Cos": ([node("Cos", "p", "y")], [node("CosGrad", "dy,p", "p_grad")], {"p": values(3, 4)}, {}),
}


STEPS = 4
LENGTHS = np.array([2, STEPS, 0, 1, STEPS + 2], np.int32)


def recurrent(op, y, direction="forward", lengths=None, **form):
    """LSTMTraining or GRUTraining, with gradient at the result that is called y, and its gradient operator. With lengths, what lies behind
    the rows' ends is no number, and what is there counts for nothing."""
    names = ["all", "last", "cell", "cells", "gates"] if op == "LSTM" else ["all", "last", "gates"]
    outputs = ["y" if name == y else name for name in names]
    directions, gates = 2 if direction == "bidirectional" else 1, 4 if op == "LSTM" else 3
    saved = [outputs[0], *(["cells"] if op == "LSTM" else []), "gates"]
    arriving = ["dy" if name == y else "" for name in names[:3 if op == "LSTM" else 2]]
    operands = ["p", "q", "r", "s", "" if lengths is None else "lengths", "h"] + (["c"] if op == "LSTM" else [])
    kept = [name for name in operands if name != "s" or op == "GRU"]
    form = dict(form, hidden_size=3, direction=direction)
    batch = 2 if lengths is None else len(lengths)
    parameters = {"p": values(STEPS, batch, 2), "q": values(directions, gates * 3, 2), "r": values(directions, gates * 3, 3),
                  "s": values(directions, 2 * gates * 3), "h": values(directions, batch, 3)}
    if op == "LSTM":
        parameters["c"] = values(directions, batch, 3)
    for row, length in enumerate([] if lengths is None else lengths):
        parameters["p"][length:, row] = np.nan
    results = [f"{name}_grad" for name in parameters]
    return ([ms(f"{op}Training", ",".join(operands), ",".join(outputs), **form)],
            [ms(f"{op}Grad", ",".join(kept + saved + arriving).rstrip(","), ",".join(results), **form)], parameters,
            {} if lengths is None else {"lengths": lengths})


CASES.update({
    "LSTM": recurrent("LSTM", "all"),
    "LSTM-both": recurrent("LSTM", "all", "bidirectional"),
    "LSTM-last": recurrent("LSTM", "last", "reverse"),
    "LSTM-cell": recurrent("LSTM", "cell", "bidirectional"),
    "GRU": recurrent("GRU", "all", "reverse"),
    "GRU-last": recurrent("GRU", "last", "bidirectional"),
    "GRU-linear": recurrent("GRU", "all", "bidirectional", linear_before_reset=1),
    "GRU-linear-last": recurrent("GRU", "last", linear_before_reset=1),
})
ROWS = {
    "LSTM-rows": recurrent("LSTM", "all", "bidirectional", LENGTHS),
    "LSTM-rows-last": recurrent("LSTM", "last", "reverse", LENGTHS),
    "LSTM-rows-cell": recurrent("LSTM", "cell", "bidirectional", LENGTHS),
    "GRU-rows": recurrent("GRU", "all", "reverse", LENGTHS),
    "GRU-rows-last": recurrent("GRU", "last", "bidirectional", LENGTHS),
    "GRU-linear-rows": recurrent("GRU", "all", "bidirectional", LENGTHS, linear_before_reset=1),
    "GRU-linear-rows-last": recurrent("GRU", "last", "forward", LENGTHS, linear_before_reset=1),
}
CASES.update(ROWS)


def build(case, at_run_time=()):
    """The model, as ONNX Runtime's parts of it lie: forward, the sum of y w as loss, backward from the seed `loss_grad`. Constants that are
    named `at_run_time` are inputs instead."""
    forward, backward, parameters, constants = CASES[case]
    nodes = list(forward) + [
        node("Mul", "y,w", "weighted"), node("ReduceSum", "weighted", "loss", keepdims=0), node("Shape", "weighted", "every"),
        node("Expand", "loss_grad,every", "spread"), node("Mul", "spread,w", "dy"), *backward]
    tensors = [numpy_helper.from_array(np.asarray(value), name) for name, value in {**parameters, **constants}.items() if name not in at_run_time]
    tensors.append(numpy_helper.from_array(np.float32(1), "loss_grad"))
    inputs = [helper.make_tensor_value_info(name, helper.np_dtype_to_tensor_dtype(constants[name].dtype), constants[name].shape) for name in at_run_time]
    graph = helper.make_graph(nodes, case, [helper.make_tensor_value_info("w", TensorProto.FLOAT, shape_of(forward, parameters, constants)), *inputs],
                              [helper.make_tensor_value_info("loss", TensorProto.FLOAT, [])] +
                              [helper.make_tensor_value_info(name + "_grad", TensorProto.FLOAT, value.shape) for name, value in parameters.items()],
                              tensors)
    # The gradient of an average pooling has the shape of its result in the file's types alone.
    graph.value_info.extend(helper.make_tensor_value_info("pooled", TensorProto.FLOAT, parameters["p"].shape) for entry in backward if "pooled" in entry.output)
    opsets = [helper.make_opsetid("", 20), helper.make_opsetid(MS, 1)]
    return helper.make_model(graph, opset_imports=opsets, ir_version=9, producer_name="test")


SHAPES = {"AveragePool": (2, 3, 3, 5), "AveragePool-padded": (2, 3, 6, 6), "Broadcast": (3, 5, 4), "ReduceSum": (2, 3), "Concat": (2, 8), "Conv": (2, 6, 4, 6), "ConvTranspose": (2, 2, 8, 7), "Gather": (3, 4), "GatherElements": (2, 3), "GatherND": (3, 2),
          "Slice": (3, 4), "MaxPool": (2, 3, 3, 3), "Resize": (1, 2, 6, 8), "MatMul": (3, 5), "LSTM": (4, 1, 2, 3), "LSTM-both": (4, 2, 2, 3), "LSTM-last": (1, 2, 3),
          "LSTM-cell": (2, 2, 3), "GRU": (4, 1, 2, 3), "GRU-last": (2, 2, 3), "GRU-linear": (4, 2, 2, 3), "GRU-linear-last": (1, 2, 3),
          "LSTM-rows": (4, 2, 5, 3), "LSTM-rows-last": (1, 5, 3), "LSTM-rows-cell": (2, 5, 3), "GRU-rows": (4, 1, 5, 3), "GRU-rows-last": (2, 5, 3),
          "GRU-linear-rows": (4, 2, 5, 3), "GRU-linear-rows-last": (1, 5, 3)}


def shape_of(forward, parameters, constants):
    name = next((case for case, (nodes, *_) in CASES.items() if nodes is forward), "")
    return SHAPES.get(name, parameters["p"].shape)


def run(model, folder, *flags):
    done = subprocess.run([mpt_run.tool(), model, *flags, "--function=gradients", f"--inputs={folder}/in.safetensors",
                           f"--outputs={folder}/out.safetensors", "--fp64"], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return mpt_run.read_tensors(folder / "out.safetensors"), done.stderr


@pytest.mark.parametrize("flags", [[], ["--no-dropout"]])
def test_gradient_of_dropout_draws_what_the_forward_pass_draws(flags, tmp_path):
    """Also without dropout: then neither pass scales."""
    x = values(64, 32)
    constants = [numpy_helper.from_array(x, "p"), numpy_helper.from_array(np.float32(0.25), "ratio"), numpy_helper.from_array(np.array(True), "on"),
                 numpy_helper.from_array(np.float32(1), "loss_grad")]
    nodes = [node("Dropout", "p,ratio,on", "y,mask"), node("Mul", "y,w", "weighted"), node("ReduceSum", "weighted", "loss", keepdims=0),
             node("Mul", "w,loss_grad", "dy"), ms("DropoutGrad", "dy,mask,ratio,on", "p_grad")]
    info = helper.make_tensor_value_info
    graph = helper.make_graph(nodes, "dropout", [info("w", 1, x.shape)], [info("loss", 1, []), info("p_grad", 1, x.shape)], constants)
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 20), helper.make_opsetid(MS, 1)], ir_version=9), tmp_path / "m.onnx")
    w = values(64, 32)
    mpt_run.write_tensors(tmp_path / "in.safetensors", {"w": w})
    (files, _), (ours, _) = (run(tmp_path / "m.onnx", tmp_path, "--train=p", f"--backward={whose}", *flags) for whose in ("file", "own"))
    assert np.array_equal(files["p"], ours["p"])
    kept = files["p"] != 0
    assert (kept.all() if flags else 0.6 < kept.mean() < 0.9)
    np.testing.assert_allclose(files["p"][kept], w[kept] * (1 if flags else 1 / 0.75), rtol=1e-6)


@pytest.mark.parametrize("case", CASES)
def test_gradient_operator_agrees_with_differentiation(case, tmp_path):
    model = build(case)
    onnx.save(model, tmp_path / "m.onnx")
    shape = [dim.dim_value for dim in model.graph.input[0].type.tensor_type.shape.dim]
    mpt_run.write_tensors(tmp_path / "in.safetensors", {"w": values(*shape)})
    # With a checkpoint the types of the file are read as those of artifacts.
    flags = ["--train=" + "|".join(CASES[case][2]), *([f"--checkpoint={tmp_path}/m.onnx"] if model.graph.value_info else [])]
    (files, said), (ours, _) = (run(tmp_path / "m.onnx", tmp_path, *flags, f"--backward={whose}") for whose in ("file", "own"))
    assert set(files) == set(ours) and len(files) == 1 + len(CASES[case][2])
    for name in ours:
        np.testing.assert_allclose(files[name], ours[name], rtol=1e-9, atol=1e-11, err_msg=name, equal_nan=False)
    assert ("replaced by the gradient of the tanh form" in said) == (case == "GeluTanh")


def test_rows_of_different_lengths_have_gradients_of_finite_differences(tmp_path):
    """Lengths are known at run time here. Each case's loss, in float64, along one direction of all its parameters: differences of fourth order,
    whose error is some h^4. What lies behind the rows' ends is no number, and its gradient is zero."""
    h = 2.0 ** -9
    for case, (_, _, parameters, constants) in ROWS.items():
        model = build(case, at_run_time=["lengths"])
        shape = [dim.dim_value for dim in model.graph.input[0].type.tensor_type.shape.dim]
        mpt_run.write_tensors(tmp_path / "in.safetensors", {"w": values(*shape), "lengths": constants["lengths"]})
        # Steps are exact in float32, the type of the file: parameters are multiples of 2^-10, directions of 2^-3, both below 8.
        exact = {name: np.round(value * 2 ** 10) / np.float32(2 ** 10) for name, value in parameters.items()}
        along = {name: np.round(values(*value.shape) * 2 ** 3) / np.float32(2 ** 3) for name, value in parameters.items()}

        def at(step, whose):
            for tensor in model.graph.initializer:
                if tensor.name in exact:
                    tensor.CopyFrom(numpy_helper.from_array(exact[tensor.name] + np.float32(step) * along[tensor.name], tensor.name))
            onnx.save(model, tmp_path / "m.onnx")
            return run(tmp_path / "m.onnx", tmp_path, "--train=" + "|".join(parameters), f"--backward={whose}")[0]

        files = at(0, "file")
        losses = {step: float(at(step * h, "own")["loss"]) for step in (-2, -1, 1, 2)}
        expected = (8 * (losses[1] - losses[-1]) - (losses[2] - losses[-2])) / (12 * h)
        behind = np.isnan(parameters["p"])
        assert behind.any() and not files["p"][behind].any(), case
        found = sum(np.sum(files[name] * np.where(np.isnan(exact[name]), 0, along[name])) for name in parameters)
        np.testing.assert_allclose(found, expected, rtol=1e-6, err_msg=case)
        # Each parameter takes part, so that none is held to zero.
        assert all(np.isfinite(files[name]).all() and files[name].any() for name in parameters), case


# ---- artifacts
@pytest.fixture
def artifacts(tmp_path):
    """A folder as generate_artifacts writes it, for y = x p, the mean as loss."""
    rows, columns = 3, 4
    nodes = [node("MatMul", "x,p", "y"), node("ReduceMean", "y", "loss", keepdims=0), node("Size", "y", "count"),
             ms("Scale", "loss_grad,count", "share", scale_down=1), node("Shape", "y", "every"), node("Expand", "share,every", "dy"),
             ms("FusedMatMul", "x,dy", "p_grad", transA=1),
             ms("InPlaceAccumulatorV2", "p_grad.accumulation.buffer,p_grad,lazy_reset_grad", "p_grad.accumulation.out")]
    info = helper.make_tensor_value_info
    graph = helper.make_graph(nodes, "training", [info("x", 1, [rows, columns]), info("p", 1, [columns, 2]),
                                                  info("p_grad.accumulation.buffer", 1, [columns, 2]), info("lazy_reset_grad", 9, [1])],
                              [info("loss", 1, []), info("p_grad.accumulation.out", 9, [1])],
                              [numpy_helper.from_array(np.float32(1), "loss_grad")])
    opsets = [helper.make_opsetid("", 17), helper.make_opsetid(MS, 1)]
    folder = tmp_path / "artifacts"
    folder.mkdir()
    onnx.save(helper.make_model(graph, opset_imports=opsets, ir_version=9), folder / "training_model.onnx")
    optimizer = helper.make_graph([ms("SGDOptimizerV2", "learning_rate,params,gradients", "done")], "optimizer",
                                  [info("learning_rate", 1, [1])], [info("done", 9, [1])])
    onnx.save(helper.make_model(optimizer, opset_imports=opsets, ir_version=9), folder / "optimizer_model.onnx")
    weights = values(columns, 2)
    (folder / "checkpoint").write_bytes(flatbuffer({"p": weights}))
    return folder, weights


def test_folder_of_artifacts_trains(artifacts, tmp_path):
    folder, weights = artifacts
    x = values(3, 4)
    mpt_run.write_tensors(tmp_path / "in.safetensors", {"x": x, "learning_rate": np.float32(1e-3)})
    done = subprocess.run([mpt_run.tool(), folder / "training_model.onnx", f"--checkpoint={folder}/checkpoint",
                           f"--optimizer-model={folder}/optimizer_model.onnx", "--function=step", f"--inputs={tmp_path}/in.safetensors",
                           f"--outputs={tmp_path}/out.safetensors", f"--new-state={tmp_path}/state.safetensors"],
                          capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    loss = mpt_run.read_tensors(tmp_path / "out.safetensors")["loss"]
    np.testing.assert_allclose(loss, np.mean(x @ weights), rtol=1e-5)
    gradient = x.T @ np.full((3, 2), 1 / 6, np.float32)
    np.testing.assert_allclose(mpt_run.read_tensors(tmp_path / "state.safetensors")["p"], weights - 1e-3 * gradient, rtol=1e-6)
    tool = mpt_run.tool().parent / "mpt-opt"
    said = subprocess.run([tool, folder, "--to=training", "-o", os.devnull], capture_output=True, text=True)
    assert said.returncode == 0, said.stderr
    assert "ONNX Runtime artifacts: loss 'loss'; gradients of 1 tensors from seed 'loss_grad'; optimizer sgd,lr=0.001" in said.stderr


def compiler(folder, *flags):
    return subprocess.run([mpt_run.tool().parent / "mpt-opt", folder, *flags, "-o", os.devnull], capture_output=True, text=True)


@pytest.mark.parametrize("steps,state", [(7, "state of the optimizer in 6 tensors after 7 steps, of 2 running statistics, of 1 frozen parameter; used all"),
                                         (0, "state of 2 running statistics, of 1 frozen parameter; used all")])
def test_the_line_names_all_that_the_checkpoint_holds(steps, state, tmp_path):
    """y = normalized(x p + q), q frozen; the runtime leaves the running statistics among the frozen tensors."""
    shapes = {"p": (4, 2), "q": (2,), "s": (2,), "t": (2,), "mean": (2,), "var": (2,)}
    tensors, trained = {name: np.abs(values(*shape)) for name, shape in shapes.items()}, ("p", "s", "t")
    nodes = [node("MatMul", "x,p", "h"), node("Add", "h,q", "k"), ms("BatchNormInternal", "k,s,t,mean,var", "y,mean2,var2,m,i", training_mode=1),
             node("ReduceMean", "y", "loss", keepdims=0), node("Size", "y", "count"), ms("Scale", "loss_grad,count", "share", scale_down=1),
             node("Shape", "y", "every"), node("Expand", "share,every", "dy"), ms("BatchNormalizationGrad", "dy,k,s,m,i", "dk,s_grad,t_grad"),
             ms("FusedMatMul", "x,dk", "p_grad", transA=1)]
    nodes += [ms("InPlaceAccumulatorV2", f"{p}_grad.accumulation.buffer,{p}_grad,lazy_reset_grad", f"{p}_grad.accumulation.out") for p in trained]
    info = helper.make_tensor_value_info
    inputs = [info("x", 1, [3, 4]), *(info(name, 1, shape) for name, shape in shapes.items()),
              *(info(f"{p}_grad.accumulation.buffer", 1, shapes[p]) for p in trained), info("lazy_reset_grad", 9, [1])]
    graph = helper.make_graph(nodes, "training", inputs, [info("loss", 1, []), *(info(f"{p}_grad.accumulation.out", 9, [1]) for p in trained)],
                              [numpy_helper.from_array(np.float32(1), "loss_grad")])
    folder = tmp_path / "artifacts"
    folder.mkdir()
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17), helper.make_opsetid(MS, 1)], ir_version=9),
              folder / "training_model.onnx")
    write_optimizer(folder, [ms("AdamWOptimizer", "learning_rate,step,params,gradients,m,v", "done", **ADAM)])
    moments = {p: (np.zeros(shapes[p], np.float32),) * 2 for p in trained} if steps else None
    (folder / "checkpoint").write_bytes(flatbuffer({p: tensors[p] for p in trained}, {p: tensors[p] for p in shapes if p not in trained}, moments, steps))
    done = compiler(folder, "--to=training")
    assert done.returncode == 0 and state in done.stderr, done.stderr


def test_folders_without_a_training_model_say_what_is_missing(tmp_path):
    """Also where the artifacts are in the runtime's own format, which is named."""
    folder = tmp_path / "artifacts"
    folder.mkdir()
    for flags in ([], ["--policy=amp-f16"], ["--to=import"], ["--emit=onnx"]):
        done = compiler(folder, *flags)
        assert done.returncode == 1 and f"expected training_model.onnx in folder '{folder}', got none; name a folder" in done.stderr, done.stderr
    (folder / "training_model.ort").write_bytes(b"")
    done = compiler(folder)
    assert done.returncode == 1 and "got training_model.ort: ONNX Runtime's own format is not read; write the artifacts without ort_format=True" in done.stderr
    for flags in ([], ["--emit=onnx"]):
        done = compiler(folder / "training_model.ort", *flags)
        assert done.returncode == 1 and "expected a model as .onnx, got" in done.stderr and "own format is not read" in done.stderr, done.stderr
    done = subprocess.run([mpt_run.tool(), folder, "--function=step"], capture_output=True, text=True)
    assert done.returncode != 0 and "got training_model.ort" in done.stderr, done.stderr


def test_damaged_checkpoints_are_refused(artifacts, tmp_path):
    """Every cut, and random bytes anywhere: an error or other values, never a crash."""
    folder, _ = artifacts
    tool = mpt_run.tool().parent / "mpt-opt"
    whole = (folder / "checkpoint").read_bytes()
    damaged = [whole[:n] for n in range(0, len(whole), 13)]
    for seed in range(40):
        noise = bytearray(whole)
        for place in np.random.default_rng(seed).integers(8, len(whole), 3):
            noise[place] = np.random.default_rng(seed + 1000).integers(256)
        damaged.append(bytes(noise))
    for bytes_ in damaged:
        (tmp_path / "bad").write_bytes(bytes_)
        done = subprocess.run([tool, folder / "training_model.onnx", f"--checkpoint={tmp_path}/bad", "--to=import", "-o", os.devnull],
                              capture_output=True, text=True)
        assert done.returncode in (0, 1) and (done.returncode == 0 or "error:" in done.stderr), done.stderr


ADAM = {"alpha": 0.9, "beta": 0.99, "epsilon": 1e-3, "weight_decay": 0.1}


def write_optimizer(folder, nodes):
    info = helper.make_tensor_value_info
    graph = helper.make_graph(nodes, "optimizer", [info("learning_rate", 1, [1])], [info("done", 9, [1])])
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17), helper.make_opsetid(MS, 1)], ir_version=9),
              folder / "optimizer_model.onnx")


def adamw(p, g, m, v, t, mode, corrects):
    """AdamWOptimizer in float64."""
    m, v = 0.9 * m + 0.1 * g, 0.99 * v + 0.01 * g * g
    c1, c2 = (1 - 0.9**t, 1 - 0.99**t) if corrects else (1, 1)
    if mode == 0:
        return p * (1 - 1e-4) - 1e-3 / c1 * m / (np.sqrt(v / c2) + 1e-3)
    return (p - 1e-3 * np.sqrt(c2) / c1 * m / (np.sqrt(v) + 1e-3)) * (1 - 1e-4)


def step_of(folder, tmp_path, x, *flags):
    """Parameters and all other state after a step, and what was said."""
    mpt_run.write_tensors(tmp_path / "in.safetensors", {"x": x, "learning_rate": np.float32(1e-3)})
    done = subprocess.run([mpt_run.tool(), folder, *flags, "--function=step", f"--inputs={tmp_path}/in.safetensors",
                           f"--new-state={tmp_path}/state.safetensors"], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return mpt_run.read_tensors(tmp_path / "state.safetensors"), done.stderr


@pytest.mark.parametrize("mode,corrects", [(0, 1), (1, 1), (1, 0)])
@pytest.mark.parametrize("goes_on", [False, True])
def test_adamw_of_the_file_steps(artifacts, tmp_path, mode, corrects, goes_on):
    """Both modes with the file's own numbers, from zero and from the moments of a checkpoint."""
    folder, weights = artifacts
    write_optimizer(folder, [ms("AdamWOptimizer", "learning_rate,step,params,gradients,m,v", "done", adam_mode=mode, correct_bias=corrects, **ADAM)])
    m, v, step = np.zeros_like(weights), np.zeros_like(weights), 0
    if goes_on:
        m, v, step = values(*weights.shape) * 0.1, np.abs(values(*weights.shape)) * 0.01, 7
        (folder / "checkpoint").write_bytes(flatbuffer({"p": weights}, moments={"p": (m, v)}, step=step))
    x = values(3, 4)
    state, _ = step_of(folder, tmp_path, x)
    gradient = (x.T @ np.full((3, 2), 1 / 6, np.float32)).astype(np.float64)
    np.testing.assert_allclose(state["p"], adamw(weights.astype(np.float64), gradient, m, v, step + 1, mode, corrects), rtol=2e-6)
    assert state["mpt.step"] == step + 1
    # Another optimizer leaves the state of the file's aside.
    state, _ = step_of(folder, tmp_path, x, "--optimizer=sgd,lr=0.001")
    assert not any("moment" in name for name in state) and state["p"] == pytest.approx(weights - 1e-3 * gradient, rel=1e-5)


def test_clipping_of_the_file_is_used(artifacts, tmp_path):
    folder, weights = artifacts
    write_optimizer(folder, [ms("InplaceClipGradNorm", "gradients", "clipped", max_norm=0.125),
                             ms("SGDOptimizerV2", "learning_rate,params,clipped", "done")])
    x = values(3, 4)
    gradient = (x.T @ np.full((3, 2), 1 / 6, np.float32)).astype(np.float64)
    norm = np.sqrt(np.sum(gradient**2))
    assert norm > 0.125
    np.testing.assert_allclose(step_of(folder, tmp_path, x)[0]["p"], weights - 1e-3 * gradient * 0.125 / (norm + 1e-6), rtol=1e-6)
    np.testing.assert_allclose(step_of(folder, tmp_path, x, "--clip-norm=0.5")[0]["p"],
                               weights - 1e-3 * gradient * min(1, 0.5 / (norm + 1e-6)), rtol=1e-6)
    said = subprocess.run([mpt_run.tool().parent / "mpt-opt", folder, "--to=training", "-o", os.devnull], capture_output=True, text=True)
    assert "gradients clipped to norm 0.125" in said.stderr


def test_parameters_without_a_checkpoint_start_at_zero(artifacts, tmp_path):
    folder, _ = artifacts
    (folder / "checkpoint").unlink()
    x = values(3, 4)
    state, said = step_of(folder, tmp_path, x)
    assert "--checkpoint=FILE" in said and "start" in said
    np.testing.assert_allclose(state["p"], -1e-3 * (x.T @ np.full((3, 2), 1 / 6, np.float32)), rtol=1e-5)


@pytest.mark.parametrize("content", [b"", b"\n\n"])
def test_empty_files_say_so(artifacts, content):
    folder, _ = artifacts
    for name in ("training_model.onnx", "optimizer_model.onnx"):
        kept = (folder / name).read_bytes()
        (folder / name).write_bytes(content)
        done = subprocess.run([mpt_run.tool().parent / "mpt-opt", folder, "--to=import", "-o", os.devnull], capture_output=True, text=True)
        assert done.returncode == 1 and "got an empty file" in done.stderr, done.stderr
        (folder / name).write_bytes(kept)


def test_gradient_of_dropout_that_keeps_everything_is_not_scaled(tmp_path):
    """Without training_mode a Dropout is the identity; ONNX Runtime 1.19.2 scales its gradient all the same."""
    info, x = helper.make_tensor_value_info, values(4, 3)
    nodes = [node("Dropout", "p,ratio", "y,mask"), node("Mul", "y,w", "weighted"), node("ReduceSum", "weighted", "loss", keepdims=0),
             node("Mul", "w,loss_grad", "dy"), ms("DropoutGrad", "dy,mask,ratio", "p_grad")]
    graph = helper.make_graph(nodes, "dropout", [info("w", 1, x.shape)], [info("loss", 1, []), info("p_grad", 1, x.shape)],
                              [numpy_helper.from_array(np.float32(value), name) for name, value in (("p", x), ("ratio", 0.25), ("loss_grad", 1))])
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17), helper.make_opsetid(MS, 1)], ir_version=9), tmp_path / "m.onnx")
    mpt_run.write_tensors(tmp_path / "in.safetensors", {"w": x + 1})
    files, said = run(tmp_path / "m.onnx", tmp_path, "--train=p")
    np.testing.assert_allclose(files["p"], x + 1, rtol=1e-7)
    assert "replaced by the gradient unscaled" in said


def test_merged_statistics_are_separated(tmp_path):
    """Two normalizations share a mean, and one of them has it as variance too: each gets its own, named after its scale."""
    info, x = helper.make_tensor_value_info, values(4, 3, 2, 2)
    tensors = {name: np.ones(3, np.float32) for name in ("a.weight", "b.weight", "b.running_mean")}
    tensors.update({name: np.zeros(3, np.float32) for name in ("a.bias", "b.bias")})
    attributes = {"training_mode": 1, "momentum": 0.75}
    nodes = [node("BatchNormalization", "x,a.weight,a.bias,b.running_mean,b.running_mean", "y,,", **attributes),
             node("BatchNormalization", "y,b.weight,b.bias,b.running_mean,b.running_mean", "z,,", **attributes),
             node("ReduceMean", "z", "loss", keepdims=0)]
    graph = helper.make_graph(nodes, "merged", [info("x", 1, x.shape)], [info("loss", 1, [])],
                              [numpy_helper.from_array(value, name) for name, value in tensors.items()])
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8), tmp_path / "m.onnx")
    mpt_run.write_tensors(tmp_path / "in.safetensors", {"x": x, "learning_rate": np.float32(0)})
    done = subprocess.run([mpt_run.tool(), tmp_path / "m.onnx", "--loss=none", "--optimizer=sgd,lr=0", "--function=step",
                           f"--inputs={tmp_path}/in.safetensors", f"--new-state={tmp_path}/state.safetensors"], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    state = mpt_run.read_tensors(tmp_path / "state.safetensors")
    mean, variance = x.mean((0, 2, 3)), x.var((0, 2, 3))
    for name, fresh in {"a.running_mean": mean, "a.running_var": variance, "b.running_mean": 0, "b.running_var": variance / (variance + 1e-5)}.items():
        np.testing.assert_allclose(state[name], 0.75 + 0.25 * fresh, rtol=1e-4, atol=1e-6, err_msg=name)


def test_folded_constants_are_no_parameters(tmp_path):
    """An optimizer's name for a node's result has dots where the framework's path has them; the ratio of a dropout stays constant."""
    info, x = helper.make_tensor_value_info, values(4, 3)
    graph = helper.make_graph([node("Gemm", "x,fc.weight", "y"), node("Dropout", "y,/model/layers.1/drop/Constant_output_0,on", "z"),
                               node("ReduceMean", "z", "loss", keepdims=0)], "folded", [info("x", 1, x.shape)], [info("loss", 1, [])],
                              [numpy_helper.from_array(values(3, 2), "fc.weight"), numpy_helper.from_array(np.array(True), "on"),
                               numpy_helper.from_array(np.float32(0.1), "/model/layers.1/drop/Constant_output_0")])
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8, producer_name="pytorch"), tmp_path / "m.onnx")
    done = subprocess.run([mpt_run.tool().parent / "mpt-opt", tmp_path / "m.onnx", "--to=import"], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert "parameter @fc.weight" in done.stdout and "Constant_output" not in done.stdout.split("{-#")[0]
    assert "ratio = 0.1" in done.stdout


def test_numbers_of_the_backward_pass_are_no_parameters(artifacts, tmp_path):
    """ONNX Runtime's gradient builders bring numbers with names like a module's own tensors. As frozen parameters, a zero of theirs beside
    a gradient had no loss scale."""
    folder, weights = artifacts
    model = onnx.load(folder / "training_model.onnx")
    model.producer_name = "pytorch"
    nodes = list(model.graph.node)
    at = next(i for i, entry in enumerate(nodes) if entry.op_type == "Expand")
    nodes[at].output[0] = "dy_all"
    nodes[at + 1:at + 1] = [node("Greater", "y,ZeroConstant_Type1", "above"), node("Where", "above,ZeroConstant_Type1,dy_all", "dy_below"),
                            node("Mul", "dy_below,HalfConstant_Type1", "dy")]
    del model.graph.node[:]
    model.graph.node.extend(nodes)
    model.graph.initializer.extend([numpy_helper.from_array(np.zeros(1, np.float32), "ZeroConstant_Type1"),
                                    numpy_helper.from_array(np.full(1, 0.5, np.float32), "HalfConstant_Type1")])
    onnx.save(model, folder / "training_model.onnx")
    x = values(3, 4)
    said = subprocess.run([mpt_run.tool().parent / "mpt-opt", folder, "--policy=amp-f16", "-o", tmp_path / "out"], capture_output=True, text=True)
    assert said.returncode == 0 and "no seed" not in said.stderr, said.stderr
    trainer = mpt.Trainer(tmp_path / "out", threads=1)
    assert set(trainer.parameters()) == {"p"}
    gradient = trainer.gradients({"x": x})[1]["p"]
    np.testing.assert_allclose(gradient, x.T @ np.where(x @ weights > 0, 0, 1 / 12).astype(np.float32), rtol=2e-3, atol=1e-4)


def test_gradients_that_are_no_multiples_of_their_seed_have_no_scale(artifacts, tmp_path):
    """Weight decay within the backward pass: a policy without a loss scale trains as the file says, and one with is refused by one error."""
    folder, weights = artifacts
    model = onnx.load(folder / "training_model.onnx")
    nodes = list(model.graph.node)
    nodes[-2].output[0] = "p_loss_grad"
    nodes[-1:-1] = [node("Add", "p_loss_grad,p", "p_grad")]
    del model.graph.node[:]
    model.graph.node.extend(nodes)
    onnx.save(model, folder / "training_model.onnx")
    said = {policy: subprocess.run([mpt_run.tool().parent / "mpt-opt", folder, f"--policy={policy}", "-o", tmp_path / policy],
                                   capture_output=True, text=True) for policy in ("amp-bf16", "amp-f16")}
    assert all("at node 'p_grad': no seed found" in run.stderr for run in said.values()), said
    assert said["amp-bf16"].returncode == 0 and said["amp-f16"].returncode == 1
    assert said["amp-f16"].stderr.count("error:") == 1, said["amp-f16"].stderr
    x = values(3, 4)
    gradient = mpt.Trainer(tmp_path / "amp-bf16", threads=1).gradients({"x": x})[1]["p"]
    np.testing.assert_allclose(gradient, x.T @ np.full((3, 2), 1 / 6, np.float32) + weights, rtol=4e-2, atol=2e-2)
