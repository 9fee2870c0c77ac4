# SPDX-License-Identifier: Apache-2.0
"""Optimizer states that a library keeps as 8-bit codes with a scale a block (--slots=i8, f8), read and written as numbers."""
import numpy as np


def dynamic_map(signed: bool) -> np.ndarray:
    """The numbers that codes of type uint8 stand for; as lib/Support/DynamicMap.cpp."""
    values = [0.0, 1.0]
    for decade in range(7):
        parts = (1 if signed else 2) << decade
        middles = (0.1 + 0.9 * (np.arange(parts) + 0.5) / parts) * 10.0 ** (decade - 6)
        values += [*middles, *(-middles if signed else ())]
    return np.sort(np.array(values, np.float32))


def decode(codes: np.ndarray, scales: np.ndarray, table: np.ndarray | None) -> np.ndarray:
    """`table` is the map of uint8 codes; without one, codes are numbers themselves."""
    values = codes if table is None else table[codes.astype(np.int64)]
    return (values.reshape(len(scales), -1) * scales[:, None]).reshape(codes.shape)


def encode(values: np.ndarray, blocks: int, table: np.ndarray | None, squares: bool) -> tuple:
    """Codes and scales; decoded values get the codes that they were decoded from, where a block's largest value has the largest code.
    Of averages of squares none but 0 has the code of 0."""
    rows = values.reshape(blocks, -1)
    scales = np.maximum(np.abs(rows).max(axis=1), np.float32(1e-12))
    if table is None:
        scales = scales / np.float32(448)
        shares = rows / scales[:, None]
        if squares:
            shares = np.where(shares == 0, shares, np.maximum(shares, np.float32(2**-9)))
        return shares.reshape(values.shape), scales
    rows = rows / scales[:, None]
    low = np.maximum(np.searchsorted(table, rows, side="right") - 1, 0)
    high = np.minimum(low + 1, len(table) - 1)
    codes = np.where(rows - table[low] >= (table[high] - table[low]) * np.float32(0.5), high, low)
    if squares:
        codes = np.maximum(codes, rows > 0)
    return codes.astype(np.float32).reshape(values.shape), scales
