# SPDX-License-Identifier: Apache-2.0
"""The papers' networks, each under its paper's recipe: in FP32, with the recipe, and with one mechanism of the recipe switched off."""
from __future__ import annotations

import dataclasses
import functools
import os
import statistics
import sys
import time
from dataclasses import dataclass, field

import numpy as np

import mechanisms
import networks
import papers
import policies
import scenes
import tasks
from results import Results, Row, build
from tasks import Library, Run, Task

MIXED, EIGHT_BITS, ADAPTIVE = "1710.03740", "1905.12334", "1910.12385"


@dataclass
class Side:
    """A policy, and changes to it."""
    what: str
    policy: str
    flags: dict = field(default_factory=dict)
    changes: tuple = ()

    def task(self, task: Task) -> Task:
        return dataclasses.replace(task, libraries=tuple(dataclasses.replace(library, flags={**library.flags, **self.flags})
                                                         for library in task.libraries))

    def file(self, folder: str) -> str:
        return policies.changed(self.policy, self.changes, os.path.join(folder, f"{self.policy}-{self.what.replace(' ', '-')}.mlir"))


@dataclass
class Network:
    task: Task
    paper: str                   # of the recipe
    recipe: Side
    off: Side                    # the recipe without one of its mechanisms
    sample: object = None        # () -> feeds of which the gradient's lost share is taken


FP32 = Side("FP32", "fp32")
DYNAMIC = Side("dynamic scale, FP32 masters", "amp-f16")
NO_SCALE = Side("scale 1", "amp-f16", {"loss_scale": 1})
NO_MASTERS = Side("FP16 weights alone", "amp-f16", changes=(("master = f32", "master = f16"),))
FP8 = Side("1-5-2, stochastic rounding", "fp8-e5m2")
FP8_NEAREST = Side("rounding to nearest", "fp8-e5m2", changes=(mechanisms.STOCHASTIC_MASTERS, mechanisms.STOCHASTIC_GRADIENTS))
FP8_NO_SCALE = Side("scale 1", "fp8-e5m2", {"loss_scale": 1})
LAYERS = Side("a scale a layer", "als-f16")


def fed(feeds: dict) -> dict:
    return {name: value for name, value in feeds.items() if name != "truth"}


def learner(data, judge, rate: float):
    """A training loop over `data(seed, held)`, whose result `judge(trainer, data)` measures."""
    def train(libraries, folder, policy, seed, steps) -> Run:
        trainer = libraries[0].open(folder, policy, seed)
        run = tasks.drive(trainer, map(fed, data(seed, False)), rate, steps, f"{policy} seed {seed}")
        run.value, run.trainer = judge(trainer, data), trainer
        return run
    return train


def digits(side: int, batch: int, seed: int, held: bool):
    x, y, held_x, held_y = tasks.digits()
    return tasks.shuffled(scenes.enlarged(held_x if held else x, side // 8), held_y if held else y, batch, seed)


def classes(side: int, batch: int, trainer, data) -> float:
    _, _, x, y = tasks.digits()
    return tasks.accuracy(trainer, scenes.enlarged(x, side // 8), y, batch)


def held_out(data, rounds: int):
    for _, feeds in zip(range(rounds), data(12345, True)):
        yield feeds


def marked(trainer, data) -> float:
    """Per cent of the digits' pixels that get their class."""
    right = total = 0
    for feeds in held_out(data, 12):
        answer, labels = trainer.evaluate(feeds)["logits"].argmax(1), feeds["labels"]
        right, total = right + int(((answer == labels) & (labels > 0)).sum()), total + int((labels > 0).sum())
    return 100.0 * right / total


def boxes_found(trainer, data) -> float:
    hits = []
    for feeds in held_out(data, 96):
        answer = trainer.evaluate(fed(feeds))
        hits += [scenes.found(*row) for row in zip(answer["logits"], answer["boxes"], feeds["truth"])]
    return 100.0 * sum(hit for hit, _ in hits) / sum(count for _, count in hits)


def regions_told(trainer, data) -> float:
    return 100.0 * float(np.mean([(trainer.evaluate(feeds)["logits"].argmax(1) == feeds["labels"]).mean() for feeds in held_out(data, 30)]))


def sounds_told(trainer, data) -> float:
    """100 less the edits from the best path's labels to the true ones, in per cent of these."""
    edits = total = 0
    for feeds in held_out(data, 20):
        path = trainer.evaluate({"x": feeds["x"]})["logits"].argmax(2).T
        for row, labels, count, steps in zip(path, feeds["labels"], feeds["label_lengths"], feeds["input_lengths"]):
            row = row[:steps]
            told = [label for i, label in enumerate(row) if label and (i == 0 or row[i - 1] != label)]
            edits, total = edits + scenes.distance(told, labels[:count]), total + count
    return 100.0 * (1 - edits / total)


def held_out_loss(trainer, data) -> float:
    return tasks.held_out_loss(trainer, data(12345, True))


def network(name, paper, recipe, off, measure, limit, steps, make, data, judge, rate, optimizer, loss="softmax-cross-entropy", **flags):
    task = Task(name, measure, limit, learner(data, judge, rate), steps, (Library(make, f"{optimizer},lr={rate}", loss, flags),))
    return Network(task, paper, recipe, off, lambda: fed(next(data(7, False))))


def classifier(name, paper, recipe, off, make, steps, rate=0.03, side=16, batch=32, loss="softmax-cross-entropy",
               optimizer="sgd,momentum=0.9,weight-decay=0.0005", **sizes):
    """Trained by momentum, as these papers do, if nothing else is said."""
    return network(name, paper, recipe, off, "accuracy", 1.0, steps, functools.partial(make, batch=batch, **sizes),
                   functools.partial(digits, side, batch), functools.partial(classes, side, batch), rate, optimizer, loss)


def known(name: str, paper: str, recipe: Side, off: Side, data=None) -> Network:
    """One of the tasks of the parity benchmark; data(seed, held) are batches of its training data, where it has one network."""
    task = next(task for task in tasks.TASKS if task.name == name)
    return Network(task, paper, recipe, off, data and (lambda: fed(next(data(7, False)))))


def batches(make, *sizes):
    return lambda seed, held: make(*sizes, seed, held=held)


def scene_network(name, paper, recipe, off, make, data, judge, steps, loss="none", batch=16, rate=3e-3):
    return network(name, paper, recipe, off, "accuracy", 1.0, steps, functools.partial(make, batch=batch),
                   batches(data, batch), judge, rate, "adamw,weight-decay=0.0005", loss)


NETWORKS = [
    classifier("AlexNet", MIXED, DYNAMIC, NO_MASTERS, papers.alexnet, 400, 0.01),
    # Sixteen layers without norms: by momentum at 0.02, FP32 ends anywhere between 44 and 91 %, from seed to seed.
    classifier("VGG-16", MIXED, DYNAMIC, NO_MASTERS, papers.vgg16, 1200, 1e-3, optimizer="adamw,weight-decay=0.01"),
    # Without norms either: 300 steps of momentum end anywhere between 31 and 93 % in FP32.
    classifier("GoogLeNet", MIXED, DYNAMIC, NO_MASTERS, papers.googlenet, 1000, 1e-3, optimizer="adamw,weight-decay=0.01", loss="none"),
    classifier("Inception v3", MIXED, DYNAMIC, NO_MASTERS, papers.inception3, 200, loss="none"),
    known("digits ResNet-18", EIGHT_BITS, FP8, FP8_NO_SCALE, functools.partial(digits, 8, 64)),
    classifier("ResNet-34", EIGHT_BITS, FP8, FP8_NEAREST, papers.resnet, 600, 0.05, 8),
    classifier("ResNet-50", MIXED, DYNAMIC, NO_MASTERS, papers.resnet, 200, 0.05, 8, bottleneck=True, width=4),
    # Its paper starts 110 layers at a lower rate than shallower ones: at 0.05, FP32 ends anywhere between 90 and 97 %.
    classifier("ResNet-110", ADAPTIVE, LAYERS, NO_SCALE, papers.resnet, 800, 0.02, 8, blocks=(18, 18, 18), width=4),
    scene_network("SegNet", ADAPTIVE, LAYERS, NO_SCALE, papers.segnet, scenes.pixels, marked, 3200, rate=5e-3),
    scene_network("SSD", MIXED, DYNAMIC, NO_SCALE, papers.ssd, scenes.detections, boxes_found, 2000),
    scene_network("Faster R-CNN", MIXED, DYNAMIC, NO_SCALE, papers.faster_rcnn, scenes.regions, regions_told, 400, batch=8),
    network("DeepSpeech 2", MIXED, DYNAMIC, NO_MASTERS, "accuracy", 1.0, 500, functools.partial(papers.deep_speech2, batch=16),
            batches(scenes.speech, 16), sounds_told, 4e-3, "adamw,weight-decay=0.001", "ctc,max-labels=6", clip_norm=5.0),
    network("GNMT", EIGHT_BITS, FP8, FP8_NEAREST, "loss", 1.0, 400, functools.partial(papers.gnmt, batch=16),
            batches(tasks.masked_bytes, 16, 24), held_out_loss, 4e-3, "adamw,weight-decay=0.01", clip_norm=1.0),
    known("byte encoder-decoder", EIGHT_BITS, FP8, FP8_NO_SCALE, batches(tasks.masked_bytes, 8, 32)),
    network("bigLSTM", MIXED, DYNAMIC, NO_SCALE, "loss", 1.0, 300, functools.partial(papers.big_lstm, batch=16),
            batches(scenes.next_words, 16, 20), held_out_loss, 4e-3, "adamw,weight-decay=0.01", clip_norm=1.0),
    known("digits DCGAN", MIXED, DYNAMIC, NO_SCALE),
]

# Networks that the parity benchmark trains under every policy, beside its own. FP32's runs of SSD lie 4 points apart.
SEEDS = {"SSD": 6, "bigLSTM": 1}
TASKS = [dataclasses.replace(network.task, limit=0.5 if network.task.measure == "accuracy" else 1.0, seeds=SEEDS[network.task.name])
         for network in NETWORKS if network.task.name in SEEDS]


def run_seed(results: Results, network: Network, folder: str, seed: int, scale: float) -> list[Row]:
    """Rows of FP32, the recipe and the recipe without its mechanism. Missing rows are run, FP32 with them for its gradients."""
    rows, sides = [], (FP32, network.recipe, network.off)
    steps = max(1, round(network.task.steps * scale))
    keys = [(network.task.name, side.what, seed, steps, side.task(network.task).fingerprint(folder, side.file(folder), seed)) for side in sides]
    if all(results.find(*key) for key in keys):
        return [results.find(*key) for key in keys]
    wide = trained = None  # FP32's run, and its final parameters
    for key, side in zip(keys, sides):
        start = time.process_time()
        run = side.task(network.task).run(folder, side.file(folder), seed, steps)
        seconds, lost = time.process_time() - start, None
        if wide is None:
            wide, trained = run, run.trainer.parameters()
        if network.sample:
            lost = tasks.flushed(run.trainer, wide.trainer, network.sample(), trained)
        rows.append(results.add(Row(*key, build(), run.value, run.skipped, run.scale, seconds, lost)))
        tasks.progress("")
        print(f"{key[0]}, {side.what}, seed {seed}: {run.value:.4g}, lost {lost if lost is None else round(lost, 1)} %, last loss "
              f"{run.loss[-1]:.4g}, skipped {run.skipped} ({seconds:.0f} s)", file=sys.stderr, flush=True)
    return rows


def verdict(task: Task, reference: float, value: float, off: bool) -> str:
    worse = reference - value if task.measure == "accuracy" else 100.0 * (value / reference - 1.0)
    within = worse <= task.limit  # nothing is within a NaN
    return ("not missed" if within else "missed") if off else "yes" if within else "NO"


def report(results: Results, folder: str, seeds: int, names: str, scale: float, print_table, unit) -> bool:
    """Prints the table; false where a recipe has not reached FP32's result."""
    table, fine = [], True
    for network in NETWORKS:
        if names and not any(name.lower() in network.task.name.lower() for name in names.split(",")):
            continue
        runs = list(zip(*(run_seed(results, network, folder, seed, scale) for seed in range(seeds))))
        means = [statistics.mean(row.value for row in side) for side in runs]
        for i, side in enumerate((FP32, network.recipe, network.off)):
            lost = [row.flushed for row in runs[i] if row.flushed is not None]
            told = "" if i == 0 else verdict(network.task, means[0], means[i], i == 2)
            fine &= told != "NO"
            table.append([network.task.name if i == 0 else "", f"arXiv {network.paper}" if i == 1 else "", side.what,
                          ", ".join(unit(network.task, row.value) for row in runs[i]), f"{statistics.mean(lost):.1f} %" if lost and i else "",
                          str(sum(row.skipped for row in runs[i])), told])
    print_table(["network", "recipe", "run", "held out, by seed", "gradient lost", "skipped", "reached"], table)
    return fine
