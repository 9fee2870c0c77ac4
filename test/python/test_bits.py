# SPDX-License-Identifier: Apache-2.0
"""Emitted CPU libraries leave the bits of the interpreter's exact mode where every operation is rounded by itself: elementwise arithmetic,
casts of every policy (stochastic ones too), loss scales, updates. docs/precision.md says where this holds."""
import pathlib
import subprocess

import mpt
import numpy as np
import pytest
from mpt_run import read_tensors, tool, write_tensors
from onnx import numpy_helper, parser, save
from planted_steps import with_weights

POLICIES = sorted(path.stem for path in (pathlib.Path(__file__).parents[2] / "lib/Precision/policies").glob("*.mlir"))
OPTIMIZERS = ["sgd,lr=0.1", "sgd,lr=0.1,momentum=0.9,nesterov=1,weight-decay=1e-2", "adam", "adagrad", "rmsprop,momentum=0.5", "lion"]
SHAPE = (8, 64)


def same_bits(folder, policy: str, optimizer: str, *words) -> None:
    rng = np.random.default_rng(0)
    model = parser.parse_model("""<ir_version: 9, opset_import: ["" : 18]>
m (float[8, 64] x) => (float[8, 64] y) {
a = Mul(x, w) b = Add(a, c) d = Relu(b) e = Sub(d, x) f = Abs(e) g = Add(f, one) h = Sqrt(g) i = Div(w, h) j = Neg(i) k = Max(j, c) y = Mul(k, w)
}""".replace(") ", ")\n"))
    values = {"w": rng.standard_normal(SHAPE), "c": rng.standard_normal(SHAPE), "one": np.ones(1)}
    for name, value in values.items():
        model.graph.initializer.append(numpy_helper.from_array(value.astype(np.float32), name))
    for node in model.graph.node:
        node.name = node.output[0]
    save(model, folder / "m.onnx")
    batch = {name: rng.standard_normal(SHAPE).astype(np.float32) for name in ("x", "target")}
    opt = [pathlib.Path(tool()).with_name("mpt-opt"), folder / "m.onnx", "--loss=mse", f"--optimizer={optimizer}", f"--policy={policy}", "--train=w|c",
           "--quiet", *words]
    subprocess.run([*opt, "-o", folder / "lib"], check=True)
    subprocess.run([*opt, "--to=precision", "-o", folder / "m.mlir"], check=True)
    with mpt.Trainer(folder / "lib", threads=2) as trainer:
        for _ in range(5):
            trainer.step(batch)
        trainer.save(folder / "library.st")
        rate = trainer.manifest["optimizer"]["learning_rate"]
    write_tensors(folder / "batch.st", {**batch, "learning_rate": np.array(rate, np.float32)})
    subprocess.run([tool(), with_weights(folder, folder / "m.mlir"), "--function=step", f"--inputs={folder / 'batch.st'}",
                    f"--new-state={folder / 'interpreter.st'}", "--steps=5"], check=True, capture_output=True)
    library, interpreter = read_tensors(folder / "library.st"), read_tensors(folder / "interpreter.st")
    assert set(interpreter) == set(library) and len(interpreter) >= 2
    other = {name: f"{np.sum(library[name] != value)} of {value.size}" for name, value in interpreter.items() if library[name].tobytes() != value.tobytes()}
    assert not other
    assert not np.array_equal(interpreter.get("w.master", interpreter["w"]), values["w"].astype(np.float32)), "nothing was trained"


@pytest.mark.parametrize("policy", POLICIES)
def test_every_policy(tmp_path, policy):
    same_bits(tmp_path, policy, "adamw")


@pytest.mark.parametrize("optimizer", OPTIMIZERS)
@pytest.mark.parametrize("policy", ["amp-f16", "fp8-e5m2"])
def test_every_update(tmp_path, policy, optimizer):
    same_bits(tmp_path, policy, optimizer)


@pytest.mark.parametrize("optimizer", [one for one in OPTIMIZERS if one != "sgd,lr=0.1"])
@pytest.mark.parametrize("policy", ["fp32", "bf16-kahan"])
def test_narrow_slots(tmp_path, policy, optimizer):
    same_bits(tmp_path, policy, optimizer, "--slots=bf16")


@pytest.mark.parametrize("policy", ["amp-f16", "amp-bf16", "pure-f16-static"])
def test_narrow_arithmetic(tmp_path, policy):
    same_bits(tmp_path, policy, "sgd,lr=0.1,momentum=0.9", "--keep-narrow=.*")
