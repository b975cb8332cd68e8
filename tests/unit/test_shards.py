"""Shards: their shape from shapes alone, and which of them lack points."""

from __future__ import annotations

import math

import numpy as np
import pytest

from heomdask.ensemble.shards import MOST_BYTES, MOST_POINTS, blocks, places, shard_shape


@pytest.mark.parametrize(
    ("extents", "nbytes", "shape"),
    [
        ((20,), 1000, (1,)),  # few points: a shard each, so that every worker gets some
        ((3, 3, 20), 1000, (1, 1, 5)),
        ((100_000,), 1000, (64,)),
        ((1000, 3), 1000, (21, 3)),
        ((2, 10_000), 1_000_000, (1, 64)),
        ((2, 10_000), 10_000_000, (1, 6)),
        ((2, 10_000), 10**12, (1, 1)),
        ((1, 1), 1, (1, 1)),
    ],
)
def test_shard_shape(extents: tuple[int, ...], nbytes: int, shape: tuple[int, ...]) -> None:
    found = shard_shape(extents, nbytes)
    assert found == shape
    assert math.prod(found) <= MOST_POINTS
    assert math.prod(found) == 1 or math.prod(found) * nbytes <= MOST_BYTES


def test_blocks_and_places_cover_every_missing_point_once() -> None:
    missing = np.random.default_rng(0).random((5, 7, 10)) < 0.2
    shape = (2, 3, 4)
    found = blocks(missing, shape)
    assert sum(count for _, count in found) == missing.sum()
    covered = [p for shard, _ in found for p in places(shard, shape, missing.shape)]
    assert len(covered) == len(set(covered))
    assert set(map(tuple, np.argwhere(missing).tolist())) <= set(covered)
    for shard, count in found:
        assert count == sum(missing[p] for p in places(shard, shape, missing.shape))
