# SPDX-License-Identifier: Apache-2.0
"""The same tensors train after tools that fold constants, rename the producer and drop the exporter's metadata."""
import logging

import numpy as np
import onnx
import onnx.version_converter
import pytest

torch = pytest.importorskip("torch")
runtime = pytest.importorskip("onnxruntime")
import random_ties  # noqa: E402
import test_random_ties  # noqa: E402
from test_copies import export, feed_of, trainer_of  # noqa: E402
from torch import nn  # noqa: E402

BATCH, ROWS, WIDTH = 2, 5, 8


class Rotary(nn.Module):
    """A token and positions before an attention whose rotary tables and scale are made in code."""

    def __init__(self):
        super().__init__()
        self.wte, self.qkv, self.out = nn.Embedding(30, WIDTH), nn.Linear(WIDTH, 3 * WIDTH), nn.Linear(WIDTH, WIDTH)
        self.token, self.row_output_places, self.norm = nn.Parameter(torch.randn(1, 1, WIDTH)), nn.Parameter(torch.randn(1, 9, WIDTH)), nn.LayerNorm(WIDTH)
        self.head_output_scale = nn.Parameter(torch.randn(WIDTH))

    def turn(self, x):
        angles = torch.arange(x.shape[1]).float()[:, None] * torch.tensor([1., .1, .01, .001])
        a, b = x.chunk(2, -1)
        return torch.cat([a * angles.cos() - b * angles.sin(), a * angles.sin() + b * angles.cos()], -1)

    def forward(self, x):
        h = torch.cat([self.token.expand(BATCH, -1, -1), self.wte(x)], 1)
        h = h + self.row_output_places[:, :h.shape[1]]
        q, k, v = self.qkv(self.norm(h)).chunk(3, -1)
        scores = self.turn(q) * (WIDTH ** -.25) @ (self.turn(k) * (WIDTH ** -.25)).transpose(1, 2)
        masked = scores.masked_fill(torch.ones(ROWS + 1, ROWS + 1).triu(1).bool(), -1e9)
        return self.out(torch.softmax(masked, -1) @ v) * self.head_output_scale


def by_transformers(path):
    optimizer = pytest.importorskip("onnxruntime.transformers.optimizer")
    logging.disable(logging.CRITICAL)
    try:
        optimizer.optimize_model(str(path), model_type="bert", num_heads=0, hidden_size=0, opt_level=2).save_model_to_file(str(path))
    finally:
        logging.disable(logging.NOTSET)


def by_session(path):
    options = runtime.SessionOptions()
    options.graph_optimization_level, options.optimized_model_filepath = runtime.GraphOptimizationLevel.ORT_ENABLE_EXTENDED, f"{path}.out"
    runtime.InferenceSession(str(path), options, providers=["CPUExecutionProvider"])
    model = onnx.load(f"{path}.out")
    model.producer_name = ""
    onnx.save(model, path)


def by_stripping(path):
    model = onnx.load(path)
    model.producer_name = "editor"
    for entries in ([model], [model.graph], model.graph.node, model.graph.initializer, model.graph.value_info):
        for entry in entries:
            del entry.metadata_props[:]
    del model.graph.value_info[:]
    onnx.save(model, path)


def by_conversion(path):
    onnx.save(onnx.version_converter.convert_version(onnx.load(path), 21), path)


TOOLS = (by_conversion, by_transformers, by_session, by_stripping)
# Of others, as layers that began as copies, only the exporter's word tells.
TELLING = (random_ties.Own, random_ties.Norms, random_ties.Positions, random_ties.Relative, random_ties.Token)


@pytest.mark.parametrize("dynamo", [False, True])
@pytest.mark.parametrize("tool", TOOLS)
def test_the_same_tensors_train(tool, dynamo, tmp_path):
    torch.manual_seed(0)
    module, x = Rotary(), torch.randint(0, 30, (BATCH, ROWS))
    path = export(module.eval(), x, tmp_path / "m.onnx", dynamo, external_data=False)
    tool(path)
    trainer = trainer_of(path, tmp_path)
    y = module(x)
    target, feed = feed_of(trainer, x, y)
    ((y - target) ** 2).mean().backward()
    # Rows that the tool has cut off the table of positions have no gradient.
    flat = lambda gradients: np.sort(np.concatenate([np.ravel(g)[np.abs(np.ravel(g)) > 1e-9] for g in gradients]))
    want, got = flat(p.grad.numpy() for p in module.parameters()), flat(trainer.gradients(feed)[1].values())
    assert got.size == want.size, trainer.trained()
    np.testing.assert_allclose(got, want, rtol=1e-3, atol=1e-6)


@pytest.mark.parametrize("seed", [s for s in range(80) if all(type(layer) in TELLING for layer in random_ties.make(s)[0].layers)][:10])
def test_random_modules(seed, tmp_path):
    test_random_ties.check(seed, tmp_path, TOOLS[seed // 2 % len(TOOLS)])
