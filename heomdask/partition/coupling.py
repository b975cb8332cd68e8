"""What passes through a link: the sum of all terms that share a shift.

Takes: a `Plan`, whole or a part.
Gives: `support`, the elements of a neighbour that matter; `work`, what ADOs and links cost.
Next file: `partition/halo.py`, which elements a part reads from which other.

``Q X - X Q`` does not read X[i, j] where q_i = q_j: of a site projector on d levels there matter
2 d - 2 elements of d^2, or 2 d - 1 where the anticommutator acts too.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from heomdask.hierarchy.numbering import Ints
from heomdask.partition.split import Work
from heomdask.plan import AnyArray, Operator, Plan, Term


def support(plan: Plan) -> NDArray[np.bool_]:
    """Which elements of X[n'] the links of each pattern read: (n_patterns, d^2)."""
    read = np.zeros((len(plan.patterns), plan.d**2), dtype=bool)
    for pattern, total in _sums(plan):
        read[pattern, total.cols] = True
    return read


def work(plan: Plan) -> Work:
    """Elements of G that are not 0: of an ADO by itself, and of a link on average."""
    counts = np.zeros(len(plan.patterns), dtype=np.int64)
    for pattern, total in _sums(plan):
        counts[pattern] = max(counts[pattern], len(total.cols))
    ends = [p.entries()[:2] for p in plan.patterns]
    linked = [c for c, (rows, cols) in zip(counts, ends, strict=True) if np.any(rows != cols)]
    here = [c for c, p in zip(counts, plan.patterns, strict=True) if p.is_identity]
    return Work(float(max(sum(here), plan.d**2)), float(np.mean(linked)) if linked else 0.0)


@dataclass(frozen=True, eq=False)
class _Map:
    """Elements of a linear map of (d, d) matrices: rows, columns, and values (M, n) or (1, n)."""

    rows: Ints
    cols: Ints
    values: AnyArray

    def plus(self, other: _Map, size: int) -> _Map:
        """The sum of two maps on `size` numbers; equal places are added, zeros kept."""
        keys = np.concatenate([m.rows * size + m.cols for m in (self, other)])
        places, at = np.unique(keys, return_inverse=True)
        members = max(len(self.values), len(other.values))
        total = np.zeros((members, len(places)), np.result_type(self.values, other.values))
        total[:, at[: len(self.rows)]] = self.values
        total[:, at[len(self.rows) :]] += other.values
        return _Map(*np.divmod(places, size), total)

    def nonzero(self) -> _Map:
        """The elements that are not 0 for every member."""
        kept = np.any(self.values != 0, axis=0)
        return _Map(self.rows[kept], self.cols[kept], self.values[:, kept])


def _sums(plan: Plan) -> Iterator[tuple[int, _Map]]:
    """Of every pattern: what its constant shifts do in all terms together, and those of a name."""
    sums: dict[tuple[int, str | None], _Map] = {}
    for term in plan.terms:
        one = _product(plan.d, term)
        for s in term.shifts:
            key = (s.pattern, s.name)
            own = _Map(one.rows, one.cols, one.values * s.scalar[:, None])
            sums[key] = sums[key].plus(own, plan.d**2) if key in sums else own
    for (pattern, _), total in sums.items():
        yield pattern, total.nonzero()


def _product(d: int, term: Term) -> _Map:
    """``X -> L X R``, transposed if so flagged."""
    (i, a, left), (b, j, right) = (_elements(d, op) for op in (term.left, term.right))
    values = left[:, :, None] * right[:, None, :]
    size = values.shape[1:]
    i, a = (np.broadcast_to(index[:, None], size).ravel() for index in (i, a))
    b, j = (np.broadcast_to(index, size).ravel() for index in (b, j))
    rows = j * d + i if term.transposed else i * d + j
    return _Map(rows, a * d + b, values.reshape(len(values), -1))


def _elements(d: int, op: Operator | None) -> tuple[Ints, Ints, AnyArray]:
    """Rows and columns of what is not 0 for every member, and its values, (M, n) or (1, n)."""
    array: AnyArray = np.eye(d)[None] if op is None else op.array
    row, col = np.nonzero(np.any(array != 0, axis=0))
    return row, col, array[:, row, col]
