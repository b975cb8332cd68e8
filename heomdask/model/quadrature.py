"""C(t) and g(t) from J(w), to near machine precision, at any time from 0 to very long.

Takes: J(w) as a function, the temperature, and the frequencies where J changes.
Gives: `Quadrature`, built once for a bath and evaluated for whole arrays of times.
Next file: `bath.py`, which owns one per bath.

The axis is cut into panels that grow by powers of two away from the bath's frequencies and
are halved until J(w) coth(w/2T) is a polynomial on each. With x = wt on a panel of half width h:

    all of the panels below x = 1/2    power series of the kernel, with moments summed once
    h t <= 6                           Gauss-Legendre with the kernel evaluated
    h t >  6                           Filon: int P_k(y) exp(i a y) dy = 2 i^k j_k(a) on [-1, 1]

so that neither fast oscillation, nor short times, nor a heavy tail costs accuracy.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
from numpy.polynomial import legendre
from numpy.typing import ArrayLike, NDArray

from heomdask.errors import InputError

ComplexArray = NDArray[np.complex128]
FloatArray = NDArray[np.float64]

_ORDER = 24  # nodes of a panel
_RESOLVED = 1e-14  # size of the last four Legendre coefficients, relative to the largest
_NEGLIGIBLE = 1e-20  # of the largest w |f|: the integrand has ended
_BOTTOM, _TOP = 1e-10, 1e15  # the axis, relative to the lowest and the highest frequency
_DEEPEST = 40  # halvings of a panel
_SERIES, _GAUSS = 0.5, 6.0  # x up to which the series is used, h t up to which Gauss is
_TERMS = 8  # of the series
_CHUNK = 256  # times at once
_DIVERGES = 1e-3  # share of the last panel in C(0) from which on it counts as infinite

_NODES, _WEIGHTS = legendre.leggauss(_ORDER)
_TO_LEGENDRE = (  # values on the nodes -> Legendre coefficients
    legendre.legvander(_NODES, _ORDER - 1) * _WEIGHTS[:, None] * (np.arange(_ORDER) + 0.5)
)


class Quadrature:
    """The integrals over one bath.

    Parameters
    ----------
    J : callable
        Spectral density, of an array of w > 0 to an array of its shape.
    T : float
        Temperature, in angular frequency; 0 is allowed.
    frequencies : sequence of float
        Positive frequencies around which J changes, at least one.
    end : float
        J is zero above.
    """

    def __init__(
        self,
        J: Callable[[FloatArray], FloatArray],
        T: float,
        frequencies: Sequence[float],
        end: float = np.inf,
    ) -> None:
        self._J, self._T = J, T
        edges = self._panel_edges(frequencies, end)
        lower, upper = self._refine(edges[:-1], edges[1:])
        self._half = (upper - lower) / 2
        self._middle = (upper + lower) / 2
        self._upper = upper
        self._w = self._middle[:, None] + self._half[:, None] * _NODES
        self._weight = self._half[:, None] * _WEIGHTS
        self._density = self._spectral_density(self._w)
        self._thermal = self._density * self._coth(self._w)
        self._bottom = float(lower[0])

    @property
    def reorganisation(self) -> float:
        """(1/pi) int J/w dw."""
        below, _ = self._below(self._spectral_density, -1)
        return float(below + np.sum(self._weight * self._density / self._w)) / np.pi

    def correlation(self, t: ArrayLike) -> ComplexArray:
        """C(t), complex, of the shape of `t`; at 0 the limit from above."""
        return self._over_chunks(t, self._correlation)

    def lineshape(self, t: ArrayLike) -> ComplexArray:
        """g(t), complex, of the shape of `t`."""
        return self._over_chunks(t, self._lineshape)
