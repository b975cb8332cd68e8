"""QuTiP's objects at the border: the hierarchy that follows is QuTiP's own, ADO by ADO."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
import pytest

from heomdask.errors import InputError
from heomdask.model import (
    Coupling,
    DrudeLorentz,
    Exponents,
    Ohmic,
    Problem,
    UnderdampedBrownian,
)

qutip = pytest.importorskip("qutip", reason="needs QuTiP, of the extra qutip")
heom = pytest.importorskip("qutip.solver.heom", reason="needs QuTiP, of the extra qutip")

H = 0.25 * qutip.sigmaz() + 0.5 * qutip.sigmax() + 0.1 * qutip.sigmay()
Q = qutip.sigmaz() + 0.3 * qutip.sigmay()


def generator(problem: Problem, depth: int) -> tuple[list[tuple[int, ...]], np.ndarray]:
    """Labels and dense (column-stacking) generator of the unscaled hierarchy, term by term."""
    baths = [(term.Q, term.bath) for term in problem.baths()]
    modes = [(q, e, k) for q, e in baths for k in range(e.n_modes)]
    ranges = [range(depth + 1)] * len(modes)
    labels = [n for n in itertools.product(*ranges) if sum(n) <= depth]
    at = {n: j for j, n in enumerate(labels)}
    one = np.eye(problem.d)

    def left(a: np.ndarray) -> np.ndarray:
        return np.kron(one, a)

    def right(a: np.ndarray) -> np.ndarray:
        return np.kron(a.T, one)

    size = problem.d**2
    G = np.zeros((len(labels), size, len(labels), size), dtype=complex)
    for n, row in at.items():
        G[row, :, row, :] += -1j * (left(problem.H) - right(problem.H))
        for q, e in baths:
            commutator = left(q) - right(q)
            G[row, :, row, :] -= e.delta * commutator @ commutator
        for j, (q, e, k) in enumerate(modes):
            G[row, :, row, :] -= n[j] * e.gamma[k] * np.eye(size)
            up = (*n[:j], n[j] + 1, *n[j + 1 :])
            down = (*n[:j], n[j] - 1, *n[j + 1 :])
            if up in at:
                G[row, :, at[up], :] += -1j * (left(q) - right(q))
            if down in at:
                G[row, :, at[down], :] += -1j * n[j] * (e.c[k] * left(q) - e.cbar[k] * right(q))
    return labels, G.reshape(len(labels) * size, -1)


def assert_same_hierarchy(problem: Problem, solver: Any, depth: int) -> None:
    labels, G = generator(problem, depth)
    assert [tuple(label) for label in solver.ados.labels] == labels
    theirs = solver.rhs(0).full()
    np.testing.assert_allclose(G, theirs, atol=1e-14 * np.max(np.abs(theirs)))


ENVIRONMENTS = {
    "matsubara": lambda: qutip.DrudeLorentzEnvironment(T=0.5, lam=0.1, gamma=0.5).approximate(
        "matsubara", Nk=2
    ),
    "pade": lambda: qutip.DrudeLorentzEnvironment(T=0.5, lam=0.1, gamma=0.5).approximate(
        "pade", Nk=2
    ),
    "not combined": lambda: qutip.DrudeLorentzEnvironment(T=0.5, lam=0.1, gamma=0.5).approximate(
        "matsubara", Nk=1, combine=False
    ),
    "underdamped": lambda: qutip.UnderDampedEnvironment(
        T=0.5, lam=0.2, gamma=0.1, w0=1
    ).approximate("matsubara", Nk=1),
    "one complex exponent": lambda: qutip.ExponentialBosonicEnvironment(
        [0.03, 0.03], [0.2 + 0.9j, 0.2 - 0.9j], [0.03j, -0.03j], [0.2 + 0.9j, 0.2 - 0.9j]
    ),
    "complex coefficients of real rates": lambda: qutip.ExponentialBosonicEnvironment(
        [0.1 + 0.02j, 0.3 - 0.02j], [0.2, 0.7], [0.05 - 0.01j], [0.4 + 0.1j]
    ),
}


@pytest.mark.parametrize("name", ENVIRONMENTS)
def test_exponents_build_the_hierarchy_of_qutip(name: str) -> None:
    environment = ENVIRONMENTS[name]()
    solver = heom.HEOMSolver(H, (environment, Q), max_depth=3)
    for coupling in (Coupling(Q, environment), (environment, Q), (Q, environment)):
        problem = Problem(H, [coupling])
        (term,) = problem.baths()
        assert isinstance(term.bath, Exponents)
        assert term.bath.n_modes == len(environment.exponents)
        assert_same_hierarchy(problem, solver, 3)
    times = np.array([0.0, 0.4, 3.0])
    theirs = environment.correlation_function(times)
    np.testing.assert_allclose(term.bath.correlation(times), theirs, atol=1e-13)


@pytest.mark.parametrize(
    "make",
    [
        lambda: heom.DrudeLorentzBath(Q, lam=0.1, gamma=0.5, T=0.5, Nk=1),
        lambda: heom.DrudeLorentzPadeBath(Q, lam=0.1, gamma=0.5, T=0.5, Nk=1),
        lambda: heom.UnderDampedBath(Q, lam=0.1, gamma=0.5, w0=1.0, T=0.5, Nk=1),
        lambda: heom.BosonicBath(Q, [0.1], [0.5], [-0.05], [0.5]),
        lambda: heom.Bath(
            [
                heom.BathExponent("R", None, Q, 0.1, 0.5),
                heom.BathExponent("RI", None, Q, 0.2, 0.5 + 1j, ck2=0.1j),
                heom.BathExponent("I", None, qutip.sigmax(), 0.3, 0.9),
            ]
        ),
    ],
)
def test_bath_objects_bring_their_operators(make: Any) -> None:
    bath = make()
    assert_same_hierarchy(Problem(H, [bath]), heom.HEOMSolver(H, bath, max_depth=2), 2)


def test_terminators_travel_as_delta() -> None:
    environment, delta = qutip.DrudeLorentzEnvironment(T=0.5, lam=0.1, gamma=0.5).approximate(
        "matsubara", Nk=1, compute_delta=True
    )
    system = qutip.liouvillian(H) + qutip.system_terminator(Q, delta)
    solver = heom.HEOMSolver(system, (environment, Q), max_depth=2)
    old = heom.DrudeLorentzBath(Q, lam=0.1, gamma=0.5, T=0.5, Nk=1)
    for coupling in (
        Coupling(Q, (environment, delta)), ((environment, delta), Q), (old, old.terminator()[0])
    ):  # fmt: skip
        assert_same_hierarchy(Problem(H, [coupling]), solver, 2)


def test_environments_with_a_formula_keep_it() -> None:
    t, w = np.array([0.3, 2.0]), np.array([-0.7, 0.2, 1.1])
    drude = qutip.DrudeLorentzEnvironment(T=0.5, lam=0.1, gamma=0.4)
    brown = qutip.UnderDampedEnvironment(T=0.5, lam=0.1, gamma=0.4, w0=0.9)
    ohmic = qutip.OhmicEnvironment(T=0.5, alpha=0.1, wc=2.0, s=1.5)
    expected = (
        (drude, DrudeLorentz(lam=0.1, gamma=0.4, T=0.5)),
        (brown, UnderdampedBrownian(alpha=0.1, gamma=0.4, w0=0.9, T=0.5)),
        (ohmic, Ohmic(alpha=0.1, wc=2.0, s=1.5, T=0.5)),
    )
    for theirs, ours in expected:
        bath = Coupling(Q, theirs).bath
        assert bath == ours
        np.testing.assert_allclose(bath.S(w), theirs.power_spectrum(w), rtol=1e-10)
        np.testing.assert_allclose(bath.J(w[1:]), theirs.spectral_density(w[1:]), rtol=1e-12)
    # QuTiP sums 10 Matsubara terms, and a Gamma function series; both agree to their accuracy
    np.testing.assert_allclose(ours.C(t), ohmic.correlation_function(t), rtol=1e-6)


def test_dims_are_kept() -> None:
    pair = qutip.tensor(qutip.sigmaz(), qutip.qeye(2))
    problem = Problem(
        pair, [Coupling(pair, DrudeLorentz(lam=0.1, gamma=1, T=1))],
        drives=[(np.cos, pair)], lindblad=[0.1 * qutip.tensor(qutip.sigmam(), qutip.qeye(2))],
    )  # fmt: skip
    assert problem.dims == [[2, 2], [2, 2]]
    assert problem.d == 4
    assert problem.digest == Problem(pair, problem.couplings, drives=[(np.cos, pair.full())],
                                     lindblad=problem.lindblad).digest  # fmt: skip


def with_dim() -> Any:
    return heom.Bath([heom.BathExponent("R", 3, Q, 0.1, 0.5)])


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (lambda: Coupling(Q, qutip.LorentzianEnvironment(T=1, mu=0, gamma=1, W=1)), "fermionic"),
        (lambda: Problem(H, [heom.LorentzianBath(Q, 0.1, 1.0, 0.0, 1.0, 2)]), "fermionic"),
        (lambda: Problem(H, [with_dim()]), "dim"),
        (lambda: Problem(qutip.liouvillian(H)), "`H`"),
        (lambda: Problem(qutip.QobjEvo([H, [qutip.sigmax(), np.cos]])), "drives"),
        (lambda: Problem(qutip.basis(2, 0)), "`H`"),
        (
            lambda: Coupling(
                Q, qutip.BosonicEnvironment.from_spectral_density(lambda w: w, wMax=1.0, T=1)
            ),
            "approximate",
        ),
        (
            lambda: Coupling(Q, (qutip.DrudeLorentzEnvironment(T=1, lam=1, gamma=1), 0.1)),
            "delta",
        ),
    ],
)
def test_what_cannot_be_converted_says_so(make: Any, words: str) -> None:
    with pytest.raises(InputError, match=words):
        make()
