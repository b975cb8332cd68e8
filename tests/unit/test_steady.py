"""`hd.steady_state`: against dense null spaces, QuTiP and evolution; its answers and refusals."""

from __future__ import annotations

import dataclasses
import tracemalloc
import weakref
from unittest import mock

import numpy as np
import pytest
import scipy.linalg
from hypothesis import given, settings
from hypothesis import strategies as st
from solver_problems import SX, SZ, plan_of, spin_boson, stiff, trimer

import heomdask as hd
from heomdask import memory
from heomdask.backends import local
from heomdask.backends.local import Blocks, factorise
from heomdask.backends.local import Shifted as OneBasis
from heomdask.backends.native import NativeBackend
from heomdask.backends.numpy_ import NumpyBackend
from heomdask.generator.build import build_plan
from heomdask.preparation import prepare
from heomdask.solvers import fraction, modes, steady
from heomdask.solvers.fraction import Fraction, levels_of
from heomdask.solvers.gmres import Shifted, gmres, orthogonalise
from heomdask.solvers.modes import Rightmost
from heomdask.testing.strategies import shapes

PROBLEM = hd.Problem(
    0.25 * SZ + 0.5 * SX, [hd.Coupling(SZ, hd.DrudeLorentz(lam=0.1, gamma=0.5, T=0.5))]
)
EQUAL = hd.Problem(1e-3 * np.eye(2), PROBLEM.couplings)
HOW = {"depth": 4, "expansion": hd.Pade(1)}


def solved(plan, backend, **how):
    compiled = backend.compile(plan)
    found = steady.stationary(backend, compiled, **({"tol": 1e-10} | how))
    return found, backend.fetch(compiled, found.state)[..., 0]


def dense(plan):
    """Eigenvalues without the one of the steady state, and that state."""
    g = plan.to_sparse().toarray()
    values, vectors = scipy.linalg.eig(g)
    at = np.argmin(np.abs(values))
    x = vectors[:, at].reshape(plan.n_rows, plan.d, plan.d)
    return np.delete(values, at), x / np.trace(x[0])


@pytest.mark.parametrize("form", ["real", "complex"])
@pytest.mark.parametrize("backend", [NumpyBackend(), NativeBackend(threads=1)], ids=["np", "c"])
@pytest.mark.parametrize(
    ("problem", "depth"), [(spin_boson(), 6), (stiff(), 3), (trimer(), 3)], ids=["sb", "stiff", "3"]
)
def test_null_vector(problem, depth, backend, form):
    plan = plan_of([problem], depth, form)
    found, x = solved(plan, backend)
    others, expected = dense(plan)
    assert found.outcome.good
    assert np.max(np.abs(x - expected)) < 1e-9
    assert found.pair.value.real == pytest.approx(others.real.max(), rel=0.2)


@settings(max_examples=25, deadline=None)
@given(
    shape=shapes(constant=True, largest=30),
    core=st.integers(0, 30),
    room=st.sampled_from([0, 5, steady.BLOCK_STATES]),
)
def test_random_problem_is_solved_or_its_trouble_is_named(shape, core, room):
    plan = plan_of(shape.members(1), shape.depth)
    others, expected = dense(plan)
    with (
        mock.patch.object(fraction, "CORE_UNKNOWNS", core * plan.d**2),
        mock.patch.object(steady, "BLOCK_STATES", room),
    ):
        found, x = solved(plan, NumpyBackend(), tol=1e-8)
    rate = max(np.abs(others), default=1.0)
    nearest, right = min(np.abs(others), default=1.0), max(others.real, default=-1.0)
    if nearest < 1e-11 * rate:
        assert found.outcome is hd.Outcome.NOT_UNIQUE
    elif right > 1e-3 * rate:
        assert found.outcome is hd.Outcome.UNSTABLE or not found.pair.settled
    elif found.outcome.good:
        size = max(np.max(np.abs(expected)), 1.0)
        assert np.max(np.abs(x - expected)) < 1e-6 * size
    else:
        assert found.outcome is not hd.Outcome.NOT_FINITE
        assert nearest < 1e-6 * rate or right > 0


def chain():
    """One mode, so that each level is one row."""
    return dataclasses.replace(trimer(), baths=trimer().baths[:1])


@pytest.mark.parametrize(
    ("expanded", "depth", "core"), [(spin_boson(), 3, 1000), (chain(), 5, 0)], ids=["core", "chain"]
)
def test_fraction_is_exact_with_all_rows_in_the_core_or_one_in_each_level(expanded, depth, core):
    plan = plan_of([expanded], depth)
    backend, d = NumpyBackend(), plan.d
    operator = Shifted(backend, backend.compile(plan), 0.3)
    with mock.patch.object(fraction, "CORE_UNKNOWNS", core):
        exact = Fraction(operator, levels_of(plan, 1e9), 1.0)
    assert len(exact.inverses) == (1 if core else depth + 1)
    rhs = np.random.default_rng(0).normal(size=(plan.n_rows, d, d))
    rhs[0] -= np.trace(rhs[0]) / d * np.eye(d)
    b, x = backend.put(operator.compiled, rhs), operator.empty()
    assert gmres(operator, exact, b, x, target=1e-11, most=10) < 1e-11
    assert operator.applications <= 3


def test_rows_that_lateral_links_join_are_solved_together():
    """Three damped modes: up to eight rows of a level turn into each other."""
    bath = hd.UnderdampedBrownian(lam=0.02, gamma=0.05, w0=1.0, T=0.5)
    H = np.diag([0.0, 0.2, 0.5]) + 0.1 * (np.eye(3, k=1) + np.eye(3, k=-1))
    problem = hd.Problem(H, [hd.Coupling(np.diag(row), bath) for row in np.eye(3)])
    prepared = prepare(problem, depth=3, expansion=hd.Pade(0))
    plan = build_plan([prepared.expanded], prepared.index_set)
    with mock.patch.object(fraction, "CORE_UNKNOWNS", 9):
        together = solved(plan, NativeBackend(threads=1))[0].stats["applications_solve"]
        with mock.patch.object(fraction, "LARGEST_CLUSTER", 9):
            alone = solved(plan, NativeBackend(threads=1))[0].stats["applications_solve"]
    assert together < 0.4 * alone


def test_orthogonalising_takes_two_reductions_and_says_what_is_left(monkeypatch):
    plan, backend = plan_of([spin_boson()], 3), NumpyBackend()
    operator = Shifted(backend, backend.compile(plan))
    rng, calls = np.random.default_rng(3), []
    basis = [backend.put(operator.compiled, rng.normal(size=(plan.n_rows, 2, 2))) for _ in range(3)]
    operator.sum_of(basis[0], [1 / operator.norm(basis[0])], [basis[0]])
    for k in (1, 2):
        assert orthogonalise(operator, basis[:k], basis[k])[1] > 0
    w = operator.empty()
    operator.sum_of(w, [1.0, -2.0, 3.0], basis)
    copy = w.copy()
    assert orthogonalise(operator, basis, copy)[1] == 0.0  # in their span
    w += 1e-6 * backend.put(operator.compiled, rng.normal(size=(plan.n_rows, 2, 2)))
    before, dots = w.copy(), backend.dots
    monkeypatch.setattr(backend, "dots", lambda *given: calls.append(1) or dots(*given))
    along, left = orthogonalise(operator, basis, w)
    assert len(calls) == 2
    vectors = np.array([v.ravel() for v in [*basis, w]])
    np.testing.assert_allclose(vectors @ vectors.T, np.eye(4), atol=1e-14)
    np.testing.assert_allclose([*along, left] @ vectors, before.ravel(), atol=1e-14)


def test_local_solve_keeps_one_number_per_ado_or_shares_its_blocks():
    uniform = factorise(plan_of([trimer()], 3), 0, 0.1)
    assert isinstance(uniform, OneBasis)
    assert uniform.shifts.shape == (20,)
    assert 5 <= len(uniform.values) <= 9  # of a pair of conjugate modes only one is kept
    jordan = np.array([[0, 1], [0, 0]], dtype=complex)
    exceptional = dataclasses.replace(spin_boson(), hamiltonian=0.25 * SX, lindblad=(jordan,))
    plan = plan_of([exceptional], 3)
    solver = factorise(plan, 0, 0.1)
    x = np.random.default_rng(1).normal(size=(plan.n_rows, 4))
    blocks = plan.local_blocks(0) - 0.1 * np.eye(4)
    np.testing.assert_allclose(np.einsum("nij,nj->ni", blocks, solver(x)), x, atol=1e-9)


def test_each_row_meets_the_inverse_of_its_own_block():
    rng = np.random.default_rng(2)
    inverses, which = rng.normal(size=(400, 4, 4)), rng.integers(400, size=1000)
    x = rng.normal(size=(1000, 4))
    blocks = Blocks.of(inverses, which)
    np.testing.assert_allclose(blocks(x), np.einsum("nij,nj->ni", inverses[which], x), atol=1e-12)
    assert np.array_equal(which[blocks.order], np.sort(which))  # one slice a block, no search


def test_different_blocks_that_do_not_fit_are_refused(monkeypatch):
    jordan = np.array([[0, 1], [0, 0]], dtype=complex)
    problem = dataclasses.replace(spin_boson(), hamiltonian=0.25 * SX, lindblad=(jordan,))
    monkeypatch.setattr(local, "WORST_CONDITION", 0.0)
    monkeypatch.setattr(memory, "available", lambda: 1)
    monkeypatch.setattr(memory, "SMALL", 0)
    with pytest.raises(hd.TooLarge, match="different blocks of 4 x 4"):
        factorise(plan_of([problem], 3), 0, 0.1)


def test_nothing_but_a_lindblad_operator():
    decay = np.array([[0, 0], [1, 0]])
    state = hd.steady_state(hd.Problem(0.5 * SZ, lindblad=[0.3 * decay]))
    np.testing.assert_allclose(state.rho, np.diag([0, 1]), atol=1e-9)


def test_same_as_a_long_evolution():
    state = hd.steady_state(PROBLEM, tol=1e-9, observables={"e": hd.interaction_energy(0)}, **HOW)
    sol = hd.evolve(
        PROBLEM, [1, 0], [0, 300], tol=1e-10, observables={"e": hd.interaction_energy(0)}, **HOW
    )
    assert np.max(np.abs(state.rho - sol.rho[-1])) < 1e-8
    assert np.max(np.abs(state.ados.values - sol.ados.values)) < 1e-7
    assert state.observables["e"] == pytest.approx(sol.observables["e"][-1], abs=1e-8)
    warm = hd.steady_state(PROBLEM, tol=1e-6, guess=sol, **HOW)
    assert warm.stats["applications_solve"] == 1


def test_recorded_threads_are_those_that_worked():
    state = hd.steady_state(PROBLEM, backend="native", threads=2, **HOW)  # 15 ADOs
    assert state.stats["threads"] == 1


def test_result_in_other_forms():
    xarray = pytest.importorskip("xarray", reason="needs xarray")
    qutip = pytest.importorskip("qutip", reason="needs QuTiP, of the extra qutip")
    state = hd.steady_state(PROBLEM, observables={"sz": SZ}, **HOW)
    ds = state.to_xarray()
    assert isinstance(ds, xarray.Dataset)
    assert ds["rho"].dims == ("i", "j")
    assert ds.attrs["outcome"] == "done"
    assert float(ds["sz"]) == state.observables["sz"]
    assert state.to_qutip() == qutip.Qobj(state.rho)
    lean = hd.steady_state(PROBLEM, save="observables", observables={"sz": SZ}, **HOW)
    assert lean.rho is lean.ados is None
    assert lean.observables == state.observables
    with pytest.raises(hd.InputError, match="`save`"):
        lean.to_qutip()


@pytest.mark.parametrize("backend", [NumpyBackend(), NativeBackend(threads=1)], ids=["np", "c"])
def test_prediction_of_memory_is_what_a_steady_state_takes(backend, monkeypatch):
    """With d = 5 a row of the compiled kernels has room for 8 numbers."""
    monkeypatch.setattr(fraction, "CORE_UNKNOWNS", 25)
    monkeypatch.setattr(steady, "MOST_APPLICATIONS", 60)
    monkeypatch.setattr(steady, "rightmost", lambda operator, *_: Rightmost(-1e-3, 1e-6, 1e-3))
    bath = hd.DrudeLorentz(lam=0.01, gamma=0.02, T=0.04)
    H = 0.02 * np.random.default_rng(0).standard_normal((5, 5))
    problem = hd.Problem(H + H.T, [hd.Coupling(np.diag(row), bath) for row in np.eye(5)])
    how = {"depth": 3, "expansion": hd.Pade(1), "backend": backend, "throw": False}
    asked = []
    monkeypatch.setattr(memory, "require", lambda need, *_: asked.append(need))
    hd.steady_state(problem, **how)  # what is imported and kept is there
    tracemalloc.start()
    hd.steady_state(problem, **how)
    measured = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert 0.45 * asked[-1] < measured < asked[-1]


def test_the_count_of_states_is_that_of_the_larger_space(monkeypatch):
    """Eigenvalues that are never certain need all vectors, their images and a whole cycle."""
    backend, alive, most = NumpyBackend(), weakref.WeakSet(), 0

    class Counted(np.ndarray):
        __hash__ = object.__hash__

    def empty(compiled):
        nonlocal most
        state = NumpyBackend().empty(compiled).view(Counted)
        alive.add(state)
        most = max(most, len(alive))
        return state

    monkeypatch.setattr(backend, "empty", empty)
    monkeypatch.setattr(fraction, "CORE_UNKNOWNS", 4)
    monkeypatch.setattr(modes, "CERTAIN", 0.0)
    monkeypatch.setattr(modes, "INNER_TOLERANCE", 0.0)
    solved(plan_of([stiff()], 6), backend)
    assert 0.9 * steady.VECTOR_STATES < most <= steady.VECTOR_STATES


def test_auto_chooses_depth_and_expansion():
    state = hd.steady_state(PROBLEM, depth="auto", expansion="auto", error=1e-2)
    assert state.stats["estimated_error"] < 1e-2


class TurnsBad(NumpyBackend):
    """A generator whose images are not finite from some application on."""

    def __init__(self, good: int, value: float) -> None:
        super().__init__()
        self.good, self.value = good, value

    def apply(self, compiled, x, out, **options):
        super().apply(compiled, x, out, **options)
        self.good -= 1
        if self.good < 0:
            out[...] = self.value


@pytest.mark.parametrize("value", [np.nan, np.inf])
@pytest.mark.filterwarnings("ignore:invalid value")
def test_what_is_not_finite_is_named_wherever_it_turns_up(value):
    whole = int(hd.steady_state(PROBLEM, backend=NumpyBackend(), **HOW).stats["applications"])
    for good in range(whole):
        state = hd.steady_state(PROBLEM, backend=TurnsBad(good, value), throw=False, **HOW)
        assert state.outcome is hd.Outcome.NOT_FINITE, good


def test_a_state_that_is_not_positive_is_not_called_unstable():
    """Deep in the wrong: but every eigenvalue is on the left, so that evolution ends there."""
    bath = hd.DrudeLorentz(lam=1.5, gamma=0.5, T=0.3)
    problem, how = hd.Problem(SX, [(SX + 0.5 * SZ, bath)]), {"depth": 1, "expansion": hd.Pade(1)}
    with pytest.warns(hd.HeomdaskWarning, match="`depth` = .*off by"):
        state = hd.steady_state(problem, throw=False, **how)
    assert state.stats["trace_norm_excess"] > 0.1
    assert state.stats["rightmost"] < 0
    assert state.outcome is hd.Outcome.NOT_CONVERGED
    with (
        pytest.warns(hd.HeomdaskWarning),
        pytest.raises(hd.SolveFailed, match="NOT_CONVERGED: rho is not positive"),
    ):
        hd.steady_state(problem, **how)


def test_a_tolerance_beyond_rounding_is_named():
    problem = hd.Problem(
        0.25 * SZ + 0.5 * SX, [hd.Coupling(SZ, hd.DrudeLorentz(lam=1e-7, gamma=0.5, T=0.5))]
    )
    state = hd.steady_state(problem, tol=1e-14, throw=False, **HOW)
    assert state.outcome is hd.Outcome.TOO_MANY_STEPS


@pytest.mark.parametrize(
    ("what", "changes", "named"),
    [
        ("a drive", {"problem": hd.Problem(SX, drives=[(np.cos, SZ)])}, "`problem`.*evolve"),
        ("no problem", {"problem": 3.0}, "`problem`"),
        ("tol 0", {"tol": 0.0}, "`tol`"),
        ("tol below rounding", {"tol": 1e-15}, "`tol`.*rounding"),
        ("save a time", {"save": "times"}, "`save`"),
        ("no depth", {"depth": None}, "`depth`"),
        ("auto without splitting", {"problem": EQUAL, "depth": "auto"}, "`depth`.*splitting"),
        ("the same of poles", {"problem": EQUAL, "expansion": "auto"}, "`expansion`.*splitting"),
        ("a guess of another shape", {"guess": np.eye(2)}, "`guess`.*shape"),
        ("a guess that is none", {"guess": "x"}, "`guess`"),
        ("a guess without trace", {"guess": np.zeros((15, 2, 2))}, "`guess`.*trace"),
        ("a guess with NaN", {"guess": np.full((15, 2, 2), np.nan)}, "`guess`.*finite"),
    ],
)
def test_wrong_input(what, changes, named):
    del what
    keywords = {"problem": PROBLEM, **HOW} | changes
    with pytest.raises(hd.InputError, match=named):
        hd.steady_state(keywords.pop("problem"), **keywords)


qutip = pytest.importorskip("qutip", reason="needs QuTiP, of the extra qutip")
heom = pytest.importorskip("qutip.solver.heom", reason="needs QuTiP, of the extra qutip")


@pytest.mark.parametrize("seed", range(6))
def test_same_state_as_qutip(seed):
    rng = np.random.default_rng([7, seed])
    d = 2 + seed % 2
    H, Q = (qutip.rand_herm(d, density=1.0, seed=int(rng.integers(1000))) for _ in range(2))
    T, lam = rng.uniform(0.5, 2), rng.uniform(0.02, 0.15)
    if seed < 4:
        bath = heom.DrudeLorentzPadeBath(Q, lam=lam, gamma=rng.uniform(0.3, 1.5), T=T, Nk=1)
    else:
        bath = heom.UnderDampedBath(Q, lam=lam, gamma=0.4, w0=1.0, T=T, Nk=1)
    depth = 4 if d == 2 else 3
    expected, _ = heom.HEOMSolver(H, bath, depth).steady_state()
    state = hd.steady_state(hd.Problem(H, [bath]), depth=depth, tol=1e-10)
    assert np.max(np.abs(state.rho - expected.full())) < 1e-8
