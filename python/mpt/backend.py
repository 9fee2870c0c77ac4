# SPDX-License-Identifier: Apache-2.0
"""mpt as an ONNX backend (onnx.backend.base): models run through the libraries that mpt compiles them to.

    import onnx, mpt.backend
    outputs = mpt.backend.run_model(onnx.load("model.onnx"), [x])

Shapes are static in mpt, and a shape that is an input of the model is not known when it is compiled. So a model is compiled
at its first run: with its inputs as inputs, and where the compiler asks for values, with the integer inputs as constants.
"""
import ctypes
import tempfile
from pathlib import Path

import numpy as np
import onnx
from onnx import numpy_helper
from onnx.backend.base import Backend, BackendRep, Device, DeviceType, namedtupledict

from . import _native
from ._arrays import stored
from ._compile import CompileError, option, run
from ._errors import failure
from ._trainer import Trainer

_FLOATS = {onnx.TensorProto.FLOAT, onnx.TensorProto.DOUBLE, onnx.TensorProto.FLOAT16, onnx.TensorProto.BFLOAT16}
_MOST_CONSTANTS = 16  # elements of a float input that may be a constant: scales and regions of interest
# Types that cross a library's boundary as bytes, one an element: bit patterns of floats, values of integers.
_STORED = {onnx.TensorProto.FLOAT8E4M3FNUZ, onnx.TensorProto.FLOAT8E5M2FNUZ, onnx.TensorProto.FLOAT4E2M1,
           onnx.TensorProto.FLOAT8E8M0, onnx.TensorProto.UINT4, onnx.TensorProto.INT4, onnx.TensorProto.UINT2,
           onnx.TensorProto.INT2}
_WHOLE = {onnx.TensorProto.UINT4, onnx.TensorProto.INT4, onnx.TensorProto.UINT2, onnx.TensorProto.INT2}
_compiler = None


def from_bytes(array: np.ndarray, element: int) -> np.ndarray:
    """The array in the type that the model declares, where the library has bytes for it."""
    if element not in _STORED:
        return array
    dtype = onnx.helper.tensor_dtype_to_np_dtype(element)
    return array.astype(dtype) if element in _WHOLE else array.view(dtype)


def compile_in_process(path, out, **flags) -> None:
    """mpt-opt's work without a process of its own; CompileError holds the diagnostic. Takes mpt-opt where there is no
    libmpt_compiler."""
    global _compiler
    if _compiler is None:
        found = [file for file in _native.candidates("lib", "libmpt_compiler.so") if file.is_file()]
        _compiler = ctypes.CDLL(str(found[0])) if found else False
    if not _compiler:
        run(path, out, **flags)
        return
    words = [str(path), "-o", str(out)]
    for flag, value in flags.items():
        words += option(flag, value)
    text = ctypes.c_char_p()
    array = (ctypes.c_char_p * len(words))(*(word.encode() for word in words))
    status = _compiler.mpt_compiler_run(len(words), array, ctypes.byref(text))
    diagnostics = (text.value or b"").decode(errors="replace").strip()
    _compiler.mpt_compiler_free_text(text)
    if status:
        raise CompileError(failure(diagnostics))


def with_constants(model: onnx.ModelProto, values: dict) -> onnx.ModelProto:
    """The model with some of its inputs, {name: array}, as initializers."""
    changed = onnx.ModelProto()
    changed.CopyFrom(model)
    kept = [value for value in changed.graph.input if value.name not in values]
    del changed.graph.input[:]
    changed.graph.input.extend(kept)
    changed.graph.initializer.extend(numpy_helper.from_array(np.asarray(value), name) for name, value in values.items())
    return changed


class Rep(BackendRep):
    """A model that is compiled at its first run, and again where values differ that were compiled in."""

    Trainer, compile = Trainer, staticmethod(compile_in_process)

    def __init__(self, model: onnx.ModelProto, flags: dict):
        self.model, self.flags = model, flags
        self.initialized = {tensor.name for tensor in model.graph.initializer}
        self.names = [value.name for value in model.graph.input if value.name not in self.initialized]
        self.folder = self.trainer = None
        self.constants = {}  # inputs that were compiled in

    def _element(self, value) -> int:
        return value.type.tensor_type.elem_type

    def run(self, inputs, **_):
        """Outputs in the model's order; `inputs` is a sequence in its order, or a dict by name."""
        given = dict(inputs) if isinstance(inputs, dict) else dict(zip(self.names, inputs))
        given = {name: stored(np.asarray(value)) for name, value in given.items()}
        same = all(np.array_equal(given[name], value) for name, value in self.constants.items())
        if not self.trainer or not same:
            self._compile(given)
        rest = {name: value for name, value in given.items() if name not in self.constants}
        results = self.trainer.run("evaluate", rest)
        outputs = self.model.graph.output
        arrays = (from_bytes(results[value.name], self._element(value)) for value in outputs)
        return namedtupledict("Outputs", [value.name for value in outputs])(*arrays)

    def _compile(self, given: dict) -> None:
        self.close()
        for constants in self._choices(given):
            self.folder = tempfile.TemporaryDirectory(prefix="mpt-backend-")
            path = Path(self.folder.name) / "model.onnx"
            path.write_bytes(with_constants(self.model, constants).SerializeToString())
            try:
                self.compile(path, Path(self.folder.name) / "lib", forward_only=True, **self.flags)
            except CompileError as refusal:
                self.close()
                problem = refusal
                if "constant" not in str(refusal) and "run time" not in str(refusal):
                    break
                continue
            self.trainer = self.Trainer(Path(self.folder.name) / "lib", threads=1)
            self.constants = constants
            return
        raise problem

    def _choices(self, given: dict):
        """Which inputs to compile in: none; then integers, which may be shapes; then short vectors of floats too; then, for
        operators whose result's shape depends on their operand's values, all."""
        yield {}
        types = {value.name: value.type.tensor_type.elem_type for value in self.model.graph.input}
        integers = {name: value for name, value in given.items() if types[name] not in _FLOATS}
        if integers:
            yield integers
        short = {name: value for name, value in list(given.items())[1:]
                 if types[name] in _FLOATS and np.ndim(value) <= 1 and np.size(value) <= _MOST_CONSTANTS}
        if short:
            yield integers | short
        yield given

    def close(self) -> None:
        """Unloads the library and removes it."""
        if self.trainer:
            self.trainer.close()
        if self.folder:
            self.folder.cleanup()
        self.folder = self.trainer = None

    def __del__(self):
        self.close()


class MptBackend(Backend):
    """`device` is CPU; further arguments are flags of mpt-opt, as for mpt.compile."""

    @classmethod
    def prepare(cls, model: onnx.ModelProto, device: str = "CPU", **flags) -> Rep:
        if not cls.supports_device(device):
            raise ValueError(f"expected device CPU, got {device}")
        return Rep(model, flags)

    @classmethod
    def supports_device(cls, device: str) -> bool:
        return Device(device).type == DeviceType.CPU


prepare = MptBackend.prepare
run_model = MptBackend.run_model
run_node = MptBackend.run_node
supports_device = MptBackend.supports_device
is_compatible = MptBackend.is_compatible
