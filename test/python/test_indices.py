# SPDX-License-Identifier: Apache-2.0
"""Labels and indices out of range are errors that name the input, the value and the range, and change nothing."""
import json
import subprocess
import sys

import numpy as np
import onnx
import pytest

import mpt
from conftest import build_folder
from standin import environment

SOFTMAX = "loss = SoftmaxCrossEntropyLoss{words}(logits, i)"
NLL = """p = LogSoftmax<axis = 1>(logits)
         loss = NegativeLogLikelihoodLoss{words}(p, i)"""
# name: (type of i, lines that compute a scalar loss from w [4, 3] and i, a legal i, its illegal values, the range in the message)
CASES = {
    "softmax": ("int64[4]", "logits = Identity(w)\n" + SOFTMAX.format(words=""), [0, 1, 2, 0], [3, -1, 10**6], "0 to 2"),
    "softmax-i32": ("int32[4]", "logits = Identity(w)\n" + SOFTMAX.format(words=""), [0, 1, 2, 0], [3, -2], "0 to 2"),
    "softmax-ignore": ("int64[4]", "logits = Identity(w)\n" + SOFTMAX.format(words="<ignore_index = -100>"), [0, -100, 2, 0], [3, -1],
                       "0 to 2 or -100"),
    "softmax-ignore-class": ("int64[4]", "logits = Identity(w)\n" + SOFTMAX.format(words="<ignore_index = 1>"), [0, 1, 2, 0], [3, -1], "0 to 2"),
    "nll": ("int64[4]", "logits = Identity(w)\n" + NLL.format(words=""), [0, 1, 2, 0], [3, -1], "0 to 2"),
    "nll-ignore": ("int64[4]", "logits = Identity(w)\n" + NLL.format(words="<ignore_index = 255>"), [0, 1, 255, 0], [3, -1, 254], "0 to 2 or 255"),
    "gather": ("int64[2, 3]", "a = Gather(w, i)", [[0, 3, -4], [1, 1, -1]], [4, -5, 10**6, 2**40], "-4 to 3"),
    "gather-axis": ("int64[2]", "a = Gather<axis = 1>(w, i)", [0, -3], [3, -4], "-3 to 2"),
    "gather-float": ("float[2]", "j = Cast<to = 7>(i)\n a = Gather(w, j)", [0, 3.5], [4, -5, np.nan, np.inf], "-4 to 3"),
    "gather-elements": ("int64[4, 2]", "a = GatherElements<axis = 1>(w, i)", [[0, -3], [1, 2], [1, 1], [2, 2]], [3, -4], "-3 to 2"),
    "gather-nd": ("int64[5, 2]", "a = GatherND(w, i)", [[0, 0], [3, 2], [-4, -3], [1, 1], [2, 0]], [-5], "-4 to 3"),
    "scatter-elements": ("int64[4, 3]", "u = Mul(w, w)\n a = ScatterElements<reduction = \"add\">(w, i, u)", np.zeros((4, 3)), [4, -5], "-4 to 3"),
    "scatter-nd": ("int64[2, 1]", "u = Gather(w, two)\n a = ScatterND<reduction = \"add\">(w, i, u)", [[0], [-4]], [4, -5], "-4 to 3"),
    "sliced": ("int64[2, 6]", "s = Slice(i, start, end, start)\n a = Gather(w, s)", [[9, 0, 1, 2, 3, 9], [9, 3, 2, 1, 0, 9]], [4, 9], "-4 to 3"),
    "offset": ("int64[3]", "j = Add(i, start)\n a = Gather(w, j)", [-5, 0, 2], [3, -6], "-5 to 2"),
    "wrapped": ("int64[3]", "n = Less(i, zero)\n k = Add(i, four)\n j = Where(n, k, i)\n a = Gather(w, j)", [-8, 0, 3], [4, -9], "-8 to 3"),
}
POSITION = {"sliced": 3}  # in the flat i, of the value that is made illegal; 1 elsewhere


def write(name, folder):
    kind, body, *_ = CASES[name]
    if "loss =" not in body:
        body += "\n q = Mul(a, a)\n loss = ReduceMean<keepdims = 0>(q)"
    model = onnx.parser.parse_model(f"""<ir_version: 9, opset_import: ["" : 18]>
    model ({kind} i) => (float loss) <float[4, 3] w, int64[1] start = {{1}}, int64[1] end = {{5}}, int64[2] two = {{0, 2}},
                                     int64 zero = {{0}}, int64 four = {{4}}> {{
        {body}
    }}""")
    # Axis 1 alone is sliced.
    if name == "sliced":
        model.graph.initializer.append(onnx.numpy_helper.from_array(np.array([1], np.int64), "axis"))
        node = next(n for n in model.graph.node if n.op_type == "Slice")
        node.input[3] = "axis"
    for number, node in enumerate(model.graph.node):
        node.name = f"node{number}_{node.op_type}"
    model.graph.initializer.append(onnx.numpy_helper.from_array(np.linspace(-1, 1, 12, dtype=np.float32).reshape(4, 3), "w"))
    onnx.save(model, folder / f"{name}.onnx")
    return folder / f"{name}.onnx"


def legal(name):
    kind = CASES[name][0].split("[")[0]
    return np.array(CASES[name][2], {"float": np.float32}.get(kind, kind))


@pytest.mark.parametrize("name", CASES)
def test_out_of_range_is_an_error_and_changes_nothing(tmp_path, name):
    _, _, _, wrong, expected = CASES[name]
    mpt.compile(write(name, tmp_path), out=tmp_path / "lib", optimizer="adam,lr=0.1", train="w")
    trainer = mpt.Trainer(tmp_path / "lib", threads=1)
    good = legal(name)
    trainer.step({"i": good})
    before = trainer.state()
    for value in wrong:
        bad = good.copy()
        bad.flat[POSITION.get(name, 1)] = value
        if name == "gather-nd":
            bad = good.copy()
            bad[1, 0] = value
        for call in (trainer.step, trainer.gradients, trainer.evaluate):
            with pytest.raises(mpt.Error) as caught:
                call({"i": bad})
            text = str(caught.value)
            assert "input 'i'" in text and f"expected {expected} for node 'node" in text, text
            if np.isfinite(value):
                assert f"got {int(value)} at [" in text, text
        after = trainer.state()
        assert all(before[key].tobytes() == after[key].tobytes() for key in before)
    trainer.step({"i": good})


def test_first_bad_value_and_its_place(tmp_path):
    mpt.compile(write("gather", tmp_path), out=tmp_path / "lib")
    bad = np.array([[0, 1, 2], [7, 3, 1000000]])
    with pytest.raises(mpt.Error, match=r"input 'i' of 'step': expected -4 to 3 for node 'node0_Gather', got 7 at \[1,0\]"):
        mpt.Trainer(tmp_path / "lib").step({"i": bad})


@pytest.mark.parametrize("ignored", [None, -1])
@pytest.mark.parametrize("loss", ["softmax-cross-entropy", "nll", "focal"])
def test_labels_of_an_added_loss(tmp_path, loss, ignored):
    """The loss that --loss adds: label 100 of 3 classes, negative ones, and the ignored one."""
    model = onnx.parser.parse_model("""<ir_version: 9, opset_import: ["" : 18]>
    model (float[2, 5] x) => (float[2, 3] y) <float[5, 3] w> { z = MatMul(x, w) y = LogSoftmax(z) }""")
    model.graph.initializer.append(onnx.numpy_helper.from_array(np.ones((5, 3), np.float32), "w"))
    onnx.save(model, tmp_path / "m.onnx")
    mpt.compile(tmp_path / "m.onnx", out=tmp_path / "lib", loss=loss + (f",ignore-index={ignored}" if ignored else ""), policy="amp-f16")
    trainer = mpt.Trainer(tmp_path / "lib")
    x = np.ones((2, 5), np.float32)
    for bad in (100, 3, -2, -100) + (() if ignored else (-1,)):
        with pytest.raises(mpt.Error, match=f"input 'labels' of 'step': expected {ignored or 0} to 2 .*got {bad} at"):
            trainer.step({"x": x, "labels": np.array([1, bad])})
    assert not trainer.step({"x": x, "labels": np.array([1, ignored or 2])}).skipped


DEVICE = """
import ctypes, json, sys
import numpy as np
from standin import standin, trainer
import mpt
from mpt import _native
t = trainer(sys.argv[1])
good, bad = np.array([[0, 3, -4], [1, 1, -1]]), np.array([[0, 3, -4], [1, 9, -1]])
t.step({"i": good})
before = t.state()
texts = []
try:
    t.step({"i": bad})
except mpt.Error as error:
    texts.append(str(error))
# The same in the device's memory.
cuda, context, memory = standin(), ctypes.c_void_p(), ctypes.c_uint64()
assert not cuda.cuDevicePrimaryCtxRetain(ctypes.byref(context), 0) and not cuda.cuCtxPushCurrent_v2(context)
assert not cuda.cuMemAlloc_v2(ctypes.byref(memory), ctypes.c_size_t(good.nbytes))
def run(values):
    stream = ctypes.c_void_p()
    assert not cuda.cuStreamCreate(ctypes.byref(stream), 1)
    assert not cuda.cuMemcpyHtoDAsync_v2(memory, values.ctypes.data_as(ctypes.c_void_p), ctypes.c_size_t(values.nbytes), stream)
    assert not cuda.cuStreamSynchronize(stream)
    tensor = _native.Tensor(b"i", 7, 2, (ctypes.c_int64 * 2)(2, 3), memory.value)
    t._runtime.call("mpt_trainer_run", t._trainer, b"step", (_native.Tensor * 1)(tensor), 1, None)
try:
    run(bad)
except mpt.Error as error:
    texts.append(str(error))
t.synchronize()
same = all(before[k].tobytes() == v.tobytes() for k, v in t.state().items())
run(good)
t.synchronize()
moved = any(before[k].tobytes() != v.tobytes() for k, v in t.state().items())
print(json.dumps([texts, same, moved, cuda.standin_violations().decode()]))
"""


def test_on_a_device(tmp_path):
    """Indices in host memory and in the device's: refused before a kernel is started."""
    build = build_folder()
    if not (build / "lib" / "libcuda_standin.so").exists():
        pytest.skip("the stand-in is not built")
    mpt.compile(write("gather", tmp_path), out=tmp_path / "lib", target="cuda", arch="host")
    done = subprocess.run([sys.executable, "-c", DEVICE, str(tmp_path / "lib")], env=environment(build), capture_output=True, text=True)
    assert done.returncode == 0, done.stderr[-800:]
    texts, same, moved, violations = json.loads(done.stdout)
    assert len(texts) == 2 and all("expected -4 to 3 for node 'node0_Gather', got 9 at [1,1]" in text for text in texts), texts
    assert same and moved and not violations
