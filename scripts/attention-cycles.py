#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Counts the machine instructions of attention's forward kernels in tiles, by `wmma` and by `wgmma`, for 64 queries and 64 keys:
attention-cycles.py [--depth 64 128] [--policy amp-bf16] [--dropout 0.1]

Both passes over the keys are counted: loops over chunks by their machine code, loops over pieces of a chunk as often as they turn.
Clocks of one multiprocessor are its longest pipe's, were it never to wait: lanes by scripts/sass-budget.py; 128 bytes of
shared memory a clock, which operands of `wgmma` take too; 2,048 fused multiply-adds a clock by `wgmma` (NVIDIA's data sheet: 989 TFLOP/s of
132 multiprocessors at 1.83 GHz), 0.62 of that by `wmma` (Luo et al., arXiv 2402.13499). Nothing is measured.
"""
import argparse
import importlib.util
import pathlib
import re
import sys
import tempfile

ROOT = pathlib.Path(__file__).resolve().parent.parent
spec = importlib.util.spec_from_file_location("sass_budget", ROOT / "scripts" / "sass-budget.py")
sass = importlib.util.module_from_spec(spec)
sys.modules["sass_budget"] = sass
spec.loader.exec_module(sass)
sys.path.insert(0, str(ROOT / "test" / "python"))

WARPS, PIECES = 4, 4  # of a block; turns of a loop over a chunk's pieces (lib/Target/CUDA/AttentionTiles.cpp)
KEYS = {"sm_90": 32, "sm_90a": 64}  # of a chunk
MULTIPLIES = {"HMMA": 2048 / (0.62 * 2048), "HGMMA": 64 * 64 * 16 / 2048}  # clocks: 16 x 8 x 16 of a warp, 64 x 64 x 16 of four


def shared_bytes(op: str) -> float:
    """Of shared memory, a warp's instruction."""
    if op.startswith("HGMMA"):
        return 64 * 16 * 2 / WARPS
    if op.startswith("LDSM"):
        return 128 * int(op.rsplit(".", 1)[1]) if op[-1].isdigit() else 128
    if not op.startswith(("LDS", "STS", "LDGSTS")):
        return 0
    return 32 * next((n for mark, n in ((".128", 16), (".64", 8)) if mark in op), 4)


def loops_of(code) -> list[tuple[int, int]]:
    return [(int(m[1], 16), c.address) for c in code
            if c.op.startswith("BRA") and (m := re.search(r"0x([0-9a-f]+)", c.text)) and int(m[1], 16) < c.address]


def count(code, keys: int) -> dict[str, float]:
    """Clocks by pipe and instructions by name of 64 x 64 scores, both passes. A loop over chunks has products in it; the loop over tiles has all
    of these, and a loop over pieces has none."""
    loops = loops_of(code)
    products = lambda low, high: any(low <= c.address <= high and c.op.startswith(("HMMA", "HGMMA")) for c in code)  # noqa: E731
    multiplying = [l for l in loops if products(*l)]
    chunks = [l for l in multiplying if not any(o != l and l[0] <= o[0] and o[1] <= l[1] for o in multiplying)]
    if len(chunks) != 2:
        raise SystemExit(f"expected two loops over chunks, got {len(chunks)}")
    found = dict.fromkeys(("issue", "tensor", "alu", "fma", "mul", "xu", "lsu", "instructions", "HMMA", "HGMMA", "LDS", "STS", "LDSM", "LDGSTS", "BAR"), 0.0)
    lanes = sass.DEVICES["H200"].rates()
    for low, high in chunks:
        for c in code:
            if not low <= c.address <= high:
                continue
            if c.guarded and c.text.startswith("RZ, [RZ]"):  # never executed
                found["issue"] += 1
                continue
            inside = any(low <= a <= c.address <= b <= high for a, b in loops if (a, b) not in multiplying)
            turns = (PIECES if inside else 1) * 64 / keys
            name, pipe = c.op.split(".")[0], c.pipe()
            found["instructions"] += turns
            if name in found:
                found[name] += turns
            found["issue"] += turns
            if name in MULTIPLIES:
                found["tensor"] += turns * MULTIPLIES[name] * (WARPS if name == "HMMA" else 1)
            if shared := shared_bytes(c.op):
                found["lsu"] += turns * WARPS * shared / 128
            elif name not in MULTIPLIES and pipe in lanes and pipe != "issue":
                found[pipe] += turns * WARPS * 32 / lanes[pipe]
                if pipe == "mul":
                    found["fma"] += turns * WARPS * 32 / lanes["fma"]
    return found


def main() -> int:
    parse = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parse.add_argument("--depth", type=int, nargs="+", default=[64, 128])
    parse.add_argument("--policy", default="amp-bf16")
    parse.add_argument("--dropout", type=float, default=0.1)
    parse.add_argument("--mask", default="causal")
    a = parse.parse_args()
    if missing := sass.missing_tools():
        raise SystemExit(missing)
    from test_attention_tiles import compile_model
    columns = ("HMMA", "HGMMA", "LDSM", "LDS", "STS", "LDGSTS", "BAR", "instructions", "tensor", "lsu", "alu", "mul", "xu", "issue")
    print("| depth | code | registers | KiB shared | " + " | ".join(columns) + " |\n|" + "---|" * (len(columns) + 4))
    for depth in a.depth:
        with tempfile.TemporaryDirectory() as scratch:
            texts = compile_model(pathlib.Path(scratch), a.policy, "sm_90,sm_90a", mask=a.mask, depth=depth, dropout=a.dropout, heads=2, key_heads=2 if a.dropout else 1)
            for arch, text in texts.items():
                path = pathlib.Path(scratch, f"{arch}.ptx")
                path.write_text(text)
                names = [n for n in re.findall(r"\.entry (\w+)\(", text) if "tiles_forward" in n and (("drop" in n) == (a.dropout > 0))]
                kernel = sass.Kernel(names[0], "attention-tiles", "", 128, 1, [], 0)
                sass.disassemble([kernel], path, arch)
                found = count(kernel.code, KEYS[arch])
                print(f"| {depth} | {arch} | {kernel.registers} | {kernel.shared / 1024:g} | " + " | ".join(f"{found[c]:.0f}" for c in columns) + f" | {'spills' if kernel.spilled else ''}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
