# SPDX-License-Identifier: Apache-2.0
"""Weights and optimizer state under PyTorch's names, both ways and exact, for modules of many kinds."""
import json
import subprocess
import sys
import warnings

import numpy as np
import onnx
import pytest

import mpt

torch = pytest.importorskip("torch")
pytestmark = pytest.mark.slow
nn = torch.nn


class Tied(nn.Module):
    def __init__(self):
        super().__init__()
        self.embedding, self.head, self.unused = nn.Embedding(11, 8), nn.Linear(8, 11, bias=False), nn.Linear(2, 2)
        self.head.weight = self.embedding.weight
        self.register_buffer("places", torch.arange(5))
        self.register_buffer("scale", torch.tensor(2.0))
        self.register_buffer("gone", torch.ones(3), persistent=False)

    def forward(self, x):
        return self.head(self.embedding((x + self.places) % 11) * self.scale)


class Recurrent(nn.Module):
    def __init__(self, kind):
        super().__init__()
        self.rnn, self.out = kind(4, 6, 2, batch_first=True, bidirectional=True), nn.Linear(12, 3)

    def forward(self, x):
        return self.out(self.rnn(x)[0])


class Attention(nn.Module):
    def __init__(self):
        super().__init__()
        self.norm, self.attention = nn.LayerNorm(8), nn.MultiheadAttention(8, 2, batch_first=True)

    def forward(self, x):
        x = self.norm(x)
        return self.attention(x, x, x)[0]


class Transposed(nn.Module):
    def __init__(self):
        super().__init__()
        self.first, self.second = nn.Linear(4, 6, bias=False), nn.Parameter(torch.randn(3, 6))

    def forward(self, x):
        return nn.functional.linear(x, self.first.weight.t().t()) @ self.second.t()


class Counted(nn.Module):
    """A batch norm that has counted before, and a module with a state of its own."""

    def __init__(self):
        super().__init__()
        self.first, self.norm, self.seen = nn.Linear(4, 3), nn.BatchNorm1d(3), {"classes": ["a", "b"], "rate": 0.5}
        self.norm.num_batches_tracked += 7

    def forward(self, x):
        return self.norm(self.first(x))

    def get_extra_state(self):
        return self.seen

    def set_extra_state(self, state):
        self.seen = state


class Shared(nn.Module):
    def __init__(self):
        super().__init__()
        self.one = nn.Linear(4, 4)
        self.two = self.one
        self.row = nn.Sequential(self.one, nn.ReLU(), self.two)

    def forward(self, x):
        return self.row(x)


def convolution():
    return nn.Sequential(nn.Conv2d(3, 4, 3, bias=False), nn.BatchNorm2d(4), nn.ReLU(), nn.ConvTranspose2d(4, 2, 3), nn.Flatten(), nn.Linear(128, 3))


def old_weight_norm():
    with warnings.catch_warnings(action="ignore"):
        module = nn.Sequential(nn.utils.weight_norm(nn.Linear(4, 3)), nn.PReLU())
    module(torch.randn(2, 4))  # leaves a weight that was computed
    return module


def frozen():
    module = nn.Sequential(nn.Linear(4, 5), nn.Tanh(), nn.Linear(5, 3))
    module[0].weight.requires_grad_(False)
    return module


MODULES = {
    "tied": (Tied, lambda: torch.randint(0, 11, (2, 5))),
    "lstm": (lambda: Recurrent(nn.LSTM), lambda: torch.randn(2, 5, 4)),
    "gru": (lambda: Recurrent(nn.GRU), lambda: torch.randn(2, 5, 4)),
    "convolution": (convolution, lambda: torch.randn(4, 3, 8, 8)),
    "attention": (Attention, lambda: torch.randn(2, 5, 8)),
    "transposed": (Transposed, lambda: torch.randn(4, 4)),
    "shared": (Shared, lambda: torch.randn(4, 4)),
    "group_norm": (lambda: nn.Sequential(nn.Conv1d(4, 4, 3), nn.GroupNorm(2, 4), nn.GELU(), nn.Conv1d(4, 2, 3)), lambda: torch.randn(2, 4, 9)),
    "weight_norm": (lambda: nn.Sequential(nn.utils.parametrizations.weight_norm(nn.Linear(4, 3)), nn.PReLU()), lambda: torch.randn(4, 4)),
    "old_weight_norm": (old_weight_norm, lambda: torch.randn(4, 4)),
    "counted": (Counted, lambda: torch.randn(4, 4)),
    "frozen": (frozen, lambda: torch.randn(4, 4)),
    "double": (lambda: nn.Sequential(nn.Linear(4, 3), nn.BatchNorm1d(3)).double(), lambda: torch.randn(4, 4, dtype=torch.float64)),
    "bfloat": (lambda: nn.Sequential(nn.Linear(4, 3), nn.Tanh(), nn.Linear(3, 2)).bfloat16(), lambda: torch.randn(4, 4).bfloat16()),
}


def compiled(kind, folder, policy="fp32", optimizer="adamw,lr=0.01"):
    torch.manual_seed(0)
    make, data = MODULES[kind]
    module = make()
    mpt.compile(module, inputs=(data(),), input_names=["x"], loss="mse", optimizer=optimizer, policy=policy, out=folder)
    return module, mpt.Trainer(folder, threads=1)


def batch(kind, trainer, step):
    torch.manual_seed(step + 1)
    made = {"x": MODULES[kind][1]()}
    for name, (kind_, shape) in trainer.inputs("step").items():
        if name not in ("x", "learning_rate"):
            made[name] = torch.randn(shape).to(getattr(torch, kind_))
    return made


def assert_equal(one: dict, other: dict):
    assert list(one) == list(other)
    for name, value in one.items():
        if isinstance(value, dict):
            assert value == other[name], name
        else:
            assert value.dtype == other[name].dtype and torch.equal(value, other[name]), name


@pytest.mark.parametrize("policy", ["fp32", "amp-f16"])
@pytest.mark.parametrize("kind", MODULES)
def test_round_trip(kind, policy, tmp_path):
    if policy == "amp-f16" and kind == "double":
        pytest.skip("FP64 stays FP64")
    module, trainer = compiled(kind, tmp_path / "lib", policy)
    assert_equal(trainer.state_dict(), module.state_dict())
    skipped = [trainer.step(batch(kind, trainer, step)).skipped for step in range(40)]
    assert not any(skipped) or policy == "amp-f16"  # where the first ones find the loss scale
    trained = trainer.state_dict()
    before = {name: value.clone() if isinstance(value, torch.Tensor) else value for name, value in module.state_dict().items()}
    module.load_state_dict(trained)
    assert_equal(module.state_dict(), trained)
    changed = {name for name, value in trained.items() if isinstance(value, torch.Tensor) and not torch.equal(value, before[name])}
    assert changed >= {name for name, p in module.named_parameters() if p.requires_grad and "unused" not in name}
    made = int(trainer.state()["mpt.step"])
    counted = 7 if kind == "counted" else 0
    assert all(int(trained[name]) - counted == made > 20 for name in trained if name.endswith("num_batches_tracked"))
    # Another trainer goes on from them as this one does from its own.
    other = mpt.Trainer(tmp_path / "lib", threads=1)
    assert other.load_state_dict(module.state_dict()) == ([], [])
    assert_equal(other.state_dict(), trained)
    inputs = {"x": batch(kind, trainer, 9)["x"]}
    one, two = (next(iter(t.evaluate(inputs).values())) for t in (trainer, other))
    np.testing.assert_array_equal(np.asarray(one), np.asarray(two))
    with torch.no_grad():
        expected = module.eval()(inputs["x"]).double().numpy()
    tolerance = 5e-2 if kind == "bfloat" else 1e-5 if policy == "fp32" else 2e-2
    np.testing.assert_allclose(np.asarray(one, np.float64), expected, rtol=tolerance, atol=tolerance)


OPTIMIZERS = {
    "sgd": ("sgd,lr=0.05,momentum=0.9,dampening=0.1,weight-decay=0.01", lambda p: torch.optim.SGD(p, 0.05, 0.9, 0.1, 0.01)),
    "nesterov": ("sgd,lr=0.05,momentum=0.9,nesterov=true", lambda p: torch.optim.SGD(p, 0.05, 0.9, nesterov=True)),
    "plain": ("sgd,lr=0.05", lambda p: torch.optim.SGD(p, 0.05)),
    "adam": ("adam,lr=0.01,weight-decay=0.1,eps=1e-6", lambda p: torch.optim.Adam(p, 0.01, weight_decay=0.1, eps=1e-6)),
    "adamw": ("adamw,lr=0.01,betas=0.8:0.95", lambda p: torch.optim.AdamW(p, 0.01, (0.8, 0.95))),
}


def torch_steps(module, optimizer, batches):
    for inputs in batches:
        optimizer.zero_grad()
        nn.functional.mse_loss(module(inputs["x"]), inputs["target"]).backward()
        optimizer.step()


def assert_close(one: dict, other: dict):
    for name, value in one.items():
        # BatchNormalization of ONNX averages the variance of the rows, torch an estimate of it that is n / (n - 1) times as large.
        rtol = 8e-3 if name.endswith("running_var") else 2e-5
        torch.testing.assert_close(value, other[name], rtol=rtol, atol=2e-6, msg=lambda m, name=name: f"{name}: {m}")


@pytest.mark.parametrize("kind", ["convolution", "shared", "tied", "frozen"])
@pytest.mark.parametrize("name", OPTIMIZERS)
def test_optimizer_state(kind, name, tmp_path):
    """Steps here, then in torch, then here again, beside torch's alone."""
    module, trainer = compiled(kind, tmp_path / "lib", optimizer=OPTIMIZERS[name][0])
    make = OPTIMIZERS[name][1]
    reference = MODULES[kind][0]()
    reference.load_state_dict(module.state_dict())
    whole = make(reference.parameters())
    batches = [batch(kind, trainer, step) for step in range(9)]
    for inputs in batches[:3]:
        trainer.step(inputs)
    module.load_state_dict(trainer.state_dict())
    optimizer = make(module.parameters())
    optimizer.load_state_dict(trainer.optimizer_state_dict())
    torch_steps(reference, whole, batches[:3])
    assert_close(module.state_dict(), reference.state_dict())
    torch_steps(module, optimizer, batches[3:6])
    torch_steps(reference, whole, batches[3:6])
    assert_close(module.state_dict(), reference.state_dict())
    back = mpt.Trainer(tmp_path / "lib", threads=1)
    back.load_state_dict(module.state_dict())
    back.load_optimizer_state_dict(optimizer.state_dict())
    for inputs in batches[6:]:
        back.step(inputs)
    torch_steps(reference, whole, batches[6:])
    assert_close(back.state_dict(), reference.state_dict())
    # The loaded state comes out again.
    again = mpt.Trainer(tmp_path / "lib", threads=1)
    again.load_optimizer_state_dict(back.optimizer_state_dict())
    for number, slots in back.optimizer_state_dict()["state"].items():
        for slot, value in slots.items():
            assert torch.equal(value, again.optimizer_state_dict()["state"][number][slot])


def test_groups_and_names(tmp_path):
    """Groups by name, as optimizers of named_parameters() have them, in an order of torch's own."""
    torch.manual_seed(0)
    module = nn.Sequential(nn.Linear(4, 5), nn.Linear(5, 3))
    mpt.compile(module, inputs=(torch.randn(4, 4),), input_names=["x"], loss="mse", out=tmp_path / "lib",
                optimizer=["adamw,lr=0.01,weight-decay=0.1", "adamw,lr=0.002,weight-decay=0,params=.*bias"])
    trainer = mpt.Trainer(tmp_path / "lib", threads=1)
    named = dict(module.named_parameters())
    make = lambda: torch.optim.AdamW([
        {"params": [(n, p) for n, p in named.items() if "bias" in n], "lr": 0.002, "weight_decay": 0.0},
        {"params": [(n, p) for n, p in reversed(named.items()) if "weight" in n], "lr": 0.01, "weight_decay": 0.1}])
    optimizer = make()
    rng = np.random.default_rng(0)
    batches = [{"x": torch.from_numpy(rng.standard_normal((4, 4), np.float32)),
                "target": torch.from_numpy(rng.standard_normal((4, 3), np.float32))} for _ in range(6)]
    torch_steps(module, optimizer, batches[:3])
    trainer.load_state_dict(module.state_dict())
    trainer.load_optimizer_state_dict(optimizer.state_dict())
    for inputs in batches[3:]:
        trainer.step(inputs)
    torch_steps(module, optimizer, batches[3:])
    assert_close(trainer.state_dict(), module.state_dict())
    assert [group["param_names"] for group in trainer.optimizer_state_dict()["param_groups"]] == [
        ["0.weight", "1.weight"], ["0.bias", "1.bias"]]


def test_safetensors(tmp_path):
    module, trainer = compiled("tied", tmp_path / "lib", "amp-bf16")
    trainer.step(batch("tied", trainer, 0))
    trainer.save_safetensors(tmp_path / "model.safetensors")
    raw = (tmp_path / "model.safetensors").read_bytes()
    header = json.loads(raw[8:8 + int.from_bytes(raw[:8], "little")])
    assert header["__metadata__"] == {"format": "pt", "head.weight": "embedding.weight"} and "head.weight" not in header
    other = mpt.Trainer(tmp_path / "lib", threads=1)
    other.load_safetensors(tmp_path / "model.safetensors")
    assert_equal(other.state_dict(), trainer.state_dict())
    assert not [path for path in tmp_path.iterdir() if path.name.startswith(".")]
    (tmp_path / "bad").write_bytes(b"no tensors")
    with pytest.raises(ValueError, match="expected a safetensors file"):
        other.load_safetensors(tmp_path / "bad")


@pytest.mark.parametrize("policy", ["fp32", "amp-f16"])
def test_averages(policy, tmp_path):
    torch.manual_seed(0)
    module = convolution()
    mpt.compile(module, inputs=(torch.randn(4, 3, 8, 8),), input_names=["x"], loss="mse", optimizer="sgd,lr=0.05", policy=policy, ema=0.5,
                out=tmp_path / "lib")
    trainer = mpt.Trainer(tmp_path / "lib", threads=1)
    for step in range(20):
        trainer.step(batch("convolution", trainer, step))
    plain, averages = trainer.state_dict(), trainer.state_dict(averaged=True)
    parameters = {name for name, _ in module.named_parameters()}
    assert list(plain) == list(averages) == list(module.state_dict())
    assert {name for name in plain if not torch.equal(plain[name], averages[name])} == parameters
    module.load_state_dict(averages)
    inputs = {"x": batch("convolution", trainer, 9)["x"]}
    with torch.no_grad():
        expected = module.eval()(inputs["x"])
    tolerance = 1e-5 if policy == "fp32" else 2e-2
    np.testing.assert_allclose(np.asarray(next(iter(trainer.run("predict_ema", inputs).values()))), expected, rtol=tolerance, atol=tolerance)
    trainer.save_safetensors(tmp_path / "averages", averaged=True)
    other = mpt.Trainer(tmp_path / "lib", threads=1)
    other.load_safetensors(tmp_path / "averages")
    assert_equal(other.state_dict(), averages)
    _, without = compiled("frozen", tmp_path / "plain")
    for call in (without.state_dict, lambda **averaged: without.save_safetensors(tmp_path / "none", **averaged)):
        with pytest.raises(ValueError, match="expected averages of parameters, got model 'sequential' without: compile it with ema"):
            call(averaged=True)
    assert not (tmp_path / "none").exists()


def test_extra_state(tmp_path):
    """Extra state of JSON types comes back as it was; other types cause a warning, and the module then loads with strict=False alone."""
    module, trainer = compiled("counted", tmp_path / "lib")
    changed = module.state_dict() | {"_extra_state": {"classes": ["c"], "rate": 1.5}}
    assert trainer.load_state_dict(changed) == ([], []) and trainer.state_dict()["_extra_state"] == {"classes": ["c"], "rate": 1.5}
    without = {name: value for name, value in changed.items() if name != "_extra_state"}
    with pytest.raises(ValueError, match="none for _extra_state"):
        trainer.load_state_dict(without)
    module.seen = {1: (2, 3)}  # keys that are texts, and no tuples, would come back
    with pytest.warns(mpt.CompileWarning, match="expected tensors, numbers, .* of get_extra_state, got others for _extra_state"):
        mpt.compile(module, inputs=(torch.randn(4, 4),), input_names=["x"], loss="mse", out=tmp_path / "other")
    other = mpt.Trainer(tmp_path / "other", threads=1)
    assert "_extra_state" not in other.state_dict()
    assert module.load_state_dict(other.state_dict(), strict=False).missing_keys == ["_extra_state"]
    assert other.load_state_dict(module.state_dict()) == ([], [])


def test_onnx_file_without_torch(tmp_path):
    """Of a file, its tensors' names; numpy arrays where torch is not installed."""
    model = onnx.parser.parse_model("""<ir_version: 9, opset_import: ["" : 18]>
      net (float[4, 3] x) => (float[4, 2] y) { y = Gemm<transB = 1>(x, weight, bias) }""")
    values = {"weight": np.random.default_rng(0).standard_normal((2, 3)).astype(np.float32), "bias": np.ones(2, np.float32)}
    model.graph.initializer.extend(onnx.numpy_helper.from_array(value, name) for name, value in values.items())
    onnx.save(model, tmp_path / "net.onnx")
    mpt.compile(tmp_path / "net.onnx", loss="mse", optimizer="sgd,momentum=0.9", policy="amp-bf16", out=tmp_path / "lib")
    program = f"""
import sys
sys.modules["torch"] = None
sys.path[:0] = {sys.path!r}
import mpt, numpy as np
mpt.use_build({str(mpt._native._build)!r}) if {mpt._native._build is not None} else None
trainer = mpt.Trainer({str(tmp_path / "lib")!r}, threads=1)
state = trainer.state_dict()
assert list(state) == ["weight", "bias"] and all(type(value) is np.ndarray for value in state.values()), state
trainer.step({{"x": np.ones((4, 3), np.float32), "target": np.zeros((4, 2), np.float32)}})
moved, optimizer = trainer.state_dict(), trainer.optimizer_state_dict()
assert not np.array_equal(moved["weight"], state["weight"]) and set(optimizer["state"][0]) == {{"momentum_buffer"}}
trainer.load_state_dict(state)
np.testing.assert_array_equal(trainer.state_dict()["weight"], state["weight"])
trainer.load_optimizer_state_dict(optimizer)
trainer.save_safetensors({str(tmp_path / "out")!r})
trainer.load_state_dict(moved)
trainer.load_safetensors({str(tmp_path / "out")!r})
np.testing.assert_array_equal(trainer.state_dict()["weight"], state["weight"])
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


def test_refusals(tmp_path):
    module, trainer = compiled("tied", tmp_path / "lib")
    state = trainer.state_dict()
    whole = dict(state)
    for change, text in [
            ({"embedding.weight": state["embedding.weight"] + 1}, "'head.weight': expected the values of 'embedding.weight'"),
            ({"scale": torch.tensor(3.0)}, "'scale': expected the values that the model was compiled with"),
            ({"unused.bias": torch.zeros(3)}, r"'unused.bias': expected shape \(2,\), got \(3,\)"),
            ({"other": torch.zeros(3)}, "unknown ones: other")]:
        with pytest.raises(ValueError, match=text):
            trainer.load_state_dict(whole | change)
        assert_equal(trainer.state_dict(), state)
    short = {name: value for name, value in whole.items() if name not in ("places", "head.weight")}
    with pytest.raises(ValueError, match="none for places"):
        trainer.load_state_dict(short)
    assert trainer.load_state_dict(short | {"other": 1}, strict=False) == (["places"], ["other"])
    optimizer = torch.optim.AdamW(module.parameters(), lr=0.01, betas=(0.5, 0.9))
    with pytest.raises(ValueError, match=r"expected betas .* got \(0.5, 0.9\)"):
        trainer.load_optimizer_state_dict(optimizer.state_dict())
    with pytest.raises(ValueError, match="expected groups of 3 parameters, got 2"):
        trainer.load_optimizer_state_dict(torch.optim.AdamW(list(module.parameters())[:2], lr=0.01).state_dict())
    with pytest.raises(ValueError, match="without amsgrad"):
        trainer.load_optimizer_state_dict(torch.optim.AdamW(module.parameters(), lr=0.01, amsgrad=True).state_dict())
    _, other = compiled("frozen", tmp_path / "lion", optimizer="lion")
    with pytest.raises(ValueError, match="expected a step with sgd, adam or adamw alone, .* got lion"):
        other.optimizer_state_dict()
