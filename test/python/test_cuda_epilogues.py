"""What calls of products make on the way: GELU, its gradient and bias gradients, by cuBLASLt or apart from it."""
import re

import numpy as np
import pytest
from cuda_models import model, values
from onnx import TensorProto, helper
from test_cuda import TOLERANCE, train

GELU_KEPT, GELU_GRADIENT, SUM_A, SUM_B = 32 + 128 + 4, 192, 256, 512  # as cuBLASLt counts


def feedforward(path):
    """Two products in a row, whose bias gradient no kernel makes on the way, then tanh-GELU. Far more rows than columns."""
    nodes = [helper.make_node("Gemm", ["x", "w0", "b0"], ["h"], name="first"), helper.make_node("Gemm", ["h", "w1", "b1"], ["u"], name="up", transB=1),
             helper.make_node("Gelu", ["u"], ["g"], name="gelu", approximate="tanh"),
             helper.make_node("Gemm", ["g", "w2", "b2"], ["logits"], name="down")]
    model(path, "feedforward", nodes, {"w0": values(1, 16, 32), "b0": values(2, 32), "w1": values(3, 64, 32), "b1": values(4, 64),
                                       "w2": values(5, 64, 8), "b2": values(6, 8)},
          {"x": [128, 16]}, ("logits", TensorProto.FLOAT, [128, 8]), opset=20)
    return values(7, 128, 16)


def epilogues(tmp_path):
    """The numbers of the epilogues that products were called with."""
    return {int(number) for number in re.findall(r"product .* epilogue (\d+)", (tmp_path / "calls").read_text())}


@pytest.mark.parametrize("way", ["together", "apart"])
@pytest.mark.parametrize("policy", ["amp-bf16", "amp-f16"])
def test_products_make_activations_and_sums(tmp_path, policy, way):
    result = train(tmp_path, feedforward, policy, **({"MPT_STANDIN_NO_EPILOGUES": "1"} if way == "apart" else {}))
    np.testing.assert_allclose(result["cuda"], result["cpu"], rtol=TOLERANCE[policy])
    assert result["cuda"][-1] < result["cuda"][0]
    assert result["violations"] == "" and result["live"] == 0 and result["resumed"]
    assert (result["waits"], result["graphs"]) == (0, 4), "one graph launch a step, whatever it is made of"
    for name, bias in result["cpu state"].items():
        np.testing.assert_allclose(result["cuda state"][name], bias, rtol=0.02, atol=4e-3, err_msg=name)
    chained = epilogues(tmp_path) & {GELU_KEPT, GELU_GRADIENT, SUM_A, SUM_B}
    assert (chained == {GELU_KEPT, GELU_GRADIENT, SUM_A, SUM_B}) == (way == "together"), chained
    assert way == "together" or not chained


def test_fp32_keeps_its_kernels(tmp_path):
    result = train(tmp_path, feedforward, "fp32")
    np.testing.assert_allclose(result["cuda"], result["cpu"], rtol=TOLERANCE["fp32"])
    assert result["violations"] == "" and not epilogues(tmp_path) - {1, 4}
