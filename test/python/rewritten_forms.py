# SPDX-License-Identifier: Apache-2.0
"""Rewritings of a model that keep its meaning, as exporters differ: functions, subgraphs, other orders, names, versions and data fields."""
import numpy as np
import onnx
from onnx import helper, numpy_helper, version_converter

HOLDERS = {"If", "Loop", "Scan"}


def copied(model):
    copy = onnx.ModelProto()
    copy.CopyFrom(model)
    return copy


def replace_nodes(graph, nodes):
    nodes = list(nodes)
    del graph.node[:]
    graph.node.extend(nodes)


def version(model):
    return next(opset.version for opset in model.opset_import if opset.domain == "")


def a_range(model, random):
    """(start, end) of nodes without subgraphs, the values they read and the values that others read of them."""
    nodes = list(model.graph.node)
    start = int(random.integers(len(nodes)))
    end = start
    while end < len(nodes) and end - start < 1 + random.integers(6) and nodes[end].op_type not in HOLDERS:
        end += 1
    made = [name for node in nodes[start:end] for name in node.output if name]
    read = list(dict.fromkeys(name for node in nodes[start:end] for name in node.input if name and name not in made))

    def uses(graph):
        for node in graph.node:
            yield from node.input
            for attribute in node.attribute:
                if attribute.type == onnx.AttributeProto.GRAPH:
                    yield from uses(attribute.g)
    outside = {name for node in nodes[:start] + nodes[end:] for name in node.input} | {value.name for value in model.graph.output}
    for node in nodes[:start] + nodes[end:]:
        for attribute in node.attribute:
            if attribute.type == onnx.AttributeProto.GRAPH:
                outside |= set(uses(attribute.g))
    return start, end, read, [name for name in made if name in outside]


def in_function(model, random):
    """Some nodes as a local function, in a domain of its own."""
    start, end, read, given = a_range(model, random)
    if start == end:
        return model
    nodes, name = list(model.graph.node), f"Part{len(model.functions)}"
    imports = [opset for opset in model.opset_import if opset.domain != "parts"]
    inner = onnx.FunctionProto(name=name, domain="parts", input=read, output=given, node=nodes[start:end], opset_import=imports)
    model.functions.append(inner)
    if not any(opset.domain == "parts" for opset in model.opset_import):
        model.opset_import.append(helper.make_opsetid("parts", 1))
    for function in model.functions:  # which may call others
        if not any(opset.domain == "parts" for opset in function.opset_import):
            function.opset_import.append(helper.make_opsetid("parts", 1))
    call = helper.make_node(name, read, given, domain="parts", name=f"call {name}")
    replace_nodes(model.graph, nodes[:start] + [call] + nodes[end:])
    return model


def branch(nodes, given, prefix):
    """A graph of the nodes with other names for their results."""
    made = {name: prefix + name for node in nodes for name in node.output if name}
    inside = []
    for node in nodes:
        inside.append(onnx.NodeProto())
        inside[-1].CopyFrom(node)
        inside[-1].name = prefix + node.name
        for names in (inside[-1].input, inside[-1].output):
            names[:] = [made.get(name, name) for name in names]
    return helper.make_graph(inside, prefix, [], [onnx.ValueInfoProto(name=made[name]) for name in given])


def in_branch(model, random):
    """Some nodes in the branch of an If that is taken."""
    start, end, _, given = a_range(model, random)
    if start == end:
        return model
    nodes, fresh = list(model.graph.node), f"if{len(model.graph.node)}"
    condition = helper.make_node("Constant", [], [fresh], value=numpy_helper.from_array(np.array(True)))
    both = {side: branch(nodes[start:end], given, f"{fresh}/{side}/") for side in ("then_branch", "else_branch")}
    replace_nodes(model.graph, [condition] + nodes[:start] + [helper.make_node("If", [fresh], given, **both)] + nodes[end:])
    return model


def in_loop(model, random):
    """Some nodes in a loop that runs once; its scan outputs lose their first axis again."""
    start, end, _, given = a_range(model, random)
    if start == end:
        return model
    nodes, fresh = list(model.graph.node), f"loop{len(model.graph.node)}"
    body = branch(nodes[start:end], given, f"{fresh}/")
    body.input.extend([helper.make_tensor_value_info(f"{fresh}/i", onnx.TensorProto.INT64, []),
                       helper.make_tensor_value_info(f"{fresh}/c", onnx.TensorProto.BOOL, [])])
    body.node.append(helper.make_node("Identity", [f"{fresh}/c"], [f"{fresh}/again"]))
    body.output.insert(0, helper.make_tensor_value_info(f"{fresh}/again", onnx.TensorProto.BOOL, []))
    once = helper.make_node("Constant", [], [f"{fresh}/once"], value=numpy_helper.from_array(np.array(1)))
    axis = helper.make_node("Constant", [], [f"{fresh}/axis"], value=numpy_helper.from_array(np.array([0])))
    loop = helper.make_node("Loop", [f"{fresh}/once", ""], [f"{name}/{fresh}" for name in given], body=body)
    old = version(model) < 13
    squeezes = [helper.make_node("Squeeze", [f"{name}/{fresh}"] + ([] if old else [f"{fresh}/axis"]), [name], **({"axes": [0]} if old else {}))
                for name in given]
    replace_nodes(model.graph, [once, axis] + nodes[:start] + [loop] + squeezes + nodes[end:])
    return model


def other_order(model, random):
    """Another topological order."""
    known = {value.name for value in model.graph.input} | {tensor.name for tensor in model.graph.initializer} | {""}
    left, order = list(model.graph.node), []

    def ready(node):
        inner = [g for a in node.attribute if a.type == onnx.AttributeProto.GRAPH for g in [a.g]]
        made = {name for other in left for name in other.output}
        captured = {name for g in inner for n in g.node for name in n.input}
        return all(name in known for name in node.input) and not (captured & made - {name for g in inner for n in g.node for name in n.output})
    while left:
        free = [node for node in left if ready(node)]
        node = free[int(random.integers(len(free)))]
        left.remove(node)
        order.append(node)
        known.update(node.output)
    replace_nodes(model.graph, order)
    return model


def through_identities(model, random):
    """Reads of some values, parameters among them, go through Identity nodes."""
    nodes = []
    for i, node in enumerate(list(model.graph.node)):
        for k, name in enumerate(node.input):
            if name and random.random() < 0.3:
                fresh = f"{name}/{i}/{k}"
                nodes.append(helper.make_node("Identity", [name], [fresh]))
                node.input[k] = fresh
        nodes.append(node)
    replace_nodes(model.graph, nodes)
    return model


def as_constants(model, random):
    """Initializers of integers, and of single numbers, as Constant nodes."""
    kept, nodes, inputs = [], [], {value.name for value in model.graph.input}
    for tensor in model.graph.initializer:
        value = numpy_helper.to_array(tensor)
        if tensor.name not in inputs and (value.dtype.kind != "f" or value.ndim == 0):
            field = {"value": numpy_helper.from_array(value)}
            if value.dtype == np.int64 and value.ndim == 1 and value.size and version(model) >= 12 and random.random() < 0.5:
                field = {"value_ints": [int(x) for x in value]}
            nodes.append(helper.make_node("Constant", [], [tensor.name], **field))
        else:
            kept.append(tensor)
    nodes += list(model.graph.node)
    kept = [onnx.TensorProto.FromString(tensor.SerializeToString()) for tensor in kept]
    del model.graph.initializer[:]
    model.graph.initializer.extend(kept)
    replace_nodes(model.graph, nodes)
    return model


def as_inputs(model, random):
    """Initializers are inputs with a default, as before IR version 4."""
    have = {value.name for value in model.graph.input}
    for tensor in model.graph.initializer:
        if tensor.name not in have:
            model.graph.input.append(helper.make_tensor_value_info(tensor.name, tensor.data_type, list(tensor.dims)))
    return model


def bare(model, random):
    """No names of nodes, no types but the inputs' types."""
    del model.graph.value_info[:]
    for node in model.graph.node:
        node.name = ""
    for value in model.graph.output:
        if value.type.tensor_type.HasField("shape"):
            value.type.tensor_type.ClearField("shape")
    return model


def in_fields(model, random):
    """Elements in the fields of their type instead of bytes."""
    for tensor in model.graph.initializer:
        value = numpy_helper.to_array(tensor)
        tensor.CopyFrom(helper.make_tensor(tensor.name, tensor.data_type, value.shape, value.flatten().tolist()))
    return model


def newer(model, random):
    """Another operator set, as ONNX's converter writes it."""
    wanted = version(model) + int(random.integers(1, 4))
    try:
        return version_converter.convert_version(model, min(wanted, 23))
    except Exception:  # a failed conversion says nothing of our compiler
        return model


REWRITINGS = (in_function, in_branch, in_loop, other_order, through_identities, as_constants, as_inputs, bare, in_fields, newer)


def rewritten(model, names, random):
    """A copy after the rewritings in `names`, in their order."""
    model = copied(model)
    for name in names:
        model = {rewriting.__name__: rewriting for rewriting in REWRITINGS}[name](model, random)
    return model
