"""Small models that the CUDA target is tried out on, each written as ONNX without its loss; the result is a batch of inputs."""
import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper


def model(path, name, nodes, weights, inputs, output):
    graph = helper.make_graph(nodes, name, [helper.make_tensor_value_info(n, TensorProto.FLOAT, s) for n, s in inputs.items()],
                              [helper.make_tensor_value_info(*output)],
                              [numpy_helper.from_array(w, n) for n, w in weights.items()])
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)]), path)


def values(seed, *shape):
    return np.random.default_rng(seed).normal(0, 0.3, shape).astype(np.float32)


def mlp(path):
    nodes = [helper.make_node("Gemm", ["x", "w0", "b0"], ["h"], name="fc0"), helper.make_node("Relu", ["h"], ["r"], name="relu"),
             helper.make_node("Gemm", ["r", "w1", "b1"], ["logits"], name="fc1", transB=1)]
    model(path, "mlp", nodes, {"w0": values(1, 12, 16), "b0": values(2, 16), "w1": values(3, 5, 16), "b1": values(4, 5)},
          {"x": [8, 12]}, ("logits", TensorProto.FLOAT, [8, 5]))
    return values(5, 8, 12)


def cnn(path):
    nodes = [helper.make_node("Conv", ["x", "w0", "b0"], ["c"], name="conv", pads=[1, 1, 1, 1], strides=[2, 2]),
             helper.make_node("Relu", ["c"], ["r"], name="relu"),
             helper.make_node("Conv", ["r", "w1"], ["d"], name="grouped", group=2, kernel_shape=[3, 3]),
             helper.make_node("GlobalAveragePool", ["d"], ["g"], name="pool"),
             helper.make_node("Flatten", ["g"], ["f"], name="flat"),
             helper.make_node("Gemm", ["f", "w2"], ["logits"], name="fc")]
    weights = {"w0": values(1, 8, 3, 3, 3), "b0": values(2, 8), "w1": values(3, 6, 4, 3, 3), "w2": values(4, 6, 5)}
    model(path, "cnn", nodes, weights, {"x": [4, 3, 9, 8]}, ("logits", TensorProto.FLOAT, [4, 5]))
    return values(5, 4, 3, 9, 8)
