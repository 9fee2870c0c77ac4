# SPDX-License-Identifier: Apache-2.0
"""How many bits of a row's results depend on the batch around it, on threads, on processes, and on who computes them.

  batch_invariance.py [--policies fp32,amp-f16,amp-bf16] [--batches 1,2,3,8,32] [--threads 1,2,4] [--processes 1,2,4]
                      [--flags batch-invariant] [--no-interpreter] [--markdown FILE] MODEL.onnx:BATCH.npz ...

Rows are drawn after the batch file. Results of the largest batch on one thread are the reference; every other way computes the
same rows in another order. A cell counts the values that differ. Models whose batch is fixed are run with it alone.
"""
from __future__ import annotations

import argparse
import os
import pathlib
import statistics
import subprocess
import sys
import tempfile
import time

import numpy as np
import onnx

HERE = pathlib.Path(__file__).resolve().parent
sys.path[:0] = [str(HERE.parent / "python")]
import mpt  # noqa: E402
from mpt import _safetensors  # noqa: E402
from mpt._arrays import numpy_type  # noqa: E402
from mpt._native import find_compiler  # noqa: E402

WAYS = ("batch", "threads", "processes", "evaluate", "interpreter")
RNG = np.random.default_rng(0)


class Model:
    """A file, how its batch is bound, and rows for it."""

    def __init__(self, path: str, batches: list):
        path, arrays = path.rsplit(":", 1)
        self.path, given = path, dict(np.load(arrays))
        graph = onnx.load(path, load_external_data=False).graph
        dims = {v.name: [d.dim_param or d.dim_value for d in v.type.tensor_type.shape.dim]
                for v in graph.input if v.name not in {i.name for i in graph.initializer}}
        given = {name: given[name] for name in dims}
        symbols = [(d, given[name].shape[axis]) for name, shape in dims.items() for axis, d in enumerate(shape) if isinstance(d, str)]
        self.symbol = symbols[0][0] if symbols else None
        axis_of = lambda name: dims[name].index(self.symbol) if self.symbol in dims[name] else 0
        self.axes = {name: axis_of(name) for name in dims}
        if self.symbol is None:  # of a recurrent model the rows may be columns: the extent that all inputs share
            extents = set.intersection(*(set(array.shape) for array in given.values()))
            first = next(iter(given.values()))
            extent = next(e for e in first.shape if e in extents)
            self.axes = {name: array.shape.index(extent) for name, array in given.items()}
            self.batches = [extent]
        else:
            self.batches = batches
        self.bind = {s: e for s, e in symbols if s != self.symbol}
        if self.symbol is not None:
            self.bind[self.symbol] = batches
        self.count = max(self.batches)
        self.rows = {name: self.draw(array, self.axes[name]) for name, array in given.items()}

    def draw(self, array: np.ndarray, axis: int) -> np.ndarray:
        shape = list(array.shape)
        shape[axis] = self.count
        if array.dtype.kind == "f" and len(np.unique(array)) > 2:
            return RNG.normal(array.mean(), array.std() or 1, shape).astype(array.dtype)
        if array.dtype.kind == "i":
            return np.take_along_axis(array, RNG.integers(0, array.shape[axis], shape), axis)  # each place has a range of its own
        return np.take(array, RNG.integers(0, array.shape[axis], self.count), axis)

    def take(self, rows) -> dict:
        return {name: np.ascontiguousarray(np.take(array, rows, self.axes[name])) for name, array in self.rows.items()}


def by_row(output: np.ndarray, batch: int) -> np.ndarray:
    """Rows first. The last axis of the batch's extent counts only where an earlier one does not have it."""
    axis = output.shape.index(batch) if batch in output.shape else 0
    if axis == 0 and output.shape[0] % batch == 0:
        return output.reshape(batch, -1)
    return np.moveaxis(output, axis, 0).reshape(batch, -1)


def run(function, model: Model, batch: int, order: np.ndarray) -> list:
    """Results of all rows in the rows' own order, computed `batch` at a time in `order`."""
    results = None
    for at in range(0, len(order), batch):
        rows = np.take(order, range(at, at + batch), mode="wrap")
        outputs = [by_row(o, batch) for o in function(model.take(rows))]
        results = results or [np.zeros((model.count, o.shape[1]), o.dtype) for o in outputs]
        for whole, o in zip(results, outputs):
            whole[rows] = o
    return results


def differing(a: list, b: list) -> int:
    return sum(int((x.view(f"u{x.dtype.itemsize}") != y.view(f"u{y.dtype.itemsize}")).sum()) for x, y in zip(a, b, strict=True))


def predict(trainer):
    names = list(trainer.outputs("predict"))

    def function(rows: dict) -> list:
        found = trainer.run("predict", rows)
        return [found[name] for name in names]
    return function


def in_processes(library: str, model: Model, count: int, folder: str) -> list:
    """Every process computes its share of the rows."""
    shares, children = np.array_split(np.arange(model.count), count), []
    for i, share in enumerate(shares):
        np.savez(f"{folder}/share{i}.npz", **model.take(share))
        children.append(subprocess.Popen([sys.executable, __file__, "--worker", library, f"{folder}/share{i}.npz", f"{folder}/result{i}.npz"],
                                         env={**os.environ, "OMP_NUM_THREADS": "1"}))
    if any([child.wait() for child in children]):
        raise RuntimeError("a process failed")
    parts = [list(np.load(f"{folder}/result{i}.npz").values()) for i in range(count)]
    return [np.concatenate([by_row(part[k], len(share)) for part, share in zip(parts, shares)]) for k in range(len(parts[0]))]


def interpreted(model: Model, trainer, options: list, folder: str, batch: int, rows: dict) -> list:
    """The results of mpt-run for the trained file."""
    trainer.save_onnx(f"{folder}/trained.onnx")
    bind = {**model.bind, **({model.symbol: batch} if model.symbol else {})}
    _safetensors.write(f"{folder}/in.safetensors", {name: (str(a.dtype), a.shape) for name, a in rows.items()},
                       lambda name: rows[name].tobytes(), {})
    subprocess.run([pathlib.Path(find_compiler()).with_name("mpt-run"), f"{folder}/trained.onnx", "--function=predict",
                    f"--inputs={folder}/in.safetensors", f"--outputs={folder}/out.safetensors",
                    *[f"--bind={s}={e}" for s, e in bind.items()], *options], check=True, stdout=subprocess.DEVNULL)
    found, _ = _safetensors.read(f"{folder}/out.safetensors")
    return [as_array(kind, shape, data) for kind, shape, data in (found[name] for name in trainer.outputs("predict"))]


def as_array(kind: str, shape: tuple, data) -> np.ndarray:
    return np.frombuffer(data, numpy_type(kind)).reshape(shape)


def evaluated(trainer, rows: dict) -> list:
    """The model's results by `evaluate`, which has the loss too."""
    targets = {name: np.zeros(shape, numpy_type(kind)) for name, (kind, shape) in trainer.inputs("evaluate").items() if name not in rows}
    found = trainer.run("evaluate", {**rows, **targets})
    return [found[name] for name in trainer.outputs("predict")]


def measure(model: Model, policy: str, args) -> dict:
    cells = dict.fromkeys(("values", *WAYS), 0)
    with tempfile.TemporaryDirectory() as folder:
        outputs = [o.name for o in onnx.load(model.path, load_external_data=False).graph.output]
        losses = [f"mse,output={name}" if len(outputs) > 1 else "mse" for name in outputs]
        # The largest batch first: evaluate names the first size.
        library = mpt.compile(model.path, loss=losses, optimizer="sgd,lr=0", policy=policy, bind=model.bind, out=folder,
                              name="model", **{name: True for name in args.flags})
        trainer = mpt.Trainer(library, threads=1)
        every = np.arange(model.count)
        reference = run(predict(trainer), model, model.count, every)
        cells["values"] = sum(o.size for o in reference)
        for threads in args.threads:
            other = mpt.Trainer(library, threads=threads)
            for batch in model.batches:
                cells["batch" if threads == 1 else "threads"] += differing(run(predict(other), model, batch, RNG.permutation(model.count)), reference)
        for count in args.processes:
            if model.count // count in model.batches:
                cells["processes"] += differing(in_processes(library, model, count, folder), reference)
        cells["evaluate"] = differing(run(lambda rows: evaluated(trainer, rows), model, model.count, every), reference)
        if args.interpreter:
            options = [*[f"--loss={loss}" for loss in losses], f"--policy={policy}", *[f"--{name}" for name in args.flags]]
            batch = min([b for b in model.batches if b > 1] or model.batches)
            found = interpreted(model, trainer, options, folder, batch, model.take(every[:batch]))
            cells["interpreter"] = differing([by_row(o, batch) for o in found], [np.ascontiguousarray(r[:batch]) for r in reference])
    return cells


def ratio(model: Model, policy: str, args) -> float:
    """Time of the step with --flags over that without: lower quintiles of short turns, which bear no traces of other work; CPU time of
    one thread."""
    with tempfile.TemporaryDirectory() as folder:
        bind = {**model.bind, **({model.symbol: args.time} if model.symbol else {})}
        functions = []
        for name, flags in (("free", {}), ("held", {flag: True for flag in args.flags})):
            library = mpt.compile(model.path, loss="mse", optimizer="sgd,lr=0", policy=policy, bind=bind, out=f"{folder}/{name}", name="model", **flags)
            trainer = mpt.Trainer(library, threads=1)
            rows = model.take(np.arange(args.time) % model.count if model.symbol else np.arange(model.count))
            targets = {n: np.zeros(shape, numpy_type(kind)) for n, (kind, shape) in trainer.inputs("step").items() if n not in rows}
            functions.append((trainer, "predict", rows) if args.time_of == "predict" else (trainer, "step", {**rows, **targets}))
        turns = []
        for _ in range(args.rounds):
            turns.append([])
            for trainer, function, inputs in functions:
                start, runs = time.process_time(), 0
                while runs < 2 or time.process_time() - start < 0.012:
                    trainer.run(function, inputs)
                    runs += 1
                turns[-1].append((time.process_time() - start) / runs)
        free, held = (statistics.quantiles(times, n=5)[0] for times in zip(*turns))
        return held / free


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    numbers = lambda text: [int(word) for word in text.split(",")]
    parser.add_argument("--policies", default="fp32,amp-f16,amp-bf16")
    parser.add_argument("--batches", type=numbers, default=[32, 1, 2, 3, 8])
    parser.add_argument("--threads", type=numbers, default=[1, 2, 4])
    parser.add_argument("--processes", type=numbers, default=[1, 2, 4])
    parser.add_argument("--flags", type=lambda text: [word for word in text.split(",") if word], default=[])
    parser.add_argument("--no-interpreter", dest="interpreter", action="store_false")
    parser.add_argument("--time", type=int, default=0, metavar="BATCH", help="only the time with --flags over that without")
    parser.add_argument("--time-of", default="predict", choices=("predict", "step"))
    parser.add_argument("--rounds", type=int, default=150)
    parser.add_argument("--worker", nargs=3, help=argparse.SUPPRESS)
    parser.add_argument("models", nargs="*", metavar="MODEL.onnx:BATCH.npz")
    args = parser.parse_args()
    if args.worker:
        library, share, result = args.worker
        np.savez(result, *predict(mpt.Trainer(library, threads=1))(dict(np.load(share))))
        return 0
    columns = ("time",) if args.time else ("values", *WAYS)
    print(f"| model | policy | {' | '.join(columns)} |\n|---|---{'|---' * len(columns)}|", flush=True)
    bad = 0
    for path in args.models:
        model = Model(path, args.batches)
        for policy in args.policies.split(","):
            cells = {"time": f"{ratio(model, policy, args):.3f}"} if args.time else measure(model, policy, args)
            bad += sum(cells[way] for way in WAYS if way in cells)
            print(f"| {pathlib.Path(model.path).name.split('.')[0]} | {policy} | {' | '.join(str(cells[c]) for c in columns)} |", flush=True)
    return bad > 0


if __name__ == "__main__":
    sys.exit(main())
