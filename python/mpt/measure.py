# SPDX-License-Identifier: Apache-2.0
"""Times the products of a library that mpt-opt --emit=products wrote, on the machine to train on.

    python -m mpt.measure DIR -o TABLE.json
    mpt-opt MODEL.onnx --policy=fp8-hybrid,measure=TABLE.json ...

Each product runs in the policy's 16-bit type and in 8 bits with its conversions, in turns. The table has the median of the rounds.
"""
import argparse
import json
import math
import os
import statistics
import sys
import tempfile

import numpy as np

from ._arrays import numpy_type
from ._native import Error
from ._trainer import Trainer

FORMAT, VERSION = "mpt-products", 1
ALIGNMENT = 64  # bytes: inputs are then not copied
MOST_RUNS = 1000  # of one sample


class Operands:
    """Random numbers for the inputs of one function at a time, in memory that all functions share."""

    def __init__(self, trainer: Trainer, functions):
        self._inputs = {name: trainer.inputs(name) for name in functions}
        self._types = {kind: self._type(kind) for inputs in self._inputs.values() for kind, _ in inputs.values()}
        sizes = [sum(self._bytes(*described) for described in inputs.values()) for inputs in self._inputs.values()]
        raw = np.empty(max(sizes, default=0) + ALIGNMENT, np.uint8)
        self._memory = raw[-raw.ctypes.data % ALIGNMENT:]
        self._numbers = np.random.default_rng(1).standard_normal(1 << 16, np.float32)

    @staticmethod
    def _type(kind: str) -> np.dtype:
        found = numpy_type(kind)
        if found is None:
            raise TypeError(f"operands of type {kind}: install ml_dtypes to make them")
        return found

    def _bytes(self, kind: str, shape) -> int:
        return -(-math.prod(shape) * self._types[kind].itemsize // ALIGNMENT) * ALIGNMENT

    def of(self, function: str) -> dict:
        """{name: array}; good until the next call."""
        at, arrays = 0, {}
        for name, (kind, shape) in self._inputs[function].items():
            dtype, count = self._types[kind], math.prod(shape)
            array = self._memory[at:at + count * dtype.itemsize].view(dtype)
            block = self._numbers.astype(dtype)
            for start in range(0, count, block.size):
                array[start:start + block.size] = block[:count - start]
            arrays[name] = array.reshape(shape)
            at += self._bytes(kind, shape)
        return arrays


def measure(path, *, rounds: int = 7, seconds: float = 0.02, say=None, **settings) -> dict:
    """The table of the products of the library at `path` (mpt-opt --emit=products): times in microseconds, each the median of
    `rounds` samples that take about `seconds` each, and half the distance of their quartiles over it as `spread`.

    say       called with a line of text for each product
    settings  further arguments of mpt.Trainer: threads, device, options

    Raises ValueError where the library is another one.
    """
    if rounds < 1 or not seconds > 0:
        raise ValueError(f"expected rounds of at least 1 and seconds above 0, got {rounds} and {seconds}")
    with Trainer(path, **settings) as trainer:
        manifest = trainer.manifest
        wanted = manifest.get("measures")
        if wanted is None:
            raise ValueError(f"'{path}' is no library of products: expected one that mpt-opt --emit=products wrote")
        pairs = [(row["function_16"], row["function_8"]) for row in wanted["products"]]
        groups = pairs + [(row["function"],) for row in wanted["conversions"]]
        samples = _sample(trainer, groups, rounds, seconds)
        device, libraries = trainer.device()
        products = []
        for row, pair in zip(wanted["products"], pairs):
            wide, narrow = (_summary(samples[name]) for name in pair)
            products.append({"product": row["product"], "us_16": wide[0], "us_8": narrow[0], "spread_16": wide[1],
                             "spread_8": narrow[1], "ops": row["ops"], "operations": row["operations"]})
            if say:
                say(f"{row['product']}: {wide[0]:.1f} us in 16 bits, {narrow[0]:.1f} us in 8 bits")
        conversions = []
        for row in wanted["conversions"]:
            time, spread = _summary(samples[row["function"]])
            conversions.append({"conversion": row["conversion"], "us": time, "spread": spread})
        return {"format": FORMAT, "version": VERSION, "recipe": wanted["recipe"], "target": manifest["target"],
                "device": device, "libraries": libraries, "compiler": manifest.get("compiler", ""),
                "source": manifest.get("source", ""), "policy": manifest.get("policy", ""), "rounds": rounds,
                "products": products, "conversions": conversions}


def _sample(trainer: Trainer, groups, rounds: int, seconds: float) -> dict:
    """{function: seconds of its rounds}. The functions of a group run in turns, in another order each round: a machine that slows down
    slows all of them down."""
    operands = Operands(trainer, [name for group in groups for name in group])
    runs, samples = {}, {}
    for turn in range(rounds):
        for group in groups:
            inputs = operands.of(group[0])  # all of a group take the same
            for name in group if turn % 2 == 0 else reversed(group):
                if name not in runs:
                    trainer.time(name, inputs, 1)  # algorithms are chosen, code and memory are loaded
                    once = trainer.time(name, inputs, 1)
                    runs[name] = min(max(math.ceil(seconds / max(once, 1e-9)), 1), MOST_RUNS)
                samples.setdefault(name, []).append(trainer.time(name, inputs, runs[name]))
    return samples


def _summary(samples: list) -> tuple:
    """(median in microseconds, half the distance of the quartiles over the median)."""
    middle = statistics.median(samples)
    low, _, high = statistics.quantiles(samples, n=4, method="inclusive") if len(samples) > 1 else (middle,) * 3
    # Nothing takes no time: a clock too coarse to tell counts its least step.
    return max(round(middle * 1e6, 3), 0.001), round((high - low) / 2 / max(middle, 1e-9), 3)


def text_of(table: dict) -> str:
    """The table as JSON, one row a line."""
    lines = []
    for key, value in table.items():
        if isinstance(value, list):
            rows = ",\n".join(f"  {json.dumps(row)}" for row in value)
            lines.append(f'"{key}": [\n{rows}\n ]' if rows else f'"{key}": []')
        else:
            lines.append(f'"{key}": {json.dumps(value)}')
    return "{\n " + ",\n ".join(lines) + "\n}\n"


def write(table: dict, path) -> None:
    """Writes the table; an existing file is replaced at once or not at all."""
    folder = os.path.dirname(os.path.abspath(path))
    handle, temporary = tempfile.mkstemp(dir=folder, prefix=os.path.basename(path) + ".")
    try:
        with os.fdopen(handle, "w") as to:
            to.write(text_of(table))
        os.chmod(temporary, 0o644)
        os.replace(temporary, path)
    except BaseException:
        os.unlink(temporary)
        raise


def main(words=None) -> int:
    parser = argparse.ArgumentParser(prog="python -m mpt.measure", description=__doc__.split("\n\n")[0])
    parser.add_argument("library", help="folder that mpt-opt --emit=products wrote")
    parser.add_argument("-o", "--output", required=True, metavar="TABLE", help="file for the table (JSON)")
    parser.add_argument("--rounds", type=int, default=7, help="samples of each time; their median counts (7)")
    parser.add_argument("--seconds", type=float, default=0.02, help="that a sample takes, about (0.02)")
    parser.add_argument("--threads", type=int, default=0, help="on the CPU: as the trainer will have (all)")
    parser.add_argument("--device", type=int, default=0, help="number of the CUDA device (0)")
    parser.add_argument("--option", action="append", default=[], metavar="KEY=VALUE",
                        help="of the trainer, as in search=full (repeatable)")
    arguments = parser.parse_args(words)
    options = dict(pair.split("=", 1) if "=" in pair else (pair, "1") for pair in arguments.option)
    try:
        table = measure(arguments.library, rounds=arguments.rounds, seconds=arguments.seconds, threads=arguments.threads,
                        device=arguments.device, options=options, say=print)
        write(table, arguments.output)
    except (Error, OSError, TypeError, ValueError) as problem:
        print(f"mpt.measure: {problem}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
