# SPDX-License-Identifier: Apache-2.0
"""Memory of interpreted kernels at the extents of real models: buffers have their full sizes, but only pages that a thread touches exist.

An untouched page begins with pseudo-random numbers of its buffer's element type. Blocks that race in global memory are found as in
ptx_memory.py, whose interfaces these are. Every access is held to the bounds of one buffer: between buffers there is a gap, so that an
access behind one of them lies in none.
"""
import dataclasses

import numpy as np
from mpt_run import KINDS
from ptx_memory import Accesses, Memory

PAGE = 512  # bytes: rows of narrow tiles lie far apart, and the rest of a page is made for nothing
BASE, GAP = 1 << 44, 1 << 20  # of addresses; above them no 32-bit arithmetic goes unseen
TYPES = {name: np.dtype(kind) for kind, _, name in KINDS}
STEP = np.uint64(0x9E3779B97F4A7C15)  # of a Weyl sequence; its upper bits are scattered


@dataclasses.dataclass(frozen=True)
class Buffer:
    """An argument of a kernel: its bytes and MLIR's name of its elements."""
    size: int
    element: str


class SparseMemory(Memory):
    """Global memory of a kernel's arguments, `self.addresses` in their order, and of a module's tables {address: bytes}.

    `indices` bounds the values of integers, [low, high]. `shared` are pairs of arguments that have one buffer.
    """

    def __init__(self, buffers, tables, indices, shared=()):
        places, self.addresses, address = {}, [], BASE
        first = {second: first for first, second in shared}
        for number, buffer in enumerate(buffers):
            if number in first:
                self.addresses.append(self.addresses[first[number]])
                continue
            self.addresses.append(address)
            places[address] = (buffer, f"argument {number}")
            address += -(-(buffer.size + GAP) // PAGE) * PAGE
        for address, table in tables.items():
            places[address] = (table, "a table")
        self.starts = np.array(sorted(places), np.int64)
        self.buffers = [places[int(start)][0] for start in self.starts]
        self.names = [places[int(start)][1] for start in self.starts]
        self.sizes = np.array([buffer.size for buffer in self.buffers], np.int64)
        pages = -(-self.sizes // PAGE)
        self.offsets = np.concatenate([[0], np.cumsum(pages)[:-1]]).astype(np.int64)  # in pages that may exist
        # Where each page lies in `data`, in pages; 0 for none. The system makes zeros when they are touched.
        self.slots = np.zeros(int(pages.sum()), np.int32)
        self.indices, self.used, self.data = indices, 1, np.zeros(64 * PAGE, np.uint8)
        self.begin()

    def check(self, where, size, fault):
        """The index in `data` of each address's first byte; pages that were not touched before are made."""
        which = np.searchsorted(self.starts, where, "right") - 1
        inside = where - self.starts[which]
        beyond = (which < 0) | (inside + size > self.sizes[which])
        if beyond.any():
            bad = np.flatnonzero(beyond)[0]
            fault(f"an access outside of all allocations: {size} bytes at {inside[bad]} of the {self.sizes[which[bad]]} of {self.names[which[bad]]}, by "
                  f"{beyond.sum()} threads")
        page = self.offsets[which] + inside // PAGE
        if not self.slots[page].all():
            self._make(np.unique(page[self.slots[page] == 0]))
        return self.slots[page].astype(np.int64) * PAGE + inside % PAGE

    def array(self, address):
        raise NotImplementedError("a buffer of which only pages exist")

    def _make(self, pages):
        need = (self.used + len(pages)) * PAGE
        if need > len(self.data):
            self._grow(max(need, 2 * len(self.data)))
        which = np.searchsorted(self.offsets, pages, "right") - 1
        for one in np.unique(which):
            own = pages[which == one]
            slots = self.used + np.arange(len(own))
            self.used += len(own)
            self.slots[own] = slots
            content = self._content(int(one), own - self.offsets[one])
            self.data[slots[0] * PAGE:(slots[-1] + 1) * PAGE] = content.reshape(-1)

    def _grow(self, size):
        data, blocks = np.zeros(size, np.uint8), Accesses(size)
        data[:len(self.data)] = self.data
        for table in ("writer", "reader", "line"):
            getattr(blocks, table)[:len(self.data)] = getattr(self.blocks, table)
        self.data, self.blocks = data, blocks

    def _content(self, one, pages):
        """Bytes [pages, PAGE] of a buffer."""
        buffer = self.buffers[one]
        if isinstance(buffer, np.ndarray):
            padded = np.zeros(-(-buffer.size // PAGE) * PAGE, np.uint8)
            padded[:buffer.size] = buffer
            return padded.reshape(-1, PAGE)[pages]
        count = PAGE // TYPES[buffer.element].itemsize
        return np.ascontiguousarray(self._first(one, pages[:, None] * count + np.arange(count))).view(np.uint8)

    def _first(self, one, elements):
        """The numbers that a buffer begins with, at `elements`."""
        buffer = self.buffers[one]
        kind = TYPES[buffer.element]
        place = elements.astype(np.uint64) + np.uint64(one << 40)
        bits = (place * STEP >> np.uint64(41)).astype(np.int64)  # 23 of them
        if buffer.element[0] in "fb":  # floating-point
            values = bits.astype(np.float32) * np.float32(2.0**-22) - np.float32(1)
        elif kind == bool:
            values = bits & 1
        else:
            low, high = self.indices
            values = low + bits % (high - low + 1)
        return values.astype(kind)

    def _number(self, argument) -> int:
        return int(np.searchsorted(self.starts, self.addresses[argument]))

    def first(self, argument, elements):
        """Elements of an argument before any block ran: floats, integers or flags."""
        values = self._first(self._number(argument), np.asarray(elements, np.int64))
        return values.astype(np.float64) if values.dtype.kind not in "biu" else values

    def written(self, argument):
        """Places and values of the elements of an argument that blocks have written, all bytes of each."""
        one = self._number(argument)
        kind = TYPES[self.buffers[one].element]
        pages = np.flatnonzero(self.slots[self.offsets[one]:self.offsets[one] - (-self.sizes[one] // PAGE)])
        at = (self.slots[self.offsets[one] + pages].astype(np.int64)[:, None] * PAGE + np.arange(PAGE)).reshape(len(pages), PAGE // kind.itemsize, kind.itemsize)
        own = (self.blocks.writer[at] != -1).all(axis=2)
        places = (pages[:, None] * (PAGE // kind.itemsize) + np.arange(PAGE // kind.itemsize))[own]
        return places, np.ascontiguousarray(self.data[at[own]]).reshape(-1).view(kind)
