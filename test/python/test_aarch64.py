# SPDX-License-Identifier: Apache-2.0
"""Libraries for AArch64 under user-mode emulation: ten steps and the state after them against the interpreter. The programs
that this takes are installed by scripts/setup.sh --tests and built by scripts/build-runtime.sh aarch64."""
import subprocess
import sys

import numpy as np
import onnx.parser
import pytest
from mpt_run import ROOT, read_tensors, tool, write_tensors

import mpt

sys.path.insert(0, str(ROOT / "test" / "emulated"))
import emulated  # noqa: E402

pytestmark = pytest.mark.skipif(bool(emulated.missing()), reason=f"emulation lacks {emulated.missing()}")
STEPS = 10
# Convolutions of few channels, of groups and by stride, their gradients, a norm and a product.
MODEL = """
<ir_version: 10, opset_import: ["" : 20]>
net (float[8, 3, 9, 9] x) => (float[8, 5] y)
{
    a = Conv <kernel_shape = [3, 3], pads = [1, 1, 1, 1], strides = [2, 2]> (x, w0, b0)
    b = Relu (a)
    c = Conv <kernel_shape = [3, 3], group = 2> (b, w1)
    d = LayerNormalization <axis = 1> (c, scale)
    e = Flatten (d)
    f = Gelu (e)
    y = Gemm <transB = 1> (f, w2, b2)
}
"""
SHAPES = {"w0": (8, 3, 3, 3), "b0": (8,), "w1": (6, 4, 3, 3), "scale": (6, 3, 3), "w2": (5, 54), "b2": (5,)}


def write_model(path) -> None:
    random = np.random.default_rng(5)
    model = onnx.parser.parse_model(MODEL)
    for name, shape in SHAPES.items():
        values = random.normal(0, 0.3, shape).astype(np.float32) + (name == "scale")
        model.graph.initializer.append(onnx.numpy_helper.from_array(values, name))
    onnx.save(model, path)


def interpret(module, inputs, state, *flags) -> dict:
    """The loss of the last of all steps, and the parameters behind it."""
    outputs = module.parent / "outputs.safetensors"
    command = [tool(), module, "--function=step", f"--inputs={inputs}", f"--steps={STEPS}", f"--outputs={outputs}", f"--new-state={state}", *flags]
    subprocess.run(command, check=True, capture_output=True)
    values = read_tensors(state)
    masters = {name: values.get(f"{name}.master", value) for name, value in values.items()}
    return {"loss": read_tensors(outputs)["loss"], **masters}


# Processors of the emulator: one without BF16, and one that rounds to it in one instruction.
@pytest.mark.parametrize("policy, flags, cpu", [
    ("fp32", {}, "cortex-a57"), ("amp-f16", {}, "cortex-a57"), ("amp-bf16", {}, "cortex-a57"),
    ("amp-bf16", {"mattr": "+bf16"}, "max"), ("amp-f16", {"mcpu": "neoverse-n1", "mattr": "+fp16fml"}, "max")])
def test_steps(tmp_path, policy, flags, cpu):
    write_model(tmp_path / "net.onnx")
    options = {"loss": "mse", "optimizer": "sgd,lr=0.05", "policy": policy, "loss_scale": "1024", "quiet": True}
    mpt.compile(tmp_path / "net.onnx", out=tmp_path / "out", mtriple=emulated.TRIPLE, **flags, **options)
    mpt.compile(tmp_path / "net.onnx", out=tmp_path / "step.mlir", to="precision", **options)
    random = np.random.default_rng(6)
    feeds = {"x": random.normal(size=(8, 3, 9, 9)).astype(np.float32), "target": random.normal(size=(8, 5)).astype(np.float32)}
    write_tensors(tmp_path / "in.safetensors", {**feeds, "learning_rate": np.float32(0.05)})
    plain, exact = (interpret(tmp_path / "step.mlir", tmp_path / "in.safetensors", tmp_path / "state.safetensors", *fp64)
                    for fp64 in ((), ("--fp64",)))
    trainer = emulated.Trainer(tmp_path / "out", cpu=cpu)
    losses = [trainer.step(feeds).loss for _ in range(STEPS)]
    assert losses[-1] < losses[0]
    got = {"loss": np.float64(losses[-1]), **trainer.parameters()}
    trainer.close()
    assert set(SHAPES) < set(got)
    for name, value in got.items():
        size = np.max(np.abs(exact[name]))
        limit = max(4 * np.max(np.abs(plain[name].astype(np.float64) - exact[name])) / size, 1e-5)
        assert np.max(np.abs(value - exact[name])) / size <= limit, name


def test_other_processor(tmp_path):
    """The runtime refuses a library that takes instructions which the processor lacks."""
    write_model(tmp_path / "net.onnx")
    mpt.compile(tmp_path / "net.onnx", out=tmp_path / "out", loss="mse", quiet=True, mtriple=emulated.TRIPLE, mattr="+bf16")
    with pytest.raises(mpt.Error, match="this processor lacks 'bf16': compile it for this one"):
        emulated.Trainer(tmp_path / "out", cpu="cortex-a57")
