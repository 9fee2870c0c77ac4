#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""A function can be understood at one reading: its cognitive complexity is at most 40, in C, C++ and Python.

The measure is SonarSource's, as lizard counts it: each branch and loop adds one, and one more for each that it lies in. Its
length matters less: a backstop alone keeps a function from filling three screens.
"""
import os

import lizard
import repo

MOST = 40
MOST_LINES = 120
FOLDERS = ("lib", "passes", "tools", "include", "python", "test", "examples", "benchmarks", "scripts", ".ci")
# Functions above the limit, each with its own: a number here only falls, and a function within MOST leaves the list.
EXCEPTIONS = {
    ("lib/Import/Proto/Copies.cpp", "Copies::join"): 44,
}


def main():
    problems, count = [], 0
    paths = repo.files(*FOLDERS, ends=(".cpp", ".c", ".h", ".hpp", ".py"))
    needless = {key for key in EXCEPTIONS if key[0] in paths}
    files = lizard.analyze_files([os.path.join(repo.ROOT, path) for path in paths], threads=1, exts=lizard.get_extensions(["cognitive"]))
    for path, file in zip(paths, files):
        for function in file.function_list:
            count += 1
            at = f"{path}:{function.start_line}: {function.name} has"
            most, lines = EXCEPTIONS.get((path, function.name), MOST), function.end_line - function.start_line + 1
            if function.cognitive_complexity > MOST:
                needless.discard((path, function.name))
            if function.cognitive_complexity > most:
                problems.append(f"{at} cognitive complexity {function.cognitive_complexity}, expected at most {most}: "
                                "leave early, turn cases to a table, and name the steps that lie deep")
            if lines > MOST_LINES:
                problems.append(f"{at} {lines} lines, expected at most {MOST_LINES}: name its steps, and make each a function")
    problems += [f"{path}: {name} is within the limit: take it off the exceptions of check_functions.py" for path, name in sorted(needless)]
    repo.finish("check_functions", problems, f"{count} functions")


if __name__ == "__main__":
    main()
