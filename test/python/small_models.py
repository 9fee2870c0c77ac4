# SPDX-License-Identifier: Apache-2.0
"""Small graphs of the kinds of networks that the corpus holds, for the tests of policies, without torch."""
import pathlib

import numpy as np
import onnx

# name: (opset, loss words, inputs => results, body, shapes of the weights). Weights that end in _i are ones.
MODELS = {
    "mlp": (18, "softmax-cross-entropy", "float[8, 16] x => float[8, 10] y", """
        a = Gemm<transB = 1>(x, w1, b1)
        b = Relu(a)
        y = Gemm<transB = 1>(b, w2, b2)""", {"w1": (32, 16), "b1": (32,), "w2": (10, 32), "b2": (10,)}),
    "lenet": (18, "softmax-cross-entropy", "float[4, 1, 12, 12] x => float[4, 10] y", """
        a = Conv<kernel_shape = [3, 3]>(x, w1, b1)
        b = Tanh(a)
        c = AveragePool<kernel_shape = [2, 2], strides = [2, 2]>(b)
        d = Conv<kernel_shape = [3, 3]>(c, w2, b2)
        e = Sigmoid(d)
        f = MaxPool<kernel_shape = [3, 3]>(e)
        g = Flatten(f)
        y = Gemm<transB = 1>(g, w3, b3)""",
              {"w1": (4, 1, 3, 3), "b1": (4,), "w2": (8, 4, 3, 3), "b2": (8,), "w3": (10, 8), "b3": (10,)}),
    "resnet": (18, "softmax-cross-entropy", "float[4, 3, 8, 8] x => float[4, 10] y", """
        a = Conv<kernel_shape = [3, 3], pads = [1, 1, 1, 1]>(x, w1)
        n, n_mean, n_var = BatchNormalization<training_mode = 1>(a, s1_i, t1, m1, v1_i)
        b = Relu(n)
        c = Conv<kernel_shape = [3, 3], pads = [1, 1, 1, 1], strides = [2, 2]>(b, w2)
        o, o_mean, o_var = BatchNormalization<training_mode = 1>(c, s2_i, t2, m2, v2_i)
        d = Relu(o)
        e = Conv<kernel_shape = [3, 3], pads = [1, 1, 1, 1]>(d, w3)
        p, p_mean, p_var = BatchNormalization<training_mode = 1>(e, s3_i, t3, m3, v3_i)
        q = Conv<kernel_shape = [1, 1], strides = [2, 2]>(b, w4)
        f = Add(p, q)
        g = Relu(f)
        h = GlobalAveragePool(g)
        i = Flatten(h)
        y = Gemm<transB = 1>(i, w5, b5)""",
               {"w1": (8, 3, 3, 3), "w2": (16, 8, 3, 3), "w3": (16, 16, 3, 3), "w4": (16, 8, 1, 1), "w5": (10, 16), "b5": (10,),
                "s1_i": (8,), "t1": (8,), "m1": (8,), "v1_i": (8,), "s2_i": (16,), "t2": (16,), "m2": (16,), "v2_i": (16,),
                "s3_i": (16,), "t3": (16,), "m3": (16,), "v3_i": (16,)}),
    "unet": (18, "mse", "float[2, 2, 8, 8] x => float[2, 2, 8, 8] y", """
        a = Conv<kernel_shape = [3, 3], pads = [1, 1, 1, 1]>(x, w1, b1)
        b = LeakyRelu<alpha = 0.1>(a)
        c = MaxPool<kernel_shape = [2, 2], strides = [2, 2]>(b)
        d = Conv<kernel_shape = [3, 3], pads = [1, 1, 1, 1]>(c, w2, b2)
        e = Elu(d)
        f = ConvTranspose<kernel_shape = [2, 2], strides = [2, 2]>(e, w3, b3)
        g = Concat<axis = 1>(b, f)
        y = Conv<kernel_shape = [1, 1]>(g, w4, b4)""",
             {"w1": (4, 2, 3, 3), "b1": (4,), "w2": (8, 4, 3, 3), "b2": (8,), "w3": (8, 4, 2, 2), "b3": (4,), "w4": (2, 8, 1, 1),
              "b4": (2,)}),
    "bert": (20, "mse", "float[2, 6, 8] x, float[2, 1, 6, 6] mask => float[2, 6, 8] y", """
        two = Constant<value_float = 2.0>()
        eps = Constant<value_float = 0.00001>()
        low = Constant<value_float = -3.4e38>()
        root = Constant<value_float = 2.0>()
        last = Constant<value_ints = [-1]>()
        heads = Constant<value_ints = [2, 6, 2, 4]>()
        flat = Constant<value_ints = [2, 6, 8]>()
        mean = ReduceMean(x, last)
        centered = Sub(x, mean)
        squared = Pow(centered, two)
        variance = ReduceMean(squared, last)
        safe = Add(variance, eps)
        deviation = Sqrt(safe)
        normed = Div(centered, deviation)
        scaled = Mul(normed, s1_i)
        h = Add(scaled, t1)
        q0 = MatMul(h, wq)
        k0 = MatMul(h, wk)
        v0 = MatMul(h, wv)
        q1 = Reshape(q0, heads)
        k1 = Reshape(k0, heads)
        v1 = Reshape(v0, heads)
        q = Transpose<perm = [0, 2, 1, 3]>(q1)
        k = Transpose<perm = [0, 2, 3, 1]>(k1)
        v = Transpose<perm = [0, 2, 1, 3]>(v1)
        qk = MatMul(q, k)
        scores = Div(qk, root)
        hidden = Mul(mask, low)
        masked = Add(scores, hidden)
        weights = Softmax<axis = -1>(masked)
        mixed = MatMul(weights, v)
        back = Transpose<perm = [0, 2, 1, 3]>(mixed)
        joined = Reshape(back, flat)
        projected = MatMul(joined, wo)
        residual = Add(x, projected)
        m = LayerNormalization<axis = -1>(residual, s2_i, t2)
        up = MatMul(m, w1)
        active = Gelu(up)
        down = MatMul(active, w2)
        y = Add(residual, down)""",
             {"s1_i": (8,), "t1": (8,), "s2_i": (8,), "t2": (8,), "wq": (8, 8), "wk": (8, 8), "wv": (8, 8), "wo": (8, 8), "w1": (8, 32),
              "w2": (32, 8)}),
    "llama": (20, "softmax-cross-entropy,class-axis=-1", "int64[2, 6] tokens => float[2, 6, 16] y", """
        two = Constant<value_float = 2.0>()
        eps = Constant<value_float = 0.00001>()
        last = Constant<value_ints = [-1]>()
        x = Gather<axis = 0>(table, tokens)
        squared = Pow(x, two)
        mean = ReduceMean(squared, last)
        safe = Add(mean, eps)
        deviation = Sqrt(safe)
        inverse = Reciprocal(deviation)
        normed = Mul(x, inverse)
        h = Mul(normed, s1_i)
        gate = MatMul(h, w1)
        sigmoid = Sigmoid(gate)
        swish = Mul(gate, sigmoid)
        up = MatMul(h, w2)
        both = Mul(swish, up)
        down = MatMul(both, w3)
        residual = Add(x, down)
        y = MatMul(residual, head)""",
              {"table": (16, 8), "s1_i": (8,), "w1": (8, 24), "w2": (8, 24), "w3": (24, 8), "head": (8, 16)}),
    "dlrm": (18, "bce-with-logits", "float[4, 6] dense, int64[4, 3] sparse => float[4, 1] y", """
        one = Constant<value_ints = [1]>()
        shape = Constant<value_ints = [4, 16]>()
        a = Gemm<transB = 1>(dense, w1, b1)
        b = Relu(a)
        c = Unsqueeze(b, one)
        d = Gather<axis = 0>(table, sparse)
        e = Concat<axis = 1>(c, d)
        f = Transpose<perm = [0, 2, 1]>(e)
        g = MatMul(e, f)
        h = Reshape(g, shape)
        i = Concat<axis = 1>(b, h)
        y = Gemm<transB = 1>(i, w2, b2)""", {"w1": (8, 6), "b1": (8,), "table": (20, 8), "w2": (1, 24), "b2": (1,)}),
}


def write_model(name: str, folder) -> pathlib.Path:
    """The graph as a file; nodes are named after their first output."""
    opset, _, interface, body, shapes = MODELS[name]
    inputs, results = (side.strip() for side in interface.split("=>"))
    model = onnx.parser.parse_model(f'<ir_version: 9, opset_import: ["" : {opset}]>\n{name} ({inputs}) => ({results}) {{{body}\n}}')
    for node in model.graph.node:
        node.name = node.output[0]
    rng = np.random.default_rng(0)
    for weight, shape in shapes.items():
        value = np.ones(shape) if weight.endswith("_i") else rng.standard_normal(shape) / np.sqrt(shape[-1])
        model.graph.initializer.append(onnx.numpy_helper.from_array(value.astype(np.float32), weight))
    path = pathlib.Path(folder) / f"{name}.onnx"
    path.write_bytes(model.SerializeToString())
    return path


def training_words(name: str) -> list:
    return [f"--loss={MODELS[name][1]}", "--optimizer=adamw,lr=0.001,weight-decay=0.01"]
