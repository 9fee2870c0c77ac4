# SPDX-License-Identifier: Apache-2.0
"""mpt.fit: the loop around a trainer's steps, which can be killed and goes on where it was."""
import contextlib
import math
import operator
import os
import pathlib
import signal
import sys
import threading
import time

import numpy as np

from ._batches import Batches, batch_sizes
from ._report import STYLE, curves
from ._run_folder import RunFolder, read_log, write_text
from ._watch import culprits, watch as look


def fit(trainer, data, *, epochs: int, run, validation=None, metrics: dict | None = None, learning_rate=None, shuffle: bool = True,
        seed: int = 0, patience: int | None = None, monitor: str | None = None, keep: int = 3, save_every: int | None = None,
        resume: bool = True, watch: bool = True, callbacks=(), progress: bool = True, save_onnx=None) -> "Fit":
    """Trains for a number of epochs, and keeps a folder of the run: log, checkpoints, the best state.

    data           {input: array} of all samples, cut into batches of the library's size; a folder of safetensors files; or an
                   iterable of batches (dicts, or tuples in the order of the inputs), such as a torch DataLoader
    run            folder of the run. A call that finds checkpoints there goes on from the newest one, to the bits of a run
                   that was never interrupted; with resume=False it begins anew
    validation     data for `evaluate` after each epoch
    metrics        {name: function(outputs, batch)} of numbers, averaged over the validation
    learning_rate  a number, or a function of the step's number; None leaves it to the library
    patience       ends after so many epochs without a better `monitor`: val_loss, or loss without validation; a metric's name is
                   val_NAME, for which more is better unless it has "loss" or "error" in its name
    keep           checkpoints that stay, beside the best one
    save_every     steps between checkpoints; None: one at the end of each epoch
    watch          look at gradients and parameters after each epoch, and at gradients after a skipped step, for the report
    callbacks      functions of (record, trainer), called after each step and epoch; one that returns "stop" ends the run
    save_onnx      file that the model goes to at the end, with the best values where there is a validation

    Ctrl-C, and SIGTERM, save a checkpoint before they end the program; a second Ctrl-C ends it at once.
    """
    if trainer._processes > 1:
        raise ValueError("expected a trainer of one process, got one of a world: write the loop with step() and save()")
    loop = Fit(trainer, Batches(data, trainer.inputs("step"), batch_sizes(trainer, "step"), shuffle, seed),
               validation and Batches(validation, trainer.inputs("evaluate"), batch_sizes(trainer, "evaluate"), False, seed),
               RunFolder(run, whole("keep", keep)))
    loop.metrics, loop.learning_rate, loop.callbacks, loop.watched = metrics or {}, learning_rate, list(callbacks), watch
    loop.patience, loop.save_every = patience and whole("patience", patience), save_every and whole("save_every", save_every)
    loop.monitor = monitor or ("val_loss" if validation is not None else "loss")
    known = ["loss", *(["val_loss", *(f"val_{name}" for name in loop.metrics)] if validation is not None else [])]
    if loop.monitor not in known:
        raise ValueError(f"expected {' or '.join(known)} as monitor, got '{monitor}'")
    loop.train(whole("epochs", epochs), resume, progress, save_onnx)
    return loop


def whole(name: str, value) -> int:
    if operator.index(value) < 1:
        raise ValueError(f"expected {name} of 1 or more, got {value}")
    return value


@contextlib.contextmanager
def deferred(signals=(signal.SIGINT, signal.SIGTERM)):
    """A list that signals go to while a step runs: the first one waits until the state is whole."""
    arrived = []
    if threading.current_thread() is not threading.main_thread():  # no handlers there
        yield arrived
        return

    def arrive(number, frame):
        if arrived and number == signal.SIGINT:
            raise KeyboardInterrupt
        arrived.append(number)

    before = {number: signal.signal(number, arrive) for number in signals}
    try:
        yield arrived
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


class Fit:
    """A run: its progress and its results. `place` is the progress that a checkpoint notes beside the state."""

    def __init__(self, trainer, batches: Batches, validation: Batches | None, folder: RunFolder):
        self.trainer, self.batches, self.validation, self.folder = trainer, batches, validation, folder
        self.place = {"step": 0, "epoch": 0, "batch": 0, "loss_sum": 0.0, "best": None, "best_epoch": None}
        self.stopped = ""  # why it ended before its last epoch

    @property
    def run(self) -> pathlib.Path:
        return self.folder.path

    @property
    def best(self) -> pathlib.Path | None:
        path = self.run / "best.safetensors"
        return path if path.exists() else None

    def _repr_html_(self) -> str:
        return f"<style>{STYLE}</style>{curves(read_log(self.run / 'log.jsonl'))}"

    def train(self, epochs: int, resume: bool, progress: bool, save_onnx) -> None:
        if resume:
            self.place.update(self.folder.resume(self.trainer) or {})
        else:
            self.folder.clear()
        place, manifest = self.place, self.trainer.manifest
        self.folder.describe({"model": self.trainer.name, "policy": manifest.get("policy", "fp32"), "target": manifest.get("target", "cpu"),
                              "device": self.trainer.device()[0], "library": os.path.abspath(os.fsdecode(self.trainer._path)),
                              "epochs": epochs, "monitor": self.monitor, "trainer": repr(self.trainer)})
        self.folder.open_log(place["step"])
        self.arrived = []
        try:
            with deferred() as self.arrived:
                self._be_patient()
                while place["epoch"] < epochs and not self.stopped:
                    self._epoch(epochs, progress)
            if not self.folder.found() or not self.arrived:
                self.folder.save(self.trainer, place)
            if profile := self.trainer.profile():
                write_text(self.run / "profile.txt", profile)
            if save_onnx is not None and not self.arrived:
                self._save_onnx(save_onnx)
        finally:
            self.folder.close()
        print(f"mpt: {self.summary(save_onnx)}", file=sys.stderr)
        if signal.SIGINT in self.arrived:
            raise KeyboardInterrupt
        if self.arrived:
            sys.exit(128 + self.arrived[0])

    def summary(self, save_onnx=None) -> str:
        """One line: how far the run came, and where everything is."""
        place = self.place
        found = f"{place['step']} steps, {place['epoch']} epochs{f' ({self.stopped})' if self.stopped else ''}"
        if place["best"] is not None:
            found += f", best {self.monitor} {place['best']:.4g} of epoch {place['best_epoch']} in {self.run / 'best.safetensors'}"
        found += f"; log and checkpoints in {self.run}"
        return found + (f", model in {save_onnx}" if save_onnx is not None and not self.arrived else "")

    # ---- inside ----

    def _epoch(self, epochs: int, progress: bool) -> None:
        place, last = self.place, None
        with bar(progress, f"epoch {place['epoch'] + 1}/{epochs}") as show:
            for batch in self.batches.epoch(place["epoch"], place["batch"]):
                start = time.perf_counter()
                record = self._step(batch)
                record["seconds"] = time.perf_counter() - start
                self._tell(record)
                show(record, batch)
                last = batch
                if self.arrived or self.stopped:
                    self.stopped = self.stopped or "interrupted"
                    self.folder.save(self.trainer, place)
                    return
                if self.save_every and place["step"] % self.save_every == 0:
                    self.folder.save(self.trainer, place)
        if not place["batch"]:
            raise ValueError(f"expected batches in the data, got none: the library takes {sorted(self.batches.sizes)} samples at once")
        self._end_epoch(last)

    def _step(self, batch: dict) -> dict:
        place, rate = self.place, self.learning_rate
        if callable(rate):
            rate = float(rate(place["step"]))
        result = self.trainer.step(batch, learning_rate=rate)
        place["step"] += 1
        place["batch"] += 1
        if math.isfinite(result.loss):
            place["loss_sum"] += result.loss
        record = {"kind": "step", "step": place["step"], "epoch": place["epoch"], "loss": result.loss, "loss_scale": result.loss_scale,
                  "skipped": result.skipped, "learning_rate": self.trainer._learning_rate()}
        if result.grad_norm is not None:
            record["grad_norm"] = result.grad_norm
        if result.skipped and self._looks():
            record["culprits"] = culprits(self.trainer, batch)
        return record

    def _looks(self) -> bool:
        return self.watched and bool(self.trainer.inputs("gradients"))

    def _end_epoch(self, batch: dict | None) -> None:
        place = self.place
        record = {"kind": "epoch", "step": place["step"], "epoch": place["epoch"], "loss": place["loss_sum"] / place["batch"]}
        if self.validation is not None:
            record.update(self._validate())
        if batch is not None and self._looks():
            self.folder.write({"kind": "watch", "step": place["step"], **look(self.trainer, batch)})
        place.update(epoch=place["epoch"] + 1, batch=0, loss_sum=0.0)
        value = record[self.monitor]
        fewer = "loss" in self.monitor or "error" in self.monitor
        if math.isfinite(value) and (place["best"] is None or (value < place["best"] if fewer else value > place["best"])):
            place.update(best=value, best_epoch=place["epoch"])
            self.trainer.save(self.run / "best.safetensors")
        self._tell(record)
        self._be_patient()
        self.folder.save(self.trainer, place)

    def _be_patient(self) -> None:
        if self.patience and self.place["epoch"] - (self.place["best_epoch"] or 0) >= self.patience:
            self.stopped = f"no better {self.monitor} for {self.patience} epochs"

    def _validate(self) -> dict:
        sums, count = {}, 0
        for batch in self.validation.epoch(0):
            outputs = self.trainer.evaluate(batch)
            values = {name: float(function(outputs, batch)) for name, function in self.metrics.items()}
            if "loss" in outputs and np.size(outputs["loss"]) == 1:
                values["loss"] = float(np.asarray(outputs["loss"]).reshape(()))
            for name, value in values.items():
                sums[f"val_{name}"] = sums.get(f"val_{name}", 0.0) + value
            count += 1
        if not count:
            raise ValueError(f"expected batches in the validation data, got none: the library takes {sorted(self.validation.sizes)} samples at once")
        return {name: value / count for name, value in sums.items()}

    def _tell(self, record: dict) -> None:
        self.folder.write(record)
        for callback in self.callbacks:
            if callback(record, self.trainer) == "stop":
                self.stopped = f"stopped by {getattr(callback, '__name__', 'a callback')}"

    def _save_onnx(self, path) -> None:
        """The best values where a validation chose them; the state goes on as it is."""
        last = self.folder.found()[0].with_suffix(".safetensors")
        chosen = self.best if self.validation is not None else None
        try:
            if chosen:
                self.trainer.load(chosen)
            self.trainer.save_onnx(path)
        finally:
            if chosen:
                self.trainer.load(last)


@contextlib.contextmanager
def bar(progress: bool, title: str):
    """A function of (record, batch) that shows how far an epoch is; without tqdm one line at its end."""
    started, seen = time.perf_counter(), 0

    def text(record) -> dict:
        rate = seen / max(time.perf_counter() - started, 1e-9)
        return {"loss": f"{record['loss']:.4g}", "scale": f"{record['loss_scale']:g}", "samples/s": f"{rate:.4g}"}

    try:
        from tqdm.auto import tqdm
    except ImportError:
        tqdm = None
    line = tqdm(desc=title, unit="step", leave=True) if progress and tqdm else None
    shown = {}

    def show(record, batch):
        nonlocal seen, shown
        seen += max((len(value) for value in batch.values() if getattr(value, "shape", ())), default=1)
        shown = text(record)
        if line is not None:
            line.set_postfix(shown, refresh=False)
            line.update()

    try:
        yield show
    finally:
        if line is not None:
            line.close()
        elif progress and shown:
            print(f"{title}: " + ", ".join(f"{name} {value}" for name, value in shown.items()), file=sys.stderr)
