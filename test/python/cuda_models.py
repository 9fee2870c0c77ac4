# SPDX-License-Identifier: Apache-2.0
"""Small models that the CUDA target is tried out on, each written as ONNX without its loss; the result is a batch of inputs."""
import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper


def model(path, name, nodes, weights, inputs, output, opset=17):
    kinds = {"ids": TensorProto.INT64}
    graph = helper.make_graph(nodes, name, [helper.make_tensor_value_info(n, kinds.get(n, TensorProto.FLOAT), s) for n, s in inputs.items()],
                              [helper.make_tensor_value_info(*output)],
                              [numpy_helper.from_array(w, n) for n, w in weights.items()])
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)]), path)


def values(seed, *shape):
    return np.random.default_rng(seed).normal(0, 0.3, shape).astype(np.float32)


def mlp(path):
    nodes = [helper.make_node("Gemm", ["x", "w0", "b0"], ["h"], name="fc0"), helper.make_node("Relu", ["h"], ["r"], name="relu"),
             helper.make_node("Gemm", ["r", "w1", "b1"], ["logits"], name="fc1", transB=1)]
    model(path, "mlp", nodes, {"w0": values(1, 12, 16), "b0": values(2, 16), "w1": values(3, 5, 16), "b1": values(4, 5)},
          {"x": [8, 12]}, ("logits", TensorProto.FLOAT, [8, 5]))
    return values(5, 8, 12)


def chain(path, widths=(16, 32, 48, 64, 16), rows=32):
    """Linear layers of these widths with ReLU between them. In 8 bits are those between the first and the last one."""
    nodes, weights, last = [], {}, "x"
    for i, (inputs, outputs) in enumerate(zip(widths, widths[1:])):
        weights |= {f"w{i}": values(i, inputs, outputs)}
        end = "logits" if i + 2 == len(widths) else f"h{i}"
        nodes.append(helper.make_node("MatMul", [last, f"w{i}"], [end], name=f"fc{i}"))
        if end != "logits":
            nodes.append(helper.make_node("Relu", [end], [f"r{i}"], name=f"relu{i}"))
            last = f"r{i}"
    model(path, "chain", nodes, weights, {"x": [rows, widths[0]]}, ("logits", TensorProto.FLOAT, [rows, widths[-1]]))
    return values(40, rows, widths[0])


def recurrent(path, rows=6, steps=5, width=5):
    """A layer of every cell, in extents that no vector divides: LSTM both ways, GRU with the reset behind and before its GEMM, RNN."""
    nodes, weights, last = [], {}, "x"
    for i, (op, hidden, more) in enumerate([("LSTM", 9, {"direction": "bidirectional"}), ("GRU", 7, {"direction": "reverse", "linear_before_reset": 1}),
                                            ("GRU", 8, {}), ("RNN", 6, {"direction": "reverse"})]):
        gates, ways = {"LSTM": 4, "GRU": 3, "RNN": 1}[op], 2 if more.get("direction") == "bidirectional" else 1
        weights |= {f"w{i}": values(3 * i, ways, gates * hidden, width), f"r{i}": values(3 * i + 1, ways, gates * hidden, hidden),
                    f"b{i}": values(3 * i + 2, ways, 2 * gates * hidden)}
        nodes += [helper.make_node(op, [last, f"w{i}", f"r{i}", f"b{i}"], [f"y{i}", f"h{i}"], name=f"layer{i}", hidden_size=hidden, layout=1, **more),
                  helper.make_node("Reshape", [f"y{i}", f"flat{i}"], [f"x{i}"])]
        width, last = ways * hidden, f"x{i}"
        weights[f"flat{i}"] = np.array([rows, steps, width], np.int64)
    nodes += [helper.make_node("Flatten", ["h3"], ["state"]), helper.make_node("Gemm", ["state", "head"], ["logits"], name="fc")]
    weights |= {"head": values(20, width, 5)}
    model(path, "recurrent", nodes, weights, {"x": [rows, steps, 5]}, ("logits", TensorProto.FLOAT, [rows, 5]))
    return 3 * values(21, rows, steps, 5)


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


def pooled(path):
    """Max pooling between convolutions, channels in eights."""
    nodes = [helper.make_node("Conv", ["x", "w0"], ["c"], name="conv", pads=[1] * 4), helper.make_node("Relu", ["c"], ["r"], name="relu"),
             helper.make_node("MaxPool", ["r"], ["m"], name="pool", kernel_shape=[3, 3], strides=[2, 2], pads=[1] * 4),
             helper.make_node("Conv", ["m", "w1"], ["d"], name="behind", kernel_shape=[3, 3]),
             helper.make_node("GlobalAveragePool", ["d"], ["g"], name="mean"), helper.make_node("Flatten", ["g"], ["f"], name="flat"),
             helper.make_node("Gemm", ["f", "w2"], ["logits"], name="fc")]
    weights = {"w0": values(1, 16, 8, 3, 3), "w1": values(2, 24, 16, 3, 3), "w2": values(3, 24, 5)}
    model(path, "pooled", nodes, weights, {"x": [4, 8, 11, 12]}, ("logits", TensorProto.FLOAT, [4, 5]))
    return values(5, 4, 8, 11, 12)


def layered(path, rank, extent, layers):
    """Convolutions of `rank` dimensions, each as (inputs, outputs, groups, kernel, strides, dilations, pad), with a classifier behind them."""
    nodes, weights, last = [], {}, "x"
    for i, (inputs, outputs, groups, kernel, strides, dilations, pad) in enumerate(layers):
        weights |= {f"w{i}": values(i, outputs, inputs // groups, *[kernel] * rank)}
        nodes += [helper.make_node("Conv", [last, f"w{i}"], [f"c{i}"], name=f"conv{i}", group=groups, strides=(strides * rank)[:rank],
                                   dilations=(dilations * rank)[:rank], pads=[pad] * rank + [max(pad, 1)] * rank),
                  helper.make_node("Relu", [f"c{i}"], [f"r{i}"], name=f"relu{i}")]
        last = f"r{i}"
    nodes += [helper.make_node("GlobalAveragePool", [last], ["g"], name="pool"), helper.make_node("Flatten", ["g"], ["f"], name="flat"),
              helper.make_node("Gemm", ["f", "fc"], ["logits"], name="fc")]
    weights["fc"] = values(30, layers[-1][1], 5)
    model(path, "convolutions", nodes, weights, {"x": [4, 3, *extent]}, ("logits", TensorProto.FLOAT, [4, 5]))
    return values(31, 4, 3, *extent)


def convolutions(path, rank=2):
    """Convolutions with strides, dilations, groups and padding that differs between sides; channels in eights and not."""
    layers = [(3, 16, 1, 3, [2], [1], 1), (16, 16, 1, 3, [2, 1, 3], [1, 2, 1], 2), (16, 24, 1, 2, [1], [2, 1, 2], 1), (24, 24, 3, 1, [3], [1], 0),
              (24, 24, 24, 3, [1], [1], 1), (24, 10, 2, 3, [1], [1], 1)]
    return layered(path, rank, {1: [40], 2: [15, 13], 3: [7, 8, 9]}[rank], layers)


def depthwise(path, rank=2):
    """Depthwise convolutions, between others that change the channels: in eights, in fours and odd ones."""
    large = 3 if rank == 3 else 5  # of no more taps than a direct kernel unrolls
    layers = [(3, 24, 1, 1, [1], [1], 0), (24, 24, 24, 3, [1], [1], 1), (24, 24, 24, 3, [2], [1], 1), (24, 12, 1, 1, [1], [1], 0),
              (12, 12, 12, large, [2, 1, 3], [1, 2, 1], 2), (12, 7, 1, 1, [1], [1], 0), (7, 7, 7, 3, [1], [2], 2), (7, 7, 7, 2, [3], [1], 0)]
    return layered(path, rank, {1: [61], 2: [19, 18], 3: [7, 8, 9]}[rank], layers)


def normalized(path, shift=0.0):
    """Convolutions with batch norm, channels in eights; `shift` moves the inputs, and with them the means that the norms subtract."""
    nodes, weights, last = [], {}, "x"
    for i, (inputs, outputs) in enumerate([(8, 16), (16, 24)]):
        weights |= {f"w{i}": values(i, outputs, inputs, 3, 3) + np.float32(0.05 if shift else 0), f"scale{i}": 1 + values(10 + i, outputs),
                    f"bias{i}": values(20 + i, outputs), f"mean{i}": np.zeros(outputs, np.float32), f"var{i}": np.ones(outputs, np.float32)}
        nodes += [helper.make_node("Conv", [last, f"w{i}"], [f"c{i}"], name=f"conv{i}", kernel_shape=[3, 3]),
                  helper.make_node("BatchNormalization", [f"c{i}", f"scale{i}", f"bias{i}", f"mean{i}", f"var{i}"],
                                   [f"n{i}", f"m{i}", f"v{i}"], name=f"norm{i}", training_mode=1),
                  helper.make_node("Relu", [f"n{i}"], [f"r{i}"], name=f"relu{i}")]
        last = f"r{i}"
    nodes += [helper.make_node("GlobalAveragePool", [last], ["g"], name="pool"), helper.make_node("Flatten", ["g"], ["f"], name="flat"),
              helper.make_node("Gemm", ["f", "fc"], ["logits"], name="fc")]
    weights["fc"] = values(30, 24, 5)
    model(path, "normalized", nodes, weights, {"x": [4, 8, 14, 14]}, ("logits", TensorProto.FLOAT, [4, 5]))
    return values(31, 4, 8, 14, 14) + np.float32(shift)


def transformer(path):
    """Attention, layer norm, tanh-GELU by its parts and dropout; extents in sixteens, which 8-bit GEMMs want."""
    width, heads, length, batch = 32, 2, 16, 4
    weights = {"qkv": values(1, width, 3 * width), "qkv_bias": values(2, 3 * width), "out": values(3, width, width),
               "out_bias": values(4, width), "gain": 1 + values(5, width), "shift": values(6, width), "up": values(7, width, 64),
               "up_bias": values(8, 64), "down": values(9, 64, 16), "scale": np.float32([0.25]), "ratio": np.float32(0.25),
               "training": np.array(True), "split": np.int64([0, 0, heads, width // heads]), "join": np.int64([0, 0, width]),
               "parts": np.int64([width] * 3), "axes": np.int64([1])}
    nodes = [helper.make_node("LayerNormalization", ["x", "gain", "shift"], ["n"], name="norm", axis=-1),
             helper.make_node("MatMul", ["n", "qkv"], ["p0"], name="qkv"), helper.make_node("Add", ["p0", "qkv_bias"], ["p"], name="qkv_add"),
             helper.make_node("Split", ["p", "parts"], ["q0", "k0", "v0"], name="parts", axis=-1)]
    for name, order in (("q", [0, 2, 1, 3]), ("k", [0, 2, 3, 1]), ("v", [0, 2, 1, 3])):
        nodes += [helper.make_node("Reshape", [name + "0", "split"], [name + "1"], name=name + "_split"),
                  helper.make_node("Transpose", [name + "1"], [name], name=name + "_heads", perm=order)]
    nodes += [helper.make_node("MatMul", ["q", "k"], ["s0"], name="scores"), helper.make_node("Mul", ["s0", "scale"], ["s"], name="scaled"),
              helper.make_node("Softmax", ["s"], ["w"], name="softmax", axis=-1),
              helper.make_node("MatMul", ["w", "v"], ["a0"], name="attend"),
              helper.make_node("Transpose", ["a0"], ["a1"], name="heads", perm=[0, 2, 1, 3]),
              helper.make_node("Reshape", ["a1", "join"], ["a"], name="join"),
              helper.make_node("MatMul", ["a", "out"], ["o0"], name="out"), helper.make_node("Add", ["o0", "out_bias"], ["o1"], name="out_add"),
              helper.make_node("Dropout", ["o1", "ratio", "training"], ["o"], name="dropout"),
              helper.make_node("Add", ["x", "o"], ["r"], name="residual"),
              helper.make_node("MatMul", ["r", "up"], ["u0"], name="up"), helper.make_node("Add", ["u0", "up_bias"], ["u1"], name="up_add"),
              helper.make_node("Relu", ["u1"], ["u"], name="relu"),
              helper.make_node("MatMul", ["u", "down"], ["d"], name="down"),
              helper.make_node("ReduceMean", ["d", "axes"], ["logits"], name="mean", keepdims=0)]
    model(path, "transformer", nodes, weights, {"x": [batch, length, width]}, ("logits", TensorProto.FLOAT, [batch, 16]), opset=18)
    return values(10, batch, length, width)


def attention(path, mask="causal", batch=4, heads=2, length=16, depth=8, key_heads=None, dropout=0.0):
    """Attention under a mask: "causal", a constant; "padding", keys that the inputs exclude; "both" in one; "none". Heads may share the heads of
    keys and values, which are repeated, and probabilities may be dropped."""
    key_heads = key_heads or heads
    width, narrow = heads * depth, key_heads * depth
    weights = {"qkv": values(1, width, width + 2 * narrow), "qkv_bias": values(2, width + 2 * narrow), "out": values(3, width, 16), "root": np.float32(depth**0.5),
               "split": np.int64([0, 0, heads, depth]), "join": np.int64([0, 0, width]), "parts": np.int64([width, narrow, narrow]), "axes": np.int64([1]),
               "first": np.int64(0), "split_keys": np.int64([0, 0, key_heads, depth]), "new": np.int64([2]), "training": np.array(True),
               "shared": np.int64([batch, key_heads, heads // key_heads, length, depth]), "repeated": np.int64([batch, heads, length, depth]),
               "ratio": np.float32(dropout),
               "least": np.float32(-0.2), "each": np.int64([batch, 1, 1, length]), "in": np.float32(0), "out_of_it": np.float32(-10000)}
    # Not an initializer, which would be trained.
    later = numpy_helper.from_array(np.triu(np.full((length, length), -np.inf, np.float32), 1)[None, None])
    nodes = [helper.make_node("Constant", [], ["later"], name="later", value=later),
             helper.make_node("MatMul", ["x", "qkv"], ["p0"], name="qkv"), helper.make_node("Add", ["p0", "qkv_bias"], ["p"], name="qkv_add"),
             helper.make_node("Split", ["p", "parts"], ["q0", "k0", "v0"], name="parts", axis=-1)]
    for name, order in (("q", [0, 2, 1, 3]), ("k", [0, 2, 3, 1]), ("v", [0, 2, 1, 3])):
        shares = name != "q" and key_heads != heads
        nodes += [helper.make_node("Reshape", [name + "0", "split_keys" if shares else "split"], [name + "1"], name=name + "_split"),
                  helper.make_node("Transpose", [name + "1"], [name + "2" if shares else name], name=name + "_heads", perm=[0, 2, 1, 3] if shares else order)]
        if shares:  # as transformers' repeat_kv
            nodes += [helper.make_node("Unsqueeze", [name + "2", "new"], [name + "3"], name=name + "_new"),
                      helper.make_node("Expand", [name + "3", "shared"], [name + "4"], name=name + "_shared"),
                      helper.make_node("Reshape", [name + "4", "repeated"], [name + "5"], name=name + "_repeated"),
                      helper.make_node("Transpose", [name + "5"], [name], name=name + "_order", perm=[0, 1, 3, 2] if name == "k" else [0, 1, 2, 3])]
    nodes += [helper.make_node("MatMul", ["q", "k"], ["s0"], name="scores"), helper.make_node("Div", ["s0", "root"], ["s1"], name="scaled"),
              helper.make_node("Gather", ["x", "first"], ["e"], name="first", axis=2), helper.make_node("Greater", ["e", "least"], ["g"], name="seen"),
              helper.make_node("Reshape", ["g", "each"], ["keys"], name="keys"),
              helper.make_node("Where", ["keys", "in", "out_of_it"], ["padding"], name="padding"),
              helper.make_node("Add", ["padding", "later"], ["both"], name="both")]
    masked = {"none": None, "causal": "later", "padding": "padding", "both": "both"}[mask]
    nodes += [helper.make_node("Add", ["s1", masked], ["s"], name="masked") if masked else helper.make_node("Identity", ["s1"], ["s"], name="scores_"),
              helper.make_node("Softmax", ["s"], ["w0"], name="softmax", axis=-1),
              helper.make_node("Dropout", ["w0", "ratio", "training"], ["w"], name="dropout") if dropout else helper.make_node("Identity", ["w0"], ["w"]),
              helper.make_node("MatMul", ["w", "v"], ["a0"], name="attend"),
              helper.make_node("Transpose", ["a0"], ["a1"], name="heads", perm=[0, 2, 1, 3]),
              helper.make_node("Reshape", ["a1", "join"], ["a"], name="join"), helper.make_node("MatMul", ["a", "out"], ["o"], name="out"),
              helper.make_node("ReduceMean", ["o", "axes"], ["logits"], name="mean", keepdims=0)]
    model(path, "attention", nodes, weights, {"x": [batch, length, width]}, ("logits", TensorProto.FLOAT, [batch, 16]), opset=18)
    return values(10, batch, length, width)


def language(path, kind="gpt", layers=2, width=128, heads=2, tokens=64, batch=2, vocabulary=97):
    """A language model with biases and a head tied to its table: "gpt" norms first, masks later tokens, has tanh-GELU and
    weights as torch's linear layers keep them; "bert" norms last and has GELU by erf. The batch is of ids."""
    ends, depth = kind == "bert", width // heads
    later = numpy_helper.from_array(np.triu(np.full((tokens, tokens), -np.inf, np.float32), 1)[None, None])
    weights = {"table": values(0, vocabulary, width), "positions": values(1, tokens, width), "root": np.float32(depth**0.5), "split": np.int64([0, 0, heads, depth]),
               "join": np.int64([0, 0, width]), "parts": np.int64([width] * 3), "rows": np.int64([batch * tokens, vocabulary])}
    nodes = [helper.make_node("Constant", [], ["later"], name="later", value=later), helper.make_node("Gather", ["table", "ids"], ["e"], name="tokens"),
             helper.make_node("Add", ["e", "positions"], ["x0"], name="embedded")]

    def add(op, inputs, output, **more):
        nodes.append(helper.make_node(op, inputs, [output], name=output, **more))
        return output

    def norm(x, name):
        weights.update({f"{name}_gain": 1 + values(len(weights), width), f"{name}_shift": values(len(weights), width)})
        return add("LayerNormalization", [x, f"{name}_gain", f"{name}_shift"], name, axis=-1)

    def linear(x, name, inputs, outputs):
        weights.update({f"{name}_w": values(len(weights), *((inputs, outputs) if ends else (outputs, inputs))) / 3, f"{name}_b": values(len(weights), outputs)})
        w = f"{name}_w" if ends else add("Transpose", [f"{name}_w"], f"{name}_t", perm=[1, 0])
        return add("Add", [add("MatMul", [x, w], f"{name}_product"), f"{name}_b"], name)

    def attention_of(x, name):
        linear(x, name, width, 3 * width)
        nodes.append(helper.make_node("Split", [name, "parts"], [f"{name}_{part}0" for part in "qkv"], name=f"{name}_parts", axis=-1))
        for part, order in (("q", [0, 2, 1, 3]), ("k", [0, 2, 3, 1]), ("v", [0, 2, 1, 3])):
            add("Transpose", [add("Reshape", [f"{name}_{part}0", "split"], f"{name}_{part}1")], f"{name}_{part}", perm=order)
        scores = add("Div", [add("MatMul", [f"{name}_q", f"{name}_k"], f"{name}_scores"), "root"], f"{name}_scaled")
        scores = scores if ends else add("Add", [scores, "later"], f"{name}_masked")
        together = add("MatMul", [add("Softmax", [scores], f"{name}_softmax", axis=-1), f"{name}_v"], f"{name}_attend")
        return linear(add("Reshape", [add("Transpose", [together], f"{name}_heads", perm=[0, 2, 1, 3]), "join"], f"{name}_join"), f"{name}_out", width, width)

    def feedforward(x, name):
        up = add("Gelu", [linear(x, f"{name}_up", width, 4 * width)], f"{name}_gelu", approximate="none" if ends else "tanh")
        return linear(up, f"{name}_down", 4 * width, width)

    x = "x0"
    for i in range(layers):
        for what, part in (("a", attention_of), ("m", feedforward)):
            y = part(x if ends else norm(x, f"{what}{i}_norm"), f"{what}{i}")
            x = add("Add", [x, y], f"{what}{i}_residual")
            x = norm(x, f"{what}{i}_norm") if ends else x
    last = add("MatMul", [norm(x, "last"), add("Transpose", ["table"], "head", perm=[1, 0])], "scored")
    nodes.append(helper.make_node("Reshape", [last, "rows"], ["logits"], name="flat"))
    model(path, kind, nodes, weights, {"ids": [batch, tokens]}, ("logits", TensorProto.FLOAT, [batch * tokens, vocabulary]), opset=20)
    return np.random.default_rng(2).integers(0, vocabulary, (batch, tokens))


def feedforward(path):
    """Two GEMMs in a row, whose bias gradient no kernel makes on the way, then tanh-GELU. Far more rows than columns."""
    nodes = [helper.make_node("Gemm", ["x", "w0", "b0"], ["h"], name="first"), helper.make_node("Gemm", ["h", "w1", "b1"], ["u"], name="up", transB=1),
             helper.make_node("Gelu", ["u"], ["g"], name="gelu", approximate="tanh"),
             helper.make_node("Gemm", ["g", "w2", "b2"], ["logits"], name="down")]
    model(path, "feedforward", nodes, {"w0": values(1, 16, 32), "b0": values(2, 32), "w1": values(3, 64, 32), "b1": values(4, 64),
                                       "w2": values(5, 64, 8), "b2": values(6, 8)},
          {"x": [128, 16]}, ("logits", TensorProto.FLOAT, [128, 8]), opset=20)
    return values(7, 128, 16)
