"""A plan as the GPU kernel reads it: its terms, in their order, as offsets into tables.

Takes: a `Plan`.
Gives: `Lowered`: rates, one table of numbers, links by row, and ten integers for each term.
Next file: `apply.cu`, which reads them.

Nothing is regrouped but the rates: the terms without operators whose shifts stay on the ADO are
one number per ADO. Every other term is applied as the plan writes it. So a member's bits depend
neither on its companions nor on which of its numbers are 0, and the kernel knows three kinds of
operator only: none, a diagonal one, any other.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from heomdask.plan import AnyArray, Operator, Pattern, Plan, Shift, Term

ABSENT, DIAGONAL, DENSE = range(3)  # as in apply.cu
Int32 = NDArray[np.int32]


@dataclass(frozen=True)
class Lowered:
    """The tables of a plan, numbers in its own precision.

    Attributes
    ----------
    rates : (n_rows, 1) if the members share them, or (n_rows, M); None if there are none.
    table : (rows, M): of each term in turn its coefficients, then its operators.
    names : (rows,), the named scalar that multiplies a coefficient, or -1.
    start : (n_rows + 1,), where the links of each row begin.
    links : (number, 2), column and row of the table; those of a row in the order of the terms.
    terms : (number, 10), as `Term` in apply.cu.
    """

    rates: AnyArray | None
    table: AnyArray
    names: Int32
    start: NDArray[np.int64]
    links: Int32
    terms: Int32

    @property
    def mixes(self) -> bool:
        """Whether any operator is more than diagonal."""
        return bool(np.any(self.terms[:, [4, 7]] == DENSE))


def lower(plan: Plan) -> Lowered:
    """Fill the tables; the work is proportional to the links, not to the members."""
    rates: AnyArray | None = None
    tables = _Tables(plan)
    for term in plan.terms:
        staying = [s for s in term.shifts if _is_rate(plan, term, s)]
        for shift in staying:
            values = _diagonal(plan.patterns[shift.pattern])[:, None] * shift.scalar
            rates = values if rates is None else rates + values
        moving = [s for s in term.shifts if not _is_rate(plan, term, s)]
        if moving:
            tables.add(term, moving)
    start, links = tables.links_by_row()
    return Lowered(
        rates, tables.values(), np.array(tables.names, np.int32), start, links,
        np.array(tables.terms, np.int32).reshape(-1, 10),
    )  # fmt: skip


class _Tables:
    """The tables while they grow, term by term."""

    def __init__(self, plan: Plan) -> None:
        self.plan = plan
        self.names: list[int] = []
        self.terms: list[list[int]] = []
        self._numbers: list[AnyArray] = []
        self._links: list[tuple[Int32, Int32, NDArray[np.int64]]] = []  # rows, columns, table rows

    def add(self, term: Term, shifts: list[Shift]) -> None:
        """One term: coefficients of the ADO itself, of its links, then the operators."""
        own = len(self.names)
        for shift in shifts:
            if self._pattern(shift).is_identity:
                self._append(shift.scalar[None, :], shift.name)
        own_stop = len(self.names)
        for shift in shifts:
            if not self._pattern(shift).is_identity:
                rows, cols, values = self._pattern(shift).entries()
                distinct, which = np.unique(values, return_inverse=True)
                first = self._append(distinct[:, None] * shift.scalar, shift.name)
                self._links.append((rows, cols, first + which.reshape(-1)))
        links_stop = len(self.names)
        sides = [*self._operator(term.left), *self._operator(term.right)]
        self.terms.append([own, own_stop, links_stop, *sides, int(term.transposed)])

    def values(self) -> AnyArray:
        """The table of numbers, one per member."""
        full = np.empty((len(self.names), self.plan.n_members), self.plan.dtype)
        at = 0
        for numbers in self._numbers:
            full[at : at + len(numbers)] = numbers
            at += len(numbers)
        return full

    def links_by_row(self) -> tuple[NDArray[np.int64], Int32]:
        """Where those of each row start, and all links as (column, row of the table)."""
        none = np.zeros(0, np.int32)
        rows = np.concatenate([none, *(rows for rows, _, _ in self._links)])
        cols = np.concatenate([none, *(cols for _, cols, _ in self._links)])
        places = np.concatenate([none, *(places for _, _, places in self._links)])
        order = np.argsort(rows, kind="stable")
        start = np.zeros(self.plan.n_rows + 1, np.int64)
        np.cumsum(np.bincount(rows, minlength=self.plan.n_rows), out=start[1:])
        return start, np.stack([cols[order], places[order]], axis=1).astype(np.int32)

    def _pattern(self, shift: Shift) -> Pattern:
        return self.plan.patterns[shift.pattern]

    def _append(self, rows: AnyArray, name: str | None) -> int:
        """Append (n, 1) or (n, M) numbers; the first row."""
        first = len(self.names)
        self._numbers.append(rows)
        self.names += [-1 if name is None else self.plan.names.index(name)] * len(rows)
        return first

    def _operator(self, op: Operator | None) -> tuple[int, int, int]:
        """Its first row in the table, its kind, and the site if it is a projector, else -1."""
        if op is None:
            return 0, ABSENT, -1
        if op.structure in ("diagonal", "projector"):
            diagonals = np.diagonal(op.array, axis1=1, axis2=2).T
            site = -1
            if op.structure == "projector":
                site = int(np.flatnonzero(np.any(diagonals != 0, axis=1))[0])
            return self._append(diagonals, None), DIAGONAL, site
        return self._append(op.array.reshape(len(op.array), -1).T, None), DENSE, -1


def _is_rate(plan: Plan, term: Term, shift: Shift) -> bool:
    """Whether a shift does nothing but multiply every ADO by a constant number of its own."""
    plain = term.left is None and term.right is None and not term.transposed
    if not plain or shift.name is not None:
        return False
    pattern = plan.patterns[shift.pattern]
    rows, cols, _ = pattern.entries()
    return pattern.is_identity or bool(np.array_equal(rows, cols) and np.all(np.diff(rows) > 0))


def _diagonal(pattern: Pattern) -> NDArray[np.float64]:
    """The diagonal of a pattern that has nothing else, (n_rows,)."""
    rows, _, values = pattern.entries()
    diagonal = np.zeros(pattern.n_rows)
    diagonal[rows] = values
    return diagonal
