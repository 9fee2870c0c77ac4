# SPDX-License-Identifier: Apache-2.0
"""Sums as Tensor Cores make them (mpt-run --as): beside mmaemu, which reproduces cuBLASLt's 8-bit GEMMs, and in certificates."""
import json
import subprocess

import ml_dtypes
import numpy as np
import pytest

import planted_steps
from mpt_run import MLIR_OF, read_tensors, tool, write_tensors

E4M3, E5M2 = ml_dtypes.float8_e4m3fn, ml_dtypes.float8_e5m2
GEMMS = 200  # beside mmaemu, in all: 2 minutes of processor time for 1,000


def gemm(folder, a, b, core="", flags=()):
    """The FP32 product of matrices [batch, m, k] and [batch, k, n] on `core`."""
    kinds = [f"tensor<{'x'.join(map(str, x.shape))}x{MLIR_OF[x.dtype.name]}>" for x in (a, b)]
    result = f"tensor<{a.shape[0]}x{a.shape[1]}x{b.shape[2]}xf32>"
    (folder / "gemm.mlir").write_text(
        f'func.func @f(%a: {kinds[0]}, %b: {kinds[1]}) -> ({result} {{mpt.name = "y"}}) {{\n'
        f"  %y = mpt.matmul %a, %b : ({kinds[0]}, {kinds[1]}) -> {result}\n  return %y : {result}\n}}\n")
    write_tensors(folder / "in.safetensors", {"arg0": a, "arg1": b})
    subprocess.run([tool(), folder / "gemm.mlir", "--function=f", f"--inputs={folder}/in.safetensors",
                    f"--outputs={folder}/out.safetensors", *([f"--as={core}"] if core else []), *flags], check=True)
    return read_tensors(folder / "out.safetensors")["y"]


def operands(random, shape, kind):
    """Normal numbers of some scale, or (one in four) all the finite numbers of the type."""
    if random.integers(4):
        return (random.standard_normal(shape) * 2.0 ** random.integers(-3, 4)).astype(kind)
    codes = random.integers(0, 256, shape, dtype=np.uint8).view(kind)
    return np.where(np.isfinite(codes.astype(np.float32)), codes, np.ones((), kind))


PAIRS = [(E4M3, E4M3), (E4M3, E5M2), (E5M2, E4M3)]


@pytest.mark.parametrize("core, profile", [("sm_89", "ada"), ("sm_90", "hopper")])
@pytest.mark.parametrize("fast", [False, True])
def test_gemms_have_the_bits_of_mmaemu(tmp_path, core, profile, fast):
    """All pairs that cuBLASLt multiplies. The runtime asks for fast sums of two E4M3 operands alone."""
    torch, mmaemu = pytest.importorskip("torch"), pytest.importorskip("mmaemu")
    tensor = lambda x: torch.from_numpy(x.view(np.uint8)).view(getattr(torch, x.dtype.name))
    random, batch, compared = np.random.default_rng(0), 10, 0
    pairs = PAIRS[:1] if fast else PAIRS
    while compared < GEMMS // 4:
        m, n = 16 * random.integers(1, 4, 2)
        k = 16 * random.integers(1, 9) if compared % 20 else 1024
        kinds = pairs[compared // batch % len(pairs)]
        a, b = (operands(random, shape, kind) for shape, kind in zip([(batch, m, k), (batch, k, n)], kinds))
        got = gemm(tmp_path, a, b, core + ("+fast-sums" if fast else ""))
        for i in range(batch):
            wanted = mmaemu.accumulate(tensor(a[i]), tensor(np.ascontiguousarray(b[i].T)), use_fast_accum=fast, profile=profile, splitk=1)
            assert (got[i].view(np.uint32) == wanted.numpy().view(np.uint32)).all(), (core, kinds, m, n, k)
        compared += batch


def test_dot_products_of_two_e5m2_have_the_bits_of_mmaemu():
    """No GEMM of cuBLASLt multiplies this pair; instructions do."""
    torch, mmaemu = pytest.importorskip("torch"), pytest.importorskip("mmaemu")
    program = tool().parent / "TensorCoresTest"
    random = np.random.default_rng(1)
    for core, profile in [("sm_89", "ada"), ("sm_90", "hopper")]:
        a, b = operands(random, (64, 512), E5M2), operands(random, (64, 512), E5M2)
        tensors = [torch.from_numpy(x.view(np.uint8)).view(torch.float8_e5m2) for x in (a, b)]
        wanted = mmaemu.accumulate(*tensors, use_fast_accum=True, profile=profile, splitk=1).numpy()
        records = np.concatenate([np.zeros((64 * 64, 1)), np.repeat(a, 64, 0).astype(float), np.tile(b.astype(float), (64, 1))], 1)
        out = subprocess.run([program, core, "e5m2", "e5m2", "512"], input=records.astype(np.float32).tobytes(), capture_output=True, check=True).stdout
        assert (np.frombuffer(out, np.uint32) == wanted.view(np.uint32).ravel()).all()


def relative_error(folder, core, k):
    random = np.random.default_rng(2)
    a, b = (np.clip(40 * random.standard_normal(shape), -448, 448).astype(E4M3) for shape in [(1, 48, k), (1, k, 48)])
    exact = a.astype(np.float64) @ b.astype(np.float64)
    return np.linalg.norm(gemm(folder, a, b, core) - exact) / np.linalg.norm(exact)


def test_errors_of_hopper(tmp_path):
    """Partial sums of 128 products err alike at every length; one running sum errs by the root of its length, and FP32 by 2^-24 of it."""
    for k, promoted, fast, f32 in [(1024, 1.2e-4, 5.6e-4, 3e-8), (4096, 1.2e-4, 1.4e-3, 7e-8)]:
        for core, expected in [("sm_90", promoted), ("sm_90+fast-sums", fast), ("", f32), ("sm_100", None)]:
            error = relative_error(tmp_path, core, k)
            assert error < 1e-6 if expected is None else 0.75 < error / expected < 1.35, (k, core, error)


def test_tolerances_cover_the_errors(tmp_path):
    """--tolerances with --as: of FP32 they are too small for sums of 13 bits."""
    random, wide = np.random.default_rng(3), {}
    a, b = random.random((1, 16, 1024)).astype(E4M3), random.random((1, 1024, 16)).astype(E4M3)
    errors = {}
    for core in ("", "sm_90", "sm_90+fast-sums"):
        errors[core] = np.abs(gemm(tmp_path, a, b, core, [f"--tolerances={tmp_path}/t.st"]) - a.astype(np.float64) @ b.astype(np.float64)).max()
        wide[core] = float(read_tensors(tmp_path / "t.st")["y"])
    assert all(errors[core] < wide[core] for core in wide)
    assert wide[""] < errors["sm_90"] < errors["sm_90+fast-sums"] and wide["sm_90"] < wide["sm_90+fast-sums"]


def certificate(folder, *words):
    """Of the module in the interpreter."""
    done = subprocess.run([tool(), folder / "m.onnx", "--loss=softmax-cross-entropy", "--optimizer=sgd,lr=0.5", "--policy=fp8-hybrid", "--certify",
                           f"--batch={folder / 'batch.st'}", "--steps=2", *words], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def test_certificates_mean_the_sums_of_the_core(tmp_path):
    """The meant values are the subject's, bit for bit; the error model moves values by the core's errors."""
    planted_steps.write_model(tmp_path)
    plain, core = certificate(tmp_path), certificate(tmp_path, "--as=sm_90")
    assert max(row["distance"] for row in core["meant"]) == 0.0
    assert [row["loss"] for row in core["steps"]] != [row["loss"] for row in plain["steps"]]
    errors = lambda found, part: [row[part] for row in found["gradients"]]
    assert errors(core, "relative_error") != errors(plain, "relative_error") and errors(core, "limit") != errors(plain, "limit")


def test_the_report_names_narrow_sums(tmp_path):
    """GEMMs of 8-bit operands, of architectures that add them up in less than FP32."""
    planted_steps.write_model(tmp_path)
    words = [tool().with_name("mpt-opt"), tmp_path / "m.onnx", "--loss=softmax-cross-entropy", "--optimizer=sgd", "--dry-run", "--quiet"]
    for flags, cores in [("--policy=fp8-hybrid --target=cuda --arch=sm_89,sm_90,sm_100", ["sm_89", "sm_90"]), ("--policy=fp8-hybrid --target=cuda", []),
                         ("--policy=amp-bf16 --target=cuda --arch=sm_90", []), ("--policy=fp8-hybrid", [])]:
        subprocess.run([*words, *flags.split(), f"--report=kernels={tmp_path}/r.json"], check=True)
        rows = json.loads((tmp_path / "r.json").read_text())["step"]["narrow_sums"]
        assert [row["core"] for row in rows] == cores and all(row["bits"] == 13 and row["products"] == 128 and row["gemms"] > 2 for row in rows)
        text = subprocess.run([*words, *flags.split(), "--report=kernels"], check=True, capture_output=True, text=True).stdout
        assert ("GEMMs with 8-bit operands have 13 bits on sm_90, 128 products at a time, and add up in FP32" in text) == bool(cores)


def test_an_unknown_name_lists_the_known_ones(tmp_path):
    (tmp_path / "f.mlir").write_text("")
    for word, message in [("--as=sm_75", "expected sm_80|sm_89|sm_90|sm_100|sm_89+fast-sums|sm_90+fast-sums for --as, got 'sm_75'"),
                          ("--as=sm_90 --fp64", "expected --as alone or with --certify")]:
        done = subprocess.run([tool(), tmp_path / "f.mlir", *word.split()], capture_output=True, text=True)
        assert done.returncode == 2 and message in done.stderr, done.stderr
