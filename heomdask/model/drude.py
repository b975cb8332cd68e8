"""The overdamped bath: a Drude-Lorentz spectral density.

Takes: reorganisation energy, cut-off rate, temperature.
Gives: `DrudeLorentz`.
Next file: `brownian.py`.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike

from heomdask import checks
from heomdask.model.bath import FloatArray, ThermalBath


@dataclass(frozen=True, kw_only=True)
class DrudeLorentz(ThermalBath):
    """J(w) = 2 lam gamma w / (w^2 + gamma^2).

    Parameters
    ----------
    lam : float
        Reorganisation energy, >= 0, in angular frequency.
    gamma : float
        Cut-off rate, the inverse of the bath's correlation time, > 0.
    T : float
        Temperature, >= 0, in angular frequency.

    Notes
    -----
    Re C(t) diverges logarithmically as t -> 0, so that Re C(0) is infinite; g(t) is finite.
    """

    lam: float
    gamma: float
    T: float

    def __post_init__(self) -> None:
        gamma = checks.real_number("gamma", self.gamma, low=0, strict=True)
        object.__setattr__(self, "lam", checks.real_number("lam", self.lam, low=0))
        object.__setattr__(self, "gamma", gamma)
        object.__setattr__(self, "T", checks.real_number("T", self.T, low=0))

    def J(self, w: ArrayLike) -> FloatArray:
        w = np.asarray(w, dtype=np.float64)
        return np.asarray(2 * self.lam * self.gamma * w / (w**2 + self.gamma**2))

    @property
    def frequencies(self) -> tuple[float, ...]:
        return (self.gamma,)

    @property
    def reorganisation(self) -> float:
        return self.lam
