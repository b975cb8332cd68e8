"""One two-level system: against exact diagonalisation, path integrals, perturbation theory."""

from __future__ import annotations

import numpy as np
import pytest
import scipy.linalg
from support import PLUS, SX, SY, SZ, UP, cplx, load

import heomdask as hd

H = 0.25 * SZ + 0.5 * SX  # the Hamiltonian of most of these cases


def with_bath(bath, *, Q=SZ, hamiltonian=H):
    return hd.Problem(hamiltonian, [hd.Coupling(Q, bath)])


def assert_is_truncation_error(found, depth, stated):
    """A truncated hierarchy has one error; a solver adds next to nothing to it."""
    assert found < 1.2 * stated + 1e-8, f"depth {depth}: {found} instead of {stated}"


class TestA14UndampedMode:
    @pytest.mark.filterwarnings("ignore:.*estimated to be off")
    @pytest.mark.parametrize("name", ["T0", "hot", "strong"])
    def test_states_by_depth(self, backend, name):
        case = load("A14")["cases"][name]
        n = 1 / np.expm1(case["w0"] / case["T"]) if case["T"] > 0 else 0.0
        bath = hd.Exponents(
            c=case["g"] ** 2 * np.array([n + 1, n]), gamma=1j * case["w0"] * np.array([1, -1])
        )
        for depth, stated in case["own_heom_max_error_by_depth"].items():
            sol = hd.evolve(
                with_bath(bath),
                [1, 0],
                case["t"],
                depth=int(depth),
                expansion=None,
                backend=backend,
                tol=1e-9,
                throw=False,
            )
            error = np.max(np.abs(sol.rho[:, 0, 0] - case["rho00"]))
            assert_is_truncation_error(error, depth, stated)
        assert np.max(np.abs(sol.rho[:, 0, 1] - cplx(case["rho01"]))) < 1e-5


class TestA15DampedMode:
    def bath(self):
        case = load("A15")
        return hd.Exponents(c=[case["g"] ** 2], gamma=[case["gb"] / 2 + 1j * case["w0"]])

    def test_states_by_depth(self, backend):
        case = load("A15")
        for depth, stated in case["own_heom_max_error_by_depth"].items():
            sol = hd.evolve(
                with_bath(self.bath()),
                [1, 0],
                case["t"],
                depth=int(depth),
                expansion=None,
                backend=backend,
                tol=1e-10,
            )
            error = np.max(np.abs(sol.rho[:, 0, 0] - case["rho00"]))
            assert_is_truncation_error(error, depth, stated)
        assert np.max(np.abs(sol.rho[:, 0, 1] - cplx(case["rho01"]))) < 1e-8

    def test_steady_state_by_propagation(self):
        case = load("A15")
        sol = hd.evolve(
            with_bath(self.bath()),
            [1, 0],
            [0, 400],
            depth=12,
            expansion=None,
            tol=1e-9,
            backend="native",
        )
        assert np.max(np.abs(sol.rho[-1] - cplx(case["steady_state"]))) < 1e-7


class TestA16Equilibrium:
    @pytest.mark.parametrize(
        ("row", "poles", "depth", "duration", "tolerance"),
        [
            pytest.param(0, 3, 2, 6e4, 1e-7, marks=pytest.mark.slow),
            (1, 3, 10, 150.0, 5e-5),
        ],
    )
    def test_mean_force_state_by_propagation(self, row, poles, depth, duration, tolerance):
        case = load("A16")["rows"][row]
        bath = hd.DrudeLorentz(lam=case["lam"], gamma=case["gamma"], T=case["T"])
        gibbs = scipy.linalg.expm(-H / case["T"])
        sol = hd.evolve(
            with_bath(bath),
            gibbs / np.trace(gibbs),
            [0, duration],
            depth=depth,
            expansion=hd.Pade(poles),
            observables={"x": SX, "y": SY, "z": SZ},
            tol=1e-9,
            backend="native",
        )
        assert sol.observables["z"][-1] == pytest.approx(case["sz_meanforce"], abs=tolerance)
        assert sol.observables["x"][-1] == pytest.approx(case["sx_meanforce"], abs=tolerance)
        assert abs(sol.observables["y"][-1]) < tolerance


class TestA18PathIntegral:
    case = load("A18")["cases"][0]
    problem = with_bath(hd.DrudeLorentz(lam=case["lam"], gamma=case["gamma"], T=case["T"]))
    rows = case["rows"]
    times = (0.0, *(row["t"] for row in rows))

    def states(self):
        p = np.array([row["rho00"] for row in self.rows])
        c = np.array([cplx(row["rho01"]) for row in self.rows])
        return np.moveaxis(np.array([[p, c], [c.conj(), 1 - p]]), -1, 0)

    def test_pade_3(self, backend):
        sol = hd.evolve(
            self.problem, UP, self.times, depth=10, expansion=hd.Pade(3), tol=1e-8, backend=backend
        )
        assert np.max(np.abs(sol.rho[1:, 0, 0] - [r["rho00"] for r in self.rows])) < 3e-5
        # three poles are off by 3.4e-5 in the coherence at t = 3: the known bias, to 1e-6
        off = np.max(np.abs(sol.rho[1:] - self.states()), axis=(1, 2))
        np.testing.assert_allclose(off, [row["own_heom_minus_pi"] for row in self.rows], atol=1e-6)

    @pytest.mark.parametrize(("poles", "whole"), [(6, False), (7, True)])
    def test_more_poles(self, poles, whole):
        """Six poles hold the population to 3e-6; the coherence at t = 3 needs a seventh."""
        sol = hd.evolve(
            self.problem,
            UP,
            self.times,
            depth=8,
            expansion=hd.Pade(poles),
            tol=1e-9,
            backend="native",
        )
        off = np.abs(sol.rho[1:] - self.states())
        assert np.max(off if whole else off[:, 0, 0]) < 3e-6

    def test_later(self):
        rows = self.case["later_own_heom"]
        sol = hd.evolve(
            self.problem,
            UP,
            [0, *(row["t"] for row in rows)],
            depth=12,
            expansion=hd.Pade(3),
            tol=1e-8,
            backend="native",
        )
        assert np.max(np.abs(sol.rho[1:, 0, 0] - [row["rho00"] for row in rows])) < 3e-5
        assert np.max(np.abs(sol.rho[1:, 0, 1] - [cplx(row["rho01"]) for row in rows])) < 3e-5

    def test_error_of_every_expansion(self):
        for entry in self.case["convergence"]:
            if "pade" in entry:
                expansion = hd.Pade(entry["pade"])
            else:
                expansion = hd.Matsubara(
                    entry["matsubara"], terminator=entry["terminator"], coefficients="exact"
                )
            sol = hd.evolve(
                self.problem,
                UP,
                self.times,
                depth=entry["depth"],
                expansion=expansion,
                tol=1e-8,
                backend="native",
            )
            error = np.max(np.abs(sol.rho[1:, 0, 0] - [row["rho00"] for row in self.rows]))
            stated = entry["max_abs_rho00_error_vs_path_integral"]
            assert error == pytest.approx(stated, rel=0.05, abs=1e-6), entry


def test_A26_brownian_two_level(backend):
    case = load("A26")
    bath = hd.UnderdampedBrownian(lam=case["lam0"], gamma=case["zeta"], w0=case["w0"], T=case["T"])
    gap = np.sqrt(case["w0"] ** 2 - case["zeta"] ** 2 / 4)
    problem = with_bath(bath, Q=SX, hamiltonian=np.diag([gap, 0]))
    sol = hd.evolve(
        problem,
        UP,
        case["t"],
        depth=case["depth"],
        expansion=hd.Pade(1),
        tol=1e-11,
        backend=backend,
    )
    assert np.max(np.abs(sol.rho[:, 0, 0] - case["rho00_peer"])) < 1e-9
    if backend == "native":
        sol = hd.evolve(
            problem, UP, case["t"], depth=7, expansion=hd.Pade(4), backend=backend, tol=1e-10
        )
        assert np.max(np.abs(sol.rho[:, 0, 0] - case["rho00_converged_pade4_depth7"])) < 1e-8


class TestA27SecondOrder:
    case = load("A27")

    def spectrum(self, lam):
        bath = hd.DrudeLorentz(lam=lam, gamma=self.case["gamma"], T=self.case["T"])
        operator = hd.as_linear_operator(
            with_bath(bath, Q=SX, hamiltonian=0.5 * SZ), depth=3, expansion=hd.Pade(4)
        )
        return np.linalg.eigvals(operator @ np.eye(operator.shape[1], dtype=complex))

    @pytest.mark.parametrize("row", [0, 1, 2])
    def test_relaxation_rate_and_frequency_shift(self, row):
        expected = self.case["rows"][row]
        values = self.spectrum(expected["lam"])
        real = np.sort(-values[np.abs(values.imag) < 1e-9].real)
        assert abs(real[0]) < 1e-12  # the equilibrium state
        assert real[1] == pytest.approx(expected["relax_rate_heom"], rel=1e-4)
        coherence = values[np.argmin(np.abs(values - (1j - expected["half_rate"])))]
        assert coherence == pytest.approx(cplx(expected["coherence_eigenvalue"]), rel=1e-5)

    def test_ratio_to_the_golden_rule_goes_to_one_linearly(self):
        deviation = []
        for row in self.case["rows"]:
            values = self.spectrum(row["lam"])
            real = np.sort(-values[np.abs(values.imag) < 1e-9].real)
            deviation.append((1 - real[1] / row["golden_rule"]) / row["lam"])
        assert deviation == pytest.approx([deviation[0]] * 3, rel=0.06)


class TestA35ZeroCoupling:
    case = load("A35")

    @pytest.mark.parametrize("what", ["lam=0", "Q=0", "no bath", "depth=0"])
    def test_unitary(self, backend, what):
        bath = hd.DrudeLorentz(lam=0.0 if what == "lam=0" else 0.1, gamma=0.5, T=0.5)
        Q = 0 * SZ if what == "Q=0" else SZ
        couplings = [] if what == "no bath" else [hd.Coupling(Q, bath)]
        sol = hd.evolve(
            hd.Problem(H, couplings),
            UP,
            self.case["t"],
            depth=0 if what == "depth=0" else 4,
            expansion=hd.Pade(1),
            backend=backend,
            tol=1e-10,
        )
        assert np.max(np.abs(sol.rho[:, 0, 0] - self.case["rho00"])) < 1e-8

    def test_terminator_only(self, backend):
        case = self.case["terminator_only"]
        bath = hd.DrudeLorentz(lam=case["lam"], gamma=case["gamma"], T=case["T"])
        problem = hd.Problem(0 * SZ, [hd.Coupling(SZ, bath)])
        sol = hd.evolve(
            problem, PLUS, [0, 100], depth=0, expansion=hd.Matsubara(0), backend=backend, tol=1e-10
        )
        assert sol.rho[-1, 0, 1] == pytest.approx(case["rho01_at_100"], abs=1e-8)
        assert sol.rho[-1, 0, 1] == pytest.approx(0.5 * np.exp(-400 * case["delta"]), abs=1e-8)
