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

import itertools
from collections.abc import Callable, Sequence

import numpy as np
import scipy.special
from numpy.polynomial import legendre
from numpy.typing import ArrayLike, NDArray

from heomdask.errors import InputError

ComplexArray = NDArray[np.complex128]
FloatArray = NDArray[np.float64]
Indices = NDArray[np.intp]

_ORDER = 24  # nodes of a panel
_RESOLVED = 1e-14  # size of the last four Legendre coefficients, relative to the largest
_ROUNDING = 1e-15  # and this much times w over the width of the panel
_MOST_PANELS = 10_000  # unresolved at once
_NEGLIGIBLE = 1e-20  # of the largest w |f|: the integrand has ended
_BOTTOM, _TOP = 1e-10, 1e15  # the axis, relative to the lowest and the highest frequency
_DEEPEST = 40  # halvings of a panel
_SERIES, _GAUSS = 0.5, 6.0  # x up to which the series is used, h t up to which Gauss is
_TERMS = 8  # of the series
_PAIRS = 40_000  # of a time and a panel, evaluated at once
_SHOWS = 1e-15  # relative size of an oscillating part that is still computed
_CONVERGES = 1e-2  # an integrand this close to 1/w at an end of the axis is not integrable
_TINY = 1e-300

_SIGNS = 1.0 - 2 * (np.arange(_ORDER) // 2 % 2)  # of i^k, real for even k, imaginary for odd
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
        self._below_f = self._below(lambda w: self._spectral_density(w) * self._coth(w), 0)
        self._drift = np.sum(self._weight * self._density / self._w, axis=1)
        self._series_moments = self._moments(self._thermal, 0), self._moments(self._density, 1)

    @property
    def reorganisation(self) -> float:
        """(1/pi) int J/w dw."""
        return (self._below(self._spectral_density, -1) + float(np.sum(self._drift))) / np.pi

    def correlation(self, t: ArrayLike) -> ComplexArray:
        """C(t), complex, of the shape of `t`; at 0 the limit from above."""
        return self._over_chunks(t, self._correlation)

    def lineshape(self, t: ArrayLike) -> ComplexArray:
        """g(t), complex, of the shape of `t`."""
        return self._over_chunks(t, self._lineshape)

    # ---- the panels

    def _panel_edges(self, frequencies: Sequence[float], end: float) -> FloatArray:
        """Edges from the bottom of the axis up to where the integrand has ended."""
        own = sorted({*frequencies, *([self._T] if self._T > 0 else []), min(frequencies)})
        own = [w for w in own if 0 < w < end]
        doublings = np.arange(np.floor(np.log2(_BOTTOM)), 1)
        below = own[0] * 2.0**doublings
        between = [
            np.geomspace(a, b, 1 + max(1, int(np.ceil(np.log2(b / a)))))[1:]
            for a, b in itertools.pairwise(own)
        ]
        edges = np.concatenate([below, *between])
        largest = float(np.max(self._size(edges)))
        above = []
        w = float(edges[-1])
        while w < min(end, _TOP * own[-1]):
            w = min(2 * w, end)
            above.append(w)
            size = float(self._size(np.array([w]))[0])
            largest = max(largest, size)
            if size < _NEGLIGIBLE * largest:
                break
        self._largest = largest
        return np.concatenate([edges, above])

    def _refine(self, lower: FloatArray, upper: FloatArray) -> tuple[FloatArray, FloatArray]:
        """Halve panels until the integrand is resolved on each; the edges, ascending."""
        done_lower, done_upper = [], []
        for _ in range(_DEEPEST):
            middle, half = (lower + upper) / 2, (upper - lower) / 2
            w = middle[:, None] + half[:, None] * _NODES
            values = self._spectral_density(w) * self._coth(w)
            spectrum = np.abs(values @ _TO_LEGENDRE)
            small = np.max(np.abs(values), axis=1) * upper <= _NEGLIGIBLE * self._largest
            # next to a narrow peak the rounding of w itself shows in J: that is the best there is
            enough = _RESOLVED + _ROUNDING * upper / half
            resolved = np.max(spectrum[:, -4:], axis=1) <= enough * np.max(spectrum, axis=1)
            good = small | resolved
            done_lower.append(lower[good])
            done_upper.append(upper[good])
            lower, upper, middle = lower[~good], upper[~good], middle[~good]
            if not len(lower):
                break
            if len(lower) > _MOST_PANELS:
                raise InputError(
                    "`J` must be smooth but for a few `points`, got one that is not resolved by "
                    f"{_MOST_PANELS} panels near w = {float(lower[0]):.6g}; give its kinks as "
                    "`points`, or samples of it."
                )
            lower, upper = np.concatenate([lower, middle]), np.concatenate([middle, upper])
        all_lower = np.concatenate([*done_lower, lower])
        all_upper = np.concatenate([*done_upper, upper])
        order = np.argsort(all_lower)
        return all_lower[order], all_upper[order]

    def _spectral_density(self, w: FloatArray) -> FloatArray:
        with np.errstate(all="ignore"):
            values = np.asarray(self._J(w), dtype=np.float64)
        if values.shape != w.shape or not np.all(np.isfinite(values)):
            raise InputError(
                "`J` must give finite values for every w > 0 and keep the shape of `w`; got "
                f"{values.ravel()[:3]} for w = {w.ravel()[:3]}."
            )
        return values

    def _coth(self, w: FloatArray) -> FloatArray:
        if self._T == 0:
            return np.ones_like(w)
        return np.asarray(1 / np.tanh(w / (2 * self._T)))

    def _size(self, w: FloatArray) -> FloatArray:
        return np.asarray(np.abs(w * self._spectral_density(w) * self._coth(w)))

    def _below(self, f: Callable[[FloatArray], FloatArray], power: int) -> float:
        """int_0^bottom f(w) w^power dw of an f that is a power of w there."""
        low, high = f(self._bottom * np.array([0.5, 1.0]))
        if high == 0 or low == 0:
            return 0.0
        exponent = float(np.log2(high / low)) + power + 1
        if exponent < _CONVERGES:
            raise InputError(
                "`J` must vanish at w = 0 fast enough for C(t) and the reorganisation energy to "
                f"be finite, got an integrand that goes as w^{exponent - 1:.3g} there."
            )
        return float(high * self._bottom ** (power + 1) / exponent)

    def _at_zero(self) -> tuple[float, float]:
        """Real part and minus the imaginary part of pi C(0+); the real part may be infinite."""
        w = self._upper[-1] * np.array([0.5, 1.0]) * (1 - 1e-12)
        low, high = self._spectral_density(w) * self._coth(w)
        total = self._below_f + float(np.sum(self._weight * self._thermal))
        if self._w[-1, -1] * high <= _NEGLIGIBLE * self._largest * 1e10 or high == 0:
            return total, 0.0
        exponent = float(np.log2(high / low)) + 1  # the integrand's beyond the axis
        beyond = np.inf if exponent > -_CONVERGES else -high * w[1] / exponent
        return total + beyond, float(np.pi / 2 * w[1] * self._spectral_density(w)[1])

    # ---- evaluation

    def _over_chunks(
        self, t: ArrayLike, evaluate: Callable[[FloatArray], ComplexArray]
    ) -> ComplexArray:
        times = np.asarray(t, dtype=np.float64)
        flat = np.abs(times).ravel()
        chunk = max(1, _PAIRS // len(self._half))
        parts = [evaluate(flat[k : k + chunk]) for k in range(0, len(flat), chunk)]
        total = np.concatenate([np.zeros(0, dtype=complex), *parts])
        signed = np.where(times.ravel() < 0, total.conj(), total)
        return np.asarray(signed.reshape(times.shape), dtype=np.complex128)

    def _correlation(self, t: FloatArray) -> ComplexArray:
        """(1/pi) int f cos wt - i J sin wt, f = J coth; t >= 0, (n,)."""
        f, J = self._thermal, self._density
        n_series, gauss, filon = self._methods(t)
        real = self._series(t, n_series, 0, _COS) + self._below_f
        imag = self._series(t, n_series, 1, _SIN)
        x = self._w[gauss[1]] * t[gauss[0], None]
        np.add.at(real, gauss[0], np.sum((self._weight * f)[gauss[1]] * np.cos(x), axis=1))
        np.add.at(imag, gauss[0], np.sum((self._weight * J)[gauss[1]] * np.sin(x), axis=1))
        for total, part in zip((real, imag), self._filon(t, filon, f, J), strict=True):
            np.add.at(total, filon[0], part)
        if np.any(t == 0):
            real[t == 0], imag[t == 0] = self._at_zero()
        return _over_pi(real, -imag)

    def _lineshape(self, t: FloatArray) -> ComplexArray:
        """(1/pi) int f (1 - cos wt)/w^2 - i J (wt - sin wt)/w^2; t >= 0, (n,)."""
        f, J = self._thermal / self._w**2, self._density / self._w**2
        n_series, gauss, filon = self._methods(t)
        real = (self._series(t, n_series, 0, _ONE_MINUS_COS) + self._below_f / 2) * t**2
        imag = self._series(t, n_series, 1, _X_MINUS_SIN) * t**2
        x = self._w[gauss[1]] * t[gauss[0], None]
        kernels = 2 * np.sin(x / 2) ** 2, x - np.sin(x)
        np.add.at(real, gauss[0], np.sum((self._weight * f)[gauss[1]] * kernels[0], axis=1))
        np.add.at(imag, gauss[0], np.sum((self._weight * J)[gauss[1]] * kernels[1], axis=1))
        # the rest oscillates about a mean that is known, and only as far as it shows
        sizes = np.stack([np.sum(np.abs(self._weight * y), axis=1) for y in (f, J)])
        np.add.at(real, filon[0], np.sum(self._weight * f, axis=1)[filon[1]])
        np.add.at(imag, filon[0], (t[:, None] * self._drift)[filon])
        from_here = np.cumsum(sizes[:, ::-1], axis=1)[:, ::-1]
        known = np.abs(np.stack([real, imag]))[:, filon[0]]
        shows = np.any(from_here[:, filon[1]] > _SHOWS * known, axis=0)
        seen = (filon[0][shows], filon[1][shows])
        for total, part in zip((real, imag), self._filon(t, seen, f, J), strict=True):
            np.subtract.at(total, seen[0], part)
        return _over_pi(real, -imag)

    def _methods(
        self, t: FloatArray
    ) -> tuple[Indices, tuple[Indices, Indices], tuple[Indices, Indices]]:
        """How many panels the series takes at each time; then (time, panel) pairs for Gauss
        and for Filon.
        """
        n_series = np.searchsorted(self._upper, _SERIES / np.maximum(t, _TINY), side="right")
        above = np.arange(len(self._upper)) >= n_series[:, None]
        slow = self._half * t[:, None] <= _GAUSS
        gauss, filon = np.nonzero(above & slow), np.nonzero(above & ~slow)
        return n_series, (gauss[0], gauss[1]), (filon[0], filon[1])

    def _moments(self, f: FloatArray, odd: int) -> FloatArray:
        """Give int f x^(odd + 2m) dw over all panels up to p, x = w / upper[p]; (panels, terms)."""
        powers = odd + 2 * np.arange(_TERMS)
        x = self._w / self._upper[:, None]
        moments = np.einsum("pi,pim->pm", self._weight * f, x[:, :, None] ** powers)
        for p in range(1, len(moments)):
            moments[p] += moments[p - 1] * (self._upper[p - 1] / self._upper[p]) ** powers
        return np.asarray(moments)

    def _series(self, t: FloatArray, n_series: Indices, odd: int, kernel: FloatArray) -> FloatArray:
        """Give int f sum_m kernel_m x^(odd + 2m) dw over the first `n_series` panels, x = wt; f is
        J coth for even powers and J for odd ones.
        """
        last = np.maximum(n_series - 1, 0)
        x = np.minimum(t * self._upper[last], _SERIES)
        moments = self._series_moments[odd][last]
        terms = kernel * x[:, None] ** (odd + 2 * np.arange(_TERMS)) * moments
        return np.asarray(np.sum(terms, axis=1) * (n_series > 0))

    def _filon(
        self, t: FloatArray, pairs: tuple[Indices, Indices], f: FloatArray, J: FloatArray
    ) -> tuple[FloatArray, FloatArray]:
        """Give int f cos wt dw and int J sin wt dw over each (time, panel) pair."""
        times, panel = t[pairs[0]], pairs[1]
        f_k, J_k = ((_SIGNS[:, None] * (y @ _TO_LEGENDRE).T)[:, panel] for y in (f, J))
        a, phase = self._half[panel] * times, self._middle[panel] * times
        older, newer = np.sin(a) / a, (np.sin(a) / a - np.cos(a)) / a  # j_0, j_1
        f_sums, J_sums = [f_k[0] * older, f_k[1] * newer], [J_k[0] * older, J_k[1] * newer]
        for k in range(2, _ORDER):
            older, newer = newer, (2 * k - 1) / a * newer - older
            f_sums[k % 2] += f_k[k] * newer
            J_sums[k % 2] += J_k[k] * newer
        cosine, sine = np.cos(phase), np.sin(phase)
        width = 2 * self._half[panel]
        return (
            width * (cosine * f_sums[0] - sine * f_sums[1]),
            width * (sine * J_sums[0] + cosine * J_sums[1]),
        )


def _over_pi(real: FloatArray, imag: FloatArray) -> ComplexArray:
    """(real + i imag) / pi, where the real part may be infinite."""
    out = np.empty(len(real), dtype=np.complex128)
    out.real, out.imag = real / np.pi, imag / np.pi
    return out


def _alternating(first: int) -> FloatArray:
    """(-1)^m / (2m + first)!, m = 0, 1, ..."""
    orders = first + 2 * np.arange(_TERMS)
    return np.asarray((-1.0) ** np.arange(_TERMS) / scipy.special.factorial(orders))


_COS, _SIN, _ONE_MINUS_COS, _X_MINUS_SIN = (_alternating(first) for first in range(4))
