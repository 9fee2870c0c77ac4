# SPDX-License-Identifier: Apache-2.0
"""The models whose training steps are timed, as torch modules with their batches.

resnet18 (64 px, batch 16), resnet50 (224 px, batch 4), bert (BERT-base, sequence 128, batch 4), gpt2 (124M, sequence 256,
batch 2), mlp (784-2048-2048-10, batch 256), small (the same, to try scripts out: 64-96-96-10, batch 32), lstm and gru (2 layers of width 512, sequence 64, batch 32); of a size for a GPU, resnet50-gpu (batch 256), bert-gpu (sequence 128, batch
64), gpt2-gpu (sequence 1024, batch 16) and gpt4096-gpu (three layers of width 4096, sequence 1024, batch 8); the first three of these with -short are two layers
deep, or two blocks a stage: the kernels of the whole models, fewer times. Dropout is 0, so that all runs do the same arithmetic.
"""
from __future__ import annotations

from dataclasses import dataclass

import torch
import torch.nn as nn
import torch.nn.functional as F


@dataclass
class Case:
    module: nn.Module        # takes (*inputs, target) and returns the scalar loss
    inputs: dict             # name -> tensor; the last one is the target
    optimizer: str           # as mpt-opt's --optimizer takes it


class Loss(nn.Module):
    """Cross entropy of a model's logits [..., classes] against integer targets."""

    def __init__(self, model):
        super().__init__()
        self.model = model

    def forward(self, *args):
        logits = self.model(*args[:-1])
        return F.cross_entropy(logits.reshape(-1, logits.shape[-1]), args[-1].reshape(-1))


class Block(nn.Module):
    """Residual block: two 3x3 convolutions, or 1x1-3x3-1x1 with `expand` 4."""

    def __init__(self, inputs, width, stride, expand):
        super().__init__()
        outputs = width * expand
        plan = [(inputs, width, 3, stride), (width, width, 3, 1)] if expand == 1 else \
            [(inputs, width, 1, 1), (width, width, 3, stride), (width, outputs, 1, 1)]
        self.convs = nn.ModuleList(nn.Conv2d(i, o, k, s, k // 2, bias=False) for i, o, k, s in plan)
        self.norms = nn.ModuleList(nn.BatchNorm2d(o) for _, o, _, _ in plan)
        self.short = None if stride == 1 and inputs == outputs else \
            nn.Sequential(nn.Conv2d(inputs, outputs, 1, stride, bias=False), nn.BatchNorm2d(outputs))

    def forward(self, x):
        y = x
        for i, (conv, norm) in enumerate(zip(self.convs, self.norms)):
            y = norm(conv(y))
            if i + 1 < len(self.convs):
                y = F.relu(y)
        return F.relu(y + (x if self.short is None else self.short(x)))


class ResNet(nn.Module):
    def __init__(self, depths, expand, classes=1000):
        super().__init__()
        self.stem, self.norm = nn.Conv2d(3, 64, 7, 2, 3, bias=False), nn.BatchNorm2d(64)
        blocks, inputs = [], 64
        for stage, depth in enumerate(depths):
            for i in range(depth):
                blocks.append(Block(inputs, 64 << stage, 2 if stage and i == 0 else 1, expand))
                inputs = (64 << stage) * expand
        self.blocks, self.head = nn.Sequential(*blocks), nn.Linear(inputs, classes)

    def forward(self, x):
        x = F.max_pool2d(F.relu(self.norm(self.stem(x))), 3, 2, 1)
        return self.head(self.blocks(x).mean((2, 3)))


class Attention(nn.Module):
    def __init__(self, width, heads, causal):
        super().__init__()
        self.heads, self.causal = heads, causal
        self.qkv, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)

    def forward(self, x):
        b, t, d = x.shape
        q, k, v = (z.view(b, t, self.heads, d // self.heads).transpose(1, 2) for z in self.qkv(x).chunk(3, -1))
        y = F.scaled_dot_product_attention(q, k, v, is_causal=self.causal)
        return self.out(y.transpose(1, 2).reshape(b, t, d))


class Layer(nn.Module):
    """Transformer layer, norm first (GPT) or last (BERT)."""

    def __init__(self, width, heads, causal):
        super().__init__()
        self.first, self.attention = causal, Attention(width, heads, causal)
        self.n1, self.n2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.up, self.down = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)

    def mlp(self, x):
        return self.down(F.gelu(self.up(x), approximate="tanh" if self.first else "none"))

    def forward(self, x):
        if self.first:
            x = x + self.attention(self.n1(x))
            return x + self.mlp(self.n2(x))
        x = self.n1(x + self.attention(x))
        return self.n2(x + self.mlp(x))


class Transformer(nn.Module):
    """Tied-head language model over `vocabulary` tokens."""

    def __init__(self, vocabulary, context, causal, width=768, layers=12, heads=12):
        super().__init__()
        self.tokens, self.positions = nn.Embedding(vocabulary, width), nn.Parameter(torch.randn(context, width) * 0.02)
        nn.init.normal_(self.tokens.weight, std=0.02)
        self.layers = nn.ModuleList(Layer(width, heads, causal) for _ in range(layers))
        self.norm = nn.LayerNorm(width)

    def forward(self, ids):
        x = self.tokens(ids) + self.positions[: ids.shape[1]]
        for layer in self.layers:
            x = layer(x)
        return F.linear(self.norm(x), self.tokens.weight)


class Recurrent(nn.Module):
    """Recurrent layers and a classifier of every step; inputs [steps, batch, width]."""

    def __init__(self, layer, width=512, layers=2, classes=10):
        super().__init__()
        self.layers, self.head = layer(width, width, layers), nn.Linear(width, classes)

    def forward(self, x):
        return self.head(self.layers(x)[0])


def _images(module, batch, size):
    return Case(Loss(module), {"x": torch.randn(batch, 3, size, size), "y": torch.randint(0, 1000, (batch,))},
                "sgd,lr=0.01,momentum=0.9")


def _tokens(vocabulary, context, batch, causal, **size):
    ids = torch.randint(0, vocabulary, (batch, context))
    return Case(Loss(Transformer(vocabulary, context, causal, **size)), {"ids": ids, "y": torch.randint(0, vocabulary, ids.shape)},
                "adamw,lr=1e-4")


def mlp(inputs=784, width=2048, batch=256):
    net = nn.Sequential(nn.Linear(inputs, width), nn.ReLU(), nn.Linear(width, width), nn.ReLU(), nn.Linear(width, 10))
    return Case(Loss(net), {"x": torch.randn(batch, inputs), "y": torch.randint(0, 10, (batch,))}, "sgd,lr=0.01,momentum=0.9")


def _sequences(layer):
    return Case(Loss(Recurrent(layer)), {"x": torch.randn(64, 32, 512), "y": torch.randint(0, 10, (64, 32))},
                "sgd,lr=0.1,momentum=0.9")


CASES = {
    "mlp": mlp,
    "small": lambda: mlp(64, 96, 32),
    "resnet18": lambda: _images(ResNet((2, 2, 2, 2), 1), 16, 64),
    "resnet50": lambda: _images(ResNet((3, 4, 6, 3), 4), 4, 224),
    "bert": lambda: _tokens(30522, 128, 4, False),
    "gpt2": lambda: _tokens(50257, 256, 2, True),
    "resnet50-b16": lambda: _images(ResNet((3, 4, 6, 3), 4), 16, 224),
    "gpt350m": lambda: _tokens(50257, 256, 2, True, width=1024, layers=24, heads=16),
    "lstm": lambda: _sequences(nn.LSTM),
    "gru": lambda: _sequences(nn.GRU),
    "resnet50-gpu": lambda: _images(ResNet((3, 4, 6, 3), 4), 256, 224),
    "bert-gpu": lambda: _tokens(30522, 128, 64, False),
    "gpt2-gpu": lambda: _tokens(50257, 1024, 16, True),
    "resnet50-gpu-short": lambda: _images(ResNet((2, 2, 2, 2), 4), 256, 224),
    "bert-gpu-short": lambda: _tokens(30522, 128, 64, False, layers=2),
    "gpt2-gpu-short": lambda: _tokens(50257, 1024, 16, True, layers=2),
    "gpt4096-gpu": lambda: _tokens(8192, 1024, 8, True, width=4096, layers=3, heads=32),
}


def build(name: str, seed: int = 0) -> Case:
    torch.manual_seed(seed)
    return CASES[name]()
