# SPDX-License-Identifier: Apache-2.0
"""Trains one model compiled for two targets and compares them: the first step's sums are exact in any order, so that its bits are
the same; later ones add up to four products each, rounded in different orders."""
import os
import sys

import mpt
import numpy as np

ROUNDINGS = 32 * 2.0**-24  # of sums of four in three layers and two steps

mpt.use_build(os.environ["MPT_BUILD"])
trainers = [mpt.Trainer(path) for path in sys.argv[1:]]
inputs = {name: ((np.arange(np.prod(shape)) % 5 - 2) / 4).astype(np.float32).reshape(shape)
          for name, (_, shape) in trainers[0].inputs().items() if shape}
for step in range(3):
    losses = [trainer.step(inputs).loss for trainer in trainers]
    tolerance = ROUNDINGS if step else 0
    assert abs(losses[0] - losses[1]) <= tolerance * abs(losses[1]), (step, losses)
    for name, value in trainers[0].parameters().items():
        np.testing.assert_allclose(value, trainers[1].parameter(name), rtol=tolerance, atol=0, err_msg=f"{name}, step {step}")
print(f"3 steps alike, loss {losses[0]}")
