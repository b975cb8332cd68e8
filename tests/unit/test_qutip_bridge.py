"""The same states as QuTiP's own hierarchy solver, from its own objects."""

from __future__ import annotations

import numpy as np
import pytest

import heomdask as hd

qutip = pytest.importorskip("qutip", reason="needs QuTiP, of the extra qutip")
heom = pytest.importorskip("qutip.solver.heom", reason="needs QuTiP, of the extra qutip")

TIMES = [0.0, 0.5, 1.0, 3.0]
TIGHT = {"rtol": 1e-11, "atol": 1e-13, "nsteps": 100_000, "progress_bar": "", "method": "dop853"}
KINDS = ("drude", "drude pade", "underdamped", "user", "environment")


def random_hermitian(rng, d):
    matrix = rng.normal(size=(d, d)) + 1j * rng.normal(size=(d, d))
    return qutip.Qobj((matrix + matrix.conj().T) / 2)


def random_bath(rng, kind, Q):
    """A QuTiP bath with its own exponents."""
    lam, gamma, T = rng.uniform(0.02, 0.15), rng.uniform(0.3, 1.5), rng.uniform(0.5, 2)
    Nk = int(rng.integers(0, 3))
    if kind == "drude":
        return heom.DrudeLorentzBath(Q, lam=lam, gamma=gamma, T=T, Nk=Nk)
    if kind == "drude pade":
        return heom.DrudeLorentzPadeBath(Q, lam=lam, gamma=gamma, T=T, Nk=Nk)
    if kind == "underdamped":
        return heom.UnderDampedBath(
            Q,
            lam=rng.uniform(0.1, 0.4),
            gamma=rng.uniform(0.1, 0.6),
            w0=rng.uniform(0.8, 2),
            T=T,
            Nk=Nk,
        )
    if kind == "environment":
        env = qutip.DrudeLorentzEnvironment(T=T, lam=lam, gamma=gamma)
        return env.approximate("pade" if Nk else "matsubara", Nk=Nk + 1), Q
    return heom.BosonicBath(
        Q,
        ck_real=rng.uniform(0.01, 0.1, 2),
        vk_real=rng.uniform(0.2, 2, 2),
        ck_imag=rng.uniform(-0.1, 0.0, 2),
        vk_imag=rng.uniform(0.2, 2, 2),
    )


@pytest.mark.filterwarnings("ignore:.*estimated to be off")  # shallow ones are equal, too
@pytest.mark.parametrize("seed", range(20))
def test_random_problem(seed):
    rng = np.random.default_rng([2025, seed])
    d, depth = int(rng.integers(2, 4)), int(rng.integers(2, 5))
    H = random_hermitian(rng, d)
    kind = KINDS[seed % len(KINDS)]
    baths = [random_bath(rng, kind, random_hermitian(rng, d))]
    if seed % 4 == 3:
        other = KINDS[(seed + 2) % len(KINDS)]
        baths.append(random_bath(rng, other, random_hermitian(rng, d)))
    depth = min(depth, 3) if len(baths) > 1 else depth
    rho0 = qutip.rand_dm(d, seed=rng)
    expected = heom.HEOMSolver(H, baths, depth, options=TIGHT).run(rho0, TIMES).states
    sol = hd.evolve(hd.Problem(H, baths), rho0, TIMES, depth=depth, tol=1e-10, throw=False)
    for state, found in zip(expected, sol.rho, strict=True):
        assert np.max(np.abs(state.full() - found)) < 1e-8


@pytest.mark.parametrize("Nk", [0, 1])
def test_terminator(Nk):
    """QuTiP adds the terminator to the Liouvillian; here it belongs to the bath."""
    Q = qutip.sigmaz()
    H = 0.25 * qutip.sigmaz() + 0.5 * qutip.sigmax()
    bath = heom.DrudeLorentzBath(Q, lam=0.1, gamma=0.5, T=0.5, Nk=Nk)
    delta, terminator = bath.terminator()
    liouvillian = qutip.liouvillian(H) + terminator
    rho0 = qutip.basis(2, 0).proj()
    expected = heom.HEOMSolver(liouvillian, bath, 4, options=TIGHT).run(rho0, TIMES).states
    plain = hd.Problem(H, [bath]).baths()[0].bath
    with_delta = hd.Exponents(
        c=plain.c,
        gamma=plain.gamma,
        cbar=plain.cbar,
        read=plain.read,
        lateral=plain.lateral,
        delta=complex(delta).real,
    )
    for problem in (
        hd.Problem(H, [hd.Coupling(Q, with_delta)]),
        hd.Problem(
            H,
            [
                hd.Coupling(
                    Q, hd.DrudeLorentz(lam=0.1, gamma=0.5, T=0.5), expansion=hd.Matsubara(Nk)
                )
            ],
        ),
    ):
        sol = hd.evolve(problem, rho0, TIMES, depth=4, tol=1e-10)
        for state, found in zip(expected, sol.rho, strict=True):
            assert np.max(np.abs(state.full() - found)) < 1e-8


def test_interaction_energy_is_that_of_the_first_tier():
    Q, H = qutip.sigmaz(), 0.25 * qutip.sigmaz() + 0.5 * qutip.sigmax()
    bath = heom.DrudeLorentzPadeBath(Q, lam=0.1, gamma=0.5, T=0.5, Nk=1)

    def energy(_, ados):
        tier = [ados.extract(label) for label in ados.filter(level=1)]
        return sum((Q * a).tr() for a in tier)

    rho0 = qutip.basis(2, 0).proj()
    result = heom.HEOMSolver(H, bath, 4, options=TIGHT).run(rho0, TIMES, e_ops=[energy])
    sol = hd.evolve(
        hd.Problem(H, [bath]),
        rho0,
        TIMES,
        depth=4,
        tol=1e-10,
        observables={"e": hd.interaction_energy(0)},
    )
    assert np.max(np.abs(np.array(result.expect[0]) - sol.observables["e"])) < 1e-8
