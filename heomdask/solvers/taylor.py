"""The exponential as a Taylor series: no bounds needed, more applications than Faber.

Takes: the norms of the terms of earlier steps.
Gives: `Taylor`, which chooses the length of each step and judges it by its last terms.
Next file: `polynomial.py`, which runs both kinds of series.

With a step h the terms are ``p_k = (h G)^k x / k!``; at a time s h, s in [0, 1], term k has
the coefficient s^k, so a step has values at all its times.
"""

from __future__ import annotations

import numpy as np

from heomdask.solvers.segment import Segments
from heomdask.solvers.trajectory import Floats, Ints, Mask

LOWEST, HIGHEST = 8, 20  # orders, from the loosest to the tightest tolerance
SHRINK, GROW = 0.1, 4.0  # by how much a step may change
CAUTION = 0.9


def order_for(tol: Floats) -> Ints:
    """The order of the series for a tolerance: two terms per digit."""
    digits = np.maximum(-np.log10(tol), 0.0)
    return np.asarray(np.clip(np.rint(2 * digits).astype(np.int64), LOWEST, HIGHEST))


class Taylor:
    """Steps of every member; all arrays of shape (M,)."""

    name = "taylor"

    def __init__(self, first: Floats, tol: Floats) -> None:
        self.length = first.copy()
        self.order = order_for(tol)

    def choose(
        self, idx: Ints, remaining: Floats, size: Floats, rate: Floats, ceiling: Floats
    ) -> Segments:
        count = np.maximum(np.ceil(remaining / self.length[idx] - 1e-9), 1.0)
        degree = self.order[idx]
        return Segments(idx, remaining / count, degree, np.ones((HIGHEST + 1, len(idx))))

    def rows(self, segments: Segments) -> Floats:
        weights = segments.kept()
        k = np.arange(1, len(weights))[:, None]
        table = np.zeros((len(weights), 4, len(segments.idx)))
        table[1:, 0] = np.where(k <= segments.degree, segments.length / k, 0.0)
        table[:, 3] = weights
        return table

    def refine(self, segments: Segments, norms: Floats, rate: Floats) -> Segments:
        return segments  # the order is that of the method

    def values(self, segments: Segments, which: Ints, dt: Floats) -> Floats:
        share = dt / segments.length[which]
        powers = np.ones((int(segments.degree.max()) + 1, len(dt)))
        powers[1:] = share
        return np.multiply.accumulate(powers, axis=0)

    def judge(self, segments: Segments, norms: Floats, rate: Floats, ceiling: Floats) -> Mask:
        last = np.take_along_axis(norms, segments.degree[None], axis=0)[0]
        before = np.take_along_axis(norms, segments.degree[None] - 1, axis=0)[0]
        allowed = rate * segments.length
        with np.errstate(all="ignore"):
            error = np.maximum(last, before)
            good = (error <= allowed) & (np.max(norms, axis=0) <= ceiling)
            factor = CAUTION * (allowed / error) ** (1.0 / segments.degree)
        factor = np.where(np.isnan(factor), SHRINK, np.clip(factor, SHRINK, GROW))
        factor = np.where(good, factor, np.minimum(factor, 0.5))
        self.length[segments.idx] = segments.length * factor
        return np.asarray(good)
