"""Points: places on the dimensions of a sweep, and where they lie in a store.

Takes: the `Dimension`s and the number of samples.
Gives: `Grid` (shape, parameters of a point) and `Match` (where a store's places lie in it).
Next file: `shards.py`, which cuts a store's grid into the units of commitment.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from heomdask.ensemble.axes import Dimension, Label
from heomdask.errors import StoreError

Index = tuple[int, ...]  # one number a dimension, `sample` last where there is one


@dataclass(frozen=True, eq=False)
class Grid:
    """All points of a sweep: the product of its dimensions and of the samples."""

    dimensions: tuple[Dimension, ...]
    samples: int | None

    @cached_property
    def names(self) -> tuple[str, ...]:
        """Names of the dimensions, `sample` last."""
        own = tuple(d.name for d in self.dimensions)
        return own if self.samples is None else (*own, "sample")

    @cached_property
    def shape(self) -> Index:
        own = tuple(len(d) for d in self.dimensions)
        return own if self.samples is None else (*own, self.samples)

    @property
    def size(self) -> int:
        return int(np.prod(self.shape, dtype=np.int64))

    def parameters(self, index: Index) -> dict[str, Any]:
        """Internal values of every axis at a point."""
        found: dict[str, Any] = {}
        for dimension, i in zip(self.dimensions, index, strict=False):
            found.update(dimension.row(i))
        return found

    def sample(self, index: Index) -> int | None:
        """The sample's number, or None without samples."""
        return None if self.samples is None else index[-1]

    def describe(self, index: Index) -> str:
        """A point in words, as the user wrote its values."""
        words = []
        for dimension, i in zip(self.dimensions, index, strict=False):
            for name, a in dimension.axes:
                unit = f" {a.unit}" if a.unit else ""
                words.append(f"{name} = {a.shown[i]}{unit}")
            if not dimension.unique:
                words.append(f"point {i}")
        if self.samples is not None:
            words.append(f"sample {index[-1]}")
        return ", ".join(words)


@dataclass(frozen=True, eq=False)
class Match:
    """Where a store's places lie in the grid that is asked for.

    Attributes
    ----------
    order : per dimension (`sample` included), for each place in the store its index in the grid
        that is asked for, or -1.
    new : per dimension (without `sample`), the indices of the grid that the store lacks.
    """

    order: tuple[NDArray[np.int64], ...]
    new: tuple[tuple[int, ...], ...]

    def wanted(self, index: Index) -> Index | None:
        """The asked-for index of a place in the store, or None."""
        found = tuple(int(o[i]) for o, i in zip(self.order, index, strict=True))
        return None if min(found) < 0 else found


def match(grid: Grid, stored: Sequence[list[tuple[Label, ...]]], samples: int | None) -> Match:
    """Find the grid's values among the stored ones; those that are new come after them.

    Parameters
    ----------
    grid : what is asked for.
    stored : per dimension, the labels in the order of the store.
    samples : how many the store has.
    """
    order, new = [], []
    for dimension, keys in zip(grid.dimensions, stored, strict=True):
        if dimension.unique:
            places = {key: i for i, key in enumerate(dimension.keys)}
            found = [places.get(key, -1) for key in keys]
            known = set(keys)
            added = tuple(i for i, key in enumerate(dimension.keys) if key not in known)
        else:
            found, added = _match_rows(dimension, keys)
        order.append(np.array([*found, *added], dtype=np.int64))
        new.append(added)
    if grid.samples is not None:
        count = np.arange(max(grid.samples, samples or 0))
        order.append(np.where(count < grid.samples, count, -1))
    return Match(tuple(order), tuple(new))


def _match_rows(
    dimension: Dimension, keys: list[tuple[Label, ...]]
) -> tuple[list[int], tuple[int, ...]]:
    """A table is matched by row number: the shorter one must begin the longer one."""
    common = min(len(keys), len(dimension))
    for row, (old, asked) in enumerate(zip(keys, dimension.keys, strict=False)):
        if old != asked:
            raise StoreError(
                f"the store's table has {old} in row {row}, the sweep's has {asked}: a table grows "
                "at its end only; use another store, or append the new rows."
            )
    found = [i if i < common else -1 for i in range(len(keys))]
    return found, tuple(range(common, len(dimension)))
