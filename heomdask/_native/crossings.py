"""Couplings to one site: links that read row j and column j of an ADO, and write the same two.

Takes: terms whose operator is one element (j, j), on one side, shift by shift.
Gives: `Crossings`, which joins those of one site and pattern; links sorted by row of the plan.
Next file: `lower.py`.

From a neighbour X, an ADO's row j takes ``rr row + cr column`` and its column j takes
``cc column + rc row``, but for their common element, which takes ``jj X[j, j]``: there, what a
commutator adds to the row and what it subtracts from the column cancel exactly.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from heomdask._native.kept import kept
from heomdask._native.superop import Floats, Int32, Table
from heomdask.plan import AnyArray, Pattern, Plan, Shift, Term

# start of each row's links of each kind (3 n + 1,), links (column, coefficients, site), first row
CrossingArrays = tuple[NDArray[np.int64], Int32, int]
_RR, _CC, _RC, _CR, _JJ = range(5)
# the coefficients that a link has: row and column to themselves, to each other, or both
_KINDS = ((_RR, _CC, _JJ), (_RC, _CR, _JJ), (_RR, _CC, _RC, _CR, _JJ))


@dataclass
class _Joined:
    """The five coefficients of one site and pattern by name, and which pairs of them occur."""

    sums: dict[str | None, AnyArray] = field(default_factory=dict)
    straight: bool = False
    swapped: bool = False

    @property
    def kind(self) -> int:
        return 2 if self.straight and self.swapped else int(self.swapped)

    def values(self, distinct: Floats) -> dict[str | None, AnyArray]:
        """The coefficients of this kind times each of the pattern's values, as rows of a table."""
        return {
            name: (distinct[:, None, None] * total[list(_KINDS[self.kind])]).reshape(
                -1, total.shape[1]
            )
            for name, total in self.sums.items()
        }


class Crossings:
    """All couplings to one site of a plan; which ones are joined depends on its structure alone."""

    def __init__(self, plan: Plan) -> None:
        self.plan = plan
        self._joined: dict[tuple[int, int], _Joined] = {}

    def takes(self, term: Term, shift: Shift) -> bool:
        """Add one shift of a term, if it couples to one site of a system of three or more."""
        op = term.right if term.left is None else term.left
        one_sided = (term.left is None) != (term.right is None)
        if op is None or not one_sided or op.structure != "projector" or self.plan.d <= 2:
            return False
        j = int(np.argmax(np.any(op.array != 0, axis=0))) // self.plan.d
        own = self._joined.setdefault((j, shift.pattern), _Joined())
        own.straight |= not term.transposed
        own.swapped |= term.transposed
        row, col = (_RC, _CR) if term.transposed else (_RR, _CC)
        product = np.zeros((5, 1)) * shift.scalar * op.array[:, j, j]
        product[[col if term.left is None else row, _JJ]] = shift.scalar * op.array[:, j, j]
        known = own.sums.get(shift.name)
        own.sums[shift.name] = product if known is None else known + product
        return True

    def finish(self, table: Table) -> CrossingArrays | None:
        """Put the coefficients into the table; None if there are none."""
        if not self._joined:
            return None
        first = table.size
        for (_, number), own in self._joined.items():
            distinct, _ = distinct_of((self.plan.patterns[number],))
            table.add_sum(len(distinct) * len(_KINDS[own.kind]), own.values(distinct))
        patterns = tuple(self.plan.patterns[n] for _, n in self._joined)
        sites = tuple(j for j, _ in self._joined)
        kinds = tuple(own.kind for own in self._joined.values())
        return (*_sorted(patterns, sites, kinds), first)


@kept
def distinct_of(patterns: tuple[Pattern]) -> tuple[Floats, NDArray[np.int64]]:
    """The distinct values of a pattern and, for each entry, which one it is."""
    return np.unique(patterns[0].entries()[2], return_inverse=True)


@kept
def _sorted(
    patterns: tuple[Pattern, ...], sites: tuple[int, ...], kinds: tuple[int, ...]
) -> tuple[NDArray[np.int64], Int32]:
    """Links of all patterns by row, then kind; coefficients by number."""
    places, links, used = [], [], 0
    for pattern, site, kind in zip(patterns, sites, kinds, strict=True):
        rows, cols, _ = pattern.entries()
        distinct, which = distinct_of((pattern,))
        places.append(rows.astype(np.int64) * len(_KINDS) + kind)
        coef = used + len(_KINDS[kind]) * which
        links.append(np.stack([cols, coef, np.full(len(rows), site)], axis=1).astype(np.int32))
        used += len(_KINDS[kind]) * len(distinct)
    place = np.concatenate(places)
    start = np.zeros(patterns[0].n_rows * len(_KINDS) + 1, dtype=np.int64)
    np.cumsum(np.bincount(place, minlength=len(start) - 1), out=start[1:])
    return start, np.concatenate(links)[np.argsort(place, kind="stable")]
