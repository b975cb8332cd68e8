"""Exponents of the rational spectral densities: Drude-Lorentz, Brownian, Lorentzian leads.

Takes: the numbers of a bath and a `PoleTable`.
Gives: `Exponents`, plain where the rates are well apart, linked (blocks of rates) where not.
Next file: `methods.py`, which chooses the table and calls this.

One pole nu of coth(w / 2T) adds to the Laplace transform of C(t), Re s > 0, a rational function
whose numerator has no 1/w at zero frequency and no step at t = 0. This fixes it entirely:

    Drude      f s / ((s + nu)(s + gamma)),               f = 4 lam gamma T eta / (nu + gamma)
    Brownian   f s (s + nu + gamma) / ((s + nu) q(s)),    f = 4 lam w0^2 T eta / q(nu)

with q(s) = s^2 + gamma s + w0^2, while the classical part and the response are

    Drude      lam (2 T - i gamma) / (s + gamma)
    Brownian   lam (2 T (s + gamma) - i w0^2) / q(s)

Nothing here is singular, whatever coincides. Partial fractions are what diverges where two rates
meet; so they are taken between rates that are well apart only, and two close rates stay one
product, which is a lateral link from the pole's mode to the resonance's. Which are close is
decided by the bath and the table alone. The two forms span the same functions of time, so
a hierarchy of given depth gives the same dynamics with either: a sweep through a coincidence
is smooth.

The resonance of a Brownian bath is one real block with the rates gamma/2 and the links -w0 and
(w0^2 - gamma^2/4)/w0, read through its first mode; it is regular through gamma = 2 w0. Only far
above does it fall into two plain exponents.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from heomdask.expansion import poles
from heomdask.expansion.poles import PoleTable
from heomdask.model.exponents import Exponents

NEAR = 0.3  # rates closer than this, relative to the resonance's, are linked
_NEAR_BLOCK = 0.1  # the same for a pole and a whole block: |q(-nu)| / (nu^2 + w0^2)
_SPLIT = 2.0  # a Brownian resonance falls into two exponents where their rates differ by this


@dataclass(frozen=True)
class Rest:
    """What is done with the part of coth that the table leaves out.

    exact : the resonance's coefficients come from the exact coth, those of the table's poles
        stay plain: the peers' convention. Otherwise the resonance belongs to the truncated sum.
    terminator : the Matsubara frequencies above the table become white noise (`delta`), and
        their effect on the resonance is kept exactly.
    """

    exact: bool = False
    terminator: bool = False


def drude(lam: float, gamma: float, temperature: float, table: PoleTable, rest: Rest) -> Exponents:
    """Exponents of J(w) = 2 lam gamma w / (w^2 + gamma^2): mode 0 is the resonance."""
    nu = table.xi * temperature
    near = (np.abs(nu - gamma) < NEAR * gamma) & (not rest.exact)
    weight = 4 * lam * gamma * temperature * table.eta / (nu + gamma)
    with np.errstate(divide="ignore", invalid="ignore"):
        c_pole = np.where(near, weight, weight * nu / (nu - gamma))
        slow = np.where(near, 0.0, weight * gamma / (nu - gamma))
    real = 2 * lam * temperature - (0.0 if rest.exact else float(np.sum(slow)))
    delta = 0.0
    if rest.exact or rest.terminator:
        above = 4 * lam * gamma * temperature
        denominator = np.array([1.0, 0.0, -(gamma**2)])
        start = 0 if rest.exact else len(table)
        real -= above * gamma * poles.bose_tail(start, temperature, 2, denominator)
        if rest.terminator:
            delta = above * poles.bose_tail(len(table), temperature, 2, denominator)
    return Exponents(
        gamma=np.concatenate([[gamma], nu]),
        c=np.concatenate([[complex(real, -lam * gamma)], c_pole]),
        lateral=tuple((0, 1 + int(k), gamma) for k in np.flatnonzero(near)),
        delta=delta,
    )


@dataclass(frozen=True)
class _Brownian:
    """q(s) = s^2 + gamma s + w0^2 and the sums that all its realisations need."""

    lam: float
    gamma: float
    w0: float
    temperature: float

    @property
    def gap(self) -> float:
        """The distance of the two real rates; 0 where there are none."""
        return float(np.sqrt(max(self.gamma**2 - 4 * self.w0**2, 0.0)))

    @property
    def rates(self) -> tuple[float, float]:
        """The roots of q(-r), slow then fast, where overdamped."""
        fast = (self.gamma + self.gap) / 2
        return self.w0**2 / fast, fast

    def weight(self, nu: NDArray[np.float64], eta: NDArray[np.float64]) -> NDArray[np.float64]:
        """The coefficient f of a pole."""
        strength = 4 * self.lam * self.w0**2 * self.temperature
        return strength * eta / (nu**2 + self.gamma * nu + self.w0**2)

    def plain(
        self, nu: NDArray[np.float64], eta: NDArray[np.float64]
    ) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        """A pole's own coefficient A and its numerator (p, q0) over q(s), by partial fractions."""
        weight = self.weight(nu, eta)
        own = -weight * nu * self.gamma / (nu**2 - self.gamma * nu + self.w0**2)
        return own, np.stack([weight - own, -own * self.w0**2 / nu])

    def tail(self, start: int) -> tuple[float, NDArray[np.float64]]:
        """White noise sum A / nu and numerator (p, q0) of all Matsubara poles above `start`."""
        g, w2 = self.gamma, self.w0**2
        strength = 4 * self.lam * w2 * self.temperature
        both = np.array([1.0, 0.0, 2 * w2 - g**2, 0.0, w2**2])
        one = np.array([1.0, g, w2])
        weight = strength * poles.bose_tail(start, self.temperature, 2, one)
        own = -strength * g * poles.bose_tail(start, self.temperature, 3, both)
        over_nu = -strength * g * poles.bose_tail(start, self.temperature, 4, both)
        return over_nu, np.array([weight - own, -over_nu * w2])


def brownian(
    lam: float, gamma: float, w0: float, temperature: float, table: PoleTable, rest: Rest
) -> Exponents:
    """Exponents of J(w) = 2 lam gamma w0^2 w / ((w0^2 - w^2)^2 + gamma^2 w^2).

    Modes 0 and 1 are the resonance: a block, or the slow and the fast rate.
    """
    bath = _Brownian(lam, gamma, w0, temperature)
    nu = table.xi * temperature
    split = bath.gap > 0 and bath.rates[1] > _SPLIT * bath.rates[0]
    near = np.zeros(len(nu), dtype=np.int64)  # 0: far, 1: slow rate, 2: fast rate, 3: the block
    if split and not rest.exact:
        for j, rate in enumerate(bath.rates):
            near[np.abs(nu - rate) < NEAR * rate] = 1 + j
    elif not rest.exact:
        near[np.abs(nu**2 - gamma * nu + w0**2) < _NEAR_BLOCK * (nu**2 + w0**2)] = 3
    far = near == 0
    with np.errstate(divide="ignore", invalid="ignore"):
        own, numerators = bath.plain(nu, table.eta)
    numerator = np.array([2 * lam * temperature, 2 * lam * temperature * gamma - 1j * lam * w0**2])
    if not rest.exact:
        numerator += np.sum(numerators[:, far], axis=1)
    delta = 0.0
    if rest.exact:
        numerator += bath.tail(0)[1]
    elif rest.terminator:
        numerator += bath.tail(len(table))[1]
    if rest.terminator:
        delta = bath.tail(len(table))[0]
    linked = _link_rates if split else _link_block
    return linked(bath, nu, table.eta, near, np.where(far, own, 0.0), numerator, delta)


def _link_block(
    bath: _Brownian,
    nu: NDArray[np.float64],
    eta: NDArray[np.float64],
    near: NDArray[np.int64],
    own: NDArray[np.float64],
    numerator: NDArray[np.complex128],
    delta: float,
) -> Exponents:
    """The resonance as a real block; a near pole drives its second mode.

    f s (s + nu + gamma) / ((s + nu) q) = f / (s + nu) + f nu / q - f (nu^2 + w0^2)/((s + nu) q).
    """
    weight = np.where(near > 0, bath.weight(nu, eta), 0.0)
    value, rest = numerator
    rest = rest + np.sum(weight * nu)
    half = bath.gamma / 2
    lateral = [(0, 1, -bath.w0), (1, 0, (bath.w0**2 - half**2) / bath.w0)]
    for k in np.flatnonzero(near):
        lateral.append((1, 2 + int(k), (nu[k] ** 2 + bath.w0**2) / bath.w0))
    return Exponents(
        gamma=np.concatenate([[half, half], nu]),
        c=np.concatenate([[value, (rest - value * half) / bath.w0], own + weight]),
        read=np.concatenate([[1.0, 0.0], np.ones(len(nu))]),
        lateral=tuple(lateral),
        delta=delta,
    )


def _link_rates(
    bath: _Brownian,
    nu: NDArray[np.float64],
    eta: NDArray[np.float64],
    near: NDArray[np.int64],
    own: NDArray[np.float64],
    numerator: NDArray[np.complex128],
    delta: float,
) -> Exponents:
    """The resonance as two exponents; a near pole is linked to one, far from the other."""
    slow, fast = bath.rates
    value, rest = numerator
    c = np.array([rest - value * slow, value * fast - rest]) / bath.gap
    c_pole = own.astype(np.complex128)
    lateral = []
    weight = bath.weight(nu, eta)
    for k in np.flatnonzero(near):
        j = int(near[k]) - 1
        close, other = bath.rates[j], bath.rates[1 - j]
        share = (nu[k] + close) / ((nu[k] - other) * (close - other))
        c[1 - j] -= weight[k] * other * share
        c_pole[k] = weight[k] * (1 + other * share)
        link = close - nu[k] * close * share / (1 + other * share)
        lateral.append((j, 2 + int(k), float(link)))
    return Exponents(
        gamma=np.concatenate([[slow, fast], nu]),
        c=np.concatenate([c, c_pole]),
        lateral=tuple(lateral),
        delta=delta,
    )


def lorentzian_lead(
    strength: float,
    mu: float,
    width: float,
    temperature: float,
    table: PoleTable,
    sign: Literal[1, -1],
) -> tuple[NDArray[np.complex128], NDArray[np.complex128]]:
    """Coefficients and rates of a lead, J(w) = strength width^2 / ((w - mu)^2 + width^2).

    C^s(t) = (1 / 2 pi) int dw e^{i s w t} J(w) f(s (w - mu) / T), f the Fermi function, with s =
    `sign`; `table` must be a Fermi table. The lead's own coefficient is that of the truncated
    sum. Gives (c, gamma), each (1 + N,) complex.
    """
    nu = table.xi * temperature
    lorentz = strength * width**2
    fermi = 0.5 - 1j * temperature * np.sum(2 * table.eta * width / (nu**2 - width**2))
    c_pole = 1j * temperature * table.eta * lorentz / (nu**2 - width**2)
    c = np.concatenate([[strength * width / 2 * fermi], c_pole])
    return c, np.concatenate([[width], nu]) - 1j * sign * mu
