# SPDX-License-Identifier: Apache-2.0
"""Options, policies and outputs that are not in order: a message, status 1, and existing files stay."""
import contextlib
import os
import resource
import subprocess

import mpt
import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper
from test_bad_models import MPT_OPT, compile_model, mlp, refused

LOSS = """
<ir_version: 9, opset_import: ["" : 18]>
mlp (float[N, 6] x, int64[N] label) => (float loss) {
  hidden = Gemm<transB = 1>(x, w1, b1)
  active = Relu(hidden)
  y = Gemm<transB = 1>(active, w2, b2)
  loss = SoftmaxCrossEntropyLoss<reduction = "mean">(y, label)
}
"""


@pytest.fixture
def model(tmp_path):
    path = tmp_path / "model.onnx"
    onnx.save(mlp(LOSS), path)
    return path


def run(path, *options, **keywords):
    return subprocess.run([MPT_OPT, str(path), "--quiet", "--bind=N=4", *map(str, options)], capture_output=True, text=True,
                          errors="replace", timeout=120, cwd=os.path.dirname(path), **keywords)


@pytest.mark.parametrize("option, says", [
    ("--polcy=fp32", "unknown flag '--polcy'"),
    ("--policy=fp33", "expected policy "),
    ("--policy=./none.mlir", "cannot find policy file ./none.mlir"),
    ("--optimizer=sgdd", "expected an optimizer (sgd, adam, adamw, adagrad, rmsprop, lion, lamb, lars, adafactor), got 'sgdd'"),
    ("--optimizer=sgd,lr=fast", "expected a number that is not negative for lr of sgd, got 'fast'"),
    ("--optimizer=sgd,lr=nan", "for lr of sgd, got 'nan'"),
    ("--optimizer=sgd,lr=inf", "for lr of sgd, got 'inf'"),
    ("--optimizer=adam,betas=0.9", "expected two numbers in [0, 1), as 0.9:0.999 for betas of adam, got '0.9'"),
    ("--optimizer=sgd,rate=1", "expected a key of sgd"),
    ("--loss=mean", "expected a loss (softmax-cross-entropy, nll, focal, mse, l1, smooth-l1, huber, bce-with-logits, kl, cosine, ctc, none) for --loss, got 'mean'"),
    ("--keep-f32=(", "expected a regular expression"),
    ("--freeze=*", "expected a regular expression"),
    ("--loss-scale=0", "expected a loss scale of dynamic, none or a positive number, got 0"),
    ("--loss-scale=inf", "expected a loss scale of dynamic, none or a positive number, got inf"),
    ("--loss-scale=1e-40", "expected a loss scale from 2^-32 to 2^64, got 1e-40"),
    ("--loss-scale=1e30", "expected a loss scale from 2^-32 to 2^64, got 1e30"),
    ("--loss-scale=dynamic,max=1e30", "expected min and max of the loss scale from 2^-32 to 2^64"),
    ("--loss-scale=dynamic,floors=0:8/0:16", "expected steps of the loss scale's floors that ascend, got 0:8/0:16"),
    ("--loss-scale=dynamic,floors=-1", "expected floors of the loss scale as SCALE, STEP:SCALE/STEP:SCALE or none, got -1"),
    ("--loss-scale=dynamic,max=131072,floors=262144", "expected floors of the loss scale of at most max"),
    ("--slots=f4", "expected f32|f16|bf16|i8|f8 for --slots, got 'f4'"),
    ("--loss-scale=dynamic,patience=0", "interval, hysteresis and patience of at least 1"),
    ("--clip-norm=inf", "expected a positive number for --clip-norm, got 'inf'"),
    ("--clip-norm=nan", "expected a positive number for --clip-norm, got 'nan'"),
    ("--accumulate=0", "expected a positive whole number for --accumulate, got '0'"),
    ("--bind=N", "expected NAME=N with a positive N for --bind, got 'N'"),
    ("--bind=N=-3", "expected NAME=N with a positive N for --bind, got 'N=-3'"),
    ("--bind=N=4611686018427387904", "expected fewer than 2^40 elements, got --bind N=4611686018427387904"),
    ("--target=tpu", "expected cpu|cuda for --target, got 'tpu'"),
    ("--mcpu=pentium99", "pentium99"),
    ("--emit=wasm", "for --emit, got 'wasm'"),
    ("--to=nowhere", "for --to, got 'nowhere'"),
    ("--quiet=yes", "expected no value for --quiet"),
    ("--name=a/b", "expected a file name for the library without quotes and control characters, got 'a/b'"),
    ('--name=a"b', "got 'a\"b'; name it with --name"),
    ("--report=speed", "for --report, got 'speed'"),
    ("--onnx-state=inputs", "expected --emit=onnx for --onnx-state=inputs"),
    ("--onnx-ops=portable", "expected --emit=onnx for --onnx-ops=portable"),
    ("--onnx-form=training-info", "expected --emit=onnx for --onnx-form=training-info"),
    ("--emit=onnx --report=memory", "expected a library for --report=memory, got --emit=onnx"),
    ("--emit=onnx --report=kernels=k.json", "expected a library for --report=kernels, got --emit=onnx"),
    ("--emit=onnx --memory-budget=1M", "expected a library for --memory-budget, got --emit=onnx"),
    ("--emit=onnx --batch-invariant", "expected a library for --batch-invariant, got --emit=onnx"),
    ("--policy=auto --batch-invariant", "expected a policy whose types do not depend on measurements for --batch-invariant, got auto"),
    ("--emit=onnx --debug-nonfinite", "expected a library for --debug-nonfinite, got --emit=onnx"),
    ("--emit=onnx --eval-model=e.onnx", "expected a library for --eval-model, got --emit=onnx"),
    ("--to=fusion --report=memory", "expected --to=memory or a later phase with --report=memory, got --to=fusion"),
    ("--to=training --report=precision", "expected --to=precision or a later phase with --report=precision, got --to=training"),
])
def test_options(model, tmp_path, option, says):
    result = run(model, *option.split(), "-o", tmp_path / "lib")
    assert result.returncode == 1 and says in result.stderr, result.stderr
    assert not (tmp_path / "lib").exists()


def test_unknown_symbol_to_bind(model):
    result = run(model, "--bind=M=3", "--to=import")
    assert result.returncode == 0 and "warning" in result.stderr and "'M'" in result.stderr


@pytest.mark.parametrize("text, says", [
    ("nonsense", "policy.mlir:1:1: "),
    ("", "expected one policy.policy"),
    ("policy.policy @p storage(f17) accumulate(f32) master(f32) {}", "policy.mlir:1:"),
    ("policy.policy @p storage(i8) accumulate(f32) master(f32) {}", "policy.mlir:1:"),
    ("func.func @f() { return }", "expected one policy.policy"),
    ("\0\xff", "policy.mlir"),
])
def test_policy_files(model, tmp_path, text, says):
    path = tmp_path / "policy.mlir"
    path.write_text(text)
    result = run(model, f"--policy={path}", "-o", tmp_path / "lib")
    assert result.returncode == 1 and "error: " in result.stderr and says in result.stderr, result.stderr


def snapshot(folder):
    return {p.name: p.read_bytes() for p in folder.iterdir()}


def test_failure_keeps_the_earlier_library(model, tmp_path):
    """A disk that fills up, in the shape of a limit on file size, at every file of the library."""
    out = tmp_path / "lib"
    assert run(model, "-o", out).returncode == 0
    good = snapshot(out)
    for limit in (0, 100, 700, 4000, 12000):
        result = run(model, "-o", out, preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (limit, limit)))
        assert result.returncode == 1 and "error: " in result.stderr, f"limit {limit}: {result.stderr}"
        assert snapshot(out) == good, f"limit {limit}"


def test_disk_fills_up(model, tmp_path, small_disk):
    """A real file system without room: the library and the state from before stay whole, and nothing else is left."""
    out = tmp_path / "lib"
    assert run(model, "-o", out).returncode == 0
    trainer = mpt.Trainer(out)
    trainer.save(small_disk / "state")
    filling = small_disk / "filling"
    with open(filling, "wb", buffering=0) as file, contextlib.suppress(OSError):
        while file.write(bytes(512)):
            pass
    good = snapshot(small_disk)
    trainer.step({"x": np.ones((4, 6), np.float32), "label": np.zeros(4, np.int64)})
    with pytest.raises(mpt.Error, match="No space left on device"):
        trainer.save(small_disk / "state")
    result = run(model, "-o", small_disk / "lib")
    assert result.returncode == 1 and "No space left on device" in result.stderr, result.stderr
    assert not (small_disk / "lib").exists() or not any((small_disk / "lib").iterdir())
    for options in (["--emit=onnx"], ["--to=precision"]):
        result = run(model, *options, "-o", small_disk / "file")
        assert result.returncode == 1 and "No space left on device" in result.stderr, result.stderr
    if (small_disk / "lib").exists():
        (small_disk / "lib").rmdir()
    assert snapshot(small_disk) == good
    trainer.load(small_disk / "state")


def test_killed_compilations_leave_no_litter(model, tmp_path):
    out = tmp_path / "lib"
    (out / ".mpt-dead00").mkdir(parents=True)
    (out / ".mpt-dead00" / "part0.o").write_text("half")
    (out / "notes").write_text("not ours")
    assert run(model, "-o", out).returncode == 0
    names = {p.name for p in out.iterdir()}
    assert "notes" in names and not any(name.startswith(".mpt") for name in names), names


@pytest.mark.parametrize("options", [["--to=precision"], ["--emit=onnx"], ["--to=memory", "--report=memory=FILE"],
                                     ["--to=precision", "--report=precision=FILE"]])
def test_full_disk(model, tmp_path, options):
    """Output to /dev/full is an error; the device stays one (a rename would replace it)."""
    options = [o.replace("FILE", "/dev/full") for o in options]
    result = run(model, *options, "-o", "/dev/full" if "=/dev/full" not in options[-1] else tmp_path / "out")
    assert result.returncode == 1 and "cannot write '/dev/full': No space left on device" in result.stderr, result.stderr
    assert os.path.exists("/dev/full") and not os.path.isfile("/dev/full")
    with open("/dev/full", "wb", buffering=0) as full:
        result = subprocess.run([MPT_OPT, str(model), "--quiet", "--bind=N=4", "--to=import"], stdout=full, stderr=subprocess.PIPE)
    assert result.returncode == 1 and b"cannot write '-'" in result.stderr


@pytest.mark.parametrize("options", [["--to=import"], ["--emit=onnx"]])
def test_failure_keeps_the_earlier_file(model, tmp_path, options):
    out = tmp_path / "out"
    assert run(model, *options, "-o", out).returncode == 0
    before = snapshot(tmp_path)

    def limit():
        import signal
        signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
        resource.setrlimit(resource.RLIMIT_FSIZE, (100, 100))
    result = run(model, *options, "-o", out, preexec_fn=limit)
    assert result.returncode == 1 and f"cannot write '{out}'" in result.stderr
    assert snapshot(tmp_path) == before


def test_odd_names(model, tmp_path):
    for name in ("a,b", "a b", "-x", "a$(touch z)", "ä"):
        result = run(model, f"--name={name}", "-o", tmp_path / name)
        assert result.returncode == 0, result.stderr
        assert (tmp_path / name / f"lib{name}.so").exists() and not (tmp_path / "z").exists()


def test_output_in_the_way(model, tmp_path):
    (tmp_path / "lib").write_text("a file")
    result = run(model, "-o", tmp_path / "lib")
    assert result.returncode == 1 and "lib" in result.stderr and (tmp_path / "lib").read_text() == "a file"
    result = run(model, "--to=import", "-o", tmp_path)
    assert result.returncode == 1 and "cannot write" in result.stderr


def test_out_of_memory(tmp_path):
    """Neither a crash nor a core dump, wherever the address space ends: in the loader, at a thread, in a tensor."""
    weight = helper.make_tensor("w", TensorProto.FLOAT, (3, 1 << 22), np.ones(3 << 22, np.float32).tobytes(), raw=True)
    path = tmp_path / "model.onnx"
    onnx.save(graph([helper.make_node("MatMul", ["x", "w"], ["h"]), helper.make_node("ReduceMean", ["h"], ["y"], keepdims=0)],
                    initializers=[weight]), path)
    said = []
    for limit in range(240 << 20, 480 << 20, 20 << 20):
        result = run(path, "--to=import", "-o", os.devnull, preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_AS, (limit, limit)))
        assert result.returncode in (0, 1, 127), (limit, result.returncode, result.stderr[-500:])  # 127: the system's loader
        assert result.returncode != 1 or "error: " in result.stderr
        said.append(result.stderr)
    assert any("out of memory" in text for text in said)


# ---- models that are large in one respect ----

def graph(nodes, inputs=("x",), outputs=("y",), initializers=(), functions=(), shape=(2, 3), opsets=()):
    info = lambda name: helper.make_tensor_value_info(name, TensorProto.FLOAT, shape)
    made = helper.make_graph(nodes, "g", [info(i) for i in inputs], [info(o) for o in outputs], list(initializers))
    opsets = [helper.make_opsetid("", 18), *(helper.make_opsetid(o, 1) for o in opsets)]
    return helper.make_model(made, ir_version=9, opset_imports=opsets, functions=list(functions))


def function(name, nodes):
    return helper.make_function("local", name, ["a"], ["b"], nodes, [helper.make_opsetid("", 18), helper.make_opsetid("local", 1)])


def call(name, source, target):
    return helper.make_node(name, [source], [target], domain="local")


def test_functions_that_nest_multiply_or_turn_in_circles(tmp_path):
    chain = [function(f"f{i}", [call(f"f{i + 1}", "a", "b")]) for i in range(10000)]
    chain.append(function("f10000", [helper.make_node("Relu", ["a"], ["b"])]))
    refused(tmp_path, graph([call("f0", "x", "y")], functions=chain, opsets=["local"]), "nested at most")
    double = [function(f"f{i}", [call(f"f{i + 1}", "a", "m"), call(f"f{i + 1}", "m", "b")]) for i in range(60)]
    double.append(function("f60", [helper.make_node("Relu", ["a"], ["b"])]))
    refused(tmp_path, graph([call("f0", "x", "y")], functions=double, opsets=["local"]), "nodes in them")
    circle = [function("f0", [call("f1", "a", "b")]), function("f1", [call("f0", "a", "b")])]
    refused(tmp_path, graph([call("f0", "x", "y")], functions=circle, opsets=["local"]), "cycle")


def test_graphs_in_graphs(tmp_path):
    def field(number, payload):  # of a protobuf message, by hand: the library refuses to write such depths
        size, length = b"", len(payload)
        while length > 127:
            size, length = size + bytes([length & 127 | 128]), length >> 7
        return bytes([number << 3 | 2]) + size + bytes([length]) + payload
    inner = b""
    for _ in range(10000):
        inner = field(1, field(5, field(6, inner)))  # a graph's node, its attribute, the graph in that
    refused(tmp_path, b"\x08\x09" + field(7, inner))
    text = '<ir_version: 9, opset_import: ["" : 18]>\ng (float[2] x, bool c) => (float[2] y) { '
    text += "y = If(c)<then_branch = t () => (float[2] y) { " * 10000
    path = tmp_path / "deep.onnxtxt"
    path.write_text(text)
    result = compile_model(path)
    assert result.returncode == 1 and "nested at most 256 deep" in result.stderr


def test_long_chains_and_large_attributes(tmp_path):
    """Long, not wrong: walks over the graph take no stack with its length."""
    count = 20000
    names = ["w", *(f"v{i}" for i in range(count))]
    nodes = [helper.make_node("Identity", [a], [b]) for a, b in zip(names, names[1:])]
    nodes.append(helper.make_node("MatMul", ["x", names[-1]], ["y"]))
    weight = helper.make_tensor("w", TensorProto.FLOAT, (3, 3), np.ones(9, np.float32))
    path = tmp_path / "model.onnx"
    onnx.save(graph(nodes, initializers=[weight]), path)
    assert compile_model(path).returncode == 0
    refused(tmp_path, graph([helper.make_node("Transpose", ["x"], ["y"], perm=list(range(1 << 20)))]))
    refused(tmp_path, graph([helper.make_node("Relu", ["x"], ["y"], **{f"a{i}": i for i in range(2000)})]))
    twice = graph([helper.make_node("Odd", ["x"], ["y"], domain="other", a=1)], opsets=["other"])
    twice.graph.node[0].attribute.append(twice.graph.node[0].attribute[0])
    refused(tmp_path, twice)


@pytest.mark.parametrize("shape", [(-3, 2), (1 << 40, 1 << 40), (1 << 62, 4), (0, 1 << 62, 1 << 62)])
def test_extents(tmp_path, shape):
    refused(tmp_path, graph([helper.make_node("Relu", ["x"], ["y"])], shape=shape), "x")
    huge = TensorProto(name="w", data_type=TensorProto.FLOAT, dims=shape, raw_data=b"\0" * 16)
    model = graph([helper.make_node("Add", ["x", "w"], ["y"])])
    model.graph.initializer.append(huge)
    refused(tmp_path, model, "'w'")


@pytest.mark.parametrize("op, operand", [("Tile", [1 << 40, 1 << 40]), ("Expand", [1 << 40, 1 << 40, 2, 3]),
                                         ("Reshape", [-1, -1]), ("Tile", [-1, 2]), ("Expand", [-(1 << 63), 3]),
                                         ("Pad", [1 << 62, 0, 1 << 62, 0]), ("Pad", [-(1 << 63), 0, 0, 0])])
def test_shapes_computed_in_the_model(tmp_path, op, operand):
    constant = helper.make_node("Constant", [], ["s"], value=helper.make_tensor("s", TensorProto.INT64, (len(operand),), operand))
    model = graph([constant, helper.make_node(op, ["x", "s"], ["y"], name="the_node")])
    model.graph.output[0].type.tensor_type.shape.ClearField("dim")
    for i in range(4 if op == "Expand" and len(operand) == 4 else 2):
        model.graph.output[0].type.tensor_type.shape.dim.add(dim_param=f"d{i}")
    refused(tmp_path, model, "the_node")


def test_large_constants_are_not_walked(tmp_path):
    """A constant of 2^33 equal elements costs nothing, unless something goes through them."""
    extents = helper.make_node("Constant", [], ["s"], value=helper.make_tensor("s", TensorProto.INT64, (2,), [1 << 20, 1 << 13]))
    ones = helper.make_node("ConstantOfShape", ["s"], ["ones"], value=helper.make_tensor("v", TensorProto.FLOAT, (1,), [1.0]))
    path = tmp_path / "model.onnx"
    onnx.save(graph([extents, ones, helper.make_node("ReduceSum", ["ones"], ["sum"], keepdims=0), helper.make_node("Add", ["x", "sum"], ["y"])]),
              path)
    assert compile_model(path).returncode == 0
    integers = helper.make_node("Cast", ["ones"], ["i"], to=TensorProto.INT64)
    flat = helper.make_node("Flatten", ["i"], ["f"], axis=0)
    refused(tmp_path, graph([extents, ones, integers, flat, helper.make_node("NonZero", ["f"], ["y"], name="the_node")]), "the_node")


def test_equations(tmp_path):
    for equation in ("i j ;->ij", "i.j->ij", "ij,jk->ik", "ij->ik", "->", "ij->i->j", "i" * 100000):
        refused(tmp_path, graph([helper.make_node("Einsum", ["x"], ["y"], name="the_node", equation=equation)]), "the_node")


def test_strings_and_empty_tensors(tmp_path):
    model = graph([helper.make_node("Identity", ["s"], ["y"])])
    model.graph.initializer.append(helper.make_tensor("s", TensorProto.STRING, (2,), [b"a", b"b"]))
    refused(tmp_path, model, "'s'", "strings")
    path = tmp_path / "model.onnx"
    onnx.save(graph([helper.make_node("Relu", ["x"], ["y"])], shape=(0, 3)), path)
    assert compile_model(path).returncode in (0, 1)
    loop = helper.make_graph([], "body", [], [])
    refused(tmp_path, graph([helper.make_node("Loop", ["", ""], ["y"], name="the_loop", body=loop)]))


@pytest.mark.parametrize("header, data, says", [
    (b"", b"", "expected a safetensors header within the file"),
    (b"[]", b"", "expected a JSON object as header"),
    (b'{"x": 3}', b"", "expected an object for entry x"),
    (b'{"x": {"dtype": "F32", "shape": [4611686018427387904, 4611686018427387904], "data_offsets": [0, 0]}}', b"", "for tensor x"),
    (b'{"x": {"dtype": "F32", "shape": [-2], "data_offsets": [0, 8]}}', bytes(8), "extents that are not negative"),
    (b'{"x": {"dtype": "F32", "shape": [2], "data_offsets": [4, 12]}}', bytes(8), "expected 8 bytes within the file for tensor x"),
    (b'{"x": {"dtype": "F99", "shape": [2], "data_offsets": [0, 8]}}', bytes(8), "expected a known dtype"),
])
def test_states_of_the_interpreter(tmp_path, header, data, says):
    (tmp_path / "f.mlir").write_text('func.func @f(%x: tensor<2xf32> {mpt.name = "x"}) -> tensor<2xf32> {\n  return %x : tensor<2xf32>\n}\n')
    (tmp_path / "in").write_bytes((len(header).to_bytes(8, "little") if header else b"") + header + data)
    tool = os.path.join(os.path.dirname(MPT_OPT), "mpt-run")
    result = subprocess.run([tool, tmp_path / "f.mlir", "--function=f", f"--inputs={tmp_path / 'in'}", f"--outputs={tmp_path / 'out'}"],
                            capture_output=True, text=True, timeout=60)
    assert result.returncode > 0 and says in result.stderr, result.stderr
