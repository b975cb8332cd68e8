"""`evolve`, `run_batch` and what they return."""

from __future__ import annotations

import functools
import subprocess
import sys
import tracemalloc
import warnings
from typing import Any

import numpy as np
import pytest
import scipy.linalg

import heomdask as hd
from heomdask import initial, solve
from heomdask.backends import registry
from heomdask.generator.expanded import Expanded
from heomdask.results import sentinel
from heomdask.results.solution import Ados

SX = np.array([[0.0, 1.0], [1.0, 0.0]])
SY = np.array([[0.0, -1.0j], [1.0j, 0.0]])
SZ = np.diag([1.0, -1.0])
UP = np.diag([1.0, 0.0])
H = 0.25 * SZ + 0.5 * SX + 0.1 * SY
BATH = hd.DrudeLorentz(lam=0.1, gamma=0.5, T=0.5)
PROBLEM = hd.Problem(H, [hd.Coupling(SZ, BATH)])
DIPOLE = np.array([[0.0, 1.0], [0.0, 0.2j]])  # not Hermitian


def run(rho0=UP, times=(0, 1, 2), *, problem=PROBLEM, depth=4, expansion=None, **options):
    expansion = expansion or hd.Pade(1)
    return hd.evolve(problem, rho0, times, depth=depth, expansion=expansion, **options)


class TestSolution:
    def test_fields(self):
        sol = run(observables={"z": SZ, "sp": SX + 1j * SY})
        assert sol.outcome is hd.Outcome.DONE
        assert sol.rho.shape == (3, 2, 2)
        assert sol.times.tolist() == [0, 1, 2]
        assert sol.observables["z"].dtype == np.float64
        assert sol.observables["sp"].dtype == np.complex128
        expected = np.einsum("ij,tji->t", SX + 1j * SY, sol.rho)
        assert np.max(np.abs(sol.observables["sp"] - expected)) < 1e-15
        assert sol.ados.values.shape == (len(sol.ados), 2, 2)
        assert sol.ados.indices.shape == (len(sol.ados), 2)
        assert np.max(np.abs(sol.ados.rho - sol.rho[-1])) < 1e-14
        assert sol.stats["n_ado"] == len(sol.ados) == 15

    def test_save(self):
        whole = run(save=("rho", "ados"))
        assert whole.ados_at_times.shape == (3, 15, 2, 2)
        assert np.max(np.abs(whole.ados_at_times[:, 0] - whole.rho)) < 1e-14
        assert np.array_equal(whole.ados_at_times[-1], whole.ados.values)
        assert run(save="observables").rho is None

    def test_saved_ados_do_not_depend_on_chunks_of_time(self):
        times = np.linspace(0, 2, 41)
        whole, plain = run(times=times, save=("ados", "rho"), tol=1e-9), run(times=times, tol=1e-9)
        assert np.max(np.abs(whole.ados_at_times[:, 0] - plain.rho)) < 2e-9
        assert np.max(np.abs(whole.ados.values - plain.ados.values)) < 1e-7

    def test_to_xarray(self):
        ds = run(observables={"z": SZ}).to_xarray()
        assert ds["rho"].dims == ("time", "i", "j")
        assert float(ds["z"].sel(time=0)) == 1
        assert ds.attrs["outcome"] == "done"

    def test_to_qutip(self):
        qutip = pytest.importorskip("qutip", reason="needs QuTiP, of the extra qutip")
        result = run(qutip.basis(2, 0), observables={"z": qutip.sigmaz()}).to_qutip()
        assert result.times == [0, 1, 2]
        assert result.e_data["z"] == pytest.approx(qutip.expect(qutip.sigmaz(), result.states))

    def test_threshold_of_the_tolerance(self):
        exact = run(tol=1e-12, times=[0, 5]).rho[-1]
        for tol in (1e-3, 1e-6, 1e-9):
            assert np.max(np.abs(run(tol=tol, times=[0, 5]).rho[-1] - exact)) < tol

    def test_tolerance_is_relative_to_the_trace_norm(self):
        exact = run(1e6 * UP, tol=1e-13, times=[0, 5]).rho[-1]
        assert np.max(np.abs(run(1e6 * UP, tol=1e-7, times=[0, 5]).rho[-1] - exact)) < 0.1


class TestStates:
    def test_ket_operator_and_qutip_agree(self):
        qutip = pytest.importorskip("qutip", reason="needs QuTiP, of the extra qutip")
        ket = np.array([0.6, 0.8j])
        states = [
            ket,
            ket[:, None],
            np.outer(ket, ket.conj()),
            qutip.Qobj(ket),
            qutip.ket2dm(qutip.Qobj(ket)),
        ]
        results = [run(state).rho for state in states]
        for result in results[1:]:
            assert np.max(np.abs(result - results[0])) < 1e-15

    @pytest.mark.parametrize("method", ["auto", "taylor", "rk"])
    def test_any_operator(self, method):
        sol = run(DIPOLE, tol=1e-9, method=method, observables={"x": SX})
        operator = hd.as_linear_operator(PROBLEM, depth=4, expansion=hd.Pade(1))
        start = np.zeros(operator.shape[1], dtype=complex)
        start[:4] = DIPOLE.ravel()
        G = operator @ np.eye(operator.shape[1], dtype=complex)
        for t, rho, x in zip(sol.times, sol.rho, sol.observables["x"], strict=True):
            expected = (scipy.linalg.expm(G * t) @ start)[:4].reshape(2, 2)
            assert np.max(np.abs(rho - expected)) < 1e-8
            assert x == pytest.approx(np.trace(SX @ expected), abs=1e-8)

    def test_restart_of_any_operator(self):
        half = run(DIPOLE, [0, 1], tol=1e-10)
        rest = run(half.ados, [1, 2], tol=1e-10)
        straight = run(DIPOLE, [0, 2], tol=1e-10)
        assert np.max(np.abs(rest.ados.values - straight.ados.values)) < 1e-8

    def test_rounding_is_not_a_reason_for_two_members(self):
        state = initial.start([UP + 1e-16j * SX], 2, np.zeros((1, 0), int), [Expanded(H)])
        assert state.hermitian.tolist() == [True]

    @pytest.mark.parametrize(
        ("rho0", "message"),
        [
            (np.eye(3), "`rho0` must be a ket"),
            (np.zeros((2, 2)), "`rho0` must not be zero"),
            ("up", "`rho0` must be an array of numbers"),
            (np.full((2, 2), np.nan), "`rho0` must be finite"),
            (np.ones((7, 2, 2)), "`rho0` must have the shape"),
        ],
    )
    def test_wrong(self, rho0, message):
        with pytest.raises(hd.InputError, match=message):
            run(rho0)

    def test_restart_from_another_hierarchy(self):
        other = run(depth=hd.ModeLimits(14, (14, 0)))
        assert len(other.ados) == 15  # as many, but others
        with pytest.raises(hd.InputError, match="with other indices"):
            run(other.ados)

    def test_restart_from_other_exponents(self):
        pade = run(expansion=hd.Pade(1)).ados
        warm = hd.Problem(H, [hd.Coupling(SZ, hd.DrudeLorentz(lam=0.1, gamma=0.5, T=0.6))])
        for options in ({"expansion": hd.Matsubara(1)}, {"problem": warm}):
            assert np.array_equal(run(**options).ados.indices, pade.indices)
            with pytest.raises(hd.InputError, match="ADOs of other rates"):
                run(pade, **options)
        quench = hd.Problem(2 * H, PROBLEM.couplings)
        assert run(pade, problem=quench).outcome.good  # the Hamiltonian may change
        assert run(Ados(pade.values, pade.indices), problem=warm).outcome.good  # not known


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"tol": 0.0}, "`tol`"),
        ({"tol": np.nan}, "`tol`"),
        ({"method": "euler"}, "`method`"),
        ({"save": ("states",)}, "`save`"),
        ({"backend": "abacus"}, "`backend`"),
        ({"threads": 0}, "`threads`"),
        ({"observables": [SZ]}, "`observables` must be a mapping"),
        ({"observables": {"z": np.eye(3)}}, r"`observables\['z'\]` must be 2 x 2"),
        ({"observables": {"e": hd.interaction_energy(1)}}, "one of the problem's 1 baths"),
        ({"depth": True}, "`depth`"),
        ({"times": [0, np.inf]}, "`times` must be finite"),
    ],
)
def test_wrong_options(options, message):
    with pytest.raises(hd.InputError, match=message):
        run(**options)


class TestInteractionEnergy:
    """<q f(t) X> = 2 q^2 f(t) int_0^t f(s) Im C(t - s) ds in a state that Q does not mix."""

    def test_dephasing(self):
        problem = hd.Problem(0 * SZ, [hd.Coupling(SZ, BATH)])
        sol = run(problem=problem, times=[0, 1, 5], observables={"e": hd.interaction_energy(0)})
        expected = -2 * BATH.lam * (1 - np.exp(-BATH.gamma * sol.times))
        assert sol.observables["e"].dtype == np.float64
        assert np.max(np.abs(sol.observables["e"] - expected)) < 1e-6

    def test_of_the_second_bath(self):
        other = hd.DrudeLorentz(lam=0.03, gamma=0.2, T=0.5)
        problem = hd.Problem(0 * SZ, [hd.Coupling(SZ, BATH), hd.Coupling(2 * SZ, other)])
        sol = run(problem=problem, times=[0, 3], observables={"e": hd.interaction_energy(1)})
        expected = -8 * other.lam * (1 - np.exp(-other.gamma * 3))
        assert sol.observables["e"][-1] == pytest.approx(expected, abs=1e-6)

    def test_time_dependent_coupling(self):
        gamma = BATH.gamma
        problem = hd.Problem(0 * SZ, [hd.Coupling(SZ, BATH, f=np.cos)])
        sol = run(problem=problem, times=[0, 2], observables={"e": hd.interaction_energy(0)})
        s = np.linspace(0, 2, 20001)
        integral = np.trapezoid(np.cos(s) * np.exp(-gamma * (2 - s)), s)
        expected = -2 * BATH.lam * gamma * np.cos(2) * integral
        assert sol.observables["e"][-1] == pytest.approx(expected, abs=1e-6)

    def test_needs_a_tier(self):
        with pytest.raises(hd.InputError, match="raise `depth`"):
            run(depth=0, observables={"e": hd.interaction_energy(0)})


def members(count, drives=(), expansion=None):
    """Members of one hierarchy with different T, lam (0 included) and H."""
    rng = np.random.default_rng(11)
    prepared, states = [], []
    for m in range(count):
        bath = hd.DrudeLorentz(
            lam=0.0 if m % 5 == 1 else rng.uniform(0.01, 0.3),
            gamma=rng.uniform(0.3, 0.8),
            T=rng.uniform(0.5, 2),
        )
        matrix = rng.normal(size=(3, 3)) + 1j * rng.normal(size=(3, 3))
        problem = hd.Problem(
            matrix + matrix.conj().T,
            [hd.Coupling(np.diag(np.eye(3)[j]), bath) for j in (0, 2)],
            drives=drives,
        )
        prepared.append(hd.prepare(problem, depth=3, expansion=expansion or hd.Pade(1)))
        state = np.diag(rng.uniform(0, 1, 3)).astype(complex)
        state[0, 1] = 0.3j if m % 7 == 3 else 0  # some are not Hermitian
        states.append(state)
    return prepared, states


@pytest.mark.parametrize("backend", ["native", "numpy", "mkl"])
@pytest.mark.parametrize("kind", ["constant", "driven", "terminator"])
def test_a_member_is_the_same_to_the_last_bit_in_every_company(backend, kind):
    if backend == "mkl":
        pytest.importorskip(
            "heomdask.backends.mkl", reason="MKL is not installed", exc_type=ImportError
        )
    most = {"native": 64 if kind == "constant" else 8, "numpy": 3, "mkl": 8}[backend]
    drives = [(np.sin, np.diag([0.0, 1.0, 0.5]))] if kind == "driven" else ()
    expansion = hd.Matsubara(0) if kind == "terminator" else None
    prepared, states = members(most, drives, expansion)
    times = [0.0, 0.3, 0.8]
    order = np.random.default_rng(5).permutation(most)
    seen: dict[int, bytes] = {}
    for size in sorted({1, 3, min(8, most), most}):
        for first in range(0, min(most, 8) if size == 1 else most, size):
            who = order[first : first + size]
            result = hd.run_batch(
                [prepared[m] for m in who],
                [states[m] for m in who],
                times,
                tol=1e-7,
                observables={"x": np.ones((3, 3)), "e": hd.interaction_energy(1)},
                backend=backend,
                final_ados=True,
            )
            for k, m in enumerate(who.tolist()):
                values = (
                    result.rho[k],
                    result.ados[k].values,
                    result.observables["x"][k].real,
                    result.observables["e"][k].real,
                )
                found = b"".join(np.ascontiguousarray(v).tobytes() for v in values)
                assert seen.setdefault(m, found) == found, f"member {m} in a batch of {size}"
                assert result.outcomes[k] is hd.Outcome.DONE


def test_a_batch_equals_single_runs():
    prepared, states = members(4)
    result = hd.run_batch(prepared, states, [0, 1], tol=1e-9)
    for m, (one, state) in enumerate(zip(prepared, states, strict=True)):
        sol = hd.evolve(one.problem, state, [0, 1], depth=3, expansion=hd.Pade(1), tol=1e-9)
        assert np.max(np.abs(sol.rho - result.rho[m])) < 4e-9


def test_a_batch_needs_one_hierarchy():
    prepared, states = members(2)
    other = hd.prepare(prepared[1].problem, depth=2, expansion=hd.Pade(1))
    with pytest.raises(hd.InputError, match=r"`prepared` must be .* with one `key`"):
        hd.run_batch([prepared[0], other], states, [0, 1])
    with pytest.raises(hd.InputError, match="`rho0s` must hold 2 states, got 1"):
        hd.run_batch(prepared, states[:1], [0, 1])


def test_one_member_that_fails_leaves_the_others_alone():
    good, states = members(3, drives=[(np.sin, np.eye(3))])
    bad = members(3, drives=[(lambda t: np.nan if t > 0.5 else 0.0, np.eye(3))])[0][1]
    result = hd.run_batch([good[0], bad, good[2]], states, [0, 0.2, 1])
    assert [o.name for o in result.outcomes] == ["DONE", "NOT_FINITE", "DONE"]
    assert np.all(np.isfinite(result.rho[1, :2]))
    assert np.all(np.isnan(result.rho[1, 2].real))
    for m in (0, 2):
        alone = hd.run_batch([good[m]], [states[m]], [0, 0.2, 1])
        assert np.array_equal(result.rho[m], alone.rho[0])


class TestSentinel:
    def test_trace_norm(self):
        rng = np.random.default_rng(2)
        for d in (2, 3, 5):
            a = rng.normal(size=(4, d, d)) + 1j * rng.normal(size=(4, d, d))
            hermitian = a + a.conj().swapaxes(1, 2)
            expected = np.linalg.svd(hermitian, compute_uv=False).sum(axis=-1)
            assert sentinel.trace_norm(hermitian, np.ones(4, bool)) == pytest.approx(
                expected, rel=1e-12
            )
            expected = np.linalg.svd(a, compute_uv=False).sum(axis=-1)
            assert sentinel.trace_norm(a, np.zeros(4, bool)) == pytest.approx(expected, rel=1e-12)

    def test_verdicts(self):
        states = np.zeros((4, 2, 2, 2), dtype=complex)
        states[:, 0] = UP
        for m, excess in enumerate([0.0005, 0.002, 0.2, np.nan]):
            states[m, 1] = np.diag([1 + excess / 2, -excess / 2])
        outcomes, found = sentinel.judge(states, np.ones(4), hermitian=np.ones(4, bool))
        assert [o.name for o in outcomes] == ["DONE", "NOT_CONVERGED", "UNSTABLE", "NOT_FINITE"]
        assert found[:3] == pytest.approx([0.0005, 0.002, 0.2])

    def test_looks_at_few_times_and_at_the_last(self):
        assert 12 < len(sentinel.watched(10_001)) <= sentinel.SAMPLES
        assert sentinel.watched(10_001)[-1] == 10_000
        assert sentinel.watched(3).tolist() == [0, 1, 2]

    @pytest.mark.filterwarnings("ignore:.*estimated to be off")
    @pytest.mark.parametrize(
        ("T", "depth", "duration", "verdict"),
        [(1.0, 3, 40, hd.Outcome.NOT_CONVERGED), (0.1, 2, 20, hd.Outcome.UNSTABLE)],
    )
    def test_shallow_hierarchy_is_reported(self, T, depth, duration, verdict):
        strong = hd.DrudeLorentz(lam=2.0, gamma=0.2, T=T)
        problem = hd.Problem(H, [hd.Coupling(SZ, strong)])
        times = np.linspace(0, duration, 60)
        sol = run(problem=problem, depth=depth, times=times, throw=False)
        assert sol.outcome is verdict
        with pytest.raises(hd.SolveFailed, match="Raise `depth`"):
            run(problem=problem, depth=depth, times=times)


def test_a_run_of_too_many_steps_names_the_fastest_rate(monkeypatch):
    few = functools.partial(solve.propagate, max_applications=200)
    monkeypatch.setattr(solve, "propagate", few)
    stiff = hd.DrudeLorentz(lam=0.1, gamma=0.05, T=1.0)
    problem = hd.Problem(H, [hd.Coupling(SZ, stiff)])
    message = r"TOO_MANY_STEPS.*stopped at t = .*fastest rate of this hierarchy is \d"
    with pytest.raises(hd.SolveFailed, match=message):
        run(problem=problem, depth=8, expansion=hd.Pade(3), times=[0, 1000])
    sol = run(problem=problem, depth=8, expansion=hd.Pade(3), times=[0, 1000], throw=False)
    assert sol.outcome is hd.Outcome.TOO_MANY_STEPS
    assert np.all(np.isnan(sol.rho[-1].real))


def test_preparation_shares_expansions_and_hierarchies():
    a, b = (hd.prepare(PROBLEM, depth=4, expansion=hd.Pade(1)) for _ in range(2))
    assert a.index_set is b.index_set
    assert a.expanded.baths[0][1] is b.expanded.baths[0][1]
    assert a.key == b.key


def test_auto_depth_needs_times_and_says_what_it_chose():
    sol = hd.evolve(PROBLEM, UP, [0, 1, 5], depth="auto", expansion="auto", throw=False)
    finer = run(depth=8, expansion=hd.Pade(3), times=[0, 1, 5])
    assert np.max(np.abs(sol.rho - finer.rho)) < 5e-3
    assert sol.stats["depth"].depth > 0
    with pytest.raises(hd.InputError, match="`times`"):
        hd.prepare(PROBLEM, depth="auto", expansion="auto")


def test_prediction_of_memory_counts_states_and_outputs():
    one = hd.prepare(PROBLEM, depth=4, expansion=hd.Pade(1))
    base = one.size.run_bytes(1, 1, save=())
    assert one.size.run_bytes(8, 1, save=()) > 5 * base / 2
    assert one.size.run_bytes(1, 1001, save=("rho",)) - base == 1001 * 64
    assert one.size.run_bytes(1, 1000, save=("ados",)) - base == 1016 * 64 * 15


@pytest.mark.parametrize("members", [1, 3, 9])
def test_prediction_of_memory_is_what_a_run_takes(members):
    sites = [np.diag(row) for row in np.eye(5)]
    bath = hd.DrudeLorentz(lam=0.01, gamma=0.02, T=0.04)
    H = 0.02 * np.random.default_rng(0).standard_normal((5, 5))
    problem = hd.Problem(H + H.T, [hd.Coupling(Q, bath) for Q in sites])
    ready = [hd.prepare(problem, depth=6, expansion=hd.Pade(1))] * members
    times = np.linspace(0, 200, 3)
    engine = registry.get("native", threads=1, layout="batch")
    columns = engine.columns(5, members)
    predicted = ready[0].size.run_bytes(members, len(times), columns=columns)
    tracemalloc.start()
    hd.run_batch(ready, [np.eye(5) / 5] * members, times, backend=engine)
    measured = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert 0.45 * predicted < measured < 1.1 * predicted


@pytest.mark.parametrize("depth", [3, 40])
def test_a_hierarchy_far_too_small_is_called_into_question(depth, recwarn):
    """Strong coupling to a slow bath: at depth 3 rho is off by 0.4, which no invariant shows."""
    warnings.simplefilter("always")
    bath = hd.DrudeLorentz(lam=0.5, gamma=0.05, T=0.5)
    problem = hd.Problem(0.5 * SX, [(SZ, bath)])
    hd.evolve(problem, [1.0, 0.0], [0.0, 20.0], depth=depth, expansion=hd.Pade(1))
    assert any("estimated to be off" in str(w.message) for w in recwarn) == (depth == 3)


@pytest.mark.filterwarnings("ignore:.*estimated to be off")
def test_exponents_that_contradict_themselves_are_seen():
    """Conjugates of a pair of rates that are not exchanged: rho does not stay Hermitian."""
    c, gamma = 0.1 * np.array([0.6 + 0.5j, 0.4 - 0.1j]), [0.3 + 2j, 0.3 - 2j]
    sx, sz = np.array([[0.0, 1.0], [1.0, 0.0]]), np.diag([1.0, -1.0])
    t = np.linspace(0, 4, 9)

    def answer(cbar):
        problem = hd.Problem(sx + 0.4 * sz, [(sz, hd.Exponents(c=c, gamma=gamma, cbar=cbar))])
        start = np.diag([1.0, 0.0])
        return hd.evolve(problem, start, t, depth=8, observables={"sz": sz}, throw=False)

    wrong, right = answer(c.conj()), answer(c.conj()[::-1])
    assert right.outcome is hd.Outcome.DONE
    assert right.observables["sz"].dtype == np.float64
    assert wrong.outcome is hd.Outcome.NOT_CONVERGED
    assert wrong.stats["trace_norm_excess"] == pytest.approx(7.6e-2, rel=0.02)
    assert abs(wrong.observables["sz"][-1].imag) > 0.1


@pytest.mark.filterwarnings("ignore:.*estimated to be off")
def test_early_excursions_are_seen_on_long_grids():
    sx, sz = np.array([[0.0, 1.0], [1.0, 0.0]]), np.diag([1.0, -1.0])
    bath = hd.DrudeLorentz(lam=20.0, gamma=12.0, T=2.0)
    sol = hd.evolve(
        hd.Problem(sx, [(sz, bath)]), np.diag([1.0, 0.0]), np.linspace(0, 20, 101), depth=1,
        expansion=hd.Pade(0), throw=False,
    )  # fmt: skip
    assert np.linalg.eigvalsh(sol.rho).min() < -0.03
    assert sol.outcome is hd.Outcome.NOT_CONVERGED


def test_import_is_light_and_names_are_there():
    code = (
        "import heomdask as hd, sys\n"
        "heavy = {'dask', 'distributed', 'xarray', 'zarr', 'matplotlib', 'cupy', 'scipy', 'pint'}\n"
        "print(sorted(heavy & set(sys.modules)), all(hasattr(hd, n) for n in hd.__all__))\n"
        "from heomdask import solve, evolve, prepare, advise\n"
        "print(callable(prepare), callable(advise), callable(hd.prepare), callable(hd.advise))\n"
    )
    out = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert out.stdout.split("\n")[:2] == ["[] True", "True True True True"]


def test_a_tolerance_that_rounding_may_exceed_is_not_called_met() -> None:
    H = np.array([[0.3, 0.4], [0.4, -0.3]])
    how = {"depth": 0, "method": "faber", "threads": 1}
    with pytest.warns(hd.HeomdaskWarning, match="Rounding errors"):
        tight = hd.evolve(hd.Problem(H), [1.0, 0.0], [0.0, 1e4], tol=2e-14, **how)
    loose = hd.evolve(hd.Problem(H), [1.0, 0.0], [0.0, 1e4], tol=1e-9, **how)
    assert (tight.outcome, loose.outcome) == (hd.Outcome.ROUNDING, hd.Outcome.DONE)
    w, v = np.linalg.eigh(H)
    psi = v @ (np.exp(-1e4j * w) * v[0])
    assert np.abs(tight.rho[-1] - np.outer(psi, psi.conj())).max() < 1e-9


@pytest.mark.parametrize("f", [None, np.cos])
def test_only_a_terminator_that_depends_on_time_parts_a_batch(f: Any) -> None:
    """Its f(t)^2 is one more function for the steps of all members to follow."""
    members = [
        hd.Problem(SX, [hd.Coupling(SZ, hd.DrudeLorentz(lam=lam, gamma=0.5, T=1.0), f=f)])
        for lam in (0.0, 0.3)
    ]
    one, two = (hd.prepare(p, depth=2, expansion=hd.Matsubara(1)) for p in members)
    assert (one.key == two.key) == (f is None)
