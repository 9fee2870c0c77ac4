# SPDX-License-Identifier: Apache-2.0
"""Blocks of every distinct kernel of steps of ResNet-50, BERT and GPT-2, interpreted at full widths and batches: no race, no barrier that threads miss, no
access outside of an argument or unaligned. test_ptx_machine.py runs whole steps, but of models so small that the compiler chooses other schedules.

A kernel runs its first block, the middle one with the one behind it, and the last. The first and the last have the edges of a tensor and the largest
addresses, the middle one the usual path; two neighbours show whether blocks write each other's bytes. To save time, the middle ones are left out where
the last takes more than LONG instructions, or where only extents tell a kernel from one that ran; where both hold, or the last takes more than VERY_LONG,
it runs alone. Kernels of equal text and extents are run once, whatever models and policies they are of. Buffers have pseudo-random content. An argument that
may be written in place is.

Left out by schedule, SKIPPED: the two kernels of a scatter that follow its lists of links, which the kernels before them make in scratch; random lists
lead outside. Labels that a loss ignores, negative indices and the loops of matrices (libraries' kernels) do not occur. A bundle updates many tensors at
once, each with blocks of its own: only the blocks named above run.

In two policies elements that the blocks have written are compared with the kernel's fusion (kernel_meaning.py), but for sums that several blocks or
launches make together, pooling and scatters.
"""
import dataclasses
import math
import os
import re

import kernel_meaning
import numpy as np
import ptx_launch
import ptx_machine
import ptx_text
import pytest
from mpt_run import tool
from ptx_sparse import TYPES, Buffer, SparseMemory
from test_gpu_models import BATCH, models, table  # noqa: F401 - models is a fixture

pytestmark = pytest.mark.slow

ARCH = "sm_90"
POLICIES = ["fp32", "amp-bf16", "autocast-cuda-bf16", "amp-f16", "fp8-hybrid", "als-f16"]  # of benchmarks/gpu/pack.py
SKIPPED = {"scatter-sums", "scatter-joins"}
LONG, VERY_LONG = 800, 5000  # instructions of a block
COMPARED = ["amp-bf16", "fp8-hybrid"]  # policies whose values are compared with the fusions
POINTS = 24  # elements of a result that are compared


@dataclasses.dataclass(frozen=True)
class Launch:
    """A kernel's launch, read from its text in MLIR."""
    schedule: str
    ops: str
    grid: tuple[int, ...]
    block: tuple[int, ...]
    buffers: tuple[Buffer, ...]
    in_place: tuple[tuple[int, int], ...]  # pairs of arguments, each in one pair at most

    def turns(self) -> list[list[int]]:
        """The last block, the first, the middle ones."""
        count = math.prod(self.grid)
        return [[count - 1], [0][:count - 1], sorted({count // 2, min(count // 2 + 1, count - 1)} - {0, count - 1})]


def buffer_of(memref: str) -> Buffer:
    """From the first element to the last."""
    shape, element = re.match(r"memref<((?:\d+x)*)(\w+)", memref).groups()
    extents = [int(extent) for extent in shape.split("x")[:-1]]
    strides = re.search(r"strided<\[([\d, ]*)\]", memref)
    steps = [int(n) for n in strides[1].split(",")] if strides else [math.prod(extents[i + 1:]) for i in range(len(extents))]
    return Buffer((1 + sum((extent - 1) * step for extent, step in zip(extents, steps))) * TYPES[element].itemsize, element)


def pairs_of(numbers, buffers) -> tuple[tuple[int, int], ...]:
    """The first pairs of a list of arguments that may share a buffer, as far as one list allows them at once."""
    found, used = [], set()
    for first, second in zip(numbers[::2], numbers[1::2]):
        if not used & {first, second} and buffers[first] == buffers[second]:
            found.append((first, second))
            used |= {first, second}
    return tuple(found)


def launch_of(piece: str) -> Launch:
    arguments, attributes = re.search(r"@KERNEL\((.*?)\) attributes \{(.*)\} \{$", piece, re.M).groups()
    numbers = lambda key: tuple(map(int, re.findall(r"\d+", (re.search(rf"mpt\.{key} = array<i64(.*?)>", attributes) or ["", ""])[1])))  # noqa: E731
    word = lambda key: (re.search(rf'mpt\.{key} = "([^"]*)"', attributes) or ["", ""])[1]  # noqa: E731
    buffers = tuple(buffer_of(m) for m in re.findall(r"memref<(?:[^<>]|<[^<>]*>)*>", arguments))
    return Launch(word("schedule"), word("ops"), numbers("grid"), numbers("block"), buffers, pairs_of(numbers("in_place"), buffers))


def index_range(module: str) -> tuple[int, int]:
    """Of the indices that a step takes, the range that suits every one; an index that is ignored lies apart."""
    ranges = re.findall(r"ranges = \[(?:.*?, )?(-?\d+), (-?\d+)\]", module)
    return max(int(low) for low, _ in ranges), min(int(high) for _, high in ranges)


def form_of(piece: str) -> str:
    """A kernel's text without extents, but with its block."""
    block = re.search(r"mpt\.block = array<[^>]*>", piece)[0]
    return block + re.sub(r"\d+", "N", re.sub(r"(?<=[<x])(?:\d+x)+", "", re.sub(r"mpt\.\w+ = array<[^>]*>", "", piece)))


def problem_of(kernel, launch: Launch, indices, again=False, check=lambda memory: "") -> str:
    """The blocks' first fault, or nothing. `again`: after a kernel of the same form. `check` looks at the memory that they leave."""
    memory, left = SparseMemory(launch.buffers, kernel.tables, indices, launch.in_place), 2 if again else 3
    try:
        memory.begin()
        for turn, numbers in enumerate(launch.turns()):
            executed = sum(ptx_launch.execute(kernel, memory, memory.addresses, launch.grid, launch.block, number) for number in numbers)
            if turn == 0:
                left -= (executed > LONG) + (executed > VERY_LONG)
            if turn + 1 >= left:
                break
    except (ptx_machine.Fault, ptx_machine.Unknown) as problem:
        return f"{type(problem).__name__}: {problem}"
    return check(memory)


@dataclasses.dataclass
class Values:
    """Compares elements that blocks have written with the meaning of their kernels, and lists the results that it could not."""
    kernels: dict
    compared: int = 0  # finite ones
    left_out: list = dataclasses.field(default_factory=list)

    def check(self, name: str, code: str):
        """For problem_of(). Sums of several launches or blocks are not whole after a few blocks."""
        kernel = self.kernels.get(name)
        if kernel is None or re.search(r"\b(atom|red)\.", code):
            self.left_out.append(f"{name}: blocks share its results")
            return lambda memory: ""
        return lambda memory: self.problem(name, kernel, memory)

    def problem(self, name, kernel, memory) -> str:
        for output, argument in enumerate(kernel.outputs):
            places, values = memory.written(argument)
            chosen = np.unique(np.linspace(0, len(places) - 1, min(POINTS, len(places))).astype(np.int64))
            try:
                if text := kernel_meaning.difference(kernel, output, places[chosen], values[chosen], memory.first):
                    return text
                self.compared += int(np.isfinite(values[chosen].astype(np.float64)).sum())
            except kernel_meaning.Unknown as unknown:
                self.left_out.append(f"{name}, result {output}: {unknown}")
        return ""


def emitted(pieces, folder) -> list:
    """The interpreter's kernels of texts in MLIR, in their order."""
    module, ptx = folder / "k.mlir", folder / "k.ptx"
    module.write_text(table.corpus.module_of(pieces))
    table.budget.call(tool().with_name("mpt-opt"), module, f"--lowering-emit-ptx=arch={ARCH} file={ptx}", "-o", os.devnull)
    kernels = ptx_text.parse(ptx.read_text())
    return [kernels[f"k{number}"] for number in range(len(pieces))]


def meanings(model, policy, launched, folder) -> Values:
    """Of a step's kernels that are one launch each."""
    opt = tool().with_name("mpt-opt")
    table.lower(opt, model, policy, ARCH, folder / "buffers.mlir", phase="buffers")
    table.budget.call(opt, folder / "buffers.mlir", "--mlir-print-op-generic", "-o", folder / "generic.mlir")
    found = kernel_meaning.declared((folder / "generic.mlir").read_text())
    return Values({own: kernel for own, kernel in found.items() if f"{own}_1" not in launched})


@pytest.fixture(scope="module")
def known():
    """Texts that have been run, and their forms."""
    return set()


@pytest.mark.parametrize("policy", POLICIES)
@pytest.mark.parametrize("name", list(BATCH))
def test_blocks_hold(models, known, tmp_path, name, policy):  # noqa: F811
    pytest.importorskip("torch")
    module = tmp_path / "m.mlir"
    table.lower(tool().with_name("mpt-opt"), f"{models(name)}:batch={BATCH[name]}", policy, ARCH, module)
    text, new, wrong = module.read_text(), [], []
    kernels = table.corpus.named_kernels(text)
    assert len(kernels) >= 35  # of one text each
    values = meanings(f"{models(name)}:batch={BATCH[name]}", policy, {own for own, _ in kernels}, tmp_path) if policy in COMPARED else Values({})
    for own, piece in kernels:
        launch = launch_of(piece)
        if launch.schedule not in SKIPPED and table.corpus.key_of(piece) not in known:
            form = form_of(piece)
            new.append((own, piece, launch, form in known))
            known.update((table.corpus.key_of(piece), form))
    for (own, _, launch, again), kernel in zip(new, emitted([piece for _, piece, _, _ in new], tmp_path)):
        assert len(kernel.parameters) == len(launch.buffers)
        if launch.schedule == "scatter-links":  # the slowest, and the same for all types of elements: it touches only indices and scratch
            code = f"{launch.grid} {kernel.code}"
            if code in known:
                continue
            known.add(code)
        if problem := problem_of(kernel, launch, index_range(text), again, values.check(own, str(kernel.code))):
            wrong.append(f"{name}, {policy}: {own}, {launch.schedule} ({launch.ops}), grid {launch.grid} of {launch.block}: {problem}")
    assert not wrong, "\n".join(wrong)
    assert policy not in COMPARED or values.compared >= 500, values.left_out


RELU = """func.func private @kernel0(%a: memref<64x1000xbf16>, %b: memref<64x1000xf32>, %c: memref<64xf32>) attributes {mpt.kernel, mpt.ops = "relu"} {
  %t = bufferization.to_tensor %a restrict : memref<64x1000xbf16> to tensor<64x1000xbf16>
  %r:2 = mpt.fusion(%t) : (tensor<64x1000xbf16>) -> (tensor<64x1000xf32>, tensor<64xf32>) {
  ^bb0(%x: tensor<64x1000xbf16>):
    %w = mpt.cast %x : tensor<64x1000xbf16> to tensor<64x1000xf32>
    %0 = mpt.relu %w : tensor<64x1000xf32>
    %1 = mpt.reduce sum %0 {axes = array<i64: 1>} : (tensor<64x1000xf32>) -> tensor<64xf32>
    mpt.yield %0, %1 : tensor<64x1000xf32>, tensor<64xf32>
  }
  bufferization.materialize_in_destination %r#0 in restrict writable %b : (tensor<64x1000xf32>, memref<64x1000xf32>) -> ()
  bufferization.materialize_in_destination %r#1 in restrict writable %c : (tensor<64xf32>, memref<64xf32>) -> ()
  return
}
"""


@pytest.mark.parametrize("change, by, found", [
    ("", "", ""), ("mpt.relu %w", "mpt.abs %w", "elements of result 0"), ("mpt.relu %w", "mpt.neg %w", "elements of result 0"),
    ("reduce sum", "reduce mean", "elements of result 1")])
def test_wrong_values_are_found(tmp_path, change, by, found):
    opt = tool().with_name("mpt-opt")
    for name, text in (("right", RELU), ("other", RELU.replace(change, by))):
        (tmp_path / name).write_text(text)
    table.budget.call(opt, tmp_path / "right", f"--lowering-emit-kernels=target=cuda flags=--arch={ARCH}", "-o", tmp_path / "m.mlir")
    table.budget.call(opt, tmp_path / "other", "--mlir-print-op-generic", "-o", tmp_path / "g.mlir")
    (own, piece), = table.corpus.named_kernels((tmp_path / "m.mlir").read_text())
    kernel, = emitted([piece], tmp_path)
    values = Values(kernel_meaning.declared((tmp_path / "g.mlir").read_text()))
    problem = problem_of(kernel, launch_of(piece), (0, 9), check=values.check(own, str(kernel.code)))
    assert found in problem if found else problem == "" and values.compared > POINTS, (problem, values.left_out)


# Two teams of 64 threads of a block, one column each: every thread's sum goes to shared memory, where the first warp of each team adds the second's.
TEAMS = """.version 7.8
.target sm_90
.address_size 64

.visible .entry teams(
	.param .u64 .ptr .align 1 teams_param_0,
	.param .u64 .ptr .align 1 teams_param_1
)
{
	.reg .pred 	%p<2>;
	.shared .align 16 .b8 sums[512];
	ld.param.b64 	%rd1, [teams_param_0];
	ld.param.b64 	%rd2, [teams_param_1];
	mov.u32 	%r1, %tid.x;
	mov.u32 	%r2, %ctaid.x;
	mad.lo.s32 	%r3, %r2, 128, %r1;
	mul.wide.u32 	%rd3, %r3, 4;
	add.s64 	%rd4, %rd1, %rd3;
	ld.global.b32 	%r4, [%rd4];
	and.b32 	%r5, %r1, 127;
	mul.wide.u32 	%rd5, %r5, 4;
	mov.b64 	%rd6, sums;
	add.s64 	%rd7, %rd6, %rd5;
	st.shared.b32 	[%rd7], %r4;
	bar.sync 	0;
	and.b32 	%r6, %r1, 32;
	setp.ne.u32 	%p1, %r6, 0;
	@%p1 ret;
	ld.shared.b32 	%r7, [%rd7+128];
	add.rn.f32 	%r8, %r4, %r7;
	add.s64 	%rd8, %rd2, %rd3;
	st.global.b32 	[%rd8], %r8;
	ret;
}
"""
COUNT = 1 << 30  # elements: 4 GiB


def run_teams(text=TEAMS, buffers=(Buffer(4 * COUNT, "f32"),) * 2, in_place=()) -> str:
    kernel, = ptx_text.parse(text).values()
    return problem_of(kernel, Launch("columns-sum", "reduce", (COUNT // 128, 1, 1), (128, 1, 1), buffers, in_place), (0, 9))


def test_teams_with_shared_memory_of_their_own_hold():
    assert run_teams() == "" and run_teams(in_place=((0, 1),)) == ""
    generic = TEAMS.replace("st.shared.b32", "st.b32").replace("ld.shared.b32", "ld.b32").replace("st.global.b32", "st.b32")
    assert generic.count("st.b32") == 2 and run_teams(generic) == ""


@pytest.mark.parametrize("change, by, found", [
    # The compiler's fault of old: teams of two warps shared one team's bytes.
    ("and.b32 \t%r5, %r1, 127;", "and.b32 \t%r5, %r1, 63;", "a race in shared memory"),
    ("st.shared.b32", "st.b32", ""), ("bar.sync \t0;", "", "a race in shared memory"),
    ("ld.global.b32 \t%r4, [%rd4];", "ld.global.b32 \t%r4, [%rd4+4];", f"4 bytes at {4 * COUNT} of the {4 * COUNT} of argument 0, by 1 threads"),
    ("ld.global.b32 \t%r4, [%rd4];", "ld.global.b32 \t%r4, [%rd4+-4];", "4 bytes at -4"),
    ("st.global.b32 \t[%rd8], %r8;", "st.global.b32 \t[%rd8+132], %r8;", f"4 bytes at {4 * COUNT} of the {4 * COUNT} of argument 1, by 1 threads"),
    ("st.global.b32 \t[%rd8], %r8;", "st.b32 \t[%rd8+2], %r8;", "not aligned"),
    ("st.global.b32 \t[%rd8], %r8;", "mad.lo.s32 \t%r9, %r2, 64, %r1;\n\tmul.wide.u32 \t%rd9, %r9, 4;\n\tadd.s64 \t%rd8, %rd2, %rd9;\n\t"
     "st.global.b32 \t[%rd8], %r8;", "a race in global memory")])
def test_what_is_planted_is_found(change, by, found):
    assert TEAMS.count(change) == 1
    problem = run_teams(TEAMS.replace(change, by))
    assert re.search(found, problem) if found else problem == ""


def test_a_buffer_that_is_one_element_short():
    for number in range(2):
        buffers = [Buffer(4 * COUNT, "f32")] * 2
        buffers[number] = Buffer(4 * COUNT - 4, "f32")
        # The last 32 threads write nothing, so the second buffer may lack theirs.
        assert ("argument 0" in run_teams(buffers=tuple(buffers))) == (number == 0)
