# SPDX-License-Identifier: Apache-2.0
"""An interpreter of the PTX that the compiler emits, which looks for races and for barriers that not all threads reach.

All threads of a block run at once, as numpy vectors. The threads that stand at the first instruction go on, which brings diverged
threads together again. Between two barriers no thread may touch bytes of shared memory that another one writes; of global memory no
block may touch bytes that another one writes. ptx_async.py follows operations that are awaited later. The instructions are the part of the PTX
ISA that the corpus uses; another one raises Unknown.
"""
import functools
import re

import numpy as np
from ptx_async import Asynchronous
from ptx_memory import Accesses
from ptx_numbers import FLOAT8, KINDS, UNSIGNED, compared, from_bf16, to_bf16
from ptx_text import SHARED_BASE
from ptx_wmma import WARP, Matrices

CONTROL = ("bra", "bra.uni", "ret", "exit", "bar.sync", "barrier.sync")
HALVES = ("f16x2", "bf16x2", "bf16")  # types that numpy lacks


class Unknown(Exception):
    """An instruction that the interpreter does not know."""


class Fault(Exception):
    """A kernel's error, by kernel and line of the PTX."""


@functools.cache
def constant(operand, kind):
    dtype = np.dtype(KINDS[kind])
    if re.fullmatch(r"0[fF][0-9a-fA-F]{8}", operand):
        bits = np.uint32(int(operand[2:], 16))
        return bits.view(np.float32) if dtype == np.float32 else bits.astype(dtype)
    if re.fullmatch(r"0[dD][0-9a-fA-F]{16}", operand):
        return np.uint64(int(operand[2:], 16)).view(np.float64)
    value = int(operand.rstrip("U"), 0) & (1 << dtype.itemsize * 8) - 1
    return np.array(value, UNSIGNED[dtype.itemsize]).view(dtype)[()]


class Block(Matrices):
    """The threads of one block."""

    def __init__(self, kernel, memory, arguments, block, grid, number, dynamic, observe):
        self.kernel, self.memory, self.arguments, self.observe = kernel, memory, arguments, observe
        self.count = int(np.prod(block))
        ids = np.arange(self.count)
        self.special = {"%tid.x": ids % block[0], "%tid.y": ids // block[0] % block[1], "%tid.z": ids // (block[0] * block[1])}
        at = (number % grid[0], number // grid[0] % grid[1], number // (grid[0] * grid[1]))
        for i, axis in enumerate("xyz"):
            self.special |= {f"%ctaid.{axis}": np.full(self.count, at[i]), f"%ntid.{axis}": np.full(self.count, block[i]),
                             f"%nctaid.{axis}": np.full(self.count, grid[i])}
        self.special["%laneid"] = ids % WARP
        self.ids, self.number = ids.astype(np.int32), number
        self.registers = {}
        size = kernel.shared_bytes + 16 + dynamic
        self.shared, self.touched = np.full(size, 0xA5, np.uint8), Accesses(size)
        self.begun, self.line = Asynchronous(self, size), 0
        self.executed = 0

    # ---- operands

    def unknown(self, line, text):
        raise Unknown(f"{self.kernel.name}, line {line}: {text}")

    def fault(self, line, text):
        raise Fault(f"{self.kernel.name}, line {line}: {text}")

    def raw(self, name):
        if name not in self.registers:
            self.registers[name] = np.zeros(self.count, bool if name.startswith("%p") else np.uint64)
        return self.registers[name]

    def get(self, operand, kind, mask):
        """A source operand's values for the threads in `mask`."""
        dtype = KINDS[kind]
        if operand in self.registers:
            if self.begun.works:
                self.begun.register(operand, False, mask)
            return self.registers[operand][mask].astype(UNSIGNED[np.dtype(dtype).itemsize]).view(dtype)
        if operand in self.special:
            return self.special[operand][mask].astype(dtype)
        if operand in self.kernel.shared:
            return np.full(mask.sum(), self.kernel.shared[operand], dtype)
        if operand in self.kernel.names:
            return np.full(mask.sum(), self.kernel.names[operand], dtype)
        if re.match(r"[%A-Za-z_]", operand):
            if self.begun.works:
                self.begun.register(operand, False, mask)
            return self.raw(operand)[mask].astype(UNSIGNED[np.dtype(dtype).itemsize]).view(dtype)
        return np.full(mask.sum(), constant(operand, kind))

    def put(self, register, values, mask):
        if register == "_":
            return
        if self.begun.works:
            self.begun.register(register, True, mask)
        if register.startswith("%p"):
            self.raw(register)[mask] = values
        else:
            self.raw(register)[mask] = np.ascontiguousarray(values).view(UNSIGNED[values.dtype.itemsize]).astype(np.uint64)

    def predicate(self, operand, mask):
        if operand.lstrip("-").isdigit():
            return np.full(mask.sum(), int(operand) != 0)
        return ~self.raw(operand[1:])[mask] if operand.startswith("!") else self.raw(operand)[mask]

    def addresses(self, operand, mask):
        base, _, offset = operand[1:-1].replace(" ", "").partition("+")
        return self.get(base, "u64", mask).astype(np.int64) + (int(offset, 0) if offset else 0)

    # ---- memory

    def bytes_at(self, space, where, size, line, who, writes):
        """The memory's array and the index of every byte, [threads, size], once it was seen that they may be touched."""
        at = where[:, None] + np.arange(size)
        if (where % size).any():
            self.fault(line, f"an access of {size} bytes is not aligned")
        if space == "shared":
            at = at - SHARED_BASE
            if (at < 0).any() or (at >= len(self.shared)).any():
                self.fault(line, "shared memory outside of what the kernel has")
            who, flat = np.repeat(who, size), at.ravel()
            other = flat[(self.touched.writer[flat] != -1) & (self.touched.writer[flat] != who)]
            if self.touched.write(flat, who, line) if writes else self.touched.read(flat, who):
                wrote = f", one at line {self.touched.line[other[0]]} before" if len(other) and not writes else ""
                self.fault(line, f"a race in shared memory: a {'write to' if writes else 'read of'} bytes that another thread touches before the next "
                                 f"barrier{wrote}")
            self.begun.access(flat, who, writes, line)
            return self.shared, at
        index = self.memory.check(where, size, lambda text: self.fault(line, text))
        if self.memory.touch(index, size, self.number, writes):
            self.fault(line, "a race in global memory: bytes that another block writes or has written")
        return self.memory.data, index[:, None] + np.arange(size)

    def load(self, space, where, kind, parts, line, mask):
        size = np.dtype(KINDS[kind]).itemsize
        data, at = self.bytes_at(space, where, size * parts, line, self.ids[mask], False)
        return data[at].reshape(len(where), parts, size).view(UNSIGNED[size])[..., 0]

    def store(self, space, where, values, line, mask):
        raw = np.ascontiguousarray(values).view(np.uint8).reshape(len(where), -1)
        data, at = self.bytes_at(space, where, raw.shape[1], line, self.ids[mask], True)
        data[at] = raw

    # ---- running

    def run(self):
        pc = np.zeros(self.count, np.int64)
        waiting, ended = np.zeros(self.count, bool), np.zeros(self.count, bool)
        code = self.kernel.code
        while True:
            if ended.all():
                return self.begun.ended()
            ready = ~(waiting | ended)
            if not ready.any():
                self._release(pc, waiting, ended)
                continue
            here = pc[ready].min()
            mask = ready & (pc == here)
            guard, op, operands, line = code[here]
            if not guard and op not in CONTROL and mask.all():
                pc[:] = self._straight(here, mask)
                continue
            self.executed += 1
            if guard:
                take = self.predicate(guard, mask)
                pc[mask] += 1
                mask[mask] = take
                pc[mask] -= 1
                if not mask.any():
                    continue
            if op in ("bra", "bra.uni"):
                pc[mask] = self.kernel.labels[operands[0]]
            elif op in ("ret", "exit"):
                ended |= mask
            elif op in ("bar.sync", "barrier.sync"):
                waiting |= mask
            else:
                self.observe(op)
                self.step(op, operands, line, mask)
                pc[mask] += 1

    def _straight(self, here, everyone):
        """Runs instructions of all threads up to one that may part them, and says where that is."""
        while True:
            guard, op, operands, line = self.kernel.code[here]
            if guard or op in CONTROL:
                return here
            self.executed += 1
            self.observe(op)
            self.step(op, operands, line, everyone)
            here += 1

    def _release(self, pc, waiting, ended):
        stops = np.unique(pc[waiting])
        line = self.kernel.code[stops[0]][3]
        if ended.any():
            self.fault(line, f"a barrier that {ended.sum()} of {self.count} threads never reach: they have ended")
        if len(stops) > 1:
            self.fault(line, f"threads wait at different barriers, also at the one of line {self.kernel.code[stops[1]][3]}")
        self.touched.clear()
        waiting[:] = False
        pc += 1

    def step(self, op, operands, line, mask):
        head, *rest = op.split(".")
        self.line = line
        if head in ("ld", "st"):
            return self._access(head, rest, operands, line, mask)
        if head == "wmma":
            return self._matrix(rest, operands, line, mask)
        if begin := {"cp": self.begun.copy, "fence": self.begun.fence, "wgmma": self.begun.product}.get(head):
            return begin(rest, operands, line, mask) or self.unknown(line, op)
        if head == "mov" and operands[0].startswith("{"):
            return self._unpack(rest[-1], operands, mask)
        handler = getattr(self, f"_{head}", None)
        if not handler:
            raise Unknown(f"{self.kernel.name}, line {line}: {op}")
        values = handler(rest, operands[1:], mask, line)
        if values is not None:
            self.put(operands[0], values, mask)

    def _access(self, head, rest, operands, line, mask):
        kind, parts = rest[-1], next((int(r[1]) for r in rest if re.fullmatch(r"v\d", r)), 1)
        space = next((r for r in rest if r in ("global", "shared", "param")), None)
        names = lambda text: [n.strip() for n in text.strip("{}").split(",")]  # noqa: E731
        if space == "param":
            index = self.kernel.parameters.index(operands[1][1:-1].split("+")[0])
            return self.put(operands[0], np.full(mask.sum(), self.arguments[index], np.uint64).astype(UNSIGNED[np.dtype(KINDS[kind]).itemsize]), mask)
        if space is None:
            return self._generic(head, rest, operands, line, mask)
        if head == "ld":
            found = self.load(space, self.addresses(operands[1], mask), kind, parts, line, mask)
            if kind in ("s8", "s16"):
                found = found.view(KINDS[kind]).astype(np.int32).view(np.uint32)
            for i, name in enumerate(names(operands[0])):
                self.put(name, found[:, i], mask)
            return None
        dtype = UNSIGNED[np.dtype(KINDS[kind]).itemsize]
        values = np.stack([self.get(name, kind, mask).view(dtype) for name in names(operands[1])], axis=1)
        return self.store(space, self.addresses(operands[0], mask), values, line, mask)

    def _generic(self, head, rest, operands, line, mask):
        """An access through a generic address: of global memory, unless it lies in the block's shared memory."""
        places = self.addresses(operands[1 if head == "ld" else 0], mask)
        inside = np.zeros(self.count, bool)
        inside[mask] = (places >= SHARED_BASE) & (places < SHARED_BASE + len(self.shared))
        for space, threads in (("shared", mask & inside), ("global", mask & ~inside)):
            if threads.any():
                self._access(head, [space, *rest], operands, line, threads)

    # ---- moves and conversions

    def _mov(self, rest, operands, mask, line):
        kind = rest[-1]
        if kind == "pred":
            return self.predicate(operands[0], mask)
        if operands[0].startswith("{"):  # packing
            parts = [p.strip() for p in operands[0].strip("{}").split(",")]
            width = {"b32": 32, "b64": 64}[kind] // len(parts)
            value = np.zeros(mask.sum(), np.uint64)
            for i, part in enumerate(parts):
                value |= self.get(part, f"b{width}", mask).astype(np.uint64) << np.uint64(width * i)
            return value.astype(KINDS[kind])
        return self.get(operands[0], kind, mask)

    def _unpack(self, kind, operands, mask):
        names = [n.strip() for n in operands[0].strip("{}").split(",")]
        value = np.ascontiguousarray(self.get(operands[1], kind, mask))
        for name, part in zip(names, value.view(UNSIGNED[value.dtype.itemsize // len(names)]).reshape(-1, len(names)).T):
            self.put(name, np.ascontiguousarray(part), mask)

    def _cvta(self, rest, operands, mask, line):
        return self.get(operands[0], "u64", mask)

    def _cvt(self, rest, operands, mask, line):
        to, source = rest[-2], rest[-1]
        if to in FLOAT8:  # saturates; NaN stays one
            dtype, most = FLOAT8[to]
            high, low = (np.clip(self.get(o, "f32", mask), -most, most).astype(dtype).view(np.uint8).astype(np.uint16) for o in operands)
            return high << np.uint16(8) | low
        if source in FLOAT8:
            pair = np.ascontiguousarray(self.get(operands[0], "b16", mask)).view(FLOAT8[source][0]).astype(np.float16)
            return np.ascontiguousarray(pair).view(np.uint32)
        if to in ("f16x2", "bf16x2"):
            high, low = (self.get(o, "f32", mask) for o in operands)
            narrow = (lambda v: v.astype(np.float16).view(np.uint16)) if to == "f16x2" else to_bf16
            return narrow(high).astype(np.uint32) << np.uint32(16) | narrow(low).astype(np.uint32)
        value = from_bf16(self.get(operands[0], "b16", mask)) if source == "bf16" else self.get(operands[0], source, mask)
        if to == "bf16":
            return to_bf16(value)
        if to[0] in "us" and source[0] == "f":  # rounds, saturates; NaN is 0
            value = {"rni": np.rint, "rzi": np.trunc, "rmi": np.floor, "rpi": np.ceil}[rest[0]](value.astype(np.float64))
            limits = np.iinfo(KINDS[to])
            return np.where(np.isnan(value), 0, np.clip(value, float(limits.min), float(limits.max) if limits.bits < 64 else 2.0**62)).astype(KINDS[to])
        if to[0] == "f" and rest[0] in ("rni", "rzi", "rmi", "rpi"):
            return {"rni": np.rint, "rzi": np.trunc, "rmi": np.floor, "rpi": np.ceil}[rest[0]](value).astype(KINDS[to])
        return value.astype(KINDS[to])

    def _selp(self, rest, operands, mask, line):
        return np.where(self.predicate(operands[2], mask), self.get(operands[0], rest[-1], mask), self.get(operands[1], rest[-1], mask))

    def _prmt(self, rest, operands, mask, line):
        a, b, select = (self.get(o, "u32", mask).astype(np.uint64) for o in operands)
        both, value = a | b << np.uint64(32), np.zeros_like(a)
        for i in range(4):
            nibble = select >> np.uint64(4 * i) & np.uint64(15)
            byte = both >> (nibble & np.uint64(7)) * np.uint64(8) & np.uint64(255)
            value |= np.where(nibble & np.uint64(8), np.where(byte & np.uint64(128), 255, 0).astype(np.uint64), byte) << np.uint64(8 * i)
        return value.astype(np.uint32)

    def _bfe(self, rest, operands, mask, line):
        if rest[-1] not in ("u32", "u64"):
            raise Unknown(f"{self.kernel.name}, line {line}: bfe.{rest[-1]}")
        value = self.get(operands[0], rest[-1], mask).astype(np.uint64)
        start, length = (self.get(o, "u32", mask).astype(np.uint64) for o in operands[1:])
        return (value >> start & ((np.uint64(1) << length) - np.uint64(1))).astype(KINDS[rest[-1]])

    def _shfl(self, rest, operands, mask, line):
        value, lanes = self.get(operands[0], "b32", mask), self.ids[mask] % WARP
        other = self.get(operands[1], "u32", mask).astype(np.int64)
        if rest[:2] not in (["sync", "bfly"], ["sync", "down"], ["sync", "up"], ["sync", "idx"]):
            raise Unknown(f"{self.kernel.name}, line {line}: shfl.{'.'.join(rest)}")
        whole, here = np.zeros(self.count, np.uint32), self.ids[mask]
        whole[here] = value
        for warp in np.unique(here // WARP):
            missing = min(WARP, self.count - warp * WARP) - (here // WARP == warp).sum()
            if missing:
                self.fault(line, f"{missing} lanes of a warp do not reach an exchange between all of them")
        source = {"bfly": lanes ^ other, "down": lanes + other, "up": lanes - other, "idx": other}[rest[1]]
        inside = (source >= 0) & (source < WARP) & (here // WARP * WARP + source < self.count)
        return whole[np.where(inside, here // WARP * WARP + source, here)]

    # ---- arithmetic

    def _values(self, rest, operands, mask):
        return [self.get(o, rest[-1], mask) for o in operands]

    def _pairs(self, kind, operands, mask):
        """The two numbers of 16 bits in each register, side by side; of BF16 also one."""
        if kind == "bf16":
            return [from_bf16(self.get(o, "b16", mask)) for o in operands]
        words = [np.ascontiguousarray(self.get(o, "b32", mask)).view(np.uint16) for o in operands]
        return [from_bf16(w) if kind == "bf16x2" else w.view(np.float16) for w in words]

    def _halves(self, rest, operands, mask, function):
        """A function of the two numbers of 16 bits in each register."""
        value = function(*self._pairs(rest[-1], operands, mask))
        if rest[-1] == "bf16":
            return to_bf16(value)
        return np.ascontiguousarray(to_bf16(value) if rest[-1] == "bf16x2" else value.astype(np.float16)).view(np.uint32)

    def _binary(self, function):
        def compute(rest, operands, mask, line):
            if rest[-1] in HALVES:
                return self._halves(rest, operands, mask, function)
            return function(*self._values(rest, operands, mask))
        return compute

    def _add(self, *a):
        return self._binary(np.add)(*a)

    def _sub(self, *a):
        return self._binary(np.subtract)(*a)

    def _mul(self, rest, operands, mask, line):
        if rest[0] in ("wide", "hi"):
            kind = rest[-1]
            a, b = self._values(rest, operands, mask)
            bits = np.dtype(KINDS[kind]).itemsize * 8
            if bits == 64:
                product = a.astype(object) * b.astype(object)
                return np.array([int(p) >> 64 & (2**64 - 1) for p in product], np.uint64).view(KINDS[kind])
            wide = f"{kind[0]}{2 * bits}"
            product = a.astype(KINDS[wide]) * b.astype(KINDS[wide])
            return product if rest[0] == "wide" else (product >> product.dtype.type(bits)).astype(KINDS[kind])
        return self._binary(np.multiply)(rest, operands, mask, line)

    def _mad(self, rest, operands, mask, line):
        if rest[0] == "wide":
            return self._mul(rest, operands[:2], mask, line) + self.get(operands[2], f"{rest[-1][0]}64", mask)
        a, b, c = self._values(rest, operands, mask)
        return a * b + c

    def _fma(self, rest, operands, mask, line):
        if rest[-1] in HALVES:
            return self._halves(rest, operands, mask, lambda a, b, c: a.astype(np.float32) * b + c)
        a, b, c = self._values(rest, operands, mask)
        wide = np.float64 if rest[-1] == "f32" else np.longdouble
        return (a.astype(wide) * b.astype(wide) + c.astype(wide)).astype(a.dtype)

    def _div(self, rest, operands, mask, line):
        a, b = self._values(rest, operands, mask)
        if rest[-1][0] == "f":
            return a / b
        return np.where(b == 0, a.dtype.type(0), np.trunc(a.astype(np.longdouble) / np.where(b == 0, 1, b).astype(np.longdouble)).astype(a.dtype))

    def _rem(self, rest, operands, mask, line):
        a, b = self._values(rest, operands, mask)
        return np.where(b == 0, a, a - self._div(rest, operands, mask, line) * b)

    def _extreme(self, rest, operands, mask, function, strict):
        choose = strict if "NaN" in rest or rest[-1][0] in "su" else function
        if rest[-1] in HALVES:
            return self._halves(rest, operands, mask, choose)
        return choose(*self._values(rest, operands, mask))

    def _max(self, rest, operands, mask, line):
        if "abs" in rest:  # xorsign: the larger magnitude, with the product's sign
            return self._halves(rest, operands, mask, lambda x, y: np.copysign(np.maximum(np.abs(x), np.abs(y)), np.copysign(1, x) * np.copysign(1, y)).astype(x.dtype))
        return self._extreme(rest, operands, mask, np.fmax, np.maximum)

    def _min(self, rest, operands, mask, line):
        return self._extreme(rest, operands, mask, np.fmin, np.minimum)

    def _abs(self, rest, operands, mask, line):
        if rest[-1] in HALVES:
            return self._halves(rest, operands, mask, np.abs)
        return np.abs(self.get(operands[0], rest[-1], mask))

    def _copysign(self, rest, operands, mask, line):
        sign, magnitude = self._values(rest, operands, mask)
        return np.copysign(magnitude, sign)

    def _testp(self, rest, operands, mask, line):
        test = {"infinite": np.isinf, "finite": np.isfinite, "notanumber": np.isnan, "number": lambda v: ~np.isnan(v)}.get(rest[0])
        if not test:
            raise Unknown(f"{self.kernel.name}, line {line}: testp.{rest[0]}")
        return test(self.get(operands[0], rest[-1], mask))

    def _neg(self, rest, operands, mask, line):
        if rest[-1] in HALVES:
            return self._halves(rest, operands, mask, np.negative)
        return -self.get(operands[0], rest[-1], mask)

    def _sqrt(self, rest, operands, mask, line):
        return np.sqrt(self.get(operands[0], rest[-1], mask))

    def _rcp(self, rest, operands, mask, line):
        value = self.get(operands[0], rest[-1], mask)
        return value.dtype.type(1) / value

    def _ex2(self, rest, operands, mask, line):
        return np.exp2(self.get(operands[0], rest[-1], mask))

    def _lg2(self, rest, operands, mask, line):
        return np.log2(self.get(operands[0], rest[-1], mask))

    def _logic(self, rest, operands, mask, function):
        if rest[-1] == "pred":
            return function(*(self.predicate(o, mask) for o in operands))
        return function(*self._values(rest, operands, mask))

    def _and(self, rest, operands, mask, line):
        return self._logic(rest, operands, mask, np.bitwise_and)

    def _or(self, rest, operands, mask, line):
        return self._logic(rest, operands, mask, np.bitwise_or)

    def _xor(self, rest, operands, mask, line):
        return self._logic(rest, operands, mask, np.bitwise_xor)

    def _not(self, rest, operands, mask, line):
        return self._logic(rest, operands, mask, np.invert)

    def _lop3(self, rest, operands, mask, line):
        """Bit by bit the table's entry for the three operands' bits."""
        a, b, c = (self.get(o, "b32", mask) for o in operands[:3])
        table, value = int(operands[3], 0), np.zeros_like(a)
        for i in range(8):
            if table >> i & 1:
                value |= (a if i & 4 else ~a) & (b if i & 2 else ~b) & (c if i & 1 else ~c)
        return value

    def _shift(self, rest, operands, mask, function):
        value, by = self.get(operands[0], rest[-1], mask), self.get(operands[1], "u32", mask)
        bits = 8 * value.dtype.itemsize
        gone = np.where(value < 0, value.dtype.type(-1), value.dtype.type(0)) if rest[-1][0] == "s" else np.zeros_like(value)
        return np.where(by >= bits, gone if function is np.right_shift else np.zeros_like(value), function(value, (by % bits).astype(value.dtype)))

    def _shl(self, rest, operands, mask, line):
        return self._shift(rest, operands, mask, np.left_shift)

    def _shr(self, rest, operands, mask, line):
        return self._shift(rest, operands, mask, np.right_shift)

    def _setp(self, rest, operands, mask, line):
        if len(rest) != 2:
            raise Unknown(f"{self.kernel.name}, line {line}: setp.{'.'.join(rest)}")
        return compared(rest[0], *(self._pairs(rest[-1], operands, mask) if rest[-1] == "bf16" else self._values(rest, operands, mask)))

    def _set(self, rest, operands, mask, line):
        """A mask for each of the two numbers of 16 bits."""
        if len(rest) != 3 or rest[1] != "u32" or rest[2] not in ("f16x2", "bf16x2"):
            raise Unknown(f"{self.kernel.name}, line {line}: set.{'.'.join(rest)}")
        flags = compared(rest[0], *self._pairs(rest[2], operands, mask))
        return np.ascontiguousarray(np.where(flags, np.uint16(0xFFFF), np.uint16(0))).view(np.uint32)
