# SPDX-License-Identifier: Apache-2.0
"""The corpus' measure itself: errors that pass, errors that fail, and that noise around zero is forgiven."""
import os
import sys

import numpy as np

sys.path.insert(0, os.path.dirname(__file__))
import corpus_measure as measure


def reference(scale=0.0):
    rng = np.random.default_rng(0)
    grads = {"grad/w": rng.standard_normal((4, 3)), "grad/zero": np.full(3, 1e-12), "after/w": rng.standard_normal((4, 3))}
    return {"loss": np.array([2.0, 1.5]), **{k: v * (1 + scale) for k, v in grads.items()}}


def test_equal_values_pass():
    rows = measure.gradients({"w": reference()["grad/w"], "zero": np.zeros(3)}, reference(), reference(1e-7))
    assert [row.ok for row in rows] == [True, True]


def test_limit_is_four_times_float32s_own_error():
    single = reference(1e-4)
    inside, outside = (measure.gradients({"w": reference(s)["grad/w"], "zero": np.zeros(3)}, reference(), single)[0]
                       for s in (3.9e-4, 4.1e-4))
    assert inside.ok and not outside.ok


def test_missing_misshapen_and_nan_gradients_fail():
    good = reference()["grad/w"]
    for got in ({}, {"w": good.T}, {"w": good * np.nan}):
        assert not measure.gradients({"zero": np.zeros(3), **got}, reference(), reference())[0].ok


def test_losses_report_the_worst_step():
    row = measure.losses([2.0, 1.6], reference(), reference())
    assert not row.ok and abs(row.error - 0.1 / 1.5) < 1e-12
    assert measure.losses([2.0, 1.5], reference(), reference()).ok


def test_float32s_deviation_counts_from_the_step_that_has_it():
    exact, single = {"loss": np.array([2.0, 2.0, 2.0])}, {"loss": np.array([2.0, 2.2, 2.0])}
    assert measure.losses([2.0, 2.0, 2.7], exact, single).ok  # 0.35 within 4 times 0.1
    assert not measure.losses([2.0, 2.0, 2.9], exact, single).ok
    assert not measure.losses([2.1, 2.0, 2.0], exact, single).ok  # before float32 had deviated


def test_parameters_after_steps():
    assert measure.after_steps({"w": reference()["after/w"]}, reference(), reference()).ok
    assert not measure.after_steps({"w": reference(1e-3)["after/w"]}, reference(), reference(1e-5)).ok
    assert measure.after_steps({}, {"loss": np.zeros(1)}, {"loss": np.zeros(1)}) is None
