# SPDX-License-Identifier: Apache-2.0
"""The common parts of the three suites: options, running the cases, storing their table, and regressions."""
import argparse
import re
from pathlib import Path

import table
import workers


def options_of(text: str) -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(description=text.split("\n")[0])
    parser.add_argument("--results", type=Path, required=True)
    parser.add_argument("--cache", type=Path, default=Path("build/conformance"))
    parser.add_argument("--build", help="folder of mpt's binaries")
    parser.add_argument("--filter", default="")
    parser.add_argument("--jobs", type=int, default=2)
    parser.add_argument("--limit", type=float, default=300, help="seconds a case")
    parser.add_argument("--write", action="store_true")
    parser.add_argument("--verbose", action="store_true")
    return parser


def named(cases, options) -> list:
    return [case for case in cases if re.search(options.filter, case.name)]


def run(options, items, run_case, settings, *, died, summary, page=table.page) -> int:
    """Runs `items`, stores their rows where --write asks for it, prints `summary(rows)` and the regressions from the stored table.

    `died(item, why)` is the row of an item whose process ended. Returns the exit status: 1 where something is worse.
    """
    def report(row):
        if options.verbose and row.status not in ("right", "left out"):
            print(*row, sep="\t", flush=True)

    rows = workers.run_all(items, run_case, settings, jobs=options.jobs, limit=options.limit, died=died, report=report)
    before = table.read(options.results) if options.results.exists() else {}
    if options.write:
        merged = (before if options.filter else {}) | {row.name: row for row in rows}
        table.write(options.results, [row for _, row in sorted(merged.items())], page)
    print(summary(rows))
    problems = table.regressions(before, rows)
    for text in problems:
        print(text)
    return 1 if problems else 0


def died(case, why) -> table.Row:
    return table.Row(case.name, case.op, case.group, "died", why)


def counted(what: str):
    """A line that counts the rows that are not left out."""
    def summary(rows):
        rows = [row for row in rows if row.status != "left out"]
        found = table.counts(rows)
        return f"{what}: {table.share(rows)} right, {found['refused']} refused, {found['wrong']} wrong, {found['died']} died"
    return summary
