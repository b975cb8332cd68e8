"""Shards: their shape from shapes alone, and which of them lack points."""

from __future__ import annotations

import math
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING, cast

import numpy as np
import pytest

from heomdask.ensemble.grid import Match
from heomdask.ensemble.shards import MOST_BYTES, MOST_POINTS, blocks, shard_shape
from heomdask.ensemble.task import Work
from heomdask.outcome import Outcome
from heomdask.results.chunks import Files
from heomdask.results.folder import LocalFolder
from heomdask.results.store import status_variable

if TYPE_CHECKING:
    from heomdask.ensemble.sweep import Sweep


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


def test_blocks_count_every_missing_point_once() -> None:
    missing = np.random.default_rng(0).random((5, 7, 10)) < 0.2
    shape = (2, 3, 4)
    found = dict(blocks(missing, shape))
    places = np.argwhere(missing) // shape
    assert found == Counter(map(tuple, places.tolist()))
    assert list(found) == sorted(found)


def test_a_shard_lacks_what_is_asked_for_and_pending() -> None:
    """In the store's order, without padding, and without what another sweep put there."""
    extents, shape = (3, 10), (2, 4)
    order = (np.array([0, -1, 1]), np.array([*range(9), -1]))
    files = Files(LocalFolder(Path()), shape, (status_variable(),))
    work = Work(cast("Sweep", None), Match(order, ((), ())), files, extents)
    status = np.random.default_rng(0).integers(0, 2, shape, dtype=np.uint8)
    for shard in np.ndindex(2, 3):
        corner = [i * n for i, n in zip(shard, shape, strict=True)]
        expected = [
            (corner[0] + i, corner[1] + j)
            for i, j in np.ndindex(*shape)
            if corner[0] + i in (0, 2) and corner[1] + j < 9 and status[i, j] == Outcome.PENDING
        ]
        assert work.missing(shard, status) == expected
