# SPDX-License-Identifier: Apache-2.0
"""Gradients of one step held against another's, parameter by parameter and piece by piece: a packed projection hides the sign of its
queries' gradient in its norm, so each piece of a parameter is judged by its own size."""
from __future__ import annotations

import numpy as np

PIECES = 12  # of an axis: queries, keys and values of a packed projection are three of them or more
FEW = 16     # elements that a piece has at least: of fewer, one that a rounding moved across a ReLU's bend is much
# Of a piece's norm: changes that arithmetic in these bits may cause where no more is known. A wrong sign changes 2, a lost term 1.
LIMITS = {"fp32": 2e-3, "tf32": 2e-2, "f16": 5e-2, "bf16": 0.15, "fp8": 0.5}
NOISE = 4.0   # times the error of the same policy on the processor against FP32
MOST = 0.8    # of a piece's norm: less than a term that is lost. Where the type itself loses more, RIGHT times that
RIGHT = 1.5
# Of a limit: the floor, in root mean squares of the whole parameter and a fifth of all parameters'. The gradient of keys' bias cancels to
# nothing but the rounding of its terms.
LEAST = 4e-2


def kind_of(policy: str) -> str:
    return next(kind for kind in ("fp32", "tf32", "fp8", "bf16", "f16") if kind in policy)


def pieces(shape):
    """(name, index) of a tensor's parts: all of it, and of each axis up to PIECES runs of FEW elements or more."""
    yield "all of it", ()
    for axis, extent in enumerate(shape):
        count = min(PIECES, extent, int(np.prod(shape)) // FEW)
        for run in np.array_split(np.arange(extent), count) if count > 1 else ():
            yield f"[{', '.join([':'] * axis + [f'{run[0]}:{run[-1] + 1}'])}]", (slice(None),) * axis + (slice(run[0], run[-1] + 1),)


def norm(x) -> float:
    """Of an array, or of a tensor of PyTorch, where it lies."""
    return float(np.linalg.norm(x.astype(np.float64).ravel()) if isinstance(x, np.ndarray) else x.double().norm())


def like(value: np.ndarray, other):
    """`value` as a tensor of PyTorch where `other` is one."""
    value = np.asarray(value, np.float32)
    if isinstance(other, np.ndarray):
        return value
    import torch
    return torch.from_numpy(np.ascontiguousarray(value)).to(other.device)


def noises(got: dict, exact: dict) -> dict:
    """How far `got` is from the same gradients in FP32, of each piece of each parameter."""
    return {name: [norm(got[name][index] - value[index]) for _, index in pieces(value.shape)] for name, value in exact.items()}


def shrunk(gradients: dict) -> dict:
    """In half the bytes: 11 bits an element, behind the largest of its tensor."""
    found = {}
    for name, value in gradients.items():
        largest = float(np.abs(value).max(initial=0)) or 1.0
        found |= {f"{name}/values": (value / largest).astype(np.float16), f"{name}/largest": np.float32(largest)}
    return found


def grown(arrays: dict) -> dict:
    return {name[:-7]: value.astype(np.float32) * arrays[name[:-7] + "/largest"] for name, value in arrays.items() if name.endswith("/values")}


def mean_square(values) -> float:
    return sum(norm(v)**2 for v in values) / max(1, sum(int(np.prod(v.shape)) for v in values))


def compare(got: dict, exact: dict, policy: str, noise: dict | None = None):
    """(the worst piece's share of its limit, where that is, problems). `noise`: errors of the policy where it is computed
    right (noises())."""
    limit, worst, where, problems = LIMITS[kind_of(policy)], 0.0, "", []
    if missing := sorted(set(exact) ^ set(got)):
        problems.append(f"expected gradients of the same parameters, got only on one side: {', '.join(missing[:5])}")
    common = mean_square(exact.values()) ** 0.5
    for name in sorted(set(exact) & set(got)):
        b = exact[name]
        a = like(got[name], b)
        if tuple(a.shape) != tuple(b.shape):
            problems.append(f"'{name}': expected the shape {tuple(b.shape)}, got {tuple(a.shape)}")
            continue
        floor = LEAST * limit * (mean_square([b]) ** 0.5 + common / 5)
        for i, (what, index) in enumerate(pieces(b.shape)):
            off, size = norm(a[index] - b[index]), norm(b[index])
            lost = noise[name][i] if noise else 0
            allowed = max(min(limit * size + NOISE * lost, MOST * size), RIGHT * lost) + floor * int(np.prod(b[index].shape)) ** 0.5
            share = off / allowed if allowed else float(off != 0)
            share = share if np.isfinite(share) else float("inf")
            if share > worst:
                worst, where = share, f"'{name}' {what}"
            if share > 1:
                problems.append(f"'{name}' {what}: the gradient is {off:.2g} off, of a norm of {size:.2g}; allowed {allowed:.2g}")
                break  # one piece says enough of a parameter
    return worst, where, problems
