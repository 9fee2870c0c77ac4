# SPDX-License-Identifier: Apache-2.0
"""Nodes of ONNX in PyTorch. A rule is called with the operands, the attributes and the opset, and returns a result or a
tuple of them; KNOWN are the attributes that it reads. A node with another attribute is refused, not answered without it."""
import torch
from torch.nn import functional as F

RULES, KNOWN = {}, {}
# Why there is no rule: PyTorch has no such function, and one of several would be another implementation of ours.
WITHOUT = {"Loop": "control flow", "Scan": "control flow", "RoiAlign": "in torchvision alone", "DeformConv": "in torchvision alone"}


class NoRule(Exception):
    """PyTorch has no such operator, or not in this form; says which."""


def call(node, operands, attributes, opset) -> tuple:
    rule = RULES.get(node.op_type)
    if rule is None or node.domain not in ("", "ai.onnx"):
        raise NoRule(WITHOUT.get(node.op_type, "no such operator"))
    if unknown := set(attributes) - KNOWN[node.op_type]:
        raise NoRule(f"no {', '.join(sorted(unknown))}")
    results = rule(operands, {**attributes, "results": len(node.output)}, opset)
    return results if isinstance(results, tuple) else (results,)


def rule(ops: str, attributes: str = ""):
    def enter(function):
        for op in ops.split():
            RULES[op], KNOWN[op] = function, set(attributes.split())
        return function
    return enter


def integers(tensor):
    return [int(i) for i in tensor.reshape(-1)]


def refuse(what):
    raise NoRule("no " + what)


for _name in ("Abs Acos Acosh Asin Asinh Atan Atanh Cos Cosh Erf Exp Log Neg Reciprocal Sigmoid Sin Sinh Sqrt Tan Tanh Det MatMul Relu "
              "Where").split():
    rule(_name)(lambda x, a, v, f=getattr(torch, _name.lower()): f(*x))
for _name, _function in {"Identity": torch.clone, "Softplus": F.softplus, "Softsign": F.softsign, "Mish": F.mish, "HardSwish": F.hardswish,
                         "Add": torch.add, "Sub": torch.sub, "Mul": torch.mul, "Div": torch.div,
                         "Pow": lambda x, y: torch.pow(x, y if y.is_floating_point() else y.long())}.items():
    rule(_name)(lambda x, a, v, f=_function: f(*x))


@rule("Elu", "alpha")
def elu(x, a, v):
    return F.elu(x[0], a.get("alpha", 1.0))


@rule("Celu", "alpha")
def celu(x, a, v):
    return F.celu(x[0], a.get("alpha", 1.0))


@rule("LeakyRelu", "alpha")
def leaky_relu(x, a, v):
    return F.leaky_relu(x[0], a.get("alpha", 0.01))


@rule("Selu", "alpha gamma")
def selu(x, a, v):
    return F.elu(x[0], a["alpha"]) * a["gamma"] if {"alpha", "gamma"} <= set(a) else refuse("one setting of SELU alone") if {"alpha", "gamma"} & set(a) else F.selu(x[0])


@rule("HardSigmoid", "alpha beta")
def hard_sigmoid(x, a, v):
    return torch.clamp(a.get("alpha", 0.2) * x[0] + a.get("beta", 0.5), 0, 1)


@rule("SwiGLU", "alpha")
def swiglu(x, a, v):
    return x[0] * torch.sigmoid(a.get("alpha", 1.0) * x[0]) * x[1]


@rule("ThresholdedRelu", "alpha")
def thresholded_relu(x, a, v):
    return F.threshold(x[0], a.get("alpha", 1.0), 0.0)


@rule("Shrink", "lambd bias")
def shrink(x, a, v):
    limit, bias = a.get("lambd", 0.5), a.get("bias", 0.0)
    if bias not in (0, limit):
        refuse("shrink with another bias")
    return (F.softshrink if bias else F.hardshrink)(x[0], limit)


@rule("Gelu", "approximate")
def gelu(x, a, v):
    return F.gelu(x[0], approximate=a.get("approximate", "none"))


@rule("Swish", "alpha")
def swish(x, a, v):
    alpha = a.get("alpha", 1.0)
    return F.silu(x[0]) if alpha == 1 else x[0] * torch.sigmoid(alpha * x[0])


@rule("PRelu")
def prelu(x, a, v):
    return torch.where(x[0] < 0, x[0] * x[1], x[0])


@rule("Clip")
def clip(x, a, v):
    limits = [*x[1:], None, None][:2]
    return x[0].clone() if limits == [None, None] else torch.clamp(x[0], *limits)


@rule("Mod", "fmod")
def mod(x, a, v):
    return (torch.fmod if a.get("fmod", 0) else torch.remainder)(*x)


@rule("Sum")
def total(x, a, v):
    return sum(x[1:], x[0])


@rule("Mean")
def mean(x, a, v):
    return sum(x[1:], x[0]) / len(x)


@rule("Max")
def maximum(x, a, v):
    made = x[0]
    for other in x[1:]:
        made = torch.maximum(made, other)
    return made


@rule("Min")
def minimum(x, a, v):
    return -maximum([-value for value in x], a, v)


def axes_of(x, a):
    given = a.get("axes") if "axes" in a else integers(x[1]) if len(x) > 1 and x[1] is not None else []
    if not given and a.get("noop_with_empty_axes", 0):
        return None
    return list(given) or list(range(x[0].dim()))


def reduction(op, function):
    def reduce(x, a, v):
        axes = axes_of(x, a)
        if axes is None and op in ("ReduceSum", "ReduceMean", "ReduceMax", "ReduceMin", "ReduceProd"):
            return x[0].clone()
        if axes is None or x[0].dim() == 0:
            return refuse("reduction of no axis")
        return function(x[0], axes, bool(a.get("keepdims", 1)))
    rule(op, "axes keepdims noop_with_empty_axes")(reduce)


def product(x, axes, keep):
    for axis in sorted((axis % x.dim() for axis in axes), reverse=True):
        x = x.prod(axis, keepdim=keep)
    return x


for _name, _function in {
        "ReduceSum": lambda x, d, k: x.sum(d, k), "ReduceMean": lambda x, d, k: x.mean(d, k), "ReduceMax": lambda x, d, k: x.amax(d, k),
        "ReduceMin": lambda x, d, k: x.amin(d, k), "ReduceProd": product, "ReduceLogSumExp": lambda x, d, k: x.logsumexp(d, k),
        "ReduceL1": lambda x, d, k: torch.linalg.vector_norm(x, 1, d, k), "ReduceL2": lambda x, d, k: torch.linalg.vector_norm(x, 2, d, k),
        "ReduceLogSum": lambda x, d, k: x.sum(d, k).log(), "ReduceSumSquare": lambda x, d, k: x.square().sum(d, k)}.items():
    reduction(_name, _function)


def softmax_of(function):
    def apply(x, a, v):
        if v >= 13:
            return function(x[0], a.get("axis", -1))
        axis = a.get("axis", 1) % max(x[0].dim(), 1)
        return function(x[0].flatten(axis), -1).reshape(x[0].shape) if axis else function(x[0].reshape(-1), 0).reshape(x[0].shape)
    return apply


for _name, _function in {"Softmax": torch.softmax, "LogSoftmax": torch.log_softmax}.items():
    rule(_name, "axis")(softmax_of(_function))


@rule("CumSum", "exclusive reverse")
def cumsum(x, a, v):
    return cumulated(torch.cumsum, x, a, 0)


@rule("CumProd", "exclusive reverse")
def cumprod(x, a, v):
    return cumulated(torch.cumprod, x, a, 1)


def cumulated(function, x, a, neutral):
    axis = int(x[1])
    value = x[0].flip(axis) if a.get("reverse", 0) else x[0]
    made = function(value, axis)
    if a.get("exclusive", 0):
        first = torch.full_like(made.narrow(axis, 0, 1), neutral)
        made = torch.cat([first, made.narrow(axis, 0, made.shape[axis] - 1)], axis)
    return made.flip(axis) if a.get("reverse", 0) else made


@rule("Einsum", "equation")
def einsum(x, a, v):
    return torch.einsum(a["equation"].replace(" ", ""), *x)


@rule("Gemm", "alpha beta transA transB")
def gemm(x, a, v):
    left, right = x[0].T if a.get("transA", 0) else x[0], x[1].T if a.get("transB", 0) else x[1]
    made = a.get("alpha", 1.0) * (left @ right)
    return made + a.get("beta", 1.0) * x[2] if len(x) > 2 and x[2] is not None else made


@rule("LRN", "alpha beta bias size")
def lrn(x, a, v):
    return F.local_response_norm(x[0], a["size"], a.get("alpha", 1e-4), a.get("beta", 0.75), a.get("bias", 1.0))


@rule("InstanceNormalization", "epsilon")
def instance_norm(x, a, v):
    return F.instance_norm(x[0], weight=x[1], bias=x[2], eps=a.get("epsilon", 1e-5))


@rule("GroupNormalization", "epsilon num_groups")
def group_norm(x, a, v):
    return F.group_norm(x[0], a["num_groups"], x[1], x[2], a.get("epsilon", 1e-5)) if v >= 21 else refuse("scales of whole groups")


@rule("LayerNormalization", "axis epsilon")
def layer_norm(x, a, v):
    shape, eps, axis = x[0].shape, a.get("epsilon", 1e-5), a.get("axis", -1) % x[0].dim()
    axes = list(range(axis, x[0].dim()))
    center = x[0].mean(axes, keepdim=True)
    scale = 1 / (x[0].var(axes, correction=0, keepdim=True) + eps).sqrt()
    return F.layer_norm(x[0], shape[axis:], x[1], x[2] if len(x) > 2 else None, eps), center, scale


@rule("RMSNormalization", "axis epsilon")
def rms_norm(x, a, v):
    return F.rms_norm(x[0], x[0].shape[a.get("axis", -1) % x[0].dim():], x[1], a.get("epsilon", 1e-5))


@rule("BatchNormalization", "epsilon training_mode momentum")
def batch_norm(x, a, v):
    eps, axes = a.get("epsilon", 1e-5), [0, *range(2, x[0].dim())]
    if not a.get("training_mode", 0):
        shape = [-1, *[1] * (x[0].dim() - 2)]  # batch_norm has no gradient of its statistics
        mean, variance = x[3].reshape(shape), x[4].reshape(shape)
        return F.batch_norm((x[0] - mean) / (variance + eps).sqrt(), torch.zeros_like(x[3]), torch.ones_like(x[4]), x[1], x[2], eps=0)
    keep = a.get("momentum", 0.9)
    y = F.batch_norm(x[0], None, None, x[1], x[2], training=True, eps=eps)
    # ONNX keeps the variance of the population, PyTorch a sample's variance.
    return y, keep * x[3] + (1 - keep) * x[0].mean(axes), keep * x[4] + (1 - keep) * x[0].var(axes, correction=0)


@rule("MeanVarianceNormalization", "axes")
def mean_variance(x, a, v):
    axes = list(a.get("axes", [0, 2, 3]))
    center = x[0] - x[0].mean(axes, keepdim=True)
    return center / (x[0].var(axes, correction=0, keepdim=True).sqrt() + 1e-9)


@rule("Dropout", "seed")
def dropout(x, a, v):
    ratio, training = (float(x[1]) if len(x) > 1 and x[1] is not None else 0.5), len(x) > 2 and x[2] is not None and bool(x[2])
    if training and ratio:
        refuse("dropout with the same numbers")
    return F.dropout(x[0], ratio, training), torch.ones_like(x[0])


@rule("LpNormalization", "axis p")
def lp_norm(x, a, v):
    return F.normalize(x[0], p=a.get("p", 2), dim=a.get("axis", -1), eps=0)


@rule("NegativeLogLikelihoodLoss", "ignore_index reduction")
def nll(x, a, v):
    return F.nll_loss(x[0], x[1], x[2] if len(x) > 2 else None, ignore_index=a.get("ignore_index", -100), reduction=a.get("reduction", "mean"))


@rule("SoftmaxCrossEntropyLoss", "ignore_index reduction")
def cross_entropy(x, a, v):
    scores = torch.log_softmax(x[0], 1)
    return nll([scores, *x[1:]], a, v), scores


@rule("DequantizeLinear", "axis block_size output_dtype")
def dequantize(x, a, v):
    axis, block = a.get("axis", 1), a.get("block_size", 0)
    data, scale = x[0].double(), x[1]
    point = x[2].double() if len(x) > 2 and x[2] is not None else torch.zeros(scale.shape, dtype=torch.float64)
    if block:
        scale, point = (value.repeat_interleave(block, axis).narrow(axis, 0, data.shape[axis]) for value in (scale, point))
    elif scale.numel() > 1:
        shape = [-1 if i == axis % data.dim() else 1 for i in range(data.dim())]
        scale, point = scale.reshape(shape), point.reshape(shape)
    return (data - point) * scale


TYPES = {1: torch.float32, 10: torch.float16, 11: torch.float64, 16: torch.bfloat16, 17: torch.float8_e4m3fn, 18: torch.float8_e4m3fnuz,
         19: torch.float8_e5m2, 20: torch.float8_e5m2fnuz}


@rule("Cast", "to saturate")
def cast(x, a, v):
    return x[0].to(TYPES[a["to"]]) if a["to"] in TYPES else refuse(f"ONNX data type {a['to']}")


@rule("CastLike", "saturate")
def cast_like(x, a, v):
    return x[0].to(x[1].dtype)


@rule("OptionalGetElement")
def optional_get_element(x, a, v):
    return x[0].clone()


@rule("GridSample", "align_corners mode padding_mode")
def grid_sample(x, a, v):
    mode = {"linear": "bilinear", "cubic": "bicubic"}.get(a.get("mode", "linear"), a.get("mode"))
    return F.grid_sample(x[0], x[1].detach(), mode, a.get("padding_mode", "zeros"), bool(a.get("align_corners", 0)))


@rule("AffineGrid", "align_corners")
def affine_grid(x, a, v):
    return F.affine_grid(x[0], integers(x[1]), bool(a.get("align_corners", 0)))


@rule("Col2Im", "dilations pads strides")
def col2im(x, a, v):
    pads, one = a.get("pads", [0] * 4), [1, 1]
    if len(x[1]) != 2 or pads[:2] != pads[2:]:
        refuse("fold in other than two dimensions, or with uneven padding")
    return F.fold(x[0], integers(x[1]), integers(x[2]), a.get("dilations", one), pads[:2], a.get("strides", one))
