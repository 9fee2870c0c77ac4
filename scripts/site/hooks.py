# SPDX-License-Identifier: Apache-2.0
"""Pages of the site that lie elsewhere in the repository or are made of sources, and links to files outside of docs/."""
import os
import pathlib
import re
import sys

from mkdocs.structure.files import File

sys.path.insert(0, os.path.dirname(__file__))
import headers  # noqa: E402

ROOT = pathlib.Path(__file__).resolve().parents[2]
# Page of the site -> file of the repository.
ELSEWHERE = {"index.md": "README.md", "changelog.md": "CHANGELOG.md", "contributing.md": "CONTRIBUTING.md"}
CODE = re.compile(r"(```.*?```|`[^`\n]*`)", re.S)
LINK = re.compile(r"(!?)\[((?:[^\[\]]|\[[^\]]*\])*)\]\(([^)\s]+)\)")
HEADERS = [("mpt-c/runtime.h", "c"), ("mpt-c/world.h", "c"), ("mpt-c/types.h", "c"), ("mpt-c/compiler.h", "c"), ("mpt/trainer.hpp", "cpp")]


def python_page():
    """Every public name of the package with its docstring."""
    text = (ROOT / "python/mpt/__init__.py").read_text()
    names = re.findall(r'"(\w+)"', text[text.index("__all__"):])
    order = ["compile", "Trainer", "StepResult", "fit", "Fit", "report", "init", "World", "shard"]
    names = [*order, *(name for name in names if name not in order)]
    return "# Python package\n\n" + "\n".join(f"::: mpt.{name}\n" for name in names)


def header_page():
    intro = "# C and C++ headers\n\n[c-api.md](../c-api.md) shows them in use; this page has their declarations and comments.\n\n"
    return intro + "\n".join(headers.page(path, (ROOT / "include" / path).read_text(), language) for path, language in HEADERS)


def home(page):
    """The file of the repository that a page of the site shows."""
    return ROOT / ELSEWHERE.get(page, f"docs/{page}")


def target(page, link):
    """(path in the repository, anchor) of a link to a file that exists outside of docs/, or to a page that lies elsewhere; else None."""
    path, _, anchor = link.partition("#")
    if not path or "://" in link or link.startswith("mailto:"):
        return None
    found = (home(page).parent / path).resolve()
    if not found.is_relative_to(ROOT) or not found.exists():
        return None
    return found.relative_to(ROOT), anchor


def address(found):
    """Where the site has a file or a folder of the repository; None where it has not."""
    text = found.as_posix()
    by_home = {file: page for page, file in ELSEWHERE.items()} | {"docs/README.md": "index.md"}
    if text in by_home:
        return by_home[text]
    if text.startswith("docs/") and (ROOT / found).is_file():
        return text.removeprefix("docs/")
    return f"source/{text}.txt" if (ROOT / found).is_file() else None


def on_files(files, config):
    made = {"reference/python.md": python_page(), "reference/headers.md": header_page()}
    for page, source in ELSEWHERE.items():
        made[page] = (ROOT / source).read_text()
    for page, text in made.items():
        files.append(File.generated(config, page, content=text))
    for name in ("site.css", "iframe-worker.js"):
        files.append(File.generated(config, name, abs_src_path=str(ROOT / "scripts/site" / name)))
    for file in list(files.documentation_pages()):
        text = made.get(file.src_uri) or file.content_string
        for _, _, link in LINK.findall(text):
            found = target(file.src_uri, link)
            place = found and address(found[0])
            if place and place.startswith("source/") and not files.get_file_from_path(place):
                files.append(File.generated(config, place, abs_src_path=str(ROOT / found[0])))
    return files


def on_page_markdown(markdown, page, **_):
    here = page.file.src_uri

    def mend(match):
        image, words, link = match.groups()
        found = target(here, link)
        if not found:
            return match[0]
        place = address(found[0])
        if place is None:  # a folder
            return words
        if words.endswith(".md") and (ROOT / found[0]).suffix == ".md":  # a title says more than the name of a file
            words = re.search(r"^# (.*)", (ROOT / found[0]).read_text(), re.M)[1]
        way = os.path.relpath(place, os.path.dirname(here) or ".") + (f"#{found[1]}" if found[1] else "")
        return f"{image}[{words}]({way})"

    if here.startswith("generated/dialect-"):  # indices such as positions[a][i] are no references there
        markdown = "".join(part if part.startswith("`") else re.sub(r"\](\s?)\[", r"]\1\\[", part) for part in CODE.split(markdown))
    return LINK.sub(mend, markdown)
