# SPDX-License-Identifier: Apache-2.0
"""Forward kernels of attention in tiles, by `wmma` and by `wgmma`, interpreted from their PTX: against attention in FP64 with the same
dropout, and against each other."""
import itertools
import re
import subprocess
from dataclasses import dataclass

import numpy as np
import ptx_launch
import ptx_machine
import ptx_memory
import ptx_text
import pytest
from conftest import build_folder
from cuda_models import attention
from ptx_numbers import from_bf16, to_bf16

pytestmark = pytest.mark.slow

NARROW = {"f16": lambda x: x.astype(np.float16).view(np.uint16), "bf16": to_bf16}
WIDE = {"f16": lambda x: x.view(np.float16).astype(np.float32), "bf16": from_bf16}
ROUNDING = {"f16": 2.0**-11, "bf16": 2.0**-8}  # to nearest, relative: half a last place
BLOCKS, FEW = 1056, 2  # blocks of a launch, and blocks that are run here: each takes every second tile


@dataclass(frozen=True)
class Form:
    """A call: a kernel's code depends on the type, the bias, the depths in 32s and the kind of dropout alone."""
    type: str = "bf16"
    depth: int = 64
    value_depth: int = 64
    queries: int = 70
    keys: int = 70
    heads: int = 1
    key_heads: int = 1
    batch: int = 1
    causal: bool = False
    bias: str = ""  # its type
    dropout: float = 0.0


def philox(counter, key):
    """Philox 4x32-10 (Salmon et al., SC 2011): uint32 [n, 4] of uint32 counters [n, 4]."""
    c, (k0, k1) = [counter[:, i].astype(np.uint64) for i in range(4)], (np.uint64(k) for k in key)
    low = np.uint64(0xFFFFFFFF)
    for number in range(10):
        if number:
            k0, k1 = (k0 + np.uint64(0x9E3779B9)) & low, (k1 + np.uint64(0xBB67AE85)) & low
        p, q = c[0] * np.uint64(0xD2511F53), c[2] * np.uint64(0xCD9E8D57)
        c = [(q >> np.uint64(32)) ^ c[1] ^ k0, q & low, (p >> np.uint64(32)) ^ c[3] ^ k1, p & low]
    return np.stack(c, axis=1).astype(np.uint32)


SEED, STEP, STREAM = 0x1234567890ABCDEF, 7, 5


def kept(form):
    """Which probabilities dropout keeps [batch, heads, queries, keys]: number i takes word i."""
    count = form.batch * form.heads * form.queries * form.keys
    block = np.arange((count + 3) // 4, dtype=np.uint64)
    counter = np.stack([block & np.uint64(0xFFFFFFFF), block >> np.uint64(32), np.full_like(block, STREAM), np.full_like(block, STEP)], axis=1)
    words = philox(counter.astype(np.uint32), (SEED & 0xFFFFFFFF, SEED >> 32)).reshape(-1)[:count]
    return (words >= int(form.dropout * 2**32)).reshape(form.batch, form.heads, form.queries, form.keys)


def operands(form):
    random = np.random.default_rng(3)
    make = lambda *shape: NARROW[form.type](random.standard_normal(shape).astype(np.float32))  # noqa: E731
    q, k = make(form.batch, form.heads, form.queries, form.depth), make(form.batch, form.key_heads, form.keys, form.depth)
    v = make(form.batch, form.key_heads, form.keys, form.value_depth)
    bias = random.standard_normal((form.batch, 1, 1, form.keys)).astype(np.float32)
    bias[..., 3] = -10000.0  # a key that nobody sees
    return q, k, v, bias if form.bias == "f32" else NARROW[form.type](bias)


def reference(form, q, k, v, bias):
    """(o, statistics, the bound of o's error): the probabilities, o and FP32 sums are rounded."""
    wide = lambda x: WIDE[form.type](x).astype(np.float64)  # noqa: E731
    group = form.heads // form.key_heads
    q, k, v = wide(q), wide(k).repeat(group, 1), wide(v).repeat(group, 1)
    s = q @ k.swapaxes(2, 3) * np.float32(form.depth**-0.5)
    if form.bias:
        s = s + (wide(bias) if bias.dtype == np.uint16 else bias)
    if form.causal:
        s = np.where(np.arange(form.keys) <= np.arange(form.queries)[:, None], s, -np.inf)
    statistics = np.log(np.exp(s - s.max(-1, keepdims=True)).sum(-1)) + s.max(-1)
    p = np.exp(s - statistics[..., None])
    if form.dropout:
        p = np.where(kept(form), p * np.float32(1 / (1 - form.dropout)), 0)
    o, size = p @ v, np.abs(p) @ np.abs(v)
    return o, statistics, ROUNDING[form.type] * (size + np.abs(o)) + 2e-5 * size + (6e-8 if form.type == "f16" else 0) * (1 + np.abs(v).sum(2, keepdims=True))


def words(form, rows=64):
    tiles = -(-form.queries // rows)
    bits = lambda x: int(np.float32(x).view(np.int32))  # noqa: E731
    strides = lambda heads, length, depth: [heads * length * depth, length * depth, depth]  # noqa: E731
    q, k = strides(form.heads, form.queries, form.depth), strides(form.key_heads, form.keys, form.depth)
    v, o = strides(form.key_heads, form.keys, form.value_depth), strides(form.heads, form.queries, form.value_depth)
    return np.array([tiles * form.heads * form.batch, tiles, form.heads, form.key_heads, form.queries, form.keys, form.depth, form.value_depth,
                     form.causal, bits(form.depth**-0.5), int(form.dropout * 2**32), bits(1 / (1 - form.dropout)), STREAM, *q, *k, *v, *o,
                     *[0] * 12, form.keys, 0, 0, 1], np.int64)


def run(kernel, form, order="forward", observe=lambda op: None):
    """(o as bits, statistics)"""
    q, k, v, bias = operands(form)
    o = np.full((form.batch, form.heads, form.queries, form.value_depth), 0xFFFF, np.uint16)
    statistics = np.full((form.batch, form.heads, form.queries), np.nan, np.float32)
    arrays = [q, k, v] + [bias] * bool(form.bias) + [np.array([SEED, STEP], np.int64)] * bool(form.dropout) + [o, statistics, words(form)]
    # Each behind a gap, so that no access strays into its neighbour.
    starts = list(itertools.accumulate([len(a.tobytes()) // 256 * 256 + 1024 for a in arrays], initial=0x200000))[:-1]
    memory = ptx_memory.Memory({start: np.frombuffer(a.tobytes(), np.uint8).copy() for start, a in zip(starts, arrays)} | kernel.tables)
    ptx_launch.launch(kernel, memory, starts, (FEW, 1, 1), (128, 1, 1), order=order, observe=observe)
    return memory.array(starts[-3]).view(np.uint16).reshape(o.shape), memory.array(starts[-2]).view(np.float32).reshape(statistics.shape)


def compile_model(folder, policy, arch, **shape):
    """PTX texts of a model's program, by architecture."""
    attention(folder / "m.onnx", **{"heads": 2, "batch": 1, "length": 16, **shape})
    subprocess.run([build_folder() / "bin" / "mpt-opt", folder / "m.onnx", "--loss=softmax-cross-entropy", "--optimizer=sgd", f"--policy={policy}",
                    "--target=cuda", f"--arch={arch}", "--ptxas=none", "--name=m", "--quiet", "-o", folder / "out"], check=True)
    texts = re.findall(rb"//\n// Generated by LLVM[^\0]*", (folder / "out" / "libm.so").read_bytes())
    return {re.search(rb"\.target (\w+)", text)[1].decode(): text.decode() for text in texts}


PROGRAMS = [("amp-bf16", {"mask": "both", "depth": 64, "dropout": 0.25}), ("amp-f16", {"mask": "causal", "depth": 64, "dropout": 0.25, "length": 15}),
            ("amp-f16", {"mask": "none", "depth": 128, "dropout": 0.25}), ("amp-bf16", {"mask": "none", "depth": 32, "key_heads": 1}),
            ("amp-bf16", {"mask": "padding", "depth": 128, "key_heads": 1}), ("amp-f16", {"mask": "both", "depth": 96, "key_heads": 1})]


@pytest.fixture(scope="module")
def kernels(tmp_path_factory):
    """{(architecture, the part of a kernel's name behind "forward_"): Kernel}, for launches of a few blocks"""
    found = {}
    for policy, shape in PROGRAMS:
        for arch, text in compile_model(tmp_path_factory.mktemp("program"), policy, "sm_90,sm_90a", **shape).items():
            assert text.count(f", {BLOCKS};") >= 1
            for name, kernel in ptx_text.parse(text.replace(f", {BLOCKS};", f", {FEW};")).items():
                if match := re.fullmatch(r"mpt_attention_tiles_forward_(\w+)", name):
                    found[arch, match[1]] = kernel
    return found


def name_of(form):
    padded = lambda depth: (depth + 31) // 32 * 32  # noqa: E731
    drops = f"_drop{'4' if form.keys % 4 == 0 else ''}" if form.dropout else ""
    return f"{form.type}_d{padded(form.depth)}v{padded(form.value_depth)}" + (f"_bias_{form.bias}" if form.bias else "") + drops


FORMS = [Form(bias="f32", causal=True, dropout=0.25, queries=64, keys=64), Form(bias="f32", causal=True, dropout=0.25, queries=70, keys=140, heads=2, key_heads=1),
         Form("f16", dropout=0.5, causal=True, queries=130, keys=131), Form("f16", dropout=0.25, depth=48, value_depth=40, queries=3, keys=201, batch=2),
         Form("f16", 128, 128, dropout=0.1, queries=65, keys=200), Form("f16", 104, 112, dropout=0.1, queries=200, keys=8, causal=True),
         Form(depth=32, value_depth=32, heads=3, queries=64, keys=63), Form(depth=8, value_depth=24, heads=2, key_heads=2, queries=129, keys=193, causal=True),
         Form(depth=128, value_depth=128, bias="bf16", heads=4, key_heads=2, queries=66, keys=129), Form("f16", 96, 72, bias="f32", heads=2, queries=65, keys=66)]


@pytest.mark.parametrize("form", FORMS, ids=lambda form: f"{name_of(form)}-{form.queries}x{form.keys}")
def test_both_against_float64_and_each_other(kernels, form):
    """Tails of queries, keys and depths; masks; several chunks and tiles of a block; shared keys; both kinds of dropout."""
    q, k, v, bias = operands(form)
    o, statistics, bound = reference(form, q, k, v, bias)
    found, seen = {}, {}
    for arch, order in (("sm_90", "forward"), ("sm_90a", "reversed")):
        ops = seen[arch] = set()
        found[arch], level = run(kernels[arch, name_of(form)], form, order, ops.add)
        assert (np.abs(WIDE[form.type](found[arch]) - o) <= bound).all(), arch
        np.testing.assert_allclose(level, statistics, rtol=2e-6, atol=2e-6)
    assert any("wgmma.mma_async" in op for op in seen["sm_90a"]) and not any(op.startswith("wmma.") for op in seen["sm_90a"])
    assert any(op.startswith("wmma.mma") for op in seen["sm_90"]) and not any("wgmma" in op for op in seen["sm_90"])
    # The same probabilities, rounded alike: a sum falls now and then on the other side of a rounding.
    np.testing.assert_allclose(WIDE[form.type](found["sm_90a"]), WIDE[form.type](found["sm_90"]), rtol=2 * ROUNDING[form.type], atol=1e-4)
    assert (found["sm_90a"] != found["sm_90"]).mean() <= 0.02


# Instructions that are left out: one after the other, or of register fences all at once, as each serves the products behind it too.
PLANTED = [("cp.async.wait_group", r"cp\.async\.wait_group \t?\d;", "cp.async.wait_group 3;", "a copy on its way"),
           ("fence.proxy.async", r"fence\.proxy\.async\.shared::cta;", "", "without fence.proxy.async"),
           ("bar.sync", r"bar(rier)?\.sync\s+0;", "", "a race in shared memory"),
           ("wgmma.wait_group", r"wgmma\.wait_group\.sync\.aligned 0;", "", "sums of a product on its way|a product on its way reads"),
           ("wgmma.fence", r"wgmma\.fence\.sync\.aligned;", "", "behind the last wgmma.fence")]


@pytest.mark.parametrize("name, pattern, by, what", PLANTED, ids=[p[0] for p in PLANTED])
def test_what_is_left_out_is_found(tmp_path, name, pattern, by, what):
    """Each wait, fence and barrier of the emitted kernel is needed: without any one of them the interpreter refuses it."""
    text = compile_model(tmp_path, "amp-bf16", "sm_90a", mask="none", depth=32, key_heads=1)["sm_90a"].replace(f", {BLOCKS};", f", {FEW};")
    begin = text.index(".entry mpt_attention_tiles_forward_")
    end = text.index("\n}", begin)
    before, code, behind = text[:begin], text[begin:end], text[end:]
    changed = [code[:place.start()] + by + code[place.end():] for place in re.finditer(pattern, code)]
    assert changed
    for variant in [re.sub(pattern, by, code)] if name == "wgmma.fence" else changed:
        kernel = next(kernel for name, kernel in ptx_text.parse(before + variant + behind).items() if "tiles_forward" in name)
        with pytest.raises(ptx_machine.Fault, match=what):
            run(kernel, Form(depth=32, value_depth=32, heads=3, queries=64, keys=193))


@pytest.mark.parametrize("change", [3 << 62, 96 << 32], ids=["swizzle", "stride"])
def test_another_descriptor_is_wrong(tmp_path, change):
    """A swizzle of 64 bytes instead of 128, and groups of eight lines 512 bytes apart instead of 1,024."""
    text = compile_model(tmp_path, "amp-bf16", "sm_90a", mask="none", depth=32, key_heads=1)["sm_90a"].replace(f", {BLOCKS};", f", {FEW};")
    form = 1 << 62 | 64 << 32 | 1 << 16
    changed, count = re.subn(r"\d{19}", lambda m: str(int(m[0]) ^ change) if int(m[0]) >> 16 == form >> 16 else m[0], text)
    assert count
    kernel = next(kernel for name, kernel in ptx_text.parse(changed).items() if "tiles_forward" in name)
    form = Form(depth=32, value_depth=32, queries=64, keys=64)
    o, statistics, bound = reference(form, *operands(form))
    found, level = run(kernel, form)
    assert (np.abs(WIDE[form.type](found) - o) > bound).mean() > 0.5 and (np.abs(level - statistics) > 1e-3).mean() > 0.5
