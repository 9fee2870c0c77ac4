# SPDX-License-Identifier: Apache-2.0
"""Libraries of several sizes: each step takes the size of its inputs, on one state, and is bitwise identical to a library of that
size alone."""
import json
import pathlib
import subprocess
import sys

import numpy as np
import pytest

import small_models
from conftest import build_folder
from mpt_run import tool
from standin import environment, library

onnx = pytest.importorskip("onnx")
mpt = pytest.importorskip("mpt")

DROPOUT = """<ir_version: 9, opset_import: ["" : 18]>
dropout (float[N, 16] x) => (float[N, 10] y)
{
  half = Constant<value_float = 0.25>()
  yes = Constant<value_int = 1>()
  train = Cast<to = 9>(yes)
  a = Gemm<transB = 1>(x, w1, b1)
  b = Relu(a)
  c, mask = Dropout<seed = 5>(b, half, train)
  y = Gemm<transB = 1>(c, w2, b2)
}"""
PAIR = """<ir_version: 9, opset_import: ["" : 18]>
pair (float[batch, length, 4] x) => (float[batch, length, 2] y)
{
  y = MatMul(x, w)
}"""


def add_weights(model, shapes: dict, seed: int = 7):
    rng = np.random.default_rng(seed)
    for name, shape in shapes.items():
        value = (rng.standard_normal(shape) / 4).astype(np.float32)
        model.graph.initializer.append(onnx.numpy_helper.from_array(value, name))
    return model


def write(name: str, folder):
    """A model with the symbol N for its batch."""
    if name in small_models.MODELS:
        model = onnx.load(small_models.write_model(name, folder))
        for value in (*model.graph.input, *model.graph.output):
            value.type.tensor_type.shape.dim[0].dim_param = "N"
    elif name == "dropout":
        model = add_weights(onnx.parser.parse_model(DROPOUT), {"w1": (32, 16), "b1": (32,), "w2": (10, 32), "b2": (10,)})
    else:
        model = add_weights(onnx.parser.parse_model(PAIR), {"w": (4, 2)})
    path = folder / f"{name}.onnx"
    onnx.save(model, path)
    return path


def batch_of(trainer, size: str, seed: int, function: str = "step") -> dict:
    rng = np.random.default_rng(seed)
    batch = {}
    for name, (kind, shape) in trainer.inputs(function + size).items():
        if name != "learning_rate":
            batch[name] = rng.integers(0, 10, shape) if kind == "int64" else rng.standard_normal(shape).astype(kind)
    return batch


def compile_model(path, out, bind, **flags):
    tool()  # skips where nothing is built
    return mpt.compile(path, out=out, loss="softmax-cross-entropy", bind=bind,
                       **{"optimizer": "adamw,lr=1e-2", "policy": "fp32", **flags})


def equal(a: dict, b: dict) -> bool:
    return a.keys() == b.keys() and all(a[name].tobytes() == b[name].tobytes() for name in a)


@pytest.mark.parametrize("name,policy,flags", [
    ("mlp", "fp32", {}), ("mlp", "amp-f16", {"accumulate": 2}), ("lenet", "amp-bf16", {}), ("resnet", "amp-f16", {}),
    ("dropout", "amp-f16", {"ema": 0.9}), ("dropout", "fp8-hybrid", {}), ("resnet", "als-f16", {}), ("mlp", "pure-f16-static", {})])
def test_sizes_step_as_libraries_of_their_own(tmp_path, name, policy, flags):
    """One trainer takes batches of all sizes in turn; libraries of one size hand their state on to each other."""
    path = write(name, tmp_path)
    order = [8, 3, 8, 8, 1, 3]
    joint = mpt.Trainer(compile_model(path, tmp_path / "joint", {"N": [8, 1, 3]}, policy=policy, **flags), seed=3)
    alone = {n: mpt.Trainer(compile_model(path, tmp_path / str(n), {"N": n}, policy=policy, **flags), seed=3) for n in (8, 1, 3)}
    assert joint.sizes == [{"N": 8}, {"N": 1}, {"N": 3}] and alone[8].sizes == [{}]
    state = tmp_path / "state.safetensors"
    last = None
    for i, n in enumerate(order):
        batch = batch_of(alone[n], "", i)
        if last:
            alone[last].save(state)
            alone[n].load(state)
        functions = ["accumulate", "step"] if "accumulate" in flags else ["step"]
        for function in functions:
            ours, theirs = (trainer.step(batch, function=function) for trainer in (joint, alone[n]))
            assert ours == theirs or (np.isnan(ours.loss) and np.isnan(theirs.loss)), (n, function)
            assert equal(joint._outputs(function), alone[n]._outputs(function))
        assert equal(joint.state(), alone[n].state()), (i, n)
        used = batch_of(alone[n], "", 100 + i, "evaluate")
        assert equal(joint.evaluate(used), alone[n].evaluate(used))
        assert joint.evaluate(used)["y"].shape[0] == n
        last = n
    batch = batch_of(alone[3], "", 50)
    (_, ours), (_, theirs) = joint.gradients(batch), alone[3].gradients(batch)
    assert equal(ours, theirs)


def test_last_batch_of_an_epoch(tmp_path):
    """Digits in batches of 32 and one of 7: every sample trains, and the state resumes in a library of another size."""
    datasets = pytest.importorskip("sklearn.datasets")
    digits = datasets.load_digits()
    x, y = digits.images.reshape(-1, 64).astype(np.float32)[:1255] / 16, digits.target.astype(np.int64)[:1255]
    model = onnx.parser.parse_model(DROPOUT.replace("float[N, 16]", "float[N, 64]"))
    path = tmp_path / "digits.onnx"
    onnx.save(add_weights(model, {"w1": (32, 64), "b1": (32,), "w2": (10, 32), "b2": (10,)}), path)
    out = compile_model(path, tmp_path / "lib", {"N": [32, 7]}, policy="amp-f16", dropout=False)
    with mpt.Trainer(out) as trainer:
        for _ in range(8):
            results = [trainer.step({"x": x[i:i + 32], "labels": y[i:i + 32]}) for i in range(0, len(x), 32)]
        assert not any(result.skipped for result in results[1:]) and np.mean([r.loss for r in results]) < 0.2
        right = sum((trainer.evaluate({"x": x[i:i + 32]})["y"].argmax(1) == y[i:i + 32]).sum() for i in range(0, len(x), 32))
        assert right > 0.95 * len(x)
        trainer.save(tmp_path / "state.safetensors")
        single = mpt.Trainer(compile_model(path, tmp_path / "one", {"N": 100}, policy="amp-f16", dropout=False))
        single.load(tmp_path / "state.safetensors")
        assert equal(single.state(), trainer.state())


def test_every_combination_of_several_symbols(tmp_path):
    path = write("pair", tmp_path)
    out = mpt.compile(path, out=tmp_path / "lib", loss="mse", optimizer="sgd,lr=0.1", bind={"batch": [4, 2], "length": [3, 5]})
    with mpt.Trainer(out) as trainer:
        assert trainer.sizes == [{"batch": b, "length": t} for b in (4, 2) for t in (3, 5)]
        for b in (2, 4):
            for t in (5, 3):
                x, target = np.ones((b, t, 4), np.float32), np.zeros((b, t, 2), np.float32)
                trainer.step({"x": x, "target": target})
                assert trainer.evaluate({"x": x})["y"].shape == (b, t, 2)
        with pytest.raises(mpt.Error, match=r"input 'x' of 'step': expected float32\[4,3,4\], float32\[4,5,4\], float32\[2,3,4\] "
                                            r"or float32\[2,5,4\], got float32\[3,3,4\]; --bind adds a size"):
            trainer.step({"x": np.ones((3, 3, 4), np.float32), "target": np.zeros((3, 3, 2), np.float32)})
        with pytest.raises(mpt.Error, match=r"inputs of 'step': expected all of one size, got those of several; the library has "
                                            r"\[batch=4,length=3\]"):
            trainer.step({"x": np.ones((4, 3, 4), np.float32), "target": np.zeros((2, 3, 2), np.float32)})
        with pytest.raises(mpt.Error, match="'target' of 'step.* is missing"):
            trainer.step({"x": np.ones((4, 3, 4), np.float32)})


def test_symbols_of_one_extent(tmp_path):
    """Inputs whose batches have names of their own are bound together: other combinations would be no model."""
    model = onnx.parser.parse_model("""<ir_version: 9, opset_import: ["" : 18]>
    two (float[rows, 4] x, float[others, 4] bias) => (float[rows, 2] y)
    {
      moved = Add(x, bias)
      y = MatMul(moved, w)
    }""")
    path = tmp_path / "two.onnx"
    onnx.save(add_weights(model, {"w": (4, 2)}), path)
    out = mpt.compile(path, out=tmp_path / "lib", loss="mse", bind={("rows", "others"): [6, 2]})
    with mpt.Trainer(out) as trainer:
        assert trainer.sizes == [{"rows": 6, "others": 6}, {"rows": 2, "others": 2}]
        for n in (2, 6):
            trainer.step({"x": np.ones((n, 4), np.float32), "bias": np.ones((n, 4), np.float32), "target": np.ones((n, 2), np.float32)})
    with pytest.raises(mpt.CompileError, match="Incompatible dimensions"):
        mpt.compile(path, out=tmp_path / "lib", loss="mse", bind={"rows": [6, 2], "others": [6, 2]})


def test_a_constant_that_hangs_on_the_size(tmp_path):
    """Big constants are states: those computed from a shape are one a size, and the parameters stay shared."""
    model = onnx.parser.parse_model("""<ir_version: 9, opset_import: ["" : 18]>
    shifted (float[N, 512] x) => (float[N, 4] y)
    {
      shape = Shape(x)
      ramp = ConstantOfShape<value = float[1] {0.5}>(shape)
      one = Constant<value_int = 1>()
      rows = CumSum(ramp, one)
      moved = Add(x, rows)
      y = MatMul(moved, w)
    }""")
    path = tmp_path / "shifted.onnx"
    onnx.save(add_weights(model, {"w": (512, 4)}), path)
    out = mpt.compile(path, out=tmp_path / "joint", loss="mse", optimizer="sgd,lr=1e-6", bind={"N": [16, 9]})
    with mpt.Trainer(out) as joint:
        for n in (16, 9):
            single = mpt.Trainer(mpt.compile(path, out=tmp_path / str(n), loss="mse", optimizer="sgd,lr=1e-6", bind={"N": n}))
            single.set_parameter("w", joint.parameter("w"))
            batch = batch_of(single, "", n)
            assert joint.step(batch) == single.step(batch)
            assert equal(joint.parameters(), single.parameters())


@pytest.mark.parametrize("bind,flags,message", [
    ({"N": [8, 8]}, {}, "expected NAME=N,N... with different extents for --bind, got 'N=8,8'"),
    ({"N": "8,"}, {}, "expected NAME=N with a positive N for --bind, got 'N=8,'"),
    ({"N": list(range(1, 18))}, {}, "expected at most 16 sizes"),
    ({"N": [8, 4]}, {"replicas": 2}, "expected one extent for each --bind with --replicas"),
    ({"N": [8, 4]}, {"emit": "onnx"}, "expected one extent for each --bind with --emit=onnx"),
    ({"N": 8, "M": [2, 3]}, {}, "expected a size that changes an input, got the inputs of 'M=2' or another size again"),
    ({}, {}, "expected static extents for graph input 'x', got symbol 'N'; bind it: --bind N=<extent>"),
])
def test_refusals(tmp_path, bind, flags, message):
    with pytest.raises(mpt.CompileError) as error:
        compile_model(write("mlp", tmp_path), tmp_path / "lib", bind, **flags)
    assert message in str(error.value)


def test_unbound_dimensions_are_named_together(tmp_path):
    """The error has every flag to type, also for a dimension without a name, and these flags compile the model."""
    path = write("pair", tmp_path)
    model = onnx.load(path)
    model.graph.input[0].type.tensor_type.shape.dim[1].Clear()
    onnx.save(model, path)
    with pytest.raises(mpt.CompileError, match="bind it: --bind batch=<extent> --bind x.1=<extent> \\[mpt-unbound-dimension\\]$"):
        mpt.compile(path, out=tmp_path / "lib", loss="mse")
    with mpt.Trainer(mpt.compile(path, out=tmp_path / "lib", loss="mse", bind={"batch": 2, "x.1": [3, 4]})) as trainer:
        assert trainer.inputs("step[x.1=4]")["x"] == ("float32", (2, 4, 4))


# Runs in a process of its own, which opens the fake driver and not the machine's own.
GRAPHS = """
import sys
import numpy as np
from standin import counts, standin, trainer
found = standin()
folder = sys.argv[1]
joint, alone = trainer(folder + "/joint"), {n: trainer(folder + "/" + str(n)) for n in (8, 3)}
rng = np.random.default_rng(1)
batches = {n: {"x": rng.standard_normal((n, 16)).astype(np.float32), "labels": np.arange(n) % 10} for n in alone}
order, last = [8, 3, 8, 3, 3, 8, 3, 8], None
for n in order:
    if last:
        alone[last].save(folder + "/state")
        alone[n].load(folder + "/state")
    assert joint.step(batches[n]) == alone[n].step(batches[n])
    ours, theirs = joint.state(), alone[n].state()
    assert all(ours[name].tobytes() == theirs[name].tobytes() for name in theirs), n
    last = n
before = counts(found)
for n in order:
    joint.start(batches[n])
after = counts(found)
assert after.graphs - before.graphs == len(order), "one graph launch a step"
assert after.captures == before.captures, "sizes keep their graphs beside each other"
joint.synchronize()
print(found.standin_violations().decode())
"""


def test_a_graph_a_size(tmp_path):
    build = build_folder()
    path = write("mlp", tmp_path)
    for out, bind in (("joint", [8, 3]), ("8", 8), ("3", 3)):
        compile_model(path, tmp_path / out, {"N": bind}, policy="amp-f16", target="cuda", arch="host")
    if not pathlib.Path(library(build)).exists():
        pytest.skip("the stand-in is not built")
    done = subprocess.run([sys.executable, "-c", GRAPHS, str(tmp_path)], capture_output=True, text=True, env=environment(build))
    assert done.returncode == 0 and not done.stdout.strip(), done.stdout + done.stderr


@pytest.mark.parametrize("words, sizes", [(["N=2,7,M=3,K=4"], ["N=2", "N=7"]), (["N=2,M=3,K=4"], None), (["N,M=2,7,K=4"], ["N=2,M=2", "N=7,M=7"])])
def test_one_flag_binds_several_symbols(tmp_path, words, sizes):
    model = onnx.parser.parse_model('<ir_version: 9, opset_import: ["" : 18]> g (float[N, K] x, float[M, K] z) => (float[N, M] y) {'
                                    't = Transpose<perm = [1, 0]>(z) y = MatMul(x, t) }')
    onnx.save(model, tmp_path / "model.onnx")
    mpt.compile(tmp_path / "model.onnx", out=tmp_path / "lib", forward_only=True, bind=words)
    assert json.loads((tmp_path / "lib/model.json").read_text()).get("sizes") == sizes
