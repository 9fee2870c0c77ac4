#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""docs/generated/ is current: TableGen makes it of the dialects, interfaces and passes. With --fix, writes it.

A page follows one small model through all phases (walkthrough.py), and a picture shows them (flow.py); pictures show the types of
each policy (recipes.py). The page of passes shows each pass's example,
test/passes/STAGE/name.doctest.mlir, which lit runs.

Also holds that links between pages lead somewhere, that files which pages name exist, that docs/phases.md names every pass
and no other, and that the site's contents list every page.
"""
import glob
import os
import re
import subprocess
import sys
import tempfile

import flow
import recipes
import repo
import walkthrough

TBLGEN = "/usr/lib/llvm-22/bin/mlir-tblgen"
GENERATED = "docs/generated"
PHASES = "docs/phases.md"
SITE = "scripts/site/mkdocs.yml"
FLAG = re.compile(r'^def\s+\w+\s*:\s*(?:Interface)?Pass<\s*"([^"]+)"', re.M)
FILE = re.compile(r"`((?:lib|include|passes|test|scripts|benchmarks|tools|python|examples|cmake|\.ci)/[\w./-]+)`")
TITLE = re.compile(r"# ('\w+' Dialect|\w+Interface definitions)$")
DATED = ("docs/results/", "docs/generated/")
LINK = re.compile(r"\]\(([^)#\s]+)(?:#[^)]*)?\)")


def tblgen(action, *sources, options=()):
    texts = []
    for source in sources:
        run = subprocess.run([TBLGEN, action, *options, "-I", "include", "-I", ".", "-I", "/usr/lib/llvm-22/include", source],
                             cwd=repo.ROOT, capture_output=True, text=True)
        if run.returncode:
            sys.exit(f"check_docs: mlir-tblgen {action} {source} failed:\n{run.stderr[:2000]}")
        # The page has a title of its own.
        lines = [line.rstrip() for line in run.stdout.splitlines() if not TITLE.match(line)]
        texts.append("\n".join(lines).strip())
    return "\n\n".join(filter(None, texts)) + "\n"


def dialect_page(folder, name):
    """The operations of every definition file of a dialect, also of files that no other file includes."""
    with tempfile.NamedTemporaryFile("w", suffix=".td") as whole:
        whole.writelines(f'include "{path}"\n' for path in definitions(folder))
        whole.flush()
        return tblgen("-gen-dialect-doc", whole.name, options=[f"-dialect={name.lower()}"])


def definitions(folder):
    return [path.removeprefix("include/") for path in repo.files(folder, ends="Ops.td")]


def op_status():
    """The page that the coverage test's walk over the registered operations writes, or None before it is built."""
    tools = glob.glob(os.path.join(repo.ROOT, "build", "*", "bin", "CoverageTest"))
    if not tools:
        return None
    run = subprocess.run([max(tools, key=os.path.getmtime), "--op-status"], capture_output=True, text=True)
    if run.returncode:
        sys.exit(f"check_docs: CoverageTest --op-status failed:\n{run.stderr[:2000]}")
    return run.stdout


def with_examples(page):
    """The page of passes with each pass's example at the end of its section."""
    sections = re.split(r"^(?=### `-)", page, flags=re.M)
    for i, section in enumerate(sections):
        flag = re.match(r"### `-([a-z0-9]+)-([a-z0-9-]+)`", section)
        path = flag and f"test/passes/{flag[1]}/{flag[2]}.doctest.mlir"
        if path and os.path.exists(os.path.join(repo.ROOT, path)):
            sections[i] = f"{section.rstrip()}\n\n#### Example ([as tested](../../{path}))\n\n```mlir\n{repo.text(path).strip()}\n```\n\n"
    return "".join(sections).rstrip() + "\n"


def policies():
    """A table of the built-in policies with types and loss scaling; then the head of each file, and its picture."""
    rows, shown = [], ""
    for path in repo.files("lib/Precision/policies", ends=".mlir"):
        text = repo.text(path)
        head = " ".join(line.lstrip("/ ").strip() for line in text.splitlines() if line.startswith("//"))
        types = dict(re.findall(r"\b(storage|compute|gradients|master) = (\w+)", text))
        scaling = re.search(r"policy\.loss_scaling (\w+)", text)
        name = os.path.basename(path)[:-len(".mlir")]
        rows.append(f"| [`{name}`](../../{path}) | {types['storage']} | {types['compute']} | {types['gradients']} | {types['master']} | "
                    f"{scaling[1] if scaling else 'none'} |")
        shown += f"\n## {name}\n\n{head}\n\n![the types in a step under {name}](recipe-{name}.svg)\n"
    return ("# Built-in policies\n\nEach is a file of `lib/Precision/policies`; [precision.md](../precision.md) says how to add one.\n\n"
            "| policy | storage | operands | gradients | masters | loss scale |\n|---|---|---|---|---|---|\n" + "\n".join(rows) + "\n" + shown)


def pages(have):
    """{page: text} of all generated pages; `have` are the pages in the repository."""
    result = {}
    status = op_status() or have.get("op-status.md")
    if status:
        result["op-status.md"] = status
    followed = walkthrough.page() or have.get("walkthrough.md")
    if followed:
        result["walkthrough.md"] = followed
    result["policies.md"] = policies()
    for path in repo.files("lib/Precision/policies", ends=".mlir"):
        name = os.path.basename(path)[:-len(".mlir")]
        result[f"recipe-{name}.svg"] = recipes.picture(name, repo.text(path))
    drawn = flow.picture()
    if drawn:
        result["flow.svg"] = drawn
    dialects = [p for p in repo.files("include/mpt/Dialect", ends="Ops.td") if p.split("/")[-1] == p.split("/")[-2] + "Ops.td"]
    for path in dialects:
        name = path.split("/")[-2]
        result[f"dialect-{name.lower()}.md"] = f"# Dialect {name}\n\n" + dialect_page(os.path.dirname(path), name)
    interfaces = repo.files("include/mpt/Interfaces", ends=".td")
    if interfaces:
        result["interfaces.md"] = "# Operation interfaces\n\n" + tblgen("-gen-op-interface-docs", *interfaces)
    tables = repo.files("passes", ends="Passes.td")
    if tables:
        result["passes.md"] = with_examples("# Passes\n\n" + tblgen("-gen-pass-doc", *tables))
    return result


def dead_links():
    for page in ["README.md", *repo.files("docs", ends=".md")]:
        for target in LINK.findall(repo.text(page)):
            beside = os.path.join(repo.ROOT, os.path.dirname(page), target)
            if not page.startswith(GENERATED) and "://" not in target and not os.path.exists(beside):
                yield f"{page}: link to {target}, which does not exist"


def gone_files():
    """Files and folders that pages name and that do not exist. Measurements tell of the trees that they were taken of."""
    for page in repo.files("README.md", "CONTRIBUTING.md", "docs", ends=".md"):
        if page.startswith(DATED):
            continue
        text = repo.text(page)
        for name in sorted(set(FILE.findall(text))):
            if "STAGE" not in name and not os.path.exists(os.path.join(repo.ROOT, name)):
                yield f"{page}: names {name}, which does not exist"


def phases_amiss():
    """Passes that the page of phases leaves out, and names on it that no pass has."""
    if not os.path.exists(os.path.join(repo.ROOT, PHASES)):
        return
    flags = {flag for table in repo.files("passes", ends=".td") for flag in FLAG.findall(repo.text(table))}
    stages = "|".join(sorted({flag.split("-")[0] for flag in flags})) or "-"
    named = set(re.findall(rf"`((?:{stages})-[a-z0-9-]+)`", repo.text(PHASES)))
    yield from (f"{PHASES}: does not name pass --{flag}: say what it does" for flag in sorted(flags - named))
    yield from (f"{PHASES}: names --{flag}, which is no pass" for flag in sorted(named - flags))


def unlisted():
    """Pages that the contents of the site leave out; MkDocs, which says so too, is not installed everywhere."""
    listed = repo.text(SITE) if os.path.exists(os.path.join(repo.ROOT, SITE)) else None
    for page in repo.files("docs", ends=".md"):
        name = page.removeprefix("docs/")
        if listed and name != "README.md" and not re.search(rf"[ \[]{re.escape(name)}[,\]\n]", listed):
            yield f"{SITE}: does not list {name} in its nav"


def main():
    if not os.path.exists(TBLGEN):
        sys.exit("check_docs: mlir-tblgen is missing: run scripts/setup.sh")
    folder, problems = os.path.join(repo.ROOT, GENERATED), []
    have = {path.split("/")[-1]: repo.text(path) for path in repo.files(GENERATED, ends=(".md", ".svg"))}
    wanted = pages(have)
    if "--fix" in sys.argv:
        os.makedirs(folder, exist_ok=True)
        for name in have.keys() - wanted.keys():
            os.remove(os.path.join(folder, name))
        for name, text in wanted.items():
            with open(os.path.join(folder, name), "w", encoding="utf-8") as stream:
                stream.write(text)
        have = wanted
    for name in sorted(have.keys() | wanted.keys()):
        if have.get(name) != wanted.get(name):
            problems.append(f"{GENERATED}/{name} is not what the sources generate: run .ci/check_docs.py --fix")
    problems += [*dead_links(), *gone_files(), *phases_amiss(), *unlisted()]
    repo.finish("check_docs", problems, f"{len(wanted)} generated files")


if __name__ == "__main__":
    main()
