# SPDX-License-Identifier: Apache-2.0
"""safetensors files of named tensors: written a tensor at a time, read where they lie."""
import json
import math
import mmap
import os
import struct
import tempfile

import numpy as np

from ._arrays import SIZES, numpy_type

KINDS = {"float64": "F64", "float32": "F32", "float16": "F16", "bfloat16": "BF16", "float8_e4m3fn": "F8_E4M3", "float8_e5m2": "F8_E5M2",
         "int64": "I64", "int32": "I32", "int16": "I16", "int8": "I8", "uint64": "U64", "uint32": "U32", "uint16": "U16",
         "uint8": "U8", "bool": "BOOL"}
TYPES = {kind: name for name, kind in KINDS.items()}


def write(path, entries: dict, raw, metadata: dict) -> None:
    """`entries` is {name: (type, shape)}, raw(name) a tensor's bytes. An existing file is replaced at once or not at all."""
    header, end = {"__metadata__": metadata}, 0
    for name, (kind, shape) in entries.items():
        if kind not in KINDS:
            raise TypeError(f"'{name}': expected a type that safetensors has, got {kind}")
        begin, end = end, end + math.prod(shape) * SIZES[kind]
        header[name] = {"dtype": KINDS[kind], "shape": list(shape), "data_offsets": [begin, end]}
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    path = os.fspath(path)
    handle, unfinished = tempfile.mkstemp(prefix=f".{os.path.basename(path)}.", dir=os.path.dirname(path) or ".")
    try:
        with os.fdopen(handle, "wb") as file:
            file.write(struct.pack("<Q", len(text)) + text)
            for name in entries:
                file.write(raw(name))
            file.flush()
            os.fsync(file.fileno())
        umask = os.umask(0)
        os.umask(umask)
        os.chmod(unfinished, 0o666 & ~umask)
        os.replace(unfinished, path)
    except BaseException:
        os.unlink(unfinished)
        raise


def read(path):
    """({name: (type, shape, bytes)}, metadata); the bytes are views of the file."""
    with open(path, "rb") as file:
        raw = memoryview(mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)) if os.fstat(file.fileno()).st_size else b""
    try:
        length, = struct.unpack("<Q", raw[:8])
        header = json.loads(bytes(raw[8:8 + length]))
        metadata = header.pop("__metadata__", {})
        found = {}
        for name, entry in header.items():
            begin, end = entry["data_offsets"]
            found[name] = TYPES.get(entry["dtype"], entry["dtype"]), tuple(entry["shape"]), raw[8 + length + begin:8 + length + end]
    except (struct.error, ValueError, KeyError, TypeError, AttributeError) as problem:
        raise ValueError(f"'{os.fspath(path)}': expected a safetensors file, got one whose header cannot be read") from problem
    return found, metadata


def array(kind: str, shape, raw) -> np.ndarray:
    """The tensor as numpy has it: bfloat16 widened where numpy lacks it."""
    dtype = numpy_type(kind)
    if dtype is None and kind == "bfloat16":
        return (np.frombuffer(raw, np.uint16).astype(np.uint32) << 16).view(np.float32).reshape(shape)
    if dtype is None:
        raise TypeError(f"tensors of {kind} need the ml_dtypes package")
    return np.frombuffer(raw, dtype).reshape(shape)
