# SPDX-License-Identifier: Apache-2.0
"""Loss and gradients do not hang on how a graph is written: after random rewritings that keep its meaning they are the same, in float64."""
import subprocess

import numpy as np
import onnx
import onnx.parser
import pytest
from mpt_run import read_tensors, tool, write_tensors
from onnx import numpy_helper
from rewritten_forms import REWRITINGS, rewritten

MODELS = {
    "convolutions": ("""<ir_version: 8, opset_import: ["" : 14]>
      m (float[2,6,6,3] x, int64[2] y) => (float loss) {
        t = Transpose <perm = [0, 3, 1, 2]> (x)
        c = Conv <auto_pad = "SAME_UPPER", strides = [2, 2]> (t, k)
        n, m1, v1 = BatchNormalization <training_mode = 1> (c, g, b, mean, var)
        h = HardSigmoid (n)
        p = MaxPool <kernel_shape = [2, 2]> (h)
        s = Shape (p)
        first = Slice (s, zero, one, zero)
        both = Concat <axis = 0> (first, rest)
        f = Reshape (p, both)
        z = Gemm <transB = 1, alpha = 0.5> (f, w, d)
        loss = SoftmaxCrossEntropyLoss (z, y)
      }""",
                     {"k": (4, 3, 3, 3), "g": (4,), "b": (4,), "mean": (4,), "var": (4,), "w": (3, 16), "d": (3,)},
                     {"zero": [0], "one": [1], "rest": [-1]}),
    "recurrent": ("""<ir_version: 7, opset_import: ["" : 11]>
      m (float[2,4,3] x, float[2,5] target) => (float loss) {
        t = Transpose <perm = [1, 0, 2]> (x)
        all, last, cell = LSTM <hidden_size = 5> (t, w, r, b)
        squeezed = Squeeze <axes = [1]> (all)
        end = Slice (squeezed, minus, most, zero)
        flat = Squeeze <axes = [0]> (end)
        soft = Softmax <axis = 1> (flat)
        scaled = Mul (soft, scale)
        e = Sub (scaled, target)
        q = Mul (e, e)
        loss = ReduceMean <keepdims = 0> (q)
      }""", {"w": (1, 20, 3), "r": (1, 20, 5), "b": (1, 40), "scale": (5,)}, {"zero": [0], "minus": [-1], "most": [2**31 - 1]}),
    "attention": ("""<ir_version: 9, opset_import: ["" : 17]>
      m (int64[2,4] ids, int64[2,4] y) => (float loss) {
        e = Gather (table, ids)
        n = LayerNormalization (e, g, b)
        q = MatMul (n, wq)
        heads = Reshape (q, split)
        h = Transpose <perm = [0, 2, 1, 3]> (heads)
        ht = Transpose <perm = [0, 2, 3, 1]> (heads)
        a = MatMul (h, ht)
        halved = Div (a, root)
        masked = Where (mask, halved, low)
        p = Softmax (masked)
        o = MatMul (p, h)
        back = Transpose <perm = [0, 2, 1, 3]> (o)
        joined = Reshape (back, merge)
        sum = Add (e, joined)
        trans = Transpose (table)
        z = MatMul (sum, trans)
        rows = Reshape (z, classes)
        labels = Reshape (y, every)
        loss = SoftmaxCrossEntropyLoss (rows, labels)
      }""", {"table": (7, 6), "g": (6,), "b": (6,), "wq": (6, 6)},
                  {"split": [0, 0, 2, 3], "merge": [0, 0, -1], "classes": [-1, 7], "every": [-1]}),
}


def model_of(name):
    text, parameters, integers = MODELS[name]
    model, random = onnx.parser.parse_model(text), np.random.default_rng(3)
    values = {key: random.uniform(0.1, 1.0, shape).astype(np.float32) for key, shape in parameters.items()}
    values |= {key: np.array(value, np.int64) for key, value in integers.items()}
    if name == "attention":
        values |= {"root": np.float32(1.5), "low": np.float32(-1e9), "mask": np.tril(np.ones((4, 4), bool))}
    model.graph.initializer.extend(numpy_helper.from_array(np.asarray(value), key) for key, value in values.items())
    feeds = {}
    for value in model.graph.input:
        shape = [dim.dim_value for dim in value.type.tensor_type.shape.dim]
        whole = value.type.tensor_type.elem_type == onnx.TensorProto.INT64
        feeds[value.name] = random.integers(0, 3, shape) if whole else random.standard_normal(shape).astype(np.float32)
    return model, feeds, "|".join(key for key in parameters if key not in ("mean", "var"))


def gradients(model, feeds, trained, folder):
    onnx.save(model, folder / "m.onnx")
    write_tensors(folder / "in.safetensors", feeds)
    done = subprocess.run([tool(), folder / "m.onnx", f"--train={trained}", "--function=gradients", f"--inputs={folder}/in.safetensors",
                           f"--outputs={folder}/out.safetensors", "--fp64"], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return read_tensors(folder / "out.safetensors")


@pytest.mark.parametrize("seed", range(8))
@pytest.mark.parametrize("name", MODELS)
def test_rewritten_graphs_have_the_same_gradients(name, seed, tmp_path):
    model, feeds, trained = model_of(name)
    random = np.random.default_rng(seed)
    names = [REWRITINGS[int(i)].__name__ for i in random.integers(len(REWRITINGS), size=4)]
    want, got = (gradients(graph, feeds, trained, tmp_path) for graph in (model, rewritten(model, names, random)))
    assert set(want) == set(got) and len(want) > 3, names
    for key, value in want.items():
        np.testing.assert_allclose(got[key], value, rtol=1e-12, atol=1e-14, err_msg=f"{key} after {names}")
