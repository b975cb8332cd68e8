"""Pole tables of the Bose and Fermi functions: pure numbers, no bath.

Takes: the number of poles N.
Gives: `PoleTable` (xi_k, eta_k) of the Pade [N-1/N] and Matsubara expansions, and tail sums.
Next file: `rational.py`, which joins a table with a rational spectral density.

With x = energy / T,

    Bose   1 / (1 - exp(-x)) = 1/2 + 1/x + sum_k 2 eta_k x / (x^2 + xi_k^2)
    Fermi  1 / (1 + exp(x))  = 1/2       - sum_k 2 eta_k x / (x^2 + xi_k^2)

Matsubara takes the exact poles, Pade the poles of the best rational function at x = 0. The Pade
poles are the eigenvalues of a symmetric tridiagonal matrix, since x coth(x) is the continued
fraction 1 + x^2/(3 + x^2/(5 + ...)); the residues are the squared first components of its
eigenvectors (Golub and Welsch), so nothing cancels and any N is accurate.
"""

from __future__ import annotations

import functools
from dataclasses import dataclass
from typing import Literal

import numpy as np
import scipy.linalg
import scipy.special
from numpy.typing import NDArray

from heomdask import checks

Statistics = Literal["bose", "fermi"]
Floats = NDArray[np.float64]

_TAIL_RATIO = 4.0  # the tail series is used where nu is this far above every rate of the bath
_TAIL_ORDER = 40  # 4^-40 is far below rounding


@dataclass(frozen=True, eq=False)
class PoleTable:
    """Poles and residues of one expansion of the Bose or Fermi function, dimensionless.

    xi : (N,) float, ascending, positive.
    eta : (N,) float.
    """

    xi: Floats
    eta: Floats

    def __len__(self) -> int:
        return len(self.xi)


@functools.cache
def pade(n: int, statistics: Statistics = "bose") -> PoleTable:
    """The Pade [N-1/N] table, accurate to about 1e-14 relative."""
    n = checks.whole_number("N", n)
    if n == 0:
        return _table(np.zeros(0), np.zeros(0))
    first, sum_rule = (3, 1 / 12) if statistics == "bose" else (1, 1 / 4)
    b = first + 2.0 * np.arange(2 * n)
    off = 1.0 / np.sqrt(b[:-1] * b[1:])
    values, vectors = scipy.linalg.eigh_tridiagonal(np.zeros(2 * n), off)
    xi = 2.0 / np.asarray(values[n:], dtype=np.float64)[::-1]
    weights = 2.0 * vectors[0, n:][::-1] ** 2  # both signs of xi; they sum to 1
    return _table(xi, 0.5 * sum_rule * weights * xi**2)


@functools.cache
def matsubara(n: int, statistics: Statistics = "bose") -> PoleTable:
    """The first N exact poles, 2 pi k (Bose) or (2 k - 1) pi (Fermi), with residue 1."""
    k = np.arange(1.0, checks.whole_number("N", n) + 1)
    xi = 2 * np.pi * k if statistics == "bose" else (2 * k - 1) * np.pi
    return _table(xi, np.ones(len(k)))


def bose_tail(n: int, temperature: float, power: int, denominator: Floats) -> float:
    """Sum over the Bose Matsubara frequencies nu_k with k > N of x^power / d(x), x = 1/nu_k.

    denominator : (m,) coefficients of d in ascending powers of x, d[0] = 1. Its roots are one
        over the bath's rates. The first frequencies are summed one by one, the others by the
        power series of 1/d, term by term a Hurwitz zeta function.
    """
    fastest = float(np.max(np.abs(denominator[1:]) ** (1.0 / np.arange(1, len(denominator)))))
    fastest *= 2.0  # a bound on every root of the reversed polynomial
    unit = 2 * np.pi * temperature
    split = max(n, int(np.ceil(_TAIL_RATIO * fastest / unit)))
    x = 1.0 / (unit * np.arange(n + 1.0, split + 1.0))
    with np.errstate(divide="ignore"):  # infinite where a frequency is a rate of the bath
        direct = float(np.sum(x**power / np.polynomial.polynomial.polyval(x, denominator)))
    series = np.zeros(_TAIL_ORDER)
    series[0] = 1.0
    for j in range(1, _TAIL_ORDER):
        upto = min(j, len(denominator) - 1)
        series[j] = -sum(denominator[i] * series[j - i] for i in range(1, upto + 1))
    orders = power + np.arange(_TAIL_ORDER)
    zetas = scipy.special.zeta(orders.astype(float), split + 1.0)
    return direct + float(np.sum(series * zetas * unit ** -orders.astype(float)))


def _table(xi: Floats, eta: Floats) -> PoleTable:
    xi.setflags(write=False)
    eta.setflags(write=False)
    return PoleTable(xi, eta)
