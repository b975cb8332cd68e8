"""Which number an ADO has, without a list of them.

Takes: the `Bounds` of a truncation.
Gives: `Numbering`: rank and unrank, and the neighbours of ADOs by their tuples.
Next file: `hierarchy/index_set.py`, the list of all ADOs and their links.

ADOs are in lexicographic order, (0 ... 0) first. What is kept is as large as modes times budget.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike, NDArray

from heomdask.errors import TooLarge
from heomdask.hierarchy.truncation import Bounds, add_mode

Ints = NDArray[np.int64]

LARGEST = 2**48  # ADOs are numbered in int64, and so are keys made of numbers


class Numbering:
    """The numbers of all ADOs within `bounds`.

    Attributes
    ----------
    bounds : the rule that they obey.
    n_modes, n_ado : K and N.
    """

    def __init__(self, bounds: Bounds, largest: int = LARGEST) -> None:
        if bounds.n_ado > largest:
            raise TooLarge(
                f"The hierarchy has {bounds.n_ado:.3e} ADOs, more than the {largest} that can "
                "be numbered; lower `depth`, or use fewer exponents."
            )
        self.bounds = bounds
        self.n_modes = bounds.n_modes
        self.n_ado = bounds.n_ado
        self._fits, self._unlimited = _counts(bounds)

    def rank(self, indices: ArrayLike) -> Ints:
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

    def unrank(self, rows: ArrayLike) -> Ints:
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

    def moved(self, indices: Ints, k: int, by: int) -> Ints:
        """The rows of the tuples (n, K) with `by` added to mode k; -1 where there is none."""
        there = np.array(indices, dtype=np.int64)
        there[..., k] += by
        return self.rank(there)

    def links(self, indices: Ints) -> Ints:
        """How many neighbours, one up or one down in a mode, each tuple (n, K) has; (n,)."""
        weights, limits = (np.array(a, dtype=np.int64) for a in (
            self.bounds.weights, self.bounds.limits,
        ))  # fmt: skip
        left = self.bounds.budget - indices @ weights
        up = (weights <= left[:, None]) & (indices < limits)
        total: Ints = np.count_nonzero(up, axis=1) + np.count_nonzero(indices, axis=1)
        return total


def _counts(bounds: Bounds) -> tuple[Ints, Ints]:
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
