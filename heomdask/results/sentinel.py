"""The sentinel: what a finished run looks like, judged from the reduced density matrix.

Takes: states at some output times and the trace norm at the start.
Gives: one `Outcome` per member.
Next file: `solution.py`.

An exact map of density matrices never raises the trace norm ``sum |eigenvalues|``, while the
trace is conserved even by a truncated hierarchy that explodes: so the trace norm is watched.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from heomdask.outcome import Outcome

NOT_CONVERGED_ABOVE = 1e-3  # rise of the trace norm, relative to its value at the start
UNSTABLE_ABOVE = 0.1
HERMITIAN_TO = 1e-8  # relative to the trace norm at the start
SAMPLES = 16  # states looked at per member, the last one among them


def watched(n_times: int) -> NDArray[np.int64]:
    """Which output times to look at: at most `SAMPLES`, the last included.

    Half of them spread evenly, half closer and closer to the start, where excursions are.
    """
    if n_times <= SAMPLES:
        return np.arange(n_times)
    even = np.linspace(0, n_times - 1, SAMPLES // 2)
    early = np.geomspace(1, n_times - 1, SAMPLES // 2)
    return np.unique(np.concatenate([even, early]).round().astype(np.int64))


def stay_hermitian(states: NDArray[np.complex128], start: NDArray[np.float64]) -> NDArray[np.bool_]:
    """Which members' states (M, ..., d, d) are Hermitian wherever they are finite; (M,).

    Exponents whose `cbar` contradicts `c` do not keep a Hermitian state so.
    """
    skew = np.abs(states - np.conj(np.swapaxes(states, -1, -2)))
    worst = np.nanmax(np.where(np.isfinite(skew), skew, 0.0).reshape(len(states), -1), axis=1)
    return np.asarray(worst <= HERMITIAN_TO * start)


def trace_norm(states: NDArray[np.complex128], hermitian: NDArray[np.bool_]) -> NDArray[np.float64]:
    """Sum of the singular values of states (M, ..., d, d); NaN where one is not finite.

    `hermitian` (M,) says of which members all are Hermitian, which is cheaper.
    """
    finite = np.asarray(np.isfinite(states).all(axis=(-2, -1)))
    safe = np.where(finite[..., None, None], states, 0)
    norm = np.empty(states.shape[:-2])
    norm[hermitian] = _sum_of_eigenvalues(safe[hermitian])
    norm[~hermitian] = np.linalg.svd(safe[~hermitian], compute_uv=False).sum(axis=-1)
    result: NDArray[np.float64] = np.where(finite, norm, np.nan)
    return result


def _sum_of_eigenvalues(states: NDArray[np.complex128]) -> NDArray[np.float64]:
    """``sum |eigenvalues|`` of Hermitian states (..., d, d)."""
    if states.shape[-1] != 2:
        return np.asarray(np.abs(np.linalg.eigvalsh(states)).sum(axis=-1))
    up, down = states[..., 0, 0].real, states[..., 1, 1].real
    split = np.hypot(up - down, 2 * np.hypot(states[..., 0, 1].real, states[..., 0, 1].imag))
    return np.asarray(np.maximum(np.abs(up + down), split))


def judge(
    states: NDArray[np.complex128],
    start: NDArray[np.float64],
    *,
    hermitian: NDArray[np.bool_],
) -> tuple[list[Outcome], NDArray[np.float64]]:
    """One outcome per member, and the largest relative rise of the trace norm.

    Parameters
    ----------
    states : (M, S, d, d), the watched states of every member.
    start : (M,), trace norm at the start; infinite for a member that may legally exceed it.
    hermitian : (M,), whether every state of a member is Hermitian, which is cheaper to judge.

    Returns
    -------
    outcomes : length M.
    excess : (M,), ``max_t ||rho(t)||_1 / ||rho(0)||_1 - 1``; NaN where a state is not finite.
    """
    norms = trace_norm(states, hermitian)
    excess = np.max(norms / start[:, None], axis=1) - 1
    outcomes = []
    for value in excess:
        if np.isnan(value):
            outcomes.append(Outcome.NOT_FINITE)
        elif value > UNSTABLE_ABOVE:
            outcomes.append(Outcome.UNSTABLE)
        elif value > NOT_CONVERGED_ABOVE:
            outcomes.append(Outcome.NOT_CONVERGED)
        else:
            outcomes.append(Outcome.DONE)
    return outcomes, excess
