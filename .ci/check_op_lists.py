#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""No list of operations outside dialects, models and matchers: a pass asks an interface for the properties of an operation.

A value or operation that one function asks whether it is this or that concrete operation (isa, dyn_cast, getDefiningOp,
TypeSwitch) makes a list, which an operation to come would be missing from. Lists are at home in three places:
dialects (lib/Dialect), models attached to operations (files of lib with an ExternalModel), and matchers of patterns of
several operations. A matcher says so in its head, with the pattern that it matches: `// Matcher: REASON`.
"""
import collections
import re

import cpp
import repo

KINDS = "isa|isa_and_nonnull|isa_and_present|dyn_cast|dyn_cast_or_null|dyn_cast_if_present|Case"
ARGUMENT = r"\(([^()]*(?:\([^()]*(?:\([^()]*\)[^()]*)*\)[^()]*)*)\)"
QUESTION = re.compile(rf"\b({KINDS})<\s*([^<>()]*?)\s*>\s*{ARGUMENT}|([\w.\[\]]+(?:(?:->|\.)\w+|\(\w*\))*?)(?:\.|->)getDefiningOp<([^<>]*)>\(\)")
MATCHER = re.compile(r"^// Matcher: \S.{19,}", re.M)
HEAD = 12


def is_exempt(path, text):
    return path.startswith("lib/Dialect/") or (path.startswith("lib/") and "ExternalModel<" in text) or \
        bool(MATCHER.search("\n".join(text.splitlines()[:HEAD])))


def questions(function):
    """{value: the names of the operations that it is compared with} in a function."""
    asked = collections.defaultdict(set)
    for match in QUESTION.finditer(function.body):
        kind, names, argument, receiver, defining = match.groups()
        if kind == "Case":
            argument = "the switch"
        what = re.sub(r"\s+", "", argument or receiver)
        what = re.sub(r"^&|\.getDefiningOp\(\)$|->getDefiningOp\(\)$", "", what)
        short = (name.strip().split("::")[-1] for name in (names or defining).split(","))
        asked[what].update(name for name in short if re.search(r"\wOp$", name))
    return asked


def main():
    problems, count = [], 0
    for path in repo.files("lib", "passes", "tools", ends=(".cpp", ".h")):
        text = repo.text(path)
        if is_exempt(path, text):
            continue
        count += 1
        for function in cpp.functions(text):
            for what, names in sorted(questions(function).items()):
                if len(names) > 1:
                    problems.append(f"{path}:{function.first}: {function.name} asks whether {what} is {', '.join(sorted(names))}: "
                                    "ask an interface (or say what the file matches: // Matcher: ...)")
    repo.finish("check_op_lists", problems, f"{count} files without a list of operations")


if __name__ == "__main__":
    main()
