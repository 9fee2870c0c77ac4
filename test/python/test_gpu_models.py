# SPDX-License-Identifier: Apache-2.0
"""Steps of ResNet-50, BERT and GPT-2 at full widths and batches, two layers or blocks deep, for three architectures: no spill, no unaligned matrix of a
GEMM, no kernel over its budget, the waves of the ten largest full (scripts/gpu-table.py). Exceptions are to be listed, with their figures."""
import dataclasses
import importlib.util
import pathlib
import subprocess
import sys

import pytest
from mpt_run import ROOT, tool

pytestmark = pytest.mark.slow

ARCHS = ["sm_80", "sm_90", "sm_100"]
BATCH = {"resnet50": 256, "bert": 64, "gpt2": 16}
LEAST = 4e6  # bytes from which memory is to bound a kernel


def table_script():
    spec = importlib.util.spec_from_file_location("gpu_table", ROOT / "scripts" / "gpu-table.py")
    module = sys.modules[spec.name] = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


table = table_script()


@dataclasses.dataclass(frozen=True)
class Excuse:
    """Kernels of a cell that do not hold, found by schedule and operations; `limit` is how far they may go. The reasons are in docs/results/gpu-code.md."""
    what: str  # over: time of the busiest pipe over the time of the bytes, at most; sparse: share of full waves, at least
    schedule: str
    ops: frozenset
    limit: float

    def covers(self, facts) -> bool:
        own = {word.split()[0] for word in facts.ops.split(", ") if word}
        return facts.schedule == self.schedule and self.ops <= own


def over(ops: str, limit: float, schedule: str = "pointwise") -> Excuse:
    return Excuse("over", schedule, frozenset(ops.split()), limit)


def sparse(ops: str, limit: float) -> Excuse:
    return Excuse("sparse", "pointwise", frozenset(ops.split()), limit)


# Of a model, a policy and an architecture. Links of a scatter: each update is compared with all others, which no bytes tell.
EXCEPTIONS: dict[tuple[str, str, str], list[Excuse]] = {
    ("bert", policy, arch): [over("", limit, "scatter-links")]
    for policy in ("amp-f16", "amp-bf16", "fp8-hybrid") for arch, limit in (("sm_80", 1.22), ("sm_90", 1.70), ("sm_100", 2.25))}


def problems(cell, exceptions) -> list[str]:
    """Figures of a cell that neither hold nor are excepted, and exceptions that nothing needs."""
    found, needed = [], set()

    def ask(what, facts, value, beyond):
        fitting = [e for e in exceptions if e.what == what and e.covers(facts)]
        needed.update(fitting)
        if not fitting or all(beyond(value, e.limit) for e in fitting):
            found.append(f"{what}: {facts.schedule} ({facts.ops}) {value:.3f}, allowed {[e.limit for e in fitting]}")
    found += [f"spills {f.spilled} bytes: {f.schedule} ({f.ops})" for f in cell.spills]
    if cell.unaligned:
        found.append(f"{cell.unaligned} unaligned matrices of GEMMs")
    for _, facts in cell.over:
        ask("over", facts, facts.ratio, lambda value, limit: value > limit + 0.005)
    for facts in cell.sparse:
        ask("sparse", facts, facts.full, lambda value, limit: value < limit - 0.005)
    return found + [f"no kernel needs this exception any more: {e}" for e in exceptions if e not in needed]


@pytest.fixture(scope="module")
def models(tmp_path_factory):
    """Makes a model's file once."""
    made: dict[str, pathlib.Path] = {}

    def model(name: str) -> pathlib.Path:
        if name not in made:
            folder = tmp_path_factory.mktemp(name)
            subprocess.run([sys.executable, "export.py", f"{name}-gpu-short", folder, "17", "2"], cwd=ROOT / "benchmarks", check=True, capture_output=True)
            made[name] = folder / "model.onnx"
        return made[name]
    return model


@pytest.mark.parametrize("policy", ["amp-f16", "amp-bf16", "fp8-hybrid"])
@pytest.mark.parametrize("name", list(BATCH))
def test_steps_hold(models, name, policy):
    pytest.importorskip("torch")
    if missing := table.budget.missing_tools():
        pytest.skip(missing)
    opt, known, wrong = tool().with_name("mpt-opt"), {}, {}
    for archs in (ARCHS[:1], ARCHS[1:]):  # sm_80 has no 8-bit GEMMs, and so another program
        for arch, found in table.program(opt, f"{models(name)}:batch={BATCH[name]}", policy, archs, known, lambda: None).items():
            step = [(n, table.Facts(**known[f"{arch} {key}"])) for n, key in found["kernels"] if n]
            assert len(step) >= 10 and sum(facts.bytes >= LEAST for _, facts in step) >= 5
            wrong[arch] = problems(table.Cell(step, found["unaligned"], LEAST), EXCEPTIONS.get((name, policy, arch), []))
    assert not any(wrong.values()), wrong


def test_what_does_not_hold_is_found():
    good = table.Facts("rows", "add x2, erf, abs", bytes=int(8e6), element_bytes=4, instructions=10, pipe="alu", ratio=0.9, seconds=2e-6, moving=2e-6,
                       registers=32, spilled=0, blocks=4, full=0.9)
    allowed = [over("erf abs", 1.1, "rows")]

    def found(exceptions=(), unaligned=0, **facts):
        return len(problems(table.Cell([(1, dataclasses.replace(good, **facts))], unaligned, LEAST), exceptions))
    assert found() == 0 and found(spilled=4) == 1 and found(unaligned=1) == 1 and found(ratio=1.01) == 1 and found(full=0.79) == 1
    assert found(ratio=1.01, bytes=int(3e6)) == 0  # too small for memory to bound it
    assert found(allowed, ratio=1.1) == 0 and found(allowed, ratio=1.11) == 1 and found(allowed, ratio=1.05, schedule="pointwise") == 2
    assert found(allowed) == 1, "an exception that nothing needs"
    assert found([sparse("erf", 0.7)], full=0.75, schedule="pointwise") == 0 and found([sparse("erf", 0.7)], full=0.65, schedule="pointwise") == 1
