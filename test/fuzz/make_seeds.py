#!/usr/bin/env python3
"""Seeds for fuzz_import: make_seeds.py OUT writes small binary models, one an operator pattern."""
import os
import sys

import numpy as np
from onnx import numpy_helper, parser

GRAPHS = {
    "gemm": ("(float[2, 3] x) => (float[2, 4] y) { y = Gemm<transB = 1, alpha = 0.5>(x, w) }", {"w": (4, 3)}),
    "conv": ("(float[1, 2, 5, 5] x) => (float[1, 3, 5, 5] y) { y = Conv<pads = [1, 1, 1, 1]>(x, w) }", {"w": (3, 2, 3, 3)}),
    "pool": ("(float[1, 2, 4, 4] x) => (float[1, 2, 2, 2] y) { y = MaxPool<kernel_shape = [2, 2], strides = [2, 2]>(x) }", {}),
    "norm": ("(float[2, 4] x) => (float[2, 4] y) { y = LayerNormalization<axis = -1>(x, s, b) }", {"s": (4,), "b": (4,)}),
    "softmax": ("(float[2, 4] x) => (float[2, 4] y) { y = Softmax<axis = -1>(x) }", {}),
    "shape": ("(float[N, 6] x) => (float[N, 2, 3] y) { n = Shape<start = 0, end = 1>(x) "
              "t = Constant<value = int64[2] {2, 3}>() s = Concat<axis = 0>(n, t) y = Reshape(x, s) }", {}),
    "slice": ("(float[4, 6] x) => (float[2, 6] y) { a = Constant<value = int64[1] {0}>() e = Constant<value = int64[1] {2}>() "
              "y = Slice(x, a, e, a) }", {}),
    "loss": ("(float[4, 3] x, int64[4] t) => (float l) { l = SoftmaxCrossEntropyLoss<reduction = \"mean\">(x, t) }", {}),
    "dropout": ("(float[4, 3] x) => (float[4, 3] y) { r = Constant<value = float {0.5}>() m = Constant<value = bool {1}>() "
                "y = Dropout(x, r, m) }", {}),
    "residual": ("(float[4, 4] x) => (float[4, 4] y) { h = MatMul(x, w) r = Relu(h) y = Add(r, x) }", {"w": (4, 4)}),
}


def main():
    out = sys.argv[1]
    os.makedirs(out, exist_ok=True)
    for name, (graph, weights) in GRAPHS.items():
        model = parser.parse_model(f'<ir_version: 9, opset_import: ["" : 18]>\n{name} {graph}')
        for weight, shape in weights.items():
            model.graph.initializer.append(numpy_helper.from_array(np.ones(shape, np.float32), weight))
        with open(os.path.join(out, name + ".onnx"), "wb") as stream:
            stream.write(model.SerializeToString())


if __name__ == "__main__":
    main()
