# SPDX-License-Identifier: Apache-2.0
"""The documentation as a site: it is built without a warning, fetches nothing, fits a browser and can be searched from disk; dead
links and missing anchors fail its build."""
import os
import re
import shutil
import subprocess
import sys

import pytest
from conftest import ROOT

sys.path.insert(0, str(ROOT / "scripts/site"))
import headers  # noqa: E402

PARTS = ("docs", "include", "python/mpt", "scripts/site", "lib/Precision/policies", "README.md", "CHANGELOG.md", "CONTRIBUTING.md")


@pytest.fixture(scope="module")
def mkdocs():
    environment = ROOT / "build/docs-env"
    if not (environment / "packages").exists():
        pytest.skip("no MkDocs: run scripts/docs.sh first")
    return [str(environment / "bin/python"), "-m", "mkdocs", "build", "--strict", "--config-file", "scripts/site/mkdocs.yml"]


@pytest.fixture(scope="module")
def site(mkdocs, tmp_path_factory):
    folder = tmp_path_factory.mktemp("site") / "site"
    done = subprocess.run([*mkdocs, "--site-dir", folder], cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return folder


@pytest.mark.slow
def test_site_is_whole(site):
    pages = {str(path.relative_to(site)) for path in site.rglob("*.html")}
    assert {"index.html", "tutorials/fine-tuning.html", "reference/python.html", "reference/headers.html", "refusals.html"} <= pages
    assert len(pages) > 75 and (site / "source/lib/Precision/policies/amp-f16.mlir.txt").exists()
    for page in pages:
        fetched = re.findall(r'<(?:script|link|img|iframe|source)[^>]+(?:src|href)="?((?:https?:)?//[^" >]+)', (site / page).read_text())
        assert not fetched, (page, fetched)
    python = (site / "reference/python.html").read_text()
    for name in ("mpt.compile", "mpt.Trainer.step", "mpt.fit", "mpt.report", "mpt.CompileError.code"):
        assert f'id="{name}"' in python, name
    assert "folder of the run. A call that finds checkpoints" in python and "Parameters:" in python


@pytest.mark.slow
@pytest.mark.parametrize("words, says", [("[gone](gone.md)", "gone.md"), ("[gone](onnx.md#gone)", "does not contain an anchor '#gone'")])
def test_dead_links_fail_the_build(mkdocs, tmp_path, words, says):
    for part in PARTS:
        copy = shutil.copytree if (ROOT / part).is_dir() else shutil.copy
        (tmp_path / part).parent.mkdir(parents=True, exist_ok=True)
        copy(ROOT / part, tmp_path / part)
    with open(tmp_path / "docs/glossary.md", "a") as page:
        page.write(f"\n{words}\n")
    done = subprocess.run(mkdocs, cwd=tmp_path, capture_output=True, text=True)
    assert done.returncode != 0 and says in done.stderr, done.stderr


def dump(page, width, folder):
    browser = shutil.which("chromium")
    if not browser:
        pytest.skip("no chromium (Debian: chromium)")
    return subprocess.run([browser, "--headless", "--no-sandbox", "--disable-gpu", f"--window-size={width},1200", "--dump-dom",
                           "--virtual-time-budget=8000", f"--user-data-dir={folder}/profile", page], capture_output=True, text=True,
                          timeout=180).stdout


@pytest.mark.slow
@pytest.mark.parametrize("width", [480, 900, 1400])
def test_pages_fit_a_browser(site, tmp_path, width):
    probe = "<script>document.title = document.documentElement.scrollWidth + ' ' + innerWidth</script></body>"
    for name in ("index.html", "generated/policies.html", "reference/python.html", "tutorials/which-policy.html"):
        page = site / os.path.dirname(name) / f"probe-{width}.html"
        page.write_text((site / name).read_text().replace("</body>", probe))
        needed, there = map(int, re.search(r"<title>(\d+) (\d+)</title>", dump(page, width, tmp_path)).groups())
        assert needed <= there, name


@pytest.mark.slow
def test_search_from_disk(site, tmp_path):
    found = dump(f"file://{site}/index.html?q=unscale", 1200, tmp_path)
    assert re.search(r"[1-9]\d* matching documents", found)


@pytest.mark.parametrize("path, language", [("mpt-c/runtime.h", "c"), ("mpt-c/world.h", "c"), ("mpt/trainer.hpp", "cpp")])
def test_page_of_a_header_has_every_name(path, language):
    text = (ROOT / "include" / path).read_text()
    page = headers.page(path, text, language)
    names = re.findall(r"^(?:mpt_status|void|const char \*|int32_t) ?(mpt_\w+)\(" if language == "c" else r"^(?:class|struct) (\w+)", text, re.M)
    titles = re.findall(r"^### (.*)$", page, re.M)
    assert len(names) > 3 and all(any(f"`{name}`" in title for title in titles) for name in names)
    assert "private:" not in page and "#include" not in page
