# SPDX-License-Identifier: Apache-2.0
"""`mpt-run --certify` of emitted libraries: right ones pass in every policy, ten planted bugs do not."""
import json
import pathlib
import subprocess

import numpy as np
import planted_steps
import pytest
from mpt_run import tool, write_tensors
from onnx import numpy_helper, parser, save

POLICIES = sorted(path.stem for path in (pathlib.Path(__file__).parents[2] / "lib/Precision/policies").glob("*.mlir"))
# One recipe a bug; the table in `docs/results/certificates.md` has all of both.
PLANTED = {"rounding_dropped": "amp-f16", "partial_sums": "fp32", "tile_dropped": "amp-bf16", "half_scale": "fp8-hybrid",
           "not_unscaled": "als-f16", "master_stale": "fp8-current", "copy_stale": "als-f16-product", "overflow_committed": "fp8-e5m2",
           "scale_stays": "amp-f16", "state_rounded": "autocast-cuda-f16", "mask_dropped": "pure-f16-static", "updates_narrow": "amp-bf16"}

# Bugs that the compiler itself notices behind fusion.
NOT_COMPILED = {"not_unscaled"}


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    path = tmp_path_factory.mktemp("planted")
    planted_steps.write_model(path)
    return path


@pytest.mark.parametrize("policy", POLICIES)
def test_right_library_passes(folder, policy):
    result = planted_steps.certify(folder, policy, None)
    assert result.returncode == 0, result.stderr
    certificate = json.loads(result.stdout)
    assert len(certificate["steps"]) == 3 and len(certificate["gradients"]) == len(certificate["updates"]) == 18
    assert all(0 < row["limit"] < 1 and row["relative_error"] < row["limit"] for row in certificate["gradients"])


def test_every_bug_is_tried():
    assert set(PLANTED) == set(planted_steps.BUGS) and len(PLANTED) >= 10 and set(PLANTED.values()) <= set(POLICIES)


@pytest.mark.parametrize("bug, policy", PLANTED.items())
def test_planted_bug_is_caught(folder, bug, policy):
    result = planted_steps.certify(folder, policy, bug)
    assert (result is planted_steps.REFUSED) == (bug in NOT_COMPILED)
    if bug in NOT_COMPILED:
        return
    assert result is not None and result.returncode == 1, result and result.stderr
    assert not json.loads(result.stdout)["pass"]


# The gradient of such a bias is zero but for noise, which may have any direction and length.
@pytest.mark.parametrize("policy", ["fp32", "amp-f16", "amp-bf16"])
def test_bias_before_a_norm_passes(tmp_path, policy):
    channels, batch = 32, 64
    model = parser.parse_model(f"""<ir_version: 8, opset_import: ["" : 17]>
m (float[{batch}, {channels}] x) => (float[{batch}, 10] logits) {{
y = Gemm(x, w, b) n, m1, v1 = BatchNormalization<training_mode = 1>(y, s, h, m, v) logits = MatMul(n, w2) }}""".replace(") ", ")\n"))
    rng = np.random.default_rng(5)
    weights = {"w": 0.2 * rng.standard_normal((channels, channels)), "b": 0.1 * rng.standard_normal(channels), "s": np.ones(channels),
               "h": np.zeros(channels), "m": np.zeros(channels), "v": np.ones(channels), "w2": 0.2 * rng.standard_normal((channels, 10))}
    model.graph.initializer.extend(numpy_helper.from_array(value.astype(np.float32), name) for name, value in weights.items())
    save(model, tmp_path / "m.onnx")
    write_tensors(tmp_path / "batch.st", {"x": rng.standard_normal((batch, channels)).astype(np.float32), "labels": rng.integers(0, 10, batch)})
    words = [tool(), tmp_path / "m.onnx", "--loss=softmax-cross-entropy", "--optimizer=sgd,lr=0.01,momentum=0.9", f"--policy={policy}",
             "--certify", f"--batch={tmp_path / 'batch.st'}", f"--library={tmp_path / 'out'}"]
    result = subprocess.run([*words, *["--loss-scale=dynamic,init=1024"] * (policy == "amp-f16")], capture_output=True, text=True)
    assert result.returncode == 0, (result.stderr, result.stdout and json.loads(result.stdout)["failures"])


def test_library_is_compiled_where_there_is_none(folder, tmp_path):
    words = [tool(), folder / "m.onnx", "--loss=softmax-cross-entropy", "--optimizer=adamw", "--policy=amp-f16", "--certify",
             f"--batch={folder / 'batch.st'}", f"--library={tmp_path / 'out'}"]
    result = subprocess.run(words, capture_output=True, text=True)
    assert result.returncode == 0 and (tmp_path / "out" / "libm.so").exists(), result.stderr
    # Of other flags: another state.
    other = subprocess.run([*words, "--optimizer=sgd,lr=0.1,momentum=0.9", "--policy=fp32"], capture_output=True, text=True)
    assert other.returncode != 0, other.stdout


@pytest.mark.parametrize("limit", ["--max-gradient-error=0", "--max-update-error=0", "--max-ulp=0", "--min-gradient-cosine=1"])
def test_limits_are_the_users(folder, limit):
    result = planted_steps.certify(folder, "amp-f16", None, limit)
    assert result.returncode == 1, result.stderr
