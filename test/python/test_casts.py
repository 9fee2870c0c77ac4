# SPDX-License-Identifier: Apache-2.0
"""mpt.cast of every value against NumPy and ml_dtypes, and against tables of all values where they have no such mode."""
import ml_dtypes
import numpy as np
import pytest
from mpt_run import mlir_type, run

F16, BF16, E4M3, E5M2 = np.float16, ml_dtypes.bfloat16, ml_dtypes.float8_e4m3fn, ml_dtypes.float8_e5m2
NARROW = [F16, BF16, E4M3, E5M2]
LARGEST = {F16: 65504.0, BF16: float(ml_dtypes.finfo(BF16).max), E4M3: 448.0, E5M2: 57344.0}


def every(kind):
    """Every value of a narrow type, in the order of its encodings."""
    width = np.dtype(kind).itemsize
    return np.arange(1 << (8 * width), dtype=f"u{width}").view(kind)


def samples(kind):
    """Float32 values around `kind`'s: all of them, midpoints of neighbours with the values next to them, and others."""
    values = np.unique(every(kind).astype(np.float64))
    values = values[np.isfinite(values)]
    middle = ((values[1:] + values[:-1]) / 2).astype(np.float32)
    rng = np.random.default_rng(3)
    wild = (rng.standard_normal(4000) * np.exp2(rng.integers(-140, 127, 4000))).astype(np.float32)
    special = np.array([0.0, -0.0, np.inf, -np.inf, np.nan, 3e38, -3e38, LARGEST[kind] * 1.03, 464, 465, 480], np.float32)
    return np.concatenate([values.astype(np.float32), middle, np.nextafter(middle, np.float32(np.inf)),
                           np.nextafter(middle, np.float32(-np.inf)), wild, special])


def cast(x, kind, folder, attributes="", key=None):
    out = np.empty(x.shape, kind)
    arguments = f"%x: {mlir_type(x)}" + (f", %k: {mlir_type(key)}" if key is not None else "")
    operand = "" if key is None else f" key %k : {mlir_type(key)}"
    module = (f"func.func @f({arguments}) -> {mlir_type(out)} {{\n  %y = mpt.cast %x{operand} {attributes}"
              f" : {mlir_type(x)} to {mlir_type(out)}\n  return %y : {mlir_type(out)}\n}}\n")
    inputs = {"arg0": x} if key is None else {"arg0": x, "arg1": key}
    return run(module, "f", inputs, folder)["out0"]


def assert_same(actual, expected):
    """Equal bits, or NaN on both sides."""
    nan = np.isnan(expected.astype(np.float64))
    assert (np.isnan(actual.astype(np.float64)) == nan).all()
    width = actual.dtype.itemsize
    wrong = (actual.view(f"u{width}") != expected.view(f"u{width}")) & ~nan
    assert not wrong.any(), (np.flatnonzero(wrong)[:5], actual[wrong][:5], expected[wrong][:5])


@pytest.mark.parametrize("kind", NARROW)
def test_widening_is_exact_and_comes_back(kind, tmp_path):
    x = every(kind)
    wide = cast(x, np.float32, tmp_path)
    assert_same(wide, x.astype(np.float32))
    assert_same(cast(wide, kind, tmp_path), x)


@pytest.mark.parametrize("kind", NARROW)
def test_nearest_even(kind, tmp_path):
    x = samples(kind)
    with np.errstate(over="ignore"):
        assert_same(cast(x, kind, tmp_path), x.astype(kind))


def rounded_once(x, kind):
    """The value of `kind` nearest to each of float64's, to even where two are; behind the largest one comes overflow."""
    below, above = neighbours(np.clip(np.nan_to_num(x), -LARGEST[kind], LARGEST[kind]), kind)
    middle, magnitude = (below + above) / 2, np.abs(x)  # exact: narrow values need few bits
    even = (below.astype(kind).view(f"u{np.dtype(kind).itemsize}") & 1) == 0
    near = np.where((magnitude < middle) | (magnitude == middle) & even, below, above)
    near = np.where(np.isnan(x), np.nan, np.where(near > LARGEST[kind], np.inf, near))
    return np.copysign(near, x).astype(np.float32).astype(kind)


@pytest.mark.parametrize("kind", NARROW)
def test_float64_is_rounded_once(kind, tmp_path):
    """Next to a midpoint FP32 is the midpoint itself: rounding to FP32 first would lose the side."""
    x = samples(kind).astype(np.float64)
    x = x[np.isfinite(x)]
    close = np.concatenate([x, np.nextafter(x, np.inf), np.nextafter(x, -np.inf), x * (1 + 2.0**-30), x * (1 - 2.0**-30)])
    close = np.concatenate([close, [np.inf, -np.inf, np.nan, 1e300, -1e300, 1e-300, -1e-300]])
    assert_same(cast(close, kind, tmp_path), rounded_once(close, kind))


@pytest.mark.parametrize("integer", [np.int32, np.int64])
def test_integers_to_bfloat16_are_rounded_once(integer, tmp_path):
    ties = np.exp2(np.arange(9, 30))[:, None] * (1 + np.arange(1, 256, 2) / 256)  # between neighbours, where they are whole
    ties = ties[ties == np.floor(ties)]
    x = np.concatenate([ties - 1, ties, ties + 1, [0, 1, 255, 2**31 - 1]]).astype(integer)
    assert_same(cast(np.concatenate([x, -x]), BF16, tmp_path), rounded_once(np.concatenate([x, -x]).astype(np.float64), BF16))


@pytest.mark.parametrize("kind", NARROW)
def test_saturation(kind, tmp_path):
    x = samples(kind)
    expected = np.clip(x, -LARGEST[kind], LARGEST[kind]).astype(kind)
    assert_same(cast(x, kind, tmp_path, "{overflow = #mpt<overflow saturate>}"), expected)


def neighbours(x, kind):
    """Of each finite magnitude: the largest value of `kind` not above it, and the next one."""
    table = np.unique(np.abs(every(kind).astype(np.float64)))
    table = table[np.isfinite(table)]
    below = table[np.searchsorted(table, np.abs(x.astype(np.float64)), side="right") - 1]
    position = np.searchsorted(table, below)
    above = np.append(table, 2 * table[-1] - table[-2])[position + 1]
    return below, above


@pytest.mark.parametrize("kind", NARROW)
def test_toward_zero(kind, tmp_path):
    x = samples(kind)
    x = x[np.isfinite(x)]
    expected = np.copysign(neighbours(x, kind)[0], x.astype(np.float64)).astype(kind)
    assert_same(cast(x, kind, tmp_path, "{rounding = #mpt<rounding toward_zero>}"), expected)


def philox(count, seed, step, stream):
    """Words 0 .. count - 1 of Philox4x32-10, from its definition."""
    mask = 0xFFFFFFFF
    words = []
    for block in range((count + 3) // 4):
        c, k = [block & mask, block >> 32, stream & mask, step & mask], [seed & mask, seed >> 32]
        for _ in range(10):
            a, b = 0xD2511F53 * c[0], 0xCD9E8D57 * c[2]
            c = [(b >> 32) ^ c[1] ^ k[0], b & mask, (a >> 32) ^ c[3] ^ k[1], a & mask]
            k = [(k[0] + 0x9E3779B9) & mask, (k[1] + 0xBB67AE85) & mask]
        words += c
    return np.array(words[:count], np.uint64)


def test_generator_known_answer():
    """The all-zero vector that the authors of Philox publish."""
    assert [hex(w) for w in philox(4, 0, 0, 0)] == ["0x6627e8d5", "0xe169c58d", "0xbc57ac4c", "0x9b00dbd8"]


@pytest.mark.parametrize("kind", [F16, BF16, E5M2])
def test_stochastic(kind, tmp_path):
    x = samples(kind)
    x = x[np.abs(x) < LARGEST[kind]]
    key = np.array([0x123456789, 42], np.int64)
    words = philox(len(x), int(key[0]), int(key[1]), 7)
    below, above = neighbours(x, kind)
    fraction = (np.abs(x.astype(np.float64)) - below) / (above - below)
    up = np.floor(fraction * 2.0**32).astype(np.uint64) + words >= np.uint64(1 << 32)
    with np.errstate(over="ignore"):
        expected = np.copysign(np.where(up, above, below), x.astype(np.float64)).astype(kind)
    actual = cast(x, kind, tmp_path, "{rounding = #mpt<rounding stochastic>, stream = 7 : i64}", key)
    assert_same(actual, expected)


def test_dropout_and_uniform(tmp_path):
    x = np.arange(1, 1002, dtype=np.float32)
    key = np.array([5, 9], np.int64)
    module = """func.func @f(%x: tensor<1001xf32>, %k: tensor<2xi64>) -> (tensor<1001xf32>, tensor<1001xf32>) {
  %y = mpt.dropout %x, %k {ratio = 0.25 : f64, stream = 3 : i64} : (tensor<1001xf32>, tensor<2xi64>) -> tensor<1001xf32>
  %u = mpt.random_uniform %k {low = -1.0 : f64, high = 1.0 : f64, stream = 4 : i64} : (tensor<2xi64>) -> tensor<1001xf32>
  return %y, %u : tensor<1001xf32>, tensor<1001xf32>
}
"""
    out = run(module, "f", {"arg0": x, "arg1": key}, tmp_path)
    kept = philox(1001, 5, 9, 3) >= np.uint64(1 << 30)
    assert_same(out["out0"], np.where(kept, x.astype(np.float64) / 0.75, 0).astype(np.float32))
    assert_same(out["out1"], (-1 + 2 * (philox(1001, 5, 9, 4) >> np.uint64(8)) * 2.0**-24).astype(np.float32))


def test_integers(tmp_path):
    x = np.array([0.0, -0.9, 1.9, -2.5, 3e9, -3e9, np.nan, 127.0, 300.0], np.float32)
    assert cast(x, np.int32, tmp_path).tolist() == [0, 0, 1, -2, 2**31 - 1, -2**31, 0, 127, 300]
    assert cast(x, np.bool_, tmp_path).tolist() == [False, True, True, True, True, True, True, True, True]
    i = np.array([0, -1, 127, 128, 2**24 + 1, 2**40], np.int64)
    assert cast(i, np.int8, tmp_path).tolist() == [0, -1, 127, -128, 1, 0]
    assert_same(cast(i, np.float32, tmp_path), i.astype(np.float32))
    assert_same(cast(i, np.float16, tmp_path), np.array([0, -1, 127, 128, np.inf, np.inf], np.float16))


def test_fp64_keeps_everything(tmp_path):
    module = """func.func @f(%x: tensor<2xf32>) -> tensor<2xf16> {
  %h = mpt.cast %x : tensor<2xf32> to tensor<2xf16>
  return %h : tensor<2xf16>
}
"""
    x = np.array([0.1, 1e9], np.float64)
    assert (run(module, "f", {"arg0": x}, tmp_path, fp64=True)["out0"] == x).all()
