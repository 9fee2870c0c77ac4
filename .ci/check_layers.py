#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Includes follow the layers of docs/design.md: a file sees its own module and lower layers, never a sibling.

Support < Interfaces < Dialect < Evaluation < Distribution < {Import Export Autodiff Precision Library Memory Reference Fusion Lowering} < Target < passes
< passes/STAGE < Pipelines < Driver < {CAPI tools}. Runtime sees include/mpt-c alone, and include/mpt-c sees nothing of ours.
"""
import os
import re

import repo

LAYERS = [["Support"], ["Interfaces"], ["Dialect"], ["Evaluation"], ["Distribution"],
          ["Import", "Export", "Autodiff", "Precision", "Library", "Memory", "Reference", "Fusion", "Lowering"],
          ["Target"], ["passes"], ["passes/"], ["Pipelines"], ["Driver"], ["CAPI", "tools"]]
# Folders inside a module that have layers of their own; siblings never include each other here either.
INSIDE = {"Lowering": [["Emission"], ["Models", "Nest"], ["CPU", "GPU"], ["Emulation"]]}
RANK = {module: rank for rank, modules in enumerate(LAYERS) for module in modules}
STAGE_RANK = RANK["passes/"]
INCLUDE = re.compile(r'^\s*#\s*include\s+([<"])([^">]+)[">]', re.M)


def module_of(path):
    """The module a repository path belongs to, or None for files that layering does not speak of."""
    parts = path.split("/")
    if parts[:2] == ["include", "mpt-c"] or parts[0] == "mpt-c":
        return "mpt-c"
    if parts[0] == "tools":
        return "tools"
    if parts[0] == "passes":
        if parts[1].startswith("Pipelines."):
            return "Pipelines"
        return "passes" if len(parts) == 2 else "passes/" + parts[1]
    if parts[:2] == ["include", "mpt"] or parts[0] == "lib":
        rest = parts[2:] if parts[0] == "include" else parts[1:]
        if rest[0] == "Target" and len(rest) > 2:
            return "Target/" + rest[1]
        if rest[0] in INSIDE and len(rest) > 2:
            return f"{rest[0]}/{rest[1]}"
        return rest[0] if len(rest) > 1 else None
    return None


def target_of(path, kind, included):
    """The module an include leads to, or None when it is not one of ours."""
    if included.startswith("mpt-c/"):
        return "mpt-c"
    if included.startswith("mpt/"):
        return module_of("include/" + included)
    if included.startswith(("lib/", "passes/", "tools/")):
        return module_of(included)
    if kind == '"':
        beside = os.path.normpath(os.path.join(os.path.dirname(path), included))
        if os.path.exists(os.path.join(repo.ROOT, beside)):
            return module_of(beside)
        if included.split("/")[0] in RANK or included.startswith("Runtime/"):
            return module_of("lib/" + included)
    return None


def rank_of(module):
    return STAGE_RANK if module.startswith("passes/") else RANK.get(module.split("/")[0])


def inside_rank(module):
    folder, inner = module.split("/")
    return next((rank for rank, names in enumerate(INSIDE[folder]) if inner in names), None)


def inside_complaint(source, target):
    """The fault of an include between two folders of one module."""
    for module in (source, target):
        if inside_rank(module) is None:
            return f"folder {module} has no layer: give it one in .ci/check_layers.py and docs/design.md"
    if inside_rank(source) == inside_rank(target):
        return f"{source} and {target} are siblings"
    return f"{target} lies above {source}" if inside_rank(target) > inside_rank(source) else None


def complaint(source, target):
    if source == target or target is None:
        return None
    if "/" in source and "/" in target and source.split("/")[0] == target.split("/")[0] in INSIDE:
        return inside_complaint(source, target)
    if source == "mpt-c":
        return "the C interface includes nothing of ours but itself"
    if source == "Runtime":
        return None if target == "mpt-c" else "the runtime sees include/mpt-c alone"
    if target == "mpt-c":
        return None
    if target == "Runtime":
        return "the runtime is reached through include/mpt-c alone"
    if rank_of(target) is None:
        return f"module {target} has no layer: give it one in .ci/check_layers.py and docs/design.md"
    if rank_of(source) == rank_of(target) and not target == source.split("/")[0]:
        return f"{source} and {target} are siblings"
    if rank_of(target) > rank_of(source):
        return f"{target} lies above {source}"
    return None


def main():
    problems, count = [], 0
    for path in repo.files("lib", "passes", "tools", "include", ends=(".h", ".c", ".cpp", ".cu")):
        source = module_of(path)
        if source is None:
            continue
        if source != "mpt-c" and source != "Runtime" and rank_of(source) is None:
            problems.append(f"{path}: module {source} has no layer: give it one in .ci/check_layers.py and docs/design.md")
            continue
        count += 1
        content = repo.text(path)
        for match in INCLUDE.finditer(content):
            why = complaint(source, target_of(path, *match.groups()))
            if why:
                problems.append(f"{path}:{content.count(chr(10), 0, match.start(2)) + 1}: includes {match.group(2)}: {why}")
    repo.finish("check_layers", problems, f"{count} files")


if __name__ == "__main__":
    main()
