# SPDX-License-Identifier: Apache-2.0
"""Tensors whose values no training leaves behind are held, whatever their names say, and weights of any initialization train."""
import re
import subprocess

import numpy as np
import onnx
import pytest
from mpt_run import tool
from onnx import helper, numpy_helper

TIME = 64


def windows(size):
    n = np.arange(size)
    for period in (size, size - 1):  # periodic and symmetric
        turn = 2 * np.pi * n / period
        yield .5 - .5 * np.cos(turn)
        yield .54 - .46 * np.cos(turn)
        yield .42 - .5 * np.cos(turn) + .08 * np.cos(2 * turn)
        yield (.5 - .5 * np.cos(turn)) ** .85
    yield np.sin(np.pi * (n + .5) / size)
    yield np.kaiser(size, 12)


def fourier(size, window, first=0):
    """Cosines, then sines, of each frequency below the half; the window may stand anywhere."""
    angle = 2 * np.pi * np.outer(np.arange(first, size // 2 + 1), np.arange(size)) / size
    return np.concatenate([np.cos(angle) * window, -np.sin(angle) * window])


def mel(bins, bands):
    hertz = np.linspace(0, 8000, bins)
    edges = 700 * (np.exp(np.linspace(0, np.log(1 + 8000 / 700), bands + 2)) - 1)
    up = (hertz[:, None] - edges[:-2]) / (edges[1:-1] - edges[:-2])
    down = (edges[2:] - hertz[:, None]) / (edges[2:] - edges[1:-1])
    return np.maximum(0, np.minimum(up, down))


def constant_q(bands, size):
    rows = []
    for k in range(bands):
        length = int(size * .9 * 2 ** (-k / bands))
        n = np.arange(-(length // 2), length - length // 2)
        row = np.zeros(size)
        row[size // 2 - length // 2:][:length] = np.hanning(length) / length * np.cos(2 * np.pi * .1 * 2 ** (k / bands) * n)
        rows.append(row)
    return np.stack(rows)


def gaussian(size):
    line = np.exp(-.5 * (np.arange(size) - size // 2) ** 2 / 2.)
    return np.outer(line, line) / line.sum() ** 2


def fixed():
    """(how a layer reads the tensor, tensor)"""
    for window in windows(TIME):
        yield "scale", window
    off = np.zeros(TIME)
    off[5:45] = np.hanning(40)
    for window in (np.ones(TIME), np.hanning(TIME + 1)[:-1], off):
        yield "filter", fourier(TIME, window)[:, None]
        yield "matrix", fourier(TIME, window).T
    yield "filter", (fourier(TIME, np.hanning(TIME + 1)[:-1])[:, None]).astype(np.float16)
    yield "filter", constant_q(12, 4 * TIME)[:, None]
    yield "matrix", mel(TIME, 16)
    yield "matrix", np.cos(np.pi / TIME * np.outer(np.arange(TIME) + .5, np.arange(13)))  # DCT-II
    yield "filter", np.array([1., 6, 15, 20, 15, 6, 1]).reshape(1, 1, 7) / 64
    for size in (3, 5, 7):
        yield "image", np.tile(gaussian(size), (3, 1, 1, 1))
    yield "image", np.arange(16.).reshape(1, 16, 1, 1)  # the expected value of a distribution over 16 cells
    yield "bias", np.stack(np.meshgrid(np.arange(8) + .5, np.arange(8) + .5)).reshape(1, 2, -1)
    yield "bias", np.repeat([8., 16., 32.], [16, 32, 16]).reshape(1, -1)
    angle = np.outer(np.arange(32), 10000. ** (-np.arange(0, 16, 2) / 16))
    yield "table", np.stack([np.sin(angle), np.cos(angle)], -1).reshape(32, 16)


def trained():
    rng = np.random.default_rng(0)
    for size in (1., .1, 1e-2, 1e-3, 1e-5):  # small numbers are no sines of small angles
        for shape in ((24, 3, 7, 7), (16, 12, 3, 3), (8, 1, 3, 3), (8, 1, 5, 5)):
            yield "image", size * rng.standard_normal(shape)
        yield "filter", size * rng.standard_normal((16, 1, 31))
        yield "matrix", size * rng.standard_normal((TIME, 16))
        yield "table", size * rng.standard_normal((32, 16))
        yield "bias", size * rng.standard_normal(TIME)
    yield "matrix", np.linalg.qr(rng.standard_normal((TIME, TIME)))[0]
    yield "matrix", np.eye(TIME)
    yield "matrix", np.zeros((TIME, TIME))
    yield "matrix", np.ones((TIME, 8))
    yield "matrix", np.arange(TIME * 32.).reshape(TIME, 32)  # as tests write weights
    yield "matrix", np.linspace(-1, 1, TIME * 32).reshape(TIME, 32)
    yield "matrix", np.maximum(rng.standard_normal((TIME, 16)), 0)
    yield "matrix", rng.standard_normal((TIME, 16)) * (rng.random((TIME, 16)) < .1)  # pruned
    dirac = np.zeros((8, 8, 3, 3))
    dirac[np.arange(8), np.arange(8), 1, 1] = 1
    yield "image", dirac
    yield "image", np.full((8, 3, 3, 3), 1 / 27)
    yield "image", np.arange(4 * 3 * 9.).reshape(4, 3, 3, 3)
    yield "bias", np.full(TIME, .5)
    yield "bias", np.arange(float(TIME))
    yield "bias", np.repeat([0., 1., 0., 0.], 16)  # of an LSTM whose forget gate begins open


def add(graph, kind, name, shape):
    """Nodes that read tensor `name`, and their inputs and outputs."""
    inputs = {"scale": ("f", [2, TIME]), "bias": ("f", [2, TIME]), "matrix": ("f", [2, shape[0]]), "filter": ("a", [1, 1, 4 * TIME]),
              "table": ("i", [2, 3])}
    groups = shape[0] if kind == "image" and shape[1] == 1 and shape[0] > 1 else 1
    prefix, extents = inputs.get(kind, ("p", [1, groups * shape[1] if kind == "image" else 1, 9, 9]))
    x = f"{prefix}_{'_'.join(map(str, extents))}"
    graph.setdefault("inputs", {})[x] = helper.make_tensor_value_info(x, 7 if kind == "table" else 1, extents)
    source, nodes = x, []
    if kind == "scale":  # frames of a signal
        nodes.append(helper.make_node("Reshape", [x, "frames"], [f"{name}x"]))
        source = f"{name}x"
    if kind == "bias":  # beside a layer; grids have extents of their own
        nodes.append(helper.make_node("MatMul", [x, "layer"], [f"{name}l"]))
        nodes.append(helper.make_node("Reshape", [f"{name}l", "flat" if len(shape) < 3 else "grid"], [f"{name}x"]))
        source = f"{name}x"
    if kind == "table":
        nodes.append(helper.make_node("Gather", [name, x], [f"{name}y"]))
    else:
        op = {"scale": "Mul", "bias": "Add", "matrix": "MatMul"}.get(kind, "Conv")
        nodes.append(helper.make_node(op, [source, name], [f"{name}y"], **({"group": groups} if kind == "image" else {})))
    graph.setdefault("nodes", []).extend(nodes)
    graph.setdefault("outputs", []).append(helper.make_tensor_value_info(f"{name}y", 1, None))


def roles(tensors, folder):
    """Roles of the tensors in the order given, with the reason where one is held."""
    graph, values = {}, [("frames", np.array([2, TIME])), ("flat", np.array([2, TIME])), ("grid", np.array([1, 2, TIME])),
                         ("layer", np.random.default_rng(1).standard_normal((TIME, TIME)).astype(np.float32))]
    for i, (kind, tensor) in enumerate(tensors):
        name = f"const_fold_opt__{i}" if i % 2 else f"model.block.{i}.weight"
        stored = tensor if tensor.dtype == np.float16 else tensor.astype(np.float32)
        read = name
        if stored.dtype == np.float16:
            read = f"{name}_cast"
            graph.setdefault("nodes", []).append(helper.make_node("Cast", [name], [read], to=1))
        values.append((name, stored))
        add(graph, kind, read, tensor.shape)
    model = helper.make_model(helper.make_graph(graph["nodes"], "g", list(graph["inputs"].values()), graph["outputs"],
                                                [numpy_helper.from_array(v, n) for n, v in values]),
                              opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    onnx.save(model, folder / "m.onnx")
    text = subprocess.run([tool().with_name("mpt-translate"), "--import-core", folder / "m.onnx", "--mlir-elide-elementsattrs-if-larger=8",
                           "--mlir-elide-resource-strings-if-larger=8"], capture_output=True, text=True, check=True).stdout
    found = {name: role for role, name in re.findall(r'train\.state\s+(parameter|constant) @"?([\w.]+)"?', text)}
    held = dict(re.findall(r'"?([\w.]+)"? = "([\w ]+)"', text[:text.index("train.state")]))
    return [(found.get(name, "constant"), held.get(name)) for name, _ in values[4:]]


def test_fixed_tensors_are_held(tmp_path):
    tensors = list(fixed())
    for (kind, tensor), (role, why) in zip(tensors, roles(tensors, tmp_path)):
        assert role == "constant", (kind, tensor.shape, tensor.ravel()[:8])
        assert why in ("window", "fixed filter", "filter bank", "positions", "sinusoidal table"), (kind, tensor.shape, why)


def test_weights_of_any_initialization_train(tmp_path):
    tensors = list(trained())
    for (kind, tensor), (role, why) in zip(tensors, roles(tensors, tmp_path)):
        assert role == "parameter", (kind, tensor.shape, tensor.ravel()[:8], why)


@pytest.mark.parametrize("node", ["Add(number, t)", "Mul(t, number)", "Add(h, number)"])
@pytest.mark.parametrize("number, role", [(1., "held"), (3., "held"), (.044715, "held"), (np.sqrt(2 / np.pi), "held"), (np.log(10), "held"),
                                          (1 / 6, "held"), (1 / np.sqrt(96), "held"), (2.4837621, "trains"), (-.1284739, "trains")])
def test_numbers_of_formulas_are_held(number, role, node, tmp_path):
    """One element, as converters fold the constants of GELU and hard swish to it."""
    model = onnx.parser.parse_model(f"""<ir_version: 8, opset_import: ["" : 17]> g (float[2,4] x) => (float[2,4] y) {{
      h = MatMul(x, w)  t = Tanh(h)  y = {node} }}""")
    model.graph.initializer.append(numpy_helper.from_array(np.random.default_rng(0).standard_normal((4, 4)).astype(np.float32), "w"))
    model.graph.initializer.append(numpy_helper.from_array(np.full((1, 1), number, np.float32), "number"))
    onnx.save(model, tmp_path / "m.onnx")
    text = subprocess.run([tool().with_name("mpt-translate"), "--import-core", tmp_path / "m.onnx"], capture_output=True, text=True, check=True).stdout
    assert ("parameter @number" in text) == (role == "trains"), text


def test_fixed_filters_of_inputs_stay_wide(tmp_path):
    """A resampled signal is still the input, and a logarithm would show the filters' roundings."""
    model = onnx.parser.parse_model("""<ir_version: 8, opset_import: ["" : 17]> g (float[1,1,512] x) => (float[1,4,98] y) {
      a = Conv<strides = [2]>(x, low)  b = Conv<strides = [2]>(a, low)  m = Abs(b)  e = Add(m, tiny)  l = Log(e)  y = Conv(l, w) }""")
    taps = np.sinc((np.arange(31) - 15) / 2) * np.hamming(31) / 2
    values = {"low": taps.reshape(1, 1, 31), "tiny": np.array(1e-3), "w": np.random.default_rng(0).standard_normal((4, 1, 9))}
    model.graph.initializer.extend(numpy_helper.from_array(np.asarray(v, np.float32), n) for n, v in values.items())
    onnx.save(model, tmp_path / "m.onnx")
    subprocess.run([tool().with_name("mpt-opt"), tmp_path / "m.onnx", "--policy=amp-f16", "--emit=onnx", "--quiet", "-o", tmp_path / "n.onnx"],
                   check=True)
    written = onnx.load(tmp_path / "n.onnx")
    casts = {node.output[0] for node in written.graph.node if node.op_type == "Cast" and node.attribute[0].i == onnx.TensorProto.FLOAT16}
    narrow = [bool(casts.intersection(node.input)) for node in written.graph.node if node.op_type == "Conv"]
    assert narrow == [False, False, True]


def test_a_zero_that_begins_a_recurrence_is_no_weight(tmp_path):
    """Converters of Keras' LSTM expand one zero to the first state, and compare it with the length: a trained one would end the loop late."""
    model = onnx.parser.parse_model("""<ir_version: 8, opset_import: ["" : 15]> g (float[2,8,3] x) => (float[2,3] y) {
      s = Shape(x)  length = Slice(s, one, two, zeros)  T = Squeeze(length, zeros)  limit = Cast<to=1>(T)  c = Less(zero, limit)
      h = Expand(zero, extents)  all, first, last = Loop(none, c, start, h, T) <body = b (int64 i, bool on, int64 t, float[2,3] before, int64 n)
        => (bool more, int64 next, float[2,3] after, int64 same) { xt = Gather<axis=1>(x, t)  r = MatMul(before, u)  q = Add(xt, r)
          after = Tanh(q)  next = Add(t, one_)  a = Cast<to=1>(next)  b = Cast<to=1>(n)  more = Less(a, b)  same = Identity(n) } >
      y = MatMul(first, w) }""")
    next(node for node in model.graph.node if node.op_type == "Loop").input[0] = ""
    rng = np.random.default_rng(0)
    values = {"one": np.array([1]), "two": np.array([2]), "zeros": np.array([0]), "zero": np.float32(0), "extents": np.array([2, 3]),
              "start": np.int64(0), "one_": np.int64(1)} | {n: rng.standard_normal((3, 3)).astype(np.float32) for n in ("u", "w")}
    model.graph.initializer.extend(numpy_helper.from_array(np.asarray(v), n) for n, v in values.items())
    onnx.save(model, tmp_path / "m.onnx")
    text = subprocess.run([tool().with_name("mpt-translate"), "--import-core", tmp_path / "m.onnx"], capture_output=True, text=True, check=True).stdout
    assert set(re.findall(r"parameter @(\w+)", text)) == {"u", "w"} and text.count("mpt.tanh") == 8
