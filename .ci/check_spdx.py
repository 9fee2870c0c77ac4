#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Every source file says its license on its first line (its second, after #!), as LICENSE names it."""
import re

import repo

MARKS = {"//": (".cpp", ".c", ".h", ".hpp", ".cu", ".td"), "#": (".py", ".py.in", ".sh", ".cmake", "CMakeLists.txt", ".cmake.in"),
         "!": (".f90",)}
SCRIPTS = re.compile(r"^\.ci/[^.]*$")


def mark_of(path):
    """The mark that begins a comment in a source file; None for other files."""
    if SCRIPTS.match(path):
        return "#"
    return next((mark for mark, ends in MARKS.items() if path.endswith(ends)), None)


def main():
    license_line = repo.text("LICENSE").splitlines()[0]
    problems, count = [], 0
    for path in repo.files():
        mark = mark_of(path)
        if mark is None:
            continue
        count += 1
        lines = repo.text(path).splitlines()[:2]
        at = 1 if lines and lines[0].startswith("#!") else 0
        if lines[at:at + 1] != [f"{mark} {license_line}"]:
            problems.append(f"{path}:{at + 1}: expected '{mark} {license_line}'")
    repo.finish("check_spdx", problems, f"{count} files")


if __name__ == "__main__":
    main()
