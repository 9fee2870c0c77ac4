# SPDX-License-Identifier: Apache-2.0
"""trainer.memory() against the plan, over models and policies: within 3 %, inputs with it."""
import json
import subprocess
import sys

import numpy as np
import pytest
from conftest import ROOT, build_folder

import mpt

sys.path.insert(0, str(ROOT / "benchmarks" / "parity"))
pytest.importorskip("onnx")
import networks  # noqa: E402

COMPILER = build_folder() / "bin" / "mpt-opt"
pytestmark = pytest.mark.skipif(not COMPILER.exists(), reason="mpt-opt is not built")
MODELS = {"resnet18": (networks.resnet18, {"batch": 64}), "gpt": (networks.byte_gpt, {"batch": 8, "context": 64, "width": 96}),
          "encoder-decoder": (networks.encoder_decoder, {"batch": 8, "length": 32})}
POLICIES = {"fp32": [], "amp-f16": [], "amp-bf16": [], "fp8-hybrid": [], "bf16-sr": ["--slots=i8"], "amp-f16+": ["--slots=i8", "--saved=f8"],
            "fp32+": ["--accumulate=2"]}
SCRATCH = 1 << 20  # of library calls of one thread


@pytest.mark.parametrize("model", MODELS)
def test_memory_is_the_plan(model, tmp_path):
    make, sizes = MODELS[model]
    path = make(str(tmp_path / "model.onnx"), seed=0, **sizes)
    plans, taken = {}, {}
    for policy, flags in POLICIES.items():
        folder = tmp_path / policy
        subprocess.run([COMPILER, path, "--quiet", "--loss=softmax-cross-entropy", "--optimizer=adamw", f"--policy={policy.rstrip('+')}", *flags,
                        "-o", folder, f"--report=memory={tmp_path / 'report.json'}"], check=True)
        report = json.loads((tmp_path / "report.json").read_text())
        trainer = mpt.Trainer(folder, threads=1)
        feeds = {name: np.zeros(shape, kind) for name, (kind, shape) in trainer.inputs("step").items() if name != "learning_rate"}
        for function in ("accumulate", "step") if "accumulate" in report["functions"] else ("step",):
            trainer.run(function, feeds) if function == "accumulate" else trainer.step(feeds)
        memory, step = trainer.memory(), report["functions"]["step"]
        # Results of each function that has run are kept, and so is the scratch of library calls, which no plan has.
        arena = max(entry["arena"] for name, entry in report["functions"].items() if name in ("step", "accumulate"))
        plans[policy] = sum(report["state"].values()) + arena + step["outputs"] + step["inputs"]
        scratch = max(0, memory["staging_bytes"] - step["inputs"])
        taken[policy] = memory["peak_bytes"] - scratch
        assert scratch <= SCRATCH, (policy, scratch)
        assert memory["state_bytes"] == pytest.approx(sum(report["state"].values()), rel=0.005)
        assert taken[policy] == pytest.approx(plans[policy], rel=0.03), (policy, memory)
    # Another policy's plan would be told.
    assert abs(taken["fp32"] / plans["amp-f16"] - 1) > 0.03 or abs(taken["amp-f16+"] / plans["amp-f16"] - 1) > 0.03
