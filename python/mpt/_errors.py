# SPDX-License-Identifier: Apache-2.0
"""Diagnostics of the compiler: errors of models that it refuses, warnings, and lines of the logger "mpt"."""
import logging
import re
import sys
import warnings


CODE = re.compile(r"\[(mpt-[a-z-]+)\]$", re.M)


class Coded(RuntimeError):
    """An error whose text may end in a code, as in "... [mpt-nothing-trains]"."""

    @property
    def code(self):
        """The code, which `mpt-opt --explain=CODE` explains; None where the message has none."""
        found = CODE.search(str(self))
        return found and found[1]


class CompileError(Coded):
    """mpt-opt refused the model; the text is its diagnostic: errors first, and warnings behind them."""


class CompileWarning(UserWarning):
    """A warning of mpt-opt while it compiled a model."""


class _Unheard(logging.Handler):
    """Prints lines for programs that have not set up logging."""

    def emit(self, record) -> None:
        if not logging.getLogger().handlers:
            print(f"mpt: {record.getMessage()}", file=sys.stderr)


logger = logging.getLogger("mpt")
if not logger.handlers:
    logger.addHandler(_Unheard())
    logger.setLevel(logging.INFO)

DIAGNOSTIC = re.compile(r"^(?:.*?: )?(error|warning|remark): ", re.M)
PROGRESS = re.compile(r"(importing|joining|phase|writing) ")


def diagnostics(text: str) -> list:
    """[(severity, text)] of mpt-opt's output; text outside of diagnostics has no severity. Lines without a severity go on
    with the one before: the source, and notes."""
    found = []
    for line in text.splitlines():
        start = DIAGNOSTIC.match(line)
        if start:
            found.append([start[1], line])
        elif line.startswith("mpt-opt: ") or not found:
            found.append(["", line])
        else:
            found[-1][1] += "\n" + line
    return [(severity, text) for severity, text in found if text.strip()]


def failure(text: str) -> str:
    """The text of a CompileError: errors first."""
    parts = [part for part in diagnostics(text) if not PROGRESS.match(part[1].removeprefix("mpt-opt: "))]
    return "\n".join(text for severity in ("error", "", "warning", "remark") for kind, text in parts if kind == severity)


def report(text: str, stacklevel: int) -> None:
    """Hands on the output of a compilation that succeeded."""
    for severity, said in diagnostics(text):
        if severity in ("warning", "error"):
            warnings.warn(said, CompileWarning, stacklevel=stacklevel + 1)
        else:
            line = said.removeprefix("mpt-opt: ")
            logger.log(logging.DEBUG if PROGRESS.match(line) else logging.INFO, "%s", line)
