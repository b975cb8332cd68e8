"""The plan as data: what it refuses, and what follows from it by algebra."""

import dataclasses

import numpy as np
import pytest

from heomdask.partition.part import part_of
from heomdask.plan import Operator, Pattern, Plan, Shift, Term, structure_of
from heomdask.testing.random_plans import CASES, random_plan

IDENTITY = Pattern(3, 3)
LADDER = Pattern(
    3, 3, np.array([0, 1], np.int32), np.array([1, 2], np.int32), np.array([1.0, np.sqrt(2)])
)


def plan_of(*terms, patterns=(IDENTITY, LADDER), form="complex", d=2, members=1, names=()):
    return Plan(d, 3, 3, members, form, patterns, terms, names)


def ones(*shape):
    return np.ones(shape)


@pytest.mark.parametrize(
    ("array", "expected"),
    [
        (np.diag([0, 0, 2.0]), "projector"),
        (np.diag([1.0, 0, 2.0]), "diagonal"),
        (np.zeros((3, 3)), "diagonal"),
        (np.diag([1.0, 1.0], k=1), "sparse"),
        (np.ones((3, 3)), "dense"),
    ],
)
def test_structure_of_an_operator(array, expected):
    assert structure_of(array[None]) == expected
    both = np.stack([array, np.zeros((3, 3))])
    assert structure_of(both) == expected  # what all members fit into


def test_structure_of_a_stack_is_that_of_the_union():
    assert structure_of(np.stack([np.diag([1.0, 0]), np.diag([0, 1.0])])) == "diagonal"


@pytest.mark.parametrize(
    ("build", "message"),
    [
        (lambda: Pattern(3, 2), "a column for each row"),
        (lambda: Pattern(2, 2, LADDER.rows, LADDER.cols, ones(3)), "one length"),
        (lambda: Pattern(3, 3, LADDER.rows[::-1], LADDER.cols, ones(2)), "ascend"),
        (lambda: Operator(ones(2, 2)), r"\(M, d, d\)"),
        (lambda: plan_of(patterns=(Pattern(2, 2),)), "own shape"),
        (lambda: plan_of(Term((Shift(0, ones(1)),), Operator(ones(1, 3, 3)))), r"\(d, d\)"),
        (lambda: plan_of(Term((Shift(0, ones(1)),), Operator(ones(2, 2, 2)))), "one per member"),
        (lambda: plan_of(Term((Shift(0, ones(2)),))), "one per member"),
        (lambda: plan_of(Term((Shift(2, ones(1)),))), "one of the plan's patterns"),
        (lambda: plan_of(Term((Shift(0, ones(1), "f"),))), "not declared"),
        (lambda: plan_of(Term((Shift(0, 1j * ones(1)),)), form="real"), "real scalars"),
        (
            lambda: plan_of(Term((Shift(0, ones(1)),), Operator(1j * ones(1, 2, 2))), form="real"),
            "real operators",
        ),
        (lambda: plan_of(names=("f",)).to_sparse(), "named scalars"),
        (
            lambda: plan_of(Term((Shift(0, ones(1)),), transposed=True)).adjoint(),
            "belongs to a real plan",
        ),
    ],
)
def test_a_plan_that_makes_no_sense_is_refused(build, message):
    with pytest.raises(ValueError, match=message):
        build()


def test_a_term_is_what_the_equation_says():
    rng = np.random.default_rng(1)
    left, right, s = rng.normal(size=(1, 2, 2)), rng.normal(size=(1, 2, 2)), np.array([0.7])
    shifts = (Shift(0, s), Shift(1, 2 * s, "f"))
    term = Term(shifts, Operator(left), Operator(right), transposed=True)
    plan = plan_of(term, form="real", names=("f",))
    x = rng.normal(size=(3, 2, 2))
    mixed = 0.7 * x + 1.4 * 3.0 * np.einsum("nm,mij->nij", LADDER.matrix.toarray(), x)
    expected = (left[0] @ mixed @ right[0]).swapaxes(1, 2)
    found = plan.to_sparse(0, np.array([3.0])) @ x.ravel()
    np.testing.assert_allclose(found, expected.ravel(), rtol=1e-14)


@pytest.mark.parametrize("case", CASES, ids=str)
def test_adjoint_of_random_plans(case):
    plan = case.plan()
    scalars = case.scalars(plan)
    last = plan.n_members - 1
    forward = plan.to_sparse(last, scalars).toarray()
    backward = plan.adjoint().to_sparse(last, scalars).toarray()
    np.testing.assert_allclose(backward, forward.conj().T, rtol=0, atol=1e-13)


@pytest.mark.parametrize("case", CASES, ids=str)
def test_a_member_taken_out_of_random_plans(case):
    plan = case.plan()
    scalars = case.scalars(plan)
    last = plan.n_members - 1
    alone = plan.member(last)
    assert alone.n_members == 1
    own = None if scalars is None else scalars[:, last]
    found = alone.to_sparse(0, own).toarray()
    np.testing.assert_array_equal(found, plan.to_sparse(last, scalars).toarray())


@pytest.mark.parametrize("case", [c for c in CASES if not c.names and c.depth == 2], ids=str)
def test_chosen_rows_columns_and_blocks(case):
    plan = case.plan()
    last, d2, rows, cols = plan.n_members - 1, plan.d**2, np.array([3, 0]), np.array([1, 3, 4])
    whole = plan.to_sparse(last).toarray().reshape(plan.n_rows, d2, plan.n_cols, d2)
    cut = plan.to_sparse(last, rows=rows, cols=cols).toarray().reshape(2, d2, 3, d2)
    np.testing.assert_allclose(cut, whole[rows][:, :, cols], rtol=0, atol=1e-13)
    blocks = plan.local_blocks(last)
    expected = np.stack([whole[n, :, n] for n in range(plan.n_rows)])
    np.testing.assert_allclose(blocks, expected, rtol=0, atol=1e-13)
    np.testing.assert_array_equal(plan.local_blocks(last, rows), blocks[rows])


@pytest.mark.parametrize("case", [c for c in CASES if not c.names and c.depth == 2], ids=str)
def test_what_acts_on_every_ado_alike(case):
    plan = case.plan()
    same = [t for t in plan.terms if all(plan.patterns[s.pattern].is_identity for s in t.shifts)]
    local = dataclasses.replace(plan, terms=tuple(same))
    blocks = local.common_blocks()
    for m in range(plan.n_members):
        for row in (0, plan.n_rows - 1):
            expected = local.local_blocks(m, np.array([row]))[0]
            np.testing.assert_allclose(blocks[m], expected, rtol=0, atol=1e-13)


@pytest.mark.parametrize("case", CASES, ids=str)
def test_parts_of_random_plans(case):
    plan = case.plan()
    scalars = case.scalars(plan)
    part = part_of(plan, np.arange(plan.n_rows) % 2, 0)
    columns, n_interior = part.columns, part.n_interior
    d2 = plan.d**2
    whole = plan.to_sparse(0, scalars).toarray().reshape(plan.n_rows, d2, plan.n_cols, d2)
    found = part.to_sparse(0, scalars).toarray().reshape(part.n_rows, d2, part.n_cols, d2)
    expected = whole[columns[: part.n_rows]]
    np.testing.assert_array_equal(found, expected[:, :, columns])
    assert not np.delete(expected, columns, axis=2).any()
    assert not found[:n_interior, :, part.n_rows :].any()
    assert part.patterns[0].is_identity


def test_transpose_of_an_identity_with_more_columns_than_rows():
    wide = Pattern(2, 3)
    np.testing.assert_array_equal(wide.matrix.toarray(), np.eye(2, 3))
    np.testing.assert_array_equal(wide.transpose.matrix.toarray(), np.eye(3, 2))
    assert IDENTITY.transpose is IDENTITY


def test_the_digest_knows_every_number():
    def make(scalar=1.0, operator=1.0, weight=1.0, name="f", transposed=False):
        ladder = Pattern(3, 3, LADDER.rows, LADDER.cols, weight * LADDER.values)
        term = Term(
            (Shift(1, np.array([scalar]), name),),
            Operator(operator * ones(1, 2, 2)),
            None,
            transposed,
        )
        return plan_of(term, patterns=(IDENTITY, ladder), form="real", names=(name,))

    changes = [{"scalar": 2.0}, {"operator": 2.0}, {"weight": 2.0}, {"name": "g"}]
    changes += [{"transposed": True}, {}, {}]
    digests = {tuple(make(**change).member_digests()) for change in changes}
    assert len(digests) == 6


def test_bytes_count_shared_tables_once():
    values = LADDER.values
    back = Pattern(3, 3, LADDER.cols, LADDER.rows, values)
    plan = plan_of(Term((Shift(1, ones(1)),)), patterns=(IDENTITY, LADDER, back))
    assert plan.nbytes == 2 * (4 + 4 + 8) + 8
    assert plan.state_nbytes == 3 * 4 * 16


def test_an_empty_pattern_is_not_the_identity():
    none = np.zeros(0, dtype=np.int32)
    assert Pattern(3, 3, none, none, np.zeros(0)).digest != Pattern(3, 3).digest


def test_digests_of_members_tell_equal_ones_from_others():
    plan = random_plan(np.random.default_rng(3), d=3, members=4, modes=2, depth=2)
    again = plan.take([2, 0, 0])
    first, second = plan.member_digests(), again.member_digests()
    assert len(set(first)) == 4
    assert second == [first[2], first[0], first[0]]
    assert plan.member(1).member_digests() == [first[1]]
    assert not set(first) & set(plan.adjoint().member_digests())


def test_local_blocks_keep_nothing():
    plan = random_plan(np.random.default_rng(4), d=2)
    plan.local_blocks(0)
    assert not any("matrix" in vars(pattern) for pattern in plan.patterns)
