# SPDX-License-Identifier: Apache-2.0
"""Gradient operators of ONNX Runtime Training: each agrees with our own differentiation of its forward operator, in float64."""
import os
import subprocess
import sys

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

sys.path.insert(0, os.path.dirname(__file__))
import mpt_run  # noqa: E402
from runtime_artifacts import MS, ms, node  # noqa: E402

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
    """LSTMTraining or GRUTraining, with gradient at the result that is called y, and its gradient operator. With lengths, elements behind
    the rows' ends are NaN, and count for nothing."""
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
    # With a checkpoint the types of the file are read as an artifact's types.
    flags = ["--train=" + "|".join(CASES[case][2]), *([f"--checkpoint={tmp_path}/m.onnx"] if model.graph.value_info else [])]
    (files, said), (ours, _) = (run(tmp_path / "m.onnx", tmp_path, *flags, f"--backward={whose}") for whose in ("file", "own"))
    assert set(files) == set(ours) and len(files) == 1 + len(CASES[case][2])
    for name in ours:
        np.testing.assert_allclose(files[name], ours[name], rtol=1e-9, atol=1e-11, err_msg=name, equal_nan=False)
    assert ("replaced by the gradient of the tanh form" in said) == (case == "GeluTanh")


def test_rows_of_different_lengths_have_gradients_of_finite_differences(tmp_path):
    """Lengths are known at run time here. Each case's loss, in float64, along one direction of all its parameters: differences of fourth order,
    whose error is some h^4. Elements behind the rows' ends are NaN, and their gradient is zero."""
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
