"""The oracle of the conformance suite: plans applied as assembled matrices, one member at a time.

Takes: a `Plan`, host arrays (n, d, d, M), a `Case` for its seed.
Gives: images, polynomials and weights that a backend is compared with, and `assert_close`.
Next file: `testing/hooks.py`.
"""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Sequence
from typing import Any

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from heomdask.backends.traits import Selection
from heomdask.plan import AnyArray, Plan, Scalars
from heomdask.testing.random_plans import Case


def image(plan: Plan, x: AnyArray, scalars: Scalars | None = None) -> tuple[AnyArray, float]:
    """``G x`` of every member by its assembled matrix, and max |G||X|; x is (n, d, d, M)."""
    result = np.empty((plan.n_rows, plan.d, plan.d, plan.n_members), dtype=plan.dtype)
    size = 0.0
    for m, matrix in enumerate(assembled(plan, scalars)):
        vector = x[..., m].reshape(-1)
        result[..., m] = (matrix @ vector).reshape(result.shape[:3])
        size = max(size, float(np.max(abs(matrix) @ np.abs(vector), initial=0.0)))
    return result, size


def assembled(plan: Plan, scalars: Scalars | None = None) -> tuple[sp.csr_array, ...]:
    """G of every member as a matrix, in double precision."""
    if scalars is None:
        return _constant(plan)
    each = np.broadcast_to(scalars.reshape(len(scalars), -1), (len(scalars), plan.n_members))
    return tuple(plan.member(m).to_sparse(0, each[:, [m]]) for m in range(plan.n_members))


@functools.lru_cache(maxsize=64)
def _constant(plan: Plan) -> tuple[sp.csr_array, ...]:
    return tuple(plan.to_sparse(m) for m in range(plan.n_members))


def per_member(case: Case, plan: Plan, count: int) -> list[NDArray[Any]]:
    """`count` random weights of shape (M,), complex where the plan is."""
    rng = np.random.default_rng([case.seed, 7])
    weights = rng.normal(size=(count, plan.n_members))
    if plan.form == "complex":
        return list(weights + 1j * rng.normal(size=weights.shape))
    return list(weights)


def assert_close(got: AnyArray, want: AnyArray, size: float, tolerance: float) -> None:
    """Largest difference below ``tolerance * size``; NaN never passes."""
    difference = float(np.max(np.abs(got - want), initial=0.0))
    assert difference <= tolerance * size, f"{difference:.2e} above {tolerance:.0e} x {size:.2e}"


def probe_of(plan: Plan) -> Selection:
    """A few elements: the corners of the first and the last ADO, one element twice."""
    last, e = plan.n_rows - 1, plan.d - 1
    return Selection.of([(0, 0, 0), (0, e, 0), (last, 0, e), (last, e, e), (0, 0, 0)])


def segment_table(case: Case, plan: Plan, *, degree: int) -> AnyArray:
    """Random coefficients (degree + 1, 4, M) that keep the terms of a segment of order 1."""
    rng = np.random.default_rng([case.seed, 5])
    table = rng.normal(size=(degree + 1, 4, plan.n_members))
    size = max(float(np.max(abs(matrix).sum(axis=1))) for matrix in assembled(plan))
    table[:, 0] /= size
    table[:, 1:3] *= 0.3
    return table if plan.form == "real" else table * np.exp(1j * table[::-1])


def polynomial(plan: Plan, x: AnyArray, coeffs: AnyArray) -> list[tuple[AnyArray, AnyArray]]:
    """The terms p_k of a segment, by the definition, with their weights (M,)."""
    previous, current = np.zeros_like(x), x
    terms = [(x, coeffs[0, 3])]
    for a, b, c, w in coeffs[1:]:
        following = a * image(plan, current)[0] + b * current + c * previous
        previous, current = current, following
        terms.append((current, w))
    return terms


def weighted_sum(terms: Sequence[tuple[AnyArray, AnyArray]]) -> AnyArray:
    """``sum_k w_k p_k`` of pairs (p, w)."""
    total: AnyArray = np.sum([w * p for p, w in terms], axis=0)
    return total


@functools.lru_cache(maxsize=64)
def without_names(plan: Plan) -> Plan:
    """The plan without its time-dependent shifts."""
    terms = [
        dataclasses.replace(t, shifts=tuple(s for s in t.shifts if s.name is None))
        for t in plan.terms
    ]
    return dataclasses.replace(plan, names=(), terms=tuple(t for t in terms if t.shifts))


def touched(plan: Plan) -> NDArray[np.bool_]:
    """Which elements (n_cols, d, d) of a state any single term of any member reads."""
    seen = np.zeros((plan.n_cols, plan.d, plan.d), dtype=bool)
    ones = np.ones(len(plan.names))
    for term, m in ((t, m) for t in plan.terms for m in range(plan.n_members)):
        alone = dataclasses.replace(plan, terms=(term,)).to_sparse(m, ones)
        seen.ravel()[np.unique(alone.tocsc().nonzero()[1])] = True
    return seen
