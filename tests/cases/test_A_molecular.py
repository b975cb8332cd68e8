"""Molecular aggregates in cm^-1, fs and K."""

from __future__ import annotations

import numpy as np
import pytest
import scipy.linalg
import scipy.sparse
import scipy.sparse.linalg
from support import load, populations, projector

import heomdask as hd
from heomdask.units import K, cm1, eV, fs


def dimer(case, lam, *, J=None, relative=False):
    """E1 - E2 = dE, one bath per site; `relative`: the one bath Q = sz with half the lam."""
    H = np.array([[case["dE_cm"], J], [J, 0]]) * cm1
    rate = 1 / (case["bath_time_fs"] * fs)
    strength = lam * cm1 / (2 if relative else 1)
    bath = hd.DrudeLorentz(lam=strength, gamma=rate, T=case["T_K"] * K)
    operators = [np.diag([1, -1])] if relative else [projector(2, 0), projector(2, 1)]
    return hd.Problem(H, [hd.Coupling(Q, bath) for Q in operators])


class TestA28Dimer:
    case = load("A28")

    @pytest.mark.parametrize(
        ("row", "depth", "limits"),
        [(0, 5, (5, 3, 2)), (1, 11, (11, 4, 3)), (2, 20, (20, 4, 3)), (3, 40, (40, 4, 3))],
    )
    def test_population_across_the_coupling_range(self, row, depth, limits):
        """The fast modes of the two Pade poles need few quanta."""
        expected = self.case["rows"][row]
        problem = dimer(self.case, expected["lam_cm"], J=self.case["J_cm"], relative=True)
        sol = hd.evolve(
            problem,
            [1, 0],
            self.case["t_fs"],
            depth=hd.ModeLimits(depth, limits),
            expansion=hd.Pade(2),
            backend="native",
            tol=1e-8,
        )
        assert np.max(np.abs(sol.rho[:, 0, 0] - expected["P1"])) < 1e-5

    @pytest.mark.parametrize("row", [0, 1, 2])
    def test_two_baths_are_the_relative_bath(self, backend, row):
        lam = self.case["rows"][row]["lam_cm"]
        states = [
            hd.evolve(
                dimer(self.case, lam, J=self.case["J_cm"], relative=relative),
                [1, 0],
                [0, 100, 300],
                depth=8,
                expansion=hd.Pade(1),
                backend=backend,
                tol=1e-11,
                throw=False,
            ).rho
            for relative in (False, True)
        ]
        assert np.max(np.abs(states[0] - states[1])) < 1e-9


class TestA29Foerster:
    case = load("A29")

    @pytest.mark.parametrize(("row", "depth"), [(0, 32), (1, 32), (2, 16)])
    def test_slowest_rate_is_the_sum_of_the_hopping_rates(self, row, depth):
        expected = self.case["rows"][row]
        problem = dimer(self.case, expected["lam_cm"], J=expected["J_cm"], relative=True)
        operator = hd.as_linear_operator(problem, depth=depth, expansion=hd.Pade(1))
        dense = operator @ np.eye(operator.shape[1], dtype=complex)
        balanced, _ = scipy.linalg.matrix_balance(dense, permute=False)
        matrix = scipy.sparse.csc_array(balanced)
        values = scipy.sparse.linalg.eigs(matrix, k=3, sigma=1e-7, return_eigenvectors=False)
        slow = np.sort(-values.real)
        assert abs(slow[0]) < 1e-10
        rate = slow[1] * 1000  # per ps
        limit = 0.003 if expected["J_cm"] == 5 else 0.014
        assert rate == pytest.approx(expected["foerster_sum_per_ps"], rel=limit)
        assert rate == pytest.approx(expected["heom_relaxation_eigenvalue_per_ps"], rel=1e-3)


class TestA37Fmo:
    case = load("A37")

    def run(self, T, depth, expansion):
        H = np.array(self.case["H_cm"]) * cm1
        bath = hd.DrudeLorentz(
            lam=self.case["lam_cm"] * cm1, gamma=1 / (self.case["bath_time_fs"] * fs), T=T * K
        )
        problem = hd.Problem(H, [hd.Coupling(projector(7, j), bath) for j in range(7)])
        sol = hd.evolve(
            problem,
            projector(7, 0),
            self.case["t_fs"],
            depth=depth,
            expansion=expansion,
            backend="native",
            tol=1e-7,
        )
        return populations(sol.rho)

    def test_300K_at_the_same_truncation(self):
        found = self.run(300, 4, hd.Pade(1))
        assert np.max(np.abs(found - self.case["T300"]["pops"])) < 1e-4

    @pytest.mark.slow
    def test_300K_converged(self):
        found = self.run(300, 6, hd.Pade(1))
        assert np.max(np.abs(found - self.case["T300_converged"]["pops"])) < 3e-4

    @pytest.mark.slow
    def test_77K(self):
        """More poles at depth 3 correct fewer poles at depth 4, as in the reference."""
        found = self.run(77, 4, hd.Pade(2)) + self.run(77, 3, hd.Pade(4))
        found -= self.run(77, 3, hd.Pade(2))
        assert np.max(np.abs(found - self.case["T77"]["pops"])) < 3e-4

    def test_77K_needs_more_than_one_pole(self):
        found = self.run(77, 4, hd.Pade(1))
        error = np.max(np.abs(found - self.case["T77"]["pops"]))
        assert error == pytest.approx(self.case["truncation_errors"]["T77_pade1_depth4"], rel=0.05)


class TestA38PublishedDimer:
    case = load("A38")

    def run(self, depth, expansion, backend="native"):
        """In units of cm^-1 with the constants of the publication."""
        H = np.array(self.case["H_cm"], dtype=float)
        bath = hd.DrudeLorentz(
            lam=self.case["lam_cm"],
            gamma=self.case["hbar_cm_fs"] / self.case["bath_time_fs"],
            T=self.case["kB_cm"] * self.case["T_K"],
        )
        problem = hd.Problem(H, [hd.Coupling(projector(2, j), bath) for j in range(2)])
        times = np.concatenate([[0], self.case["t_fs"]]) / self.case["hbar_cm_fs"]
        sol = hd.evolve(
            problem, [1, 0], times, depth=depth, expansion=expansion, backend=backend, tol=1e-8
        )
        return np.max(np.abs(sol.rho[1:, 0, 0] - self.case["P1"]))

    def test_published_populations(self, backend):
        assert self.run(13, hd.Matsubara(0), backend) < 2e-5

    def test_terminator_and_depth_matter(self):
        assert self.run(13, hd.Matsubara(0, terminator=False)) == pytest.approx(7e-3, rel=0.1)
        assert self.run(12, hd.Matsubara(0)) == pytest.approx(8e-4, rel=0.1)


class TestA41Units:
    case = load("A41")

    def test_constants(self):
        assert pytest.approx(self.case["cm_to_rad_per_fs"], rel=1e-9) == cm1
        assert K / cm1 == pytest.approx(self.case["kB_cm_per_K"], rel=1e-9)
        assert 300 * K / cm1 == pytest.approx(self.case["kT_300K_cm"], rel=1e-9)
        assert 77 * K / cm1 == pytest.approx(self.case["kT_77K_cm"], rel=1e-9)
        assert eV / cm1 == pytest.approx(self.case["eV_to_cm"], rel=1e-9)
        for time, value in self.case["gamma_cm"].items():
            assert 1 / (float(time.split()[0]) * fs) / cm1 == pytest.approx(value, rel=1e-9)

    def test_bare_dimer(self, backend):
        check = self.case["rabi_check"]
        H = np.array([[0, 100], [100, 0]]) * cm1
        sol = hd.evolve(
            hd.Problem(H), [1, 0], [0, 50 * fs, check["t_zero_fs"] * fs], backend=backend, tol=1e-9
        )
        assert sol.rho[1, 0, 0] == pytest.approx(check["P1_at_50fs"], abs=1e-6)
        assert sol.rho[2, 0, 0] == pytest.approx(0, abs=1e-6)
