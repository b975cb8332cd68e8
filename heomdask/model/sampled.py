"""Baths of any shape: a spectral density as a function or as samples, and samples of C(t).

Takes: a callable J(w), or samples (w, J), or samples (t, C).
Gives: `SpectralDensity` and `CorrelationFunction`.
Next file: `drives.py`.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.polynomial import legendre
from numpy.typing import ArrayLike

from heomdask import checks
from heomdask.errors import InputError
from heomdask.model.bath import ComplexArray, FloatArray, ThermalBath
from heomdask.model.digest import digest_of

Density = Callable[[Any], Any]

_SCAN = np.geomspace(1e-15, 1e15, 60 * 30 + 1)  # where an unknown J is looked for
_UNFINISHED = 0.01  # share of the largest |C| that may be left at the last sample
_NODES, _WEIGHTS = legendre.leggauss(8)


@dataclass(frozen=True, eq=False, init=False)
class SpectralDensity(ThermalBath):
    """A bath known by its spectral density alone.

    Parameters
    ----------
    density : callable, or a pair (w, J) of (n,) arrays
        J(w) for w > 0, not negative, in angular frequency. Between samples it is the
        monotone cubic interpolant (PCHIP), through J(0) = 0; above the last sample it is zero.
    T : float
        Temperature, >= 0, in angular frequency.
    points : sequence of float
        For a callable: positive frequencies of its peaks, edges and kinks. Without them the
        largest value is looked for; narrow peaks elsewhere may be missed.
    """

    density: Density | tuple[FloatArray, FloatArray]
    T: float
    points: tuple[float, ...]

    def __init__(
        self,
        density: Density | tuple[ArrayLike, ArrayLike],
        *,
        T: float,
        points: Sequence[float] = (),
    ) -> None:
        object.__setattr__(self, "T", checks.real_number("T", T, low=0))
        own = [checks.real_number("points", w, low=0, strict=True) for w in points]
        if callable(density):
            object.__setattr__(self, "density", density)
            object.__setattr__(self, "points", tuple(own or [_peak(density)]))
            return
        if own:
            raise InputError("`points` must be left out for samples, whose frequencies they are.")
        w, J = _pair("density", density, "(w, J)")
        w, J = checks.real_vector("density", w), checks.real_vector("density", J)
        if len(w) != len(J) or len(w) < 2 or np.any(np.diff(w) <= 0) or w[0] < 0 or np.any(J < 0):
            raise InputError(
                "`density` must hold two arrays of one length, w ascending from at least 0 and "
                "J not negative."
            )
        if w[0] > 0:
            w, J = np.append(0.0, w), np.append(0.0, J)
        if J[0] != 0:
            raise InputError(f"`density` must vanish at w = 0, got J(0) = {J[0]:g}.")
        object.__setattr__(self, "density", (w, J))
        object.__setattr__(self, "points", tuple(w[1:].tolist()))

    def J(self, w: ArrayLike) -> FloatArray:
        w = np.asarray(w, dtype=np.float64)
        size = np.abs(w)
        if callable(self.density):
            safe = np.where(size > 0, size, self.points[0])
            values = np.where(size > 0, _everywhere(self.density, safe), 0.0)
        else:
            values = np.where(size <= self.end, self._interpolant(np.minimum(size, self.end)), 0.0)
        return np.asarray(np.sign(w) * values)

    @property
    def frequencies(self) -> tuple[float, ...]:
        return self.points

    @property
    def end(self) -> float:
        return np.inf if callable(self.density) else float(self.density[0][-1])

    @functools.cached_property
    def _interpolant(self) -> Any:
        from scipy.interpolate import PchipInterpolator  # half a second of every start otherwise

        return PchipInterpolator(*self.density)  # type: ignore[misc]  # called for samples only


@dataclass(frozen=True, eq=False, init=False)
class CorrelationFunction:
    """A bath known by samples of its correlation function.

    Parameters
    ----------
    samples : pair (t, C) of (n,) arrays, n >= 4
        Ascending times from 0, and C(t), complex, in angular frequency squared. Between
        samples C is the cubic spline; after the last one it is zero, so it must have decayed.
    T : float, optional
        Temperature, where it is known; nothing here needs it.
    """

    t: FloatArray
    values: ComplexArray
    T: float | None

    def __init__(self, samples: tuple[ArrayLike, ArrayLike], *, T: float | None = None) -> None:
        t, C = _pair("samples", samples, "(t, C)")
        times = checks.times("samples", t)
        values = checks.vector("samples", C)
        if len(times) < 4 or len(values) != len(times):
            raise InputError(
                "`samples` must hold two arrays of one length of at least 4, "
                f"got {len(times)} and {len(values)}."
            )
        if times[0] != 0 or np.any(np.diff(times) == 0):
            raise InputError(f"`samples` must start at t = 0 and ascend, got t[0] = {times[0]:g}.")
        left = float(np.abs(values[-1]))
        if left > _UNFINISHED * float(np.max(np.abs(values))):
            raise InputError(
                f"`samples` must go on until C(t) has decayed, got |C| = {left:.3g} at the last "
                "of them; give longer samples, or Exponents."
            )
        object.__setattr__(self, "t", times)
        object.__setattr__(self, "values", values)
        object.__setattr__(self, "T", None if T is None else checks.real_number("T", T, low=0))

    def C(self, t: ArrayLike) -> ComplexArray:
        """C(t), of the shape of `t`; C(-t) = C(t)*."""
        t = np.asarray(t, dtype=np.float64)
        size = np.abs(t)
        values = np.where(size <= self.t[-1], self._spline(np.minimum(size, self.t[-1])), 0)
        return np.asarray(np.where(t < 0, values.conj(), values))

    def g(self, t: ArrayLike) -> ComplexArray:
        """g(t) = int_0^t ds int_0^s du C(u), exactly for the spline."""
        t = np.asarray(t, dtype=np.float64)
        size = np.abs(t)
        inside = np.minimum(size, self.t[-1])
        slope = self._spline.antiderivative(1)(self.t[-1])
        values = self._spline.antiderivative(2)(inside) + slope * (size - inside)
        return np.asarray(np.where(t < 0, values.conj(), values))

    def S(self, w: ArrayLike) -> FloatArray:
        """S(w) = 2 Re int_0^inf C(t) exp(iwt) dt, for |w| up to pi / (widest step)."""
        w = np.asarray(w, dtype=np.float64)
        highest = np.pi / float(np.max(np.diff(self.t)))
        if np.any(np.abs(w) > highest):
            raise InputError(
                f"`w` must lie within +-{highest:.6g}, which is what the samples resolve, got "
                f"{float(np.max(np.abs(w))):.6g}."
            )
        half = np.diff(self.t)[:, None] / 2
        nodes = ((self.t[1:] + self.t[:-1])[:, None] / 2 + half * _NODES).ravel()
        weighted = (half * _WEIGHTS).ravel() * self._spline(nodes)
        return np.asarray(2 * (np.exp(1j * np.multiply.outer(w, nodes)) @ weighted).real)

    def J(self, w: ArrayLike) -> FloatArray:
        """J(w) = [S(w) - S(-w)]/2."""
        w = np.asarray(w, dtype=np.float64)
        return np.asarray((self.S(w) - self.S(-w)) / 2)

    @property
    def reorganisation(self) -> float:
        """The reorganisation energy lam = -Im int_0^inf C(t) dt."""
        return -float(self._spline.antiderivative(1)(self.t[-1]).imag)

    @property
    def digest(self) -> str:
        return digest_of(self)

    @functools.cached_property
    def _spline(self) -> Any:
        from scipy.interpolate import CubicSpline

        return CubicSpline(self.t, self.values)

    def __getstate__(self) -> dict[str, object]:
        return {key: value for key, value in vars(self).items() if key != "_spline"}


def _pair(name: str, value: Any, what: str) -> tuple[Any, Any]:
    try:
        first, second = value
    except (TypeError, ValueError):
        raise checks.refuse(name, f"a pair {what}", type(value).__name__) from None
    return first, second


def _everywhere(density: Density, w: FloatArray) -> FloatArray:
    """density(w) for an array, also of a function that takes one number at a time."""
    try:
        values = np.asarray(density(w), dtype=np.float64)
        if values.shape == w.shape:
            return values
    except (TypeError, ValueError):
        pass
    return np.array([float(density(float(x))) for x in w.ravel()]).reshape(w.shape)


def _peak(density: Density) -> float:
    """The frequency of the largest value of an unknown J."""
    with np.errstate(all="ignore"):
        values = _everywhere(density, _SCAN)
    finite = np.where(np.isfinite(values), values, 0.0)
    largest = float(np.max(finite))
    if np.min(finite) < -1e-12 * largest:
        at = float(_SCAN[np.argmin(finite)])
        raise InputError(
            f"`density` must not be negative for w > 0, got {np.min(finite):g} at w = {at:g}."
        )
    at_peak = int(np.argmax(finite))
    if at_peak == len(_SCAN) - 1 and largest > 0:
        raise InputError("`density` must have a maximum below w = 1e15; give `points`.")
    return float(_SCAN[at_peak]) if largest > 0 else 1.0
