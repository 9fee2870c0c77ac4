# SPDX-License-Identifier: Apache-2.0
"""Attention in joint graphs, whose backward pass is written out: one call each way in every layout, which means the same as the ops that it replaces.
Both are run by the interpreter in FP64, where no rounding hides a difference."""
import itertools
import json
import os
import random
import re
import subprocess
import sys

import ml_dtypes
import numpy as np
import pytest
from conftest import build_folder
from cuda_models import values
from mpt_run import read_tensors, tool, write_tensors
from onnx import TensorProto, helper, numpy_helper, save
from standin import environment, library
from test_cuda import TOLERANCE
from test_cuda_attention import GRADIENTS

BATCH, LENGTH, HEADS, DEPTH = 2, 6, 4, 16  # scales of 1/4 and 1/2, which no type rounds
WIDTH = HEADS * DEPTH
TYPES = {"f32": np.float32, "f16": np.float16, "bf16": ml_dtypes.bfloat16}
LAYOUTS = ["split", "around", "joined", "tokens_first", "keys_first", "rows"]
SCALES = ["scores", "divided", "query", "both"]
MASKS = ["none", "added", "selected", "padding", "padded", "guarded"]
FORMULAS = ["difference", "products", "fused"]


class Graph:
    """Nodes, with constants by value."""

    def __init__(self):
        self.nodes, self.weights = [], {}

    def constant(self, value):
        name = f"c{len(self.weights)}"
        self.nodes.append(helper.make_node("Constant", [], [name], value=numpy_helper.from_array(np.asarray(value))))
        self.weights[name] = value
        return name

    def __call__(self, op, *inputs, name=None, **attributes):
        name = name or f"v{len(self.nodes)}"
        inputs = [each if isinstance(each, str) else self.constant(each) for each in inputs]
        self.nodes.append(helper.make_node(op, inputs, [name], name=f"{op}_{name}", **attributes))
        return name

    def reshape(self, x, *shape):
        return self("Reshape", x, np.int64(shape))

    def transpose(self, x, *perm):
        return self("Transpose", x, perm=perm)

    def bmm(self, a, b, m, k, n, joined):
        """[B, H, m, k] times [B, H, k, n]; `joined`: as torch writes it, with one dimension for batch and heads."""
        if not joined:
            return self("MatMul", a, b)
        product = self("MatMul", self.reshape(a, BATCH * HEADS, m, k), self.reshape(b, BATCH * HEADS, k, n))
        return self.reshape(product, BATCH, HEADS, m, n)


def softmax(g, scores, written):
    if not written:
        return g("Softmax", scores, axis=-1)
    e = g("Exp", g("Sub", scores, g("ReduceMax", scores, np.int64([-1]))))
    return g("Div", e, g("ReduceSum", e, np.int64([-1])))


def softmax_gradient(g, dp, p, form):
    product = g("Mul", dp, p)
    total = g("ReduceSum", product, np.int64([-1]))
    if form == "fused":  # as torch's decomposition has it
        return g("Add", g("Neg", g("Mul", p, total)), product)
    if form == "products":
        return g("Sub", product, g("Mul", p, total))
    return g("Mul", p, g("Sub", dp, total))


def attend(g, q, k, v, do, layout, scale, mask, gradient, shared):
    """From q, k, v and the result's gradient [B, H, T, D] to the result and gradients of the first three."""
    joined = layout not in ("split", "keys_first")
    flat = layout in ("joined", "tokens_first")
    factor, root = np.float32(DEPTH**-0.5), np.float32(DEPTH**-0.25)
    group = lambda x: g.reshape(g("Expand", g("Unsqueeze", x, np.int64([2])), np.int64([BATCH, HEADS // 2, 2, LENGTH, DEPTH])),  # noqa: E731
                                BATCH, HEADS, LENGTH, DEPTH)
    if shared:
        k, v = group(k), group(v)
    if layout == "tokens_first":  # as torch's MultiheadAttention: [T, B * H, D] -> [B * H, T, D]
        turn = lambda x: g.transpose(g.reshape(g.transpose(x, 2, 0, 1, 3), LENGTH, BATCH * HEADS, DEPTH), 1, 0, 2)  # noqa: E731
    else:
        turn = lambda x: g.reshape(x, BATCH * HEADS, LENGTH, DEPTH)  # noqa: E731
    shape = [BATCH * HEADS, LENGTH, LENGTH] if flat else [BATCH, HEADS, LENGTH, LENGTH]
    last = (0, 2, 1) if flat else (0, 1, 3, 2)
    if flat:
        q, k, v, do = turn(q), turn(k), turn(v), turn(do)
        bmm = lambda a, b, m, k, n: g("MatMul", a, b)  # noqa: E731
    else:
        bmm = lambda a, b, m, k, n: g.bmm(a, b, m, k, n, joined)  # noqa: E731
    kt = g.transpose(k, *last)
    qs, ks = (g("Mul", q, factor), kt) if scale == "query" else (g("Mul", q, root), g("Mul", kt, root)) if scale == "both" else (q, kt)
    turned = layout == "keys_first"
    if turned:
        s = g.transpose(bmm(g.transpose(ks, *last), g.transpose(qs, *last), LENGTH, DEPTH, LENGTH), *last)
    else:
        s = bmm(qs, ks, LENGTH, DEPTH, LENGTH)
    scaled = lambda x: g("Mul", x, factor) if scale == "scores" else g("Div", x, np.float32(DEPTH**0.5)) if scale == "divided" else x  # noqa: E731
    s = scaled(s)
    below = np.tril(np.ones((LENGTH, LENGTH), bool))
    keep = None
    if mask in ("added", "guarded"):
        s = g("Add", s, np.where(below, 0, -np.inf).astype(np.float32))
    elif mask == "selected":
        keep = g.constant(np.broadcast_to(below, shape))
        s = g("Where", keep, s, np.float32(-np.inf))
    elif mask in ("padding", "padded"):
        keys = g("Expand", g("Unsqueeze", "mask", np.int64([1, 2])), np.int64([BATCH, HEADS, LENGTH, LENGTH]))  # [B, T]: 1 for keys to read
        keys = g.reshape(keys, *shape) if flat else keys
        if mask == "padding":
            s = g("Add", s, g("Mul", g("Sub", np.float32(1), keys), np.float32(-10000)))
        else:
            keep = g("Cast", keys, to=TensorProto.BOOL)
            s = g("Where", keep, s, np.float32(-np.inf))
    if layout == "rows":
        p = g.reshape(softmax(g, g.reshape(s, -1, LENGTH), gradient == "products"), *shape)
    else:
        p = softmax(g, s, gradient == "products" and mask != "guarded")
    if mask == "guarded":
        found = g("Cast", g("Not", g("Equal", s, np.float32(-np.inf))), to=TensorProto.INT64)
        empty = g("Not", g("Cast", g("ReduceMax", found, np.int64([-1]), keepdims=1), to=TensorProto.BOOL))
        p = g("Where", empty, np.float32(0), p)
    o = bmm(p, v, LENGTH, LENGTH, DEPTH)
    dv = bmm(g.transpose(p, *last), do, LENGTH, LENGTH, DEPTH)
    ds = softmax_gradient(g, bmm(do, g.transpose(v, *last), LENGTH, DEPTH, LENGTH), p, gradient)
    if keep:
        ds = g("Where", keep, ds, np.float32(0))
    ds = scaled(ds)
    dq = bmm(ds, g.transpose(ks, *last), LENGTH, LENGTH, DEPTH)
    dkt = bmm(g.transpose(qs, *last), ds, DEPTH, LENGTH, LENGTH)
    dq = g("Mul", dq, factor) if scale == "query" else g("Mul", dq, root) if scale == "both" else dq
    dk = g.transpose(g("Mul", dkt, root) if scale == "both" else dkt, *last)
    if flat:
        back = (lambda x: g.transpose(g.reshape(g.transpose(x, 1, 0, 2), LENGTH, BATCH, HEADS, DEPTH), 1, 2, 0, 3)) if layout == "tokens_first" else \
               (lambda x: g.reshape(x, BATCH, HEADS, LENGTH, DEPTH))
        o, dq, dk, dv = back(o), back(dq), back(dk), back(dv)
    if shared:
        dk, dv = (g("ReduceSum", g.reshape(x, BATCH, HEADS // 2, 2, LENGTH, DEPTH), np.int64([2]), keepdims=0) for x in (dk, dv))
    return o, dq, dk, dv


def make(path, layout, scale, mask, gradient, shared):
    """A joint graph: projections, attention, projection, mean of squares, and the gradients of all weights."""
    g, rows = Graph(), BATCH * LENGTH
    heads = {"wq": HEADS, "wk": HEADS // 2 if shared else HEADS, "wv": HEADS // 2 if shared else HEADS}
    flat = g.reshape("x", rows, WIDTH)
    split = lambda x, n: g.transpose(g.reshape(x, BATCH, LENGTH, n, DEPTH), 0, 2, 1, 3)  # noqa: E731
    join = lambda x, n: g.reshape(g.transpose(x, 0, 2, 1, 3), rows, n * DEPTH)  # noqa: E731
    q, k, v = (split(g("MatMul", flat, name), n) for name, n in heads.items())
    # The result's gradient hangs on the result: its nodes are put between at the end.
    o, dq, dk, dv = attend(g, q, k, v, "d_o", layout, scale, mask, gradient, shared)
    joined = join(o, HEADS)
    y = g("MatMul", joined, "wo")
    d = g("Sub", y, g.reshape("t", rows, WIDTH))
    g("ReduceMean", g("Mul", d, d), name="loss", keepdims=0)
    dy = g("Mul", d, np.float32(2 / (rows * WIDTH)))
    g("MatMul", g.transpose(joined, 1, 0), dy, name="wo_grad")
    g("Identity", split(g("MatMul", dy, g.transpose("wo", 1, 0)), HEADS), name="d_o")
    for (name, n), gradient_of in zip(heads.items(), (dq, dk, dv)):
        g("MatMul", g.transpose(flat, 1, 0), join(gradient_of, n), name=f"{name}_grad")
    weights = {name: values(i, WIDTH, n * DEPTH) for i, (name, n) in enumerate(heads.items())} | {"wo": values(3, WIDTH, WIDTH)}
    inputs = {"x": [BATCH, LENGTH, WIDTH], "t": [BATCH, LENGTH, WIDTH]} | ({"mask": [BATCH, LENGTH]} if mask in ("padding", "padded") else {})
    info = lambda n, s: helper.make_tensor_value_info(n, TensorProto.FLOAT, s)  # noqa: E731
    graph = helper.make_graph(ordered(g.nodes, [*inputs, *weights]), "joint", [info(n, s) for n, s in inputs.items()],
                              [info("loss", [])] + [info(f"{n}_grad", list(w.shape)) for n, w in weights.items()],
                              [numpy_helper.from_array(w, n) for n, w in weights.items()])
    save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)]), path)
    keys = np.ones((BATCH, LENGTH), np.float32)
    keys[0, LENGTH - 2:] = 0
    return {name: keys if name == "mask" else values(20 + i, *shape) for i, (name, shape) in enumerate(inputs.items())}


def ordered(nodes, known):
    """The nodes, each behind the nodes that it reads."""
    known, left, done = set(known), list(nodes), []
    while left:
        ready = [node for node in left if known.issuperset(node.input)]
        assert ready
        done += ready
        known |= {name for node in ready for name in node.output}
        left = [node for node in left if node not in ready]
    return done


def run(path, out, feeds):
    """The results of `gradients` of the module at `path`, in FP64."""
    write_tensors(path.with_suffix(".in"), feeds)
    states = re.findall(r'train\.state +\w+ @"?([\w.]+)"? : tensor<((?:\d+x)+)(f32|f16|bf16)> .*dense_resource', path.read_text())
    write_tensors(path.with_suffix(".state"), {name: values(i, *map(int, shape[:-1].split("x"))).astype(TYPES[kind]) for i, (name, shape, kind) in enumerate(states)})
    subprocess.run([tool(), path, "--function=gradients", f"--inputs={path.with_suffix('.in')}", f"--state={path.with_suffix('.state')}", f"--outputs={out}", "--fp64"],
                   check=True)
    return read_tensors(out)


CHOICES = random.Random(11)
# Each of these once, the rest drawn. Who reshapes scores to a matrix does not guard rows without keys: softmax's gradient is not found then.
ALL = [pair for pair in itertools.product(LAYOUTS, MASKS) if pair != ("rows", "guarded")]


@pytest.mark.parametrize("layout, mask, scale, gradient, shared, policy", [
    (layout, mask, CHOICES.choice(SCALES), CHOICES.choice(FORMULAS), CHOICES.random() < 0.3, CHOICES.choice(["amp-f16", "amp-bf16"]))
    for layout, mask in ALL])
def test_written_backward_passes_are_calls(tmp_path, layout, mask, scale, gradient, shared, policy):
    feeds = make(tmp_path / "m.onnx", layout, scale, mask, gradient, shared)
    before, after = tmp_path / "before.mlir", tmp_path / "after.mlir"
    opt = tool().parent / "mpt-opt"
    subprocess.run([opt, tmp_path / "m.onnx", "--optimizer=sgd,lr=0.1", f"--policy={policy}", "--target=cuda", "--to=precision", "--quiet", "-o", before], check=True)
    subprocess.run([opt, before, "--fusion-lower-train", "--library-split-heads", "--library-form-attention", "--library-group-queries", "--canonicalize",
                    "-o", after], check=True)
    text = after.read_text().split("func.func @gradients")[1].split("func.func")[0]
    assert "mpt.softmax" not in text, re.findall(r"apart = \[[^]]*\]", after.read_text())
    assert len(re.findall(r"= library\.attention ", text)) == len(re.findall(r"= library\.attention_gradient ", text)) == 1
    call = re.search(r"= library\.attention .*", text).group()
    assert ("causal" in call) == (mask in ("added", "selected", "guarded"))
    assert (" bias " in call) == (mask in ("padding", "padded"))
    expected, found = run(before, tmp_path / "a", feeds), run(after, tmp_path / "b", feeds)
    assert expected.keys() == found.keys() and len(found) >= 5
    for name, value in expected.items():
        np.testing.assert_allclose(found[name], value, rtol=1e-9, atol=1e-9 * max(np.abs(value).max(), 1e-3), err_msg=name)


def test_what_stays_apart_is_named(tmp_path):
    make(tmp_path / "m.onnx", "rows", "scores", "guarded", "difference", False)
    found, = report(tmp_path / "m.onnx")["unfused_attentions"]
    assert found["node"].startswith("Softmax_") and "got another reader" in found["reason"]


def test_steps_report_no_other(tmp_path):
    make(tmp_path / "m.onnx", "around", "both", "guarded", "fused", True)
    found = report(tmp_path / "m.onnx")
    assert (found["attentions"], found["unfused_attentions"]) == (2, [])


STEPS = """
import json, sys
import numpy as np
from standin import standin as library, trainer as make_trainer
folder = sys.argv[1]
standin, batch, found = library(), dict(np.load(folder + "/data.npz")), {}
for target in ("cpu", "cuda"):
    with make_trainer(folder + "/" + target) as trainer:
        losses = [trainer.step(batch).loss]
        moments = {n: v.tolist() for n, v in trainer.state().items() if n.endswith(".moment1")}
        found[target] = {"losses": losses + [trainer.step(batch).loss for _ in range(4)], "moments": moments}
found["violations"] = standin.standin_violations().decode()
json.dump(found, open(folder + "/found.json", "w"))
"""


# cuDNN's graphs, interpreted, and the library's own kernels, emulated.
@pytest.mark.parametrize("layout, scale, mask, gradient, shared, policy, cudnn", [
    ("around", "scores", "guarded", "fused", False, "amp-f16", True), ("joined", "both", "padded", "products", False, "amp-bf16", False),
    ("tokens_first", "query", "selected", "difference", True, "amp-f16", False), ("keys_first", "divided", "padding", "fused", False, "amp-bf16", True)])
def test_steps_agree_with_the_cpu(tmp_path, layout, scale, mask, gradient, shared, policy, cudnn):
    build = build_folder()
    if not os.path.exists(library(build)):
        pytest.skip("the stand-in is not built")
    np.savez(tmp_path / "data.npz", **make(tmp_path / "m.onnx", layout, scale, mask, gradient, shared))
    for target, flags in (("cpu", []), ("cuda", ["--target=cuda", "--arch=host"])):
        subprocess.run([build / "bin" / "mpt-opt", tmp_path / "m.onnx", "--optimizer=adamw,lr=1e-3", f"--policy={policy}", "--quiet", "-o", tmp_path / target,
                        *flags], check=True)
    subprocess.run([sys.executable, "-c", STEPS, tmp_path], check=True, env=environment(build, cudnn, None, MPT_STANDIN_LOG=str(tmp_path / "calls")))
    found = json.loads((tmp_path / "found.json").read_text())
    calls = (tmp_path / "calls").read_text()
    assert ("gradient of attention" in calls) == cudnn and found["violations"] == ""
    np.testing.assert_allclose(found["cuda"]["losses"], found["cpu"]["losses"], rtol=TOLERANCE[policy])
    assert len(found["cpu"]["moments"]) == 4 and found["cpu"]["losses"][-1] < found["cpu"]["losses"][0]
    for name, value in found["cpu"]["moments"].items():
        np.testing.assert_allclose(found["cuda"]["moments"][name], value, rtol=0, atol=GRADIENTS[policy] * np.abs(value).max(), err_msg=name)


def report(path):
    """A step's entry of --report=kernels."""
    file = path.with_suffix(".json")
    subprocess.run([tool().parent / "mpt-opt", path, "--optimizer=sgd,lr=0.1", "--policy=amp-bf16", "--target=cuda", "--arch=host", "--quiet", "--dry-run",
                    f"--report=kernels={file}"], check=True)
    return json.loads(file.read_text())["step"]
