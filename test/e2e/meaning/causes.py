# SPDX-License-Identifier: Apache-2.0
"""Why a case fails: the first values that must stay exact and do not, by operator; and a smaller model that fails alike."""
import json

import numpy as np
import onnx
from onnx import TensorProto, numpy_helper

from . import evaluate

NARROW = {TensorProto.FLOAT16: "f16", TensorProto.BFLOAT16: "bf16"}


def makers(case):
    """{name of a value or node: (place in the graph, operator)}, tables and constants before all nodes."""
    found = {name: (-1, "table") for name in case.tables}
    for place, node in enumerate(case.model.graph.node):
        for name in (node.name, *node.output):
            found[name] = (place, node.op_type)
    for initializer in case.model.graph.initializer:
        found.setdefault(initializer.name, (-1, "constant"))
    return found


def told(case, rounded):
    """Operators whose exact results were rounded, the first ones first."""
    known = makers(case)
    places = sorted({(*known[name], kind) for name, kind in rounded if name in known})
    return ", ".join(dict.fromkeys(f"{operator} in {kind}" for _, operator, kind in places[:3]))


def of_rewritten(case, made):
    kinds = evaluate.typed(made, case.feeds)[1]
    return told(case, [(name, NARROW[kind]) for name, kind in kinds.items() if kind in NARROW and name in case.exact])


def of_compiled(case, compiler, model, policy, flags):
    """From the report of casts that round and of types."""
    report = model.with_suffix(".json")
    compiler.run(model, "--loss=mse", "--optimizer=sgd,lr=0.01", f"--policy={policy}", f"--report=precision={report}", "--dry-run", "--quiet", *flags)
    read = json.loads(report.read_text())
    nodes = {node.name for node in case.model.graph.node if node.output[0] in case.exact} | set(case.tables)
    rounded = [(cast["node"], cast["to"].split("x")[-1].strip(">").removeprefix("tensor<")) for cast in read["casts"] if cast["rounds"] and cast["node"] in nodes]
    rounded += [(v["node"], v["type"].split("x")[-1].strip(">").removeprefix("tensor<")) for f in read.get("functions", []) for v in f.get("values", [])
                if v.get("node") in nodes and "16" in v.get("type", "")]
    return told(case, [(name, kind) for name, kind in rounded if kind != "f32"])


def shrunk(case, fails):
    """A case with fewer nodes for which `fails` holds too: values become inputs, and nodes are left out where their input has the same shape."""
    changed = True
    while changed:
        changed = False
        for node in reversed(case.model.graph.node):
            for smaller in (without(case, node), as_input(case, node)):
                if smaller and attempt(fails, smaller):
                    case, changed = smaller, True
                    break
            if changed:
                break
    return case


def attempt(fails, case):
    try:
        onnx.checker.check_model(case.model, full_check=True)
        return fails(case)
    except Exception:  # a model that is none fails in another way
        return False


def rebuilt(case, nodes, inputs, feeds):
    """The case of these nodes, less the ones that nothing reads."""
    needed, kept = {"y"}, []
    for node in reversed(nodes):
        if needed & set(node.output):
            kept.append(node)
            needed |= set(node.input)
    model = onnx.ModelProto()
    model.CopyFrom(case.model)
    graph = model.graph
    for field, values in (("node", kept[::-1]), ("input", [i for i in inputs if i.name in needed]),
                          ("initializer", [i for i in graph.initializer if i.name in needed])):
        values = [type(v).FromString(v.SerializeToString()) for v in values]
        del getattr(graph, field)[:]
        getattr(graph, field).extend(values)
    weights = [n for n in case.weights if n in needed]
    if not weights or len(kept) >= len(case.model.graph.node) and len(feeds) <= len(case.feeds):
        return None
    return case._replace(model=model, weights=weights, tables=[n for n in case.tables if n in needed], feeds={n: v for n, v in feeds.items() if n in needed})


def without(case, node):
    """The node's readers read its first input, where this has the result's shape and type."""
    values, _ = evaluate.Graph(case.model).run(case.feeds, case.exact)
    source, result = values.get(node.input[0]) if node.input else None, values[node.output[0]]
    if source is None or node.output[0] == "y" or source.shape != result.shape or source.dtype != result.dtype:
        return None
    nodes = []
    for other in case.model.graph.node:
        copy = onnx.NodeProto.FromString(other.SerializeToString())
        copy.input[:] = [node.input[0] if i == node.output[0] else i for i in copy.input]
        if other.output[0] != node.output[0]:
            nodes.append(copy)
    return rebuilt(case, nodes, case.model.graph.input, case.feeds)


def as_input(case, node):
    """The node's result comes from outside."""
    name = node.output[0]
    if name == "y" or node.op_type == "Constant" or len(node.output) > 1:
        return None
    value = evaluate.Graph(case.model).run(case.feeds, case.exact)[0][name].numpy()
    if name in case.exact or np.abs(value).max(initial=0) > 1e4:  # an input has no meaning and no known range
        return None
    value = value.astype(np.float32) if value.dtype == np.float64 else value
    kind = numpy_helper.from_array(value).data_type
    inputs = [*case.model.graph.input, onnx.helper.make_tensor_value_info(name, kind, value.shape)]
    return rebuilt(case, [n for n in case.model.graph.node if n.output[0] != name], inputs, {**case.feeds, name: value})
