# SPDX-License-Identifier: Apache-2.0
"""Which samples of a data set each rank of a world passes in each step."""
import numpy as np


def shard(samples: int, rows: int, *, world=None, seed: int = 0, start: int = 0):
    """Yields for step `start`, `start` + 1 and so on, without end, an array with the numbers of the samples that this rank passes.

    samples  how many the data set has
    rows     how many a global step takes on all ranks together: replicas times the model's batch
    world    mpt.init(), or None for one process
    seed     of the order, which is another one in every epoch

    All ranks together pass the same rows in the same order whatever their number is, so a run may go on with another number of
    processes. Each epoch has every sample: where `rows` does not divide `samples`, its last step is filled up with samples from
    the epoch's beginning.
    """
    rank, size = (world.rank, world.size) if world is not None else (0, 1)
    if samples < 1 or rows < 1 or rows % size:
        raise ValueError(f"expected samples, and rows that {size} processes divide among them, got {samples} samples and {rows} rows")
    steps = -(-samples // rows)
    begin, end = rank * rows // size, (rank + 1) * rows // size
    step, epoch, order = start, None, None
    while True:
        if step // steps != epoch:
            epoch = step // steps
            order = np.resize(np.random.default_rng([seed, epoch]).permutation(samples), steps * rows)
        first = step % steps * rows
        yield order[first + begin:first + end]
        step += 1
