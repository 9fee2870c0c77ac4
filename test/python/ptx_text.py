# SPDX-License-Identifier: Apache-2.0
"""The text of PTX modules as instructions, for the interpreter (ptx_machine.py)."""
import re

import numpy as np
from ptx_numbers import KINDS

SHARED_BASE = 0x1000  # shared addresses begin here, so that 0 is none
TABLE_BASE = 0x100000  # and addresses of a module's tables here, far below the addresses that the system gives out


class Kernel:
    """One entry of a module: instructions, labels, shared variables."""

    def __init__(self, name, parameters, body, line):
        self.name, self.parameters = name, [m for m in re.findall(r"(\w+)(?=\s*(?:,|$))", parameters.strip())] if parameters.strip() else []
        self.code, self.labels, self.shared, self.shared_bytes = [], {}, {}, 0
        text = ""
        for number, raw in enumerate(body.split("\n"), line):
            raw = raw.split("//")[0].strip()
            if label := re.fullmatch(r"(\$\w+):", raw):
                self.labels[label[1]] = len(self.code)
                continue
            # A scope, for registers that one instruction needs.
            raw = re.sub(r"(?<=;)\s*\}$|^\}$", "", re.sub(r"^\{\s*(?=\.reg|$)", "", raw))
            text = f"{text} {raw}".strip()
            if not text.endswith(";"):
                continue
            for statement in text.split(";"):
                self._add(statement.strip(), number)
            text = ""

    def _add(self, statement, line):
        if variable := re.match(r"\.shared \.align (\d+) \.b8 (\w+)\[(\d+)\]", statement):
            align, size = int(variable[1]), int(variable[3])
            self.shared_bytes = (self.shared_bytes + align - 1) // align * align
            self.shared[variable[2]] = SHARED_BASE + self.shared_bytes
            self.shared_bytes += size
        elif statement and not statement.startswith("."):
            guard, rest = None, statement
            if statement.startswith("@"):
                guard, rest = statement[1:].split(None, 1)
            op, words = (*rest.split(None, 1), "")[:2]
            operands = [w.strip() for w in re.findall(r"\{[^}]*\}|\[[^\]]*\]|[^,\s]+(?:\s+[^,\s]+)*", words)]
            self.code.append((guard, op.strip(), operands, line))


def parse(text: str) -> dict:
    """{name: Kernel}"""
    found, shared, names, tables, address = {}, {}, {}, {}, TABLE_BASE
    for kind, name, count, values in re.findall(r"\.(?:global|const)(?: \.align \d+)? \.(\w+) (\w+)\[(\d+)\] = \{([^}]*)\};", text):
        data = np.zeros(int(count), KINDS[kind])  # elements that are not given are 0
        given = [int(v, 0) for v in values.split(",")]
        data[:len(given)] = np.array(given).astype(data.dtype)
        names[name], tables[address] = address, data.view(np.uint8)
        address += (data.nbytes + 511) // 256 * 256
    for name, size in re.findall(r"\.extern \.shared \.align \d+ \.b8 (\w+)\[(\d*)\]", text):
        shared[name] = size
    for entry in re.finditer(r"\.entry\s+(\w+)\s*\(([^)]*)\)[^{]*\{", text):
        end = text.index("\n}", entry.end())
        kernel = Kernel(entry[1], entry[2], text[entry.end():end], text.count("\n", 0, entry.end()) + 1)
        for name in shared:  # behind the kernel's own shared variables
            kernel.shared[name] = SHARED_BASE + (kernel.shared_bytes + 15) // 16 * 16
        kernel.names, kernel.tables = names, tables
        found[entry[1]] = kernel
    return found
