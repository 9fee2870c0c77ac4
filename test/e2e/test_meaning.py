# SPDX-License-Identifier: Apache-2.0
"""Values that mean something stay exact in every policy, compiled and rewritten; the check finds a planted error, and its evaluator is ONNX's."""
import os
import pathlib
import subprocess
import sys

import numpy as np
import onnx
import onnx.reference
import pytest

sys.path.insert(0, os.path.dirname(__file__))
pytest.importorskip("torch")
import check_meaning  # noqa: E402
from meaning import check, draft, evaluate, kinds  # noqa: E402

pytestmark = pytest.mark.skipif(not (check_meaning.BUILD / "lib" / "libmpt_compiler.so").exists(), reason="the compiler is not built")


def run(tmp_path, *words):
    """(status, rows, output)"""
    done = subprocess.run([sys.executable, check_meaning.__file__, "--results", tmp_path / "rows.jsonl", *map(str, words)], capture_output=True, text=True)
    return done.returncode, done.stdout + done.stderr


def test_rewritten_in_every_policy(tmp_path):
    status, text = run(tmp_path, "--forms=rewritten", "--count", len(kinds.KINDS) * len(check.policies()))
    assert status == 0, text


def test_compiled(tmp_path):
    """A diagonal of the square of kinds and policies."""
    status, text = run(tmp_path, "--forms=compiled", "--count", 3 * len(kinds.KINDS))
    assert status == 0, text


@pytest.mark.parametrize("form", check_meaning.FORMS)
def test_planted(tmp_path, form):
    """Angles narrowed by a rule of the user are found."""
    flags = [f"--flag=--rule=node \".*{kind}.*\" -> narrow" for kind in ("Mul", "MatMul", "Concat", "Einsum", "Cast", "Unsqueeze", "Transpose", "Cos", "Sin", "Expand")]
    status, text = run(tmp_path, f"--forms={form}", "--kinds=rotary", "--policies=amp-bf16", "--count=6", *flags)
    assert status and " wrong" in text, text


@pytest.mark.parametrize("name", kinds.KINDS)
def test_evaluator(name):
    """Typed and float64 values are those of ONNX's reference evaluator."""
    for seed, opset in enumerate((13, 21)):
        case = kinds.make(name, seed, opset, draft.STYLES[seed])
        onnx.checker.check_model(case.model, full_check=True)
        if any(n.op_type == "GridSample" for n in case.model.graph.node) and opset < 20:
            continue  # the evaluator knows the modes' later names alone
        wanted = onnx.reference.ReferenceEvaluator(case.model).run(None, case.feeds)[0]
        exact = evaluate.Graph(case.model).run(case.feeds)[0]["y"].numpy()
        got = evaluate.typed(case.model, case.feeds)[0]["y"].numpy()
        assert np.linalg.norm(got - wanted) <= 1e-4 * np.linalg.norm(wanted)
        assert np.linalg.norm(exact - wanted) <= 2e-3 * np.linalg.norm(wanted)
