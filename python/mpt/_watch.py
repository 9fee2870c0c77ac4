# SPDX-License-Identifier: Apache-2.0
"""A look at a trainer between two steps: norms of gradients by parameter, exponents of gradients and parameters."""
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


def watch(trainer, batch: dict) -> dict:
    """Changes nothing: the random state that `gradients` draws from is put back."""
    kept = [(i, tensor, trainer._read(i, tensor)) for i, (tensor, role) in enumerate(trainer._state()) if role == RNG]
    _, gradients = trainer.gradients(batch)
    for i, _, values in kept:
        raw = values.tobytes()
        trainer._runtime.call("mpt_trainer_write", trainer._trainer, i, raw, len(raw))
    found = {"gradient_norms": {name: float(np.linalg.norm(value.ravel())) for name, value in gradients.items()}}
    for kind, tensors in (("gradients", gradients), ("parameters", trainer.parameters(trained=True))):
        found[kind] = exponents(np.concatenate([value.ravel() for value in tensors.values()]) if tensors else [])
    return found
