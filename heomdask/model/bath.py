"""What every bath offers: J(w), S(w), C(t), g(t) and its reorganisation energy.

Takes: a spectral density J(w) and a temperature, from one of the bath classes.
Gives: `Bath`, the protocol, and `ThermalBath`, whose S, C and g come from J by quadrature.
Next file: `drude.py`, `brownian.py`, `ohmic.py`, `sampled.py`, the baths themselves.

Conventions, hbar = kB = 1, w and T in angular frequency:

    C(t) = (1/pi) int_0^inf J(w) [coth(w/2T) cos(wt) - i sin(wt)] dw
    S(w) = int C(t) exp(iwt) dt = J(w) [coth(w/2T) + 1],  J odd, S(-w) = exp(-w/T) S(w)
    g(t) = int_0^t ds int_0^s du C(u),  lam = (1/pi) int_0^inf J(w)/w dw
"""

from __future__ import annotations

import functools
import hashlib
from abc import ABC, abstractmethod
from typing import Protocol

import numpy as np
from numpy.typing import ArrayLike, NDArray

from heomdask import checks
from heomdask.model.digest import digest_of
from heomdask.model.quadrature import Quadrature

ComplexArray = NDArray[np.complex128]
FloatArray = NDArray[np.float64]


class Bath(Protocol):
    """What a `Coupling` takes: a spectral density, samples of C(t), or `Exponents`."""

    @property
    def T(self) -> float | None:
        """Temperature in angular frequency, 0 allowed; None where it is not known."""

    @property
    def reorganisation(self) -> float:
        """Reorganisation energy lam, in angular frequency."""

    @property
    def digest(self) -> str:
        """A hash of the class and its parameters."""

    def J(self, w: ArrayLike) -> FloatArray:
        """Spectral density."""

    def S(self, w: ArrayLike) -> FloatArray:
        """Power spectrum."""

    def C(self, t: ArrayLike) -> ComplexArray:
        """Correlation function."""

    def g(self, t: ArrayLike) -> ComplexArray:
        """Line-shape function."""


class ThermalBath(ABC):
    """A bosonic bath in thermal equilibrium at the temperature `T`, known by its J(w)."""

    T: float

    @abstractmethod
    def J(self, w: ArrayLike) -> FloatArray:
        """Spectral density, odd in w, in angular frequency; shape of `w`."""

    @property
    @abstractmethod
    def frequencies(self) -> tuple[float, ...]:
        """Frequencies around which J changes: where the quadrature puts its panels."""

    @property
    def end(self) -> float:
        """The frequency above which J is zero."""
        return np.inf

    @property
    def reorganisation(self) -> float:
        """The reorganisation energy lam = (1/pi) int_0^inf J(w)/w dw, in angular frequency."""
        return self._quadrature.reorganisation

    def S(self, w: ArrayLike) -> FloatArray:
        """Power spectrum J(w) [coth(w/2T) + 1], in angular frequency; shape of `w`."""
        w = np.asarray(w, dtype=np.float64)
        if self.T == 0:
            return np.asarray(np.where(w > 0, 2 * self.J(w), 0.0))
        # J(w) * 2 / (1 - exp(-w/T)), and its limit T dJ/dw * 2 at w = 0
        step = 1e-9 * min(self.T, *self.frequencies)
        near = np.where(np.abs(w) < step, step, w)
        with np.errstate(over="ignore"):
            return np.asarray(-2 * self.J(near) / np.expm1(-near / self.T))

    def C(self, t: ArrayLike) -> ComplexArray:
        """Correlation function, of the shape of `t`; C(-t) = C(t)*.

        At t = 0 the limit from t > 0 is given; its real part is infinite where the integral
        diverges (Drude-Lorentz).
        """
        return self._quadrature.correlation(t)

    def g(self, t: ArrayLike) -> ComplexArray:
        """Line-shape function, dimensionless, of the shape of `t`; g(-t) = g(t)*."""
        return self._quadrature.lineshape(t)

    @functools.cached_property
    def digest(self) -> str:
        """A hash of the class and its parameters."""
        return digest_of(type(self).__qualname__, self)

    def answers(self) -> str:
        """A hash of J(w) as it is now, on a grid that resolves it.

        A user's J may read what no digest can follow, a global that each point sets, say: results
        may be reused only where these agree, too.
        """
        with np.errstate(all="ignore"):
            values = np.asarray(self.J(_grid(self.frequencies)), dtype=np.float64)
        found = hashlib.sha256(values.tobytes()).hexdigest()
        if vars(self).setdefault("_answers", found) != found:
            raise checks.refuse(
                "bath",
                "one whose J(w) stays what it is",
                self,
                "make a new bath at each point, inside `build`, and give its function what it "
                "needs as arguments (functools.partial)",
            )
        return found

    @functools.cached_property
    def _quadrature(self) -> Quadrature:
        return Quadrature(self.J, self.T, self.frequencies, self.end)

    def __getstate__(self) -> dict[str, object]:
        cached = ("_quadrature", "_interpolant", "_answers")
        return {key: value for key, value in vars(self).items() if key not in cached}


@functools.lru_cache(maxsize=256)
def _grid(frequencies: tuple[float, ...]) -> FloatArray:
    """Three decades on both sides of the frequencies around which J changes, and close to each."""
    far = np.geomspace(1e-3 * min(frequencies), 1e3 * max(frequencies), 400)
    near = np.outer(frequencies, np.linspace(0.5, 1.5, 101 if len(frequencies) < 8 else 1))
    grid = np.concatenate([far, near.ravel()])
    grid.flags.writeable = False
    return grid
