# SPDX-License-Identifier: Apache-2.0
"""Exporters' changes of a module's forward pass, undone for training: merged biases and scales, batch norms in inference form."""
import logging

import numpy as np
import onnx
import pytest
from onnx import numpy_helper
from onnx.reference import ReferenceEvaluator

import mpt

RANDOM = np.random.default_rng(11)
ONES, ZEROS = np.ones(6, np.float32), np.zeros(6, np.float32)
HEAD = '<ir_version: 8, opset_import: ["": 17]> g (float[4,6] x) => (float[4,6] y) '
# Two normalizations and two layers whose scales and biases are one tensor each; as an alias of torch's, and applied twice.
BODIES = {
    "direct": """{ [norm1__L] a = LayerNormalization(x, s, b) [fc1__M] c = MatMul(a, w1) [fc1__A] d = Add(c, b) [act__T] t = Tanh(d)
        [norm2__L] e = LayerNormalization(t, s, b) [fc2__M] f = MatMul(e, w2) [fc2__A] y = Add(f, b) }""",
    "alias": """{ s2 = Identity(s) b2 = Identity(b) [norm1__L] a = LayerNormalization(x, s, b) [fc1__M] c = MatMul(a, w1) [act__T] t = Tanh(c)
        [norm2__L] e = LayerNormalization(t, s2, b2) [fc2__M] y = MatMul(e, w2) }""",
    "twice": """{ [norm__L] a = LayerNormalization(x, s, b) [fc1__M] c = MatMul(a, w1) [act__T] t = Tanh(c)
        [norm_1__L] e = LayerNormalization(t, s, b) [fc2__M] y = MatMul(e, w2) }""",
    "one matrix": """{ a = MatMul(x, w1) c = Add(a, b) t = Tanh(c) d = MatMul(t, w1) e = Add(d, b) y = MatMul(e, w2) }""",
}
APART = {"direct": {"norm1.weight", "norm1.bias", "norm2.weight", "norm2.bias", "fc1.bias", "fc2.bias", "fc1.weight", "fc2.weight"},
         "alias": {"norm1.weight", "norm1.bias", "norm2.weight", "norm2.bias", "fc1.weight", "fc2.weight"}}


def model(form, path, scale=ONES, bias=ZEROS):
    m = onnx.parser.parse_model(HEAD + BODIES[form])
    names = {"s": "norm1.weight", "b": "norm1.bias", "s2": "norm2.weight", "b2": "norm2.bias", "w1": "fc1.weight", "w2": "fc2.weight"}
    for node in m.graph.node:
        node.name = "/" + node.name.replace("__", "/") if node.name else ""
        node.input[:] = [names.get(name, name) for name in node.input]
        node.output[:] = [names.get(name, name) for name in node.output]
    values = {"s": scale, "b": bias, "w1": RANDOM.standard_normal((6, 6)), "w2": RANDOM.standard_normal((6, 6))}
    used = {name for node in m.graph.node for name in node.input}
    m.graph.initializer.extend(numpy_helper.from_array(np.asarray(v, np.float32), names[k]) for k, v in values.items() if names[k] in used)
    onnx.save(m, path)
    return path


def trained(path, tmp_path, steps=3, **flags):
    trainer = mpt.Trainer(mpt.compile(path, out=tmp_path / "lib", loss="mse", optimizer="sgd,lr=0.3", **flags), threads=1)
    x = RANDOM.standard_normal(trainer.inputs("step")["x"][1]).astype(np.float32)
    feed = {n: x if n == "x" else RANDOM.standard_normal(shape).astype(np.float32) for n, (_, shape) in trainer.inputs("step").items() if n != "learning_rate"}
    for _ in range(steps):
        trainer.step(feed)
    return trainer, x


@pytest.mark.parametrize("form", APART)
def test_each_layer_has_its_own_again(form, tmp_path, caplog):
    with caplog.at_level(logging.INFO, logger="mpt"):
        trainer, x = trained(model(form, tmp_path / "m.onnx"), tmp_path)
    values = trainer.parameters()
    assert set(values) == APART[form]
    apart = len(values) - (4 if form == "direct" else 4)
    assert f"; {apart} of them the file has as parts of others that began equal (--tie=REGEX" in caplog.text
    for kind in ("weight", "bias"):
        assert not np.array_equal(values[f"norm1.{kind}"], values[f"norm2.{kind}"])
    # The saved file has the trained tensors, each where it is read.
    trainer.save_onnx(tmp_path / "saved.onnx")
    saved = onnx.load(tmp_path / "saved.onnx")
    onnx.checker.check_model(saved, full_check=True)
    want = trainer.run("predict", {"x": x})["y"]
    np.testing.assert_allclose(ReferenceEvaluator(saved).run(None, {"x": x})[0], want, rtol=1e-4, atol=1e-5)
    runtime = pytest.importorskip("onnxruntime")
    session = runtime.InferenceSession(str(tmp_path / "saved.onnx"), providers=["CPUExecutionProvider"])
    np.testing.assert_allclose(session.run(None, {"x": x})[0], want, rtol=1e-4, atol=1e-5)
    # It trains on from there.
    again, _ = trained(tmp_path / "saved.onnx", tmp_path / "again", steps=0)
    np.testing.assert_allclose(again.run("predict", {"x": x})["y"], want, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("form, flags", [("twice", {}), ("one matrix", {}), ("direct", {"tie": ".*"}), ("direct", {"tie": ["norm1.weight", "norm1.b.*"]})])
def test_what_belongs_together_stays(form, flags, tmp_path):
    trainer, x = trained(model(form, tmp_path / "m.onnx"), tmp_path, **flags)
    assert set(trainer.parameters()) <= {"norm1.weight", "norm1.bias", "fc1.weight", "fc2.weight"}


def test_other_values_are_no_accident(tmp_path):
    trainer, _ = trained(model("direct", tmp_path / "m.onnx", scale=np.arange(6), bias=np.arange(6)), tmp_path)
    assert set(trainer.parameters()) == {"norm1.weight", "norm1.bias", "fc1.weight", "fc2.weight"}


def test_a_tie_of_nothing_is_refused(tmp_path):
    with pytest.raises(mpt.CompileError, match="--tie: expected .* got 'norm1.wieght'; near it: 'norm1.weight'"):
        trained(model("direct", tmp_path / "m.onnx"), tmp_path, tie="norm1.wieght")


NORMS = """<ir_version: 7, opset_import: ["": %d]> g (float[8,3,4,4] x) => (float[8,3,4,4] y) {
    [n1__B] a = BatchNormalization<momentum = 0.75>(x, s1, b1, m, v) [n2__B] y = BatchNormalization<momentum = 0.75>(a, s2, b2, m, v) }"""


def norms(opset, path):
    m = onnx.parser.parse_model(NORMS % opset)
    values = {"s1": [1, 2, 3], "b1": [.1, .2, .3], "s2": [2, 1, 2], "b2": [0, 1, 0], "m": [0, 0, 0], "v": [1, 1, 1]}
    m.graph.initializer.extend(numpy_helper.from_array(np.asarray(v, np.float32), k) for k, v in values.items())
    onnx.save(m, path)
    return path


@pytest.mark.parametrize("opset", [9, 13, 14, 17])
def test_batch_norms_train(opset, tmp_path, caplog):
    path = norms(opset, tmp_path / "m.onnx")
    x = (3 + 2 * RANDOM.standard_normal((8, 3, 4, 4))).astype(np.float32)

    def step(**flags):
        trainer = mpt.Trainer(mpt.compile(path, out=tmp_path / "lib", loss="mse", optimizer="sgd,lr=0.1", **flags), threads=1)
        feed = {n: x if n == "x" else np.zeros(shape, np.float32) for n, (_, shape) in trainer.inputs("step").items() if n != "learning_rate"}
        loss = trainer.step(feed).loss
        return trainer, loss
    with caplog.at_level(logging.INFO, logger="mpt"):
        trainer, loss = step(batch_norm="train")
    assert "inference form" not in caplog.text
    mean, var = x.mean((0, 2, 3), dtype=np.float64), x.var((0, 2, 3), dtype=np.float64)
    grow = lambda c: np.asarray(c).reshape(1, 3, 1, 1)
    normal = lambda z, s, b: grow(s) * (z - z.mean((0, 2, 3), keepdims=True)) / np.sqrt(z.var((0, 2, 3), keepdims=True) + 1e-5) + grow(b)
    a = normal(x.astype(np.float64), [1, 2, 3], [.1, .2, .3])
    y = normal(a, [2, 1, 2], [0, 1, 0])
    assert abs(loss - np.mean(y ** 2)) < 1e-4 * loss
    assert set(trainer.parameters()) == {"s1", "b1", "s2", "b2"}
    # Running statistics have the node's momentum, each norm its own, and evaluation reads them.
    moved = [(.25 * mean, .75 + .25 * var), (.25 * a.mean((0, 2, 3)), .75 + .25 * a.var((0, 2, 3)))]
    p = trainer.parameters()
    z = x.astype(np.float64)
    for k, (m, v) in enumerate(moved, 1):
        z = grow(p[f"s{k}"]) * (z - grow(m)) / np.sqrt(grow(v) + 1e-5) + grow(p[f"b{k}"])
    np.testing.assert_allclose(trainer.run("predict", {"x": x})["y"], z, rtol=1e-3, atol=1e-3)
    trainer.save_onnx(tmp_path / "saved.onnx")
    # onnx's evaluator takes a momentum before opset 14 for the training form.
    runtime = pytest.importorskip("onnxruntime")
    session = runtime.InferenceSession(str(tmp_path / "saved.onnx"), providers=["CPUExecutionProvider"])
    np.testing.assert_allclose(session.run(None, {"x": x})[0], z, rtol=1e-3, atol=1e-3)
    caplog.clear()
    with caplog.at_level(logging.INFO, logger="mpt"), pytest.warns(mpt.CompileWarning, match="--batch-norm=train"):
        step()
    assert "2 batch norms in inference form keep their statistics (--batch-norm=train moves them)" in caplog.text


def test_batch_norms_that_are_none(tmp_path):
    with pytest.raises(mpt.CompileError, match="for --batch-norm=train, found none"):
        trained(model("direct", tmp_path / "m.onnx"), tmp_path, batch_norm="train")


class Layers:
    """Two layers of a list that began as copies of one another, in the forms of both of torch's exporters."""

    @staticmethod
    def scoped(module):
        """Metadata of torch.onnx.export's second exporter."""
        return f"['', '{module}', 'linear']"

    @classmethod
    def model(cls, form, path, modules=("layers.0", "layers.1"), second="Gemm"):
        a, b = modules
        body = {"script": f"""{{ w2 = Identity(w) b2 = Identity(b) h = Gemm<transB=1>(x, w, b) t = Tanh(h) y = {second}<transB=1>(t, w2, b2) }}""",
                "dynamo": """{ h = Gemm<transB=1>(x, w, b) t = Tanh(h) y = Gemm<transB=1>(t, w, b) }""",
                "split": """{ m = MatMul(x, w) h = Add(m, b) t = Tanh(h) n = MatMul(t, w) y = Add(n, b) }"""}[form]
        m = onnx.parser.parse_model(HEAD + body)
        names = {"w": f"{a}.weight", "b": f"{a}.bias"} | ({"w2": f"{b}.weight", "b2": f"{b}.bias"} if form == "script" else {})
        half = next(k for k, node in enumerate(m.graph.node) if node.op_type == "Tanh")
        for k, node in enumerate(m.graph.node):
            node.input[:] = [names.get(n, n) for n in node.input]
            node.output[:] = [names.get(n, n) for n in node.output]
            if form != "script":
                node.metadata_props.add(key="pkg.torch.onnx.name_scopes", value=cls.scoped(a if k <= half else b))
        values = {"w": RANDOM.standard_normal((6, 6)), "b": RANDOM.standard_normal(6)}
        m.graph.initializer.extend(numpy_helper.from_array(v.astype(np.float32), names[k]) for k, v in values.items())
        onnx.save(m, path)
        return path


@pytest.mark.parametrize("form", ["script", "dynamo", "split"])
def test_copied_layers_train_apart(form, tmp_path, caplog):
    with caplog.at_level(logging.INFO, logger="mpt"):
        trainer, x = trained(Layers.model(form, tmp_path / "m.onnx"), tmp_path)
    values = trainer.parameters(trained=True)
    assert set(values) == {f"layers.{k}.{kind}" for k in (0, 1) for kind in ("weight", "bias")}
    assert "2 of them the file has as parts of others that began equal" in caplog.text
    for kind in ("weight", "bias"):
        assert not np.array_equal(values[f"layers.0.{kind}"], values[f"layers.1.{kind}"])
    trainer.save_onnx(tmp_path / "saved.onnx")
    saved = onnx.load(tmp_path / "saved.onnx")
    onnx.checker.check_model(saved, full_check=True)
    want = trainer.run("predict", {"x": x})["y"]
    np.testing.assert_allclose(ReferenceEvaluator(saved).run(None, {"x": x})[0], want, rtol=1e-4, atol=1e-5)
    again, _ = trained(tmp_path / "saved.onnx", tmp_path / "again", steps=0)
    assert len(again.parameters(trained=True)) == 4


@pytest.mark.parametrize("modules, warns", [(("encoder", "decoder"), True), (("layer", "layer@1"), False), (("layer", "layer"), False)])
def test_a_matrix_of_two_modules_stays_and_is_told(modules, warns, tmp_path, recwarn):
    path = Layers.model("dynamo", tmp_path / "m.onnx", modules)
    trainer, _ = trained(path, tmp_path)
    assert len(trainer.parameters(trained=True)) == 2
    said = [str(w.message) for w in recwarn if "trains as one tensor of the layers" in str(w.message)]
    assert len(said) == warns
    if warns:
        assert "encoder, decoder, and 1 more do so" in said[0] and "--tie='encoder.weight|...'" in said[0]
        recwarn.clear()
        trained(path, tmp_path / "tied", tie="encoder.*")
        assert not [w for w in recwarn if "trains as one tensor" in str(w.message)]


@pytest.mark.parametrize("form", ["frozen", "train"])
@pytest.mark.parametrize("dynamo", [False, True])
def test_fresh_norms_have_scales_beside_statistics(dynamo, form, tmp_path):
    """New scales and variances are ones, new biases and means zeros: exporters keep one tensor of each."""
    torch = pytest.importorskip("torch")
    layers = [part for _ in range(2) for part in (torch.nn.Linear(6, 6), torch.nn.ReLU(), torch.nn.BatchNorm1d(6))]
    module = torch.nn.Sequential(*layers, torch.nn.Linear(6, 6)).eval()
    torch.onnx.export(module, (torch.zeros(4, 6),), tmp_path / "m.onnx", dynamo=dynamo, input_names=["x"], output_names=["y"])
    assert len(onnx.load(tmp_path / "m.onnx").graph.initializer) == 8
    trainer, x = trained(tmp_path / "m.onnx", tmp_path, batch_norm=form)
    assert set(trainer.parameters()) == {name for name, _ in module.named_parameters()}
    trainer.save_onnx(tmp_path / "saved.onnx")
    onnx.checker.check_model(onnx.load(tmp_path / "saved.onnx"), full_check=True)
    runtime = pytest.importorskip("onnxruntime")
    session = runtime.InferenceSession(str(tmp_path / "saved.onnx"), providers=["CPUExecutionProvider"])
    np.testing.assert_allclose(session.run(None, {session.get_inputs()[0].name: x})[0], trainer.run("predict", {"x": x})["y"], rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("dynamo", [False, True])
def test_filters_of_zeros_are_each_layers_own(dynamo, tmp_path):
    """Blocks whose last norm has a scale of zeros leave filters of zeros, which exporters merge."""
    torch = pytest.importorskip("torch")

    class Block(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.conv, self.norm, self.last, self.zero = torch.nn.Conv2d(4, 4, 3, padding=1), torch.nn.BatchNorm2d(4), torch.nn.Conv2d(4, 4, 1), torch.nn.BatchNorm2d(4)
            torch.nn.init.zeros_(self.zero.weight)

        def forward(self, x):
            return torch.relu(x + self.zero(self.last(torch.relu(self.norm(self.conv(x))))))

    torch.manual_seed(0)
    module = torch.nn.Sequential()
    for name in ("first", "second", "third"):  # numbers would tell them apart
        module.add_module(name, Block())
    torch.onnx.export(module.eval(), (torch.zeros(2, 4, 5, 5),), tmp_path / "m.onnx", dynamo=dynamo, input_names=["x"], output_names=["y"])
    trainer, _ = trained(tmp_path / "m.onnx", tmp_path)
    filters = [v for v in trainer.parameters().values() if v.ndim == 4]
    assert len(filters) == 6 and len({v.tobytes() for v in filters}) == 6
