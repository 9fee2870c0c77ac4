# SPDX-License-Identifier: Apache-2.0
"""If, Loop and Scan against the same arithmetic written out: loss and every gradient, on both sides of run-time conditions."""
import numpy as np
import onnx
import onnx.parser
import pytest
from mpt_run import tool

import mpt

X, W = (4, 3), (3, 3)
STEP = "step (int64 i, bool k, float[4,3] v) => (bool k2, float[4,3] u"
# the operator, the same written out, for a large and a small input
CASES = {
    "Loop": (f"n = Constant <value = int64 {{3}}> ()  r = Loop (n, , x) <body = {STEP}) {{ k2 = Identity (k)  m = MatMul (v, w)  u = Tanh (m) }}>",
             "m0 = MatMul (x, w)  a = Tanh (m0)  m1 = MatMul (a, w)  b = Tanh (m1)  m2 = MatMul (b, w)  r = Tanh (m2)", {}),
    # Outside, later values have the names of the body's, and other types.
    "Loop-names-again": (f"""n = Constant <value = int64 {{2}}> ()
                             l = Loop (n, , x) <body = {STEP}) {{ k2 = Identity (k)  m = Transpose (v)  t = Transpose (m)  u = MatMul (t, w) }}>
                             m = MatMul (l, w)  t = Sin (m)  r = Add (m, t)""",
                         "a = MatMul (x, w)  b = MatMul (a, w)  c = MatMul (b, w)  t = Sin (c)  r = Add (c, t)", {}),
    "Loop-counter": (f"""n = Constant <value = int64 {{3}}> ()
                         r = Loop (n, , x) <body = {STEP}) {{ k2 = Identity (k)  f = Cast <to = 1> (i)  a = Add (v, f)  u = Sin (a) }}>""",
                     """one = Constant <value = float {1}> ()  two = Constant <value = float {2}> ()
                        a = Sin (x)  b = Add (a, one)  c = Sin (b)  d = Add (c, two)  r = Sin (d)""", {}),
    "Loop-scan-output": (f"""n = Constant <value = int64 {{2}}> ()
                             last, all = Loop (n, , x) <body = {STEP}, float[4,3] s) {{ k2 = Identity (k)  u = MatMul (v, w)  s = Sin (v) }}>
                             r = Add (last, all)""",
                         """m0 = MatMul (x, w)  last = MatMul (m0, w)  s0 = Sin (x)  s1 = Sin (m0)  zero = Constant <value = int64[1] {0}> ()
                            a = Unsqueeze (s0, zero)  b = Unsqueeze (s1, zero)  all = Concat <axis = 0> (a, b)  r = Add (last, all)""", {}),
    "Loop-ends-by-condition": (f"""n = Constant <value = int64 {{9}}> ()
                                   r = Loop (n, , x) <body = {STEP}) {{ two = Constant <value = int64 {{2}}> ()  k2 = Less (i, two)  u = MatMul (v, w) }}>""",
                               "a = MatMul (x, w)  b = MatMul (a, w)  r = MatMul (b, w)", {}),
    "Loop-at-run-time": (f"""n = Constant <value = int64 {{3}}> ()  yes = Constant <value = bool {{1}}> ()
                             r = Loop (n, yes, x) <body = {STEP}) {{ sum = ReduceSum <keepdims = 0> (v)  zero = Constant <value = float {{0}}> ()
                               k2 = Greater (sum, zero)  u = MatMul (v, w) }}>""",
                         {False: "r = MatMul (x, w)", True: "a = MatMul (x, w)  b = MatMul (a, w)  r = MatMul (b, w)"}, {}),
    "Scan": ("""h, all = Scan <num_scan_inputs = 1, body = step (float[3] s, float[3] v) => (float[3] t, float[3] o) {
                  m = MatMul (s, w)  a = Add (m, v)  t = Tanh (a)  o = Identity (t) }> (s0, x)  r = Add (all, h)""",
             """first, second, third, fourth = Split <axis = 0, num_outputs = 4> (x)
                m0 = MatMul (s0, w)  a0 = Add (m0, first)  t0 = Tanh (a0)  m1 = MatMul (t0, w)  a1 = Add (m1, second)  t1 = Tanh (a1)
                m2 = MatMul (t1, w)  a2 = Add (m2, third)  t2 = Tanh (a2)  m3 = MatMul (t2, w)  a3 = Add (m3, fourth)  t3 = Tanh (a3)
                all = Concat <axis = 0> (t0, t1, t2, t3)  r = Add (all, t3)""", {"s0": (3,)}),
    "Scan-reverse": ("""h, all = Scan <num_scan_inputs = 1, scan_input_axes = [1], scan_input_directions = [1], scan_output_directions = [1],
                          scan_output_axes = [-1], body = step (float[4] s, float[4] v) => (float[4] t, float[4] o) {
                          t = Add (s, v)  o = Mul (t, t) }> (s0, x)  r = MatMul (all, w)""",
                     """one = Constant <value = int64[1] {1}> ()  s = Unsqueeze (s0, one)  c0, c1, c2 = Split <axis = 1, num_outputs = 3> (x)
                        t2 = Add (s, c2)  t1 = Add (t2, c1)  t0 = Add (t1, c0)  t = Concat <axis = 1> (t0, t1, t2)
                        all = Mul (t, t)  r = MatMul (all, w)""", {"s0": (4,)}),
    "If-at-run-time": ("""sum = ReduceSum <keepdims = 0> (x)  zero = Constant <value = float {0}> ()  is = Greater (sum, zero)
                          r = If (is) <then_branch = yes () => (float[4,3] a) { a = MatMul (x, w) }, else_branch = no () => (float[4,3] b) { b = Sin (x) }>""",
                       {True: "r = MatMul (x, w)", False: "r = Sin (x)"}, {}),
}


def trainer_of(body, shapes, values, folder):
    inputs = ", ".join(f"float[{', '.join(map(str, shape))}] one_{name}" for name, shape in shapes.items())
    products = "\n".join(f"{name} = Mul (p_{name}, one_{name})" for name in shapes)
    model = onnx.parser.parse_model(f"""<ir_version: 10, opset_import: ["" : 18]>
      m ({inputs}) => (float loss) {{
        {products}
        {body}
        square = Mul (r, r)
        cube = Mul (square, r)
        both = Add (square, cube)
        mean = ReduceMean <keepdims = 0> (both)
        weights = ReduceSum <keepdims = 0> (w)
        loss = Add (mean, weights)
      }}""")
    for name, value in values.items():
        model.graph.initializer.append(onnx.numpy_helper.from_array(value, f"p_{name}"))
    folder.mkdir()
    onnx.save(model, folder / "m.onnx")
    mpt.compile(folder / "m.onnx", loss="none", optimizer="sgd,lr=0.1", train="p_.*", quiet=True, out=folder / "out")
    return mpt.Trainer(folder / "out", threads=1)


@pytest.mark.parametrize("positive", [True, False])
@pytest.mark.parametrize("name", CASES)
def test_same_as_written_out(name, positive, tmp_path):
    if not (tool().parent / "mpt-opt").exists():
        pytest.skip("mpt-opt is not built")
    own, plain, more = CASES[name]
    if isinstance(plain, str) and not positive:
        pytest.skip("nothing depends on values")
    shapes = {"x": X, "w": W, **more}
    random = np.random.default_rng(2)
    values = {key: random.uniform(0.1, 0.6, shape).astype(np.float32) for key, shape in shapes.items()}
    if not positive:
        values["x"] = -values["x"]
    feeds = {f"one_{key}": np.ones(shape, np.float32) for key, shape in shapes.items()}
    bodies = {"own": own, "plain": plain if isinstance(plain, str) else plain[positive]}
    (loss, gradients), (wanted_loss, wanted) = [trainer_of(body, shapes, values, tmp_path / form).gradients(feeds) for form, body in bodies.items()]
    assert loss == pytest.approx(wanted_loss, rel=1e-5)
    assert set(gradients) == set(wanted) == {f"p_{key}" for key in shapes}
    for key in wanted:
        scale = max(np.abs(wanted[key]).max(), 1e-3)
        np.testing.assert_allclose(gradients[key] / scale, wanted[key] / scale, atol=2e-5, err_msg=key)


HELD = "float[3,3] near = {0.5, 0.1, 0, 0.2, 0.6, 0.1, 0, 0.3, 0.4}"
FAR = "float[3,3] far = {0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9}"


@pytest.mark.parametrize("positive", [True, False])
def test_weights_inside_subgraphs_train_as_those_outside(positive, tmp_path):
    if not (tool().parent / "mpt-opt").exists():
        pytest.skip("mpt-opt is not built")

    def trainer(name, outer, near, far):
        model = onnx.parser.parse_model(f"""<ir_version: 8, opset_import: ["" : 17]>
          m (float[4,3] x) => (float loss) {f'<{outer}>' if outer else ''} {{
            n = Constant <value = int64 {{3}}> ()
            h = Loop (n, , x) <body = step (int64 i, bool k, float[4,3] v) => (bool k2, float[4,3] u) {near} {{
                  k2 = Identity (k)  a = MatMul (v, near)  u = Tanh (a) }}>
            sum = ReduceSum <keepdims = 0> (x)  zero = Constant <value = float {{0}}> ()  is = Greater (sum, zero)
            r = If (is) <then_branch = yes () => (float[4,3] p) {far} {{ p = MatMul (h, far) }},
                         else_branch = no () => (float[4,3] q) {{ q = Sin (h) }}>
            square = Mul (r, r)  loss = ReduceMean <keepdims = 0> (square)
          }}""")
        onnx.save(model, tmp_path / f"{name}.onnx")
        mpt.compile(tmp_path / f"{name}.onnx", loss="none", optimizer="sgd,lr=0.1", quiet=True, out=tmp_path / name)
        return mpt.Trainer(tmp_path / name, threads=1)

    x = np.random.default_rng(4).uniform(0.1, 1, (4, 3)).astype(np.float32) * (1 if positive else -1)
    inside, outside = trainer("inside", "", f"<{HELD}>", f"<{FAR}>"), trainer("outside", f"{HELD}, {FAR}", "", "")
    assert set(inside.parameters()) == set(outside.parameters()) == {"near", "far"}
    (loss, gradients), (wanted_loss, wanted) = inside.gradients({"x": x}), outside.gradients({"x": x})
    assert loss == wanted_loss and np.any(gradients["near"]) and bool(np.any(gradients["far"])) == positive
    for key in wanted:
        np.testing.assert_array_equal(gradients[key], wanted[key])
    first, second = inside.step({"x": x}).loss, inside.step({"x": x}).loss
    assert second < first
