import math

import numpy as np
import pytest
import scipy.linalg
from solver_problems import SX, driven_qubit, plan_of, same_shape, solve, spin_boson

import heomdask as hd
from heomdask.backends.numpy_ import NumpyBackend
from heomdask.model.drives import Samples
from heomdask.outcome import Outcome
from heomdask.solvers import Drives

AMPLITUDE = 2 * math.pi * 0.002


def square(t):
    return AMPLITUDE if 100 < t < 600 else 0.0


def sigma_z(found):
    return found.probed[:, 0, 0] - found.probed[:, 3, 0]


def cosine(times):
    """<sz> under H = f sx from |0>: cos(2 integral of f)."""
    return np.cos(2 * AMPLITUDE * np.clip(np.asarray(times) - 100, 0, 500))


@pytest.mark.parametrize("n", [3, 267, 268, 800])
@pytest.mark.parametrize("breakpoints", [(), (100.0, 600.0)])
def test_a_square_pulse_is_seen_whatever_the_output_times(n, breakpoints):
    times = np.linspace(0, 1000, n)
    found = solve(
        plan_of([driven_qubit()], 0), times, drives=same_shape(square, 1, breakpoints), tol=1e-6
    )
    assert np.max(np.abs(sigma_z(found) - cosine(times))) < 1e-6


def test_known_points_of_the_square_pulse():
    times = [0.0, 162.5, 225.0, 600.0, 1000.0]
    found = solve(plan_of([driven_qubit()], 0), times, drives=same_shape(square), tol=1e-6)
    assert sigma_z(found) == pytest.approx([1, 0, -1, 1, 1], abs=1e-6)


def test_a_square_pulse_given_as_steps():
    grid = np.arange(0, 1001.0)
    pulse = Samples(grid, np.where((grid >= 100) & (grid < 600), AMPLITUDE, 0.0), kind="step")
    times = np.linspace(0, 1000, 11)
    drives = same_shape(pulse, 1, pulse.breakpoints)
    found = solve(plan_of([driven_qubit()], 0), times, drives=drives, tol=1e-6)
    assert np.max(np.abs(sigma_z(found) - cosine(times))) < 1e-6


@pytest.mark.parametrize("width", [0.5, 5.0, 50.0])
def test_a_lonely_gaussian_pulse_is_not_stepped_over(width):
    area = 1.1

    def pulse(t):
        return area * math.exp(-(((t - 700) / width) ** 2) / 2) / (width * math.sqrt(2 * math.pi))

    found = solve(plan_of([driven_qubit()], 0), [0.0, 1000.0], drives=same_shape(pulse), tol=1e-7)
    assert sigma_z(found)[-1] == pytest.approx(math.cos(2 * area), abs=1e-6)


def test_a_train_of_short_pulses():
    def train(t):
        return 0.5 if t % (math.pi + 20) < math.pi else 0.0

    times = np.array([0.0, 3.0, 10.0, 200.0, 400.0])
    period = math.pi + 20
    done = np.floor(times / period) * math.pi + np.minimum(times % period, math.pi)
    found = solve(plan_of([driven_qubit()], 0), times, drives=same_shape(train), tol=1e-7)
    assert np.max(np.abs(sigma_z(found) - np.cos(done))) < 1e-6


def test_members_have_their_own_pulses_and_steps_to_the_last_bit():
    rates = [0.3, 1.7, 0.9]
    edges = [2.0, 5.0, 3.3]

    def drives(which):
        def value(t):
            return np.array(
                [[rates[m] if s > edges[m] else 0.0 for m, s in zip(which, t, strict=True)]]
            )

        return Drives(value)

    member = spin_boson(drive=SX)
    times = np.linspace(0, 6, 4)
    whole = solve(plan_of([member] * 3, 2), times, drives=drives([0, 1, 2]), tol=1e-8)
    for which in ([0], [2, 1], [1, 2, 0]):
        part = solve(plan_of([member] * len(which), 2), times, drives=drives(which), tol=1e-8)
        for i, m in enumerate(which):
            assert np.array_equal(part.probed[:, :, i], whole.probed[:, :, m])
            assert part.stats[i] == whole.stats[m]


def test_a_piecewise_constant_generator_against_exponentials():
    plan = plan_of([spin_boson(drive=SX)], 4)
    off, on = (plan.to_sparse(0, np.array([v])).toarray() for v in (0.0, 0.8))
    x = np.zeros(plan.n_cols * 4)
    x[0] = 1
    middle = scipy.linalg.expm(on * 1.5) @ scipy.linalg.expm(off * 2.25) @ x
    end = scipy.linalg.expm(off * 6.25) @ middle
    drives = same_shape(lambda t: 0.8 if 2.25 <= t < 3.75 else 0.0)
    found = solve(plan, [0.0, 3.75, 10.0], drives=drives, tol=1e-8, save_states=[1])
    assert np.max(np.abs(found.states[1].ravel() - middle)) < 1e-7
    assert np.max(np.abs(found.probed[2, :, 0] - end[:4])) < 1e-8


@pytest.mark.parametrize("bad", [math.nan, math.inf])
def test_a_drive_that_is_not_finite_stops_its_member_and_names_the_time(bad):
    def value(t):
        return np.array([[0.1, bad if t[1] > 1.0 else 0.1]])

    found = solve(plan_of([driven_qubit()] * 2, 0), [0.0, 0.5, 1.0, 4.0], drives=Drives(value))
    assert found.outcomes == (Outcome.DONE, Outcome.NOT_FINITE)
    assert found.stats[1]["stopped_at"] == pytest.approx(1.0, abs=1e-12)
    assert np.isfinite(found.probed[:3]).all()
    assert np.isnan(found.probed[3, :, 1]).all()
    assert np.isfinite(found.probed[3, :, 0]).all()


def test_rare_steps_where_nothing_happens():
    found = solve(
        plan_of([driven_qubit()], 0), [0.0, 1e6], drives=same_shape(lambda t: 0.0), tol=1e-6
    )
    assert found.stats[0]["applications"] < 60
    assert found.probed[-1, :, 0].tolist() == [1, 0, 0, 0]


def test_scalars_are_those_of_the_plan_in_its_order():
    """The backend sees (n_named, M) values at the stage times only."""
    plan = plan_of([driven_qubit()], 0)
    seen = []
    backend = NumpyBackend()
    assert backend.compile(plan).plan.names == ("f",)

    def value(t):
        seen.append(t.copy())
        return np.zeros((1, len(t)))

    solve(plan, [2.0, 3.0], drives=Drives(value))
    moments = np.concatenate(seen)
    assert moments.min() >= 2.0
    assert moments.max() <= 3.0


@pytest.mark.parametrize(
    ("end", "tol"),
    [
        (100.0, 1e-3),
        pytest.param(3000.0, 1e-3, marks=pytest.mark.slow),
        pytest.param(1000.0, 1e-5, marks=pytest.mark.slow),
    ],
)
def test_tol_bounds_the_error_of_a_long_run(end, tol):
    """The errors of all steps of a qubit that turns up to 1000 times stay within `tol` together."""
    H = np.array([[0.5, 1.0], [1.0, -0.5]])
    drive = hd.Problem(np.diag([0.5, -0.5]), drives=[(_one, np.array([[0, 1], [1, 0]]))])
    times = np.array([0.0, end / 3, end])
    found = hd.evolve(drive, [1, 0], times, depth=0, expansion=hd.Pade(0), tol=tol).rho
    energies, basis = np.linalg.eigh(H)
    for t, rho in zip(times, found, strict=True):
        ket = basis @ (np.exp(-1j * energies * t) * basis[0])
        assert np.max(np.abs(rho - np.outer(ket, ket.conj()))) < tol


class Gaussian:
    """A pulse that turns the qubit by pi."""

    def __init__(self, centre, width):
        self.centre, self.width = centre, width

    def __call__(self, t):
        x = (t - self.centre) / self.width
        return math.sqrt(math.pi / 8) / self.width * math.exp(-x * x / 2)


def _driven(pulse, n, breakpoints=()):
    """A run of 1000 with all ADOs saved, so in chunks of 16 output times."""
    drive = hd.Drive(pulse, SX.real, breakpoints=breakpoints)
    return hd.evolve(
        hd.Problem(0 * SX.real, drives=[drive]), [1, 0], np.linspace(0, 1000, n),
        depth=0, expansion=hd.Pade(0), save=("rho", "ados"),
    )  # fmt: skip


def test_a_pulse_between_two_samples_is_warned_of_unless_declared():
    pulse = Gaussian(503.3, 0.003)
    with pytest.warns(hd.HeomdaskWarning, match=r"up to 0.244 apart.*Declare breakpoints"):
        unseen = _driven(pulse, 2)
    assert unseen.stats["scan_resolution"] == pytest.approx(1000 / 4096)
    assert unseen.rho[-1, 0, 0] == 1
    seen = _driven(pulse, 2, breakpoints=[503.285, 503.315])
    assert seen.rho[-1, 1, 1].real == pytest.approx(1, abs=1e-6)


@pytest.mark.parametrize("width", [0.01, 2.0])
def test_chunks_of_time_share_one_scan(width):
    """In most chunks this pulse is 0; over the run it is not, and so nothing is warned of."""
    found = _driven(Gaussian(503.37, width), 50)
    assert found.rho[-1, 1, 1].real == pytest.approx(1, abs=1e-6)


def _one(t: float) -> float:
    return 1.0 + 0.0 * t
