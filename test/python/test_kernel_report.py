# SPDX-License-Identifier: Apache-2.0
"""--report=kernels with an assembler: its registers, blocks and waves agree with scripts/sass-budget.py, which assembles for itself."""
import importlib.util
import json
import subprocess
import sys

import pytest
from mpt_run import ROOT, tool
from test_sass import language

pytestmark = pytest.mark.slow

ARCHS = ("sm_80", "sm_90", "sm_100")


def sass_budget():
    spec = importlib.util.spec_from_file_location("sass_budget", ROOT / "scripts" / "sass-budget.py")
    module = sys.modules[spec.name] = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_places_are_those_of_the_budget(tmp_path):
    budget = sass_budget()
    if missing := budget.missing_tools():
        pytest.skip(missing)
    language(tmp_path / "m.onnx")
    opt = tool().with_name("mpt-opt")
    words = [opt, tmp_path / "m.onnx", "--policy=amp-bf16", "--loss=softmax-cross-entropy", "--optimizer=adamw,lr=1e-3", "--target=cuda", "--quiet",
             f"--arch={','.join(ARCHS)}"]
    subprocess.run([*words, f"--ptxas={budget.tool('ptxas')}", f"--report=kernels={tmp_path}/k.json", "-o", tmp_path / "lib"], check=True)
    step = json.loads((tmp_path / "k.json").read_text())["step"]
    assert step["kernel_code_missing"] is None
    rows = {row["kernel"]: row for row in step["kernel_code"]}
    assert len(rows) >= 10 and sum(row["launches"] for row in rows.values()) == step["kernels"]
    assert 0.9 * step["bytes"] < sum(row["bytes"] for row in rows.values()) <= step["bytes"], "the rest is copied and filled"
    subprocess.run([*words, "--to=memory", "--emit=mlir", "-o", tmp_path / "m.mlir"], check=True)
    distinct = set()
    for arch in ARCHS:
        kernels = budget.kernels_of((tmp_path / "m.mlir").read_text())
        budget.call(opt, tmp_path / "m.mlir", f"--lowering-emit-ptx=arch={arch} file={tmp_path}/m.ptx", "-o", "/dev/null")
        budget.disassemble(kernels, tmp_path / "m.ptx", arch)
        seen = [kernel for kernel in kernels if kernel.name in rows]
        assert len(seen) == len(rows)
        for kernel in seen:
            row, device = rows[kernel.name], budget.USUAL[arch]
            code = row["archs"][arch]
            blocks, waves = budget.occupancy(kernel, budget.DEVICES[device])
            assert (row["blocks"], row["threads"], row["schedule"], row["operations"]) == (kernel.blocks, kernel.threads, kernel.schedule, kernel.ops)
            assert (code["registers"], code["shared_bytes"], code["spilled_bytes"], code["device"], code["blocks_a_multiprocessor"]) == \
                (kernel.registers, kernel.shared, kernel.spilled, device, blocks), (kernel.name, arch)
            assert code["waves"] == pytest.approx(waves) and code["full"] == pytest.approx(budget.full_of(waves))
            distinct.add((blocks, code["full"]))
    assert len(distinct) >= 10
