# SPDX-License-Identifier: Apache-2.0
"""Second derivatives: a Gradient of a Gradient in training information, over every kind of layer, beside torch's double backward in float64."""
import numpy as np
import onnx
import pytest
from mpt_run import tool
from onnx import helper, numpy_helper

import mpt

torch = pytest.importorskip("torch")
F = torch.nn.functional
pytestmark = pytest.mark.skipif(not (tool().parent / "mpt-opt").exists(), reason="mpt-opt is not built")

N, D, H = 4, 6, 8


def node(op, *inputs, domain=None, **attributes):
    return op, inputs, domain, attributes


# name: (nodes from h to a, the same by torch, further parameters by shape). h is [N, H].
LAYERS = {
    "Relu": ([node("Relu", "h")], torch.relu, {}),
    "LeakyRelu": ([node("LeakyRelu", "h", alpha=.1)], lambda h: F.leaky_relu(h, .1), {}),
    "PRelu": ([node("PRelu", "h", "p")], lambda h, p: torch.where(h > 0, h, p * h), {"p": (H,)}),
    "Elu": ([node("Elu", "h")], F.elu, {}),
    "Clip": ([node("Clip", "h", "low", "high")], lambda h: h.clamp(-.5, .5), {}),
    "Abs": ([node("Abs", "h")], torch.abs, {}),
    "Max": ([node("Max", "h", "p")], torch.maximum, {"p": (H,)}),
    "Min": ([node("Min", "h", "p")], torch.minimum, {"p": (H,)}),
    "Tanh": ([node("Tanh", "h")], torch.tanh, {}),
    "Sigmoid": ([node("Sigmoid", "h")], torch.sigmoid, {}),
    "HardSigmoid": ([node("HardSigmoid", "h")], lambda h: (h * .2 + .5).clamp(0, 1), {}),
    "Softplus": ([node("Softplus", "h")], F.softplus, {}),
    "Erf": ([node("Erf", "h")], torch.erf, {}),
    "Exp": ([node("Exp", "h")], torch.exp, {}),
    "Sin": ([node("Sin", "h")], torch.sin, {}),
    "Pow": ([node("Pow", "h", "three")], lambda h: h ** 3, {}),
    "Gelu": ([node("Gelu", "h")], F.gelu, {}),
    "GeluTanh": ([node("Gelu", "h", approximate="tanh")], lambda h: F.gelu(h, approximate="tanh"), {}),
    "Swish": ([node("Sigmoid", "h"), node("Mul", "h", "h1")], F.silu, {}),
    "Mish": ([node("Mish", "h")], F.mish, {}),
    "Softmax": ([node("Softmax", "h", axis=-1)], lambda h: h.softmax(-1), {}),
    "LogSoftmax": ([node("LogSoftmax", "h", axis=-1)], lambda h: h.log_softmax(-1), {}),
    "LayerNormalization": ([node("LayerNormalization", "h", "p", "q")], lambda h, p, q: F.layer_norm(h, (H,), p, q, 1e-5), {"p": (H,), "q": (H,)}),
    "RMSNormalization": ([node("RMSNormalization", "h", "p")], lambda h, p: F.rms_norm(h, (H,), p, 1e-5), {"p": (H,)}),
    "BatchNormalization": ([node("BatchNormalization", "h", "p", "q", "mean", "var", training_mode=1)],
                           lambda h, p, q: F.batch_norm(h, None, None, p, q, True), {"p": (H,), "q": (H,)}),
    "GroupNormalization": ([node("Reshape", "h", "image"), node("GroupNormalization", "h1", "p", "q", num_groups=2), node("Reshape", "h2", "rows")],
                           lambda h, p, q: F.group_norm(h.reshape(N, 4, 2), 2, p, q).reshape(N, H), {"p": (4,), "q": (4,)}),
    "Gemm": ([node("Gemm", "h", "p", "q", transB=1), node("Tanh", "h1")], lambda h, p, q: torch.tanh(h @ p.T + q), {"p": (H, H), "q": (H,)}),
    "Conv": ([node("Reshape", "h", "image"), node("Conv", "h1", "p", pads=[1, 1]), node("Tanh", "h2"), node("Reshape", "h3", "rows")],
             lambda h, p: torch.tanh(F.conv1d(h.reshape(N, 4, 2), p, padding=1)).reshape(N, H), {"p": (4, 4, 3)}),
    "ConvTranspose": ([node("Reshape", "h", "image"), node("ConvTranspose", "h1", "p", pads=[1, 1]), node("Tanh", "h2"), node("Reshape", "h3", "rows")],
                      lambda h, p: torch.tanh(F.conv_transpose1d(h.reshape(N, 4, 2), p, padding=1)).reshape(N, H), {"p": (4, 4, 3)}),
    "MaxPool": ([node("Reshape", "h", "line"), node("MaxPool", "h1", kernel_shape=[2], strides=[1], pads=[0, 1]), node("Tanh", "h2"), node("Reshape", "h3", "rows")],
                lambda h: torch.tanh(F.max_pool1d(F.pad(h.reshape(N, 1, H), (0, 1), value=-1e30), 2, 1)).reshape(N, H), {}),
    "AveragePool": ([node("Reshape", "h", "line"), node("AveragePool", "h1", kernel_shape=[3], pads=[1, 1], count_include_pad=1), node("Tanh", "h2"),
                     node("Reshape", "h3", "rows")], lambda h: torch.tanh(F.avg_pool1d(h.reshape(N, 1, H), 3, 1, 1)).reshape(N, H), {}),
}
CONSTANTS = {"low": np.float32(-.5), "high": np.float32(.5), "three": np.float32(3), "mean": np.zeros(H, np.float32), "var": np.ones(H, np.float32),
             "image": np.array([N, 4, 2]), "rows": np.array([N, H]), "line": np.array([N, 1, H])}
RATE = .01


def penalized(name, random, size=1.0):
    """A critic whose loss is its mean and the mean square of its gradient with respect to the input; with one SGD step."""
    nodes, function, shapes = LAYERS[name]
    values = {"w": random.standard_normal((D, H)) / 2, "v": random.standard_normal((H, 1)) / 2}
    values.update({key: random.standard_normal(shape) / 2 + (key == "p" and "Norm" in name) for key, shape in shapes.items()})
    values = {key: value.astype(np.float32) for key, value in values.items()}
    graph, result = [helper.make_node("MatMul", ["x", "w"], ["h"])], "h"
    for i, (op, inputs, domain, attributes) in enumerate(nodes):
        result = f"h{i + 1}"
        outputs = [result, "mean_next", "var_next"] if op == "BatchNormalization" else [result]
        graph.append(helper.make_node(op, list(inputs), outputs, domain=domain, **attributes))
    graph.append(helper.make_node("MatMul", [result, "v"], ["y"]))
    info = lambda key, shape: helper.make_tensor_value_info(key, 1, shape)
    constants = [numpy_helper.from_array(np.asarray(CONSTANTS[key]), key) for key in {i for n in nodes for i in n[1]} & set(CONSTANTS)]
    main = helper.make_graph(graph, "model", [info("x", [N, D])], [info("y", [N, 1])],
                             [numpy_helper.from_array(value, key) for key, value in values.items()] + constants)
    names, op = list(values), helper.make_node
    step = [op("ReduceSum", ["y"], ["total"], keepdims=0),
            op("Gradient", ["x"], ["gx"], domain="ai.onnx.preview.training", xs=["x"], y="total", zs=names),
            op("Mul", ["gx", "gx"], ["gg"]), op("ReduceMean", ["gg"], ["penalty"], keepdims=0), op("ReduceMean", ["y"], ["mean_y"], keepdims=0),
            op("Add", ["mean_y", "penalty"], ["sum"]), op("Mul", ["sum", "size"], ["loss"]),
            op("Gradient", names, [f"g_{key}" for key in names], domain="ai.onnx.preview.training", xs=names, y="loss", zs=["x"])]
    for key in names:
        step += [op("Mul", [f"g_{key}", "rate"], [f"u_{key}"]), op("Sub", [key, f"u_{key}"], [f"{key}_new"])]
    algorithm = helper.make_graph(step, "step", [], [info("loss", [])] + [info(f"{key}_new", value.shape) for key, value in values.items()],
                                  [numpy_helper.from_array(np.float32(RATE / size), "rate"), numpy_helper.from_array(np.float32(size), "size")])
    model = helper.make_model(main, opset_imports=[helper.make_opsetid("", 23), helper.make_opsetid("ai.onnx.preview.training", 1)], ir_version=10)
    model.training_info.append(helper.make_training_info(algorithm, [(key, f"{key}_new") for key in names], None, None))
    x = random.standard_normal((N, D)).astype(np.float32)
    tensors = {key: torch.tensor(value).double().requires_grad_() for key, value in {**values, "x": x}.items()}
    more = [tensors[key] for key in shapes]
    y = function(tensors["x"] @ tensors["w"], *more) @ tensors["v"]
    gx, = torch.autograd.grad(y.sum(), tensors["x"], create_graph=True)
    gradients = torch.autograd.grad(y.mean() + gx.pow(2).mean(), [tensors[key] for key in names], allow_unused=True)
    return model, values, x, {key: np.zeros(values[key].shape) if g is None else g.numpy() for key, g in zip(names, gradients)}


@pytest.mark.parametrize("policy, limit", [("fp32", 2e-4), ("amp-f16", .02), ("amp-bf16", .1)])
@pytest.mark.parametrize("name", LAYERS)
def test_gradient_penalties_train(name, policy, limit, tmp_path):
    size = 1e-6 if policy == "amp-f16" else 1.0  # below the range of FP16 without a loss scale
    model, values, x, wanted = penalized(name, np.random.default_rng(len(name)), size)
    onnx.save(model, tmp_path / "m.onnx")
    with mpt.Trainer(mpt.compile(tmp_path / "m.onnx", policy=policy, quiet=True, out=tmp_path / "lib"), threads=1) as trainer:
        for _ in range(40):
            if not trainer.step({"x": x}).skipped:
                break
        largest = max(np.linalg.norm(g) for g in wanted.values())
        for key, gradient in wanted.items():
            moved = (values[key].astype(np.float64) - trainer.parameter(key)) / RATE
            off = np.linalg.norm(moved - gradient) / max(np.linalg.norm(gradient), .1 * largest)
            assert off < limit, f"{name} under {policy}: gradient of {key} off {off:.3g}"
