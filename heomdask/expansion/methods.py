"""The expansions a user asks for: `Pade`, `Matsubara`, `AAA`, `ESPRIT`; `expand` applies one.

Takes: a bath and a method.
Gives: `Exponents`.
Next file: `cache.py`, which keeps them.

Pade and Matsubara are for the rational spectral densities (Drude-Lorentz, Brownian) at T > 0;
AAA and ESPRIT fit any bath at any temperature. An `Exponents` bath is returned as it is.
"""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from typing import Literal, Protocol, runtime_checkable

import numpy as np

from heomdask import checks
from heomdask.brief import Brief
from heomdask.errors import InputError
from heomdask.expansion import poles, rational
from heomdask.expansion.notices import warn
from heomdask.expansion.poles import PoleTable
from heomdask.expansion.rational import Rest
from heomdask.model.bath import Bath
from heomdask.model.brownian import UnderdampedBrownian
from heomdask.model.drude import DrudeLorentz
from heomdask.model.exponents import Exponents

Coefficients = Literal["consistent", "exact"]

_COLD = 1e-6  # T below this times the bath's slowest rate is as good as T = 0
_NEGATIVE = 1e-3  # a negative delta is warned of above this part of the dephasing rate S(0)/2
_FAST = 3.0  # a terminator is for frequencies above this times the bath's fastest


@runtime_checkable
class Expansion(Protocol):
    """A way to expand a bath; frozen and hashable, so that it can be an axis of a sweep.

    `finer()` is the next better one of its kind: what a convergence check compares with.
    """

    def expand(self, bath: Bath) -> Exponents: ...

    def finer(self) -> Expansion: ...

    def __hash__(self) -> int: ...


@dataclass(frozen=True)
class Pade(Brief):
    """The Pade [N-1/N] poles of coth: N modes besides the bath's own.

    Parameters
    ----------
    N : int
        Number of poles; 0 is the classical bath.
    coefficients : {"consistent", "exact"}
        "consistent": all coefficients from the truncated sum, so that C(t) is a smooth function of
        all parameters and its time integral is exact. "exact": the resonance's coefficient from
        the exact coth, as other programs have it; wrong near gamma = 2 pi T.
    """

    N: int
    coefficients: Coefficients = "consistent"

    def __post_init__(self) -> None:
        checks.whole_number("N", self.N)
        checks.choice("coefficients", self.coefficients, ("consistent", "exact"))

    def expand(self, bath: Bath) -> Exponents:
        exact = self.coefficients == "exact"
        return _rational(bath, poles.pade(self.N), Rest(exact=exact), self)

    def finer(self) -> Pade:
        return dataclasses.replace(self, N=self.N + 1)


@dataclass(frozen=True)
class Matsubara(Brief):
    """The first N Matsubara frequencies, by default with the Ishizaki-Tanimura terminator.

    Parameters
    ----------
    N : int
        Number of frequencies besides the bath's own modes.
    terminator : bool
        Take all frequencies above as white noise, -delta [Q, [Q, rho]]. The bath's own
        coefficient is then that of the full sum, which is exact.
    coefficients : {"consistent", "exact"}
        As for `Pade`; with a terminator both are the same C(t), but "exact" has no links between
        close rates.
    """

    N: int
    terminator: bool = True
    coefficients: Coefficients = "consistent"

    def __post_init__(self) -> None:
        checks.whole_number("N", self.N)
        if not isinstance(self.terminator, bool):
            raise checks.refuse("terminator", "True or False", self.terminator)
        checks.choice("coefficients", self.coefficients, ("consistent", "exact"))

    def expand(self, bath: Bath) -> Exponents:
        rest = Rest(exact=self.coefficients == "exact", terminator=self.terminator)
        exponents = _rational(bath, poles.matsubara(self.N), rest, self)
        if self.terminator:
            _warn_of_terminator(bath, exponents, self)
        return exponents

    def finer(self) -> Matsubara:
        return dataclasses.replace(self, N=self.N + 1)


def expand(bath: Bath | Exponents, method: Expansion | None) -> Exponents:
    """`bath` as exponents; one that is given as exponents is returned as it is."""
    if isinstance(bath, Exponents):
        return bath
    if isinstance(method, type) or not isinstance(method, Expansion):
        raise checks.refuse(
            "expansion", 'hd.Pade(N), hd.Matsubara(N), hd.AAA(tol), hd.ESPRIT(K) or "auto"', method
        )
    return method.expand(bath)


def _warn_of_terminator(bath: Bath, exponents: Exponents, method: Matsubara) -> None:
    """Warn of a terminator that is not white noise for this bath, or that amplifies."""
    assert isinstance(bath, DrudeLorentz | UnderdampedBrownian)  # or it could not be expanded
    omitted = 2 * np.pi * bath.T * (method.N + 1)
    if exponents.delta < -_NEGATIVE * _dephasing(bath):
        warn(
            f"{method} gives a negative terminator, delta = {exponents.delta:.3g}, which amplifies "
            "instead of damping: the bath is faster than the frequencies that were left out. "
            f"Use hd.Pade({max(method.N, 1)}), or raise N."
        )
    elif omitted < _FAST * _fastest(bath) and bath.lam > 0:
        enough = int(np.ceil(_FAST * _fastest(bath) / (2 * np.pi * bath.T))) - 1
        warn(
            f"{method} takes frequencies from 2 pi T (N + 1) = {omitted:.3g} as white noise, which "
            f"needs them well above the bath's own rate, {_fastest(bath):.3g}; the dynamics may "
            f"be wrong. Use hd.Pade({max(method.N, 1)}), or N of at least {enough}."
        )


def _fastest(bath: DrudeLorentz | UnderdampedBrownian) -> float:
    """An upper bound on the bath's own rates and frequencies."""
    return bath.gamma if isinstance(bath, DrudeLorentz) else max(bath.w0, bath.gamma)


def _slowest(bath: DrudeLorentz | UnderdampedBrownian) -> float:
    """A lower bound on the bath's own rates and frequencies."""
    if isinstance(bath, DrudeLorentz):
        return bath.gamma
    return min(bath.w0, bath.w0**2 / bath.gamma)


def _dephasing(bath: DrudeLorentz | UnderdampedBrownian) -> float:
    """S(0) / 2 = T dJ/dw at w = 0."""
    if isinstance(bath, DrudeLorentz):
        return 2 * bath.lam * bath.T / bath.gamma
    return 2 * bath.lam * bath.gamma * bath.T / bath.w0**2


def _rational(bath: Bath, table: PoleTable, rest: Rest, method: Expansion) -> Exponents:
    """The exponents of a Drude or Brownian bath at a temperature above 0."""
    if not isinstance(bath, DrudeLorentz | UnderdampedBrownian):
        raise InputError(
            f"`expansion` {method} is for DrudeLorentz and UnderdampedBrownian baths, "
            f"got {type(bath).__name__}; use hd.AAA(tol) or hd.ESPRIT(K)."
        )
    if bath.T / _slowest(bath) <= _COLD:
        raise InputError(
            f"`expansion` {method} needs a temperature above 0: its frequencies are multiples "
            f"of T; got T = {bath.T:g}; use hd.AAA(tol) or hd.ESPRIT(K)."
        )
    try:
        if isinstance(bath, DrudeLorentz):
            return rational.drude(bath.lam, bath.gamma, bath.T, table, rest)
        return rational.brownian(bath.lam, bath.gamma, bath.w0, bath.T, table, rest)
    except InputError:
        raise InputError(
            f"`expansion` {method} is singular for {bath}: one of its frequencies falls on a rate "
            "of the bath. Use coefficients='consistent' or hd.Pade(N)."
        ) from None
