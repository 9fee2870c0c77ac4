# SPDX-License-Identifier: Apache-2.0
"""Updates that joint graphs write out: whatever the optimizer and its spelling, gradients are found, carry the loss scale, and train right."""
import numpy as np
import onnx
import pytest
from mpt_run import tool
from random_updates import OPTIMIZERS, generate, trained

import mpt

pytestmark = pytest.mark.skipif(not (tool().parent / "mpt-opt").exists(), reason="mpt-opt is not built")

# Loss scale, and how far a gradient and an update may be from float64's. Three steps of an update that turns small
# differences into whole steps, as signs and square roots do, are wider than their gradients.
POLICIES = {"fp32": (None, 2e-3), "amp-f16": (None, .05), "fixed": (1024, .05), "amp-bf16": (None, .12), "als-f16": (None, .05), "fp8-hybrid": (None, .5)}


def distance(got, want):
    return np.linalg.norm(got - want) / max(np.linalg.norm(want), 1e-30)


def check(seed, policy, folder):
    scale, limit = POLICIES[policy]
    model, held, parameters, feed, words, names = generate(seed)
    if "muon" in words:  # magnifies the smallest singular values of its gradient
        limit *= 4
    onnx.save(model, folder / "m.onnx")
    wanted, first = trained(model, held, feed, 3, list(names.values()))
    if scale and "times 300" in words:
        scale = 1
    flags = {"loss_scale": scale} if scale else {}
    library = mpt.compile(folder / "m.onnx", policy="amp-f16" if policy == "fixed" else policy, quiet=True, out=folder / f"{seed}.{policy}", **flags)
    with mpt.Trainer(library, threads=1) as trainer:
        _, gradients = trainer.gradients(feed)
        for name in parameters:  # the first loss scale may be too large
            off = distance(gradients[name], first[names[name]])
            assert not np.isfinite(gradients[name]).all() or off < 2 * limit, f"{words}, {policy}: gradient of {name} off {off:.3g}"
        taken = 0
        for _ in range(60):
            taken += not trainer.step(feed).skipped
            if taken == 3:
                break
        assert taken == 3, f"{words}, {policy}: no steps"
        for name in parameters:
            off = distance(trainer.parameter(name) - held[name], wanted[name] - held[name])
            assert off < limit, f"{words}, {policy}: update of {name} off {off:.3g}"


@pytest.mark.parametrize("seed", range(36))
def test_random_updates(seed, tmp_path):
    check(seed, list(POLICIES)[(seed + seed // len(OPTIMIZERS)) % len(POLICIES)], tmp_path)


def test_an_update_without_a_gradient_of_its_own_is_refused_under_a_scale(tmp_path):
    """Two parameters are updated by values that are no multiple of a gradient of one of them."""
    model = onnx.parser.parse_model("""<ir_version: 8, opset_import: ["" : 17]>
      g (float[8,4] x) => (float loss, float[4,4] w_next, float[4,4] v_next) {
        h = MatMul(x, w)  y = MatMul(h, v)  q = Mul(y, y)  loss = ReduceMean<keepdims = 0>(q)
        dy = Mul(y, share)  ht = Transpose(h)  gv = MatMul(ht, dy)  vt = Transpose(v)  dh = MatMul(dy, vt)  xt = Transpose(x)  gw = MatMul(xt, dh)
        both = Concat<axis = 0>(gw, gv)  mixed = MatMul(mix, both)  bound = Tanh(mixed)  mw, mv = Split<axis = 0>(bound, halves)
        w_next = Sub(w, mw)  v_next = Sub(v, mv)
      }""")
    values = {"w": np.eye(4), "v": np.eye(4), "share": 1 / 16, "mix": .01 * np.eye(8) + .001}
    model.graph.initializer.extend(onnx.numpy_helper.from_array(np.asarray(value, np.float32), name) for name, value in values.items())
    model.graph.initializer.append(onnx.numpy_helper.from_array(np.array([4, 4]), "halves"))
    onnx.save(model, tmp_path / "m.onnx")
    mpt.compile(tmp_path / "m.onnx", policy="amp-bf16", quiet=True, out=tmp_path / "plain")
    with pytest.raises(mpt.CompileError, match="found none; name the value .*--seed NAME, or train without a scale: --loss-scale=none") as refusal:
        mpt.compile(tmp_path / "m.onnx", policy="amp-f16", quiet=True, out=tmp_path / "scaled")
    assert any(f"from here on the gradient of '{name}' of the file is no multiple" in str(refusal.value) for name in "wv")


# Values that an update computes from the parameter: norms of columns, as adaptive clipping has, a projection, and a product.
OF_PARAMETERS = {
    "columns": ("""ww = Mul(w, w)  sums = ReduceSum<keepdims = 1>(ww, axis)  norms = Sqrt(sums)  move = Mul(g, norms)""",
                lambda g, w: g * np.sqrt((w * w).sum(0, keepdims=True))),
    "rows": ("""sums = ReduceL2<axes = [1], keepdims = 1>(w)  bound = Max(sums, tenth)  move = Div(g, bound)""",
             lambda g, w: g / np.maximum(np.sqrt((w * w).sum(1, keepdims=True)), .1)),
    "sphere": ("""wg = Mul(w, g)  along = ReduceSum<keepdims = 1>(wg, axis)  back = Mul(w, along)  move = Sub(g, back)""",
               lambda g, w: g - w * (w * g).sum(0, keepdims=True)),
    "product": ("""wt = Transpose(w)  square = MatMul(wt, w)  move = MatMul(g, square)""", lambda g, w: g @ (w.T @ w)),
}


@pytest.mark.parametrize("policy, limit", [("amp-f16", 5e-3), ("amp-bf16", 3e-2), ("als-f16", 5e-3), ("fp8-hybrid", .3)])
@pytest.mark.parametrize("update", OF_PARAMETERS)
def test_what_updates_make_of_parameters_starts_from_masters(update, policy, limit, tmp_path):
    body, move = OF_PARAMETERS[update]
    model = onnx.parser.parse_model(f"""<ir_version: 8, opset_import: ["" : 17]>
      g (float[8,6] x, float[8,4] t) => (float loss, float[6,4] w_next) {{
        h = MatMul(x, w)  d = Sub(h, t)  dd = Mul(d, d)  loss = ReduceMean<keepdims = 0>(dd)
        dh = Mul(d, share)  xt = Transpose(x)  g = MatMul(xt, dh)  {body}  step = Mul(move, tenth)  w_next = Sub(w, step) }}""")
    random = np.random.default_rng(3)
    w = random.standard_normal((6, 4)).astype(np.float32)
    numbers = {"w": w, "share": np.float32(1 / 16), "tenth": np.float32(.1), "axis": np.array([0])}
    model.graph.initializer.extend(onnx.numpy_helper.from_array(np.asarray(value), name) for name, value in numbers.items())
    onnx.save(model, tmp_path / "m.onnx")
    feed = {"x": random.standard_normal((8, 6)).astype(np.float32), "t": random.standard_normal((8, 4)).astype(np.float32)}
    wide, x, t = (value.astype(np.float64) for value in (w, feed["x"], feed["t"]))
    wanted = -.1 * move(x.T @ (x @ wide - t) / 16, wide)
    with mpt.Trainer(mpt.compile(tmp_path / "m.onnx", policy=policy, quiet=True, out=tmp_path / "lib"), threads=1) as trainer:
        assert any(not trainer.step(feed).skipped for _ in range(40))
        assert distance(trainer.parameter("w") - w, wanted) < limit


@pytest.mark.parametrize("decay", ["decay = Mul(w, small)  sum = Add(gw, decay)", "sum = Identity(gw)"])
def test_a_scale_of_the_file_is_no_rate(decay, tmp_path):
    """The gradient is divided by the file's own loss scale before the rate comes, or the parameter's decay before it."""
    model = onnx.parser.parse_model(f"""<ir_version: 8, opset_import: ["" : 17]>
      g (float[8,4] x, float[8,3] t, float scale) => (float loss, float[4,3] w_next) {{
        y = MatMul(x, w)  d = Sub(y, t)  q = Mul(d, d)  loss = ReduceMean<keepdims = 0>(q)
        dy = Mul(d, share)  scaled = Mul(dy, scale)  xt = Transpose(x)  large = MatMul(xt, scaled)  gw = Div(large, scale)
        {decay}  move = Mul(sum, rate)  w_next = Sub(w, move) }}""")
    rng = np.random.default_rng(0)
    w = rng.standard_normal((4, 3)).astype(np.float32)
    values = {"w": w, "share": np.float32(2 / 24), "small": np.float32(1e-3), "rate": np.float32(.02)}
    model.graph.initializer.extend(onnx.numpy_helper.from_array(np.asarray(value), name) for name, value in values.items())
    onnx.save(model, tmp_path / "m.onnx")
    x, t = (rng.standard_normal(shape).astype(np.float32) for shape in ((8, 4), (8, 3)))
    with mpt.Trainer(mpt.compile(tmp_path / "m.onnx", quiet=True, out=tmp_path / "out"), threads=1) as trainer:
        _, gradients = trainer.gradients({"x": x, "t": t, "scale": np.float32(128)})
    assert distance(gradients["w"], x.T @ (x @ w - t) * 2 / 24) < 1e-5


def test_a_parameter_that_averages_another_state(tmp_path):
    """Schedule-free SGD: the rate stands on the gradient, which moves a state, and the parameter is a mean of that state and itself."""
    model = onnx.parser.parse_model("""<ir_version: 8, opset_import: ["" : 17]>
      g (float[8,4] x, float[8,3] t, float[4,3] z, float count) => (float loss, float[4,3] w_next, float[4,3] z_next, float count_next) {
        y = MatMul(x, w)  d = Sub(y, t)  q = Mul(d, d)  loss = ReduceMean<keepdims = 0>(q)
        dy = Mul(d, share)  xt = Transpose(x)  gw = MatMul(xt, dy)  count_next = Add(count, one)  k = Div(one, count_next)  kept = Sub(one, k)
        move = Mul(gw, rate)  z_next = Sub(z, move)  old = Mul(w, kept)  new = Mul(z_next, k)  w_next = Add(old, new) }""")
    rng = np.random.default_rng(0)
    w = rng.standard_normal((4, 3)).astype(np.float32)
    values = {"w": w, "share": np.float32(2 / 24), "one": np.float32(1), "rate": np.float32(.02)}
    model.graph.initializer.extend(onnx.numpy_helper.from_array(np.asarray(value), name) for name, value in values.items())
    onnx.save(model, tmp_path / "m.onnx")
    x, t = (rng.standard_normal(shape).astype(np.float32) for shape in ((8, 4), (8, 3)))
    with mpt.Trainer(mpt.compile(tmp_path / "m.onnx", quiet=True, out=tmp_path / "out"), threads=1) as trainer:
        _, gradients = trainer.gradients({"x": x, "t": t})
    assert distance(gradients["w"], x.T @ (x @ w - t) * 2 / 24) < 1e-5


@pytest.mark.parametrize("flags", [{"forward_only": True}, {"emit": "onnx"}])
def test_a_loss_scale_without_effect_is_an_error(flags, tmp_path):
    model = onnx.parser.parse_model("""<ir_version: 8, opset_import: ["" : 17]> g (float[2,2] x) => (float[2,2] y) { y = MatMul(x, w) }""")
    model.graph.initializer.append(onnx.numpy_helper.from_array(np.eye(2, dtype=np.float32), "w"))
    onnx.save(model, tmp_path / "m.onnx")
    with pytest.raises(mpt.CompileError, match="expected a training step for --loss-scale=1024"):
        mpt.compile(tmp_path / "m.onnx", policy="amp-f16", loss_scale=1024, quiet=True, out=tmp_path / "out.onnx", **flags)


def test_the_gradient_of_an_input_is_a_result(tmp_path):
    """Forces beside an energy; a functional step has its parameters among the inputs instead."""
    model = onnx.parser.parse_model("""<ir_version: 8, opset_import: ["" : 17]>
      g (float[4,3] x) => (float energy, float[4,3] x_grad) { h = MatMul(x, w)  energy = ReduceSum<keepdims = 0>(h)  x_grad = MatMul(ones, wt) }""")
    values = {"w": np.ones((3, 8)), "wt": np.ones((8, 3)), "ones": np.ones((4, 8))}
    model.graph.initializer.extend(onnx.numpy_helper.from_array(np.asarray(value, np.float32), name) for name, value in values.items())
    onnx.save(model, tmp_path / "m.onnx")
    mpt.compile(tmp_path / "m.onnx", quiet=True, forward_only=True, out=tmp_path / "out")
    with mpt.Trainer(tmp_path / "out", threads=1) as trainer:
        assert set(trainer.inputs("predict" if "predict" in trainer.manifest["functions"] else "forward")) == {"x"}
