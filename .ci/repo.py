# SPDX-License-Identifier: Apache-2.0
"""Shared by the repository checks: the list of files and the way a check ends."""
import os
import subprocess
import sys

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))


def files(*folders, ends=""):
    """Tracked and new files (not ignored ones) under `folders` whose names end in one of `ends`, relative to the root."""
    listing = subprocess.run(["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard", "--", *folders],
                             cwd=ROOT, check=True, capture_output=True, text=True).stdout
    names = sorted(set(filter(None, listing.split("\0"))))
    return [name for name in names if name.endswith(ends) and os.path.isfile(os.path.join(ROOT, name))]


def text(name):
    with open(os.path.join(ROOT, name), encoding="utf-8") as stream:
        return stream.read()


def finish(check, problems, summary):
    """Prints the problems, or the summary when there are none, and exits with the matching status."""
    for problem in problems:
        print(problem)
    print(f"{check}: {len(problems)} problem{'s' * (len(problems) != 1)}" if problems else f"{check}: {summary}")
    sys.exit(1 if problems else 0)
