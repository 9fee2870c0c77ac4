# SPDX-License-Identifier: Apache-2.0
"""Batches of whatever holds training data: arrays, a folder of safetensors files, a torch DataLoader, any iterable."""
import os
import pathlib
import sys
from collections.abc import Iterator

import numpy as np

from ._errors import logger
from ._safetensors import array, read


class Batches:
    """Data as epochs of batches for one function of a model. The order within an epoch depends on `seed` and the epoch's number
    alone, so that a resumed run sees the same batches.

    data      {input: array} of all samples; a folder of safetensors files, or one of them; or anything that can be iterated
              again: a list, a torch DataLoader, a function that gives the iterator of an epoch. Its items are dicts by input
              name, or tuples in the order of the inputs
    """

    def __init__(self, data, inputs: dict, sizes: set, shuffle: bool, seed: int):
        self.data, self.shuffle, self.seed, self.sizes = data, shuffle, seed, sizes
        self.names = [name for name in inputs if name != "learning_rate"]
        self.told = False
        if isinstance(data, (str, os.PathLike)):
            path = pathlib.Path(data)
            self.files = sorted(path.glob("*.safetensors")) if path.is_dir() else [path]
            if not self.files or not all(file.is_file() for file in self.files):
                raise FileNotFoundError(f"expected a folder of .safetensors files, or one of them, got '{path}'")
            self.make = self._of_files
        elif isinstance(data, dict):
            self.arrays = {name: value if hasattr(value, "shape") else np.asarray(value) for name, value in data.items()}
            rows = {name: len(value) for name, value in self.arrays.items()}
            if len(set(rows.values())) != 1:
                raise ValueError(f"expected arrays of one number of samples, got {rows}")
            self.make = self._of_arrays
        elif isinstance(data, Iterator):
            raise TypeError("expected data that can be iterated once for each epoch, got an iterator, which can be once: give a list, "
                            "or a function that makes the iterator")
        elif callable(data) or hasattr(data, "__iter__"):
            self.make = self._of_items
        else:
            raise TypeError(f"expected arrays by name, a folder, or an iterable of batches, got {type(data).__name__}")

    def epoch(self, number: int, skip: int = 0):
        """The batches of an epoch behind the first `skip`."""
        for i, batch in enumerate(self.make(np.random.default_rng((self.seed, number)), number)):
            if i >= skip:
                yield batch

    def _cut(self, arrays: dict, order):
        """Batches of the model's size out of rows; the rows left over form one where the library has its size."""
        rows, size = len(order), max(self.sizes)
        for start in range(0, rows, size):
            chosen = order[start:start + size]
            if len(chosen) in self.sizes:
                yield {name: value[chosen] for name, value in arrays.items()}
            elif not self.told:
                self.told = True
                logger.info("%d of %d samples are left out of an epoch: the library takes %s at once; bind=... makes one of more sizes",
                            len(chosen), rows, " or ".join(map(str, sorted(self.sizes))))

    def _of_arrays(self, random, _):
        rows = len(next(iter(self.arrays.values())))
        yield from self._cut(self.arrays, random.permutation(rows) if self.shuffle else np.arange(rows))

    def _of_files(self, random, _):
        for i in random.permutation(len(self.files)) if self.shuffle else range(len(self.files)):
            tensors = {name: array(*entry) for name, entry in read(self.files[i])[0].items()}
            rows = {len(value) for value in tensors.values() if value.ndim}
            if len(rows) != 1:
                raise ValueError(f"'{self.files[i]}': expected tensors of one number of samples, got {sorted(rows)}")
            order = np.arange(rows.pop())
            yield from self._cut(tensors, random.permutation(order) if self.shuffle else order)

    def _of_items(self, random, number):
        seed = int(random.integers(2**62))
        torch = sys.modules.get("torch")
        if torch is not None and isinstance(self.data, torch.utils.data.DataLoader):
            (self.data.generator or torch.default_generator).manual_seed(seed)
            if hasattr(self.data.sampler, "set_epoch"):
                self.data.sampler.set_epoch(number)
        for item in self.data() if callable(self.data) else self.data:
            if isinstance(item, dict):
                yield item
            elif isinstance(item, (list, tuple)) and len(item) == len(self.names):
                yield dict(zip(self.names, item))
            else:
                raise TypeError(f"expected batches as dicts, or tuples of {', '.join(self.names)}, got {type(item).__name__}"
                                + (f" of {len(item)}" if isinstance(item, (list, tuple)) else ""))


def batch_sizes(trainer, function: str) -> set:
    """The numbers of samples that a function takes: the first extents of its inputs, in each size of the library."""
    found = set()
    for size in trainer.sizes:
        name = function if not size or len(trainer.sizes) == 1 else f"{function}[{','.join(f'{k}={v}' for k, v in size.items())}]"
        try:
            inputs = trainer.inputs(name)
        except ValueError:
            inputs = trainer.inputs(function)
        found |= {shape[0] for _, shape in inputs.values() if shape}
    return found or {1}
