"""The list of ADOs and their links, as arrays.

Takes: the `Bounds` of a truncation.
Gives: `IndexSet`: occupation numbers, rank and unrank, and the links as plan patterns.
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
from numpy.typing import ArrayLike, NDArray

from heomdask.errors import TooLarge
from heomdask.hierarchy.truncation import Bounds, Truncation, add_mode
from heomdask.plan import Pattern

CACHE_BYTES = 2**30
_LARGEST = 2**31 - 1  # rows are counted in int32


class IndexSet:
    """All ADOs within `bounds`.

    Attributes
    ----------
    bounds : the rule that they obey.
    n_modes, n_ado : K and N.
    columns : (K, N), occupation numbers mode by mode, in the smallest type that holds them.
    """

    def __init__(self, bounds: Bounds) -> None:
        if bounds.n_ado > _LARGEST:
            raise TooLarge(
                f"The hierarchy has {bounds.n_ado:.3e} ADOs, more than the {_LARGEST} that can "
                "be numbered; lower `depth`, or use fewer exponents."
            )
        self.bounds = bounds
        self.n_modes = bounds.n_modes
        self.n_ado = bounds.n_ado
        self._fits, self._unlimited = _counts(bounds)
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

    def rank(self, indices: ArrayLike) -> NDArray[np.int64]:
        """The rows of the tuples `indices` (..., K), -1 for those that are not in the set.

        The rank is the number of tuples in front: per mode, those with the same numbers before
        it and a smaller one there (a combinatorial number system).
        """
        wanted = np.asarray(indices, dtype=np.int64)
        if wanted.ndim == 0 or wanted.shape[-1] != self.n_modes:
            raise ValueError(f"`indices` must end in an axis of {self.n_modes} modes")
        left = np.full(wanted.shape[:-1], self.bounds.budget, dtype=np.int64)
        row = np.zeros_like(left)
        inside = np.ones(left.shape, dtype=bool)
        for k, (weight, top) in enumerate(zip(self.bounds.weights, self.bounds.top, strict=True)):
            n = wanted[..., k]
            inside &= (n >= 0) & (n <= top) & (n * weight <= left)
            after = np.where(inside, left - n * weight, left)
            row += self._unlimited[k][left] - self._unlimited[k][after]
            left = after
        return np.where(inside, row, -1)

    def unrank(self, rows: ArrayLike) -> NDArray[np.int64]:
        """The tuples (..., K) of the rows, from their numbers alone."""
        remaining = np.array(rows, dtype=np.int64)
        if np.any((remaining < 0) | (remaining >= self.n_ado)):
            raise ValueError(f"`rows` must lie in 0 ... {self.n_ado - 1}")
        flat = remaining.reshape(-1)
        left = np.full(flat.shape, self.bounds.budget, dtype=np.int64)
        found = np.zeros((flat.size, self.n_modes), dtype=np.int64)
        for k, weight in enumerate(self.bounds.weights):
            moving = np.arange(flat.size)
            while True:
                behind = self._fits[k + 1][left[moving]]
                moving = moving[flat[moving] >= behind]
                if not moving.size:
                    break
                flat[moving] -= self._fits[k + 1][left[moving]]
                left[moving] -= weight
                found[moving, k] += 1
        return found.reshape(*remaining.shape, self.n_modes)

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


def _counts(bounds: Bounds) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """How many tuples of the modes k ... K-1 fit into a budget of b.

    Returns
    -------
    fits : (K + 1, budget + 1).
    unlimited : (K, budget + 1), the same without the limit on mode k itself.
    """
    fits = np.ones((bounds.n_modes + 1, bounds.budget + 1), dtype=np.int64)
    unlimited = np.empty((bounds.n_modes, bounds.budget + 1), dtype=np.int64)
    for k in reversed(range(bounds.n_modes)):
        unlimited[k], fits[k] = add_mode(fits[k + 1], bounds.weights[k], bounds.limits[k])
    return fits, unlimited


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
