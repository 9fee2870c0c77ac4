#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""A commit has a subject of at most 72 characters, and a body that says why. Holds for commits since the rule began.

Asks by date, so that it works in a shallow clone too, which lacks the commit that the rule began with.
"""
import subprocess

import repo

SINCE = 1795332714  # the committer date, in seconds, after which commits are held to it
MOST = 72
SEPARATORS = ("\x1e", "\x1f")


def commits():
    """(abbreviated hash, committer date, subject, body) of each commit that HEAD reaches, without merges."""
    record, field = SEPARATORS
    log = subprocess.run(["git", "log", "--no-merges", f"--format=%h{field}%ct{field}%B{record}", "HEAD"], cwd=repo.ROOT,
                         capture_output=True, text=True)
    for entry in filter(str.strip, log.stdout.split(record)) if log.returncode == 0 else ():
        name, date, message = entry.strip("\n").split(field)
        lines = message.rstrip().split("\n")
        yield name, int(date), lines


def complaint(lines):
    """The fault of a message, or None."""
    if len(lines[0]) > MOST:
        return f"its subject has {len(lines[0])} characters, expected at most {MOST}"
    if len(lines) > 1 and lines[1].strip():
        return "expected a blank line after its subject"
    if not any(line.strip() for line in lines[2:]):
        return "expected a body that says why"
    return None


def main():
    held = [(name, lines) for name, date, lines in commits() if date > SINCE]
    problems = [f"commit {name} ({lines[0][:60]}): {why}" for name, lines in held for why in [complaint(lines)] if why]
    repo.finish("check_commits", problems, f"{len(held)} commits")


if __name__ == "__main__":
    main()
