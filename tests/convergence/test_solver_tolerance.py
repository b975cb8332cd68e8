"""The error follows `tol`, from 1e-3 to 1e-11, for every method, and the order is what it says."""

import numpy as np
import pytest
from solver_problems import (
    SX,
    exact,
    first_state,
    plan_of,
    same_shape,
    solve,
    spin_boson,
    stiff,
    trimer,
)

TOLERANCES = [1e-3, 1e-5, 1e-7, 1e-9, 1e-11]

FEWER = {"taylor": [1e-3, 1e-7, 1e-11], "rk": [1e-3, 1e-6, 1e-9]}  # they take longer

PROBLEMS = {
    "spin-boson": (lambda: plan_of([spin_boson()], 8), np.linspace(0, 30, 16)),
    "strong": (
        lambda: plan_of([spin_boson(lam=1.0, T=0.5, gamma=0.5, n=2)], 6),
        np.linspace(0, 20, 9),
    ),
    "stiff": (lambda: plan_of([stiff()], 3), np.linspace(0, 15, 7)),
    "trimer": (lambda: plan_of([trimer()], 4), np.linspace(0, 1000, 21)),
    "weak": (lambda: plan_of([trimer(lam=0.0005)], 4), np.linspace(0, 1500, 4)),
}


@pytest.mark.parametrize("method", ["auto", "faber", "taylor", "rk"])
@pytest.mark.parametrize("name", PROBLEMS)
def test_error_stays_below_the_tolerance(name, method):
    make, times = PROBLEMS[name]
    plan = make()
    reference = exact(plan, first_state(plan), times)
    counts = []
    for tol in TOLERANCES if method in ("auto", "faber") else FEWER[method]:
        found = solve(plan, times, tol=tol, method=method)
        assert found.outcomes[0].good
        assert np.max(np.abs(found.probed[:, :, 0] - reference)) < tol
        counts.append(found.stats[0]["applications"])
    assert counts[-1] > counts[0]  # a looser tolerance is cheaper


@pytest.mark.parametrize("tol", [1e-4, 1e-7, 1e-9])
def test_driven_error_stays_below_the_tolerance(tol):
    plan = plan_of([spin_boson(drive=SX)], 5)
    drives = same_shape(lambda t: 0.7 * np.sin(3 * t) * np.exp(-((t - 4) ** 2) / 4))
    times = np.linspace(0, 12, 25)
    fine = solve(plan, times, drives=drives, tol=1e-12)
    found = solve(plan, times, drives=drives, tol=tol)
    assert np.max(np.abs(found.probed - fine.probed)) < tol


def test_dense_output_of_a_driven_run_is_as_good_as_its_steps():
    plan = plan_of([spin_boson(drive=SX)], 4)
    drives = same_shape(lambda t: np.sin(t))
    times = np.linspace(0, 10, 1001)
    every = solve(plan, times, drives=drives, tol=1e-6)
    fine = solve(plan, times, drives=drives, tol=1e-9)
    assert every.stats[0]["segments"] < len(times) / 2  # outputs do not shorten steps
    assert np.max(np.abs(every.probed - fine.probed)) < 1e-6


def test_faber_needs_far_fewer_applications_than_taylor_or_runge_kutta():
    make, times = PROBLEMS["stiff"]
    plan = make()
    counts = {
        method: solve(plan, times, tol=1e-6, method=method).stats[0]["applications"]
        for method in ("faber", "taylor", "rk")
    }
    assert 3 * counts["faber"] < min(counts["taylor"], counts["rk"])
