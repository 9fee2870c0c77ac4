# SPDX-License-Identifier: Apache-2.0
"""Random graphs, with bodies, casts of their own and names that collide, rewritten node by node: valid, close, and at rest."""
import random
import subprocess

import numpy as np
import onnx
import onnx.reference
import pytest
from onnx import TensorProto, helper, numpy_helper

from mpt_run import tool

FLOAT = TensorProto.FLOAT
info = lambda name, kind=FLOAT, shape=(4, 8): helper.make_tensor_value_info(name, kind, shape)


class Maker:
    """Grows a list of nodes over values of shape 4 x 8."""

    def __init__(self, seed):
        self.random, self.used, self.count = random.Random(seed), {"x", "flag", "trips"}, 0

    def name(self):
        """Often the name that a cast would have."""
        while True:
            self.count += 1
            found = f"v{self.count}" if self.random.random() < 0.7 else f"v{self.count // 2}{self.random.choice(['_float16', '_float', '_bfloat16'])}"
            if found not in self.used:
                self.used.add(found)
                return found

    def emit(self, nodes, kind, inputs, count=1, **attributes):
        outputs = [self.name() for _ in range(count)]
        nodes.append(helper.make_node(kind, inputs, outputs, name=self.random.choice(["", f"n{len(self.used)}"]), **attributes))
        return outputs

    def nodes(self, values, size, depth=0):
        """Nodes that read `values`, to which their results are added."""
        nodes, pick = [], self.random.choice
        emit = lambda *words, **more: self.emit(nodes, *words, **more)
        for _ in range(size):
            a, b, weight, number = pick(values), pick(values), f"w{self.random.randrange(3)}", f"c{self.random.randrange(4)}"
            kinds = ["product"] * 5 + ["one", "two", "scale", "exp", "turn", "shape", "split", "norm", "mean", "cast", "same", "held", "count", "clip", "gemm"]
            kind = pick(kinds + (["if", "loop"] if depth < 2 else []))
            if kind == "product":
                values += emit("MatMul", [a, weight])
            elif kind == "one":
                values += emit(pick(["Relu", "Tanh", "Identity", "Softmax"]), [a])
            elif kind == "two":
                values += emit(pick(["Add", "Sub", "Mul"]), [a, b])
            elif kind == "scale":
                values += emit("Mul", [a, number])
            elif kind == "exp":
                values += emit("Exp", emit("Tanh", [a]))
            elif kind == "turn":
                values += emit("Transpose", emit("Relu", emit("Transpose", [a])))
            elif kind == "shape":
                values += emit("Reshape", [*emit("Neg", emit("Reshape", [a, "tall"])), "wide"])
            elif kind == "split":
                values += emit("Split", emit("Concat", [a, b], axis=1), count=2, axis=1)
            elif kind == "norm":
                values += emit("LayerNormalization", [a, "ones"], axis=-1)
            elif kind == "mean":
                values += emit("Add", [b, *emit("ReduceMean", [a], axes=[-1], keepdims=1)])
            elif kind == "cast":
                values += emit("Cast", emit("Cast", [a], to=pick([TensorProto.FLOAT16, TensorProto.BFLOAT16, TensorProto.DOUBLE])), to=FLOAT)
            elif kind == "same":
                values += emit("Cast", [a], to=FLOAT)
            elif kind == "held":  # some arithmetic in the file's own type
                held = pick([TensorProto.FLOAT16, TensorProto.BFLOAT16, TensorProto.DOUBLE])
                inner = emit("Cast", [a], to=held)
                for _ in range(self.random.randrange(3)):
                    inner += emit(pick(["Relu", "Identity", "Neg"]), [inner[-1]]) if pick([0, 1]) else emit("Add", [pick(inner), inner[-1]])
                values += emit("Cast", [inner[-1]], to=FLOAT)
            elif kind == "count":
                given, = pick([["flag"], ["trips"], emit("Greater", [a, b])])
                values += emit(pick(["Add", "Sub"]), [a, *emit("Cast", [given], to=FLOAT)])
            elif kind == "clip":
                values += emit("Clip", [a, "c2", "c1"])
            elif kind == "gemm":
                values += emit("Gemm", [a, weight, "ones"], transB=self.random.randrange(2))
            elif kind == "if":
                then, other = (self.branch(values, depth, name) for name in ("then", "else"))
                values += emit("If", ["flag"], then_branch=then, else_branch=other)
            else:
                values += emit("Loop", ["trips", "flag", a], body=self.loop(values, depth))
        return nodes

    def branch(self, values, depth, name):
        inner = list(values)
        nodes = self.nodes(inner, self.random.randrange(1, 4), depth + 1)
        end, = self.emit(nodes, "Identity", [inner[-1]])
        return helper.make_graph(nodes, name, [], [info(end)])

    def loop(self, values, depth):
        step, flag, state = self.name(), self.name(), self.name()
        inner = [*values, state]
        nodes = self.nodes(inner, self.random.randrange(1, 4), depth + 1)
        (end,), (on,) = self.emit(nodes, "Tanh", [inner[-1]]), self.emit(nodes, "Identity", [flag])
        inputs = [info(step, TensorProto.INT64, ()), info(flag, TensorProto.BOOL, ()), info(state)]
        return helper.make_graph(nodes, "body", inputs, [info(on, TensorProto.BOOL, ()), info(end)])

    def model(self):
        values = ["x"]
        nodes = self.nodes(values, self.random.randrange(6, 24))
        results = dict.fromkeys([values[-1], *self.random.sample(values[1:], min(2, len(values) - 1))])
        constants = {f"w{i}": np.random.default_rng(i).standard_normal((8, 8)).astype(np.float32) * np.float32(0.4) for i in range(3)}
        constants |= {f"c{i}": np.array(c, np.float32) for i, c in enumerate([0.5, 2.0, -1.0, 1e-7])}
        constants |= {"ones": np.ones(8, np.float32), "tall": np.array([8, 4]), "wide": np.array([4, 8])}
        inputs = [info("x"), info("flag", TensorProto.BOOL, ()), info("trips", TensorProto.INT64, ())]
        graph = helper.make_graph(nodes, "graph", inputs, [info(r) for r in results],
                                  [numpy_helper.from_array(v, n) for n, v in constants.items()])
        return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)


def rewrite(source, out, policy):
    done = subprocess.run([tool().with_name("mpt-opt"), source, f"--policy={policy}", "--emit=onnx", "--quiet", "-o", out],
                          capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr
    onnx.checker.check_model(str(out), full_check=True)
    return out


@pytest.mark.parametrize("policy, limit", [("amp-f16", 0.03), ("amp-bf16", 0.25)])
@pytest.mark.parametrize("seed", range(12))
def test_random_graphs(tmp_path, seed, policy, limit):
    model = Maker(seed).model()
    onnx.save(model, tmp_path / "given.onnx")
    onnx.checker.check_model(model, full_check=True)
    path = rewrite(tmp_path / "given.onnx", tmp_path / "cut.onnx", policy)
    made = onnx.load(path)
    assert made.graph.input == model.graph.input and [o.name for o in made.graph.output] == [o.name for o in model.graph.output]
    assert rewrite(path, tmp_path / "again.onnx", policy).read_bytes() == path.read_bytes()
    feeds = {"x": np.random.default_rng(seed).standard_normal((4, 8)).astype(np.float32), "flag": np.array(seed % 2 == 0), "trips": np.array(2)}
    for output, wanted, got in zip(model.graph.output, *(onnx.reference.ReferenceEvaluator(m).run(None, feeds) for m in (model, made))):
        distance = np.linalg.norm(got.astype(np.float64) - wanted) / max(np.linalg.norm(wanted), 1e-3)
        assert got.dtype == np.float32 and distance < limit, (output.name, distance)
