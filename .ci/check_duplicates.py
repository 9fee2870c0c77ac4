#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""No logic twice: no run of 12 or more identical meaningful lines in two places of lib, passes, tools and python."""
import re

import repo

RUN = 12
ENDS = (".cpp", ".c", ".cu", ".h", ".td", ".py")
# Lines that carry no logic: blank, brackets, comments, includes, imports, namespaces, labels.
TRIVIAL = re.compile(r"^(?:[\s{}()\[\];,]*|//.*|#.*|/\*.*|\*.*|using .*|(?:from|import) .*|.*\bnamespace\b.*|(?:public|private):|"
                     r"(?:break|return|default|else|pass)\b[:;]?)$")


def meaningful(path):
    """(line number, line without indentation) of every line that counts."""
    lines = ((number, " ".join(line.split())) for number, line in enumerate(repo.text(path).splitlines(), 1))
    return [(number, line) for number, line in lines if not TRIVIAL.match(line)]


def main():
    problems, seen, texts = [], {}, {}
    paths = repo.files("lib", "passes", "tools", "python", ends=ENDS)
    for path in paths:
        texts[path] = lines = meaningful(path)
        at = 0
        while at + RUN <= len(lines):
            key = tuple(line for _, line in lines[at:at + RUN])
            first = seen.setdefault(key, (path, at))
            overlaps = first[0] == path and at - first[1] < RUN
            if first == (path, at) or overlaps:
                at += 1
                continue
            other, start, length = texts[first[0]], first[1], RUN
            while (at + length < len(lines) and start + length < len(other)
                   and lines[at + length][1] == other[start + length][1]):
                length += 1
            problems.append(f"{path}:{lines[at][0]}-{lines[at + length - 1][0]}: {length} lines are also at "
                            f"{first[0]}:{other[start][0]}-{other[start + length - 1][0]}: share them")
            at += length
    repo.finish("check_duplicates", problems, f"{len(paths)} files")


if __name__ == "__main__":
    main()
