# SPDX-License-Identifier: Apache-2.0
"""Runs textual modules in the reference interpreter, with NumPy arrays in and out."""
import json
import os
import pathlib
import shutil
import struct
import subprocess
import sysconfig

import ml_dtypes
import numpy as np

ROOT = pathlib.Path(__file__).resolve().parents[2]
# NumPy type, safetensors name, MLIR name.
KINDS = [(np.float64, "F64", "f64"), (np.float32, "F32", "f32"), (np.float16, "F16", "f16"),
         (ml_dtypes.bfloat16, "BF16", "bf16"), (ml_dtypes.float8_e4m3fn, "F8_E4M3", "f8E4M3FN"),
         (ml_dtypes.float8_e5m2, "F8_E5M2", "f8E5M2"), (np.int64, "I64", "i64"), (np.int32, "I32", "i32"),
         (np.int8, "I8", "i8"), (np.bool_, "BOOL", "i1")]
NAME_OF = {np.dtype(kind).name: name for kind, name, _ in KINDS}
MLIR_OF = {np.dtype(kind).name: name for kind, _, name in KINDS}
TYPE_OF = {name: np.dtype(kind) for kind, name, _ in KINDS}


def tool() -> pathlib.Path:
    """mpt-run of $MPT_BUILD, or of the newest build that has one."""
    if os.environ.get("MPT_BUILD"):
        return pathlib.Path(os.environ["MPT_BUILD"]) / "bin" / "mpt-run"
    built = list((ROOT / "build").glob("*/bin/mpt-run"))
    if not built:
        import pytest  # tools that use this file outside tests need none

        pytest.skip("build mpt-run first (scripts/build.sh dev mpt-run)")
    return max(built, key=lambda path: path.stat().st_mtime)


def ptxas() -> str | None:
    """NVIDIA's assembler: on the PATH, of a toolkit, or of the Python package nvidia-cuda-nvcc."""
    wheels = sorted(pathlib.Path(sysconfig.get_path("purelib"), "nvidia").glob("*/bin/ptxas"))
    return shutil.which("ptxas") or shutil.which("ptxas", path="/usr/local/cuda/bin") or (str(wheels[-1]) if wheels else None)


def mlir_type(array) -> str:
    return "tensor<" + "".join(f"{extent}x" for extent in array.shape) + MLIR_OF[array.dtype.name] + ">"


def write_tensors(path, tensors: dict) -> None:
    header, data = {}, b""
    for name, array in tensors.items():
        header[name] = {"dtype": NAME_OF[array.dtype.name], "shape": list(array.shape),
                        "data_offsets": [len(data), len(data) + array.nbytes]}
        data += np.ascontiguousarray(array).tobytes()
    text = json.dumps(header).encode()
    pathlib.Path(path).write_bytes(struct.pack("<Q", len(text)) + text + data)


def read_tensors(path) -> dict:
    raw = pathlib.Path(path).read_bytes()
    length, = struct.unpack("<Q", raw[:8])
    header = json.loads(raw[8:8 + length])
    return {name: np.frombuffer(raw[8 + length + entry["data_offsets"][0]:8 + length + entry["data_offsets"][1]],
                                TYPE_OF[entry["dtype"]]).reshape(entry["shape"])
            for name, entry in header.items() if name != "__metadata__"}


def run(module: str, function: str, inputs: dict, folder, fp64=False) -> dict:
    """Outputs of `function` by name; float outputs are float64 with fp64."""
    folder = pathlib.Path(folder)
    (folder / "module.mlir").write_text(module)
    write_tensors(folder / "in.safetensors", inputs)
    command = [tool(), folder / "module.mlir", f"--function={function}", f"--inputs={folder}/in.safetensors",
               f"--outputs={folder}/out.safetensors", *(["--fp64"] if fp64 else [])]
    result = subprocess.run(command, capture_output=True, text=True)
    assert result.returncode == 0, result.stderr
    return read_tensors(folder / "out.safetensors")
