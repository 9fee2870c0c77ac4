# SPDX-License-Identifier: Apache-2.0
"""Node-by-node rewriting of training graphs in standard operators: forward, backward and the optimizer in one file."""
import os
import sys

import numpy as np
import onnx
import onnx.reference
import pytest
from onnx import TensorProto, helper, numpy_helper, parser

from conftest import ROOT
from test_rewrite import rewrite

sys.path.insert(0, str(ROOT / "benchmarks"))
import adam

HALF = TensorProto.FLOAT16
PARAMETERS = {"table": (10, 8), "w1": (24, 16), "bias": (16,), "w2": (16, 5), "filter": (2, 1, 3, 3)}
# A backward pass as exporters write it: GEMMs with transposed operands, masks, scatter-adds, a convolution's filter
# gradient as a convolution and its input gradient as a transposed one.
JOINT = """
    e = Gather(table, tokens)
    flat = Reshape(e, flat_shape)
    z = MatMul(flat, w1)
    zb = Add(z, bias)
    h = Relu(zb)
    image = Reshape(h, image_shape)
    c = Conv<pads = [1, 1, 1, 1]>(image, filter)
    pooled = ReduceMean<keepdims = 0>(c, channel)
    features = Reshape(pooled, feature_shape)
    logits = MatMul(features, w2)
    log_p = LogSoftmax<axis = 1>(logits)
    column = Unsqueeze(label, one)
    picked = GatherElements<axis = 1>(log_p, column)
    mean = ReduceMean<keepdims = 0>(picked)
    loss = Neg(mean)

    p = Exp(log_p)
    ones = CastLike(seed, picked)
    onehot = ScatterElements<axis = 1>(zeros_p, column, ones)
    d = Sub(p, onehot)
    d_logits = Mul(d, quarter)
    features_t = Transpose<perm = [1, 0]>(features)
    w2_grad = MatMul(features_t, d_logits)
    w2_t = Transpose<perm = [1, 0]>(w2)
    d_features = MatMul(d_logits, w2_t)
    d_pooled = Reshape(d_features, pooled_shape)
    spread = Expand(d_pooled, c_shape)
    d_c = Mul(spread, half)
    d_image = ConvTranspose<pads = [1, 1, 1, 1]>(d_c, filter)
    image_t = Transpose<perm = [1, 0, 2, 3]>(image)
    d_c_t = Transpose<perm = [1, 0, 2, 3]>(d_c)
    filter_grad_t = Conv<pads = [1, 1, 1, 1]>(image_t, d_c_t)
    filter_grad = Transpose<perm = [1, 0, 2, 3]>(filter_grad_t)
    d_h = Reshape(d_image, hidden_shape)
    mask = Greater(zb, zero)
    d_z = Where(mask, d_h, zero)
    bias_grad = ReduceSum<keepdims = 0>(d_z, batch_axis)
    flat_t = Transpose<perm = [1, 0]>(flat)
    w1_grad = MatMul(flat_t, d_z)
    w1_t = Transpose<perm = [1, 0]>(w1)
    d_flat = MatMul(d_z, w1_t)
    d_e = Reshape(d_flat, rows_shape)
    rows = Reshape(tokens, index_shape)
    table_grad = ScatterND<reduction = "add">(zeros_table, rows, d_e)
"""
SHAPES = {"flat_shape": [4, 24], "image_shape": [4, 1, 4, 4], "feature_shape": [4, 16], "pooled_shape": [4, 1, 4, 4],
          "c_shape": [4, 2, 4, 4], "hidden_shape": [4, 16], "rows_shape": [12, 8], "index_shape": [12, 1], "channel": [1],
          "one": [1], "batch_axis": [0]}


def joint(update="adam"):
    """The graph with its update: Adam after every gradient, or only where they are finite (branches of an If)."""
    shape = lambda dims: ", ".join(map(str, dims))
    grads = ", ".join(f"float[{shape(s)}] {n}_grad" for n, s in PARAMETERS.items())
    made = parser.parse_model(f'<ir_version: 9, opset_import: ["" : 18]>\n'
                              f"step (int64[4, 3] tokens, int64[4] label, float[4, 1] seed) => (float loss, {grads}) {{{JOINT}}}")
    graph, rng = made.graph, np.random.default_rng(0)
    for node in graph.node:
        node.name = node.output[0]
    values = {n: (rng.standard_normal(s) / 3).astype(np.float32) for n, s in PARAMETERS.items()}
    values |= {n: np.array(s, np.int64) for n, s in SHAPES.items()}
    values |= {"zero": np.float32(0), "quarter": np.float32(0.25), "half": np.float32(0.5),
               "zeros_p": np.zeros((4, 5), np.float32), "zeros_table": np.zeros((10, 8), np.float32)}
    graph.initializer.extend(numpy_helper.from_array(np.asarray(v), n) for n, v in values.items())
    graph.initializer.extend(adam.constants())
    info = lambda name, dims: helper.make_tensor_value_info(name, TensorProto.FLOAT, dims)
    for i, (name, dims) in enumerate(PARAMETERS.items()):
        nodes = adam.nodes(i, gradient=f"{name}_grad")
        for node in nodes:
            node.input[:] = [name if n == f"p_{i}" else n for n in node.input]
        results = [f"{n}_next_{i}" for n in "pmv"]
        for n in "mv":
            graph.initializer.append(numpy_helper.from_array(np.full(dims, 1e-6, np.float32), f"{n}_{i}"))
        graph.output.extend(info(n, dims) for n in results)
        if update == "adam":
            graph.node.extend(nodes)
            continue
        branch = lambda kind, body: helper.make_graph(body, kind, [], [info(f"{n}_{kind}", dims) for n in results])
        rename = lambda n: f"{n}_then" if n in results else n
        for node in nodes:
            node.input[:], node.output[:] = map(rename, node.input), map(rename, node.output)
        old = [helper.make_node("Identity", [n], [f"{r}_else"]) for n, r in zip((name, f"m_{i}", f"v_{i}"), results)]
        graph.node.append(helper.make_node("IsNaN", ["loss"], [f"bad_{i}"]))
        graph.node.append(helper.make_node("Not", [f"bad_{i}"], [f"good_{i}"]))
        graph.node.append(helper.make_node("If", [f"good_{i}"], results, name=f"update_{i}", then_branch=branch("then", nodes),
                                           else_branch=branch("else", old)))
    onnx.checker.check_model(made, full_check=True)
    return made


FEEDS = {"tokens": np.random.default_rng(1).integers(0, 10, (4, 3)), "label": np.array([0, 3, 1, 4]), "seed": np.ones((4, 1), np.float32)}


def typed(path):
    """Element types by name, bodies included."""
    model = onnx.shape_inference.infer_shapes(onnx.load(path), strict_mode=True, data_prop=True)
    kinds = {}
    def visit(graph):
        kinds.update({i.name: i.data_type for i in graph.initializer})
        kinds.update({v.name: v.type.tensor_type.elem_type for v in [*graph.input, *graph.value_info, *graph.output]})
        for attribute in (a for n in graph.node for a in n.attribute if a.type == onnx.AttributeProto.GRAPH):
            visit(attribute.g)
    visit(model.graph)
    return kinds


def all_nodes(graph):
    for node in graph.node:
        yield node
        for attribute in node.attribute:
            if attribute.type == onnx.AttributeProto.GRAPH:
                yield from all_nodes(attribute.g)


def results(path):
    model = onnx.load(path)
    return dict(zip([o.name for o in model.graph.output], onnx.reference.ReferenceEvaluator(model).run(None, FEEDS)))


@pytest.mark.parametrize("update", ["adam", "guarded"])
@pytest.mark.parametrize("policy", ["amp-f16", "amp-bf16"])
def test_joint_graphs_are_valid_and_close(tmp_path, update, policy):
    source = joint(update)
    path = rewrite(source, tmp_path, policy)
    result = onnx.load(path)
    onnx.checker.check_model(result, full_check=True)
    assert result.graph.input == source.graph.input and result.graph.output == source.graph.output
    kinds = typed(path)
    for node in all_nodes(result.graph):
        if node.op_type in ("MatMul",) + (("Conv", "ConvTranspose") if policy == "amp-f16" else ()):
            assert {kinds[n] for n in [*node.input, *node.output]} == {HALF if policy == "amp-f16" else TensorProto.BFLOAT16}, node.name
        if node.op_type in ("LogSoftmax", "Exp", "ReduceMean", "ReduceSum", "ScatterND", "Sqrt", "Div", "Sub"):
            assert kinds[node.output[0]] == TensorProto.FLOAT, node.name
    if policy == "amp-bf16":
        return  # numpy has no bf16 for the evaluator's GEMMs
    exact, got = results(str(tmp_path / "out.in.onnx")), results(path)
    for name, want in exact.items():
        assert got[name].dtype == np.float32
        assert np.abs(got[name] - want).max() <= 2e-2 * max(np.abs(want).max(), 1e-3), name


@pytest.mark.parametrize("update", ["adam", "guarded"])
def test_the_report_names_the_rule_for_the_optimizer(tmp_path, update):
    report = tmp_path / "report.txt"
    path = rewrite(joint(update), tmp_path, report=f"precision={report}")
    said = {line.split()[0]: line for line in report.read_text().splitlines() if " : tensor" in line}
    for i in range(len(PARAMETERS)):
        assert f"because optimizer.second_moment -> wide" in said[f"Addv_next_{i}"] and "f32>" in said[f"Addv_next_{i}"]
        assert f"because optimizer.epsilon -> wide" in said[f"Addh_{i}"]
    kinds = typed(path)
    assert kinds["eps"] == kinds["v_0"] == kinds["f_0"] == TensorProto.FLOAT


@pytest.mark.parametrize("policy", ["amp-f16", "amp-bf16"])
def test_a_second_run_changes_no_byte(tmp_path, policy):
    first = rewrite(joint("guarded"), tmp_path, policy)
    second = rewrite(first, tmp_path, policy, name="again")
    assert open(first, "rb").read() == open(second, "rb").read()


def test_external_data_of_a_joint_graph(tmp_path):
    source = joint()
    plain = results(rewrite(source, tmp_path, name="plain"))
    given = str(tmp_path / "given.onnx")
    onnx.save(source, given, save_as_external_data=True, location="given.data", size_threshold=0)
    path = rewrite(given, tmp_path)
    onnx.checker.check_model(path, full_check=True)
    for name, value in results(path).items():
        assert np.array_equal(value, plain[name]), name
    again = rewrite(path, tmp_path, name="again")
    stored = [{i.name: numpy_helper.to_array(i).tobytes() for i in onnx.load(p).graph.initializer} for p in (path, again)]
    assert stored[0] == stored[1] and os.path.exists(path + ".data")


def test_a_mixed_joint_graph_is_finished(tmp_path):
    """A graph in which some layers are narrow already: the other layers become narrow, and no value is cast twice."""
    path = rewrite(joint(), tmp_path, keep_f32="z|w1_grad|d_flat|c|d_image|filter_grad_t")
    kinds = typed(path)
    assert kinds["features_t"] == HALF and kinds["z"] == TensorProto.FLOAT
    finished, whole = rewrite(path, tmp_path, name="finished"), rewrite(joint(), tmp_path, name="whole")
    onnx.checker.check_model(finished, full_check=True)
    kinds = typed(finished)
    assert all(kinds[n.output[0]] == HALF for n in onnx.load(finished).graph.node if n.op_type in ("MatMul", "Conv"))
    read = [(n.input[0], n.attribute[0].i) for n in onnx.load(finished).graph.node if n.op_type == "Cast"]
    assert len(read) == len(set(read)) <= 1 + sum(n.op_type == "Cast" for n in onnx.load(whole).graph.node)


def test_runs_in_onnx_runtime(tmp_path):
    runtime = pytest.importorskip("onnxruntime")
    for update in ("adam", "guarded"):
        path = rewrite(joint(update), tmp_path, name=update)
        got = runtime.InferenceSession(path, providers=["CPUExecutionProvider"]).run(None, FEEDS)
        for (name, want), value in zip(results(str(tmp_path / f"{update}.in.onnx")).items(), got):
            assert np.abs(value - want).max() <= 2e-2 * max(np.abs(want).max(), 1e-3), name
