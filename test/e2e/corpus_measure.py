# SPDX-License-Identifier: Apache-2.0
"""How a compiled model's numbers are held against the float64 reference of a corpus model.

An error is the largest difference over the larger of the reference's largest value and a floor, 1e-3 of the largest
gradient of the model: a gradient that is zero but for rounding must not count as all wrong. It passes when it is at most
four times the same graph's float32 error in the reference implementation, or 1e-5.
"""
from dataclasses import dataclass

import numpy as np

FACTOR = 4.0
SMALLEST = 1e-5


@dataclass
class Row:
    """One comparison: `error` is ours, `float32` the reference implementation's own, both against float64."""
    what: str
    error: float
    float32: float

    @property
    def limit(self):
        return max(FACTOR * self.float32, SMALLEST)

    @property
    def ok(self):
        return bool(self.error <= self.limit)  # False for NaN


def largest(value):
    return float(np.max(np.abs(value), initial=0.0))


def error(value, reference, floor):
    value, reference = np.asarray(value, np.float64), np.asarray(reference, np.float64)
    if value.shape != reference.shape:
        return float("inf")
    return largest(value - reference) / max(largest(reference), floor)


def named(reference, kind):
    return {key[len(kind):]: reference[key] for key in reference if key.startswith(kind)}


def losses(got, f64, f32, spread=None):
    """Row of the worst loss over the steps in `got`.

    Float32's error at a step is its largest deviation so far, over all runs of `spread` where given: two trajectories
    that part keep apart, and where one of them happens to cross the float64 one says nothing about how exact it is.
    """
    single = deviations(f64, f32)["loss"]
    if spread:
        single = np.maximum(single, spread["loss"])
    single = np.maximum.accumulate(single)
    rows = [Row("loss", relative(value, f64["loss"][i]), single[i]) for i, value in enumerate(got)]
    return max(rows, key=lambda row: row.error / row.limit)


def relative(value, reference):
    return abs(float(value) - reference) / max(abs(reference), 1e-6)


def gradients(got, f64, f32):
    """A row for every parameter's gradient of the first step; a missing one is infinitely wrong."""
    reference, single = named(f64, "grad/"), named(f32, "grad/")
    floor = 1e-3 * max(map(largest, reference.values()), default=0.0)
    return [Row(name, error(got[name], value, floor) if name in got else float("inf"), error(single[name], value, floor))
            for name, value in reference.items()]


def after_steps(got, f64, f32, kind="after/", spread=None):
    """One row for all parameters (or all state tensors) after the steps: the worst of ours beside the worst of float32.

    Ten steps multiply rounding noise (AdamW turns a gradient of pure noise into a full step), so single parameters differ
    by chance and only the worst of each side can be compared.
    """
    if not named(f64, kind):
        return None
    worst, ours = worst_after(f64, {kind + name: value for name, value in got.items()}, kind)
    single = worst_after(f64, f32, kind)[1]
    return Row(worst, ours, max(single, float(spread[kind])) if spread else single)


def worst_after(f64, got, kind):
    """(name, error) of the tensor that is furthest off; a missing one is infinitely far."""
    reference = named(f64, kind)
    floor = 1e-3 * max(map(largest, reference.values()))
    errors = {name: error(got[kind + name], value, floor) if kind + name in got else float("inf")
              for name, value in reference.items()}
    worst = max(errors, key=lambda name: errors[name] if errors[name] == errors[name] else float("inf"))
    return worst, errors[worst]


def deviations(f64, single):
    """How far one float32 trajectory is from the float64 one: the loss of each step, the worst parameter, the worst state."""
    result = {"loss": np.array([relative(value, f64["loss"][i]) for i, value in enumerate(single["loss"])])}
    for kind in ("after/", "state/"):
        if named(f64, kind):
            result[kind] = np.array(worst_after(f64, single, kind)[1])
    return result
