"""Which depth and which expansion: an estimate from the point alone, in a fraction of a second.

Takes: a `Problem`, its output times, and the error aimed at.
Gives: `advise`, an `Advice`.
Next file: `../preparation.py`, which uses it for depth="auto" and expansion="auto".

Every pair of eigenvectors of the coupling operators makes a coherence; the one that its baths
dephase most is taken, and of its rho_ij <= 1/2 the error is

    of the expansion   max |Delta g(t)| (q_i - q_j)^2 / 2,   while the coherence lives
    of the depth       max |x_0(t) - exact| / 2              from the scalar hierarchy

Expansion errors of several baths are added. Baths of one kind on several operators act as one,
along the difference of their eigenvalues: that is exact. Operators that do not commute have no
common eigenvectors; their squared spreads are added.

Where H does not commute with Q that alone is too hopeful: `mixing.py` adds the errors of the
power spectrum at the transitions of H, and the depth that a small two-level model needs.
"""

from __future__ import annotations

import dataclasses
import functools
import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from heomdask import checks, memory
from heomdask.advice import mixing
from heomdask.advice.advice import Advice
from heomdask.advice.dephasing import (
    LARGEST,
    Coherence,
    Pair,
    deepest,
    depth_error,
    exact_coherence,
)
from heomdask.expansion import AAA, ESPRIT, Expansion, Keyed, Pade, expand_once
from heomdask.hierarchy.truncation import Depth, Truncation, as_truncation
from heomdask.model.bath import ThermalBath
from heomdask.model.brownian import UnderdampedBrownian
from heomdask.model.drude import DrudeLorentz
from heomdask.model.exponents import Exponents
from heomdask.model.problem import BathTerm, Problem

Floats = NDArray[np.float64]
Complexes = NDArray[np.complex128]

HALF = 0.5  # the largest element off the diagonal that a density matrix can have
_COMMUTE = 1e-9
_PADES = (0, 1, 2, 3, 4, 5, 6, 8, 10, 12)
_TOLS = (1e-2, 3e-3, 1e-3, 3e-4, 1e-4, 1e-5)
_MODES = (2, 3, 4, 5, 6, 8, 10, 12)
_TIMES = 48  # at which g(t) is compared
_DEAD = 0.01  # a coherence smaller than this feels nothing any more


def advise(
    problem: Problem,
    times: ArrayLike,
    *,
    error: float = 1e-3,
    expansion: Any = None,
    depth: Any = None,
) -> Advice:
    """Estimate the depth and the expansion that a problem needs, and the memory they take.

    Parameters
    ----------
    problem : the physics.
    times : (T,) output times; the longest matters most.
    error : largest error of an element of rho that is wanted.
    expansion : a method to keep, or None or "auto" to have one chosen.
    depth : a depth or truncation to keep, or None or "auto" to have one chosen.
    """
    grid = checks.times("times", times)
    error = checks.real_number("error", error, low=0, strict=True)
    point = _Point(problem, grid, error)
    given = point.baths and expansion not in (None, "auto")
    methods = [expansion] if given else _candidates(point.baths)
    chosen, off = point.first_good(methods)
    if depth in (None, "auto"):
        aim = max(error - off, error / 2) / HALF
        truncation: Truncation = Depth(point.deep_enough(chosen, aim))
    else:
        truncation = as_truncation(depth)
    found = point.advice(chosen, truncation)
    if memory.fits(found.nbytes):
        return found
    coarser = methods[: methods.index(chosen)]
    return dataclasses.replace(found, smaller=point.smaller(found, truncation, coarser))


def rough_error(problem: Problem, times: ArrayLike, *, depth: Any, expansion: Any) -> float:
    """`Advice.estimated_error` of a choice by pure dephasing alone: in milliseconds, as a rule."""
    point = _Point(problem, checks.times("times", times), math.inf)
    level = point.level(expansion, as_truncation(depth))
    return point.expansion_error(expansion) + HALF * point.dephasing_error(expansion, level)


class _Point:
    """What all estimates of one problem share, and the estimates."""

    def __init__(self, problem: Problem, grid: Floats, error: float) -> None:
        self.problem, self.grid, self.error = problem, grid, error
        self.span = float(np.max(np.abs(grid - grid[0])))
        self.baths = problem.baths()
        self.pairs = _pairs(self.baths, grid)
        self.felt = _felt(problem, self.baths, self.pairs, grid)
        mixed = (mixing.mixing(f, (p,)) for f, (_, p) in zip(self.felt, self.pairs, strict=True))
        self.mixed = max(mixed, default=(0.0, 0.0))
        self.exact = [_lineshape(Keyed.of(self.baths[at].bath), self.span) for at, _ in self.pairs]
        left = np.ones(_TIMES)
        for g, (_, pair) in zip(self.exact, self.pairs, strict=True):
            left = left * np.abs(exact_coherence(g, pair))
        self.alive = left >= _DEAD

    def exponents(self, method: Expansion | None) -> list[Exponents]:
        return [_exponents(Keyed.of(term.bath), _method(term, method)) for term in self.baths]

    def hierarchy(self, method: Expansion | None, level: int) -> Coherence:
        exponents = self.exponents(method)
        parts = tuple((exponents[at], pair) for at, pair in self.pairs)
        return _coherence(parts, self.span, level)

    def expansion_error(self, method: Expansion | None) -> float:
        off = 0.0
        for g, (at, pair), lines in zip(self.exact, self.pairs, self.felt, strict=True):
            keyed, own = Keyed.of(self.baths[at].bath), _method(self.baths[at], method)
            approximate = _approximate(keyed, own, self.span)
            off += _spectrum_error(keyed, own, lines, self.span)
            off += HALF * pair.spread**2 * float(np.max(np.abs(approximate - g)[self.alive]))
        return off

    def first_good(self, methods: Sequence[Expansion | None]) -> tuple[Expansion | None, float]:
        """The first with half of the error to spare, or else the best; and its error."""
        best: tuple[Expansion | None, float] = (methods[0], math.inf)
        for method in methods:
            best = min(best, (method, self.expansion_error(method)), key=lambda entry: entry[1])
            if best[1] <= self.error / 2:
                break
        return best

    def depth_error(self, method: Expansion | None, level: int) -> float:
        """The larger of the errors of pure dephasing and of the model, in units of HALF.

        Faint modes may make it larger or, by chance, smaller: it is taken with and without them.
        """
        hierarchies = {self.hierarchy(method, n) for n in (level, LARGEST)}
        mixed = (mixing.depth_error(h, *self.mixed, self.span, level) for h in hierarchies)
        return max(self.dephasing_error(method, level), *(error / HALF for error in mixed))

    def dephasing_error(self, method: Expansion | None, level: int) -> float:
        """That of pure dephasing."""
        hierarchies = {self.hierarchy(method, n) for n in (level, LARGEST)}
        return max(depth_error(h, self.span, level) for h in hierarchies)

    def deep_enough(self, method: Expansion | None, aim: float) -> int:
        """A depth with an error within `aim`, in units of HALF, or the deepest looked at."""
        limit = deepest(self.hierarchy(method, LARGEST))
        level = _shallowest(
            lambda n: depth_error(self.hierarchy(method, n), self.span, n) <= aim, limit
        )
        while level < limit and self.depth_error(method, level) > aim:
            level = min(level + max(1, level // 8), limit)
        return level

    def level(self, method: Expansion | None, truncation: Truncation) -> int:
        """The depth of a truncation."""
        rates = [float(rate) for e in self.exponents(method) for rate in e.gamma.real]
        return truncation.bounds(len(rates), rates).largest

    def size(self, method: Expansion | None, truncation: Truncation) -> memory.Size:
        exponents = self.exponents(method)
        rates = [float(rate) for e in exponents for rate in e.gamma.real]
        return memory.Size(
            n_ado=truncation.n_ado(len(rates), rates) if self.baths else 1,
            d=self.problem.d,
            n_modes=len(rates),
            real=all(e.hermitian for e in exponents),
            driven=bool(self.problem.drives) or any(term.f is not None for term in self.baths),
        )

    def advice(self, method: Expansion | None, truncation: Truncation) -> Advice:
        """What a choice is worth, and what it takes."""
        size, off = self.size(method, truncation), self.expansion_error(method)
        level = self.level(method, truncation)
        left = HALF * self.depth_error(method, level)
        return Advice(
            depth=level if isinstance(truncation, Depth) else truncation,
            expansion=method,
            estimated_error=off + left,
            expansion_error=off,
            depth_error=left,
            n_ado=size.n_ado,
            nbytes=self.nbytes(size),
            error=self.error,
        )

    def smaller(
        self, found: Advice, truncation: Any, coarser: Sequence[Expansion | None]
    ) -> Advice | None:
        """The better of two that fit: the next depth down that does, and the next expansion."""
        levels = range(truncation.depth - 1, -1, -1)
        shallower = ((found.expansion, dataclasses.replace(truncation, depth=n)) for n in levels)
        shorter = ((method, truncation) for method in reversed(coarser))
        fitting = [
            next((choice for choice in choices if self.fits(*choice)), None)
            for choices in (shallower, shorter)
        ]
        advices = [self.advice(*choice) for choice in fitting if choice is not None]
        return min(advices, key=lambda advice: advice.estimated_error, default=None)

    def fits(self, method: Expansion | None, truncation: Truncation) -> bool:
        return memory.fits(self.nbytes(self.size(method, truncation)))

    def nbytes(self, size: memory.Size) -> int:
        """Of `hd.evolve`."""
        return size.run_bytes(n_times=len(self.grid), final_ados=True)


def _felt(
    problem: Problem, baths: Sequence[BathTerm], pairs: Sequence[tuple[int, Pair]], grid: Floats
) -> list[mixing.Transitions]:
    """The transitions of H that each kind of bath drives, in the order of `pairs`."""
    H = np.asarray(problem.H, dtype=np.complex128)
    felt = []
    for at, _ in pairs:
        kind = (Keyed.of(baths[at].bath), baths[at].expansion)
        operators = [
            term.Q * _amplitude(term, grid)
            for term in baths
            if (Keyed.of(term.bath), term.expansion) == kind
        ]
        felt.append(mixing.transitions(H, np.array(operators, dtype=np.complex128)))
    return felt


def _shallowest(good: Callable[[int], bool], limit: int) -> int:
    """The smallest depth that is good, by doubling and halving, or `limit`."""
    low, high = -1, 0
    while high < limit and not good(high):
        low, high = high, min(2 * high + 1, limit)
    while high - low > 1:
        middle = (low + high) // 2
        if good(middle):
            high = middle
        else:
            low = middle
    return high


def _candidates(baths: Sequence[BathTerm]) -> list[Expansion | None]:
    """Methods that can expand every bath that brings none of its own, cheapest first."""
    open_baths = [
        term.bath
        for term in baths
        if term.expansion is None and not isinstance(term.bath, Exponents)
    ]
    if not open_baths:
        return [None]
    if all(isinstance(b, DrudeLorentz | UnderdampedBrownian) and b.T > 0 for b in open_baths):
        return [Pade(n) for n in _PADES]
    if all(isinstance(b, ThermalBath) for b in open_baths):
        return [AAA(tol) for tol in _TOLS]
    return [ESPRIT(k) for k in _MODES]


def _method(term: BathTerm, method: Expansion | None) -> Expansion | None:
    return method if term.expansion is None else term.expansion


def _exponents(keyed: Keyed, method: Expansion | None) -> Exponents:
    """Without warnings: of a candidate the estimate says how good it is."""
    return expand_once(keyed, method)[0]


_coherence = functools.lru_cache(maxsize=4096)(Coherence)  # the exponents are kept by their bath


@functools.lru_cache(maxsize=4096)
def _spectrum_error(
    keyed: Keyed, method: Expansion | None, felt: mixing.Transitions, span: float
) -> float:
    """Of populations, by the power spectrum at the transitions of H; 0 for given exponents."""
    if not felt or isinstance(keyed.bath, Exponents) or not hasattr(keyed.bath, "S"):
        return 0.0
    return mixing.spectrum_error(keyed.bath.S, _exponents(keyed, method).S, felt, span)


@functools.lru_cache(maxsize=1024)
def _lineshape(keyed: Keyed, span: float) -> Complexes:
    """g(t) of the bath, (_TIMES,)."""
    return np.asarray(keyed.bath.g(np.linspace(0.0, span, _TIMES)))


@functools.lru_cache(maxsize=4096)
def _approximate(keyed: Keyed, method: Expansion | None, span: float) -> Complexes:
    """g(t) of its exponents, (_TIMES,)."""
    return _exponents(keyed, method).lineshape(np.linspace(0.0, span, _TIMES))


def _pairs(baths: Sequence[BathTerm], grid: Floats) -> list[tuple[int, Pair]]:
    """For each kind of bath its first one, with the two eigenvalues that it is felt through.

    The kinds' eigenvalues belong to one coherence: that with the largest sum of
    reorganisation energy times squared spread.
    """
    if not baths:
        return []
    kinds: dict[Any, list[int]] = {}
    for at, term in enumerate(baths):
        kinds.setdefault((Keyed.of(term.bath), term.expansion), []).append(at)
    operators = np.array([term.Q * _amplitude(term, grid) for term in baths])
    values = _common_eigenvalues(operators)
    if values is None:
        return [(members[0], _added(operators[members])) for members in kinds.values()]
    apart = values[:, :, None] - values[:, None, :]
    weights = np.array([max(term.bath.reorganisation, 0.0) for term in baths])
    total = np.tensordot(weights, apart**2, axes=1)
    i, j = np.unravel_index(int(np.argmax(total)), total.shape)
    pairs = []
    for members in kinds.values():
        u, v = values[members, i], values[members, j]
        distance = float(np.linalg.norm(u - v))
        if distance > 0:
            along = (u - v) / distance
            pairs.append((members[0], Pair(float(u @ along), float(v @ along))))
    return pairs


def _amplitude(term: BathTerm, grid: Floats) -> float:
    """The largest |f(t)| of a time-dependent coupling on the grid of times."""
    return 1.0 if term.f is None else max(abs(term.f(float(t))) for t in grid)


def _common_eigenvalues(operators: NDArray[np.complex128]) -> Floats | None:
    """(n, d) eigenvalues in a common basis, or None where the operators do not commute."""
    if not any(np.any(q - np.diag(np.diag(q))) for q in operators):
        return np.asarray(np.diagonal(operators, axis1=1, axis2=2).real)
    mixture = np.tensordot(np.sqrt(np.arange(2.0, 2.0 + len(operators))), operators, axes=1)
    basis = np.linalg.eigh(mixture)[1]
    turned = basis.conj().T @ operators @ basis
    diagonal = np.diagonal(turned, axis1=1, axis2=2).real
    rest = turned - diagonal[:, :, None] * np.eye(operators.shape[1])
    size = np.max(np.abs(operators), initial=1e-300)
    return np.asarray(diagonal) if np.max(np.abs(rest)) < _COMMUTE * size else None


def _added(operators: NDArray[np.complex128]) -> Pair:
    """The extreme eigenvalues of the widest operator, stretched to the sum of squared spreads."""
    eigenvalues = np.linalg.eigvalsh(operators)
    spreads = eigenvalues[:, -1] - eigenvalues[:, 0]
    widest = int(np.argmax(spreads))
    factor = 1.0
    if spreads[widest] > 0:
        factor = float(np.linalg.norm(spreads) / spreads[widest])
    return Pair(factor * float(eigenvalues[widest, -1]), factor * float(eigenvalues[widest, 0]))
