# SPDX-License-Identifier: Apache-2.0
"""Trainers in processes of another kind: with a locale that writes 0,001, and children of a process that has trained."""
import os
import shutil
import subprocess
import sys

import numpy as np
import onnx
import pytest

import mpt
from conftest import build_folder

TRAIN = """
import sys
import numpy as np
import mpt
mpt.use_build(sys.argv[1])
trainer = mpt.Trainer(sys.argv[2], threads=2)
inputs = {name: np.ones(shape, kind) for name, (kind, shape) in trainer.inputs().items() if name != "learning_rate"}
"""


@pytest.fixture(scope="module")
def library(tmp_path_factory):
    """Large enough for loops and GEMMs that two threads share."""
    folder = tmp_path_factory.mktemp("process")
    model = onnx.parser.parse_model("""<ir_version: 9, opset_import: ["" : 18]>
        g (float[64, 256] x) => (float[64, 10] y) <float[512, 256] v = {}, float[10, 512] w = {}> {
            a = Gemm<transB = 1>(x, v)
            b = Relu(a)
            y = Gemm<transB = 1>(b, w)
        }""")
    del model.graph.initializer[:]
    random = np.random.default_rng(0)
    for name, shape in (("v", (512, 256)), ("w", (10, 512))):
        value = (random.standard_normal(shape) / 16).astype(np.float32)
        model.graph.initializer.append(onnx.numpy_helper.from_array(value, name))
    onnx.save(model, folder / "model.onnx")
    mpt.compile(folder / "model.onnx", out=folder / "lib", loss="softmax-cross-entropy", optimizer="adamw,lr=1e-3")
    return folder / "lib"


def run(script, library, **environment) -> list:
    done = subprocess.run([sys.executable, "-c", script, str(build_folder()), str(library)], env=os.environ | environment,
                          capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    return done.stdout.split()


def test_rate_of_the_manifest_in_other_locales(library, tmp_path):
    if not shutil.which("localedef"):
        pytest.skip("needs localedef")
    (tmp_path / "source").write_text('LC_NUMERIC\ndecimal_point ","\nthousands_sep ""\ngrouping -1\nEND LC_NUMERIC\n')
    subprocess.run(["localedef", "-c", "-i", tmp_path / "source", "-f", "ANSI_X3.4-1968", tmp_path / "comma"], capture_output=True)
    script = TRAIN + """
before = trainer.parameter("w")
trainer.step(inputs)
print(float(abs(trainer.parameter("w") - before).max()))
"""
    plain = run(script, library)
    assert float(plain[0]) > 5e-4
    comma = 'import locale; locale.setlocale(locale.LC_NUMERIC, "comma"); assert f"{0.5:n}" == "0,5"\n'
    assert run(comma + script, library, LOCPATH=str(tmp_path)) == plain


def test_children_of_a_process_that_has_trained(library):
    """A child has no OpenMP team of its parent's, which it would wait for."""
    script = TRAIN + """
import os
import signal
trainer.step(inputs)
child = os.fork()
if child == 0:
    signal.alarm(60)
    print(trainer.step(inputs).loss, trainer.step(inputs).loss, flush=True)
    os._exit(0)
assert os.waitpid(child, 0)[1] == 0
print(trainer.step(inputs).loss, trainer.step(inputs).loss)
"""
    losses = run(script, library)
    assert len(losses) == 4 and losses[:2] == losses[2:]
