"""Problems: couplings, drives, digests, and arguments that are refused."""

from __future__ import annotations

import functools
import pickle
import subprocess
import sys
from collections.abc import Callable
from typing import Any

import cloudpickle
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from heomdask.errors import InputError
from heomdask.model import (
    Coupling,
    Drive,
    DrudeLorentz,
    Exponents,
    Problem,
    Samples,
    UnderdampedBrownian,
    counter_term,
)
from heomdask.model.digest import digest_of

SX = np.array([[0, 1], [1, 0]])
SY = np.array([[0, -1j], [1j, 0]])
SZ = np.diag([1, -1])
BATH = DrudeLorentz(lam=0.1, gamma=0.5, T=0.5)


def problem(**changes: Any) -> Problem:
    given: dict[str, Any] = {"H": 0.5 * SX, "couplings": [Coupling(SZ, BATH)]} | changes
    return Problem(given.pop("H"), given.pop("couplings"), **given)


# ---- couplings


def test_each_coupling_is_a_bath_of_its_own() -> None:
    p = Problem(0.5 * SX, [Coupling(SZ, BATH), (SX, BATH)])
    assert [term.bath for term in p.baths()] == [BATH, BATH]
    np.testing.assert_array_equal(p.baths()[1].Q, SX)
    assert p.d == 2
    assert p.dims == [[2], [2]]


@settings(max_examples=40, deadline=None)
@given(st.integers(1, 4), st.integers(0, 2**31))
def test_correlated_baths_are_diagonalised(n: int, seed: int) -> None:
    rng = np.random.default_rng(seed)
    root = rng.normal(size=(n, rng.integers(1, n + 1)))
    R = root @ root.T
    Q = [q + q.conj().T for q in rng.normal(size=(n, 3, 3)) + 1j * rng.normal(size=(n, 3, 3))]
    terms = Problem(np.eye(3), [Coupling(Q, BATH, correlation=R)]).baths()
    assert len(terms) == root.shape[1]
    # only sum_ab R_ab Q_a (x) Q_b enters the dynamics
    expected = np.einsum("ab,aij,bkl->ijkl", R, Q, Q)
    got = sum(np.einsum("ij,kl->ijkl", t.Q, t.Q) for t in terms)
    np.testing.assert_allclose(got, expected, atol=1e-11 * np.max(np.abs(expected)))


def test_a_diagonal_correlation_keeps_the_operators() -> None:
    terms = Problem(SX, [Coupling([SZ, SX, SY], BATH, correlation=np.diag([4, 0, 1]))]).baths()
    np.testing.assert_array_equal(terms[0].Q, 2 * SZ)
    np.testing.assert_array_equal(terms[1].Q, SY)


def test_perfect_correlation_is_a_common_bath() -> None:
    (term,) = Problem(SX, [Coupling([SZ, SX], BATH, correlation=np.ones((2, 2)))]).baths()
    np.testing.assert_allclose(term.Q * np.sign(term.Q[0, 0].real), SZ + SX, atol=1e-14)


def test_counter_term_cancels_the_shift() -> None:
    brownian = UnderdampedBrownian(lam=0.2, gamma=0.1, w0=1, T=0)
    e = Exponents(c=[0.04], gamma=[1j])
    p = problem(couplings=[Coupling(SZ + SX, BATH), Coupling(SX, brownian), Coupling(SY, e)])
    expected = 0.5 * SX + (0.1 * 2 + 0.2 + 0.04) * np.eye(2)
    np.testing.assert_allclose(counter_term(p).H, expected, atol=1e-15)
    R = np.array([[1.0, 0.6], [0.6, 1.0]])
    p = problem(couplings=[Coupling([SZ, SX], BATH, correlation=R)])
    both = 2 * np.eye(2) + 0.6 * (SZ @ SX + SX @ SZ)
    np.testing.assert_allclose(counter_term(p).H, 0.5 * SX + 0.1 * both, atol=1e-15)


def test_counter_term_of_a_time_dependent_coupling_is_a_drive() -> None:
    p = counter_term(problem(couplings=[Coupling(SZ, BATH, f=np.cos)]))
    (drive,) = p.hermitian_drives
    np.testing.assert_array_equal(p.H, 0.5 * SX)
    np.testing.assert_allclose(drive.f(1.2) * drive.H1, np.cos(1.2) ** 2 * 0.1 * np.eye(2))


# ---- drives


def test_real_drives_stay_one_term() -> None:
    (drive,) = problem(drives=[(lambda t: 2.0 * t, SX)]).hermitian_drives
    assert drive.name == "drive0"
    assert drive.f(1.5) == 3.0
    np.testing.assert_array_equal(drive.H1, SX)


def test_complex_drives_mean_plus_hermitian_conjugate() -> None:
    H1 = np.array([[0.3, 1 + 2j], [0, 0]])

    def f(t: float) -> complex:
        return complex(np.exp(-1j * t))

    drives = problem(drives=[(np.sin, SZ), (f, H1)]).hermitian_drives
    assert [d.name for d in drives] == ["drive0", "drive1.re", "drive1.im"]
    for t in (0.0, 0.7, 3.0):
        expected = np.sin(t) * SZ + f(t) * H1 + np.conj(f(t)) * H1.conj().T
        total = sum(d.f(t) * d.H1 for d in drives)
        np.testing.assert_allclose(total, expected, atol=1e-15)
        assert all(type(d.f(t)) is float for d in drives)
    for d in drives:
        np.testing.assert_array_equal(d.H1, d.H1.conj().T)


def test_a_real_drive_has_to_stay_real() -> None:
    (drive,) = problem(drives=[(lambda t: 0.0 if t < 1 else 1j, SX)]).hermitian_drives
    assert drive.f(0.5) == 0.0
    with pytest.raises(InputError, match="complex already at t = 0"):
        drive.f(2.0)


def test_arrays_cannot_be_changed_behind_the_digest() -> None:
    H = np.array([[0.0, 1.0], [1.0, 0.0]])
    p = Problem(H, [Coupling(SZ, BATH)], lindblad=[SX])
    H[0, 0] = 5.0
    assert p.H[0, 0] == 0
    for array in (p.H, p.baths()[0].Q, p.lindblad[0]):
        with pytest.raises(ValueError, match="read-only"):
            array[0, 0] = 1.0


def test_equal_operators_are_one_whoever_brings_them() -> None:
    Q = np.diag([1.0, -1.0])
    first = Coupling(Q, BATH).operators[0]
    assert Coupling(Q.copy(), BATH).operators[0] is first
    Q[0, 0] = 2.0
    assert Coupling(Q, BATH).operators[0].tolist() == [[2, 0], [0, -1]]
    assert first.tolist() == [[1, 0], [0, -1]]
    same_bytes = np.array([1.0, 0.0, 0.0, -1.0])
    for _ in range(2):
        with pytest.raises(InputError, match="`Q`"):
            Coupling(same_bytes, BATH)


def test_breakpoints_are_collected() -> None:
    pulse = Samples([0, 100, 600, 700], [0, 1.5, 0, 0], kind="step")
    p = problem(
        drives=[Drive(pulse, SX, breakpoints=[50.0, 100.0])],
        couplings=[Coupling(SZ, BATH, f=Samples([0, 2, 4], [1, 1, 0], kind="linear"))],
    )
    assert p.hermitian_drives[0].breakpoints == (50.0, 100.0, 600.0)
    assert p.breakpoints == (2.0, 4.0, 50.0, 100.0, 600.0)


def test_samples_interpolate_as_they_say() -> None:
    t, values = [0.0, 1.0, 2.0, 4.0], [0.0, 1.0, 1.0, -1.0]
    step, linear, cubic = (Samples(t, values, kind=k) for k in ("step", "linear", "cubic"))
    assert [step(x) for x in (-1, 0.99, 1, 3.9, 4, 9)] == [0, 0, 1, 1, -1, -1]
    assert [linear(x) for x in (-1, 0.5, 3, 9)] == [0, 0.5, 0, -1]
    assert [cubic(x) for x in (*t, -1, 9)] == pytest.approx([*values, 0, -1])
    x = np.linspace(0, 5, 40)
    smooth = Samples(x, np.exp(1j * x), kind="cubic")
    assert smooth(2.345) == pytest.approx(np.exp(2.345j), abs=1e-5)
    assert step.breakpoints == (1.0, 4.0)
    assert linear.breakpoints == (0.0, 1.0, 2.0, 4.0)
    assert cubic.breakpoints == (0.0, 4.0)
    again = pickle.loads(pickle.dumps(cubic))
    assert again(1.7) == cubic(1.7)


class Pulse:
    def __init__(self, strength: float) -> None:
        self.strength = strength

    def __call__(self, t: float) -> float:
        return self.strength * float(np.sin(1.3 * t))


def scaled(t: float, strength: float) -> float:
    return strength * float(np.sin(1.3 * t))


def made(strength: float) -> Callable[[float], float]:
    return lambda t: strength * float(np.sin(1.3 * t))


@pytest.mark.parametrize(
    "f", [made(0.7), functools.partial(scaled, strength=0.7), Pulse(0.7)], ids=str
)
def test_any_callable_travels_in_a_pickle(f: Callable[[float], float]) -> None:
    p = problem(drives=[(f, SX)])
    again = pickle.loads(cloudpickle.dumps(p))
    assert again.hermitian_drives[0].f(0.4) == pytest.approx(0.7 * np.sin(0.52))
    assert again.digest == p.digest


# ---- digest


def test_the_digest_names_the_physics() -> None:
    base = problem().digest
    assert problem().digest == base
    others = [
        problem(H=0.5 * SX + 1e-15 * SZ),
        problem(couplings=[Coupling(SX, BATH)]),
        problem(couplings=[Coupling(SZ, DrudeLorentz(lam=0.1, gamma=0.5, T=0.6))]),
        problem(couplings=[Coupling(SZ, BATH, expansion=("Pade", 3))]),
        problem(couplings=[Coupling(SZ, BATH, f=np.cos)]),
        problem(couplings=[Coupling(SZ, BATH, f=np.sin)]),
        problem(couplings=[Coupling(SZ, BATH)] * 2),
        problem(lindblad=[0.1 * SX]),
        problem(drives=[(made(0.7), SX)]),
        problem(drives=[(made(0.8), SX)]),
        problem(drives=[(Pulse(0.7), SX)]),
        problem(drives=[(Pulse(0.8), SX)]),
        problem(drives=[(functools.partial(scaled, strength=0.7), SX)]),
        problem(drives=[(functools.partial(scaled, strength=0.8), SX)]),
        problem(drives=[Drive(made(0.7), SX, breakpoints=[1.0])]),
    ]
    assert len({base, *(p.digest for p in others)}) == len(others) + 1


def test_digests_of_values_do_not_collide() -> None:
    values: list[Any] = [
        None, True, 1, 1.0, "1", b"1", (1,), [1], (1, 1), ((1,), 1), {"a": 1}, {"a": 2}, {1, 2},
        np.array([1.0]), np.array([1]), np.array([[1.0]]), np.float32(1), int, np.sin, np.cos,
        lambda t: t, lambda t: 2 * t, made(1.0), made(2.0), Pulse(1.0), Pulse(2.0),
        Pulse(1.0).__call__,
    ]  # fmt: skip
    assert len({digest_of(v) for v in values}) == len(values)
    assert digest_of({"a": 1, "b": 2}) == digest_of({"b": 2, "a": 1})
    assert digest_of("ab", "c") != digest_of("a", "bc")


def test_the_digest_is_the_same_in_every_process() -> None:
    code = (
        "import numpy as np\n"
        "from heomdask.model import *\n"
        "a = 0.7\n"
        "f = lambda t: a * np.sin(t) if t in {1.0, 2.0, 3.0} else len('text')\n"
        "bath = SpectralDensity(lambda w: w * np.exp(-w), T=0.1)\n"
        "print(Problem([[1, 0], [0, 0]], [Coupling([[1, 0], [0, 0]], bath)],"
        " drives=[(f, [[0, 1], [1, 0]])]).digest)"
    )
    runs = [
        subprocess.run(
            [sys.executable, "-c", code], capture_output=True, text=True, check=True,
            env={"PYTHONHASHSEED": seed, "OMP_NUM_THREADS": "1", "PYTHONPATH": ":".join(sys.path)},
        ).stdout
        for seed in ("1", "2")
    ]  # fmt: skip
    assert runs[0] == runs[1]
    assert len(runs[0].strip()) == 64


# ---- arguments


def raises_at_call(t: float) -> float:
    return {"a": 1.0}[str(t)]


NAN = np.array([[np.nan, 0], [0, 1]])


@pytest.mark.parametrize(
    ("make", "name"),
    [
        (lambda: Problem([[1, 1], [0, 0]]), "H"),
        (lambda: Problem([[1, 2, 3], [0, 0, 1]]), "H"),
        (lambda: Problem(NAN), "H"),
        (lambda: Problem("H"), "H"),
        (lambda: Problem([]), "H"),
        (lambda: Coupling([[0, 1], [0, 0]], BATH), "Q"),
        (lambda: Coupling(NAN, BATH), "Q"),
        (lambda: Coupling(SZ, "bath"), "bath"),
        (lambda: Coupling([SZ, SX], BATH), "Q"),
        (lambda: Coupling([SZ, SX], BATH, correlation=np.eye(3)), "correlation"),
        (lambda: Coupling([SZ, SX], BATH, correlation=[[1, 2], [2, 1]]), "correlation"),
        (lambda: Coupling([SZ, SX], BATH, correlation=[[1, 0.5], [0, 1]]), "correlation"),
        (lambda: Coupling([SZ, SX], BATH, correlation=[[1, 1j], [-1j, 1]]), "correlation"),
        (lambda: Coupling([SZ, np.eye(3)], BATH, correlation=np.eye(2)), r"Q\[1\]"),
        (lambda: Coupling([], BATH, correlation=np.eye(2)), "Q"),
        (lambda: Coupling(SZ, BATH, f=lambda t: 1j), "f"),
        (lambda: Coupling(SZ, BATH, f=2.0), "f"),
        (lambda: Problem(SX, Coupling(SZ, BATH)), "couplings"),
        (lambda: Problem(SX, [SZ]), r"couplings\[0\]"),
        (lambda: Problem(SX, [Coupling(np.eye(3), BATH)]), r"couplings\[0\]"),
        (lambda: Problem(SX, drives=[(np.cos, np.eye(3))]), r"drives\[0\]"),
        (lambda: Problem(SX, drives=[np.cos]), r"drives\[0\]"),
        (lambda: Problem(SX, drives=[(np.cos, [[0, 1], [0, 0]])]), "H1"),
        (lambda: Problem(SX, drives=[(2.0, SX)]), "f"),
        (lambda: Problem(SX, drives=[(raises_at_call, SX)]), "f"),
        (lambda: Problem(SX, drives=[(lambda t: np.nan, SX)]), "f"),
        (lambda: Problem(SX, drives=[(lambda t: None, SX)]), "f"),
        (lambda: Problem(SX, drives=[(lambda t: [1, 2], SX)]), "f"),
        (lambda: Drive(np.cos, SX, breakpoints=[np.inf]), "breakpoints"),
        (lambda: Problem(SX, lindblad=[np.eye(3)]), r"lindblad\[0\]"),
        (lambda: Problem(SX, lindblad=[NAN]), r"lindblad\[0\]"),
        (lambda: Samples([0, 1, 1], [0, 1, 2]), "t"),
        (lambda: Samples([0, 1], [0, 1, 2]), "values"),
        (lambda: Samples([0, 1], [0, np.nan]), "values"),
        (lambda: Samples([0, 1], [0, 1], kind="nearest"), "kind"),
        (lambda: Samples([0, 1], [0, 1], kind="cubic"), "t"),
    ],
)
def test_wrong_arguments_are_named(make: Any, name: str) -> None:
    with pytest.raises(InputError, match=f"`{name}`"):
        make()
