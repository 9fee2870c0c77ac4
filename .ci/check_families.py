#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""A family of operators has one name in every folder, and its rules lie in the file of that name.

A family file is known by the function that adds its rules, or by its place among the dialect's definitions and the tests of
meaning; so a new file needs no entry here, only a name from the list. Files without such a function are not looked at.
"""
import os
import re

import repo

FAMILIES = ("Elementwise Cast MatMul Conv Pool Norm Reduce Shape Gather Scatter Resize Sequence Random Loss Optimizer "
            "Attention Recurrent Control Update Training").split()
# Groups of operations that come from no operator of a model.
OTHERS = {"Fusion": "what fusion forms", "Gemm": "matrix multiplications with an epilogue, formed by stage library",
          "Train": "state and gradients", "Scale": "arithmetic on loss scales"}
# Folder -> the function that adds a family's rules.
RULES = {
    "lib/Import": r"^void mpt::add(\w+)Rules\(",
    "lib/Export": r"^void mpt::add(\w+)Rules\(",
    "lib/Evaluation": r"^void mpt::attach(\w+)Rules\(",
    "lib/Autodiff": r"^void attach(\w+)Gradients\(",
    "lib/Lowering/Models": r"^void mpt::attach(\w+)Models\(",
}
# Folder -> pattern of the names of its family files; group 1 is the family.
NAMES = {
    "include/mpt/Dialect/MPT": r"(?!MPT)(\w+)Ops\.td",
    "lib/Dialect/MPT": r"(\w+)Ops\.cpp",
    "test/evaluation": r"(?!errors)(\w+)(?:-[\w-]+)?\.mlir",
}


def known(family, path):
    """The fault of a family's name in `path`, or nothing."""
    names = {name.lower() if path.startswith("test/") else name for name in (*FAMILIES, *OTHERS)}
    return [] if family in names else [f"{path}: {family} is no family: expected one of {', '.join(FAMILIES)}"]


def main():
    problems, count = [], 0
    for folder, pattern in RULES.items():
        for path in repo.files(folder, ends=".cpp"):
            for family in re.findall(pattern, repo.text(path), re.M):
                count += 1
                stem = os.path.splitext(os.path.basename(path))[0]
                problems += known(family, path)
                if family != stem:
                    problems.append(f"{path}: adds the rules of {family}: expected them in {family}.cpp")
    for folder, pattern in NAMES.items():
        for path in repo.files(folder):
            match = re.fullmatch(pattern, os.path.relpath(path, folder))
            if match:
                count += 1
                problems += known(match[1], path)
    repo.finish("check_families", problems, f"{count} family files")


if __name__ == "__main__":
    main()
