# SPDX-License-Identifier: Apache-2.0
"""Joint graphs whose update is written out and which name no gradients: gradients are the values that moments average, and carry the scale."""
import numpy as np
import onnx
import onnx.parser
import pytest
from mpt_run import tool
from onnx import numpy_helper

import mpt

ROWS, RATE = 4, 0.05
# New values of w and its moments from the gradient g, as exporters write them; and the direction that the update takes.
UPDATES = {
    "adam": ("""ma = Mul (m, b1)  mb = Mul (g, c1)  m_next = Add (ma, mb)  gg = Mul (g, g)  va = Mul (v, b2)  vb = Mul (gg, c2)
                v_next = Add (va, vb)  root = Sqrt (v_next)  safe = Add (root, eps)  u = Div (m_next, safe)  s = Mul (u, rate)  w_next = Sub (w, s)""",
             ("m", "v"), lambda g, m, v, w: (.9 * m + .1 * g, .99 * v + .01 * g * g, lambda m, v: m / (np.sqrt(v) + 1e-8))),
    "lerp": ("""d = Sub (g, m)  k = Mul (c1, d)  m_next = Add (m, k)  vb = Mul (g, c2)  vc = Mul (vb, g)  va = Mul (v, b2)  v_next = Add (va, vc)
                root = Sqrt (v_next)  safe = Add (root, eps)  u = Div (m_next, safe)  n = Mul (u, minus)  w_next = Add (w, n)""",
             ("m", "v"), lambda g, m, v, w: (m + .1 * (g - m), .99 * v + .01 * g * g, lambda m, v: m / (np.sqrt(v) + 1e-8))),
    "momentum": ("""old = Mul (m, b1)  m_next = Add (old, g)  s = Mul (m_next, rate)  w_next = Sub (w, s)""",
                 ("m",), lambda g, m, v, w: (.9 * m + g, v, lambda m, v: m)),
    "decay": ("""p = Mul (w, c2)  h = Add (g, p)  old = Mul (m, b1)  m_next = Add (old, h)  s = Mul (m_next, rate)  w_next = Sub (w, s)""",
              ("m",), lambda g, m, v, w: (.9 * m + g + .01 * w, v, lambda m, v: m)),
    "rmsprop": ("""two = Constant <value = float {2}> ()  gg = Pow (g, two)  va = Mul (v, b2)  vb = Mul (gg, c2)  v_next = Add (va, vb)
                   root = Sqrt (v_next)  safe = Add (root, eps)  u = Div (g, safe)  s = Mul (u, rate)  w_next = Sub (w, s)""",
                ("v",), lambda g, m, v, w: (m, .99 * v + .01 * g * g, lambda m, v: g / (np.sqrt(v) + 1e-8))),
}
W = np.array([[0.5, -1.0], [0.25, 0.75], [1.5, -0.5]], np.float32)


@pytest.fixture
def model(request, tmp_path):
    if not (tool().parent / "mpt-opt").exists():
        pytest.skip("mpt-opt is not built")
    update, moments, _ = UPDATES[request.param]
    outputs = "".join(f", float[3,2] {name}_next" for name in ("w", *moments))
    graph = onnx.parser.parse_model(f"""<ir_version: 8, opset_import: ["" : 17]>
      joint (float[{ROWS},3] x, float[{ROWS},2] y) => (float loss{outputs}) {{
        z = MatMul (x, w)
        e = Sub (z, y)
        q = Mul (e, e)
        loss = ReduceMean <keepdims = 0> (q)
        de = Mul (e, share)
        xt = Transpose (x)
        g = MatMul (xt, de)
        {update}
      }}""")
    numbers = {"share": 2 / (2 * ROWS), "b1": .9, "c1": .1, "b2": .99, "c2": .01, "eps": 1e-8, "rate": RATE, "minus": -RATE}
    values = {"w": W, **{name: np.zeros_like(W) for name in moments}, **{name: np.float32(value) for name, value in numbers.items()}}
    graph.graph.initializer.extend(numpy_helper.from_array(np.asarray(value), name) for name, value in values.items())
    onnx.save(graph, tmp_path / "m.onnx")
    return tmp_path / "m.onnx", UPDATES[request.param][2]


@pytest.mark.parametrize("policy, tolerance", [("fp32", 1e-5), ("amp-f16", 1e-2), ("fp8-hybrid", 2e-1)])
@pytest.mark.parametrize("model", UPDATES, indirect=True)
def test_what_moments_average_is_the_gradient(model, policy, tolerance, tmp_path):
    path, moments = model
    random = np.random.default_rng(1)
    x, y = random.standard_normal((ROWS, 3)).astype(np.float32), random.standard_normal((ROWS, 2)).astype(np.float32)
    y *= np.float32(1e-3) if policy == "fp32" else 1
    trainer = mpt.Trainer(mpt.compile(path, policy=policy, quiet=True, out=tmp_path / "lib"), threads=1)
    assert trainer.manifest["training"]["optimizer"] == "operators of the file"
    _, gradients = trainer.gradients({"x": x, "y": y})
    assert set(gradients) == {"w"}
    w, m, v, taken = W.astype(np.float64), 0.0, 0.0, 0
    g = x.T @ (x @ w - y) / ROWS
    if np.isfinite(gradients["w"]).all():  # the first loss scale may be too large
        assert np.linalg.norm(gradients["w"] - g) <= tolerance * np.linalg.norm(g)
    for _ in range(40):
        if taken == 4:
            break
        if trainer.step({"x": x, "y": y}).skipped:
            continue
        taken += 1
        m, v, direction = moments(x.T @ (x @ w - y) / ROWS, m, v, w)
        w = w - RATE * direction(m, v)
    assert taken == 4
    np.testing.assert_allclose(trainer.parameter("w"), w, atol=max(tolerance / 2, 1e-5))
