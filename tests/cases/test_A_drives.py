"""Time-dependent Hamiltonians: pulses that an adaptive stepper must not jump over."""

from __future__ import annotations

import functools

import numpy as np
import pytest
from support import PLUS, SX, SZ, load

import heomdask as hd

CASE = load("A21")


def pulse(amplitude: float, t: float) -> float:
    """Rectangles of area pi/2, 20 apart."""
    duration = np.pi / 2 / amplitude
    return amplitude if t % (duration + 20) < duration else 0.0


def edges(amplitude: float, until: float) -> list[float]:
    duration = np.pi / 2 / amplitude
    starts = np.arange(0, until + duration + 20, duration + 20)
    return sorted([*starts, *(starts + duration)])


def problem(drives=()):
    bath = hd.DrudeLorentz(
        lam=CASE["bath"]["lam"], gamma=CASE["bath"]["gamma"], T=CASE["bath"]["T"]
    )
    return hd.Problem(0 * SZ, [hd.Coupling(SZ, bath)], drives=drives)


def coherence(drives, times, backend, tol=1e-8, depth=CASE["depth"], poles=3):
    sol = hd.evolve(
        problem(drives),
        PLUS,
        times,
        depth=depth,
        expansion=hd.Pade(poles),
        backend=backend,
        tol=tol,
    )
    return sol.rho[:, 0, 1].real


class TestA21PulsedDephasing:
    @pytest.mark.parametrize("name", ["fast", "slow"])
    def test_with_breakpoints(self, name):
        amplitude = CASE["computed"][name]["amplitude"]
        drive = hd.Drive(functools.partial(pulse, amplitude), SX, edges(amplitude, 400))
        found = coherence([drive], CASE["t"], "native")
        assert np.max(np.abs(found - CASE["computed"][name]["rho01_re"])) < 1e-5
        for index, value in CASE["peer_values_index"][name].items():
            assert found[int(index)] == pytest.approx(value, abs=1e-5)

    @pytest.mark.parametrize("times", [CASE["t"], [0, 400]], ids=["grid", "ends"])
    @pytest.mark.parametrize("name", ["fast", "slow"])
    def test_without_breakpoints(self, name, times):
        """Pulses of a plain function are seen, whatever the output times."""
        amplitude = CASE["computed"][name]["amplitude"]
        drive = hd.Drive(functools.partial(pulse, amplitude), SX)
        found = coherence([drive], times, "native", tol=1e-7)
        expected = np.array(CASE["computed"][name]["rho01_re"])
        if len(times) == 2:
            expected = expected[[0, -1]]
        assert np.max(np.abs(found - expected)) < 1e-5

    def test_on_the_reference_backend(self):
        drive = hd.Drive(functools.partial(pulse, 0.5), SX, edges(0.5, 50))
        found = coherence([drive], CASE["t"][:6], "numpy", tol=1e-7)
        assert np.max(np.abs(found - CASE["computed"]["fast"]["rho01_re"][:6])) < 1e-5

    def test_undriven(self, backend):
        exact = CASE["undriven_exact"]["t=10,100,200,400"]
        found = coherence([], [0, 10, 100, 200, 400], backend, depth=14, poles=2)
        assert np.max(np.abs(found[1:] - np.array(exact))) < 1e-5
