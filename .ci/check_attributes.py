#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Attributes and states that passes hand on have one definition, in ODS: C++ names them through the dialect's class.

No string literal is "mpt.<x>" outside ODS, no two dialects declare one attribute, and each has a row in the description.
"""
import re

import repo

LITERAL = re.compile(r'"mpt\.[\w.]*"')
COMMENT = re.compile(r"//[^\n]*")
DIALECT = re.compile(r"def \w+ : Dialect \{.*?^\}", re.M | re.S)
NAME = re.compile(r'let name = "(\w+)"')
LIST = re.compile(r"let discardableAttrs = \(ins(.*?)\);", re.S)
CONSTANT = re.compile(r'StringLiteral \w+ = "([^"]+)"')


def main():
    problems, defined = [], {}
    for path in repo.files("include", "lib", ends=".td"):
        for dialect in DIALECT.findall(repo.text(path)):
            prefix = NAME.search(dialect).group(1)
            declared = LIST.search(dialect)
            attributes = [f"{prefix}.{name}" for name in re.findall(r":\$(\w+)", declared.group(1))] if declared else []
            problems += [f"{path}: `{name}` is declared but not described" for name in attributes if f"`{name}`" not in dialect]
            # A state and an attribute may share a name: one is a symbol.
            for kind, names in (("attribute", attributes), ("name", CONSTANT.findall(dialect))):
                for name in names:
                    if (kind, name) in defined:
                        problems.append(f"{path}: {kind} {name} is defined in {defined[kind, name]} too")
                    defined[kind, name] = path
    if not defined:
        problems.append("no dialect declares discardable attributes: has their syntax changed?")
    for path in repo.files("include", "lib", "passes", "tools", ends=(".h", ".c", ".cpp")):
        for number, line in enumerate(repo.text(path).splitlines(), 1):
            for literal in LITERAL.findall(COMMENT.sub("", line)):
                problems.append(f"{path}:{number}: {literal}: declare it in the dialect's ODS and use its class")
    repo.finish("check_attributes", problems, f"{len(defined)} attributes and names, each defined once")


if __name__ == "__main__":
    main()
