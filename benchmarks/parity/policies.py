# SPDX-License-Identifier: Apache-2.0
"""Built-in policies with lines of their files changed: a recipe without one of its mechanisms."""
from __future__ import annotations

import pathlib

FOLDER = pathlib.Path(__file__).resolve().parents[2] / "lib" / "Precision" / "policies"
NAMES = sorted(path.stem for path in FOLDER.glob("*.mlir"))


def changed(policy: str, changes, path) -> str:
    """The policy's name, or `path`, which holds it after `changes` ((old text, new text), ...)."""
    if not changes:
        return policy
    text = (FOLDER / f"{policy}.mlir").read_text()
    for old, new in changes:
        if old not in text:
            raise ValueError(f"policy {policy} has no '{old}'")
        text = text.replace(old, new)
    pathlib.Path(path).write_text(text)
    return str(path)
