"""How a compiled model's numbers are held against the float64 reference of a corpus model.

An error is the largest difference over the larger of the reference's largest value and a floor, 1e-3 of the largest
gradient of the model: a gradient that is zero but for rounding must not count as all wrong. It passes when it is at most
four times what the same graph loses in float32 in the reference implementation, or 1e-5.
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


def losses(got, f64, f32):
    """Row of the worst loss over the steps in `got`.

    What float32 loses by a step is its largest deviation so far: two trajectories that part keep apart, and where one
    of them happens to cross the float64 one says nothing about how exact it is.
    """
    def deviation(value, i):
        return abs(float(value) - f64["loss"][i]) / max(abs(f64["loss"][i]), 1e-6)

    rows, largest_so_far = [], 0.0
    for i, value in enumerate(got):
        largest_so_far = max(largest_so_far, deviation(f32["loss"][i], i))
        rows.append(Row("loss", deviation(value, i), largest_so_far))
    return max(rows, key=lambda row: row.error / row.limit)


def gradients(got, f64, f32):
    """A row for every parameter's gradient of the first step; a missing one is infinitely wrong."""
    reference, single = named(f64, "grad/"), named(f32, "grad/")
    floor = 1e-3 * max(map(largest, reference.values()), default=0.0)
    return [Row(name, error(got[name], value, floor) if name in got else float("inf"), error(single[name], value, floor))
            for name, value in reference.items()]


def after_steps(got, f64, f32, kind="after/"):
    """One row for all parameters (or all state tensors) after the steps: the worst of ours beside the worst of float32.

    Ten steps multiply rounding noise (AdamW turns a gradient of pure noise into a full step), so single parameters differ
    by chance and only the worst of each side can be compared.
    """
    reference, single = named(f64, kind), named(f32, kind)
    if not reference:
        return None
    floor = 1e-3 * max(map(largest, reference.values()))
    ours = {name: error(got[name], value, floor) if name in got else float("inf") for name, value in reference.items()}
    worst = max(ours, key=lambda name: ours[name] if ours[name] == ours[name] else float("inf"))
    return Row(worst, ours[worst], max(error(single[name], value, floor) for name, value in reference.items()))
