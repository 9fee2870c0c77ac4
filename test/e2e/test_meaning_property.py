# SPDX-License-Identifier: Apache-2.0
"""Models whose values mean something are valid, and the evaluator that judges them is ONNX's."""
import os
import sys

import numpy as np
import onnx
import onnx.reference
import pytest

sys.path.insert(0, os.path.dirname(__file__))
pytest.importorskip("torch")
from meaning import draft, evaluate, kinds  # noqa: E402


@pytest.mark.parametrize("name", kinds.KINDS)
def test_evaluator(name):
    """Typed and float64 values agree with ONNX's reference evaluator."""
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
