# SPDX-License-Identifier: Apache-2.0
"""Common parts of the checks of training files: rows of a policy, a line and a row of Markdown for each file, the status."""
import pathlib
import tempfile

import numpy as np

import corpus_measure as measure


def distance(gradients, exact):
    """Of all gradients together, relative to the gradients of `exact`."""
    apart = sum(float(np.sum((gradients[name].astype(np.float64) - value)**2)) for name, value in exact.items())
    return (apart / max(sum(float(np.sum(value.astype(np.float64)**2)) for value in exact.values()), 1e-300))**0.5


def committed(trainer, feeds, count, limit=64):
    """Losses of the first `count` steps that are not skipped; fewer where `limit` steps do not have as many."""
    losses = []
    for _ in range(limit):
        if len(losses) == count:
            break
        result = trainer.step(feeds)
        losses += [] if result.skipped else [result.loss]
    return losses


def parting(losses, reference):
    """The largest difference of two trajectories over the first loss; infinite where they are not as long."""
    if len(losses) != len(reference):
        return float("inf")
    return max(abs(a - b) for a, b in zip(losses, reference)) / max(abs(reference[0]), 1e-6)


def summary(rows, note=""):
    """(passed, cells): the worst of each kind beside its limit."""
    cells = [note] if note else []
    for kind in dict.fromkeys(row.what.split(" ")[0] for row in rows):
        worst = max((row for row in rows if row.what.split(" ")[0] == kind), key=lambda row: row.error / max(row.limit, 1e-300)
                    if row.error == row.error else float("inf"))
        cells.append(f"{worst.what} {worst.error:.1e}/{worst.limit:.1e}" + ("" if worst.ok else " <<<"))
    return all(row.ok for row in rows), cells


def run(title, files, check, markdown=None):
    """Checks each (name, argument) of `files` by check(argument, folder), which gives (rows, note); prints a line a file.

    The status for sys.exit: true where a file failed or there was none.
    """
    bad, lines = 0, []
    for name, argument in files:
        with tempfile.TemporaryDirectory() as folder:
            try:
                ok, cells = summary(*check(argument, pathlib.Path(folder)))
            except Exception as problem:  # the line says it
                ok, cells = False, [f"{type(problem).__name__}: " + " ".join(str(problem).split())[:400]]
        bad += not ok
        print(f"{name:32s} {'ok  ' if ok else 'FAIL'} " + "  ".join(cells), flush=True)
        lines.append(f"| {name} | " + " | ".join(cells) + f" | {'yes' if ok else '**no**'} |")
    print(f"{title}: {len(lines) - bad} passed, {bad} failed")
    if markdown:
        pathlib.Path(markdown).write_text("\n".join(lines) + "\n")
    return bad != 0 or not lines
