# SPDX-License-Identifier: Apache-2.0
"""The other side of ort_adapter.py: gradients by onnxruntime-training, read from and written to pipes."""
import copy
import io
import json
import os
import re
import sys

import numpy as np
import onnx
import onnxruntime
from onnx import numpy_helper
from onnxruntime.training.onnxblock._training_graph_utils import build_gradient_graph

NEWEST_OPSET, NEWEST_IR = 21, 10  # of onnx 1.16.2 and ONNX Runtime 1.19.2
# Results that its gradients read, by operator: it refuses nodes that leave them unnamed.
READ = {"SoftmaxCrossEntropyLoss": 2, "LayerNormalization": 3, "Dropout": 2, "MaxPool": 2, "LSTM": 3, "GRU": 2}


def with_read_results(model):
    for i, node in enumerate(model.graph.node):
        for place in range(READ.get(node.op_type, 0)):
            if place >= len(node.output):
                node.output.append("")
            node.output[place] = node.output[place] or f"read.{i}.{place}"
    return model


def in_known_opset(model):
    """The model in an opset that this version knows: a newer one is called 21 where it is valid there."""
    version = max((opset.version for opset in model.opset_import if opset.domain in ("", "ai.onnx")), default=1)
    model.ir_version = min(model.ir_version, NEWEST_IR)
    if version > NEWEST_OPSET:
        for opset in model.opset_import:
            if opset.domain in ("", "ai.onnx"):
                opset.version = NEWEST_OPSET
        try:
            onnx.checker.check_model(model, full_check=True)
        except Exception as problem:
            raise RuntimeError(f"opset {version} is newer than {NEWEST_OPSET}: {problem}") from None
    return model


def gradients(model, variables, loss):
    values = {tensor.name: numpy_helper.to_array(tensor) for tensor in model.graph.initializer if tensor.name in variables}
    made, _ = build_gradient_graph(copy.deepcopy(with_read_results(in_known_opset(model))), set(variables), set(), loss)
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads, options.log_severity_level = 1, 4
    session = onnxruntime.InferenceSession(made.SerializeToString(), options, providers=["CPUExecutionProvider"])
    made_outputs = {value.name for value in session.get_outputs()}
    found = [name for name in variables if name + "_grad" in made_outputs]
    results = session.run([name + "_grad" for name in found], {value.name: values[value.name] for value in session.get_inputs()})
    return dict(zip(found, results))


def answer(frame):
    with np.load(io.BytesIO(frame)) as archive:
        model, question = onnx.load_from_string(archive["model"].tobytes()), json.loads(archive["question"].tobytes())
    try:
        return gradients(model, question["variables"], question["loss"])
    except Exception as problem:  # whatever it refuses with
        return {"refusal": np.frombuffer((message_of(problem) or type(problem).__name__).encode(), np.uint8)}


def message_of(problem):
    """Without the place in its source, which its checks print first and says nothing to users."""
    said = " ".join(str(problem).split())
    for before in ("[ONNXRuntimeError]", " was false. ", "GetGradientDefsImpl() const ", "> ] "):
        said = said.split(before)[-1]
    return re.sub(r"^/\S+:\d+ ", "", said).strip(" :")[:400]


def main():
    onnxruntime.set_default_logger_severity(4)
    reading, writing = sys.stdin.buffer, os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)  # the output of libraries is no answer
    while len(length := reading.read(8)) == 8:
        frame = io.BytesIO()
        np.savez(frame, **answer(reading.read(int.from_bytes(length, "little"))))
        writing.write(len(frame.getvalue()).to_bytes(8, "little") + frame.getvalue())
        writing.flush()


if __name__ == "__main__":
    main()
