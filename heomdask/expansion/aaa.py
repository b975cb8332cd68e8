"""AAA: exponents of any bath at any temperature, from its power spectrum.

Takes: a bath that knows S(w), and a tolerance.
Gives: `Exponents` with real blocks.
Next file: `esprit.py`, the fit in time.

The even part S(w) + S(-w) = 2 J coth(w/2T) and the odd part over w, (S(w) - S(-w))/w = 2 J(w)/w,
are functions of u = w^2. The AAA algorithm (greedy barycentric interpolation; Nakatsukasa, Sete
and Trefethen) is run on both at once, with common poles u_p; then gamma_p = sqrt(-u_p), Re > 0,
are the rates of real modes and come in conjugate pairs. A pole that both parts share
is one mode, where AAA on S(w) itself would need the mode and its partner.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from heomdask import checks
from heomdask.brief import Brief
from heomdask.errors import InputError
from heomdask.expansion.notices import warn
from heomdask.expansion.real_modes import RealModes, least_squares
from heomdask.expansion.report import warn_of_fit
from heomdask.model.bath import Bath, ThermalBath
from heomdask.model.exponents import Exponents

Floats = NDArray[np.float64]
Complexes = NDArray[np.complex128]

_MAX_DEGREE = 60
_FINER = 3.0
_PER_DECADE = 40
_POLISH = 3
_FEW = 8  # a bath with more frequencies than this is given by samples: they are the grid
_HOPELESS = 1e-3  # an interpolant this much better than `tol` whose fit is not: give up
_DRY = 1e-6  # a rate whose real part is this small, relatively, would not decay: no pole of a bath


@dataclass(frozen=True)
class AAA(Brief):
    """Rational approximation of the power spectrum.

    Parameters
    ----------
    tol : float
        Largest error of S(w), relative to its largest value. The number of modes follows from it.
    """

    tol: float

    def __post_init__(self) -> None:
        checks.real_number("tol", self.tol, low=0, strict=True)

    def expand(self, bath: Bath) -> Exponents:
        if not isinstance(bath, ThermalBath):
            raise InputError(
                f"`expansion` {self} needs a bath with a spectral density, "
                f"got {type(bath).__name__}; use hd.ESPRIT(K)."
            )
        w = _grid(bath, self.tol)
        forward, backward = bath.S(w), bath.S(-w)
        size = float(np.max(forward, initial=0.0))
        if size == 0.0:  # lam = 0: the bath's own rate keeps a mode, so that the point is ordinary
            return Exponents(c=[0.0], gamma=[min(bath.frequencies)])
        even, odd = (forward + backward) / size, (forward - backward) / size
        modes, c, error = _fit(w, even, odd, self.tol)
        if error > self.tol:
            warn(
                f"{self} reached an error of {error:.1e} only for a {type(bath).__name__} bath: "
                "its spectrum has features that take too many modes. Use a larger `tol`."
            )
        exponents = modes.exponents(c * size)
        warn_of_fit(bath, exponents, self)
        return exponents

    def finer(self) -> AAA:
        return AAA(self.tol / _FINER)


def _grid(bath: ThermalBath, tol: float) -> Floats:
    """Frequencies, log-spaced, from where S(w) is flat or small to where it has died."""
    scales = [*bath.frequencies, *([bath.T] if bath.T > 0 else [])]
    low, high = 1e-2 * tol * min(scales), 1e2 * max(scales) / tol
    w = np.geomspace(low, high, int(_PER_DECADE * np.log10(high / low)))
    spectrum = bath.S(w)
    alive = np.flatnonzero(spectrum > 0.1 * tol * np.max(spectrum, initial=0.0))
    w = w[: alive[-1] + _PER_DECADE] if len(alive) else w
    near = np.linspace(0.5, 1.5, 4 * _PER_DECADE + 1) if len(scales) < _FEW else np.ones(1)
    return np.unique(np.concatenate([w, np.outer(bath.frequencies, near).ravel()]))


def _pole_sets(u: Floats, values: Floats, weights: Floats) -> Iterator[tuple[float, Complexes]]:
    """Common poles of rational interpolants to the rows of `values`, one degree after the other.

    Each step adds the sample with the largest error (times `weights`) to the support, and
    gives the largest error and the poles.
    """
    error = np.mean(values, axis=1, keepdims=True) - values
    support: list[int] = []
    while len(support) < min(_MAX_DEGREE, len(u) // 4):
        support.append(int(np.argmax(np.max(np.abs(error) * weights, axis=0))))
        rest = np.setdiff1d(np.arange(len(u)), support)
        cauchy = 1.0 / (u[rest, None] - u[support])
        loewner = (values[:, rest, None] - values[:, None, support]) * weights[:, rest, None]
        scaled = (loewner * cauchy).reshape(-1, len(support))
        barycentric = np.linalg.svd(scaled, full_matrices=False)[2][-1]
        numerator = (cauchy @ (barycentric * values[:, support]).T).T
        error = np.zeros_like(values)
        error[:, rest] = numerator / (cauchy @ barycentric) - values[:, rest]
        if len(support) > 1:
            yield float(np.max(np.abs(error) * weights)), _zeros(u[support], barycentric)


def _zeros(nodes: Floats, barycentric: Floats) -> Complexes:
    """Zeros of d(u) = sum_j b_j / (u - z_j), u over many decades.

    They are the eigenvalues of (1 - b e^T / sum b) diag(z), which has a zero besides. With the
    nodes in descending order the matrix is graded, so small zeros are accurate as well; Newton
    steps give them the last digits.
    """
    order = np.argsort(-nodes)
    z, b = nodes[order], barycentric[order]
    zeros = np.linalg.eigvals(np.diag(z) - np.outer(b / np.sum(b), z)).astype(np.complex128)
    zeros = np.delete(zeros, np.argmin(np.abs(zeros)))
    for _ in range(_POLISH):
        with np.errstate(divide="ignore", invalid="ignore"):
            gaps = 1.0 / (zeros[:, None] - z)
            steps = (gaps @ b) / (gaps**2 @ b)
        zeros += np.where(np.isfinite(steps), steps, 0.0)
    return zeros


def _decaying(poles: Complexes) -> Complexes:
    """sqrt(-u) of those poles that are not on the real frequency axis."""
    rates = np.sqrt(-poles)
    return rates[rates.real > _DRY * np.abs(rates)]


def _fit(w: Floats, even: Floats, odd: Floats, tol: float) -> tuple[RealModes, Complexes, float]:
    """Modes, coefficients and largest error of S of the first interpolant that is good to `tol`.

    S(w) = 2 Re int_0^inf C(t) exp(iwt) dt, so that the even part gives Re c with 4 Re F(w) and
    the odd part gives Im c with -4 Im F(w), F the modes' half-sided transforms. An interpolant may
    have poles on the real axis, which no decaying mode has; without them the fit tells.
    """
    best: tuple[RealModes, Complexes, float] | None = None
    values, weights = np.stack([even, odd / w]), np.stack([np.ones_like(w), w])
    for error, poles in _pole_sets(w**2, values, weights):
        modes = RealModes.of(_decaying(poles))
        if modes.n_modes == 0:
            continue
        transforms = modes.in_frequency(w)
        columns = 4 * transforms.real, -4 * transforms.imag
        c_even, c_odd = least_squares(columns[0], even), least_squares(columns[1], odd)
        off = np.abs(columns[0] @ c_even - even) + np.abs(columns[1] @ c_odd - odd)
        fit = modes, c_even + 1j * c_odd, float(np.max(off)) / 2
        best = fit if best is None or fit[2] < best[2] else best
        if best[2] <= tol or error < _HOPELESS * tol:
            break
    if best is None:
        raise InputError("`expansion` AAA found no decaying modes; give the bath a smooth J(w).")
    return best
