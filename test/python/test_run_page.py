# SPDX-License-Identifier: Apache-2.0
"""mpt.report: a page that needs nothing else, has the log's content, and is laid out without overflow in a browser."""
import json
import pathlib
import re
import shutil
import subprocess
from html.parser import HTMLParser

import numpy as np
import pytest
from replica_models import ROWS, classifier

import mpt

COMPILE = {"policy": "amp-f16", "loss": "softmax-cross-entropy", "optimizer": "adamw,lr=1e-2"}


class Strict(HTMLParser):
    """Every element that is opened is closed in order; nothing is fetched."""
    VOID = {"meta", "br"}

    def __init__(self):
        super().__init__()
        self.open, self.text = [], ""

    def handle_starttag(self, tag, attributes):
        assert tag not in ("script", "link", "img", "iframe") and not any(name in ("src", "href") for name, _ in attributes)
        if tag not in self.VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag, attributes):
        pass

    def handle_endtag(self, tag):
        assert self.open.pop() == tag

    def handle_data(self, data):
        self.text += data


def write_ranges(path) -> None:
    """As mpt-run --calibrate does: an activation of 2^3 and 2^5, a weight of 2^-2."""
    value = lambda kind, exponents: {"kind": kind, "exponents": exponents, "zeros": 0, "largest": 1.0}
    path.write_text(json.dumps({"steps": 1, "values": {"step|hidden|mpt.matmul|0|0": value("activation", {"3": 5, "5": 1}),
                                                       "state|weight": value("weight", {"-2": 4})}}))


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    """Four epochs whose second begins with a batch that overflows."""
    folder = tmp_path_factory.mktemp("page")
    for kind in ("precision", "memory"):
        mpt.compile(classifier(folder / "model<b>.onnx"), out=folder / "lib", name="model", report=f"{kind}={folder}/{kind}.json", **COMPILE)
    write_ranges(folder / "ranges.json")
    random = np.random.default_rng(0)
    trainer = mpt.Trainer(folder / "lib", options={"profile": 1})
    names = [name for name in trainer.inputs("step") if name != "learning_rate"]
    good = {names[0]: random.standard_normal((ROWS, 4)).astype(np.float32), names[1]: random.integers(0, 3, ROWS)}
    bad = {**good, names[0]: np.full((ROWS, 4), 6e4, np.float32)}
    counted = iter(range(100))
    mpt.fit(trainer, lambda: iter([bad, good, good] if next(counted) == 1 else [good] * 3), epochs=4, run=folder / "run", validation=[good],
            metrics={"<accuracy>": lambda outputs, batch: (outputs["logits"].argmax(1) == batch[names[1]]).mean()}, progress=False)
    return folder


@pytest.fixture(scope="module")
def page(run):
    return pathlib.Path(mpt.report(run / "run", compiler=[run / f"{kind}.json" for kind in ("precision", "memory", "ranges")])).read_text()


def test_page_holds_what_the_log_holds(run, page):
    reader = Strict()
    reader.feed(page)
    assert not reader.open and "http" not in page
    log = [json.loads(line) for line in (run / "run/log.jsonl").read_text().splitlines()]
    skipped = [record["step"] for record in log if record.get("skipped")]
    assert skipped == [4] and "1 of 12 steps were skipped" in page
    assert re.findall(r'class="mark"[^>]*><title>step (\d+)', page) == ["4"]
    for words in ("loss scale", "learning rate", "gradient norm by parameter", "Values and formats", "FP16", "Precision decisions of amp-f16",
                  "Memory of step", "&lt;accuracy&gt;", "scratch over the step", "Skipped steps", "Times of step: 11 runs", "Measured ranges",
                  "value hidden, 2^3: 5"):
        assert words in page, words
    for name in mpt.Trainer(run / "lib").trained()["tensors"]:
        assert name in page


def test_skipped_step_names_its_culprit(run):
    """The batch that overflows is looked at under the next scale; a parameter is named either way."""
    log = [json.loads(line) for line in (run / "run/log.jsonl").read_text().splitlines()]
    found = [record["culprits"] for record in log if record.get("skipped")]
    names = mpt.Trainer(run / "lib").trained()["tensors"]
    assert len(found) == 1 and all(name in names for names_ in found[0].values() for name in ([names_] if isinstance(names_, str) else names_))
    assert not any("culprits" in record for record in log if not record.get("skipped"))


def test_timeline_reaches_the_peak_and_no_more(run):
    step = json.loads((run / "memory.json").read_text())["functions"]["step"]
    uses = ("saved", "gradients", "workspace", "other")
    totals = [sum(point[use] for use in uses) for point in step["timeline"]]
    assert max(totals) == step["lower_bound"] and totals[-1] == 0 and min(totals) >= 0
    peak = max(step["timeline"], key=lambda point: sum(point[use] for use in uses))
    assert {use: peak[use] for use in uses} == {use: step["at_peak"][use] for use in uses} and peak["node"] == step["at_peak"]["node"]
    assert max(point["gradients"] for point in step["timeline"]) == step["gradients"]
    assert [point["at"] for point in step["timeline"]] == sorted(point["at"] for point in step["timeline"])


def test_notebooks_show_reports_and_memory(run):
    for kind, words in (("precision", "Precision decisions of amp-f16"), ("memory", "Memory of step"), ("ranges", "Measured ranges")):
        reader = Strict()
        reader.feed(mpt.CompilerReport(run / f"{kind}.json")._repr_html_())
        assert not reader.open and words in reader.text
    reader = Strict()
    reader.feed(mpt.Trainer(run / "lib").memory()._repr_html_())
    assert not reader.open and "together" in reader.text
    (run / "other.json").write_text("{}")
    with pytest.raises(ValueError, match="expected JSON of mpt-opt"):
        mpt.CompilerReport(run / "other.json")._repr_html_()


def test_histogram_counts_every_value():
    from mpt._watch import exponents
    found = exponents(np.array([0, 1, 1.5, 2, -0.25, np.inf, np.nan, 1e-38, 3e38], np.float32))
    bins = dict(zip(range(found["first"], 99), found["counts"]))
    assert (found["zero"], found["infinite"], sum(bins.values())) == (1, 2, 6)
    assert (bins[0], bins[1], bins[-2], bins[-40], bins[24]) == (2, 1, 1, 1, 1)


def test_shares_outside_of_formats():
    from mpt._report import outside
    found = {"first": -30, "counts": [1, *[0] * 39, 3], "zero": 0, "infinite": 0}  # one of 2^-30, three of 2^10
    rows = {name: (below, above) for name, below, above in outside(found, 0)}
    assert rows["FP16"] == ("25.00 %", "0.00 %") and rows["E4M3"] == ("25.00 %", "75.00 %")
    assert {name: row[1:] for name, *row in outside(found, 8)}["FP16"] == ["75.00 %"]


def test_no_run_is_refused(tmp_path):
    with pytest.raises(ValueError, match="expected the folder of a run"):
        mpt.report(tmp_path)


def test_notebooks_show_trainer_and_run(run):
    trainer = mpt.Trainer(run / "lib")
    reader = Strict()
    reader.feed(trainer._repr_html_())
    assert not reader.open and "amp-f16" in reader.text and "2 tensors, 42 values" in reader.text
    trainer.close()
    assert trainer._repr_html_() == "&lt;mpt.Trainer, closed&gt;"


@pytest.mark.parametrize("width", [480, 900, 1400])
def test_page_fits_a_browser(page, tmp_path, width):
    browser = shutil.which("chromium")
    if not browser:
        pytest.skip("no chromium (Debian: chromium)")
    probe = "<script>document.title = document.documentElement.scrollWidth + ' ' + innerWidth + ' ' + document.querySelectorAll('svg').length</script>"
    (tmp_path / "page.html").write_text(page.replace("</body>", probe + "</body>"))
    done = subprocess.run([browser, "--headless", "--no-sandbox", "--disable-gpu", f"--window-size={width},1200", "--dump-dom",
                           f"--user-data-dir={tmp_path}/profile", tmp_path / "page.html"], capture_output=True, text=True, timeout=120)
    needed, there, pictures = map(int, re.search(r"<title>(\d+) (\d+) (\d+)</title>", done.stdout).groups())
    assert needed <= there and pictures >= 8
