# SPDX-License-Identifier: Apache-2.0
"""What a graph decides at run time: dropout's mode and ratio, positions in sequences, numbers of steps, samples of regions."""
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
    # y is linear in w, so that the gradient tells what the forward pass has dropped, and what the mask says.
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
    """Regions at run time are those of the same values as constants, up to the whole image; larger ones are no numbers."""
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
