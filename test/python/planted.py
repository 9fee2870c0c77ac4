# SPDX-License-Identifier: Apache-2.0
"""Models with a planted overflow that error attribution has to find."""
import pathlib

import numpy as np
import onnx

from mpt_run import write_tensors

RNG = np.random.default_rng(0)
# Everything narrow, exponentials and sums too, whatever their operands mean: the policy of someone who trusts FP16 too much.
ALL_NARROW = """policy.policy @all_narrow storage = f16 compute = f16 accumulate = f32 master = f32 gradients = f16 {
  policy.class "contraction" -> narrow
  policy.class "reduction" -> narrow
  policy.class "range-expanding" -> narrow
  policy.class "neutral" -> narrow
  policy.class "movement" -> narrow
  policy.op "mpt.exp" -> narrow
  policy.op "mpt.log" -> narrow
  policy.op "mpt.div" -> narrow
  policy.op "mpt.pow" -> narrow
  policy.op "mpt.mul" -> narrow
  policy.op "mpt.matmul" -> narrow
  policy.loss_scaling fixed {init = 1.0}
}
"""


def randn(*shape, scale=1.0, seed=0):
    return (np.random.default_rng(seed).standard_normal(shape) * scale).astype(np.float32)


def case(body, policy, node, *, inputs=None, weights=None, result=(4, 6), words=(), fixed_by="--keep-f32", says=None):
    """`body` makes y of x (float[4, 6]) and w (float[6, 6]); `node` is the cause; `fixed_by` is None where no cast is the cause."""
    return {"body": body, "policy": policy, "node": node, "inputs": {"x": randn(4, 6)} if inputs is None else inputs,
            "weights": {"w": randn(6, 6, seed=1), **(weights or {})}, "result": result, "words": list(words), "fixed_by": fixed_by,
            "says": says}


PLANTED = {
    # GEMMs and sums beyond 65504.
    "product": case("a = MatMul(x, w) y = MatMul(a, w)", "amp-f16", "a", inputs={"x": randn(4, 6, scale=2.7e4)}),
    "sum": case("a = MatMul(x, w) b = Add(a, a) y = MatMul(b, w)", "amp-f16", "b", inputs={"x": randn(4, 6, scale=1.2e4)}),
    # Behind a bounded activation; squares and exponentials of an input's magnitude are wide.
    "square": case("t = Tanh(x) a = MatMul(t, big) b = Mul(a, a) y = MatMul(b, w)", "amp-f16", "b", weights={"big": randn(6, 6, scale=300, seed=2)}),
    "convolution": case("a = Conv<kernel_shape = [3, 3]>(x, k) b = Conv<kernel_shape = [1, 1]>(a, l) y = Flatten(b)", "amp-f16", "a",
                        inputs={"x": randn(2, 2, 4, 4, scale=2e4)}, weights={"k": randn(3, 2, 3, 3), "l": randn(1, 3, 1, 1)}, result=(2, 4)),
    # An exponential in FP32, as the policy has it, and the cast for the GEMM behind it.
    "exponential": case("t = Tanh(x) a = MatMul(t, big) b = Exp(a) y = MatMul(b, w)", "amp-f16", "b", weights={"big": randn(6, 6, scale=6, seed=2)}),
    # The same in a policy without the rule, and sums of exponentials and squares.
    "exponential narrow": case("a = MatMul(x, w) b = Exp(a) c = Log(b) y = MatMul(c, w)", "all-narrow", "b", inputs={"x": randn(4, 6, scale=5)}),
    "softmax without maximum": case("a = MatMul(x, w) e = Exp(a) s = ReduceSum(e, last) p = Div(e, s) y = MatMul(p, w)", "all-narrow", "e",
                                    inputs={"x": randn(4, 6, scale=5)}),
    "variance of a layer norm": case("a = MatMul(x, w) m = ReduceMean(a, last) c = Sub(a, m) q = Pow(c, two) v = ReduceMean(q, last) "
                                     "d = Sqrt(v) n = Sub(c, d) y = MatMul(n, w)", "all-narrow", "q", inputs={"x": randn(4, 6, scale=100)}),
    "power": case("a = MatMul(x, w) b = Pow(a, four) c = Sqrt(b) d = Sqrt(c) y = MatMul(d, w)", "all-narrow", "b",
                  inputs={"x": randn(4, 6, scale=20)}),
    # A weight that its narrow copy holds, but not twice over. (One that it does not hold stays wide.)
    "embedding": case("e = Gather<axis = 0>(table, x) d = Add(e, e) y = MatMul(d, w)", "amp-f16", "d", inputs={"x": np.array([0, 2, 1, 2], np.int64)},
                      weights={"table": np.linspace(-6e4, 6e4, 18, dtype=np.float32).reshape(3, 6)}),
    # Gradients.
    "loss scale": case("a = MatMul(x, w) b = Tanh(a) y = MatMul(b, w)", "amp-f16", None, words=["--loss-scale=1e12"], fixed_by="--loss-scale"),
    "gradient of a root at zero": case("a = MatMul(x, w) z = Sub(a, a) c = Sqrt(z) d = Add(c, a) y = MatMul(d, w)", "amp-bf16", "c",
                                       fixed_by=None, says="the gradient itself has no bound here"),
    # Values that no type holds.
    "logarithm": case("a = Neg(x) b = Mul(a, a) c = Neg(b) d = Log(c) y = MatMul(d, w)", "fp32", "d", fixed_by=None, says="no cast is to blame"),
    "division by zero": case("a = Sub(x, x) b = Div(x, a) y = MatMul(b, w)", "fp32", "b", fixed_by=None, says="no cast is to blame"),
    "reciprocal": case("a = Sub(x, x) b = Reciprocal(a) y = MatMul(b, w)", "amp-bf16", "b", fixed_by=None, says="no cast is to blame"),
    "difference": case("a = Mul(x, huge) b = Mul(a, huge) y = MatMul(b, w)", "fp32", "b", fixed_by=None, says="no cast is to blame"),
    # A mask's infinities are meant: the GEMM behind the softmax is the cause, not the mask.
    "behind a mask": case("a = MatMul(x, w) h = Where(mask, a, minus) s = Softmax<axis = -1>(h) t = MatMul(s, u) b = Add(t, t) "
                          "y = MatMul(b, w)", "amp-f16", "b", inputs={"x": randn(4, 6), "u": np.full((6, 6), 4e4, np.float32)},
                          words=["--loss-scale=1"]),
}
CONSTANTS = {"two": np.array(2, np.float32), "four": np.array(4, np.float32), "huge": np.full((4, 6), 1e30, np.float32),
             "last": np.array([-1], np.int64), "mask": np.tri(4, 6, 1).astype(bool), "minus": np.array(-np.inf, np.float32)}


def write_case(folder, name: str):
    """The model and its batch as files, and the policy and other words."""
    planted, folder = PLANTED[name], pathlib.Path(folder)
    kinds = {"float32": "float", "int64": "int64"}
    inputs = ", ".join(f"{kinds[v.dtype.name]}[{', '.join(map(str, v.shape))}] {k}" for k, v in planted["inputs"].items())
    body = planted["body"].replace(") ", ")\n")
    model = onnx.parser.parse_model(f"""<ir_version: 9, opset_import: ["" : 18]>
planted ({inputs}) => (float[{", ".join(map(str, planted["result"]))}] y) {{
{body}
}}""")
    for node in model.graph.node:
        node.name = node.output[0]
    used = {i for node in model.graph.node for i in node.input}
    for key, value in {**CONSTANTS, **planted["weights"]}.items():
        if key in used:
            model.graph.initializer.append(onnx.numpy_helper.from_array(value, key))
    (folder / "m.onnx").write_bytes(model.SerializeToString())
    write_tensors(folder / "b.st", {**planted["inputs"], "target": randn(*planted["result"], seed=4)})
    policy = planted["policy"]
    if policy == "all-narrow":
        (folder / "all-narrow.mlir").write_text(ALL_NARROW)
        policy = folder / "all-narrow.mlir"
    return [folder / "m.onnx", "--loss=mse", "--optimizer=sgd,lr=0.01", f"--policy={policy}", "--train=" + "|".join(planted["weights"]),
            *planted["words"]]
