"""What passes through a link: the sum of all terms that share a shift.

Takes: a `Plan`, whole or a part.
Gives: `support`, the elements of a neighbour that matter; `work`, what ADOs and links cost.
Next file: `partition/halo.py`, which elements a part reads from which other.

``Q X - X Q`` does not read X[i, j] where q_i = q_j: of a site projector on d levels there matter
2 d - 2 elements of d^2, or 2 d - 1 where the anticommutator acts too.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from heomdask.partition.split import Work
from heomdask.plan import Operator, Plan, Term


def support(plan: Plan) -> NDArray[np.bool_]:
    """Which elements of X[n'] the links of each pattern read: (n_patterns, d^2)."""
    read = np.zeros((len(plan.patterns), plan.d**2), dtype=bool)
    for pattern, total in _sums(plan):
        read[pattern, total.nonzero()[1]] = True
    return read


def work(plan: Plan) -> Work:
    """Elements of G that are not 0: of an ADO by itself, and of a link on average."""
    counts = np.zeros(len(plan.patterns), dtype=np.int64)
    for pattern, total in _sums(plan):
        counts[pattern] = max(counts[pattern], total.count_nonzero())
    ends = [p.entries()[:2] for p in plan.patterns]
    linked = [c for c, (rows, cols) in zip(counts, ends, strict=True) if np.any(rows != cols)]
    here = [c for c, p in zip(counts, plan.patterns, strict=True) if p.is_identity]
    return Work(float(max(sum(here), plan.d**2)), float(np.mean(linked)) if linked else 0.0)


def _sums(plan: Plan) -> Iterator[tuple[int, sp.csr_array]]:
    """Pattern and (d^2, d^2) matrix: of the constant part and of every name, of every member."""
    arrays = [s.scalar for t in plan.terms for s in t.shifts]
    arrays += [op.array for t in plan.terms for op in (t.left, t.right) if op is not None]
    for m in range(max((len(a) for a in arrays), default=0)):
        sums: dict[tuple[int, str | None], sp.csr_array] = {}
        for term in plan.terms:
            small = _superoperator(plan.d, term, m)
            for s in term.shifts:
                key = (s.pattern, s.name)
                own = small * s.scalar[m if len(s.scalar) > 1 else 0]
                sums[key] = sums[key] + own if key in sums else own
        yield from ((pattern, total) for (pattern, _), total in sums.items())


def _superoperator(d: int, term: Term, member: int) -> sp.csr_array:
    """`Plan.superoperator`, which would be as large as a hierarchy for many levels."""

    def sparse(op: Operator | None) -> sp.csr_array:
        return sp.eye_array(d, format="csr") if op is None else sp.csr_array(op.of(member))

    small = sp.csr_array(sp.kron(sparse(term.left), sparse(term.right).T, format="csr"))
    return small[np.arange(d * d).reshape(d, d).T.ravel()] if term.transposed else small
