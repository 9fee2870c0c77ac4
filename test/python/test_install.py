# SPDX-License-Identifier: Apache-2.0
"""The files that `cmake --install` puts under a prefix serve programs elsewhere, with the repository out of sight."""
import re
import shutil
import subprocess
import sys

import numpy as np
import pytest
from conftest import ROOT
from doc_blocks import blocks
from installation import build, installed, run, without_tree  # noqa: F401, a fixture

import mpt

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def example(installed, tmp_path_factory):
    """A built copy of examples/digits."""
    folder = tmp_path_factory.mktemp("digits") / "copy"
    shutil.copytree(ROOT / "examples/digits", folder)
    (folder / "make_model.py").write_text(blocks("README.md", "python")[0])
    for script in ("make_model.py", "data.py"):
        run(sys.executable, script, cwd=folder)
    build(folder, folder / "build", installed)
    return folder


def accuracy(text: str) -> float:
    return float(re.search(r"has not seen: ([0-9.]+)", text).group(1))


def last_loss(text: str) -> float:
    return float(re.findall(r"loss ([0-9.]+),", text)[-1])


def by_python(example):
    """The loss that mpt.Trainer ends with on the same data."""
    trainer = mpt.Trainer(example / "build/digits.model")
    images = np.fromfile(example / "images.bin", np.float32).reshape(-1, 64)
    labels = np.fromfile(example / "labels.bin", np.int64)
    for step in range(12 * 44):
        rows = slice(step % 44 * 32, step % 44 * 32 + 32)
        loss = trainer.step({"x": images[rows], "labels": labels[rows]}).loss
    return loss


def test_cpp_program_trains(example):
    text = without_tree("build/train", cwd=example)
    assert accuracy(text) > 0.9 and last_loss(text) == pytest.approx(by_python(example), abs=1e-3)
    assert (example / "trained.onnx").stat().st_size > 10_000


def test_fortran_program_trains(example):
    if not (example / "build/train_fortran").exists():
        pytest.skip("no Fortran compiler (Debian: gfortran; scripts/setup.sh --libraries installs it)")
    text = without_tree("build/train_fortran", "build/digits.model", cwd=example)
    assert accuracy(text) > 0.9 and last_loss(text) == pytest.approx(by_python(example), abs=1e-3)
    missing = subprocess.run(["build/train_fortran", "nowhere"], cwd=example, capture_output=True, text=True)
    assert missing.returncode == 1 and "nowhere" in missing.stderr


def test_installed_compiler_needs_no_tree(example, installed):
    without_tree(installed / "bin/mpt-opt", "digits.onnx", "--loss=softmax-cross-entropy", "--optimizer=sgd,lr=0.1", "-o=alone", cwd=example)
    assert (example / "alone/libdigits.so").exists()


def test_static_model_and_bad_arguments(example, installed, tmp_path):
    lists = (ROOT / "examples/digits/CMakeLists.txt").read_text()
    for name in ("digits.onnx", "train.cpp", "images.bin", "labels.bin"):
        shutil.copy(example / name, tmp_path / name)
    (tmp_path / "CMakeLists.txt").write_text(lists[:lists.index("include(CheckLanguage)")].replace("POLICY amp-f16", "POLICY amp-f16 STATIC"))
    build(tmp_path, tmp_path / "build", installed)
    assert not list((tmp_path / "build/digits.model").glob("*.so"))
    assert accuracy(without_tree("build/train", cwd=tmp_path)) > 0.9
    for words, expected in (("MODLE digits.onnx", "unknown argument"), ("", "expected MODEL file.onnx or FOLDER folder"),
                            ("FOLDER build", "expected one library")):
        (tmp_path / "CMakeLists.txt").write_text(
            f"cmake_minimum_required(VERSION 3.22)\nproject(x LANGUAGES CXX)\nfind_package(mpt REQUIRED)\nmpt_add_model(digits {words})\n")
        refused = subprocess.run(["cmake", "-S", tmp_path, "-B", tmp_path / "refused", f"-DCMAKE_PREFIX_PATH={installed}"],
                                 capture_output=True, text=True)
        assert refused.returncode and expected in " ".join(refused.stderr.split())


def test_pkg_config(example, installed):
    if not shutil.which("pkg-config"):
        pytest.skip("no pkg-config")
    flags = run("pkg-config", "--cflags", "--libs", "mpt", env={"PKG_CONFIG_PATH": str(installed / "lib/pkgconfig"), "PATH": "/usr/bin:/bin"})
    model = example / "build/digits.model"
    run("clang++-22", "-std=c++17", f"-I{model}", f'-DMPT_MODEL_DIRECTORY="{model}"', "train.cpp", model / "libdigits.so", *flags.split(),
        f"-Wl,-rpath,{model}", "-o", "by-pkg-config", cwd=example)
    assert accuracy(without_tree("./by-pkg-config", cwd=example)) > 0.9


def test_header_refuses_with_words(example, installed, tmp_path):
    (tmp_path / "bad.cpp").write_text("""
#include "mpt/trainer.hpp"
#include <cstdio>
template <class Call> void refused(Call call) {
  try { call(); puts("accepted"); } catch (const mpt::Error &error) { printf("%d %s\\n", error.status, error.what()); }
}
int main(int, char **argv) {
  refused([] { mpt::Trainer trainer("nowhere"); });
  mpt::Trainer trainer(argv[1]);
  std::vector<float> x(32 * 64);
  refused([&] { trainer.step({{"x", x, {32, 63}}}); });
  refused([&] { trainer.step({{"x", x, {32, 64}}}); });
  refused([&] { trainer.get("weight3"); });
  refused([&] { trainer.evaluate({{"x", x, {32, 64}}})["logit"]; });
  refused([&] { trainer.evaluate({{"x", x, {32, 64}}})["logits"].values<int>(); });
  trainer.set("bias2", std::vector<float>(10, 0.5f));
  trainer.save("state.safetensors");
  mpt::Trainer other(argv[1]);
  other.load("state.safetensors");
  printf("%g %zu %g\\n", other.get("bias2")[9], other.parameters().size(), other.learningRate());
}
""")
    run("clang++-22", "-std=c++17", "-Wall", "-Wextra", "-Werror", f"-I{installed}/include", "bad.cpp", f"-L{installed}/lib", "-lmpt_rt",
        f"-Wl,-rpath,{installed}/lib", "-o", "bad", cwd=tmp_path)
    lines = run("./bad", example / "build/digits.model", cwd=tmp_path).splitlines()
    assert lines[0].startswith("2 ") and "nowhere" in lines[0]
    assert "expected 2016 values, got 2048" in lines[1] and "labels" in lines[2] and "weight3" in lines[3]
    assert "expected one of the results logits, got 'logit'" in lines[4] and "expected element type" in lines[5]
    assert lines[6] == "0.5 4 0.003"


def test_readme_has_the_programs():
    assert blocks("README.md", "cpp")[0] in (ROOT / "examples/digits/train.cpp").read_text()
    for line in blocks("README.md", "cmake")[0].splitlines():
        assert line in (ROOT / "examples/digits/CMakeLists.txt").read_text()
