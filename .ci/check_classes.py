#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""A class is one concept in one place: the members it defines outside its declaration lie in a single .cpp file.

A class that needs two files is two classes, or a class and functions over its public face.
"""
import collections
import re

import cpp
import repo

FOLDERS = ("lib", "passes", "tools", "include", "test", "examples", "benchmarks")
NAMESPACE = re.compile(r"\bnamespace\s+([\w:]+)\s*\{")
GENERATED_NAMESPACE = re.compile(r'\bcppNamespace\s*=\s*"([^"]+)"')
USING = re.compile(r"\busing\s+namespace\s+([\w:]+)\s*;")
OUTER = {"std", "mlir", "llvm", "mpt"}


def namespaces():
    """The names that stand before `::` without being a class: ours, and upstream's that our files are written in."""
    names = {"std", "mlir", "llvm", "onnx"}
    for path in repo.files(*FOLDERS, ends=(".cpp", ".h", ".hpp", ".td")):
        pattern = GENERATED_NAMESPACE if path.endswith(".td") else NAMESPACE
        for name in pattern.findall(repo.text(path)):
            names.update(filter(None, name.split("::")))
    return names


def class_of(name, spaces):
    """The class that `name`, as written at its definition, is a member of, and the namespace written before it, if any."""
    parts = re.sub(r"<[^<>]*>", "", re.sub(r"<[^<>]*>", "", name)).replace(" ", "").split("::")[:-1]
    written = None
    while parts and parts[0] in spaces:
        written = parts.pop(0)
    return "::".join(parts) or None, written


def rooms(text, scope, written):
    """The namespaces that a class defined in `text` may be of, from the scopes around it: none for the outermost ones."""
    names = {written} if written else {name.split("::")[-1] for name in (*scope, *USING.findall(text))}
    return frozenset(names - OUTER - {""})


def definitions():
    """{class: [(namespaces it may be of, file)]} of every member that a .cpp file defines outside a class's declaration."""
    spaces, found = namespaces(), collections.defaultdict(list)
    for path in repo.files(*FOLDERS, ends=".cpp"):
        text = repo.text(path)
        for function in cpp.functions(text):
            owner, written = class_of(function.name, spaces)
            if owner:
                # A class of an unnamed namespace belongs to its file alone.
                room = frozenset([path]) if "" in function.scope else rooms(text, function.scope, written)
                found[owner].append((room, path))
    return found


def main():
    problems, found = [], definitions()
    for owner, places in sorted(found.items()):
        groups = []
        for room, path in places:
            same = next((group for group in groups if group[0] & room or not group[0] | room), None)
            if same:
                same[1].append(path)
            else:
                groups.append((room, [path]))
        for _, paths in groups:
            files = collections.Counter(paths)
            if len(files) > 1:
                members = ", ".join(f"{path} ({count})" for path, count in sorted(files.items()))
                problems.append(f"class {owner} is defined in {len(files)} files: {members}: expected one, so split the class by concept")
    repo.finish("check_classes", problems, f"{len(found)} classes with members outside their declaration")


if __name__ == "__main__":
    main()
