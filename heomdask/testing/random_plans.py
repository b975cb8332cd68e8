"""Random plans for tests: every shape of term a backend must know, from a seed alone.

Takes: sizes and a seed.
Gives: `random_plan`, `chain_plan`, `random_state`, `Case` and `CASES`, the suite's table.
Next file: `testing/conformance.py`, which runs a backend over that table.

The plans are algebra, not physics: ladders over a small index set, with signed and lateral
shifts, scattered couplings, shared and per-member numbers, and operators of every structure.
"""

from __future__ import annotations

import dataclasses
import functools
import itertools
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from heomdask.plan import AnyArray, Form, Operator, Pattern, Plan, Scalars, Shift, Term

STRUCTURES = ("projector", "diagonal", "sparse", "dense")


@dataclass(frozen=True)
class Case:
    """One row of the table: the sizes of a random plan and its seed."""

    seed: int
    d: int
    members: int
    form: Form
    modes: int = 2
    depth: int = 2
    names: tuple[str, ...] = ()

    def plan(self) -> Plan:
        """The plan; one object for every call, so that what is derived from it is kept."""
        return _plan_of(self)

    def state(self, plan: Plan, stream: int = 0) -> AnyArray:
        """A random state of the plan; other streams give other states."""
        return random_state(np.random.default_rng([self.seed, stream]), plan)

    def scalars(self, plan: Plan) -> Scalars | None:
        """Values of the named scalars, one per member; None if the plan has none."""
        if not plan.names:
            return None
        return np.random.default_rng([self.seed, 99]).normal(size=(len(plan.names), plan.n_members))

    def __str__(self) -> str:
        named = "-named" if self.names else ""
        return f"{self.form}-d{self.d}-M{self.members}-K{self.modes}L{self.depth}{named}"


@functools.cache
def _plan_of(case: Case) -> Plan:
    return random_plan(
        np.random.default_rng(case.seed),
        d=case.d,
        members=case.members,
        form=case.form,
        modes=case.modes,
        depth=case.depth,
        names=case.names,
    )


def _table() -> tuple[Case, ...]:
    forms: tuple[Form, Form] = ("complex", "real")
    sizes = [(1, 1), (1, 9), (2, 1), (2, 3), (3, 8), (4, 5), (5, 1), (5, 9)]
    rows = [
        Case(seed=11 * d + m, d=d, members=m, form=form, names=("pulse",) if m == 3 else ())
        for (d, m), form in itertools.product(sizes, forms)
    ]
    for form in forms:
        rows.append(Case(seed=71, d=3, members=2, form=form, modes=3, depth=3, names=("f", "g")))
        rows.append(Case(seed=72, d=2, members=4, form=form, modes=1, depth=7))
        rows.append(Case(seed=73, d=4, members=2, form=form, modes=2, depth=0))
        rows.append(Case(seed=74, d=3, members=3, form=form, modes=4, depth=6))
    return tuple(rows)


CASES = _table()


def random_plan(
    rng: np.random.Generator,
    *,
    d: int,
    members: int = 1,
    form: Form = "complex",
    modes: int = 2,
    depth: int = 2,
    names: tuple[str, ...] = (),
) -> Plan:
    """A plan with every kind of term; numbers of order 1."""
    draw = _Draw(rng, d, members, form)
    patterns = ladder_patterns(modes, depth, rng)
    ladder = range(1, len(patterns))  # 0 is the identity
    terms = [Term(tuple(draw.shift(k) for k in ladder))]
    for structure in STRUCTURES:
        some = rng.permutation(len(patterns))[:3]
        terms.append(Term(tuple(draw.shift(int(k)) for k in some), left=draw.operator(structure)))
        terms.append(Term(tuple(draw.shift(int(k)) for k in some), right=draw.operator(structure)))
    for structure in ("projector", "dense"):  # -i[Q, .] on shifted neighbours
        shift, coupling = draw.shift(min(2, len(patterns) - 1)), draw.operator(structure)
        terms.append(Term((shift,), left=coupling))
        terms.append(Term((dataclasses.replace(shift, scalar=-shift.scalar),), right=coupling))
    terms.append(Term((draw.shift(0),), draw.operator("dense"), draw.operator("sparse")))
    for name in names:
        terms.append(Term((draw.shift(0, name),), left=draw.operator("dense")))
        both = (draw.shift(len(patterns) - 1, name), draw.shift(0))
        terms.append(Term(both, right=draw.operator("sparse")))
    if form == "real":
        flags = rng.random(len(terms)) < 0.5
        terms = [
            Term(t.shifts, t.left, t.right, bool(flag))
            for t, flag in zip(terms, flags, strict=True)
        ]
    n = patterns[0].n_rows
    return Plan(d, n, n, members, form, tuple(patterns), tuple(terms), names)


def chain_plan(d: int, form: Form) -> Plan:
    """``-i[H, .] - n``, n the number of an ADO, for a chain of equal sites.

    Its levels are symmetric about 0: many of their differences coincide, and many are 0.
    """
    number = ladder_patterns(1, 3, np.random.default_rng(0))[1]
    patterns = (Pattern(number.n_rows, number.n_rows, label="identity"), number)
    chain = np.diag(np.ones(d - 1), 1) + np.diag(np.ones(d - 1), -1)
    hamiltonian, factor = Operator(chain[None]), np.array([1.0 if form == "real" else -1j])
    real = form == "real"  # of Z = Re X + Im X it is ([H, Z])^T
    terms = (
        Term((Shift(1, np.array([-1.0])),)),
        Term((Shift(0, factor),), left=hamiltonian, transposed=real),
        Term((Shift(0, -factor),), right=hamiltonian, transposed=real),
    )
    return Plan(d, number.n_rows, number.n_rows, 1, form, patterns, terms)


def random_state(rng: np.random.Generator, plan: Plan) -> AnyArray:
    """A state (n_cols, d, d, M) of the plan's own dtype; elements of order 1."""
    shape = (plan.n_cols, plan.d, plan.d, plan.n_members)
    if plan.form == "real":
        return rng.normal(size=shape)
    return rng.normal(size=shape) + 1j * rng.normal(size=shape)


def ladder_patterns(modes: int, depth: int, rng: np.random.Generator) -> list[Pattern]:
    """Identity; number, up and down of every mode; a lateral, a signed, a scattered one."""
    every = itertools.product(range(depth + 1), repeat=modes)
    indices = [n for n in every if sum(n) <= depth]
    row_of = {n: row for row, n in enumerate(indices)}
    patterns = [Pattern(len(indices), len(indices), label="identity")]

    def add(label: str, entries: list[tuple[int, int, float]]) -> None:
        table = np.array(sorted(entries), dtype=np.float64).reshape(-1, 3)
        rows, cols = table[:, 0].astype(np.int32), table[:, 1].astype(np.int32)
        n = len(indices)
        patterns.append(Pattern(n, n, rows, cols, np.ascontiguousarray(table[:, 2]), label))

    def step(n: tuple[int, ...], moves: dict[int, int]) -> int | None:
        return row_of.get(tuple(v + moves.get(k, 0) for k, v in enumerate(n)))

    for k in range(modes):
        up, down, signed, number = [], [], [], []
        for row, n in enumerate(indices):
            number.append((row, row, float(n[k])))
            above, below = step(n, {k: 1}), step(n, {k: -1})
            if above is not None:
                up.append((row, above, np.sqrt(n[k] + 1)))
            if below is not None:
                down.append((row, below, np.sqrt(n[k])))
                signed.append((row, below, (-1.0) ** sum(n[:k])))
        add(f"number{k}", [e for e in number if e[2]])
        add(f"up{k}", up)
        add(f"down{k}", down)
        add(f"signed{k}", signed)
    if modes > 1:
        lateral = [
            (row, step(n, {0: -1, 1: 1}), np.sqrt(n[0] * (n[1] + 1)))
            for row, n in enumerate(indices)
        ]
        add("lateral", [(row, col, v) for row, col, v in lateral if col is not None])
    size = len(indices)
    chosen = rng.permutation(size * size)[: 2 * size]
    add("scattered", [(int(c) // size, int(c) % size, float(rng.normal())) for c in chosen])
    return patterns


@dataclass(frozen=True)
class _Draw:
    """Random scalars and operators of one plan, shared or per member by a coin."""

    rng: np.random.Generator
    d: int
    members: int
    form: Form

    def numbers(self, *shape: int) -> AnyArray:
        lead = self.members if self.rng.random() < 0.5 else 1
        real: NDArray[np.float64] = self.rng.normal(size=(lead, *shape))
        return real if self.form == "real" else real + 1j * self.rng.normal(size=real.shape)

    def shift(self, pattern: int, name: str | None = None) -> Shift:
        return Shift(pattern, self.numbers(), name)

    def operator(self, structure: str) -> Operator:
        d = self.d
        mask = np.ones((d, d))
        if structure == "diagonal":
            mask = np.eye(d)
        elif structure == "projector":
            mask = np.zeros((d, d))
            site = int(self.rng.integers(d))
            mask[site, site] = 1.0
        elif structure == "sparse":
            mask = np.zeros((d, d))
            mask.flat[self.rng.permutation(d * d)[: max(1, d * d // 3)]] = 1.0
        return Operator(self.numbers(d, d) * mask)
