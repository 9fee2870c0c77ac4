# SPDX-License-Identifier: Apache-2.0
"""CTC against the sum over all alignments, written out in FP64 by another recursion, and against PyTorch where it is installed."""
import itertools
import re
import subprocess

import cuda_kernels
import numpy as np
import onnx
import onnx.reference
import pytest
from conftest import build_folder
from onnx import TensorProto, helper, numpy_helper

import mpt

NARROW = ["amp-f16", "amp-bf16", "pure-f16-static", "als-f16", "fp8-hybrid", "fp8-e5m2"]
STEPS, BATCH, CLASSES, MOST = 9, 7, 5, 4


def network(path, order="tnc", steps=STEPS, batch=BATCH, classes=CLASSES, dtype=TensorProto.FLOAT):
    """Scores that are x + w, both in `order`: the gradient of w is the gradient of the scores."""
    shape = [dict(t=steps, n=batch, c=classes)[axis] for axis in order]
    weight = numpy_helper.from_array(np.zeros(shape, np.float32 if dtype == TensorProto.FLOAT else np.float64), "w")
    graph = helper.make_graph([helper.make_node("Add", ["x", "w"], ["z"])], "scores", [helper.make_tensor_value_info("x", dtype, shape)],
                              [helper.make_tensor_value_info("z", dtype, shape)], [weight])
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8), path)
    return path


def trainer(folder, loss=f"ctc,max-labels={MOST}", policy="fp32", **sizes):
    return mpt.Trainer(mpt.compile(network(folder / "network.onnx", **sizes), out=folder / "library", loss=loss, optimizer="sgd,lr=1",
                                   policy=policy), threads=1)


def batch(random, blank=0, steps=STEPS, rows=BATCH, classes=CLASSES, most=MOST, spread=2.0):
    """Random lengths; the first rows are a sequence without labels, one of equal labels that just fits, one that does not fit, one
    without steps and without labels, and one without steps."""
    labels = random.integers(0, classes - 1, (rows, most))
    labels += labels >= blank
    label_lengths, input_lengths = random.integers(0, most + 1, rows), random.integers(1, steps + 1, rows)
    labels[1:3] = labels[1:3, :1]
    label_lengths[:5], input_lengths[:5] = [0, most, most, 0, 1], [steps, 2 * most - 1, 2 * most - 2, 0, 0]
    return {"x": (spread * random.standard_normal((steps, rows, classes))).astype(np.float32), "labels": labels,
            "input_lengths": input_lengths, "label_lengths": label_lengths}


def by_alignments(scores, labels, blank):
    """-log of the sum over every path of classes that collapses to the labels, for one short sequence [T, C]."""
    scores = scores.astype(np.float64)
    log = scores - np.log(np.exp(scores).sum(-1, keepdims=True))
    total = 0.0
    for path in itertools.product(range(log.shape[1]), repeat=len(log)):
        if [k for k, _ in itertools.groupby(path) if k != blank] == list(labels):
            total += np.exp(sum(log[t, k] for t, k in enumerate(path)))
    return -np.log(total) if total else np.inf


def reference(feeds, blank=0, zero=False):
    """PyTorch's loss and gradient of the scores in FP64. An infinite loss has no gradient here; PyTorch's is NaN."""
    torch = pytest.importorskip("torch")
    x = torch.tensor(feeds["x"], dtype=torch.float64, requires_grad=True)
    arrays = [torch.tensor(feeds[name]) for name in ("labels", "input_lengths", "label_lengths")]
    each = torch.nn.functional.ctc_loss(x.log_softmax(-1), *arrays, blank=blank, reduction="none")
    possible = torch.isfinite(each)
    each = each / arrays[2].clamp(min=1)
    torch.where(possible, each, 0.0).mean().backward()
    gradient = torch.where(possible[None, :, None], x.grad, 0.0).numpy()
    return float((torch.where(possible, each, 0.0) if zero else each).mean().detach()), gradient


@pytest.mark.parametrize("labels", [[], [1], [1, 1], [1, 2], [2, 1, 2], [1, 1, 1], [2, 2, 1]])
def test_every_alignment_counts(labels, tmp_path):
    """Each count of steps up to 5 at once, enumerated."""
    steps, most = 5, max(len(labels), 1)
    random = np.random.default_rng(len(labels))
    model = trainer(tmp_path, f"ctc,max-labels={most},zero-infinity=1", steps=steps, batch=steps, classes=3)
    x = random.standard_normal((steps, steps, 3)).astype(np.float32)
    lengths = np.arange(1, steps + 1)
    feeds = {"x": x, "labels": np.tile(np.array((labels + [1])[:most]), (steps, 1)), "input_lengths": lengths,
             "label_lengths": np.full(steps, len(labels))}
    each = [by_alignments(x[:n, i], labels, 0) for i, n in enumerate(lengths)]
    wanted = np.mean(np.where(np.isfinite(each), each, 0.0)) / most
    assert model.gradients(feeds)[0] == pytest.approx(wanted, rel=1e-5)


@pytest.mark.parametrize("blank", [0, CLASSES - 1])
def test_values_and_gradients(blank, tmp_path):
    """Random lengths, equal neighbours, no labels, no steps, and sequences that cannot be aligned."""
    model = trainer(tmp_path, f"ctc,max-labels={MOST},blank={blank},zero-infinity=1")
    for seed in range(20):
        feeds = batch(np.random.default_rng(seed), blank, spread=[0.1, 2.0, 30.0][seed % 3])
        loss, gradients = model.gradients(feeds)
        wanted, slopes = reference(feeds, blank, zero=True)
        assert loss == pytest.approx(wanted, rel=2e-5), seed
        np.testing.assert_allclose(gradients["w"], slopes, atol=2e-6, rtol=2e-4, err_msg=str(seed))


def test_what_cannot_be_aligned_is_infinite(tmp_path):
    model = trainer(tmp_path)
    feeds = batch(np.random.default_rng(0))
    loss, gradients = model.gradients(feeds)
    assert loss == np.inf and np.isfinite(gradients["w"]).all() and not gradients["w"][:, 2].any()
    np.testing.assert_allclose(gradients["w"], reference(feeds)[1], atol=2e-6, rtol=2e-4)


@pytest.mark.parametrize("order,setting", [("ntc", "batch-axis=0"), ("nct", "batch-axis=0,class-axis=1"), ("tcn", "batch-axis=-1,class-axis=-2")])
def test_orders_of_axes(order, setting, tmp_path):
    feeds = batch(np.random.default_rng(1))
    loss, gradients = trainer(tmp_path, f"ctc,max-labels={MOST},zero-infinity=1,{setting}", order=order).gradients(
        {**feeds, "x": feeds["x"].transpose(["tnc".index(axis) for axis in order]).copy()})
    wanted, slopes = reference(feeds, zero=True)
    assert loss == pytest.approx(wanted, rel=2e-5)
    np.testing.assert_allclose(gradients["w"].transpose([order.index(axis) for axis in "tnc"]), slopes, atol=2e-6, rtol=2e-4)


def test_classes_that_cannot_be(tmp_path):
    """Scores of minus infinity, as masks write them: the other scores are summed, and nothing is NaN."""
    feeds = batch(np.random.default_rng(2))
    feeds["x"][:, :, 3] = -np.inf
    loss, gradients = trainer(tmp_path, f"ctc,max-labels={MOST},zero-infinity=1").gradients(feeds)
    wanted, _ = reference(feeds, zero=True)
    assert loss == pytest.approx(wanted, rel=2e-5) and np.isfinite(gradients["w"]).all()


def test_padding_and_lengths_that_cannot_be_are_refused(tmp_path):
    model = trainer(tmp_path)
    feeds = batch(np.random.default_rng(3))
    for name, value in (("labels", -1), ("labels", CLASSES), ("input_lengths", -1), ("input_lengths", STEPS + 1),
                        ("label_lengths", -1), ("label_lengths", MOST + 1)):
        broken = {**feeds, name: feeds[name].copy()}
        broken[name].flat[-1] = value
        with pytest.raises(mpt.Error, match=name):
            model.step(broken)
    feeds["labels"][0] = -100  # this row has no labels
    padded = trainer(tmp_path, f"ctc,max-labels={MOST},ignore-index=-100,zero-infinity=1")
    assert padded.gradients(feeds)[0] == pytest.approx(reference({**feeds, "labels": np.abs(feeds["labels"]) % CLASSES}, zero=True)[0], rel=2e-5)


def sequences(path, rows, steps, classes, hidden=24):
    """x [T, N, C] -> GEMM, ReLU, GEMM -> scores."""
    random = np.random.default_rng(0)
    weights = {"a": random.normal(0, 0.3, (classes, hidden)), "b": random.normal(0, 0.3, (hidden, classes))}
    nodes = [helper.make_node("MatMul", ["x", "a"], ["h"]), helper.make_node("Relu", ["h"], ["r"]), helper.make_node("MatMul", ["r", "b"], ["z"])]
    shape = [steps, rows, classes]
    graph = helper.make_graph(nodes, "scores", [helper.make_tensor_value_info("x", TensorProto.FLOAT, shape)],
                              [helper.make_tensor_value_info("z", TensorProto.FLOAT, shape)],
                              [numpy_helper.from_array(array.astype(np.float32), name) for name, array in weights.items()])
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8), path)
    return path


@pytest.mark.parametrize("policy", NARROW)
def test_stays_wide(policy, tmp_path):
    """Under every policy, with a loss scale that FP16 bears: logarithms of -1e30 survive, the loss is as in FP32 up to the network's roundings, and training goes on."""
    flags = dict.fromkeys(["amp-f16", "fp8-e5m2"], {"loss_scale": 64})
    model = {name: mpt.Trainer(mpt.compile(sequences(tmp_path / "n.onnx", BATCH, STEPS, CLASSES), out=tmp_path / name, policy=name,
                                           loss=f"ctc,max-labels={MOST},zero-infinity=1", optimizer="adam,lr=0.02", **flags.get(name, {})),
                               threads=1)
             for name in ("fp32", policy)}
    feeds = batch(np.random.default_rng(4))
    (wanted, slopes), (loss, gradients) = (model[name].gradients(feeds) for name in ("fp32", policy))
    assert loss == pytest.approx(wanted, rel=0.1 if policy.startswith("fp8") else 0.01)
    for name, value in slopes.items():
        assert np.linalg.norm(gradients[name] - value) < (0.4 if policy.startswith("fp8") else 0.05) * np.linalg.norm(value), name
    first, last = ([model[name].step(feeds).loss for _ in range(80)][-1] for name in ("fp32", policy))
    assert last < 0.6 * wanted and last == pytest.approx(first, rel=0.25)


def test_long_sequences(tmp_path):
    """A thousand frames, as speech models have them: in FP64 PyTorch's gradient, and in FP32 one no further from it than twice PyTorch's."""
    torch = pytest.importorskip("torch")
    size = dict(steps=1000, rows=5, classes=29, most=120)
    feeds = batch(np.random.default_rng(5), spread=1.0, **size)
    feeds["input_lengths"], feeds["label_lengths"] = np.array([1000, 803, 241, 0, 1000]), np.array([120, 77, 120, 0, 3])
    wanted, slopes = reference(feeds, zero=True)
    wide = trainer(tmp_path, "ctc,max-labels=120,zero-infinity=1", steps=1000, batch=5, classes=29, dtype=TensorProto.DOUBLE)
    loss, gradients = wide.gradients({**feeds, "x": feeds["x"].astype(np.float64)})
    assert loss == pytest.approx(wanted, rel=1e-6)
    assert np.linalg.norm(gradients["w"] - slopes) < 1e-10 * np.linalg.norm(slopes)
    (tmp_path / "narrow").mkdir()
    loss, gradients = trainer(tmp_path / "narrow", "ctc,max-labels=120,zero-infinity=1", steps=1000, batch=5, classes=29).gradients(feeds)
    x = torch.tensor(feeds["x"], requires_grad=True)
    arrays = [torch.tensor(feeds[name]) for name in ("labels", "input_lengths", "label_lengths")]
    torch.nn.functional.ctc_loss(x.log_softmax(-1), *arrays, zero_infinity=True).backward()
    assert loss == pytest.approx(wanted, rel=1e-5)
    assert np.linalg.norm(gradients["w"] - slopes) < 2 * np.linalg.norm(x.grad.numpy() - slopes)


@pytest.mark.parametrize("target", ["cpu", "cuda"])
def test_programs_do_not_grow_with_the_steps(target, tmp_path):
    """No more calls and kernels for 1,600 steps than for 40; long sums may be made in one kernel less."""
    texts = []
    for steps in (40, 1600):
        network(tmp_path / f"{steps}.onnx", steps=steps)
        subprocess.run([build_folder() / "bin" / "mpt-opt", tmp_path / f"{steps}.onnx", f"--loss=ctc,max-labels={MOST}", "--optimizer=sgd,lr=1",
                        f"--target={target}", "--to=memory", "--quiet", "-o", tmp_path / f"{steps}.mlir"], check=True)
        texts.append((tmp_path / f"{steps}.mlir").read_text())
    counts = [[len(re.findall(op, text)) for op in (r"rt\.repeat", r"rt\.launch", r"rt\.\w+", r"func\.func private")] for text in texts]
    assert all(0 < many <= few for few, many in zip(*counts)), counts
    assert all(f"rt.repeat {steps - 1} times" in text for steps, text in zip((40, 1600), texts))


def test_exported_steps_are_unrolled(tmp_path):
    """--emit=onnx has no loop: standard operators, which compute the same as the library."""
    path, options = network(tmp_path / "n.onnx"), dict(loss=f"ctc,max-labels={MOST},zero-infinity=1", optimizer="sgd,lr=1")
    mpt.compile(path, out=tmp_path / "step.onnx", emit="onnx", **options)
    model = onnx.load(tmp_path / "step.onnx")
    onnx.checker.check_model(model, full_check=True)
    feeds = batch(np.random.default_rng(6))
    names = [output.name for output in model.graph.output]
    step = dict(zip(names, onnx.reference.ReferenceEvaluator(model).run(None, {**feeds, "learning_rate": np.float32(1)})))
    again = mpt.Trainer(mpt.compile(tmp_path / "step.onnx", out=tmp_path / "again"), threads=1)
    wanted, slopes = reference(feeds, zero=True)
    assert step["loss"] == pytest.approx(wanted, rel=2e-5) and again.step(feeds, learning_rate=1).loss == pytest.approx(wanted, rel=2e-5)
    np.testing.assert_allclose(-step["w_next"], slopes, atol=2e-6, rtol=2e-4)
    np.testing.assert_allclose(-again.parameters()["w"], slopes, atol=2e-6, rtol=2e-4)


@pytest.mark.parametrize("policy", ["fp32", "amp-f16"])
def test_kernels_for_cuda(policy, tmp_path):
    """Each kernel of a step for CUDA against the interpreter, on the values that it worked with."""
    build = build_folder()
    if not (build / "lib" / "libcuda_standin.so").exists():
        pytest.skip("the stand-in is not built")
    sequences(tmp_path / "m.onnx", BATCH, STEPS, CLASSES)
    values, most, problems = cuda_kernels.check(build, tmp_path / "m.onnx", [f"--loss=ctc,max-labels={MOST},zero-infinity=1", f"--policy={policy}"],
                                                batch(np.random.default_rng(7)), tmp_path / "cuda")
    assert not problems and values > 15 and most < 0.3, problems
