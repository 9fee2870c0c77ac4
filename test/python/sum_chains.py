# SPDX-License-Identifier: Apache-2.0
"""A model of one chain for each operator whose forward or backward pass sums: x @ w -> operator -> @ w2 -> Relu -> @ w3.

Numbers are positive, so that nothing cancels and a relative error is one of the sums. The chains are the branches of one graph,
each with parameters of its own: an error of one operator is in its own gradients. Thousands of terms meet in one element, forward or
backward. The loss adds 256 times the mean of every chain's result, so that under a loss scale of 1 values and gradients lie
within FP16's and E5M2's range: overflow or underflow there would hide the error of a sum.
"""
import re

import numpy as np
import onnx
import onnx.parser

ROWS = 4096
# Of chain k: H is x @ w (4 x 8), U has 4096 of its rows, I is U as an image, P is a parameter. G is the operator's result, N x 8.
ROWS_OF = "U{k} = Gather (H{k}, rows)\n"
IMAGE = ROWS_OF + "T{k} = Transpose <perm = [1, 0]> (U{k})\nI{k} = Reshape (T{k}, image)\n"
PIXELS = "\nF{k} = Reshape (Z{k}, flat)\nG{k} = Transpose <perm = [1, 0]> (F{k})"
SHARE = "\nG{k} = Mul (Z{k}, share)"
LINES = ROWS_OF + "T{k} = Transpose <perm = [1, 0]> (U{k})\n"
BACK = "\nG{k} = Transpose <perm = [1, 0]> (Z{k})"
SMALL_IMAGE = "T{k} = Transpose <perm = [1, 0]> (H{k})\nI{k} = Reshape (T{k}, corners)\n"

STEPS = ROWS_OF + "T{k} = Reshape (U{k}, steps)\n"
ROWS_OF_STEPS = "\nG{k} = Reshape (Z{k}, back)"

# ONNX operator, with a word where it has two chains: (nodes, shapes of its own parameters, whether all stays positive).
CHAINS = {
    "Gather": ("G{k} = Gather (H{k}, rows)", [], True),
    "GatherElements": ("G{k} = GatherElements <axis = 0> (H{k}, elements)", [], True),
    "GatherND": ("G{k} = GatherND (H{k}, tuples)", [], True),
    "Expand": ("T{k} = Reshape (H{k}, apart)\nZ{k} = Expand (T{k}, repeated)\nG{k} = Reshape (Z{k}, back)", [], True),
    "Add": ("Z{k} = Slice (H{k}, nought, one)\nG{k} = Add (tiny, Z{k})", [], True),
    "ScatterElements": (ROWS_OF + 'Z{k} = ScatterElements <axis = 0, reduction = "add"> (zeros, elements, U{k})' + SHARE, [], True),
    "ScatterND": (ROWS_OF + 'Z{k} = ScatterND <reduction = "add"> (zeros, tuples, U{k})' + SHARE, [], True),
    "CumSum": (ROWS_OF + "Z{k} = CumSum (U{k}, axis)" + SHARE, [], True),
    "ReduceSum": (ROWS_OF + "Z{k} = ReduceSum (U{k}, first)" + SHARE, [], True),
    "ReduceMean": (ROWS_OF + "G{k} = ReduceMean (U{k}, first)", [], True),
    "ReduceL1": (ROWS_OF + "Z{k} = ReduceL1 (U{k}, first)" + SHARE, [], True),
    "ReduceL2": (ROWS_OF + "Z{k} = ReduceL2 (U{k}, first)\nG{k} = Mul (Z{k}, root)", [], True),
    "ReduceSumSquare": (ROWS_OF + "Z{k} = ReduceSumSquare (U{k}, first)" + SHARE, [], True),
    "ReduceLogSum": (ROWS_OF + "G{k} = ReduceLogSum (U{k}, first)", [], True),
    "ReduceLogSumExp": (ROWS_OF + "G{k} = ReduceLogSumExp (U{k}, first)", [], True),
    "ReduceProd": ("Z{k} = ReduceProd (H{k}, first)\nG{k} = Expand (Z{k}, wide)", [], True),
    "MatMul": (ROWS_OF + "Z{k} = MatMul (mix, U{k})" + SHARE, [], True),
    "Gemm": (ROWS_OF + "Z{k} = Gemm (mix, U{k}, P{k})" + SHARE, [(8,)], True),
    "Einsum": (ROWS_OF + 'Z{k} = Einsum <equation = "ik,kj->ij"> (mix, U{k})' + SHARE, [], True),
    "Conv": (IMAGE + "Z{k} = Conv <kernel_shape = [3, 3]> (I{k}, P{k}, Q{k})" + PIXELS, [(8, 8, 3, 3), (8,)], True),
    "ConvTranspose": (IMAGE + "Z{k} = ConvTranspose <kernel_shape = [3, 3]> (I{k}, P{k})" + PIXELS, [(8, 8, 3, 3)], True),
    "AveragePool": (IMAGE + "Z{k} = AveragePool <kernel_shape = [32, 32]> (I{k})" + PIXELS, [], True),
    "GlobalAveragePool": (IMAGE + "Z{k} = GlobalAveragePool (I{k})" + PIXELS, [], True),
    "MaxPool": (IMAGE + "Z{k} = MaxPool <kernel_shape = [48, 48]> (I{k})" + PIXELS, [], True),
    "LpPool": (IMAGE + "Y{k} = LpPool <kernel_shape = [16, 16]> (I{k})\nZ{k} = Mul (Y{k}, sixteenth)" + PIXELS, [], True),
    "GlobalLpPool": (IMAGE + "Y{k} = GlobalLpPool (I{k})\nZ{k} = Mul (Y{k}, root)" + PIXELS, [], True),
    "LRN": (IMAGE + "Z{k} = LRN <size = 5> (I{k})" + PIXELS, [], True),
    "Resize": (SMALL_IMAGE + 'Z{k} = Resize <mode = "nearest"> (I{k}, , , grown)' + PIXELS, [], True),
    "Resize linear": (SMALL_IMAGE + 'Z{k} = Resize <mode = "linear"> (I{k}, , , grown)' + PIXELS, [], True),
    "Col2Im": (LINES + "Y{k} = Reshape (T{k}, blocks)\nZ{k} = Col2Im (Y{k}, pixels, block)" + PIXELS, [], True),
    "BatchNormalization": (ROWS_OF + "Z{k}, M{k}, V{k} = BatchNormalization <training_mode = 1> (U{k}, P{k}, Q{k}, means, ones)\n"
                           "G{k} = Add (Z{k}, two)", [(8,), (8,)], False),
    "LayerNormalization": (LINES + "Z{k} = LayerNormalization (T{k}, P{k})" + BACK, [(ROWS,)], False),
    "RMSNormalization": (LINES + "Z{k} = RMSNormalization (T{k}, P{k})" + BACK, [(ROWS,)], False),
    "GroupNormalization": (IMAGE + "Z{k} = GroupNormalization <num_groups = 2> (I{k}, P{k}, Q{k})" + PIXELS, [(8,), (8,)], False),
    "InstanceNormalization": (IMAGE + "Z{k} = InstanceNormalization (I{k}, P{k}, Q{k})" + PIXELS, [(8,), (8,)], False),
    "MeanVarianceNormalization": (IMAGE + "Z{k} = MeanVarianceNormalization (I{k})" + PIXELS, [], False),
    "LpNormalization": (ROWS_OF + "Z{k} = LpNormalization <axis = 0> (U{k})\nG{k} = Mul (Z{k}, sixteen)", [], False),
    "Softmax": (ROWS_OF + "Z{k} = Softmax <axis = 0> (U{k})\nG{k} = Mul (Z{k}, many)", [], False),
    "LogSoftmax": (ROWS_OF + "Z{k} = LogSoftmax <axis = 0> (U{k})\nG{k} = Neg (Z{k})", [], False),
    "Attention": ("V{k} = Gather (H{k}, few)\nT{k} = Unsqueeze (V{k}, front)\n"
                  "Z{k} = Attention <q_num_heads = 1, kv_num_heads = 1> (T{k}, T{k}, T{k})\nG{k} = Squeeze (Z{k}, front)", [], False),
    "RNN": (STEPS + "Z{k} = RNN <hidden_size = 8> (T{k}, P{k}, Q{k})" + ROWS_OF_STEPS, [(1, 8, 8), (1, 8, 8)], False),
    "GRU": (STEPS + "Z{k} = GRU <hidden_size = 8> (T{k}, P{k}, Q{k})" + ROWS_OF_STEPS, [(1, 24, 8), (1, 24, 8)], False),
    "LSTM": (STEPS + "Z{k} = LSTM <hidden_size = 8> (T{k}, P{k}, Q{k})" + ROWS_OF_STEPS, [(1, 32, 8), (1, 32, 8)], False),
}
# Operators that sum by their numeric class and have no chain, with the reason. Operators of domain com.microsoft become the core
# operations of the chains.
WITHOUT = {
    "DeformConv": "a MatMul behind GatherND", "CumProd": "a product: tested with ReduceProd",
    "SimplifiedLayerNormalization": "RMSNormalization under another name", "CausalConvWithState": "a Conv behind a Concat",
    "DFT": "a GEMM with constants", "STFT": "a GEMM with constants",
}


def model(loss=True):
    """The graph of all chains, with their loss or their results; parameters of chain k are w_k, w2_k, w3_k, P_k and Q_k."""
    random = np.random.default_rng(7)
    eighths = lambda low, high, shape, of: random.integers(low, high, shape).astype(np.float32) / of  # noqa: E731
    body, parameters, results = [], {}, []
    for k, (nodes, shapes, _) in enumerate(CHAINS.values()):
        body += [f"H{k} = MatMul (x, w_{k})", nodes.format(k=k), f"A{k} = MatMul (G{k}, w2_{k})", f"R{k} = Relu (A{k})",
                 f"Y_{k} = MatMul (R{k}, w3_{k})", f"M_{k} = ReduceMean <keepdims = 0> (Y_{k})", f"L_{k} = Mul (M_{k}, weight)"]
        parameters |= {f"w_{k}": eighths(2, 9, (8, 8), 32), f"w2_{k}": eighths(2, 9, (8, 8), 32), f"w3_{k}": eighths(2, 9, (8, 4), 32)}
        parameters |= {f"{name}{k}": eighths(2, 9, shape, 32) for name, shape in zip("PQ", shapes)}
        results.append(f"Y_{k}")
    losses = ", ".join(f"L_{k}" for k in range(len(CHAINS)))
    body.append(f"loss = Sum ({losses})" if loss else f"y = Concat <axis = 0> ({', '.join(results)})")
    text = "\n".join(body)
    graph = onnx.parser.parse_model(f"""<ir_version: 10, opset_import: ["" : 23]>
      chains (float[4, 8] x) => ({"float loss" if loss else "float[n, 4] y"}) {{
        {text}
      }}""")
    for name, value in parameters.items():
        graph.graph.initializer.append(onnx.numpy_helper.from_array(value, name))
    for name, value in constants(random).items():  # initializers of floats would be trained
        graph.graph.node.insert(0, onnx.helper.make_node("Constant", [], [name], value=onnx.numpy_helper.from_array(value)))
    return graph


def scores():
    """Scores of 8 classes at 8 steps of a batch of 4, for losses of sequences."""
    graph = onnx.parser.parse_model("""<ir_version: 10, opset_import: ["" : 23]>
      scores (float[8, 4, 8] x) => (float[8, 4, 8] y) { y = MatMul (x, w) }""")
    graph.graph.initializer.append(onnx.numpy_helper.from_array(np.eye(8, dtype=np.float32), "w"))
    return graph


def constants(random):
    """The nodes' operands beside x and parameters; most indices name row 0."""
    integers = lambda *values: np.array(values, np.int64)  # noqa: E731
    number = lambda value: np.array(value, np.float32)  # noqa: E731
    rows = random.choice(4, ROWS, p=[0.85, 0.05, 0.05, 0.05]).astype(np.int64)
    return {
        "rows": rows, "few": rows[:256], "tuples": rows.reshape(-1, 1),
        "elements": random.choice(4, (ROWS, 8), p=[0.85, 0.05, 0.05, 0.05]).astype(np.int64),
        "apart": integers(4, 1, 8), "repeated": integers(4, ROWS // 4, 8), "back": integers(ROWS, 8), "steps": integers(4, ROWS // 4, 8), "wide": integers(ROWS, 8),
        "nought": integers(0), "one": integers(1), "first": integers(0), "axis": np.array(0, np.int64), "front": integers(0),
        "image": integers(1, 8, 64, 64), "flat": integers(8, -1), "corners": integers(1, 8, 2, 2), "grown": integers(1, 8, 64, 64),
        "blocks": integers(1, 8 * 64, 64), "pixels": integers(15, 15), "block": integers(8, 8),
        "zeros": np.zeros((4, 8), np.float32), "tiny": np.full((ROWS, 8), 0.125, np.float32),
        "mix": random.integers(4, 9, (16, ROWS)).astype(np.float32) / 8, "means": np.zeros(8, np.float32), "ones": np.ones(8, np.float32),
        "share": number(1 / 4096), "root": number(1 / 64), "two": number(2), "sixteen": number(16), "sixteenth": number(1 / 16),
        "many": number(4096), "weight": number(256),
    }


def chain_of(parameter):
    """The operator in whose chain `parameter` stands, and whether that chain is positive."""
    name = list(CHAINS)[int(re.search(r"\d+$", parameter)[0])]
    return name, CHAINS[name][2]


def inputs():
    random = np.random.default_rng(8)
    return {"x": (random.integers(4, 9, (4, 8)) / 8).astype(np.float32)}
