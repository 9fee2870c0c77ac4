# SPDX-License-Identifier: Apache-2.0
"""The networks of the parity benchmark as ONNX files, written with the onnx package alone.

All are in training form; initial values are random with a given seed. lenet and resnet18 read digits [batch, 1, 8, 8]; the
encoder-decoder reads and writes bytes; dcgan's two graphs share their parameters' names.
"""
from __future__ import annotations

import math
import pathlib
import sys

import numpy as np
from onnx import TensorProto

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[2] / "examples" / "quickstart"))
from models import Graph, byte_gpt  # noqa: E402,F401


def lenet(path: str, batch: int, dropout: float = 0.25, loss_weight: float | None = None, seed: int = 0) -> str:
    """Two convolutions with max pooling, two linear layers with dropout between them; `loss_weight` as in save_classifier."""
    g = Graph(seed)
    x = "x"
    for i, (inputs, outputs) in enumerate([(1, 16), (16, 32)]):
        y = g.conv(x, f"conv{i + 1}", inputs, outputs, 3)
        bias = g.parameter(f"conv{i + 1}.bias", np.zeros((1, outputs, 1, 1)))
        x = g.op("MaxPool", g.op("Relu", g.op("Add", y, bias)), kernel_shape=[2, 2], strides=[2, 2])
    x = g.op("Relu", g.linear(g.op("Flatten", x), "fc1", 32 * 4, 64, math.sqrt(2.0 / 128)))
    logits = g.linear(g.dropout(x, dropout), "fc2", 64, 10)
    inputs = [("x", TensorProto.FLOAT, [batch, 1, 8, 8])]
    return save_classifier(g, path, inputs, logits, batch, loss_weight)


def save_classifier(g: Graph, path: str, inputs: list, logits: str, batch: int, loss_weight: float | None) -> str:
    """With `loss_weight` the graph ends in that multiple of the cross entropy to the input `labels`."""
    if loss_weight is None:
        return g.save(path, inputs, logits, [batch, 10])
    loss = g.op("SoftmaxCrossEntropyLoss", logits, "labels", name="/loss/SoftmaxCrossEntropyLoss", reduction="mean")
    loss = g.op("Mul", loss, g.constant(np.float32(loss_weight)), name="/loss/Mul")
    return g.save(path, [*inputs, ("labels", TensorProto.INT64, [batch])], logits, [batch, 10], loss)


def deep(path: str, batch: int, layers: int = 16, width: int = 64, loss_weight: float | None = None, seed: int = 0) -> str:
    """Many linear layers with ReLU and nothing that holds gradients at one size from layer to layer."""
    g = Graph(seed)
    x = g.op("Flatten", "x")
    for i in range(layers):
        x = g.op("Relu", g.linear(x, f"fc{i + 1}", 64 if i == 0 else width, width, math.sqrt(2.0 / width)))
    logits = g.linear(x, "head", width, 10)
    return save_classifier(g, path, [("x", TensorProto.FLOAT, [batch, 1, 8, 8])], logits, batch, loss_weight)


def strided_conv(g: Graph, x: str, name: str, inputs: int, outputs: int, kernel: int | tuple[int, int], stride: int) -> str:
    height, width = kernel if isinstance(kernel, tuple) else (kernel, kernel)
    weight = g.normal(f"{name}.weight", (outputs, inputs, height, width), math.sqrt(2.0 / (inputs * height * width)))
    return g.op("Conv", x, weight, name=f"/{name}/Conv", kernel_shape=[height, width], pads=[height // 2, width // 2] * 2,
                strides=[stride, stride])


def resnet18(path: str, batch: int, width: int = 16, seed: int = 0) -> str:
    """ResNet-18's four stages of two residual blocks at `width` to 8 times that many channels, on 8x8 images."""
    g = Graph(seed)
    x = g.op("Relu", g.batch_norm(g.conv("x", "stem", 1, width, 3), "stem.bn", width))
    inputs = width
    for stage in range(4):
        outputs = width << stage
        for block in range(2):
            p, stride = f"layer{stage + 1}.{block}", 2 if stage and not block else 1
            y = strided_conv(g, x, f"{p}.conv1", inputs, outputs, 3, stride)
            y = g.op("Relu", g.batch_norm(y, f"{p}.bn1", outputs))
            y = g.batch_norm(g.conv(y, f"{p}.conv2", outputs, outputs, 3), f"{p}.bn2", outputs)
            if stride != 1:
                x = g.batch_norm(strided_conv(g, x, f"{p}.down", inputs, outputs, 1, stride), f"{p}.down.bn", outputs)
            x, inputs = g.op("Relu", g.op("Add", y, x)), outputs
    x = g.op("Flatten", g.op("GlobalAveragePool", x))
    logits = g.linear(g.dropout(x, 0.1), "fc", inputs, 10)
    return g.save(path, [("x", TensorProto.FLOAT, [batch, 1, 8, 8])], logits, [batch, 10])


def attention(g: Graph, x: str, memory: str, p: str, width: int, heads: int, shapes, mask: str = "") -> str:
    """Multi-head attention of x over memory; shapes are of queries, of keys, and of the result."""
    parts = {}
    for part, source, shape, order in (("q", x, shapes[0], [0, 2, 1, 3]), ("k", memory, shapes[1], [0, 2, 3, 1]),
                                       ("v", memory, shapes[1], [0, 2, 1, 3])):
        parts[part] = g.op("Transpose", g.op("Reshape", g.linear(source, f"{p}.{part}", width, width), shape), perm=order)
    scores = g.op("Mul", g.op("MatMul", parts["q"], parts["k"], name=f"/{p}/scores"),
                  g.constant(np.float32((width // heads) ** -0.5)))
    weights = g.op("Softmax", g.op("Add", scores, mask) if mask else scores, name=f"/{p}/Softmax", axis=-1)
    y = g.op("Transpose", g.op("MatMul", weights, parts["v"], name=f"/{p}/context"), perm=[0, 2, 1, 3])
    return g.linear(g.op("Reshape", y, shapes[2]), f"{p}.out", width, width)


def encoder_decoder(path: str, batch: int, length: int = 32, width: int = 64, heads: int = 4, dropout: float = 0.1,
                    seed: int = 0) -> str:
    """Pre-norm transformer, two encoder and two decoder layers over bytes: source, ids [batch, length] -> logits [.., 256]."""
    g = Graph(seed)
    split = g.constant(np.array([batch, length, heads, width // heads], np.int64))
    shapes = [split, split, g.constant(np.array([batch, length, width], np.int64))]
    mask = g.constant(np.triu(np.full((length, length), -1e9, np.float32), 1))

    def feed_forward(x, p):
        y = g.op("Relu", g.linear(g.layer_norm(x, f"{p}.norm", width), f"{p}.up", width, 4 * width))
        return g.op("Add", x, g.dropout(g.linear(y, f"{p}.down", 4 * width, width), dropout))

    def embed(ids, p):
        tokens = g.op("Gather", g.normal(f"{p}.tok", (256, width), 0.1), ids, name=f"/{p}/Gather")
        return g.op("Add", tokens, g.normal(f"{p}.pos", (length, width), 0.1), name=f"/{p}/Add")

    memory = embed("source", "encoder")
    for i in range(2):
        p = f"encoder.{i}"
        y = g.layer_norm(memory, f"{p}.norm", width)
        memory = g.op("Add", memory, g.dropout(attention(g, y, y, f"{p}.self", width, heads, shapes), dropout))
        memory = feed_forward(memory, f"{p}.ff")
    memory = g.layer_norm(memory, "encoder.norm", width)
    x = embed("ids", "decoder")
    for i in range(2):
        p = f"decoder.{i}"
        y = g.layer_norm(x, f"{p}.norm", width)
        x = g.op("Add", x, g.dropout(attention(g, y, y, f"{p}.self", width, heads, shapes, mask), dropout))
        y = g.layer_norm(x, f"{p}.norm2", width)
        x = g.op("Add", x, g.dropout(attention(g, y, memory, f"{p}.cross", width, heads, shapes), dropout))
        x = feed_forward(x, f"{p}.ff")
    logits = g.linear(g.layer_norm(x, "norm", width), "head", width, 256, 0.02)
    flat = g.op("Reshape", logits, g.constant(np.array([batch * length, 256], np.int64)))
    inputs = [(name, TensorProto.INT64, [batch, length]) for name in ("source", "ids")]
    return g.save(path, inputs, flat, [batch * length, 256])


NOISE = 32


def conv_transpose(g: Graph, x: str, name: str, inputs: int, outputs: int) -> str:
    weight = g.normal(f"{name}.weight", (inputs, outputs, 4, 4), 1.0 / math.sqrt(inputs * 4))
    return g.op("ConvTranspose", x, weight, name=f"/{name}/ConvTranspose", kernel_shape=[4, 4], pads=[1] * 4, strides=[2, 2])


def generator(g: Graph, batch: int) -> str:
    """Images [batch, 1, 8, 8] in [0, 1] from `z`, which is noise followed by the class as one of ten."""
    x = g.linear("z", "g.fc", NOISE + 10, 32 * 4)
    x = g.op("Relu", g.batch_norm(g.op("Reshape", x, g.constant(np.array([batch, 32, 2, 2], np.int64))), "g.bn1", 32))
    x = g.op("Relu", g.batch_norm(conv_transpose(g, x, "g.up1", 32, 16), "g.bn2", 16))
    return g.op("Sigmoid", conv_transpose(g, x, "g.up2", 16, 1))


def discriminator(g: Graph, x: str, classes: str) -> str:
    """Logits [n, 1] for images being real ones of the given classes (a projection discriminator)."""
    for i, (inputs, outputs) in enumerate([(1, 16), (16, 32)]):
        weight = g.normal(f"d.conv{i + 1}.weight", (outputs, inputs, 4, 4), math.sqrt(1.0 / (inputs * 16)))
        x = g.op("Conv", x, weight, name=f"/d.conv{i + 1}/Conv", kernel_shape=[4, 4], pads=[1] * 4, strides=[2, 2])
        x = g.op("LeakyRelu", x, alpha=0.2)
    x = g.op("LeakyRelu", g.linear(g.op("Flatten", x), "d.fc1", 32 * 4, 64), alpha=0.2)
    of_class = g.op("MatMul", classes, g.normal("d.classes", (10, 64), 0.3), name="/d.classes/MatMul")
    match = g.op("ReduceSum", g.op("Mul", x, of_class), g.constant(np.array([1], np.int64)), name="/d.classes/ReduceSum")
    return g.op("Add", g.linear(g.dropout(x, 0.3), "d.fc2", 64, 1), match)


def dcgan_generator(path: str, batch: int, seed: int = 0) -> str:
    """The graph that trains the generator: the discriminator's logits for its images. The images are a second result."""
    g = Graph(seed)
    images = generator(g, batch)
    logits = discriminator(g, images, "classes")
    inputs = [("z", TensorProto.FLOAT, [batch, NOISE + 10]), ("classes", TensorProto.FLOAT, [batch, 10])]
    return g.save(path, inputs, logits, [batch, 1], images=(images, [batch, 1, 8, 8]))


def dcgan_discriminator(path: str, batch: int, seed: int = 0) -> str:
    """The graph that trains the discriminator: its logits for `batch` real images, then for as many generated ones."""
    g = Graph(seed)
    logits = discriminator(g, g.op("Concat", "x", generator(g, batch), axis=0), "classes")
    inputs = [("x", TensorProto.FLOAT, [batch, 1, 8, 8]), ("z", TensorProto.FLOAT, [batch, NOISE + 10]),
              ("classes", TensorProto.FLOAT, [2 * batch, 10])]
    return g.save(path, inputs, logits, [2 * batch, 1])
