"""A bath as finitely many modes: the form in which the hierarchy takes it.

Takes: coefficients and rates, from `expansion/`, a fit, QuTiP, or the user.
Gives: `Exponents`, a checked state-space form of C(t); it is also a bath by itself; and `joined`,
    the groups of modes that belong together.
Next file: `bath.py`, the baths that are given by a formula instead.
"""

from __future__ import annotations

import functools
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import scipy.linalg
from numpy.typing import ArrayLike, NDArray

from heomdask import checks
from heomdask.errors import InputError
from heomdask.model.digest import digest_of

ComplexArray = NDArray[np.complex128]
FloatArray = NDArray[np.float64]
Lateral = tuple[tuple[int, int, float], ...]

_PAIR = 1e-10  # two rates closer than this, relatively, are conjugates of each other
_MODAL_CONDITION = 1e3  # blocks whose eigenvectors are worse than this are exponentiated whole


@dataclass(frozen=True, eq=False, init=False)
class Exponents:
    """C(t >= 0) = r^T exp(-Gamma t) c and C*(t) = r^T exp(-Gamma t) cbar.

    Gamma has `gamma` on its diagonal and `lateral` off it; without `lateral` and `read` this is
    the usual sum of exponentials c_k exp(-gamma_k t).

    Parameters
    ----------
    c : (K,) complex
        Coefficients, in angular frequency squared.
    gamma : (K,) complex
        Rates, in angular frequency, real parts >= 0; purely imaginary ones (undamped) are legal.
    cbar : (K,) complex, optional
        Coefficients of C*. Without it: c* where gamma is real; for a complex gamma the conjugate
        of the coefficient of the conjugate exponent, and where there is none a partner
        with c = 0 is added, so that K grows.
    read : (K,) float, optional
        The row r; ones without it.
    lateral : tuple of (k, l, value)
        Off-diagonal elements Gamma[k, l], real.
    delta : float
        Strength of a terminator, -delta [Q, [Q, rho]], in angular frequency; a negative one is
        legal here and warned of before a run.
    """

    c: ComplexArray
    gamma: ComplexArray
    cbar: ComplexArray
    read: FloatArray
    lateral: Lateral
    delta: float

    def __init__(
        self,
        *,
        c: ArrayLike,
        gamma: ArrayLike,
        cbar: ArrayLike | None = None,
        read: ArrayLike | None = None,
        lateral: Sequence[tuple[int, int, float]] = (),
        delta: float = 0.0,
    ) -> None:
        c_ = checks.vector("c", c)
        gamma_ = checks.vector("gamma", gamma, length=len(c_), like="c")
        if np.any(gamma_.real < 0):
            worst = complex(gamma_[np.argmin(gamma_.real)])
            raise checks.refuse(
                "gamma",
                "rates with real parts of at least 0",
                worst,
                "C(t) is a sum of c exp(-gamma t), so a decaying term has a positive gamma",
            )
        read_ = (
            np.ones(len(c_))
            if read is None
            else checks.real_vector("read", read, length=len(c_), like="c")
        )
        lateral_ = _checked_lateral(lateral, len(c_))
        if cbar is not None:
            cbar_ = checks.vector("cbar", cbar, length=len(c_), like="c")
        else:
            c_, gamma_, cbar_, read_ = _with_partners(c_, gamma_, read_, lateral_)
        for array in (c_, gamma_, cbar_, read_):
            array.flags.writeable = False
        object.__setattr__(self, "c", c_)
        object.__setattr__(self, "gamma", gamma_)
        object.__setattr__(self, "cbar", cbar_)
        object.__setattr__(self, "read", read_)
        object.__setattr__(self, "lateral", lateral_)
        object.__setattr__(self, "delta", checks.real_number("delta", delta))

    @property
    def n_modes(self) -> int:
        """K, the number of hierarchy indices that this bath takes."""
        return len(self.c)

    @functools.cached_property
    def hermitian(self) -> bool:
        """Whether every ADO of a Hermitian state stays Hermitian (so that a real form exists)."""
        return not self.gamma.imag.any() and bool((self.cbar == self.c.conj()).all())

    @property
    def T(self) -> None:
        """Unknown: any exponents are a legal bath, thermal or not."""
        return None

    @property
    def reorganisation(self) -> float:
        """The reorganisation energy lam = -Im int_0^inf C(t) dt = -Im r^T Gamma^-1 c.

        A rate of 0 with a real c adds nothing.
        """
        still = (self.gamma == 0) & (self.c.imag == 0)
        matrix = self.rate_matrix + np.diag(still.astype(float))
        return -float((self.read @ np.linalg.solve(matrix, self.c)).imag)

    @property
    def digest(self) -> str:
        """A hash of all fields."""
        return digest_of(self)

    def J(self, w: ArrayLike) -> FloatArray:
        """Spectral density [S(w) - S(-w)]/2, of the shape of `w`."""
        w = np.asarray(w, dtype=np.float64)
        return np.asarray((self.S(w) - self.S(-w)) / 2)

    def S(self, w: ArrayLike) -> FloatArray:
        """Power spectrum int C(t) exp(iwt) dt, of the shape of `w`; the terminator is white,
        2 delta. At an undamped frequency it is infinite.
        """
        w = np.asarray(w, dtype=np.float64)
        shift = 1j * w[..., None, None] * np.eye(self.n_modes)
        forward = np.linalg.solve(self.rate_matrix - shift, self.c[:, None])[..., 0]
        backward = np.linalg.solve(self.rate_matrix + shift, self.cbar[:, None])[..., 0]
        return np.asarray(((forward + backward) @ self.read).real + 2 * self.delta)

    def C(self, t: ArrayLike) -> ComplexArray:
        """The same as `correlation`, the name that every bath has."""
        return self.correlation(t)

    def g(self, t: ArrayLike) -> ComplexArray:
        """The same as `lineshape`, the name that every bath has."""
        return self.lineshape(t)

    @property
    def rate_matrix(self) -> ComplexArray:
        """Gamma, (K, K) complex."""
        matrix = np.diag(self.gamma)
        for k, other, value in self.lateral:
            matrix[k, other] += value
        return matrix

    def correlation(self, t: ArrayLike) -> ComplexArray:
        """C(t), complex, of the shape of `t`; C(-t) = C(t)*. The terminator, a delta
        function at t = 0, is left out.
        """
        return self._evaluate(t, _decay, power=0)

    def lineshape(self, t: ArrayLike) -> ComplexArray:
        """g(t) = int_0^t ds int_0^s du C(u), plus delta t of the terminator; g(-t) = g(t)*."""
        times = np.asarray(t, dtype=np.float64)
        return self._evaluate(times, second_integral, power=2) + self.delta * np.abs(times)

    @functools.cached_property
    def _modal(self) -> tuple[ComplexArray, ComplexArray, list[tuple[Any, Any, Any]]]:
        """Amplitudes and rates of what can be diagonalised, and the blocks that cannot."""
        amplitudes: list[complex] = []
        rates: list[complex] = []
        blocks = []
        matrix = self.rate_matrix
        for group in joined(self.n_modes, ((k, j) for k, j, _ in self.lateral)):
            block = matrix[np.ix_(group, group)]
            values, vectors = np.linalg.eig(block)
            if np.linalg.cond(vectors) < _MODAL_CONDITION:
                inside = np.linalg.solve(vectors, self.c[group])
                amplitudes.extend((self.read[group] @ vectors) * inside)
                rates.extend(values)
            else:
                blocks.append((self.read[group], block, self.c[group]))
        return np.array(amplitudes, dtype=complex), np.array(rates, dtype=complex), blocks

    def _evaluate(self, t: ArrayLike, kernel: Any, *, power: int) -> ComplexArray:
        times = np.asarray(t, dtype=np.float64)
        flat = np.abs(times).ravel()
        amplitudes, rates, blocks = self._modal
        total = kernel(np.multiply.outer(flat, rates)) @ amplitudes * flat**power
        for read, block, c in blocks:
            total = total + _block_integral(read, block, c, flat, power)
        signed = np.where(times.ravel() < 0, total.conj(), total)
        return np.asarray(signed.reshape(times.shape), dtype=np.complex128)


def joined(n: int, pairs: Iterable[tuple[int, int]]) -> list[list[int]]:
    """The groups of the modes 0 to n - 1 that `pairs` tie together, directly or through others."""
    label = list(range(n))
    for k, j in pairs:
        label = [label[k] if value == label[j] else value for value in label]
    return [[k for k, value in enumerate(label) if value == g] for g in dict.fromkeys(label)]


def second_integral(z: ComplexArray) -> ComplexArray:
    """(exp(-z) - 1 + z) / z^2, without cancellation near z = 0, where it is 1/2."""
    z = np.asarray(z)
    small = np.abs(z) < 0.5
    safe = np.where(small, 1.0, z)
    series = np.zeros_like(z)
    for k in range(16, 1, -1):  # sum over k >= 2 of (-z)^(k-2) / k!, by Horner
        series = (1.0 - z * series) / k if k > 2 else (1.0 - z * series) / 2
    large = (np.expm1(-safe) + safe) / safe**2
    return np.asarray(np.where(small, series, large))


def _decay(z: ComplexArray) -> ComplexArray:
    return np.asarray(np.exp(-z))


def _block_integral(
    read: FloatArray, block: ComplexArray, c: ComplexArray, t: FloatArray, power: int
) -> ComplexArray:
    """r^T exp(-Gamma t) c, or its double time integral, by the exponential of one matrix."""
    k = len(c)
    size = k + power
    generator = np.zeros((len(t), size, size), dtype=complex)
    generator[:, :k, :k] = -block * t[:, None, None]
    if power:  # y' = -Gamma t y + c u, u' = v, v' = 0, for a unit of time: y = the integral / t^2
        generator[:, :k, k] = c
        generator[:, k, k + 1] = 1.0
    start = np.zeros(size, dtype=complex)
    start[-1 if power else slice(0, k)] = 1.0 if power else c
    # mirrored, because scipy loses half of the digits of a triangular matrix with close rates
    v = np.arange(1.0, size + 1)
    mirror = np.eye(size) - 2 * np.outer(v, v) / (v @ v)
    states = scipy.linalg.expm(mirror @ generator @ mirror) @ (mirror @ start)
    values = states @ mirror[:, :k] @ read * t**power
    return np.asarray(values, dtype=np.complex128)


def _checked_lateral(lateral: Sequence[tuple[int, int, float]], n: int) -> Lateral:
    checked = []
    for entry in lateral:
        if len(entry) != 3:
            raise checks.refuse("lateral", "a list of (mode, mode, rate)", entry)
        k, other = (checks.whole_number("lateral", mode) for mode in entry[:2])
        if k >= n or other >= n or k == other:
            raise InputError(
                f"`lateral` must join two different modes below {n}, got the pair ({k}, {other})."
            )
        checked.append((k, other, checks.real_number("lateral", entry[2])))
    return tuple(checked)


def _with_partners(
    c: ComplexArray, gamma: ComplexArray, read: FloatArray, lateral: Lateral
) -> tuple[ComplexArray, ComplexArray, ComplexArray, FloatArray]:
    """`cbar` by the rule of the class, and the modes that had to be added for it."""
    is_complex = np.flatnonzero(gamma.imag != 0)
    if len(is_complex) and (lateral or np.any(read != 1)):
        raise InputError(
            "`cbar` must be given where complex rates `gamma` meet `lateral` or `read`."
        )
    cbar = c.conj()
    open_ = list(is_complex)
    lonely = []
    while open_:
        k = open_.pop(0)
        near = [j for j in open_ if abs(gamma[j] - gamma[k].conj()) <= _PAIR * abs(gamma[k])]
        if near:
            partner = min(near, key=lambda j: abs(gamma[j] - gamma[k].conj()))
            open_.remove(partner)
            cbar[k], cbar[partner] = c[partner].conj(), c[k].conj()
        else:
            lonely.append(k)
    added = len(lonely)
    gamma = np.concatenate([gamma, gamma[lonely].conj()])
    cbar = np.concatenate([cbar, c[lonely].conj()])
    cbar[lonely] = 0
    c = np.concatenate([c, np.zeros(added)])
    return c, gamma, cbar, np.concatenate([read, np.ones(added)])
