# SPDX-License-Identifier: Apache-2.0
"""Writes ONNX models with their weights in files beside them, sound and hostile: make_external.py FOLDER."""
import os
import sys

import numpy as np
import onnx
from onnx import TensorProto, helper


def model(folder, name, location, offset=0, length=None, shape=(64, 32)):
    weight = TensorProto(name="w", data_type=TensorProto.FLOAT, dims=shape, data_location=TensorProto.EXTERNAL)
    entries = {"location": location, "offset": str(offset)}
    if length is not None:
        entries["length"] = str(length)
    for key, value in entries.items():
        weight.external_data.add(key=key, value=value)
    node = helper.make_node("MatMul", ["x", "w"], ["y"], name="product")
    graph = helper.make_graph([node], name, [helper.make_tensor_value_info("x", TensorProto.FLOAT, [4, shape[0]])],
                              [helper.make_tensor_value_info("y", TensorProto.FLOAT, [4, shape[1]])], [weight])
    proto = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    with open(os.path.join(folder, name + ".onnx"), "wb") as file:
        file.write(proto.SerializeToString())
    return proto


def main(folder):
    inner = os.path.join(folder, "models")
    os.makedirs(inner, exist_ok=True)
    size = 64 * 32 * 4
    with open(os.path.join(inner, "weights.bin"), "wb") as file:
        file.write(bytes(4096) + np.arange(64 * 32, dtype=np.float32).tobytes())
    with open(os.path.join(folder, "outside.bin"), "wb") as file:
        file.write(bytes(size))
    link = os.path.join(inner, "link.bin")
    if not os.path.islink(link):
        os.symlink(os.path.join("..", "outside.bin"), link)
    proto = model(inner, "good", "weights.bin", 4096, size)
    model(inner, "climbs", "../outside.bin")
    model(inner, "absolute", os.path.abspath(os.path.join(folder, "outside.bin")))
    model(inner, "linked", "link.bin")
    model(inner, "missing", "nowhere.bin")
    model(inner, "short", "weights.bin", 8192, size)
    model(inner, "length", "weights.bin", 4096, 16)
    model(inner, "huge", "weights.bin", 0, None, (1 << 40, 1 << 40))
    with open(os.path.join(inner, "cut.onnx"), "wb") as file:
        file.write(proto.SerializeToString()[:-20])


if __name__ == "__main__":
    main(sys.argv[1])
