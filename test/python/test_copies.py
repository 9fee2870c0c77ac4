# SPDX-License-Identifier: Apache-2.0
"""Tensors that an exporter has folded from others: a head that is an embedding's transpose, a token that is repeated, rows of a table."""
import contextlib
import io
import pathlib
import subprocess

import numpy as np
import onnx
import pytest
from onnx import numpy_helper

import mpt
from mpt_run import tool

torch = pytest.importorskip("torch")
runtime = pytest.importorskip("onnxruntime")
from torch import nn  # noqa: E402

OPT = pathlib.Path(tool()).with_name("mpt-opt")
IDS = torch.randint(0, 40, (4, 5), generator=torch.Generator().manual_seed(1))


class Tied(nn.Module):
    """Heads that are the embedding."""

    def __init__(self, heads=1):
        super().__init__()
        self.wte, self.fc = nn.Embedding(40, 8), nn.Linear(8, 8)
        self.heads = nn.ModuleList(nn.Linear(8, 40, bias=False) for _ in range(heads))
        for head in self.heads:
            head.weight = self.wte.weight

    def forward(self, x):
        h = torch.tanh(self.fc(self.wte(x)))
        return sum(head(h) for head in self.heads)


class Decoder(nn.Module):
    """A code and its transpose."""

    def __init__(self):
        super().__init__()
        self.enc, self.bias = nn.Linear(8, 5), nn.Parameter(torch.randn(8))

    def forward(self, x):
        return nn.functional.linear(torch.tanh(self.enc(x)), self.enc.weight.t(), self.bias)


class Tokens(nn.Module):
    """A token before each row, and two lengths of one table of positions."""

    def __init__(self, token):
        super().__init__()
        self.wte, self.pos, self.fc = nn.Embedding(40, 8), nn.Parameter(torch.randn(20, 8)), nn.Linear(8, 8)
        self.cls = nn.Parameter(token * torch.randn(1, 1, 8))

    def forward(self, x):
        a, b = self.wte(x) + self.pos[:5], self.wte(x[:, :3]) + self.pos[:3]
        h = torch.cat([self.cls.expand(x.shape[0], -1, -1), a], 1)
        return self.fc(torch.tanh(h)).sum(1) + torch.tanh(b).sum(1)


class Types(nn.Module):
    """A table of which all look-ups are one row, by indices that the module keeps."""

    def __init__(self):
        super().__init__()
        self.wte, self.types, self.fc = nn.Embedding(40, 8), nn.Embedding(2, 8), nn.Linear(8, 8)
        self.register_buffer("places", torch.zeros(1, 20, dtype=torch.int64))

    def forward(self, x):
        return self.fc(torch.tanh(self.wte(x) + self.types(self.places[:, :x.shape[1]].expand_as(x))))


class Distances(nn.Module):
    """Scores with biases by distance, of two lengths: rows of a table, by indices that are computed or kept, or penalties that are no parameters."""

    def __init__(self, how="computed"):
        super().__init__()
        self.wte, self.fc, self.how = nn.Embedding(40, 8), nn.Linear(8, 8), how
        places = torch.arange(5)
        self.register_buffer("places", places[None] - places[:, None] + 4)
        if how != "penalties":
            self.table = nn.Parameter(torch.randn(9, 2))

    def biases(self, length):
        places = self.places[:length, :length]
        if self.how == "penalties":
            return -(places - 4).abs() * torch.tensor([.5, .25])[:, None, None]
        if self.how == "computed":
            places = torch.arange(length)
            return nn.functional.embedding(places[None] - places[:, None] + 4, self.table).permute(2, 0, 1)
        return self.table[places.reshape(-1)].view(length, length, -1).permute(2, 0, 1).contiguous()

    def attend(self, h):
        split = h.unflatten(-1, (2, 4)).transpose(1, 2)
        return torch.softmax(split @ split.transpose(2, 3) + self.biases(h.shape[1]).unsqueeze(0), -1) @ split

    def forward(self, x):
        h = torch.tanh(self.fc(self.wte(x)))
        return self.attend(h).sum(2) + self.attend(h[:, :3]).sum(2)


class Cell(nn.Module):
    """Steps from a state of zeros, whose first product an exporter folds."""

    def __init__(self, cell):
        super().__init__()
        self.cell = cell

    def forward(self, x):
        h = None
        for step in x:
            h = self.cell(step, h)
        return h[0] if isinstance(h, tuple) else h


class Recurrent(nn.Module):
    def __init__(self, bias):
        super().__init__()
        self.cells = nn.RNN(4, 3, 2, bias=bias)

    def forward(self, x):
        return self.cells(x)[0]


STEPS = torch.randn(4, 2, 4, generator=torch.Generator().manual_seed(2))
MODULES = {"tied": lambda: (Tied(), IDS), "tied, a row": lambda: (Tied(), IDS[:, 0]), "heads": lambda: (Tied(3), IDS),
           "decoder": lambda: (Decoder(), torch.randn(2, 3, 8)), "decoder, rows": lambda: (Decoder(), torch.randn(2, 8)),
           "tokens": lambda: (Tokens(1), IDS), "zero token": lambda: (Tokens(0), IDS), "types": lambda: (Types(), IDS), "distances": lambda: (Distances(), IDS),
           "kept distances": lambda: (Distances("kept"), IDS), "penalties": lambda: (Distances("penalties"), IDS),
           "lstm cell": lambda: (Cell(nn.LSTMCell(4, 3)), STEPS), "gru cell": lambda: (Cell(nn.GRUCell(4, 3)), STEPS)}


def export(module, x, path, dynamo, **flags):
    with contextlib.redirect_stdout(io.StringIO()):
        torch.onnx.export(module, (x,), path, dynamo=dynamo, input_names=["x"], output_names=["y"], **flags)
    return path


def trainer_of(path, folder, **flags):
    return mpt.Trainer(mpt.compile(path, out=folder / "lib", loss="mse", optimizer="sgd,lr=0.1", **flags), threads=1)


def feed_of(trainer, x, y):
    target = torch.randn(y.shape, generator=torch.Generator().manual_seed(3))
    name, = (n for n in trainer.inputs("gradients") if n not in ("x", "learning_rate"))
    return target, {"x": x.numpy(), name: target.numpy()}


def compare(module, trainer, x):
    """Each gradient of autograd's is one of the trainer's, and the other way round."""
    y = module(x)
    target, feed = feed_of(trainer, x, y)
    ((y - target) ** 2).mean().backward()
    want = {n: np.sort(p.grad.numpy()[np.abs(p.grad.numpy()) > 0]) for n, p in module.named_parameters()}
    got = {n: np.sort(g[np.abs(g) > 0]) for n, g in trainer.gradients(feed)[1].items()}
    same = lambda a, b: a.size == b.size and np.allclose(a, b, rtol=1e-3, atol=1e-5)
    for name, value in want.items():
        assert any(same(value, g) for g in got.values()), (name, {k: v.shape for k, v in got.items()})
    assert len(got) == len(want)
    return feed


def runs_as_trained(path, trainer, x):
    onnx.checker.check_model(onnx.load(path), full_check=True)
    session = runtime.InferenceSession(str(path), providers=["CPUExecutionProvider"])
    np.testing.assert_allclose(session.run(None, {"x": x.numpy()})[0], trainer.run("predict", {"x": x.numpy()})["y"], rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("dynamo", [False, True])
@pytest.mark.parametrize("kind", MODULES)
def test_copies_follow_what_they_are_of(kind, dynamo, tmp_path):
    torch.manual_seed(0)
    module, x = MODULES[kind]()
    trainer = trainer_of(export(module.eval(), x, tmp_path / "m.onnx", dynamo), tmp_path)
    feed = compare(module, trainer, x)
    trainer.step(feed)
    trainer.save_onnx(tmp_path / "saved.onnx")
    runs_as_trained(tmp_path / "saved.onnx", trainer, x)
    # By the compiler, of a state; and it trains on from there.
    trainer.save(str(tmp_path / "state.safetensors"))
    subprocess.run([OPT, tmp_path / "m.onnx", f"--state={tmp_path}/state.safetensors", "--emit=onnx", "-o", tmp_path / "by.onnx"], check=True)
    runs_as_trained(tmp_path / "by.onnx", trainer, x)
    again = trainer_of(tmp_path / "by.onnx", tmp_path / "again")
    np.testing.assert_allclose(again.run("predict", {"x": x.numpy()})["y"], trainer.run("predict", {"x": x.numpy()})["y"], rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("bias", [False, True])
def test_a_first_step_of_zeros_has_the_layers_bias(bias, tmp_path):
    torch.manual_seed(0)
    module = Recurrent(bias).eval()
    trainer = trainer_of(export(module, STEPS, tmp_path / "m.onnx", True), tmp_path)
    compare(module, trainer, STEPS)
    if not bias:
        assert set(trainer.trained()["held"]) == {"linear_1"}


def test_a_module_that_is_applied_twice_is_one(tmp_path):
    torch.manual_seed(0)
    inner = nn.Linear(8, 8)
    module = nn.Sequential(inner, nn.Tanh(), inner).eval()
    x = torch.randn(2, 3, 8)
    compare(module, trainer_of(export(module, x, tmp_path / "m.onnx", False), tmp_path), x)


@pytest.mark.parametrize("dynamo", [False, True])
def test_half_precision_and_data_beside_the_file(dynamo, tmp_path):
    torch.manual_seed(0)
    path = export(Tied().half().eval(), IDS, tmp_path / "m.onnx", dynamo)
    model = onnx.load(path)
    for value in (*model.graph.output, *model.graph.value_info):
        assert value.type.tensor_type.elem_type != onnx.TensorProto.FLOAT
    onnx.save(model, path, save_as_external_data=True, location="m.data", size_threshold=0)
    trainer = trainer_of(path, tmp_path)
    assert len(trainer.parameters(trained=True)) == 3 and trainer.manifest["joined"]
    trainer.save_onnx(tmp_path / "saved.onnx")
    for before, after in zip(onnx.load(path).graph.initializer, onnx.load(tmp_path / "saved.onnx").graph.initializer):
        np.testing.assert_array_equal(numpy_helper.to_array(before), numpy_helper.to_array(after))


def matrices(a, b, path, names=("a", "b"), producer=""):
    model = onnx.parser.parse_model('<ir_version: 8, opset_import: ["": 17]> g (float[4,6] x) => (float[4,6] y) { h = MatMul(x, a) t = Tanh(h) y = MatMul(t, b) }')
    for node in model.graph.node:
        node.input[:] = [dict(zip("ab", names)).get(n, n) for n in node.input]
    model.graph.initializer.extend(numpy_helper.from_array(np.asarray(v, np.float32), n) for v, n in zip((a, b), names))
    model.producer_name = producer
    onnx.save(model, path)
    return path


W = np.random.default_rng(5).standard_normal((6, 6))


@pytest.mark.parametrize("a, b, names, producer, tensors", [
    (W, W.T, ("a", "b"), "", 1), (W, W.T, ("enc.weight", "onnx::MatMul_9"), "pytorch", 1), (W, W.T, ("enc.weight", "dec.weight"), "pytorch", 2),
    (W, W.T, ("enc.weight", "dec.weight"), "", 2), (W + W.T, W + W.T, ("a", "b"), "", 2), (np.eye(6), np.eye(6), ("a", "b"), "", 2),
    (np.zeros((6, 6)), np.zeros((6, 6)), ("a", "b"), "", 2), (W > 0, (W > 0).T, ("a", "b"), "", 2), (W, W.T + 1e-6, ("a", "b"), "", 2)])
def test_equal_by_accident_stay_apart(a, b, names, producer, tensors, tmp_path):
    trainer = trainer_of(matrices(a, b, tmp_path / "m.onnx", names, producer), tmp_path)
    assert len(trainer.parameters(trained=True)) == tensors


def test_the_line_says_so(tmp_path):
    run = subprocess.run([OPT, matrices(W, W.T, tmp_path / "m.onnx"), "--loss=mse", "--optimizer=sgd", "-o", tmp_path / "lib"], capture_output=True, text=True)
    assert "1 tensor of the file follows another, as a transposed, repeated or partial copy" in run.stderr
