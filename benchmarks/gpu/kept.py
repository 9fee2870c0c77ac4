# SPDX-License-Identifier: Apache-2.0
"""Results of run.py, kept so that a call may be cut off anywhere: rows as they come, and all of it as one archive after each."""
from __future__ import annotations

import json
import pathlib
import shutil
import tarfile
import time
import traceback

import table

SOON = 2.0  # seconds between archives of one item's rows


def extract(archive: pathlib.Path, folder: pathlib.Path) -> None:
    with tarfile.open(archive) as file:
        file.extractall(folder, **({"filter": "data"} if hasattr(tarfile, "data_filter") else {}))  # Python 3.11.4 brought it


class Results:
    """The folder of a call's results, and its archive."""

    def __init__(self, folder: pathlib.Path, archive: pathlib.Path):
        self.folder, self.archive, self.left, self.kept = folder, archive, [], 0.0
        self.restore()
        folder.mkdir(parents=True, exist_ok=True)
        path = folder / "results.jsonl"
        if path.exists() and (text := path.read_text()) and not text.endswith("\n"):  # a row that was cut off
            path.write_text(text[:text.rfind("\n") + 1])
        self.file = open(path, "a")

    def rows(self) -> list:
        return table.latest(table.read(self.folder / "results.jsonl"))

    def done(self) -> set:
        """Items that came to their end, without a failure."""
        rows = self.rows()
        return {row["item"] for row in rows if row.get("end")} - {row["item"] for row in rows if row.get("ok") is False}

    def add(self, **row) -> None:
        self.file.write(json.dumps(row) + "\n")
        self.file.flush()

    def keep(self) -> list:
        """Everything that follows from results.jsonl, and the whole folder as one archive. Returns each item's last rows."""
        rows = self.rows()
        (self.folder / "results.json").write_text(json.dumps(rows, indent=1))
        try:
            write_products(rows, self.folder / "products")
            text = table.markdown(rows, self.left)
        except Exception:  # no mistake of ours in showing results loses them: they cannot be had again
            text = f"No table could be made of results.jsonl:\n\n{traceback.format_exc()}"
        (self.folder / "table.md").write_text(text)
        self.archive.parent.mkdir(parents=True, exist_ok=True)
        aside = self.archive.with_name(self.archive.name + ".unfinished")
        with tarfile.open(aside, "w:gz") as file:
            file.add(self.folder, "results")
        aside.rename(self.archive)
        self.kept = time.monotonic()
        return rows

    def restore(self) -> None:
        """The results of an earlier call, where their archive alone came along. A folder without rows is none: a process of an item that
        outlived its call may have made it."""
        aside = self.folder.with_name(self.folder.name + ".unfinished")
        if (self.folder / "results.jsonl").exists() or not self.archive.exists():
            return
        shutil.rmtree(aside, ignore_errors=True)
        aside.parent.mkdir(parents=True, exist_ok=True)
        extract(self.archive, aside)
        rows = "results.jsonl"
        shutil.copytree(aside / "results", self.folder, dirs_exist_ok=True, ignore=shutil.ignore_patterns(rows))
        (aside / "results" / rows).rename(self.folder / rows)  # last, since it says that all is there
        shutil.rmtree(aside)


class Run:
    """Writes an item's rows as they come, and, when it came to its end, a row that says so with its seconds."""

    def __init__(self, results: Results, item):
        self.results, self.same, self.start = results, {"item": item.key, "part": item.part, "run": time.time()}, time.monotonic()

    def __call__(self, row: dict) -> None:
        self.results.add(**self.same, **row)
        if time.monotonic() - self.results.kept > SOON:
            self.results.keep()

    def __enter__(self):
        return self

    def __exit__(self, kind, *_) -> None:
        if not kind:
            self.results.add(**self.same, end=True, seconds=round(time.monotonic() - self.start, 1))
        self.results.keep()


def write_products(rows: list, folder: pathlib.Path) -> None:
    """A file for each table of measured products: FOLDER/MODEL-POLICY.json."""
    for row in rows:
        if row.get("table"):
            from mpt import measure
            folder.mkdir(exist_ok=True)
            measure.write(row["table"], folder / f"{row['case'].replace(' ', '-')}.json")
