#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""One name a pass: passes/STAGE/Name.cpp, --STAGE-name in a Passes.td, class Name, test/passes/STAGE/name.mlir.

Beside the test lies name.doctest.mlir, the example that the pass's page in docs/generated shows and lit runs.
"""
import os
import re

import repo

DEFINITION = re.compile(r'^def\s+(\w+)\s*:\s*(?:Interface)?Pass<\s*"([^"]+)"', re.M)


def kebab(name):
    return re.sub(r"(?<=[a-z0-9])(?=[A-Z])|(?<=[A-Z])(?=[A-Z][a-z])", "-", name).lower()


def main():
    problems = []
    flags = {}
    for table in repo.files("passes", ends=".td"):
        for name, flag in DEFINITION.findall(repo.text(table)):
            flags[flag] = (name, table)
    sources = {}
    for path in repo.files("passes", ends=".cpp"):
        parts = path.split("/")
        if len(parts) == 3:
            sources[f"{parts[1]}-{kebab(parts[2][:-4])}"] = path
    for flag, path in sorted(sources.items()):
        _, stage, name = path[:-4].split("/")
        test = f"test/passes/{stage}/{kebab(name)}.mlir"
        if flag not in flags:
            problems.append(f"{path}: no pass --{flag} in passes/Passes.td (a file in passes/{stage}/ is a pass; helpers live in lib/)")
        elif kebab(flags[flag][0]) not in (flag, kebab(name)):
            problems.append(f"{flags[flag][1]}: pass --{flag} is defined as {flags[flag][0]}, expected {name} or its stage before it")
        for file in (test, test.replace(".mlir", ".doctest.mlir")):
            if not os.path.exists(os.path.join(repo.ROOT, file)):
                problems.append(f"{path}: no test {file}")
    for flag, (name, table) in sorted(flags.items()):
        if flag not in sources:
            problems.append(f"{table}: pass --{flag} ({name}) has no file passes/STAGE/Name.cpp of that name")
    for test in repo.files("test/passes", ends=".mlir"):
        parts = test.split("/")
        if len(parts) == 4 and f"{parts[2]}-{parts[3].split('.')[0]}" not in sources:
            problems.append(f"{test}: no pass --{parts[2]}-{parts[3].split('.')[0]}")
    repo.finish("check_names", problems, f"{len(sources)} passes")


if __name__ == "__main__":
    main()
