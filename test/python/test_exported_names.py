# SPDX-License-Identifier: Apache-2.0
"""Modules by torch's second exporter: merged, dropped and folded parameters train under the module's names, or are told."""
import contextlib
import copy
import io

import numpy as np
import pytest

torch = pytest.importorskip("torch")
from torch import nn  # noqa: E402

import mpt  # noqa: E402

WIDTH, ROWS, BATCH = 32, 20, 2  # smaller results of arithmetic are folded


class Streams(nn.Module):
    """Two streams of positions and norms that begin equal; a convolution with a weight that is computed, and a bias of zeros."""

    def __init__(self):
        super().__init__()
        self.first, self.second = (nn.Embedding(24, WIDTH) for _ in range(2))
        self.norm, self.other_norm = nn.LayerNorm(WIDTH), nn.LayerNorm(WIDTH)
        self.conv = nn.utils.parametrizations.weight_norm(nn.Conv1d(WIDTH, WIDTH, 3, padding=1))
        nn.init.zeros_(self.conv.bias)

    def forward(self, x):
        places = torch.arange(ROWS)
        a, b = self.norm(x + self.first(places + 2)), self.other_norm(torch.sin(x) + self.second(places + 2))
        return self.conv((a * b).transpose(1, 2))


class Relative(nn.Module):
    """Biases by distance, which the module repeats for each sample of a batch."""

    def __init__(self):
        super().__init__()
        self.table, self.query = nn.Embedding(2 * ROWS, 2), nn.Linear(WIDTH, 2 * WIDTH, bias=False)

    def forward(self, x):
        places = torch.arange(ROWS)
        biases = self.table(places[None] - places[:, None] + ROWS).permute(2, 0, 1).expand(BATCH, -1, -1, -1).contiguous()
        q = self.query(x).reshape(BATCH, ROWS, 2, WIDTH).transpose(1, 2)
        return torch.softmax(q @ q.transpose(2, 3) + biases, -1) @ q


class Types(nn.Module):
    """Row 0 of several tables, added to an input."""

    def __init__(self):
        super().__init__()
        self.tables, self.out = nn.ModuleList(nn.Embedding(4, WIDTH) for _ in range(3)), nn.Linear(WIDTH, WIDTH)

    def forward(self, x):
        zero = torch.zeros(BATCH, ROWS, dtype=torch.long)
        return self.out(torch.tanh(x + self.tables[0](zero) + self.tables[1](zero) + self.tables[2](zero)))


class Parallel(nn.Module):
    """Two norms of one input, which begin equal: the file has one."""

    def __init__(self):
        super().__init__()
        self.block = nn.ModuleDict({"norm": nn.LayerNorm(WIDTH), "other": nn.LayerNorm(WIDTH), "a": nn.Linear(WIDTH, WIDTH), "b": nn.Linear(WIDTH, WIDTH)})
        self.unused = nn.Linear(WIDTH, WIDTH)

    def forward(self, x):
        return x + self.block["a"](self.block["norm"](x)) * self.block["b"](self.block["other"](x))


class Continuous(nn.Module):
    """Biases that a network computes of a buffer, and a function of a number that is no exponential."""

    def __init__(self):
        super().__init__()
        self.register_buffer("places", torch.randn(ROWS, 2))
        self.net, self.query = nn.Sequential(nn.Linear(2, 512), nn.ReLU(), nn.Linear(512, WIDTH, bias=False)), nn.Linear(WIDTH, WIDTH)
        self.alpha = nn.Parameter(torch.tensor([.8]))

    def forward(self, x):
        return torch.tanh(self.query(x) + self.net(self.places)) * nn.functional.softplus(self.alpha)


class BiasFirst(nn.Module):
    """Products whose first argument is the bias, which begins with zeros."""

    def __init__(self):
        super().__init__()
        self.weights = nn.ParameterList(torch.randn(WIDTH, WIDTH) * .2 for _ in range(2))
        self.biases = nn.ParameterList(torch.full((WIDTH,), .5) for _ in range(2))

    def forward(self, x):
        h = x.reshape(-1, WIDTH)
        for weight, bias in zip(self.weights, self.biases):
            h = torch.tanh(torch.addmm(bias, torch.sin(h), weight))
        return h


def compile_of(module, folder):
    torch.manual_seed(0)
    x = torch.randn(BATCH, ROWS, WIDTH)
    with contextlib.redirect_stdout(io.StringIO()):
        torch.onnx.export(module, (x,), folder / "m.onnx", dynamo=True, input_names=["x"], output_names=["y"], external_data=False)
    return mpt.Trainer(mpt.compile(folder / "m.onnx", out=folder / "lib", loss="mse", optimizer="sgd,lr=0.1"), threads=1), x


def gradients_of(module, trainer, x):
    """Of the compiled step, and of autograd in FP64 by the module's names."""
    target = torch.randn(module(x).shape, generator=torch.Generator().manual_seed(1))
    name, = (n for n in trainer.inputs("gradients") if n not in ("x", "learning_rate"))
    double = copy.deepcopy(module).double()
    ((double(x.double()) - target.double()) ** 2).mean().backward()
    want = {n: p.grad.numpy() for n, p in double.named_parameters() if p.grad is not None}
    return trainer.gradients({"x": x.numpy(), name: target.numpy()})[1], want


def same_rows(got, want):
    """A looked-up table has the rows that were looked up, in another order."""
    rows = want[np.abs(want).max(1) > 0]
    order = lambda t: t[np.lexsort(t.T)]
    np.testing.assert_allclose(order(got.reshape(-1, want.shape[1])), order(rows), rtol=1e-3, atol=1e-6)


def test_a_norm_behind_positions_keeps_its_name(tmp_path):
    torch.manual_seed(0)
    module = Streams().eval()
    trainer, x = compile_of(module, tmp_path)
    got, want = gradients_of(module, trainer, x)
    for name in ("norm.weight", "norm.bias", "other_norm.weight", "other_norm.bias", "conv.bias"):
        np.testing.assert_allclose(got[name], want[name], rtol=1e-3, atol=1e-6)
    tables = [g for n, g in got.items() if g.size == ROWS * WIDTH]
    assert len(tables) == 2 and not [n for n in trainer.trained()["held"] if "embedding" in n]
    same_rows(np.concatenate([t.reshape(ROWS, WIDTH) for t in tables]), np.concatenate([want["first.weight"], want["second.weight"]]))


@pytest.mark.parametrize("kind", [Relative, Types])
def test_look_ups_train_as_rows(kind, tmp_path):
    torch.manual_seed(0)
    module = kind().eval()
    trainer, x = compile_of(module, tmp_path)
    got, want = gradients_of(module, trainer, x)
    for name, gradient in want.items():
        if "table" in name:
            same_rows(got[name], gradient)


def test_a_bias_that_comes_first(tmp_path):
    torch.manual_seed(0)
    module = BiasFirst().eval()
    trainer, x = compile_of(module, tmp_path)
    got, want = gradients_of(module, trainer, x)
    assert len(got) == len(want)
    for gradient in want.values():
        assert any(g.shape == gradient.shape and np.allclose(g, gradient, rtol=1e-3, atol=1e-6) for g in got.values())


def test_merged_operations_are_told(tmp_path):
    with pytest.warns(mpt.CompileWarning, match="'block.other.weight', 'block.other.bias': the file has no tensors of these parameters") as told:
        compile_of(Parallel().eval(), tmp_path)
    assert not any("unused" in str(w.message) for w in told)


def test_products_with_buffers_are_held_and_told(tmp_path):
    torch.manual_seed(0)
    with pytest.warns(mpt.CompileWarning, match="'alpha', 'net.0.bias', 'net.0.weight': of these parameters .* no more than what was computed"):
        trainer, _ = compile_of(Continuous().eval(), tmp_path)
    shapes = [t.shape for t in trainer.parameters(trained=True).values()]
    assert (ROWS, 512) not in shapes and (1,) not in shapes and len(shapes) == 3
