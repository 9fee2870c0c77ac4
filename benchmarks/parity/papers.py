# SPDX-License-Identifier: Apache-2.0
"""The networks that papers on mixed precision trained, as ONNX files: their structure, at a fraction of width and image size.

Images are [batch, 1, 16, 16] unless a size is given. Losses that the papers made themselves (auxiliary classifiers, detection) are
part of the graph. Initial values are random with a given seed.
"""
from __future__ import annotations

import math

import numpy as np
from onnx import TensorProto

from networks import Graph, attention, save_classifier, strided_conv
from scenes import ANCHORS, CLASSES, REGIONS, SIDE

FLOAT, INT64 = TensorProto.FLOAT, TensorProto.INT64


def images(batch: int, side: int = 16):
    return [("x", FLOAT, [batch, 1, side, side])]


def biased_conv(g: Graph, x: str, name: str, inputs: int, outputs: int, kernel, stride: int = 1, groups: int = 1) -> str:
    """Convolution with bias; kernel k or (height, width), padded to keep the size at stride 1."""
    height, width = kernel if isinstance(kernel, tuple) else (kernel, kernel)
    inside = inputs // groups
    weight = g.normal(f"{name}.weight", (outputs, inside, height, width), math.sqrt(2.0 / (inside * height * width)))
    bias = g.parameter(f"{name}.bias", np.zeros(outputs))
    return g.op("Conv", x, weight, bias, name=f"/{name}/Conv", kernel_shape=[height, width], group=groups, strides=[stride, stride],
                pads=[height // 2, width // 2] * 2)


def relu_conv(g: Graph, *arguments, **more) -> str:
    return g.op("Relu", biased_conv(g, *arguments, **more))


def pool(g: Graph, x: str, kernel: int = 2, stride: int = 2, kind: str = "MaxPool", pad: int = 0) -> str:
    return g.op(kind, x, kernel_shape=[kernel, kernel], strides=[stride, stride], pads=[pad] * 4)


def norm_conv(g: Graph, x: str, name: str, inputs: int, outputs: int, kernel, stride: int = 1) -> str:
    """Convolution without bias, batch norm, ReLU."""
    y = strided_conv(g, x, name, inputs, outputs, kernel, stride)
    return g.op("Relu", g.batch_norm(y, f"{name}.bn", outputs))


def alexnet(path: str, batch: int, seed: int = 0) -> str:
    """Five convolutions, the second, fourth and fifth in two groups, local response norms, overlapping pools, three linear layers with
    dropout (Krizhevsky et al., NIPS 2012)."""
    g = Graph(seed)
    x = relu_conv(g, "x", "conv1", 1, 16, 5)
    x = pool(g, g.op("LRN", x, size=5, alpha=1e-4, beta=0.75, bias=2.0), 3, 2, pad=1)
    x = relu_conv(g, x, "conv2", 16, 32, 5, groups=2)
    x = pool(g, g.op("LRN", x, size=5, alpha=1e-4, beta=0.75, bias=2.0), 3, 2, pad=1)
    x = relu_conv(g, x, "conv3", 32, 48, 3)
    x = relu_conv(g, x, "conv4", 48, 48, 3, groups=2)
    x = pool(g, relu_conv(g, x, "conv5", 48, 32, 3, groups=2), 3, 2, pad=1)
    x = g.op("Flatten", x)
    for i, inputs in enumerate((128, 64)):
        x = g.op("Relu", g.linear(g.dropout(x, 0.5 if i else 0.2), f"fc{i + 6}", inputs, 64, math.sqrt(2.0 / inputs)))
    return g.save(path, images(batch), g.linear(x, "fc8", 64, 10), [batch, 10])


def vgg16(path: str, batch: int, width: int = 8, seed: int = 0) -> str:
    """Thirteen 3x3 convolutions in five blocks and three linear layers (arXiv 1409.1556, D); the last pool keeps its pixel."""
    g = Graph(seed)
    x, inputs = "x", 1
    for block, (count, factor) in enumerate([(2, 1), (2, 2), (3, 4), (3, 8), (3, 8)]):
        for i in range(count):
            x = relu_conv(g, x, f"conv{block + 1}_{i + 1}", inputs, factor * width, 3)
            inputs = factor * width
        if block < 4:
            x = pool(g, x)
    x = g.op("Flatten", x)
    for i in range(2):
        x = g.dropout(g.op("Relu", g.linear(x, f"fc{i + 6}", inputs, 64, math.sqrt(2.0 / inputs))), 0.1)
        inputs = 64
    return g.save(path, images(batch), g.linear(x, "fc8", 64, 10), [batch, 10])


def classifier_with_help(g: Graph, path: str, batch: int, logits: str, helpers: list, weight: float) -> str:
    """The cross entropy of `logits`, and `weight` times the cross entropies of auxiliary classifiers."""
    loss = g.op("SoftmaxCrossEntropyLoss", logits, "labels", name="/loss/main", reduction="mean")
    for i, helper in enumerate(helpers):
        term = g.op("SoftmaxCrossEntropyLoss", helper, "labels", name=f"/loss/aux{i}", reduction="mean")
        loss = g.op("Add", loss, g.op("Mul", term, g.constant(np.float32(weight)), name=f"/loss/weighted{i}"), name=f"/loss/sum{i}")
    return g.save(path, [*images(batch), ("labels", INT64, [batch])], logits, [batch, 10], loss)


def googlenet(path: str, batch: int, seed: int = 0) -> str:
    """Nine modules of four branches, local response norm, two auxiliary classifiers of weight 0.3 (arXiv 1409.4842)."""
    g, helpers = Graph(seed), []

    def module(x, name, inputs, width):
        branches = [relu_conv(g, x, f"{name}.1x1", inputs, 2 * width, 1),
                    relu_conv(g, relu_conv(g, x, f"{name}.reduce3", inputs, width, 1), f"{name}.3x3", width, 2 * width, 3),
                    relu_conv(g, relu_conv(g, x, f"{name}.reduce5", inputs, width // 2, 1), f"{name}.5x5", width // 2, width, 5),
                    relu_conv(g, pool(g, x, 3, 1, pad=1), f"{name}.pool", inputs, width, 1)]
        return g.op("Concat", *branches, axis=1, name=f"/{name}/Concat"), 6 * width

    def helper(x, name, inputs):
        y = relu_conv(g, pool(g, x, 2, 2, "AveragePool"), f"{name}.conv", inputs, 16, 1)
        y = g.op("Relu", g.linear(g.op("Flatten", y), f"{name}.fc1", 64, 32, math.sqrt(2.0 / 64)))
        helpers.append(g.linear(g.dropout(y, 0.3), f"{name}.fc2", 32, 10))

    x = pool(g, relu_conv(g, "x", "conv1", 1, 16, 5))
    x = g.op("LRN", relu_conv(g, x, "conv2", 16, 16, 3), size=5, alpha=1e-4, beta=0.75, bias=1.0)
    inputs = 16
    for name, width in (("3a", 4), ("3b", 6), ("", 0), ("4a", 6), ("4b", 6), ("4c", 6), ("4d", 8), ("4e", 8), (" ", 0), ("5a", 8), ("5b", 8)):
        if not width:
            x = pool(g, x) if name == "" else pool(g, x, 3, 2, pad=1)
            continue
        x, inputs = module(x, f"inception{name}", inputs, width)
        if name in ("4a", "4d"):
            helper(x, f"aux{name}", inputs)
    x = g.dropout(g.op("Flatten", g.op("GlobalAveragePool", x)), 0.2)
    return classifier_with_help(g, path, batch, g.linear(x, "fc", inputs, 10), helpers, 0.3)


def inception3(path: str, batch: int, width: int = 6, seed: int = 0) -> str:
    """One module of each kind of Inception v3: factored 3x3, 7x1 and 1x7, and split 3x1 and 1x3 convolutions with batch norm, the two
    reductions, and the auxiliary classifier (arXiv 1512.00567). Label smoothing is left out."""
    g, w = Graph(seed), width

    def branch(x, name, inputs, *convs):
        for i, (outputs, kernel, *stride) in enumerate(convs):
            x, inputs = norm_conv(g, x, f"{name}.{i}", inputs, outputs, kernel, *stride), outputs
        return x

    def joined(name, *parts):
        return g.op("Concat", *parts, axis=1, name=f"/{name}/Concat")

    x = branch("x", "stem", 1, (w, 3), (2 * w, 3))
    average = pool(g, x, 3, 1, "AveragePool", 1)
    x = joined("a", branch(x, "a.1", 2 * w, (w, 1)), branch(x, "a.5", 2 * w, (w, 1), (w, 5)),
               branch(x, "a.3", 2 * w, (w, 1), (w, 3), (w, 3)), branch(average, "a.pool", 2 * w, (w, 1)))
    x = joined("reduce1", branch(x, "r1.3", 4 * w, (2 * w, 3, 2)), branch(x, "r1.33", 4 * w, (w, 1), (w, 3), (w, 3, 2)),
               pool(g, x, 3, 2, pad=1))
    average = pool(g, x, 3, 1, "AveragePool", 1)
    x = joined("b", branch(x, "b.1", 7 * w, (2 * w, 1)), branch(x, "b.7", 7 * w, (w, 1), (w, (1, 7)), (2 * w, (7, 1))),
               branch(x, "b.77", 7 * w, (w, 1), (w, (7, 1)), (w, (1, 7)), (w, (7, 1)), (2 * w, (1, 7))),
               branch(average, "b.pool", 7 * w, (2 * w, 1)))
    y = branch(pool(g, x, 2, 2, "AveragePool"), "aux.conv", 8 * w, (w, 1))
    helper = g.linear(g.op("Flatten", y), "aux.fc", 16 * w, 10)
    x = joined("reduce2", branch(x, "r2.3", 8 * w, (w, 1), (2 * w, 3, 2)),
               branch(x, "r2.7", 8 * w, (w, 1), (w, (1, 7)), (w, (7, 1)), (2 * w, 3, 2)), pool(g, x, 3, 2, pad=1))
    y, z = branch(x, "c.3", 12 * w, (2 * w, 1)), branch(x, "c.33", 12 * w, (w, 1), (2 * w, 3))
    split = [branch(part, f"{name}.{kernel}", 2 * w, (w, kernel)) for part, name in ((y, "c.3"), (z, "c.33")) for kernel in ((1, 3), (3, 1))]
    x = joined("c", branch(x, "c.1", 12 * w, (2 * w, 1)), *split, branch(pool(g, x, 3, 1, "AveragePool", 1), "c.pool", 12 * w, (w, 1)))
    x = g.dropout(g.op("Flatten", g.op("GlobalAveragePool", x)), 0.1)
    return classifier_with_help(g, path, batch, g.linear(x, "fc", 7 * w, 10), [helper], 0.4)


def resnet(path: str, batch: int, blocks=(3, 4, 6, 3), width: int = 8, bottleneck: bool = False, seed: int = 0) -> str:
    """Residual networks on 8x8 images (arXiv 1512.03385): `blocks` a stage, each stage at twice the channels of the one before; blocks
    of two 3x3 convolutions, or of 1x1, 3x3 and 1x1 with four times the channels at their end."""
    g, inputs = Graph(seed), width
    x = norm_conv(g, "x", "stem", 1, width, 3)
    for stage, count in enumerate(blocks):
        inside = width << stage
        outputs = 4 * inside if bottleneck else inside
        for block in range(count):
            p, stride = f"layer{stage + 1}.{block}", 2 if stage and not block else 1
            y = norm_conv(g, x, f"{p}.conv1", inputs, inside, 1 if bottleneck else 3, 1 if bottleneck else stride)
            if bottleneck:
                y = norm_conv(g, y, f"{p}.conv2", inside, inside, 3, stride)
            y = strided_conv(g, y, f"{p}.conv3", inside, outputs, 1 if bottleneck else 3, 1)
            y = g.batch_norm(y, f"{p}.bn3", outputs)
            if stride != 1 or inputs != outputs:
                x = g.batch_norm(strided_conv(g, x, f"{p}.down", inputs, outputs, 1, stride), f"{p}.down.bn", outputs)
            x, inputs = g.op("Relu", g.op("Add", y, x)), outputs
    x = g.op("Flatten", g.op("GlobalAveragePool", x))
    return g.save(path, images(batch, 8), g.linear(x, "fc", inputs, 10), [batch, 10])


def segnet(path: str, batch: int, width: int = 12, seed: int = 0) -> str:
    """Encoder and decoder of three stages; the decoder places values where the encoder's pools found their largest; classes weighted by
    how rare they are (arXiv 1511.00561). Classes of the pixels of scenes: [batch, CLASSES, SIDE, SIDE]."""
    g, places, x, inputs = Graph(seed), [], "x", 1
    sizes = [(width << stage, SIDE >> stage) for stage in range(3)]
    for stage, (outputs, _) in enumerate(sizes):
        for i in range(2):
            x, inputs = norm_conv(g, x, f"down{stage}.{i}", inputs, outputs, 3), outputs
        x, place = g.op("MaxPool", x, kernel_shape=[2, 2], strides=[2, 2], outputs=2)
        places.append(place)
    for stage, (_, side) in reversed(list(enumerate(sizes))):
        shape = g.constant(np.array([batch, inputs, side, side], np.int64))
        x = g.op("MaxUnpool", x, places[stage], shape, kernel_shape=[2, 2], strides=[2, 2])
        outputs = sizes[max(stage - 1, 0)][0]
        x = norm_conv(g, x, f"up{stage}.0", inputs, inputs, 3)
        x, inputs = norm_conv(g, x, f"up{stage}.1", inputs, outputs, 3), outputs
    logits = biased_conv(g, x, "head", inputs, CLASSES, 3)
    weights = g.constant(np.array([0.05] + [1.0] * (CLASSES - 1), np.float32))
    loss = g.op("SoftmaxCrossEntropyLoss", logits, "labels", weights, name="/loss/SoftmaxCrossEntropyLoss", reduction="mean")
    return g.save(path, [*images(batch, SIDE), ("labels", INT64, [batch, SIDE, SIDE])], logits, [batch, CLASSES, SIDE, SIDE], loss)


def smooth_l1(g: Graph, difference: str, name: str) -> str:
    """Element by element (arXiv 1504.08083), as exporters write it."""
    size = g.op("Abs", difference, name=f"/{name}/Abs")
    square = g.op("Mul", g.op("Mul", difference, difference, name=f"/{name}/Mul"), g.constant(np.float32(0.5)), name=f"/{name}/half")
    line = g.op("Sub", size, g.constant(np.float32(0.5)), name=f"/{name}/Sub")
    return g.op("Where", g.op("Less", size, g.constant(np.float32(1)), name=f"/{name}/Less"), square, line, name=f"/{name}/Where")


def masked_boxes(g: Graph, boxes: str, target: str, positive: str, name: str) -> str:
    """The sum of smooth L1 over boxes [batch, n, 4] that are matched; `positive` [batch, n] as 0 and 1."""
    each = smooth_l1(g, g.op("Sub", boxes, target, name=f"/{name}/difference"), name)
    each = g.op("ReduceSum", each, g.constant(np.array([2], np.int64)), keepdims=0, name=f"/{name}/coordinates")
    return g.op("ReduceSum", g.op("Mul", each, positive, name=f"/{name}/mask"), keepdims=0, name=f"/{name}/ReduceSum")


def backbone(g: Graph, x: str, channels: int) -> str:
    """SIDE by SIDE to a quarter of it, `channels` wide."""
    x = pool(g, relu_conv(g, relu_conv(g, x, "conv1_1", 1, 12, 3), "conv1_2", 12, 12, 3))
    return pool(g, relu_conv(g, relu_conv(g, x, "conv2_1", 12, 24, 3), "conv2_2", 24, channels, 3))


def predictions(g: Graph, x: str, name: str, inputs: int, batch: int, each: int, width: int) -> str:
    """A 3x3 convolution's results as rows, one an anchor: [batch, positions * each, width]."""
    y = g.op("Transpose", biased_conv(g, x, name, inputs, each * width, 3), perm=[0, 2, 3, 1])
    return g.op("Reshape", y, g.constant(np.array([batch, -1, width], np.int64)))


def ssd(path: str, batch: int, seed: int = 0) -> str:
    """Single-shot detection from two feature maps: classes and boxes an anchor; cross entropy of matched anchors and of the three times as
    many others that are most wrong, smooth L1 of matched boxes, over the number of matches (arXiv 1512.02325)."""
    g, parts = Graph(seed), {"classes": [], "boxes": []}
    features = backbone(g, "x", 32)
    for i, inputs in enumerate((32, 48)):
        if i:
            features = relu_conv(g, relu_conv(g, features, "extra.1", 32, 24, 1), "extra.2", 24, 48, 3, stride=2)
        for kind, width in (("classes", CLASSES), ("boxes", 4)):
            parts[kind].append(predictions(g, features, f"{kind}{i}", inputs, batch, 2, width))
    classes, boxes = (g.op("Concat", *parts[kind], axis=1, name=f"/{kind}/Concat") for kind in ("classes", "boxes"))
    rows = g.op("Reshape", classes, g.constant(np.array([batch * ANCHORS, CLASSES], np.int64)))
    flat = g.op("Reshape", "labels", g.constant(np.array([batch * ANCHORS], np.int64)))
    each = g.op("SoftmaxCrossEntropyLoss", rows, flat, name="/loss/classes", reduction="none")
    each = g.op("Reshape", each, g.constant(np.array([batch, ANCHORS], np.int64)), name="/loss/each")
    found = g.op("Greater", "labels", g.constant(np.int64(0)))
    positive = g.op("Cast", found, to=FLOAT)
    zero = g.constant(np.float32(0))
    hardest = g.op("TopK", g.op("Where", found, zero, each, name="/loss/negatives"), g.constant(np.array([24], np.int64)), axis=1,
                   outputs=2, name="/loss/TopK")[0]
    mined = g.op("ReduceSum", hardest, keepdims=0, name="/loss/mined")
    matched = g.op("ReduceSum", g.op("Where", found, each, zero, name="/loss/positives"), keepdims=0, name="/loss/matched")
    total = g.op("Sum", mined, matched, masked_boxes(g, boxes, "target", positive, "loss/boxes"), name="/loss/Sum")
    loss = g.op("Div", total, g.op("ReduceSum", positive, keepdims=0), name="/loss/Div")
    inputs = [*images(batch, SIDE), ("labels", INT64, [batch, ANCHORS]), ("target", FLOAT, [batch, ANCHORS, 4])]
    return g.save(path, inputs, classes, [batch, ANCHORS, CLASSES], loss, boxes=(boxes, [batch, ANCHORS, 4]))


def faster_rcnn(path: str, batch: int, seed: int = 0) -> str:
    """A network of proposals over the anchors of one feature map, and RoiAlign over given regions with a head for their classes and
    boxes, as in the paper's training in turns (arXiv 1506.01497), where proposals are data. Four losses, summed."""
    g = Graph(seed)
    features, anchors = backbone(g, "x", 32), 2 * (SIDE // 4) ** 2
    shared = relu_conv(g, features, "rpn", 32, 32, 3)
    scores = g.op("Reshape", predictions(g, shared, "objectness", 32, batch, 2, 1), g.constant(np.array([batch, anchors], np.int64)))
    boxes = predictions(g, shared, "rpn.boxes", 32, batch, 2, 4)
    # Binary cross entropy of logits as frameworks export it: max(x, 0) - x t + log(1 + exp(-|x|)).
    soft = g.op("Log", g.op("Add", g.op("Exp", g.op("Neg", g.op("Abs", scores))), g.constant(np.float32(1))))
    cross = g.op("Add", g.op("Sub", g.op("Relu", scores), g.op("Mul", scores, "objects")), soft, name="/loss/objectness")
    rpn = g.op("Div", masked_boxes(g, boxes, "anchor_target", "objects", "loss/rpn"),
               g.op("Add", g.op("ReduceSum", "objects", keepdims=0), g.constant(np.float32(1))), name="/loss/rpn_mean")
    regions = g.op("RoiAlign", features, "regions", "images", output_height=4, output_width=4, sampling_ratio=2, spatial_scale=0.25,
                   coordinate_transformation_mode="half_pixel")
    x = g.op("Flatten", regions)
    for i, inputs in enumerate((32 * 16, 64)):
        x = g.op("Relu", g.linear(x, f"head{i + 1}", inputs, 64, math.sqrt(2.0 / inputs)))
    logits, deltas = g.linear(x, "head.classes", 64, CLASSES), g.linear(x, "head.boxes", 64, 4)
    classes = g.op("SoftmaxCrossEntropyLoss", logits, "labels", name="/loss/classes", reduction="mean")
    count = batch * REGIONS
    positive = g.op("Cast", g.op("Greater", "labels", g.constant(np.int64(0))), to=FLOAT)
    rows = [g.op("Reshape", value, g.constant(np.array([1, count, *more], np.int64)))
            for value, more in ((deltas, [4]), ("target", [4]), (positive, []))]
    head = g.op("Div", masked_boxes(g, *rows, "loss/head"), g.constant(np.float32(count)), name="/loss/head_mean")
    loss = g.op("Sum", g.op("ReduceMean", cross, keepdims=0, name="/loss/objects"), rpn, classes, head, name="/loss/Sum")
    inputs = [*images(batch, SIDE), ("objects", FLOAT, [batch, anchors]), ("anchor_target", FLOAT, [batch, anchors, 4]),
              ("regions", FLOAT, [count, 4]), ("images", INT64, [count]), ("labels", INT64, [count]), ("target", FLOAT, [count, 4])]
    return g.save(path, inputs, logits, [count, CLASSES], loss, deltas=(deltas, [count, 4]))


def recurrent(g: Graph, kind: str, x: str, name: str, inputs: int, hidden: int, both: bool = False, **more) -> str:
    """States [steps, directions, batch, hidden] of an LSTM or GRU over x [steps, batch, inputs]."""
    gates, ways = {"LSTM": 4, "GRU": 3}[kind], 1 + both
    weights = [g.normal(f"{name}.{part}", (ways, gates * hidden, width), 1 / math.sqrt(hidden)) for part, width in (("W", inputs), ("R", hidden))]
    bias = np.zeros((ways, 2 * gates * hidden))
    if kind == "LSTM":
        bias[:, 2 * hidden:3 * hidden] = 1  # gates in the order i, o, f, c: the forget gate is open
    return g.op(kind, x, *weights, g.parameter(f"{name}.B", bias), name=f"/{name}/{kind}", outputs=2, hidden_size=hidden,
                direction="bidirectional" if both else "forward", **more)[0]


def one_way(g: Graph, *arguments) -> str:
    """An LSTM's states [steps, batch, hidden]."""
    return g.op("Squeeze", recurrent(g, "LSTM", *arguments), g.constant(np.array([1], np.int64)))


def both_ways(g: Graph, kind: str, x: str, name: str, inputs: int, hidden: int, steps: int, batch: int, **more) -> str:
    """Both directions' states side by side: [steps, batch, 2 hidden]."""
    y = g.op("Transpose", recurrent(g, kind, x, name, inputs, hidden, both=True, **more), perm=[0, 2, 1, 3])
    return g.op("Reshape", y, g.constant(np.array([steps, batch, 2 * hidden], np.int64)))


def deep_speech2(path: str, batch: int, steps: int = 40, bands: int = 12, classes: int = 10, hidden: int = 24, seed: int = 0) -> str:
    """Two convolutions over bands and time, the first of which halves both, two bidirectional GRU layers, and scores for CTC
    (arXiv 1512.02595): x [batch, 1, bands, steps] -> [steps / 2, batch, classes]."""
    g = Graph(seed)
    x = norm_conv(g, norm_conv(g, "x", "conv1", 1, 8, (5, 5), 2), "conv2", 8, 8, (5, 5))
    steps, rows = steps // 2, 8 * bands // 2
    x = g.op("Reshape", g.op("Transpose", x, perm=[3, 0, 1, 2]), g.constant(np.array([steps, batch, rows], np.int64)))
    for i in range(2):
        x = both_ways(g, "GRU", x, f"gru{i}", rows, hidden, steps, batch, linear_before_reset=1)
        rows = 2 * hidden
    return g.save(path, [("x", FLOAT, [batch, 1, bands, 2 * steps])], g.linear(x, "fc", rows, classes), [steps, batch, classes])


def gnmt(path: str, batch: int, length: int = 24, hidden: int = 48, seed: int = 0) -> str:
    """Translation by LSTMs: a bidirectional layer and one on top of it with a residual connection; in the decoder, attention from the
    first layer's states, which the layer above reads beside them (arXiv 1609.08144). source, ids [batch, length] -> logits."""
    g = Graph(seed)

    def embed(ids, name):
        return g.op("Gather", g.normal(f"{name}.tok", (256, hidden), 0.1), g.op("Transpose", ids, perm=[1, 0]), name=f"/{name}/Gather")

    x = both_ways(g, "LSTM", embed("source", "encoder"), "encoder.0", hidden, hidden // 2, length, batch)
    memory = g.op("Transpose", g.op("Add", x, one_way(g, x, "encoder.1", hidden, hidden)), perm=[1, 0, 2])
    y = one_way(g, embed("ids", "decoder"), "decoder.0", hidden, hidden)
    split, back = (g.constant(np.array(shape, np.int64)) for shape in ([batch, length, 1, hidden], [batch, length, hidden]))
    query = g.op("Transpose", y, perm=[1, 0, 2])
    context = g.op("Transpose", attention(g, query, memory, "attention", hidden, 1, [split, split, back]), perm=[1, 0, 2])
    z = one_way(g, g.op("Concat", y, context, axis=2), "decoder.1", 2 * hidden, hidden)
    z = g.dropout(g.op("Transpose", g.op("Add", z, y), perm=[1, 0, 2]), 0.1)
    flat = g.op("Reshape", g.linear(z, "head", hidden, 256), g.constant(np.array([batch * length, 256], np.int64)))
    return g.save(path, [(name, INT64, [batch, length]) for name in ("source", "ids")], flat, [batch * length, 256])


def big_lstm(path: str, batch: int, length: int = 20, words: int = 2048, width: int = 48, hidden: int = 96, seed: int = 0) -> str:
    """A language model over words: two LSTM layers, each projected to the width of the embeddings, and a large softmax
    (arXiv 1602.02410). ids [batch, length] -> logits [batch * length, words]."""
    g = Graph(seed)
    ids = g.op("Transpose", "ids", perm=[1, 0])
    x = g.op("Gather", g.normal("embedding", (words, width), 0.1), ids, name="/embedding/Gather")
    for i in range(2):
        y = one_way(g, g.dropout(x, 0.1), f"lstm{i}", width, hidden)
        x = g.op("Add", x, g.linear(y, f"projection{i}", hidden, width))
    x = g.op("Reshape", g.op("Transpose", g.dropout(x, 0.1), perm=[1, 0, 2]), g.constant(np.array([batch * length, width], np.int64)))
    logits = g.linear(x, "softmax", width, words, 0.05)
    return g.save(path, [("ids", INT64, [batch, length])], logits, [batch * length, words])
