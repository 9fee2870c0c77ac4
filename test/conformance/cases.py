# SPDX-License-Identifier: Apache-2.0
"""The node cases of onnx.backend.test, made once and kept in a file, each with its operator and its kind."""
import importlib
import pickle
import sys
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import onnx

NARROW = {onnx.TensorProto.FLOAT, onnx.TensorProto.FLOAT16, onnx.TensorProto.BFLOAT16}
RANDOM = {"Bernoulli", "Multinomial", "RandomNormal", "RandomNormalLike", "RandomUniform", "RandomUniformLike"}
# Operators that mpt leaves to others: no arithmetic on tensors of numbers.
OUTSIDE = {
    "ImageDecoder": "reads compressed images", "TfIdfVectorizer": "counts n-grams of a vocabulary",
    "StringConcat": "strings", "StringNormalizer": "strings", "StringSplit": "strings", "RegexFullMatch": "strings",
    "LabelEncoder": "a table of keys, ai.onnx.ml", "TreeEnsemble": "decision trees, ai.onnx.ml",
}
# The operators of models in training form: training-graphs.md, section 5.
NAMED = set("""Abs Add And AveragePool BatchNormalization Cast CastLike Ceil Clip Concat Constant ConstantOfShape Conv
ConvTranspose Cos CumSum DepthToSpace Div Dropout Einsum Elu Equal Erf Exp Expand Flatten Floor GRU Gather GatherElements
GatherND Gelu Gemm GlobalAveragePool GlobalMaxPool Greater GreaterOrEqual GroupNormalization HardSigmoid HardSwish Identity
InstanceNormalization IsInf IsNaN LRN LSTM LayerNormalization LeakyRelu Less LessOrEqual Log LogSoftmax MatMul Max MaxPool
Mean Min Mish Mod Mul Neg NegativeLogLikelihoodLoss Not OneHot Or PRelu Pad Pow RMSNormalization RNN Range Reciprocal
ReduceL1 ReduceL2 ReduceLogSum ReduceLogSumExp ReduceMax ReduceMean ReduceMin ReduceProd ReduceSum ReduceSumSquare Relu
Reshape Resize RotaryEmbedding Round ScatterElements ScatterND Selu Shape Sigmoid Sign Sin Size Slice Softmax
SoftmaxCrossEntropyLoss Softplus Softsign SpaceToDepth Split Sqrt Squeeze Sub Sum SwiGLU Swish Tanh Tile TopK Transpose Trilu
Unsqueeze Where Xor Attention""".split())

_OF_MODULE = {}


@dataclass
class Case:
    """`group` is plain, expanded (the same through the operator's function), or why the case is not counted: "not
    tensors" (strings, sequences, optional values), "random" or "outside"."""
    name: str
    op: str
    group: str
    model: bytes
    data_sets: list
    rtol: float
    atol: float


def is_tensor(value: onnx.ValueInfoProto) -> bool:
    kind = value.type.WhichOneof("value")
    return kind == "tensor_type" and value.type.tensor_type.elem_type != onnx.TensorProto.STRING


def classify(case, ops: dict):
    """(operator, group) of a case of the suite; `ops` has the operators of the plain cases by name."""
    graph = case.model.graph
    is_expanded = "_expanded" in case.name
    base = case.name.split("_expanded")[0]
    op = ops.get(base) or max((node.op_type for node in graph.node), key=lambda o: len(o) * (o.lower() in base.replace("_", "")))
    if not all(is_tensor(value) for value in [*graph.input, *graph.output]):
        return op, "not tensors"
    draws = op == "Dropout" and "training" in case.name and "zero_ratio" not in case.name
    if draws or op in RANDOM or any(node.op_type in RANDOM for node in graph.node):
        return op, "random"
    if op in OUTSIDE:
        return op, "outside"
    return op, "expanded" if is_expanded else "plain"


def in_double(model: onnx.ModelProto) -> onnx.ModelProto:
    """The model with FP64 in the place of narrower floats: inputs, outputs, constants and casts."""
    wide = onnx.ModelProto()
    wide.CopyFrom(model)
    set_floats(wide.graph, NARROW, onnx.TensorProto.DOUBLE)
    return wide


def set_floats(graph, kinds, to: int) -> None:
    """Sets the types of `graph` that are among `kinds` to `to`: of values, constants and casts."""
    for value in [*graph.input, *graph.output, *graph.value_info]:
        if value.type.tensor_type.elem_type in kinds:
            value.type.tensor_type.elem_type = to
    for tensor in graph.initializer:
        _set_tensor(tensor, kinds, to)
    for node in graph.node:
        for attribute in node.attribute:
            if attribute.name == "to" and attribute.i in kinds:
                attribute.i = to
            if attribute.HasField("t"):
                _set_tensor(attribute.t, kinds, to)
            if attribute.HasField("g"):
                set_floats(attribute.g, kinds, to)


def _set_tensor(tensor, kinds, to) -> None:
    if tensor.data_type in kinds:
        values = onnx.numpy_helper.to_array(tensor).astype(onnx.helper.tensor_dtype_to_np_dtype(to))
        tensor.CopyFrom(onnx.numpy_helper.from_array(values, tensor.name))


def make(modules=()) -> list:
    """The cases of the named modules of onnx.backend.test.case.node, or of all."""
    from onnx.backend.test.case import node as suite_of
    with np.errstate(all="ignore"):
        for name in modules:
            if name not in _OF_MODULE:  # executing a module makes its cases; somebody else may have imported it
                before, full = len(suite_of._NodeTestCases), f"{suite_of.__name__}.{name}"
                if full in sys.modules:
                    suite_of._existing_names.clear()  # it refuses to make a case again
                    importlib.reload(sys.modules[full])
                else:
                    importlib.import_module(full)
                _OF_MODULE[name] = suite_of._NodeTestCases[before:]
        suite = [case for name in modules for case in _OF_MODULE[name]] if modules else suite_of.collect_testcases(None)
    suite = [case for case in suite if case.model is not None]
    # A plain case of the suite is one node, or a few that make sequences and the like around it.
    ops = {}
    for case in suite:
        if "_expanded" not in case.name:
            kinds = {node.op_type for node in case.model.graph.node} - {"Constant"}
            ops[case.name] = kinds.pop() if len(kinds) == 1 else next(node.op_type for node in case.model.graph.node)
    return [Case(case.name, *classify(case, ops), case.model.SerializeToString(), case.data_sets, case.rtol, case.atol)
            for case in suite]


def load(cache: Path) -> list:
    """All cases, by name; made at the first call, which takes a minute."""
    cache = Path(cache) / f"onnx-{onnx.__version__}.pickle"
    if not cache.exists():
        cache.parent.mkdir(parents=True, exist_ok=True)
        made = sorted(make(), key=lambda case: case.name)
        new = cache.with_suffix(".new")
        new.write_bytes(pickle.dumps(made))
        new.replace(cache)
    return pickle.loads(cache.read_bytes())
