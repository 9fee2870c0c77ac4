# SPDX-License-Identifier: Apache-2.0
"""8-bit floats in emitted kernels and in the runtime, against ml_dtypes and the reference interpreter; statistics of stochastic
rounding."""
import os
import pathlib
import subprocess

import ml_dtypes
import numpy as np
import pytest

import mpt
from mpt_run import run

ROOT = pathlib.Path(__file__).resolve().parents[2]
BUILD = pathlib.Path(os.environ.get("MPT_BUILD", ROOT / "build" / "release"))
pytestmark = pytest.mark.skipif(not (BUILD / "bin" / "mpt-opt").exists(), reason="mpt-opt is not built")
E4M3, E5M2 = ml_dtypes.float8_e4m3fn, ml_dtypes.float8_e5m2
LARGEST = {"f8E4M3FN": 448.0, "f8E5M2": 57344.0}
KIND = {"f8E4M3FN": E4M3, "f8E5M2": E5M2}
SATURATE = "{overflow = #mpt<overflow saturate>}"
STOCHASTIC = "{rounding = #mpt<rounding stochastic>, stream = 9 : i64}"


def values():
    """Every FP16 and BF16 value, and FP32 values of all magnitudes and next to every 8-bit rounding boundary."""
    f16 = np.arange(1 << 16, dtype=np.uint16).view(np.float16).astype(np.float32)
    bf16 = np.arange(1 << 16, dtype=np.uint16).view(ml_dtypes.bfloat16).astype(np.float32)
    dense = np.arange(0, 1 << 32, 9973, dtype=np.uint64).astype(np.uint32).view(np.float32)
    near = []
    for kind in KIND.values():
        table = np.unique(np.arange(256, dtype=np.uint8).view(kind).astype(np.float64))
        table = table[np.isfinite(table)]
        middle = ((table[1:] + table[:-1]) / 2).astype(np.float32)
        near += [middle, np.nextafter(middle, np.float32(np.inf)), np.nextafter(middle, np.float32(-np.inf))]
    x = np.concatenate([f16, bf16, dense, *near, np.array([464, 465, 480, 61440, 61441, 1e30], np.float32)])
    return np.concatenate([x, np.zeros(-len(x) % 16, np.float32)])


def module(count: int) -> str:
    """All casts of x in one function: to nearest with both overflow modes, and stochastic. Results in f32, and as stored. Then
    casts from stored values, casts of 16-bit values, and state in 8 bits."""
    wide = f"tensor<{count}xf32>"
    lines, results = [], {}
    for kind in KIND:
        narrow = f"tensor<{count}x{kind}>"
        for name, operand, attributes in (("even", "%x", ""), ("saturate", "%x", SATURATE),
                                          ("stochastic", "%x key %k : tensor<2xi64>", STOCHASTIC)):
            lines += [f"  %{kind}_{name}_s = mpt.cast {operand} {attributes} : {wide} to {narrow}",
                      f"  %{kind}_{name} = mpt.cast %{kind}_{name}_s : {narrow} to {wide}"]
            results |= {f"{kind}_{name}": wide, f"{kind}_{name}_s": narrow}
    text = 'module attributes {mpt.name = "casts"} {\n'
    text += "".join(f"train.state parameter @{kind}_state : tensor<{count}x{kind}> = dense<0.0> : tensor<{count}x{kind}>\n"
                    for kind in KIND)
    text += function("evaluate", {"x": wide, "k": "tensor<2xi64>"}, lines, results)
    codes = {kind: f"tensor<256x{kind}>" for kind in KIND}
    text += function("widen", codes, [f"  %{kind}_w = mpt.cast %{kind} : {type} to tensor<256xf32>" for kind, type in codes.items()],
                     {f"{kind}_w": "tensor<256xf32>" for kind in KIND})
    halves = {kind: f"tensor<65536x{kind}>" for kind in ("f16", "bf16")}
    text += function("halves", halves, [f"  %{half}_{kind} = mpt.cast %{half} : {type} to tensor<65536x{kind}>"
                                        for half, type in halves.items() for kind in KIND],
                     {f"{half}_{kind}": f"tensor<65536x{kind}>" for half in halves for kind in KIND})
    reads = [f"  %{kind}_r = train.read @{kind}_state : tensor<{count}x{kind}>" for kind in KIND]
    return text + function("stored", {}, reads, {f"{kind}_r": f"tensor<{count}x{kind}>" for kind in KIND}) + "}\n"


def function(name: str, arguments: dict, lines: list, results: dict) -> str:
    taken = ", ".join(f'%{key}: {type} {{mpt.name = "{key}"}}' for key, type in arguments.items())
    given = ", ".join(f'{type} {{mpt.name = "{key}"}}' for key, type in results.items())
    return (f"func.func @{name}({taken}) -> ({given}) {{\n" + "\n".join(lines) + "\n  return "
            + ", ".join(f"%{key}" for key in results) + " : " + ", ".join(results.values()) + "\n}\n")


def emit(text: str, folder: pathlib.Path, processor: str = "native") -> pathlib.Path:
    folder.mkdir(exist_ok=True)
    (folder / "module.mlir").write_text(text)
    out = folder / "library"
    library = f"--lowering-emit-library=out={out} runtime={BUILD / 'lib' / 'libmpt_rt.so'}"
    subprocess.run([BUILD / "bin" / "mpt-opt", folder / "module.mlir", "--fusion-lower-train", "--fusion-decompose", "--fusion-form",
                    "--library-choose-layouts", "--memory-assign-destinations", f"--memory-bufferize=flags=--mcpu={processor}",
                    f"--lowering-emit-kernels=flags=--mcpu={processor}", "--memory-plan", "--memory-verify-plan", library, "-o", os.devnull], check=True)
    return out


def assert_same(actual, expected):
    nan = np.isnan(expected)
    assert (np.isnan(actual) == nan).all()
    wrong = (actual.view(np.uint32) != expected.view(np.uint32)) & ~nan
    assert not wrong.any(), (np.flatnonzero(wrong)[:5], actual[wrong][:5], expected[wrong][:5])


KEY = np.array([0x1234567890, 77], np.int64)


@pytest.fixture(scope="module", params=["native", "x86-64-v2"], ids=["this machine's vectors", "without F16C"])
def casts(request, tmp_path_factory):
    x, folder = values(), tmp_path_factory.mktemp("casts")
    library = emit(module(len(x)), folder, request.param)
    outputs = [mpt.Trainer(library, threads=threads).run("evaluate", {"x": x, "k": KEY}) for threads in (1, 2)]
    return x, folder, outputs


def rounded(x, kind, saturates: bool):
    with np.errstate(over="ignore", invalid="ignore"):
        return (np.clip(x, -LARGEST[kind], LARGEST[kind]) if saturates else x).astype(KIND[kind])


@pytest.mark.parametrize("kind", KIND)
def test_kernels_equal_ml_dtypes(casts, kind):
    x, folder, (outputs, _) = casts
    for name, saturates in (("even", False), ("saturate", True)):
        expected = rounded(x, kind, saturates).astype(np.float32)
        assert_same(outputs[f"{kind}_{name}"], expected)
        stored = outputs[f"{kind}_{name}_s"]
        assert stored.dtype == KIND[kind]
        assert_same(stored.astype(np.float32), expected)
    trainer = mpt.Trainer(folder / "library")
    codes = {name: np.arange(256, dtype=np.uint8).view(type) for name, type in KIND.items()}
    assert_same(trainer.run("widen", codes)[f"{kind}_w"], codes[kind].astype(np.float32))
    halves = {"f16": np.arange(1 << 16, dtype=np.uint16).view(np.float16), "bf16": np.arange(1 << 16, dtype=np.uint16).view(ml_dtypes.bfloat16)}
    narrow = trainer.run("halves", halves)
    for half, array in halves.items():
        assert_same(narrow[f"{half}_{kind}"].astype(np.float32), rounded(array.astype(np.float32), kind, False).astype(np.float32))


def test_the_runtime_converts_as_ml_dtypes(casts):
    x, folder, _ = casts
    trainer = mpt.Trainer(folder / "library")
    for kind in KIND:
        trainer.set_parameter(f"{kind}_state", x)
        expected = rounded(x, kind, False)
        assert_same(trainer.state()[f"{kind}_state"].astype(np.float32), expected.astype(np.float32))
        assert_same(trainer.parameter(f"{kind}_state"), expected.astype(np.float32))


def test_kernels_equal_the_interpreter_and_any_thread_count(casts):
    x, folder, (one, two) = casts
    reference = run(module(len(x)), "evaluate", {"x": x, "k": KEY}, folder)
    for name, value in one.items():
        assert_same(value.astype(np.float32), reference[name].astype(np.float32))
        assert value.tobytes() == two[name].tobytes()


def test_stochastic_rounding_is_unbiased(tmp_path):
    """2^16 draws at each of 32 places between neighbours, normal and subnormal. A mean deviates by sqrt(p (1 - p) / n), at most
    0.00195 of the gap; five of these are allowed. A bias of 0.012 of the gap is found with probability 0.87, one of 0.02
    with 1 - 1e-7; rounding to nearest or down is off by 0.06 to 0.94 here. Fair rounding under a random key would fail one
    of the 64 means once in 27,000 keys; the key is fixed."""
    draws = 1 << 16
    for kind in KIND:
        gaps = {"f8E4M3FN": (1.0, 0.125, 2.0**-9), "f8E5M2": (1.0, 0.25, 2.0**-16)}[kind]
        low, gap, step = gaps
        places = np.concatenate([low + gap * np.arange(16) / 16, step * (3 + np.arange(16) / 16)]).astype(np.float32)
        base = np.concatenate([np.full(16, low), np.full(16, 3 * step)])
        width = np.concatenate([np.full(16, gap), np.full(16, step)])
        x = np.repeat(places, draws)
        text = module(len(x))
        out = mpt.Trainer(emit(text, tmp_path / kind), threads=1).run("evaluate", {"x": x, "k": KEY})
        y = out[f"{kind}_stochastic"].astype(np.float64).reshape(32, draws)
        up = (y - base[:, None]) / width[:, None]
        assert np.isin(up, (0, 1)).all()
        share = (places.astype(np.float64) - base) / width
        deviation = np.sqrt(share * (1 - share) / draws)
        assert (np.abs(up.mean(1) - share) <= 5 * deviation).all(), (up.mean(1), share)
        # Neighbouring elements and the next step draw independently.
        row = up[8]
        correlation = np.corrcoef(row[:-1], row[1:])[0, 1]
        assert abs(correlation) < 5 / np.sqrt(draws)
        again = mpt.Trainer(tmp_path / kind / "library", threads=1).run(
            "evaluate", {"x": x, "k": KEY + np.array([0, 1])})[f"{kind}_stochastic"]
        other = (again.astype(np.float64).reshape(32, draws)[8] - base[8]) / width[8]
        assert abs(np.corrcoef(row, other)[0, 1]) < 5 / np.sqrt(draws)
