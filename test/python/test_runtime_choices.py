# SPDX-License-Identifier: Apache-2.0
"""Choices that a graph makes at run time: dropout's mode and ratio, positions in sequences, numbers of steps, samples of regions."""
import numpy as np
import onnx
import onnx.parser
import pytest
from mpt_run import tool

import mpt

COUNT = 2000  # elements of a tensor whose dropped share is looked at


def trainer_of(model, folder, **flags):
    if not (tool().parent / "mpt-opt").exists():
        pytest.skip("mpt-opt is not built")
    folder.mkdir(exist_ok=True)
    onnx.save(onnx.parser.parse_model(model), folder / "m.onnx")
    mpt.compile(folder / "m.onnx", **{"loss": "none", "optimizer": "sgd,lr=0.1", "quiet": True, **flags}, out=folder / "out")
    return mpt.Trainer(folder / "out", threads=1)


DROPOUT = f"""<ir_version: 8, opset_import: ["" : 17]> m (float[{COUNT}] x, float one%s) => (float loss, float[{COUNT}] y)
  <float[{COUNT}] w = {{{', '.join(['2'] * COUNT)}}}> {{
    %s
    v = Mul (x, one)
    u = Mul (v, w)
    y, kept = Dropout (u, r, t)
    sum = ReduceSum <keepdims = 0> (y)
    ones = Cast <to = 1> (kept)
    count = ReduceSum <keepdims = 0> (ones)
    loss = Add (sum, count)
  }}"""


@pytest.mark.parametrize("ratio", [None, 0.0, 0.3, 1.0])
@pytest.mark.parametrize("training", [None, False, True])
def test_dropout(ratio, training, tmp_path):
    """With mode or ratio as inputs (None: a constant of the file), forward, mask, gradient and evaluation."""
    inputs = (", float r" if ratio is not None else "") + (", bool t" if training is not None else "")
    head = "" if ratio is not None else "r = Constant <value = float {0.25}> ()  "
    head += "" if training is not None else "t = Constant <value = bool {1}> ()  "
    trainer = trainer_of(DROPOUT % (inputs, head), tmp_path)
    x = np.linspace(1, 2, COUNT, dtype=np.float32)
    feeds = {"x": x, "one": np.float32(1)} | ({"r": np.float32(ratio)} if ratio is not None else {}) | ({"t": np.bool_(training)} if training is not None else {})
    share, on = (0.25 if ratio is None else ratio), training is not False
    loss, gradients = trainer.gradients(feeds)
    slopes, factor = gradients["w"], 1 / (1 - share) if share < 1 else 0
    kept = slopes != 0
    np.testing.assert_allclose(slopes, x * factor * kept if on else x, rtol=1e-6)
    assert abs(1 - kept.mean() - (share if on else 0)) <= 5 * np.sqrt(share * (1 - share) / COUNT)
    # y is linear in w, so that the gradient tells the elements that the forward pass has dropped, as the mask does.
    assert loss == pytest.approx(float((2 * slopes).sum()) + kept.sum(), rel=1e-5)
    np.testing.assert_allclose(trainer.evaluate(feeds)["y"], 2 * x, rtol=1e-6)


def test_dropout_takes_one_mode(tmp_path):
    with pytest.raises(mpt.CompileError, match="training_mode"):
        trainer_of(DROPOUT % (", bool[2] t", "r = Constant <value = float {0.25}> ()"), tmp_path)


# The operators between a sequence of a, b and c and the result, for a position p.
SEQUENCES = {
    "SequenceAt": ("r = SequenceAt (s, p)", lambda parts, new, p: parts[p]),
    "SequenceInsert": ("l = SequenceInsert (s, d, p)  r = ConcatFromSequence <axis = 0> (l)",
                       lambda parts, new, p: np.concatenate([*parts[:p], new, *parts[p:]])),
    "SequenceErase": ("l = SequenceErase (s, p)  r = ConcatFromSequence <axis = 0> (l)",
                      lambda parts, new, p: np.concatenate([part for i, part in enumerate(parts) if i != p % 3])),
}


@pytest.mark.parametrize("position", [-3, -2, -1, 0, 1, 2, 3])
@pytest.mark.parametrize("name", SEQUENCES)
def test_positions_in_sequences(name, position, tmp_path):
    if position == 3 and name != "SequenceInsert":
        pytest.skip("beyond the last element")
    body, meaning = SEQUENCES[name]
    model = f"""<ir_version: 8, opset_import: ["" : 17]> m (float[2, 3] x, int64 p) => (float loss, float[n, 3] r)
      <float[2, 3] a = {{1, 2, 3, 4, 5, 6}}, float[2, 3] b = {{-1, 1, -1, 1, -1, 1}}, float[2, 3] c = {{3, 2, 1, 0, -1, -2}}, float[2, 3] d = {{9, 8, 7, 6, 5, 4}}> {{
        s = SequenceConstruct (a, b, c)
        {body}
        cube = Mul (r, r)
        sum = ReduceSum <keepdims = 0> (cube)
        more = ReduceSum <keepdims = 0> (x)
        used = ReduceSum <keepdims = 0> (d)
        all = Add (sum, more)
        loss = Add (all, used)
      }}"""
    trainer = trainer_of(model, tmp_path, train="[abcd]")
    values = {"a": [[1, 2, 3], [4, 5, 6]], "b": [[-1, 1, -1], [1, -1, 1]], "c": [[3, 2, 1], [0, -1, -2]], "d": [[9, 8, 7], [6, 5, 4]]}
    values = {key: np.float32(value) for key, value in values.items()}
    parts = [values[key] for key in "abc"]
    feeds = {"x": np.zeros((2, 3), np.float32), "p": np.int64(position)}
    np.testing.assert_array_equal(trainer.evaluate(feeds)["r"], meaning(parts, values["d"], position))
    _, gradients = trainer.gradients(feeds)
    for key, value in values.items():  # an element has a gradient where it is in the result
        marked = {other: np.full((2, 3), float(other == key)) for other in values}
        there = meaning([marked[other] for other in "abc"], marked["d"], position).any()
        np.testing.assert_allclose(gradients[key], 2 * value * there + (key == "d"), err_msg=key)


def test_sequences_of_several_types_need_a_position(tmp_path):
    with pytest.raises(mpt.CompileError, match="tensors of one type in a sequence with a position that is computed at run time"):
        trainer_of("""<ir_version: 8, opset_import: ["" : 17]> m (float[2, 3] x, float[3] y, int64 p) => (float[n] r) {
            s = SequenceConstruct (x, y)
            r = SequenceAt (s, p)
          }""", tmp_path, forward_only=True, optimizer=None, loss=None)


LOOP = """<ir_version: 8, opset_import: ["" : 17]> m (float[2, 3] x, int64 n, float limit) => (float loss, float[2, 3] y) <float[3, 3] w = {%s}> {
    yes = Constant <value = bool {1}> ()
    y%s = Loop (%s, x) <body = step (int64 i, bool k, float[2, 3] v) => (bool k2, float[2, 3] u%s) {
        m = MatMul (v, w)
        u = Tanh (m)
        %s
      }>
    loss = ReduceSum <keepdims = 0> (y)
  }"""
W = np.float32([[0.3, -0.2, 0.5], [0.1, 0.4, -0.3], [-0.6, 0.2, 0.7]])
UNTIL = "top = ReduceMax <keepdims = 0> (u)  k2 = Greater (top, limit)"


def loop_of(folder, trips, condition, scans=("", ""), **flags):
    text = ", ".join(str(value) for value in W.reshape(-1))
    model = onnx.parser.parse_model(LOOP % (text, scans[0], f"{trips}, yes", scans[1], condition))
    next(node for node in model.graph.node if node.op_type == "Loop").name = "main:loop/1"
    onnx.save(model, folder / "m.onnx")
    mpt.compile(folder / "m.onnx", **{"loss": "none", "optimizer": "sgd,lr=0.1", "quiet": True, **flags}, out=folder / "out")
    return mpt.Trainer(folder / "out", threads=1)


def unrolled(x, steps, limit=None):
    """(y, d sum(y) / d w, number of steps) by hand."""
    values = [x.astype(np.float64)]
    for _ in range(steps):
        values.append(np.tanh(values[-1] @ W.astype(np.float64)))
        if limit is not None and values[-1].max() <= limit:
            break
    slope, dy = np.zeros((3, 3)), np.ones_like(values[-1])
    for before, after in reversed(list(zip(values, values[1:]))):
        dm = dy * (1 - after**2)
        slope, dy = slope + before.T @ dm, dm @ W.T.astype(np.float64)
    return values[-1], slope, len(values) - 1


X = np.float32([[0.5, -1, 2], [1, 0.3, -0.7]])


@pytest.mark.parametrize("steps", [-2, 0, 1, 3, 5, 6, 1 << 40])
def test_loops_with_a_number_of_steps_at_run_time(steps, tmp_path):
    trainer = loop_of(tmp_path, "n", "k2 = Identity (k)", max_steps={"main:loop/1": 5})
    feeds = {"x": X, "n": np.int64(steps), "limit": np.float32(0)}
    y, slope, _ = unrolled(X, min(max(steps, 0), 5))
    loss, gradients = trainer.gradients(feeds)
    if steps > 5:  # more than were compiled: no number
        assert np.isnan(loss) and np.isnan(trainer.evaluate(feeds)["y"]).all()
        return
    np.testing.assert_allclose(trainer.evaluate(feeds)["y"], y, rtol=1e-5, atol=1e-6)
    np.testing.assert_allclose(gradients["w"], slope, rtol=1e-4, atol=1e-6)


@pytest.mark.parametrize("trips", ["n", "", "many"])
@pytest.mark.parametrize("limit", [-1.0, 0.2, 0.45, 0.6, 0.99])
def test_loops_that_end_by_a_condition(limit, trips, tmp_path):
    """With a trip count at run time too, without one, and with a constant one that is far too large."""
    body = UNTIL + ("  hundred = Constant <value = int64 {100}> ()" if trips == "many" else "")
    model_trips = {"n": "n", "": "", "many": "large"}[trips]
    most = 4
    source = LOOP.replace("yes = Constant", "large = Constant <value = int64 {9000000000}> ()  yes = Constant")
    text = ", ".join(str(value) for value in W.reshape(-1))
    model = onnx.parser.parse_model(source % (text, "", f"{model_trips}, yes", "", body))
    next(node for node in model.graph.node if node.op_type == "Loop").name = "main:loop/1"
    onnx.save(model, tmp_path / "m.onnx")
    mpt.compile(tmp_path / "m.onnx", loss="none", optimizer="sgd,lr=0.1", quiet=True, max_steps={"main:loop/1": most}, out=tmp_path / "out")
    count = 3
    feeds = {"x": X, "n": np.int64(count), "limit": np.float32(limit)}
    y, slope, taken = unrolled(X, count if trips == "n" else 100, limit)
    with mpt.Trainer(tmp_path / "out", threads=1) as trainer:
        loss, gradients = trainer.gradients(feeds)
        if taken > most:
            assert np.isnan(loss)
            return
        np.testing.assert_allclose(trainer.evaluate(feeds)["y"], y, rtol=1e-5, atol=1e-6)
        np.testing.assert_allclose(gradients["w"], slope, rtol=1e-4, atol=1e-6)


REFUSED_LOOPS = {
    "no bound": (dict(trips="n", condition="k2 = Identity (k)"), "say how many steps there are at most: --max-steps 'main:loop/1'=<steps>"),
    "no bound of a condition": (dict(trips="", condition=UNTIL), "--max-steps 'main:loop/1'=<steps>"),
    "scans": (dict(trips="n", condition="k2 = Identity (k)  s = Identity (u)", scans=(", all", ", float[2, 3] s"), max_steps={"main:loop/1": 5}),
              None),
    "no such node": (dict(trips="n", condition="k2 = Identity (k)", max_steps={"main": 5}), "expected --max-steps to name a Loop node, got 'main'"),
    "none": (dict(trips="n", condition="k2 = Identity (k)", max_steps={"main:loop/1": 0}), "expected --max-steps from 1 to 16384, got 0"),
    "many": (dict(trips="n", condition="k2 = Identity (k)", max_steps={"main:loop/1": 1 << 20}), "expected --max-steps from 1 to 16384, got 1048576"),
    "words": (dict(trips="n", condition="k2 = Identity (k)", max_steps={"main:loop/1": "x"}), "expected NODE=N, a Loop node and the most steps"),
}


@pytest.mark.parametrize("what", REFUSED_LOOPS)
def test_loops_that_are_refused(what, tmp_path):
    changes, message = REFUSED_LOOPS[what]
    if message is None:  # unused, they do not matter
        loop_of(tmp_path, **changes)
        return
    with pytest.raises(mpt.CompileError, match=message):
        loop_of(tmp_path, **changes)


def test_scan_outputs_in_use_are_refused(tmp_path):
    changes = dict(REFUSED_LOOPS["scans"][0])
    text = LOOP.replace("loss = ReduceSum <keepdims = 0> (y)", "both = ReduceSum <keepdims = 0> (all)  only = ReduceSum <keepdims = 0> (y)  loss = Add (both, only)")
    model = onnx.parser.parse_model(text % (", ".join(str(v) for v in W.reshape(-1)), ", all", "n, yes", ", float[2, 3] s", changes["condition"]))
    next(node for node in model.graph.node if node.op_type == "Loop").name = "main:loop/1"
    onnx.save(model, tmp_path / "m.onnx")
    with pytest.raises(mpt.CompileError, match="at node 'main:loop/1': Loop: expected no scan outputs in use of a loop whose number of steps is computed"):
        mpt.compile(tmp_path / "m.onnx", loss="none", optimizer="sgd", quiet=True, max_steps={"main:loop/1": 5}, out=tmp_path / "out")


def roi_align(mode, shift, bins, given):
    """RoiAlign with adaptive sampling over a [2, 3, 9, 7] image; the regions are an input or a constant."""
    regions = "rois = Identity (given)" if given else "rois = Constant <value = float[4, 4] {%s}> ()"
    return f"""<ir_version: 8, opset_import: ["" : 17]> m (float[4, 4] given, float one) => (float loss, float[4, 3, {bins}, {bins}] y)
      <float[2, 3, 9, 7] image = {{{', '.join(str((i * 37 % 101) / 50 - 1) for i in range(2 * 3 * 63))}}}> {{
        {regions}
        at = Constant <value = int64[4] {{0, 1, 1, 0}}> ()
        y = RoiAlign <mode = "{mode}", coordinate_transformation_mode = "{shift}", output_height = {bins}, output_width = {bins}, sampling_ratio = 0, spatial_scale = 0.5> (image, rois, at)
        square = Mul (y, y)
        scaled = Mul (square, one)
        loss = ReduceSum <keepdims = 0> (scaled)
      }}"""


@pytest.mark.parametrize("bins", [1, 2, 7])
@pytest.mark.parametrize("shift", ["half_pixel", "output_half_pixel"])
@pytest.mark.parametrize("mode", ["avg", "max"])
def test_regions_with_adaptive_sampling(mode, shift, bins, tmp_path):
    """Regions at run time give the same results as constant ones, up to the whole image; larger ones are no numbers."""
    regions = np.float32([[0, 0, 14, 18], [1.3, 2.2, 9.9, 7.1], [3, 4, 3.4, 4.2], [5, 6, 4, 5]])
    constant = roi_align(mode, shift, bins, given=False) % ", ".join(map(str, regions.reshape(-1)))
    found = []
    for name, model in (("given", roi_align(mode, shift, bins, given=True)), ("constant", constant)):
        trainer = trainer_of(model, tmp_path / name, train="image")
        feeds = {"given": regions, "one": np.float32(1)}
        found.append((trainer.evaluate(feeds)["y"], trainer.gradients(feeds)[1]["image"]))
        if name == "given":
            wide = regions.copy()
            wide[1] = [0, 0, 14 * 2 + 4 * bins, 10]
            y = trainer.evaluate({**feeds, "given": wide})["y"]
            assert np.isnan(y[1]).all() and np.isfinite(y[[0, 2, 3]]).all()
    (y, slope), (wanted_y, wanted_slope) = found
    np.testing.assert_allclose(y, wanted_y, rtol=1e-5, atol=1e-5)
    np.testing.assert_allclose(slope, wanted_slope, rtol=1e-4, atol=1e-5)


def test_sequences_on_both_sides_of_a_condition(tmp_path):
    trainer = trainer_of("""<ir_version: 8, opset_import: ["" : 17]> m (float[2, 3] x, bool p) => (float loss, float[4, 3] r) <float[2, 3] w = {1, 2, 3, 4, 5, 6}> {
        v = Mul (x, w)
        s = If (p) <then_branch = yes () => (seq(float[2, 3]) a) { a = SequenceConstruct (v, x) },
                    else_branch = no () => (seq(float[2, 3]) b) { b = SequenceConstruct (x, v) }>
        r = ConcatFromSequence <axis = 0> (s)
        k = Constant <value = float[4, 1] {1, 1, 10, 10}> ()
        y = Mul (r, k)
        loss = ReduceSum <keepdims = 0> (y)
      }""", tmp_path)
    x, w = np.float32([[1, -1, 2], [3, 1, -2]]), np.float32([[1, 2, 3], [4, 5, 6]])
    for yes in (True, False):
        feeds = {"x": x, "p": np.bool_(yes)}
        np.testing.assert_array_equal(trainer.evaluate(feeds)["r"], np.concatenate([x * w, x] if yes else [x, x * w]))
        np.testing.assert_array_equal(trainer.gradients(feeds)[1]["w"], x * (1 if yes else 10))


@pytest.mark.parametrize("what, old, new", [("two flags", "yes = Constant <value = bool {1}> ()", "yes = Constant <value = bool[2] {1, 0}> ()"),
                                            ("two flags of the body", "k2 = Identity (k)", "k2 = Constant <value = bool[2] {1, 0}> ()"),
                                            ("two counts", "int64 n", "int64[2] n")])
def test_bounds_that_are_none(what, old, new, tmp_path):
    text = (LOOP % (", ".join(str(v) for v in W.reshape(-1)), "", "n, yes", "", "k2 = Identity (k)")).replace(old, new)
    model = onnx.parser.parse_model(text)
    next(node for node in model.graph.node if node.op_type == "Loop").name = "main:loop/1"
    onnx.save(model, tmp_path / "m.onnx")
    with pytest.raises(mpt.CompileError, match="(main:loop/1|k2|expected)"):
        mpt.compile(tmp_path / "m.onnx", loss="none", optimizer="sgd", quiet=True, max_steps={"main:loop/1": 5}, out=tmp_path / "out")


def test_loops_inside_an_algorithm(tmp_path):
    """TrainingInfoProto prepares the model's nodes twice."""
    domain = "ai.onnx.preview.training"
    text = LOOP % (", ".join(str(v) for v in W.reshape(-1)), "", "n, yes", "", "k2 = Identity (k)")
    model = onnx.parser.parse_model(text)
    next(node for node in model.graph.node if node.op_type == "Loop").name = "main:loop/1"
    model.opset_import.append(onnx.helper.make_opsetid(domain, 1))
    nodes = [onnx.helper.make_node("Gradient", ["w"], ["g"], domain=domain, xs=["w"], y="loss"),
             onnx.helper.make_node("Momentum", ["R", "T", "w", "g", "v"], ["w+", "v+"], domain=domain, alpha=0.0, beta=1.0, mode="standard", norm_coefficient=0.0),
             onnx.helper.make_node("Add", ["T", "one"], ["T+"])]
    tensors = [onnx.numpy_helper.from_array(np.int64(1), "one"), onnx.numpy_helper.from_array(np.float32(0.5), "R"), onnx.numpy_helper.from_array(np.int64(0), "T"),
               onnx.numpy_helper.from_array(np.zeros((3, 3), np.float32), "v")]
    graph = onnx.helper.make_graph(nodes, "algorithm", [], [onnx.helper.make_tensor_value_info("T+", onnx.TensorProto.INT64, [])], tensors)
    info = model.training_info.add(algorithm=graph)
    for name in "wvT":
        info.update_binding.add(key=name, value=f"{name}+")
    onnx.save(model, tmp_path / "m.onnx")
    mpt.compile(tmp_path / "m.onnx", quiet=True, max_steps={"main:loop/1": 5}, out=tmp_path / "out")
    with mpt.Trainer(tmp_path / "out", threads=1) as trainer:
        before = trainer.parameter("w")
        trainer.step({"x": X, "n": np.int64(3), "limit": np.float32(0)})
        np.testing.assert_allclose(before - trainer.parameter("w"), 0.5 * unrolled(X, 3)[1], rtol=1e-4, atol=1e-6)
