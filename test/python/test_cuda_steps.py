# SPDX-License-Identifier: Apache-2.0
"""Steps of small networks of several kinds for CUDA, run without a GPU: losses and gradients against the same policy on the CPU."""
import re
import subprocess

import cuda_kernels
import cuda_models
import cuda_steps
import numpy as np
import pytest
import small_models
from conftest import build_folder
from onnx import TensorProto, helper

pytestmark = pytest.mark.slow

# Between them every kind of network with every kind of policy; scripts for the whole corpus: test/e2e/check_cuda.py.
CASES = [("lenet", "fp32"), ("lenet", "als-f16"), ("resnet", "amp-bf16"), ("unet", "amp-f16"), ("bert", "fp8-hybrid"),
         ("llama", "amp-bf16"), ("dlrm", "amp-f16"), ("dlrm", "fp8-current")]


def batch_of(library, loss):
    """Random inputs of a library, as it declares them; classes, table rows and masks are whole numbers."""
    import mpt
    rng = np.random.default_rng(3)
    with mpt.Trainer(library) as trainer:
        specs = {name: spec for name, spec in trainer.inputs().items() if name != "learning_rate"}
    feeds = {}
    for name, (kind, shape) in specs.items():
        if "int" in str(kind):
            feeds[name] = rng.integers(0, 6, shape).astype(np.int64)
        elif name == "mask":
            feeds[name] = rng.integers(0, 2, shape).astype(np.float32)
        else:  # targets of BCE lie between 0 and 1
            feeds[name] = (rng.uniform(0, 1, shape) if loss.startswith("bce") else rng.normal(0, 1, shape)).astype(np.float32)
    return feeds


def built():
    build = build_folder()
    if not (build / "lib" / "libcuda_standin.so").exists() or not (build / "bin" / "mpt-opt").exists():
        pytest.skip("the compiler or the stand-in is not built")
    return build


def check_kernels(folder, name, policy, **options):
    build, (model, loss) = built(), (small_models.write_model(name, folder), small_models.MODELS[name][1])
    cuda_steps.compile_step(build, model, folder / "cpu", [f"--loss={loss}", "--policy=fp32"], False)
    return cuda_kernels.check(build, model, [f"--loss={loss}", f"--policy={policy}"], batch_of(folder / "cpu", loss), folder / "cuda", **options)


@pytest.mark.parametrize("name, policy", [("resnet", "fp8-hybrid"), ("bert", "als-f16"), ("unet", "fp8-current"), ("llama", "fp8-e5m2")])
def test_kernels_agree_with_the_interpreter(tmp_path, name, policy):
    values, most, problems = check_kernels(tmp_path, name, policy)
    assert not problems and values > 100 and most < 0.3, problems


@pytest.mark.parametrize("policy", ["fp32", "als-f16", "fp8-hybrid"])
def test_a_wrong_kernel_is_noticed(tmp_path, policy):
    """SGD's momentum is 0.9, not 0.95, which the second step uses for the first time."""
    _, _, problems = check_kernels(tmp_path, "lenet", policy, tamper=lambda text: text.replace("dense<0.899999976>", "dense<0.95>"))
    assert problems and all("step 1: " in problem for problem in problems), problems


@pytest.mark.parametrize("name, policy", CASES)
def test_steps_agree(tmp_path, name, policy):
    build = built()
    model, loss = small_models.write_model(name, tmp_path), small_models.MODELS[name][1]
    for target, policy_there in (("exact", "fp32"), ("cpu", policy), ("cuda", policy)):
        cuda_steps.compile_step(build, model, tmp_path / target, [f"--loss={loss}", f"--policy={policy_there}",
                                                                  "--optimizer=sgd,lr=0.01,momentum=0.9"], target == "cuda")
    feeds = batch_of(tmp_path / "exact", loss)
    text, problems = cuda_steps.judge(*(cuda_steps.train(build, tmp_path / target, feeds) for target in ("cuda", "cpu", "exact")))
    assert not problems, text


def trained_kernels(tmp_path, policy: str, nodes, weights, classes: int) -> str:
    """Trains a classifier on every target, which have to agree, and returns the device's kernels as text."""
    build, rng = built(), np.random.default_rng(4)
    cuda_models.model(tmp_path / "m.onnx", "rows", nodes, weights, {"x": [12, 16]}, ("logits", TensorProto.FLOAT, [12, classes]))
    batch = {"x": cuda_models.values(7, 12, 16), "labels": rng.integers(0, classes, 12).astype(np.int64)}
    flags = ["--loss=softmax-cross-entropy"]
    exact = cuda_steps.run(build, tmp_path / "m.onnx", [*flags, "--policy=fp32"], batch, tmp_path / "exact", False)
    cpu = exact if policy == "fp32" else cuda_steps.run(build, tmp_path / "m.onnx", [*flags, f"--policy={policy}"], batch, tmp_path / "cpu", False)
    cuda = cuda_steps.run(build, tmp_path / "m.onnx", [*flags, f"--policy={policy}"], batch, tmp_path / "cuda", True)
    text, problems = cuda_steps.judge(cuda, cpu, exact)
    assert not problems, text
    return subprocess.run([build / "bin" / "mpt-opt", tmp_path / "m.onnx", *flags, f"--policy={policy}", "--target=cuda", "--to=memory", "--emit=mlir",
                           "--quiet", "-o", "-"], capture_output=True, text=True, check=True).stdout


@pytest.mark.parametrize("policy, width", [("fp32", 20001), ("amp-bf16", 34000)])
def test_rows_of_a_long_vocabulary_are_kept(tmp_path, policy, width):
    """Loss and gradient of rows that fill the registers of a block, which reads them once."""
    nodes = [helper.make_node("MatMul", ["x", "w"], ["logits"], name="product")]
    kernels = trained_kernels(tmp_path, policy, nodes, {"w": cuda_models.values(5, 16, width)}, width)
    loss = re.search(rf"func.func private @\w+\([^\n]*memref<12x{width}x\w+[,>][^\n]*memref<12x{width}x\w+[,>][^\n]*\"rows\"[^\n]*", kernels)
    assert loss and "mpt.passes" not in loss[0] and "reduce x3" in loss[0], kernels[:2000]


@pytest.mark.parametrize("policy", ["amp-bf16", "amp-f16"])
def test_elements_of_padded_rows_are_made_in_vectors(tmp_path, policy):
    """Forward and backward, of a layer whose width no vector divides: memory begins its rows at 16 bytes, for GEMMs."""
    width = 1003
    nodes = [helper.make_node("MatMul", ["x", "w"], ["h"], name="hidden"), helper.make_node("Tanh", ["h"], ["t"], name="tanh"),
             helper.make_node("MatMul", ["t", "v"], ["logits"], name="product")]
    kernels = trained_kernels(tmp_path, policy, nodes, {"w": cuda_models.values(5, 16, width), "v": cuda_models.values(6, width, 10)}, 10)
    padded = re.findall(r"func.func private @\w+\([^\n]*memref<12x1003x\w+, strided<\[1008, 1\]>>\) [^\n]*\"pointwise\".*?\n  }", kernels, re.DOTALL)
    assert len(padded) >= 2, kernels
    assert all(re.search(r"vector.store [^\n]*vector<8x", kernel) and "memref.store" in kernel for kernel in padded), padded


def test_a_wrong_gradient_is_noticed():
    rng = np.random.default_rng(0)
    right = {"loss": np.float64([1, 0.9]), "taken": np.array(2), "violations": np.array("")}
    for name, size in (("large", 10000), ("small", 20)):
        right["before/" + name] = np.zeros(size, np.float32)
        right["after/" + name] = rng.normal(0, 1, size).astype(np.float32)
    assert cuda_steps.judge(right, right, right)[1] == []
    wrong = {**right, "after/small": 0.9 * right["after/small"]}
    assert any("'small'" in problem for problem in cuda_steps.judge(wrong, right, right)[1])
    assert any("loss" in problem for problem in cuda_steps.judge({**right, "loss": np.float64([1, 0.91])}, right, right)[1])
