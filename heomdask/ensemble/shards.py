"""Shards: the blocks of points that are computed, committed and replaced as a whole.

Takes: the extents of a store's grid and the bytes of one point.
Gives: `shard_shape`, chosen once in a store's life; `blocks`, the shards that hold given points;
    `product`, the points that are asked for on every axis.
Next file: `results/store.py`, which keeps them.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from heomdask.results.chunks import Shard

MOST_POINTS = 64
MOST_BYTES = 64 * 2**20
PIECES = 32  # a small sweep is cut into about this many shards, so that every worker gets some


def shard_shape(extents: Sequence[int], point_nbytes: int) -> tuple[int, ...]:
    """Points of a shard along each dimension, from shapes alone.

    At most 64 points and 64 MiB, along `sample` (or the innermost axis) first and outwards from
    there; fewer where the sweep has few points, so that 20 long points are 20 shards.

    Parameters
    ----------
    extents : of the grid when the store is created, `sample` last.
    point_nbytes : bytes of all variables at one point.
    """
    total = int(np.prod(extents, dtype=np.int64))
    room = max(1, min(MOST_POINTS, MOST_BYTES // max(point_nbytes, 1), total // PIECES))
    shape: list[int] = []
    for extent in reversed(extents):
        length = min(extent, room)
        length = -(-extent // -(-extent // length))  # as many shards, all of nearly one length
        shape.append(length)
        room //= length
    return tuple(reversed(shape))


def blocks(missing: NDArray[np.bool_], shape: Sequence[int]) -> list[tuple[Shard, int]]:
    """Shards with at least one missing point, and how many each lacks, in the store's order."""
    padded = np.pad(missing, [(0, -n % b) for n, b in zip(missing.shape, shape, strict=True)])
    split: list[int] = []
    for n, b in zip(padded.shape, shape, strict=True):
        split += [n // b, b]
    inner = tuple(range(1, 2 * len(shape), 2))
    counts = padded.reshape(split).sum(axis=inner)
    return [
        (tuple(int(i) for i in index), int(counts[index]))
        for index in map(tuple, np.argwhere(counts))
    ]


def product(parts: Sequence[NDArray[np.bool_]]) -> NDArray[np.bool_]:
    """Which points of a block have a place that is asked for on every axis."""
    found = np.ones((), dtype=bool)
    for part in parts:
        found = np.logical_and.outer(found, part)
    return np.asarray(found)
