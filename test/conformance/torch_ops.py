# SPDX-License-Identifier: Apache-2.0
"""What a node of ONNX is in PyTorch. A rule is called with the operands, the attributes and the opset, and returns a result or a
tuple of them; KNOWN are the attributes that it reads. A node with another attribute is refused, not answered without it."""
import torch
from torch.nn import functional as F

RULES, KNOWN = {}, {}


def call(node, operands, attributes, opset) -> tuple:
    rule = RULES.get(node.op_type)
    if rule is None or node.domain not in ("", "ai.onnx"):
        raise NotImplementedError(f"PyTorch: no rule for {node.op_type}")
    if unknown := set(attributes) - KNOWN[node.op_type]:
        raise NotImplementedError(f"PyTorch: no rule for {', '.join(sorted(unknown))} of {node.op_type}")
    results = rule(operands, attributes, opset)
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
    raise NotImplementedError("PyTorch: no " + what)


for _name in ("Abs Acos Acosh Asin Asinh Atan Atanh Cos Cosh Erf Exp Log Neg Reciprocal Sigmoid Sin Sinh Sqrt Tan Tanh Det MatMul Relu "
              "Where").split():
    rule(_name)(lambda x, a, v, f=getattr(torch, _name.lower()): f(*x))
for _name, _function in {"Identity": torch.clone, "Softplus": F.softplus, "Softsign": F.softsign, "Mish": F.mish, "HardSwish": F.hardswish,
                         "Add": torch.add, "Sub": torch.sub, "Mul": torch.mul, "Div": torch.div, "Pow": torch.pow}.items():
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


@rule("Selu", "")
def selu(x, a, v):
    return F.selu(x[0])


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
    return F.silu(x[0]) if a.get("alpha", 1.0) == 1 else refuse("swish with alpha")


@rule("PRelu")
def prelu(x, a, v):
    return torch.where(x[0] < 0, x[0] * x[1], x[0])


@rule("Clip")
def clip(x, a, v):
    return torch.clamp(x[0], *[*x[1:], None, None][:2])


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


def padded(x, a, kernel, value=0.0):
    """(x with its padding, dilations, strides) of a window that moves over the last axes."""
    rank = len(kernel)
    strides, dilations = a.get("strides", [1] * rank), a.get("dilations", [1] * rank)
    pads = list(a.get("pads", [0] * (2 * rank)))
    if a.get("auto_pad", "NOTSET") in ("SAME_UPPER", "SAME_LOWER"):
        for i in range(rank):
            size, reach = x.shape[2 + i], (kernel[i] - 1) * dilations[i] + 1
            both = max((-(-size // strides[i]) - 1) * strides[i] + reach - size, 0)
            less, more = both // 2, both - both // 2
            pads[i], pads[rank + i] = (less, more) if a["auto_pad"] == "SAME_UPPER" else (more, less)
    if a.get("ceil_mode", 0):
        refuse("ceil_mode with ONNX's last window")
    sides = [side for i in reversed(range(rank)) for side in (pads[i], pads[rank + i])]
    return F.pad(x, sides, value=value), dilations, strides


@rule("Conv", "auto_pad dilations group kernel_shape pads strides")
def conv(x, a, v):
    rank = x[0].dim() - 2
    data, dilations, strides = padded(x[0], a, list(x[1].shape[2:]))
    function = (F.conv1d, F.conv2d, F.conv3d)[rank - 1]
    return function(data, x[1], x[2] if len(x) > 2 else None, stride=strides, dilation=dilations, groups=a.get("group", 1))


@rule("ConvTranspose", "dilations group kernel_shape output_padding pads strides")
def conv_transpose(x, a, v):
    rank = x[0].dim() - 2
    pads, one = a.get("pads", [0] * (2 * rank)), [1] * rank
    if pads[:rank] != pads[rank:]:
        refuse("uneven padding of transposed convolutions")
    function = (F.conv_transpose1d, F.conv_transpose2d, F.conv_transpose3d)[rank - 1]
    return function(x[0], x[1], x[2] if len(x) > 2 else None, stride=a.get("strides", one), padding=pads[:rank],
                    output_padding=a.get("output_padding", 0), groups=a.get("group", 1), dilation=a.get("dilations", one))


@rule("MaxPool", "auto_pad ceil_mode dilations kernel_shape pads storage_order strides")
def max_pool(x, a, v):
    kernel = list(a["kernel_shape"])
    data, dilations, strides = padded(x[0], a, kernel, -torch.inf)
    return (F.max_pool1d, F.max_pool2d, F.max_pool3d)[len(kernel) - 1](data, kernel, strides, dilation=dilations)


@rule("AveragePool", "auto_pad ceil_mode count_include_pad dilations kernel_shape pads strides")
def average_pool(x, a, v):
    kernel = list(a["kernel_shape"])
    data, dilations, strides = padded(x[0], a, kernel)
    if any(d != 1 for d in dilations):
        refuse("dilated averages")
    pool = (F.avg_pool1d, F.avg_pool2d, F.avg_pool3d)[len(kernel) - 1]
    counted = torch.ones_like(x[0])
    share = 1 if a.get("count_include_pad", 0) else pool(padded(counted, a, kernel)[0], kernel, strides)
    return pool(data, kernel, strides) / share


@rule("LpPool", "auto_pad ceil_mode dilations kernel_shape p pads strides")
def lp_pool(x, a, v):
    p = a.get("p", 2)
    kernel = list(a["kernel_shape"])
    powers = average_pool([x[0].abs() ** p], {**a, "count_include_pad": 1}, v) * torch.tensor(kernel).prod()
    return powers ** (1 / p)


@rule("GlobalAveragePool")
def global_average_pool(x, a, v):
    return x[0].mean(list(range(2, x[0].dim())), keepdim=True)


@rule("GlobalMaxPool")
def global_max_pool(x, a, v):
    return x[0].amax(list(range(2, x[0].dim())), keepdim=True)


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
    if a.get("training_mode", 0):
        refuse("running statistics with a gradient")
    return F.batch_norm(x[0], x[3], x[4], x[1], x[2], eps=a.get("epsilon", 1e-5))


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


@rule("Reshape", "allowzero")
def reshape(x, a, v):
    shape = integers(x[1])
    return x[0].reshape(shape if a.get("allowzero", 0) else [size or x[0].shape[i] for i, size in enumerate(shape)])


@rule("Flatten", "axis")
def flatten(x, a, v):
    axis = a.get("axis", 1)
    rows = int(torch.tensor(x[0].shape[:axis if axis >= 0 else x[0].dim() + axis]).prod())
    return x[0].reshape(rows, -1)


@rule("Transpose", "perm")
def transpose(x, a, v):
    return x[0].permute(*a.get("perm", reversed(range(x[0].dim()))))


@rule("Squeeze", "axes")
def squeeze(x, a, v):
    return x[0].squeeze(tuple(a["axes"] if "axes" in a else integers(x[1]))) if "axes" in a or len(x) > 1 else x[0].squeeze()


@rule("Unsqueeze", "axes")
def unsqueeze(x, a, v):
    axes = a["axes"] if "axes" in a else integers(x[1])
    made = x[0]
    for axis in sorted(axis % (x[0].dim() + len(axes)) for axis in axes):
        made = made.unsqueeze(axis)
    return made


@rule("Expand")
def expand(x, a, v):
    return x[0].expand(torch.broadcast_shapes(x[0].shape, integers(x[1])))


@rule("Tile")
def tile(x, a, v):
    return x[0].tile(integers(x[1]))


@rule("Concat", "axis")
def concat(x, a, v):
    return torch.cat(list(x), a["axis"])


@rule("Split", "axis")
def split(x, a, v):
    return tuple(torch.split(x[0], integers(x[1]), a.get("axis", 0))) if len(x) > 1 else refuse("split into parts of unknown sizes")


@rule("Trilu", "upper")
def trilu(x, a, v):
    return (torch.triu if a.get("upper", 1) else torch.tril)(x[0], int(x[1]) if len(x) > 1 else 0)


@rule("Gather", "axis")
def gather(x, a, v):
    axis, size = a.get("axis", 0), x[0].shape[a.get("axis", 0)]
    index = torch.where(x[1] < 0, x[1] + size, x[1]).long()
    return x[0].index_select(axis, index.reshape(-1)).unflatten(axis, index.shape) if index.dim() else x[0].select(axis, int(index))


@rule("GatherElements", "axis")
def gather_elements(x, a, v):
    size = x[0].shape[a.get("axis", 0)]
    return torch.gather(x[0], a.get("axis", 0), torch.where(x[1] < 0, x[1] + size, x[1]).long())


@rule("ScatterElements Scatter", "axis reduction")
def scatter_elements(x, a, v):
    axis, kind = a.get("axis", 0), a.get("reduction", "none")
    index = torch.where(x[1] < 0, x[1] + x[0].shape[axis], x[1]).long()
    if kind == "none":
        return x[0].scatter(axis, index, x[2])
    return x[0].scatter_reduce(axis, index, x[2], {"add": "sum", "mul": "prod", "max": "amax", "min": "amin"}[kind])


@rule("TopK", "axis largest sorted")
def topk(x, a, v):
    return tuple(torch.topk(x[0], int(x[1]), a.get("axis", -1), bool(a.get("largest", 1)), bool(a.get("sorted", 1))))


@rule("DepthToSpace", "blocksize mode")
def depth_to_space(x, a, v):
    return F.pixel_shuffle(x[0], a["blocksize"]) if a.get("mode", "DCR") == "CRD" else refuse("depth before columns")


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
