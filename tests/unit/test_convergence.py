"""`hd.converge`, and what it and `hd.advise` say where memory is short."""

import numpy as np
import pytest
import scipy.integrate

import heomdask as hd
from heomdask import memory
from heomdask.errors import HeomdaskWarning, TooLarge
from heomdask.units import K, cm1

SX, P1 = np.array([[0.0, 1.0], [1.0, 0.0]]), np.diag([1.0, 0.0])
TIMES = np.linspace(0, 200, 5)


def _dimer(lam: float) -> hd.Problem:
    bath = hd.DrudeLorentz(lam=lam * cm1, gamma=1 / 100, T=300 * K)
    H = np.array([[100.0, 100.0], [100.0, 0.0]]) * cm1
    return hd.Problem(H, [hd.Coupling(P1, bath), hd.Coupling(np.eye(2) - P1, bath)])


@pytest.fixture
def room(monkeypatch):
    """Sets the free memory, in bytes."""

    def limit(nbytes: int) -> None:
        monkeypatch.setattr(memory, "SMALL", 0)
        monkeypatch.setattr(memory, "available", lambda: nbytes)

    return limit


def _bytes(depth: int, n: int) -> int:
    problem = _dimer(20)
    return hd.advise(problem, TIMES, depth=depth, expansion=hd.Pade(n)).nbytes


def test_converge_runs_until_nothing_changes() -> None:
    problem = _dimer(20)
    start = hd.advise(problem, TIMES, depth=2, expansion=hd.Pade(0))
    found = hd.converge(problem, P1, TIMES, {"P1": P1}, 5e-3, start=start, backend="numpy")
    assert found.converged
    assert found.depth > 2
    assert found.expansion == hd.Pade(1)
    assert [step.depth for step in found.steps] == sorted({step.depth for step in found.steps})
    # P1 of the converged hierarchy
    exact = [1.0, 0.45123818146862255, 0.45684584099046044, 0.4247188685153321]
    now = found.solution.observables["P1"][[0, 1, 2, 4]]
    assert np.max(np.abs(now - exact)) < 5e-3
    few = hd.converge(
        problem, P1, TIMES, {"P1": P1}, 1e-6, start=start, most_steps=1, backend="numpy"
    )
    assert not few.converged
    assert str(few).startswith("NOT converged")


def test_converge_of_a_free_system_is_immediate() -> None:
    found = hd.converge(hd.Problem(SX), P1, [0.0, 1.0], backend="numpy")
    assert found.converged
    assert found.steps[-1].error == 0
    exact, _ = scipy.integrate.quad(np.sin, 0, 2)
    assert found.solution.rho[1, 0, 0].real == pytest.approx(1 - exact / 2, abs=1e-6)


def test_converge_ends_with_what_fits(room) -> None:
    problem = _dimer(100)
    start = hd.advise(problem, TIMES, depth=2, expansion=hd.Pade(1))
    room(_bytes(4, 1))
    with pytest.warns(HeomdaskWarning, match="stopped by memory"):
        found = hd.converge(problem, P1, TIMES, {"P1": P1}, 1e-5, start=start, backend="numpy")
    assert not found.converged
    assert (found.depth, found.expansion) == (4, hd.Pade(1))
    assert found.too_large == (3, hd.Pade(2))
    assert "depth=3, expansion=Pade(2)" in str(found).splitlines()[-1]
    # against a deeper hierarchy, the change from one level less
    room(10**9)
    exact = hd.evolve(
        problem, P1, TIMES, depth=10, expansion=hd.Pade(2), observables={"P1": P1}, backend="native"
    )
    true = np.max(np.abs(found.solution.observables["P1"] - exact.observables["P1"]))
    assert true < 1.5 * found.steps[-1].error < 30 * true


def test_converge_starts_with_what_fits(room) -> None:
    start = hd.advise(_dimer(20), TIMES, depth=6, expansion=hd.Pade(1))
    room(_bytes(3, 1))
    with pytest.warns(HeomdaskWarning, match="stopped by memory"):
        found = hd.converge(_dimer(20), P1, TIMES, {"P1": P1}, 1e-6, start=start, backend="numpy")
    assert found.depth == 3
    assert found.too_large == (6, hd.Pade(1))
    room(10)
    with pytest.raises(TooLarge):
        hd.converge(_dimer(20), P1, TIMES, {"P1": P1}, 1e-6, start=start, backend="numpy")


def test_advice_tells_the_memory_of_the_run() -> None:
    advice = hd.advise(_dimer(20), TIMES, depth=4, expansion=hd.Pade(1))
    prepared = hd.prepare(_dimer(20), depth=4, expansion=hd.Pade(1))
    assert advice.nbytes == prepared.size.run_bytes(n_times=5, final_ados=True)
    assert "70 ADOs, 65.3 kB" in str(advice)
    assert advice.smaller is None
    coupling = hd.Coupling(SX, hd.Exponents(c=[0.1], gamma=[1.0 + 1j]))
    drive = hd.Problem(SX, [coupling], drives=[(np.cos, SX)])
    prepared = hd.prepare(drive, depth=4)
    assert hd.advise(drive, TIMES, depth=4).nbytes == prepared.size.run_bytes(
        n_times=5, final_ados=True
    )


def test_advice_that_does_not_fit_names_one_that_does(room) -> None:
    wanted = hd.advise(_dimer(100), TIMES, depth=8, expansion=hd.Pade(1))
    room(_bytes(6, 1))
    found = hd.advise(_dimer(100), TIMES, depth=8, expansion=hd.Pade(1))
    assert found == wanted
    assert (found.smaller.depth, found.smaller.expansion) == (6, hd.Pade(1))
    assert found.smaller.estimated_error > found.estimated_error
    assert "too large for this machine, where this fits: depth=6" in str(found)
    auto = hd.advise(_dimer(100), TIMES, depth=8)
    assert auto.smaller.nbytes <= _bytes(6, 1) < auto.nbytes
    room(10)
    assert hd.advise(_dimer(100), TIMES).smaller is None
