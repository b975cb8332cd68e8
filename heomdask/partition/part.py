"""The rows of a generator that one part owns, as a plan that knows it is not the whole.

Takes: a whole `Plan` and owners, or a plan made for some rows only with its `Section`.
Gives: `Part`, from `part_of` or `section_part`.
Next file: `partition/coupling.py`, what passes through the links to other parts.

Solvers take a part for a plan. Three things must not be asked of a part as if it were the whole,
and are answered here: its adjoint (the rows of the adjoint of the whole, not the adjoint of the
rows), random numbers (each ADO has its own, whoever owns it), and whether anything may be
remembered of it (no: all parts must take the same way).
"""

from __future__ import annotations

import dataclasses
import functools
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from heomdask.hierarchy.numbering import Ints
from heomdask.hierarchy.section import Section
from heomdask.partition.split import Split
from heomdask.plan import Pattern, Plan, random_ados


@dataclass(frozen=True, eq=False)
class Part(Plan):
    """The rows of one owner.

    Rows are interior, then boundary; columns are the rows, then the halo: the ADOs of others that
    these rows, or those of the adjoint, read.

    Attributes
    ----------
    columns : (n_cols,) the ADO of each column.
    owners : (n_cols,) the part that owns it.
    n_interior : how many rows read nothing of the halo, nor do those of the adjoint.
    n_whole : ADOs of all parts.
    transposes : the same rows of the transpose of each pattern.
    """

    columns: Ints = field(kw_only=True)
    owners: Ints = field(kw_only=True)
    n_interior: int = field(kw_only=True)
    n_whole: int = field(kw_only=True)
    transposes: tuple[Pattern, ...] = field(kw_only=True)

    @property
    def is_whole(self) -> bool:
        return False

    @functools.cached_property
    def _order(self) -> Ints:
        """The own rows in the order of their ADOs."""
        return np.argsort(self.columns[: self.n_rows])

    def adjoint(self) -> Part:
        """The same rows of the adjoint of the whole."""
        return dataclasses.replace(
            self,
            patterns=self.transposes,
            transposes=self.patterns,
            terms=self.adjoint_terms(),
        )

    def random_state(self, seed: int) -> NDArray[np.float64]:
        """The numbers that `Plan.random_state` of the whole has in these columns."""
        return random_ados(seed, self.columns, self.d, self.n_whole)

    def find(self, ados: Ints) -> Ints:
        """The own rows that hold these ADOs of the whole; -1 for those of other parts."""
        own, order = self.columns[: self.n_rows], self._order
        if not len(own):
            return np.full(len(ados), -1)
        place = order[np.minimum(np.searchsorted(own[order], ados), len(own) - 1)]
        return np.where(own[place] == ados, place, -1)


def part_of(whole: Plan, owner: Ints, part: int) -> Part:
    """The rows of a whole plan that `part` owns; `owner` is that of each ADO, (N,)."""
    if whole.n_rows != whole.n_cols:
        raise ValueError("only a whole plan, of as many rows as columns, has parts")
    mine = owner == part
    boundary = np.zeros(whole.n_rows, dtype=bool)
    halo = np.zeros(whole.n_rows, dtype=bool)
    for p in (p for p in whole.patterns if not p.is_identity):
        r, c, _ = p.entries()
        for here, there in ((r, c), (c, r)):
            away = mine[here] & ~mine[there]
            boundary[here[away]] = True
            halo[there[away]] = True
    own = [np.flatnonzero(mine & ~boundary), np.flatnonzero(mine & boundary)]
    rows = np.concatenate(own)
    columns = np.concatenate([rows, np.flatnonzero(halo)])
    column_of = np.full(whole.n_rows, -1)
    column_of[columns] = np.arange(len(columns))
    patterns, transposes = (
        tuple(p.restrict(rows, column_of, len(columns)) for p in every)
        for every in (whole.patterns, [p.transpose for p in whole.patterns])
    )
    kept = {f.name: getattr(whole, f.name) for f in dataclasses.fields(Plan)}
    kept |= {"n_rows": len(rows), "n_cols": len(columns), "patterns": patterns}
    return Part(
        **kept, columns=columns, owners=owner[columns], n_interior=len(own[0]),
        n_whole=whole.n_rows, transposes=transposes,
    )  # fmt: skip


def section_part(plan: Plan, section: Section, split: Split) -> Part:
    """A plan that was made for the rows of a section only, as a part."""
    indices = split.numbering.unrank(section.columns)
    return Part(
        **{f.name: getattr(plan, f.name) for f in dataclasses.fields(Plan)},
        columns=section.columns,
        owners=split.owner(indices),
        n_interior=section.n_interior,
        n_whole=split.numbering.n_ado,
        transposes=tuple(section.transposed(p) for p in plan.patterns),
    )
