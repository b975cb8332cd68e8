import math

import numpy as np
import pytest
from solver_problems import same_shape

from heomdask.solvers.drives import SAMPLES, sample_times, scan

TIMES = np.linspace(0.0, 1000.0, 5)


def pieces(f, breakpoints=(), times=TIMES):
    return scan(same_shape(f, 1, breakpoints), np.asarray(times), 1)[0]


def test_sampling_is_as_dense_as_promised():
    even = sample_times(np.array([0.0, 1.0]))
    assert len(even) >= SAMPLES
    times = np.array([0.0, 1e-3, 1.0, 1.0])
    grid = sample_times(times)
    assert np.count_nonzero(grid < 1e-3) >= 8
    assert set(times) <= set(grid)


def test_jumps_of_a_plain_function_are_found_to_the_last_bit():
    found = pieces(lambda t: 0.7 if 123.456 < t < 600.0 else 0.0)
    assert found.before.tolist() == [123.456, np.nextafter(600.0, 0.0)]
    assert found.after.tolist() == [np.nextafter(123.456, 1e9), 600.0]


def test_a_jump_on_a_slope_and_a_step_back_within_one_output_interval():
    found = pieces(lambda t: math.sin(t / 40) + (0.3 if 500.1 <= t < 503.0 else 0.0))
    assert found.after == pytest.approx([500.1, 503.0], abs=1e-10)


@pytest.mark.parametrize(
    "f",
    [
        lambda t: math.exp(-((t - 300) ** 2) / 800),
        lambda t: math.sin(t / 3),
        lambda t: abs(t - 400.0),
        lambda t: 2.5,
        lambda t: t**2,
    ],
)
def test_continuous_functions_have_no_jumps(f):
    assert len(pieces(f).before) == 0


def test_declared_breakpoints_and_found_ones_are_joined():
    found = pieces(lambda t: 1.0 if t >= 250.0 else 0.0, breakpoints=(250.0, 700.0, 5000.0))
    assert found.after.tolist() == [np.nextafter(250.0, 1e9), np.nextafter(700.0, 1e9)]
    assert found.piece(0.0) == (-np.inf, np.nextafter(250.0, 0.0))
    assert found.piece(found.before[0]) == (found.after[0], found.before[1])


def test_the_onset_of_nan_is_found():
    found = pieces(lambda t: math.nan if t > 333.0 else 1.0)
    assert found.before.tolist() == [333.0]


def test_a_step_reaches_the_pulse_but_not_across_it():
    found = pieces(lambda t: math.exp(-((t - 700) ** 2) / 2))  # 1 wide, in 1000
    for t in (0.0, 300.0, 690.0):
        assert t < found.reach(t) <= 700.5
    assert found.reach(720.0) == np.inf


def test_a_small_pulse_on_a_large_background_counts():
    found = pieces(lambda t: 5.0 + 1e-3 * math.exp(-((t - 200) ** 2) / 8))
    assert found.reach(0.0) < 203


def test_members_have_their_own_pieces():
    def value(t):
        return np.array([[1.0 if t[0] > 100 else 0.0, 1.0 if t[1] > 900 else 0.0]])

    from heomdask.solvers import Drives

    one, two = scan(Drives(value), TIMES, 2)
    assert one.before.tolist() == [100.0]
    assert two.before.tolist() == [900.0]
