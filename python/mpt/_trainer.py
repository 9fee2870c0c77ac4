# SPDX-License-Identifier: Apache-2.0
"""Training a compiled model."""
import functools
import html
import json
import numbers
import operator
import os
import pathlib
import tempfile
import threading
from ctypes import POINTER, addressof, byref, c_char_p, c_double, c_float, c_int32, c_void_p, create_string_buffer
from dataclasses import dataclass

import numpy as np

from . import _native
from ._arrays import NAMES, SIZES, DeviceArray, to_array, to_tensor
from ._compile import run as rewrite
from ._native import name_bytes, path_bytes, whole_number
from ._optimizer_state import OptimizerState
from ._report import Memory, describe
from ._safetensors import array, read
from ._weights import Weights
from ._world import joined

OPTIONAL = ("step", "gradients", "evaluate", "predict", "accumulate", "initialize")
INVALID_ARGUMENT = 1  # mpt_status
PARAMETER, MASTER, SLOT, STATISTIC, CONSTANT, ACCUMULATOR, FROZEN = 0, 1, 2, 3, 7, 8, 11  # mpt_role


def alone(method):
    """A method of a trainer that no other thread may be inside of. The same one may: a signal's handler saves, say."""
    @functools.wraps(method)
    def guarded(self, *arguments, **keywords):
        if not self._lock.acquire(blocking=False):
            raise _native.Error(INVALID_ARGUMENT, "the trainer is in use by another thread: expected one thread at a time; "
                                                  "make a trainer a thread, or let threads wait for each other")
        try:
            return method(self, *arguments, **keywords)
        finally:
            self._lock.release()
    return guarded


@dataclass(frozen=True)
class StepResult:
    """Results of a step. `grad_norm` is the global norm of the gradients before clipping, None where the step does not
    compute it: without clip_norm it would cost a pass over all gradients."""
    loss: float
    skipped: bool
    loss_scale: float
    grad_norm: float | None


class Trainer:
    """One set of parameters and optimizer state of a compiled model.

    path     folder that mpt.compile wrote, or its lib<name>.so
    threads  threads to use; 0 means all that OpenMP offers
    seed     seed of dropout; None keeps the one in the weights file
    weights  safetensors file of initial values; None means the one beside the library
    device   number of the CUDA device, for models compiled for CUDA
    options  further options of the target's runtime by name, such as {"profile": 40}; for CUDA see docs/cuda.md. Unless
             they name "libraries", cuBLASLt and cuDNN are found in Python's packages too
    runtime  path of the runtime library; None means the one beside the package or the compiler
    world    mpt.init(), for a library compiled with replicas: rank r of N then trains its replicas r*V/N to (r+1)*V/N - 1, and
             every step takes the rows of these. Making a trainer, step, load and save are collective; results are the
             global step's, the same on every rank, and one rank writes the file of save
    data_parallel  True stands for world=mpt.init() without arguments: the launcher's world, joined once a process

    Inputs are dicts from name to array: numpy, anything with the buffer protocol, or DLPack (a torch tensor). They are
    not copied when they are dense and aligned to 64 bytes. For a model compiled for CUDA they may also lie on its device
    (DLPack). A trainer is for one thread at a time: a call from another one meanwhile raises Error. `close()`, or leaving a
    `with` block, waits for such a call and releases the memory; every later call raises ValueError.
    """

    def __init__(self, path, *, threads: int = 0, seed: int | None = None, weights=None, device: int = 0,
                 options: dict | None = None, runtime=None, world=None, data_parallel: bool = False):
        self._lock = threading.RLock()
        if data_parallel and world is None:
            world = joined()
        self._trainer = c_void_p()
        self._model = c_void_p()
        self._runtime = _native.runtime_of(path, runtime)
        self._device = device
        self._processes = world.size if world else 1
        call = self._runtime.call
        call("mpt_model_load", path_bytes(path), byref(self._model))
        if not 0 <= threads < 2**31:
            raise ValueError(f"expected a number of threads of 0 or more, got {threads}")
        if self._runtime.target == "cuda":
            options = {"libraries": _native.packaged_libraries(), **(options or {})}
        pairs = [_native.Option(name_bytes(key, "an option"), path_bytes(value) if isinstance(value, (str, os.PathLike)) else
                                b"%d" % operator.index(value))
                 for key, value in (options or {}).items()]
        settings = _native.Options(threads, seed is not None, (seed or 0) & (2**64 - 1),
                                   path_bytes(weights) if weights is not None else None,
                                   whole_number(device, "the number of a device", 0),
                                   (_native.Option * len(pairs))(*pairs), len(pairs), world and world.handle())
        call("mpt_trainer_create", self._model, byref(settings), byref(self._trainer))
        self._path = path
        self._has_norm = "grad_norm" in self._describe("mpt_model_output", "step")
        self._shapes = {t.name.decode(): tuple(t.shape[:t.rank]) for t in self._parameters()}

    def close(self) -> None:
        """Releases the trainer's memory; closing twice is fine."""
        with self._lock:
            trainer, model = self.__dict__.pop("_trainer", None), self.__dict__.pop("_model", None)
            if trainer:
                self._runtime.library.mpt_trainer_destroy(trainer)
            if model:
                self._runtime.library.mpt_model_destroy(model)

    def __enter__(self):
        return self

    def __exit__(self, *_) -> None:
        self.close()

    def __del__(self):
        self.close()

    def __reduce_ex__(self, _):
        raise TypeError("a trainer cannot be copied or pickled: make another with mpt.Trainer(path), and give it the state by "
                        "save(path) and load(path)")

    def __getattr__(self, name):
        # Only missing attributes come here: the handles of a trainer that has been closed.
        if name in ("_trainer", "_model"):
            raise ValueError("the trainer is closed; make another with mpt.Trainer(path)")
        raise AttributeError(f"'{type(self).__name__}' object has no attribute '{name}'")

    def __repr__(self) -> str:
        if not self.__dict__.get("_trainer"):
            return "<mpt.Trainer, closed>"
        manifest, trained = self.manifest, [t for t, role in self._state() if role == PARAMETER]
        values = sum(int(np.prod(t.shape[:t.rank], dtype=np.int64)) for t in trained)
        return (f"<mpt.Trainer of '{self.name}': policy {manifest.get('policy', 'fp32')}, target {self._runtime.target}, "
                f"{len(trained)} parameters of {values:,} values, {len(manifest.get('held', {}))} held>")

    def _repr_html_(self) -> str:
        return describe(self) if self.__dict__.get("_trainer") else html.escape(repr(self))

    @property
    def name(self) -> str:
        return self._runtime.library.mpt_model_name(self._model).decode()

    @property
    def manifest(self) -> dict:
        """Notes of the compiler: policy, optimizer and its settings, source file."""
        return json.loads(self._runtime.library.mpt_model_manifest(self._model))

    @property
    def sizes(self) -> list:
        """[{symbol: extent}] of a library of several sizes: a call takes the one that its inputs have the shapes of. "step" names
        the first one for `inputs` and `outputs`, "step[batch=8]" another one."""
        sizes = self.manifest.get("sizes") or [""]
        return [{name: int(extent) for name, extent in (pair.rsplit("=", 1) for pair in size.split(",") if pair)}
                for size in sizes]

    def inputs(self, function: str = "step") -> dict:
        """{name: (type, shape)} of a function's inputs: of a step with replicas, the rows of this process's. Nothing for one of
        step, gradients, evaluate, predict, accumulate and initialize that the model lacks."""
        described = self._known("mpt_model_input", function)
        replicas = self.manifest.get("replicas") or {}
        if function != "step" or not replicas.get("count"):
            return described
        return {name: (kind, (shape[0] // self._processes, *shape[1:]) if name in replicas["split"] else shape)
                for name, (kind, shape) in described.items()}

    def outputs(self, function: str = "step") -> dict:
        return self._known("mpt_model_output", function)

    @alone
    def step(self, inputs: dict, learning_rate: float | None = None, function: str = "step") -> StepResult:
        """One training step. A learning rate given here stays in force until another one is given. `function` names one of
        several training algorithms."""
        if learning_rate is None:
            return self._result(self._run(function, inputs))
        if not isinstance(learning_rate, numbers.Real):
            raise TypeError(f"expected a number as learning_rate, got {learning_rate!r}")
        before = self._learning_rate()
        self._runtime.call("mpt_trainer_set_learning_rate", self._trainer, float(learning_rate))
        try:
            return self._result(self._run(function, inputs))
        except BaseException:
            if before is not None:  # a step that is refused leaves everything as it was
                self._runtime.call("mpt_trainer_set_learning_rate", self._trainer, before)
            raise

    @alone
    def reset(self) -> None:
        """The state of a new trainer again; a model with initialization graphs then runs them."""
        self._runtime.call("mpt_trainer_reset", self._trainer)

    @alone
    def gradients(self, inputs: dict):
        """(loss, {parameter: unscaled float32 gradient}), without an update."""
        metrics = self._run("gradients", inputs)
        values = self._outputs("gradients")
        return metrics.loss, {name: values[name] for name in self._shapes if name in values}

    @alone
    def evaluate(self, inputs: dict) -> dict:
        """{output: array} of the model's evaluation form; without its targets the outputs are the predictions alone."""
        function = "evaluate"
        if isinstance(inputs, dict) and not self.inputs("evaluate").keys() <= inputs.keys() and self.inputs("predict"):
            function = "predict"
        self._run(function, inputs)
        return self._outputs(function)

    @alone
    def run(self, function: str, inputs: dict) -> dict:
        """Runs any function of the model and returns its outputs."""
        self._run(function, inputs)
        return self._outputs(function)

    @alone
    def time(self, function: str, inputs: dict, runs: int = 1) -> float:
        """Seconds that a run of a function takes on the device: the mean of `runs` in a row, behind one that does not count. They
        change the state as `run` does."""
        array, count, _kept = self._arrays(inputs)
        seconds = c_double()
        self._runtime.call("mpt_trainer_time", self._trainer, name_bytes(function), array, count,
                           whole_number(runs, "a number of runs", 1), byref(seconds))
        return seconds.value

    @alone
    def profile(self) -> str:
        """Times of runtime calls so far, with the option `profile`: a table of each function that ran more than once. The first run
        does not count."""
        text = c_char_p()
        self._runtime.call("mpt_trainer_profile", self._trainer, byref(text))
        return text.value.decode(errors="replace")

    @alone
    def device(self) -> tuple:
        """(name of the processor or GPU, versions of the libraries that compute on it)."""
        name, libraries = c_char_p(), c_char_p()
        self._runtime.call("mpt_trainer_device", self._trainer, byref(name), byref(libraries))
        return name.value.decode(errors="replace"), libraries.value.decode(errors="replace")

    @alone
    def parameters(self, trained: bool = False) -> dict:
        """{name: float32 array} of every parameter, from its master where there is one: frozen ones (freeze=...) too, unless
        `trained` asks for the ones alone that steps change."""
        frozen = {t.name.decode() for t, role in self._state() if role == FROZEN} if trained else ()
        return {name: self.parameter(name) for name in self._shapes if name not in frozen}

    @alone
    def trained(self) -> dict:
        """Tensors that steps change, and ones that they leave: {"tensors": {name: shape}, "values": their number, "held": {name: why}}.
        Tensors that `held` names were in the model's file and do not train."""
        frozen = {t.name.decode() for t, role in self._state() if role == FROZEN}
        tensors = {name: shape for name, shape in self._shapes.items() if name not in frozen}
        return {"tensors": tensors, "values": sum(int(np.prod(shape)) for shape in tensors.values()),
                "held": self.manifest.get("held", {})}

    @alone
    def parameter(self, name: str) -> np.ndarray:
        """A parameter, or any tensor of the state, as float32."""
        out = np.empty(self._shape(name), np.float32)
        self._runtime.call("mpt_trainer_get", self._trainer, name.encode(), out.ctypes.data_as(POINTER(c_float)), out.size)
        return out

    @alone
    def set_parameter(self, name: str, value) -> None:
        """Writes a parameter: its master, and its narrow copy rounded to nearest even."""
        array = np.asarray(value)
        if array.dtype.kind in "cOSUMm":
            raise TypeError(f"'{name}': expected real numbers, got an array of type {array.dtype.name}")
        array = array.astype(np.float32, order="C", copy=False)
        shape = self._shape(name)
        if array.shape != shape:
            raise ValueError(f"'{name}': expected shape {shape}, got {array.shape}")
        self._runtime.call("mpt_trainer_set", self._trainer, name.encode(), array.ctypes.data_as(POINTER(c_float)), array.size)

    @alone
    def state(self) -> dict:
        """{name: array} of everything that a saved state holds, in the types it is stored in."""
        return {t.name.decode(): self._read(i, t) for i, (t, _) in enumerate(self._state())}

    @alone
    def state_dict(self, averaged: bool = False) -> dict:
        """{name: tensor} of the weights, under the names, shapes and types that the torch module has them in: buffers and tied
        weights too, so that module.load_state_dict(trainer.state_dict()) is exact. Of an .onnx file, its tensors that are parameters
        or running statistics. With `averaged`, the averages that ema=... keeps. Tensors are torch's where torch is installed, else
        numpy's."""
        return self._weights.state_dict(averaged)

    @alone
    def load_state_dict(self, state: dict, strict: bool = True) -> tuple:
        """Takes such weights, masters and narrow copies, and nothing where one does not fit. Of names of one tensor, one is enough.
        Returns the names that are missing and the names that are unknown, which are an error unless strict=False."""
        return self._weights.load(state, strict)

    @alone
    def save_safetensors(self, path, averaged: bool = False) -> None:
        """Writes state_dict(averaged) as safetensors, as Hugging Face's libraries do: a tied weight once, under its first name."""
        self._weights.save(path, averaged)

    @alone
    def load_safetensors(self, path, strict: bool = True) -> tuple:
        """load_state_dict of such a file."""
        return self.load_state_dict({name: array(*entry) for name, entry in read(path)[0].items()}, strict)

    @alone
    def optimizer_state_dict(self) -> dict:
        """The state of SGD, Adam or AdamW as torch.optim has it: load_state_dict of an optimizer of module.parameters() takes it."""
        return OptimizerState(self._weights).save()

    @alone
    def load_optimizer_state_dict(self, state: dict) -> None:
        """Takes the state of torch.optim's optimizer: moments, the number of steps and the learning rate. Other settings are as
        the library was compiled with; a state with others is refused."""
        OptimizerState(self._weights).load(state)

    @alone
    def start(self, inputs: dict) -> None:
        """Starts a step and does not wait for it; `metrics` reads its results."""
        self._run("step", inputs, wait=False)

    @alone
    def metrics(self) -> StepResult:
        """Results of the last step."""
        metrics = _native.Metrics()
        self._runtime.call("mpt_trainer_metrics", self._trainer, b"step", byref(metrics))
        return self._result(metrics)

    @alone
    def synchronize(self) -> None:
        """Waits until everything that was started is done."""
        self._runtime.call("mpt_trainer_synchronize", self._trainer)

    @alone
    def on_device(self, function: str | None = None) -> dict:
        """{name: array} of a function's last outputs, or of the parameters, frozen ones too, in the memory of the CUDA device: for
        DLPack and __cuda_array_interface__, without a copy. They are good while the trainer lives."""
        if self._runtime.target != "cuda":
            raise ValueError("on_device is for models compiled for CUDA")
        found = (self._parameters() if function is None else
                 self._runtime.tensors("mpt_trainer_device_output", self._trainer, name_bytes(function)))
        return {t.name.decode(): DeviceArray(t, self._device, self) for t in found}

    @alone
    def save(self, path, sharded: bool = False) -> None:
        """Writes the whole state as safetensors; an existing file is replaced at once or not at all. With `sharded`, each rank
        writes its part of a divided state (shard_optimizer=True) beside `path`, which becomes their index: nobody needs
        memory for all of it."""
        self._runtime.call("mpt_trainer_save_sharded" if sharded else "mpt_trainer_save", self._trainer, path_bytes(path))

    @alone
    def save_onnxruntime(self, path, optimizer_state: bool = True) -> None:
        """Writes a checkpoint that ONNX Runtime Training 1.19 loads: parameters in FP32, frozen ones and running statistics, and with
        `optimizer_state` Adam's or AdamW's moments and the number of steps. Raises MptError for other optimizers' state and
        beyond 2 GiB."""
        self._runtime.call("mpt_trainer_save_onnxruntime", self._trainer, path_bytes(path), int(optimizer_state))

    @alone
    def save_onnx(self, path, averaged: bool = False, policy: str | None = None, **flags) -> None:
        """Writes the .onnx file that the model was compiled from with the values of the tensors that training changes, and nothing else
        changed: with `averaged`, the averages that ema=... keeps. With `policy`, that file rewritten for the policy's types, its
        weights narrow; `flags` are mpt-opt's, such as keep_f32="/head.*". This takes the compiler. An existing file is replaced at
        once or not at all. Files of external data lie beside `path`."""
        if policy is None:
            if flags:
                raise TypeError(f"save_onnx takes {', '.join(flags)} only with a policy")
            self._runtime.call("mpt_trainer_save_onnx", self._trainer, path_bytes(path), int(averaged))
            return
        if self._processes > 1:
            raise ValueError("save_onnx rewrites for a policy in one process: save without one, and rewrite that file by mpt-opt")
        target = pathlib.Path(os.fspath(path))
        with tempfile.TemporaryDirectory(prefix=f".{target.name}.", dir=target.parent) as folder:
            whole = pathlib.Path(folder) / target.name
            self._runtime.call("mpt_trainer_save_onnx", self._trainer, path_bytes(whole), int(averaged))
            rewrite(whole, target, policy=policy, emit="onnx", **flags)

    @alone
    def load(self, path) -> None:
        self._runtime.call("mpt_trainer_load", self._trainer, path_bytes(path))

    @alone
    def memory(self) -> dict:
        """Bytes: of the state (and in it weights with masters, and optimizer state), of the scratch arena (saved activations and
        workspace), of kept results and staged inputs, and their sum as `peak_bytes`."""
        memory = _native.Memory()
        self._runtime.call("mpt_trainer_memory", self._trainer, byref(memory))
        result = {name: getattr(memory, name) for name, _ in memory._fields_}
        result["peak_bytes"] = sum(result.values())
        result["weight_bytes"] = result["slot_bytes"] = 0
        manifest = self.manifest
        shards = manifest.get("shards", {}).get("states", {})
        local = manifest["replicas"]["count"] // self._processes if shards else 1
        for tensor, role in self._state():
            bytes_ = int(np.prod(tensor.shape[:tensor.rank], dtype=np.int64)) * SIZES[NAMES[tensor.dtype]]
            if shard := shards.get(tensor.name.decode()):
                bytes_ = shard["shard_bytes"] * local
            if role in (PARAMETER, FROZEN, MASTER, STATISTIC, CONSTANT):
                result["weight_bytes"] += bytes_
            elif role in (SLOT, ACCUMULATOR):
                result["slot_bytes"] += bytes_
        return Memory(result)

    # ---- inside ----

    @functools.cached_property
    def _weights(self) -> Weights:
        return Weights(self, self._path)

    def _describe(self, call_name: str, function: str) -> dict:
        return {t.name.decode(): (NAMES[t.dtype], tuple(t.shape[:t.rank]))
                for t in self._runtime.tensors(call_name, self._model, name_bytes(function))}

    def _known(self, call_name: str, function: str) -> dict:
        """_describe, of functions that the model has; functions that models may lack have nothing."""
        described = self._describe(call_name, function)
        if not described and function not in OPTIONAL and not any(
                self._describe(call, function) for call in ("mpt_model_input", "mpt_model_output")):
            raise ValueError(f"model '{self.name}' has no function '{function}'")
        return described

    def _learning_rate(self) -> float | None:
        """The rate in force; nothing where none was set and the model has no default."""
        rate = c_double()
        status = self._runtime.library.mpt_trainer_learning_rate(self._trainer, byref(rate))
        return None if status == _native.NOT_FOUND else rate.value

    def _parameters(self):
        """Also the frozen ones."""
        return [t for t, role in self._state() if role in (PARAMETER, FROZEN)]

    def _state(self):
        role, i = c_int32(), 0
        tensor = _native.Tensor()
        while self._runtime.library.mpt_trainer_state(self._trainer, i, byref(tensor), byref(role)) == 0:
            yield tensor, role.value
            tensor = _native.Tensor()
            i += 1

    def _shape(self, name: str) -> tuple:
        if name in self._shapes:
            return self._shapes[name]
        for tensor, _ in self._state():
            if tensor.name.decode() == name:
                return tuple(tensor.shape[:tensor.rank])
        raise KeyError(f"model '{self.name}' has no parameter or state '{name}'")

    def _read(self, i: int, tensor) -> np.ndarray:
        size = int(np.prod(tensor.shape[:tensor.rank], dtype=np.int64)) * SIZES[NAMES[tensor.dtype]]
        raw = create_string_buffer(max(size, 1))
        self._runtime.call("mpt_trainer_read", self._trainer, i, raw, size)
        return to_array(_native.Tensor(tensor.name, tensor.dtype, tensor.rank, tensor.shape, addressof(raw)))

    def _arrays(self, inputs: dict):
        """(tensors, how many, objects to keep alive) for the C API."""
        if not isinstance(inputs, dict):
            raise TypeError(f"expected a dict of arrays by input name, got {type(inputs).__name__}")
        pairs = [to_tensor(name, value, self._runtime.target) for name, value in inputs.items()]
        return (_native.Tensor * max(len(pairs), 1))(*(tensor for tensor, _ in pairs)), len(pairs), pairs

    def _run(self, function: str, inputs: dict, wait: bool = True) -> "_native.Metrics":
        array, count, _kept = self._arrays(inputs)
        metrics = _native.Metrics()
        self._runtime.call("mpt_trainer_run", self._trainer, name_bytes(function), array, count,
                           byref(metrics) if wait else None)
        return metrics

    def _outputs(self, function: str) -> dict:
        return {t.name.decode(): to_array(t)
                for t in self._runtime.tensors("mpt_trainer_output_at", self._trainer, name_bytes(function))}

    def _result(self, metrics) -> StepResult:
        return StepResult(metrics.loss, bool(metrics.skipped), metrics.loss_scale,
                          metrics.grad_norm if self._has_norm else None)
