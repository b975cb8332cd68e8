"""The Ohmic family: a power of w with an exponential cut-off.

Takes: exponent s, cut-off, reorganisation energy (or alpha), temperature.
Gives: `Ohmic`.
Next file: `sampled.py`.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike

from heomdask import checks
from heomdask.model.bath import FloatArray, ThermalBath


@dataclass(frozen=True, init=False)
class Ohmic(ThermalBath):
    """J(w) = alpha w^s wc^(1-s) exp(-w/wc) for w > 0, and lam = alpha wc Gamma(s) / pi.

    Parameters
    ----------
    s : float
        Exponent, at least 0.05: below 1 sub-Ohmic, 1 Ohmic, above 1 super-Ohmic.
    wc : float
        Cut-off, > 0, in angular frequency.
    T : float
        Temperature, >= 0, in angular frequency.
    lam : float
        Reorganisation energy, >= 0, in angular frequency; this or `alpha`.
    alpha : float
        Dimensionless coupling strength, >= 0. (Kondo's is alpha / (2 pi) with Q = sigma_z.)
    """

    s: float
    wc: float
    T: float
    lam: float

    def __init__(
        self,
        *,
        s: float,
        wc: float,
        T: float,
        lam: float | None = None,
        alpha: float | None = None,
    ) -> None:
        s = checks.real_number("s", s, low=0.05)
        wc = checks.real_number("wc", wc, low=0, strict=True)
        checks.one_of("lam", lam, "alpha", alpha)
        if lam is None:
            lam = checks.real_number("alpha", alpha, low=0) * wc * math.gamma(s) / math.pi
        object.__setattr__(self, "s", s)
        object.__setattr__(self, "wc", wc)
        object.__setattr__(self, "T", checks.real_number("T", T, low=0))
        object.__setattr__(self, "lam", checks.real_number("lam", lam, low=0))

    @property
    def alpha(self) -> float:
        """Coupling strength pi lam / (wc Gamma(s))."""
        return math.pi * self.lam / (self.wc * math.gamma(self.s))

    def J(self, w: ArrayLike) -> FloatArray:
        x = np.asarray(w, dtype=np.float64) / self.wc
        size = np.abs(x)
        return np.asarray(self.alpha * self.wc * np.sign(x) * size**self.s * np.exp(-size))

    @property
    def frequencies(self) -> tuple[float, ...]:
        return (self.wc,)

    @property
    def reorganisation(self) -> float:
        return self.lam
