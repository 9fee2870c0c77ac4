# SPDX-License-Identifier: Apache-2.0
"""A small classifier and a residual network, and their batches, for tests of replicas."""
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


def residual(path, rows=ROWS):
    """x [rows, 3, 6, 6] to logits [rows, 3]: four convolutions, each with a batch norm, two of them on branches side by side; `path`."""
    random = np.random.default_rng(0)
    nodes, weights = [], {"fc.w": random.standard_normal((5, 3)) * 0.5}

    def block(name, given, channels, out, size, active):
        weights[f"{name}.w"] = random.standard_normal((out, channels, size, size)) * 0.4
        weights.update({f"{name}.scale": random.uniform(0.5, 1.5, out), f"{name}.bias": random.standard_normal(out) * 0.2,
                        f"{name}.mean": np.zeros(out), f"{name}.variance": np.ones(out)})
        nodes.append(helper.make_node("Conv", [given, f"{name}.w"], [f"{name}.conv"], name=f"{name}.conv", pads=[size // 2] * 4))
        nodes.append(helper.make_node("BatchNormalization", [f"{name}.conv", *(f"{name}.{part}" for part in ("scale", "bias", "mean", "variance"))],
                                      [f"{name}.norm", f"{name}.next_mean", f"{name}.next_variance"], name=f"{name}.norm", training_mode=1,
                                      momentum=0.8, epsilon=1e-3))
        if active:
            nodes.append(helper.make_node("Relu", [f"{name}.norm"], [f"{name}.active"], name=f"{name}.relu"))
        return f"{name}.active" if active else f"{name}.norm"

    stem = block("stem", "x", 3, 4, 3, True)
    main = block("second", block("first", stem, 4, 5, 3, True), 5, 5, 3, False)
    nodes += [helper.make_node("Add", [main, block("short", stem, 4, 5, 1, False)], ["sum"], name="add"),
              helper.make_node("Relu", ["sum"], ["active"], name="relu"),
              helper.make_node("ReduceMean", ["active"], ["pooled"], name="pool", axes=[2, 3], keepdims=0),
              helper.make_node("MatMul", ["pooled", "fc.w"], ["logits"], name="fc")]
    graph = helper.make_graph(nodes, "residual", [helper.make_tensor_value_info("x", TensorProto.FLOAT, [rows, 3, 6, 6])],
                              [helper.make_tensor_value_info("logits", TensorProto.FLOAT, [rows, 3])],
                              [numpy_helper.from_array(value.astype(np.float32), name) for name, value in weights.items()])
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8), path)
    return path


def images(replicas, rows=ROWS, seed=1):
    """Rows for `residual`, of which each replica has another mean and deviation: statistics of one differ from the statistics of all."""
    random = np.random.default_rng(seed)
    x = random.standard_normal((replicas, rows, 3, 6, 6)) * np.linspace(0.5, 2, replicas).reshape(-1, 1, 1, 1, 1)
    x += np.linspace(-1, 2, replicas).reshape(-1, 1, 1, 1, 1)
    return {"x": x.reshape(-1, 3, 6, 6).astype(np.float32), "labels": random.integers(0, 3, replicas * rows)}


def batch(replicas, rows=ROWS, seed=1):
    """Rows of `replicas` replicas, one behind the other."""
    random = np.random.default_rng(seed)
    return {"x": random.standard_normal((replicas * rows, 4)).astype(np.float32),
            "labels": random.integers(0, 3, replicas * rows)}
