"""A damped oscillator as a bath: a Brownian spectral density.

Takes: reorganisation energy (or alpha), damping, frequency, temperature.
Gives: `UnderdampedBrownian`, which may also be critically damped or overdamped.
Next file: `ohmic.py`.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike

from heomdask import checks
from heomdask.model.bath import FloatArray, ThermalBath


@dataclass(frozen=True, init=False)
class UnderdampedBrownian(ThermalBath):
    """J(w) = alpha^2 gamma w / ((w0^2 - w^2)^2 + gamma^2 w^2), alpha^2 = 2 lam w0^2.

    Parameters
    ----------
    lam : float
        Reorganisation energy, >= 0, in angular frequency; this or `alpha`.
    alpha : float
        Coupling strength, >= 0, in angular frequency to the power 3/2.
    gamma : float
        Damping rate, > 0; 2 w0 is critical, and more is legal.
    w0 : float
        Frequency of the oscillator, > 0.
    T : float
        Temperature, >= 0, in angular frequency.

    Notes
    -----
    For a very narrow peak the rounding of w next to w0 limits what a quadrature can give: C and g
    are accurate to about 1e-16 w0 / gamma, where that is more than 1e-12.
    """

    lam: float
    gamma: float
    w0: float
    T: float

    def __init__(
        self,
        *,
        gamma: float,
        w0: float,
        T: float,
        lam: float | None = None,
        alpha: float | None = None,
    ) -> None:
        w0 = checks.real_number("w0", w0, low=0, strict=True)
        checks.one_of("lam", lam, "alpha", alpha)
        if lam is None:
            lam = checks.real_number("alpha", alpha, low=0) ** 2 / (2 * w0**2)
        object.__setattr__(self, "lam", checks.real_number("lam", lam, low=0))
        object.__setattr__(self, "gamma", checks.real_number("gamma", gamma, low=0, strict=True))
        object.__setattr__(self, "w0", w0)
        object.__setattr__(self, "T", checks.real_number("T", T, low=0))

    @property
    def alpha(self) -> float:
        """sqrt(2 lam) w0."""
        return math.sqrt(2 * self.lam) * self.w0

    def J(self, w: ArrayLike) -> FloatArray:
        w = np.asarray(w, dtype=np.float64)
        # divided through by w0^4, and factored, so that neither end of the axis overflows
        x = w / self.w0
        damping = self.gamma / self.w0 * x
        return np.asarray(2 * self.lam * damping / (((1 - x) * (1 + x)) ** 2 + damping**2))

    @property
    def frequencies(self) -> tuple[float, ...]:
        if self.gamma < self.w0:  # the peak and its flanks
            return (self.w0 - self.gamma / 2, self.w0, self.w0 + self.gamma / 2)
        return (min(self.w0**2 / self.gamma, self.w0), self.w0, max(self.gamma, self.w0))

    @property
    def reorganisation(self) -> float:
        return self.lam
