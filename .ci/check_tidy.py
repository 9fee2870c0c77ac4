#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""clang-tidy finds nothing, with the few checks of .clang-tidy: check_tidy.py [--all]

Looks at changed files: those differ from the commit before the last one, or from where this branch left its upstream,
but at no more than MOST files a run; the next run looks at the next ones. With --all, looks at every source file, which takes
some twenty minutes on two cores. Results are kept in build/tidy under a hash of all that they depend on, so that a file is
looked at once.
"""
import concurrent.futures
import glob
import hashlib
import json
import os
import re
import shlex
import shutil
import subprocess
import sys

import repo

TOOL = "clang-tidy-22"
FOLDERS = ("lib/", "passes/", "tools/", "test/")
MOST = 40  # some three minutes on two cores
CACHE = os.path.join(repo.ROOT, "build", "tidy")
INCLUDE = re.compile(r'^\s*#\s*include\s+"([^"]+)"', re.M)


def git(*arguments):
    """The output of git, or None where it fails."""
    result = subprocess.run(["git", *arguments], cwd=repo.ROOT, capture_output=True, text=True)
    return result.stdout.strip() if result.returncode == 0 else None


def changed_files():
    """Paths that differ from the base, new ones too; all files where there is no earlier commit to compare with."""
    head, base = git("rev-parse", "HEAD"), git("merge-base", "HEAD", "@{upstream}")
    if base in (None, head):
        base = git("rev-parse", "--verify", "-q", "HEAD~1")
    if base is None:
        return set(repo.files())
    listed = (git("diff", "--name-only", base) or "") + "\n" + (git("ls-files", "--others", "--exclude-standard") or "")
    return set(filter(None, listed.splitlines()))


def commands():
    """{source file: its compile command} of the build folder that was configured last."""
    databases = glob.glob(os.path.join(repo.ROOT, "build", "*", "compile_commands.json"))
    if not databases:
        sys.exit("check_tidy: expected build/*/compile_commands.json, found none: run scripts/build.sh")
    with open(max(databases, key=os.path.getmtime), encoding="utf-8") as stream:
        entries = json.load(stream)
    result = {}
    for entry in entries:
        place = os.path.realpath(os.path.join(entry["directory"], entry["file"]))
        path = os.path.relpath(place, os.path.realpath(repo.ROOT))
        if path.startswith(FOLDERS) and os.path.exists(os.path.join(repo.ROOT, path)):
            result.setdefault(path, entry)
    return result


def includes(path, known):
    """Paths of our headers that a file sees, by itself or through others; `known` keeps the includes of each file."""
    seen, pending = set(), [path]
    while pending:
        file = pending.pop()
        if file not in known:
            with open(os.path.join(repo.ROOT, file), encoding="utf-8") as stream:
                names = INCLUDE.findall(stream.read())
            places = (os.path.dirname(file), "include", "", "lib", "lib/Runtime", "test/cuda")
            candidates = [[os.path.normpath(os.path.join(place, name)) for place in places] for name in names]
            known[file] = [next((c for c in each if os.path.isfile(os.path.join(repo.ROOT, c))), None) for each in candidates]
        for header in filter(None, known[file]):
            if header not in seen:
                seen.add(header)
                pending.append(header)
    return seen


def key(path, entry, version, known):
    """A hash of everything that the result for a source file depends on."""
    digest = hashlib.sha256((version + entry.get("command", "") + repo.text(".clang-tidy") + repo.text("test/.clang-tidy")).encode())
    for file in [path, *sorted(includes(path, known))]:
        digest.update(file.encode() + b"\0" + repo.text(file).encode() + b"\0")
    return digest.hexdigest()


def sources_of(changed, database, known):
    """The source files to look at for changed files: these themselves, and for a header the first that sees it."""
    wanted = changed & database.keys()
    for header in sorted(path for path in changed if path.endswith((".h", ".hpp"))):
        sources = sorted(path for path in database if header in includes(path, known))
        beside = [path for path in sources if os.path.splitext(os.path.basename(path))[0] == os.path.splitext(os.path.basename(header))[0]]
        wanted |= set((beside or sources)[:1])
    return wanted


def tidy(path, entry):
    """The messages of clang-tidy about a file, as text; empty where it finds nothing. Without the precompiled header: a header that
    the file does not include itself is an error."""
    flags = shlex.split(re.sub(r"-include-pch \S+|-o \S+ -c \S+$", "", entry["command"]))[1:]
    result = subprocess.run([TOOL, "--quiet", os.path.join(repo.ROOT, path), "--", *flags], cwd=entry["directory"],
                            capture_output=True, text=True)
    if result.returncode == 0:
        return ""
    found = [line for line in result.stdout.splitlines() if re.search(r": (?:warning|error): ", line)]
    return "\n".join(sorted(set(found))) or result.stdout + result.stderr or f"{path}: {TOOL} failed"


def main():
    if not shutil.which(TOOL):
        sys.exit(f"check_tidy: {TOOL} is missing: run scripts/setup.sh --tests")
    database, known = commands(), {}
    wanted = set(database) if "--all" in sys.argv else sources_of(changed_files(), database, known)
    version = subprocess.run([TOOL, "--version"], capture_output=True, text=True).stdout
    os.makedirs(CACHE, exist_ok=True)
    marks = {path: os.path.join(CACHE, key(path, database[path], version, known)) for path in wanted}
    pending = sorted(path for path, mark in marks.items() if not os.path.exists(mark))
    left = [] if "--all" in sys.argv else pending[MOST:]
    pending = pending[:len(pending) - len(left)]
    problems = []
    with concurrent.futures.ThreadPoolExecutor(os.cpu_count()) as workers:
        for path, text in zip(pending, workers.map(lambda path: tidy(path, database[path]), pending)):
            if text:
                problems.append(text.replace(repo.ROOT + os.sep, ""))
            else:
                open(marks[path], "w", encoding="utf-8").close()
    repo.finish("check_tidy", problems, f"{len(wanted)} files, {len(pending)} of them anew" +
                (f", {len(left)} left for the next run or --all" if left else ""))


if __name__ == "__main__":
    main()
