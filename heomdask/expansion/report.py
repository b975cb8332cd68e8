"""How good an expansion is, and what it looks like as plain exponentials.

Takes: a bath and its `Exponents`.
Gives: `expansion_error`, `warn_of_fit`, `diagonal_form`.
Next file: `../hierarchy/truncation.py`, for how deep a hierarchy on these exponents must be.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike, NDArray

from heomdask import checks
from heomdask.expansion.notices import warn
from heomdask.model.bath import Bath, ThermalBath
from heomdask.model.exponents import Exponents, joined
from heomdask.model.sampled import CorrelationFunction

Complexes = NDArray[np.complex128]

_LOOKS = 200  # frequencies of either sign at which S(w) is looked at
_NEGATIVE = 0.02
_TIMES = 8  # times at which g(t) of a fit is compared
_MISSED = 0.05  # a fit that misses more than this part of lam, or of g(t), is warned of
_LONGEST = 1e4  # times are compared up to this over the bath's fastest frequency


def expansion_error(bath: Bath, exponents: Exponents, *, spread: float, times: ArrayLike) -> float:
    """The largest over `times` of |Delta g(t)| spread^2, the first-order error of a coherence.

    Parameters
    ----------
    bath : the exact bath.
    exponents : its expansion, terminator included.
    spread : the largest difference of eigenvalues of the coupling operator.
    times : (T,) float.
    """
    t = checks.times("times", times)
    return float(np.max(np.abs(exponents.lineshape(t) - bath.g(t)))) * spread**2


def warn_of_fit(bath: Bath, exponents: Exponents, method: object) -> None:
    """Warn of a fit that misses part of the bath, or whose power spectrum is negative.

    A fit is made to an error relative to the largest value of its target, so that a narrow peak,
    or all of a bath beside a S(w) that diverges at w = 0, may be below it.
    """
    t = _compared(bath)
    exact = bath.g(t)
    lineshape = float(np.max(np.abs(exponents.lineshape(t) - exact) / np.abs(exact)))
    energy = abs(exponents.reorganisation / bath.reorganisation - 1) if bath.reorganisation else 0.0
    if max(lineshape, energy) > _MISSED:
        warn(
            f"{method} misses part of a {type(bath).__name__} bath: the reorganisation energy is "
            f"{exponents.reorganisation:.4g} instead of {bath.reorganisation:.4g}, and the line "
            f"shape g(t) is off by up to {100 * lineshape:.0f} %. Use more modes, a smaller "
            "tolerance, or another method."
        )
    _warn_if_negative(exponents, method)


def _compared(bath: Bath) -> NDArray[np.float64]:
    """Times from the bath's fastest frequency to its slowest or to its narrowest feature."""
    if isinstance(bath, CorrelationFunction):
        return np.asarray(bath.t[-1] * np.geomspace(0.01, 1.0, _TIMES))
    assert isinstance(bath, ThermalBath)  # or it could not be fitted
    w = np.unique(bath.frequencies)
    first = 3 / w[-1]
    last = min(10 / np.min(np.concatenate([w[:1], np.diff(w)])), _LONGEST / w[-1])
    return np.geomspace(first, last, _TIMES)


def _warn_if_negative(exponents: Exponents, method: object) -> None:
    """Warn of a power spectrum that is negative by more than a small part of its maximum."""
    rates = np.abs(np.diag(exponents.rate_matrix)) + np.abs(exponents.rate_matrix).sum(axis=0)
    w = np.geomspace(0.1 * np.min(rates), 10 * np.max(rates), _LOOKS)
    spectrum = exponents.S(np.concatenate([-w, w]))
    if np.min(spectrum) < -_NEGATIVE * np.max(np.abs(spectrum)):
        at = float(np.concatenate([-w, w])[np.argmin(spectrum)])
        warn(
            f"The power spectrum of {method} is negative near w = {at:.3g}, which no bath has; the "
            "dynamics may be unphysical there. Use more modes, or a smaller tolerance."
        )


def diagonal_form(exponents: Exponents) -> tuple[Complexes, Complexes]:
    """(c, gamma) with C(t) = sum c_k exp(-gamma_k t): blocks become complex pairs, links vanish.

    For reading and for comparison with other programs: it is singular where rates coincide, which
    is what blocks are there to avoid. Modes keep their places; of a pair the one with Im gamma > 0
    comes first.
    """
    c = exponents.c.copy()
    gamma = exponents.gamma.copy()
    for group in joined(exponents.n_modes, ((k, j) for k, j, _ in exponents.lateral)):
        if len(group) == 1:
            continue
        values, vectors = np.linalg.eig(exponents.rate_matrix[np.ix_(group, group)])
        order = _in_place(values, exponents.gamma[group])
        amplitudes = (exponents.read[group] @ vectors) * np.linalg.solve(
            vectors, exponents.c[group]
        )
        c[group], gamma[group] = amplitudes[order], values[order]
    return c, gamma


def _in_place(values: Complexes, diagonal: Complexes) -> list[int]:
    """For each mode the eigenvalue nearest to its rate, Im > 0 first, each taken once."""
    left = sorted(range(len(values)), key=lambda j: (-values[j].imag, values[j].real))
    order = []
    for rate in diagonal:
        nearest = min(left, key=lambda j: round(abs(values[j] - rate), 9))
        left.remove(nearest)
        order.append(nearest)
    return order
