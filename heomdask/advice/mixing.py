"""Where H does not commute with Q: the frequencies that the baths are felt at, and a small model.

Takes: the Hamiltonian, the operators of a kind of bath, its power spectrum; a `Coherence`.
Gives: `transitions` on a coarse grid, `spectrum_error` and `depth_error`.
Next file: `estimate.py`, which adds these to what pure dephasing says.

Pure dephasing feels S(w) near w = 0 and nothing once its coherence is dead. Where H mixes the
eigenstates of Q, populations relax through S(+-w) at the differences w of eigenvalues of H, the
rest of S shifts these, and no coherence dies for good. The model of the depth is a two-level
system with

    H = w/2 (cos(a) sz + sin(a) sx),   Q = diag(q_i, q_j),   sin(a)^2 = 4 W / (q_i - q_j)^2,

W the largest |<a|Q|b>|^2. Frequencies are rounded up to powers of sqrt(2), W to powers of 2, so
that Hamiltonians that differ a little, such as samples of disorder, get the same advice.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable
from typing import Any

import numpy as np
import scipy.sparse
import scipy.sparse.linalg
from numpy.typing import NDArray

from heomdask.advice.dephasing import STEPS, Coherence, Pair, generator

Floats = NDArray[np.float64]
Complexes = NDArray[np.complex128]

_WEAK = 1e-6  # W relative to the largest |Q|^2 that still counts as commuting
_STRONG = 0.25  # of the largest W: transitions that set the frequency of the model
_STEP = 1 / 8  # of the logarithmic grids of frequencies, in octaves
_CELL = 2.0 ** (-_STEP * np.arange(5))  # places in a cell of the grid of transitions
_OCTAVES = 16  # below and above the transitions from where Delta S shifts them
_LONGEST = 5000.0  # |generator| times time that the model is followed for at most

Transitions = tuple[tuple[float, float], ...]  # (w, W), both rounded up


def transitions(H: Complexes, operators: Complexes) -> Transitions:
    """(w, W) of one kind of bath, W = sum_n |<a|Q_n|b>|^2, on a coarse grid, w ascending."""
    energies, states = np.linalg.eigh(H)
    turned = states.conj().T @ operators @ states
    weights = np.sum(np.abs(turned) ** 2, axis=0)
    size = float(np.max(weights, initial=0.0))
    grid: dict[float, float] = {}
    for a, b in zip(*np.triu_indices(len(energies), 1), strict=True):
        w, weight = float(energies[b] - energies[a]), float(weights[a, b])
        if weight > _WEAK * size and w > 0:
            rounded = 2.0 ** (math.ceil(2 * math.log2(w) - 1e-9) / 2)
            grid[rounded] = max(grid.get(rounded, 0.0), 2.0 ** math.ceil(math.log2(weight) - 1e-9))
    return tuple(sorted(grid.items()))


def spectrum_error(
    exact: Callable[[Floats], Floats],
    fitted: Callable[[Floats], Floats],
    felt: Transitions,
    span: float,
) -> float:
    """What Delta S makes of populations and coherences of the eigenstates of H, at most.

    To second order in the coupling (Bloch-Redfield) a transition relaxes, and its coherence
    dephases and turns, with

        R = W [S(w) + S(-w)],   R/2,   Lamb shift  W P int S(w') w / (w^2 - w'^2) dw'/pi.

    The errors grow with time until relaxation ends them: W |Delta S(+-w)| min(span, 1/R) of a
    population, and |Delta (R/2 + i shift)|/2 times t exp(-R t/2), which is 2/(e R) at most, of a
    coherence. The cell of the coarse grid is looked at in all places: an error changes sign, and
    may vanish at one of them.
    """
    if not felt or span <= 0:
        return 0.0
    lines, weights = np.array(felt).T
    w = np.outer(_CELL, lines)
    S = _both_sides(exact, w)
    off = _both_sides(fitted, w) - S
    rates = weights * np.sum(np.abs(S), axis=0)
    population = weights * np.max(np.abs(off), axis=0) / np.maximum(rates, 1 / span)
    turned = np.hypot(np.sum(off, axis=0) / 2, lamb_shift(exact, fitted, w))
    coherence = weights * turned / 2 / np.maximum(math.e * rates / 2, 1 / span)
    return float(max(np.max(population), np.max(coherence)))


def _both_sides(S: Callable[[Floats], Floats], w: Floats) -> Floats:
    """S(w) and S(-w), (2, *w.shape)."""
    values = S(np.array([w, -w]).ravel())
    return np.asarray(values, dtype=float).reshape(2, *w.shape)


def lamb_shift(
    exact: Callable[[Floats], Floats], fitted: Callable[[Floats], Floats], w: Floats
) -> Floats:
    """``P int_0^inf [Delta S(v) + Delta S(-v)] w / (w^2 - v^2) dv / pi``, of the shape of `w`.

    By the trapezoidal rule in log v with the pole half a step from two of its points, where the
    principal value is exact to the order of the rule.
    """
    low, high = round(math.log2(np.min(w)) / _STEP), round(math.log2(np.max(w)) / _STEP)
    beyond = round(_OCTAVES / _STEP)
    v = np.exp2(_STEP * (np.arange(low - beyond, high + beyond) + 0.5))
    off = np.sum(_both_sides(fitted, v) - _both_sides(exact, v), axis=0)
    kernel = w[..., None] / (w[..., None] ** 2 - v**2)
    return np.asarray(kernel @ (off * v) * (_STEP * math.log(2) / math.pi))


def mixing(felt: Transitions, pairs: tuple[Pair, ...]) -> tuple[float, float]:
    """Frequency and sin^2 of the angle of the model; (0, 0) where everything commutes."""
    widest = max((pair.spread for pair in pairs), default=0.0)
    if not felt or widest == 0:
        return 0.0, 0.0
    most = max(weight for _, weight in felt)
    frequency = max(w for w, weight in felt if weight >= _STRONG * most)
    return frequency, min(1.0, 4 * most / widest**2)


@functools.lru_cache(maxsize=2048)
def _trajectory(
    hierarchy: Coherence, frequency: float, sine2: float, span: float, depth: int
) -> Complexes:
    """Elements of rho, (STEPS, 4, 2), from |0><0| and from |+><+|."""
    blocks = [_block(hierarchy, depth, row, col) for row in (0, 1) for col in (0, 1)]
    n = blocks[0].shape[0]
    sine, cosine = math.sqrt(sine2), math.sqrt(1 - sine2)
    H = 0.5 * frequency * np.array([[cosine, sine], [sine, -cosine]])
    free = -1j * (np.kron(H, np.eye(2)) - np.kron(np.eye(2), H.T))
    matrix = scipy.sparse.block_diag(blocks, format="csr")
    matrix = (matrix + scipy.sparse.kron(free, scipy.sparse.identity(n))).tocsr()
    start = np.zeros((4 * n, 2), dtype=np.complex128)
    start[0, 0] = 1.0
    start[::n, 1] = 0.5
    found = scipy.sparse.linalg.expm_multiply(
        matrix, start, start=0.0, stop=span, num=STEPS, endpoint=True
    )
    return np.asarray(found[:, ::n])


def _block(hierarchy: Coherence, depth: int, row: int, col: int) -> Any:
    """The hierarchy of rho_(row, col) by itself; modes left out are white noise."""
    turned = tuple(
        (exponents, Pair((pair.qi, pair.qj)[row], (pair.qi, pair.qj)[col]))
        for exponents, pair in hierarchy.parts
    )
    matrix = scipy.sparse.csr_matrix(generator(turned, depth))
    noise = sum(
        white * pair.spread**2 for white, (_, pair) in zip(hierarchy.white, turned, strict=True)
    )
    return matrix - noise * scipy.sparse.identity(matrix.shape[0])


@functools.lru_cache(maxsize=8192)
def depth_error(
    hierarchy: Coherence, frequency: float, sine2: float, span: float, depth: int
) -> float:
    """The largest change of the model's rho from `depth` to one a third deeper (at least two)."""
    if span == 0 or hierarchy.n_modes == 0 or frequency == 0:
        return 0.0
    deeper = depth + max(2, depth // 3)
    rates = max(float(np.max(np.abs(e.gamma))) for e, _ in hierarchy.parts)
    span = min(span, _LONGEST / (deeper * rates + frequency))
    with np.errstate(over="ignore", invalid="ignore"):
        change = np.abs(
            _trajectory(hierarchy, frequency, sine2, span, depth)
            - _trajectory(hierarchy, frequency, sine2, span, deeper)
        )
    return float(np.max(np.where(np.isfinite(change), change, np.inf)))
