# SPDX-License-Identifier: Apache-2.0
"""Parameters that torch's second exporter has folded or dropped by default: exp(t), zero biases, scales in other places. They train, with
autograd's gradients, and leave in the saved file; where folding cannot be undone, by either exporter, the compiler says so."""
import contextlib
import io
import warnings

import numpy as np
import onnx
import pytest

import mpt

torch = pytest.importorskip("torch")
runtime = pytest.importorskip("onnxruntime")
from torch import nn  # noqa: E402
from torch.nn import functional as F  # noqa: E402

DRAW = torch.Generator().manual_seed(3)
WORDS = [torch.randn(6, 16, generator=DRAW)]
IMAGES = [torch.randn(2, 3, 9, 9, generator=DRAW)]


class Contrastive(nn.Module):
    """The logit scale of CLIP, two gates and no other use of the three."""

    def __init__(self):
        super().__init__()
        self.a, self.b = nn.Linear(16, 8), nn.Linear(16, 8)
        self.logit_scale, self.gate = nn.Parameter(torch.tensor(2.6593)), nn.Parameter(torch.tensor([0.3, -0.2, 0.1, 0.7] * 2))
        self.mix = nn.Parameter(torch.tensor(-0.4))

    def forward(self, x):
        a = F.normalize(self.a(x), dim=-1) * torch.sigmoid(self.gate)
        return self.logit_scale.exp() * a @ F.normalize(self.b(x), dim=-1).T * torch.tanh(self.mix)


class Biases(nn.Module):
    """Layers whose biases begin at zero, one of them run twice."""

    def __init__(self):
        super().__init__()
        self.first, self.again = nn.Conv2d(3, 4, 3), nn.Conv2d(4, 4, 3, padding=1, groups=2)
        self.up, self.head = nn.ConvTranspose2d(4, 6, 2, groups=2), nn.Linear(6, 2)
        for layer in (self.first, self.again, self.up, self.head):
            nn.init.zeros_(layer.bias)

    def forward(self, x):
        h = torch.relu(self.again(torch.relu(self.again(torch.tanh(self.first(x))))))
        return self.head(torch.relu(self.up(h)).mean((2, 3)))


class Norms(nn.Module):
    """Batch norms that the exporter folds into convolutions: their scale is gone, their zero shift is not."""

    def __init__(self):
        super().__init__()
        self.conv, self.bn = nn.Conv2d(3, 4, 3, bias=False), nn.BatchNorm2d(4)
        self.plain, self.last = nn.Conv2d(4, 4, 1, bias=False), nn.Sequential(nn.Conv2d(4, 2, 3), nn.BatchNorm2d(2))
        nn.init.zeros_(self.last[0].bias)

    def forward(self, x):
        return self.last(self.plain(torch.relu(self.bn(self.conv(x)))))


class Scales(nn.Module):
    """Scales of channels behind pooling, as PoolFormer has them."""

    def __init__(self):
        super().__init__()
        self.stem, self.head = nn.Conv2d(3, 4, 1), nn.Linear(4, 2)
        self.scales = nn.ParameterList(nn.Parameter(torch.full((4,), 1e-2)) for _ in range(2))

    def forward(self, x):
        h = self.stem(x)
        for scale in self.scales:
            h = h + scale.view(-1, 1, 1) * (F.avg_pool2d(h, 3, 1, 1, count_include_pad=False) - h)
        return self.head(h.mean((2, 3)))


class Told(nn.Module):
    """Folding that cannot be undone: a mixture by softmax, and norms of a codebook that trains."""

    def __init__(self):
        super().__init__()
        self.enc, self.alpha, self.book = nn.Linear(16, 8), nn.Parameter(torch.randn(2, generator=DRAW)), nn.Embedding(12, 8)

    def forward(self, x):
        mix = torch.softmax(self.alpha, 0)
        z = mix[0] * self.enc(x) + mix[1] * torch.tanh(self.enc(x))
        nearest = (self.book.weight.pow(2).sum(-1) - 2 * z @ self.book.weight.T).argmin(-1)
        return self.book(nearest) + z


def exported(module, inputs, path, **options):
    with contextlib.redirect_stdout(io.StringIO()), contextlib.redirect_stderr(io.StringIO()), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        torch.onnx.export(module.eval(), tuple(inputs), path, input_names=["x"], output_names=["y"], dynamo=True, **options)


@pytest.mark.parametrize("make, inputs", [(Contrastive, WORDS), (Biases, IMAGES), (Norms, IMAGES), (Scales, IMAGES)])
def test_trains_and_leaves(make, inputs, tmp_path):
    torch.manual_seed(1)
    module = make()
    exported(module, inputs, tmp_path / "model.onnx")
    with warnings.catch_warnings():
        warnings.simplefilter("error", mpt.CompileWarning)
        library = mpt.compile(tmp_path / "model.onnx", loss="mse", optimizer="sgd,lr=0.1", out=tmp_path / "library")
    result = module(*inputs)
    target = result.detach() + torch.randn(result.shape, generator=DRAW)
    F.mse_loss(result, target).backward()
    feed = {"x": inputs[0].numpy(), "y_target": target.numpy()}
    with mpt.Trainer(library, threads=1) as trainer:
        feed = {name: feed["x" if name == "x" else "y_target"] for name in trainer.inputs("step") if name != "learning_rate"}
        gradients = trainer.gradients(feed)[1]
        gone = {"bn.weight", "last.0.bias", "last.1.weight"} if make is Norms else set()  # of a bias and a shift one is left
        wanted = [p.grad.double().numpy() for name, p in module.named_parameters() if name not in gone]
        assert sum(g.size for g in gradients.values()) == sum(w.size for w in wanted)
        named = dict(module.named_parameters())
        for name in gradients.keys() & named.keys():
            right = named[name].grad.double().numpy()
            got = gradients[name].reshape(right.shape) if gradients[name].shape != right.T.shape else gradients[name].T.reshape(right.shape)
            assert np.abs(got - right).max() <= 1e-4 * np.abs(right).max() + 1e-6, name
        for _ in range(3):
            trainer.step(feed)
        trainer.save_onnx(tmp_path / "trained.onnx")
        predicted = trainer.run("predict", {"x": inputs[0].numpy()})["y"]
    onnx.checker.check_model(onnx.load(tmp_path / "trained.onnx"), full_check=True)
    served = runtime.InferenceSession(tmp_path / "trained.onnx").run(None, {"x": inputs[0].numpy()})[0]
    assert np.abs(served - predicted).max() <= 1e-4 * np.abs(predicted).max()
    assert np.abs(served - result.detach().numpy()).max() > 1e-3 * np.abs(predicted).max()


def test_says_what_cannot_be_undone(tmp_path):
    torch.manual_seed(1)
    module = Told()
    exported(module, WORDS, tmp_path / "model.onnx")
    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always")
        mpt.compile(tmp_path / "model.onnx", loss="mse", optimizer="sgd,lr=0.1", out=tmp_path / "library")
        text = " ".join(str(each.message) for each in said)
        assert "'alpha': of these parameters" in text and "computed from 'book.weight'" in text and "optimize=False" in text
        said.clear()
        mpt.compile(tmp_path / "model.onnx", forward_only=True, out=tmp_path / "forward")
        exported(module, WORDS, tmp_path / "whole.onnx", optimize=False)
        mpt.compile(tmp_path / "whole.onnx", loss="mse", optimizer="sgd,lr=0.1", out=tmp_path / "whole")
        assert not any("exporter" in str(each.message) for each in said)


class Cosine(nn.Module):
    """Norms along each axis, of which torch's first exporter folds both up to opset 17."""

    def __init__(self):
        super().__init__()
        self.net, self.first, self.second = nn.Linear(16, 8), nn.Parameter(torch.randn(10, 8, generator=DRAW)), nn.Parameter(torch.randn(10, 4, generator=DRAW))

    def forward(self, x):
        h = F.normalize(torch.relu(self.net(x))) @ F.normalize(self.first).T
        return h @ F.normalize(self.second, p=1, dim=0)


@pytest.mark.parametrize("opset", [17, 18])
def test_says_that_norms_are_folded(opset, tmp_path):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        torch.onnx.export(Cosine(), tuple(WORDS), tmp_path / "model.onnx", input_names=["x"], output_names=["y"], dynamo=False, opset_version=opset)
    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always")
        mpt.compile(tmp_path / "model.onnx", loss="mse", optimizer="sgd,lr=0.1", out=tmp_path / "library")
        text = " ".join(str(each.message) for each in said)
        found = [name for name in ("first", "second") if f"'{name}' trains, and is divided by numbers that the exporter has computed as its norms" in text]
        assert found == (["first", "second"] if opset == 17 else []) and ("do_constant_folding=False" in text) == (opset == 17), text
        said.clear()
        mpt.compile(tmp_path / "model.onnx", loss="mse", optimizer="sgd,lr=0.1", freeze="first|second", out=tmp_path / "frozen")
        assert not said
