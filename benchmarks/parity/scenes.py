# SPDX-License-Identifier: Apache-2.0
"""Data made of digits, of text and of noise: scenes with digits to find and to mark, sequences like speech, words."""
from __future__ import annotations

import functools
import re

import numpy as np

import tasks

SIDE, CLASSES = 32, 11               # of scenes; class 0 is the background
STRIDES, SIZES = (4, 8), ((8.0, 11.0), (16.0, 22.0))
ANCHORS = sum(len(sizes) * (SIDE // stride) ** 2 for stride, sizes in zip(STRIDES, SIZES))
REGIONS = 8                          # proposals an image
VARIANCE = np.array([0.1, 0.1, 0.2, 0.2], np.float32)


def enlarged(x, times: int):
    return np.kron(x, np.ones((times, times), np.float32))


@functools.cache
def anchors() -> np.ndarray:
    """Boxes (x1, y1, x2, y2) in pixels, row by row, the first feature map's first: [ANCHORS, 4]."""
    boxes = []
    for stride, sizes in zip(STRIDES, SIZES):
        for y in range(SIDE // stride):
            for x in range(SIDE // stride):
                boxes += [[stride * (x + 0.5) - s / 2, stride * (y + 0.5) - s / 2, stride * (x + 0.5) + s / 2, stride * (y + 0.5) + s / 2]
                          for s in sizes]
    return np.array(boxes, np.float32)


def overlaps(a, b) -> np.ndarray:
    """Intersection over union of boxes [n, 4] and [m, 4]: [n, m]."""
    low, high = np.maximum(a[:, None, :2], b[None, :, :2]), np.minimum(a[:, None, 2:], b[None, :, 2:])
    inside = np.prod(np.clip(high - low, 0, None), -1)
    area = [np.prod(boxes[:, 2:] - boxes[:, :2], -1) for boxes in (a, b)]
    return inside / (area[0][:, None] + area[1][None] - inside)


def centers(boxes):
    return (boxes[..., :2] + boxes[..., 2:]) / 2, boxes[..., 2:] - boxes[..., :2]


def encoded(boxes, anchors) -> np.ndarray:
    """Regression targets of a detector: shift in units of the anchor, and logarithm of the size (arXiv 1311.2524)."""
    (at, size), (origin, unit) = centers(boxes), centers(anchors)
    return np.concatenate([(at - origin) / unit, np.log(size / unit)], -1).astype(np.float32) / VARIANCE


def decoded(deltas, anchors) -> np.ndarray:
    origin, unit = centers(anchors)
    deltas = deltas * VARIANCE
    at, size = origin + deltas[..., :2] * unit, unit * np.exp(np.clip(deltas[..., 2:], -4, 4))
    return np.concatenate([at - size / 2, at + size / 2], -1)


def scene(random, held: bool):
    """An image [1, SIDE, SIDE] with noise, its boxes, their classes from 1, and the class of each pixel."""
    x, y, held_x, held_y = tasks.digits()
    x, y = (held_x, held_y) if held else (x, y)
    image, marks = 0.1 * random.random((1, SIDE, SIDE)).astype(np.float32), np.zeros((SIDE, SIDE), np.int64)
    boxes, classes = np.zeros((0, 4), np.float32), []
    for _ in range(random.integers(1, 4)):
        times, pick = random.integers(1, 3), random.integers(len(y))
        side = 8 * times
        left, top = random.integers(0, SIDE - side + 1, 2)
        box = np.array([[left, top, left + side, top + side]], np.float32)
        if len(boxes) and overlaps(box, boxes).max() > 0:
            continue
        digit = enlarged(x[pick, 0], times)
        image[0, top:top + side, left:left + side] += digit
        marks[top:top + side, left:left + side][digit > 0.3] = y[pick] + 1
        boxes, classes = np.concatenate([boxes, box]), [*classes, y[pick] + 1]
    return image, boxes, np.array(classes), marks


def matched(boxes, classes, anchors):
    """Class and regression targets of each anchor: of the box it overlaps by half, and every box has its best anchor."""
    shares = overlaps(anchors, boxes)
    which = shares.argmax(1)
    taken = shares.max(1) >= 0.5
    for box, best in enumerate(shares.argmax(0)):
        which[best], taken[best] = box, True
    return np.where(taken, classes[which], 0), np.where(taken[:, None], encoded(boxes[which], anchors), 0).astype(np.float32)


def pixels(batch: int, seed: int, held: bool = False):
    random = np.random.default_rng(seed)
    while True:
        images, _, _, marks = zip(*(scene(random, held) for _ in range(batch)))
        yield {"x": np.stack(images), "labels": np.stack(marks)}


def detections(batch: int, seed: int, held: bool = False):
    """Feeds of ssd, with the scenes' own boxes as "truth"."""
    random = np.random.default_rng(seed)
    while True:
        scenes = [scene(random, held) for _ in range(batch)]
        labels, target = zip(*(matched(boxes, classes, anchors()) for _, boxes, classes, _ in scenes))
        yield {"x": np.stack([s[0] for s in scenes]), "labels": np.stack(labels), "target": np.stack(target),
               "truth": [s[1:3] for s in scenes]}


def regions(batch: int, seed: int, held: bool = False):
    """Feeds of faster_rcnn: half of an image's regions are near boxes, the others anywhere."""
    random, first = np.random.default_rng(seed), anchors()[:2 * (SIDE // STRIDES[0]) ** 2]
    while True:
        feeds = {name: [] for name in ("x", "objects", "anchor_target", "regions", "images", "labels", "target")}
        for i in range(batch):
            image, boxes, classes, _ = scene(random, held)
            near = boxes[random.integers(0, len(boxes), REGIONS // 2)]
            near = near + random.uniform(-0.15, 0.15, near.shape) * np.tile(near[:, 2:] - near[:, :2], 2)
            low, side = random.uniform(0, SIDE - 16, (REGIONS // 2, 2)), random.uniform(6, 16, (REGIONS // 2, 1))
            rois = np.concatenate([near, np.concatenate([low, low + side], 1)]).astype(np.float32)
            shares = overlaps(rois, boxes)
            which, taken = shares.argmax(1), shares.max(1) >= 0.5
            anchor_classes, anchor_target = matched(boxes, classes, first)
            rows = (image, (anchor_classes > 0).astype(np.float32), anchor_target, rois, np.full(REGIONS, i), np.where(taken, classes[which], 0),
                    np.where(taken[:, None], encoded(boxes[which], rois), 0).astype(np.float32))
            for name, row in zip(feeds, rows):
                feeds[name].append(row)
        whole = {"x", "objects", "anchor_target"}
        yield {name: (np.stack if name in whole else np.concatenate)(rows) for name, rows in feeds.items()}


def found(scores, deltas, truth, limit: float = 0.5):
    """Boxes that are found in an image, and how many there are: the surest boxes, as many as there are true ones, after boxes that
    overlap a surer one are gone; a box is found where one of its class overlaps it by half."""
    boxes, classes = truth
    best, kind = scores[:, 1:].max(1) - scores[:, 0], scores[:, 1:].argmax(1) + 1
    places, kept = decoded(deltas, anchors()), []
    for i in np.argsort(-best):
        if len(kept) < len(boxes) and (not kept or overlaps(places[[i]], places[kept]).max() < 0.3):
            kept.append(i)
    hits = (overlaps(boxes, places[kept]) >= limit) & (classes[:, None] == kind[kept][None])
    return int(hits.any(1).sum()), len(boxes)


def speech(batch: int, seed: int, steps: int = 40, bands: int = 12, most: int = 6, held: bool = False):
    """Sequences of up to `most` sounds of 9 kinds, each some steps of its spectrum at some loudness, in noise and with pauses. Feeds
    of CTC; lengths count the steps behind the network's first convolution, which halves them."""
    random, spectra = np.random.default_rng(seed + (10 ** 6 if held else 0)), np.random.default_rng(99).random((9, bands)) ** 2
    while True:
        x = 0.3 * random.standard_normal((batch, 1, bands, steps))
        labels, lengths, ends = np.zeros((batch, most), np.int64), np.zeros(batch, np.int64), np.zeros(batch, np.int64)
        for i in range(batch):
            at = 0
            for k in range(random.integers(1, most + 1)):
                start = at + random.integers(1, 3)
                end = start + random.integers(3, 6)
                if end > steps:
                    break
                labels[i, k], lengths[i], at = random.integers(1, 10), k + 1, end
                x[i, 0, :, start:end] += random.uniform(0.8, 1.5) * spectra[labels[i, k] - 1][:, None]
            ends[i] = max((at + 1) // 2, 1)
        yield {"x": x.astype(np.float32), "labels": labels, "input_lengths": ends, "label_lengths": lengths}


def distance(a, b) -> int:
    """Edits between two sequences (Levenshtein)."""
    row = list(range(len(b) + 1))
    for i, x in enumerate(a):
        last, row[0] = row[0], i + 1
        for j, y in enumerate(b):
            last, row[j + 1] = row[j + 1], min(row[j + 1] + 1, row[j] + 1, last + (x != y))
    return row[-1]


@functools.cache
def words(most: int = 2048) -> np.ndarray:
    """The library's text as words and signs; the most frequent ones have numbers from 1, the others are 0."""
    parts = re.findall(rb"[A-Za-z_]+|[0-9]+|[^\sA-Za-z_0-9]|\n +", tasks.library_text().tobytes())
    names, numbers, counts = np.unique(np.array(parts), return_inverse=True, return_counts=True)
    rank = np.zeros(len(names), np.int64)
    rank[np.argsort(-counts, kind="stable")[:most - 1]] = np.arange(1, most)
    return rank[numbers]


def next_words(batch: int, length: int, seed: int, held: bool = False):
    text, random = words(), np.random.default_rng(seed)
    cut = len(text) * 9 // 10
    low, high = (cut, len(text)) if held else (0, cut)
    while True:
        rows = np.stack([text[s:s + length + 1] for s in random.integers(low, high - length - 1, batch)])
        yield {"ids": rows[:, :-1], "labels": rows[:, 1:].reshape(-1)}
