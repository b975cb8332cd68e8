"""Pure dephasing: the hierarchy of one coherence, solved beside its exact answer.

Takes: a bath as `Exponents`, the eigenvalues q_i and q_j of its Q, times.
Gives: `exact_coherence`, and `depth_errors`, how far the truncated hierarchy is from it.
Next file: `mixing.py`, for Hamiltonians that do not commute with Q.

With [H, Q] = 0 an element rho_ij obeys a hierarchy of numbers,

    x_n' = -(n . gamma) x_n - sum_{k != l} Gamma_kl n_k x_{n - e_k + e_l} - delta (q_i - q_j)^2 x_n
           - i (q_i - q_j) sum_k r_k x_{n + e_k} - i sum_k n_k (c_k q_i - cbar_k q_j) x_{n - e_k}

whose exact solution is x_0(t) = exp(-(q_i - q_j)(q_i g(t) - q_j g*(t))), up to the phase of H.
"""

from __future__ import annotations

import functools
import math
from dataclasses import dataclass

import numpy as np
import scipy.linalg
from numpy.typing import NDArray

from heomdask.hierarchy.index_set import index_set
from heomdask.hierarchy.truncation import Depth
from heomdask.model.exponents import Exponents, joined

Floats = NDArray[np.float64]
Complexes = NDArray[np.complex128]

STEPS = 48  # times at which a hierarchy is compared with the exact coherence
LARGEST = 330  # numbers in a scalar hierarchy that is still solved in milliseconds
_MINOR = 0.1  # modes with less than this part of the strongest one's effect do not set the depth,
_FAINT = 0.01  # but those above this count where they cost nothing
_MAX_MODES = 3


@dataclass(frozen=True)
class Pair:
    """Two eigenvalues of a coupling operator, of the coherence between their eigenvectors."""

    qi: float
    qj: float

    @property
    def spread(self) -> float:
        return abs(self.qi - self.qj)


Parts = tuple[tuple[Exponents, Pair], ...]  # independent baths that act on one coherence


def exact_coherence(g: Complexes, pair: Pair) -> Complexes:
    """exp(-(q_i - q_j)(q_i g - q_j g*)) for a line-shape function g, of the shape of `g`."""
    return np.asarray(np.exp(-(pair.qi - pair.qj) * (pair.qi * g - pair.qj * g.conj())))


def generator(parts: Parts, depth: int) -> Complexes:
    """The matrix of the scalar hierarchy, dense; row 0 is the coherence. ADOs are scaled."""
    n_modes = sum(exponents.n_modes for exponents, _ in parts)
    ados = index_set(Depth(depth), n_modes)
    matrix = np.zeros((ados.n_ado, ados.n_ado), dtype=np.complex128)
    first = 0
    for exponents, pair in parts:
        spread = pair.qi - pair.qj
        scale = np.sqrt(np.maximum(np.abs(exponents.c), np.abs(exponents.cbar)))
        scale[scale == 0] = 1.0
        down = (exponents.c * pair.qi - exponents.cbar * pair.qj) / scale
        matrix[np.diag_indices(ados.n_ado)] -= exponents.delta * spread**2
        links = []
        for k in range(exponents.n_modes):
            links.append((ados.number(first + k), -exponents.gamma[k]))
            links.append((ados.up(first + k), -1j * spread * exponents.read[k] * scale[k]))
            links.append((ados.down(first + k), -1j * down[k]))
        for k, j, value in exponents.lateral:
            links.append((ados.lateral(first + k, first + j), -value * scale[j] / scale[k]))
        for pattern, value in links:
            rows, cols, weights = pattern.entries()
            matrix[rows, cols] += value * weights
        first += exponents.n_modes
    return matrix


def coherence(parts: Parts, depth: int, step: float, n: int) -> Complexes:
    """x_0 at the times 0, step, ..., (n - 1) step of the hierarchy truncated at `depth`."""
    propagator = scipy.linalg.expm(generator(parts, depth) * step)
    state = np.zeros(len(propagator), dtype=np.complex128)
    state[0] = 1.0
    values = [1.0 + 0j]
    for _ in range(n - 1):
        state = propagator @ state
        values.append(complex(state[0]))
    return np.array(values)


def _decisive(parts: Parts, span: float, depth: int) -> dict[int, list[int]]:
    """By the number of the part: the few modes that decide how good a depth is.

    Those that excite few quanta relative to the strongest are left out, from the hierarchy and
    from its exact answer alike; at a small depth only the faintest. Those that are linked stay
    together.
    """
    groups = [
        (_effect(_selected(exponents, group), pair, span), at, group)
        for at, (exponents, pair) in enumerate(parts)
        for group in _groups(exponents)
    ]
    groups.sort(key=lambda entry: entry[0], reverse=True)
    kept: dict[int, list[int]] = {}
    for effect, at, group in groups:
        n_modes = sum(map(len, kept.values())) + len(group)
        share = effect / max(groups[0][0], np.finfo(float).tiny)
        major = share >= _MINOR and n_modes <= _MAX_MODES
        cheap = share >= _FAINT and n_modes <= _MAX_MODES + 1 and _is_small(n_modes, depth)
        if kept and not (major or cheap):
            break
        kept[at] = sorted(kept.get(at, []) + group)
    return kept


def _effect(modes: Exponents, pair: Pair, span: float) -> float:
    """How many quanta linked modes excite, about: (q_i - q_j)^2 |c| min(1/|gamma|, span)^2.

    That is what they add to the exponent until they forget; it does not depend on their basis.
    """
    fastest = float(np.max(np.abs(np.linalg.eigvals(modes.rate_matrix))))
    return pair.spread**2 * float(np.abs(modes.lineshape(1 / max(fastest, 1 / span))))


def _groups(exponents: Exponents) -> list[list[int]]:
    """Modes that must stay together: linked ones, and conjugate partners."""
    pairs = [(k, j) for k, j, _ in exponents.lateral]
    for k, rate in enumerate(exponents.gamma):
        if rate.imag > 0:
            pairs.append((k, int(np.argmin(np.abs(exponents.gamma - rate.conj())))))
    return joined(exponents.n_modes, pairs)


def _selected(exponents: Exponents, modes: list[int]) -> Exponents:
    """Some of the modes, without the terminator."""
    number = {k: new for new, k in enumerate(modes)}
    return Exponents(
        c=exponents.c[modes],
        gamma=exponents.gamma[modes],
        cbar=exponents.cbar[modes],
        read=exponents.read[modes],
        lateral=[(number[k], number[j], v) for k, j, v in exponents.lateral if k in number],
    )


class Coherence:
    """The modes of one coherence that are decisive within a time, as a key for a cache.

    `depth`: at which they are to be followed.

    `white`: what the modes left out and the terminator amount to as white noise, a delta for each
    part; pure dephasing, which they commute with, does without it.
    """

    def __init__(self, parts: Parts, span: float, depth: int = LARGEST) -> None:
        kept = _decisive(parts, span, depth) if span > 0 else {}
        self.parts = tuple(
            (_selected(parts[at][0], modes), parts[at][1]) for at, modes in kept.items()
        )
        self.white = tuple(
            max(0.0, _flat(parts[at][0]) - _flat(exponents))
            for at, (exponents, _) in zip(kept, self.parts, strict=True)
        )
        self.key = (
            tuple((exponents.digest, pair) for exponents, pair in self.parts),
            self.white,
        )

    @property
    def n_modes(self) -> int:
        return sum(exponents.n_modes for exponents, _ in self.parts)

    def __hash__(self) -> int:
        return hash(self.key)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Coherence) and self.key == other.key


def _flat(exponents: Exponents) -> float:
    """S(0)/2."""
    if np.any(exponents.gamma.real <= 0):
        return 0.0
    return 0.5 * float(exponents.S(np.zeros(1))[0])


@functools.lru_cache(maxsize=8192)
def depth_error(hierarchy: Coherence, t_end: float, depth: int) -> float:
    """The largest |x_0(t) - exact| over 0 <= t <= t_end, x_0(0) = 1; infinite if it explodes."""
    if t_end == 0 or hierarchy.n_modes == 0:
        return 0.0
    step = t_end / (STEPS - 1)
    times = step * np.arange(STEPS)
    exact = np.ones(STEPS, dtype=np.complex128)
    for exponents, pair in hierarchy.parts:
        exact = exact * exact_coherence(exponents.lineshape(times), pair)
    with np.errstate(over="ignore", invalid="ignore"):
        error = np.abs(coherence(hierarchy.parts, depth, step, STEPS) - exact)
    return float(np.max(np.where(np.isfinite(error), error, np.inf)))


def deepest(hierarchy: Coherence) -> int:
    """The largest depth at which the scalar hierarchy is still small."""
    depth = 0
    while hierarchy.n_modes and _is_small(hierarchy.n_modes, depth + 1):
        depth += 1
    return depth


def _is_small(n_modes: int, depth: int) -> bool:
    return math.comb(n_modes + depth, depth) <= LARGEST
