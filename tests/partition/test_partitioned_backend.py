"""Parts of a group do together what one backend does alone."""

from __future__ import annotations

from threading import Barrier

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from links_support import KINDS, group
from solver_problems import SX, first_state, plan_of, same_shape, spin_boson, stiff, trimer

from heomdask.backends.native import NativeBackend
from heomdask.backends.numpy_ import NumpyBackend
from heomdask.backends.traits import Selection
from heomdask.errors import PartitionFailed
from heomdask.generator.build import build_plan
from heomdask.hierarchy.numbering import Numbering
from heomdask.hierarchy.section import Section
from heomdask.hierarchy.truncation import Depth
from heomdask.partition.backend import PartitionedBackend
from heomdask.partition.coupling import work
from heomdask.partition.links.in_process import in_process, together
from heomdask.partition.part import part_of, section_part
from heomdask.partition.split import Bisection, Levels, Lexicographic
from heomdask.plan import Plan
from heomdask.solvers import propagate
from heomdask.solvers.bounds import _boxes, field_of_values
from heomdask.testing.partitioned import Together
from heomdask.testing.random_plans import random_plan, random_state

STRATEGIES = (Lexicographic, Levels, Bisection)


def applied(backend, plan: Plan, x: np.ndarray, scalars: np.ndarray | None = None) -> np.ndarray:
    compiled = backend.compile(plan)
    out = backend.empty(compiled)
    backend.apply(compiled, backend.put(compiled, x), out, scalars=scalars)
    return backend.fetch(compiled, out)


@settings(max_examples=40)
@given(
    seed=st.integers(0, 2**20),
    d=st.integers(1, 4),
    members=st.sampled_from([1, 3]),
    form=st.sampled_from(["real", "complex"]),
    parts=st.integers(1, 8),
    names=st.sampled_from([(), ("f",)]),
)
def test_random_plans_scattered_over_parts(seed, d, members, form, parts, names):
    rng = np.random.default_rng(seed)
    plan = random_plan(rng, d=d, members=members, form=form, names=names)
    x, scalars = random_state(rng, plan), rng.normal(size=(1, members)) if names else None
    backend = Together([NumpyBackend()] * parts, lambda n: rng.integers(parts, size=n))
    want = applied(NumpyBackend(), plan, x, scalars)
    got = applied(backend, plan, x, scalars)
    assert np.max(np.abs(got - want)) <= 1e-14 * (1 + np.max(np.abs(want)))


def owner_by(strategy, expanded, depth: int, parts: int) -> np.ndarray:
    numbering = Numbering(Depth(depth).bounds(expanded.n_modes))
    split = strategy(numbering, parts)
    return split.owner(numbering.unrank(np.arange(numbering.n_ado)))


@pytest.mark.parametrize("strategy", STRATEGIES)
@pytest.mark.parametrize("parts", [1, 2, 3, 8])
@pytest.mark.parametrize("members", [1, 3])
def test_site_projectors_to_the_last_bit(strategy, parts, members):
    """The compiled kernels cancel what does not travel, and add links in the order of terms."""
    plan = plan_of([trimer(seed=s) for s in range(members)], depth=3)
    x, owner = (
        random_state(np.random.default_rng(parts), plan),
        owner_by(strategy, trimer(), 3, parts),
    )

    def local() -> NativeBackend:
        return NativeBackend(threads=1, layout="batch")

    want = applied(local(), plan, x)
    got = applied(Together([local() for _ in range(parts)], lambda _: owner), plan, x)
    assert np.array_equal(got, want)


RUNS = {
    "faber": (plan_of([trimer()], depth=4), np.linspace(0, 600, 7), {}),
    "stiff": (plan_of([stiff()], depth=3), np.linspace(0, 0.5, 4), {}),
    "taylor": (plan_of([spin_boson()], depth=5), np.linspace(0, 2, 5), {"method": "taylor"}),
    "members": (plan_of([trimer(seed=s) for s in range(3)], depth=3), np.linspace(0, 300, 4), {}),
    "rk": (plan_of([spin_boson()], depth=4), np.linspace(0, 2, 5), {"method": "rk"}),
    "drive": (
        plan_of([spin_boson(drive=SX)], depth=4), np.linspace(0, 2, 5),
        {"drives": same_shape(lambda t: np.sin(3 * t))},
    ),
}  # fmt: skip


def run_parts(make, plan: Plan, owner: np.ndarray, parts: int, run, links=None):
    """``run(backend, compiled, start)`` on every part, each its own solver."""
    links = links or in_process(parts)

    def on(rank: int):
        backend = PartitionedBackend(make(), links[rank])
        compiled = backend.compile(part_of(plan, owner, rank))
        start = backend.put(compiled, first_state(plan)[compiled.plan.columns])
        return run(backend, compiled, start)

    return together(links, on)


@pytest.mark.parametrize("name", RUNS)
@pytest.mark.parametrize("parts", [2, 5])
@pytest.mark.parametrize("make", [NumpyBackend, lambda: NativeBackend(threads=1)])
def test_trajectories_are_those_of_one_backend(name, parts, make):
    plan, times, how = RUNS[name]
    probe = Selection.whole([0, plan.n_rows - 1], plan.d)

    def run(backend, compiled, start):
        return propagate(backend, compiled, start, times, probe, tol=1e-8, **how)

    backend = make()
    compiled = backend.compile(plan)
    want = run(backend, compiled, backend.put(compiled, first_state(plan)))
    owner = np.random.default_rng(3).integers(parts, size=plan.n_rows)
    every = run_parts(make, plan, owner, parts, run)
    assert all(o.good for o in want.outcomes)
    for got in every:
        assert got.outcomes == want.outcomes
        assert [s["applications"] for s in got.stats] == [s["applications"] for s in want.stats]
        assert np.max(np.abs(got.probed - want.probed)) < 1e-12
        assert np.array_equal(got.probed, every[0].probed)


@pytest.mark.parametrize("kind", KINDS)
def test_trajectories_are_the_same_whatever_lies_between_the_parts(kind, folder):
    plan, times, how = RUNS["members"]
    probe, owner = Selection.whole([0], plan.d), np.arange(plan.n_rows) % 3

    def run(backend, compiled, start):
        return propagate(backend, compiled, start, times, probe, tol=1e-8, **how).probed

    want = run_parts(NativeBackend, plan, owner, 3, run)
    with group(kind, 3, folder) as links:
        for got in run_parts(NativeBackend, plan, owner, 3, run, links):
            assert np.array_equal(got, want[0])


@pytest.mark.parametrize("owner", [[0] * 20, [2] * 20, list(range(20)), [3] * 19 + [0]], ids=str)
def test_empty_parts_and_parts_of_one_ado(owner):
    plan = plan_of([trimer()], depth=3)
    parts = max(owner) + 2  # the last is empty
    times, probe = np.linspace(0, 300, 4), Selection.whole([0], 3)

    def run(backend, compiled, start):
        return propagate(backend, compiled, start, times, probe, tol=1e-8, method="faber")

    backend = NumpyBackend()
    compiled = backend.compile(plan)
    want = run(backend, compiled, backend.put(compiled, first_state(plan)))
    for got in run_parts(NumpyBackend, plan, np.array(owner), parts, run):
        assert np.max(np.abs(got.probed - want.probed)) < 1e-12
        np.testing.assert_allclose(got.bounds.imag, want.bounds.imag, rtol=1e-12)


def test_bounds_are_asked_of_all_parts_whatever_one_of_them_forgot():
    plan = plan_of([trimer(seed=9)], depth=3)
    want = field_of_values(NumpyBackend(), plan)

    def run(backend, compiled, start):
        first = field_of_values(backend, compiled.plan)
        backend.dots(compiled, [start], start)  # all are here
        for key in list(_boxes):
            if key[0].notes.startswith("part 0 "):
                _boxes.pop(key, None)
        backend.dots(compiled, [start], start)
        return first, field_of_values(backend, compiled.plan)

    for twice in run_parts(NumpyBackend, plan, np.arange(plan.n_rows) % 3, 3, run):
        for got in twice:
            np.testing.assert_allclose(got.centre, want.centre, rtol=1e-12)
            np.testing.assert_allclose(got.real, want.real, rtol=1e-12)
            np.testing.assert_allclose(got.imag, want.imag, rtol=1e-12)


@pytest.mark.parametrize("strategy", STRATEGIES)
def test_no_part_ever_sees_the_whole(strategy):
    """From tuples to trajectories, each part from its own rows."""
    expanded, times, probe = trimer(), np.linspace(0, 300, 4), Selection.whole([0, 30], 3)
    numbering = Numbering(Depth(4).bounds(expanded.n_modes))
    costs = work(build_plan([expanded], Section(numbering, np.arange(9))))
    links = in_process(3)

    def on(rank: int):
        split = strategy(numbering, 3, costs)
        section = Section(numbering, split.rows(rank))
        part = section_part(build_plan([expanded], section), section, split)
        backend = PartitionedBackend(NativeBackend(threads=1), links[rank])
        compiled = backend.compile(part)
        host = np.zeros((part.n_cols, 3, 3))
        host[part.columns == 0, 0, 0] = 1.0
        return propagate(backend, compiled, backend.put(compiled, host), times, probe, tol=1e-8)

    backend, plan = NativeBackend(threads=1), plan_of([expanded], depth=4)
    compiled = backend.compile(plan)
    start = backend.put(compiled, first_state(plan))
    want = propagate(backend, compiled, start, times, probe, tol=1e-8)
    for got in together(links, on):
        assert np.max(np.abs(got.probed - want.probed)) < 1e-12


def test_a_segment_is_reduced_once():
    plan, degree, counted = plan_of([trimer()], depth=3), 20, []

    def run(backend, compiled, start):
        links = backend._links
        counted.append(links._number)
        table = np.zeros((degree + 1, 4))
        table[1:, 0] = 1.0
        work, probe = (backend.empty(compiled), backend.empty(compiled)), Selection.whole([0], 3)
        found = backend.recur(compiled, start, table, None, probe, work)
        counted.append(links._number)
        return found

    run_parts(NumpyBackend, plan, np.zeros(plan.n_rows, dtype=int), 1, run)
    assert counted[1] - counted[0] == degree + 2  # an exchange per term, two reductions


def test_what_one_part_raises_ends_all():
    plan, told, compiled_all = plan_of([trimer()], depth=3), [], Barrier(3)

    def run(backend, compiled, start):
        compiled_all.wait(timeout=60)  # compiling is an exchange, which an early end would end
        if compiled.plan.owners[0] == 0:
            raise ZeroDivisionError("on purpose")
        with pytest.raises(PartitionFailed) as caught:
            propagate(backend, compiled, start, [0, 100], Selection.whole([0], 3))
        told.append(str(caught.value))

    with pytest.raises(ZeroDivisionError, match="on purpose"):
        run_parts(NumpyBackend, plan, np.arange(plan.n_rows) % 3, 3, run)
    assert told == ["part 0 ended: ZeroDivisionError: on purpose"] * 2


def test_a_whole_plan_is_refused():
    with pytest.raises(ValueError, match="a `Part`"):
        PartitionedBackend(NumpyBackend(), in_process(1)[0]).compile(plan_of([trimer()], depth=1))
