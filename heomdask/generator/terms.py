"""Terms under construction: equal operators share one term.

Takes: links (pattern, scalar, name) times factors (left, right, transposed).
Gives: `TermSum`, which ends as a `Plan`.
Next file: `generator/build.py`, which writes the equations with it.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np

from heomdask.generator.superops import Factor
from heomdask.hierarchy.index_set import IndexSet
from heomdask.hierarchy.section import Section
from heomdask.plan import AnyArray, Form, Operator, Pattern, Plan, Shift, Term

Ladders = IndexSet | Section  # all rows of a hierarchy, or some


@dataclass(frozen=True, eq=False)
class Link:
    """``scalar * A``, times a named scalar: one (M,) or (1,) number per member."""

    pattern: Pattern
    scalar: AnyArray
    name: str | None = None


class TermSum:
    """A sum of terms that grows; products with the same (left, right, transposed) become one."""

    def __init__(self, form: Form, index_set: Ladders, n_members: int) -> None:
        self.form: Form = form
        self.index_set = index_set
        self.n_members = n_members
        self._patterns: dict[int, tuple[int, Pattern]] = {}  # by id; number in the plan
        self._names: dict[str, None] = {}
        self._factors: dict[tuple[int, int, bool], Factor] = {}
        self._shifts: dict[tuple[int, int, bool], dict[tuple[int, str | None], AnyArray]] = {}
        self._local: dict[tuple[bool, bool], AnyArray] = {}

    def within(self, scalar: float | AnyArray, name: str | None = None) -> Link:
        """A link of every ADO with itself."""
        return Link(self.index_set.identity, np.atleast_1d(np.asarray(scalar)), name)

    def add(self, links: Sequence[Link], factors: Iterable[Factor]) -> None:
        """Add (sum of links) x (each of the factors)."""
        for factor in factors:
            key = (id(factor.left), id(factor.right), factor.transposed)
            self._factors.setdefault(key, factor)  # also keeps the operators, hence their ids
            shifts = self._shifts.setdefault(key, {})
            for link in links:
                if link.pattern.is_empty:
                    continue
                where = (self._number(link.pattern), link.name)
                scalar = self._times(factor.weight, link.scalar)
                shifts[where] = shifts[where] + scalar if where in shifts else scalar
                if link.name is not None:
                    self._names.setdefault(link.name)

    def add_local(self, factors: Iterable[Factor]) -> None:
        """Add one-sided factors that act within each ADO; their operators are summed."""
        for factor in factors:
            on_left = factor.right is None
            operator = factor.left if on_left else factor.right
            assert operator is not None
            array = self._times(factor.weight, operator.array)
            key = (on_left, factor.transposed)
            self._local[key] = self._local[key] + array if key in self._local else array

    def plan(self, d: int) -> Plan:
        """The sum as a plan."""
        terms = []
        for (on_left, transposed), array in self._local.items():
            here = (Shift(self._number(self.index_set.identity), self._times(1, np.ones(1))),)
            left, right = (array, None) if on_left else (None, array)
            terms.append(Term(here, _operator(left), _operator(right), transposed))
        for key, factor in self._factors.items():
            shifts = tuple(Shift(p, s, name) for (p, name), s in self._shifts[key].items())
            if shifts:
                terms.append(Term(shifts, factor.left, factor.right, factor.transposed))
        every = self.index_set.identity
        patterns = tuple(pattern for _, pattern in self._patterns.values())
        return Plan(
            d, every.n_rows, every.n_cols, self.n_members, self.form, patterns, tuple(terms),
            tuple(self._names),
        )  # fmt: skip

    def _number(self, pattern: Pattern) -> int:
        return self._patterns.setdefault(id(pattern), (len(self._patterns), pattern))[0]

    def _times(self, weight: complex, numbers: AnyArray) -> AnyArray:
        """``weight * numbers`` in the plan's own type; weights are 1, -1, i or -i, so exact.

        In a real plan all that arrives here is real, whatever its type.
        """
        if self.form == "real":
            return np.ascontiguousarray(weight.real * numbers.real, dtype=np.float64)
        return np.ascontiguousarray(weight * numbers, dtype=np.complex128)


def _operator(array: AnyArray | None) -> Operator | None:
    return None if array is None else Operator(array)
