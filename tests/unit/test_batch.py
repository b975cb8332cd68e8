"""Single precision where the tolerance allows it: who gets it, and how good it is."""

from __future__ import annotations

import dataclasses
from typing import Any

import numpy as np
import pytest

import heomdask as hd
from heomdask import batch
from heomdask.backends import registry
from heomdask.backends.traits import Selection
from heomdask.generator.build import build_plan
from heomdask.results.solution import BatchResult
from heomdask.solvers import Bounds, propagate, rounding

SX = np.array([[0.0, 1.0], [1.0, 0.0]])
SZ = np.diag([1.0, -1.0])
UP = np.diag([1.0, 0.0])
DIPOLE = np.array([[0.0, 1.0], [0.0, 0.2]])  # not Hermitian
TIMES = np.linspace(0.0, 20.0, 21)


def members(*biases: float, f: Any = None) -> list[hd.preparation.Prepared]:
    bath = hd.DrudeLorentz(lam=0.1, gamma=0.5, T=0.5)
    problems = [hd.Problem(0.5 * SX + b * SZ, [hd.Coupling(SZ, bath, f=f)]) for b in biases]
    return [hd.prepare(p, depth=4, expansion=hd.Matsubara(0)) for p in problems]


def run(prepared: list[Any], rho0: Any = UP, **options: Any) -> BatchResult:
    options = {"times": TIMES, "tol": 1e-4, "observables": {"z": SZ}, **options}
    return hd.run_batch(prepared, [rho0] * len(prepared), **options)


def bits(result: BatchResult) -> list[int]:
    return [own["bits"] for own in result.stats]


def off(result: BatchResult, prepared: list[Any], rho0: Any = UP) -> float:
    exact = run(prepared, rho0, times=result.times, tol=1e-10)
    assert set(bits(exact)) == {64}
    return float(np.max(np.abs(result.rho - exact.rho)))


@pytest.mark.parametrize("rho0", [UP, DIPOLE])
def test_a_loose_tolerance_is_met_in_single_precision(rho0: Any) -> None:
    prepared = members(0.0, 0.3, 0.5)
    result = run(prepared, rho0)
    assert bits(result) == [32] * 3
    assert 1e-9 < off(result, prepared, rho0) < 1e-4
    assert result.outcomes == [hd.Outcome.DONE] * 3


def test_a_tight_one_in_double() -> None:
    prepared = members(0.3)
    assert bits(run(prepared, tol=0.99e-5)) == [64]
    assert bits(run(prepared, tol=1e-5, times=TIMES / 10)) == [32]


def test_a_long_run_needs_double_precision() -> None:
    assert bits(run(members(0.3), times=TIMES * 100)) == [64]


@pytest.mark.parametrize(
    "options",
    [{"final_ados": True}, {"save": ("rho", "ados")}, {"method": "rk"}, {"method": "taylor"}],
)
def test_what_stays_double(options: dict[str, Any]) -> None:
    """States to restart from, and methods that know no ellipse."""
    assert bits(run(members(0.3), **options)) == [64]


def test_pulses_and_complex_plans_stay_double() -> None:
    assert bits(run(members(0.3, f=np.cos))) == [64]
    complex_rates = hd.Exponents(c=[0.1], gamma=[0.5 + 0.2j])
    problem = hd.Problem(SX, [hd.Coupling(SZ, complex_rates)])
    assert bits(run([hd.prepare(problem, depth=2)])) == [64]


def test_a_member_decides_for_itself_whatever_its_companions_do() -> None:
    """Fast members in double precision among slow ones in single: the same bits as alone."""
    fast = 200.0  # bias: too many revolutions for single precision
    prepared = members(0.3, fast, 0.1, -fast)
    result = run(prepared)
    assert bits(result) == [32, 64, 32, 64]
    for m, one in enumerate(prepared):
        alone = run([one])
        assert np.array_equal(alone.rho[0], result.rho[m])
        assert np.array_equal(alone.observables["z"][0], result.observables["z"][m])
        assert alone.stats[0]["applications"] == result.stats[m]["applications"]


def test_alike_members_lie_side_by_side() -> None:
    """By the strength of their baths, then by how far their energies lie apart."""

    def one(lam: float, bias: float) -> hd.preparation.Prepared:
        bath = hd.DrudeLorentz(lam=lam, gamma=0.5, T=0.5)
        problem = hd.Problem(0.5 * SX + bias * SZ, [hd.Coupling(SZ, bath)])
        return hd.prepare(problem, depth=3, expansion=hd.Pade(1))

    given = [(0.2, 0.1), (0.1, -0.5), (0.2, -0.3), (0.1, 0.2), (0.1, 0.4)]
    order = batch._by_likeness([one(*g) for g in given])
    assert [given[m] for m in order] == [
        (0.1, 0.2),
        (0.1, 0.4),
        (0.1, -0.5),
        (0.2, 0.1),
        (0.2, -0.3),
    ]


def test_what_goes_wrong_in_single_precision_runs_again(monkeypatch: pytest.MonkeyPatch) -> None:
    once = batch.run

    def spoilt(prepared: Any, rho0s: Any, request: Any) -> BatchResult:
        found = once(prepared, rho0s, request)
        if request.precision == "float32":
            found.outcomes[0] = hd.Outcome.NOT_CONVERGED
            found.stats[1]["growth"] = 1e6
        return found

    monkeypatch.setattr(batch, "run", spoilt)
    prepared = members(0.0, 0.1, 0.2)
    seen: list[float] = []
    result = run(prepared, progress=seen.append)
    assert seen == sorted(seen)
    assert bits(result) == [64, 64, 32]
    assert result.outcomes == [hd.Outcome.DONE] * 3
    assert off(result, prepared) < 1e-4


def test_progress_goes_on_from_one_precision_to_the_other() -> None:
    seen: list[float] = []
    run(members(0.3, 200.0), progress=seen.append)
    assert seen == sorted(seen) and seen[-1] == pytest.approx(1.0)


def test_the_rounding_of_a_run() -> None:
    two = Bounds(centre=np.array([-1.0, 0.0]), real=np.array([1.0, 0.0]), imag=np.array([0.5, 3.0]))
    assert rounding(two, 8.0, "float32") == pytest.approx([8 * 2.0**-23, 12 * 2.0**-23])
    assert rounding(two, 8.0, "float64")[0] == pytest.approx(8 * 2.0**-52)


def test_where_baths_decay_fastest_terms_are_large_and_double_precision_no_slower() -> None:
    bath = hd.DrudeLorentz(lam=0.1, gamma=0.5, T=0.5)
    problem = hd.Problem(0.5 * SX, [hd.Coupling(SZ, bath)])
    assert bits(run([hd.prepare(problem, depth=4, expansion=hd.Pade(1))])) == [64]


def test_in_single_precision_terms_stay_small() -> None:
    """Sums of terms much larger than the state would be worth nothing, however loose `tol` is."""
    bath = hd.DrudeLorentz(lam=0.1, gamma=0.5, T=0.5)
    problem = hd.Problem(0.5 * SX + 0.3 * SZ, [hd.Coupling(SZ, bath)])
    prepared = hd.prepare(problem, depth=6, expansion=hd.Pade(2))
    backend = registry.get("numpy")
    plan = build_plan([prepared.expanded], prepared.index_set)
    state = np.zeros((plan.n_cols, 2, 2))
    state[0, 0, 0] = 1.0
    found = {}
    for precision, tol in (("float64", 1e-10), ("float32", 1e-3)):
        c = backend.compile(plan, precision)
        x = backend.put(c, state)
        found[precision] = propagate(backend, c, x, TIMES, Selection.whole([0], 2), tol=tol).probed
    assert np.max(np.abs(found["float32"] - found["float64"])) < 1e-4


@pytest.mark.parametrize("bits_", [32, 64])
def test_an_offset_of_all_energies_costs_no_digits(bits_: int) -> None:
    """It cancels in commutators, but not in the rounding of their products."""
    rng = np.random.default_rng(10)
    h = rng.normal(size=(4, 4))
    h = 5 * (h + h.T) / np.abs(np.linalg.eigvalsh(h + h.T)).max()
    bath = hd.Exponents(c=[0.01], gamma=[0.5], cbar=[0.01])
    plain, lifted = (
        hd.Problem(h + offset * np.eye(4), [hd.Coupling(np.diag([1.0, 0, 0, 0]), bath)])
        for offset in (0.0, 1e4)
    )
    start, tol = np.full((4, 4), 0.25), 5e-5 if bits_ == 32 else 5e-6
    found = hd.run_batch([hd.prepare(lifted, depth=2)], [start], TIMES, tol=tol)
    assert bits(found) == [bits_]
    exact = hd.evolve(plain, start, TIMES, depth=2, tol=1e-10)
    assert np.max(np.abs(found.rho[0] - exact.rho)) < tol


def test_a_coupling_with_a_large_mean_stays_double() -> None:
    """A mean drops out of the commutator, and digits with it: 1e-4 of rho in single precision."""
    Q = np.array([[0.3, 0.2], [0.2, -0.5]])

    def noisy(mean: float) -> list[hd.preparation.Prepared]:
        bath = hd.Exponents(c=[0.05], gamma=[0.5])
        problem = hd.Problem([[0, 0.5], [0.5, 0]], [hd.Coupling(Q + mean * np.eye(2), bath)])
        return [hd.prepare(problem, depth=5)]

    results = [run(noisy(mean), tol=1e-5) for mean in (0.0, 10.0, 3e4)]
    assert [bits(result) for result in results] == [[32], [32], [64]]
    for result in results[1:]:
        assert np.max(np.abs(result.rho - results[0].rho)) < 1e-5


def test_an_absurd_member_leaves_the_others_alone() -> None:
    prepared = members(0.3, 1e180)
    result = run(prepared)
    assert result.outcomes[0] is hd.Outcome.DONE
    assert result.outcomes[1] is not hd.Outcome.DONE
    assert np.array_equal(result.rho[0], run(prepared[:1]).rho[0])


def test_backends_without_single_precision_stay_double(monkeypatch: pytest.MonkeyPatch) -> None:
    backend = registry.get("numpy")
    only = dataclasses.replace(backend.info, dtypes=("float64",))
    monkeypatch.setattr(type(backend), "info", property(lambda _: only))
    assert bits(run(members(0.3), backend=backend)) == [64]
