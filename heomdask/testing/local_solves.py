"""The part of the conformance suite that is about the local solve.

Takes: a backend, through the hooks of `LocalSolveConformance`.
Gives: tests of `solve_local` against the blocks on the diagonal of the assembled matrix, for
    whole plans and for parts.
Next file: `conformance.py`, which collects the whole suite.
"""

from __future__ import annotations

import dataclasses
import itertools
from typing import Any

import numpy as np
import pytest

from heomdask.backends.traits import APPLY_TOLERANCE, BackendTraits, Compiled
from heomdask.partition.part import part_of
from heomdask.plan import AnyArray, Form, Plan, Shift
from heomdask.testing.hooks import Hooks
from heomdask.testing.oracle import assembled, assert_close, without_names
from heomdask.testing.random_plans import CASES, Case, chain_plan, random_state

shallow = pytest.mark.parametrize("case", [c for c in CASES if c.depth < 6][::2], ids=str)
batches = [c for c in CASES if c.depth < 6 and c.members > 1][::2]


class LocalSolveConformance(Hooks):
    """``solve_local``: an inverse of every block, in either precision."""

    @shallow
    def test_local_solve_inverts_the_blocks(self, case: Case) -> None:
        plan = without_names(case.plan())
        self.solves_locally(case.state(plan), plan, 9.0 + np.arange(plan.n_members))

    @shallow
    def test_local_solve_with_one_basis(self, case: Case) -> None:
        plan = evenly(case.plan())
        self.solves_locally(case.state(plan), plan, 9.0 + np.arange(plan.n_members))

    @shallow
    def test_local_solve_in_single_precision(self, case: Case) -> None:
        plan = evenly(case.plan())
        self.solves_locally(case.state(plan), plan, 9.0 + np.arange(plan.n_members), "float32")

    @pytest.mark.parametrize("form", ["real", "complex"])
    @pytest.mark.parametrize("d", [3, 5, 6, 8])
    def test_local_solve_of_a_chain(self, d: int, form: Form) -> None:
        plan = chain_plan(d, form)
        self.solves_locally(random_state(np.random.default_rng(d), plan), plan, np.array([0.5]))

    def solves_locally(
        self, x: AnyArray, plan: Plan, sigma: AnyArray, dtype: str = "float64"
    ) -> None:
        be, compiled = self.ready(plan, dtype)
        x = x.astype(compiled.dtype)
        solved, d2 = local_solution(be, compiled, sigma, x), plan.d**2
        assert solved.dtype == compiled.dtype
        for m, n in itertools.product(range(plan.n_members), range(plan.n_rows)):
            own = slice(n * d2, (n + 1) * d2)
            block = assembled(plan)[m][own, own].toarray() - sigma[m] * np.eye(d2)
            residual = block @ solved[n, ..., m].ravel() - x[n, ..., m].ravel()
            size = float(np.max(np.abs(block))) * d2 * float(np.max(np.abs(solved[n])))
            assert_close(residual, np.zeros(d2), size + 1, APPLY_TOLERANCE[dtype])

    @shallow
    def test_local_solve_onto_itself_and_again(self, case: Case) -> None:
        plan = evenly(case.plan())
        be, compiled = self.ready(plan)
        x = case.state(plan)
        want = local_solution(be, compiled, 9.0, x)
        state = be.put(compiled, x)
        be.solve_local(compiled, 9.0, state, state)
        assert np.array_equal(be.fetch(compiled, state), want)

    @pytest.mark.parametrize("case", batches, ids=str)
    def test_local_solve_of_a_member_alone_and_in_company(self, case: Case) -> None:
        whole, be = evenly(case.plan()), self.ensemble_backend()
        together = local_solution(be, be.compile(whole), 9.0, case.state(whole))
        for m in range(whole.n_members):
            own = np.ascontiguousarray(case.state(whole)[..., m : m + 1])
            alone = local_solution(be, be.compile(whole.take([m])), 9.0, own)
            assert np.array_equal(alone[..., 0], together[..., m])


class PartSolveConformance(Hooks):
    """``solve_local`` of plans with a halo."""

    @pytest.mark.parametrize("case", [c for c in CASES if 0 < c.depth < 6][::2], ids=str)
    def test_local_solve_of_a_part_leaves_nothing_in_the_halo(self, case: Case) -> None:
        whole = evenly(case.plan())
        part = part_of(whole, np.arange(whole.n_rows) % 2, 0)
        whole_be, compiled = self.ready(whole)
        want = local_solution(whole_be, compiled, 9.0, case.state(whole))
        be, compiled = self.ready(part)
        got = local_solution(be, compiled, 9.0, case.state(whole)[part.columns])
        n, size = part.n_rows, float(np.max(np.abs(want)))
        assert_close(got[:n], want[part.columns[:n]], 10 * size, APPLY_TOLERANCE["float64"])
        assert not got[n:].any()


def evenly(plan: Plan) -> Plan:
    """Without names, and without operators that differ from ADO to ADO: one basis serves all."""

    def even(shift: Shift) -> bool:
        rows, cols, _ = plan.patterns[shift.pattern].entries()
        return plan.patterns[shift.pattern].is_identity or not np.any(rows == cols)

    constant, kept = without_names(plan), []
    for term in constant.terms:
        plain = term.left is None and term.right is None and not term.transposed
        shifts = tuple(s for s in term.shifts if plain or even(s))
        if shifts:
            kept.append(dataclasses.replace(term, shifts=shifts))
    return dataclasses.replace(constant, terms=tuple(kept))


def local_solution(be: BackendTraits, compiled: Compiled, sigma: Any, x: AnyArray) -> AnyArray:
    """The solution for a host array, as one; what lay in its place before does not matter."""
    out = be.put(compiled, np.full_like(x, np.nan))
    be.solve_local(compiled, sigma, be.put(compiled, x), out)
    return be.fetch(compiled, out)
