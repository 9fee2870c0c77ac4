# SPDX-License-Identifier: Apache-2.0
"""Defects seen in other precision tools, each as a test that this compiler passes; the name describes the defect."""
import ctypes
import json
import os
import pathlib
import subprocess
import sys

import ml_dtypes
import numpy as np
import onnx
import onnx.reference
import pytest
from onnx import TensorProto, numpy_helper, parser

import mpt

ROOT = pathlib.Path(__file__).resolve().parents[2]
BUILD = pathlib.Path(os.environ.get("MPT_BUILD", ROOT / "build" / "release"))
pytestmark = pytest.mark.skipif(not (BUILD / "bin" / "mpt-opt").exists(), reason="mpt-opt is not built")
sys.path.insert(0, str(ROOT / "test" / "python"))
from mpt_run import write_tensors  # noqa: E402

RNG = np.random.default_rng(0)
WEIGHT = (RNG.standard_normal((8, 8)) / 4).astype(np.float32)


@pytest.fixture(autouse=True)
def compiler():
    mpt.use_build(BUILD)


def model(signature, body, opset=18, **initializers):
    made = parser.parse_model(f'<ir_version: 9, opset_import: ["" : {opset}]>\ngraph {signature} {{\n{body}\n}}')
    for node in made.graph.node:
        node.name = node.output[0]
    for name, value in initializers.items():
        made.graph.initializer.append(numpy_helper.from_array(np.asarray(value), name))
    onnx.checker.check_model(made, full_check=True)
    return made


def rewrite(source, folder, policy="amp-f16", **options) -> onnx.ModelProto:
    onnx.save(source, folder / "in.onnx")
    mpt.compile(folder / "in.onnx", out=folder / "out.onnx", emit="onnx", policy=policy, **options)
    result = onnx.load(folder / "out.onnx")
    onnx.checker.check_model(result, full_check=True)
    return result


def casts(graph) -> list:
    return [(node.input[0], node.attribute[0].i) for node in graph.node if node.op_type == "Cast"]


def test_d1_pairs_of_casts_with_several_readers_go_away(tmp_path):
    """A widening whose result is narrowed again by two readers: ONNX's type numbers are compared, not bit widths."""
    source = model("(float16[8, 8] x) => (float16[8, 8] y, float16[8, 8] z)", """
        wide = Cast<to = 1>(x)
        a = Cast<to = 10>(wide)
        b = Cast<to = 10>(wide)
        y = MatMul(a, a)
        z = Add(b, b)""")
    assert casts(rewrite(source, tmp_path).graph) == []


def test_d2_tiny_constants_keep_their_sign(tmp_path):
    weight = WEIGHT.copy()
    weight[0, :2] = 1e-12, -1e-12
    result = rewrite(model("(float[8, 8] x) => (float[8, 8] y)", "y = MatMul(x, w)", w=weight), tmp_path)
    stored = numpy_helper.to_array(result.graph.initializer[0])
    tiny = np.float16(6e-8)
    assert stored.dtype == np.float16 and list(stored[0, :2]) == [tiny, -tiny]


def test_d3_one_run_leaves_nothing_for_the_next_one(tmp_path):
    """Overrides belong to a run: a module-global table of them would leak into later ones of the same process."""
    library = ctypes.CDLL(str(BUILD / "lib" / "libmpt_compiler.so"))
    onnx.save(model("(float[8, 8] x) => (float[8, 8] z)", "y = MatMul(x, w)\nz = MatMul(y, w)", w=WEIGHT), tmp_path / "in.onnx")

    def run(*flags):
        words = [tmp_path / "in.onnx", "--policy=amp-f16", "--emit=onnx", f"-o={tmp_path / 'out.onnx'}", *flags]
        assert library.mpt_compiler_run(len(words), (ctypes.c_char_p * len(words))(*[os.fsencode(w) for w in words]), None) == 0
        return (tmp_path / "out.onnx").read_bytes()

    first, kept = run(), run("--keep-f32=y")
    assert {i.data_type for i in onnx.load_from_string(first).graph.initializer} == {TensorProto.FLOAT16}
    assert {i.data_type for i in onnx.load_from_string(kept).graph.initializer} == {TensorProto.FLOAT, TensorProto.FLOAT16}
    assert run() == first


def test_d4_calibration_reads_every_batch_and_both_ends_of_the_range(tmp_path):
    onnx.save(model("(float[4, 8] x) => (float[4, 8] y)", "h = MatMul(x, w)\ny = MatMul(h, w)", w=WEIGHT), tmp_path / "m.onnx")
    values = {"plain": np.ones((4, 8)), "extreme": np.concatenate([np.full((2, 8), 1e6), np.full((2, 8), 1e-9)])}
    for name, x in values.items():
        write_tensors(tmp_path / name, {"x": x.astype(np.float32), "target": np.zeros((4, 8), np.float32)})
    ranges = tmp_path / "ranges.json"
    subprocess.run([BUILD / "bin" / "mpt-run", tmp_path / "m.onnx", "--loss=mse", "--optimizer=sgd,lr=0.01", "--train=w",
                    "--policy=amp-f16", "--calibrate", *(f"--batch={tmp_path / name}" for name in values), "-o", ranges], check=True)
    measured = json.loads(ranges.read_text())
    profile = next(v for k, v in measured["values"].items() if k.startswith("step|h|mpt.matmul"))
    assert measured["steps"] == 2 and profile["largest"] > 65504
    assert sum(profile["exponents"].values()) + profile["zeros"] == 2 * 32
    assert min(map(int, profile["exponents"])) < -24, "what f16 flushes to zero is seen too"


def test_d5_a_chain_through_a_narrower_type_is_no_conversion(tmp_path):
    """f32 to f16 to bf16 overflows where f32 to bf16 does not."""
    source = model("(float[2] x) => (float[2] y, bfloat16[2] b)", """
        half = Cast<to = 10>(x)
        b = Cast<to = 16>(half)
        wide = Cast<to = 1>(b)
        y = Mul(wide, wide)""")
    for policy in ("fp32", "amp-f16", "amp-bf16"):
        assert casts(rewrite(source, tmp_path, policy).graph) == [("x", 10), ("half", 16), ("b", 1)], policy


def test_d6_one_cast_a_value_and_constants_up_to_the_largest(tmp_path):
    weight = WEIGHT.copy()
    weight[0, :4] = 65504, -65504, 1e4, 3e4
    body = "\n".join(f"y{i} = MatMul(x, w)" for i in range(5)) + "\nz = Sum(y0, y1, y2, y3, y4)"
    result = rewrite(model("(float[8, 8] x) => (float[8, 8] z)", body, w=weight), tmp_path, keep_narrow="y.*")
    assert [c for c in casts(result.graph) if c[0] == "x"] == [("x", TensorProto.FLOAT16)]
    assert len(casts(result.graph)) <= 1 + 5
    stored = numpy_helper.to_array(result.graph.initializer[0])
    assert np.array_equal(stored, weight.astype(np.float16)) and stored[0, 0] == 65504


def test_d7_bodies_are_rewritten_and_shared_constants_split(tmp_path):
    """A GEMM in a branch is narrow, and a constant that a wide node shares is narrow for its narrow readers."""
    source = model("(float[8, 8] x, bool c) => (float[8, 8] y)", """
        h = MatMul(x, w)
        s = Softmax(w)
        b = If(c)<then_branch = graph() => (float[8, 8] t) { t = MatMul(h, w) },
                  else_branch = graph() => (float[8, 8] e) { e = Softmax(w) }>
        y = Add(b, s)""", w=WEIGHT)
    result = rewrite(source, tmp_path)
    assert sorted(i.data_type for i in result.graph.initializer) == [TensorProto.FLOAT, TensorProto.FLOAT16]
    kinds = {i.name: i.data_type for i in result.graph.initializer}
    product = next(n for n in result.graph.node if n.op_type == "MatMul")
    branch = next(a.g for n in result.graph.node if n.op_type == "If" for a in n.attribute if a.name == "then_branch")
    assert kinds[product.input[1]] == TensorProto.FLOAT16 and kinds[branch.node[0].input[1]] == TensorProto.FLOAT16
    x = RNG.standard_normal((8, 8)).astype(np.float32)
    for flag in (True, False):
        got, want = (onnx.reference.ReferenceEvaluator(m).run(None, {"x": x, "c": np.array(flag)})[0] for m in (result, source))
        assert got.dtype == np.float32 and np.abs(got - want).max() < 1e-2


@pytest.fixture(scope="module")
def trainers(tmp_path_factory):
    """A function from policy and flags to a trainer of one linear layer."""
    folder = tmp_path_factory.mktemp("trainers")
    onnx.save(model("(float[4, 8] x) => (float[4, 8] y)", "y = MatMul(x, w)", w=WEIGHT), folder / "linear.onnx")

    def make(policy, **flags):
        mpt.compile(folder / "linear.onnx", out=folder / policy, loss="mse", optimizer="sgd,lr=0.01", policy=policy, **flags)
        return mpt.Trainer(folder / policy, threads=1)
    return make


def feeds(poison=1.0):
    return {"x": np.full((4, 8), poison, np.float32), "target": np.zeros((4, 8), np.float32)}


def test_d8_bf16_steps_check_for_finite_gradients(trainers):
    trainer = trainers("amp-bf16")
    before = trainer.state()
    assert trainer.step(feeds(np.nan)).skipped and trainer.step(feeds(np.inf)).skipped
    assert all(value.tobytes() == before[name].tobytes() for name, value in trainer.state().items() if name != "mpt.rng")
    assert not trainer.step(feeds()).skipped


def test_d9_the_loss_scale_has_a_floor(trainers):
    trainer = trainers("amp-f16")
    scales = [trainer.step(feeds(np.inf)).loss_scale for _ in range(40)]
    assert scales[:3] == [65536, 32768, 16384] and scales[-6:] == [2.0**-14] * 6
    assert not trainer.step(feeds()).skipped


def test_d10_a_rounding_that_the_model_asks_for_stays(tmp_path):
    """f32 to bf16 to f32 is no identity: neither in a rewritten file, nor in a library."""
    source = model("(float[4, 8] x) => (float[4, 8] y)", """
        rounded = Cast<to = 16>(x)
        wide = Cast<to = 1>(rounded)
        y = MatMul(wide, w)""", w=np.eye(8, dtype=np.float32))
    for policy in ("fp32", "amp-f16"):
        assert casts(rewrite(source, tmp_path, policy).graph)[:2] == [("x", 16), ("rounded", 1)], policy
    mpt.compile(tmp_path / "in.onnx", out=tmp_path / "library", loss="mse", optimizer="sgd,lr=0.01", train="w")
    x = RNG.standard_normal((4, 8)).astype(np.float32)
    got = mpt.Trainer(tmp_path / "library", threads=1).evaluate({"x": x})["y"]
    assert np.array_equal(got, x.astype(ml_dtypes.bfloat16).astype(np.float32)) and not np.array_equal(got, x)


@pytest.mark.parametrize("perm", [(1, 0, 2), (1, 2, 0), (0, 2, 1), (1, 2, 0, 3), (1, 2, 3, 0), (0, 2, 1, 3)])
def test_onnxruntime_loads_a_matmul_behind_a_transpose(perm, tmp_path):
    """It joins the two; in FP16 it has no kernel for transposes that move the batch, and a process that loads one is killed."""
    pytest.importorskip("onnxruntime")
    shape = (5, 2, 3, 4)[:len(perm)]
    result = [shape[axis] for axis in perm[:-1]] + [4]
    made = model(f"(float{list(shape)} x) => (float{result} y)", f"s = MatMul (x, S)\nt = Transpose <perm = {list(perm)}> (s)\nm = MatMul (t, W)\nz = Tanh (m)\ny = MatMul (z, U)",
                 S=np.eye(shape[-1], dtype=np.float32), W=RNG.standard_normal((shape[perm[-1]], 4)).astype(np.float32), U=RNG.standard_normal((4, 4)).astype(np.float32))
    onnx.save(made, tmp_path / "m.onnx")
    for source, out in ("m.onnx", "n.onnx"), ("n.onnx", "again.onnx"):
        subprocess.run([BUILD / "bin" / "mpt-opt", tmp_path / source, "--policy=amp-f16", "--emit=onnx", "--quiet", "-o", tmp_path / out], check=True)
    assert (tmp_path / "n.onnx").read_bytes() == (tmp_path / "again.onnx").read_bytes()
    load = "import onnxruntime, sys; onnxruntime.InferenceSession(sys.argv[1], providers=['CPUExecutionProvider'])"
    assert subprocess.run([sys.executable, "-c", load, tmp_path / "n.onnx"], check=False).returncode == 0
