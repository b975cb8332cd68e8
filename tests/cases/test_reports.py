"""What went wrong for users of other programs, tried here: the right behaviour of each report."""

from __future__ import annotations

import tracemalloc

import numpy as np
import pytest
from support import PLUS, SX, SZ, UP, cplx, load, populations, projector

import heomdask as hd
from heomdask.units import K, cm1, fs

H = 0.25 * SZ + 0.5 * SX
DRUDE = hd.DrudeLorentz(lam=0.1, gamma=0.5, T=0.5)
SPIN_BOSON = hd.Problem(H, [hd.Coupling(SZ, DRUDE)])


def fmo(T: float) -> hd.Problem:
    case = load("A37")
    bath = hd.DrudeLorentz(lam=case["lam_cm"] * cm1, gamma=1 / (50 * fs), T=T * K)
    couplings = [hd.Coupling(projector(7, j), bath) for j in range(7)]
    return hd.Problem(np.array(case["H_cm"]) * cm1, couplings)


class TestCompositeSystems:
    """Dims of a tensor product are carried through."""

    def test_dims(self):
        qutip = pytest.importorskip("qutip", reason="needs QuTiP, of the extra qutip")
        Q = qutip.tensor(qutip.sigmaz(), qutip.qeye(2)) + qutip.tensor(
            qutip.qeye(2), qutip.sigmaz()
        )
        bath = hd.DrudeLorentz(lam=0.02, gamma=0.5, T=1.0)
        ket = (qutip.basis([2, 2], [0, 1]) + qutip.basis([2, 2], [1, 0])).unit()
        sol = hd.evolve(
            hd.Problem(0 * Q, [hd.Coupling(Q, bath)]), ket, [0, 1, 2], depth=4, expansion=hd.Pade(1)
        )
        assert sol.dims == [[2, 2], [2, 2]]
        states = sol.to_qutip().states
        assert states[-1].dims == [[2, 2], [2, 2]]
        assert states[-1].ptrace(0).dims == [[2], [2]]
        assert np.max(np.abs(states[-1].full() - ket.proj().full())) < 1e-12


class TestComplexCoefficients:
    """One complex exponential is split rightly."""

    def test_single_term(self, backend):
        bath = hd.Exponents(c=[0.0625], gamma=[0.2 + 0.9j])
        sol = hd.evolve(
            hd.Problem(H, [hd.Coupling(SZ, bath)]),
            UP,
            [0, 2, 20],
            depth=10,
            expansion=None,
            backend=backend,
            tol=1e-9,
        )
        assert sol.rho[1:, 0, 0] == pytest.approx([0.38089511, 0.33542777], abs=2e-8)

    def test_eight_complex_exponents_on_every_backend(self):
        rng = np.random.default_rng(3)
        gamma = rng.uniform(0.2, 1, 4) + 1j * rng.uniform(0.5, 2, 4)
        c = rng.uniform(0.01, 0.03, 4) + 1j * rng.uniform(-0.01, 0.01, 4)
        bath = hd.Exponents(
            c=np.concatenate([c, c.conj() * 0.3]), gamma=np.concatenate([gamma, gamma.conj()])
        )
        runs = [
            hd.evolve(
                hd.Problem(H, [hd.Coupling(SZ, bath)]),
                UP,
                [0, 1, 4],
                depth=3,
                expansion=None,
                backend=name,
                tol=1e-11,
            ).rho
            for name in ("native", "numpy")
        ]
        assert np.max(np.abs(runs[0] - runs[1])) < 1e-10


class TestIdleThenPulse:
    """A pulse after a long idle time is seen, whatever the output times."""

    AREA = 2 * np.pi * 0.002

    @classmethod
    def pulse(cls, t):
        return cls.AREA if 100 < t < 600 else 0.0

    def law(self, t):
        return np.cos(2 * self.AREA * np.clip(t - 100, 0, 500))

    def sz(self, drive, times, tol=1e-7):
        sol = hd.evolve(
            hd.Problem(0 * SZ, drives=[drive]), UP, times, tol=tol, observables={"z": SZ}
        )
        return sol.observables["z"]

    @pytest.mark.parametrize("count", [267, 268, 800, 3])
    def test_plain_function(self, count):
        times = np.linspace(0, 800, count)
        assert np.max(np.abs(self.sz((self.pulse, SX), times) - self.law(times))) < 1e-5

    def test_named_times(self):
        times = [0, 162.5, 225, 600, 700]
        found = self.sz(hd.Drive(self.pulse, SX, [100, 600]), times, tol=1e-9)
        assert found == pytest.approx([1, 0, -1, 1, 1], abs=1e-7)

    def test_as_samples_with_step_interpolation(self):
        """A square pulse as an array, dt = 1."""
        grid = np.arange(0, 801.0)
        values = np.where((grid >= 100) & (grid < 600), self.AREA, 0.0)
        times = np.linspace(0, 800, 268)
        found = self.sz((hd.Samples(grid, values, kind="step"), SX), times)
        assert np.max(np.abs(found - self.law(times))) < 1e-6

    def test_as_a_cubic_spline_the_pulse_overshoots_as_documented(self):
        grid = np.arange(0, 801.0)
        values = np.where((grid >= 100) & (grid < 600), self.AREA, 0.0)
        spline = hd.Samples(grid, values, kind="cubic")
        overshoot = max(spline(t) for t in np.arange(595, 600, 0.05)) / self.AREA - 1
        assert 0.05 < overshoot < 0.2
        found = self.sz((spline, SX), [0, 225, 800])
        assert 1e-6 < abs(found[1] + 1) < 1e-2


class TestNegativeTerminator:
    """A terminator that amplifies is warned of, and Pade is suggested."""

    @pytest.mark.parametrize(
        ("N", "delta"), [(0, -0.144235), (1, -0.122045), (2, -0.088999), (5, 0.041831)]
    )
    def test_warning(self, N, delta):
        bath = hd.DrudeLorentz(lam=0.1, gamma=1.0, T=0.05)
        expansion = hd.Matsubara(N)
        text = "as white noise" if delta > 0 else "negative terminator"
        with pytest.warns(hd.HeomdaskWarning, match=rf"{text}.*hd\.Pade"):
            assert expansion.expand(bath).delta == pytest.approx(delta, abs=1e-6)

    def test_amplification_is_seen(self):
        bath = hd.DrudeLorentz(lam=0.1, gamma=1.0, T=0.05)
        problem = hd.Problem(0.5 * SX, [hd.Coupling(SZ, bath)])
        with pytest.warns(hd.HeomdaskWarning):
            sol = hd.evolve(
                problem, UP, [0, 30, 60], depth=4, expansion=hd.Matsubara(1), throw=False
            )
        assert sol.outcome is hd.Outcome.UNSTABLE
        assert "Pade" in sol.outcome.advice


class TestNotFinite:
    """NaN is refused before stepping, and ends a run."""

    def test_hamiltonian(self):
        with pytest.raises(hd.InputError, match="`H` must be finite"):
            hd.Problem([[np.nan, 0], [0, 1]])

    def test_coupling(self):
        with pytest.raises(hd.InputError, match="`Q` must be finite"):
            hd.Coupling([[np.nan, 0], [0, 1]], DRUDE)

    def test_state(self):
        with pytest.raises(hd.InputError, match="`rho0` must be finite"):
            hd.evolve(SPIN_BOSON, [[np.inf, 0], [0, 0]], [0, 1], depth=2, expansion=hd.Pade(1))

    def test_drive_that_turns_nan(self, backend):
        drive = (lambda t: np.nan if t > 1 else 0.1, SX)
        problem = hd.Problem(H, [hd.Coupling(SZ, DRUDE)], drives=[drive])
        sol = hd.evolve(
            problem, UP, [0, 0.5, 2], depth=2, expansion=hd.Pade(1), backend=backend, throw=False
        )
        assert sol.outcome is hd.Outcome.NOT_FINITE
        assert np.all(np.isfinite(sol.rho[:2]))
        assert np.all(np.isnan(sol.rho[2].real))
        with pytest.raises(hd.SolveFailed, match="NaN"):
            hd.evolve(problem, UP, [0, 0.5, 2], depth=2, expansion=hd.Pade(1), backend=backend)


class TestInputRange:
    """Wrong numbers are refused by name."""

    @pytest.mark.parametrize(
        ("name", "make"),
        [
            ("T", lambda: hd.DrudeLorentz(lam=0.1, gamma=1, T=-1)),
            ("lam", lambda: hd.DrudeLorentz(lam=-0.1, gamma=1, T=1)),
            ("gamma", lambda: hd.DrudeLorentz(lam=0.1, gamma=0, T=1)),
            ("depth", lambda: hd.evolve(SPIN_BOSON, UP, [0, 1], depth=-1, expansion=hd.Pade(1))),
            ("depth", lambda: hd.evolve(SPIN_BOSON, UP, [0, 1], depth=2.5, expansion=hd.Pade(1))),
            ("depth", lambda: hd.evolve(SPIN_BOSON, UP, [0, 1], expansion=hd.Pade(1))),
            ("expansion", lambda: hd.evolve(SPIN_BOSON, UP, [0, 1], depth=3)),
            ("times", lambda: hd.evolve(SPIN_BOSON, UP, [], depth=2, expansion=hd.Pade(1))),
            (
                "expansion",
                lambda: hd.Matsubara(2).expand(hd.DrudeLorentz(lam=0.1, gamma=1, T=0)),
            ),
        ],
    )
    def test_refused(self, name, make):
        with pytest.raises(hd.InputError, match=f"`{name}`"):
            make()


class TestTimeGrid:
    """Repeats are legal, anything but ascending is not, the first time is the start."""

    def run(self, times, backend):
        return hd.evolve(
            SPIN_BOSON, UP, times, depth=4, expansion=hd.Pade(1), backend=backend, tol=1e-9
        ).rho

    def test_repeats(self, backend):
        rho = self.run([0, 1, 1, 2], backend)
        assert np.array_equal(rho[1], rho[2])
        assert np.max(np.abs(rho[[0, 1, 3]] - self.run([0, 1, 2], backend))) < 1e-8
        twice = self.run([0, 0], backend)
        assert np.array_equal(twice[0], twice[1])

    def test_shifted_and_single(self, backend):
        late = self.run([5, 6, 7], backend)
        assert np.max(np.abs(late - self.run([0, 1, 2], backend))) < 1e-8
        assert np.array_equal(self.run([3], backend)[0], UP)

    def test_descending(self, backend):
        with pytest.raises(hd.InputError, match=r"`times` must ascend.*2 followed by 1"):
            self.run([0, 2, 1], backend)


@pytest.mark.parametrize("rho0", [UP, [[1, 0], [0, 0]], [1, 0]], ids=["f8", "list", "ket"])
def test_real_and_integer_states_are_promoted(rho0, backend):
    case = load("A35")
    sol = hd.evolve(hd.Problem(H), rho0, case["t"], backend=backend, tol=1e-10)
    assert np.max(np.abs(sol.rho[:, 0, 0] - case["rho00"])) < 1e-8


def test_memory_does_not_grow_with_the_number_of_output_times():
    """3060 ADOs, 10001 output times, populations only: all states would be 24 GB."""
    problem, start = fmo(300), projector(7, 0)
    sites = {f"P{j + 1}": projector(7, j) for j in range(7)}

    def peak(count):
        tracemalloc.start()
        sol = hd.evolve(
            problem,
            start,
            np.linspace(0, 1000, count),
            depth=4,
            expansion=hd.Pade(1),
            observables=sites,
            save=("observables",),
            tol=1e-5,
            backend="native",
        )
        _, most = tracemalloc.get_traced_memory()
        tracemalloc.stop()
        assert sol.rho is None
        assert sum(sol.observables[name][-1] for name in sites) == pytest.approx(1, abs=1e-5)
        return most

    few = peak(11)
    assert peak(10001) - few < 50e6


class TestRestart:
    """Going on from the ADOs is going on."""

    case = load("A18")["cases"][0]

    def run(self, rho0, times, backend):
        return hd.evolve(
            SPIN_BOSON, rho0, times, depth=12, expansion=hd.Pade(3), backend=backend, tol=1e-9
        )

    def test_restart_is_the_straight_run(self):
        first = self.run(UP, [0, 1], "native")
        second = self.run(first.ados, [1, 2], "native")
        straight = self.run(UP, [0, 2], "native")
        assert np.max(np.abs(second.rho[-1] - straight.rho[-1])) < 1e-8
        assert np.max(np.abs(second.ados.values - straight.ados.values)) < 1e-8
        assert second.rho[-1, 0, 0] == pytest.approx(0.41220676, abs=3e-5)

    def test_plain_arrays_do(self):
        first = self.run(UP, [0, 1], "native")
        a, b = (self.run(x, [1, 2], "native").rho[-1] for x in (first.ados, first.ados.values))
        assert np.array_equal(a, b)

    def test_restart_from_the_density_matrix_alone_is_another_experiment(self):
        first = self.run(UP, [0, 1], "native")
        forgetful = self.run(first.rho[-1], [1, 2], "native")
        straight = self.run(UP, [0, 2], "native")
        assert np.max(np.abs(forgetful.rho[-1] - straight.rho[-1])) > 1e-2

    def test_wrong_shape(self):
        first = self.run(UP, [0, 1], "native")
        with pytest.raises(hd.InputError, match="`rho0` must have the shape"):
            hd.evolve(SPIN_BOSON, first.ados, [1, 2], depth=4, expansion=hd.Pade(3))


class TestTooLarge:
    """Counted before it is built, refused with both numbers."""

    def test_count(self):
        assert hd.Depth(6).n_ado(28) == 1_344_904

    def test_refused(self):
        with pytest.raises(hd.TooLarge, match=r"needs about .*B and .*B are free; lower `depth`"):
            hd.evolve(fmo(77), projector(7, 0), [0, 1], depth=14, expansion=hd.Pade(3))

    def test_all_ados_at_all_times_refused(self):
        with pytest.raises(hd.TooLarge, match=r'leave "ados" out of `save`'):
            hd.evolve(
                fmo(300),
                projector(7, 0),
                np.linspace(0, 1000, 100_001),
                depth=4,
                expansion=hd.Pade(1),
                save=("ados",),
            )


def test_three_systems_of_units_agree():
    case = load("A38")
    hbar, kT = case["hbar_cm_fs"], case["kB_cm"] * case["T_K"]
    runs = []
    for energy, time in [(1.0, 1 / hbar), (1 / hbar, 1.0), (1000 / hbar, 1e-3)]:
        bath = hd.DrudeLorentz(
            lam=case["lam_cm"] * energy, gamma=1 / (case["bath_time_fs"] * time), T=kT * energy
        )
        problem = hd.Problem(
            np.array(case["H_cm"]) * energy, [hd.Coupling(projector(2, j), bath) for j in range(2)]
        )
        times = np.concatenate([[0], case["t_fs"]]) * time
        sol = hd.evolve(
            problem, [1, 0], times, depth=7, expansion=hd.Matsubara(0), tol=1e-11, throw=False
        )
        runs.append(populations(sol.rho))
    assert np.max(np.abs(runs[1] - runs[0])) < 1e-9
    assert np.max(np.abs(runs[2] - runs[0])) < 1e-9


def test_stiff_rates_are_no_obstacle():
    """Modes from 0.05 to 38, hence ADOs that decay with up to 600, over many slow times."""
    case = load("A01")
    bath = hd.DrudeLorentz(lam=case["lam"], gamma=case["gamma"], T=case["T"])
    sol = hd.evolve(
        hd.Problem(0 * SZ, [hd.Coupling(SZ, bath)]),
        PLUS,
        [0, 1, 2, 10, 50],
        depth=16,
        expansion=hd.Pade(3),
        tol=1e-7,
        backend="native",
    )
    assert sol.rho[1:3, 0, 1].real == pytest.approx([0.4505156257, 0.3322299192], abs=1e-3)
    assert "fastest rates" in hd.Outcome.TOO_MANY_STEPS.advice


class TestManyPeaks:
    """Baths on one operator add up."""

    case = load("A04")

    def brownian(self, share=1.0):
        c = self.case
        return hd.UnderdampedBrownian(
            alpha=c["alpha"] * np.sqrt(share), gamma=c["Gamma"], w0=c["w0"], T=c["T"]
        )

    def run(self, baths, expansion, depth, times):
        problem = hd.Problem(0 * SZ, [hd.Coupling(SZ, b) for b in baths])
        return hd.evolve(
            problem,
            PLUS,
            times,
            depth=depth,
            expansion=expansion,
            tol=1e-10,
            throw=False,
        ).rho[:, 0, 1]

    def test_six_sixths(self):
        expansion = hd.Matsubara(0, terminator=False)
        times = self.case["t"]
        whole = self.run([self.brownian()], expansion, 5, times)
        split = self.run([self.brownian(1 / 6)] * 6, expansion, 5, times)
        assert np.max(np.abs(whole - split)) < 1e-8

    def test_factors_multiply(self):
        a01 = load("A01")
        drude = hd.DrudeLorentz(lam=a01["lam"], gamma=a01["gamma"], T=a01["T"])
        times = [0, 0.5, 1, 2]
        one = self.run([self.brownian()], hd.Pade(1), 8, times)
        other = self.run([drude], hd.Pade(1), 14, times)
        both = self.run([self.brownian(), drude], hd.Pade(1), 14, times)
        assert np.max(np.abs(2 * one * other - both)) < 1e-5


def test_baths_of_complex_pairs_read_back():
    """Whatever list of pairs a user gives, C(t) is that of the list."""
    data = load("baselines")["DIMER"]["baths"][2]
    bath = hd.Exponents(c=cplx(data["c"]), gamma=cplx(data["nu"]))
    t = np.linspace(0, 100, 7)
    direct = np.exp(-np.outer(t, cplx(data["nu"]))) @ cplx(data["c"])
    assert np.max(np.abs(bath.correlation(t) - direct)) < 1e-16
