#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Sentences name their subject and use the field's terms: few headless "what", "those" and "that", no word that has a term.

Pages, comments and docstrings are held to both. With --list, prints every place.
"""
import re
import sys

import repo

# "what" is counted wherever it stands; the others where no noun follows.
HEADLESS = re.compile(
    r"\bwhat\b"
    r"|\bthose(?=[\s*]*(?:[.,;:)|]|$|(?:of|that|which|who|whose|in|on|at|for|from|to|by|with|without|are|were|have"
    r"|beside|behind|before|after|above|below)\b))"
    r"|\bthat of\b"
    r"|(?:^|[.;:|]|\n\s*\n)\s*That(?=\s+(?:is|was|has|holds|makes|means|needs|costs|takes|gives|keeps|leaves|does|may|can|must|would)\b)", re.I)
# Words of our own, and the field's term for each.
TERMS = {
    r"(?:the )?same bits|bit for bit": "bitwise identical",
    r"painting|painted": "op-list propagation",
    r"blam(?:e|es|ed|ing)": "error attribution",
    r"certif(?:y|ies|ied|icates?)": "validate against an error bound",
    r"stand-ins?": "fake driver",
    r"slots?": "optimizer state",
    r"guarded": "predicated",
    r"untaken": "inactive branch",
    r"element forms?": "loop lowering",
    r"meetings?": "synchronization point",
    r"wishes": "requirements",
}
TERM = re.compile("|".join(rf"(?P<t{i}>\b(?:{ours})\b)" for i, ours in enumerate(TERMS)), re.I)
WORD = re.compile(r"[A-Za-z][\w'-]*")
LITERAL = re.compile(r"```.*?```|`[^`\n]*(?:\n[^`\n]+)?`|\"\w+\"|\]\([^)\s]*\)|https?://\S+", re.S)
STRING = r'"(?:\\.|[^"\\\n])*"'
C_COMMENT = re.compile(STRING + r"|//+([^\n]*)|/\*+(.*?)\*/", re.S)
PY_COMMENT = re.compile(r'^[ \t]*"""(.*?)"""|""".*?"""|' + STRING + r"|'(?:\\.|[^'\\\n])*'|#([^\n]*)", re.S | re.M)
SHELL_COMMENT = re.compile(r"^[ \t]*#([^\n]*)", re.M)
# Lines of comments that a tool reads, and the license.
DIRECTIVE = re.compile(r"^[ \t]*(?:[A-Z][A-Z0-9_]+(?:-[A-Z]+)*(?:\{.*?\})?:|expected-|!|-{5,}|SPDX).*$", re.M)

PAGES = ("docs", "README.md", "CONTRIBUTING.md", "CHANGELOG.md")
COMMENTS = {
    "C++": (("include", "lib", "passes", "tools", "test", "examples", "benchmarks"), (".cpp", ".c", ".cu", ".h", ".hpp", ".td"), C_COMMENT),
    "Python": (("python", "test", "scripts", "benchmarks", "examples", ".ci"), (".py",), PY_COMMENT),
    "lit tests": (("test", "lib"), (".mlir", ".test"), C_COMMENT),
    "scripts": (("scripts", "cmake", "test", "lib", "passes", "tools", "examples", "CMakeLists.txt"),
                (".sh", ".cmake", "CMakeLists.txt"), SHELL_COMMENT),
}
# Most places per 1,000 words: headless subjects, words that have a term.
LIMITS = (1, 0.2)
PAGE_LIMIT = 1  # headless subjects of one page alone, per 1,000 words; one is always allowed


def blank(match):
    return re.sub(r"[^\n]", " ", match[0])


def page(text):
    """A page without code, addresses and indented commands; lines keep their numbers."""
    return LITERAL.sub(blank, re.sub(r"^(?: {4}|\t).*$", "", text, flags=re.M))


def comments(text, form):
    """The comments of a file alone; lines keep their numbers."""
    kept, at = [], 0
    for match in form.finditer(text):
        if match.lastindex:
            first, last = match.span(match.lastindex)
            kept += ["\n" * text.count("\n", at, first), DIRECTIVE.sub("", text[first:last])]
            at = last
    return LITERAL.sub(blank, "".join(kept))


def places(path, prose):
    """(headless, terms) of a text, each a list of "path:line: words"."""
    return [[f"{path}:{prose.count(chr(10), 0, match.end()) + 1}: {' '.join(match[0].split()).strip('.;:| ')}" for match in form.finditer(prose)]
            for form in (HEADLESS, TERM)]


def texts(kind):
    """(path, prose) of the pages, or of the files with comments of a kind."""
    if kind == "pages":
        return [(path, page(repo.text(path))) for path in repo.files(*PAGES, ends=".md") if not path.startswith("docs/generated/")]
    folders, ends, form = COMMENTS[kind]
    return [(path, comments(repo.text(path), form)) for path in repo.files(*folders, ends=ends)]


def main():
    problems, summary = [], []
    for kind in ("pages", *COMMENTS):
        words, found = 0, ([], [])
        for path, prose in texts(kind):
            count, here = len(WORD.findall(prose)), places(path, prose)
            words += count
            for total, more in zip(found, here):
                total += more
            most = max(1, round(count * PAGE_LIMIT / 1000))
            if kind == "pages" and len(here[0]) > most:
                problems.append(f"{path}: {len(here[0])} headless subjects in {count} words, expected at most {most}: "
                                f"name what is meant, first at {here[0][0]}")
        rates = [1000 * len(total) / max(words, 1) for total in found]
        summary.append(f"{kind} {rates[0]:.2f} and {rates[1]:.2f} in {words} words")
        for rate, limit, total, name in zip(rates, LIMITS, found, ("headless subjects", "words that have a term")):
            if "--list" in sys.argv:
                print(*total, sep="\n")
            if rate > limit:
                problems.append(f"{kind}: {rate:.2f} {name} per 1,000 words, expected at most {limit}: --list shows each")
    repo.finish("check_prose", problems, "; ".join(summary))


if __name__ == "__main__":
    main()
