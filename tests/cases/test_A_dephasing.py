"""Pure dephasing, where ``rho_ij(t) = rho_ij(0) exp(-(q_i - q_j)(q_i g(t) - q_j g*(t)))``."""

from __future__ import annotations

import numpy as np
import pytest
from support import PLUS, SX, SZ, load

import heomdask as hd
from heomdask.units import K, cm1, fs


def dephasing(baths, times, *, depth, expansion, backend, Q=SZ, rho0=PLUS, tol=1e-8, H=0 * SZ):
    problem = hd.Problem(H, [hd.Coupling(Q, bath) for bath in baths])
    return hd.evolve(
        problem, rho0, times, depth=depth, expansion=expansion, backend=backend, tol=tol
    )


class TestA01SlowDrude:
    @pytest.mark.parametrize(("depth", "tolerance"), [(20, 1e-3), (28, 1e-5)])
    def test_coherence(self, backend, depth, tolerance):
        case = load("A01")
        bath = hd.DrudeLorentz(lam=case["lam"], gamma=case["gamma"], T=case["T"])
        sol = dephasing([bath], case["t"], depth=depth, expansion=hd.Pade(1), backend=backend)
        expected = np.array([float(x) for x in case["rho01"]])
        assert np.max(np.abs(sol.rho[:, 0, 1] - expected)) < tolerance
        assert np.max(np.abs(sol.rho[:, 0, 0] - 0.5)) < 1e-10

    @pytest.mark.filterwarnings("ignore:.*estimated to be off")
    def test_error_by_depth_is_that_of_the_truncation(self):
        case = load("A01")
        bath = hd.DrudeLorentz(lam=case["lam"], gamma=case["gamma"], T=case["T"])
        expected = np.array([float(x) for x in case["rho01"]])
        for depth, error in case["own_heom_max_error_by_depth_pade1"].items():
            sol = dephasing(
                [bath], case["t"], depth=int(depth), expansion=hd.Pade(1), backend="native"
            )
            found = np.max(np.abs(sol.rho[:, 0, 1] - expected))
            assert found == pytest.approx(error, rel=0.02, abs=1e-7)


@pytest.fixture(scope="module")
def lineshape():
    """rho_eg of the coherence |e><g| on a grid of 1 fs, in the frame of the vertical energy."""
    case = load("A03")
    bath = hd.DrudeLorentz(
        lam=case["lam_cm"] * cm1, gamma=1 / (case["bath_time_fs"] * fs), T=case["T_K"] * K
    )
    sol = dephasing(
        [bath],
        np.arange(0, 601.0),
        Q=np.diag([1, 0]),
        rho0=np.array([[0, 1], [0, 0]]),
        depth=20,
        expansion=hd.Pade(3),
        backend="native",
    )
    return case, sol


class TestA03MonomerLineShape:
    def test_complex_coherence(self, lineshape):
        case, sol = lineshape
        at = np.array(case["t_fs"], dtype=int)
        expected = np.array(case["coherence"]["re"]) + 1j * np.array(case["coherence"]["im"])
        assert np.max(np.abs(sol.rho[at, 0, 1] - expected)) < 1e-5

    def test_nothing_else_appears(self, lineshape):
        _, sol = lineshape
        rest = sol.rho.copy()
        rest[:, 0, 1] = 0
        assert np.max(np.abs(rest)) < 1e-12

    def test_absorption(self, lineshape):
        case, sol = lineshape
        w = np.array(case["absorption"]["w_minus_vertical_cm"]) * cm1
        weights = np.ones(len(sol.times))
        weights[0] = weights[-1] = 0.5  # trapezoidal rule, step 1 fs
        phases = np.exp(1j * np.outer(w, sol.times))
        found = (phases @ (weights * sol.rho[:, 0, 1])).real / np.pi
        # the rule's error at t = 0, -(1/12) Re d/dt exp(i w t - g): g'(0) = 0, so it is 0
        expected = np.array(case["absorption"]["A_per_cm"]) / cm1
        assert np.max(np.abs(found - expected)) < 1e-4 * np.max(expected)


def test_A04_underdamped_bath(backend):
    case = load("A04")
    bath = hd.UnderdampedBrownian(
        alpha=case["alpha"], gamma=case["Gamma"], w0=case["w0"], T=case["T"]
    )
    depth = 8 if backend == "native" else 5
    for expansion in (hd.Matsubara(3, terminator=False, coefficients="exact"), hd.Pade(1)):
        sol = dephasing([bath], case["t"], depth=depth, expansion=expansion, backend=backend)
        expected = np.array([float(x) for x in case["rho01"]])
        assert np.max(np.abs(sol.rho[:, 0, 1] - expected)) < 1e-6


class TestA06TwoQubits:
    Z1, Z2 = np.kron(SZ, np.eye(2)), np.kron(np.eye(2), SZ)
    singly = np.zeros((4, 4))
    singly[1:3, 1:3] = 0.5
    doubly = np.zeros((4, 4))
    doubly[np.ix_([0, 3], [0, 3])] = 0.5

    def run(self, operators, rho0, depth, backend="native"):
        case = load("A06")
        bath = hd.DrudeLorentz(lam=case["lam"], gamma=case["gamma"], T=case["T"])
        problem = hd.Problem(np.zeros((4, 4)), [hd.Coupling(Q, bath) for Q in operators])
        return case, hd.evolve(
            problem, rho0, case["t"], depth=depth, expansion=hd.Pade(3), backend=backend, tol=1e-8
        )

    def test_common_bath_leaves_the_singly_excited_pair_alone(self, backend):
        _, sol = self.run([self.Z1 + self.Z2], self.singly, 4, backend)
        assert np.max(np.abs(sol.rho - self.singly)) < 1e-14

    def test_common_bath_superdecoherence(self):
        case, sol = self.run([self.Z1 + self.Z2], self.doubly, 9)
        expected = np.array(case["common_bath"]["rho03"])
        assert np.max(np.abs(sol.rho[:, 0, 3] - expected)) < 1e-5

    @pytest.mark.parametrize("state", ["rho12", "rho03"])
    def test_independent_baths(self, state):
        rho0, (i, j) = (self.singly, (1, 2)) if state == "rho12" else (self.doubly, (0, 3))
        case, sol = self.run([self.Z1, self.Z2], rho0, 7)
        expected = np.array(case["independent_baths"][state])
        assert np.max(np.abs(sol.rho[:, i, j] - expected)) < 1e-5


def test_A07_static_disorder_by_quadrature():
    case = load("A07")
    bath = hd.DrudeLorentz(lam=case["lam"], gamma=case["gamma"], T=case["T"])
    members = [
        hd.prepare(hd.Problem(e / 2 * SZ, [hd.Coupling(SZ, bath)]), depth=6, expansion=hd.Pade(6))
        for e in case["gauss_hermite_nodes"]["e"]
    ]
    result = hd.run_batch(members, [PLUS] * len(members), case["t"], tol=1e-8, backend="native")
    mean = np.tensordot(case["gauss_hermite_nodes"]["weight"], result.rho[:, :, 0, 1], axes=1)
    assert np.max(np.abs(mean - case["mean_rho01_exact"])) < 1e-6


class TestA08Scaling:
    def factor(self, backend, *, lam=1.0, Q=SZ, copies=1, scale=1.0, expansion=None, depth=10):
        case = load("A08")
        bath = hd.DrudeLorentz(
            lam=lam * scale * case["lam"], gamma=scale * case["gamma"], T=scale * case["T"]
        )
        sol = dephasing(
            [bath] * copies,
            [0, case["t"] / scale],
            Q=Q,
            depth=depth,
            expansion=expansion or hd.Pade(1),
            backend=backend,
            tol=1e-11,
        )
        return 2 * sol.rho[-1, 0, 1]

    def test_absolute(self, backend):
        case = load("A08")
        found = self.factor(backend, expansion=hd.Pade(5), depth=6)
        assert abs(found - case["abs_factor"]) < 1e-6
        assert abs(self.factor(backend, lam=0) - 1) < 1e-10

    def test_identities(self, backend):
        assert abs(self.factor(backend, Q=2 * SZ, lam=0.25) - self.factor(backend)) < 1e-9
        assert abs(self.factor(backend, scale=7.3) - self.factor(backend)) < 1e-9

    def test_two_equal_baths_are_one_of_twice_the_strength(self):
        assert abs(self.factor("native", lam=2) - self.factor("native", copies=2)) < 1e-9

    @pytest.mark.parametrize(
        ("name", "options"), [("lam_double", {"lam": 2}), ("Q_double_sigma_z", {"Q": 2 * SZ})]
    )
    def test_other_strengths(self, name, options):
        found = self.factor("native", expansion=hd.Pade(6), depth=9, **options)
        assert abs(found - load("A08")[name]) < 1e-6


def test_A44_collective_coupling_with_degenerate_eigenvalues(backend):
    case = load("A44")

    def on(k, op):
        factors = [np.eye(2)] * 3
        factors[k] = op
        return np.kron(np.kron(factors[0], factors[1]), factors[2])

    Q = sum(on(k, SX) for k in range(3))
    bath = hd.DrudeLorentz(lam=case["lam"], gamma=case["gamma"], T=case["T"])
    sol = hd.evolve(
        hd.Problem(np.zeros((8, 8)), [hd.Coupling(Q, bath)]),
        np.eye(8)[0],
        [0, case["t"]],
        depth=7,
        expansion=hd.Pade(4),
        backend=backend,
        tol=1e-8,
        observables={"sz1": on(0, SZ), "sz1sz2": on(0, SZ) @ on(1, SZ)},
    )
    assert sol.observables["sz1"][-1] == pytest.approx(case["sz1"], abs=1e-6)
    assert sol.observables["sz1sz2"][-1] == pytest.approx(case["sz1sz2"], abs=1e-6)
