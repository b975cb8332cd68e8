"""Whether a steady state is unique and stable: random hierarchies against dense eigenvalues."""

from __future__ import annotations

import numpy as np
import pytest

import heomdask as hd
from heomdask.backends.native import NativeBackend
from heomdask.generator.build import build_plan
from heomdask.preparation import prepare
from heomdask.solvers import fraction
from heomdask.solvers.steady import stationary

UNKNOWNS, TOL = 300, 1e-6
SLOW = 1e-3  # of its own size: growth so slow may stay unseen


def random_problem(seed):
    """Two or three levels and a bath of any strength, with a depth that is often far too small."""
    rng = np.random.default_rng([11, seed])
    d = int(rng.integers(2, 4))
    H, Q = (symmetric(rng, d) for _ in range(2))
    if rng.random() < 0.5:
        Q = np.diag(np.diag(Q))
    lam, T, gamma = 10 ** rng.uniform(-2, 1), 10 ** rng.uniform(-1.2, 0.7), 10 ** rng.uniform(-1, 1)
    if rng.random() < 0.7:
        bath = hd.DrudeLorentz(lam=lam, gamma=gamma, T=T)
        method = hd.Pade if rng.random() < 0.6 else hd.Matsubara
        expansion = method(int(rng.integers(0, 3)))
    else:
        bath = hd.UnderdampedBrownian(lam=lam, gamma=0.3 * gamma, w0=gamma, T=T)
        expansion = hd.Pade(int(rng.integers(0, 2)))
    return hd.Problem(H, [hd.Coupling(Q, bath)]), expansion, int(rng.integers(1, 7))


def symmetric(rng, d):
    raw = rng.standard_normal((d, d))
    return (raw + raw.T) / 2


def solved(problem, expansion, depth, share, monkeypatch):
    """What is found with a share of the unknowns in the core; its error; eigenvalues but one 0."""
    prepared = prepare(problem, depth=depth, expansion=expansion)
    unknowns = prepared.index_set.n_ado * prepared.problem.d**2
    if unknowns > UNKNOWNS:
        return None, None, None
    plan = build_plan([prepared.expanded], prepared.index_set)
    monkeypatch.setattr(fraction, "CORE_UNKNOWNS", share * unknowns)
    backend = NativeBackend(threads=1)
    compiled = backend.compile(plan)
    found = stationary(backend, compiled, tol=TOL)
    values, vectors = np.linalg.eig(plan.to_sparse().toarray())
    zero = np.argmin(np.abs(values))
    exact = vectors[:, zero].reshape(-1, plan.d, plan.d)
    state = backend.fetch(compiled, found.state)[..., 0]
    error = np.max(np.abs(state - exact / np.trace(exact[0])))
    return found, error, np.delete(values, zero)


@pytest.mark.filterwarnings("ignore::heomdask.HeomdaskWarning")
@pytest.mark.parametrize("share", [1.0, 0.2])
def test_nothing_unstable_is_missed_and_nothing_stable_is_called_so(share, monkeypatch):
    kinds, unsettled = {True: 0, False: 0}, 0
    for seed in [*range(60), 396, 477, 497]:
        found, error, others = solved(*random_problem(seed), share, monkeypatch)
        if found is None:
            continue
        said = found.outcome is hd.Outcome.UNSTABLE
        grows = bool(np.any(others.real > SLOW * np.abs(others)))
        if found.pair.settled or said:
            assert said == grows, (seed, found.pair)
            assert said or 0.1 < found.stats["gap"] / np.min(np.abs(others)) < 1.1, seed
        assert error < 3 * TOL or not found.outcome.good, seed
        assert found.outcome not in (hd.Outcome.NOT_UNIQUE, hd.Outcome.NOT_FINITE), seed
        kinds[grows] += 1
        unsettled += not (found.pair.settled or said)
    assert min(kinds.values()) > 12
    assert unsettled < 0.12 * sum(kinds.values())


@pytest.mark.parametrize("link", [0.0, 1e-3, 1e-2, 1.0])
def test_two_blocks_have_two_steady_states_until_they_are_linked(link, monkeypatch):
    """Weakly linked ones relax by the square of the link: a small gap, but one steady state."""
    for seed in range(12):
        rng = np.random.default_rng([3, seed])
        H, V = np.kron(np.eye(2), symmetric(rng, 2)), symmetric(rng, 4)
        H[2:, 2:] += 0.3 * symmetric(rng, 2)
        bath = hd.DrudeLorentz(lam=rng.uniform(0.005, 0.05), gamma=rng.uniform(0.3, 1), T=1.0)
        Q = np.kron(np.eye(2), symmetric(rng, 2))
        problem = hd.Problem(H + link * V, [hd.Coupling(Q, bath)])
        found, error, others = solved(problem, hd.Pade(0), 3, 0.3, monkeypatch)
        nearest = np.min(np.abs(others))
        if link == 0.0:
            assert found.outcome is hd.Outcome.NOT_UNIQUE
        else:
            assert found.outcome.good or others.real.max() > 0, seed
            assert found.outcome is not hd.Outcome.NOT_UNIQUE, seed
            if found.outcome.good:
                assert error < TOL, seed
                assert 0.05 < found.stats["gap"] / nearest < 1.5, seed
