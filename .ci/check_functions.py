#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""A function fits a screen: at most 80 lines from its first line to its closing brace, in C, C++ and Python."""
import ast

import cpp
import repo

MOST = 80
FOLDERS = ("lib", "passes", "tools", "include", "python", "test", "examples", "benchmarks", "scripts", ".ci")


def python_functions(text):
    """(name, first line, last line) of every function of a Python file."""
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)):
            yield node.name, node.lineno, node.end_lineno


def main():
    problems, count = [], 0
    for path in repo.files(*FOLDERS, ends=(".cpp", ".c", ".h", ".hpp", ".py")):
        text = repo.text(path)
        found = python_functions(text) if path.endswith(".py") else ((f.name, f.first, f.last) for f in cpp.functions(text))
        for name, first, last in found:
            count += 1
            if last - first + 1 > MOST:
                problems.append(f"{path}:{first}: {name} has {last - first + 1} lines, expected at most {MOST}: "
                                "name its steps, and make each a function")
    repo.finish("check_functions", problems, f"{count} functions")


if __name__ == "__main__":
    main()
