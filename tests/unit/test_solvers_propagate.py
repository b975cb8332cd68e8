import numpy as np
import pytest
import scipy.linalg
from solver_problems import (
    driven_qubit,
    exact,
    first_state,
    plan_of,
    same_shape,
    solve,
    spin_boson,
    stiff,
    trimer,
)

from heomdask.backends.numpy_ import NumpyBackend
from heomdask.backends.traits import Selection
from heomdask.errors import InputError
from heomdask.outcome import Outcome
from heomdask.plan import Pattern, Plan, Shift, Term
from heomdask.solvers import Bounds, propagate

METHODS = ("auto", "faber", "taylor", "rk")


@pytest.fixture(scope="module")
def small():
    return plan_of([spin_boson()], 5)


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize(
    "times", [[0, 1, 1, 2], [0, 0], [5, 6, 7], [3.0], [0, 0, 20], [-2.0, 0.5], [0, 1e-9, 30]]
)
def test_any_ascending_times(small, method, times):
    grid = np.array(times, dtype=float)
    found = solve(small, grid, tol=1e-9, method=method)
    assert found.outcomes == (Outcome.DONE,)
    assert np.max(np.abs(found.probed[:, :, 0] - exact(small, first_state(small), grid))) < 1e-9


def test_repeated_times_give_the_same_numbers(small):
    found = solve(small, [0.0, 0.0, 3.0, 3.0], tol=1e-8)
    assert np.array_equal(found.probed[0], found.probed[1])
    assert np.array_equal(found.probed[2], found.probed[3])
    assert np.array_equal(found.probed[0, :, 0], [1, 0, 0, 0])


@pytest.mark.parametrize("method", METHODS)
def test_numbers_do_not_depend_on_the_other_output_times(small, method):
    few = solve(small, [0.0, 10.0], tol=1e-8, method=method)
    many = solve(small, np.linspace(0, 10, 51), tol=1e-8, method=method)
    assert np.array_equal(few.state, many.state)
    assert few.probed[-1] == pytest.approx(many.probed[-1], abs=1e-15)


def test_the_given_state_is_left_as_it_was(small):
    backend = NumpyBackend()
    compiled = backend.compile(small)
    x0 = backend.put(compiled, first_state(small))
    before = backend.fetch(compiled, x0)
    for method in METHODS:
        propagate(backend, compiled, x0, [0.0, 5.0], Selection.whole([0], 2), method=method)
    assert np.array_equal(backend.fetch(compiled, x0), before)


@pytest.mark.parametrize("method", METHODS)
def test_complex_plans(method):
    plan = plan_of([spin_boson()], 4, form="complex")
    x0 = np.zeros((plan.n_cols, 2, 2), complex)
    x0[0] = [[0.3, 0.1 + 0.4j], [0.2j, 0.5]]  # not Hermitian
    times = np.linspace(0, 8, 5)
    found = solve(plan, times, x0=x0, tol=1e-9, method=method)
    assert found.probed.dtype == np.complex128
    assert np.max(np.abs(found.probed[:, :, 0] - exact(plan, x0, times))) < 1e-9


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("batch", [[0], [3, 7, 1], [7, 6, 5, 4, 3, 2, 1, 0]])
def test_a_member_is_the_same_to_the_last_bit_in_any_batch(method, batch):
    members = [trimer(lam=0.004 * i, T=0.02 + 0.01 * i, seed=i) for i in range(8)]
    times = np.linspace(0, 400 if method in ("auto", "faber") else 40, 5)
    tol = np.geomspace(1e-4, 1e-9, 8)
    everyone = solve(plan_of(members, 2), times, tol=tol, method=method, save_states=[2])
    some = solve(
        plan_of([members[m] for m in batch], 2), times, tol=tol[batch], method=method,
        save_states=[2],
    )  # fmt: skip
    for i, m in enumerate(batch):
        assert np.array_equal(some.probed[:, :, i], everyone.probed[:, :, m])
        assert np.array_equal(some.state[i], everyone.state[m])
        assert np.array_equal(some.states[2][i], everyone.states[2][m])
        assert some.stats[i] == everyone.stats[m]


def test_members_are_all_right_in_one_batch():
    members = [trimer(lam=0.004 * i, T=0.02 + 0.01 * i, seed=i) for i in range(1, 6)]
    plan = plan_of(members, 3)
    times = np.linspace(0, 700, 8)
    found = solve(plan, times, tol=1e-8)
    for m in range(5):
        assert (
            np.max(np.abs(found.probed[:, :, m] - exact(plan, first_state(plan), times, m))) < 1e-8
        )


@pytest.mark.parametrize("factor", [0.2, 0.5, 0.8, 0.97, 1.5, 4.0])
def test_a_wrong_ellipse_costs_time_and_no_accuracy(factor):
    plan = plan_of([trimer()], 4)
    times = np.linspace(0, 1000, 6)
    bounds = Bounds(centre=[-0.04], real=[0.042 * factor], imag=[0.1 * factor])
    found = solve(plan, times, tol=1e-7, method="faber", bounds=bounds)
    assert found.outcomes[0].good
    assert np.max(np.abs(found.probed[:, :, 0] - exact(plan, first_state(plan), times))) < 1e-7
    assert found.stats[0]["bound_applications"] == 0


@pytest.mark.parametrize("centre", [-500.0, -1.0, 3.0])
def test_a_misplaced_ellipse_ends_in_taylor_or_right(centre):
    plan = plan_of([stiff()], 3)
    bounds = Bounds(centre=[centre], real=[10.0], imag=[10.0])
    found = solve(plan, [0.0, 2.0], tol=1e-7, method="faber", bounds=bounds)
    error = np.abs(found.probed[:, :, 0] - exact(plan, first_state(plan), np.array([0.0, 2.0])))
    assert found.outcomes[0].good
    assert np.max(error) < 1e-7


def test_auto_needs_no_bounds_for_a_short_run_and_has_them_for_a_long_one(small):
    short, long = (solve(small, [0.0, t], tol=1e-6).stats[0] for t in (0.3, 30.0))
    assert (short["method"], short["bound_applications"]) == ("taylor", 0)
    assert long["method"] == "faber"
    assert 0 < long["bound_applications"] <= 40
    assert short["applications"] < 60


def test_a_state_of_zero_stays_zero(small):
    found = solve(small, [0.0, 50.0], x0=np.zeros((small.n_cols, 2, 2)))
    assert found.outcomes[0].good
    assert not found.probed.any()


def test_saved_states_are_those_at_their_times(small):
    times = np.linspace(0, 12, 7)
    found = solve(small, times, tol=1e-10, save_states=[0, 2, 2, -1])
    assert sorted(found.states) == [0, 2, 6]
    g = small.to_sparse().toarray()
    for i in (0, 2, 6):
        expected = scipy.linalg.expm(g * times[i]) @ first_state(small).ravel()
        assert np.max(np.abs(found.states[i].ravel() - expected)) < 1e-9
    assert np.array_equal(found.states[6], found.state)


def test_progress_ascends_to_one(small):
    seen: list[float] = []
    solve(small, [0.0, 100.0], tol=1e-9, progress=seen.append)
    assert seen == sorted(seen)
    assert seen[-1] == 1.0


def test_step_limit_is_an_outcome_that_names_the_fastest_rate():
    plan = plan_of([stiff()], 3)
    for method, most in (("taylor", 600), ("faber", 600), ("rk", 6000)):
        found = solve(plan, [0.0, 1.0, 1000.0], method=method, max_applications=most)
        assert found.outcomes == (Outcome.TOO_MANY_STEPS,)
        stats = found.stats[0]
        assert 1.0 < stats["stopped_at"] < 1000.0
        assert stats["fastest_rate"] == pytest.approx(50.7, rel=0.01)
        assert np.isfinite(found.probed[1]).all()
        assert np.isnan(found.probed[2]).all()


def one_by_one(rates):
    """Members that grow or fall with their own rate."""
    term = Term((Shift(0, np.array(rates, dtype=float)),))
    return Plan(2, 1, 1, len(rates), "real", (Pattern(1, 1),), (term,))


@pytest.mark.parametrize("method", METHODS)
def test_one_member_that_explodes_stops_alone(method):
    plan = one_by_one([-1.0, 40.0, -0.3])
    found = solve(plan, [0.0, 1.0, 4.0], tol=1e-6, method=method)
    assert found.outcomes == (Outcome.DONE, Outcome.UNSTABLE, Outcome.DONE)
    assert found.probed[2, 0, [0, 2]] == pytest.approx(np.exp([-4.0, -1.2]), abs=1e-6)
    assert np.isnan(found.probed[2, 0, 1])
    assert found.growth[1] > 1e8
    assert found.growth[[0, 2]].tolist() == [1.0, 1.0]
    assert found.stats[1]["stopped_at"] < 4.0


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("poison", [np.nan, np.inf])
def test_one_member_that_is_not_finite_stops_alone(method, poison):
    plan = one_by_one([-1.0, -2.0, -0.3])
    x0 = np.zeros((1, 2, 2, 3))
    x0[0, 0, 0] = [1.0, poison, 1.0]
    found = solve(plan, [0.0, 1.0, 4.0], x0=x0, method=method)
    assert found.outcomes == (Outcome.DONE, Outcome.NOT_FINITE, Outcome.DONE)
    assert found.probed[2, 0, [0, 2]] == pytest.approx(np.exp([-4.0, -1.2]), abs=1e-6)


@pytest.mark.parametrize("method", METHODS)
def test_a_generator_that_is_not_finite_is_an_outcome(method):
    found = solve(one_by_one([-1.0, np.nan]), [0.0, 4.0], method=method)
    assert found.outcomes == (Outcome.DONE, Outcome.NOT_FINITE)
    assert found.probed[1, 0, 0] == pytest.approx(np.exp(-4.0), abs=1e-6)


def test_growth_is_reported():
    found = solve(one_by_one([0.5]), [0.0, 2.0], tol=1e-9)
    assert found.growth[0] == pytest.approx(np.e, rel=1e-8)


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"times": [0.0, 2.0, 1.0]}, "`times` must ascend"),
        ({"times": []}, "`times`"),
        ({"times": [0.0, np.nan]}, "`times`"),
        ({"method": "euler"}, "`method`"),
        ({"tol": 0.0}, "`tol`"),
        ({"tol": np.nan}, "`tol`"),
    ],
)
def test_wrong_arguments(small, change, words):
    arguments = {"times": [0.0, 1.0], **change}
    with pytest.raises(InputError, match=words):
        solve(small, arguments.pop("times"), **arguments)


def test_named_scalars_need_drives_and_a_method_for_them():
    plan = plan_of([driven_qubit()], 0)
    with pytest.raises(InputError, match="`drives`"):
        solve(plan, [0.0, 1.0])
    with pytest.raises(InputError, match="`method`"):
        solve(plan, [0.0, 1.0], drives=same_shape(lambda t: t), method="faber")


def test_single_precision_runs():
    plan = plan_of([spin_boson()], 5)
    backend = NumpyBackend()
    compiled = backend.compile(plan, "float32")
    times = np.linspace(0, 10, 5)
    x0 = backend.put(compiled, first_state(plan).astype(np.float32))
    for method in METHODS:
        found = propagate(
            backend, compiled, x0, times, Selection.whole([0], 2), tol=1e-5, method=method
        )
        error = np.abs(found.probed[:, :, 0] - exact(plan, first_state(plan), times))
        assert found.outcomes[0].good
        assert np.max(error) < 2e-5


def test_very_many_output_times(small):
    times = np.linspace(0, 30, 5001)
    found = solve(small, times, tol=1e-8)
    coarse = solve(small, times[::1000], tol=1e-8)
    assert np.max(np.abs(found.probed[::1000] - coarse.probed)) < 1e-12  # terms of some hundreds
