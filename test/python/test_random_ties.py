# SPDX-License-Identifier: Apache-2.0
"""Tensors that exporters have tied, merged, transposed, repeated or cut train as the module's do, in every form of file.

`python test/python/test_random_ties.py N [FIRST]` tries as many seeds and prints the failing ones.
"""
import copy
import pathlib
import sys
import tempfile
import warnings

import numpy as np
import pytest

torch = pytest.importorskip("torch")
runtime = pytest.importorskip("onnxruntime")
import mpt  # noqa: E402
import random_ties  # noqa: E402

RATE, STEPS = .02, 3  # a norm whose scale is zero moves far at larger ones


def all_of(gradients):
    """The elements that are not zero, whatever the tensors they are in."""
    flat = np.concatenate([np.ravel(g) for g in gradients])
    return np.sort(flat[np.abs(flat) > 1e-12])


def check(seed, folder, edit=None, equal=None):
    """`edit` changes the file, which has its plain form then."""
    module, x, dynamo, form = random_ties.make(seed, equal)
    path = random_ties.write(module, x, dynamo, "plain" if edit else form, folder / "m.onnx")
    if edit:
        edit(path)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        trainer = mpt.Trainer(mpt.compile(path, out=folder / "lib", loss="mse", optimizer=f"sgd,lr={RATE}"), threads=1)
    module = copy.deepcopy(module).double()
    target = torch.randn(module(x).shape, generator=torch.Generator().manual_seed(seed))
    name, = (n for n in trainer.inputs("gradients") if n not in ("x", "learning_rate"))
    feed = {"x": x.numpy(), name: target.numpy()}
    optimizer = torch.optim.SGD(module.parameters(), RATE)
    for step in range(STEPS):
        optimizer.zero_grad()
        ((module(x) - target.double()) ** 2).mean().backward()
        if step == 0:
            want = all_of(p.grad.numpy() for p in module.parameters() if p.grad is not None)
            got = all_of(trainer.gradients(feed)[1].values())
            assert got.size == want.size, f"{got.size} of {want.size} values train, {trainer.trained()}"
            np.testing.assert_allclose(got, want, rtol=1e-3, atol=2e-6)
        optimizer.step()
        trainer.step(feed)
    got = trainer.run("predict", {"x": x.numpy()})["y"]
    np.testing.assert_allclose(got, module(x).detach().numpy(), rtol=1e-3, atol=1e-4)
    trainer.save_onnx(folder / "saved.onnx")
    session = runtime.InferenceSession(str(folder / "saved.onnx"), providers=["CPUExecutionProvider"])
    np.testing.assert_allclose(session.run(None, {"x": x.numpy()})[0], got, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("seed", [*range(14), 1048])  # the last one applies a layer twice whose bias begins as another does
def test_random_ties(seed, tmp_path):
    check(seed, tmp_path)


@pytest.mark.parametrize("seed, equal", [(0, how) for how in random_ties.Equal.KINDS] + [(1, how) for how in random_ties.Equal.OF_BOTH])
def test_tensors_that_begin_equal(seed, equal, tmp_path):
    """Exporters merge them: two norms with scales of zero, numbers, folded views of gates and temperatures, scales of one block."""
    check(seed, tmp_path, equal=equal)


if __name__ == "__main__":
    first = int(sys.argv[2]) if len(sys.argv) > 2 else 0
    failed = 0
    for seed in range(first, first + int(sys.argv[1])):
        with tempfile.TemporaryDirectory() as folder:
            try:
                check(seed, pathlib.Path(folder))
            except Exception as problem:
                failed += 1
                module, _, dynamo, form = random_ties.make(seed)
                layers = [type(m).__name__ + (f" {m.how}" if hasattr(m, "how") else "") for m in module.layers]
                print(seed, "dynamo" if dynamo else "script", form, layers, f"{type(problem).__name__}: {str(problem).strip()[:300]}".replace("\n", " "), flush=True)
    sys.exit(f"{failed} failed" if failed else 0)
