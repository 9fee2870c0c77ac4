# SPDX-License-Identifier: Apache-2.0
"""Trains one model compiled for two targets, on numbers whose sums are exact in any order, and compares bits."""
import os
import sys

import mpt
import numpy as np

mpt.use_build(os.environ["MPT_BUILD"])
trainers = [mpt.Trainer(path) for path in sys.argv[1:]]
inputs = {name: ((np.arange(np.prod(shape)) % 5 - 2) / 4).astype(np.float32).reshape(shape)
          for name, (_, shape) in trainers[0].inputs().items() if shape}
for step in range(3):
    losses = [trainer.step(inputs).loss for trainer in trainers]
    assert losses[0] == losses[1], (step, losses)
    for name, value in trainers[0].parameters().items():
        other = trainers[1].parameter(name)
        assert value.tobytes() == other.tobytes(), (step, name, value, other)
print(f"3 steps alike, loss {losses[0]}")
