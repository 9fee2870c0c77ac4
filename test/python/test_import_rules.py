# SPDX-License-Identifier: Apache-2.0
"""Import rules against ONNX's reference evaluator: each line of a table is one node, each table one compiled model."""
import subprocess

import numpy as np
import onnx
import onnx.parser
import onnx.reference
import pytest
from mpt_run import tool

import mpt

INPUTS = {"x": "float[4,4,6,6]", "y": "float[4,4,6,6]", "p": "float[4,4,6,6]", "m": "float[4,4]", "i": "int64[4,4]", "j": "int64[4,4]",
          "b": "bool[4,4]", "c": "bool[4,4]", "u": "uint8[4,4]", "v": "uint8[4,4]", "n": "uint32[4,4]",
          "h": "int16[4,4]"}
# As many samples as channels, since the evaluator of onnx 1.23 normalizes LRN over the first N channels only.
# Constants are initializers of integer type or `Constant` nodes: float initializers would be parameters.
CONSTANTS = """int64[1] one = {1}, int64[2] one_two = {1, 2}, int64[2] zeros = {0, 0}, int64[2] twos = {2, 2}, int64[3] parts = {1, 2, 1},
               int64 axis = {1}, int64 depth = {5}, int64 from = {2}, int64 to = {11}, int64 by = {3}, int64[2,3] rows = {0, 3, 1, 2, 2, -1},
               int64[2,2] places = {0, 1, 3, 2}, int64[2,4] across = {0, 1, 2, 3, 3, 2, 1, 0}, int64[2] shape44 = {4, 4},
               int64[2,2] fixed = {0, 3, 1, 0}, int64[1] three = {3}, int64 none_left = {0}, int64[2] zero_one = {0, 1}, int64[4] lengths = {1, 4, 3, 2}, int64[4] lengths0 = {0, 3, 2, 0},
               int64[4] gridshape = {4, 12, 6, 2}, int64[3] lineshape = {4, 144, 1}, int64[3] flatshape = {4, 4, 36}, int64[3] colshape = {4, 16, 9},
               int64[2] shape55 = {5, 5}, int64 rank = {4}, int64[4] shape4478 = {4, 4, 7, 8}"""
SCALARS = {"low": -0.5, "high": 0.75, "off_on": (-1.0, 2.0), "slope": 0.25, "scale4": (0.5, 1.0, 1.5, 2.0), "shift4": (0.1, -0.2, 0.3, 0.4),
           "boxes": ((0.0, 0.0, 5.0, 5.0), (1.2, -0.7, 9.0, 5.9), (2.0, 2.0, 2.4, 2.1), (-3.0, 4.0, -0.5, 4.5)),
           "updates": ((1, 2, 3, 4), (5, 6, 7, 8)), "gain": (0.5, 1.0, 1.5, 2.0, 2.5, 3.0), "half": (1.0, 1.0, 0.5, 0.5), "lowest": -np.inf}
SHAPED = {"filters": (4, 2, 2, 2), "offsets": (4, 16, 5, 5), "weights": (4, 8, 5, 5), "strided": (4, 8, 3, 3)}

TABLES = {
    "unary": [f"{op} (x)" for op in "Ceil Floor Cos Sin Erf Sign Softplus Softsign Elu Selu Celu Mish HardSigmoid HardSwish "
              "ThresholdedRelu Swish Neg Abs Tanh Sigmoid LeakyRelu Exp".split()]
    + [f"{op} (p)" for op in "Sqrt Log Reciprocal".split()]
    + ["Round (x)", "Elu <alpha = 0.5> (x)", "HardSigmoid <alpha = 0.25, beta = 0.4> (x)", "Gelu (x)", 'Gelu <approximate = "tanh"> (x)',
       "Clip (x, low, high)", "Clip (x, low)", "PRelu (x, slope)", "IsNaN (x)", "IsInf (x)", "Swish <alpha = 1.5> (x)", "Shrink <lambd = 0.4, bias = 0.2> (x)"]
    + [f"{op} (x)" for op in "Tan Atan Sinh Cosh Asinh".split()] + ["Asin (within)", "Acos (within)", "Atanh (within)", "Acosh (beyond)"],
    "binary": [f"{op} (x, y)" for op in "Less LessOrEqual Greater GreaterOrEqual Equal Max Min Sum Mean".split()]
    + ["Sum (x, y, p)", "Mean (x, y, p)", "Mod <fmod = 1> (x, p)", "Pow (p, y)", "Where (b, m, slope)"]
    + [f"{op} (b, c)" for op in "And Or Xor".split()] + [f"{op} (i, j)" for op in "BitwiseAnd BitwiseOr BitwiseXor".split()]
    + ["Not (b)", "BitwiseNot (i)", "Cast <to = 7> (m)", "Cast <to = 1> (i)", "Cast <to = 9> (m)", "CastLike (i, m)"],
    "unsigned": ["Cast <to = 1> (u)", "Cast <to = 1> (n)", "Cast <to = 7> (u)", "Cast <to = 3> (u)", "Cast <to = 12> (n)", "Cast <to = 1> (h)", "Add (h, h)", "Cast <to = 2> (small)",
                 "Add (u, v)", "Sub (u, v)", "Mul (u, v)", "Div (u, v)", "Mod (u, v)", "Max (u, v)", "Min (n, n)", "Less (u, v)", "GreaterOrEqual (u, v)",
                 "Where (b, u, v)", "Transpose (n)", "Gather (m, index)"],
    "reduce": [f"{op} (p, one_two)" for op in "ReduceL1 ReduceL2 ReduceLogSum ReduceLogSumExp ReduceMax ReduceMin ReduceProd ReduceSum "
               "ReduceSumSquare ReduceMean".split()]
    + ["ReduceSum <keepdims = 0> (x, one_two)", "ReduceSum (x)", "ArgMax <axis = 2> (x)", "ArgMin <axis = -1, keepdims = 0> (x)",
       "CumSum (x, axis)", "CumSum <reverse = 1, exclusive = 1> (x, axis)",
       "TopK <axis = 1> (x, three)", "TopK <largest = 0> (m, three)", "TopK (i, three)", "Identity (places_of)", "TopK <axis = 1> (masked, three)",
       "Hardmax <axis = 1> (x)"],
    "einsum": [f'Einsum <equation = "{equation}"> {operands}' for equation, operands in (
        ("...ij,...jk->...ik", "(x, y)"), ("...ij,jk->...ik", "(x, right6)"), ("b...d,d->b...", "(x, gain)"), ("iijk->ijk", "(x)"), ("ijkk", "(x)"),
        ("ii", "(m)"), ("ij,...j", "(right6, thick)"), ("abcd,b->acd", "(x, slope4)"))],
    "resize": ['Resize <mode = "linear", antialias = 1> (x, , half)', 'Resize <mode = "cubic", antialias = 1> (x, , half)',
               'Resize <mode = "linear", antialias = 1, exclude_outside = 1> (x, , half)'],
    "shape": ["Squeeze (thin, one)", "Unsqueeze (m, one_two)", "Slice (x, one_two, shape44, one_two)", "Trilu (m)", "Trilu <upper = 0> (m, axis)",
              "DepthToSpace <blocksize = 2> (x)", 'DepthToSpace <blocksize = 2, mode = "CRD"> (x)', "SpaceToDepth <blocksize = 3> (x)",
              "Gather <axis = 1> (m, rows)", "GatherElements (m, across)", "GatherND (m, places)", "ScatterElements (m, across, updates)",
              "ScatterND (m, rowplaces, updates)", "Range (from, to, by)", "OneHot (i, depth, off_on)", "Tile (m, twos)",
              "Expand (slope, shape44)", "Transpose (m)", "Identity (right)",
              "ConcatFromSequence <axis = 1> (several)", "SequenceLength (several)", "NonZero (fixed)", "Concat <axis = 1> (m, m)", "Flatten <axis = 2> (x)",
              "EyeLike (m)", "EyeLike <k = -1> (m)", "ReverseSequence <batch_axis = 0, time_axis = 1> (x, lengths)",
              "ReverseSequence (x, lengths)", "ConcatFromSequence <axis = 1> (other)"],
    "sample": [f'GridSample <mode = "{mode}", padding_mode = "{padding}", align_corners = {align}> (x, grid)' for mode in ("linear", "nearest", "cubic")
               for padding in ("zeros", "border", "reflection") for align in (0, 1)]
    + ["GridSample (flat, line)", "Col2Im (columns, shape44, twos)", "Col2Im <pads = [1, 1, 1, 1], strides = [2, 2]> (columns, shape44, twos)",
       "Col2Im <dilations = [2, 2]> (columns, shape55, twos)", "MaxUnpool <kernel_shape = [2, 2], strides = [2, 2]> (pooled, pooled_at)",
       "MaxUnpool <kernel_shape = [2, 2], strides = [2, 2]> (pooled, pooled_at, shape4478)"],
    "regions": [f"RoiAlign <output_height = 2, output_width = 3, {more}> (x, {regions}, lengths0)" for regions, more in (
        ("boxes", "sampling_ratio = 2"), ("moved", "sampling_ratio = 2, spatial_scale = 0.5"), ("boxes", "spatial_scale = 0.75"),
        ("boxes", 'coordinate_transformation_mode = "output_half_pixel"'), ("moved", 'sampling_ratio = 1, mode = "max"'),
        ("boxes", 'mode = "max"'), ("boxes", 'mode = "max", coordinate_transformation_mode = "output_half_pixel"'))]
    + ["DeformConv <group = 2, offset_group = 2> (x, filters, offsets, scale4, weights)",
       "DeformConv <group = 2, offset_group = 1, strides = [2, 2], pads = [1, 1, 0, 0], dilations = [2, 2]> (x, filters, strided)"],
    "norm": ["LRN <size = 3> (x)", "InstanceNormalization (x, scale4, shift4)", "GroupNormalization <num_groups = 2> (x, scale4, shift4)",
             "RMSNormalization (x, gain)", "LayerNormalization (x, gain)", "GlobalMaxPool (x)", "GlobalAveragePool (x)", "Softmax <axis = 1> (x)",
             "LogSoftmax <axis = 2> (x)", "MeanVarianceNormalization (x)",
             "MeanVarianceNormalization <axes = [1, 3]> (x)", "LpNormalization <axis = 1> (x)", "LpPool <kernel_shape = [2, 2], strides = [2, 2]> (x)"],
}


def model_of(nodes):
    outputs = ", ".join(f"float[unknown] r{k}" for k in range(len(nodes)))
    inputs = ", ".join(f"{kind} {name}" for name, kind in INPUTS.items())
    text = "\n".join(f"r{k}{f', at{k}' if node.startswith('TopK') else ''} = {node}" for k, node in enumerate(nodes))
    model = onnx.parser.parse_model(f"""<ir_version: 10, opset_import: ["" : 24]>
      rules ({inputs}) => ({outputs}) <{CONSTANTS}, int64[2,1] rowplaces = {{2, 0}}> {{
        thin = ReduceMax (x, one)
        left, right = Split <axis = 1, num_outputs = 2> (m)
        several = SequenceConstruct (m, left)
        more = SequenceInsert (several, right, axis)
        other = SequenceErase (more, none_left)
        best, places_of = TopK <axis = 1> (m, three)
        within = Sin (x)
        beyond = Exp (p)
        thick = ReduceMax (y, one_two)
        right6 = ReduceMax <keepdims = 0> (y, zero_one)
        slope4 = ReduceMax <keepdims = 0> (m, one)
        low_half = Less (x, y)
        masked = Where (low_half, lowest, x)
        grid = Reshape (y, gridshape)
        line = Reshape (y, lineshape)
        flat = Reshape (x, flatshape)
        columns = Reshape (x, colshape)
        pooled, pooled_at = MaxPool <kernel_shape = [2, 2], strides = [2, 2]> (x)
        small = ReduceMax (p, one_two)
        four = Cast <to = 2> (rank)
        shifts = ReduceMean <keepdims = 0> (m, one)
        moved = Add (boxes, shifts)
        low_bits = Mod (u, four)
        index = Cast <to = 6> (low_bits)
        {text}
      }}""")
    random = np.random.default_rng(6)
    shaped = {name: random.uniform(-1.5, 1.5, shape) for name, shape in SHAPED.items()}
    for name, value in (SCALARS | shaped).items():
        constant = onnx.helper.make_node("Constant", [], [name], value=onnx.numpy_helper.from_array(np.array(value, np.float32)))
        model.graph.node.insert(0, constant)
    return model


def values():
    random = np.random.default_rng(5)
    result = {name: random.uniform(-2, 2, (4, 4, 6, 6)).astype(np.float32) for name in "xyp"}
    result["p"] = np.abs(result["p"]) + np.float32(0.1)
    result["m"] = random.uniform(-3, 3, (4, 4)).astype(np.float32)
    result |= {name: random.integers(0, 5, (4, 4)) for name in "ij"}
    result |= {name: random.integers(1, 256, (4, 4)).astype(np.uint8) for name in "uv"} 
    result |= {"n": random.integers(2**31, 2**32, (4, 4)).astype(np.uint32), "h": random.integers(-2**15, 2**15, (4, 4)).astype(np.int16)}
    return result | {name: random.integers(0, 2, (4, 4)).astype(bool) for name in "bc"}


@pytest.mark.parametrize("family", TABLES)
def test_rules(family, tmp_path):
    compiler = tool().parent / "mpt-opt"
    if not compiler.exists():
        pytest.skip("mpt-opt is not built")
    model, inputs = model_of(TABLES[family]), values()
    wanted = onnx.reference.ReferenceEvaluator(model).run(None, inputs)
    for output, value in zip(model.graph.output, wanted):
        kind = onnx.helper.np_dtype_to_tensor_dtype(value.dtype)
        output.CopyFrom(onnx.helper.make_tensor_value_info(output.name, kind, value.shape))
    onnx.save(model, tmp_path / "rules.onnx")
    run = subprocess.run([compiler, tmp_path / "rules.onnx", "--forward-only", "--quiet", "-o", tmp_path / "out"], capture_output=True, text=True)
    assert run.returncode == 0, run.stderr
    trainer = mpt.Trainer(str(tmp_path / "out"))
    got = trainer.evaluate({name: inputs[name] for name in trainer.inputs("evaluate")})
    for k, (node, want) in enumerate(zip(TABLES[family], wanted)):
        have = np.asarray(got[f"r{k}"])
        assert have.shape == want.shape, node
        np.testing.assert_allclose(have.astype(np.float64), want.astype(np.float64), rtol=2e-5, atol=2e-6, err_msg=node)


def max_roi_pool(x, regions, bins, scale):
    """Fast R-CNN's pooling, by loops."""
    result = np.zeros((len(regions), x.shape[1], *bins), np.float32)
    for r, region in enumerate(regions):
        left, top, right, bottom = (int(np.floor(value * scale + 0.5)) for value in region[1:])
        sizes = max(bottom - top + 1, 1) / bins[0], max(right - left + 1, 1) / bins[1]
        for i in range(bins[0]):
            for j in range(bins[1]):
                rows, columns = ([int(np.clip(at + start, 0, most)) for at in (np.floor(k * size), np.ceil((k + 1) * size))]
                                 for k, size, start, most in ((i, sizes[0], top, x.shape[2]), (j, sizes[1], left, x.shape[3])))
                part = x[int(region[0]), :, rows[0]:rows[1], columns[0]:columns[1]]
                if part.size:
                    result[r, :, i, j] = part.max(axis=(1, 2))
    return result


def compiled(text, folder):
    if not (tool().parent / "mpt-opt").exists():
        pytest.skip("mpt-opt is not built")
    onnx.save(onnx.parser.parse_model(text), folder / "m.onnx")
    mpt.compile(folder / "m.onnx", forward_only=True, quiet=True, out=folder / "out")
    return mpt.Trainer(folder / "out", threads=1)


def test_max_roi_pool(tmp_path):
    trainer = compiled("""<ir_version: 10, opset_import: ["" : 22]>
        m (float[2,3,9,8] x, float[5,5] regions) => (float[5,3,2,3] y) {
          y = MaxRoiPool <pooled_shape = [2, 3], spatial_scale = 0.5> (x, regions) }""", tmp_path)
    x = np.random.default_rng(3).standard_normal((2, 3, 9, 8)).astype(np.float32)
    regions = np.array([[0, 0, 0, 15, 17], [1, 3, 2, 11, 9], [0, 4, 4, 4, 4], [1, 12, 14, 40, 50], [1, 30, 30, 40, 40]], np.float32)
    got = trainer.run("evaluate", {"x": x, "regions": regions})["y"]
    np.testing.assert_array_equal(got, max_roi_pool(x, regions, (2, 3), 0.5))


def test_log_sum_exp_of_infinite_rows(tmp_path):
    trainer = compiled("""<ir_version: 10, opset_import: ["" : 22]>
        m (float[4,3] x) => (float[4,1] y) {
          axis = Constant <value_ints = [1]> ()
          y = ReduceLogSumExp (x, axis) }""", tmp_path)
    x = np.array([[-np.inf] * 3, [np.inf, 0, 1], [-np.inf, 2, 3], [1, 2, np.nan]], np.float32)
    got = trainer.run("evaluate", {"x": x})["y"]
    np.testing.assert_allclose(got, np.logaddexp.reduce(x, axis=1, keepdims=True), rtol=1e-6)


def test_log_sum_exp_of_rows_of_minus_infinity_passes_no_gradient(tmp_path):
    if not (tool().parent / "mpt-opt").exists():
        pytest.skip("mpt-opt is not built")
    model = onnx.parser.parse_model("""<ir_version: 10, opset_import: ["" : 22]>
        m (float[2,3] mask) => (float loss) <float[2,3] w = {1, 2, 3, 4, 5, 6}> {
          s = Add (w, mask)
          axis = Constant <value_ints = [1]> ()
          y = ReduceLogSumExp (s, axis)
          low = Constant <value_float = -1.0e30> ()
          zero = Constant <value_float = 0.0> ()
          some = Greater (y, low)
          kept = Where (some, y, zero)
          loss = ReduceSum <keepdims = 0> (kept) }""")
    onnx.save(model, tmp_path / "m.onnx")
    mpt.compile(tmp_path / "m.onnx", loss="none", optimizer="sgd,lr=1", quiet=True, out=tmp_path / "out")
    trainer = mpt.Trainer(tmp_path / "out", threads=1)
    before = trainer.state()["w"].copy()
    trainer.step({"mask": np.array([[0, 0, 0], [-np.inf] * 3], np.float32)})
    softmax = np.exp(before[0]) / np.exp(before[0]).sum()
    np.testing.assert_allclose(trainer.state()["w"], before - [softmax, [0, 0, 0]], rtol=1e-5)


def test_roots_and_logarithms_of_integers(tmp_path):
    trainer = compiled("""<ir_version: 10, opset_import: ["" : 22]>
        m (int64[2,3] i) => (int64[2,1] length, int64[2,1] sums) {
          axis = Constant <value_ints = [1]> ()
          length = ReduceL2 (i, axis)
          sums = ReduceLogSumExp (i, axis) }""", tmp_path)
    i = np.array([[-5, 1, 2**40], [6, -7, 8]])
    got, wide = trainer.run("evaluate", {"i": i}), i.astype(float)
    np.testing.assert_array_equal(got["length"], np.sqrt((wide * wide).sum(axis=1, keepdims=True)).astype(int))
    np.testing.assert_array_equal(got["sums"], np.logaddexp.reduce(wide, axis=1, keepdims=True).astype(int))


def test_clip_by_the_largest_integer(tmp_path):
    trainer = compiled("""<ir_version: 10, opset_import: ["" : 22]>
        m (int64[4] i) => (int64[4] y) {
          low = Constant <value_int = -2> ()
          high = Constant <value_int = 9223372036854775807> ()
          y = Clip (i, low, high) }""", tmp_path)
    i = np.array([-5, 1, 2**40, 2**62 + 1])
    np.testing.assert_array_equal(trainer.run("evaluate", {"i": i})["y"], np.maximum(i, -2))


def test_scan_of_opset_8_has_a_batch(tmp_path):
    trainer = compiled("""<ir_version: 3, opset_import: ["" : 8]>
        m (float[2,3] s, float[2,4,3] x) => (float[2,3] h, float[2,4,3] all) {
          h, all = Scan <num_scan_inputs = 1, directions = [1], body = step (float[3] a, float[3] v) => (float[3] t, float[3] o) {
            t = Add (a, v)  o = Identity (t) }> (, s, x) }""", tmp_path)
    random = np.random.default_rng(4)
    s, x = random.standard_normal((2, 3)).astype(np.float32), random.standard_normal((2, 4, 3)).astype(np.float32)
    got = trainer.run("evaluate", {"s": s, "x": x})
    want = s[:, None] + np.cumsum(x[:, ::-1], axis=1)
    np.testing.assert_allclose(got["all"], want, rtol=1e-5)
    np.testing.assert_allclose(got["h"], want[:, -1], rtol=1e-5)


def in_order(x, largest):
    """Positions along the last axis, equal ones in their order and NaN first of the largest."""
    x = np.where(np.isnan(x), np.inf, x) if x.dtype.kind == "f" else x
    return np.argsort(-x if largest and x.dtype.kind == "f" else ~x if largest else x, axis=-1, kind="stable")


@pytest.mark.parametrize("largest", [1, 0])
def test_many_places_of_topk(largest, tmp_path):
    """More than are found pass by pass, of floats with ties and infinities and of integers that FP64 does not tell apart."""
    trainer = compiled(f"""<ir_version: 10, opset_import: ["" : 22]>
        m (float[3,400] x, int64[2,300] n) => (float[3,390] y, int64[3,390] at, int64[2,300] m, int64[2,300] places, int64[2,3] few) {{
          most = Constant <value_ints = [390]> ()
          all = Constant <value_ints = [300]> ()
          three = Constant <value_ints = [3]> ()
          y, at = TopK <largest = {largest}> (x, most)
          m, places = TopK <largest = {largest}> (n, all)
          few, few_at = TopK <largest = {largest}> (n, three) }}""", tmp_path)
    random = np.random.default_rng(4)
    x = random.integers(-50, 50, (3, 400)).astype(np.float32)
    x[0, [3, 77]], x[1, 5] = [np.inf, -np.inf], -np.inf
    n = 2**60 + random.integers(0, 200, (2, 300))
    n[0, 9], n[1, 8] = -2**63, 2**63 - 1
    got = trainer.run("evaluate", {"x": x, "n": n})
    at = in_order(x, largest)[:, :390]
    np.testing.assert_array_equal(got["at"], at)
    np.testing.assert_array_equal(got["y"], np.take_along_axis(x, at, -1))
    np.testing.assert_array_equal(got["places"], in_order(n, largest))
    np.testing.assert_array_equal(got["m"], np.take_along_axis(n, in_order(n, largest), -1))
    np.testing.assert_array_equal(got["few"], np.take_along_axis(n, in_order(n, largest)[:, :3], -1))


def test_padding_with_a_value_of_run_time(tmp_path):
    trainer = compiled("""<ir_version: 10, opset_import: ["" : 22]>
        m (float[2,3] x, float v, int64[4] n) => (float[3,4] y, int64[6] z) {
          pads = Constant <value_ints = [1, 0, 0, 1]> ()
          one = Constant <value_ints = [1, 1]> ()
          large = Constant <value = int64 {9007199254740993}> ()
          y = Pad (x, pads, v)
          z = Pad (n, one, large) }""", tmp_path)
    x = np.arange(6, dtype=np.float32).reshape(2, 3)
    got = trainer.run("evaluate", {"x": x, "v": np.array(2.5, np.float32), "n": np.arange(4)})
    np.testing.assert_array_equal(got["y"], np.pad(x, [(1, 0), (0, 1)], constant_values=2.5))
    np.testing.assert_array_equal(got["z"], np.pad(np.arange(4), 1, constant_values=2**53 + 1))


def test_powers_of_integers_are_exact(tmp_path):
    trainer = compiled("""<ir_version: 10, opset_import: ["" : 22]>
        m (int64[3] x) => (int64[3] y, int64[3] one) {
          e = Constant <value = int64 {17}> ()
          zero = Constant <value = float {0}> ()
          y = Pow (x, e)
          one = Pow (x, zero) }""", tmp_path)
    x = np.array([3, 11, -12])
    got = trainer.run("evaluate", {"x": x})
    np.testing.assert_array_equal(got["y"], x**17)
    np.testing.assert_array_equal(got["one"], [1, 1, 1])


@pytest.mark.parametrize("policy", ["fp32", "amp-f16", "amp-bf16"])
@pytest.mark.parametrize("batch, corners, size", [(1, 1, (2, 700)), (1, 0, (1, 900)), (2, 1, (4, 5)), (1, 1, (2, 3, 400)), (3, 0, (2, 3, 4))])
def test_affine_grids_are_exact_in_every_policy(batch, corners, size, policy, tmp_path):
    """Positions read a texture with an edge at every sample, so that half a sample counts. A batch of one is one too."""
    axes, rng = len(size), np.random.default_rng(5)
    info = onnx.helper.make_tensor_value_info
    nodes = [onnx.helper.make_node("Mul", ["theta", "gain"], ["t"]),
             onnx.helper.make_node("AffineGrid", ["t", "size"], ["grid"], align_corners=corners),
             onnx.helper.make_node("GridSample", ["image", "grid"], ["y"], align_corners=corners)]
    graph = onnx.helper.make_graph(nodes, "g", [info("theta", 1, [batch, axes, axes + 1]), info("image", 1, [batch, 1, *size])],
                                   [info("y", 1, [batch, 1, *size])],
                                   [onnx.numpy_helper.from_array(np.array([batch, 1, *size]), "size"),
                                    onnx.numpy_helper.from_array(np.ones((axes, axes + 1), np.float32), "gain")])
    onnx.save(onnx.helper.make_model(graph, opset_imports=[onnx.helper.make_opsetid("", 20)], ir_version=10), tmp_path / "m.onnx")
    theta = np.tile(np.eye(axes, axes + 1, dtype=np.float32) * 0.9, (batch, 1, 1))
    theta[:, :, -1] = rng.uniform(-.05, .05, (batch, axes))
    image = rng.integers(0, 2, (batch, 1, *size)).astype(np.float32)
    torch = pytest.importorskip("torch")
    grid = torch.nn.functional.affine_grid(torch.from_numpy(theta).double(), [batch, 1, *size], bool(corners))
    want = torch.nn.functional.grid_sample(torch.from_numpy(image).double(), grid, align_corners=bool(corners)).numpy()
    trainer = mpt.Trainer(mpt.compile(tmp_path / "m.onnx", out=tmp_path / "lib", policy=policy, forward_only=True), threads=1)
    got = trainer.run("evaluate", {"theta": theta, "image": image})["y"]
    assert np.abs(got - want).max() < (2e-3 if policy != "amp-bf16" else 8e-3)
