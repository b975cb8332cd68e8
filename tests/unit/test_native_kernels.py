"""The compiled backend beyond the conformance suite: every kernel, its binary, its manners."""

from __future__ import annotations

import gc
import itertools
import shutil
import subprocess
import weakref
from pathlib import Path

import numpy as np
import pytest
from running_support import moments

from heomdask._native import _core
from heomdask._native.lower import lower
from heomdask.backends.local import local_inverse
from heomdask.backends.native import NativeBackend, lower_local
from heomdask.backends.traits import APPLY_TOLERANCE, BackendBase, Selection
from heomdask.errors import BackendUnavailable, InputError
from heomdask.generator.build import Expanded, build_plan
from heomdask.hierarchy.index_set import IndexSet, index_set
from heomdask.hierarchy.truncation import Depth
from heomdask.model.exponents import Exponents
from heomdask.plan import AnyArray, Form, Operator, Pattern, Plan, Shift, Term
from heomdask.testing.oracle import assert_close, image
from heomdask.testing.random_plans import chain_plan, random_plan, random_state

RUNS = [name for name, runs in _core.instruction_sets() if runs]
EACH = [  # those that do not run are skipped by name
    pytest.param(name, marks=pytest.mark.skipif(not runs, reason=f"no {name} on this processor"))
    for name, runs in _core.instruction_sets()
]
FORMS: tuple[Form, Form] = ("real", "complex")


def coupling(d: int, kind: str, rng: np.random.Generator) -> AnyArray:
    if kind == "site":
        return np.diag(np.eye(d)[rng.integers(d)]).astype(complex)
    if kind == "diagonal":
        return np.diag(rng.normal(size=d)).astype(complex)
    q = rng.normal(size=(d, d)) + 1j * rng.normal(size=(d, d))
    return q + q.conj().T


def member(d: int, kinds: list[str], seed: int, lindblad: int = 0) -> Expanded:
    """A random problem; operators of all seeds have their elements at the same places."""
    rng = np.random.default_rng(3)
    sites = [coupling(d, kind, rng) for kind in kinds]
    own = np.random.default_rng(seed)
    h = own.normal(size=(d, d)) + 1j * own.normal(size=(d, d))
    baths = tuple(
        (
            q,
            Exponents(
                c=own.normal(size=2) + np.array([1j, 0]) * own.normal(),
                gamma=1 + own.random(2),
                delta=abs(own.normal()),
            ),
            None,
        )
        for q in sites
    )
    jumps = tuple(own.normal(size=(d, d)) + 0j for _ in range(lindblad))
    return Expanded(h + h.conj().T, lindblad=jumps, baths=baths)


def check(plan: Plan, backend: NativeBackend) -> None:
    compiled = backend.compile(plan)
    x = random_state(np.random.default_rng(5), plan)
    out = backend.empty(compiled)
    backend.apply(compiled, backend.put(compiled, x), out)
    want, size = image(plan, x, None)
    assert_close(backend.fetch(compiled, out), want, size, APPLY_TOLERANCE["float64"])


@pytest.mark.parametrize("isa", EACH)
@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("d", [1, 2, 3, 4, 5, 6, 7, 8, 9, 13])
def test_every_size_alone_and_in_a_batch(d: int, form: Form, isa: str) -> None:
    """A coupling to a site, a diagonal and a dense one, Lindblad operators, a terminator."""
    kinds = ["site", "diagonal", "dense"]
    members = [member(d, kinds, seed, lindblad=1) for seed in range(5)]
    indices = index_set(Depth(2), members[0].n_modes, members[0].rates)
    check(build_plan(members[:1], indices, form=form), NativeBackend(threads=1, isa=isa))
    check(build_plan(members, indices, form=form), NativeBackend(threads=1, isa=isa))


@pytest.mark.parametrize("layout", ["auto", "batch"])
@pytest.mark.parametrize("kind", ["site", "diagonal", "dense"])
@pytest.mark.parametrize("d", [2, 7])
def test_one_kind_of_coupling(d: int, kind: str, layout: str) -> None:
    only = [member(d, [kind], 1)]
    plan = build_plan(only, index_set(Depth(4), only[0].n_modes, only[0].rates))
    assert plan.form == "real"
    check(plan, NativeBackend(threads=1, layout="batch" if layout == "batch" else "auto"))


@pytest.mark.parametrize("d", [3, 9, 12])
@pytest.mark.parametrize("form", FORMS)
def test_terms_of_every_kind(d: int, form: Form) -> None:
    """Random plans beyond the sizes of the suite: two-sided products are dense from d = 9 on."""
    for members in (1, 3):
        plan = random_plan(np.random.default_rng(d), d=d, members=members, form=form)
        check(plan, NativeBackend(threads=1))


@pytest.mark.parametrize("isa", EACH)
@pytest.mark.parametrize("form", ["real", "complex"])
def test_a_state_has_room_for_what_the_prediction_of_memory_takes(isa, form):
    for d, members in itertools.product((1, 2, 3, 4, 5, 8, 9), (1, 3, 9)):
        plan = random_plan(np.random.default_rng(d), d=d, members=members, form=form)
        backend = NativeBackend(threads=1, isa=isa)
        expected = plan.state_nbytes / members * backend.columns(d, members)
        assert backend.empty(backend.compile(plan)).nbytes == pytest.approx(expected)


def with_elements(d: int, which: str, real: bool, seed: int) -> Expanded:
    """A system whose H and Lindblad operator have elements at some places only."""
    rng = np.random.default_rng(seed)
    h, jump = rng.normal(size=(2, d, d)) + 1j * rng.normal(size=(2, d, d))
    mask = np.abs(np.subtract.outer(np.arange(d), np.arange(d))) <= {"band": 1, "none": 0}.get(
        which.split()[0], d
    )
    if real:
        h, jump = h.real + 0j, jump.real + 0j
    else:
        mask[:2, :2] = True  # whether H is complex is for all members to agree on
    jump = jump if "jump" in which else np.diag(np.diag(jump))
    h = (h + h.conj().T) * mask
    return Expanded(h, lindblad=(jump,), baths=member(d, ["site"], seed).baths)


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("real", [True, False])
@pytest.mark.parametrize("d", [3, 5, 7])
def test_elements_that_only_some_members_have(d: int, real: bool, form: Form) -> None:
    """A diagonal H beside dense ones takes another path when alone, with the same bits."""
    kinds = ["all jump", "none", "all", "none jump", "band", "band jump"]
    members = [with_elements(d, which, real, seed) for seed, which in enumerate(kinds)]
    indices = index_set(Depth(2), members[0].n_modes, members[0].rates)
    backend = NativeBackend(threads=1, layout="batch")
    whole = build_plan(members, indices, form=form)
    x = random_state(np.random.default_rng(5), whole)

    def applied(plan: Plan, state: AnyArray) -> AnyArray:
        compiled = backend.compile(plan)
        out = backend.empty(compiled)
        backend.apply(compiled, backend.put(compiled, np.ascontiguousarray(state)), out)
        return backend.fetch(compiled, out)

    check(whole, backend)
    together = applied(whole, x)
    for m, own in enumerate(members):
        alone = build_plan([own], indices, form=form)
        check(alone, NativeBackend(threads=1))
        assert np.array_equal(applied(alone, x[..., m : m + 1])[..., 0], together[..., m]), kinds[m]


def chain(n: int, down: bool) -> Pattern:
    """Each ADO reads the next, or the one before, with a factor of its own."""
    rows = np.arange(n - 1, dtype=np.int32) + np.int32(down)
    cols = np.arange(n - 1, dtype=np.int32) + np.int32(not down)
    return Pattern(n, n, rows, cols, np.sqrt(1.0 + np.arange(n - 1) // 2))


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("d", [2, 3, 7, 9])
def test_couplings_to_sites(d: int, form: Form) -> None:
    """Left, right, transposed or not, on one pattern or another: joined where they meet."""
    rng = np.random.default_rng(d)
    sides = [(left, transposed) for left in (True, False) for transposed in (True, False)]
    for members in (1, 3):
        terms = []
        for site, (left, transposed) in [(s, side) for s in (0, d - 1, 1) for side in sides]:
            if site == 1 and transposed:
                continue
            own = np.zeros((members, d, d))
            own[:, site, site] = rng.normal(size=members)
            shifts = [Shift(k, rng.normal(size=members)) for k in range(2) if left or k != site]
            op = Operator(own)
            pair = (op, None) if left else (None, op)
            terms.append(Term(tuple(shifts), *pair, transposed=transposed))
        plan = Plan(d, 6, 6, members, form, (chain(6, False), chain(6, True)), tuple(terms))
        check(plan, NativeBackend(threads=1))


@pytest.mark.parametrize("layout", ["auto", "batch"])
def test_commutator_with_a_site_moves_no_population(layout: str) -> None:
    """Exactly: what the row adds to the common element and the column takes is not rounded."""
    d, members = 7, [member(7, ["site", "site"], 4)]
    plan = build_plan(members, index_set(Depth(2), members[0].n_modes, members[0].rates))
    swapped = [t for t in plan.terms if t.transposed and (t.left is None) != (t.right is None)]
    only = Plan(
        d, plan.n_rows, plan.n_cols, 1, "real", plan.patterns,
        tuple(t for t in swapped if not plan.patterns[t.shifts[0].pattern].is_identity),
    )  # fmt: skip
    assert only.terms
    backend = NativeBackend(threads=1, layout="batch" if layout == "batch" else "auto")
    compiled = backend.compile(only)
    out = backend.empty(compiled)
    x = random_state(np.random.default_rng(5), only)
    backend.apply(compiled, backend.put(compiled, x), out)
    result = backend.fetch(compiled, out)
    assert result.any()
    assert not np.diagonal(result, axis1=1, axis2=2).any()


def test_several_threads_change_no_bit() -> None:
    """One block, so the threads share its rows; and many blocks, shared among the threads."""
    only = [member(4, ["site", "dense"], seed) for seed in range(20)]
    indices = index_set(Depth(7), only[0].n_modes, only[0].rates)
    for members in (only[:1], only[:3], only):
        plan = build_plan(members, indices)
        results = []
        for threads in (1, 2, 5):
            backend = NativeBackend(threads=threads)
            compiled = backend.compile(plan)
            x = backend.put(compiled, random_state(np.random.default_rng(0), plan))
            acc, one, two = (backend.empty(compiled) for _ in range(3))
            coeffs = np.tile([0.01, 0.3, -0.2, 0.7], (6, 1))
            probe = Selection.whole([0, 5], plan.d)
            probed, norms = backend.recur(compiled, x, coeffs, acc, probe, (one, two))
            dots = backend.dots(compiled, [x, acc], acc)
            results.append((backend.fetch(compiled, acc), probed, norms, dots))
        for other in results[1:]:
            for got, want in zip(other, results[0], strict=True):
                assert np.array_equal(got, want)


@pytest.mark.parametrize("layout", ["auto", "batch"])
def test_nan_reaches_the_norms(layout: str) -> None:
    only = [member(2, ["diagonal"], 1)]
    plan = build_plan(only, index_set(Depth(3), only[0].n_modes, only[0].rates))
    backend = NativeBackend(threads=1, layout="batch" if layout == "batch" else "auto")
    compiled = backend.compile(plan)
    x = random_state(np.random.default_rng(0), plan)
    x[plan.n_rows // 2, 0, 1] = np.nan
    states = [backend.empty(compiled) for _ in range(3)]
    _, norms = backend.recur(
        compiled, backend.put(compiled, x), np.ones((3, 4)), states[0],
        Selection.of([]), (states[1], states[2]),
    )  # fmt: skip
    assert np.all(np.isnan(norms))


def test_the_interpreter_runs_on_meanwhile() -> None:
    """A long segment holds no lock: another thread counts while it runs."""
    only = [member(7, ["site"] * 3, seed) for seed in range(8)]
    plan = build_plan(only, index_set(Depth(3), only[0].n_modes, only[0].rates))
    backend = NativeBackend(threads=1)
    compiled = backend.compile(plan)
    states = [backend.empty(compiled) for _ in range(4)]
    coeffs = np.tile([0.1, 0.0, 0.0, 0.0], (2000, 1))
    arguments = (compiled, states[0], coeffs, states[1], Selection.of([]), (states[2], states[3]))
    assert sum(1 for _ in moments(backend.recur, arguments, every=0.001)) > 10


def test_instruction_sets_are_chosen_and_refused() -> None:
    assert NativeBackend(threads=1).info.isa == RUNS[0]
    assert NativeBackend(threads=1, isa="generic").info.isa == "generic"
    with pytest.raises(InputError, match=r"`isa` must be one of .*got 'neon'"):
        NativeBackend(isa="neon")
    missing = [name for name, runs in _core.instruction_sets() if not runs]
    for name in missing:
        with pytest.raises(BackendUnavailable, match=f"{name}.*use one of"):
            NativeBackend(isa=name)


def test_memory_is_reported() -> None:
    only = [member(3, ["site"], seed) for seed in range(9)]
    small, large = (
        NativeBackend(threads=1).compile(
            build_plan(only, index_set(Depth(depth), only[0].n_modes, only[0].rates))
        )
        for depth in (2, 8)
    )
    links = sum(len(p.entries()[0]) for p in large.plan.patterns if not p.is_identity)
    assert small.nbytes < large.nbytes
    assert large.nbytes > 8 * links / 2


def test_plan_of_rates_only() -> None:
    """No operator, so no table."""
    term = Term((Shift(0, np.array([2.0, 3.0])),))
    pattern = Pattern(3, 3, np.arange(3, dtype=np.int32), np.arange(3, dtype=np.int32), np.ones(3))
    check(Plan(3, 3, 3, 2, "real", (pattern,), (term,)), NativeBackend(threads=1))


def test_pattern_with_repeated_entries() -> None:
    """Two entries at one place add up, on the diagonal too."""
    twice = Pattern(
        2, 2, np.array([0, 0, 1], np.int32), np.array([0, 0, 1], np.int32), np.array([1.0, 2, 4])
    )
    term = Term((Shift(0, np.ones(1)),))
    check(Plan(2, 2, 2, 1, "real", (twice,), (term,)), NativeBackend(threads=1))
    left = Term((Shift(0, np.ones(1)),), left=Operator(np.ones((1, 2, 2))))
    check(Plan(2, 2, 2, 1, "real", (twice,), (left,)), NativeBackend(threads=1))


SOURCES = Path(__file__).parents[2] / "heomdask/_native/src"
WIDE = {
    "avx2": ["-mavx2", "-mfma"],
    "avx512": ["-mavx2", "-mfma", "-mavx512f", "-mavx512dq", "-mavx512vl", "-mavx512bw"],
}


def test_kernels_use_no_library_code() -> None:
    """An inline function of a library, compiled for wide registers, might run anywhere."""
    kernels = [p for p in sorted(SOURCES.glob("*.inl.hpp")) if p.name != "recur.inl.hpp"]
    assert len(kernels) > 5
    for path in [*kernels, SOURCES / "vec.hpp", SOURCES / "number.hpp"]:
        source = path.read_text(encoding="utf-8")
        assert "std::" not in source, path.name
        assert "namespace {" in source, path.name


@pytest.mark.slow
@pytest.mark.parametrize("isa", WIDE)
@pytest.mark.skipif(
    not (shutil.which("g++") and shutil.which("nm") and len(_core.instruction_sets()) > 1),
    reason="needs g++, nm and an x86-64 processor",
)
def test_objects_with_wide_registers_share_no_symbol(isa: str, tmp_path: Path) -> None:
    """A weak symbol would let the linker use such code everywhere."""
    target = tmp_path / "kernels.o"
    source = SOURCES / f"kernels_{isa}.cpp"
    compiler = ["g++", "-std=c++17", "-O1", "-w", "-fPIC", *WIDE[isa]]
    subprocess.run([*compiler, "-c", str(source), "-o", str(target)], check=True)
    listed = subprocess.run(["nm", "-C", str(target)], capture_output=True, text=True, check=True)
    weak = [line for line in listed.stdout.splitlines() if line[17:18] in "VWuvw"]
    assert f"heomdask::kernels_{isa}" in listed.stdout
    assert not weak


@pytest.mark.parametrize("kind", ["site", "dense"])
def test_tables_die_with_their_hierarchy(kind: str) -> None:
    ados = IndexSet(Depth(2).bounds(2, None))
    plan = build_plan([member(4, [kind], 0)], ados)
    tables = [lower(plan), lower(plan)]
    links = [t.crossings[1] if t.crossings else t.groups[0][1] for t in tables]
    assert links[0] is links[1]  # made once
    watched = [weakref.ref(ados), *map(weakref.ref, plan.patterns), weakref.ref(links[0])]
    del ados, plan, tables, links
    gc.collect()
    assert not any(ref() is not None for ref in watched)


def test_local_solve_with_one_basis_never_leaves_the_kernels(monkeypatch) -> None:
    monkeypatch.setattr(BackendBase, "solve_local", None)
    backend, plan = NativeBackend(threads=1), chain_plan(5, "real")
    compiled = backend.compile(plan)
    x, out = backend.put(compiled, np.ones((plan.n_cols, 5, 5))), backend.empty(compiled)
    backend.solve_local(compiled, 0.5, x, out)
    assert backend.fetch(compiled, out).all()


def test_local_solve_keeps_nothing_of_a_plan_that_is_gone() -> None:
    backend, plan = NativeBackend(threads=1), chain_plan(3, "complex")
    compiled = backend.compile(plan)
    x = backend.put(compiled, np.ones((plan.n_cols, 3, 3)))
    backend.solve_local(compiled, 0.5, x, x)
    kept = weakref.ref(local_inverse(compiled, plan, 0.5))
    assert kept() is not None
    del compiled
    gc.collect()
    assert kept() is None


def test_local_solve_refuses_the_basis_of_another_plan() -> None:
    backend, small, large = NativeBackend(threads=1), chain_plan(3, "real"), chain_plan(4, "real")
    inverse = lower_local(local_inverse(backend, small, 0.5), "generic")
    assert inverse is not None
    compiled = backend.compile(large)
    x = backend.put(compiled, np.ones((large.n_cols, 4, 4)))
    with pytest.raises(ValueError, match="of another plan"):
        compiled.engine.solve_local(inverse, x, x)
    with pytest.raises(ValueError, match="shapes"):
        _core.LocalSolve("generic", [(np.eye(4), np.eye(4), np.ones((1, 2)), np.ones((1, 2)))])


@pytest.mark.parametrize("isa", EACH)
def test_sums_of_every_length(isa: str) -> None:
    """Several units are summed side by side; what is left over comes one by one."""
    for rows in range(1, 11):
        patterns = (Pattern(rows, rows, label="identity"),)
        plan = Plan(3, rows, rows, 1, "real", patterns, (Term((Shift(0, np.array([1.0])),)),))
        backend = NativeBackend(threads=1, isa=isa)
        compiled = backend.compile(plan)
        hosts = [random_state(np.random.default_rng(k), plan) for k in range(3)]
        states = [backend.put(compiled, h) for h in hosts]
        dots = backend.dots(compiled, states, states[0])[:, 0]
        np.testing.assert_allclose(dots, [np.sum(h * hosts[0]) for h in hosts], atol=1e-12)
        backend.combine(compiled, states[0], [1.0, 2.0, -3.0], states)
        got = backend.fetch(compiled, states[0])
        np.testing.assert_allclose(got, hosts[0] + 2 * hosts[1] - 3 * hosts[2], atol=1e-12)
