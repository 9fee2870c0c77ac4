# SPDX-License-Identifier: Apache-2.0
"""Recurrent layers for CUDA, loops over steps: rows of profiles, and the layer where a value stops being finite."""
import json
import re
import subprocess
import sys

import cuda_kernels
import cuda_models
import numpy as np
import pytest
from conftest import build_folder
from onnx import TensorProto, helper
from standin import environment

pytestmark = pytest.mark.slow

STEPS = """
import json, sys
import numpy as np
import mpt
from standin import standin as library, trainer as make_trainer
said = ""
with make_trainer(sys.argv[1]) as trainer:
    try:
        for _ in range(4):
            trainer.step(dict(np.load(sys.argv[2])))
    except mpt.Error as problem:
        said = str(problem)
print(json.dumps({"said": said, "violations": library().standin_violations().decode()}))
"""


def run(folder, batch, *flags, **options):
    """The output of four steps of the folder's model, and the profile."""
    build = build_folder()
    if not (build / "lib" / "libcuda_standin.so").exists() or not (build / "bin" / "mpt-opt").exists():
        pytest.skip("the compiler or the stand-in is not built")
    np.savez(folder / "batch.npz", **batch)
    subprocess.run([build / "bin" / "mpt-opt", folder / "m.onnx", "--loss=softmax-cross-entropy", "--optimizer=sgd,lr=0.01", "--policy=amp-bf16",
                    "--target=cuda", "--arch=host", "--quiet", "-o", folder / "library", *flags], check=True)
    done = subprocess.run([sys.executable, "-c", STEPS, str(folder / "library"), str(folder / "batch.npz")], check=True, text=True,
                          capture_output=True, env=environment(build, options=options))
    return json.loads(done.stdout.splitlines()[-1]), done.stderr


@pytest.mark.parametrize("policy", ["fp32", "als-f16"])
def test_loops_agree_with_the_interpreter(tmp_path, policy):
    """The values that kernels read of a recurrence agree with the interpreter's, from the recurrence's own operands."""
    build = build_folder()
    if not (build / "lib" / "libcuda_standin.so").exists() or not (build / "bin" / "mpt-opt").exists():
        pytest.skip("the compiler or the stand-in is not built")
    batch = {"x": cuda_models.recurrent(tmp_path / "m.onnx", steps=4), "labels": np.arange(6, dtype=np.int64) % 5}
    values, most, problems = cuda_kernels.check(build, tmp_path / "m.onnx", ["--loss=softmax-cross-entropy", f"--policy={policy}"], batch, tmp_path / "cuda")
    assert not problems and values > 80 and most < 0.3, problems


def test_a_loop_has_one_row_a_call(tmp_path):
    batch = {"x": cuda_models.recurrent(tmp_path / "m.onnx", steps=9), "labels": np.zeros(6, np.int64)}
    said, profile = run(tmp_path, batch, profile=200)
    assert said == {"said": "", "violations": ""}
    calls = int(re.search(r"in (\d+) calls", profile)[1])
    rows = [re.match(r" *[\d.]+% +[\d.]+ +(\d+) +[\d.]+ +[\d.]+  (.*)", line).groups() for line in profile.splitlines()[2:]]
    assert sum(int(count) for count, _ in rows) == calls
    # Forward all steps are passes; backward the last one is apart, except for the plain cell.
    for passes, node in [(9, "layer0"), (8, "layer0"), (9, "layer1"), (8, "layer1"), (9, "layer2"), (8, "layer2"), (9, "layer3")]:
        assert any(what.startswith(f"{passes} times gemm") and what.endswith(f"[{node}]") for _, what in rows), (passes, node, profile)
        assert any(what.startswith(f"{passes} times kernel") and what.endswith(f"[{node}]") for _, what in rows), (passes, node, profile)


def test_values_that_are_not_finite_have_their_layer(tmp_path):
    """States that grow by 1e15 a step overflow in the third."""
    nodes = [helper.make_node("RNN", ["x", "w", "r"], ["y", "h"], name="growing", hidden_size=8, activations=["Relu"], layout=1),
             helper.make_node("Flatten", ["h"], ["state"]), helper.make_node("Gemm", ["state", "head"], ["logits"], name="fc")]
    weights = {"w": np.eye(8, dtype=np.float32)[None], "r": 1e15 * np.eye(8, dtype=np.float32)[None], "head": cuda_models.values(1, 8, 5)}
    cuda_models.model(tmp_path / "m.onnx", "rnn", nodes, weights, {"x": [4, 6, 8]}, ("logits", TensorProto.FLOAT, [4, 5]))
    said, _ = run(tmp_path, {"x": np.ones((4, 6, 8), np.float32), "labels": np.zeros(4, np.int64)}, "--debug-nonfinite")
    assert "'growing'" in said["said"] and "6 times" in said["said"] and not said["violations"], said
