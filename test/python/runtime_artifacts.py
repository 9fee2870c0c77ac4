# SPDX-License-Identifier: Apache-2.0
"""Parts of ONNX Runtime's training artifacts, for tests: nodes of its domain, checkpoints."""
import struct

import numpy as np
import onnx
from onnx import helper, numpy_helper

MS = "com.microsoft"


def node(op, inputs, outputs, domain="", **attributes):
    return helper.make_node(op, inputs.split(","), outputs.split(","), domain=domain, **attributes)


def ms(op, inputs, outputs, **attributes):
    return node(op, inputs, outputs, MS, **attributes)


def flatbuffer(tensors, frozen=(), moments=None, step=0):
    """A checkpoint as ONNX Runtime 1.19 lays it out: Checkpoint{version, ModuleState{trained, frozen}, [OptimizerGroup{name, step, rate,
    [ParameterOptimizerState{name, [Tensor]}]}]}, the last where `moments` has two tensors a parameter."""
    out = bytearray(struct.pack("<I", 0) + b"ODTC")

    def table(fields):
        """Appends a vtable and a table of fields (number, format, value or None for an offset); returns (place, offset places)."""
        slots = 1 + max(slot for slot, _, _ in fields)
        place = len(out) + 4 + 2 * slots
        place += -place % 8
        at, body, offsets, entries = 4, b"", {}, [0] * slots
        for slot, form, value in fields:
            pad = -(at) % struct.calcsize("<" + form)
            body += b"\0" * pad
            at += pad
            entries[slot] = at
            offsets[slot] = place + at
            body += struct.pack("<" + form, value or 0)
            at += struct.calcsize("<" + form)
        out.extend(b"\0" * (place - 4 - 2 * slots - len(out)))
        out.extend(struct.pack(f"<HH{slots}H", 4 + 2 * slots, at, *entries) + struct.pack("<i", 4 + 2 * slots) + body)
        return place, offsets

    def point(place, target):
        struct.pack_into("<I", out, place, target - place)

    def vector(data, count, align):
        out.extend(b"\0" * (-(len(out) + 4) % align))
        place = len(out)
        out.extend(struct.pack("<I", count) + data)
        return place

    def tables(place, count):
        """A vector of offsets to tables; returns the place of each."""
        start = vector(b"\0" * 4 * count, count, 4)
        point(place, start)
        return [start + 4 + 4 * i for i in range(count)]

    def tensor(place, name, value):
        at, of = table([(0, "I", None), (2, "I", None), (3, "i", 1), (4, "I", None)])
        point(place, at)
        point(of[0], vector(name.encode() + b"\0", len(name), 4))
        point(of[2], vector(np.asarray(value.shape, np.int64).tobytes(), value.ndim, 8))
        point(of[4], vector(value.tobytes(), value.nbytes, 8))

    root, of_root = table([(0, "i", 1), (1, "I", None)] + ([(2, "I", None)] if moments else []))
    struct.pack_into("<I", out, 0, root)
    state, of_state = table([(0, "I", None), (1, "I", None)])
    point(of_root[1], state)
    for slot, group in ((0, tensors), (1, dict(frozen))):
        for place, (name, value) in zip(tables(of_state[slot], len(group)), group.items()):
            tensor(place, name, value)
    if moments:
        place, = tables(of_root[2], 1)
        group, of_group = table([(0, "I", None), (1, "q", step), (2, "f", 1e-3), (3, "I", None)])
        point(place, group)
        point(of_group[0], vector(b"group0\0", 6, 4))
        for place, (name, values) in zip(tables(of_group[3], len(moments)), moments.items()):
            at, of = table([(0, "I", None), (1, "I", None)])
            point(place, at)
            point(of[0], vector(name.encode() + b"\0", len(name), 4))
            # In the order of a hash table, as ONNX Runtime leaves them.
            for i, place_ in zip((1, 0), tables(of[1], 2)):
                tensor(place_, f"momentum{i}", values[i])
    return bytes(out)


def classifier(folder):
    """Artifacts of x w + b with softmax cross entropy, as generate_artifacts names things. Returns the parameters."""
    info, float_, rows = helper.make_tensor_value_info, onnx.TensorProto.FLOAT, 64
    values = {"w": np.array([[0.1, -0.2], [0.3, 0.1]], np.float32), "b": np.zeros(2, np.float32)}
    nodes = [helper.make_node("Gemm", ["x", "w", "b"], ["logits"]),
             helper.make_node("SoftmaxCrossEntropyLoss", ["logits", "labels"], ["loss", "log_prob"]),
             ms("SoftmaxCrossEntropyLossGrad", "loss_grad,log_prob,labels", "logits_grad", reduction="mean"),
             helper.make_node("Gemm", ["x", "logits_grad"], ["w_grad"], transA=1),
             helper.make_node("ReduceSum", ["logits_grad", "first"], ["b_grad"], keepdims=0)]
    inputs, outputs = [info("x", float_, [rows, 2]), info("labels", onnx.TensorProto.INT64, [rows])], [info("loss", float_, [])]
    inputs += [info(name, float_, value.shape) for name, value in values.items()]
    for name, value in values.items():
        nodes.append(ms("InPlaceAccumulatorV2", f"{name}_grad.accumulation.buffer,{name}_grad,lazy_reset_grad", f"{name}_grad.accumulation.out"))
        inputs.append(info(f"{name}_grad.accumulation.buffer", float_, value.shape))
        outputs.append(info(f"{name}_grad.accumulation.out", onnx.TensorProto.BOOL, [1]))
    inputs.append(info("lazy_reset_grad", onnx.TensorProto.BOOL, [1]))
    constants = [numpy_helper.from_array(np.float32(1), "loss_grad"), numpy_helper.from_array(np.array([0]), "first")]
    opsets = [helper.make_opsetid("", 17), helper.make_opsetid("com.microsoft", 1)]
    folder.mkdir()
    onnx.save(helper.make_model(helper.make_graph(nodes, "training", inputs, outputs, constants), opset_imports=opsets, ir_version=9),
              folder / "training_model.onnx")
    adam = ms("AdamWOptimizer", "learning_rate,step,params,gradients,first_order_moments,second_order_moments", "done", adam_mode=1,
              alpha=0.9, beta=0.999, epsilon=1e-6, weight_decay=0.0, correct_bias=1)
    onnx.save(helper.make_model(helper.make_graph([adam], "optimizer", [info("learning_rate", float_, [1])], [info("done", 9, [1])]),
                                opset_imports=opsets, ir_version=9), folder / "optimizer_model.onnx")
    (folder / "checkpoint").write_bytes(flatbuffer(values))
    return values
