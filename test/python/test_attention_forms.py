# SPDX-License-Identifier: Apache-2.0
"""Attention with shared keys and dropout, in the forms that exporters write: calls of the library compute the same as the ops they replace. Both
are run by the interpreter in FP64, where no rounding hides a difference."""
import random
import re
import subprocess

import ml_dtypes
import numpy as np
import pytest
from cuda_models import model, values
from mpt_run import read_tensors, tool, write_tensors
from onnx import TensorProto, helper, numpy_helper

LENGTH, BATCH = 6, 2
TYPES = {"f32": np.float32, "f16": np.float16, "bf16": ml_dtypes.bfloat16}
FORMS = ["repeat_kv", "flat", "tokens", "matmul", "attention", "scaled"]


def attend(form, heads, shared, depth, mask, dropout):
    """Nodes from q [B, H, T, D], k and v [B, H / shared, T, D] to a0 [B, H, T, D], and their weights."""
    node, key_heads = helper.make_node, heads // shared
    split, whole = [BATCH, key_heads, shared, LENGTH, depth], [BATCH, heads, LENGTH, depth]
    weights = {"new": np.int64([2]), "split": np.int64(split), "whole": np.int64(whole), "flat": np.int64([BATCH * heads, LENGTH, depth]),
               "turned": np.int64([BATCH, heads, depth, LENGTH]), "behind": np.int64([3]), "by_token": np.int64([BATCH, LENGTH, key_heads, shared, depth]),
               "tokens": np.int64([BATCH, LENGTH, heads, depth]), "ratio": np.float32(dropout), "training": np.array(True)}
    nodes = [node("Constant", [], ["scale"], value=numpy_helper.from_array(np.float32(depth**-0.5))),
             node("Constant", [], ["root"], value=numpy_helper.from_array(np.float32(depth**-0.25)))]
    if mask:
        later = np.triu(np.full((LENGTH, LENGTH), -np.inf, np.float32), 1)[None, None]
        nodes += [node("Constant", [], ["later"], value=numpy_helper.from_array(later))]
    if form == "attention":  # the operator of opset 23; dropout is none of its own
        return nodes + [node("Attention", ["q", "k", "v"], ["a0"], is_causal=int(mask))], weights
    for name in "kv":
        if form == "tokens" and shared > 1:  # before heads leave the last dimensions
            nodes += [node("Transpose", [name], [f"{name}_t"], perm=[0, 2, 1, 3]), node("Unsqueeze", [f"{name}_t", "behind"], [f"{name}_u"]),
                      node("Expand", [f"{name}_u", "by_token"], [f"{name}_e"]), node("Reshape", [f"{name}_e", "tokens"], [f"{name}_r"]),
                      node("Transpose", [f"{name}_r"], [f"{name}s"], perm=[0, 2, 1, 3])]
        elif form != "matmul" and shared > 1:
            nodes += [node("Unsqueeze", [name, "new"], [f"{name}_u"]), node("Expand", [f"{name}_u", "split"], [f"{name}_e"]),
                      node("Reshape", [f"{name}_e", "whole"], [f"{name}s"])]
        else:  # one head is repeated by the multiplication itself
            nodes += [node("Identity", [name], [f"{name}s"])]
    if form == "flat":  # as torch.onnx writes scaled_dot_product_attention
        nodes += [node("Reshape", ["ks", "flat"], ["kf"]), node("Transpose", ["kf"], ["kg"], perm=[0, 2, 1]), node("Reshape", ["kg", "turned"], ["kt0"])]
    else:
        nodes += [node("Transpose", ["ks"], ["kt0"], perm=[0, 1, 3, 2])]
    if form in ("flat", "scaled"):
        nodes += [node("Mul", ["q", "root"], ["qs"]), node("Mul", ["kt0", "root"], ["kt"]), node("MatMul", ["qs", "kt"], ["s"])]
    else:
        nodes += [node("MatMul", ["q", "kt0"], ["s0"]), node("Mul", ["s0", "scale"], ["s"])]
    nodes += [node("Add", ["s", "later"], ["m"]) if mask else node("Identity", ["s"], ["m"]), node("Softmax", ["m"], ["p"], axis=-1, name="softmax")]
    nodes += [node("Dropout", ["p", "ratio", "training"], ["pd"]) if dropout else node("Identity", ["p"], ["pd"]), node("MatMul", ["pd", "vs"], ["a0"])]
    return nodes, weights


def save(path, form, heads, shared, depth, mask, dropout):
    width, narrow = heads * depth, heads // shared * depth
    node, weights, nodes = helper.make_node, {"axes": np.int64([1]), "join": np.int64([0, 0, width]), "out": values(9, width, 5)}, []
    for i, (name, extent) in enumerate((("q", width), ("k", narrow), ("v", narrow))):
        weights |= {f"w{name}": values(i, width, extent), f"in_{name}": np.int64([0, 0, extent // depth, depth])}
        nodes += [node("MatMul", ["x", f"w{name}"], [f"{name}0"]), node("Reshape", [f"{name}0", f"in_{name}"], [f"{name}1"]),
                  node("Transpose", [f"{name}1"], [name], perm=[0, 2, 1, 3])]
    inside, more = attend(form, heads, shared, depth, mask, dropout)
    nodes += inside + [node("Transpose", ["a0"], ["a1"], perm=[0, 2, 1, 3]), node("Reshape", ["a1", "join"], ["a"]), node("MatMul", ["a", "out"], ["o"]),
                       node("ReduceMean", ["o", "axes"], ["logits"], keepdims=0)]
    used = {name for each in nodes for name in each.input}
    weights |= {name: value for name, value in more.items() if name in used}
    model(path, "attention", nodes, weights, {"x": [BATCH, LENGTH, width]}, ("logits", TensorProto.FLOAT, [BATCH, 5]), opset=23 if form == "attention" else 18)
    return values(7, BATCH, LENGTH, width)


def run(path, out, x):
    """The results of `gradients` of the module at `path`, in FP64."""
    names = re.search(r"func\.func @gradients\(.*", path.read_text()).group()
    labels = re.findall(r'mpt\.name = "(\w+)"', names.split("->")[0])
    batch = {name: x if name == "x" else np.arange(BATCH, dtype=np.int64) for name in labels}
    write_tensors(path.with_suffix(".in"), batch)
    # Large initial values are no part of the text.
    states = re.findall(r'train\.state +\w+ @"?([\w.]+)"? : tensor<((?:\d+x)+)(f32|f16|bf16)> .*dense_resource', path.read_text())
    write_tensors(path.with_suffix(".state"), {name: values(i, *map(int, shape[:-1].split("x"))).astype(TYPES[kind]) for i, (name, shape, kind) in enumerate(states)})
    subprocess.run([tool(), path, "--function=gradients", f"--inputs={path.with_suffix('.in')}", f"--state={path.with_suffix('.state')}", f"--outputs={out}", "--fp64"],
                   check=True)
    return read_tensors(out)


def rewritten(folder, policy):
    """Function `gradients` of the model with calls, and the files of the module before and after."""
    before, after = folder / "before.mlir", folder / "after.mlir"
    opt = tool().parent / "mpt-opt"
    subprocess.run([opt, folder / "m.onnx", "--loss=softmax-cross-entropy", "--optimizer=sgd,lr=0.1", f"--policy={policy}", "--target=cuda",
                    "--to=precision", "--quiet", "-o", before], check=True)
    subprocess.run([opt, before, "--fusion-lower-train", "--library-split-heads", "--library-form-attention", "--library-group-queries", "--canonicalize",
                    "-o", after], check=True)
    return after.read_text().split("func.func @gradients")[1].split("func.func")[0], before, after


def same_meaning(folder, before, after, x):
    expected, found = run(before, folder / "a", x), run(after, folder / "b", x)
    assert expected.keys() == found.keys() and len(found) >= 4
    for name, value in expected.items():
        np.testing.assert_allclose(found[name], value, rtol=1e-9, atol=1e-9 * max(np.abs(value).max(), 1e-3), err_msg=name)


CHOICES = random.Random(4)


@pytest.mark.parametrize("form, heads, shared, depth, mask, dropout, policy", [
    (form, heads, heads if form == "matmul" else shared, CHOICES.choice([8, 16, 24]), CHOICES.random() < 0.5, 0.0 if form == "attention" else dropout,
     CHOICES.choice(["amp-f16", "amp-bf16"]))
    for form in FORMS for heads, shared in ((4, 2), (6, 3), (3, 3), (2, 1)) for dropout in (0.0, 0.3) if not (form == "attention" and dropout)])
def test_calls_mean_what_they_replace(tmp_path, form, heads, shared, depth, mask, dropout, policy):
    x = save(tmp_path / "m.onnx", form, heads, shared, depth, mask, dropout)
    text, before, after = rewritten(tmp_path, policy)
    assert "mpt.softmax " not in text and "mpt.dropout" not in text
    call = re.search(r"= library\.attention .*", text).group()
    assert (" dropout " in call) == bool(dropout)
    assert f"tensor<{BATCH}x{heads // shared}x{LENGTH}x{depth}x" in call, "keys are read as they were before they were repeated"
    assert len(re.findall(r"= library\.attention_gradient ", text)) == 1
    same_meaning(tmp_path, before, after, x)


# Products by Einsum, whose letters say the order of dimensions: scores, probabilities along an axis, result.
EINSUMS = {"heads_inside": ("bthd,bshd->bhts", -1, "{p},{v}->bthd"), "keys_first": ("bthd,bshd->bhst", 2, "{p},{v}->bthd"),
           "tokens_first": ("bthd,bshd->bths", -1, "{p},{v}->bthd"), "values_first": ("bthd,bshd->bhts", -1, "{v},{p}->bthd"),
           "both_turned": ("bthd,bshd->bhst", -2, "{v},{p}->bthd")}


@pytest.mark.parametrize("policy", ["amp-f16", "amp-bf16"])
@pytest.mark.parametrize("form", EINSUMS)
def test_products_by_letters(tmp_path, form, policy):
    scores, axis, result = EINSUMS[form]
    node, heads, depth = helper.make_node, 4, 16
    probabilities, v_first = scores.split("->")[1], result.startswith("{v}")
    weights = {f"w{name}": values(i, 64, 64) for i, name in enumerate("qkv")}
    weights |= {"out": values(9, 64, 5), "heads": np.int64([BATCH, LENGTH, heads, depth]), "join": np.int64([BATCH, LENGTH, 64]), "axes": np.int64([1])}
    nodes = [node("Constant", [], ["scale"], value=numpy_helper.from_array(np.float32(0.25)))]
    for name in "qkv":
        nodes += [node("MatMul", ["x", f"w{name}"], [f"{name}0"]), node("Reshape", [f"{name}0", "heads"], [name])]
    nodes += [node("Einsum", ["q", "k"], ["s0"], equation=scores), node("Mul", ["s0", "scale"], ["s"]), node("Softmax", ["s"], ["p"], axis=axis),
              node("Einsum", ["v", "p"] if v_first else ["p", "v"], ["o"], equation=result.format(p=probabilities, v="bshd")),
              node("Reshape", ["o", "join"], ["a"]), node("MatMul", ["a", "out"], ["y"]), node("ReduceMean", ["y", "axes"], ["logits"], keepdims=0)]
    model(tmp_path / "m.onnx", "letters", nodes, weights, {"x": [BATCH, LENGTH, 64]}, ("logits", TensorProto.FLOAT, [BATCH, 5]), opset=18)
    text, before, after = rewritten(tmp_path, policy)
    assert len(re.findall(r"= library\.attention ", text)) == len(re.findall(r"= library\.attention_gradient ", text)) == 1
    assert "mpt.softmax " not in text
    same_meaning(tmp_path, before, after, values(7, BATCH, LENGTH, 64))
