# SPDX-License-Identifier: Apache-2.0
"""Models compiled for CUDA, trained without a GPU: kernels run as loops on the host, and a fake library takes the place of
the driver, cuBLASLt and cuDNN, executes as late as it may and notes calls that the real ones would forbid."""
import json
import os
import pathlib
import re
import subprocess
import sys
import textwrap

import numpy as np
import pytest

import mpt_run
from conftest import build_folder
from cuda_models import cnn, convolutions, depthwise, mlp, normalized, recurrent, transformer
from standin import environment, library

pytestmark = pytest.mark.slow

ROOT = pathlib.Path(__file__).resolve().parents[2]


# Runs in a process of its own, which opens the fake driver and not the machine's own.
STEPS = """
import json, sys
import numpy as np
from standin import counts, standin as library, trainer as make_trainer
folder, out = sys.argv[1:]
data = np.load(folder + "/data.npz")
losses = {}
standin = library()
for target in ("cpu", "cuda"):
    with make_trainer(folder + "/" + target) as trainer:
        batch = {"x": data["x"], "target": data["labels"]}
        names = [n for n in trainer.inputs() if n not in ("x", "learning_rate")]
        batch = {"x": data["x"], names[0]: data["labels"]}
        losses[target] = [trainer.step(batch).loss]
        losses[target + " state"] = {n: v.tolist() for n, v in trainer.state().items() if v.dtype == np.float32 and v.size < 8192}
        losses[target] += [trainer.step(batch).loss for _ in range(4)]
        if target == "cuda":
            before = counts(standin)
            for _ in range(4):
                trainer.start(batch)
            after = counts(standin)
            losses["waits"] = after.synchronizations - before.synchronizations
            losses["graphs"] = after.graphs - before.graphs
            losses["enqueued"] = after.enqueued - before.enqueued
            trainer.metrics()
            trainer.save(out + ".state")
            expected = trainer.step(batch).loss
            trainer.load(out + ".state")
            losses["resumed"] = trainer.step(batch).loss == expected
            losses["parameters"] = {n: bool(np.isfinite(p).all()) for n, p in trainer.parameters().items()}
            losses["launches"] = counts(standin).launches
            losses["convolutions"] = counts(standin).convolutions
losses["violations"] = standin.standin_violations().decode()
losses["live"] = counts(standin).live
json.dump(losses, open(out, "w"))
"""


def train(tmp_path, make, policy, cudnn=True, lr="1e-2", options=None, **variables):
    build = build_folder()
    if not os.path.exists(library(build)) or not (build / "bin" / "mpt-opt").exists():
        pytest.skip("the compiler or the stand-in is not built")
    x = make(tmp_path / "m.onnx")
    np.savez(tmp_path / "data.npz", x=x, labels=np.arange(len(x), dtype=np.int64) % 5)
    for target, flags in (("cpu", []), ("cuda", ["--target=cuda", "--arch=host"])):
        subprocess.run([build / "bin" / "mpt-opt", tmp_path / "m.onnx", "--loss=softmax-cross-entropy", f"--optimizer=adamw,lr={lr}",
                        f"--policy={policy}", "--quiet", "-o", tmp_path / target, *flags], check=True)
    out = tmp_path / "losses.json"
    subprocess.run([sys.executable, "-c", textwrap.dedent(STEPS), str(tmp_path), str(out)], check=True,
                   env=environment(build, cudnn, options, MPT_STANDIN_LOG=str(tmp_path / "calls"), **variables))
    return json.loads(out.read_text())


TOLERANCE = {"fp32": 1e-5, "amp-f16": 4e-3, "amp-bf16": 2e-2, "als-f16": 4e-3}
EIGHT_BITS = {"fp8-hybrid": 5e-2, "fp8-current": 5e-2, "fp8-e5m2": 5e-2}


@pytest.mark.parametrize("policy", TOLERANCE)
@pytest.mark.parametrize("make, cudnn", [(mlp, False), (cnn, True), (cnn, False)])
def test_steps_agree_with_the_cpu(tmp_path, make, cudnn, policy):
    result = train(tmp_path, make, policy, cudnn)
    np.testing.assert_allclose(result["cuda"], result["cpu"], rtol=TOLERANCE[policy])
    assert result["cuda"][-1] < result["cuda"][0]
    assert result["violations"] == "" and result["live"] == 0
    assert all(result["parameters"].values()) and result["resumed"]
    assert (result["waits"], result["graphs"]) == (0, 4), "one graph launch a step, and nothing waits"
    assert result["enqueued"] == 8, "beside the graph the inputs alone: to the device, and into place"
    assert result["launches"] > 0 and (result["convolutions"] > 0) == (cudnn and make is cnn)


@pytest.mark.parametrize("policy", [*TOLERANCE, "fp8-hybrid"])
def test_recurrent_layers(tmp_path, policy):
    """Loops over steps, of every cell and direction: losses of the CPU's calls, and all of them in the one graph of a step."""
    result = train(tmp_path, recurrent, policy)
    np.testing.assert_allclose(result["cuda"], result["cpu"], rtol={**TOLERANCE, **EIGHT_BITS}[policy])
    assert result["cuda"][-1] < result["cuda"][0]
    assert result["violations"] == "" and result["live"] == 0 and result["resumed"]
    assert all(result["parameters"].values()) and (result["waits"], result["graphs"], result["enqueued"]) == (0, 4, 8)


@pytest.mark.parametrize("refused", ["cudnn", "cublaslt"])
def test_a_library_that_cannot_be_recorded_costs_the_graph_alone(tmp_path, refused):
    result = train(tmp_path, cnn, "amp-bf16", MPT_STANDIN_REFUSE_CAPTURE=refused)
    np.testing.assert_allclose(result["cuda"], result["cpu"], rtol=TOLERANCE["amp-bf16"])
    assert result["violations"] == "" and result["live"] == 0 and result["resumed"] and all(result["parameters"].values())
    assert (result["waits"], result["graphs"]) == (0, 0) and result["enqueued"] > 8 and result["convolutions"] > 0


def test_cudnn_before_cublaslt_is_noted():
    """cuDNN looks for a cuBLASLt of its own where none is loaded: trainers open theirs first, or the fake driver says so."""
    if not os.path.exists(library(build_folder())):
        pytest.skip("the stand-in is not built")
    text = """if 1:
        import ctypes, sys
        standin, handle = ctypes.CDLL(sys.argv[1]), ctypes.c_void_p()
        standin.standin_violations.restype = ctypes.c_char_p
        for name in ("cudnnCreate", "cublasLtCreate", "cudnnCreate"):
            getattr(standin, name)(ctypes.byref(handle))
            print(len(standin.standin_violations().splitlines()))
        print(standin.standin_violations().decode())"""
    told = subprocess.run([sys.executable, "-c", text, library(build_folder())], text=True, capture_output=True, check=True).stdout
    assert told.split("\n")[:3] == ["1", "1", "1"] and "before cuBLASLt is opened" in told


def expect_convolutions_of_cpu(result, policy):
    """Losses, gradients in FP32, and nothing but graphs of steps."""
    np.testing.assert_allclose(result["cuda"], result["cpu"], rtol={**TOLERANCE, **EIGHT_BITS}[policy])
    for name, value in result["cpu state"].items() if policy == "fp32" else []:
        if ".moment1" in name:  # the gradient of the first step
            np.testing.assert_allclose(result["cuda state"][name], value, rtol=0, atol=1e-5 * np.abs(value).max(), err_msg=name)
    assert result["violations"] == "" and result["live"] == 0 and result["resumed"]
    assert all(result["parameters"].values()) and (result["waits"], result["graphs"]) == (0, 4)


@pytest.mark.parametrize("rank, policy, way", [(1, "fp32", "implicit"), (2, "fp32", "implicit"), (3, "fp32", "implicit"), (2, "fp32", "columns"),
                                               (2, "amp-f16", "implicit"), (3, "amp-bf16", "implicit"), (2, "fp8-hybrid", "implicit")])
def test_convolutions_without_cudnn(tmp_path, rank, policy, way):
    result = train(tmp_path, lambda path: convolutions(path, rank), policy, cudnn=False, lr="1e-3", options={"convolutions": way})
    expect_convolutions_of_cpu(result, policy)
    # The two operands' type, and the stored type: of channels in eights, whose accesses are vectors, and of others.
    types = {"fp32": "f32_f32", "amp-f16": "f16_f16", "amp-bf16": "bf16_bf16", "fp8-hybrid": "f16_f32"}[policy]
    calls = (tmp_path / "calls").read_text()
    for kernel in (f"forward_{types}_v", f"forward_{types}_s", f"data_{types}_v", f"data_{types}_s", f"weights_{types[:types.index('_')]}_f32_v"):
        assert (f"launch mpt_conv_{kernel}" in calls) == (way == "implicit"), kernel
    assert ("launch mpt_im2col" in calls) == (way == "columns")


@pytest.mark.parametrize("policy, arch", [("fp32", "sm_80"), ("amp-bf16", "sm_90"), ("amp-f16", "sm_100")])
def test_convolution_kernels_do_not_spill(tmp_path, policy, arch):
    assembler = mpt_run.ptxas()
    if not assembler:
        pytest.skip("no ptxas")
    convolutions(tmp_path / "m.onnx", 1)
    subprocess.run([build_folder() / "bin" / "mpt-opt", tmp_path / "m.onnx", "--loss=softmax-cross-entropy", "--optimizer=sgd", f"--policy={policy}",
                    "--target=cuda", f"--arch={arch}", "--name=m", "--quiet", "-o", tmp_path / "out"], check=True)
    ptx = re.search(rb"//\n// Generated by LLVM[^\0]*", (tmp_path / "out" / "libm.so").read_bytes())[0]
    (tmp_path / "m.ptx").write_bytes(ptx)
    said = subprocess.run([assembler, "-v", f"-arch={arch}", tmp_path / "m.ptx", "-o", tmp_path / "m.cubin"], check=True, capture_output=True, text=True).stderr
    kernels = dict(re.findall(r"entry function '(mpt_conv_\w+)'.*?(\d+) bytes spill stores", said, re.S))
    assert len(kernels) == 6, "three kinds, with vectors and without"
    assert set(kernels.values()) == {"0"}
    assert (b"wmma.mma.sync" in ptx) == (policy != "fp32")


@pytest.mark.parametrize("rank, policy, way, cudnn", [
    (1, "fp32", "direct", False), (2, "fp32", "direct", False), (3, "fp32", "any", False), (2, "amp-f16", "any", False), (3, "amp-bf16", "direct", False),
    (2, "fp8-hybrid", "any", False), (2, "fp32", "any", True), (2, "amp-bf16", "any", True)])
def test_depthwise_convolutions(tmp_path, rank, policy, way, cudnn):
    """By a kernel of their shape: forward and both gradients."""
    result = train(tmp_path, lambda path: depthwise(path, rank), policy, cudnn=cudnn, lr="1e-3", options={"convolutions": way, "search": "off"})
    expect_convolutions_of_cpu(result, policy)
    calls = (tmp_path / "calls").read_text()
    for kind in ("forward", "data", "weights"):
        assert len(set(re.findall(rf"launch (mpt_depthwise_{kind}_\w+)", calls))) == 5, kind
    assert "mpt_conv_forward" in calls or cudnn, "what is not depthwise takes another way"


def test_depthwise_convolutions_are_measured(tmp_path):
    """Against cuDNN's engines: both are tried in the first run, and one of them later."""
    result = train(tmp_path, depthwise, "fp32", lr="1e-3")
    np.testing.assert_allclose(result["cuda"], result["cpu"], rtol=TOLERANCE["fp32"])
    assert result["violations"] == "" and result["resumed"] and result["convolutions"] > 0
    assert "launch mpt_depthwise_forward" in (tmp_path / "calls").read_text()


@pytest.mark.parametrize("policy, arch", [("fp32", "sm_80"), ("amp-bf16", "sm_90"), ("amp-f16", "sm_100")])
def test_depthwise_kernels_do_not_spill(tmp_path, policy, arch):
    assembler = mpt_run.ptxas()
    if not assembler:
        pytest.skip("no ptxas")
    depthwise(tmp_path / "m.onnx")
    subprocess.run([build_folder() / "bin" / "mpt-opt", tmp_path / "m.onnx", "--loss=softmax-cross-entropy", "--optimizer=sgd", f"--policy={policy}",
                    "--target=cuda", f"--arch={arch}", "--name=m", "--quiet", "-o", tmp_path / "out"], check=True)
    (tmp_path / "m.ptx").write_bytes(re.search(rb"//\n// Generated by LLVM[^\0]*", (tmp_path / "out" / "libm.so").read_bytes())[0])
    said = subprocess.run([assembler, "-v", f"-arch={arch}", tmp_path / "m.ptx", "-o", tmp_path / "m.cubin"], check=True, capture_output=True, text=True).stderr
    kernels = dict(re.findall(r"entry function '(mpt_depthwise_\w+)'.*?(\d+) bytes spill stores", said, re.S))
    assert len(kernels) == 15 and set(kernels.values()) == {"0"}, kernels


def test_channels_that_tensor_cores_do_not_take_are_reported(tmp_path):
    """Of 16 bits alone, with the counts that would do; depthwise ones have a kernel without Tensor Cores."""
    convolutions(tmp_path / "m.onnx")
    for policy, target in (("amp-bf16", "cuda"), ("fp32", "cuda"), ("amp-bf16", "cpu")):
        words = [build_folder() / "bin" / "mpt-opt", tmp_path / "m.onnx", "--loss=softmax-cross-entropy", "--optimizer=sgd", f"--policy={policy}",
                 f"--target={target}", "--dry-run", "--quiet"]
        subprocess.run([*words, f"--report=kernels={tmp_path}/r.json"], check=True)
        found = json.loads((tmp_path / "r.json").read_text())["step"]["narrow_channels"]
        text = subprocess.run([*words, "--report=kernels"], check=True, capture_output=True, text=True).stdout
        if (policy, target) != ("amp-bf16", "cuda"):
            assert found == [] and "Tensor Cores" not in text
            continue
        rows = {(row["node"], row["kind"]): (row["channels"], row["for_tensor_cores"]) for row in found}
        assert rows["conv0", "forward"] == ([3, 16], [8, 16]) and rows["conv5", "forward"] == ([12, 5], [16, 8])
        assert {node for node, _ in rows} == {"conv0", "conv5"}
        assert "step: convolution 'conv5' (forward) has 12 and 5 channels a group: Tensor Cores want 16 and 8" in text


def test_wide_results_of_convolutions_come_from_cudnn(tmp_path):
    """Under fp8-hybrid operands of convolutions are FP16 and results FP32, which scales multiply."""
    result = train(tmp_path, normalized, "fp8-hybrid", lr="1e-3")
    np.testing.assert_allclose(result["cuda"], result["cpu"], rtol=EIGHT_BITS["fp8-hybrid"])
    assert result["violations"] == "" and result["live"] == 0 and result["resumed"]
    assert (result["waits"], result["graphs"]) == (0, 4)
    calls = (tmp_path / "calls").read_text()
    for kind in range(3):  # the result: x, w, y
        assert f"wide convolution {kind} type 2" in calls


def test_convolutions_are_measured(tmp_path):
    """In the first run alone; of two that take the same time, the first is taken."""
    result = train(tmp_path, cnn, "fp32", cudnn=False)
    calls = (tmp_path / "calls").read_text().splitlines()
    launches = [c for c in calls if c.startswith("launch mpt_conv_") or c.startswith("launch mpt_im2col")]
    assert any("im2col" in c for c in launches) and not any("im2col" in c for c in launches[-5:])
    assert result["violations"] == "" and result["resumed"]


@pytest.mark.parametrize("way", ["together", "apart", "columns"])
@pytest.mark.parametrize("policy", ["amp-f16", "amp-bf16"])
def test_sums_come_with_the_convolution(tmp_path, policy, way):
    result = train(tmp_path, normalized, policy, cudnn=way != "columns", lr="1e-3", **({"MPT_STANDIN_NO_SUMS": "1"} if way == "apart" else {}))
    np.testing.assert_allclose(result["cuda"], result["cpu"], rtol=TOLERANCE[policy])
    assert result["violations"] == "" and result["live"] == 0 and result["resumed"]
    assert (result["waits"], result["graphs"]) == (0, 4)
    # For FP16, rounded values are summed; BF16 is summed in FP32 before it is rounded, since cuDNN sums no BF16.
    kind = {"amp-f16": " type 2 summed as 2", "amp-bf16": " reduced, type 9 summed as 0"}[policy]
    calls = (tmp_path / "calls").read_text()
    assert (f"convolution with sums{kind}" in calls) == (way == "together")
    # The sums of the norm's gradient: by the operation for them (23), which takes FP16 alone, or by reductions (22).
    kind = {"amp-f16": "type 2 by 23", "amp-bf16": "type 9 by 22"}[policy]
    assert (f"convolution with norm's sums {kind}" in calls) == (way == "together")


@pytest.mark.parametrize("shift", [0, 200])
def test_statistics_keep_their_digits(tmp_path, shift):
    """The variance of a channel whose mean is hundreds of deviations away is none that FP32's sums could give."""
    result = train(tmp_path, lambda path: normalized(path, shift), "amp-f16", lr="1e-6")
    assert "convolution with sums" in (tmp_path / "calls").read_text() and result["violations"] == ""
    names = [n for n in result["cuda state"] if "mean" in n or "var" in n]
    assert len(names) == 4
    for name in names:
        np.testing.assert_allclose(result["cuda state"][name], result["cpu state"][name], rtol=2e-3, atol=1e-5, err_msg=name)


@pytest.mark.parametrize("policy", {**TOLERANCE, **EIGHT_BITS})
def test_attention_with_dropout(tmp_path, policy):
    # Slowly, so that the loss stays large: a collapsed loss consists of roundings of the large one.
    result = train(tmp_path, transformer, policy, lr="1e-3")
    np.testing.assert_allclose(result["cuda"], result["cpu"], rtol={**TOLERANCE, **EIGHT_BITS}[policy])
    assert result["cuda"][-1] < result["cuda"][0]
    assert result["violations"] == "" and result["live"] == 0 and result["resumed"]
    assert all(result["parameters"].values())
    assert (result["waits"], result["graphs"]) == (0, 4)
    # E4M3 and E5M2 are 28 and 29, BF16 14: operands scaled by numbers on the device, the GEMM rounded as it is stored.
    if policy == "fp8-hybrid":
        assert re.search("gemm .* types 2[89] 2[89] 14 .* scaled", (tmp_path / "calls").read_text())


def test_libraries_of_packages_are_found(tmp_path, monkeypatch):
    for part in ("cudnn", "cu13", "cudnn/include"):
        (tmp_path / "nvidia" / part / "lib").mkdir(parents=True)
    monkeypatch.syspath_prepend(str(tmp_path))
    from mpt import _native
    assert _native.packaged_libraries().split(":")[:2] == [str(tmp_path / "nvidia" / part / "lib") for part in ("cu13", "cudnn")]


def test_narrower_sums_are_for_forward_gemms(tmp_path):
    result = train(tmp_path, transformer, "fp8-hybrid", lr="1e-3", options={"fast-sums": 1})
    np.testing.assert_allclose(result["cuda"], result["cpu"], rtol=EIGHT_BITS["fp8-hybrid"])
    assert result["violations"] == "" and result["resumed"]
    calls = re.findall("^gemm .* types (2[89]) (2[89]) .* scaled(.*)$", (tmp_path / "calls").read_text(), re.M)
    assert {fast for a, b, fast in calls if (a, b) == ("28", "28")} == {" fast"}
    assert {fast for a, b, fast in calls if "29" in (a, b)} == {""}


@pytest.mark.parametrize("policy", EIGHT_BITS)
@pytest.mark.parametrize("make", [mlp, cnn])
def test_eight_bits_agree_with_the_cpu(tmp_path, make, policy):
    result = train(tmp_path, make, policy)
    np.testing.assert_allclose(result["cuda"], result["cpu"], rtol=EIGHT_BITS[policy])
    assert result["violations"] == "" and result["live"] == 0 and result["resumed"]
