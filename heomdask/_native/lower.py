"""A plan as the compiled kernels want it.

Takes: a `Plan`.
Gives: `Lowered`: coefficient tables, links by row, superoperators as offsets into the tables.
Next file: `src/engine.hpp`, which lays them out for its lanes.

The generator is regrouped as

    (G X)[n] = rate_n X[n] + S X[n] + C_n X + sum over groups g of  S_g W_g[n],
    W_g = sum of coef X[col]

where C has the couplings to one site, a group holds all other terms with one common list of
shifts, up to a sign, and S all terms without a shift. Every number is a row of one table,
(rows, members), so that a value shared by the members is nothing special; what a named scalar
multiplies is kept beside it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from heomdask._native.crossings import CrossingArrays, Crossings, distinct_of
from heomdask._native.kept import kept
from heomdask._native.superop import (
    Part,
    SuperArrays,
    Table,
    build_local,
    build_super,
    elements_read,
    runs_of,
)
from heomdask.plan import AnyArray, Pattern, Plan, Shift, Term

Int32 = NDArray[np.int32]
Floats = NDArray[np.float64]
# start, links (n, 2), first coefficient, runs (n, 6), elements read, ...
GroupArrays = tuple[NDArray[np.int64], Int32, int, Int32, Int32, SuperArrays]


@dataclass(frozen=True)
class Lowered:
    """The arguments of an engine's constructor, but for those of the machine."""

    shape: tuple[int, int, int, int, bool, int]
    table: Floats
    diagonal: Floats | None
    local: SuperArrays
    has_local: bool
    crossings: CrossingArrays | None
    groups: list[GroupArrays]
    named: list[tuple[int, Int32, Floats]]
    named_diagonal: list[tuple[int, Floats]]


@dataclass
class _Parts:
    """The terms of a plan, sorted by what their shifts do."""

    crossings: Crossings
    diagonal: dict[str | None, AnyArray] = field(default_factory=dict)
    local: list[Part] = field(default_factory=list)
    groups: list[tuple[list[Shift], list[Part]]] = field(default_factory=list)


def lower(plan: Plan) -> Lowered:
    """Regroup the terms and fill the tables; work is proportional to the links, not to members."""
    parts = _Parts(Crossings(plan))
    for term in plan.terms:
        _sort(plan, term, parts)
    table = Table(plan)
    local = build_local(table, parts.local)
    crossings = parts.crossings.finish(table)
    groups = [
        _group(table, felt, shared)
        for shifts, shared in parts.groups
        if (felt := [s for s in shifts if s.name is not None or np.any(s.scalar)])
    ]
    diagonal = None
    if parts.diagonal:
        static = parts.diagonal.get(None, np.zeros((plan.n_rows, 1), plan.dtype))
        diagonal = table.spread(static)
    return Lowered(
        (plan.d, plan.n_rows, plan.n_cols, plan.n_members, plan.form == "complex", len(plan.names)),
        table.values(),
        diagonal,
        local,
        bool(parts.local),
        crossings,
        groups,
        table.contributions(),
        [
            (plan.names.index(name), table.spread(rates))
            for name, rates in parts.diagonal.items()
            if name is not None
        ],
    )


def _sort(plan: Plan, term: Term, parts: _Parts) -> None:
    """One term to where it belongs: rates on the diagonal, local operators, links."""
    plain = term.left is None and term.right is None and not term.transposed
    links = []
    for shift in term.shifts:
        pattern = plan.patterns[shift.pattern]
        if plain and is_diagonal(pattern):
            rates = diagonal_of(pattern)[:, None] * shift.scalar
            known = parts.diagonal.get(shift.name)
            parts.diagonal[shift.name] = rates if known is None else known + rates
        elif pattern.is_identity:
            parts.local.append(
                Part(term.left, term.right, term.transposed, shift.scalar, shift.name)
            )
        elif not parts.crossings.takes(term, shift):
            links.append(shift)
    if links:
        _join(plan, term, links, parts)


def _join(plan: Plan, term: Term, links: list[Shift], parts: _Parts) -> None:
    """Links to the group with the same shifts, or with all of them of opposite sign.

    Only in the real form, where the products from left and right are of equal scalars by
    construction: elsewhere equality may be the accident of one member (c = cbar), and the bits of
    a member must not depend on its companions.
    """
    key = tuple((s.pattern, s.name) for s in links)
    for shifts, shared in parts.groups:
        same = key == tuple((s.pattern, s.name) for s in shifts) and plan.form == "real"
        for sign in (1.0, -1.0) if same else ():
            pairs = zip(links, shifts, strict=True)
            if all(np.array_equal(new.scalar, sign * old.scalar) for new, old in pairs):
                shared.append(_part(term, sign))
                return
    parts.groups.append((links, [_part(term, 1.0)]))


def _part(term: Term, sign: float) -> Part:
    return Part(term.left, term.right, term.transposed, np.array([sign]), None)


def _group(table: Table, shifts: Sequence[Shift], shared: Sequence[Part]) -> GroupArrays:
    """Links by row, the coefficients of each shift a run of rows of the table."""
    patterns = tuple(table.plan.patterns[s.pattern] for s in shifts)
    start, links, counts, distinct = links_of(patterns)
    first = table.size
    for shift, values in zip(shifts, distinct, strict=True):
        table.add(values[:, None] * shift.scalar, shift.name)
    assert table.size - first == sum(counts)
    arrays = build_super(table, shared)
    d = table.plan.d
    return (
        start,
        links,
        first,
        runs_of(arrays),
        elements_read(d, arrays),
        arrays,
    )


@kept
def links_of(
    patterns: tuple[Pattern, ...],
) -> tuple[NDArray[np.int64], Int32, tuple[int, ...], tuple[Floats, ...]]:
    """Entries of all patterns by row: start (n + 1,), (column, number of the coefficient), ...

    ... how many coefficients each pattern has, and their values.
    """
    distinct = [distinct_of((p,)) for p in patterns]
    counts = tuple(len(values) for values, _ in distinct)
    offsets = np.cumsum([0, *counts])
    rows = np.concatenate([p.entries()[0] for p in patterns])
    cols = np.concatenate([p.entries()[1] for p in patterns])
    coefs = np.concatenate([which + o for (_, which), o in zip(distinct, offsets, strict=False)])
    order = np.argsort(rows, kind="stable")
    start = np.zeros(patterns[0].n_rows + 1, dtype=np.int64)
    np.cumsum(np.bincount(rows, minlength=patterns[0].n_rows), out=start[1:])
    links = np.stack([cols[order], coefs[order]], axis=1).astype(np.int32)
    return start, np.ascontiguousarray(links), counts, tuple(values for values, _ in distinct)


def is_diagonal(pattern: Pattern) -> bool:
    """Whether a pattern leaves every ADO where it is."""
    if pattern.is_identity:
        return True
    rows, cols, _ = pattern.entries()
    once = not len(rows) or bool(np.all(np.diff(rows) > 0))
    return once and bool(np.array_equal(rows, cols))


def diagonal_of(pattern: Pattern) -> Floats:
    """The diagonal of a diagonal pattern, (n_rows,)."""
    rows, _, values = pattern.entries()
    rates: Floats = np.zeros(pattern.n_rows)
    rates[rows] = values
    return rates
