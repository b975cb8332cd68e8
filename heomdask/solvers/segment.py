"""Polynomial segments of several members: what a series chose and what it must answer.

Takes: arrays over the members that try a segment in one pass.
Gives: `Segments`, and the protocol `Series` that `faber.py` and `taylor.py` fulfil.
Next file: `faber.py`.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

import numpy as np

from heomdask.solvers.trajectory import Floats, Ints, Mask


@dataclass(frozen=True, eq=False)
class Segments:
    """The segments that n members are about to try.

    Attributes
    ----------
    idx : (n,), the members.
    length : (n,), in time.
    degree : (n,), of the polynomial.
    weights : (> max degree, n), the coefficient of each term at the segment's end; those beyond
        the degree are not used, but tell what is cut off.
    """

    idx: Ints
    length: Floats
    degree: Ints
    weights: Floats

    def kept(self) -> Floats:
        """The weights of the terms that are computed (max degree + 1, n), zero beyond."""
        k = np.arange(int(self.degree.max()) + 1)[:, None]
        return np.where(k <= self.degree, self.weights[: len(k)], 0.0)


class Series(Protocol):
    """A family of polynomials with which a constant generator is exponentiated."""

    name: str

    def choose(
        self, idx: Ints, remaining: Floats, size: Floats, rate: Floats, ceiling: Floats
    ) -> Segments:
        """The segments to try next.

        Parameters
        ----------
        idx : (n,), the members.
        remaining : (n,), the time to the next forced end of a segment.
        size : (n,), the largest element of the state.
        rate : (n,), the error allowed per time.
        ceiling : (n,), the size of a term above which its rounding error would matter.
        """
        ...

    def rows(self, segments: Segments) -> Floats:
        """The coefficient table (K + 1, 4, n) for `recur`."""
        ...

    def refine(self, segments: Segments, norms: Floats, rate: Floats) -> Segments:
        """The segments with the degrees that the norms (k + 1, n) of the terms so far call for.

        A segment whose degree is k or less is left alone.
        """
        ...

    def values(self, segments: Segments, which: Ints, dt: Floats) -> Floats:
        """Coefficients (K + 1, m) of the terms at times `dt` into the segments `which`; (m,)."""
        ...

    def judge(self, segments: Segments, norms: Floats, rate: Floats, ceiling: Floats) -> Mask:
        """Which segments hold, from the norms (K + 1, n) of their terms; learn from all."""
        ...
