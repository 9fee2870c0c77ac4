# SPDX-License-Identifier: Apache-2.0
"""Which library calls, with which flags and forms, and which of the runtime's own kernels the bundle's checks make: none may be missing."""
import re
import subprocess
import sys

import gpu_bundle
import pytest

pytestmark = pytest.mark.slow

POLICIES = "fp32,amp-bf16,amp-f16,autocast-cuda-bf16,fp8-hybrid"
MODELS = "^own-(bert|block|chain|convolutions|dropped|feedforward|gpt|shared)"
# The calls that steps of ResNet-50, BERT and GPT-2 ask of the libraries in these policies, in the words of calls.py (a dry run of the bundle's
# speed parts lists it), and FP32; braces hold alternatives, each of which has to be there.
REQUIRED = """
{attention|gradient of attention} {bf16|f16}
convolution {f32|bf16|f16} {forward|backward data|backward weights}
convolution with norm's sums {bf16 by operation 22|f16 by operation 23}
convolution with sums {f16 of f16|reduced, bf16 of f32}
wide convolution {f16 forward|f16 backward data|f16 backward weights|bf16 backward weights}
gemm f32 x f32 -> f32 {NN|NT|TN}
gemm {bf16 x bf16 -> bf16|f16 x f16 -> f16} {NN|NT|TN|TN, bias|TN, bias, GELU that keeps its operand|NN, GELU's gradient}
gemm {bf16 x bf16|f16 x f16} -> f32 {NN|NT|NT, sums of A|NT, sums of B}
gemm e4m3 x e4m3 -> bf16 TN{ scaled|, bias scaled}
gemm e4m3 x e5m2 -> {bf16 TN scaled|f32 TN}
kernel {mpt_gelu_tanh|mpt_gelu_tanh_gradient}_{bf16|f16}
kernel mpt_im2col_bf16
kernel mpt_attention_tiles_{forward|queries|keys}
"""


def each(line):
    """The kinds that a line stands for."""
    if not (match := re.search(r"\{([^}]*)\}", line)):
        return [line]
    return [one for word in match[1].split("|") for one in each(line[:match.start()] + word + line[match.end():])]


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    """(the bundle, {kind: times} of the calls in its checks of small models)"""
    gpu_bundle.needs_standin()
    folder = tmp_path_factory.mktemp("gpu") / "bundle"
    gpu_bundle.pack(folder, "--types=", f"--policies={POLICIES}", f"--training={MODELS}", "--dry", arch="sm_90")
    log = folder.parent / "calls"
    for part in ("gradients", "ways"):
        done, rows = gpu_bundle.run(folder, part, MPT_STANDIN_DRY="1", MPT_STANDIN_ARCH="90", MPT_STANDIN_LOG=str(log))
        assert done.returncode == 0, done.stdout + done.stderr
    told = subprocess.run([sys.executable, folder / "calls.py", log], text=True, capture_output=True, check=True).stdout
    return folder, dict(re.findall(r"^\| (.*) \| (\d+) \|$", told, re.M)), told


def test_every_call_is_made(made):
    _, kinds, told = made
    missing = [kind for line in REQUIRED.strip().splitlines() for kind in each(line) if not any(re.fullmatch(re.escape(kind) + r"(_\w+)?", one) for one in kinds)]
    assert not missing, f"{missing}\n{told}"
    forms = {re.search(r"_drop4?$|$", kind)[0] for kind in kinds if "attention_tiles" in kind}
    assert forms == {"", "_drop", "_drop4"}, "tiles without dropout, by one key and by four"


def test_every_kernel_that_the_runtime_launches_is_launched(made):
    folder, kinds, _ = made
    libraries = (folder / "data" / "training").glob("*/*/cuda/*.so")
    carried = {name.decode() for library in libraries for name in re.findall(rb"\.entry (mpt_(?:attention|conv)\w*)", library.read_bytes())}
    assert len(carried) > 20
    missing = sorted(name for name in carried if f"kernel {name}" not in kinds)
    assert not missing
