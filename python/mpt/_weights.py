# SPDX-License-Identifier: Apache-2.0
"""Weights under the names of the torch module or .onnx file that a model was compiled from. Of a module, mpt.compile writes
NAME.module beside the library: the keys of its state_dict, which of them are one tensor, and the values that the library lacks."""
import copy
import json
import os
import pathlib
import warnings

import numpy as np

from . import _safetensors
from ._arrays import NAMES, numpy_type
from ._errors import CompileWarning

PARAMETER, STATISTIC, FROZEN = 0, 3, 11  # mpt_role
STEPS = "mpt.step"


def torch_or_none():
    try:
        import torch
        return torch
    except ImportError:
        return None


def described(module) -> tuple:
    """The content of a torch module's state_dict, for `write`: its keys with the first key of the same tensor, and their tensors."""
    import torch
    keys, values, first, extra = {}, {}, {}, {}
    for key, tensor in module.state_dict(keep_vars=True).items():
        if not isinstance(tensor, torch.Tensor):  # of get_extra_state
            extra[key] = tensor
            continue
        place = (tensor.untyped_storage().data_ptr(), tensor.storage_offset(), tuple(tensor.shape), tensor.stride(), tensor.dtype)
        keys[key] = {"type": str(tensor.dtype).removeprefix("torch."), "shape": list(tensor.shape),
                     "first": first.setdefault(place, key) if tensor.numel() else key}
        values[key] = tensor.detach()
    counts = [key for name, part in module.named_modules() if getattr(part, "num_batches_tracked", None) is not None
              for key in [f"{name}.num_batches_tracked".lstrip(".")] if key in keys]
    return {"keys": keys, "parameters": [name for name, _ in module.named_parameters()], "counts": counts, "extra": kept_extra(extra),
            "order": list(module.state_dict())}, values


def kept_extra(extra: dict) -> dict:
    """{key: JSON, or None of a value that JSON has not} of the values beside tensors that get_extra_state gives."""
    made = {}
    for key, value in extra.items():
        try:
            text = json.dumps(value)
            made[key] = text if same(json.loads(text), value) else None
        except (TypeError, ValueError):
            made[key] = None
    if lost := [key for key, text in made.items() if text is None]:
        warnings.warn(f"expected tensors, numbers, texts, lists and dicts of get_extra_state, got others for {', '.join(lost)}: "
                      "state_dict() is without them, so load it with strict=False", CompileWarning, stacklevel=5)
    return made


def same(one, other) -> bool:
    """Equal, and of the same types; a NaN is itself."""
    if type(one) is not type(other):
        return False
    if isinstance(one, dict):
        return list(one) == list(other) and all(same(one[key], other[key]) for key in one)
    if isinstance(one, list):
        return len(one) == len(other) and all(map(same, one, other))
    return one == other or (one != one and other != other)


def write(folder, stem: str, module) -> None:
    """Writes STEM.module beside a library. Values that its states hold as exactly are not in it."""
    import torch
    folder = pathlib.Path(os.fspath(folder))
    if not (folder / f"{stem}.json").exists():  # no library that a trainer loads
        return
    description, tensors = described(module)
    manifest = json.loads((folder / f"{stem}.json").read_text())
    states, _ = _safetensors.read(folder / f"{stem}.safetensors")
    trained = {name for group in manifest.get("optimizer", {}).get("groups", ()) for name in group["parameters"]}
    kept = {}
    for key, entry in description["keys"].items():
        names = [name for name, other in description["keys"].items() if other["first"] == entry["first"]]
        exact = any(name in trained or f"{name}.master" in states or (name in states and states[name][0] == entry["type"])
                    for name in names)
        if entry["first"] == key and (not exact or key in description["counts"]):
            kept[key] = tensors[key].cpu().contiguous().reshape(-1).view(torch.uint8).numpy()
    _safetensors.write(folder / f"{stem}.module", {key: ("uint8", (raw.size,)) for key, raw in kept.items()}, kept.get,
                       {"fingerprint": manifest["fingerprint"], "module": json.dumps(description)})


def beside(library, fingerprint: str):
    """The description and the kept bytes of the module that a library was made of; nothing where it was made of a file."""
    path = pathlib.Path(os.fsdecode(library))
    for file in path.glob("*.module") if path.is_dir() else [path.with_name(path.stem.removeprefix("lib") + ".module")]:
        try:
            found, metadata = _safetensors.read(file)
        except FileNotFoundError:
            continue
        if metadata.get("fingerprint") == fingerprint:
            return json.loads(metadata["module"]), {key: raw for key, (_, _, raw) in found.items()}
    return None


class Weights:
    """The names that the weights of a trainer have outside, and the values that are not in its state."""

    def __init__(self, trainer, library):
        self.trainer = trainer
        self.states = {t.name.decode(): (i, NAMES[t.dtype], tuple(t.shape[:t.rank]), role)
                       for i, (t, role) in enumerate(trainer._state())}
        found = beside(library, trainer.manifest["fingerprint"])
        self.of_module = found is not None
        if found is None:
            roles = [(name, state) for name, state in self.states.items() if state[3] in (PARAMETER, STATISTIC, FROZEN)]
            found = {"keys": {name: {"type": "float64" if kind == "float64" else "float32", "shape": list(shape), "first": name}
                              for name, (_, kind, shape, _) in roles},
                     "parameters": [name for name, state in roles if state[3] != STATISTIC], "counts": [], "extra": {},
                     "order": [name for name, _ in roles]}, {}
        description, self.kept = found
        self.keys, self.parameters, self.counts = description["keys"], description["parameters"], description["counts"]
        self.extra = {key: text and json.loads(text) for key, text in description["extra"].items()}
        self.order = description["order"]
        self.lost = [key for key, text in description["extra"].items() if text is None]
        self.ties = {}  # by the first key
        for key, entry in self.keys.items():
            self.ties.setdefault(entry["first"], []).append(key)
        self.state_of = {first: next((name for name in names if name in self.states), None) for first, names in self.ties.items()}

    def steps(self) -> int:
        """Batches that a step has counted."""
        if STEPS not in self.states:
            return 0
        return int(self.read(STEPS)) * self.trainer.manifest.get("accumulate", 1)

    def read(self, name: str) -> np.ndarray:
        """A state's values: in FP32 from masters, integers and FP64 as they are."""
        i, kind, _, _ = self.states[name]
        if kind == "float64" or not kind.startswith(("float", "bfloat")):
            return self.trainer._read(i, list(self.trainer._state())[i][0])
        return self.trainer.parameter(name)

    def put(self, name: str, value: np.ndarray) -> None:
        i, kind, _, _ = self.states[name]
        if kind == "float64" or not kind.startswith(("float", "bfloat")):
            raw = np.ascontiguousarray(value, numpy_type(kind))
            self.trainer._runtime.call("mpt_trainer_write", self.trainer._trainer, i, raw.ctypes.data, raw.nbytes)
        else:
            self.trainer.set_parameter(name, value)

    def _still(self, first: str, state: str) -> bool:
        """Whether a kept value is the state's value in a wider type, and not another one that was loaded since."""
        kind, shape = self.keys[first]["type"], self.keys[first]["shape"]
        narrow = numpy_type(self.states[state][1])
        wide = _safetensors.array(kind, shape, self.kept[first])
        return narrow is None or np.array_equal(wide.astype(narrow).astype(np.float32), self.read(state), equal_nan=True)

    def value(self, first: str, torch, averaged: bool = False):
        """The tensor of a key, in the key's type: of torch where that is there. With `averaged`, its average where it has one."""
        entry, state = self.keys[first], self.state_of[first]
        average = f"{state}.ema"
        if averaged and average in self.states:
            return self._typed(self.read(average), entry["type"], torch)
        kind, shape = entry["type"], entry["shape"]
        kept = self.kept.get(first)
        if first in self.counts:
            made = np.array(int(np.frombuffer(kept, np.int64)[0]) + self.steps(), np.int64)
        elif kept is not None and (state is None or self._still(first, state)):
            if torch is None:
                return _safetensors.array(kind, shape, kept).copy()
            dtype = getattr(torch, kind)
            return torch.frombuffer(bytearray(kept), dtype=dtype).reshape(shape) if len(kept) else torch.empty(shape, dtype=dtype)
        else:
            made = self.read(state)
        return self._typed(made, kind, torch)

    @staticmethod
    def _typed(value, kind: str, torch):
        if torch is not None:
            return torch.from_numpy(value).to(getattr(torch, kind))
        return value.astype(numpy_type(kind)) if numpy_type(kind) is not None else value

    def _look(self, averaged: bool) -> bool:
        if averaged and not any(name.endswith(".ema") for name in self.states):
            raise ValueError(f"expected averages of parameters, got model '{self.trainer.name}' without: compile it with ema=0.999")
        return averaged

    def state_dict(self, averaged: bool) -> dict:
        torch, made = torch_or_none(), {}
        self._look(averaged)
        for key, entry in self.keys.items():
            made[key] = made[entry["first"]] if entry["first"] in made else self.value(entry["first"], torch, averaged)
        made |= {key: copy.deepcopy(value) for key, value in self.extra.items() if key not in self.lost}
        return {key: made[key] for key in self.order if key in made}

    def load(self, given: dict, strict: bool) -> tuple:
        """Looks at everything before it writes anything."""
        unexpected = [key for key in given if key not in self.keys and key not in self.extra]
        missing = [names[0] for names in self.ties.values() if not any(name in given for name in names)]
        missing += [key for key in self.extra if key not in given and key not in self.lost]
        if strict and (missing or unexpected):
            some = lambda names: ", ".join(names[:8]) + (f" and {len(names) - 8} more" if len(names) > 8 else "")
            raise ValueError(f"expected the tensors of model '{self.trainer.name}', got " + "; ".join(
                [f"none for {some(missing)}"] * bool(missing) + [f"unknown ones: {some(unexpected)}"] * bool(unexpected)) +
                "; strict=False leaves out what does not match")
        values = {}
        for first, names in self.ties.items():
            for name in names:
                if name not in given:
                    continue
                value = as_numpy(name, given[name])
                if list(value.shape) != self.keys[name]["shape"]:
                    raise ValueError(f"'{name}': expected shape {tuple(self.keys[name]['shape'])}, got {value.shape}")
                if first in values and not np.array_equal(values[first], value, equal_nan=value.dtype.kind == "f"):
                    raise ValueError(f"'{name}': expected the values of '{first}', which is the same tensor, got others")
                values.setdefault(first, value)
        for first, value in values.items():
            if self.state_of[first] is None and first not in self.counts and first not in self.parameters:
                now = as_numpy(first, self.value(first, torch_or_none()))
                if not np.array_equal(now, value, equal_nan=value.dtype.kind == "f"):
                    raise ValueError(f"'{first}': expected the values that the model was compiled with, as this buffer is no state of "
                                     "the library, got others; load them into the module and compile it again")
        for first, value in values.items():
            self._store(first, value)
        self.extra.update((key, copy.deepcopy(given[key])) for key in self.extra if key in given)
        return missing, unexpected

    def _store(self, first: str, value: np.ndarray) -> None:
        if first in self.counts:
            self.kept[first] = np.array(int(value) - self.steps(), np.int64).tobytes()
        elif first in self.kept:
            kind = numpy_type(self.keys[first]["type"])
            if kind is not None:
                self.kept[first] = value.astype(kind).tobytes()
        if self.state_of[first] is not None:
            self.put(self.state_of[first], value)

    def set_steps(self, steps: int) -> None:
        """The steps that an optimizer has made elsewhere; batches that were counted stay counted."""
        before = {key: int(np.frombuffer(self.kept[key], np.int64)[0]) + self.steps() for key in self.counts}
        self.put(STEPS, np.array(steps, np.int64))
        for key, count in before.items():
            self._store(key, np.array(count))

    def save(self, path, averaged: bool) -> None:
        """As safetensors; a tensor of several names is there once, and the metadata have its other ones."""
        self._look(averaged)
        metadata = {"format": "pt", **{name: first for first, names in self.ties.items() for name in names[1:]}}

        def kind(first):
            own = self.keys[first]["type"]
            return own if torch_or_none() or numpy_type(own) is not None else "float32"

        def raw(first):
            torch = torch_or_none()
            value = self.value(first, torch, averaged)
            return value.contiguous().reshape(-1).view(torch.uint8).numpy() if torch else value.tobytes()

        _safetensors.write(path, {first: (kind(first), self.keys[first]["shape"]) for first in self.ties}, raw, metadata)


def as_numpy(name: str, value) -> np.ndarray:
    """A torch tensor or array, exactly: types that numpy lacks become FP32."""
    if hasattr(value, "detach"):
        value = value.detach().cpu()
        if str(value.dtype).removeprefix("torch.").startswith(("bfloat16", "float8")):
            value = value.float()
        return value.numpy()
    array = np.asarray(value)
    if array.dtype.kind in "OSUMm":
        raise TypeError(f"'{name}': expected an array of numbers, got {array.dtype.name}")
    return array
