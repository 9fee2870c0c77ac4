# SPDX-License-Identifier: Apache-2.0
"""Tensors that train and are a scale, a size or a limit elsewhere: there they have their values from before training."""
import warnings

import numpy as np
import onnx
import pytest
from onnx import numpy_helper
from onnx.reference import ReferenceEvaluator

import mpt

RANDOM = np.random.default_rng(5)
K = np.array([1, 1, 2, 2], np.float32)
# Nodes that read the tensor k, which a Mul trains, to compute r from c.
USES = {
    "scales": 'r = Resize<mode = "nearest">(c, , k)',
    "scales of another type": 'd = Cast<to = 1>(k) e = Identity(d) r = Resize<mode = "nearest">(c, , e)',
    "sizes": 's = Shape(c) sf = Cast<to = 1>(s) t = Mul(sf, k) u = Cast<to = 7>(t) r = Resize<mode = "nearest">(c, , , u)',
    "shape": 'four = Constant<value_floats = [4.0]>() p = Mul(k, four) q = Cast<to = 7>(p) big = Expand(c, q1) r = Resize<mode = "nearest">(c, , k)',
    "repeats": 'n = Cast<to = 7>(k) r = Tile(c, n)',
    "pads": 'one = Constant<value_floats = [0.0, 0.0, 2.0, 2.0, 0.0, 0.0, 2.0, 2.0]>() m = Concat<axis = 0>(k, k) w2 = Sub(m, ones8) w3 = Mul(w2, two8) n = Cast<to = 7>(w3) r = Pad(c, n)',
}


def model(use, path):
    q = 'q1 = Constant<value_ints = [1, 4, 4, 4]>() ones8 = Constant<value_float = 1.0>() two8 = Constant<value_float = 2.0>()'
    m = onnx.parser.parse_model(f"""<ir_version: 8, opset_import: ["": 13]>
      g (float[1,4,4,4] x) => (float[1,4,8,8] y) {{ {q} c = Conv<kernel_shape=[1,1]>(x, w) {USES[use]}
        shape = Constant<value_ints=[1,4,1,1]>() kk = Reshape(k, shape) y = Mul(r, kk) }}""")
    m.graph.initializer.extend(numpy_helper.from_array(v, n) for n, v in {"w": RANDOM.standard_normal((4, 4, 1, 1)).astype(np.float32), "k": K}.items())
    onnx.save(m, path)
    return m


@pytest.mark.parametrize("frozen", [False, True])
@pytest.mark.parametrize("use", USES)
def test_it_stays_what_it_is(use, frozen, tmp_path):
    m = model(use, tmp_path / "m.onnx")
    x, target = (RANDOM.standard_normal(shape).astype(np.float32) for shape in ((1, 4, 4, 4), (1, 4, 8, 8)))
    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always")
        library = mpt.compile(tmp_path / "m.onnx", out=tmp_path / "lib", loss="mse", optimizer="sgd,lr=0.1", **({"freeze": "k"} if frozen else {}))
    early = [str(warning.message) for warning in said if "as it is before training" in str(warning.message)]
    assert len(early) == (0 if frozen else 1) and all("reads 'k'" in text and "--freeze=k" in text for text in early), early
    with mpt.Trainer(library, threads=1) as trainer:
        feed = {n: x if n == "x" else target.reshape(shape) for n, (_, shape) in trainer.inputs("step").items() if n != "learning_rate"}
        y = ReferenceEvaluator(m).run(None, {"x": x})[0]
        want = np.mean((y.astype(np.float64) - target) ** 2)
        assert abs(trainer.step(feed).loss - want) < 1e-5 * want
        assert (trainer.parameter("k") == K).all() == frozen  # where it is a factor, it trains
