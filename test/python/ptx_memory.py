# SPDX-License-Identifier: Apache-2.0
"""Memory of interpreted kernels, and who has touched which of its bytes."""
import numpy as np


class Accesses:
    """Who has touched each byte since the last barrier: nobody (-1), one, or several (-2)."""

    def __init__(self, size):
        self.writer, self.reader = np.full(size, -1, np.int32), np.full(size, -1, np.int32)
        self.line = np.zeros(size, np.int32)  # of the last write

    def clear(self):
        self.writer[:] = self.reader[:] = -1

    def read(self, at, who):
        """Bytes `at`, each by `who`; True where somebody else wrote one of them."""
        bad = ((self.writer[at] != -1) & (self.writer[at] != who)).any()
        self._mark(self.reader, at, who)
        return bad

    def write(self, at, who, line=0):
        order = np.argsort(at, kind="stable")
        same = at[order][1:] == at[order][:-1]
        bad = (same & (who[order][1:] != who[order][:-1])).any() or ((self.writer[at] != -1) & (self.writer[at] != who)).any() or \
            ((self.reader[at] != -1) & (self.reader[at] != who)).any()
        self.writer[at], self.line[at] = who, line
        return bad

    @staticmethod
    def _mark(table, at, who):
        before = table[at]
        wanted = np.where((before == -1) | (before == who), who, -2)
        table[at] = wanted
        table[at[table[at] != wanted]] = -2  # several read it in one instruction


class Memory:
    """Global memory of allocations, each an array of bytes at an address of its own."""

    def __init__(self, arrays: dict):
        """{address: bytes}; addresses in multiples of 256, and apart."""
        self.starts = np.array(sorted(arrays), np.int64)
        sizes = [len(arrays[int(a)]) for a in self.starts]
        self.sizes = np.array(sizes, np.int64)
        self.offsets = np.concatenate([[0], np.cumsum(sizes)[:-1]]).astype(np.int64) if sizes else np.zeros(0, np.int64)
        self.data = np.concatenate([arrays[int(a)] for a in self.starts]) if sizes else np.zeros(0, np.uint8)
        self.begin()

    def begin(self):
        """A new launch: earlier accesses of blocks are settled."""
        self.blocks = Accesses(len(self.data))

    def check(self, where, size, fault):
        """The index of each address's first byte."""
        which = np.searchsorted(self.starts, where, "right") - 1
        if (which < 0).any() or (where + size > self.starts[which] + self.sizes[which]).any():
            fault("an access outside of all allocations")
        return self.offsets[which] + where - self.starts[which]

    def touch(self, index, size, block, writes):
        at = (np.unique(index)[:, None] + np.arange(size)).ravel()  # accesses are aligned: two have all bytes in common, or none
        who = np.full(len(at), block, np.int32)
        return (self.blocks.write if writes else self.blocks.read)(at, who)

    def array(self, address):
        i = int(np.searchsorted(self.starts, address))
        return self.data[self.offsets[i]:self.offsets[i] + self.sizes[i]]
