# SPDX-License-Identifier: Apache-2.0
"""Each precision recipe end to end: the library trains as the interpreter does, resumes bitwise identical, and learns."""
import os
import pathlib
import subprocess
import sys

import numpy as np
import pytest

import mpt
from mpt_run import read_tensors, write_tensors

ROOT = pathlib.Path(__file__).resolve().parents[2]
BUILD = pathlib.Path(os.environ.get("MPT_BUILD", ROOT / "build" / "release"))
onnx = pytest.importorskip("onnx")
pytestmark = pytest.mark.skipif(not (BUILD / "bin" / "mpt-opt").exists(), reason="mpt-opt is not built")
sys.path.insert(0, str(ROOT / "examples" / "quickstart"))
# Policies with a mechanism of their own: each of the folder but the plain ones, which test_e2e and the corpus train.
POLICIES = sorted(path.stem for path in (ROOT / "lib" / "Precision" / "policies").glob("*.mlir")
                  if not path.stem.startswith(("fp32", "amp", "autocast")))
BATCH, CLASSES = 32, 4
FLAGS = {"loss": "softmax-cross-entropy", "optimizer": "sgd,lr=0.05,momentum=0.9"}


def mlp(path):
    """Three linear layers with a residual connection around the middle one."""
    from models import Graph
    from onnx import TensorProto
    g = Graph(3)
    x = g.op("Relu", g.linear("x", "one", 16, 32))
    x = g.op("Add", x, g.op("Relu", g.linear(x, "two", 32, 32)), name="/residual")
    x = g.op("Relu", g.linear(x, "three", 32, 32))
    return g.save(str(path), [("x", TensorProto.FLOAT, [BATCH, 16])], g.linear(x, "four", 32, CLASSES), [BATCH, CLASSES])


def batches(count, seed=0):
    """Points, each of the class of the nearest of four centres: learnable to the last one."""
    random = np.random.default_rng(seed)
    centres = np.random.default_rng(9).standard_normal((CLASSES, 16))
    for _ in range(count):
        labels = random.integers(0, CLASSES, BATCH)
        yield {"x": (centres[labels] + 0.3 * random.standard_normal((BATCH, 16))).astype(np.float32), "labels": labels}


@pytest.fixture(scope="module", params=POLICIES)
def compiled(request, tmp_path_factory):
    folder = tmp_path_factory.mktemp(request.param)
    mpt.use_build(BUILD)
    model = mlp(folder / "mlp.onnx")
    mpt.compile(model, policy=request.param, out=folder / "library", **FLAGS)
    text = subprocess.run([BUILD / "bin" / "mpt-opt", model, f"--policy={request.param}", f"--loss={FLAGS['loss']}",
                           f"--optimizer={FLAGS['optimizer']}", "--emit=mlir", "--to=precision", "--quiet", "-o", "-"],
                          capture_output=True, text=True, check=True).stdout
    (folder / "step.mlir").write_text(text)
    return request.param, folder


def reference_losses(folder, state, count):
    """Losses of the first steps in the reference interpreter from `state`, and the state after them."""
    losses = []
    for feeds in batches(count):
        write_tensors(folder / "in", {**feeds, "learning_rate": np.float32(0.05)[()].reshape(())})
        write_tensors(folder / "state", state)
        subprocess.run([BUILD / "bin" / "mpt-run", folder / "step.mlir", "--function=step", f"--inputs={folder / 'in'}",
                        f"--state={folder / 'state'}", f"--outputs={folder / 'out'}", f"--new-state={folder / 'new'}"], check=True)
        state = read_tensors(folder / "new")
        losses.append(float(read_tensors(folder / "out")["loss"]))
    return losses, state


def test_library_steps_as_the_interpreter(compiled):
    policy, folder = compiled
    trainer = mpt.Trainer(folder / "library", threads=1)
    expected, state = reference_losses(folder, trainer.state(), 4)
    losses = [trainer.step(feeds).loss for feeds in batches(4)]
    # A value between two 8-bit neighbours may fall to either after sums in another order: 2^-3 of one of many terms.
    np.testing.assert_allclose(losses, expected, rtol=2e-2 if policy.startswith("fp8") else 2e-3)
    assert losses[0] == pytest.approx(expected[0], rel=2e-3)
    ours = trainer.state()
    assert ours.keys() == state.keys()
    for name in ("mpt.tensor_scales", "mpt.rounding", "mpt.loss_scale"):
        if name in state:
            np.testing.assert_allclose(ours[name].astype(np.float64), state[name].astype(np.float64), rtol=0.13)


def test_resumes_bit_for_bit(compiled, tmp_path):
    _, folder = compiled
    one, two = (mpt.Trainer(folder / "library", threads=1, seed=5) for _ in range(2))
    feeds = list(batches(6))
    for f in feeds[:3]:
        one.step(f)
        two.step(f)
    two.save(tmp_path / "state")
    two = mpt.Trainer(folder / "library", threads=1, seed=6)
    two.load(tmp_path / "state")
    for f in feeds[3:]:
        assert one.step(f).loss == two.step(f).loss
    for name, value in one.state().items():
        assert value.tobytes() == two.state()[name].tobytes(), name


def test_learns(compiled):
    _, folder = compiled
    trainer = mpt.Trainer(folder / "library", threads=1)
    for feeds in batches(150):
        result = trainer.step(feeds)
    assert not result.skipped
    right = total = 0
    for feeds in batches(10, seed=1):
        answer = trainer.evaluate({"x": feeds["x"]})["logits"].argmax(1)
        right += int((answer == feeds["labels"]).sum())
        total += BATCH
    assert right >= 0.99 * total, (right, total)


def test_a_step_that_is_not_finite_changes_no_parameter_and_no_scale_of_a_tensor(compiled):
    _, folder = compiled
    trainer = mpt.Trainer(folder / "library", threads=1)
    first, second = batches(2)
    trainer.step(first)
    before = trainer.state()
    second["x"][0, 0] = np.inf
    assert trainer.step(second).skipped
    for name, value in trainer.state().items():
        if name not in ("mpt.loss_scale", "mpt.good_steps", "mpt.hysteresis", "mpt.scale_steps", "mpt.rounding"):
            assert value.tobytes() == before[name].tobytes(), name


def test_storage(compiled):
    policy, folder = compiled
    state = mpt.Trainer(folder / "library").state()
    if policy in ("pure-f16-static", "fp8-e5m2", "fp8-e5m2-saved"):
        assert {state[name].dtype for name in state if name.endswith((".weight", ".bias", ".momentum"))} == {np.dtype(np.float16)}
        assert not any(name.endswith(".master") for name in state)
    if policy in ("bf16-sr", "bf16-kahan"):
        weights = [name for name in state if name.endswith((".weight", ".bias"))]
        assert weights and {str(state[name].dtype) for name in weights} == {"bfloat16"}
        assert [f"{name}.remainder" in state for name in weights] == [policy == "bf16-kahan"] * len(weights)
        assert not any(name.endswith(".master") for name in state)
    if policy == "fp8-hybrid":
        # Two layers between the first and the last: inputs, weights and incoming gradients.
        assert state["mpt.amax_history"].shape == (6, 1024) and state["mpt.tensor_scales"].shape == (6,)
