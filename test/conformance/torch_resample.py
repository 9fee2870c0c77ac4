# SPDX-License-Identifier: Apache-2.0
"""Resizing and Fourier transforms in PyTorch, in the forms that it has."""
import math

import torch
from torch.nn import functional as F
from torch_ops import integers, refuse, rule


def interpolated(x, sizes, scales, mode, aligned):
    """x with its last axes resized; interpolate wants a batch and channels in front."""
    changed = [i for i in range(x.dim()) if x.shape[i] != sizes[i] or scales[i] != 1]
    first = min(changed, default=x.dim() - 1)
    count = x.dim() - first
    names = {"nearest": ["nearest"] * 3, "nearest-exact": ["nearest-exact"] * 3, "linear": ["linear", "bilinear", "trilinear"], "cubic": [None, "bicubic", None]}[mode]
    count = max(count, 2 if mode == "cubic" else 1)
    if count > 3 or not names[count - 1]:
        refuse(f"{mode} resizing of {count} axes")
    front = x.shape[:x.dim() - count]
    data = x.reshape(1, math.prod(front), *x.shape[x.dim() - count:])
    options = {} if mode.startswith("nearest") else {"align_corners": aligned}
    sizes, scales = list(sizes[-count:]), [float(scale) for scale in scales[-count:]]
    if aligned and any(extent * scale != size for extent, scale, size in zip(data.shape[2:], scales, sizes)):
        refuse("aligned corners of a result whose size is no whole number")
    y = F.interpolate(data, scale_factor=scales, mode=names[count - 1], recompute_scale_factor=False, **options)
    return y.reshape(*front, *sizes)


@rule("Resize Upsample", "antialias axes coordinate_transformation_mode cubic_coeff_a exclude_outside extrapolation_value keep_aspect_ratio_policy "
      "mode nearest_mode scales")
def resize(x, a, v):
    data, mode = x[0], a.get("mode", "nearest")
    moved = v < 11  # Upsample, and Resize before it had a choice
    place, nearest = a.get("coordinate_transformation_mode", "half_pixel"), a.get("nearest_mode", "round_prefer_floor")
    axes = list(a.get("axes", range(data.dim())))
    given = a.get("scales") or next((value for value in x[1 if moved else 2:3] if value is not None and value.numel()), None)
    if given is None:
        sizes, scales = list(data.shape), [1.0] * data.dim()
        for axis, size in zip(axes, integers(x[3])):
            sizes[axis], scales[axis] = size, size / data.shape[axis]
        if a.get("keep_aspect_ratio_policy", "stretch") != "stretch":
            refuse("sizes that keep an aspect ratio")
    else:
        scales = [1.0] * data.dim()
        for axis, scale in zip(axes, [float(scale) for scale in given]):
            scales[axis] = scale
        sizes = [math.floor(extent * scale) for extent, scale in zip(data.shape, scales)]
    if mode == "nearest" and not moved and (place, nearest) != ("asymmetric", "floor"):
        mode = "nearest-exact"  # halves go up
        halves = any(float((i + 0.5) / scale).is_integer() for size, scale in zip(sizes, scales) for i in range(size) if scale != 1)
        if place != "half_pixel" or nearest != "round_prefer_ceil" and (nearest != "round_prefer_floor" or halves):
            refuse(f"nearest pixel by {place} and {nearest}" + (" between two" if halves and place == "half_pixel" else ""))
    if not mode.startswith("nearest") and place not in ("half_pixel", "align_corners", "pytorch_half_pixel"):
        refuse(f"resizing by {place}")
    if place == "pytorch_half_pixel" and 1 in sizes:
        refuse("one pixel by pytorch_half_pixel")
    if a.get("antialias", 0):
        refuse("resizing without aliases by these filters")
    if mode == "cubic" and (a.get("exclude_outside", 0) or a.get("cubic_coeff_a", -0.75) != -0.75):
        refuse("cubic resizing with these settings")
    return interpolated(data, sizes, scales, mode, place == "align_corners")


def complex_of(x):
    return torch.view_as_complex(x.contiguous()) if x.shape[-1] == 2 else x[..., 0]


@rule("DFT", "axis inverse onesided")
def dft(x, a, v):
    length = int(x[1]) if len(x) > 1 and x[1] is not None else None
    axis = int(x[2]) if len(x) > 2 and x[2] is not None else a.get("axis", -2 if v >= 20 else 1)
    axis = axis % x[0].dim()
    data = complex_of(x[0])
    if a.get("inverse", 0):
        if a.get("onesided", 0):
            return torch.fft.irfft(data, length, axis).unsqueeze(-1)
        return torch.view_as_real(torch.fft.ifft(data, length, axis))
    return torch.view_as_real((torch.fft.rfft if a.get("onesided", 0) else torch.fft.fft)(data, length, axis))


@rule("STFT", "onesided")
def stft(x, a, v):
    window = x[2] if len(x) > 2 else None
    length = int(x[3]) if len(x) > 3 and x[3] is not None else len(window)
    frames = complex_of(x[0]).unfold(1, length, int(x[1]))
    frames = frames if window is None else frames * window
    return torch.view_as_real((torch.fft.rfft if a.get("onesided", 1) else torch.fft.fft)(frames))
