#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""CPU seconds and peak memory of rewriting large graphs, and how both grow: one table by one command.

    compile_time.py [--compiler build/release/bin/mpt-opt] [--nodes 62500 250000 1000000] [--gigabytes 3] [--library MODEL ...]

chain: MatMul, Relu, Add, Mul, Softmax in a row.  wide: Adam in standard operators, 12 nodes a tensor.  The exponent is by
CPU time against the previous size less the start-up of an empty run: 1 is linear.  external: products with external data.
--library: models, their loss in the graph, that become libraries for training with SGD and momentum, in FP32 and under --policy.
"""
from __future__ import annotations

import argparse
import math
import os
import tempfile

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

import adam
import spawn

WIDTH = 8


def save(path, nodes, inputs, outputs, initializers):
    info = lambda names: [helper.make_tensor_value_info(n, TensorProto.FLOAT, [4, WIDTH]) for n in names]
    graph = helper.make_graph(nodes, "graph", info(inputs), info(outputs), initializers)
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8), path)


def chain(count, path):
    kinds = ["MatMul", "Relu", "Add", "Mul", "Softmax"]
    second = {"MatMul": ["w"], "Add": ["b"], "Mul": ["b"]}
    nodes = [helper.make_node(kinds[i % 5], [f"v{i}"] + second.get(kinds[i % 5], []), [f"v{i + 1}"], name=f"n{i}")
             for i in range(count)]
    weights = [numpy_helper.from_array(np.eye(WIDTH, dtype=np.float32), "w"),
               numpy_helper.from_array(np.ones(WIDTH, np.float32), "b")]
    save(path, nodes, ["v0"], [f"v{count}"], weights)


def wide(count, path):
    onnx.save(adam.adam(count // len(adam.STEP), (4, WIDTH)), path)


def external(gigabytes, path):
    extent = 8192
    size = extent * extent * 4
    count = max(1, round(gigabytes * 2**30 / size))
    row = np.random.default_rng(0).standard_normal((extent // 8, extent), dtype=np.float32) / 64
    tensors = []
    with open(path + ".data", "wb") as data:
        for i in range(count):
            for _ in range(8):
                data.write(row.tobytes())
            tensor = TensorProto(name=f"w{i}", data_type=TensorProto.FLOAT, dims=[extent, extent],
                                 data_location=TensorProto.EXTERNAL)
            for key, value in (("location", os.path.basename(path) + ".data"), ("offset", i * size), ("length", size)):
                tensor.external_data.add(key=key, value=str(value))
            tensors.append(tensor)
    nodes = [helper.make_node("MatMul", [f"v{i}", f"w{i}"], [f"v{i + 1}"], name=f"n{i}") for i in range(count)]
    info = lambda name: helper.make_tensor_value_info(name, TensorProto.FLOAT, ["N", extent])
    graph = helper.make_graph(nodes, "graph", [info("v0")], [info(f"v{count}")], tensors)
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8), path)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--compiler", default="build/release/bin/mpt-opt")
    parser.add_argument("--policy", default="amp-f16")
    parser.add_argument("--nodes", type=int, nargs="+", default=[62500, 250000, 1000000])
    parser.add_argument("--gigabytes", type=float, default=3)
    parser.add_argument("--library", nargs="*", default=[])
    options = parser.parse_args()
    print("| graph | size | CPU s | peak MB | exponent |\n|---|---|---|---|---|")
    with tempfile.TemporaryDirectory() as folder:
        def run(make, size, label):
            path, out = os.path.join(folder, "in.onnx"), os.path.join(folder, "out.onnx")
            spawn.aside(lambda: make(size, path))
            status, seconds, peak, said = spawn.measure([options.compiler, path, f"--policy={options.policy}", "--emit=onnx",
                                                         "--quiet", "-o", out])
            if status:
                raise SystemExit(f"{label} {size}: {said.strip()}")
            for name in os.listdir(folder):
                os.remove(os.path.join(folder, name))
            return label, seconds, peak
        _, start, _ = run(chain, 5, "")
        for make in (chain, wide):
            before = None
            for count in options.nodes:
                label, seconds, peak = run(make, count, make.__name__)
                exponent = "" if before is None else \
                    f"{math.log((seconds - start) / before[1]) / math.log(count / before[0]):.2f}"
                print(f"| {label} | {count} nodes | {seconds:.2f} | {peak:.0f} | {exponent} |", flush=True)
                before = count, seconds - start
        if options.gigabytes:
            _, seconds, peak = run(external, options.gigabytes, "external")
            print(f"| external | {options.gigabytes:g} GB | {seconds:.2f} | {peak:.0f} | |", flush=True)
        for model in options.library:
            for policy in ("fp32", options.policy):
                status, seconds, peak, said = spawn.measure(
                    [options.compiler, model, f"--policy={policy}", "--optimizer=sgd,lr=0.01,momentum=0.9", "--emit=library",
                     "--quiet", "-o", os.path.join(folder, policy)])
                if status:
                    raise SystemExit(f"{model}: {said.strip()}")
                name = os.path.splitext(os.path.basename(model))[0]
                print(f"| {name} to a library, {policy} | {os.path.getsize(model) / 1e6:.0f} MB | {seconds:.2f} | {peak:.0f} | |",
                      flush=True)


if __name__ == "__main__":
    main()
