# SPDX-License-Identifier: Apache-2.0
"""Training is a function of model, data, seed and threads: whole state files are compared, byte by byte."""
import os
import pathlib
import subprocess
import sys

import numpy as np
import pytest
from onnx import numpy_helper, parser

ROOT = pathlib.Path(__file__).resolve().parents[2]
BUILD = pathlib.Path(os.environ.get("MPT_BUILD", ROOT / "build" / "release"))
pytestmark = pytest.mark.skipif(not (BUILD / "bin" / "mpt-opt").exists(), reason="mpt-opt is not built")

# Values that parallel sums could make differ: filter gradients, batch statistics, scattered rows of a table, norms, dropout.
MODEL = """
<ir_version: 9, opset_import: ["" : 18], producer_name: "test">
both (float[8, 3, 12, 12] image, int64[8, 16] tokens, int64[8] label) => (float loss) {
  c = Conv<pads = [1, 1, 1, 1]>(image, conv_w, conv_b)
  n, mean1, var1 = BatchNormalization<training_mode = 1>(c, bn_s, bn_b, bn_mean, bn_var)
  r = Relu(n)
  p = GlobalAveragePool(r)
  left = Flatten(p)
  e = Gather(table, tokens)
  l = LayerNormalization<axis = -1>(e, ln_s, ln_b)
  q = MatMul(l, attend)
  t = Transpose<perm = [0, 2, 1]>(l)
  scores = MatMul(q, t)
  a = Softmax<axis = -1>(scores)
  mixed = MatMul(a, l)
  axes = Constant<value = int64[1] {1}>()
  right = ReduceMean<keepdims = 0>(mixed, axes)
  x = Concat<axis = 1>(left, right)
  ratio = Constant<value = float {0.25}>()
  yes = Constant<value = bool {1}>()
  d, kept = Dropout(x, ratio, yes)
  h = Gemm<transB = 1>(d, fc_w, fc_b)
  loss = SoftmaxCrossEntropyLoss<reduction = "mean">(h, label)
}
"""
SHAPES = {"conv_w": (24, 3, 3, 3), "conv_b": (24,), "bn_s": (24,), "bn_b": (24,), "bn_mean": (24,), "bn_var": (24,),
          "table": (50, 40), "ln_s": (40,), "ln_b": (40,), "attend": (40, 40), "fc_w": (10, 64), "fc_b": (10,)}
CASES = {"fp32": ["--policy=fp32", "--optimizer=sgd,lr=0.05,momentum=0.9"],
         "amp-f16": ["--policy=amp-f16", "--optimizer=adamw,lr=1e-2", "--clip-norm=1"],
         "accumulate": ["--policy=amp-f16", "--optimizer=adam,lr=1e-2", "--accumulate=2"]}

# A process of its own each time, so that nothing of one run (addresses, caches, idle threads) is there in another.
TRAIN = """
import sys
import numpy as np
import mpt
lib, threads, begin, end, load, save = sys.argv[1], int(sys.argv[2]), int(sys.argv[3]), int(sys.argv[4]), *sys.argv[5:7]
mpt.use_build(sys.argv[7])
trainer = mpt.Trainer(lib, threads=threads, seed=3)
if load:
    trainer.load(load)
skipped = 0
for step in range(begin, end):
    random = np.random.default_rng(step)
    image = random.standard_normal((8, 3, 12, 12)).astype(np.float32)
    if step in (20, 80) and trainer.manifest["policy"] != "fp32":
        image[0, 0, 0, 0] = np.inf
    result = trainer.step({"image": image, "tokens": random.integers(0, 50, (8, 16)), "label": random.integers(0, 10, 8)})
    skipped += result.skipped
trainer.save(save)
print(skipped, result.loss)
"""


@pytest.fixture(scope="module", params=CASES)
def library(request, tmp_path_factory):
    folder = tmp_path_factory.mktemp(request.param)
    model, random = parser.parse_model(MODEL), np.random.default_rng(0)
    for name, shape in SHAPES.items():
        value = random.standard_normal(shape).astype(np.float32) * 0.3
        value = np.abs(value) + 1 if name.endswith(("_s", "_var")) else value
        model.graph.initializer.append(numpy_helper.from_array(value, name))
    (folder / "both.onnx").write_bytes(model.SerializeToString())
    subprocess.run([BUILD / "bin" / "mpt-opt", folder / "both.onnx", "--quiet", *CASES[request.param], "-o", folder], check=True)
    return request.param, folder


def train(library, threads, begin, end, save, load=""):
    """Trains from step `begin` to `end`; returns the saved file's bytes and the numbers that the process printed."""
    # Spinning threads would starve each other where tests share the processor.
    environment = {**os.environ, "PYTHONPATH": str(ROOT / "python"), "OMP_WAIT_POLICY": "passive", "OMP_NUM_THREADS": "2"}
    said = subprocess.run([sys.executable, "-c", TRAIN, library, str(threads), str(begin), str(end), str(load), str(save), str(BUILD)],
                          env=environment, check=True, capture_output=True, text=True).stdout.split()
    return pathlib.Path(save).read_bytes(), int(said[0]), float(said[1])


@pytest.mark.parametrize("threads", [1, 2])
def test_same_bits(library, threads, tmp_path):
    """Run again, and cut where masters, optimizer state, the loss scale and its counters, random counters and accumulators are in
    motion, 100 steps end in the same file."""
    case, folder = library
    whole, skipped, loss = train(folder, threads, 0, 100, tmp_path / "whole")
    assert np.isfinite(loss) and skipped == (0 if case == "fp32" else 2)
    again, _, _ = train(folder, threads, 0, 100, tmp_path / "again")
    assert again == whole
    train(folder, threads, 0, 51, tmp_path / "half")
    rest, _, _ = train(folder, threads, 51, 100, tmp_path / "rest", load=tmp_path / "half")
    assert rest == whole
