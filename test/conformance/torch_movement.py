# SPDX-License-Identifier: Apache-2.0
"""Shapes, slices, gathers and scatters in PyTorch."""
import torch
from torch.nn import functional as F
from torch_ops import integers, refuse, rule


@rule("Reshape", "allowzero")
def reshape(x, a, v):
    shape = integers(x[1])
    return x[0].reshape(shape if a.get("allowzero", 0) else [size or x[0].shape[i] for i, size in enumerate(shape)])


@rule("Flatten", "axis")
def flatten(x, a, v):
    axis = a.get("axis", 1)
    rows = int(torch.tensor(x[0].shape[:axis if axis >= 0 else x[0].dim() + axis]).prod())
    return x[0].reshape(rows, -1)


@rule("Transpose", "perm")
def transpose(x, a, v):
    return x[0].permute(*a.get("perm", reversed(range(x[0].dim()))))


@rule("Squeeze", "axes")
def squeeze(x, a, v):
    return x[0].squeeze(tuple(a["axes"] if "axes" in a else integers(x[1]))) if "axes" in a or len(x) > 1 else x[0].squeeze()


@rule("Unsqueeze", "axes")
def unsqueeze(x, a, v):
    axes = a["axes"] if "axes" in a else integers(x[1])
    made = x[0]
    for axis in sorted(axis % (x[0].dim() + len(axes)) for axis in axes):
        made = made.unsqueeze(axis)
    return made


@rule("Expand")
def expand(x, a, v):
    return x[0].expand(torch.broadcast_shapes(x[0].shape, integers(x[1])))


@rule("Tile")
def tile(x, a, v):
    return x[0].tile(integers(x[1]))


@rule("Concat", "axis")
def concat(x, a, v):
    return torch.cat(list(x), a["axis"])


@rule("Split", "axis num_outputs split")
def split(x, a, v):
    axis = a.get("axis", 0)
    sizes = integers(x[1]) if len(x) > 1 and x[1] is not None else a.get("split")
    return tuple(torch.split(x[0], list(sizes) if sizes else -(-x[0].shape[axis] // a["results"]), axis))


@rule("Trilu", "upper")
def trilu(x, a, v):
    return (torch.triu if a.get("upper", 1) else torch.tril)(x[0], int(x[1]) if len(x) > 1 else 0)


@rule("Gather", "axis")
def gather(x, a, v):
    axis, size = a.get("axis", 0), x[0].shape[a.get("axis", 0)]
    index = torch.where(x[1] < 0, x[1] + size, x[1]).long()
    return x[0].index_select(axis, index.reshape(-1)).unflatten(axis, index.shape) if index.dim() else x[0].select(axis, int(index))


@rule("GatherElements", "axis")
def gather_elements(x, a, v):
    size = x[0].shape[a.get("axis", 0)]
    return torch.gather(x[0], a.get("axis", 0), torch.where(x[1] < 0, x[1] + size, x[1]).long())


@rule("ScatterElements Scatter", "axis reduction")
def scatter_elements(x, a, v):
    axis, kind = a.get("axis", 0), a.get("reduction", "none")
    index = torch.where(x[1] < 0, x[1] + x[0].shape[axis], x[1]).long()
    if kind == "none":
        return x[0].scatter(axis, index, x[2])
    return x[0].scatter_reduce(axis, index, x[2], {"add": "sum", "mul": "prod", "max": "amax", "min": "amin"}[kind])


@rule("TopK", "axis largest sorted")
def topk(x, a, v):
    return tuple(torch.topk(x[0], int(x[1]), a.get("axis", -1), bool(a.get("largest", 1)), bool(a.get("sorted", 1))))


@rule("DepthToSpace", "blocksize mode")
def depth_to_space(x, a, v):
    size, data = a["blocksize"], x[0]
    if a.get("mode", "DCR") == "DCR":  # depth is the innermost of a channel's three numbers, not the outermost
        data = data.unflatten(1, (size * size, -1)).transpose(1, 2).flatten(1, 2)
    return F.pixel_shuffle(data, size)


@rule("SpaceToDepth", "blocksize mode")
def space_to_depth(x, a, v):
    size, y = a["blocksize"], F.pixel_unshuffle(x[0], a["blocksize"])
    return y if a.get("mode", "DCR") == "CRD" else y.unflatten(1, (-1, size * size)).transpose(1, 2).flatten(1, 2)


@rule("Slice", "axes starts ends")
def slice_of(x, a, v):
    starts, ends = (a[name] if name in a else integers(x[i]) for name, i in (("starts", 1), ("ends", 2)))
    axes = a.get("axes") or (integers(x[3]) if len(x) > 3 and x[3] is not None else range(len(starts)))
    steps = integers(x[4]) if len(x) > 4 and x[4] is not None else [1] * len(starts)
    y = x[0]
    for axis, start, end, step in zip(axes, starts, ends, steps):
        y = y.index_select(axis, torch.arange(y.shape[axis])[torch.tensor(range(y.shape[axis])[slice(start, limit(end, y.shape[axis], step), step)], dtype=torch.int64)])
    return y


def limit(end, size, step):
    """ONNX's end of a slice as Python's: below the first element is before all where the step goes back."""
    return None if step < 0 and end < -size else end


@rule("Pad", "mode pads value")
def pad(x, a, v):
    pads = list(a["pads"]) if "pads" in a else integers(x[1])
    value = float(x[2]) if len(x) > 2 and x[2] is not None else a.get("value", 0.0)
    axes = integers(x[3]) if len(x) > 3 and x[3] is not None else range(x[0].dim())
    mode = {"edge": "replicate", "wrap": "circular"}.get(a.get("mode", "constant"), a.get("mode", "constant"))
    sides = [(0, 0)] * x[0].dim()
    for i, axis in enumerate(axes):
        sides[axis] = pads[i], pads[len(axes) + i]
    if mode == "constant":
        return F.pad(x[0], [side for both in reversed(sides) for side in both], value=value)
    inner = sides[max(x[0].dim() - 3, 0):]
    if any(side != (0, 0) for side in sides[:-len(inner)]):
        refuse(f"padding of more than three axes by {mode}")
    leading = x[0].shape[:x[0].dim() - len(inner)]
    y = F.pad(x[0].reshape(1, -1, *x[0].shape[-len(inner):]), [side for both in reversed(inner) for side in both], mode)
    return y.reshape(*leading, *y.shape[2:])


@rule("CenterCropPad", "axes")
def center(x, a, v):
    y = x[0]
    for axis, size in zip(a.get("axes", range(y.dim())), integers(x[1])):
        axis, extent = axis % y.dim(), y.shape[axis]
        if size <= extent:
            y = y.narrow(axis, (extent - size) // 2, size)
        else:
            before = (size - extent) // 2
            y = F.pad(y, [side for i in reversed(range(y.dim())) for side in ((before, size - extent - before) if i == axis else (0, 0))])
    return y


@rule("OneHot", "axis")
def one_hot(x, a, v):
    depth, off, on = int(x[1]), x[2][0], x[2][1]
    axis, places = a.get("axis", -1), x[0].long()
    hot = F.one_hot(places % depth, depth) * ((places >= -depth) & (places < depth)).unsqueeze(-1)
    return (off + (on - off) * hot).movedim(-1, axis)


@rule("Compress", "axis")
def compress(x, a, v):
    kept = torch.nonzero(x[1]).reshape(-1)
    return x[0].index_select(a["axis"], kept) if "axis" in a else x[0].reshape(-1).index_select(0, kept)


@rule("GatherND", "batch_dims")
def gather_nd(x, a, v):
    batch = a.get("batch_dims", 0)
    grid = [torch.arange(x[1].shape[i]).reshape([-1 if k == i else 1 for k in range(x[1].dim() - 1)]) for i in range(batch)]
    return x[0][(*grid, *x[1].unbind(-1))]


@rule("ScatterND", "reduction")
def scatter_nd(x, a, v):
    kind, rank = a.get("reduction", "none"), x[1].shape[-1]
    flat = x[0].reshape(-1, *x[0].shape[rank:])
    row = torch.zeros(x[1].shape[:-1], dtype=torch.int64)
    for i in range(rank):
        row = row * x[0].shape[i] + x[1][..., i] % x[0].shape[i]
    rows, updates = row.reshape(-1), x[2].reshape(-1, *x[0].shape[rank:])
    if kind in ("none", "add"):
        return flat.index_put((rows,), updates, accumulate=kind == "add").reshape(x[0].shape)
    index = rows.reshape(-1, *[1] * (updates.dim() - 1)).expand(updates.shape)
    return flat.scatter_reduce(0, index, updates, {"mul": "prod", "max": "amax", "min": "amin"}[kind]).reshape(x[0].shape)


@rule("ReverseSequence", "batch_axis time_axis")
def reverse_sequence(x, a, v):
    batch, time = a.get("batch_axis", 1), a.get("time_axis", 0)
    rows = [torch.cat([row[:int(length)].flip(0), row[int(length):]]) for row, length in zip(x[0].movedim((batch, time), (0, 1)), x[1])]
    return torch.stack(rows).movedim((0, 1), (batch, time))
