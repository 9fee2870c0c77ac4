# SPDX-License-Identifier: Apache-2.0
"""mpt.shard: every sample in every epoch, the same rows for any number of processes."""
import itertools
from types import SimpleNamespace

import numpy as np
import pytest

import mpt


def rows(steps, **keys):
    return np.stack(list(itertools.islice(mpt.shard(**keys), steps)))


@pytest.mark.parametrize("samples, count", [(1, 4), (3, 8), (16, 8), (17, 8), (100, 12), (1000, 24)])
def test_every_epoch_has_every_sample(samples, count):
    steps = -(-samples // count)
    for epoch in range(3):
        taken = rows(steps, samples=samples, rows=count, start=epoch * steps)
        assert taken.shape == (steps, count) and set(taken.flat) == set(range(samples))
        assert np.bincount(taken.flat).max() - np.bincount(taken.flat).min() <= 1  # none far more often than others


@pytest.mark.parametrize("size", [1, 2, 3, 4, 6, 12])
def test_ranks_together_pass_the_same_rows(size):
    alone = rows(20, samples=101, rows=12, seed=5)
    ranks = [rows(20, samples=101, rows=12, seed=5, world=SimpleNamespace(rank=rank, size=size)) for rank in range(size)]
    assert (np.concatenate(ranks, axis=1) == alone).all()


def test_orders_differ_by_epoch_and_seed_and_go_on_anywhere():
    keys = {"samples": 64, "rows": 8}
    assert (rows(8, **keys) != rows(8, start=8, **keys)).any() and (rows(8, **keys) != rows(8, seed=1, **keys)).any()
    assert (rows(20, **keys)[13:] == rows(7, start=13, **keys)).all()


def test_rows_that_do_not_divide_are_refused():
    with pytest.raises(ValueError, match="rows that 3 processes divide among them, got 10 samples and 8 rows"):
        next(mpt.shard(10, 8, world=SimpleNamespace(rank=0, size=3)))
