# SPDX-License-Identifier: Apache-2.0
"""Options of the trainers that the bundle's scripts make, as words: --option KEY=VALUE."""
from __future__ import annotations

options: dict = {}


def add_argument(parse) -> None:
    parse.add_argument("--option", action="append", default=[], metavar="KEY=VALUE", help="of trainers (docs/cuda.md), repeatable")


def take(words) -> None:
    """Options for all trainers from here on."""
    options.update(word.split("=", 1) for word in words)


def words(chosen: dict) -> list:
    return [f"--option={key}={value}" for key, value in chosen.items()]
