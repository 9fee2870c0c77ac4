#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Trains in ONNX Runtime alone: loops a step that `mpt-opt --emit=onnx --onnx-state=inputs` wrote.

    train.py STEP.onnx DATA.npz [STEPS]

DATA holds one array an input of the step, with all samples along the first axis; the batch size is the step's.
"""
import json
import sys

import numpy as np
import onnxruntime as ort

path, data, count = sys.argv[1], np.load(sys.argv[2]), int(sys.argv[3]) if len(sys.argv) > 3 else 100
ort.set_default_logger_severity(3)  # that states are inputs is meant
session = ort.InferenceSession(path)
states = json.loads(session.get_modelmeta().custom_metadata_map["mpt.states"])
next_of = {state.get("initializer", name): state["next"] for name, state in states.items() if "next" in state}
feeds = {value.name: data[value.name] for value in session.get_inputs() if value.name in data}
size, samples = next((value.shape[0], len(feeds[value.name])) for value in session.get_inputs() if value.name in feeds and value.shape)
names = [value.name for value in session.get_outputs()]
binding = session.io_binding()
order = np.random.default_rng(0)
for step in range(count):
    pick = order.permutation(samples)[:size]
    for name, values in feeds.items():
        binding.bind_cpu_input(name, np.ascontiguousarray(values[pick] if values.ndim else values))
    for name in names:  # buffers that the next step reads are not written to
        binding.bind_output(name)
    session.run_with_iobinding(binding)
    values = dict(zip(names, binding.get_outputs()))
    for name, output in next_of.items():  # before the first step, states have their defaults
        binding.bind_ortvalue_input(name, values[output])
    if step % 20 == 0 or step + 1 == count:
        print(f"step {step} loss {float(values['loss'].numpy()):.6f}", flush=True)
