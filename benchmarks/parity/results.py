# SPDX-License-Identifier: Apache-2.0
"""Rows of the parity table on disk, one JSON object a line, so that a run which was cut off goes on where it stopped.

A row belongs to a task, a policy, a seed and a number of steps; to the training step after the precision rewrite, which decides
the computation; and to a build of compiler and runtime, which decides its order. A row is taken again only when all of
these are the same; `any_build` takes rows of other builds whose rewritten step is the same.
"""
from __future__ import annotations

import functools
import hashlib
import json
import os
import pathlib
from dataclasses import asdict, dataclass

from mpt._native import find_compiler, find_runtime


@functools.cache
def build() -> str:
    """Of the compiler and the runtime that this process uses."""
    digest = hashlib.sha256()
    for path in (find_compiler(), find_runtime()):
        digest.update(pathlib.Path(path).read_bytes())
    return digest.hexdigest()[:16]


@dataclass
class Row:
    task: str
    policy: str
    seed: int
    steps: int
    step: str                    # fingerprint of the rewritten training step
    build: str
    value: float
    skipped: int
    scale: float
    cpu_seconds: float
    flushed: float | None = None  # % of the gradient that is zero where FP32's is not, where it was taken

    def key(self, any_build: bool):
        return (self.task, self.policy, self.seed, self.steps, self.step, "" if any_build else self.build)


class Results:
    def __init__(self, path: str, any_build: bool = False):
        self.path, self.any_build, self.rows = path, any_build, {}
        if path and os.path.exists(path):
            for line in pathlib.Path(path).read_text().splitlines():
                row = Row(**json.loads(line))
                self.rows[row.key(any_build)] = row

    def find(self, *key):
        """(task, policy, seed, steps, step) -> Row or None."""
        return self.rows.get((*key, "" if self.any_build else build()))

    def add(self, row: Row) -> Row:
        self.rows[row.key(self.any_build)] = row
        if self.path:
            with open(self.path, "a") as file:
                file.write(json.dumps(asdict(row)) + "\n")
        return row
