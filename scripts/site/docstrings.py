# SPDX-License-Identifier: Apache-2.0
"""Docstrings of the package, whose lines "name  text" describe parameters, in the form that mkdocstrings reads."""
import re

import griffe

import headers  # hooks.py has made its folder known

PARAMETERS = re.compile(r"^(\w+(?:, \w+)*) {2,}(\S.*)$")


def as_google(text, names):
    """A docstring with its parameters as a section in Google's style."""
    described, rest, last = {}, [], []
    for line in headers.plain(text).splitlines():
        match = PARAMETERS.match(line)
        if match and names.issuperset(match[1].split(", ")):
            last = match[1].split(", ")
            described.update({name: [match[2]] for name in last})
        elif last and line.startswith("  "):
            for name in last:
                described[name].append(line.strip())
        else:
            last = []
            rest.append(line)
    section = "".join(f"\n    {name}: {' '.join(lines)}" for name, lines in described.items())
    return "\n".join(rest).strip() + (f"\n\nArgs:{section}\n" if section else "")


class Parameters(griffe.Extension):
    """Rewrites the docstrings of functions and classes; a class's parameters are the ones of its constructor."""

    def on_function(self, *, func, **_):
        if func.docstring:
            func.docstring.value = as_google(func.docstring.value, {parameter.name for parameter in func.parameters})

    def on_class(self, *, cls, **_):
        if cls.docstring:
            names = {parameter.name for parameter in cls.parameters} if "__init__" in cls.members else set()
            cls.docstring.value = as_google(cls.docstring.value, names)
