"""Stationary states: ``G x = 0`` with trace 1, known to be the only one, and stable.

Takes: a backend, a compiled plan of one member.
Gives: `stationary`, and `STATES`, the state vectors that it holds at once.
Next file: `results/steady.py`, what a user sees.

The trace of row 0 is conserved, ``<Tr| G = 0``, so from a guess of trace 1 only states of trace 0
are ever added: GMRES solves ``(G + s |w><Tr|) x = s |w>`` without forming it. Three questions are
asked, each of one random state of trace 0 that has something of everything:

1. *Is it unique?* GMRES on ``G y = 0`` makes y small unless there is another stationary state,
   which it leaves alone. What remains at the end is the slowest part of y, and ``|G y| / |y|``
   then estimates the smallest singular value of G there, the `gap`.
2. *Is it stable?* See `modes.py`, whose space knows of a smaller ``|G v|`` as a rule.
3. *How far must the residual go?* The error of x is at most ``|G x| / gap``: so a tolerance on
   the state becomes one on the residual, however slowly the system relaxes.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from heomdask.backends.traits import BackendTraits, Compiled, State
from heomdask.errors import InputError
from heomdask.outcome import Outcome
from heomdask.plan import AnyArray
from heomdask.solvers.fraction import Fraction, levels_of
from heomdask.solvers.gmres import RESTART, Shifted, gmres
from heomdask.solvers.modes import INNER_STEPS, VECTORS, Rightmost, rightmost

BLOCK_STATES = 50  # numbers of the blocks of the preconditioner, in states of the hierarchy, but
MOST_NUMBERS = 2**24  # no more than these
MOST_APPLICATIONS = 2000  # for each of the questions
NEAR = 1e-6  # sigma of the preconditioner, of the rate of G: keeps its blocks from being singular
SHIFT = 0.1  # sigma of the eigenvalues, of the rate at which row 0 moves
SAFETY = 0.1  # the gap is an estimate
NULL = 1e-12  # of the rate of G: a gap below is none
DECAYED = 1e-4  # a random state that has become so small had no stationary part
REDUCTION = 1e-2  # of the residual, between two estimates of the gap
SEED = 20240301
VECTOR_STATES = 7 + max(RESTART, 2 * VECTORS[-1] + INNER_STEPS)  # the larger of two spaces
STATES = VECTOR_STATES + 3 * BLOCK_STATES // 2  # held at once; links take half as much as blocks


@dataclass(frozen=True, eq=False)
class Stationary:
    """What was found.

    Attributes
    ----------
    state : trace 1; one of many where the outcome is NOT_UNIQUE.
    outcome : DONE, NOT_UNIQUE, UNSTABLE, TOO_MANY_STEPS or NOT_FINITE.
    stats : `applications` of G in all and those of each question; `residual` = |G x|, of the
        stored state; `gap`.
    pair : the rightmost eigenvalue that was found; None where the question did not arise.
    """

    state: State
    outcome: Outcome
    stats: Mapping[str, float]
    pair: Rightmost | None = None


def stationary(
    backend: BackendTraits,
    compiled: Compiled,
    *,
    tol: float,
    guess: AnyArray | None = None,
) -> Stationary:
    """Solve ``G x = 0``, trace 1, for the one member of a plan without named scalars.

    Parameters
    ----------
    tol : bound on the error of every element of the state, absolute (the trace is 1).
    guess : (n_rows, d, d), where to start, of any trace but 0; default: the unit matrix in row 0.
    """
    plan = compiled.plan
    if plan.names or plan.n_members != 1:
        raise InputError(
            "`compiled` must hold one member whose generator is constant, got "
            f"{plan.n_members} of them and the named scalars {plan.names}."
        )
    generator = Shifted(backend, compiled)
    x = backend.put(compiled, _of_trace_one(plan.d, plan.n_cols, plan.dtype, guess))
    probe, first = (_random(generator, everywhere=e) for e in (True, plan.d == 1))
    rate, own_rate = _speed(generator, probe), _speed(generator, first)
    if not np.isfinite(rate):
        return Stationary(x, Outcome.NOT_FINITE, {"applications": generator.applications})
    if rate == 0.0:  # nothing moves: good if there is nothing but the trace
        alone = plan.n_cols * plan.d**2 == 1
        outcome = Outcome.DONE if alone else Outcome.NOT_UNIQUE
        return Stationary(x, outcome, {"applications": generator.applications})
    most = min(BLOCK_STATES * plan.n_rows * plan.d**2, MOST_NUMBERS)
    levels = levels_of(plan, most)
    shifted = Shifted(backend, compiled, SHIFT * (own_rate or rate))
    pair = rightmost(shifted, Fraction(shifted, levels, rate), first)
    near = Fraction(dataclasses.replace(generator, sigma=NEAR * rate), levels, rate)
    gap = _gap(generator, near, probe, rate)
    unique_at = generator.applications
    if gap > 0.0:
        gap = min(gap, abs(pair.value), pair.smallest)
    target = tol * SAFETY * (gap or rate)
    residual = gmres(generator, near, None, x, target=target, most=MOST_APPLICATIONS)
    stats: dict[str, float] = {
        "applications": generator.applications + shifted.applications,
        "applications_unique": unique_at,
        "applications_stable": shifted.applications,
        "applications_solve": generator.applications - unique_at,
        "residual": residual,
        "gap": gap,
    }
    return Stationary(x, _verdict(residual, target, gap, pair), stats, pair)


def _verdict(residual: float, target: float, gap: float, pair: Rightmost | None) -> Outcome:
    if not np.isfinite(residual):
        return Outcome.NOT_FINITE
    if pair is None or gap == 0.0:
        return Outcome.NOT_UNIQUE
    if pair.unstable:
        return Outcome.UNSTABLE
    return Outcome.DONE if residual <= target else Outcome.TOO_MANY_STEPS


def _gap(generator: Shifted, near: Fraction, y: State, rate: float) -> float:
    """The smallest singular value of G on states of trace 0, about; 0 if there is none but 0."""
    gap, start = rate, generator.norm(y)
    size = rate * start
    spent = generator.applications
    while True:
        target = REDUCTION * size
        size = gmres(generator, near, None, y, target=target, most=MOST_APPLICATIONS)
        length = generator.norm(y)
        if length <= DECAYED * start:
            return gap
        ratio = size / length
        if ratio <= NULL * rate:
            return 0.0
        settled = not ratio < 0.5 * gap
        stopped = size > target or generator.applications - spent > MOST_APPLICATIONS
        gap = min(gap, ratio)
        if settled or stopped:
            return gap


def _speed(generator: Shifted, x: State) -> float:
    """``|G x|`` of a state of norm 1 (or 0)."""
    image = generator.empty()
    generator(x, image)
    return generator.norm(image)


def _of_trace_one(d: int, n: int, dtype: np.dtype[np.generic], guess: AnyArray | None) -> AnyArray:
    if guess is not None:
        scaled: AnyArray = guess / np.trace(guess[0])
        return scaled
    host = np.zeros((n, d, d), dtype=dtype)
    host[0] = np.eye(d) / d
    return host


def _random(generator: Shifted, *, everywhere: bool) -> State:
    """A random state of trace 0 and norm 1, half of it or all of it in row 0.

    Conserved quantities of the system live in row 0, where with d = 1 nothing has trace 0.
    """
    compiled = generator.compiled
    plan = compiled.plan
    host = np.random.default_rng(SEED).standard_normal((plan.n_cols, plan.d, plan.d))
    host[0] -= np.trace(host[0]) / plan.d * np.eye(plan.d)
    own, rest = float(np.linalg.norm(host[0])), float(np.linalg.norm(host[1:]))
    host[0] /= own or 1.0
    host[1:] *= 1.0 / rest if everywhere and rest > 0 else 0.0
    host /= np.linalg.norm(host) or 1.0
    return generator.backend.put(compiled, host.astype(plan.dtype))
