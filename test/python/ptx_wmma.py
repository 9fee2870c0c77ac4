# SPDX-License-Identifier: Apache-2.0
"""Matrices of a warp (`wmma`): element e of 256 lies where this interpreter says, as the ISA leaves it open."""
import numpy as np
from ptx_numbers import UNSIGNED, from_bf16

WARP = 32


class Matrices:
    """A block's operations on them."""

    def _fragment(self, names, kind, warp):
        """The 256 elements that a warp's registers hold."""
        if kind == "f32":
            return np.stack([self.raw(n)[warp].astype(np.uint32).view(np.float32) for n in names], axis=1).reshape(16, 16)
        pairs = np.stack([self.raw(n)[warp].astype(np.uint32) for n in names], axis=1)
        halves = pairs.reshape(-1).view(np.uint16)[:256]
        return (from_bf16(halves) if kind == "bf16" else halves.view(np.float16).astype(np.float32)).reshape(16, 16)

    def _matrix(self, rest, operands, line, mask):
        names = lambda text: [n.strip() for n in text.strip("{}").split(",")]  # noqa: E731
        here = self.ids[mask]
        for warp in np.unique(here // WARP):
            lanes = np.zeros(self.count, bool)
            lanes[warp * WARP:(warp + 1) * WARP] = True
            if lanes.sum() != WARP or not (mask & lanes).sum() == WARP:
                self.fault(line, "lanes of a warp that do not reach a matrix operation of all of them")
            if "mma" in rest[0]:
                d, a, b, c = map(names, operands)
                kind = "bf16" if "bf16" in rest else "f16"  # of FP16, the operation names the sums alone
                result = self._fragment(c, "f32", lanes) + self._fragment(a, kind, lanes) @ self._fragment(b, kind, lanes)
                for name, values in zip(d, result.astype(np.float32).reshape(WARP, 8).T):
                    self.put(name, values, lanes)
                continue
            self._move_matrix(rest, operands, names, lanes, line)

    def _move_matrix(self, rest, operands, names, lanes, line):
        stores, kind = rest[0] == "store", rest[-1]
        space = next(r for r in rest if r in ("shared", "global"))
        address, registers = (operands[0], names(operands[1])) if stores else (operands[1], names(operands[0]))
        size = 4 if kind == "f32" else 2
        lead = int(self.get(operands[2], "u32", lanes)[0])
        rows, columns = np.divmod(np.arange(256), 16)
        column_major = "col" in rest
        at = self.addresses(address, lanes)[0] + (columns * lead + rows if column_major else rows * lead + columns) * size
        who = np.repeat(self.ids[lanes], 8)
        # Which lane moves which element is open: another lane's access to any of them is a race.
        data, index = self.bytes_at(space, at, size, line, who, stores)
        if stores:
            data[index] = np.ascontiguousarray(self._fragment(registers, kind, lanes).reshape(-1)).view(np.uint8).reshape(256, 4)
            return
        raw = data[index].view(UNSIGNED[size])[:, 0]
        if kind == "f32":
            parts = raw.reshape(WARP, 8).T
        else:
            parts = np.resize(raw, WARP * len(registers) * 2).view(np.uint32).reshape(WARP, len(registers)).T
        for name, values in zip(registers, parts):
            self.put(name, np.ascontiguousarray(values), lanes)
