# SPDX-License-Identifier: Apache-2.0
"""Cases of attributes that schemas name and the node suite sets rarely or never: groups, dilations, factors of activations.

A case is one node: an operator's usual attributes with one of them, or a few that belong together, at other values. Its
expected results are the reference evaluator's.
"""
import cases
import numpy as np
from onnx import TensorProto, defs, helper, numpy_helper
from references import evaluator_of

OPSET = 22
CONV = [(2, 4, 7, 6), (6, 4, 3, 3), (6,)]
TRANSPOSED = [(2, 4, 4, 3), (4, 6, 3, 3), (6,)]
IMAGE = [(2, 4, 7, 6)]
WINDOW = {"kernel_shape": [3, 2]}
# Operator -> shapes of its operands, its usual attributes, and the values that are set beside these, one entry a case.
NODES = {
    "AveragePool": (IMAGE, WINDOW, [{"dilations": [2, 1]}, {"count_include_pad": 1, "pads": [1, 0, 0, 1]}, {"ceil_mode": 1, "strides": [2, 2]},
                                    {"auto_pad": "SAME_UPPER"}, {"auto_pad": "SAME_LOWER"}, {"auto_pad": "VALID"}]),
    "Celu": ([(3, 4)], {}, [{"alpha": 0.5}]),
    "Conv": (CONV, {}, [{"dilations": [2, 1]}, {"pads": [1, 0, 2, 1]}, {"strides": [2, 1]}, {"auto_pad": "SAME_UPPER"}, {"auto_pad": "SAME_LOWER"},
                        {"auto_pad": "VALID"}, {"dilations": [2, 2], "pads": [2, 2, 2, 2], "strides": [2, 2]}]),
    "ConvTranspose": (TRANSPOSED, {}, [{"dilations": [2, 1]}, {"strides": [2, 3]}, {"pads": [1, 0, 0, 1]},
                                       {"strides": [2, 2], "output_padding": [1, 0]}]),
    "Elu": ([(3, 4)], {}, [{"alpha": 0.5}]),
    "GRU": ([(3, 2, 4), (1, 15, 4), (1, 15, 5), (1, 30)], {"hidden_size": 5}, [{"linear_before_reset": 1}, {"direction": "reverse", "linear_before_reset": 1}]),
    "Gemm": ([(3, 4), (4, 5), (5,)], {}, [{"alpha": 0.5}, {"beta": 0.25}]),
    "HardSigmoid": ([(3, 4)], {}, [{"alpha": 0.3, "beta": 0.4}]),
    "InstanceNormalization": ([(2, 4, 7, 6), (4,), (4,)], {}, [{"epsilon": 0.1}]),
    "LRN": (IMAGE, {"size": 3}, [{"alpha": 0.2}, {"beta": 0.5}, {"bias": 2.0}]),
    "LSTM": ([(3, 2, 4), (1, 20, 4), (1, 20, 5), (1, 40)], {"hidden_size": 5}, [{"direction": "reverse"}]),
    "LayerNormalization": ([(2, 3, 4), (4,), (4,)], {}, [{"epsilon": 0.1}]),
    "LeakyRelu": ([(3, 4)], {}, [{"alpha": 0.3}]),
    "LogSoftmax": ([(2, 3, 4)], {}, [{"axis": 0}, {"axis": 1}]),
    "LpNormalization": ([(2, 3, 4)], {}, [{"axis": 1, "p": 1}, {"axis": 0, "p": 2}]),
    "LpPool": (IMAGE, WINDOW, [{"p": 3}, {"p": 1}, {"dilations": [2, 1]}, {"strides": [2, 1]}]),
    "MaxPool": (IMAGE, WINDOW, [{"dilations": [2, 1]}, {"strides": [2, 1]}, {"ceil_mode": 1, "strides": [2, 2]}, {"auto_pad": "SAME_UPPER"},
                                {"auto_pad": "VALID"}]),
    "MeanVarianceNormalization": (IMAGE, {}, [{"axes": [1, 2]}]),
    "RNN": ([(3, 2, 4), (1, 5, 4), (1, 5, 5), (1, 10)], {"hidden_size": 5}, [{"direction": "reverse"}]),
    "Selu": ([(3, 4)], {}, [{"alpha": 1.2, "gamma": 0.7}]),
    "Shrink": ([(3, 4)], {}, [{"lambd": 0.3, "bias": 0.3}, {"lambd": 0.2, "bias": 0.0}]),
    "Softmax": ([(2, 3, 4)], {}, [{"axis": 0}, {"axis": 1}]),
    "ThresholdedRelu": ([(3, 4)], {}, [{"alpha": 0.4}]),
    "Trilu": ([(3, 4)], {}, [{"upper": 0}, {"upper": 1}]),
}
# The same operators on other operands: groups are in the shapes of filters.
GROUPED = {
    "Conv": ([(2, 4, 7, 6), (6, 2, 3, 3), (6,)], [{"group": 2}, {"group": 2, "dilations": [2, 1]}]),
    "ConvTranspose": ([(2, 4, 4, 3), (4, 3, 3, 3), (6,)], [{"group": 2}, {"group": 2, "strides": [2, 2]}]),
}


def name_of(op: str, settings: dict) -> str:
    texts = [f"{key}_{'x'.join(map(str, value)) if isinstance(value, list) else value}" for key, value in settings.items()]
    return "attribute_" + "_".join([op.lower(), *texts])


def _case(op, shapes, base, settings) -> cases.Case:
    unknown = (base | settings).keys() - defs.get_schema(op, OPSET, "").attributes.keys()
    if unknown:
        raise ValueError(f"expected attributes of {op}, got {sorted(unknown)}")
    names = [f"x{i}" for i in range(len(shapes))]
    random = np.random.default_rng(len(name_of(op, settings)))
    arrays = [random.standard_normal(shape).astype(np.float32) for shape in shapes]
    node = helper.make_node(op, names, ["y"], **base, **settings)
    values = [helper.make_tensor_value_info(name, TensorProto.FLOAT, shape) for name, shape in zip(names, shapes)]

    def model(shape):
        result = helper.make_tensor_value_info("y", TensorProto.FLOAT, shape)
        return helper.make_model(helper.make_graph([node], "attribute", values, [result]), ir_version=10,
                                 opset_imports=[helper.make_opsetid("", OPSET)])

    result = np.asarray(evaluator_of(model(None)).run(None, dict(zip(names, arrays)))[0], np.float32)
    data = [([numpy_helper.from_array(array) for array in arrays], [numpy_helper.from_array(result)])]
    return cases.Case(name_of(op, settings), op, "attribute", model(result.shape).SerializeToString(), data, 1e-3, 1e-7)


def make(ops=None) -> list:
    """The cases of the named operators, or of all."""
    made = [_case(op, shapes, base, settings) for op, (shapes, base, choices) in NODES.items() for settings in choices
            if ops is None or op in ops]
    return made + [_case(op, shapes, {}, settings) for op, (shapes, choices) in GROUPED.items() for settings in choices
                   if ops is None or op in ops]
