# SPDX-License-Identifier: Apache-2.0
"""Operations that a block has begun and not awaited: copies to shared memory (`cp.async`) and products of warpgroups (`wgmma`).

By the PTX ISA 8.0, "Data Movement and Conversion Instructions: Asynchronous copy" and "Asynchronous Warpgroup Level Matrix
Instructions". Faults are: bytes touched while a copy to them is on its way; bytes written while a product reads them; bytes that a
product reads and that a thread wrote without `fence.proxy.async` behind, or without a barrier between; sums touched, or operands in
registers written, before `wgmma.wait_group`; registers that a thread touched behind the last `wgmma.fence`; descriptors that threads
do not agree on; work that nobody awaits."""
import numpy as np
from ptx_numbers import UNSIGNED, from_bf16
from ptx_text import SHARED_BASE

WARPGROUP = 128
LINES = {0: 16, 1: 128, 2: 64, 3: 32}  # bytes of a line, by the descriptor's bits 62 and 63


def offsets(extent, depth, lead, stride, line, by_depth):
    """Byte offsets [extent, depth] of 16-bit elements from a matrix's start, before the swizzle. `by_depth`: elements of a row or column
    of the operand are neighbours (K-major), else elements of one depth (MN-major)."""
    x, k = np.arange(extent)[:, None], np.arange(depth)[None, :]
    if by_depth and line == 16:
        return x // 8 * stride + x % 8 * 16 + k // 8 * lead + k % 8 * 2
    if by_depth:
        return x // 8 * stride + x % 8 * line + k * 2
    if line == 16:
        return x // 8 * stride + x % 8 * 2 + k // 8 * lead + k % 8 * 16
    wide = line // 2
    return x // wide * lead + x % wide * 2 + k // 8 * stride + k % 8 * line


def swizzled(address, line):
    """Of every eight lines of 128 bytes, units of 16 bytes trade places, as many as a line of the form has."""
    return address ^ ((address >> 7 & (line // 16 - 1)) << 4)


def sum_places(columns):
    """Row and column of each thread's sums [128, columns / 2]."""
    thread, i = np.arange(WARPGROUP)[:, None], np.arange(columns // 2)[None, :]
    return thread // 32 * 16 + thread % 32 // 4 + i // 2 % 2 * 8, i // 4 * 8 + thread % 4 * 2 + i % 2


def factor_places():
    """Row and depth of each thread's elements of a 64 x 16 operand [128, 8], two a register."""
    thread, i = np.arange(WARPGROUP)[:, None], np.arange(8)[None, :]
    return thread // 32 * 16 + thread % 32 // 4 + i // 2 % 2 * 8, i // 4 * 8 + thread % 4 * 2 + i % 2


def numbers(words, kind):
    return from_bf16(words) if kind == "bf16" else words.view(np.float16).astype(np.float32)


class Group:
    """Products of a warpgroup up to a `wgmma.commit_group`."""

    def __init__(self):
        self.sums, self.factors, self.bytes = {}, set(), []  # register: shape; registers; indices


class Asynchronous:
    """Of one block."""

    def __init__(self, block, size):
        self.block, self.count = block, block.count
        self.copying = np.zeros(size, bool)
        self.unfenced = np.full(size, -1, np.int32)  # the thread that wrote a byte, until that thread's proxy fence
        self.reading = np.zeros(size, np.int32)  # by products
        self.copies, self.commits = [], np.zeros(self.count, np.int64)
        groups = range(max(self.count // WARPGROUP, 1))
        self.open, self.committed = [Group() for _ in groups], [[] for _ in groups]
        self.fenced, self.touched, self.clock = [0 for _ in groups], [{} for _ in groups], 1
        self.works = any(op.startswith("wgmma.") for _, op, _, _ in block.kernel.code)

    # ---- accesses of other instructions

    def access(self, flat, who, writes, line):
        """Bytes of shared memory, each touched by a thread's instruction."""
        if self.copying[flat].any():
            self.block.fault(line, "an access to bytes that a copy on its way writes: no cp.async.wait_group before")
        if writes:
            if self.reading[flat].any():
                self.block.fault(line, "a write to bytes that a product on its way reads: no wgmma.wait_group before")
            self.unfenced[flat] = who

    def register(self, name, writes, mask):
        """A register that an instruction reads or writes."""
        self.clock += 1
        for number in range(len(self.open)):
            if not mask[number * WARPGROUP:(number + 1) * WARPGROUP].any():
                continue
            for group in [*self.committed[number], self.open[number]]:
                if name in group.sums:
                    self.block.fault(self.block.line, f"sums of a product on its way are touched ({name}): no wgmma.wait_group before")
                if writes and name in group.factors:
                    self.block.fault(self.block.line, f"an operand of a product on its way is written ({name}): no wgmma.wait_group before")
            self.touched[number][name] = self.clock

    def ended(self):
        line = self.block.kernel.code[-1][3]
        if self.copies:
            self.block.fault(line, "the block ends with copies on their way")
        if any(group.sums for number in range(len(self.open)) for group in [*self.committed[number], self.open[number]]):
            self.block.fault(line, "the block ends with products on their way")

    # ---- copies

    def copy(self, rest, operands, line, mask):
        if rest[:2] == ["async", "commit_group"]:
            self.commits[mask] += 1
        elif rest[:2] == ["async", "wait_group"]:
            self._land(mask, self.commits - int(operands[0]))
        elif rest[:2] == ["async", "wait_all"]:
            self._land(mask, self.commits + 1)
        elif rest[0] == "async" and rest[1] in ("ca", "cg") and rest[2:4] == ["shared", "global"]:
            self._begin(operands, line, mask)
        else:
            return False
        return True

    def _begin(self, operands, line, mask):
        block, size, who = self.block, int(operands[2]), self.block.ids[mask]
        to, source = block.addresses(operands[0], mask), block.addresses(operands[1], mask)
        given = block.get(operands[3], "u32", mask).astype(np.int64) if len(operands) > 3 else np.full(len(who), size)
        if (given > size).any():
            block.fault(line, f"a copy of {size} bytes from more")
        data = np.zeros((len(who), size), np.uint8)
        for count in np.unique(given[given > 0]):
            some = given == count
            if (source[some] % size).any():
                block.fault(line, f"a copy of {size} bytes is not aligned")
            index = block.memory.check(source[some], int(count), lambda text: block.fault(line, text))
            if block.memory.touch(index, int(count), block.number, False):
                block.fault(line, "a race in global memory: bytes that another block writes or has written")
            data[some, :count] = block.memory.data[index[:, None] + np.arange(count)]
        _, at = block.bytes_at("shared", to, size, line, who, True)
        self.copying[at] = True
        self.copies.append((who, self.commits[who].copy(), at, data, line))

    def _land(self, mask, before):
        """Copies of the threads in `mask` in groups below each thread's number `before` end."""
        left = []
        for who, group, at, data, line in self.copies:
            done = mask[who] & (group < before[who])
            self.copying[at[done]] = False
            if done.any():  # not only begun: others may touch these bytes behind the next barrier, not now
                flat, owners = at[done].ravel(), np.repeat(who[done], at.shape[1])
                if self.block.touched.write(flat, owners, line):
                    self.block.fault(line, "a race in shared memory: a copy to bytes that another thread touches before it is awaited")
                self.block.shared[flat], self.unfenced[flat] = data[done].ravel(), owners
            if not done.all():
                left.append((who[~done], group[~done], at[~done], data[~done], line))
        self.copies = left

    def fence(self, rest, operands, line, mask):
        """Whether it is one that this interpreter knows."""
        if rest[:2] != ["proxy", "async"] or rest[2:] not in ([], ["shared::cta"]):
            return False
        self.unfenced[np.isin(self.unfenced, self.block.ids[mask])] = -1
        return True

    # ---- products

    def product(self, rest, operands, line, mask):
        block = self.block
        if self.count % WARPGROUP:
            block.fault(line, f"a warpgroup's instruction in a block of {self.count} threads")
        for number in range(self.count // WARPGROUP):
            own = mask[number * WARPGROUP:(number + 1) * WARPGROUP]
            if not own.any():
                continue
            if not own.all():
                block.fault(line, "threads of a warpgroup that do not reach an instruction of all of them")
            if rest[0] == "fence":
                self.clock += 1
                self.fenced[number] = self.clock
            elif rest[0] == "commit_group":
                self.committed[number].append(self.open[number])
                self.open[number] = Group()
            elif rest[0] == "wait_group":
                self._await(number, int(operands[0]))
            elif rest[0] == "mma_async":
                lanes = np.zeros(self.count, bool)
                lanes[number * WARPGROUP:(number + 1) * WARPGROUP] = True
                self._multiply(number, rest, operands, line, lanes)
            else:
                return False
        return True

    def _await(self, number, most):
        while len(self.committed[number]) > most:
            done = self.committed[number].pop(0)
            for flat in done.bytes:
                self.reading[flat] -= 1

    def _multiply(self, number, rest, operands, line, lanes):
        block, (shape, result, left, right) = self.block, rest[3:7]
        columns = int(shape[len("m64n"):shape.index("k")])
        if rest[1:3] != ["sync", "aligned"] or shape != f"m64n{columns}k16" or result != "f32" or left != right or left not in ("f16", "bf16"):
            block.unknown(line, "wgmma." + ".".join(rest))
        names = lambda text: [n.strip() for n in text.strip("{}").split(",")]  # noqa: E731
        sums, in_registers = names(operands[0]), operands[1].startswith("{")
        adds, signs, transposed = operands[3], operands[4:6], operands[6:]
        if signs != ["1", "1"] or len(transposed) != 1 + (not in_registers) or len(sums) != columns // 2 or columns % 8:
            block.unknown(line, f"wgmma.mma_async {', '.join(operands[3:])}")
        factors = names(operands[1]) if in_registers else []
        for name in [*sums, *factors]:
            chained = any(group.sums.get(name) == shape for group in [*self.committed[number], self.open[number]])
            if not (chained and name in sums) and self.touched[number].get(name, self.fenced[number]) > self.fenced[number] or not self.fenced[number]:
                block.fault(line, f"a product takes a register that a thread touched behind the last wgmma.fence ({name})")
        if in_registers:
            words = np.stack([block.raw(name)[lanes].astype(np.uint32) for name in factors], axis=1)
            first, places = np.zeros((64, 16), np.float32), factor_places()
            first[places] = numbers(np.ascontiguousarray(words).view(np.uint16), left)
        else:
            first = self._operand(number, operands[1], 64, left, transposed[0] == "0", line, lanes)
        second = self._operand(number, operands[2], columns, right, transposed[-1] == "0", line, lanes)
        places = sum_places(columns)
        before = np.zeros((64, columns), np.float32)
        if block.predicate(adds, lanes).all():
            before[places] = np.stack([block.raw(name)[lanes].astype(np.uint32).view(np.float32) for name in sums], axis=1)
        after = (before + first @ second.T).astype(np.float32)[places]
        for i, name in enumerate(sums):
            block.raw(name)[lanes] = np.ascontiguousarray(after[:, i]).view(UNSIGNED[4]).astype(np.uint64)
        self.open[number].sums.update({name: shape for name in sums})
        self.open[number].factors.update(factors)

    def _operand(self, number, register, extent, kind, by_depth, line, lanes):
        """The operand [extent, 16] that a descriptor tells of."""
        block, told = self.block, self.block.get(register, "u64", lanes)
        if (told != told[0]).any():
            block.fault(line, "threads of a warpgroup that have different descriptors of one operand")
        told = int(told[0])
        field = lambda at: (told >> at & 0x3FFF) << 4  # noqa: E731
        if told & ~(0x3FFF | 0x3FFF << 16 | 0x3FFF << 32 | 3 << 62):
            block.unknown(line, f"a descriptor with a base offset or unused bits ({told:#x})")
        width = LINES[told >> 62]
        at = swizzled(field(0) + offsets(extent, 16, field(16), field(32), width, by_depth), width) - SHARED_BASE
        flat = (at[..., None] + np.arange(2)).reshape(-1)
        if (flat < 0).any() or (flat >= len(block.shared)).any():
            block.fault(line, "a product reads shared memory outside of what the kernel has")
        if self.copying[flat].any():
            block.fault(line, "a product reads bytes that a copy on its way writes: no cp.async.wait_group before")
        if (self.unfenced[flat] != -1).any():
            block.fault(line, f"a product reads bytes without fence.proxy.async behind the write of thread {self.unfenced[flat].max()}")
        if (block.touched.writer[flat] != -1).any():
            block.fault(line, "a race in shared memory: a product reads bytes that a thread wrote without a barrier since")
        block.touched.reader[flat] = -2  # of all threads
        unique = np.unique(flat)
        self.reading[unique] += 1
        self.open[number].bytes.append(unique)
        return numbers(np.ascontiguousarray(block.shared[flat]).view(np.uint16), kind).reshape(extent, 16)
