#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Files stay small enough to read: hard caps on lines by kind, and no large file in the repository.

A cap is a backstop, never a reason to cut: one concept stays in one file, and a cap in its way is raised. A
header's cap is generous for that reason: its class is one concept, and its documentation counts too.
"""
import os

import repo

# (folders, endings, most lines, remedy)
CAPS = [
    (("tools",), (".cpp", ".c"), 60, "a tool's main is glue: move the rest to lib/"),
    (("lib", "passes"), (".cpp", ".c", ".cu"), 600, "split it by concept"),
    (("test", "examples", "benchmarks"), (".cpp", ".c", ".cu"), 800, "split it by op family"),
    (("lib", "passes", "include/mpt", "tools", "test"), (".h",), 300, "split it by concept, or move bodies to a .cpp"),
    (("include/mpt-c",), (".h",), 300, "split it by the part of the interface"),
    (("lib", "passes", "include"), (".td",), 300, "split it by op family"),
    (("test",), (".mlir", ".test", ".onnxtxt"), 200, "split the test"),
    (("python", "test", "scripts", ".ci", "examples", "benchmarks"), (".py", ".sh"), 500, "split the module"),
]
# Files above their cap, each with a cap of its own, which only falls.
EXCEPTIONS = {
    "lib/Import/Proto/Merged.cpp": 730,
}
MOST_BYTES = 512 * 1024


def main():
    problems, count = [], 0
    for folders, ends, cap, advice in CAPS:
        for path in repo.files(*folders, ends=ends):
            count += 1
            lines, most = repo.text(path).count("\n"), EXCEPTIONS.get(path, cap)
            if lines > most:
                problems.append(f"{path}: {lines} lines, expected at most {most}: {advice}")
            elif path in EXCEPTIONS and lines <= cap:
                problems.append(f"{path}: {lines} lines fit its cap: take it off the exceptions of check_sizes.py")
    for path in repo.files():
        size = os.path.getsize(os.path.join(repo.ROOT, path))
        if size > MOST_BYTES:
            problems.append(f"{path}: {size} bytes, expected at most {MOST_BYTES}: generate it instead")
    repo.finish("check_sizes", problems, f"{count} files")


if __name__ == "__main__":
    main()
