# SPDX-License-Identifier: Apache-2.0
"""The hand-written model of test/capi as a folder that a trainer can load, with weights that the tests write."""
import json
import os
import pathlib
import shutil
import struct
import subprocess

import numpy as np
import pytest

ROOT = pathlib.Path(__file__).resolve().parents[2]


def build_folder() -> pathlib.Path:
    """The build that holds the runtime's test libraries: $MPT_BUILD, or the newest under build/."""
    if os.environ.get("MPT_BUILD"):
        return pathlib.Path(os.environ["MPT_BUILD"])
    built = [p for p in (ROOT / "build").glob("*/test/capi/linear/liblinear.so") if "asan" not in str(p)]
    if not built:
        pytest.skip("build the test libraries first (scripts/build.sh dev linear)")
    return max(built, key=lambda p: p.stat().st_mtime).parents[3]


if os.environ.get("MPT_BUILD"):
    import mpt
    mpt.use_build(os.environ["MPT_BUILD"])


@pytest.fixture
def small_disk(tmp_path):
    """A file system of 64 KiB, where the user may mount one."""
    disk = tmp_path / "disk"
    disk.mkdir()
    if subprocess.run(["mount", "-t", "tmpfs", "-o", "size=64k", "tmpfs", disk], capture_output=True).returncode:
        pytest.skip("no right to mount a file system")
    yield disk
    subprocess.run(["umount", disk], check=True)


def write_safetensors(path, tensors: dict, metadata: dict | None = None) -> None:
    header, data = {}, b""
    for name, array in tensors.items():
        kind = {"float32": "F32", "float16": "F16", "uint16": "BF16", "int32": "I32", "int64": "I64", "uint64": "U64"}[array.dtype.name]
        header[name] = {"dtype": kind, "shape": list(array.shape), "data_offsets": [len(data), len(data) + array.nbytes]}
        data += array.tobytes()
    if metadata:
        header["__metadata__"] = metadata
    text = json.dumps(header).encode()
    pathlib.Path(path).write_bytes(struct.pack("<Q", len(text)) + text + data)


def read_safetensors(path):
    raw = pathlib.Path(path).read_bytes()
    length, = struct.unpack("<Q", raw[:8])
    header = json.loads(raw[8:8 + length])
    kinds = {"F32": np.float32, "F16": np.float16, "BF16": np.uint16, "I32": np.int32, "I64": np.int64, "U64": np.uint64,
             "BOOL": np.bool_}
    arrays = {}
    for name, entry in header.items():
        if name != "__metadata__":
            begin, end = (8 + length + offset for offset in entry["data_offsets"])
            arrays[name] = np.frombuffer(raw[begin:end], kinds[entry["dtype"]]).reshape(entry["shape"])
    return arrays, header.get("__metadata__")


INITIAL = {
    "w": np.array([[0.1, 0.2], [0.3, -0.4], [0.5, 0.6]], np.float32),
    "b": np.array([0, 0.25], np.float32),
    "scale": np.array(1024, np.float32),
}


@pytest.fixture
def linear(tmp_path, monkeypatch):
    """A folder as mpt.compile writes it, holding the model prediction = x w + b."""
    build = build_folder()
    monkeypatch.setattr("mpt._native._build", build)
    shutil.copy(build / "test" / "capi" / "linear" / "liblinear.so", tmp_path)
    write_safetensors(tmp_path / "linear.safetensors", INITIAL)
    return tmp_path


def pytest_addoption(parser):
    parser.addoption("--quick", action="store_true", help="the first case of each test function, and no file marked as slow")


def pytest_configure(config):
    config.addinivalue_line("markers", "slow: left out by --quick")


def pytest_collection_modifyitems(config, items):
    """--quick: one case of each test function, without files that are marked as slow."""
    if not config.getoption("--quick"):
        return
    seen, kept, left = set(), [], []
    for item in items:
        function = item.nodeid.split("[")[0]
        out = function in seen or item.get_closest_marker("slow")
        seen.add(function)
        (left if out else kept).append(item)
    items[:] = kept
    config.hook.pytest_deselected(items=left)
