"""Some rows of a hierarchy with their links, made without the others.

Takes: a `Numbering`, the rows wanted, and the pairs of modes with lateral links.
Gives: `Section`, which `generator/build.py` takes in the place of an index set.
Next file: `generator/build.py`.

Columns are the rows wanted, those first that have all their neighbours among them; then the halo,
the other neighbours, ascending. A link and its reverse have the same two ends, so the transposed
patterns have these columns too.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from heomdask.hierarchy.numbering import Ints, Numbering
from heomdask.plan import Pattern


@dataclass(frozen=True, eq=False)
class _Rows(Pattern):
    """Some rows of a pattern: it counts as linked even if only the others have links."""

    @property
    def is_empty(self) -> bool:
        return False


class Section:
    """The rows `rows` of a hierarchy.

    Attributes
    ----------
    numbering : of the whole hierarchy.
    columns : (n_cols,) the ADO of each column.
    n_rows, n_interior : how many columns are rows, and how many of these need no halo.
    """

    def __init__(
        self, numbering: Numbering, rows: Ints, lateral: Sequence[tuple[int, int]] = ()
    ) -> None:
        self.numbering = numbering
        self.n_modes = numbering.n_modes
        own = np.unique(np.asarray(rows, dtype=np.int64))
        indices = numbering.unrank(own)
        moves = [(k, by) for k in range(self.n_modes) for by in (1, -1)]
        both = [pair for k, j in lateral for pair in ((k, j), (j, k))]
        boundary = np.zeros(len(own), dtype=bool)
        away = [np.zeros(0, dtype=np.int64)]
        for reached in (
            *(numbering.moved(indices, k, by) for k, by in moves),
            *(self._beside(indices, k, j) for k, j in both),
        ):
            outside = (reached >= 0) & ~np.isin(reached, own)
            boundary |= outside
            away.append(np.unique(reached[outside]))
        order = np.concatenate([np.flatnonzero(~boundary), np.flatnonzero(boundary)])
        self.indices: NDArray[np.int64] = indices[order]
        self.columns = np.concatenate([own[order], np.unique(np.concatenate(away))])
        self.n_rows, self.n_interior = len(own), int(np.count_nonzero(~boundary))
        self._sorted = np.argsort(self.columns)
        self._patterns: dict[tuple[Any, ...], Pattern] = {}

    @property
    def identity(self) -> Pattern:
        """``A[n, n] = 1``."""
        return self._cached(
            ("identity",), lambda: Pattern(self.n_rows, len(self.columns), label="1")
        )

    def number(self, k: int) -> Pattern:
        """``A[n, n] = n_k``."""

        def make() -> Pattern:
            rows = np.flatnonzero(self.indices[:, k])
            return self._pattern(rows, rows, self.indices[rows, k].astype(np.float64), f"n_{k}")

        return self._cached(("number", k), make)

    def up(self, k: int) -> Pattern:
        """``A[n, n + e_k] = sqrt(n_k + 1)``."""
        return self._ladder("up", k, 1)

    def down(self, k: int) -> Pattern:
        """``A[n, n - e_k] = sqrt(n_k)``."""
        return self._ladder("down", k, -1)

    def lateral(self, k: int, j: int) -> Pattern:
        """``A[n, n - e_k + e_j] = sqrt(n_k (n_j + 1))`` for two different modes."""

        def make() -> Pattern:
            weights = np.sqrt(self.indices[:, k] * (self.indices[:, j] + 1.0))
            return self._linked(self._beside(self.indices, k, j), weights, f"lateral_{k}_{j}")

        return self._cached(("lateral", k, j), make)

    def transposed(self, pattern: Pattern) -> Pattern:
        """The rows of this section of the transpose of one of its own patterns."""
        kind, *modes = next(key for key, own in self._patterns.items() if own is pattern)
        if kind == "up":
            return self.down(*modes)
        if kind == "down":
            return self.up(*modes)
        return self.lateral(*reversed(modes)) if kind == "lateral" else pattern

    def _beside(self, indices: Ints, k: int, j: int) -> Ints:
        """The rows of ``n - e_k + e_j``; -1 where there is none."""
        fewer = np.array(indices)
        fewer[:, k] -= 1
        return self.numbering.moved(fewer, j, 1)

    def _ladder(self, label: str, k: int, by: int) -> Pattern:
        def make() -> Pattern:
            weights = np.sqrt(self.indices[:, k] + max(by, 0.0))
            return self._linked(self.numbering.moved(self.indices, k, by), weights, f"{label}_{k}")

        return self._cached((label, k), make)

    def _linked(self, reached: Ints, weights: NDArray[np.float64], label: str) -> Pattern:
        """A pattern with one entry in each row that reaches an ADO."""
        rows = np.flatnonzero(reached >= 0)
        ascending = self.columns[self._sorted]
        cols = self._sorted[np.searchsorted(ascending, reached[rows])]
        return self._pattern(rows, cols, weights[rows], label)

    def _pattern(self, rows: Ints, cols: Ints, values: NDArray[np.float64], label: str) -> Pattern:
        r, c = rows.astype(np.int32), cols.astype(np.int32)
        return _Rows(self.n_rows, len(self.columns), r, c, values, label)

    def _cached(self, key: tuple[Any, ...], make: Callable[[], Pattern]) -> Pattern:
        if key not in self._patterns:
            self._patterns[key] = make()
        return self._patterns[key]
