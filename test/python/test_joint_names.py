# SPDX-License-Identifier: Apache-2.0
"""Joint graphs name gradients and new values in many ways: each means the same as `P_grad` and `P_next`, of initializers and of inputs."""
import numpy as np
import onnx
import onnx.parser
import pytest
from mpt_run import tool
from onnx import numpy_helper

import mpt

W = np.array([[0.5, -1.0], [0.25, 0.75], [1.5, -0.5]], np.float32)
STATES = {"w": W, "b": np.array([0.5, -0.25], np.float32), "m_w": np.zeros_like(W), "m_b": np.zeros(2, np.float32)}
FEEDS = {"x": np.random.default_rng(1).normal(size=(4, 3)).astype(np.float32), "y": np.random.default_rng(2).normal(size=(4, 2)).astype(np.float32)}
NUMBERS = {"share": np.float32(0.25), "keep": np.float32(0.9), "rate": np.float32(0.05), "axes": np.array([0])}
PLAIN = ("{}_grad", "{}_next")
NAMES = [("grad_{}", "new_{}"), ("{}.grad", "{}.new"), ("d{}", "{}_out"), ("{}_gradient", "{}_updated"), ("d_{}", "next_{}"), ("{}@GRAD", "{}_prime"),
         ("{}_grad", "new_{}"), ("g_{}", "{}_next"), (None, "{}_out"), (None, "new_{}")]


def write(path, gradient, new, inputs):
    """SGD with momentum of a linear layer; its state as inputs where `inputs`, else as initializers."""
    n = {f"n_{key}": new.format(key) for key in STATES}
    g = {f"g_{key}": gradient.format(key) if gradient else f"inner_{key}" for key in ("w", "b")}
    graph = f"""z0 = MatMul (x, w)  z = Add (z0, b)  e = Sub (z, y)  q = Mul (e, e)  loss = ReduceMean <keepdims = 0> (q)
        de = Mul (e, share)  xt = Transpose (x)  {g['g_w']} = MatMul (xt, de)  {g['g_b']} = ReduceSum <keepdims = 0> (de, axes)
        """ + "".join(f"""o_{k} = Mul (m_{k}, keep)  {n['n_m_' + k]} = Add (o_{k}, {g['g_' + k]})  s_{k} = Mul ({n['n_m_' + k]}, rate)
        {n['n_' + k]} = Sub ({k}, s_{k})  """ for k in ("w", "b"))
    # The text form has letters alone in names.
    model = onnx.parser.parse_model(f"""<ir_version: 8, opset_import: ["" : 17]> joint (float[4,3] x, float[4,2] y) => (float loss) {{
        {graph.replace('@', '_AT_').replace('.', '_DOT_')} }}""")
    for node in model.graph.node:
        for names in (node.input, node.output):
            names[:] = [name.replace("_AT_", "@").replace("_DOT_", ".") for name in names]
    info = lambda name, of: onnx.helper.make_tensor_value_info(name, onnx.TensorProto.FLOAT, STATES[of].shape)
    if gradient:
        model.graph.output.extend(info(g[f"g_{key}"], key) for key in ("w", "b"))
    model.graph.output.extend(info(n[f"n_{key}"], key) for key in STATES)
    if inputs:
        model.graph.input.extend(info(key, key) for key in STATES)
    held = NUMBERS if inputs else {**STATES, **NUMBERS}
    model.graph.initializer.extend(numpy_helper.from_array(np.asarray(value), key) for key, value in held.items())
    onnx.checker.check_model(model)
    onnx.save(model, path)


def trained(path, policy):
    """Losses of three steps, and the state after them."""
    out = path.with_suffix(f".{policy}")
    mpt.compile(path, policy=policy, quiet=True, out=out)
    trainer = mpt.Trainer(out, threads=1)
    for key in ("w", "b"):
        trainer.set_parameter(key, STATES[key])
    losses = [trainer.step(FEEDS).loss for _ in range(3)]
    assert trainer.manifest["training"]["form"] == "joint graph"
    return losses, {key: trainer.parameter(key) for key in ("w", "b")}


@pytest.mark.parametrize("inputs", [False, True])
@pytest.mark.parametrize("gradient, new", NAMES)
def test_every_way_of_naming_trains_alike(gradient, new, inputs, tmp_path):
    if not (tool().parent / "mpt-opt").exists():
        pytest.skip("mpt-opt is not built")
    write(tmp_path / "plain.onnx", *PLAIN, inputs)
    write(tmp_path / "other.onnx", gradient, new, inputs)
    losses, values = trained(tmp_path / "other.onnx", "amp-bf16")
    wanted, masters = trained(tmp_path / "plain.onnx", "amp-bf16")
    assert losses == wanted and losses[2] < losses[0]
    for key in masters:
        np.testing.assert_array_equal(values[key], masters[key])


# Updates of other states from gradients or new parameters, beside w_next = w - rate * something; and the same by numpy
OTHERS = {
    "average": ("s = Mul (g, rate)  w_next = Sub (w, s)  old = Mul (e, keep)  new = Mul (w_next, rest)  e_next = Add (old, new)",
                lambda w, e, g: (w - np.float32(.05) * g, np.float32(.9) * e + np.float32(.1) * (w - np.float32(.05) * g))),
    "sum": ("a = Add (e, g)  s = Mul (a, rate)  w_next = Sub (w, s)  e_next = Mul (a, keep)",
            lambda w, e, g: (w - np.float32(.05) * (e + g), np.float32(.9) * (e + g))),
}


@pytest.mark.parametrize("policy, tolerance", [("fp32", 1e-6), ("amp-bf16", 2e-2), ("amp-f16", 2e-3)])
@pytest.mark.parametrize("name", OTHERS)
def test_states_beside_sgd_are_written(name, policy, tolerance, tmp_path):
    if not (tool().parent / "mpt-opt").exists():
        pytest.skip("mpt-opt is not built")
    update, step = OTHERS[name]
    model = onnx.parser.parse_model(f"""<ir_version: 8, opset_import: ["" : 17]>
      joint (float[4,3] x, float[4,2] y) => (float loss, float[3,2] w_next, float[3,2] e_next) {{
        z = MatMul (x, w)  d = Sub (z, y)  q = Mul (d, d)  loss = ReduceMean <keepdims = 0> (q)
        dz = Mul (d, share)  xt = Transpose (x)  g = MatMul (xt, dz)
        {update}
      }}""")
    values = {"w": W, "e": np.zeros_like(W), "rest": np.float32(.1), **{key: NUMBERS[key] for key in ("share", "keep", "rate")}}
    model.graph.initializer.extend(numpy_helper.from_array(np.asarray(value), key) for key, value in values.items())
    onnx.save(model, tmp_path / "m.onnx")
    mpt.compile(tmp_path / "m.onnx", policy=policy, quiet=True, out=tmp_path / "out")
    trainer = mpt.Trainer(tmp_path / "out", threads=1)
    w, e, taken = W, np.zeros_like(W), 0
    while taken < 3:
        if trainer.step(FEEDS).skipped:
            continue
        taken += 1
        w, e = step(w, e, FEEDS["x"].T @ ((FEEDS["x"] @ w - FEEDS["y"]) * NUMBERS["share"]))
    state = trainer.state()
    np.testing.assert_allclose(trainer.parameter("w"), w, atol=tolerance)
    np.testing.assert_allclose(state["e"] if "e" in state else state["state/e"], e, atol=tolerance)


@pytest.mark.parametrize("policy, tolerance", [("fp32", 1e-6), ("amp-f16", 2e-3)])
@pytest.mark.parametrize("momentum", [False, True])
def test_clipping_of_the_file_sees_unscaled_gradients(momentum, policy, tolerance, tmp_path):
    """By the norm of all gradients: the factor is no gradient, and no multiple of the loss scale."""
    if not (tool().parent / "mpt-opt").exists():
        pytest.skip("mpt-opt is not built")
    update = "".join(f"old_{k} = Mul (m_{k}, keep)  m_{k}_next = Add (old_{k}, c_{k})  s_{k} = Mul (m_{k}_next, rate)  {k}_next = Sub ({k}, s_{k})  "
                     if momentum else f"s_{k} = Mul (c_{k}, rate)  {k}_next = Sub ({k}, s_{k})  " for k in "wb")
    moments = ", float[3,2] m_w_next, float[2] m_b_next" if momentum else ""
    model = onnx.parser.parse_model(f"""<ir_version: 8, opset_import: ["" : 17]>
      joint (float[4,3] x, float[4,2] y) => (float loss, float[3,2] w_next, float[2] b_next{moments}) {{
        z0 = MatMul (x, w)  z = Add (z0, b)  d = Sub (z, y)  q = Mul (d, d)  loss = ReduceMean <keepdims = 0> (q)
        dz = Mul (d, share)  xt = Transpose (x)  gw = MatMul (xt, dz)  gb = ReduceSum <keepdims = 0> (dz, axes)
        gw2 = Mul (gw, gw)  sw = ReduceSum <keepdims = 0> (gw2)  gb2 = Mul (gb, gb)  sb = ReduceSum <keepdims = 0> (gb2)
        sum = Add (sw, sb)  norm = Sqrt (sum)  ratio = Div (most, norm)  factor = Min (ratio, one)
        c_w = Mul (gw, factor)  c_b = Mul (gb, factor)
        {update}
      }}""")
    values = {**(STATES if momentum else {"w": W, "b": STATES["b"]}), "most": np.float32(.5), "one": np.float32(1), **NUMBERS}
    model.graph.initializer.extend(numpy_helper.from_array(np.asarray(value), key) for key, value in values.items())
    onnx.save(model, tmp_path / "m.onnx")
    mpt.compile(tmp_path / "m.onnx", policy=policy, quiet=True, out=tmp_path / "out")
    trainer = mpt.Trainer(tmp_path / "out", threads=1)
    w, b, m, taken = W, STATES["b"], [0, 0], 0
    while taken < 3:
        if trainer.step(FEEDS).skipped:
            continue
        taken += 1
        dz = (FEEDS["x"] @ w + b - FEEDS["y"]) * NUMBERS["share"]
        g = [FEEDS["x"].T @ dz, dz.sum(0)]
        factor = min(1, .5 / np.sqrt(sum(np.sum(v * v) for v in g)))
        m = [.9 * old * momentum + v * factor for old, v in zip(m, g)]
        w, b = w - .05 * m[0], b - .05 * m[1]
    assert factor < 1
    np.testing.assert_allclose(trainer.parameter("w"), w, atol=tolerance)
    np.testing.assert_allclose(trainer.parameter("b"), b, atol=tolerance)
