#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Counts the machine instructions of a program's kernels beside their bytes: sass-budget.py MODEL [--policy P] [--loss L] [--bind N=4] [--arch sm_90]

MODEL is an ONNX graph, or a module of kernels in MLIR (as --to=memory --emit=mlir writes it). Each kernel is assembled and
disassembled (ptxas, cuobjdump, nvdisasm). A line a kernel: instructions an element by pipe, the time that its pipes and its
bytes take, registers, blocks a multiprocessor, waves. --limit R ends with status 1 where a kernel of at least --from bytes needs more than R times
the time of its bytes. The method is in docs/results/gpu-code.md.
"""
from __future__ import annotations

import argparse
import dataclasses
import math
import os
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile

ROOT = pathlib.Path(__file__).resolve().parent.parent

REGISTERS, THREADS, BLOCKS = 65536, 2048, 32  # of a multiprocessor


@dataclasses.dataclass(frozen=True)
class Device:
    """Clock and memory by NVIDIA's data sheets. Lanes that a multiprocessor serves in a clock by the CUDA C++ Programming Guide
    (table "Throughput of Native Arithmetic Instructions"); "issue" is four schedulers of one warp each."""
    bytes_a_second: float
    multiprocessors: int = 132
    clock: float = 1.755e9
    shared: int = 228 << 10
    fma: int = 128
    fp64: int = 64

    def rates(self) -> dict[str, int]:
        return {"issue": 128, "fma": self.fma, "mul": 64, "alu": 64, "fp64": self.fp64, "xu": 16, "lsu": 32}


DEVICES = {"A100": Device(2.039e12, 108, 1.41e9, 164 << 10, fma=64, fp64=32), "H100": Device(3.35e12), "H200": Device(4.8e12),
           "B200": Device(8e12, 148, 1.965e9)}
USUAL = {"sm_80": "A100", "sm_90": "H200", "sm_100": "B200"}
PIPES = tuple(DEVICES["H200"].rates())
CONTROL = ("BRA", "EXIT", "BAR", "BSSY", "BSYNC", "WARPSYNC", "NOP", "CALL", "RET", "BREAK", "DEPBAR", "YIELD", "R2UR", "S2R", "S2UR", "CS2R", "LDC", "U")
ADDRESS = ("IMAD", "IADD", "LEA", "MOV", "UMOV", "R2UR", "UIADD", "ULEA", "SEL", "LDC", "ULDC", "UIMAD", "VIADD")
PARAMETERS = {"sm_80": 0x160, "sm_90": 0x210, "sm_100": 0x380}


@dataclasses.dataclass
class Instruction:
    address: int
    op: str
    text: str
    guarded: bool = False

    def pipe(self) -> str:
        name = self.op.split(".")[0]
        if name in ("MUFU", "FRND", "F2I", "I2F", "POPC", "FLO") or (name == "F2F" and "64" in self.op):
            return "xu"
        if name in ("DADD", "DMUL", "DFMA", "DSETP", "DMNMX"):
            return "fp64"
        if name in ("FFMA", "FADD", "FMUL", "FFMA2", "FADD2", "FMUL2", "HFMA2", "HADD2", "HMUL2"):
            return "fma"
        if name == "IMAD":
            return "mul"
        if name in ("LDG", "STG", "LDS", "STS", "SHFL", "LDL", "STL", "LDSM", "ATOMS"):
            return "lsu"
        return "issue" if name.startswith(CONTROL) else "alu"

    def bytes(self) -> int:
        """Of one thread's access to global memory."""
        if not self.op.startswith(("LDG", "STG")):
            return 0
        return next((n for mark, n in ((".128", 16), (".64", 8), ("16", 2), ("U8", 1), ("S8", 1)) if mark in self.op), 4)


@dataclasses.dataclass
class Kernel:
    name: str
    schedule: str
    ops: str
    threads: int
    blocks: int
    arguments: list[int]  # bytes
    elements: int
    code: list[Instruction] = dataclasses.field(default_factory=list)
    registers: int = 0
    shared: int = 0
    spilled: int = 0


def bytes_of(memref: str) -> tuple[int, int]:
    """Elements and bytes of a memref's type."""
    shape, element = re.match(r"memref<((?:\d+x)*)([\w]+)", memref).groups()
    count = 1
    for extent in shape.split("x")[:-1]:
        count *= int(extent)
    bits = re.search(r"\d+", element)  # none in index
    return count, count * max(1, int(bits[0] if bits else 64) // 8)


def kernels_of(text: str) -> list[Kernel]:
    found = []
    for name, arguments, attributes in re.findall(r"^  func\.func private @(\w+)\((.*?)\) attributes \{(.*)\} \{$", text, re.M):
        if "mpt.grid" not in attributes:
            continue
        sizes = [bytes_of(m) for m in re.findall(r"memref<[^>]*?>", arguments)]
        extents = {key: [int(n) for n in re.search(rf"mpt\.{key} = array<i64: ([\d, ]+)>", attributes)[1].split(",")] for key in ("grid", "block")}
        word = lambda key: (re.search(rf'mpt\.{key} = "([^"]*)"', attributes) or [0, ""])[1]
        found.append(Kernel(name, word("schedule"), word("ops"), extents["block"][0], extents["grid"][0] * extents["grid"][1] * extents["grid"][2],
                            [b for _, b in sizes], (sum if word("schedule").startswith("bundle") else max)([n for n, _ in sizes] or [1])))
    return found


def tool(name: str) -> str:
    wheels = [str(p) for prefix in (sys.prefix, ROOT / ".venv") for p in pathlib.Path(prefix).glob("lib/python3*/site-packages/nvidia/*/bin")]
    places = os.pathsep.join(["/usr/local/cuda/bin", *wheels])
    return shutil.which(name) or shutil.which(name, path=places) or ""


def call(*command, **options) -> str:
    done = subprocess.run([str(word) for word in command], capture_output=True, text=True, **options)
    if done.returncode:
        raise SystemExit(f"{command[0]}: {(done.stderr or done.stdout)[-2000:]}")
    return done.stdout + done.stderr


def disassemble(kernels: list[Kernel], ptx: pathlib.Path, arch: str) -> None:
    cubin = ptx.with_suffix(".cubin")
    for _ in range(2):
        log = call(tool("ptxas"), "-v", f"-arch={arch}", ptx, "-o", cubin)
        # As the compiler does (lib/Target/CUDA/Images.cpp): kernels that spill may have more registers.
        spilling = re.findall(r"Function properties for (\w+)\n *\d+ bytes stack frame, (?!0 bytes spill stores, 0 bytes)", log)
        if not spilling:
            break
        text = ptx.read_text()
        for name in spilling:
            text = re.sub(rf"(\.entry {name}\([^{{]*?)(\n\.minnctapersm \d+)?\n{{", r"\1\n.minnctapersm 1\n{", text, count=1)
        ptx.write_text(text)
    own, current = {k.name: k for k in kernels}, None
    for line in log.splitlines():
        if entry := re.search(r"Compiling entry function '(\w+)'", line):
            current = own.get(entry[1])
        if current and (used := re.search(r"Used (\d+) registers", line)):
            current.registers = int(used[1])
            current.shared = int((re.search(r"(\d+) bytes smem", line) or [0, 0])[1])
        if current and (spill := re.search(r"(\d+) bytes spill stores, (\d+) bytes spill loads", line)):
            current.spilled = int(spill[1]) + int(spill[2])
    environment = dict(os.environ, NVDISASM_PATH=tool("nvdisasm"), PATH=os.path.dirname(tool("nvdisasm")) + os.pathsep + os.environ["PATH"])
    for line in call(tool("cuobjdump"), "-sass", cubin, env=environment).splitlines():
        if entry := re.search(r"Function : (\w+)", line):
            current = own.get(entry[1])
        elif current and (code := re.match(r"\s+/\*([0-9a-f]{4,})\*/\s+(@!?U?P\w+\s+)?([A-Z][\w.]*)\s*(.*?);", line)):
            current.code.append(Instruction(int(code[1], 16), code[3], code[4], bool(code[2])))


def read_registers(text: str, source: dict[str, set[int]]) -> set[int]:
    """The arguments that the registers in `text` were computed from."""
    return set().union(*(source.get(register, set()) for register in re.findall(r"(?<!\w)U?R\d+", text)))


def read_arguments(text: str, base: int, count: int) -> set[int]:
    """The arguments that `text` reads from the constant bank, 8 bytes each from `base`."""
    offsets = (int(offset, 16) - base for offset in re.findall(r"c\[0x0\]\[(?:U?R\d+\+)?0x([0-9a-f]+)\]", text))
    return {offset // 8 for offset in offsets if 0 <= offset < 8 * count}


def label_accesses(kernel: Kernel, arch: str) -> dict[int, int]:
    """The argument that each access to global memory goes to, by the instruction's address: where its address was computed from."""
    base, source, found = PARAMETERS[arch], {}, {}
    for _ in range(2):  # once more for values that loops carry
        for code in kernel.code:
            place = re.search(r"\[R[^\]]*", code.text)
            if code.bytes() and place and (known := read_registers(place[0], source)):
                found[code.address] = min(known)
            target = re.match(r"(?:P\w+, )?(U?R)(\d+)", code.text)
            if not target or code.op.startswith(("STG", "STS")):
                continue
            known = set()
            if code.op.startswith(ADDRESS):
                operands = code.text[target.end():]
                known = read_registers(operands, source) | read_arguments(code.text, base, len(kernel.arguments))
            wide = 4 if ".128" in code.op else 2 if ".64" in code.op or "WIDE" in code.op else 1
            for i in range(wide):
                source[f"{target[1]}{int(target[2]) + i}"] = known
    return found


@dataclasses.dataclass
class Counts:
    pipes: dict[str, float]
    bytes: float
    calls: int  # of subroutines inside loops or straight code, such as the slow path of a division

    def clocks(self, device: Device) -> tuple[float, str]:
        """Of one multiprocessor for a thread's lane, and the pipe that takes longest."""
        rates = device.rates()
        return max((n / rates[pipe], pipe) for pipe, n in self.pipes.items())


def add(pipes: dict[str, float], body: list[Instruction], turns: float) -> None:
    for c in body:
        pipes["issue"] += turns
        if c.bytes():
            pipes["lsu"] += turns * max(1, c.bytes() / 4)  # 128 bytes a clock
        elif c.pipe() != "issue":
            pipes[c.pipe()] += turns
            pipes["fma"] += turns * (c.pipe() == "mul")


def count_bundle(kernel: Kernel) -> Counts:
    """A tree of branches, of which a thread takes one: instructions a byte are counted in pieces between jumps that access memory."""
    pieces: list[list[Instruction]] = [[]]
    for c in kernel.code:
        pieces[-1].append(c)
        if c.op.startswith(("BRA", "EXIT", "RET")) and not c.guarded:
            pieces.append([])
    working = [piece for piece in pieces if sum(c.bytes() for c in piece) >= 8]
    pipes = dict.fromkeys(PIPES, 0.0)
    for piece in working:
        add(pipes, piece, 1)
    # The second launch of sums reads the partial sums that the first left in scratch.
    accessed, moved = sum(c.bytes() for piece in working for c in piece), kernel.arguments[-1] if kernel.schedule == "bundle-sum" else sum(kernel.arguments)
    share = moved / accessed / (kernel.threads * kernel.blocks) if accessed else 0
    return Counts({pipe: n * share for pipe, n in pipes.items()}, moved if accessed else 0, sum(c.op.startswith("CALL") for c in kernel.code))


def shares(kernel: Kernel, pieces: list[list[Instruction]], argument: dict[int, int]) -> list[float]:
    """The share of all threads that run each piece of straight code, at most. Nothing is written twice: a piece that writes n bytes of an argument is
    run by as many threads as the argument has n bytes. Behind a predicated EXIT, this holds for all code up to the last piece that writes."""
    def of(piece: list[Instruction]) -> float | None:
        written: dict[int, int] = {}
        for c in piece:
            if c.op.startswith("STG") and (number := argument.get(c.address)) is not None:
                written[number] = written.get(number, 0) + c.bytes()
        return min((kernel.arguments[number] / n / (kernel.threads * kernel.blocks) for number, n in written.items()), default=None)

    jumps = [(c.address, int(m[1], 16)) for piece in pieces for c in piece if c.op.startswith("BRA") and (m := re.search(r"0x([0-9a-f]+)", c.text))]
    found, most = [1.0] * len(pieces), None
    for i in reversed(range(len(pieces))):
        last = pieces[i][-1] if pieces[i] else None
        if last and last.op.startswith("EXIT") and not last.guarded:
            most = None
        own = of(pieces[i])
        most = own if most is None else max(most, own or 0)
        exits = [p[-1].address for p in pieces[:i] if p and p[-1].op.startswith("EXIT") and p[-1].guarded]
        if most is not None and any(not any(start < e < end for start, end in jumps) for e in exits):
            found[i] = min(1.0, most)
    return found


def count(kernel: Kernel, arch: str) -> Counts:
    """Instructions of a thread by pipe, and the bytes that the launch moves: loops run as often as the arguments that they walk are long."""
    if kernel.schedule.startswith("bundle"):
        return count_bundle(kernel)
    threads = kernel.threads * kernel.blocks
    argument = label_accesses(kernel, arch)
    called = [int(m[1], 16) for c in kernel.code if c.op.startswith("CALL") and (m := re.search(r"0x([0-9a-f]+)", c.text))]
    code = [c for c in kernel.code if c.address < min(called, default=1 << 40) and c.op != "NOP"]
    loops = []
    for c in code:
        if c.op.startswith("BRA") and (m := re.search(r"0x([0-9a-f]+)", c.text)) and int(m[1], 16) < c.address:
            loops.append((int(m[1], 16), c.address))
    inner = [l for l in loops if not any(o != l and l[0] <= o[0] and o[1] <= l[1] for o in loops)]
    large = max(kernel.arguments, default=1) / 16

    def walked(part: list[Instruction]) -> dict[tuple[int, str], int]:
        """Bytes that one run of `part` reads and writes of each long argument."""
        found: dict[tuple[int, str], int] = {}
        for c in part:
            number = argument.get(c.address)
            if c.bytes() and number is not None and kernel.arguments[number] >= large:
                key = (number, c.op[:3])
                found[key] = found.get(key, 0) + c.bytes()
        return found

    bodies = [[c for c in code if low <= c.address <= high] for low, high in inner]
    targets = {int(m[1], 16) for c in code if c.op.startswith(("BRA", "BSSY")) and (m := re.search(r"0x([0-9a-f]+)", c.text))}
    pieces: list[list[Instruction]] = [[]]  # of straight code, between branches and their targets
    for c in code:
        if not any(low <= c.address <= high for low, high in inner):
            if c.address in targets and pieces[-1]:
                pieces.append([])
            pieces[-1].append(c)
            if c.op.startswith(("BRA", "EXIT", "BSYNC")):
                pieces.append([])
    steps = [walked(body) for body in bodies]

    def is_rest(step: dict[tuple[int, str], int], others: list[dict[tuple[int, str], int]]) -> bool:
        """Whether another part walks the same arguments in larger steps, and this one the rest behind the last of them."""
        return any(other.keys() == step.keys() and sum(other.values()) >= 2 * sum(step.values()) for other in others)

    straight = [walked(piece) for piece in pieces]
    writing = [step for step in straight if any(op.startswith("ST") for _, op in step)]  # nothing is written twice
    behind = shares(kernel, pieces, argument)
    parts, moved = [], {}
    for piece, step, share in zip(pieces, straight, behind):
        # The loop is counted for the whole argument, and so for the rest of an unrolled one as well.
        if step and is_rest(step, steps + (writing if step in writing else [])):
            continue
        parts.append((piece, share))
        for key, n in step.items():
            moved[key] = min(kernel.arguments[key[0]], moved.get(key, 0) + n * threads)
    for body, step in zip(bodies, steps):
        if not step or is_rest(step, steps + writing):
            continue  # no walk of an argument, or the rest of an unrolled loop
        turns = max(kernel.arguments[number] / n / threads for (number, _), n in step.items())
        parts.append((body, turns))
        for key in step:
            moved[key] = kernel.arguments[key[0]]
    pipes = dict.fromkeys(PIPES, 0.0)
    for body, turns in parts:
        add(pipes, body, turns)
    return Counts(pipes, sum(moved.values()), len(called))


def occupancy(kernel: Kernel, device: Device) -> tuple[int, float]:
    """Blocks of a multiprocessor, and waves of the grid."""
    warps = -(-kernel.threads // 32)
    registers = -(-kernel.registers * 32 // 256) * 256 * warps
    blocks = min(BLOCKS, THREADS // (32 * warps), REGISTERS // max(1, registers), device.shared // max(1, kernel.shared + 1024))
    return blocks, kernel.blocks / (device.multiprocessors * max(1, blocks))


def ratio_of(kernel: Kernel, counts: Counts, device: Device) -> tuple[float, str]:
    """Time of the busiest pipe over the time of the bytes, and which pipe that is."""
    clocks, pipe = counts.clocks(device)
    seconds = clocks * kernel.threads * kernel.blocks / device.multiprocessors / device.clock
    return (seconds * device.bytes_a_second / counts.bytes if counts.bytes else 0.0), pipe


def seconds_of(kernel: Kernel, counts: Counts, device: Device) -> tuple[float, float]:
    """Of a kernel, whose pipes wait for a last wave that is not full, and of its bytes alone."""
    _, waves = occupancy(kernel, device)
    moving = counts.bytes / device.bytes_a_second
    return max(ratio_of(kernel, counts, device)[0] * moving * math.ceil(waves) / waves, moving), moving


def full_of(waves: float) -> float:
    """The share of places that work, over all waves."""
    return waves / math.ceil(waves)


def describe(kernel: Kernel, counts: Counts, a) -> tuple[str, float]:
    per, device = kernel.threads * kernel.blocks / kernel.elements, device_of(a)
    ratio, pipe = ratio_of(kernel, counts, device)
    blocks, waves = occupancy(kernel, device)
    p = counts.pipes
    return (f"| {kernel.name} | {kernel.schedule} | {kernel.ops[:a.width]} | {counts.bytes / 1e6:.1f} | {counts.bytes / kernel.elements:.1f} | {p['issue'] * per:.1f} | "
            f"{p['alu'] * per:.1f} | {p['fma'] * per:.1f} | {p['xu'] * per:.1f} | {p['fp64'] * per:.1f} | {p['lsu'] * per:.1f} | {pipe} {ratio:.2f} | "
            f"{kernel.registers} | {blocks} x {kernel.threads} | {waves:.1f} ({full_of(waves):.2f}) | {counts.calls} |", ratio)


def device_of(a) -> Device:
    return DEVICES[a.device or USUAL[a.arch]]


def add_program_options(parse: argparse.ArgumentParser) -> None:
    """Options by which the program is compiled."""
    parse.add_argument("--policy", default="amp-bf16")
    parse.add_argument("--optimizer", default="adamw,lr=1e-3")
    parse.add_argument("--loss", help="where the graph ends in its predictions")
    parse.add_argument("--bind", action="append", default=[])
    parse.add_argument("--arch", default="sm_90", choices=sorted(PARAMETERS))
    parse.add_argument("--device", choices=sorted(DEVICES), help="whose memory and pipes are held against each other (A100, H200 or B200, by --arch)")
    parse.add_argument("--build", type=pathlib.Path, default=ROOT / "build" / "release")


def missing_tools() -> str:
    missing = [name for name in ("ptxas", "cuobjdump", "nvdisasm") if not tool(name)]
    return f"expected ptxas, cuobjdump and nvdisasm, got no {' and no '.join(missing)} (PyPI: nvidia-cuda-cuobjdump, nvidia-cuda-nvdisasm)" if missing else ""


def assembled(a, scratch: pathlib.Path) -> tuple[str, list[Kernel]]:
    """The program's module, and its kernels with their instructions."""
    opt, module, ptx = a.build / "bin" / "mpt-opt", a.model, scratch / "m.ptx"
    if a.model.suffix == ".onnx":
        module = scratch / "m.mlir"
        call(opt, a.model, f"--policy={a.policy}", f"--optimizer={a.optimizer}", "--target=cuda", f"--arch={a.arch}", "--to=memory", "--emit=mlir",
             "--quiet", *(f"--bind={b}" for b in a.bind), *([f"--loss={a.loss}"] if a.loss else []), "-o", module)
    text = module.read_text()
    kernels = kernels_of(text)
    call(opt, module, f"--lowering-emit-ptx=arch={a.arch} file={ptx}", "-o", os.devnull)
    disassemble(kernels, ptx, a.arch)
    return text, kernels


def main() -> int:
    parse = argparse.ArgumentParser()
    parse.add_argument("model", type=pathlib.Path)
    add_program_options(parse)
    parse.add_argument("--limit", type=float, help="time of the busiest pipe over the time of the bytes that no kernel may exceed")
    parse.add_argument("--from", type=float, default=4e6, dest="least", help="bytes from which a kernel is bound by memory")
    parse.add_argument("--top", type=int, default=20, help="lines: the kernels with the most bytes")
    parse.add_argument("--width", type=int, default=40, help="of the column of operations")
    a = parse.parse_args()
    if missing := missing_tools():
        print(missing)
        return 77
    with tempfile.TemporaryDirectory() as scratch:
        _, kernels = assembled(a, pathlib.Path(scratch))
    rows = sorted(((k, count(k, a.arch)) for k in kernels), key=lambda row: -row[1].bytes)
    print("| kernel | schedule | operations | MB | bytes an element | instructions | ALU | FMA | XU | FP64 | LSU | busiest pipe: time / bytes' | registers | "
          "blocks an SM | waves (full) | calls |\n" + "|---" * 16 + "|")
    over = 0
    for i, (kernel, counts) in enumerate(rows):
        text, ratio = describe(kernel, counts, a)
        bad = a.limit and counts.bytes >= a.least and ratio > a.limit
        over += bool(bad)
        if i < a.top or bad:
            print(text)
    if over:
        print(f"{over} kernels need more than {a.limit} of the time that their bytes take on {a.device or USUAL[a.arch]}")
    return 1 if over else 0


if __name__ == "__main__":
    sys.exit(main())
