# SPDX-License-Identifier: Apache-2.0
"""A small classifier and its batches, for tests of replicas."""
import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

ROWS = 8  # of one replica


def classifier(path, norm=False, dropout=False, rows=ROWS, inner=0):
    """x [rows, 4] to logits [rows, 3] by two layers, with batch normalization, dropout and `inner` more layers between them;
    `path`. Recipes of 8 bits quantize the inner layers alone."""
    random = np.random.default_rng(0)
    weights = {"w1": random.standard_normal((4, 6)) * 0.4, "w2": random.standard_normal((6, 3)) * 0.4}
    nodes = [helper.make_node("MatMul", ["x", "w1"], ["hidden"], name="fc1")]
    if norm:
        weights |= {"scale": np.ones(6), "bias": np.zeros(6), "mean": np.zeros(6), "variance": np.ones(6)}
        nodes.append(helper.make_node("BatchNormalization", ["hidden", "scale", "bias", "mean", "variance"],
                                      ["normal", "next_mean", "next_variance"], name="norm", training_mode=1))
    nodes.append(helper.make_node("Relu", ["normal" if norm else "hidden"], ["active"], name="relu"))
    active = "active"
    for i in range(inner):
        weights[f"v{i}"] = random.standard_normal((6, 6)) * 0.4
        nodes += [helper.make_node("MatMul", [active, f"v{i}"], [f"inner{i}"], name=f"inner{i}"),
                  helper.make_node("Relu", [f"inner{i}"], [f"active{i}"], name=f"relu{i}")]
        active = f"active{i}"
    initializers = [numpy_helper.from_array(value.astype(np.float32), name) for name, value in weights.items()]
    if dropout:
        initializers += [numpy_helper.from_array(np.float32(0.5), "ratio"), numpy_helper.from_array(np.array(True), "training")]
        nodes.append(helper.make_node("Dropout", [active, "ratio", "training"], ["kept"], name="dropout"))
    nodes.append(helper.make_node("MatMul", ["kept" if dropout else active, "w2"], ["logits"], name="fc2"))
    graph = helper.make_graph(nodes, "classifier", [helper.make_tensor_value_info("x", TensorProto.FLOAT, [rows, 4])],
                              [helper.make_tensor_value_info("logits", TensorProto.FLOAT, [rows, 3])], initializers)
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8), path)
    return path


def batch(replicas, rows=ROWS, seed=1):
    """Rows of `replicas` replicas, one behind the other."""
    random = np.random.default_rng(seed)
    return {"x": random.standard_normal((replicas * rows, 4)).astype(np.float32),
            "labels": random.integers(0, 3, replicas * rows)}
