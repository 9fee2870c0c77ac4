#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Seeds for fuzz_import and MutationTest: make_seeds.py OUT [FOLDER...].

Writes the models of the folder seeds as binary files, one with weights in packed and sparse form, and one of each form of training graph: joint graphs, TrainingInfoProto with
each optimizer, ONNX Runtime's artifacts with the files beside them. Of each FOLDER the files of the same forms that have at most
64 KiB come too: NAME.onnx, and folders with a training_model.onnx.
"""
import pathlib
import sys
import tempfile

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper, parser

HERE = pathlib.Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent / "python"))
import runtime_artifacts  # noqa: E402

DOMAIN = "ai.onnx.preview.training"
MOST = 64 << 10

JOINT = """<ir_version: 9, opset_import: ["" : 18]>
joint (float[4, 6] x, int64[4] labels, float rate) => (float loss, float[6, 3] w_grad, float[3] b_grad, float[6, 3] w_next, float[3] b_next)
  <float[6, 3] w = {%s}, float[3] b = {0, 0, 0}> {
    h = MatMul(x, w)
    logits = Add(h, b)
    loss, log_prob = SoftmaxCrossEntropyLoss(logits, labels)
    p = Softmax<axis = 1>(logits)
    depth = Constant<value = int64 {3}>()
    values = Constant<value = float[2] {0, 1}>()
    hot = OneHot(labels, depth, values)
    rows = Constant<value = float {4}>()
    d = Sub(p, hot)
    g = Div(d, rows)
    xt = Transpose<perm = [1, 0]>(x)
    w_grad = MatMul(xt, g)
    axis = Constant<value = int64[1] {0}>()
    b_grad = ReduceSum<keepdims = 0>(g, axis)
    wr = Mul(rate, w_grad)
    w_next = Sub(w, wr)
    br = Mul(rate, b_grad)
    b_next = Sub(b, br)
}"""


def value(array, name):
    return numpy_helper.from_array(np.asarray(array), name)


def algorithm(kind):
    """Training information of a model with parameters w and b and result cost: Gradient, then an optimizer over both."""
    names, slots = ["w", "b"], {"Adam": 2, "Adagrad": 1, "Momentum": 1}[kind]
    states = [f"{name}.{i}" for i in range(slots) for name in names]
    settings = {"Adam": {}, "Adagrad": {}, "Momentum": {"alpha": 0.9, "beta": 1.0, "mode": "nesterov", "norm_coefficient": 0.0}}[kind]
    nodes = [helper.make_node("Gradient", names, ["gw", "gb"], domain=DOMAIN, xs=names, y="cost"),
             helper.make_node(kind, ["R", "T", *names, "gw", "gb", *states], [f"{name}+" for name in names + states], domain=DOMAIN, **settings),
             helper.make_node("Add", ["T", "one"], ["T+"])]
    shapes = {"w": (3, 2), "b": (2,)}
    tensors = [value(np.float32(0.1), "R"), value(np.int64(0), "T"), value(np.int64(1), "one"),
               *(value(np.zeros(shapes[state[0]], np.float32), state) for state in states)]
    graph = helper.make_graph(nodes, "algorithm", [], [helper.make_tensor_value_info("T+", TensorProto.INT64, [])], tensors)
    info = onnx.TrainingInfoProto(algorithm=graph)
    for name in (*names, *states, "T"):
        info.update_binding.add(key=name, value=f"{name}+")
    start = helper.make_graph([helper.make_node("RandomNormal", [], ["w.start"], shape=[3, 2], seed=1.0)], "start", [],
                              [helper.make_tensor_value_info("w.start", TensorProto.FLOAT, [3, 2])])
    info.initialization.CopyFrom(start)
    info.initialization_binding.add(key="w", value="w.start")
    return info


def with_algorithms(*kinds):
    nodes = [helper.make_node("MatMul", ["x", "w"], ["h"]), helper.make_node("Add", ["h", "b"], ["y"]), helper.make_node("Sub", ["y", "t"], ["d"]),
             helper.make_node("Mul", ["d", "d"], ["s"]), helper.make_node("ReduceMean", ["s"], ["cost"], keepdims=0)]
    inputs = [helper.make_tensor_value_info(name, TensorProto.FLOAT, shape) for name, shape in (("x", [4, 3]), ("t", [4, 2]))]
    graph = helper.make_graph(nodes, "model", inputs, [helper.make_tensor_value_info("cost", TensorProto.FLOAT, [])],
                              [value(np.ones((3, 2), np.float32), "w"), value(np.zeros(2, np.float32), "b")])
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18), helper.make_opsetid(DOMAIN, 1)], ir_version=9)
    model.training_info.extend(algorithm(kind) for kind in kinds)
    return model


def sparse(name, places, dims):
    return helper.make_sparse_tensor(value(np.float32(np.arange(1, len(places) + 1)), name), value(np.int64(places), "at"), dims)


def stored():
    """Weights in the forms that are unpacked: sparse initializers by number and by coordinates, a sparse constant, 4 and 2 bits."""
    nodes = [helper.make_node("Constant", [], ["c"], sparse_value=sparse("v", [0, 5], [3, 2])),
             helper.make_node("DequantizeLinear", ["q", "scale"], ["p"], axis=1), helper.make_node("DequantizeLinear", ["t", "scale"], ["r"], axis=1),
             helper.make_node("Sum", ["w", "u", "c", "p", "r"], ["all"]), helper.make_node("MatMul", ["x", "all"], ["y"]),
             helper.make_node("ReduceSum", ["y"], ["loss"], keepdims=0)]
    tensors = [value(np.float32([0.5, 2]), "scale"), TensorProto(name="q", dims=[3, 2], data_type=TensorProto.INT4, raw_data=b"\x12\x9a\xf0"),
               TensorProto(name="t", dims=[3, 2], data_type=TensorProto.UINT2, int32_data=[0x1b, 0x02])]
    graph = helper.make_graph(nodes, "stored", [helper.make_tensor_value_info("x", TensorProto.FLOAT, [4, 3])],
                              [helper.make_tensor_value_info("loss", TensorProto.FLOAT, [])], tensors)
    graph.sparse_initializer.extend([sparse("w", [1, 2], [3, 2]), sparse("u", [[0, 1], [2, 0]], [3, 2])])
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 25)], ir_version=13)


def bundle(folder):
    """A folder of artifacts as one model: the files beside it as initializers of bytes (see split() in Mutate.h)."""
    model = onnx.load(folder / "training_model.onnx")
    for name, file in (("checkpoint", "checkpoint"), ("optimizer", "optimizer_model.onnx"), ("evaluation", "eval_model.onnx")):
        if (folder / file).exists():
            raw = (folder / file).read_bytes()
            model.graph.initializer.append(TensorProto(name="fuzz." + name, data_type=TensorProto.UINT8, dims=[len(raw)], raw_data=raw))
    return model


def seeds(folders):
    """(name, bytes) of each."""
    for text in sorted((HERE / "seeds").glob("*.onnxtxt")):
        yield text.stem, parser.parse_model(text.read_text()).SerializeToString()
    yield "joint", parser.parse_model(JOINT % ", ".join(["0.1"] * 18)).SerializeToString()
    yield "stored", stored().SerializeToString()
    for kinds in (["Adam"], ["Adagrad"], ["Momentum"], ["Adam", "Momentum"]):
        yield "algorithm-" + "-".join(kinds), with_algorithms(*kinds).SerializeToString()
    with tempfile.TemporaryDirectory() as name:
        folder = pathlib.Path(name) / "artifacts"
        values = runtime_artifacts.classifier(folder)
        yield "artifacts", bundle(folder).SerializeToString()
        moments = {name: (np.zeros_like(array), np.ones_like(array)) for name, array in values.items()}
        (folder / "checkpoint").write_bytes(runtime_artifacts.flatbuffer(values, frozen={"f": values["b"]}, moments=moments, step=3))
        training = onnx.load(folder / "training_model.onnx")
        keep = [node for node in training.graph.node if node.op_type in ("Gemm", "SoftmaxCrossEntropyLoss")][:2]
        onnx.save(helper.make_model(helper.make_graph(keep, "evaluation", list(training.graph.input)[:4], list(training.graph.output)[:1]),
                                    opset_imports=list(training.opset_import), ir_version=9), folder / "eval_model.onnx")
        yield "artifacts-whole", bundle(folder).SerializeToString()
    for folder in folders:
        for path in sorted(folder.rglob("*.onnx")):
            if path.name == "training_model.onnx":
                data = bundle(path.parent).SerializeToString()
            elif path.name in ("optimizer_model.onnx", "eval_model.onnx"):
                continue
            else:
                data = path.read_bytes()
            if len(data) <= MOST:
                yield "-".join(path.relative_to(folder).with_suffix("").parts), data


def main():
    out = pathlib.Path(sys.argv[1])
    out.mkdir(parents=True, exist_ok=True)
    for name, data in seeds([pathlib.Path(folder) for folder in sys.argv[2:]]):
        (out / (name + ".onnx")).write_bytes(data)


if __name__ == "__main__":
    main()
