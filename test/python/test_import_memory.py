# SPDX-License-Identifier: Apache-2.0
"""The importer's memory: whatever a file says of sizes, counts and depths, never more than a small multiple of its length."""
import os
import struct
import subprocess
import sys

import numpy as np
import pytest
from onnx import AttributeProto, TensorProto, helper, numpy_helper
from runtime_artifacts import flatbuffer, ms, node

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
MPT_OPT = os.path.join(os.environ.get("MPT_BUILD", os.path.join(ROOT, "build", "release")), "bin", "mpt-opt")

MEASURE = """
import os, resource, sys
resource.setrlimit(resource.RLIMIT_CPU, (60, 60))
child = os.posix_spawn(sys.argv[1], sys.argv[1:], os.environ, file_actions=[(os.POSIX_SPAWN_OPEN, 1, "/dev/null", os.O_WRONLY, 0)])
_, status, usage = os.wait4(child, 0)
print(os.waitstatus_to_exitcode(status), usage.ru_maxrss)
"""
MULTIPLE, FLOOR = 32, 64 << 20  # bytes a byte of the file, and bytes that any import takes
UNROLLED = 512 << 20  # bytes for the 2^18 nodes that loops and functions make of few
LIMIT = 120  # seconds


def peak_of(words):
    """(peak resident bytes, status, messages) of a run of mpt-opt."""
    # A process begins with the peak of the one that starts it: here, a small one.
    done = subprocess.run([sys.executable, "-I", "-S", "-c", MEASURE, MPT_OPT, *map(str, words), "--to=import", "--quiet"],
                          capture_output=True, text=True, errors="replace", timeout=LIMIT)
    status, peak = map(int, done.stdout.split())
    return peak << 10, status, done.stderr


def holds(path, *words, size=None, floor=FLOOR):
    """Imports within the limit: with success or a message."""
    peak, status, said = peak_of([path, *words])
    size = size or os.path.getsize(path)
    assert status in (0, 1) and (status == 0 or "error:" in said), f"status {status}: {said[-600:]}"
    assert peak <= floor + MULTIPLE * size, f"{peak >> 20} MiB for a file of {size >> 10} KiB: {said[-300:]}"


def sparse(name, dims, places):
    """A sparse tensor with a one at each of `places`."""
    values = numpy_helper.from_array(np.ones(len(places), np.float32), name)
    return helper.make_sparse_tensor(values, numpy_helper.from_array(np.asarray(places, np.int64), "at"), dims)


def model_of(nodes, *, inputs=(("x", TensorProto.FLOAT, [4, 6]),), outputs=(("y", 2),), initializers=(), opset=21, functions=(), domains=()):
    graph = helper.make_graph(list(nodes), "hostile", [helper.make_tensor_value_info(*value) for value in inputs],
                              [helper.make_tensor_value_info(name, TensorProto.FLOAT, [f"d{i}" for i in range(rank)]) for name, rank in outputs], list(initializers))
    imports = [helper.make_opsetid("", opset), *(helper.make_opsetid(domain, 1) for domain in domains)]
    return helper.make_model(graph, opset_imports=imports, ir_version=10, functions=list(functions))


def constant(name, value):
    return numpy_helper.from_array(np.asarray(value), name)


def tensor(name, dims, kind=TensorProto.FLOAT, raw=b""):
    return TensorProto(name=name, dims=dims, data_type=kind, raw_data=raw)


def float_of(what, dims):
    """A constant computed by the graph, added to x."""
    return [*what, node("ReduceMax", dims, "top", keepdims=0), node("Add", "x,top", "y")]


HUGE = np.array([1 << 20, 1 << 20], np.int64)
LARGE = np.array([1 << 15, 1 << 15], np.int64)


def doubled(op, times, **attributes):
    """A constant of eight elements that is joined with itself again and again."""
    return [node(op, f"c{i},c{i}", f"c{i + 1}", **attributes) for i in range(times)]


GRAPHS = {
    "input": dict(nodes=[node("Relu", "x", "y")], inputs=[("x", TensorProto.FLOAT, [1 << 20, 1 << 20])]),
    "many inputs": dict(nodes=[node("Relu", "x0", "y")], inputs=[(f"x{i}", TensorProto.FLOAT, [1 << 30]) for i in range(20000)], outputs=[("y", 1)]),
    "initializer": dict(nodes=[node("Add", "x,w", "y")], initializers=[tensor("w", [1 << 20, 1 << 20])]),
    "packed": dict(nodes=[node("Cast", "w", "c", to=1), node("Add", "x,c", "y")], initializers=[tensor("w", [1 << 40], TensorProto.INT4, b"\0" * 64)]),
    **{f"ConstantOfShape {name}": dict(nodes=float_of([node("ConstantOfShape", "s", "c")], "c"), initializers=[constant("s", shape)])
       for name, shape in (("huge", HUGE), ("large", LARGE))},
    **{f"Expand {name}": dict(nodes=float_of([node("Expand", "v,s", "c")], "c"),
                              initializers=[constant("v", np.float32([[1]])), constant("s", shape)])
       for name, shape in (("huge", HUGE), ("large", LARGE))},
    "Tile": dict(nodes=float_of([node("Tile", "v,s", "c")], "c"), initializers=[constant("v", np.float32([[1, 2]])), constant("s", LARGE)]),
    "Range": dict(nodes=float_of([node("Range", "a,b,d", "r"), node("Cast", "r", "c", to=1)], "c"),
                  initializers=[constant("a", np.int64(0)), constant("b", np.int64(1 << 31)), constant("d", np.int64(1))]),
    "Range of shapes": dict(nodes=[node("Range", "a,b,d", "r"), node("Gather", "x,r", "y")],
                            initializers=[constant("a", np.int64(0)), constant("b", np.int64(1 << 29)), constant("d", np.int64(1))]),
    "OneHot": dict(nodes=float_of([node("OneHot", "i,n,v", "c")], "c"),
                   initializers=[constant("i", np.zeros(1 << 10, np.int64)), constant("n", np.int64(1 << 20)), constant("v", np.float32([0, 1]))]),
    "EyeLike": dict(nodes=float_of([node("ConstantOfShape", "s", "e"), node("EyeLike", "e", "c")], "c"), initializers=[constant("s", LARGE)]),
    "Pad": dict(nodes=float_of([node("Pad", "v,p", "c")], "c"),
                initializers=[constant("v", np.float32([1])), constant("p", np.array([1 << 29, 1 << 29], np.int64))]),
    "Resize": dict(nodes=float_of([node("Resize", "v,,s", "c")], "c"),
                   initializers=[constant("v", np.ones((1, 1, 4, 4), np.float32)), constant("s", np.float32([1, 1, 8192, 8192]))]),
    "outer product": dict(nodes=float_of([node("Mul", "a,b", "c")], "c"),
                          initializers=[constant("a", np.ones((1 << 15, 1), np.float32)), constant("b", np.ones((1, 1 << 15), np.float32))]),
    "integers of an outer product": dict(nodes=[node("Add", "a,b", "c"), node("ReduceMax", "c", "top", keepdims=0), node("Expand", "x,top", "y")],
                                         initializers=[constant("a", np.ones((1 << 15, 1), np.int64)), constant("b", np.ones((1, 1 << 15), np.int64))]),
    "Concat doubled": dict(nodes=float_of(doubled("Concat", 34, axis=0), "c34"), initializers=[constant("c0", np.ones(8, np.float32))]),
    "integers doubled": dict(nodes=[*doubled("Concat", 34, axis=0), node("Expand", "x,c34", "y")], initializers=[constant("c0", np.ones(8, np.int64))]),
    "sequences doubled": dict(nodes=[node("SequenceConstruct", "x", "s0"),
                                     *(node("SequenceConstruct", ",".join(["x"] * 64), f"s{i}") for i in range(1, 200)),
                                     node("ConcatFromSequence", "s199", "y", axis=0)]),
    "Split": dict(nodes=[node("Split", "x", ",".join(["y"] + [f"y{i}" for i in range(5)]), axis=1, num_outputs=6)] +
                  [node("Split", f"y{i}", f"z{i}", axis=1, num_outputs=1 << 40) for i in range(5)]),
    "many nodes": dict(nodes=[node("Identity", f"v{i}" if i else "x", f"v{i + 1}") for i in range(30000)] + [node("Relu", "v30000", "y")]),
    "many reads": dict(nodes=[node("Sum", ",".join(["x"] * 4000), "y")]),
    "Einsum": dict(nodes=[node("Einsum", "x,x", "y", equation="ab,cd->" + "abcd" * 20)]),
    "rank": dict(nodes=[node("Relu", "x", "y")], inputs=[("x", TensorProto.FLOAT, [1] * 100000)], outputs=[("y", 100000)]),
    "kernel": dict(nodes=[node("AveragePool", "x", "y", kernel_shape=[1 << 30, 1 << 30], pads=[1 << 30] * 4)],
                   inputs=[("x", TensorProto.FLOAT, [1, 1, 4, 4])], outputs=[("y", 4)]),
}


@pytest.mark.parametrize("what", GRAPHS)
def test_shapes_and_counts(what, tmp_path):
    path = tmp_path / "model.onnx"
    path.write_bytes(model_of(**GRAPHS[what]).SerializeToString())
    holds(path)


@pytest.mark.parametrize("dims,count,times", [((1 << 20, 1 << 19), 4, 1), ((1 << 10, 1 << 10), 4, 8), ((1 << 10, 1 << 10), 1 << 17, 8), ((0, 4), 0, 1)])
@pytest.mark.parametrize("form", ["initializer", "constant"])
def test_sparse_tensors(form, dims, count, times, tmp_path):
    made = [sparse(f"w{i}", dims, np.arange(count)) for i in range(times)]
    nodes = [node("ReduceMax", f"w{i}", f"m{i}", keepdims=0) for i in range(times)] + [node("Sum", "x," + ",".join(f"m{i}" for i in range(times)), "y")]
    if form == "constant":
        nodes = [helper.make_node("Constant", [], [f"w{i}"], sparse_value=value) for i, value in enumerate(made)] + nodes
    model = model_of(nodes)
    if form == "initializer":
        model.graph.sparse_initializer.extend(made)
    path = tmp_path / "model.onnx"
    path.write_bytes(model.SerializeToString())
    holds(path)


@pytest.mark.parametrize("values", [np.zeros(1 << 22, np.uint8), np.zeros(1 << 20, np.float32), np.arange(1 << 20, dtype=np.int64)])
def test_values_are_held_once(values, tmp_path):
    path = tmp_path / "model.onnx"
    kinds = {"raw": constant("w", values), "typed": TensorProto(name="v", dims=[values.size], data_type=TensorProto.INT32, int32_data=[1] * values.size)}
    path.write_bytes(model_of([node("Cast", "w", "a", to=1), node("Cast", "v", "b", to=1), node("Add", "a,b", "c"),
                               node("ReduceMax", "c", "top", keepdims=0), node("Add", "x,top", "y")], initializers=kinds.values()).SerializeToString())
    holds(path)


@pytest.mark.parametrize("depth,width", [(22, 2), (17, 2), (8, 8), (4, 40), (400, 1)])
def test_functions_that_call_functions(depth, width, tmp_path):
    made = [helper.make_function("f", "f0", ["a"], ["b"], [node("Neg", "a", "b")], [helper.make_opsetid("", 21)])]
    for i in range(1, depth):
        calls = [node(f"f{i - 1}", f"v{k}" if k else "a", f"v{k + 1}" if k + 1 < width else "b", "f") for k in range(width)]
        made.append(helper.make_function("f", f"f{i}", ["a"], ["b"], calls, [helper.make_opsetid("f", 1)]))
    path = tmp_path / "model.onnx"
    path.write_bytes(model_of([node(f"f{depth - 1}", "x", "y", "f")], functions=made, domains=["f"]).SerializeToString())
    holds(path, floor=UNROLLED)


def branch(depth):
    """Graphs in graphs, as bytes: the library has no limit of its own when it writes."""
    inner = helper.make_graph([node("Identity", "x", "r")], "b", [], [helper.make_tensor_value_info("r", TensorProto.FLOAT, ["d"])])
    for _ in range(depth):
        choose = helper.make_node("If", ["t"], ["r"])
        for name in ("then_branch", "else_branch"):
            choose.attribute.append(AttributeProto(name=name, type=AttributeProto.GRAPH, g=inner))
        inner = helper.make_graph([choose], "b", [], [helper.make_tensor_value_info("r", TensorProto.FLOAT, ["d"])])
    return inner


@pytest.mark.parametrize("depth", [4, 12])
def test_conditions_in_conditions(depth, tmp_path):
    model = model_of([*branch(depth).node, node("Relu", "r", "y")], inputs=[("x", TensorProto.FLOAT, [4]), ("t", TensorProto.BOOL, [])], outputs=[("y", 1)])
    path = tmp_path / "model.onnx"
    path.write_bytes(model.SerializeToString())
    holds(path)


@pytest.mark.parametrize("trips,width", [(1 << 40, 1), (16384, 1), (1 << 14, 200)])
def test_loops(trips, width, tmp_path):
    body = helper.make_graph(
        [node("Identity", "going", "still"), *(node("Neg", f"v{i}" if i else "a", f"v{i + 1}") for i in range(width))], "body",
        [helper.make_tensor_value_info("i", TensorProto.INT64, []), helper.make_tensor_value_info("going", TensorProto.BOOL, []),
         helper.make_tensor_value_info("a", TensorProto.FLOAT, [4])],
        [helper.make_tensor_value_info("still", TensorProto.BOOL, []), helper.make_tensor_value_info(f"v{width}", TensorProto.FLOAT, [4])])
    model = model_of([helper.make_node("Loop", ["n", "", "x"], ["y"], body=body)], inputs=[("x", TensorProto.FLOAT, [4])], outputs=[("y", 1)],
                     initializers=[constant("n", np.int64(trips))])
    path = tmp_path / "model.onnx"
    path.write_bytes(model.SerializeToString())
    holds(path, floor=UNROLLED)


def lengths_of(bytes_before, depth, end=b""):
    """Messages in messages: `bytes_before` is a field's tag."""
    data = end
    for _ in range(depth):
        length, size = b"", len(data)
        while True:
            length += bytes([size & 127 | (128 if size > 127 else 0)])
            size >>= 7
            if not size:
                break
        data = bytes_before + length + data
    return data


@pytest.mark.parametrize("data", [lengths_of(b"\x3a\x0a\x2a\x32", 20000), lengths_of(b"\x3a", 50000), b"\x42\x02\x10\x11" * 200000,
                                  b"\x72\x04\x0a\x00\x12\x00" * 200000, b"\xa2\x01\x00" * 200000, b"\x3a\x02\x0a\x00" * 200000])
def test_fields_that_repeat_or_nest(data, tmp_path):
    path = tmp_path / "model.onnx"
    path.write_bytes(b"\x08\x0a" + data)
    holds(path)


def artifacts(folder, checkpoint, optimizer=None):
    """A training model over parameter W with its gradient, its checkpoint, and an optimizer; their bytes."""
    nodes = [node("MatMul", "x,W", "h"), node("ReduceSum", "h", "loss", keepdims=0), node("Identity", "W", "W_grad"),
             ms("InPlaceAccumulatorV2", "W_grad.accumulation.buffer,W_grad,lazy_reset_grad", "W_grad.accumulation.out")]
    model = model_of(nodes, inputs=[("x", TensorProto.FLOAT, [4, 4]), ("W", TensorProto.FLOAT, [4, 4]),
                                    ("W_grad.accumulation.buffer", TensorProto.FLOAT, [4, 4]), ("lazy_reset_grad", TensorProto.BOOL, [1])],
                     outputs=[("loss", 0)], domains=["com.microsoft"])
    (folder / "training_model.onnx").write_bytes(model.SerializeToString())
    (folder / "checkpoint").write_bytes(checkpoint)
    if optimizer:
        (folder / "optimizer_model.onnx").write_bytes(optimizer)
    return sum(path.stat().st_size for path in folder.iterdir())


def shared(data, times):
    """The flatbuffer with its first vector of tables as one of `times` offsets that all lead to its first table."""
    data = bytearray(data)
    root = struct.unpack_from("<I", data, 0)[0]
    places = [at for at in range(0, len(data) - 4, 4) if struct.unpack_from("<I", data, at)[0] == 2]
    for at in places:  # two tensors: the list is where two offsets lead forward, into the file
        first, second = struct.unpack_from("<II", data, at + 4)
        if at > root and 0 < first < len(data) - at and 0 < second < len(data) - at and first != second:
            target = at + 4 + first
            owner = next(place for place in range(0, at, 4) if place + struct.unpack_from("<I", data, place)[0] == at)
            start = len(data) + (-len(data)) % 4
            # Offsets go forward only: the table moves behind the list.
            moved = start + 4 + 4 * times
            moved += -(moved - target) % 8
            copy = bytes(data[target - 64:])
            data += b"\0" * (start - len(data)) + struct.pack("<I", times)
            data += b"".join(struct.pack("<I", moved + 64 - (start + 4 + 4 * i)) for i in range(times))
            data += b"\0" * (moved - len(data)) + copy
            struct.pack_into("<I", data, owner, start - owner)
            return bytes(data)
    raise AssertionError("no list of two tensors")


@pytest.mark.parametrize("times", [1, 2, 20000])
def test_tensors_of_a_checkpoint_that_share_their_bytes(times, tmp_path):
    values = {"W": np.ones((4, 4), np.float32), "V": np.ones((256, 256), np.float32)}
    plain = flatbuffer({"V": values["V"], "W": values["W"]})
    size = artifacts(tmp_path, shared(plain, times) if times > 1 else plain)
    holds(tmp_path, size=size)


@pytest.mark.parametrize("checkpoint", [b"", b"\0" * 64, struct.pack("<I", 1 << 31) + b"ODTC" + b"\xff" * 4096,
                                        struct.pack("<I", 16) + b"ODTC" + struct.pack("<i", 8) * 100000])
def test_checkpoints_of_noise(checkpoint, tmp_path):
    holds(tmp_path, size=artifacts(tmp_path, checkpoint))


def test_an_optimizer_of_many_nodes(tmp_path):
    nodes = [ms("AdamWOptimizer", "r,t,p,g,m,v", f"u{i},p{i},m{i},v{i}") for i in range(5000)]
    model = model_of(nodes, inputs=[("r", TensorProto.FLOAT, [])], outputs=[("u0", 0)], domains=["com.microsoft"])
    size = artifacts(tmp_path, flatbuffer({"W": np.ones((4, 4), np.float32)}), model.SerializeToString())
    holds(tmp_path, size=size)


@pytest.mark.parametrize("extents", [(1 << 14, 1 << 14), (1 << 19, 1 << 20)])
def test_parameters_without_values(extents, tmp_path):
    nodes = [node("MatMul", "x,W", "h"), node("ReduceSum", "h", "loss", keepdims=0), node("Identity", "W", "W_grad")]
    model = model_of(nodes, inputs=[("x", TensorProto.FLOAT, [4, extents[0]]), ("W", TensorProto.FLOAT, extents)], outputs=[("loss", 0), ("W_grad", 2)])
    path = tmp_path / "model.onnx"
    path.write_bytes(model.SerializeToString())
    holds(path)
    assert peak_of([path])[1] == 0


def softmax_with_gradient(extents, **tensors):
    """A joint graph that writes the gradient of a softmax in primitives; the sums of `tensors` are part of the loss."""
    nodes = [node("Softmax", "x", "p", axis=1), node("Mul", "p,W", "h"), node("ReduceSum", "h", "loss0", keepdims=0),
             node("Mul", "p,W", "a"), node("ReduceSum", "a,one", "s"), node("Sub", "W,s", "c"), node("Mul", "c,p", "x_grad")]
    for i, name in enumerate(tensors):
        nodes += [node("ReduceSum", name, f"sum{i}", keepdims=0), node("Add", f"loss{i},sum{i}", f"loss{i + 1}")]
    nodes.append(node("Identity", f"loss{len(tensors)}", "loss"))
    model = model_of(nodes, inputs=[(name, TensorProto.FLOAT, extents) for name in "xW"], outputs=[("loss", 0), ("x_grad", 2)],
                     initializers=[constant("one", np.int64([1])), *(constant(name, value) for name, value in tensors.items())])
    return model.SerializeToString()


@pytest.mark.parametrize("extents", [(1 << 8, 1 << 10), (1 << 9, 1 << 10), (1 << 12, 1 << 12), (1 << 19, 1 << 20)])
def test_large_tensors_that_could_be_a_norm(extents, tmp_path):
    path = tmp_path / "model.onnx"
    path.write_bytes(softmax_with_gradient(extents))
    holds(path)


@pytest.mark.parametrize("table", [0, 1 << 23])
def test_large_files_are_compared_with_more_memory(table, tmp_path):
    path = tmp_path / "model.onnx"
    path.write_bytes(softmax_with_gradient((1 << 9, 1 << 10), **({"table": np.ones(table, np.float32)} if table else {})))
    done = subprocess.run([MPT_OPT, path, "--to=import", "--quiet"], capture_output=True, timeout=LIMIT)
    assert (b"mpt.softmax_backward" in done.stdout) == bool(table)
