# SPDX-License-Identifier: Apache-2.0
"""Training that skips every step for ever is an error that names the value that is not finite, and changes nothing."""
import numpy as np
import onnx
import pytest

import mpt
from conftest import build_folder

MODEL = """
  <ir_version: 9, opset_import: ["" : 18]>
  stalls (float[4, 8] x) => (float[4, 3] y) {
    h = Gemm<transB = 1>(x, w1, b1)
    r = Relu(h)
    d, m = Dropout(r, ratio, training)
    y = Gemm<transB = 1>(d, w2, b2)
  }"""


@pytest.fixture(scope="module")
def model(tmp_path_factory):
    if not (build_folder() / "bin" / "mpt-opt").exists():
        pytest.skip("mpt-opt is not built")
    mpt.use_build(build_folder())
    graph, random = onnx.parser.parse_model(MODEL), np.random.default_rng(0)
    for name, shape in {"w1": (6, 8), "b1": (6,), "w2": (3, 6), "b2": (3,)}.items():
        graph.graph.initializer.append(onnx.numpy_helper.from_array(random.standard_normal(shape).astype(np.float32), name))
    graph.graph.initializer.append(onnx.numpy_helper.from_array(np.array(0.25, np.float32), "ratio"))
    graph.graph.initializer.append(onnx.numpy_helper.from_array(np.array(True), "training"))
    path = tmp_path_factory.mktemp("stall") / "stalls.onnx"
    onnx.save(graph, path)
    return path


@pytest.fixture(scope="module")
def library(model):
    """The folder of a library, by its loss scale."""
    made = {}

    def get(scale):
        if scale not in made:
            made[scale] = model.parent / f"library{len(made)}"
            mpt.compile(model, loss="mse", optimizer="sgd,lr=1e-3,momentum=0.9", policy="amp-f16", loss_scale=scale, out=made[scale])
        return made[scale]
    return get


def feeds(seed, size=1.0):
    random = np.random.default_rng(seed)
    return {"x": random.standard_normal((4, 8)).astype(np.float32), "target": np.full((4, 3), size, np.float32)}


FIXED, BOTTOM = "16777216", "dynamic,init=4194304,min=2097152,max=16777216"


@pytest.mark.parametrize("scale", [FIXED, BOTTOM])
def test_the_gradient_that_is_not_finite_is_named(library, scale):
    trainer = mpt.Trainer(library(scale), threads=1, seed=3, options={"skip_limit": 5})
    other = mpt.Trainer(library(scale), threads=1, seed=3, options={"skip_limit": 0})
    first = 5 if scale == FIXED else 6  # the first overflow still lowers the scale
    for step in range(1, first + 6):
        if step in (first, first + 5):
            with pytest.raises(mpt.Stalled, match="steps in a row were skipped.*the gradient of '[wb][12]'") as caught:
                trainer.step(feeds(step, 1e4))
            assert caught.value.status == 10 and f"{step - first + 5} steps" in str(caught.value), str(caught.value)
            assert trainer.metrics().skipped
        else:
            assert trainer.step(feeds(step, 1e4)).skipped
        assert other.step(feeds(step, 1e4)).skipped
    ours, theirs = trainer.state(), other.state()
    for name, value in ours.items():  # looking for the gradient moved neither parameters nor random numbers
        assert value.tobytes() == theirs[name].tobytes(), name


def test_a_scale_that_falls_and_a_good_step_between_are_no_stall(library):
    trainer = mpt.Trainer(library("dynamic,init=16777216"), threads=1, options={"skip_limit": 2})
    assert sum(trainer.step(feeds(step, 1e3)).skipped for step in range(30)) > 5
    trainer = mpt.Trainer(library(FIXED), threads=1, options={"skip_limit": 3})
    for step in range(12):
        small = trainer.step(feeds(step, 1e4)).skipped and trainer.step(feeds(step, 1e4)).skipped
        trainer.set_parameter("w2", np.zeros((3, 6)))
        trainer.set_parameter("b2", np.zeros(3))
        assert small and not trainer.step(feeds(step, 0.0)).skipped
        trainer.set_parameter("w2", np.ones((3, 6)))


@pytest.mark.parametrize("poison, words", [("x", "input 'x' holds 0 infinities and 1 NaN in 32 values"),
                                           ("w1", "state 'w1.*' holds 0 infinities and 1 NaN in 48 values")])
def test_inputs_and_state_that_are_not_finite_are_named(library, poison, words):
    trainer = mpt.Trainer(library("1"), threads=1, options={"skip_limit": 2})
    data = feeds(0)
    if poison == "x":
        data["x"][1, 2] = np.nan
    else:
        value = trainer.parameter(poison)
        value[0, 0] = np.nan
        trainer.set_parameter(poison, value)
    assert trainer.step(data).skipped
    with pytest.raises(mpt.Stalled, match=words):
        trainer.step(data)


def test_started_steps_are_watched(library):
    trainer = mpt.Trainer(library(FIXED), threads=1, options={"skip_limit": 2})
    trainer.start(feeds(0, 1e4))
    assert trainer.metrics().skipped and trainer.metrics().skipped  # one step, read twice
    with pytest.raises(mpt.Stalled):
        trainer.start(feeds(1, 1e4))


def test_looking_for_the_gradient_leaves_the_results_that_the_caller_has(library):
    trainer = mpt.Trainer(library(FIXED), threads=1, options={"skip_limit": 1})
    trainer.gradients(feeds(0))
    had = {name: value.copy() for name, value in trainer._outputs("gradients").items()}
    with pytest.raises(mpt.Stalled, match="the gradient of"):
        trainer.step(feeds(1, 1e4))
    kept = trainer._outputs("gradients")
    assert set(had) == set(kept) and all(kept[name].tobytes() == value.tobytes() for name, value in had.items())


def test_the_option_is_checked(library):
    with pytest.raises(mpt.Error, match="option 'skip_limit': expected a whole number of 0 or more, got '-1'"):
        mpt.Trainer(library(FIXED), options={"skip_limit": -1})
