"""Steady states: published ones, mean-force Gibbs states, and those that are not unique."""

from __future__ import annotations

import numpy as np
import pytest
from support import PLUS, SX, SY, SZ, cplx, load

import heomdask as hd
from heomdask.generator.build import build_plan
from heomdask.preparation import prepare
from heomdask.units import K, cm1, fs

H = 0.25 * SZ + 0.5 * SX


def qubit(hamiltonian=H, *, Q=SZ, lam=0.1, gamma=0.5, T=0.5, **rest):
    bath = hd.DrudeLorentz(lam=lam, gamma=gamma, T=T)
    return hd.Problem(hamiltonian, [hd.Coupling(Q, bath)], **rest)


@pytest.mark.parametrize(
    ("row", "poles", "depth", "tolerance"),
    [(0, 3, 2, 1e-7), pytest.param(1, 3, 10, 5e-5, id="strong")],
)
def test_A16_mean_force_state(backend, row, poles, depth, tolerance):
    case = load("A16")["rows"][row]
    state = hd.steady_state(
        qubit(lam=case["lam"], gamma=case["gamma"], T=case["T"]),
        depth=depth,
        expansion=hd.Pade(poles),
        tol=1e-9,
        backend=backend,
        observables={"sz": SZ, "sx": SX},
    )
    assert abs(state.observables["sz"] - case["sz_meanforce"]) < tolerance
    assert abs(state.observables["sx"] - case["sx_meanforce"]) < tolerance
    assert isinstance(state.observables["sz"], float)


@pytest.mark.parametrize("n_baths", [1, 2])
def test_A19_complex_coupling_and_a_lindblad_operator(backend, n_baths):
    case = load("A19")
    given, known = case["bath"], case["results"][("1_bath", "2_bath")[n_baths - 1]]
    bath = hd.DrudeLorentz(lam=given["lam"], gamma=given["gamma"], T=given["kT"])
    coupling = hd.Coupling(cplx(case["Q"]), bath)
    problem = hd.Problem(
        cplx(case["H"]), [coupling] * n_baths, lindblad=[cplx(case["collapse_operator"])]
    )
    expansion = hd.Pade(given["pade"], coefficients="exact")
    state = hd.steady_state(problem, depth=case["depth"], expansion=expansion, backend=backend)
    assert state.stats["n_ado"] == known["n_ado"]
    assert np.max(np.abs(state.rho - cplx(known["rho_ss"]))) < 1e-7


def test_A31_imaginary_coherence(backend):
    """A transposed answer has the other sign, one made 'Hermitian' by conj() has none."""
    case = load("A31")
    problem = qubit(0.25 * SZ + 0.5 * SY, lam=case["lam"], gamma=case["gamma"], T=case["T"])
    how = {"depth": case["depth"], "expansion": hd.Pade(case["pade"]), "backend": backend}
    state = hd.steady_state(problem, tol=1e-9, **how)
    assert np.max(np.abs(state.rho - cplx(case["rho_ss"]))) < 1e-6
    late = hd.evolve(problem, state.ados, [0, 50], tol=1e-9, **how).rho[-1]
    assert np.max(np.abs(state.rho - late)) < 1e-8


def test_A15_damped_mode(backend):
    """Complex rates: the complex form of the plan, no real one."""
    case = load("A15")
    bath = hd.Exponents(c=[case["g"] ** 2], gamma=[case["gb"] / 2 + 1j * case["w0"]])
    state = hd.steady_state(hd.Problem(H, [hd.Coupling(SZ, bath)]), depth=12, backend=backend)
    assert state.stats["form"] == "complex"
    assert np.max(np.abs(state.rho - cplx(case["steady_state"]))) < 1e-7


NOT_UNIQUE = {
    "H = 0": qubit(0 * SZ),
    "H commutes with Q": qubit(0.5 * SZ),
    "no bath": hd.Problem(H),
    "no bath, H = 0": hd.Problem(0 * H),
    "a decoherence-free pair": qubit(
        np.zeros((4, 4)), Q=np.kron(SZ, np.eye(2)) + np.kron(np.eye(2), SZ)
    ),
    "two blocks": qubit(
        np.kron(np.eye(2), H) + np.diag([0, 0, 0.3, 0.3]), Q=np.kron(np.eye(2), SZ)
    ),
    "two dark states": hd.Problem(
        np.zeros((3, 3)), lindblad=[np.eye(3)[:, [k]] @ np.eye(3)[[2]] for k in (0, 1)]
    ),
}


@pytest.mark.parametrize("problem", NOT_UNIQUE.values(), ids=NOT_UNIQUE)
def test_B14_more_than_one_steady_state_is_named(backend, problem):
    how = {"depth": 3, "expansion": hd.Pade(1), "backend": backend}
    with pytest.raises(hd.SolveFailed, match=r"NOT_UNIQUE.*conserved"):
        hd.steady_state(problem, **how)
    state = hd.steady_state(problem, throw=False, **how)
    assert state.outcome is hd.Outcome.NOT_UNIQUE
    assert np.isfinite(state.rho).all()


def test_B14_the_limit_of_one_initial_state_comes_from_evolve():
    sol = hd.evolve(qubit(0.5 * SZ), PLUS, [0, 200], depth=4, expansion=hd.Pade(1), throw=False)
    assert np.max(np.abs(sol.rho[-1] - np.eye(2) / 2)) < 1e-5


def test_weak_coupling_is_slow_but_unique(backend):
    """Relaxation 1e-7 of the system's own rates: the tolerance on rho is kept all the same."""
    state = hd.steady_state(
        qubit(lam=1e-7), depth=2, expansion=hd.Pade(3), backend=backend, tol=1e-7
    )
    levels, vectors = np.linalg.eigh(H)
    gibbs = vectors @ np.diag(np.exp(-levels / 0.5)) @ vectors.T
    assert np.max(np.abs(state.rho - gibbs / np.trace(gibbs))) < 5e-7
    assert 1e-8 < state.stats["gap"] < 1e-6


@pytest.mark.filterwarnings("ignore:.*estimated to be off")
def test_B15_unstable_hierarchy_is_named(backend):
    """A terminator that amplifies: the stationary state looks like any other."""
    problem = qubit(0.5 * SX, lam=0.1, gamma=1.0, T=0.05)
    with pytest.warns(hd.HeomdaskWarning, match="terminator"):
        state = hd.steady_state(
            problem, depth=4, expansion=hd.Matsubara(1), backend=backend, throw=False
        )
    assert state.outcome is hd.Outcome.UNSTABLE
    assert state.stats["rightmost"] > 0


def fmo(T=300.0, tau=50.0):
    case = load("A37")
    bath = hd.DrudeLorentz(lam=case["lam_cm"] * cm1, gamma=1 / (tau * fs), T=T * K)
    couplings = [hd.Coupling(np.diag(np.eye(7)[j]), bath) for j in range(7)]
    return hd.Problem(np.array(case["H_cm"]) * cm1, couplings)


@pytest.mark.filterwarnings("ignore:.*estimated to be off")
@pytest.mark.parametrize(("tau", "most"), [(50.0, 60), (100.0, 75), (166.0, 85)])
def test_fmo_takes_few_applications_in_all(tau, most):
    """To 1e-10 of the residual of the unit matrix, and knowing that it is unique and stable."""
    how = {"depth": 4, "expansion": hd.Matsubara(0), "backend": "native", "tol": 1e-9}
    state = hd.steady_state(fmo(tau=tau), **how)
    prepared = prepare(fmo(tau=tau), depth=4, expansion=hd.Matsubara(0))
    generator = build_plan([prepared.expanded], prepared.index_set).to_sparse()
    first = generator[:, :49] @ np.eye(7).ravel() / 7
    assert state.stats["residual"] < 1e-10 * np.linalg.norm(first)
    assert state.stats["applications"] <= most
    assert state.stats["rightmost"] == pytest.approx(-1.1e-3, rel=0.15)


def test_fmo_takes_fewer_applications_from_a_neighbour():
    how = {"depth": 3, "expansion": hd.Matsubara(0), "backend": "native", "tol": 1e-8}
    cold = hd.steady_state(fmo(), **how)
    neighbour = hd.steady_state(fmo(T=299.9), guess=cold, **how)
    again = hd.steady_state(fmo(T=299.9), **how)
    spent = "applications_solve"
    assert neighbour.stats[spent] <= 0.75 * again.stats[spent]
    assert np.max(np.abs(neighbour.rho - again.rho)) < 2e-8
    same = hd.steady_state(fmo(), guess=cold.ados, **how)
    assert same.stats[spent] == 1


@pytest.mark.filterwarnings("ignore:.*estimated to be off")
def test_fmo_with_a_slow_bath_is_what_evolution_ends_in():
    how = {"depth": 2, "expansion": hd.Matsubara(0), "backend": "native"}
    state = hd.steady_state(fmo(tau=166.0), tol=1e-8, **how)
    again = hd.evolve(fmo(tau=166.0), state.ados, [0, 1000 * fs], tol=1e-9, **how)
    assert np.max(np.abs(again.rho[-1] - state.rho)) < 2e-8
