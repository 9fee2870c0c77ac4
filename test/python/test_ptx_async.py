# SPDX-License-Identifier: Apache-2.0
"""The interpreter's copies (`cp.async`) and products of warpgroups (`wgmma`): a GEMM of one tile in each form of operands, and errors
that must be found: every wait, fence and barrier that is left out, and every wrong descriptor, is found or makes a wrong result."""
import re

import numpy as np
import ptx_launch
import ptx_machine
import ptx_memory
import ptx_text
import pytest
from mpt_run import ptxas
from ptx_numbers import to_bf16

A, B, OUT = 0x10000, 0x20000, 0x30000
SUMS = ", ".join(f"%r{100 + i}" for i in range(32))
# Bits of a descriptor: the swizzle, the strides between groups of eight lines and along the leading dimension, in 16 bytes.
SWIZZLE_128 = 1 << 62 | 64 << 32 | 1 << 16


def tile(name, parameter, register):
    """Copies 64 lines of 128 bytes under the 128-byte swizzle: 512 units, four a thread."""
    text = f"ld.param.b64 %rd{register}, [gemm_param_{parameter}];\ncvta.to.global.u64 %rd{register}, %rd{register};\n"
    for i in range(4):
        text += f"""add.u32 %r10, %r1, {128 * i};
shr.u32 %r11, %r10, 3;
and.b32 %r12, %r10, 7;
and.b32 %r13, %r11, 7;
xor.b32 %r12, %r12, %r13;
shl.b32 %r11, %r11, 7;
shl.b32 %r12, %r12, 4;
add.u32 %r11, %r11, %r12;
cvt.u64.u32 %rd12, %r11;
mov.b64 %rd13, {name};
add.s64 %rd13, %rd13, %rd12;
mul.wide.u32 %rd14, %r10, 16;
add.s64 %rd14, %rd{register}, %rd14;
cp.async.cg.shared.global [%rd13], [%rd14], 16;
"""
    return text


def gemm(kind="f16", in_registers=False, by_depth=True, registers="", form=SWIZZLE_128):
    """a[64, 64] b^T, or a b where `by_depth` is not set; `a` in registers of no layout but the ISA's, from global memory."""
    products = ""
    for step in range(4):
        factor = "{" + ", ".join(f"%r{20 + 4 * step + i}" for i in range(4)) + "}" if in_registers else f"%rd{40 + step}"
        products += (f"wgmma.mma_async.sync.aligned.m64n64k16.f32.{kind}.{kind} {{{SUMS}}}, {factor}, %rd{50 + step}, {int(step > 0)}, 1, 1, "
                     f"{'' if in_registers else '0, '}{0 if by_depth else 1};\n")
    text = f""".version 8.0
.target sm_90a
.address_size 64
.visible .entry gemm(
	.param .u64 gemm_param_0,
	.param .u64 gemm_param_1,
	.param .u64 gemm_param_2
)
.reqntid 128
{{
	.reg .pred %p<4>;
	.reg .b32 %r<200>;
	.reg .b64 %rd<80>;
	.shared .align 1024 .b8 left[8192];
	.shared .align 1024 .b8 right[8192];
mov.u32 %r1, %tid.x;
{tile("left", 0, 1)}{tile("right", 1, 2)}cp.async.commit_group;
shr.u32 %r2, %r1, 5;
shl.b32 %r2, %r2, 4;
and.b32 %r3, %r1, 31;
shr.u32 %r4, %r3, 2;
add.u32 %r2, %r2, %r4;
and.b32 %r3, %r3, 3;
shl.b32 %r3, %r3, 1;
shl.b32 %r5, %r2, 6;
add.u32 %r5, %r5, %r3;
mul.wide.u32 %rd3, %r5, 2;
add.s64 %rd3, %rd1, %rd3;
"""
    for step in range(4):
        for part in range(4):
            text += f"ld.global.b32 %r{20 + 4 * step + part}, [%rd3+{step * 32 + part // 2 * 16 + part % 2 * 8 * 128}];\n"
    text += "".join(f"mov.b64 %rd{60 + i}, {name};\nshr.u64 %rd{60 + i}, %rd{60 + i}, 4;\nor.b64 %rd{60 + i}, %rd{60 + i}, {form};\n"
                    for i, name in enumerate(("left", "right")))
    for step in range(4):
        text += f"add.s64 %rd{40 + step}, %rd60, {2 * step};\nadd.s64 %rd{50 + step}, %rd61, {2 * step if by_depth else 128 * step};\n"
    text += f"""cp.async.wait_group 0;
fence.proxy.async.shared::cta;
bar.sync 0;
{registers}wgmma.fence.sync.aligned;
{products}wgmma.commit_group.sync.aligned;
wgmma.wait_group.sync.aligned 0;
ld.param.b64 %rd4, [gemm_param_2];
cvta.to.global.u64 %rd4, %rd4;
mul.wide.u32 %rd5, %r5, 4;
add.s64 %rd5, %rd4, %rd5;
"""
    for i in range(32):
        text += f"st.global.b32 [%rd5+{i // 4 * 32 + i // 2 % 2 * 8 * 256 + i % 2 * 4}], %r{100 + i};\n"
    return text + "ret;\n}\n"


def run(text, kind="f16"):
    """(result, operands)"""
    random = np.random.default_rng(1)
    narrow = (lambda x: x.astype(np.float16).view(np.uint16)) if kind == "f16" else to_bf16
    operands = [narrow(random.integers(-8, 9, (64, 64)).astype(np.float32) / 4) for _ in range(2)]
    memory = ptx_memory.Memory({A: operands[0].reshape(-1).view(np.uint8), B: operands[1].reshape(-1).view(np.uint8), OUT: np.zeros(64 * 64 * 4, np.uint8)})
    kernel, = ptx_text.parse(text).values()
    ptx_launch.launch(kernel, memory, [A, B, OUT], (1, 1, 1), (128, 1, 1))
    wide = (lambda x: x.view(np.float16).astype(np.float32)) if kind == "f16" else (lambda x: (x.astype(np.uint32) << 16).view(np.float32))
    return memory.array(OUT).view(np.float32).reshape(64, 64), *map(wide, operands)


FORMS = [(kind, in_registers, by_depth) for kind in ("f16", "bf16") for in_registers in (False, True) for by_depth in (False, True)]


@pytest.mark.parametrize("kind, in_registers, by_depth", FORMS)
def test_products(tmp_path, kind, in_registers, by_depth):
    text = gemm(kind, in_registers, by_depth)
    result, a, b = run(text, kind)
    np.testing.assert_array_equal(result, a @ (b.T if by_depth else b))  # multiples of 1/16 below 2^9
    if ptxas():  # the same text is one for the assembler
        import subprocess
        (tmp_path / "gemm.ptx").write_text(text)
        subprocess.run([ptxas(), "-arch=sm_90a", tmp_path / "gemm.ptx", "-o", tmp_path / "gemm.cubin"], check=True)


WAIT, FENCE, BARRIER = "cp.async.wait_group 0;\n", "fence.proxy.async.shared::cta;\n", "bar.sync 0;\n"
REGISTERS, DONE = "wgmma.fence.sync.aligned;\n", "wgmma.wait_group.sync.aligned 0;\n"


@pytest.mark.parametrize("change, by, what", [
    (WAIT, "", "a copy on its way"),
    (WAIT, "cp.async.wait_group 1;\n", "a copy on its way"),
    ("cp.async.commit_group;\n", "", "a copy on its way"),
    (FENCE, "", "without fence.proxy.async"),
    (WAIT + FENCE, FENCE + WAIT, "without fence.proxy.async"),
    (BARRIER, "", "a race in shared memory"),
    (WAIT + FENCE + BARRIER, BARRIER + WAIT + FENCE, "a race in shared memory"),
    (REGISTERS, "", "behind the last wgmma.fence"),
    (REGISTERS, REGISTERS + "add.u32 %r23, %r23, 0;\n", "behind the last wgmma.fence"),
    (REGISTERS, REGISTERS + "mov.b32 %r107, 0;\n", "behind the last wgmma.fence"),
    (DONE, "", "sums of a product on its way"),
    (DONE, "wgmma.wait_group.sync.aligned 1;\n", "sums of a product on its way"),
    (DONE, "mov.b32 %r21, 0;\n" + DONE, "an operand of a product on its way is written"),
    (DONE, "mov.b64 %rd13, right;\nst.shared.b32 [%rd13], %r1;\n" + DONE, "a product on its way reads|a race in shared memory"),
    (DONE, BARRIER + "setp.ne.u32 %p1, %r1, 0;\n@%p1 bra $L_1;\nmov.b64 %rd13, right;\nst.shared.b32 [%rd13], %r1;\n$L_1:\n" + DONE, "a product on its way reads"),
    (DONE, DONE + "setp.ne.u32 %p1, %r1, 0;\n@%p1 bra $L_1;\nmov.b64 %rd13, right;\nst.shared.b32 [%rd13], %r1;\n$L_1:\n", "a race in shared memory"),
    (REGISTERS, "setp.gt.u32 %p1, %r1, 95;\n@%p1 bra $L_1;\n" + REGISTERS + "$L_1:\n", "do not reach an instruction of all"),
    (REGISTERS, "cvt.u64.u32 %rd70, %r1;\nadd.s64 %rd51, %rd51, %rd70;\n" + REGISTERS, "different descriptors"),
    (REGISTERS, "add.s64 %rd51, %rd51, 2048;\n" + REGISTERS, "outside of what the kernel has"),
    ("ret;\n", BARRIER + "cp.async.ca.shared.global [%rd13], [%rd14], 16;\nret;\n", "copies on their way"),
])
def test_what_must_not_be(change, by, what):
    text = gemm(in_registers=True)
    assert text.count(change) == 1
    with pytest.raises(ptx_machine.Fault, match=what):
        run(text.replace(change, by))


def test_work_that_nobody_awaits():
    text = gemm(in_registers=True)
    start = text.index(DONE)
    with pytest.raises(ptx_machine.Fault, match="products on their way"):
        run(text[:start] + "ret;\n}\n")


@pytest.mark.parametrize("by_depth", [False, True])
@pytest.mark.parametrize("form", [SWIZZLE_128 & ~(3 << 62), 2 << 62 | SWIZZLE_128, 3 << 62 | SWIZZLE_128, SWIZZLE_128 + (64 << 32), SWIZZLE_128 - (32 << 32)])
def test_wrong_descriptors(by_depth, form):
    """Another swizzle and other strides read other bytes: out of the tile, or a wrong result."""
    try:
        result, a, b = run(gemm(by_depth=by_depth, form=form & (2**64 - 1)))
    except ptx_machine.Fault as fault:
        assert "outside of what the kernel has" in str(fault)
        return
    assert (result != a @ (b.T if by_depth else b)).mean() > 0.5


def test_a_wrong_place_of_a_unit():
    text = gemm()
    unswizzled = text.replace("xor.b32 %r12, %r12, %r13;\n", "")
    result, a, b = run(unswizzled)
    assert (result != a @ b.T).mean() > 0.5


@pytest.mark.parametrize("text", [gemm().replace("m64n64k16.f32.f16.f16", "m64n64k8.f32.tf32.tf32"), gemm(form=SWIZZLE_128 | 1 << 49),
                                  gemm().replace("fence.proxy.async.shared::cta", "fence.proxy.alias"),
                                  re.sub(r"(wgmma.mma_async.*), 1, 1, 0, 0;", r"\1, 1, -1, 0, 0;", gemm())])
def test_unknown_forms_are_no_success(text):
    with pytest.raises(ptx_machine.Unknown):
        run(text)
