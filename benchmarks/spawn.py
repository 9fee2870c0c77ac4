# SPDX-License-Identifier: Apache-2.0
"""CPU seconds and peak memory of a command alone: a bare interpreter starts it, whose own size does not count.

(A process started from a large one inherits the large one's peak.)
"""
from __future__ import annotations

import json
import os
import subprocess
import sys

STARTER = """
import json, os, sys
try:
    child = os.posix_spawnp(sys.argv[2], sys.argv[2:], os.environ)
except OSError as problem:
    sys.exit(str(problem))
_, status, used = os.wait4(child, 0)
os.write(int(sys.argv[1]), json.dumps([os.waitstatus_to_exitcode(status), used.ru_utime + used.ru_stime, used.ru_maxrss / 1024]).encode())
"""


def measure(command: list) -> tuple[int, float, float, str]:
    """Exit status (negative for signals), CPU seconds, peak MiB, and the text on standard error."""
    read, write = os.pipe()
    done = subprocess.run([sys.executable, "-S", "-E", "-c", STARTER, str(write), *map(str, command)], stdin=subprocess.DEVNULL,
                          stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True, errors="replace", pass_fds=[write])
    os.close(write)
    with os.fdopen(read) as pipe:
        text = pipe.read()
    if not text:
        raise SystemExit(f"cannot run {command[0]}: {done.stderr.strip()}")
    return *json.loads(text), done.stderr


def aside(work) -> None:
    """Does `work` in a forked process, so that its memory is gone afterwards."""
    child = os.fork()
    if child == 0:
        status = 1
        try:
            work()
            status = 0
        finally:
            os._exit(status)
    if os.waitpid(child, 0)[1]:
        raise SystemExit("failed to make a graph")
