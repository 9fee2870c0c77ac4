# SPDX-License-Identifier: Apache-2.0
"""Tasks of the parity benchmark: data, training loop and measure of each task.

Every run gets a seed, which decides the initial weights, the order of the data and dropout. The learning rate falls linearly
to zero, so that the measure is of weights at rest.
"""
from __future__ import annotations

import functools
import hashlib
import os
import pathlib
import sys
import sysconfig
from dataclasses import dataclass, field

import numpy as np
import onnx

import mpt
import networks


COMPILED: dict = {}  # folders of the libraries that this process has compiled


@dataclass
class Run:
    value: float                 # accuracy in per cent, loss in nats, or a distance
    skipped: int = 0             # steps that were not finite
    scale: float = 1.0           # loss scale at the end
    loss: list = field(default_factory=list)
    trainer: object = None


@dataclass
class Library:
    """A library to be compiled: a network, and the options beside the policy."""
    make: functools.partial
    optimizer: str
    loss: str = "softmax-cross-entropy"
    flags: dict = field(default_factory=dict)
    edit: object = None          # changes the text of the rewritten step, as no policy can

    def open(self, folder, policy: str, seed: int):
        return trainer_for(folder, self.make, policy, seed, self.optimizer, self.loss, self.edit, **self.flags)

    def fingerprint(self, folder, policy: str, seed: int) -> str:
        """Of the training step after the precision rewrite: it decides the computation, whoever emits the code."""
        text = os.path.join(folder, "step.mlir")
        mpt.compile(model_for(folder, self.make, seed), name=self.make.func.__name__, loss=self.loss, optimizer=self.optimizer,
                    out=text, emit="mlir", to="precision", **{**self.flags, **flags_of(policy)})
        return hashlib.sha256(pathlib.Path(text).read_bytes()).hexdigest()[:16]


@dataclass
class Task:
    name: str
    measure: str                 # "accuracy" or "loss"
    limit: float                 # points of accuracy, or per cent of the loss
    train: object                # (libraries, folder, policy, seed, steps) -> Run
    steps: int
    libraries: tuple
    seeds: int = 1               # run at least this many, where one run differs from the next by more than `limit`

    def run(self, folder, policy: str, seed: int, steps: int) -> Run:
        return self.train(self.libraries, folder, policy, seed, steps)

    def fingerprint(self, folder, policy: str, seed: int) -> str:
        return "-".join(library.fingerprint(folder, policy, seed) for library in self.libraries)


def progress(text: str) -> None:
    if sys.stderr.isatty():
        print(f"\r\033[K{text}", end="", file=sys.stderr, flush=True)


@functools.cache
def digits():
    """Training and held-out digits (a third): images [n, 1, 8, 8] scaled to [0, 1], labels [n]."""
    from sklearn.datasets import load_digits
    data = load_digits()
    order = np.random.default_rng(0).permutation(len(data.target))
    x, y = (data.images[order, None] / 16.0).astype(np.float32), data.target[order].astype(np.int64)
    cut = len(y) // 3
    return x[cut:], y[cut:], x[:cut], y[:cut]


@functools.cache
def library_text() -> np.ndarray:
    """The bytes of the standard library's top-level modules, in name order."""
    files = sorted(pathlib.Path(sysconfig.get_paths()["stdlib"]).glob("*.py"))
    return np.frombuffer(b"\n".join(f.read_bytes() for f in files), np.uint8)


def model_for(folder, make, seed: int) -> str:
    name = make.func.__name__ + "".join(f"-{k}{v}" for k, v in make.keywords.items())
    return make(os.path.join(folder, f"{name}.{seed}.onnx"), seed=seed)


def weights_of(model: str) -> dict:
    return {tensor.name: onnx.numpy_helper.to_array(tensor) for tensor in onnx.load(model).graph.initializer}


def flags_of(policy: str) -> dict:
    """The options of mpt.compile that "amp-bf16+saved=f8+slots=i8" stands for."""
    name, *flags = policy.split("+")
    return {"policy": name, **dict(flag.split("=", 1) for flag in flags)}


def trainer_for(folder, make, policy: str, seed: int, optimizer: str, loss: str = "softmax-cross-entropy", edit=None, **flags):
    """A trainer of the policy's library, compiled once, from the weights of the network with this seed."""
    model = model_for(folder, make, seed)
    key = (folder, str(make), loss, optimizer, policy, edit, *flags.items())
    if key not in COMPILED:
        progress(f"{make.func.__name__}: compiling for {policy}")
        out = os.path.join(folder, f"{len(COMPILED)}-{make.func.__name__}-{pathlib.Path(policy).stem}")
        source, flags = model, dict(flags, name=make.func.__name__, loss=loss, optimizer=optimizer, **flags_of(policy))
        if edit:
            step = pathlib.Path(f"{out}.mlir")
            mpt.compile(model, out=step, emit="mlir", to="precision", **flags)
            step.write_text(edit(step.read_text()))
            source, flags = step, {"name": flags["name"], "from": "fusion"}
        COMPILED[key] = mpt.compile(source, out=out, **flags)
    trainer = mpt.Trainer(COMPILED[key], threads=1, seed=seed)
    set_weights(trainer, weights_of(model))
    return trainer


def set_weights(trainer, weights: dict) -> None:
    """Statistics, which the model holds too, keep their initial values."""
    for name in trainer.parameters():
        trainer.set_parameter(name, weights[name])


def falling(rate: float, step: int, steps: int, warm: int = 10) -> float:
    return rate * min((step + 1) / warm, (steps - step) / steps)


def drive(trainer, batches, rate: float, steps: int, text: str) -> Run:
    """Trains for so many steps; where nothing but skipped steps is left, the rest counts as skipped too."""
    run = Run(float("nan"))
    for step in range(steps):
        try:
            result = trainer.step(next(batches), learning_rate=falling(rate, step, steps))
        except mpt.Stalled as stalled:
            progress("")
            print(f"{text}: {stalled}", file=sys.stderr, flush=True)
            run.skipped += steps - step
            break
        run.skipped += result.skipped
        run.loss.append(result.loss)
        if step % 20 == 0:
            progress(f"{text}: step {step}/{steps} loss {result.loss:.4f}")
    run.scale = result.loss_scale
    return run


def shuffled(x, y, batch: int, seed: int):
    random = np.random.default_rng(seed)
    while True:
        order = random.permutation(len(y))
        for at in range(0, len(y) - batch + 1, batch):
            pick = order[at:at + batch]
            yield {"x": x[pick], "labels": y[pick]}


def spoil(batches, period: int):
    """Before every `period` batches come two with an infinite input."""
    for number, batch in enumerate(batches):
        if number % period == 0:
            yield from 2 * [{**batch, "x": np.full_like(batch["x"], np.inf)}]
        yield batch


def accuracy(trainer, x, y, batch: int) -> float:
    right, predicts = 0, bool(trainer.inputs("predict"))
    for at in range(0, len(y), batch):
        rows = np.arange(at, at + batch) % len(y)
        answer = trainer.evaluate({"x": x[rows], **({} if predicts else {"labels": y[rows]})})["logits"].argmax(1)
        right += int((answer == y[rows])[:min(batch, len(y) - at)].sum())
    return 100.0 * right / len(y)


def train_digits(make, rate, folder, policy, seed, steps, spoilt=0, edit=None, optimizer="adamw,weight-decay=0.01",
                 loss="softmax-cross-entropy", **flags) -> Run:
    library = Library(functools.partial(make, batch=64), f"{optimizer},lr={rate}", loss, flags, edit)
    return train_classifier([library], folder, policy, seed, steps, rate, spoilt)


def train_classifier(libraries, folder, policy, seed, steps, rate=3e-3, spoilt=0) -> Run:
    trainer, batch = libraries[0].open(folder, policy, seed), 64
    x, y, held_x, held_y = digits()
    batches = shuffled(x, y, batch, seed)
    run = drive(trainer, spoil(batches, spoilt) if spoilt else batches, rate, steps, f"digits {policy} seed {seed}")
    run.value, run.trainer = accuracy(trainer, held_x, held_y, batch), trainer
    return run


def flushed(narrow, wide, feeds, weights) -> float:
    """Share in per cent of the gradient's values that are zero in `narrow` and not in `wide`."""
    for trainer in (narrow, wide):
        set_weights(trainer, weights)
    lost = total = 0
    gradients = narrow.gradients(feeds)[1]
    for name, value in wide.gradients(feeds)[1].items():
        total += np.count_nonzero(value)
        lost += np.count_nonzero((gradients[name] == 0) & (value != 0))
    return 100.0 * lost / total


def nats(logits, labels) -> float:
    logits = logits.astype(np.float64)
    logits -= logits.max(1, keepdims=True)
    return float((np.log(np.exp(logits).sum(1)) - logits[np.arange(len(labels)), labels]).mean())


def held_out_loss(trainer, sample, rounds: int = 20) -> float:
    losses = []
    for _ in range(rounds):
        feeds = next(sample)
        labels = feeds.pop("labels")
        losses.append(nats(trainer.evaluate(feeds)["logits"], labels))
    return float(np.mean(losses))


def windows(batch: int, length: int, seed: int, held: bool):
    """Rows of length + 1 bytes, from the last tenth of the text where `held`, else from the rest."""
    text, random = library_text(), np.random.default_rng(seed)
    cut = len(text) * 9 // 10
    low, high = (cut, len(text)) if held else (0, cut)
    while True:
        starts = random.integers(low, high - length - 1, batch)
        yield np.stack([text[s:s + length + 1] for s in starts]).astype(np.int64), random


def next_bytes(batch: int, length: int, seed: int, held: bool = False):
    for rows, _ in windows(batch, length, seed, held):
        yield {"ids": rows[:, :-1], "labels": rows[:, 1:].reshape(-1)}


def train_gpt(libraries, folder, policy, seed, steps) -> Run:
    rate, sizes = 2e-3, libraries[0].make.keywords
    batch, length = sizes["batch"], sizes["context"]
    trainer = libraries[0].open(folder, policy, seed)
    run = drive(trainer, next_bytes(batch, length, seed), rate, steps, f"byte GPT {policy} seed {seed}")
    run.value = held_out_loss(trainer, next_bytes(batch, length, 12345, held=True))
    return run


def masked_bytes(batch: int, length: int, seed: int, held: bool = False):
    """Text to restore: in the source, half of the bytes are replaced by zero."""
    for rows, random in windows(batch, length, seed, held):
        source = np.where(random.random((batch, length)) < 0.5, 0, rows[:, 1:])
        yield {"source": source, "ids": rows[:, :-1], "labels": rows[:, 1:].reshape(-1)}


def train_encoder_decoder(libraries, folder, policy, seed, steps) -> Run:
    rate, sizes = 3e-3, libraries[0].make.keywords
    batch, length = sizes["batch"], sizes["length"]
    trainer = libraries[0].open(folder, policy, seed)
    run = drive(trainer, masked_bytes(batch, length, seed), rate, steps, f"encoder-decoder {policy} seed {seed}")
    run.value, run.trainer = held_out_loss(trainer, masked_bytes(batch, length, 12345, held=True)), trainer
    return run


@functools.cache
def digit_classifier():
    from sklearn.svm import SVC
    x, y, _, _ = digits()
    return SVC().fit(x.reshape(len(x), 64), y)


def train_dcgan(libraries, folder, policy, seed, steps) -> Run:
    """Two libraries trained in turn, each holding the other's network as constants; then how many generated digits a
    classifier of real ones takes for the class asked for. The generator's weights are averaged over the run's last steps."""
    batch, rate = 64, 1e-3
    x, y, _, _ = digits()
    sides = {part: library.open(folder, policy, seed) for part, library in zip("dg", libraries)}
    random, run, average = np.random.default_rng(seed), Run(float("nan")), {}

    def noise():
        classes = random.integers(0, 10, batch)
        hot = np.eye(10, dtype=np.float32)[classes]
        return np.concatenate([random.standard_normal((batch, networks.NOISE)).astype(np.float32), hot], 1), hot, classes

    def hand_over(source: str, target: str) -> None:
        for name, value in sides[source].parameters().items():
            sides[target].set_parameter(name, value)

    hand_over("g", "d")
    hand_over("d", "g")
    for step, batches in zip(range(steps), shuffled(x, y, batch, seed)):
        z, hot, _ = noise()
        real = np.eye(10, dtype=np.float32)[batches["labels"]]
        rates = falling(rate, step, steps)
        target = np.concatenate([np.full((batch, 1), 0.9), np.zeros((batch, 1))]).astype(np.float32)
        results = [sides["d"].step({"x": batches["x"], "z": z, "classes": np.concatenate([real, hot]), "target": target}, rates)]
        hand_over("d", "g")
        z, hot, _ = noise()
        results.append(sides["g"].step({"z": z, "classes": hot, "target": np.ones((batch, 1), np.float32)}, rates))
        hand_over("g", "d")
        run.loss.append(results[1].loss)
        run.skipped += sum(result.skipped for result in results)
        keep = 0.99 if step > steps // 2 else 0.0
        for name in [*sides["g"].parameters(), *(f"g.bn{i}.running_{part}" for i in (1, 2) for part in ("mean", "var"))]:
            average[name] = keep * average.get(name, 0.0) + (1 - keep) * sides["g"].parameter(name)
        if step % 20 == 0:
            progress(f"DCGAN {policy} seed {seed}: step {step}/{steps} losses {results[0].loss:.3f}, {results[1].loss:.3f}")
    for name, value in average.items():
        sides["g"].set_parameter(name, value)
    right = []
    for _ in range(32):
        z, hot, classes = noise()
        images = sides["g"].evaluate({"z": z, "classes": hot})["images"]
        right.append(digit_classifier().predict(images.reshape(batch, 64)) == classes)
    run.value, run.scale, run.trainer = 100.0 * float(np.mean(right)), results[1].loss_scale, sides["g"]
    return run


def classifier(make) -> Library:
    return Library(functools.partial(make, batch=64), "adamw,weight-decay=0.01,lr=0.003")


def text_model(make, rate: float, **sizes) -> Library:
    return Library(functools.partial(make, batch=8, **sizes), f"adamw,lr={rate},weight-decay=0.01", flags={"clip_norm": 1.0})


def adversary(make, frozen: str) -> Library:
    return Library(functools.partial(make, batch=64), "adam,lr=0.001,betas=0.5:0.999", "bce-with-logits", {"freeze": rf"{frozen}\..*"})


TASKS = [
    Task("digits LeNet", "accuracy", 0.5, train_classifier, 800, (classifier(networks.lenet),)),
    Task("digits ResNet-18", "accuracy", 0.5, train_classifier, 300, (classifier(networks.resnet18),)),
    Task("byte GPT", "loss", 1.0, train_gpt, 300, (text_model(networks.byte_gpt, 2e-3, context=64, width=96, dropout=0.1),)),
    Task("byte encoder-decoder", "loss", 1.0, train_encoder_decoder, 400, (text_model(networks.encoder_decoder, 3e-3, length=32),)),
    Task("digits DCGAN", "accuracy", 0.5, train_dcgan, 1200,
         (adversary(networks.dcgan_discriminator, "g"), adversary(networks.dcgan_generator, "d"))),
]
