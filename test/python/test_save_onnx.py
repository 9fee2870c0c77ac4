# SPDX-License-Identifier: Apache-2.0
"""save_onnx: the file that came, with the values that training has made of its own, for every way of storing them."""
import os
import signal
import subprocess
import sys
import time

import numpy as np
import onnx
import onnxruntime
import pytest
from onnx import TensorProto, external_data_helper, helper, numpy_helper

import mpt

sys.path[:0] = [os.path.dirname(__file__), os.path.join(os.path.dirname(__file__), "../../benchmarks")]
import spawn  # noqa: E402
from conftest import write_safetensors  # noqa: E402
from saved_models import BATCH, IN, MODELS, OUT, model, raw, values, without_values  # noqa: E402

POLICIES = ["fp32", "amp-f16", "amp-bf16", "fp8-hybrid"]


def batch(step: int, trainer) -> dict:
    rng = np.random.default_rng(step)
    made = {"x": rng.standard_normal((BATCH, IN)).astype(np.float32), "c": np.array(step % 2 == 0),
            "target": rng.standard_normal((BATCH, OUT)).astype(np.float32)}
    return {name: made.get(name, made["target"]) for name in trainer.inputs("step") if name != "learning_rate"}


def trained(path, out, policy="fp32", steps=10, **flags):
    mpt.compile(path, out=out, loss="mse", optimizer="sgd,lr=0.05", policy=policy, **flags)
    trainer = mpt.Trainer(out, threads=1)
    for step in range(steps):
        trainer.step(batch(step, trainer))
    return trainer


def predictions(trainer, function="predict"):
    inputs = {name: value for name, value in batch(99, trainer).items() if name in trainer.inputs(function)}
    return inputs, next(iter(trainer.run(function, inputs).values()))


def in_onnxruntime(path, inputs):
    options = onnxruntime.SessionOptions()
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    return onnxruntime.InferenceSession(path, options, providers=["CPUExecutionProvider"]).run(None, inputs)[0]


def check(path, trainer, tolerance, function="predict"):
    """The full checker takes the file, and ONNX Runtime computes the trainer's predictions from it."""
    onnx.checker.check_model(os.fspath(path), full_check=True)
    inputs, expected = predictions(trainer, function)
    np.testing.assert_allclose(in_onnxruntime(os.fspath(path), inputs), expected, rtol=tolerance, atol=tolerance)


@pytest.mark.parametrize("policy", POLICIES)
@pytest.mark.parametrize("kind", MODELS)
def test_round_trip(kind, policy, tmp_path):
    source = MODELS[kind]()
    onnx.save(source, tmp_path / "model.onnx")
    trainer = trained(tmp_path / "model.onnx", tmp_path / "lib", policy)
    trainer.save_onnx(tmp_path / "trained.onnx")
    # 8-bit operands have 3 bits of mantissa; the file computes in FP32.
    check(tmp_path / "trained.onnx", trainer, {"fp32": 1e-6, "amp-f16": 4e-3, "amp-bf16": 3e-2, "fp8-hybrid": 0.25}[policy])
    saved = onnx.load(tmp_path / "trained.onnx")
    if kind != "sparse":
        assert without_values(saved) == without_values(source)
    initializers = {t.name: numpy_helper.to_array(t).astype(np.float32) for t in saved.graph.initializer}
    for name, value in trainer.parameters().items():
        if name in initializers:
            rounded = value.astype(initializers[name].dtype)
            loose = {TensorProto.FLOAT16: 1e-3, TensorProto.BFLOAT16: 1e-2}
            kinds = {t.name: t.data_type for t in saved.graph.initializer}
            np.testing.assert_allclose(initializers[name], rounded, rtol=loose.get(kinds[name], 0))
            assert not np.array_equal(value, values(name, *value.shape)), "training has changed nothing"
    # The command makes the same bytes of a saved state.
    trainer.save(tmp_path / "state")
    trainer.save_onnx(tmp_path / "again.onnx")
    assert (tmp_path / "again.onnx").read_bytes() == (tmp_path / "trained.onnx").read_bytes()
    mpt_opt(tmp_path / "model.onnx", f"--state={tmp_path / 'state'}", "--emit=onnx", "-o", tmp_path / "command.onnx")
    assert (tmp_path / "command.onnx").read_bytes() == (tmp_path / "trained.onnx").read_bytes()


def mpt_opt(*words, status=0):
    done = subprocess.run([mpt._native.find_compiler(), *map(str, words)], capture_output=True, text=True)
    assert done.returncode == status, done.stderr
    return done.stderr


def test_only_values_change(tmp_path):
    """Byte by byte: differences lie in the elements of w and b."""
    source = model([raw("w", IN, OUT), raw("b", OUT), numpy_helper.from_array(np.arange(5), "unused")])
    onnx.save(source, tmp_path / "model.onnx")
    # A field that this version of protobuf does not know.
    with open(tmp_path / "model.onnx", "ab") as file:
        file.write(b"\x92\x3f\x03odd")
    trainer = trained(tmp_path / "model.onnx", tmp_path / "lib")
    trainer.save_onnx(tmp_path / "trained.onnx")
    before, after = ((tmp_path / name).read_bytes() for name in ("model.onnx", "trained.onnx"))
    assert len(before) == len(after)
    inside = np.zeros(len(before), bool)
    for name, shape in (("w", (IN, OUT)), ("b", (OUT,))):
        data = values(name, *shape).tobytes()
        at = before.index(data)
        inside[at:at + len(data)] = True
    differs = np.frombuffer(before, np.uint8) != np.frombuffer(after, np.uint8)
    assert differs.any() and not (differs & ~inside).any()


def external(folder, name="model.onnx", location="weights.bin"):
    source = model([raw("w", IN, OUT), raw("b", OUT)])
    external_data_helper.convert_model_to_external_data(source, location=location, size_threshold=0)
    onnx.save(source, folder / name)
    return folder / name


def test_external_data(tmp_path):
    """Layout and names stay in another folder; beside the model its data stay as they are."""
    path = external(tmp_path)
    data = (tmp_path / "weights.bin").read_bytes()
    trainer = trained(path, tmp_path / "lib", "amp-f16")
    assert (tmp_path / "lib" / "model.template").stat().st_size < 4096
    (tmp_path / "other").mkdir()
    for place in (tmp_path / "other" / "trained.onnx", tmp_path / "trained.onnx"):
        for _ in range(3):
            trainer.save_onnx(place)
            check(place, trainer, 4e-3)
            trainer.step(batch(1, trainer))
    model_bytes = path.read_bytes()
    trainer.save_onnx(tmp_path / "other" / "model.onnx")
    assert (tmp_path / "weights.bin").read_bytes() == data
    check(tmp_path / "other" / "model.onnx", trainer, 4e-3)
    check(tmp_path / "other" / "trained.onnx", mpt.Trainer(tmp_path / "lib"), 10)  # still whole
    assert path.read_bytes() == model_bytes
    fresh = tmp_path / "fresh"
    fresh.mkdir()
    trainer.save_onnx(fresh / "model.onnx")
    assert (fresh / "model.onnx").read_bytes() == model_bytes
    assert {p.name for p in fresh.iterdir()} == {"model.onnx", "weights.bin"}


def test_weights_in_the_file_are_not_read(tmp_path):
    """Peak memory of the command: of 64 MB inside the file a fraction, where they were there twice."""
    peaks = []
    for size in (64, 4096):
        source = model([raw("w", IN, size), raw("v", size, size), raw("u", size, OUT)],
                       [helper.make_node("MatMul", [a, b], [c], name=c) for a, b, c in (("x", "w", "h"), ("h", "v", "g"), ("g", "u", "y"))])
        path, out = tmp_path / f"{size}.onnx", tmp_path / "trained.onnx"
        onnx.save(source, path)
        mpt.compile(path, loss="mse", optimizer="sgd", out=tmp_path / "lib", name="model")
        status, _, peak, said = spawn.measure([mpt._native.find_compiler(), path, f"--state={tmp_path}/lib/model.safetensors", "--emit=onnx", "-o", out])
        assert status == 0 and out.read_bytes() == path.read_bytes(), said
        peaks.append(peak)
    assert peaks[1] - peaks[0] < 16, peaks


def test_shared_data(tmp_path):
    """Two tensors of one place in the data file that are trained apart get a place each."""
    path = external(tmp_path)
    source = onnx.load(path, load_external_data=False)
    twin = onnx.TensorProto()
    twin.CopyFrom(source.graph.initializer[0])
    twin.name = "w2"
    source.graph.initializer.append(twin)
    source.graph.node.add().CopyFrom(helper.make_node("MatMul", ["x", "w2"], ["h2"]))
    source.graph.node.add().CopyFrom(helper.make_node("Mul", ["y", "h2"], ["z"]))
    source.graph.output[0].name = "z"
    onnx.save(source, path)
    trainer = trained(path, tmp_path / "lib")
    (tmp_path / "out").mkdir()
    trainer.save_onnx(tmp_path / "out" / "trained.onnx")
    check(tmp_path / "out" / "trained.onnx", trainer, 1e-5)


def test_averages(tmp_path):
    onnx.save(MODELS["raw"](), tmp_path / "model.onnx")
    trainer = trained(tmp_path / "model.onnx", tmp_path / "lib", "amp-f16", ema=0.5)
    trainer.save_onnx(tmp_path / "averaged.onnx", averaged=True)
    check(tmp_path / "averaged.onnx", trainer, 4e-3, "predict_ema")
    trainer.save_onnx(tmp_path / "trained.onnx")
    assert (tmp_path / "averaged.onnx").read_bytes() != (tmp_path / "trained.onnx").read_bytes()
    plain = trained(tmp_path / "model.onnx", tmp_path / "plain")
    with pytest.raises(mpt.Error, match="expected averages of parameters, got a model without: compile it with --ema"):
        plain.save_onnx(tmp_path / "averaged.onnx", averaged=True)


def test_frozen_weights_keep_their_bits(tmp_path):
    """A frozen parameter of which the library has an FP16 copy alone leaves as the FP32 values that came."""
    onnx.save(MODELS["raw"](), tmp_path / "model.onnx")
    trainer = trained(tmp_path / "model.onnx", tmp_path / "lib", "amp-f16", freeze="w")
    trainer.save_onnx(tmp_path / "trained.onnx")
    trainer.save(tmp_path / "state")
    mpt_opt(tmp_path / "model.onnx", f"--state={tmp_path / 'state'}", "--emit=onnx", "-o", tmp_path / "command.onnx")
    for name in ("trained", "command"):
        saved = {t.name: numpy_helper.to_array(t) for t in onnx.load(tmp_path / f"{name}.onnx").graph.initializer}
        np.testing.assert_array_equal(saved["w"], values("w", IN, OUT))
        assert not np.array_equal(saved["b"], values("b", OUT))


@pytest.mark.parametrize("policy", ["amp-f16", "amp-bf16"])
def test_policy(policy, tmp_path):
    onnx.save(MODELS["raw"](), tmp_path / "model.onnx")
    trainer = trained(tmp_path / "model.onnx", tmp_path / "lib", policy)
    trainer.save_onnx(tmp_path / "narrow.onnx", policy=policy)
    onnx.checker.check_model(tmp_path / "narrow.onnx", full_check=True)
    narrow = {t.name: t.data_type for t in onnx.load(tmp_path / "narrow.onnx").graph.initializer}
    assert set(narrow.values()) & {TensorProto.FLOAT16, TensorProto.BFLOAT16}, narrow
    assert not [p for p in tmp_path.iterdir() if p.name.startswith(".narrow")]


def test_moved_folder_and_missing_template(tmp_path):
    onnx.save(MODELS["raw"](), tmp_path / "model.onnx")
    trained(tmp_path / "model.onnx", tmp_path / "lib").close()
    (tmp_path / "lib").rename(tmp_path / "moved")
    (tmp_path / "model.onnx").unlink()
    mpt.Trainer(tmp_path / "moved").save_onnx(tmp_path / "trained.onnx")
    onnx.checker.check_model(tmp_path / "trained.onnx", full_check=True)
    (tmp_path / "moved" / "model.template").unlink()
    with pytest.raises(mpt.Error, match="has no template .* compile the model from its .onnx file"):
        mpt.Trainer(tmp_path / "moved").save_onnx(tmp_path / "trained.onnx")


KILLED = """
import sys, mpt
trainer = mpt.Trainer(sys.argv[1], threads=1)
print("ready", flush=True)
while True:
    trainer.save_onnx(sys.argv[2])
"""


def test_killed_at_any_moment(tmp_path):
    """The old file or the new one, with its data, and no more files than a save that is not killed leaves."""
    path = external(tmp_path)
    trainer = trained(path, tmp_path / "lib", steps=1)
    (tmp_path / "out").mkdir()
    target = tmp_path / "out" / "model.onnx"
    trainer.save_onnx(target)
    inputs, _ = predictions(trainer)
    expected = {in_onnxruntime(os.fspath(file), inputs).tobytes() for file in (path, target)}
    rng = np.random.default_rng(0)
    for _ in range(8):
        child = subprocess.Popen([sys.executable, "-c", KILLED, tmp_path / "lib", target], stdout=subprocess.PIPE,
                                 env={**os.environ, "PYTHONPATH": os.path.dirname(os.path.dirname(mpt.__file__))})
        child.stdout.readline()
        time.sleep(rng.uniform(0, 0.05))
        child.send_signal(signal.SIGKILL)
        child.wait()
        assert in_onnxruntime(os.fspath(target), inputs).tobytes() in expected
    trainer.save_onnx(target)
    names = sorted(p.name for p in target.parent.iterdir())
    assert len(names) <= 3 and not any(".tmp-" in name for name in names), names


@pytest.mark.parametrize("inline", [True, False])
def test_full_disk(inline, tmp_path, small_disk):
    """The old file with its data stays, nothing is left beside it, and the message has the file's name."""
    source = model([raw("w", IN, OUT), raw("b", OUT), numpy_helper.from_array(np.zeros(10000, np.float32), "unused")])
    if not inline:
        external_data_helper.convert_model_to_external_data(source, location="weights.bin", size_threshold=0)
    onnx.save(source, tmp_path / "model.onnx")
    trainer = trained(tmp_path / "model.onnx", tmp_path / "lib")
    target = small_disk / "trained.onnx"
    trainer.save_onnx(target)
    before = {path.name: path.read_bytes() for path in small_disk.iterdir()}
    trainer.step(batch(1, trainer))
    with pytest.raises(mpt.Error, match=r"cannot write '.*/(trained\.onnx|trained\.onnx\.data)': No space left on device"):
        trainer.save_onnx(target)
    assert {path.name: path.read_bytes() for path in small_disk.iterdir()} == before
    check(target, mpt.Trainer(tmp_path / "lib"), 10)


@pytest.mark.parametrize("words, text", [
    (["--state=STATE", "-o", "OUT"], "expected --emit=onnx alone for --state"),
    (["--state=STATE", "--emit=onnx", "--policy=amp-f16", "-o", "OUT"], "expected --emit=onnx alone for --state"),
    (["--averaged", "--emit=onnx", "-o", "OUT"], "expected --state with --averaged, got none"),
    (["--state=STATE", "--emit=onnx"], "expected a file for the ONNX model; name it with -o"),
    (["--state=OTHER", "--emit=onnx", "-o", "OUT"], "has none of its tensors"),
    (["--state=MODEL", "--emit=onnx", "-o", "OUT"], "MODEL"),
])
def test_refusals(words, text, tmp_path):
    onnx.save(MODELS["raw"](), tmp_path / "MODEL")
    (tmp_path / "MODEL").rename(tmp_path / "m.onnx")
    trainer = trained(tmp_path / "m.onnx", tmp_path / "lib")
    trainer.save(tmp_path / "STATE")
    write_safetensors(tmp_path / "OTHER", {"q": np.zeros(3, np.float32)})
    (tmp_path / "MODEL").write_bytes(b"no state")
    for name in ("STATE", "OUT", "OTHER", "MODEL"):
        words = [word.replace(name, str(tmp_path / name)) for word in words]
    assert text in mpt_opt(tmp_path / "m.onnx", *words, status=1)
    assert not (tmp_path / "OUT").exists() and not list(tmp_path.glob("OUT.*"))


def test_torch_module_in_form_for_inference(tmp_path):
    """Dropout and batch norm have the form of eval(), names are the module's."""
    torch = pytest.importorskip("torch")
    torch.manual_seed(0)
    module = torch.nn.Sequential(torch.nn.Linear(IN, 8), torch.nn.BatchNorm1d(8), torch.nn.ReLU(), torch.nn.Dropout(0.5),
                                 torch.nn.Linear(8, OUT))
    mpt.compile(module, inputs=(torch.randn(BATCH, IN),), input_names=["x"], loss="mse", optimizer="sgd,lr=0.05", out=tmp_path / "lib",
                policy="amp-f16")
    trainer = mpt.Trainer(tmp_path / "lib", threads=1)
    for step in range(10):
        trainer.step(batch(step, trainer))
    trainer.save_onnx(tmp_path / "trained.onnx")
    check(tmp_path / "trained.onnx", trainer, 1e-2)
    saved = onnx.load(tmp_path / "trained.onnx")
    assert not any(a.name == "training_mode" and a.i for n in saved.graph.node for a in n.attribute)
    assert {"0.weight", "1.running_mean", "4.bias"} <= {t.name for t in saved.graph.initializer}
    module.load_state_dict({**module.state_dict(), **{n: torch.from_numpy(v) for n, v in trainer.parameters().items()},
                            **{n: torch.from_numpy(trainer.state()[n]) for n in ("1.running_mean", "1.running_var")}})
    inputs, _ = predictions(trainer)
    with torch.no_grad():
        expected = module.eval()(torch.from_numpy(inputs["x"])).numpy()
    np.testing.assert_allclose(in_onnxruntime(os.fspath(tmp_path / "trained.onnx"), inputs), expected, rtol=1e-5, atol=1e-5)
