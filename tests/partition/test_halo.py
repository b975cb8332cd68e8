"""Parts of a plan: rows, those of the adjoint, and exactly the elements they read of others."""

from __future__ import annotations

import numpy as np
import pytest
from solver_problems import plan_of, spin_boson, trimer

from heomdask.backends.native import NativeBackend
from heomdask.backends.numpy_ import NumpyBackend
from heomdask.backends.traits import Selection
from heomdask.generator.build import Expanded, build_plan
from heomdask.hierarchy.index_set import IndexSet
from heomdask.hierarchy.numbering import Numbering
from heomdask.hierarchy.section import Section
from heomdask.hierarchy.truncation import Depth
from heomdask.model.exponents import Exponents
from heomdask.partition.coupling import support, work
from heomdask.partition.halo import answer, asked, reads
from heomdask.partition.part import part_of, section_part
from heomdask.partition.split import Bisection, Levels, Lexicographic
from heomdask.plan import Plan
from heomdask.testing.oracle import assert_close, image, touched
from heomdask.testing.random_plans import CASES, random_state

SZ = np.diag([1.0, -1.0]).astype(complex)


def blocks() -> Expanded:
    """Two modes that a lateral rate joins, and one more."""
    pair = Exponents(c=[0.1, 0.02], gamma=[1.0, 1.0], lateral=((0, 1, 0.3),))
    return Expanded(SZ.astype(complex), (), (), ((SZ, pair, None),))


def owners(plan: Plan, parts: int, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).integers(parts, size=plan.n_rows)


def pattern_digests(plan: Plan) -> set[bytes]:
    return {p.digest for p in plan.patterns if p.is_identity or len(p.entries()[0])}


@pytest.mark.parametrize("strategy", [Lexicographic, Levels, Bisection])
@pytest.mark.parametrize("make", [trimer, blocks])
def test_rows_made_alone_are_those_cut_from_the_whole(strategy, make):
    expanded = make()
    numbering = Numbering(Depth(4).bounds(expanded.n_modes))
    split = strategy(numbering, 3)
    whole = build_plan([expanded], IndexSet(numbering.bounds))
    owner = split.owner(numbering.unrank(np.arange(numbering.n_ado)))
    lateral = [(k, j) for k, j, _ in expanded.lateral]
    for number in range(3):
        section = Section(numbering, split.rows(number), lateral)
        alone = section_part(build_plan([expanded], section), section, split)
        cut = part_of(whole, owner, number)
        assert np.array_equal(alone.columns, cut.columns)
        assert np.array_equal(alone.owners, cut.owners)
        assert (alone.n_rows, alone.n_interior) == (cut.n_rows, cut.n_interior)
        for one, other in [(alone, cut), (alone.adjoint(), cut.adjoint())]:
            assert pattern_digests(one) == pattern_digests(other)
            x = random_state(np.random.default_rng(1), one)
            assert np.array_equal(image(one, x)[0], image(other, x)[0])


def test_terms_do_not_depend_on_the_rows():
    """The part of the first ADO alone has no link down; its plan has the terms of all others."""
    expanded = trimer()
    numbering = Numbering(Depth(2).bounds(expanded.n_modes))
    first, other = (build_plan([expanded], Section(numbering, rows)) for rows in ([0], [5, 6]))
    shapes = [[len(t.shifts) for t in plan.terms] for plan in (first, other)]
    assert shapes[0] == shapes[1]


@pytest.mark.parametrize("case", [c for c in CASES if 0 < c.depth < 6][::2], ids=str)
@pytest.mark.parametrize("turned", [False, True])
def test_parts_are_rows_of_the_whole_and_of_its_adjoint(case, turned):
    whole = case.plan()
    owner, x, scalars = owners(whole, 3), case.state(whole), case.scalars(whole)
    want, _ = image(whole.adjoint() if turned else whole, x, scalars)
    for number in range(4):  # the last is empty
        part = part_of(whole, owner, number)
        plan = part.adjoint() if turned else part
        got, _ = image(plan, x[part.columns], scalars)
        assert np.max(np.abs(got - want[part.columns[: part.n_rows]]), initial=0.0) < 1e-12
        bare = x[part.columns]
        bare[part.n_rows :] = 0
        inner = slice(0, part.n_interior)
        assert np.array_equal(image(plan, bare, scalars)[0][inner], got[inner])


def received(part, x: np.ndarray, scalars: np.ndarray | None, backend: str) -> np.ndarray:
    """A state with own rows and exactly what arrives; the rest of the halo is poison.

    The compiled kernels cancel ``Q X - X Q`` before they multiply; where numpy subtracts the two
    products, an element that cancels must be of the size of the others.
    """
    poisoned = x[part.columns].copy()
    poisoned[part.n_rows :] = 1e30
    if backend == "numpy":
        cancelled = touched(part)
        cancelled[: part.n_rows] = False
        poisoned[cancelled] = 0.7
    for s in reads(part, support(part)).values():
        poisoned[s.ado, s.row, s.col] = x[part.columns][s.ado, s.row, s.col]
    return poisoned


@pytest.mark.parametrize("case", [c for c in CASES if 0 < c.depth < 6], ids=str)
def test_what_is_not_sent_does_not_matter(case):
    whole = case.plan()
    owner, x, scalars = owners(whole, 3), case.state(whole), case.scalars(whole)
    want, size = image(whole, x, scalars)
    backend = NumpyBackend()
    for number in range(3):
        part = part_of(whole, owner, number)
        compiled = backend.compile(part)
        out = backend.empty(compiled)
        poisoned = backend.put(compiled, received(part, x, scalars, "numpy"))
        backend.apply(compiled, poisoned, out, scalars=scalars)
        got = backend.fetch(compiled, out)[: part.n_rows]
        assert_close(got, want[part.columns[: part.n_rows]], size, 1e-12)


@pytest.mark.parametrize("form", ["real", "complex"])
@pytest.mark.parametrize("strategy", [Lexicographic, Levels, Bisection])
def test_what_is_not_sent_of_site_projectors_may_be_anything(strategy, form):
    whole = plan_of([trimer(seed=s) for s in range(3)], depth=4, form=form)
    split = strategy(Numbering(Depth(4).bounds(3)), 3)
    owner = split.owner(split.numbering.unrank(np.arange(whole.n_rows)))
    x = random_state(np.random.default_rng(3), whole)
    backend = NativeBackend(threads=1)
    everything = backend.compile(whole)
    out = backend.empty(everything)
    backend.apply(everything, backend.put(everything, x), out)
    want = backend.fetch(everything, out)
    sent = 0
    for number in range(3):
        part = part_of(whole, owner, number)
        compiled = backend.compile(part)
        out = backend.empty(compiled)
        poisoned = received(part, x, None, "native")
        sent += np.count_nonzero(poisoned[part.n_rows :] != 1e30)
        backend.apply(compiled, backend.put(compiled, poisoned), out)
        got = backend.fetch(compiled, out)[: part.n_rows]
        assert_close(got, want[part.columns[: part.n_rows]], np.max(np.abs(want)), 1e-14)
    assert sent > 0


@pytest.mark.parametrize("form", ["real", "complex"])
def test_a_site_projector_reads_one_row_and_one_column(form):
    plan = plan_of([trimer()], depth=2, form=form)
    counts = dict(zip([p.label for p in plan.patterns], support(plan).sum(axis=1), strict=True))
    for k in range(3):
        assert counts[f"up_{k}"] == 2 * 3 - 2
        assert counts[f"down_{k}"] == 2 * 3 - 1
    sigma_z = plan_of([spin_boson()], depth=2, form=form)
    counts = dict(zip([p.label for p in sigma_z.patterns], support(sigma_z).sum(1), strict=True))
    assert counts["up_0"] == 2
    assert counts["down_0"] == 4


def test_members_read_what_any_of_them_reads():
    plan = next(c for c in CASES if c.members == 8 and c.d == 3).plan()
    each = [support(plan.member(m)) for m in range(plan.n_members)]
    assert np.array_equal(support(plan), np.any(each, axis=0))


def test_work_counts_what_is_not_zero():
    found = work(plan_of([trimer()], depth=2, form="complex"))
    assert found.link == np.mean([4, 4, 4, 5, 5, 5])
    whole = plan_of([trimer()], depth=0, form="complex")
    assert found.own == whole.to_sparse().count_nonzero()


def test_halo_is_ascending_unique_and_answered_by_its_owner():
    whole = plan_of([trimer()], depth=5)
    owner = owners(whole, 4)
    parts = [part_of(whole, owner, number) for number in range(4)]
    for part in parts:
        for source, wanted in reads(part, support(part)).items():
            request = asked(part, wanted)
            flat = (request[0] * whole.d + request[1]) * whole.d + request[2]
            assert np.all(np.diff(flat) > 0)
            found = answer(parts[source], request)
            assert np.array_equal(parts[source].columns[found.ado], request[0])
            assert np.all(found.ado < parts[source].n_rows)
    with pytest.raises(ValueError, match="does not own"):
        answer(parts[0], asked(parts[0], Selection.whole([parts[0].n_rows], 3)))


def test_random_numbers_belong_to_ados_and_not_to_parts():
    whole = plan_of([trimer()], depth=3)
    want, owner = whole.random_state(5), owners(whole, 3)
    for number in range(4):
        part = part_of(whole, owner, number)
        assert np.array_equal(part.random_state(5), want[part.columns])


def test_a_part_has_no_parts():
    whole = plan_of([trimer()], depth=2)
    part = part_of(whole, owners(whole, 2), 0)
    with pytest.raises(ValueError, match="only a whole plan"):
        part_of(part, np.zeros(part.n_rows, dtype=int), 0)
