# SPDX-License-Identifier: Apache-2.0
"""Emitted PTX, interpreted: no thread passes a barrier that others never reach, and none races; whole steps have the losses of the
CPU. Missing barriers and races that are planted are found."""
import json
import os
import re
import subprocess
import sys
import textwrap

import numpy as np
import ptx_launch
import ptx_machine
import ptx_memory
import ptx_text
import pytest
from conftest import build_folder
from cuda_models import attention, cnn, depthwise, mlp, normalized, pooled, recurrent
from standin import environment, library

pytestmark = pytest.mark.slow

HEAD = ".version 7.8\n.target sm_80\n.address_size 64\n"
# Each thread stores its number, and reads its neighbour's behind a barrier.
EXCHANGE = HEAD + """
.visible .entry exchange(
	.param .u64 .ptr .align 1 exchange_param_0
)
{
	.reg .pred 	%p<4>;
	.shared .align 16 .b8 room[256];
	ld.param.b64 	%rd1, [exchange_param_0];
	cvta.to.global.u64 	%rd2, %rd1;
	mov.u32 	%r1, %tid.x;
	mov.b64 	%rd3, room;
	mul.wide.u32 	%rd4, %r1, 4;
	add.s64 	%rd5, %rd3, %rd4;
	st.shared.b32 	[%rd5], %r1;
	bar.sync 	0;
	xor.b32 	%r2, %r1, 1;
	mul.wide.u32 	%rd6, %r2, 4;
	add.s64 	%rd7, %rd3, %rd6;
	ld.shared.b32 	%r3, [%rd7];
	mov.u32 	%r4, %ctaid.x;
	mad.lo.s32 	%r5, %r4, 64, %r1;
	mul.wide.u32 	%rd8, %r5, 4;
	add.s64 	%rd9, %rd2, %rd8;
	st.global.b32 	[%rd9], %r3;
	ret;
}
"""
OUT = 0x10000


def run(text, blocks=2, order="forward", size=512):
    memory = ptx_memory.Memory({OUT: np.zeros(size, np.uint8)})
    kernel, = ptx_text.parse(text).values()
    ptx_launch.launch(kernel, memory, [OUT], (blocks, 1, 1), (64, 1, 1), order=order)
    return memory.array(OUT).view(np.int32)


@pytest.mark.parametrize("order", ["forward", "reversed", "shuffled"])
def test_an_exchange_behind_a_barrier(order):
    assert run(EXCHANGE, order=order).tolist() == [i ^ 1 for i in range(64)] * 2


def test_numbers_for_predicates():
    text = EXCHANGE.replace("xor.b32 \t%r2, %r1, 1;", "mov.pred \t%p1, -1;\n\tmov.pred \t%p2, 0;\n\txor.b32 \t%r6, %r1, 1;\n"
                            "\tselp.b32 \t%r7, %r6, %r1, %p1;\n\tselp.b32 \t%r2, %r1, %r7, %p2;")
    assert run(text).tolist() == [i ^ 1 for i in range(64)] * 2


def test_tables_of_a_module():
    text = EXCHANGE.replace(".visible", ".global .align 4 .b8 table[16] = {7, 0, 0, 0, 1, 1};\n.visible", 1)
    text = text.replace("ld.shared.b32 \t%r3, [%rd7];", "and.b32 \t%r6, %r1, 3;\n\tmul.wide.u32 \t%rd10, %r6, 4;\n\tmov.b64 \t%rd11, table;\n"
                        "\tadd.s64 \t%rd12, %rd11, %rd10;\n\tld.global.nc.b32 \t%r3, [%rd12];")
    kernel, = ptx_text.parse(text).values()
    memory = ptx_memory.Memory({OUT: np.zeros(256, np.uint8), **kernel.tables})
    ptx_launch.launch(kernel, memory, [OUT], (1, 1, 1), (64, 1, 1))
    assert memory.array(OUT).view(np.int32).tolist() == [7, 257, 0, 0] * 16


def test_conversions_to_and_from_eight_bits():
    text = EXCHANGE.replace("xor.b32 \t%r2, %r1, 1;", "xor.b32 \t%r2, %r1, 1;\n\tcvt.rn.f32.u32 \t%r6, %r1;\n"
                            "\tmul.rn.f32 \t%r7, %r6, 0f41200000;\n\tcvt.rn.satfinite.e4m3x2.f32 \t%rs1, %r7, %r6;\n\tcvt.rn.f16x2.e4m3x2 \t%r8, %rs1;")
    text = text.replace("st.global.b32 \t[%rd9], %r3;", "st.global.b32 \t[%rd9], %r8;")
    low, high = run(text, blocks=1, size=256).view(np.float16).reshape(-1, 2).T
    assert low[:17].tolist() == list(range(17)) and low[17] == 16 and low[19] == 20  # four bits
    assert high[:3].tolist() == [0, 10, 20] and high[63] == 448


@pytest.mark.parametrize("kind", ["f16x2", "bf16x2"])
def test_masks_and_extremes_of_pairs(kind):
    """Of the thread's number below 1.5, 2.5 or NaN: which half is larger, which is NaN, and the larger one."""
    word = {"f16x2": 0x3E007E00, "bf16x2": 0x3FC07FC0}[kind]  # 1.5 above, NaN below
    pair = f"mov.b32 \t%r7, {word};\n\tcvt.rn.f32.u32 \t%r6, %r1;\n\tcvt.rn.{kind}.f32 \t%r6, %r6, %r6;\n\t"
    for op, low, high in (("set.gt.u32", lambda i: 0, lambda i: 0xFFFF if i > 1.5 else 0), ("set.nan.u32", lambda i: 0xFFFF, lambda i: 0),
                          ("set.gtu.u32", lambda i: 0xFFFF, lambda i: 0xFFFF if i > 1.5 else 0)):
        text = EXCHANGE.replace("xor.b32 \t%r2, %r1, 1;", pair + f"{op}.{kind} \t%r8, %r6, %r7;\n\txor.b32 \t%r2, %r1, 1;").replace("%r3;", "%r8;", 1)
        text = text.replace("st.global.b32 \t[%rd9], %r3;", "st.global.b32 \t[%rd9], %r8;")
        got = run(text, blocks=1, size=256).view(np.uint16).reshape(-1, 2)
        assert got.tolist() == [[low(i), high(i)] for i in range(64)], op
    text = EXCHANGE.replace("xor.b32 \t%r2, %r1, 1;", pair + f"max.NaN.{kind} \t%r8, %r6, %r7;\n\txor.b32 \t%r2, %r1, 1;")
    halves = run(text.replace("st.global.b32 \t[%rd9], %r3;", "st.global.b32 \t[%rd9], %r8;"), blocks=1, size=256).view(np.uint16).reshape(-1, 2)
    values = ptx_machine.from_bf16(halves) if kind == "bf16x2" else halves.view(np.float16)
    assert np.isnan(values[:, 0].astype(float)).all() and values[:, 1].tolist() == [max(i, 1.5) for i in range(64)]
    text = text.replace("mov.b32 \t%r7, ", "xor.b32 \t%r7, 0x80000000, ").replace(f"max.NaN.{kind}", f"max.NaN.xorsign.abs.{kind}")
    halves = run(text.replace("st.global.b32 \t[%rd9], %r3;", "st.global.b32 \t[%rd9], %r8;"), blocks=1, size=256).view(np.uint16).reshape(-1, 2)
    values = ptx_machine.from_bf16(halves) if kind == "bf16x2" else halves.view(np.float16)
    assert np.isnan(values[:, 0].astype(float)).all() and values[:, 1].tolist() == [-max(i, 1.5) for i in range(64)]


@pytest.mark.parametrize("change, by, what", [
    ("\tbar.sync \t0;\n", "", "a race in shared memory"),
    ("\tbar.sync \t0;\n", "\tsetp.lt.u32 \t%p1, %r1, 32;\n\t@%p1 bra \t$L_1;\n\tbar.sync \t0;\n$L_1:\n", "32 of 64 threads never reach|a race in shared memory"),
    ("\tbar.sync \t0;\n", "\tsetp.lt.u32 \t%p1, %r1, 7;\n\t@%p1 bra \t$L_1;\n\tbar.sync \t0;\n\tbra.uni \t$L_2;\n$L_1:\n\tbar.sync \t0;\n$L_2:\n", "different barriers"),
    ("\tcvta", "\tmov.u32 \t%r9, %tid.x;\n\tsetp.gt.u32 \t%p1, %r9, 60;\n\t@%p1 ret;\n\tcvta", "3 of 64 threads never reach"),
    ("mad.lo.s32 \t%r5, %r4, 64, %r1", "mad.lo.s32 \t%r5, %r4, 63, %r1", "a race in global memory"),
    ("mul.wide.u32 \t%rd4, %r1, 4", "mul.wide.u32 \t%rd4, %r1, 2", "not aligned|a race in shared memory"),
    ("mad.lo.s32 \t%r5, %r4, 64, %r1", "mad.lo.s32 \t%r5, %r4, 640, %r1", "outside of all allocations"),
    ("room[256]", "room[128]", "outside of what the kernel has"),
    ("xor.b32 \t%r2, %r1, 1", "setp.lt.u32 \t%p1, %r1, 40;\n\t@%p1 shfl.sync.bfly.b32 \t%r2, %r1, 1, 31, -1", "24 lanes of a warp do not reach"),
])
def test_what_is_planted_is_found(change, by, what):
    assert EXCHANGE.count(change) == 1
    with pytest.raises(ptx_machine.Fault, match=what):
        run(EXCHANGE.replace(change, by))


def test_an_unknown_instruction_is_no_success():
    with pytest.raises(ptx_machine.Unknown, match="tanh"):
        run(EXCHANGE.replace("xor.b32 \t%r2, %r1, 1;", "tanh.approx.f32 \t%r2, %r1;"))


STEPS = """
import ctypes, json, sys
import numpy as np
import ptx_executor
from standin import standin as library, trainer as make_trainer
folder, order = sys.argv[1:]
standin = library()
executor = ptx_executor.Executor(standin, order)
losses = {}
for target in ("cpu", "cuda"):
    with make_trainer(folder + "/" + target) as trainer:
        data = np.load(folder + "/data.npz")
        name, = [n for n in trainer.inputs() if n not in ("x", "learning_rate")]
        losses[target] = [trainer.step({"x": data["x"], name: data["labels"]}).loss for _ in range(2)]
        if target == "cuda":
            losses["parameters"] = all(bool(np.isfinite(p).all()) for p in trainer.parameters().values())
print(json.dumps({**losses, "violations": standin.standin_violations().decode(), "kernels": len(executor.kernels), "instructions": sorted(executor.instructions)}))
"""
MODELS = {"mlp": mlp, "cnn": cnn, "recurrent": lambda path: recurrent(path, steps=3), "depthwise": lambda path: depthwise(path, rank=1), "normalized": normalized, "attention": lambda path: attention(path, "both", batch=2, heads=2, length=8, depth=8),
          "shared": lambda path: attention(path, "both", batch=1, heads=2, key_heads=1, length=36, depth=8, dropout=0.25)}
TOLERANCE = {"fp32": 1e-5, "amp-f16": 4e-3, "amp-bf16": 2e-2, "als-f16": 4e-3, "fp8-hybrid": 5e-2, "fp8-current": 5e-2}


def interpret(tmp_path, make, policy, order="forward", options=None, arch="sm_80", device=None, **variables):
    build = build_folder()
    if not os.path.exists(library(build)) or not (build / "bin" / "mpt-opt").exists():
        pytest.skip("the compiler or the stand-in is not built")
    x = make(tmp_path / "m.onnx")
    np.savez(tmp_path / "data.npz", x=x, labels=np.arange(len(x), dtype=np.int64) % 5)
    for target, flags in (("cpu", []), ("cuda", ["--target=cuda", f"--arch={arch}"])):
        subprocess.run([build / "bin" / "mpt-opt", tmp_path / "m.onnx", "--loss=softmax-cross-entropy", "--optimizer=adamw,lr=1e-3",
                        f"--policy={policy}", "--quiet", "-o", tmp_path / target, *flags], check=True)
    done = subprocess.run([sys.executable, "-c", textwrap.dedent(STEPS), str(tmp_path), order], check=True, text=True, capture_output=True,
                          env=environment(build, True, {"ptx": 1, "search": "off", **(options or {})}, MPT_STANDIN_ARCH=device or re.sub(r"\D", "", arch), **variables))
    return json.loads(done.stdout.splitlines()[-1])


@pytest.mark.parametrize("model, policy, order, options", [
    ("mlp", "fp32", "forward", {}), ("mlp", "fp8-hybrid", "shuffled", {}), ("mlp", "als-f16", "reversed", {}),
    ("cnn", "fp32", "reversed", {}), ("normalized", "amp-bf16", "shuffled", {}), ("attention", "amp-f16", "reversed", {}),
    ("shared", "amp-bf16", "shuffled", {}), ("recurrent", "amp-bf16", "shuffled", {}), ("recurrent", "fp32", "reversed", {}),
    ("normalized", "amp-bf16", "reversed", {"convolutions": "implicit"}), ("cnn", "fp32", "shuffled", {"convolutions": "implicit"}),
    ("depthwise", "fp32", "shuffled", {"convolutions": "direct"}), ("depthwise", "amp-bf16", "reversed", {"convolutions": "direct"})])
def test_steps_of_interpreted_kernels(tmp_path, model, policy, order, options):
    result = interpret(tmp_path, MODELS[model], policy, order, options, "sm_90" if policy.startswith("fp8") else "sm_80")
    assert result["violations"] == ""
    np.testing.assert_allclose(result["cuda"], result["cpu"], rtol=TOLERANCE[policy])
    assert result["kernels"] > 2 and result["parameters"]


@pytest.mark.parametrize("policy, arch", [("amp-bf16", "sm_80"), ("amp-bf16", "sm_90"), ("amp-f16", "sm_80"), ("fp8-hybrid", "sm_90")])
def test_steps_that_pool(tmp_path, policy, arch):
    """Two numbers of 16 bits at a time, and in 32 bits where an architecture compares none."""
    result = interpret(tmp_path, pooled, policy, arch=arch)
    assert result["violations"] == ""
    np.testing.assert_allclose(result["cuda"], result["cpu"], rtol=TOLERANCE[policy])


@pytest.mark.parametrize("device, by_warpgroups", [("90", True), ("100", False)])
def test_code_for_one_architecture_alone(tmp_path, device, by_warpgroups):
    """A device of sm_90 takes sm_90a's code first; a later one takes PTX for sm_90."""
    result = interpret(tmp_path, MODELS["shared"], "amp-bf16", arch="sm_90,sm_90a", device=device)
    assert result["violations"] == ""
    np.testing.assert_allclose(result["cuda"], result["cpu"], rtol=TOLERANCE["amp-bf16"])
    assert any(op.startswith("wgmma.mma_async") for op in result["instructions"]) == by_warpgroups


def test_code_for_another_architecture_alone_is_refused(tmp_path):
    with pytest.raises(subprocess.CalledProcessError) as error:
        interpret(tmp_path, MODELS["shared"], "amp-bf16", arch="sm_90a", device="100")
    assert "PTX for sm_90a: compile it with --arch=sm_100" in error.value.stderr
