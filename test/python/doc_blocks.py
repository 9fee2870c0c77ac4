# SPDX-License-Identifier: Apache-2.0
"""Fenced code of the documentation's pages, and pages whose code runs from top to bottom."""
import os
import re
import subprocess
import sys

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
BUILD = os.path.abspath(os.environ.get("MPT_BUILD", os.path.join(ROOT, "build", "release")))
FENCE = re.compile(r'^```(\w+)(?: title="([^"]+)")?\n(.*?)^```', re.M | re.S)
NUMBER = re.compile(r"[-+]?\d[\d,.]*(e[-+]?\d+)?")


def fenced(page):
    """(language, title, text) of each block of a page."""
    with open(os.path.join(ROOT, page), encoding="utf-8") as stream:
        return FENCE.findall(stream.read())


def blocks(page, language):
    return [text for kind, _, text in fenced(page) if kind == language]


def environment():
    """The tools of the build, this Python and its package come first."""
    folders = [os.path.dirname(sys.executable), os.path.join(BUILD, "bin"), os.environ["PATH"]]
    return {**os.environ, "PATH": os.pathsep.join(folders), "PYTHONPATH": os.path.join(ROOT, "python")}


def shape(text):
    """The lines of an output without the numbers, which differ between processors."""
    return [NUMBER.sub("0", line.rstrip()) for line in text.splitlines()]


def run_page(page, folder, extra=None):
    """Writes blocks with a title to files of that name, runs the ones of bash, and compares each output that the page shows: all its
    lines are in the real output, in their order. Returns everything that was printed."""
    printed, last = "", ""
    for language, title, text in fenced(page):
        if title:
            (folder / title).write_text(text)
        elif language == "bash":
            done = subprocess.run(["bash", "-euc", text], cwd=folder, env={**environment(), **(extra or {})}, stdin=subprocess.DEVNULL,
                                  stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
            assert done.returncode == 0, f"{page}:\n{text}\n{done.stdout}"
            last = done.stdout
            printed += last
        elif language == "text":
            real = iter(shape(last))
            for line in shape(text):
                assert line == "..." or line in real, f"{page} shows '{line}', which was not printed:\n{last}"
    return printed
