# SPDX-License-Identifier: Apache-2.0
"""The results of kernels' PTX for values that conversions, exponentials and quotients could get wrong, evaluated by test/python/ptx.py."""
import math
import os
import pathlib
import re
import subprocess

import ml_dtypes
import numpy as np
import pytest

import ptx

ROOT = pathlib.Path(__file__).resolve().parents[2]
BUILD = pathlib.Path(os.environ.get("MPT_BUILD", ROOT / "build" / "release"))
pytestmark = pytest.mark.skipif(not (BUILD / "bin" / "mpt-opt").exists(), reason="mpt-opt is not built")
KIND = {"f8E4M3FN": ml_dtypes.float8_e4m3fn, "f8E5M2": ml_dtypes.float8_e5m2, "bf16": ml_dtypes.bfloat16, "f16": np.float16, "f32": np.float32}
ROW = 2048  # elements of 256 threads with the widest vectors


def padded(x):
    return np.concatenate([x, np.zeros(-len(x) % ROW, x.dtype)])


def values():
    """FP32: every high half, and what lies beside each value of the 8-bit types and beside the middle of two of them."""
    high = (np.arange(1 << 16, dtype=np.uint32) << 16).view(np.float32)
    near = [high, np.nextafter(high, np.float32(np.inf)), np.nextafter(high, np.float32(-np.inf)),
            (np.arange(1 << 16, dtype=np.uint32) << 16 | 0x8000).view(np.float32), (np.arange(1 << 16, dtype=np.uint32) << 16 | 0x8001).view(np.float32)]
    for name in ("f8E4M3FN", "f8E5M2"):
        table = np.unique(np.arange(256, dtype=np.uint8).view(KIND[name]).astype(np.float64))
        table = table[np.isfinite(table)]
        for x in (table, (table[1:] + table[:-1]) / 2, np.array([464.0, -464, 61440, -61440, 480, -480])):
            x = x.astype(np.float32)
            near += [x, np.nextafter(x, np.float32(np.inf)), np.nextafter(x, np.float32(-np.inf))]
    return padded(np.concatenate(near))


def kernel(tmp_path, body: str, inputs: list[np.ndarray], types: list[str], result: str, arch="sm_90", slack=0) -> np.ndarray:
    """The result of a fusion of flat tensors whose body makes %r of %x0, %x1 ..., as bytes' own type."""
    count = len(inputs[0])
    tensors = [f"tensor<{count}x{t}>" for t in types]
    arguments = ", ".join(f"%v{i}: {t}" for i, t in enumerate(tensors))
    text = f"""func.func @f({arguments}) -> tensor<{count}x{result}> {{
  %r = mpt.fusion({", ".join(f"%v{i}" for i in range(len(tensors)))}) : ({", ".join(tensors)}) -> tensor<{count}x{result}> {{
  ^bb0({arguments.replace("%v", "%x")}):
    {body.replace("TENSOR", f"tensor<{count}x").replace("END", ">")}
    mpt.yield %y : tensor<{count}x{result}>
  }}
  return %r : tensor<{count}x{result}>
}}
"""
    source, lowered, code = tmp_path / "f.mlir", tmp_path / "memory.mlir", tmp_path / "f.ptx"
    source.write_text(text)
    subprocess.run([BUILD / "bin" / "mpt-opt", source, "--memory-bufferize=target=cuda", "--lowering-emit-kernels=target=cuda", "-o", lowered], check=True)
    subprocess.run([BUILD / "bin" / "mpt-opt", lowered, f"--lowering-emit-ptx=arch={arch} file={code}", "-o", os.devnull], check=True)
    block, grid = (int(re.search(rf"mpt\.{key} = array<i64: (\d+), 1, 1>", lowered.read_text())[1]) for key in ("block", "grid"))
    output = np.zeros(count, KIND[result])
    ptx.Machine(code.read_text(), "kernel0", [x.copy() for x in inputs] + [output], grid, block, slack).run()
    return output


@pytest.mark.parametrize("arch", ["sm_80", "sm_90"])
@pytest.mark.parametrize("to", ["f8E4M3FN", "f8E5M2"])
def test_rounding_to_eight_bits(tmp_path, to, arch):
    """Narrowed and widened again, which needs no byte."""
    x = values()
    body = f"%n = mpt.cast %x0 : TENSORf32END to TENSOR{to}END\n%y = mpt.cast %n : TENSOR{to}END to TENSORf32END"
    got = kernel(tmp_path, body, [x], ["f32"], "f32", arch=arch)
    with np.errstate(all="ignore"):
        same(got, x.astype(KIND[to]).astype(np.float32))


def same(got, expected):
    nan = np.isnan(expected.astype(np.float64))
    assert (np.isnan(got.astype(np.float64)) == nan).all()
    kind = f"u{got.itemsize}"
    wrong = np.flatnonzero((got.view(kind) != expected.view(kind)) & ~nan)
    assert wrong.size == 0, f"{wrong.size} differ, the first: got {got[wrong[0]]}, expected {expected[wrong[0]]}"


@pytest.mark.parametrize("arch", ["sm_80", "sm_90"])
@pytest.mark.parametrize("overflow", ["saturate", "infinity"])
@pytest.mark.parametrize("to", ["f8E4M3FN", "f8E5M2", "bf16", "f16"])
def test_narrow(tmp_path, to, overflow, arch):
    x, limit = values(), np.float32(ml_dtypes.finfo(KIND[to]).max)
    mode = "{overflow = #mpt<overflow saturate>} " if overflow == "saturate" else ""
    got = kernel(tmp_path, f"%y = mpt.cast %x0 {mode}: TENSORf32END to TENSOR{to}END", [x], ["f32"], to, arch=arch)
    with np.errstate(all="ignore"):
        bounded = np.clip(x, -limit, limit) if mode else x
        same(got, bounded.astype(KIND[to]))


@pytest.mark.parametrize("given", ["f8E4M3FN", "f8E5M2", "bf16", "f16"])
def test_widen(tmp_path, given):
    size = np.dtype(KIND[given]).itemsize
    x = padded(np.arange(1 << 8 * size, dtype=f"u{size}").view(KIND[given]))
    got = kernel(tmp_path, f"%y = mpt.cast %x0 : TENSOR{given}END to TENSORf32END", [x], [given], "f32")
    with np.errstate(all="ignore"):
        same(got, x.astype(np.float32))


@pytest.mark.parametrize("slack", [-2, 0, 2])
def test_exponentials(tmp_path, slack):
    x = padded(np.concatenate([np.linspace(-104, 89, 50001), [0, -0.0, np.inf, -np.inf, np.nan, 88.72283, 88.7229, 1e30, -1e30, -87.33655, 1e-30]]).astype(np.float32))
    got = kernel(tmp_path, "%y = mpt.exp %x0 : TENSORf32END", [x], ["f32"], "f32", slack=slack)
    with np.errstate(all="ignore"):
        exact = np.exp(x.astype(np.longdouble))
        rounded = exact.astype(np.float32)
        unit = np.spacing(np.maximum(np.abs(rounded), np.float32(2.0**-126)))
        finite = np.isfinite(rounded) & np.isfinite(got)
        error = np.abs(got.astype(np.longdouble) - exact)[finite] / unit[finite]
    assert error.max() <= 1 + abs(slack), error.max()
    same(got[~np.isfinite(rounded) & (np.abs(x) != np.float32(88.7229))], rounded[~np.isfinite(rounded) & (np.abs(x) != np.float32(88.7229))])


@pytest.mark.parametrize("slack", [-2, 0, 2])
@pytest.mark.parametrize("given", ["bf16", "f16"])
def test_exponentials_of_narrow_values(tmp_path, given, slack):
    """Of values of 16 bits, rounded to 16 bits: 2^(x log2 e), which rounding beside the middle of two numbers alone may show."""
    x = padded(np.arange(1 << 16, dtype=np.uint16).view(KIND[given]))
    x[np.abs(x.astype(np.float32)) > 80] = 1
    m = np.full(len(x), 1.5, KIND[given])
    body = (f"%w = mpt.cast %x0 : TENSOR{given}END to TENSORf32END\n%m = mpt.cast %x1 : TENSOR{given}END to TENSORf32END\n%d = mpt.sub %w, %m : TENSORf32END\n"
            f"%e = mpt.exp %d : TENSORf32END\n%y = mpt.cast %e : TENSORf32END to TENSOR{given}END")
    got = kernel(tmp_path, body, [x, m], [given, given], given, slack=slack)
    assert "0f4B40007F" not in (tmp_path / "f.ptx").read_text(), "no number is added to round to a whole exponent"
    exact = np.exp(x.astype(np.float64) - 1.5)
    number = ~np.isnan(exact)
    # Half a unit of the type and 2^-16 of the value; values below FP32's normal numbers may become 0.
    unit = np.spacing(np.maximum(np.abs(exact), float(ml_dtypes.finfo(KIND[given]).tiny)).astype(KIND[given])).astype(np.float64)
    small = exact < ml_dtypes.finfo(KIND[given]).max.astype(np.float64)
    error = np.abs(got.astype(np.float64) - exact)[number & small]
    assert (error <= (0.5 * unit + 2.0**-16 * exact + 2.0**-126)[number & small]).all()
    assert np.isnan(got[~number].astype(np.float32)).all()


CURVES = np.concatenate([np.linspace(-12, 12, 60001), np.geomspace(1e-38, 1, 2001), -np.geomspace(1e-38, 1, 2001), [0, np.inf, -np.inf, np.nan]])


@pytest.mark.parametrize("slack", [-1, 0, 1])
@pytest.mark.parametrize("name", ["tanh", "erf"])
def test_curves(tmp_path, name, slack):
    """To 3 units, and 1 + f to two units of 1. A unit that the hardware's reciprocal is off counts twice in tanh = 1 - 2 / (1 + e^2x)."""
    x = padded(CURVES.astype(np.float32))
    exact = np.tanh(x.astype(np.longdouble)) if name == "tanh" else np.array([math.erf(v) for v in x.astype(np.float64)])
    got = kernel(tmp_path, f"%y = mpt.{name} %x0 : TENSORf32END", [x], ["f32"], "f32", slack=slack)
    number = ~np.isnan(x)
    assert np.isnan(got[~number]).all()
    error = np.abs(got - exact)[number] / np.spacing(np.maximum(np.abs(exact), 2.0**-126).astype(np.float32))[number]
    assert error.max() <= 3 + abs(slack), (error.max(), x[number][error.argmax()])
    body = f"%t = mpt.{name} %x0 : TENSORf32END\n%c = mpt.constant dense<1.0> : TENSORf32END\n%y = mpt.add %t, %c : TENSORf32END"
    got = kernel(tmp_path, body, [x], ["f32"], "f32", slack=slack)
    assert np.isnan(got[~number]).all()
    error = np.abs(got - (1 + exact))[number]
    assert error.max() <= (2 + abs(slack)) * 2.0**-23, (error.max(), x[number][error.argmax()])


GELU = {"erf": """%s = mpt.constant dense<0.70710678> : TENSORf32END
%a = mpt.mul %x0, %s : TENSORf32END
%t = mpt.erf %a : TENSORf32END
""", "tanh": """%s = mpt.constant dense<0.79788456> : TENSORf32END
%k = mpt.constant dense<0.044715> : TENSORf32END
%q = mpt.mul %x0, %x0 : TENSORf32END
%p = mpt.mul %q, %x0 : TENSORf32END
%m = mpt.mul %p, %k : TENSORf32END
%n = mpt.add %x0, %m : TENSORf32END
%a = mpt.mul %n, %s : TENSORf32END
%t = mpt.tanh %a : TENSORf32END
"""}
TAIL = """%o = mpt.constant dense<1.0> : TENSORf32END
%h = mpt.constant dense<0.5> : TENSORf32END
%u = mpt.add %t, %o : TENSORf32END
%v = mpt.mul %x0, %h : TENSORf32END
%g = mpt.mul %v, %u : TENSORf32END
"""


@pytest.mark.parametrize("arch", ["sm_80", "sm_90"])
@pytest.mark.parametrize("name", list(GELU))
def test_gelu(tmp_path, name, arch):
    """To 8 bits, 2^-13 of the value on both sides, next to every tie of the type that is met. To 16 bits, as 1 + f is."""
    x = padded(CURVES.astype(np.float32))
    wide = x.astype(np.float64)
    with np.errstate(all="ignore"):
        if name == "erf":
            exact = np.array([0.5 * v * math.erfc(-v * math.sqrt(0.5)) for v in wide])
        else:
            exact = wide / (1 + np.exp(-2 * math.sqrt(2 / math.pi) * (wide + 0.044715 * wide**3)))
    scaled = "%c = mpt.constant dense<256.0> : TENSORf32END\n%w = mpt.mul %g, %c : TENSORf32END\n%y = mpt.cast %w : TENSORf32END to TENSORf8E5M2END"
    whole = f"%g = mpt.gelu %x0 {{form = #mpt<gelu_form {name}>}} : TENSORf32END\n"
    got = kernel(tmp_path, whole + scaled, [x], ["f32"], "f8E5M2", arch=arch)
    assert np.isnan(got[np.isnan(x)].astype(np.float32)).all()
    assert got[x == np.inf] == np.inf and abs(float(got[x == -np.inf][0])) <= 2.0**-12
    number = np.isfinite(x)
    got, bounds = got[number].astype(np.float64), exact[number] * 256
    room = np.abs(bounds) * 2.0**-13 + np.where(x[number] < -4.7, 256 * 1e-6, 0)
    least, most = ((bounds + sign * room).astype(np.float32).astype(ml_dtypes.float8_e5m2).astype(np.float64) for sign in (-1, 1))
    wrong = np.flatnonzero((got < least) | (got > most))
    assert wrong.size == 0, (wrong.size, x[number][wrong[0]], got[wrong[0]], bounds[wrong[0]])
    got = kernel(tmp_path, GELU[name] + TAIL + "%y = mpt.cast %g : TENSORf32END to TENSORbf16END", [x], ["f32"], "bf16", arch=arch)[number].astype(np.float64)
    error = np.abs(got - exact[number]) - 2.0**-8 * np.abs(exact[number]) - 2.0**-21 * np.abs(wide[number])
    assert error.max() <= 2.0**-133, (x[number][error.argmax()], error.max())


@pytest.mark.parametrize("slack", [-1, 0, 1])
def test_quotients(tmp_path, slack):
    """Stored as FP32, a quotient that is a number of the type comes out as that number."""
    rng = np.random.default_rng(0)
    q, y = rng.integers(-4096, 4096, ROW * 8).astype(np.float32), rng.integers(1, 4096, ROW * 8).astype(np.float32)
    x = q * y
    x[:6], y[:6] = [1, -1, 0, np.inf, 1, np.nan], [0, 0, 0, 2, np.inf, 1]
    got = kernel(tmp_path, "%y = mpt.div %x0, %x1 : TENSORf32END", [x, y], ["f32", "f32"], "f32", slack=slack)
    with np.errstate(all="ignore"):
        same(got + np.float32(0), x / y + np.float32(0))
    a, b = (rng.standard_normal(ROW * 8) * np.exp2(rng.integers(-60, 60, ROW * 8))).astype(np.float32), rng.standard_normal(ROW * 8).astype(np.float32)
    got = kernel(tmp_path, "%y = mpt.div %x0, %x1 : TENSORf32END", [a, b], ["f32", "f32"], "f32", slack=slack)
    exact = a.astype(np.longdouble) / b
    assert (np.abs(got - exact) / np.spacing(np.abs(got))).max() <= 0.51


def test_quotients_by_one_number(tmp_path):
    """A row's common divisor is inverted once, tiny ones too."""
    for divisor in (3.0, 1e-39, 2.0**-126, 1e38):
        x = padded((np.float32(divisor) * np.linspace(-2, 2, 2001)).astype(np.float32))
        body = f"%c = mpt.constant dense<{divisor:.9e}> : TENSORf32END\n%q = mpt.div %x0, %c : TENSORf32END\n%y = mpt.cast %q : TENSORf32END to TENSORbf16END"
        got = kernel(tmp_path, body, [x], ["f32"], "bf16").astype(np.float64)
        exact = x.astype(np.float64) / np.float64(np.float32(divisor))
        assert (np.abs(got - exact) <= 2.0**-8 * np.abs(exact)).all(), divisor


@pytest.mark.parametrize("arch", ["sm_80", "sm_90"])
@pytest.mark.parametrize("op", ["add", "sub", "mul"])
@pytest.mark.parametrize("given", ["bf16", "f16"])
def test_arithmetic_of_narrow_values(tmp_path, given, op, arch):
    """FP32's result, rounded to 16 bits, by whichever instructions: sums of neighbours, of far exponents, and beside ties."""
    rng = np.random.default_rng(0)
    x = np.concatenate([np.arange(1 << 16, dtype=np.uint16)] * 4)
    y = np.concatenate([rng.permutation(1 << 16).astype(np.uint16), x[: 1 << 16] ^ 1, x[: 1 << 16] - 0x80 * 9, x[: 1 << 16] ^ 0x8001])
    x, y = padded(x.view(KIND[given])), padded(y.astype(np.uint16).view(KIND[given]))
    body = (f"%a = mpt.cast %x0 : TENSOR{given}END to TENSORf32END\n%b = mpt.cast %x1 : TENSOR{given}END to TENSORf32END\n"
            f"%s = mpt.{op} %a, %b : TENSORf32END\n%y = mpt.cast %s : TENSORf32END to TENSOR{given}END")
    got = kernel(tmp_path, body, [x, y], [given, given], given, arch=arch)
    with np.errstate(all="ignore"):
        wide = {"add": np.add, "sub": np.subtract, "mul": np.multiply}[op](x.astype(np.float32), y.astype(np.float32))
        same(got, wide.astype(KIND[given]))
    packed = f"{op}.rn.{given}x2" in (tmp_path / "f.ptx").read_text() or f"{op}.{given}x2" in (tmp_path / "f.ptx").read_text()
    assert packed == (given == "f16" or (op != "mul" and arch == "sm_90"))


def test_sums_with_products_round_once(tmp_path):
    """Differences of products, and differences with squares, keep their roundings: equal terms cancel to 0."""
    rng = np.random.default_rng(0)
    a, b, c = (rng.standard_normal(ROW).astype(np.float32) for _ in range(3))
    product = "%p = mpt.mul %x0, %x1 : TENSORf32END\n"
    exact = a.astype(np.float64) * b
    for body, expected in ((product + "%y = mpt.add %p, %x2 : TENSORf32END", exact + c), (product + "%y = mpt.sub %x2, %p : TENSORf32END", c - exact),
                           (product + "%y = mpt.sub %p, %x2 : TENSORf32END", exact - c),
                           (product + "%q = mpt.mul %x2, %x1 : TENSORf32END\n%y = mpt.sub %p, %q : TENSORf32END", a * b - c * b),
                           ("%p = mpt.mul %x0, %x0 : TENSORf32END\n%y = mpt.sub %x2, %p : TENSORf32END", c - a * a)):
        same(kernel(tmp_path, body, [a, b, c], ["f32"] * 3, "f32"), expected.astype(np.float32))
