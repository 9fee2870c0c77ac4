# SPDX-License-Identifier: Apache-2.0
"""docs/tutorials: the code of each page runs from top to bottom, and prints the page's output."""
import importlib.util
import re
import shutil

import pytest
from conftest import ROOT, build_folder
from doc_blocks import run_page

pytestmark = pytest.mark.slow


def numbers(text, pattern):
    return [float(value) for value in re.findall(pattern, text)]


def needs(*modules):
    for module in modules:
        if importlib.util.find_spec(module) is None:
            pytest.skip(f"no {module}")


def test_fine_tuning(tmp_path):
    needs("sklearn", "onnxruntime")
    text = run_page("docs/tutorials/fine-tuning.md", tmp_path)
    before, after, again, deployed = numbers(text, r"accuracy ([\d.]+)\n")
    assert before < 0.5 and after == again > 0.9 and abs(deployed - after) < 0.01


def test_cpp_trainer(tmp_path):
    if not shutil.which("cmake"):
        pytest.skip("needs cmake on the PATH")
    if not (build_folder() / "lib/libmpt_compiler.so").exists():
        pytest.skip("the build is not whole: there is nothing to install")
    text = run_page("docs/tutorials/cpp-trainer.md", tmp_path, {"HOME": str(tmp_path), "MPT": str(ROOT)})
    early, late, whole = numbers(text, r"largest error after \d+ steps: ([\d.]+)")
    assert late == whole < 0.5 * early


def test_pytorch_amp(tmp_path):
    needs("sklearn", "torch", "onnxscript")
    text = run_page("docs/tutorials/pytorch-amp.md", tmp_path)
    losses = numbers(text, r"loss ([\d.]+)")
    assert losses[:3] == pytest.approx(losses[3:], rel=0.05, abs=2e-3)


def test_reading_a_report(tmp_path):
    needs("sklearn")
    text = run_page("docs/tutorials/reading-a-report.md", tmp_path)
    assert 5 < numbers(text, r"(\d+) skipped")[0] < 30 and (tmp_path / "run/report.html").stat().st_size > 50_000
    assert 'because keep-f32 "fc2" -> wide' in text


def test_which_policy(tmp_path):
    needs("sklearn")
    text = run_page("docs/tutorials/which-policy.md", tmp_path)
    assert min(numbers(text, r"accuracy ([\d.]+)")) > 0.85 and max(numbers(text, r"loss ([\d.]+)")) < 0.1
    wide, *narrow = numbers(text.replace(",", ""), r"scratch (\d+) bytes")
    assert all(bytes < wide for bytes in narrow)


def test_every_tutorial_is_run():
    tested = set(re.findall(r"docs/tutorials/([\w-]+\.md)", open(__file__, encoding="utf-8").read()))
    assert {path.name for path in (ROOT / "docs/tutorials").glob("*.md")} == tested


def test_output_that_is_not_printed_is_told(tmp_path, monkeypatch):
    page = tmp_path / "page.md"
    page.write_text('```python title="a.py"\nprint("loss", 0.5)\n```\n\n```bash\npython a.py\n```\n\n```text\nloss 0.7\n```\n')
    run_page(page, tmp_path)  # numbers differ between processors
    for wrong in (page.read_text().replace("loss 0.7", "lost 0.5"), page.read_text().replace("python a.py", "python b.py")):
        page.write_text(wrong)
        with pytest.raises(AssertionError, match="page.md"):
            run_page(page, tmp_path)
