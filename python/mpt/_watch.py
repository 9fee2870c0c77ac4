# SPDX-License-Identifier: Apache-2.0
"""A look at a trainer between two steps: norms of gradients by parameter, exponents of gradients and parameters, culprits of a skipped
step."""
import math

import numpy as np

RNG = 5  # mpt_role
LOWEST, HIGHEST = -40, 24  # exponents that a histogram has bins for; others go to the outer bins


def exponents(values) -> dict:
    """{"zero": n, "infinite": n, "first": exponent, "counts": [...]} by floor(log2 |x|), without empty bins at both ends."""
    flat = np.abs(np.asarray(values, np.float32).ravel())
    finite = flat[np.isfinite(flat) & (flat > 0)]
    counts = np.bincount(np.clip(np.frexp(finite)[1] - 1, LOWEST, HIGHEST) - LOWEST, minlength=HIGHEST - LOWEST + 1)
    used = np.flatnonzero(counts)
    first, last = (int(used[0]), int(used[-1])) if used.size else (0, -1)
    return {"zero": int((flat == 0).sum()), "infinite": int((~np.isfinite(flat)).sum()), "first": first + LOWEST,
            "counts": counts[first:last + 1].tolist()}


def gradients_of(trainer, batch: dict) -> dict:
    """Changes nothing: the random state that `gradients` draws from is put back."""
    kept = [(i, tensor, trainer._read(i, tensor)) for i, (tensor, role) in enumerate(trainer._state()) if role == RNG]
    _, gradients = trainer.gradients(batch)
    for i, _, values in kept:
        raw = values.tobytes()
        trainer._runtime.call("mpt_trainer_write", trainer._trainer, i, raw, len(raw))
    return gradients


def culprits(trainer, batch: dict) -> dict:
    """Of a batch whose step was skipped, under the loss scale that the step has left: the parameters whose gradients are still not
    finite, and the one with the largest gradient, which overflows first."""
    gradients = gradients_of(trainer, batch)
    largest = {name: float(np.abs(value).max(initial=0)) for name, value in gradients.items()}
    found = [name for name, value in largest.items() if not math.isfinite(value)]
    return {"not_finite": found[:5]} if found else {"largest": max(largest, key=largest.get)}


def watch(trainer, batch: dict) -> dict:
    """Norms and exponents, of the trainer as it is."""
    gradients = gradients_of(trainer, batch)
    found = {"gradient_norms": {name: float(np.linalg.norm(value.ravel())) for name, value in gradients.items()}}
    for kind, tensors in (("gradients", gradients), ("parameters", trainer.parameters(trained=True))):
        found[kind] = exponents(np.concatenate([value.ravel() for value in tensors.values()]) if tensors else [])
    return found
