# SPDX-License-Identifier: Apache-2.0
"""Models whose weights lie in a file in every way that there is, and the parts of a saved file that must not change."""
import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

BATCH, IN, OUT = 4, 6, 3


def values(name: str, *shape: int) -> np.ndarray:
    return np.random.default_rng(sum(name.encode())).standard_normal(shape).astype(np.float32) / 2


def raw(name, *shape):
    return numpy_helper.from_array(values(name, *shape), name)


def typed(name, *shape):
    return helper.make_tensor(name, TensorProto.FLOAT, shape, values(name, *shape).ravel())


def half(name, *shape):
    """In int32_data, as varints."""
    return helper.make_tensor(name, TensorProto.FLOAT16, shape, values(name, *shape).astype(np.float16).ravel())


def bfloat(name, *shape):
    return helper.make_tensor(name, TensorProto.BFLOAT16, shape, values(name, *shape).ravel(), raw=False)


def model(initializers, nodes=None, constants=(), inputs=(), **more):
    """x @ w + b, then the layer of `nodes`; everything that a file may have besides has something in it."""
    nodes = nodes or [helper.make_node("MatMul", ["x", "w"], ["h"], name="fc"),
                      helper.make_node("Add", ["h", "b"], ["y"], name="bias", doc_string="adds")]
    graph = helper.make_graph([*constants, *nodes], "net", [helper.make_tensor_value_info("x", TensorProto.FLOAT, [BATCH, IN]), *inputs],
                              [helper.make_tensor_value_info("y", TensorProto.FLOAT, [BATCH, OUT])], list(initializers),
                              doc_string="a graph", **more)
    graph.metadata_props.add(key="graph", value="kept")
    made = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 20), helper.make_opsetid("com.example", 1)],
                             producer_name="test", doc_string="a model", ir_version=10)
    made.metadata_props.add(key="author", value="somebody")
    body = [helper.make_node("Identity", ["a"], ["c"])]
    made.functions.append(helper.make_function("com.example", "Same", ["a"], ["c"], body, [helper.make_opsetid("", 20)]))
    return made


def constant(tensor):
    return helper.make_node("Constant", [], [tensor.name], name="const_" + tensor.name, value=tensor)


def half_nodes():
    return [helper.make_node("Cast", ["w"], ["w32"], to=TensorProto.FLOAT),
            helper.make_node("MatMul", ["x", "w32"], ["h"], name="fc"),
            helper.make_node("Add", ["h", "b"], ["y"], name="bias")]


def branches():
    """A weight in each branch, both called `w`."""
    def branch(name, scale):
        tensor = numpy_helper.from_array(scale * values(name, IN, OUT), "w")
        return helper.make_graph([helper.make_node("MatMul", ["x", "w"], [name])], name,
                                 [], [helper.make_tensor_value_info(name, TensorProto.FLOAT, [BATCH, OUT])], [tensor])
    nodes = [helper.make_node("If", ["c"], ["h"], name="choice", then_branch=branch("then", 1), else_branch=branch("other", 2)),
             helper.make_node("Add", ["h", "b"], ["y"])]
    made = model([raw("b", OUT)], nodes, inputs=[helper.make_tensor_value_info("c", TensorProto.BOOL, [])])
    return made


def sparse():
    dense = values("w", IN, OUT).ravel()
    dense[::2] = 0
    at = np.flatnonzero(dense).astype(np.int64)
    tensor = helper.make_sparse_tensor(helper.make_tensor("w", TensorProto.FLOAT, [len(at)], dense[at]),
                                       helper.make_tensor("w_i", TensorProto.INT64, [len(at)], at), [IN, OUT])
    return model([raw("b", OUT)], sparse_initializer=[tensor])


def norm():
    """Running statistics beside weights."""
    nodes = [helper.make_node("MatMul", ["x", "w"], ["h"], name="fc"),
             helper.make_node("BatchNormalization", ["h", "g", "b", "m", "v"], ["y"], name="bn", training_mode=0)]
    return model([raw("w", IN, OUT), raw("g", OUT), typed("b", OUT), raw("m", OUT),
                  numpy_helper.from_array(np.ones(OUT, np.float32), "v")], nodes)


MODELS = {
    "raw": lambda: model([raw("w", IN, OUT), raw("b", OUT)]),
    "typed": lambda: model([typed("w", IN, OUT), typed("b", OUT)]),
    "half": lambda: model([half("w", IN, OUT), raw("b", OUT)], half_nodes()),
    "bfloat": lambda: model([bfloat("w", IN, OUT), raw("b", OUT)], half_nodes()),
    "constants": lambda: model([], constants=[constant(raw("w", IN, OUT)), constant(typed("b", OUT))]),
    "branches": branches,
    "sparse": sparse,
    "norm": norm,
}


def without_values(model: onnx.ModelProto) -> bytes:
    """The file without the elements of float tensors, in the order in which it has them."""
    def blank(tensor):
        if tensor.data_type in (TensorProto.FLOAT, TensorProto.FLOAT16, TensorProto.BFLOAT16):
            for field in ("raw_data", "float_data", "int32_data"):
                tensor.ClearField(field)

    def walk(graph):
        for tensor in graph.initializer:
            blank(tensor)
        for node in graph.node:
            for attribute in node.attribute:
                if attribute.HasField("t"):
                    blank(attribute.t)
                if attribute.HasField("g"):
                    walk(attribute.g)

    copied = onnx.ModelProto()
    copied.CopyFrom(model)
    walk(copied.graph)
    return copied.SerializeToString(deterministic=True)
