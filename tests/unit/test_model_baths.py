"""J, S, C and g of every bath against closed forms, reference cases and each other."""

from __future__ import annotations

import pickle
from typing import Any

import cloudpickle
import numpy as np
import pytest
import scipy.integrate
import scipy.interpolate
import scipy.special
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from heomdask.errors import InputError
from heomdask.model import (
    Bath,
    CorrelationFunction,
    DrudeLorentz,
    Exponents,
    Ohmic,
    SpectralDensity,
    UnderdampedBrownian,
)
from heomdask.model.bath import ThermalBath
from heomdask.model.exponents import second_integral
from heomdask.units import K, cm1, fs

Times = NDArray[np.float64]

BATHS: list[ThermalBath] = [
    DrudeLorentz(lam=0.1, gamma=0.5, T=0.5),
    DrudeLorentz(lam=0.1, gamma=0.5, T=0),
    DrudeLorentz(lam=0.3, gamma=5.0, T=5.0 / (2 * np.pi)),  # gamma = nu_1
    DrudeLorentz(lam=1e-3, gamma=1e-2, T=1e3),
    UnderdampedBrownian(lam=0.1, gamma=0.05, w0=1, T=0.7),
    UnderdampedBrownian(lam=0.1, gamma=2.0, w0=1, T=0.1),  # critical
    UnderdampedBrownian(lam=0.1, gamma=7.0, w0=1, T=0),
    UnderdampedBrownian(lam=0.1, gamma=1e-4, w0=1, T=3),
    Ohmic(lam=0.2, s=1, wc=2, T=0),
    Ohmic(lam=0.2, s=0.5, wc=2, T=0.3),
    Ohmic(lam=0.2, s=3, wc=2, T=40),
    SpectralDensity(lambda w: 0.1 * w * np.exp(-(w**2)), T=0.2),
    SpectralDensity((np.linspace(0, 3, 7), [0, 1, 1.5, 0.2, 0.1, 1, 0]), T=0.4),
]
IDS = [f"{type(b).__name__}-{j}" for j, b in enumerate(BATHS)]


def matsubara(bath: DrudeLorentz, t: Times, n: int = 200_000) -> tuple[Any, Any]:
    """C and g of a Drude bath as a Matsubara sum of n terms.

    Of the rest of g the part linear in t follows from the integral of Re C, 2 lam T / gamma, and
    the constant from sum_{k >= n} k^-3 = 1 / 2(n - 1/2)^2.
    """
    lam, gamma, T = bath.lam, bath.gamma, bath.T
    nu = 2 * np.pi * T * np.arange(1, n)
    c0 = lam * gamma * (1 / np.tan(gamma / (2 * T)) - 1j)
    ck = 4 * lam * T * gamma * nu / (nu**2 - gamma**2)
    C = [c0 * np.exp(-gamma * x) + np.sum(ck * np.exp(-nu * x)) for x in t]
    rest = 2 * lam * T / gamma - c0.real / gamma - np.sum(ck / nu)
    constant = -2 * lam * gamma * T / (2 * np.pi * T) ** 3 / (n - 0.5) ** 2
    g = [
        c0 * second_integral(np.array(gamma * x)) * x**2
        + np.sum(ck * second_integral(nu * x)) * x**2 + rest * x + constant
        for x in t
    ]  # fmt: skip
    return np.array(C), np.array(g)


@pytest.mark.parametrize(("gamma", "T"), [(0.05, 1 / 0.95), (0.5, 0.5), (5.0, 0.2), (3.0, 30.0)])
def test_drude_against_its_matsubara_sum(gamma: float, T: float) -> None:
    bath = DrudeLorentz(lam=0.3, gamma=gamma, T=T)
    t = np.array([0.1, 1.0, 7.0, 60.0]) / T
    C, g = matsubara(bath, t)
    np.testing.assert_allclose(bath.C(t), C, rtol=1e-11, atol=1e-13 * np.abs(C[0]))
    np.testing.assert_allclose(bath.g(t).real, g.real, rtol=1e-10)
    np.testing.assert_allclose(bath.g(t).imag, g.imag, rtol=1e-11)


def test_drude_at_zero_temperature_against_exponential_integrals() -> None:
    bath = DrudeLorentz(lam=0.3, gamma=0.7, T=0)
    t = np.array([1e-3, 0.1, 1.0, 9.0])
    x = 0.7 * t
    integrals = np.exp(-x) * scipy.special.expi(x) - np.exp(x) * scipy.special.exp1(x)
    expected = -0.3 * 0.7 / np.pi * integrals - 1j * 0.3 * 0.7 * np.exp(-x)
    np.testing.assert_allclose(bath.C(t), expected, rtol=1e-11)


def test_drude_diverges_at_time_zero_only() -> None:
    bath = DrudeLorentz(lam=0.3, gamma=0.7, T=0.4)
    start = bath.C(0.0)
    assert start.real == np.inf
    assert start.imag == pytest.approx(-0.3 * 0.7, rel=1e-12)
    assert bath.g(0.0) == 0
    assert UnderdampedBrownian(lam=0.1, gamma=0.3, w0=1, T=0).C(0.0).imag == pytest.approx(0)


@pytest.mark.parametrize("gamma", [0.05, 0.9, 3.5])
@pytest.mark.parametrize("T", [0.25, 2.0])
def test_brownian_against_its_residues(gamma: float, T: float) -> None:
    bath = UnderdampedBrownian(lam=0.2, gamma=gamma, w0=1, T=T)
    zeta = np.sqrt(complex(1 - gamma**2 / 4))
    t = np.array([0.02, 0.1, 1.0, 7.0, 30.0])
    terms = []
    for sign in (1, -1):  # rates gamma/2 +- i zeta, residues of J coth - J
        rate = gamma / 2 + sign * 1j * zeta
        c = bath.alpha**2 / (4 * zeta) * sign * (1 / np.tanh(-1j * rate / (2 * T)) + 1)
        terms.append((c, rate))
    nu = 2 * np.pi * T * np.arange(1, 20_000)
    ck = -2 * T * bath.alpha**2 * gamma * nu / ((1 + nu**2) ** 2 - gamma**2 * nu**2)
    C = sum(c * np.exp(-r * t) for c, r in terms)
    C = C + [np.sum(ck * np.exp(-nu * x)) for x in t]
    g = sum(c * second_integral(r * t) * t**2 for c, r in terms)
    g = g + [np.sum(ck * second_integral(nu * x)) * x**2 for x in t]
    np.testing.assert_allclose(bath.C(t), C, rtol=1e-9, atol=1e-11 * np.abs(C[0]))
    np.testing.assert_allclose(bath.g(t), g, rtol=1e-9, atol=1e-14)


def test_ohmic_at_zero_temperature() -> None:
    t = np.array([0.0, 1e-4, 0.3, 2.0, 50.0])
    for s in (0.5, 1.0, 3.0):
        bath = Ohmic(alpha=0.4, s=s, wc=2.0, T=0)
        scale = 0.4 * 2.0 ** (1 - s) * scipy.special.gamma(s + 1) / np.pi
        C = scale * (0.5 + 1j * t) ** -(s + 1)
        np.testing.assert_allclose(bath.C(t), C, rtol=1e-11, atol=1e-14 * abs(C[0]))
    # (alpha / pi) [log(1 + i wc t) - i wc t]
    g = 0.4 / np.pi * (np.log1p((2 * t) ** 2) / 2 + 1j * (np.arctan(2 * t) - 2 * t))
    np.testing.assert_allclose(Ohmic(alpha=0.4, s=1, wc=2.0, T=0).g(t), g, rtol=1e-9)


def test_super_ohmic_at_finite_temperature() -> None:
    # coth(w/2T) = 1 + 2 sum exp(-n w/T), so C is a sum of powers
    bath = Ohmic(lam=0.3, s=3, wc=2.0, T=0.8)
    t = np.array([0.0, 0.4, 3.0, 20.0])
    scale = bath.alpha * 2.0**-2 * 6 / np.pi
    n = np.arange(1, 20_000)
    thermal = [2 * np.sum(((0.5 + n / 0.8 + 1j * x) ** -4.0).real) for x in t]
    C = scale * ((0.5 + 1j * t) ** -4 + thermal)
    np.testing.assert_allclose(bath.C(t), C, rtol=1e-11, atol=1e-14 * abs(C[0]))


# ---- reference cases: values of exp(-g), with the coherence prefactor of each


def test_case_a01_pure_dephasing() -> None:
    # A01: rho01 = exp(-4 Re g)/2, Q = sz; exact cumulant formula, printed to 16 digits
    bath = DrudeLorentz(lam=0.025, gamma=0.05, T=1 / 0.95)
    rho01 = [
        0.5, 0.4869707693935587, 0.4505156257078587, 0.3322299192022681, 0.04407373470259673,
        6.313136812830561e-5, 1.739854140945073e-14,
    ]  # fmt: skip
    got = np.exp(-4 * bath.g([0, 0.5, 1, 2, 5, 10, 20]).real) / 2
    np.testing.assert_allclose(got, rho01, rtol=1e-12)


def test_case_a03_monomer_line_shape() -> None:
    # A03: rho_eg = exp(-g), lam = 100 cm^-1, 100 fs, 300 K; second-order cumulant
    bath = DrudeLorentz(lam=100 * cm1, gamma=1 / (100 * fs), T=300 * K)
    expected = [
        1.0, 0.9258603762240021 + 0.008436682564053848j, 0.6421348961252398 + 0.03487044534647092j,
        0.19678069596757072 + 0.040026013517515086j, 0.0031709184314580707 + 0.0026328738201167753j,
        -2.546030114550346e-08 + 3.991640150304685e-08j,
    ]  # fmt: skip
    got = np.exp(-bath.g([0, 10, 25, 50, 100, 200]))
    np.testing.assert_allclose(got, expected, rtol=1e-12, atol=1e-16)


def test_case_a03_absorption() -> None:
    # A03: A(w) = (1/pi) Re int exp(iwt - g) dt, per cm^-1, at w - w_vertical in cm^-1. The values
    # are those of the Drude pole and exactly 200 Matsubara terms; the exact g is 5e-5 away from
    # them at the maximum.
    lam, gamma, T = 100 * cm1, 1 / (100 * fs), 300 * K
    nu = 2 * np.pi * T * np.arange(1, 201)
    c0 = lam * gamma * (1 / np.tan(gamma / (2 * T)) - 1j)
    ck = 4 * lam * T * gamma * nu / (nu**2 - gamma**2)
    bath = Exponents(c=[c0, *ck], gamma=[gamma, *nu])
    w = np.array([-300, -200, -100, 0, 100, 200, 300, 500]) * cm1
    expected = [
        0.0006466001323509866, 0.0012746578625706202, 0.0018822727324746946, 0.0020591621978180903,
        0.0016874621810404953, 0.0010698338838099853, 0.0005522102566876229, 0.00010530071794118011,
    ]  # fmt: skip
    t = np.linspace(0, 400, 4001)

    def absorption(g: Times) -> Times:
        integrand = np.exp(1j * np.multiply.outer(w, t) - g)
        return np.asarray(scipy.integrate.simpson(integrand, x=t).real / np.pi * cm1)

    np.testing.assert_allclose(absorption(bath.g(t)), expected, rtol=2e-8)
    exact = absorption(DrudeLorentz(lam=lam, gamma=gamma, T=T).g(t))
    assert exact[3] / expected[3] - 1 == pytest.approx(-5.4457e-5, abs=1e-8)


def test_case_a04_underdamped() -> None:
    # A04: alpha = 0.1, rho01 = exp(-4 Re g)/2; analytic integral, 14 digits
    bath = UnderdampedBrownian(alpha=0.1, gamma=0.05, w0=1, T=1 / 0.95)
    t = [0, 1, 2, np.pi, 5, 2 * np.pi, 10]
    rho01 = [
        0.5, 0.48971632281895, 0.46883038707409, 0.45539488008667, 0.47697137843707,
        0.49020108024176, 0.45374087223897,
    ]  # fmt: skip
    np.testing.assert_allclose(np.exp(-4 * bath.g(t).real) / 2, rho01, rtol=1e-12)


def test_case_a06_factors() -> None:
    # A06: one qubit, Q = sz, lam = 0.02, gamma = 0.5, T = 1
    bath = DrudeLorentz(lam=0.02, gamma=0.5, T=1)
    expected = [1, 0.92990815, 0.78417206, 0.3591393, 0.076014462]
    np.testing.assert_allclose(np.exp(-4 * bath.g([0, 1, 2, 5, 10]).real), expected, rtol=2e-8)


def test_case_a08_scaling_identities() -> None:
    # A08: lam = 0.03, gamma = 0.4, T = 0.8, t = 3
    def factor(lam: float, scale: float = 1.0, spread: float = 2.0) -> float:
        bath = DrudeLorentz(lam=lam * scale, gamma=0.4 * scale, T=0.8 * scale)
        return float(np.exp(-(spread**2) * bath.g(3.0 / scale).real))

    assert factor(0.03) == pytest.approx(0.5392830913818704, rel=1e-12)
    assert factor(0.06) == pytest.approx(0.29082625265038675, rel=1e-12)
    assert factor(0.03, spread=4.0) == pytest.approx(0.08457990923066658, rel=1e-12)
    assert factor(0.03 / 4, spread=4.0) == pytest.approx(factor(0.03), rel=1e-12)
    assert factor(0.03, scale=7.3) == pytest.approx(factor(0.03), rel=1e-12)
    assert factor(0.0) == 1.0


# ---- properties of every bath


@pytest.mark.parametrize("bath", BATHS, ids=IDS)
def test_reorganisation_is_the_integral_of_J_over_w(bath: ThermalBath) -> None:
    assert bath._quadrature.reorganisation == pytest.approx(bath.reorganisation, rel=1e-11)
    late = 1e5 / min(bath.frequencies)  # Im g ~ -lam t, up to a constant
    assert bath.g(late).imag / late == pytest.approx(-bath.reorganisation, rel=1e-2)


@pytest.mark.parametrize("bath", BATHS, ids=IDS)
def test_detailed_balance_and_symmetry(bath: ThermalBath) -> None:
    w = np.array([1e-6, 0.1, 0.9, 1.0, 2.5]) * max(bath.frequencies)
    assert np.all(bath.S(w) >= 0)
    with np.errstate(divide="ignore", over="ignore", under="ignore"):
        boltzmann = np.exp(-w / bath.T) if bath.T else np.zeros(len(w))
    np.testing.assert_allclose(bath.S(-w), boltzmann * bath.S(w), rtol=1e-9, atol=1e-300)
    rounding = 1e-15 * np.max(bath.S(w))
    np.testing.assert_allclose((bath.S(w) - bath.S(-w)) / 2, bath.J(w), rtol=1e-9, atol=rounding)
    np.testing.assert_allclose(bath.J(-w), -bath.J(w), rtol=0)
    assert bath.J(0.0) == 0


@pytest.mark.parametrize("bath", BATHS, ids=IDS)
def test_g_is_the_double_integral_of_C(bath: ThermalBath) -> None:
    # second difference of g = int (h - |s|) C(t + s) ds over [-h, h], which never meets t = 0
    t0 = 2.0 / max(bath.frequencies)
    h = t0 / 2
    nodes, weights = np.polynomial.legendre.leggauss(48)
    s, weights = (nodes + 1) * h / 2, weights * h / 2
    for t in (t0, 20 * t0):
        expected = ((h - s) * weights) @ (bath.C(t + s) + bath.C(t - s))
        low, middle, high = bath.g([t - h, t, t + h])
        scale = 1e-11 * abs(high)
        assert high - 2 * middle + low == pytest.approx(expected, rel=1e-9, abs=scale)


@pytest.mark.parametrize("bath", BATHS, ids=IDS)
def test_short_and_negative_times(bath: ThermalBath) -> None:
    t = 1e-7 / max(bath.frequencies)
    g = bath.g([t, 2 * t])
    assert np.all(g.real > 0)
    assert 3.6 < g[1].real / g[0].real < 4.001  # t^2, or t^2 log t
    assert bath.g(-0.3) == bath.g(0.3).conj()
    assert bath.C(-0.3) == bath.C(0.3).conj()
    assert bath.g(np.ones((2, 3))).shape == (2, 3)
    assert bath.g([]).shape == (0,)


@pytest.mark.parametrize("bath", BATHS, ids=IDS)
def test_pickles_are_small_and_equal(bath: ThermalBath) -> None:
    bath.g(1.0)
    stored = cloudpickle.dumps(bath)
    assert len(stored) < 3000
    again = pickle.loads(stored)
    assert again.g(1.0) == bath.g(1.0)
    assert again.digest == bath.digest


@settings(max_examples=25, deadline=None)
@given(
    st.floats(0.01, 10), st.floats(0.01, 10), st.floats(0, 10), st.floats(1e-3, 1e3),
    st.sampled_from(["drude", "brownian"]),
)  # fmt: skip
def test_the_scale_of_energy_is_free(
    gamma: float, lam: float, T: float, scale: float, kind: str
) -> None:
    def bath(x: float) -> ThermalBath:
        if kind == "drude":
            return DrudeLorentz(lam=lam * x, gamma=gamma * x, T=T * x)
        return UnderdampedBrownian(lam=lam * x, gamma=gamma * x, w0=x, T=T * x)

    t = np.array([0.01, 1.0, 30.0])
    np.testing.assert_allclose(bath(scale).g(t / scale), bath(1.0).g(t), rtol=1e-9)


def test_zero_temperature_is_the_limit() -> None:
    cold, zero = (DrudeLorentz(lam=0.1, gamma=0.5, T=T) for T in (1e-7, 0.0))
    t = np.array([0.1, 1.0, 100.0])
    np.testing.assert_allclose(cold.g(t), zero.g(t), rtol=1e-8)


# ---- baths of any shape


@pytest.mark.parametrize("T", [0.0, 0.3])
def test_a_callable_equals_the_named_bath(T: float) -> None:
    named = UnderdampedBrownian(lam=0.1, gamma=0.2, w0=1, T=T)
    same = SpectralDensity(named.J, T=T)
    t = np.array([1e-3, 0.5, 20.0, 400.0])
    np.testing.assert_allclose(same.g(t), named.g(t), rtol=1e-10)
    np.testing.assert_allclose(same.S([-1.0, 0.0, 0.5]), named.S([-1.0, 0.0, 0.5]), rtol=1e-8)
    assert same.reorganisation == pytest.approx(0.1, rel=1e-12)


def test_a_callable_may_take_one_number_at_a_time() -> None:
    def density(w: float) -> float:
        return 0.1 * w if w < 1.0 else 0.1 * w * np.exp(1 - w)  # a kink at w = 1

    bath = SpectralDensity(density, T=0, points=[1.0])
    # int_0^1 0.1 dw + 0.1 int_1^inf exp(1 - w) dw, over pi
    assert bath.reorganisation == pytest.approx(0.2 / np.pi, rel=1e-12)


def test_samples_of_a_spectral_density() -> None:
    named = Ohmic(lam=0.2, s=1, wc=1, T=0.5)
    w = np.linspace(0, 40, 801)
    sampled = SpectralDensity((w, named.J(w)), T=0.5)
    t = np.array([0.1, 1.0, 10.0])
    np.testing.assert_allclose(sampled.g(t), named.g(t), rtol=2e-4)
    assert sampled.J(w[3]) == pytest.approx(named.J(w[3]), rel=1e-14)
    assert sampled.J(41.0) == 0
    triangle = SpectralDensity(([1.0, 2.0], [1.0, 0.0]), T=0)
    assert triangle.J(-1.0) == -1
    assert 0 < triangle.J(0.5) < 1


def test_samples_of_a_correlation_function() -> None:
    e = Exponents(c=[0.5 - 0.2j, 0.3 + 0.1j], gamma=[0.7, 0.5 + 2j])
    t = np.linspace(0, 60, 3001)
    bath = CorrelationFunction((t, e.C(t)), T=1.0)
    at = np.array([0.0, 0.013, 1.0, 20.0, 100.0])
    np.testing.assert_allclose(bath.C(at), e.C(at), atol=2e-8)
    np.testing.assert_allclose(bath.g(at), e.g(at), rtol=1e-6, atol=1e-12)
    np.testing.assert_allclose(bath.S([-2.0, 0.0, 3.0]), e.S([-2.0, 0.0, 3.0]), atol=1e-6)
    np.testing.assert_allclose(bath.J([0.4, 3.0]), e.J([0.4, 3.0]), atol=1e-6)
    assert bath.reorganisation == pytest.approx(e.reorganisation, abs=1e-8)
    assert bath.C(-1.0) == bath.C(1.0).conj()
    assert bath.g(-1.0) == bath.g(1.0).conj()
    assert pickle.loads(pickle.dumps(bath)).digest == bath.digest
    with pytest.raises(InputError, match="`w`"):
        bath.S(1000.0)


# ---- arguments


def test_lam_and_alpha_are_two_names_of_one_strength() -> None:
    assert UnderdampedBrownian(alpha=0.1, gamma=1, w0=2, T=1).lam == pytest.approx(0.01 / 8)
    assert UnderdampedBrownian(lam=0.5, gamma=1, w0=2, T=1).alpha == pytest.approx(2.0)
    assert Ohmic(alpha=0.3, s=1, wc=2, T=1).lam == pytest.approx(0.6 / np.pi)
    assert Ohmic(lam=0.6 / np.pi, s=1, wc=2, T=1).alpha == pytest.approx(0.3)


@pytest.mark.parametrize(
    "bath",
    [
        DrudeLorentz(lam=0, gamma=1, T=1),
        UnderdampedBrownian(lam=0, gamma=1, w0=1, T=0),
        Ohmic(alpha=0, s=1, wc=1, T=1),
        SpectralDensity(lambda w: 0 * w, T=1),
    ],
    ids=str,
)
def test_zero_coupling_is_legal(bath: Bath) -> None:
    assert bath.g(2.0) == 0
    assert bath.C(2.0) == 0
    assert bath.C(0.0) == 0
    assert bath.reorganisation == 0


w2 = [0.0, 1.0]


@pytest.mark.parametrize(
    ("make", "name"),
    [
        (lambda: DrudeLorentz(lam=-0.1, gamma=1, T=1), "lam"),
        (lambda: DrudeLorentz(lam=0.1, gamma=0, T=1), "gamma"),
        (lambda: DrudeLorentz(lam=0.1, gamma=-1, T=1), "gamma"),
        (lambda: DrudeLorentz(lam=0.1, gamma=1, T=-1), "T"),
        (lambda: DrudeLorentz(lam=np.nan, gamma=1, T=1), "lam"),
        (lambda: DrudeLorentz(lam=0.1, gamma=np.inf, T=1), "gamma"),
        (lambda: DrudeLorentz(lam="35 cm^-1", gamma=1, T=1), "lam"),
        (lambda: UnderdampedBrownian(gamma=1, w0=1, T=1), "lam"),
        (lambda: UnderdampedBrownian(lam=1, alpha=1, gamma=1, w0=1, T=1), "alpha"),
        (lambda: UnderdampedBrownian(lam=1, gamma=0, w0=1, T=1), "gamma"),
        (lambda: UnderdampedBrownian(lam=1, gamma=1, w0=0, T=1), "w0"),
        (lambda: UnderdampedBrownian(alpha=-1, gamma=1, w0=1, T=1), "alpha"),
        (lambda: Ohmic(lam=1, s=0, wc=1, T=1), "s"),
        (lambda: Ohmic(lam=1, s=1, wc=0, T=1), "wc"),
        (lambda: Ohmic(s=1, wc=1, T=1), "lam"),
        (lambda: SpectralDensity(lambda w: -w * np.exp(-w), T=1), "density"),
        (lambda: SpectralDensity(lambda w: w, T=1), "density"),
        (lambda: SpectralDensity(3.0, T=1), "density"),
        (lambda: SpectralDensity((w2, [0, -1.0]), T=1), "density"),
        (lambda: SpectralDensity((w2, [1.0, 0]), T=1), "density"),
        (lambda: SpectralDensity((w2, [0, np.nan]), T=1), "density"),
        (lambda: SpectralDensity(([1.0, 0.5], [0, 1]), T=1), "density"),
        (lambda: SpectralDensity((w2, [0, 1.0]), T=1, points=[1.0]), "points"),
        (lambda: SpectralDensity(lambda w: 1 / (1 + w**2), T=1).g(1.0), "J"),
        (lambda: CorrelationFunction((w2, [1, 0])), "samples"),
        (lambda: CorrelationFunction(([0, 1, 2, 3], [1, 1, 1, 1])), "samples"),
        (lambda: CorrelationFunction(([1, 2, 3, 4], [1, 0.1, 0, 0])), "samples"),
        (lambda: CorrelationFunction(([0, 1, 2, 3], [1, 0.1, 0, 0]), T=-1), "T"),
    ],
)
def test_wrong_arguments_are_named(make: Any, name: str) -> None:
    with pytest.raises(InputError, match=f"`{name}`"):
        make()
