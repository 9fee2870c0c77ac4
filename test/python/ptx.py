# SPDX-License-Identifier: Apache-2.0
"""Evaluates kernels of pointwise PTX on a processor, all threads at once: the results of instructions that a GPU has and this processor has not
(conversions, approximations). By the PTX ISA; an approximation is as far off as `slack` says, in units in the last place."""
from __future__ import annotations

import re

import ml_dtypes
import numpy as np

FLOAT8 = {"e4m3x2": ml_dtypes.float8_e4m3fn, "e5m2x2": ml_dtypes.float8_e5m2}
PAIRS = {"f16x2": np.float16, "bf16x2": ml_dtypes.bfloat16}
COMPARE = {"eq": np.equal, "ne": np.not_equal, "lt": np.less, "le": np.less_equal, "gt": np.greater, "ge": np.greater_equal}
UNORDERED = {"equ": "eq", "neu": "ne", "ltu": "lt", "leu": "le", "gtu": "gt", "geu": "ge"}


def f32(bits):
    return np.asarray(bits, np.uint64).astype(np.uint32).view(np.float32)


def bits(values):
    return np.asarray(values, np.float32).view(np.uint32).astype(np.uint64)


def flushed(values):
    return np.where(np.abs(values) < np.float32(2.0**-126), np.copysign(np.float32(0), values), values)


class Machine:
    """One launch. `memory` holds an array for each parameter, in order."""

    def __init__(self, text: str, entry: str, memory: list[np.ndarray], blocks: int, threads: int, slack: int = 0):
        self.body = text.split(f".entry {entry}(")[1].split("\n{\n")[1].split("\n}\n")[0]
        self.memory = [m.view(np.uint8).reshape(-1) for m in memory]
        self.registers: dict[str, np.ndarray] = {}
        self.slack, self.count = slack, blocks * threads
        thread = np.arange(self.count, dtype=np.uint64)
        self.special = {"%tid.x": thread % threads, "%ctaid.x": thread // threads}

    # ---- operands

    def get(self, name: str) -> np.ndarray:
        if name in self.special:
            return self.special[name]
        if name.startswith("%"):
            return self.registers[name]
        if name.startswith("0f"):
            return np.full(self.count, int(name[2:], 16), np.uint64)
        return np.full(self.count, int(name.rstrip("U"), 0) & (2**64 - 1), np.uint64)

    def place(self, text: str) -> tuple[int, np.ndarray]:
        """The parameter's number, and the byte in it, of each thread."""
        name, offset = re.match(r"\[(%\w+)\+?(-?\d+)?\]", text).groups()
        address = self.registers[name] + np.uint64(int(offset or 0) & (2**64 - 1))
        return int(address[0] >> np.uint64(40)) - 1, (address & np.uint64(2**40 - 1)).astype(np.int64)

    def near(self, exact: np.ndarray) -> np.ndarray:
        """`exact` as FP32, some units in the last place away where it is finite."""
        value = exact.astype(np.float32)
        for _ in range(abs(self.slack)):
            value = np.where(np.isfinite(value) & (value != 0), np.nextafter(value, np.float32(np.inf * self.slack)), value)
        return value

    # ---- instructions

    def run(self) -> None:
        code = [line.strip().rstrip(";") for line in self.body.split("\n")]
        code = [line for line in code if line and not line.startswith((".reg", "//", ".loc"))]
        labels = {line[:-1]: i for i, line in enumerate(code) if line.endswith(":")}
        at = 0
        with np.errstate(all="ignore"):
            while at < len(code):
                line = code[at]
                at += 1
                if line.endswith(":"):
                    continue
                guard, op, rest = re.match(r"(?:@(!?%\w+)\s+)?([\w.:]+)\s*(.*)", line).groups()
                if op == "ret":
                    return
                if op.startswith("bra"):
                    taken = self.get(guard.lstrip("!")).astype(bool) ^ guard.startswith("!") if guard else np.ones(1, bool)
                    assert taken.all() or not taken.any(), "expected threads that go one way"
                    at = labels[rest] if taken.all() else at
                    continue
                self.step(op, [a.strip() for a in re.findall(r"\{[^}]*\}|\[[^\]]*\]|[^,\s]+", rest)])

    def step(self, op: str, a: list[str]) -> None:
        words = op.split(".")
        if op.startswith("ld.param"):
            number = int(re.search(r"_param_(\d+)", a[1])[1])
            self.registers[a[0]] = np.full(self.count, (number + 1) << 40, np.uint64)
        elif words[0] in ("ld", "st"):
            self.access(words, a)
        elif words[0] == "cvt":
            self.registers[a[0]] = self.convert(words[1:], [self.get(x) for x in a[1:]])
        elif words[0] in ("mov", "cvta"):
            self.move(words[-1], a)
        elif words[0] == "setp":
            self.registers[a[0]] = self.compare(words, self.get(a[1]), self.get(a[2])).astype(np.uint64)
        elif words[0] == "selp":
            self.registers[a[0]] = np.where(self.get(a[3]).astype(bool), self.get(a[1]), self.get(a[2]))
        elif words[-1] in PAIRS:
            self.registers[a[0]] = self.pairs(words, *[self.get(x) for x in a[1:]])
        elif words[-1] == "f32":
            self.registers[a[0]] = bits(self.real(words, *[f32(self.get(x)) for x in a[1:]]))
        else:
            wide = words[-1] in ("b64", "s64", "u64") or "wide" in words
            mask = 2**64 - 1 if wide else 2 ** int(re.sub(r"\D", "", words[-1]) or 1) - 1
            self.registers[a[0]] = self.whole(words, *[self.get(x) for x in a[1:]]) & np.uint64(mask)

    def access(self, words: list[str], a: list[str]) -> None:
        size = int(words[-1][1:]) // 8
        value, place = (a[0], a[1]) if words[0] == "ld" else (a[1], a[0])
        names = [n.strip() for n in value.strip("{}").split(",")]
        number, offset = self.place(place)
        for i, name in enumerate(names):
            bytes_at = offset[:, None] + i * size + np.arange(size)
            if words[0] == "ld":
                raw = self.memory[number][bytes_at]
                self.registers[name] = sum(raw[:, k].astype(np.uint64) << np.uint64(8 * k) for k in range(size))
            else:
                for k in range(size):
                    self.memory[number][bytes_at[:, k]] = (self.get(name) >> np.uint64(8 * k)).astype(np.uint8)

    def move(self, kind: str, a: list[str]) -> None:
        size = int(kind[1:])
        if a[0].startswith("{"):
            names = [n.strip() for n in a[0].strip("{}").split(",")]
            for i, name in enumerate(names):
                self.registers[name] = (self.get(a[1]) >> np.uint64(i * size // len(names))) & np.uint64(2 ** (size // len(names)) - 1)
        elif a[1].startswith("{"):
            names = [n.strip() for n in a[1].strip("{}").split(",")]
            parts = [self.registers.get(n, np.zeros(self.count, np.uint64)) for n in names]  # a piece that nobody reads may have no value
            self.registers[a[0]] = sum((p & np.uint64(2 ** (size // len(parts)) - 1)) << np.uint64(i * size // len(parts)) for i, p in enumerate(parts))
        else:
            self.registers[a[0]] = self.get(a[1])

    def compare(self, words: list[str], x, y) -> np.ndarray:
        kind = words[1]
        if words[-1] != "f32":
            signed = words[-1].startswith("s")
            size = int(words[-1][1:])
            if signed:
                x, y = (((v << np.uint64(64 - size)).view(np.int64) >> np.int64(64 - size)) for v in (x, y))
            return COMPARE[kind](x, y)
        x, y = f32(x), f32(y)
        if kind in ("nan", "num"):
            return (np.isnan(x) | np.isnan(y)) == (kind == "nan")
        if kind in UNORDERED:
            return COMPARE[UNORDERED[kind]](x, y) | np.isnan(x) | np.isnan(y)
        return COMPARE[kind](x, y) & ~np.isnan(x) & ~np.isnan(y)

    def real(self, words: list[str], x, y=None, z=None) -> np.ndarray:
        wide = lambda v: v.astype(np.longdouble)
        name = words[0]
        if name == "ex2":
            return flushed(self.near(np.exp2(wide(flushed(x)))))
        if name == "rcp":
            return flushed(self.near(1 / wide(flushed(x)))) if "ftz" in words else self.near(1 / wide(x))
        if name == "div":
            return self.near(wide(x) / wide(y)) if "full" in words else x / y
        if name in ("min", "max"):
            pick = {("min", True): np.minimum, ("max", True): np.maximum, ("min", False): np.fmin, ("max", False): np.fmax}
            return pick[name, "NaN" in words](x, y)
        return {"add": lambda: x + y, "sub": lambda: x - y, "mul": lambda: x * y, "neg": lambda: -x, "abs": lambda: np.abs(x),
                "copysign": lambda: np.copysign(y, x),
                "fma": lambda: (wide(x) * wide(y) + wide(z)).astype(np.float32)}[name]()

    def pairs(self, words: list[str], x, y) -> np.ndarray:
        """Of the two numbers in each register. One rounding: FP64 holds sums and products of 16 bits as they are."""
        kind, result = PAIRS[words[-1]], np.zeros_like(x)
        for shift in (np.uint64(0), np.uint64(16)):
            p, q = ((v >> shift & np.uint64(0xFFFF)).astype(np.uint16).view(kind).astype(np.float64) for v in (x, y))
            value = {"add": p + q, "sub": p - q, "mul": p * q}[words[0]].astype(kind)
            value = np.where(np.isnan(value.astype(np.float32)), np.uint16(0x7FFF), value.view(np.uint16))
            result |= value.astype(np.uint64) << shift
        return result

    def whole(self, words: list[str], x, y=None, z=None) -> np.ndarray:
        name = words[0]
        if name == "bfe":
            return (x >> y) & ((np.uint64(1) << z) - np.uint64(1))
        if name == "prmt":
            table, result = x | (y << np.uint64(32)), np.zeros_like(x)
            for i in range(4):
                source = (z >> np.uint64(4 * i)) & np.uint64(7)
                result |= ((table >> (source * np.uint64(8))) & np.uint64(255)) << np.uint64(8 * i)
            return result
        if name in ("min", "max"):
            assert words[1] in ("s32", "u32")
            pair = (v.astype(np.uint32).view(np.int32 if words[1] == "s32" else np.uint32) for v in (x, y))
            return {"min": np.minimum, "max": np.maximum}[name](*pair).view(np.uint32).astype(np.uint64)
        return {"add": lambda: x + y, "sub": lambda: x - y, "mul": lambda: x * y, "mad": lambda: x * y + z, "and": lambda: x & y,
                "or": lambda: x | y, "xor": lambda: x ^ y, "shl": lambda: x << y, "shr": lambda: x >> y, "not": lambda: ~x}[name]()

    def convert(self, words: list[str], a: list[np.ndarray]) -> np.ndarray:
        kind = ".".join(words)
        if words[-2] in FLOAT8 and words[-1] == "f32":
            assert words[:2] == ["rn", "satfinite"]
            kind8 = FLOAT8[words[-2]]
            high, low = (self.float8(f32(x), kind8) for x in a)
            return (high << np.uint64(8)) | low
        if words[-1] in FLOAT8:
            pair = [((a[0] >> np.uint64(s)) & np.uint64(255)).astype(np.uint8).view(FLOAT8[words[-1]]).astype(np.float16) for s in (0, 8)]
            return pair[0].view(np.uint16).astype(np.uint64) | (pair[1].view(np.uint16).astype(np.uint64) << np.uint64(16))
        if kind in ("rn.bf16x2.f32", "rn.f16x2.f32"):
            narrow = ml_dtypes.bfloat16 if "bf16x2" in words else np.float16
            high, low = (f32(x).astype(narrow).view(np.uint16).astype(np.uint64) for x in a)
            return (high << np.uint64(16)) | low
        if kind == "f32.f16":
            return bits(a[0].astype(np.uint16).view(np.float16).astype(np.float32))
        assert re.fullmatch(r"[us]\d+\.u\d+", kind), f"expected a conversion that is known, got cvt.{kind}"
        return a[0] & np.uint64(2 ** min(int(words[0][1:]), int(words[1][1:])) - 1)

    @staticmethod
    def float8(values, kind) -> np.ndarray:
        """Saturating, to nearest even; a NaN is the positive one."""
        largest = np.float32(ml_dtypes.finfo(kind).max)
        result = np.clip(values, -largest, largest).astype(kind).view(np.uint8)
        return np.where(np.isnan(values), np.uint8(0x7F), result).astype(np.uint64)
