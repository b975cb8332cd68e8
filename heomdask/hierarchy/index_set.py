"""The list of ADOs and their links, as arrays.

Takes: the `Bounds` of a truncation.
Gives: `IndexSet`: occupation numbers, and the links as plan patterns.
Next file: `generator/build.py`, which attaches operators and scalars to the patterns.

ADOs are in lexicographic order, (0 ... 0) first. Adding a fixed vector keeps that order, so the
link n -> n + e_k pairs, one by one and in ascending order, the rows that have such a neighbour
with the rows that are one: no search and no hashing, whatever the truncation.
"""

from __future__ import annotations

import collections
import functools
import threading
from collections.abc import Callable, Sequence

import numpy as np
from numpy.typing import NDArray

from heomdask.hierarchy.numbering import Numbering
from heomdask.hierarchy.truncation import Bounds, Truncation
from heomdask.plan import Pattern

CACHE_BYTES = 2**30
_LARGEST = 2**31 - 1  # rows are counted in int32


class IndexSet(Numbering):
    """All ADOs within `bounds`.

    Attributes
    ----------
    columns : (K, N), occupation numbers mode by mode, in the smallest type that holds them.
    """

    def __init__(self, bounds: Bounds) -> None:
        super().__init__(bounds, _LARGEST)
        self.columns = _enumerate(bounds, self._fits)
        self.columns.flags.writeable = False
        self._patterns: dict[tuple[object, ...], Pattern] = {}

    def __repr__(self) -> str:
        return f"IndexSet({self.n_ado} ADOs of {self.n_modes} modes)"

    @property
    def indices(self) -> NDArray[np.integer]:
        """Occupation numbers, (N, K): row n is the tuple of ADO n. A view of `columns`."""
        return self.columns.T

    @functools.cached_property
    def level(self) -> NDArray[np.int32]:
        """``sum_k n_k`` of each ADO, (N,)."""
        level: NDArray[np.int32] = self.columns.sum(axis=0, dtype=np.int32)
        return level

    @functools.cached_property
    def _left(self) -> NDArray[np.int32]:
        """The budget that each ADO leaves over, (N,)."""
        left = np.full(self.n_ado, self.bounds.budget, dtype=np.int32)
        for column, weight in zip(self.columns, self.bounds.weights, strict=True):
            if weight <= self.bounds.budget:
                left -= column * np.int32(weight)
        return left

    @property
    def nbytes(self) -> int:
        """Bytes of the numbers and of the patterns made so far."""
        arrays: dict[int, int] = {id(self.columns): self.columns.nbytes}
        for pattern in list(self._patterns.values()):
            if not pattern.is_identity:
                arrays.update((id(a), a.nbytes) for a in pattern.entries())
        return sum(arrays.values())

    @property
    def identity(self) -> Pattern:
        """``A[n, n] = 1``."""
        return self._cached(("identity",), lambda: Pattern(self.n_ado, self.n_ado, label="1"))

    def number(self, k: int) -> Pattern:
        """``A[n, n] = n_k``."""

        def make() -> Pattern:
            rows = self._with(k)
            values = self.columns[k, rows].astype(np.float64)
            return Pattern(self.n_ado, self.n_ado, rows, rows, values, f"n_{k}")

        return self._cached(("number", k), make)

    def up(self, k: int) -> Pattern:
        """``A[n, n + e_k] = sqrt(n_k + 1)``."""

        def make() -> Pattern:
            room = self._left >= self.bounds.weights[k]
            room &= self.columns[k] < self.bounds.limits[k]
            lower, upper = np.flatnonzero(room).astype(np.int32), self._with(k)
            weights = np.sqrt(self.columns[k, upper].astype(np.float64))
            return Pattern(self.n_ado, self.n_ado, lower, upper, weights, f"up_{k}")

        return self._cached(("up", k), make)

    def down(self, k: int) -> Pattern:
        """``A[n, n - e_k] = sqrt(n_k)``; its arrays are those of ``up(k)``, turned round."""

        def make() -> Pattern:
            lower, upper, weights = self.up(k).entries()
            return Pattern(self.n_ado, self.n_ado, upper, lower, weights, f"down_{k}")

        return self._cached(("down", k), make)

    def lateral(self, k: int, j: int) -> Pattern:
        """``A[n, n - e_k + e_j] = sqrt(n_k (n_j + 1))`` for two different modes."""

        def make() -> Pattern:
            rows, cols = self._movable(k, j), self._movable(j, k)
            weights = np.sqrt(
                self.columns[k, rows].astype(np.float64) * self.columns[j, cols].astype(np.float64)
            )
            return Pattern(self.n_ado, self.n_ado, rows, cols, weights, f"lateral_{k}_{j}")

        return self._cached(("lateral", k, j), make)

    def _with(self, k: int) -> NDArray[np.int32]:
        """The rows with n_k > 0."""
        return np.flatnonzero(self.columns[k]).astype(np.int32)

    def _movable(self, k: int, j: int) -> NDArray[np.int32]:
        """The rows n for which n - e_k + e_j is in the set too."""
        weights = self.bounds.weights
        room = (self.columns[k] > 0) & (self.columns[j] < self.bounds.limits[j])
        room &= self._left + weights[k] >= weights[j]
        return np.flatnonzero(room).astype(np.int32)

    def _cached(self, key: tuple[object, ...], make: Callable[[], Pattern]) -> Pattern:
        found = self._patterns.get(key)
        # setdefault: two threads that make the same pattern end up with one object
        return self._patterns.setdefault(key, make()) if found is None else found


def _enumerate(bounds: Bounds, fits: NDArray[np.int64]) -> NDArray[np.integer]:
    """All tuples in lexicographic order, as (K, N): prefixes grow mode by mode."""
    dtype = np.min_scalar_type(bounds.largest)
    columns = np.empty((bounds.n_modes, bounds.n_ado), dtype=dtype)
    left = np.array([bounds.budget], dtype=np.int64)  # of each prefix so far
    for k, (weight, top) in enumerate(zip(bounds.weights, bounds.top, strict=True)):
        children = np.minimum(left // weight, top) + 1
        first = np.repeat(np.cumsum(children) - children, children)
        number = np.arange(len(first)) - first
        left = np.repeat(left, children) - number * weight
        columns[k] = np.repeat(number.astype(dtype), fits[k + 1][left])
    return columns


_cache: collections.OrderedDict[Bounds, IndexSet] = collections.OrderedDict()
_lock = threading.Lock()


def index_set(
    truncation: Truncation, n_modes: int, rates: Sequence[float] | None = None
) -> IndexSet:
    """The index set of a truncation, one object per process as long as memory allows.

    The least recently used sets go when all together exceed `CACHE_BYTES`.
    """
    bounds = truncation.bounds(n_modes, rates)
    with _lock:
        if bounds in _cache:
            _cache.move_to_end(bounds)
            return _cache[bounds]
    made = IndexSet(bounds)  # outside the lock: it may take a second
    with _lock:
        made = _cache.setdefault(bounds, made)
        while len(_cache) > 1 and sum(s.nbytes for s in _cache.values()) > CACHE_BYTES:
            _cache.popitem(last=False)
    return made
