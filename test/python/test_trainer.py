# SPDX-License-Identifier: Apache-2.0
"""mpt.Trainer against the hand-written model, and its numbers against numpy."""
import array
import copy
import math
import pickle
import threading
import time

import ml_dtypes
import numpy as np
import onnx
import pytest

import mpt
from conftest import INITIAL, build_folder, read_safetensors, write_safetensors

X = np.array([[1, 0, 0], [0, 1, 0], [0, 0, 1], [1, 1, 1]], np.float32)
Y = np.array([[1, 2], [3, 4], [5, 6], [10, 13]], np.float32)


def expected_gradients(w, b):
    error = X @ w.astype(np.float16).astype(np.float32) + b - Y
    return (error**2).mean(), X.T @ error * 2 / error.size, error.sum(0) * 2 / error.size


def test_first_step_is_what_numpy_says(linear):
    trainer = mpt.Trainer(linear, threads=1)
    result = trainer.step({"x": X, "y": Y}, learning_rate=0.1)
    loss, dw, db = expected_gradients(INITIAL["w"], INITIAL["b"])
    assert result.loss == pytest.approx(loss, rel=1e-6)
    assert result.loss_scale == 1024 and not result.skipped
    assert result.grad_norm == pytest.approx(math.sqrt((dw**2).sum() + (db**2).sum()), rel=1e-5)
    np.testing.assert_allclose(trainer.parameter("w"), INITIAL["w"] - 0.1 * dw, rtol=1e-5)
    np.testing.assert_allclose(trainer.parameter("b"), INITIAL["b"] - 0.1 * db, rtol=1e-5)
    assert (trainer.state()["w"] == trainer.parameter("w").astype(np.float16)).all()


def test_gradients_change_nothing(linear):
    trainer = mpt.Trainer(linear)
    before = trainer.state()
    loss, gradients = trainer.gradients({"x": X, "y": Y})
    want, dw, db = expected_gradients(INITIAL["w"], INITIAL["b"])
    assert loss == pytest.approx(want, rel=1e-6) and list(gradients) == ["w", "b"]
    assert gradients["w"].dtype == np.float32
    np.testing.assert_allclose(gradients["w"], dw, rtol=1e-5)
    np.testing.assert_allclose(gradients["b"], db, rtol=1e-5)
    assert all((before[k] == v).all() for k, v in trainer.state().items())


def test_evaluate_and_parameters(linear):
    trainer = mpt.Trainer(linear)
    trainer.set_parameter("w", np.ones((3, 2)))
    trainer.set_parameter("b", [1, 2])
    assert (trainer.evaluate({"x": X})["prediction"] == X.sum(1, keepdims=True) + [1, 2]).all()
    parameters = trainer.parameters()
    assert list(parameters) == ["w", "b"] and (parameters["w"] == 1).all() and parameters["w"].shape == (3, 2)
    with pytest.raises(ValueError, match=r"expected shape \(3, 2\), got \(2, 3\)"):
        trainer.set_parameter("w", np.ones((2, 3)))
    with pytest.raises(KeyError, match="no parameter or state 'v'"):
        trainer.parameter("v")


def test_description(linear):
    trainer = mpt.Trainer(linear / "liblinear.so")
    assert trainer.name == "linear" and trainer.manifest["optimizer"] == "sgd"
    assert trainer.inputs() == {"x": ("float32", (4, 3)), "y": ("float32", (4, 2)), "learning_rate": ("float32", ())}
    assert trainer.outputs("evaluate") == {"prediction": ("float32", (4, 2))}
    trainer.step({"x": X, "y": Y})
    memory = trainer.memory()
    assert memory["state_bytes"] == 512 and memory["arena_bytes"] == 128
    assert memory["weight_bytes"] == 12 + 24 + 8 and memory["slot_bytes"] == 24 + 8
    assert memory["peak_bytes"] >= 640


def test_skipped_step(linear):
    trainer = mpt.Trainer(linear)
    bad = X.copy()
    bad[0, 0] = np.inf
    before = trainer.parameters()
    assert trainer.step({"x": bad, "y": Y}).skipped
    assert all((before[k] == v).all() for k, v in trainer.parameters().items())
    assert trainer.step({"x": X, "y": Y}).loss_scale == 512


def test_array_kinds(linear):
    trainer = mpt.Trainer(linear)
    want = trainer.gradients({"x": X, "y": Y})[0]

    class DLPackOnly:
        """An array of another library, as far as we can see it."""

        def __init__(self, value):
            self.value = value

        def __dlpack__(self, **keywords):
            return self.value.__dlpack__()

        def __dlpack_device__(self):
            return self.value.__dlpack_device__()

    strided = np.zeros((4, 6), np.float32)
    strided[:, ::2] = X
    flat = memoryview(array.array("f", X.ravel().tolist())).cast("B").cast("f", shape=[4, 3])
    for x in (np.asfortranarray(X), strided[:, ::2], flat, DLPackOnly(X), X.astype(">f4"), X.tolist()):
        if isinstance(x, list):
            with pytest.raises(mpt.Error, match=r"expected float32\[4,3\], got float64\[4,3\]"):
                trainer.gradients({"x": x, "y": Y})
        else:
            assert trainer.gradients({"x": x, "y": Y})[0] == want


def test_wrong_inputs(linear):
    trainer = mpt.Trainer(linear)
    with pytest.raises(mpt.Error, match="input 'y' of 'step' is missing"):
        trainer.step({"x": X})
    with pytest.raises(mpt.Error, match=r"expected float32\[4,3\], got float32\[2,3\]"):
        trainer.step({"x": X[:2], "y": Y})
    with pytest.raises(mpt.Error, match="no input 'label'"):
        trainer.step({"x": X, "label": Y})
    with pytest.raises(TypeError, match="complex64"):
        trainer.step({"x": X.astype(np.complex64), "y": Y})
    with pytest.raises(mpt.Error, match="no function 'accumulate'"):
        trainer.run("accumulate", {})


def test_save_and_resume(linear, tmp_path):
    whole, half, rest = (mpt.Trainer(linear, seed=3) for _ in range(3))
    for _ in range(20):
        whole.step({"x": X, "y": Y})
    for _ in range(10):
        half.step({"x": X, "y": Y})
    half.save(tmp_path / "half.safetensors")
    arrays, metadata = read_safetensors(tmp_path / "half.safetensors")
    assert metadata["step"] == "10" and metadata["fingerprint"] == "5eed" and arrays["rng"].tolist() == [3, 10]
    assert (arrays["w.master"] == half.parameter("w")).all()
    rest.load(tmp_path / "half.safetensors")
    for _ in range(10):
        rest.step({"x": X, "y": Y})
    assert all(v.tobytes() == rest.state()[k].tobytes() for k, v in whole.state().items())
    write_safetensors(tmp_path / "other.safetensors", arrays, {"fingerprint": "beef"})
    with pytest.raises(mpt.Error, match="fingerprint 5eed"):
        rest.load(tmp_path / "other.safetensors")
    with pytest.raises(mpt.Error, match="cannot write"):
        rest.save("/proc/nowhere/state")


def test_refused_models(tmp_path):
    with pytest.raises(mpt.Error, match="no-such"):
        mpt.Trainer(tmp_path / "no-such")
    with pytest.raises(mpt.Error, match=r"expected one lib\*.so, got 0"):
        mpt.Trainer(tmp_path)
    for name in ("libb.so", "liba.so"):
        (tmp_path / name).touch()
    with pytest.raises(mpt.Error, match="got 2: load one by its path, such as .*/liba.so"):
        mpt.Trainer(tmp_path)


def test_torch_tensors(linear):
    torch = pytest.importorskip("torch")
    trainer = mpt.Trainer(linear)
    want = trainer.gradients({"x": X, "y": Y})[0]
    x = torch.from_numpy(X.copy())
    assert trainer.gradients({"x": x, "y": Y})[0] == want
    assert trainer.gradients({"x": x.t().contiguous().t().requires_grad_(), "y": Y})[0] == want
    with pytest.raises(mpt.Error, match=r"got bfloat16\[4,3\]"):
        trainer.gradients({"x": x.bfloat16(), "y": Y})


def test_values_that_make_no_sense(linear):
    trainer = mpt.Trainer(linear)
    before = trainer.state()
    with pytest.raises(mpt.Error, match="finite learning rate, got nan"):
        trainer.step({"x": X, "y": Y}, learning_rate=math.nan)
    with pytest.raises(mpt.Error, match="'learning_rate' of 'step': expected a finite number, got inf"):
        trainer.step({"x": X, "y": Y, "learning_rate": np.float32(math.inf)})
    with pytest.raises(TypeError, match="expected a number as learning_rate, got 'fast'"):
        trainer.step({"x": X, "y": Y}, learning_rate="fast")
    with pytest.raises(TypeError, match="expected a dict of arrays by input name, got list"):
        trainer.step([X, Y])
    with pytest.raises(TypeError, match="expected the name of an input, got 3"):
        trainer.step({"x": X, 3: Y})
    with pytest.raises(mpt.Error, match="no input"):
        trainer.step({"x": X, "\ud800": Y})
    with pytest.raises(TypeError, match="'x'"):
        trainer.step({"x": None, "y": Y})
    for threads in (-1, 2**40):
        with pytest.raises(ValueError, match="number of threads"):
            mpt.Trainer(linear, threads=threads)
    assert all((before[k] == v).all() for k, v in trainer.state().items())


def test_closed_trainer(linear, tmp_path):
    with mpt.Trainer(linear) as trainer:
        trainer.step({"x": X, "y": Y})
    trainer.close()
    for use in (lambda: trainer.step({"x": X, "y": Y}), lambda: trainer.parameters(), lambda: trainer.save(tmp_path / "s"),
                lambda: trainer.load(tmp_path / "s"), lambda: trainer.state(), lambda: trainer.name, lambda: trainer.memory(),
                lambda: trainer.inputs(), lambda: trainer.evaluate({"x": X})):
        with pytest.raises(ValueError, match="the trainer is closed"):
            use()
    with pytest.raises(AttributeError, match="no attribute 'stepp'"):
        mpt.Trainer(linear).stepp


def test_damaged_states(linear, tmp_path):
    trainer, path = mpt.Trainer(linear), tmp_path / "state"
    trainer.step({"x": X, "y": Y})
    trainer.save(path)
    good, before = path.read_bytes(), trainer.state()
    for bad in (b"", good[:7], good[:100], good[:-1], good[:-1] + bytes([good[-1] ^ 1]), b"\xff" * 8 + good[8:]):
        path.write_bytes(bad)
        with pytest.raises(mpt.Error, match=str(path)) as caught:
            trainer.load(path)
        assert caught.value.status == 4
    assert all((before[k] == v).all() for k, v in trainer.state().items())
    with pytest.raises(mpt.Error, match="expected a regular file or none"):
        trainer.save("/dev/null")


def test_two_trainers_in_threads(linear):
    """Each computes the same as alone, and each thread reads its own error."""
    import concurrent.futures

    def train(k):
        trainer = mpt.Trainer(linear, threads=1, seed=k)
        with pytest.raises(mpt.Error, match=f"no input 'only-{k}'"):
            trainer.step({f"only-{k}": X})
        for _ in range(200):
            loss = trainer.step({"x": X * (k + 1), "y": Y}).loss
        return loss, {name: value.tobytes() for name, value in trainer.state().items()}

    alone = [train(k) for k in range(2)]
    with concurrent.futures.ThreadPoolExecutor(2) as pool:
        assert list(pool.map(train, range(2))) == alone


def test_libraries_of_other_releases_and_processors(linear):
    folder = build_folder() / "test" / "capi" / "linear"
    with pytest.raises(mpt.Error, match=r"expected ABI version \d+, got 99: compile the model again") as caught:
        mpt.Trainer(folder / "liblinear-abi.so")
    assert caught.value.status == 5
    with pytest.raises(mpt.Error, match="lacks 'avx99'"):
        mpt.Trainer(folder / "liblinear-cpu.so")


def test_trainers_are_not_copied(linear):
    """Two objects with one handle would release it twice."""
    trainer = mpt.Trainer(linear)
    for use in (copy.copy, copy.deepcopy, pickle.dumps):
        with pytest.raises(TypeError, match="a trainer cannot be copied or pickled: make another"):
            use(trainer)
    assert trainer.step({"x": X, "y": Y}).loss > 0
    with mpt.init() as world, pytest.raises(TypeError, match="a world cannot be copied or pickled: every process"):
        copy.copy(world)


def test_arguments_that_the_c_interface_would_cut(linear):
    """Text up to a zero byte, the lower bits of an integer, a fraction's whole part: none is the argument that the caller has passed."""
    trainer = mpt.Trainer(linear, threads=1)
    for use in (lambda: trainer.run("evaluate\0d", {"x": X}), lambda: trainer.run(3, {}), lambda: trainer.outputs("step\0"),
                lambda: mpt.Trainer(linear, options={"profile\0": 0}), lambda: mpt.Trainer(linear, options={1: 0})):
        with pytest.raises(TypeError, match="expected the name of a"):
            use()
    for use in (lambda: trainer.save(f"{linear}/state\0.old"), lambda: trainer.load(f"{linear}/state\0.old"),
                lambda: mpt.Trainer(f"{linear}\0"), lambda: mpt.Trainer(linear, weights=f"{linear}/linear.safetensors\0"),
                lambda: mpt.init(rank=0, size=1, transport="tcp\0")):
        with pytest.raises(ValueError, match="expected a path without zero bytes"):
            use()
    assert not (linear / "state").exists()
    for use in (lambda: mpt.Trainer(linear, device=2**32), lambda: mpt.init(rank=2**32, size=1),
                lambda: mpt.init(rank=0, size=0), lambda: mpt.init(rank=0, size=2**32 + 1), lambda: mpt.init(port=2**32)):
        with pytest.raises(ValueError, match=r"expected (a|the) .* from -?\d+ to \d+, got"):
            use()
    with pytest.raises(TypeError, match="float"):
        mpt.Trainer(linear, options={"profile": 1.9})
    with mpt.init() as world:
        with pytest.raises(ValueError, match="expected a rank from"):
            world.broadcast(np.zeros(2), root=2**32)
    with pytest.raises(ValueError, match="the world is closed"):
        mpt.Trainer(linear, world=world)


def test_values_to_set(linear):
    trainer = mpt.Trainer(linear, threads=1)
    trainer.set_parameter("scale", 512)
    assert trainer.parameter("scale") == 512 and trainer.parameter("scale").shape == ()
    for value in ([1 + 2j, 3], [None, 3], ["1", "2"]):
        with pytest.raises(TypeError, match="'b': expected real numbers, got an array of type"):
            trainer.set_parameter("b", value)
    assert (trainer.parameter("b") == INITIAL["b"]).all()


def test_one_thread_at_a_time(linear):
    """Calls that meet are refused, and one that closes waits for the call that runs."""
    for wait in (0.001, 0.003, 0.01):
        trainer, refusals = mpt.Trainer(linear, threads=1), []

        def train():
            try:
                while True:
                    try:
                        trainer.step({"x": X, "y": Y})
                        trainer.parameters()
                    except mpt.Error as refusal:
                        refusals.append(str(refusal))
            except ValueError as closed:
                assert "the trainer is closed" in str(closed)

        threads = [threading.Thread(target=train) for _ in range(2)]
        for thread in threads:
            thread.start()
        time.sleep(wait)
        trainer.close()
        for thread in threads:
            thread.join()
        assert all("the trainer is in use by another thread" in text for text in refusals)
    trainer = mpt.Trainer(linear, threads=1)
    entered, leave = threading.Event(), threading.Event()

    class Slow:
        def __array__(self, dtype=None, copy=None):
            entered.set()
            leave.wait()
            return X

    stepping = threading.Thread(target=lambda: trainer.step({"x": Slow(), "y": Y}))
    stepping.start()
    entered.wait()
    with pytest.raises(mpt.Error, match="in use by another thread: expected one thread at a time"):
        trainer.save(linear / "state")
    leave.set()
    stepping.join()
    trainer.save(linear / "state")


def test_temporary_files_of_others_stay(linear, tmp_path, monkeypatch):
    """A save clears away files that killed saves of the same path left, and none that only look like them."""
    monkeypatch.chdir(tmp_path)
    others = [".tmp-1-2x", "state.tmp-notes", "state.tmp-1", "state.tmp-1-2.txt", "state.tmp--3"]
    for name in (*others, "state.tmp-99-0"):
        (tmp_path / name).write_text("mine")
    trainer = mpt.Trainer(linear, threads=1)
    trainer.save("state")
    with pytest.raises(mpt.Error, match="cannot write ''"):
        trainer.save("")
    assert {path.name for path in tmp_path.iterdir() if ".tmp-" in path.name} == set(others)


def test_failed_reset_changes_nothing(linear, tmp_path):
    path = tmp_path / "weights"
    write_safetensors(path, INITIAL)
    trainer = mpt.Trainer(linear, threads=1, weights=path)
    trainer.step({"x": X, "y": Y})
    before = trainer.state()
    write_safetensors(path, {name: value for name, value in INITIAL.items() if name != "b"})
    with pytest.raises(mpt.Error, match="no tensor 'b'"):
        trainer.reset()
    assert all((before[k] == v).all() for k, v in trainer.state().items())


def test_refused_run_leaves_results(linear):
    trainer = mpt.Trainer(linear, threads=1)
    loss = trainer.step({"x": X, "y": Y}).loss
    with pytest.raises(mpt.Error, match="'y' of 'step' is missing"):
        trainer.step({"x": X})
    assert trainer.metrics().loss == loss


def test_learning_rate_beyond_the_type(linear):
    trainer = mpt.Trainer(linear, threads=1)
    before = trainer.state()
    with pytest.raises(mpt.Error, match=r"expected a rate within the range of float32, got 1e\+39"):
        trainer.step({"x": X, "y": Y}, learning_rate=1e39)
    assert all((before[k] == v).all() for k, v in trainer.state().items())


def test_refused_step_keeps_the_rate(linear):
    trainer, other = mpt.Trainer(linear), mpt.Trainer(linear)
    with pytest.raises(mpt.Error, match="'y'"):
        trainer.step({"x": X}, learning_rate=7.0)
    trainer.step({"x": X, "y": Y})
    other.step({"x": X, "y": Y})
    assert (trainer.parameter("w") == other.parameter("w")).all()
    trainer.step({"x": X, "y": Y}, learning_rate=0.5)
    with pytest.raises(mpt.Error, match="'y'"):
        trainer.step({"x": X}, learning_rate=7.0)
    other.step({"x": X, "y": Y}, learning_rate=0.5)
    for each in (trainer, other):
        each.step({"x": X, "y": Y})
    assert (trainer.parameter("w") == other.parameter("w")).all()


def test_functions_that_are_not_there(linear):
    trainer = mpt.Trainer(linear)
    assert trainer.inputs("initialize") == {}
    for use in (trainer.inputs, trainer.outputs):
        with pytest.raises(ValueError, match="has no function 'nosuch'"):
            use("nosuch")


def test_masked_arrays_are_refused(linear):
    with pytest.raises(TypeError, match="'x': expected an array without a mask"):
        mpt.Trainer(linear).evaluate({"x": np.ma.masked_greater(X, 0)})


def test_saving_over_a_link(linear, tmp_path):
    trainer = mpt.Trainer(linear)
    (tmp_path / "disk").mkdir()
    for name in ("old", "new"):  # a link to a file that is there, and to one that is not
        link = tmp_path / f"{name}.link"
        link.symlink_to(f"disk/{name}.safetensors")
        if name == "old":
            trainer.save(link.resolve())
        trainer.step({"x": X, "y": Y})
        trainer.save(link)
        assert link.is_symlink() and link.resolve() == (tmp_path / "disk" / f"{name}.safetensors").resolve()
        resumed = mpt.Trainer(linear)
        resumed.load(link)
        assert (resumed.parameter("w") == trainer.parameter("w")).all()
    assert sorted(p.name for p in (tmp_path / "disk").iterdir()) == ["new.safetensors", "old.safetensors"]


def test_long_messages_end_visibly(linear):
    name = "n" * 3000
    with pytest.raises(mpt.Error, match=name):
        mpt.Trainer(linear).run(name, {})
    with pytest.raises(mpt.Error, match=r"n \.\.\.$"):
        mpt.Trainer(linear).run(name * 10, {})


@pytest.mark.parametrize("name", ["int4", "uint4", "int2", "uint2", "float4_e2m1fn", "float8_e8m0fnu"])
def test_types_without_arithmetic_as_inputs(name, tmp_path):
    """A graph input of a packed type takes ml_dtypes' arrays, or the bytes that stand for them."""
    dtype = np.dtype(getattr(ml_dtypes, name))
    element = onnx.helper.np_dtype_to_tensor_dtype(dtype)
    graph = onnx.helper.make_graph(
        [onnx.helper.make_node("Cast", ["x"], ["wide"], to=onnx.TensorProto.FLOAT), onnx.helper.make_node("Mul", ["wide", "scale"], ["y"]),
         onnx.helper.make_node("ReduceSum", ["y"], ["loss"], keepdims=0)],
        "g", [onnx.helper.make_tensor_value_info("x", element, [2, 3])], [onnx.helper.make_tensor_value_info("loss", 1, [])],
        [onnx.numpy_helper.from_array(np.ones(3, np.float32), "scale")])
    onnx.save(onnx.helper.make_model(graph, opset_imports=[onnx.helper.make_opsetid("", 25)], ir_version=13), tmp_path / "m.onnx")
    mpt.compile(tmp_path / "m.onnx", optimizer="sgd", train="scale", out=tmp_path / "lib")
    x = np.array([[1, 0, 1], [1, 1, 1]], np.float32).astype(dtype)
    with mpt.Trainer(tmp_path / "lib", threads=1) as trainer:
        _, slopes = trainer.gradients({"x": x})
        np.testing.assert_array_equal(slopes["scale"], x.astype(np.float32).sum(0))
        _, again = trainer.gradients({"x": x[:, ::-1][:, ::-1]})
        np.testing.assert_array_equal(slopes["scale"], again["scale"])
        bytes_of = x.view(np.uint8) if name.startswith("float") else x.astype(name.rstrip("24") + "8")
        _, again = trainer.gradients({"x": bytes_of})
        np.testing.assert_array_equal(slopes["scale"], again["scale"])
