# SPDX-License-Identifier: Apache-2.0
"""Types of PTX registers as numpy's, and the numbers that numpy has not."""
import ml_dtypes
import numpy as np

KINDS = {"b8": np.uint8, "u8": np.uint8, "s8": np.int8, "b16": np.uint16, "u16": np.uint16, "s16": np.int16, "b32": np.uint32, "u32": np.uint32,
         "s32": np.int32, "b64": np.uint64, "u64": np.uint64, "s64": np.int64, "f16": np.float16, "f32": np.float32, "f64": np.float64}
FLOAT8 = {"e4m3x2": (ml_dtypes.float8_e4m3fn, 448), "e5m2x2": (ml_dtypes.float8_e5m2, 57344)}
UNSIGNED = {1: np.uint8, 2: np.uint16, 4: np.uint32, 8: np.uint64}


def from_bf16(bits):
    return (bits.astype(np.uint32) << np.uint32(16)).view(np.float32)


def to_bf16(value):
    """To the nearest, ties to even; NaN stays one."""
    bits = value.astype(np.float32).view(np.uint32).astype(np.uint64)
    rounded = ((bits + 0x7FFF + ((bits >> np.uint64(16)) & np.uint64(1))) >> np.uint64(16)).astype(np.uint16)
    return np.where(np.isnan(value), np.uint16(0x7FFF), rounded)


def compared(name, a, b):
    """`a` against `b` by PTX's name of a comparison: "ltu" holds where one is NaN."""
    if name in ("nan", "num"):
        unordered = np.isnan(a) | np.isnan(b)
        return unordered if name == "nan" else ~unordered
    loose = len(name) == 3
    name = {"lo": "lt", "ls": "le", "hi": "gt", "hs": "ge"}.get(name, name[:2])
    result = {"eq": np.equal, "ne": np.not_equal, "lt": np.less, "le": np.less_equal, "gt": np.greater, "ge": np.greater_equal}[name](a, b)
    if a.dtype.kind != "f":
        return result
    unordered = np.isnan(a) | np.isnan(b)
    return result | unordered if loose else result & ~unordered
