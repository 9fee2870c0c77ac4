# SPDX-License-Identifier: Apache-2.0
"""The C API (include/mpt-c/runtime.h) through ctypes, and where the binaries lie."""
import ctypes
import json
import operator
import os
import pathlib
import shutil
import sys
from ctypes import POINTER, byref, c_char_p, c_double, c_float, c_int32, c_int64, c_uint64, c_void_p

from ._errors import Coded

PACKAGE = pathlib.Path(__file__).resolve().parent


class Error(Coded):
    """A call of the runtime failed; `status` is its mpt_status."""

    def __init__(self, status: int, text: str):
        super().__init__(text)
        self.status = status


class Stalled(Error):
    """Steps are skipped one after the other, and the loss scale does not fall any more; the text names the values that are not finite."""


class PeerLost(Error):
    """A rank of the world died, hung or was cut off; the text has its number. The world is of no further use."""


class Tensor(ctypes.Structure):
    _fields_ = [("name", c_char_p), ("dtype", c_int32), ("rank", c_int32), ("shape", POINTER(c_int64)), ("data", c_void_p)]


class Option(ctypes.Structure):
    _fields_ = [("key", c_char_p), ("value", c_char_p)]


class Options(ctypes.Structure):
    _fields_ = [("threads", c_int32), ("set_seed", c_int32), ("seed", c_uint64), ("weights", c_char_p),
                ("device", c_int32), ("options", POINTER(Option)), ("num_options", c_int64), ("world", c_void_p)]


class Metrics(ctypes.Structure):
    _fields_ = [("loss", c_double), ("loss_scale", c_double), ("grad_norm", c_double), ("skipped", c_int32)]


class Memory(ctypes.Structure):
    _fields_ = [(name, c_int64) for name in ("state_bytes", "arena_bytes", "output_bytes", "staging_bytes")]


class WorldOptions(ctypes.Structure):
    _fields_ = [("version", c_int32), ("rank", c_int32), ("size", c_int32), ("transport", c_char_p), ("address", c_char_p),
                ("port", c_int32), ("token", c_char_p), ("mpi_library", c_char_p), ("timeout_seconds", c_double),
                ("patience_seconds", c_double), ("start_seconds", c_double)]


class WorldStats(ctypes.Structure):
    _fields_ = [("version", c_int32), ("slowest_rank", c_int32),
                *((name, c_int64) for name in ("collectives", "bytes_sent", "bytes_received", "overhead_bytes")),
                *((name, c_double) for name in ("seconds", "waited_seconds", "hidden_seconds", "slowest_seconds"))]


NOT_FOUND, STALLED, PEER_LOST = 2, 10, 11  # mpt_status
ERRORS = {STALLED: Stalled, PEER_LOST: PeerLost}

PROTOTYPES = {
    "mpt_model_load": [c_char_p, POINTER(c_void_p)],
    "mpt_model_input": [c_void_p, c_char_p, c_int64, POINTER(Tensor)],
    "mpt_model_output": [c_void_p, c_char_p, c_int64, POINTER(Tensor)],
    "mpt_trainer_create": [c_void_p, POINTER(Options), POINTER(c_void_p)],
    "mpt_trainer_run": [c_void_p, c_char_p, POINTER(Tensor), c_int64, POINTER(Metrics)],
    "mpt_trainer_time": [c_void_p, c_char_p, POINTER(Tensor), c_int64, c_int64, POINTER(c_double)],
    "mpt_trainer_device": [c_void_p, POINTER(c_char_p), POINTER(c_char_p)],
    "mpt_trainer_profile": [c_void_p, POINTER(c_char_p)],
    "mpt_trainer_output_at": [c_void_p, c_char_p, c_int64, POINTER(Tensor)],
    "mpt_trainer_set_learning_rate": [c_void_p, c_double],
    "mpt_trainer_learning_rate": [c_void_p, POINTER(c_double)],
    "mpt_trainer_memory": [c_void_p, POINTER(Memory)],
    "mpt_trainer_parameter": [c_void_p, c_int64, POINTER(Tensor)],
    "mpt_trainer_state": [c_void_p, c_int64, POINTER(Tensor), POINTER(c_int32)],
    "mpt_trainer_device_output": [c_void_p, c_char_p, c_int64, POINTER(Tensor)],
    "mpt_trainer_metrics": [c_void_p, c_char_p, POINTER(Metrics)],
    "mpt_trainer_synchronize": [c_void_p],
    "mpt_trainer_reset": [c_void_p],
    "mpt_trainer_read": [c_void_p, c_int64, c_void_p, c_int64],
    "mpt_trainer_write": [c_void_p, c_int64, c_void_p, c_int64],
    "mpt_trainer_get": [c_void_p, c_char_p, POINTER(c_float), c_int64],
    "mpt_trainer_set": [c_void_p, c_char_p, POINTER(c_float), c_int64],
    "mpt_trainer_save": [c_void_p, c_char_p],
    "mpt_trainer_save_sharded": [c_void_p, c_char_p],
    "mpt_trainer_save_onnxruntime": [c_void_p, c_char_p, c_int32],
    "mpt_trainer_save_onnx": [c_void_p, c_char_p, c_int32],
    "mpt_trainer_load": [c_void_p, c_char_p],
    "mpt_world_init": [POINTER(WorldOptions), POINTER(c_void_p)],
    "mpt_world_barrier": [c_void_p],
    "mpt_world_broadcast": [c_void_p, c_int32, c_void_p, c_int64],
    "mpt_world_agree": [c_void_p, c_char_p, c_char_p],
    "mpt_world_abandon": [c_void_p, c_char_p],
    "mpt_world_statistics": [c_void_p, POINTER(WorldStats)],
    "mpt_world_rank": [c_void_p],
    "mpt_world_size": [c_void_p],
    "mpt_world_local_rank": [c_void_p],
}


DEFAULT_RUNTIME = "libmpt_rt.so"
_build = None  # where use_build() says that the binaries are


def use_build(folder) -> None:
    """Takes the compiler and the runtimes of a build folder (bin/, lib/) from here on."""
    global _build
    _build = pathlib.Path(folder).resolve()


def candidates(folder: str, name: str):
    """Where a binary may lie: in the folder of use_build(), beside the package, in its repository's build folders."""
    if _build:
        yield _build / folder / name
    yield PACKAGE / folder / name
    root = PACKAGE.parent.parent / "build"
    yield root / "release" / folder / name
    if root.is_dir():
        yield from sorted(p / folder / name for p in root.iterdir() if p.is_dir() and p.name != "release")


def find_compiler() -> str:
    """Path of mpt-opt: in use_build()'s folder, beside the package, in its repository's build folders, or on the PATH."""
    for path in candidates("bin", "mpt-opt"):
        if path.is_file():
            return str(path)
    found = shutil.which("mpt-opt")
    if not found:
        raise FileNotFoundError("mpt-opt not found: build it, put it on the PATH, or name its build with mpt.use_build(folder)")
    return found


def find_runtime(name: str = DEFAULT_RUNTIME) -> str:
    """Path of a runtime library: as for the compiler, or beside the compiler that is on the PATH."""
    for path in candidates("lib", name):
        if path.is_file():
            return str(path)
    tool = shutil.which("mpt-opt")
    path = pathlib.Path(tool).resolve().parent.parent / "lib" / name if tool else None
    return str(path) if path and path.is_file() else name


def name_bytes(name, what: str = "a function") -> bytes:
    """A name for the C API, which would end it at a zero byte."""
    if not isinstance(name, str) or "\0" in name:
        raise TypeError(f"expected the name of {what}, got {name!r}")
    return name.encode(errors="replace")


def path_bytes(path) -> bytes:
    """A path for the C API, likewise."""
    raw = os.fsencode(path)
    if b"\0" in raw:
        raise ValueError(f"expected a path without zero bytes, got {path!r}")
    return raw


def whole_number(value, what: str, least: int = -2**31, most: int = 2**31 - 1) -> int:
    """An integer for the C API: ctypes drops the upper bits of larger ones."""
    if not least <= operator.index(value) <= most:
        raise ValueError(f"expected {what} from {least} to {most}, got {value}")
    return value


class Runtime:
    """One target's runtime library. Emitted libraries for the CPU resolve their calls against the whole process; others
    against their own runtime alone, so that a process may hold several."""

    def __init__(self, name: str, target: str, path: str):
        self.target = target
        self.library = ctypes.CDLL(path, mode=ctypes.RTLD_GLOBAL if name == DEFAULT_RUNTIME else ctypes.RTLD_LOCAL)
        for name, arguments in PROTOTYPES.items():
            function = getattr(self.library, name)
            function.argtypes, function.restype = arguments, c_int32
        for name in ("mpt_model_destroy", "mpt_trainer_destroy", "mpt_world_destroy"):
            function = getattr(self.library, name)
            function.argtypes, function.restype = [c_void_p], None
        for name in ("mpt_model_name", "mpt_model_manifest", "mpt_world_transport"):
            function = getattr(self.library, name)
            function.argtypes, function.restype = [c_void_p], c_char_p
        self.library.mpt_last_error.argtypes, self.library.mpt_last_error.restype = [], c_char_p

    def fail(self, status: int):
        raise ERRORS.get(status, Error)(status, self.library.mpt_last_error().decode(errors="replace"))

    def call(self, name: str, *arguments) -> None:
        """Calls a function that returns a status; raises Error when it is not 0."""
        status = getattr(self.library, name)(*arguments)
        if status:
            self.fail(status)

    def tensors(self, name: str, *arguments):
        """Walks an enumeration of the API: name(*arguments, i, &tensor) until there is no i-th one."""
        i = 0
        while True:
            tensor = Tensor()
            status = getattr(self.library, name)(*arguments, i, byref(tensor))
            if status == NOT_FOUND:
                return
            if status:
                self.fail(status)
            yield tensor
            i += 1


def packaged_libraries() -> str:
    """Folders of NVIDIA's libraries in Python's packages (nvidia-cublas, nvidia-cudnn-cu13 ...), with colons between."""
    found = [folder for base in sys.path for folder in sorted(pathlib.Path(base or ".").glob("nvidia/*/lib")) if folder.is_dir()]
    return ":".join(dict.fromkeys(str(folder.resolve()) for folder in found if ":" not in str(folder.resolve())))


_runtimes = {}


def runtime(name: str, target: str, library=None) -> Runtime:
    """A runtime library by name, or the one at the path `library`; loaded at first use."""
    file = os.fsdecode(library) if library is not None else find_runtime(name)
    if file not in _runtimes:
        _runtimes[file] = Runtime(name, target, file)
    return _runtimes[file]


def runtime_of(path, library=None) -> Runtime:
    """The runtime of the target that a model was compiled for, by its manifest, or `library`; loaded at first use."""
    path = pathlib.Path(os.fsdecode(path))
    found = list(path.glob("*.json")) if path.is_dir() else [path.with_name(path.stem.removeprefix("lib") + ".json")]
    name, target = DEFAULT_RUNTIME, "cpu"
    for manifest in found:
        try:
            entries = json.loads(manifest.read_text())
            name, target = entries["runtime"], entries["target"]
            break
        except (OSError, ValueError, KeyError, TypeError):
            continue
    return runtime(name, target, library)
