# SPDX-License-Identifier: Apache-2.0
"""Arrays in and out: numpy, the buffer protocol and DLPack to the C API's tensors, and back."""
import ctypes
from ctypes import POINTER, c_int32, c_int64, c_uint8, c_uint16, c_uint64, c_void_p

import numpy as np

from ._native import Tensor, name_bytes

NAMES = {1: "float32", 2: "uint8", 3: "int8", 4: "uint16", 5: "int16", 6: "int32", 7: "int64", 9: "bool", 10: "float16",
         11: "float64", 12: "uint32", 13: "uint64", 16: "bfloat16", 17: "float8_e4m3fn", 19: "float8_e5m2"}
NUMBERS = {name: number for number, name in NAMES.items()}
SIZES = {"float32": 4, "uint8": 1, "int8": 1, "uint16": 2, "int16": 2, "int32": 4, "int64": 8, "bool": 1, "float16": 2,
         "float64": 8, "uint32": 4, "uint64": 8, "bfloat16": 2, "float8_e4m3fn": 1, "float8_e5m2": 1}
# Types without arithmetic are bytes at a library's boundary, one an element: integers of 2 and 4 bits as their values, floats as bits.
STORED = {"int2": "int8", "int4": "int8", "uint2": "uint8", "uint4": "uint8", "float4_e2m1fn": "", "float8_e8m0fnu": "",
          "float8_e4m3fnuz": "", "float8_e5m2fnuz": ""}
# DLPack type code and bits (dlpack.h, DLDataTypeCode).
DLPACK = {(0, 8): "int8", (0, 16): "int16", (0, 32): "int32", (0, 64): "int64", (1, 8): "uint8", (1, 16): "uint16",
          (1, 32): "uint32", (1, 64): "uint64", (2, 16): "float16", (2, 32): "float32", (2, 64): "float64",
          (4, 16): "bfloat16", (6, 8): "bool", (10, 8): "float8_e4m3fn", (12, 8): "float8_e5m2"}
HOST_DEVICES = (1, 3)  # kDLCPU, kDLCUDAHost
CUDA_DEVICE = 2  # kDLCUDA


class DLTensor(ctypes.Structure):
    _fields_ = [("data", c_void_p), ("device_type", c_int32), ("device_id", c_int32), ("ndim", c_int32),
                ("code", c_uint8), ("bits", c_uint8), ("lanes", c_uint16), ("shape", POINTER(c_int64)),
                ("strides", POINTER(c_int64)), ("byte_offset", c_uint64)]


class DLManagedTensor(ctypes.Structure):
    pass


_Deleter = ctypes.CFUNCTYPE(None, c_void_p)
DLManagedTensor._fields_ = [("tensor", DLTensor), ("context", c_void_p), ("deleter", _Deleter)]
_capsule = ctypes.pythonapi.PyCapsule_New
_capsule.argtypes, _capsule.restype = [c_void_p, ctypes.c_char_p, c_void_p], ctypes.py_object
_handed_out = {}  # address of a DLManagedTensor to the objects it needs, until its consumer gives it back


@_Deleter
def _give_back(address):
    _handed_out.pop(address, None)


class DeviceArray:
    """A tensor in the memory of a CUDA device, for whoever takes DLPack or __cuda_array_interface__."""

    def __init__(self, tensor: Tensor, device: int, owner):
        self.shape = tuple(tensor.shape[i] for i in range(tensor.rank))
        self.dtype, self.device, self.address = NAMES[tensor.dtype], device, tensor.data
        self._owner = owner

    def __dlpack_device__(self):
        return CUDA_DEVICE, self.device

    def __dlpack__(self, stream=None, **_):
        # The trainer's stream is ordered with the device's default stream.
        code, bits = next(key for key, name in DLPACK.items() if name == self.dtype)
        extents = (c_int64 * max(len(self.shape), 1))(*self.shape)
        managed = DLManagedTensor(DLTensor(self.address, CUDA_DEVICE, self.device, len(self.shape), code, bits, 1, extents,
                                           None, 0), None, _give_back)
        address = ctypes.addressof(managed)
        _handed_out[address] = managed, extents, self._owner
        return _capsule(address, b"dltensor", None)

    @property
    def __cuda_array_interface__(self):
        dtype = numpy_type(self.dtype)
        if dtype is None or dtype.kind not in "iufb":
            raise AttributeError(f"arrays of {self.dtype} have no __cuda_array_interface__: use DLPack")
        return {"shape": self.shape, "typestr": dtype.str, "data": (self.address, True), "version": 3, "strides": None}


_pointer = ctypes.pythonapi.PyCapsule_GetPointer
_pointer.argtypes, _pointer.restype = [ctypes.py_object, ctypes.c_char_p], c_void_p


def numpy_type(name: str):
    """The numpy type of that name, or None where numpy needs the ml_dtypes package for it and it is not installed."""
    try:
        return np.dtype(name)
    except TypeError:
        try:
            import ml_dtypes
            return np.dtype(getattr(ml_dtypes, name))
        except (ImportError, AttributeError):
            return None


def stored(array: np.ndarray) -> np.ndarray:
    """The array as a library takes it: of a type of ml_dtypes without arithmetic, its bytes; any other as it is."""
    whole = STORED.get(array.dtype.name)
    if whole is None:
        return array
    return array.astype(whole) if whole else np.ascontiguousarray(array).view(np.uint8)


def describe(name: bytes, type_name: str, shape, address: int) -> Tensor:
    if type_name not in NUMBERS:
        raise TypeError(f"input '{name.decode()}': arrays of type {type_name} are not supported")
    extents = (c_int64 * max(len(shape), 1))(*shape)
    return Tensor(name, NUMBERS[type_name], len(shape), extents, address)


def from_dlpack(name: bytes, value, target: str):
    """(tensor, object to keep alive) of a DLPack object in host memory, or on the device of a target that has one; None
    where its layout is not dense."""
    kind = value.__dlpack_device__()[0]
    if kind not in HOST_DEVICES and not (kind == CUDA_DEVICE and target == "cuda"):
        raise ValueError(f"input '{name.decode()}': expected an array in host memory")
    # On a device: made ready for the default stream, which the runtime waits for (1, by the protocol).
    capsule = value.__dlpack__(stream=1) if kind == CUDA_DEVICE else value.__dlpack__()
    t = DLTensor.from_address(_pointer(capsule, b"dltensor"))
    type_name = DLPACK.get((t.code, t.bits))
    if type_name is None or t.lanes != 1:
        raise TypeError(f"input '{name.decode()}': DLPack type ({t.code}, {t.bits}, {t.lanes}) is not supported")
    shape = [t.shape[i] for i in range(t.ndim)]
    dense = 1
    for i in reversed(range(t.ndim)):
        if t.strides and shape[i] > 1 and t.strides[i] != dense:
            return None
        dense *= shape[i]
    return describe(name, type_name, shape, (t.data or 0) + t.byte_offset), capsule


def to_tensor(name: str, value, target: str = "cpu"):
    """(tensor, object to keep alive): shares the memory of dense arrays and copies others."""
    key = name_bytes(name, "an input")
    if isinstance(value, np.ma.MaskedArray):
        raise TypeError(f"input '{name}': expected an array without a mask, got a masked one: give array.filled(value)")
    if not isinstance(value, np.ndarray) and hasattr(value, "__dlpack__"):
        if getattr(value, "requires_grad", False):
            value = value.detach()
        shared = from_dlpack(key, value, target)
        if shared is None:
            dense = value.contiguous() if hasattr(value, "contiguous") else np.from_dlpack(value).copy()
            shared = from_dlpack(key, dense, target)
        return shared
    array = stored(np.asarray(value))
    if not array.dtype.isnative:
        array = array.astype(array.dtype.newbyteorder("="))
    array = array if array.flags.c_contiguous else array.copy(order="C")
    return describe(key, array.dtype.name, array.shape, array.ctypes.data), array


def to_array(tensor: Tensor) -> np.ndarray:
    """A copy of a tensor of the runtime. Types that numpy lacks become float32 when ml_dtypes is not installed."""
    shape = [tensor.shape[i] for i in range(tensor.rank)]
    name = NAMES[tensor.dtype]
    count = int(np.prod(shape, dtype=np.int64))
    raw = ctypes.string_at(tensor.data, count * SIZES[name]) if count else b""
    dtype = numpy_type(name)
    if dtype is None and name == "bfloat16":
        return (np.frombuffer(raw, np.uint16).astype(np.uint32) << 16).view(np.float32).reshape(shape)
    if dtype is None:
        raise TypeError(f"'{tensor.name.decode()}' has type {name}: install ml_dtypes to read it")
    return np.frombuffer(raw, dtype).reshape(shape).copy()
