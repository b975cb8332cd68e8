"""The conformance suite catches what it is there to catch: each mistake fails the named test."""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest

from heomdask.backends.numpy_ import NumpyBackend
from heomdask.backends.traits import BackendBase, Compiled, Selection, Weight
from heomdask.plan import AnyArray, Operator, Plan, Term
from heomdask.testing.conformance import BackendConformance
from heomdask.testing.random_plans import CASES, Case, random_plan

REAL = next(c for c in CASES if c.form == "real" and c.d == 3 and c.members == 8)
COMPLEX = next(c for c in CASES if c.form == "complex" and c.d == 3 and c.members == 8)


class RewritingBackend(NumpyBackend):
    """Compiles another plan than the one it is given."""

    def rewrite(self, plan: Plan) -> Plan:
        raise NotImplementedError

    def compile(self, plan: Plan, dtype: str = "float64") -> Any:
        return super().compile(self.rewrite(plan), dtype)


class ForgetsTransposition(RewritingBackend):
    def rewrite(self, plan: Plan) -> Plan:
        terms = tuple(Term(t.shifts, t.left, t.right) for t in plan.terms)
        return dataclasses.replace(plan, terms=terms)


class SharesTheFirstOperator(RewritingBackend):
    def rewrite(self, plan: Plan) -> Plan:
        def first(op: Operator | None) -> Operator | None:
            return None if op is None else Operator(op.array[:1])

        terms = tuple(
            Term(t.shifts, first(t.left), first(t.right), t.transposed) for t in plan.terms
        )
        return dataclasses.replace(plan, terms=terms)


class ForgetsTheAccumulator(NumpyBackend):
    def apply(self, compiled: Compiled, x: AnyArray, out: AnyArray, **options: Any) -> None:
        super().apply(compiled, x, out, **{**options, "acc": None})


class IgnoresRowRanges(NumpyBackend):
    def apply(self, compiled: Compiled, x: AnyArray, out: AnyArray, **options: Any) -> None:
        super().apply(compiled, x, out, **{**options, "rows": None})


class ForgetsTheHalo(NumpyBackend):
    def apply(self, compiled: Compiled, x: AnyArray, out: AnyArray, **options: Any) -> None:
        known = x.copy()
        known[:, compiled.plan.n_rows :] = 0
        super().apply(compiled, known, out, **options)


class MultipliesByZero(NumpyBackend):
    """A weight of 0 times NaN is NaN."""

    def apply(self, compiled: Compiled, x: AnyArray, out: AnyArray, **options: Any) -> None:
        before = out.copy()
        c = np.asarray(options.get("c", 0.0)).reshape(-1, 1, 1, 1)
        super().apply(compiled, x, out, **options)
        with np.errstate(all="ignore"):
            out += 0 * c * before


class ScribblesOnItsInput(NumpyBackend):
    def apply(self, compiled: Compiled, x: AnyArray, out: AnyArray, **options: Any) -> None:
        super().apply(compiled, x, out, **options)
        x[:, 0] = 0


class CombinesInPlace(NumpyBackend):
    """Overwrites an array that it still needs."""

    def combine(
        self,
        compiled: Compiled,
        out: AnyArray,
        weights: Sequence[Weight],
        arrays: Sequence[AnyArray],
    ) -> None:
        out[...] = 0
        for w, x in zip(weights, arrays, strict=True):
            out += np.asarray(w).reshape(-1, 1, 1, 1) * x


class ForgetsToConjugate(NumpyBackend):
    def dots(self, compiled: Compiled, xs: Sequence[AnyArray], y: AnyArray) -> AnyArray:
        return super().dots(compiled, [np.conj(x) for x in xs], y)


class OverlooksNaN(NumpyBackend):
    def error_norm(self, compiled: Compiled, *arguments: Any) -> Any:
        return np.nan_to_num(super().error_norm(compiled, *arguments))


class ScalesByTheCompany(NumpyBackend):
    """Rounds differently in a batch of another size."""

    def apply(self, compiled: Compiled, x: AnyArray, out: AnyArray, **options: Any) -> None:
        super().apply(compiled, x, out, **options)
        out *= 1 + 2.3e-16 * len(out)


class ForgetsThePreviousTerm(NumpyBackend):
    def recur(self, compiled: Compiled, x: Any, coeffs: AnyArray, *rest: Any) -> Any:
        return BackendBase.recur(self, compiled, x, coeffs * [[1], [1], [0], [1]], *rest)


class SharesAScratchBuffer(NumpyBackend):
    """One buffer for all threads."""

    scratch: Any = None

    def apply(self, compiled: Compiled, x: AnyArray, out: AnyArray, **options: Any) -> None:
        type(self).scratch = x.copy()
        time.sleep(1e-3)
        super().apply(compiled, type(self).scratch, out, **options)


class PacksTheWrongElements(NumpyBackend):
    def pack(self, compiled: Compiled, x: AnyArray, selection: Selection) -> AnyArray:
        return super().pack(compiled, x, Selection(selection.ado, selection.col, selection.row))


class SolvesWithoutTheShift(NumpyBackend):
    def solve_local(self, compiled: Compiled, sigma: Weight, x: AnyArray, out: AnyArray) -> None:
        super().solve_local(compiled, 0.9 * np.asarray(sigma), x, out)


class SolvesFromTheFirstNumber(NumpyBackend):
    """Writes before it has read all that it needs."""

    def solve_local(self, compiled: Compiled, sigma: Weight, x: AnyArray, out: AnyArray) -> None:
        out[...] = 0
        super().solve_local(compiled, sigma, x, out)


class SolvesItsOwnRowsOnly(NumpyBackend):
    def solve_local(self, compiled: Compiled, sigma: Weight, x: AnyArray, out: AnyArray) -> None:
        before = out.copy()
        super().solve_local(compiled, sigma, x, out)
        out[:, compiled.plan.n_rows :] = before[:, compiled.plan.n_rows :]


class SolvesWithTheCompany(NumpyBackend):
    def solve_local(self, compiled: Compiled, sigma: Weight, x: AnyArray, out: AnyArray) -> None:
        super().solve_local(compiled, sigma, x, out)
        out *= 1 + 2.3e-16 * len(out)


@pytest.mark.parametrize(
    ("mistaken", "test", "case"),
    [
        (ForgetsTransposition, "test_apply_is_the_generator", REAL),
        (SharesTheFirstOperator, "test_apply_is_the_generator", COMPLEX),
        (ForgetsTheAccumulator, "test_weights_per_member_and_accumulator", COMPLEX),
        (IgnoresRowRanges, "test_row_range_writes_those_rows_only", COMPLEX),
        (MultipliesByZero, "test_unused_arrays_may_hold_anything", COMPLEX),
        (MultipliesByZero, "test_exploded_member_is_invisible", COMPLEX),
        (ScribblesOnItsInput, "test_input_is_left_alone", COMPLEX),
        (ScribblesOnItsInput, "test_segment_is_the_polynomial", COMPLEX),
        (CombinesInPlace, "test_combine_also_onto_itself", COMPLEX),
        (ForgetsToConjugate, "test_reductions_and_their_determinism", COMPLEX),
        (ForgetsToConjugate, "test_adjoint_identity", COMPLEX),
        (OverlooksNaN, "test_error_norm_shows_what_is_not_finite", COMPLEX),
        (ScalesByTheCompany, "test_member_alone_and_in_company_to_the_last_bit", REAL),
        (ForgetsThePreviousTerm, "test_segment_is_the_polynomial", REAL),
        (ForgetsThePreviousTerm, "test_finished_member_stays_out", REAL),
        (SharesAScratchBuffer, "test_compiled_plan_serves_several_threads", COMPLEX),
        (PacksTheWrongElements, "test_chosen_elements", COMPLEX),
        (SolvesWithoutTheShift, "test_local_solve_inverts_the_blocks", COMPLEX),
        (SolvesFromTheFirstNumber, "test_local_solve_onto_itself_and_again", COMPLEX),
        (SolvesItsOwnRowsOnly, "test_local_solve_of_a_part_leaves_nothing_in_the_halo", COMPLEX),
        (SolvesWithTheCompany, "test_local_solve_of_a_member_alone_and_in_company", REAL),
        (ForgetsTheHalo, "test_part_of_a_partition", COMPLEX),
    ],
)
def test_mistake_is_caught(mistaken: type[NumpyBackend], test: str, case: Case) -> None:
    class Suite(BackendConformance):
        def backend(self) -> NumpyBackend:
            return mistaken()

    with pytest.raises(AssertionError):
        getattr(Suite(), test)(case)


def test_random_plan_has_every_kind_of_term() -> None:
    plan = random_plan(np.random.default_rng(2), d=4, members=3, form="real", names=("f",))
    operators = [op for t in plan.terms for op in (t.left, t.right) if op is not None]
    assert {op.structure for op in operators} == {"projector", "diagonal", "sparse", "dense"}
    assert {len(op.array) for op in operators} == {1, 3}
    assert {t.transposed for t in plan.terms} == {True, False}
    labels = {plan.patterns[s.pattern].label for t in plan.terms for s in t.shifts}
    assert labels >= {"identity", "number0", "up0", "down1", "signed1", "lateral", "scattered"}
    signed = next(p for p in plan.patterns if p.label == "signed1")
    assert {-1.0, 1.0} == set(signed.entries()[2])
