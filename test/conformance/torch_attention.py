# SPDX-License-Identifier: Apache-2.0
"""Attention, rotary embeddings and cache updates in PyTorch: scaled_dot_product_attention where that has the form, its parts where it has not."""
import math

import torch
from torch.nn import functional as F
from torch_ops import refuse, rule


def split_heads(x, heads):
    return x if x.dim() == 4 else x.unflatten(2, (heads, -1)).transpose(1, 2)


def bias_of(mask, queries, keys, a, offset, lengths, dtype):
    """The bias of the scores, minus infinity where a query does not look; offset is a number or one a batch [N, 1, 1, 1]."""
    bias = torch.zeros(queries, keys, dtype=dtype)
    if mask is not None:
        missing = keys - mask.shape[-1]
        if mask.dtype == torch.bool:
            mask = torch.zeros(mask.shape, dtype=dtype).masked_fill(~mask, -torch.inf)
        bias = bias + F.pad(mask, (0, missing), value=-torch.inf)
    place, key = torch.arange(queries).reshape(-1, 1) + offset, torch.arange(keys)
    left, right = a.get("left_window_size", -1), a.get("right_window_size", -1)
    hidden = torch.zeros((), dtype=torch.bool)
    if a.get("is_causal", 0):
        hidden = hidden | (key > place)
    if left >= 0:
        hidden = hidden | (key < place - left)
    if right >= 0:
        hidden = hidden | (key > place + right)
    if lengths is not None:
        hidden = hidden | (key >= lengths.reshape(-1, 1, 1, 1))
    return bias + torch.zeros(hidden.shape, dtype=dtype).masked_fill(hidden, -torch.inf)


@rule("Attention", "is_causal kv_num_heads q_num_heads qk_matmul_output_mode scale softcap softmax_precision left_window_size right_window_size")
def attention(x, a, v):
    q, k, value, mask, past_key, past_value, lengths = (*x, *[None] * (7 - len(x)))
    rank = q.dim()
    q, k, value = split_heads(q, a.get("q_num_heads")), split_heads(k, a.get("kv_num_heads")), split_heads(value, a.get("kv_num_heads"))
    if past_key is not None:
        k, value = torch.cat([past_key, k], 2), torch.cat([past_value, value], 2)
    present = k, value
    offset = past_key.shape[2] if past_key is not None else lengths.reshape(-1, 1, 1, 1) - q.shape[2] if lengths is not None else 0
    bias = bias_of(mask, q.shape[2], k.shape[2], a, offset, lengths, q.dtype)
    scale, cap, mode = a.get("scale", 1 / math.sqrt(q.shape[3])), a.get("softcap", 0.0), a.get("qk_matmul_output_mode", 0)
    groups = q.shape[1] // k.shape[1]
    k, value = k.repeat_interleave(groups, 1), value.repeat_interleave(groups, 1)
    raw = scale * (q @ k.transpose(2, 3))
    capped = cap * torch.tanh(raw / cap) if cap else raw
    biased = capped + bias
    empty = (bias == -torch.inf).all(-1, keepdim=True)
    weights = torch.softmax(biased.masked_fill(empty, 0), -1).masked_fill(empty, 0)
    y = weights @ value if cap else F.scaled_dot_product_attention(q, k, value, attn_mask=bias.expand(raw.shape), scale=scale)
    y = y if rank == 4 else y.transpose(1, 2).flatten(2)
    return y, *present, (raw, capped, biased, weights)[mode]


@rule("RotaryEmbedding", "interleaved num_heads rotary_embedding_dim")
def rotary(x, a, v):
    data, cos, sin = x[0], x[1], x[2]
    heads = data.unflatten(2, (a["num_heads"], -1)) if data.dim() == 3 else data.transpose(1, 2)  # [N, S, heads, size]
    if len(x) > 3 and x[3] is not None:
        cos, sin = cos[x[3]], sin[x[3]]
    size = a.get("rotary_embedding_dim", 0) or heads.shape[3]
    part, rest = heads[..., :size], heads[..., size:]
    cos, sin = cos.unsqueeze(2), sin.unsqueeze(2)
    first, second = (part[..., ::2], part[..., 1::2]) if a.get("interleaved", 0) else part.chunk(2, -1)
    turned = cos * first - sin * second, sin * first + cos * second
    part = torch.stack(turned, -1).flatten(3) if a.get("interleaved", 0) else torch.cat(turned, -1)
    y = torch.cat([part, rest], -1)
    return y.flatten(2) if data.dim() == 3 else y.transpose(1, 2)


@rule("TensorScatter", "axis mode")
def tensor_scatter(x, a, v):
    axis = a.get("axis", -2) % x[0].dim()
    size, count = x[0].shape[axis], x[1].shape[axis]
    starts = x[2] if len(x) > 2 and x[2] is not None else torch.zeros(x[0].shape[0], dtype=torch.int64)
    if axis == 0:
        refuse("caches that are written along the batch")
    return torch.stack([cache.index_copy(axis - 1, (start + torch.arange(count)) % size, new)
                        for cache, new, start in zip(x[0], x[1], starts)])
