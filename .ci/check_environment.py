#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Options are options: compiler, runtime and Python package read no environment variable but the system's own."""
import re

import repo

SYSTEM = {"XDG_CACHE_HOME", "HOME"}  # where a cache lies unless an option says so
READS = re.compile(r"""\b(?:secure_)?getenv\s*\(\s*(?:"(\w*)")?|\bos\.environ\b(?:\.get\(\s*"(\w*)"|\[\s*"(\w*)")?""")


def main():
    problems, count = [], 0
    for path in repo.files("lib", "passes", "tools", "include", "python/mpt", ends=(".cpp", ".c", ".h", ".hpp", ".py")):
        count += 1
        for number, line in enumerate(repo.text(path).splitlines(), 1):
            for match in READS.finditer(line):
                name = next(filter(None, match.groups()), "")
                if name not in SYSTEM:
                    problems.append(f"{path}:{number}: reads the environment ({name or 'some variable'}): make it a flag, a pass "
                                    "option or a trainer's option")
    repo.finish("check_environment", problems, f"{count} files")


if __name__ == "__main__":
    main()
