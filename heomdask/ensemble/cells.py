"""A small map of a sweep: its two longest axes, cut into cells.

Takes: a `Grid`.
Gives: `Cells`: which cell a point lies in, and how many of some points lie in each.
Next file: `view.py`, which counts what becomes of points by cell.

However many points there are, there are at most `MOST_CELLS` squared cells: neighbours on a long
axis share one. Samples and shorter axes lie behind each other in a cell.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from heomdask.ensemble.axes import Dimension
from heomdask.ensemble.grid import Grid, Index

MOST_CELLS = 40  # along a side


@dataclass(frozen=True)
class Side:
    """One side of the map.

    Attributes
    ----------
    dimension : its number in the grid.
    length : of the axis.
    name : of the axis, with its unit.
    labels : of the cells, the values of the axis in words.
    """

    dimension: int
    length: int
    name: str
    labels: tuple[str, ...]

    @classmethod
    def of(cls, number: int, dimension: Dimension) -> Side:
        length = len(dimension)
        count = min(length, MOST_CELLS)
        units = [f"{name} / {a.unit}" if a.unit else name for name, a in dimension.axes]
        firsts = _firsts(length, count)
        ends = [*firsts[1:], length]
        labels = [
            _value(dimension, first) if end - first == 1
            else f"{_value(dimension, first)} … {_value(dimension, end - 1)}"
            for first, end in zip(firsts, ends, strict=True)
        ]  # fmt: skip
        name = ", ".join(units) if dimension.unique else dimension.name
        return cls(number, length, name, tuple(labels))

    def cell(self, index: int) -> int:
        """Of a place on the axis."""
        return index * len(self.labels) // self.length


def _firsts(length: int, count: int) -> list[int]:
    """The first place of each cell of an axis."""
    return [-(-cell * length // count) for cell in range(count)]


def _value(dimension: Dimension, index: int) -> str:
    """What stands at a place of an axis, in words; in a table its row."""
    if not dimension.unique:
        return str(index)
    shown = [a.shown[index] for _, a in dimension.axes]
    return ", ".join(v if isinstance(v, str) else f"{v:g}" for v in shown)


@dataclass(frozen=True)
class Cells:
    """The map: `sides` has the longest axis first, and none, one or two of them."""

    sides: tuple[Side, ...]

    @classmethod
    def of(cls, grid: Grid) -> Cells:
        order = sorted(enumerate(grid.dimensions), key=lambda pair: -len(pair[1]))
        return cls(tuple(Side.of(number, dimension) for number, dimension in order[:2]))

    @property
    def shape(self) -> tuple[int, int]:
        """Rows, which is the shorter axis, and columns."""
        columns, rows = [*(len(side.labels) for side in self.sides), 1, 1][:2]
        return rows, columns

    def cell(self, index: Index) -> int:
        """The number of the cell that a point of the grid lies in, row by row."""
        column, row = [*(side.cell(index[side.dimension]) for side in self.sides), 0, 0][:2]
        return row * self.shape[1] + column

    def count(self, points: NDArray[np.bool_]) -> NDArray[np.int64]:
        """How many of some points of the grid lie in each cell."""
        kept = [side.dimension for side in self.sides]
        others = tuple(axis for axis in range(points.ndim) if axis not in kept)
        found = points.sum(axis=others, dtype=np.int64)
        if len(kept) == 2 and kept[0] < kept[1]:
            found = found.T  # the longest axis last
        for axis, side in zip((-1, -2), self.sides, strict=False):
            found = np.add.reduceat(found, _firsts(side.length, len(side.labels)), axis=axis)
        return np.asarray(found, dtype=np.int64).ravel()
