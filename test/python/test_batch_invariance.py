# SPDX-License-Identifier: Apache-2.0
"""--batch-invariant: a row's results are bitwise identical in every batch, with any number of threads and processes, in predict, evaluate
and the interpreter. Without it the same check fails on the same models."""
import pathlib
import subprocess
import sys
import types

import mpt
import numpy as np
import pytest
from mpt_run import tool
from onnx import numpy_helper, parser, save

sys.path.insert(0, str(pathlib.Path(__file__).parents[2] / "benchmarks"))
import batch_invariance  # noqa: E402

# Attention with norms and GELU; the last product has the batch as its columns.
TEXT = """<ir_version: 9, opset_import: ["" : 20]>
m (float[N, 6, 24] x) => (float[N, 6, 40] y, float[N, 3] z) {
n = LayerNormalization <axis = -1> (x, scale, shift)
q = MatMul(n, wq)
k = MatMul(n, wk)
kt = Transpose <perm = [0, 2, 1]> (k)
s = MatMul(q, kt)
p = Softmax <axis = -1> (s)
a = MatMul(p, n)
b = Add(a, x)
h = MatMul(b, wh)
g = Gelu(h)
t = Tanh(g)
e = Exp(t)
y = MatMul(e, wy)
r = ReduceMean <keepdims = 0> (h, axis)
rt = Transpose <perm = [1, 0]> (r)
c = MatMul(wz, rt)
z = Transpose <perm = [1, 0]> (c)
}"""
# Each kind of convolution: strided, of channels that fill blocks of sums, by channels, by groups, 1 x 1, transposed; and a linear Resize.
IMAGE = """<ir_version: 9, opset_import: ["" : 20]>
m (float[N, 3, 9, 9] x) => (float[N, 5] y, float[N, 4, 22, 33] z) {
a = Conv <kernel_shape = [3, 3], pads = [1, 1, 1, 1], strides = [2, 2]> (x, wa, ba)
b = Relu(a)
v = Conv <kernel_shape = [3, 3], pads = [1, 1, 1, 1]> (b, wv)
c = Conv <kernel_shape = [3, 3], pads = [1, 1, 1, 1], group = 32> (v, wc)
d = Conv <kernel_shape = [3, 3], pads = [1, 1, 1, 1], group = 4> (c, wd)
e = Conv <kernel_shape = [1, 1]> (d, we)
f = Sigmoid(e)
u = ConvTranspose <kernel_shape = [3, 3], strides = [2, 2]> (f, wz)
z = Resize <mode = "linear"> (u, , scales)
g = GlobalAveragePool(f)
h = Flatten(g)
y = Gemm(h, wy, by)
}"""
SHAPES = {"text": {"scale": [24], "shift": [24], "wq": [24, 24], "wk": [24, 24], "wh": [24, 700], "wy": [700, 40], "wz": [3, 700]},
          "image": {"wa": [32, 3, 3, 3], "ba": [32], "wv": [32, 32, 3, 3], "wc": [32, 1, 3, 3], "wd": [16, 8, 3, 3], "we": [24, 16, 1, 1],
                    "wz": [24, 4, 3, 3], "wy": [24, 5], "by": [5]}}


def model_of(folder, name: str, batches: list):
    rng = np.random.default_rng(0)
    model = parser.parse_model(TEXT if name == "text" else IMAGE)
    for weight, shape in SHAPES[name].items():
        model.graph.initializer.append(numpy_helper.from_array((rng.standard_normal(shape) / np.sqrt(np.prod(shape[1:]))).astype(np.float32), weight))
    model.graph.initializer.append(numpy_helper.from_array(np.array([1]), "axis") if name == "text" else
                                   numpy_helper.from_array(np.array([1, 1, 2, 3], np.float32), "scales"))
    for node in model.graph.node:
        node.name = node.output[0]
    save(model, folder / f"{name}.onnx")
    shape = {"text": (4, 6, 24), "image": (4, 3, 9, 9)}[name]
    np.savez(folder / f"{name}.npz", x=rng.standard_normal(shape).astype(np.float32))
    return batch_invariance.Model(f"{folder / name}.onnx:{folder / name}.npz", batches)


def measure(folder, name: str, policy: str, flags: list):
    args = types.SimpleNamespace(threads=[1, 3], processes=[2], interpreter=True, flags=flags)
    return batch_invariance.measure(model_of(folder, name, [16, 1, 3, 8]), policy, args)


@pytest.mark.parametrize("policy", ["fp32", "amp-f16", "amp-bf16"])
@pytest.mark.parametrize("name", ["text", "image"])
def test_no_bit_depends_on_the_batch(tmp_path, name, policy):
    found = measure(tmp_path, name, policy, ["batch-invariant"])
    assert found.pop("values") > 100
    assert not any(found.values()), found


@pytest.mark.parametrize("seed", range(4))
def test_products_of_any_shape(tmp_path, seed):
    """BF16 products of random extents, transposed, batched and with a bias, have the interpreter's bits: sums of one block of terms, of
    many, and their tails."""
    rng = np.random.default_rng(seed)
    m, k, n, o, p = rng.permutation([1, 2, 3, 7, 31, 32, 33, 64, 97, 200, 801, 1700])[:5]
    model = parser.parse_model(f"""<ir_version: 9, opset_import: ["" : 20]>
        m (float[N, {m}, {k}] x) => (float[N, {m}, {o}] y, float[N, {p}] z, float[N, {m}, {m}] s) {{
        h = MatMul(x, wh)
        y = MatMul(h, wy)
        r = Reshape(h, rows)
        z = Gemm <transB = 1> (r, wz, bz)
        t = Transpose <perm = [0, 2, 1]> (x)
        s = MatMul(x, t) }}""")
    for name, shape in {"wh": [k, n], "wy": [n, o], "wz": [p, m * n], "bz": [p]}.items():
        model.graph.initializer.append(numpy_helper.from_array(rng.standard_normal(shape).astype(np.float32), name))
    model.graph.initializer.append(numpy_helper.from_array(np.array([-1, m * n]), "rows"))
    for node in model.graph.node:
        node.name = node.output[0]
    save(model, tmp_path / "m.onnx")
    np.savez(tmp_path / "m.npz", x=rng.standard_normal((3, m, k)).astype(np.float32))
    args = types.SimpleNamespace(threads=[1, 2], processes=[], interpreter=True, flags=["batch-invariant"])
    found = batch_invariance.measure(batch_invariance.Model(f"{tmp_path}/m.onnx:{tmp_path}/m.npz", [3, 1]), "amp-bf16", args)
    assert found.pop("values") >= 3 and not any(found.values()), found


def test_bits_depend_on_the_batch_without_the_flag(tmp_path):
    """Planted: products whose columns are the batch sum in another order for few of them, and the interpreter's sums are others."""
    found = measure(tmp_path, "text", "fp32", [])
    # Kernels with AVX-512 have one order of sums for few columns and for many.
    assert (found["batch"] or "avx512f" in pathlib.Path("/proc/cpuinfo").read_text()) and found["interpreter"], found
    assert measure(tmp_path, "image", "fp32", [])["interpreter"]


def test_types_do_not_depend_on_the_batch(tmp_path):
    """One library of all sizes and one of each decide alike."""
    model_of(tmp_path, "text", [1])
    said = set()
    for batch in ("1", "32", "32,1"):
        report = tmp_path / f"{batch}.json"
        subprocess.run([pathlib.Path(tool()).with_name("mpt-opt"), tmp_path / "text.onnx", "--loss=mse,output=y", "--loss=mse,output=z", "--policy=amp-f16",
                        f"--bind=N={batch}", "--batch-invariant", "--to=precision", f"--report=precision={report}", "--quiet", "-o", tmp_path / "m.mlir"],
                       check=True)
        text = (tmp_path / "m.mlir").read_text()
        said.add(tuple(sorted(set(line.split()[1] + line.split(":")[-1] for line in text.splitlines() if line.strip().startswith("train.state")))))
    assert len(said) == 1


def test_the_manifest_says_so(tmp_path):
    model = model_of(tmp_path, "image", [2])
    library = mpt.compile(model.path, loss=["mse,output=y", "mse,output=z"], optimizer="sgd", bind={"N": 2}, batch_invariant=True, out=tmp_path / "lib")
    assert mpt.Trainer(library).manifest["batch_invariant"] is True
