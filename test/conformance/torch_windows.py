# SPDX-License-Identifier: Apache-2.0
"""Convolutions and pooling in PyTorch."""
import torch
from torch.nn import functional as F
from torch_ops import refuse, rule


def padded(x, a, kernel, value=0.0):
    """(x with its padding, dilations, strides) of a window that moves over the last axes."""
    rank = len(kernel)
    strides, dilations = a.get("strides", [1] * rank), a.get("dilations", [1] * rank)
    pads = list(a.get("pads", [0] * (2 * rank)))
    if a.get("auto_pad", "NOTSET") in ("SAME_UPPER", "SAME_LOWER"):
        for i in range(rank):
            size, reach = x.shape[2 + i], (kernel[i] - 1) * dilations[i] + 1
            both = max((-(-size // strides[i]) - 1) * strides[i] + reach - size, 0)
            less, more = both // 2, both - both // 2
            pads[i], pads[rank + i] = (less, more) if a["auto_pad"] == "SAME_UPPER" else (more, less)
    if a.get("ceil_mode", 0):
        refuse("ceil_mode with ONNX's last window")
    sides = [side for i in reversed(range(rank)) for side in (pads[i], pads[rank + i])]
    return F.pad(x, sides, value=value), dilations, strides


@rule("Conv", "auto_pad dilations group kernel_shape pads strides")
def conv(x, a, v):
    rank = x[0].dim() - 2
    data, dilations, strides = padded(x[0], a, list(x[1].shape[2:]))
    function = (F.conv1d, F.conv2d, F.conv3d)[rank - 1]
    return function(data, x[1], x[2] if len(x) > 2 else None, stride=strides, dilation=dilations, groups=a.get("group", 1))


@rule("ConvTranspose", "auto_pad dilations group kernel_shape output_padding output_shape pads strides")
def conv_transpose(x, a, v):
    rank = x[0].dim() - 2
    pads, one = list(a.get("pads", [0] * (2 * rank))), [1] * rank
    strides, dilations, more = a.get("strides", one), a.get("dilations", one), a.get("output_padding", [0] * rank)
    function = (F.conv_transpose1d, F.conv_transpose2d, F.conv_transpose3d)[rank - 1]
    y = function(x[0], x[1], x[2] if len(x) > 2 else None, stride=strides, output_padding=more, groups=a.get("group", 1), dilation=dilations)
    for i in range(rank):  # padding is cut off
        size = a["output_shape"][i] if "output_shape" in a else x[0].shape[2 + i] * strides[i] if a.get("auto_pad", "").startswith("SAME") else None
        if size is not None:
            both = y.shape[2 + i] - size
            pads[i] = both - both // 2 if a.get("auto_pad") == "SAME_LOWER" else both // 2
            pads[rank + i] = both - pads[i]
        if min(pads[i], pads[rank + i]) < 0:
            refuse("transposed convolutions that are padded")
        y = y.narrow(2 + i, pads[i], y.shape[2 + i] - pads[i] - pads[rank + i])
    return y


@rule("MaxPool", "auto_pad ceil_mode dilations kernel_shape pads storage_order strides")
def max_pool(x, a, v):
    kernel = list(a["kernel_shape"])
    ceil, rank, pool = a.get("ceil_mode", 0), len(kernel), (F.max_pool1d, F.max_pool2d, F.max_pool3d)
    if a["results"] > 1 and a.get("storage_order", 0):
        refuse("indices by columns")
    pads, dilations, strides = list(a.get("pads", [0] * (2 * rank))), a.get("dilations", [1] * rank), a.get("strides", [1] * rank)
    if ceil and pads[:rank] == pads[rank:] and a.get("auto_pad", "NOTSET") == "NOTSET":
        y = pool[rank - 1](x[0], kernel, strides, pads[:rank], dilations, ceil_mode=True)
    else:
        data, dilations, strides = padded(x[0], a, kernel, -torch.inf)
        y = pool[rank - 1](data, kernel, strides, dilation=dilations)
    return (y, None) if a["results"] > 1 else y


@rule("MaxUnpool", "kernel_shape pads strides")
def max_unpool(x, a, v):
    rank = len(a["kernel_shape"])
    if len(x) > 2 and x[2] is not None:
        refuse("places in other sizes than those of the result")
    pads, strides = a.get("pads", [0] * (2 * rank)), a.get("strides", [1] * rank)
    sizes = [(x[0].shape[2 + i] - 1) * strides[i] - pads[i] - pads[rank + i] + a["kernel_shape"][i] for i in range(rank)]
    shape = [*x[0].shape[:2], *sizes]
    return torch.zeros(int(torch.tensor(shape).prod()), dtype=x[0].dtype).scatter(0, x[1].reshape(-1), x[0].reshape(-1)).reshape(shape)


@rule("AveragePool", "auto_pad ceil_mode count_include_pad dilations kernel_shape pads strides")
def average_pool(x, a, v):
    kernel = list(a["kernel_shape"])
    pool, rank = (F.avg_pool1d, F.avg_pool2d, F.avg_pool3d)[len(kernel) - 1], len(kernel)
    pads, strides = list(a.get("pads", [0] * (2 * rank))), a.get("strides", [1] * rank)
    if any(d != 1 for d in a.get("dilations", [1])):
        return dilated_average(x[0], a, kernel)
    if a.get("ceil_mode", 0) and pads[:rank] == pads[rank:] and a.get("auto_pad", "NOTSET") == "NOTSET":
        return pool(x[0], kernel, strides, pads[:rank], True, bool(a.get("count_include_pad", 0)))
    data, dilations, strides = padded(x[0], a, kernel)
    counted = torch.ones_like(x[0])
    share = 1 if a.get("count_include_pad", 0) else pool(padded(counted, a, kernel)[0], kernel, strides)
    return pool(data, kernel, strides) / share


def dilated_average(x, a, kernel):
    """By a convolution of each plane with ones."""
    planes = x.flatten(0, 1).unsqueeze(1)
    sums = conv([planes, planes.new_ones(1, 1, *kernel)], a, 0)
    inside = torch.ones_like(planes)
    counts = torch.tensor(kernel).prod() if a.get("count_include_pad", 0) else conv([inside, inside.new_ones(1, 1, *kernel)], a, 0)
    return (sums / counts).squeeze(1).unflatten(0, x.shape[:2])


@rule("LpPool", "auto_pad ceil_mode dilations kernel_shape p pads strides")
def lp_pool(x, a, v):
    p = a.get("p", 2)
    kernel = list(a["kernel_shape"])
    powers = average_pool([x[0].abs() ** p], {**a, "count_include_pad": 1}, v) * torch.tensor(kernel).prod()
    return powers ** (1 / p)


@rule("GlobalAveragePool")
def global_average_pool(x, a, v):
    return x[0].mean(list(range(2, x[0].dim())), keepdim=True)


@rule("GlobalMaxPool")
def global_max_pool(x, a, v):
    return x[0].amax(list(range(2, x[0].dim())), keepdim=True)
