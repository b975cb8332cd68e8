"""Exponents: the rule for cbar, blocks of rates, closed forms against quadrature."""

from __future__ import annotations

import pickle

import numpy as np
import pytest
import scipy.linalg
from hypothesis import given, settings
from hypothesis import strategies as st

from heomdask.errors import InputError
from heomdask.model import Exponents
from heomdask.model.exponents import second_integral

TIMES = np.array([0.0, 1e-6, 0.01, 0.3, 2.0, 15.0])

small = st.floats(-2, 2)
rates = st.floats(0, 3)
complexes = st.builds(complex, small, small)


def random_exponents() -> st.SearchStrategy[Exponents]:
    mode = st.tuples(complexes, st.builds(complex, rates, st.sampled_from([0.0, 0.5, -0.5, 1.2])))
    return st.lists(mode, min_size=1, max_size=5).map(
        lambda modes: Exponents(c=[m[0] for m in modes], gamma=[m[1] for m in modes])
    )


def panels(end: float) -> tuple[np.ndarray, np.ndarray]:
    """Gauss-Legendre nodes and weights on [0, end], on panels that shrink towards 0."""
    nodes, weights = np.polynomial.legendre.leggauss(20)
    edges = end * np.concatenate([[0], np.geomspace(1e-6, 0.01, 16), np.linspace(0.02, 1, 99)])
    half = np.diff(edges)[:, None] / 2
    return (edges[:-1, None] + half * (nodes + 1)).ravel(), (half * weights).ravel()


def double_integral(e: Exponents, t: float) -> complex:
    """int_0^t (t - s) C(s) ds."""
    s, weights = panels(t)
    return complex(weights @ ((t - s) * e.correlation(s)))


@settings(max_examples=60, deadline=None)
@given(random_exponents())
def test_cbar_gives_the_conjugate_for_any_list(e: Exponents) -> None:
    decay = np.exp(-np.multiply.outer(TIMES, e.gamma))
    np.testing.assert_allclose(decay @ e.cbar, (decay @ e.c).conj(), atol=1e-8)
    np.testing.assert_allclose(e.correlation(TIMES), decay @ e.c, atol=1e-12)


def test_a_lonely_complex_exponent_gets_a_partner() -> None:
    # field report B05: C = 0.0625 exp(-(0.2 + 0.9i) t) as one term
    e = Exponents(c=[0.0625], gamma=[0.2 + 0.9j])
    np.testing.assert_array_equal(e.gamma, [0.2 + 0.9j, 0.2 - 0.9j])
    np.testing.assert_array_equal(e.c, [0.0625, 0])
    np.testing.assert_array_equal(e.cbar, [0, 0.0625])
    assert e.n_modes == 2
    assert not e.hermitian


def test_conjugate_pairs_swap_their_coefficients() -> None:
    c = [0.5 + 0.1j, 0.2 - 0.3j, 1.0 + 1.0j]
    e = Exponents(c=c, gamma=[0.1 + 1j, 0.1 - 1j, 0.7])
    np.testing.assert_array_equal(e.cbar, [0.2 + 0.3j, 0.5 - 0.1j, 1.0 - 1.0j])


def test_undamped_modes_are_legal() -> None:
    # reference case A14: one mode at w0 = 1, g = 0.2, T = 0.7, without damping
    n = 1 / np.expm1(1 / 0.7)
    e = Exponents(c=[0.04 * (n + 1), 0.04 * n], gamma=[1j, -1j])
    expected = 0.04 * ((2 * n + 1) * np.cos(TIMES) - 1j * np.sin(TIMES))
    np.testing.assert_allclose(e.correlation(TIMES), expected, atol=1e-15)
    assert e.reorganisation == pytest.approx(0.04)


def test_real_rates_allow_the_real_form() -> None:
    assert Exponents(c=[1 - 0.5j, 0.2], gamma=[0.3, 2.0]).hermitian
    assert not Exponents(c=[1 - 0.5j], gamma=[0.3], cbar=[1 + 0.5000001j]).hermitian
    assert not Exponents(c=[1.0, 1.0], gamma=[0.3 + 1j, 0.3 - 1j]).hermitian


def test_a_cosine_and_sine_block_is_a_conjugate_pair() -> None:
    pair = Exponents(c=[0.5 + 0.1j, 0.2 - 0.3j], gamma=[0.1 + 2j, 0.1 - 2j], delta=0.01)
    block = Exponents(
        c=[0.7 - 0.2j, 1j * (0.3 + 0.4j)], gamma=[0.1, 0.1], read=[1, 0],
        lateral=[(0, 1, 2.0), (1, 0, -2.0)], delta=0.01,
    )  # fmt: skip
    assert block.hermitian
    w = np.array([-3.0, 0.0, 1.9, 40.0])
    for f, x in (("correlation", TIMES), ("lineshape", TIMES), ("S", w), ("J", w)):
        a, b = getattr(pair, f)(x), getattr(block, f)(x)
        np.testing.assert_allclose(a, b, rtol=1e-11, atol=1e-15, err_msg=f)
    assert block.reorganisation == pytest.approx(pair.reorganisation, rel=1e-13)


@pytest.mark.parametrize("gap", [0.5, 1e-3, 1e-7, 0.0])
def test_a_block_of_near_double_rates_is_continuous(gap: float) -> None:
    e = Exponents(c=[1 - 0.2j, 0.3], gamma=[0.5, 0.5 + gap], lateral=[(0, 1, 0.5)])
    # not by scipy's expm, which is wrong by 1e-10 for a triangular matrix with close rates
    shared = -0.5 * np.exp(-0.5 * TIMES) * (-np.expm1(-gap * TIMES) / gap if gap else TIMES)
    own = e.c[0] * np.exp(-0.5 * TIMES) + e.c[1] * np.exp(-(0.5 + gap) * TIMES)
    expected = own + e.c[1] * shared
    np.testing.assert_allclose(e.correlation(TIMES), expected, rtol=1e-12)
    np.testing.assert_allclose(
        e.lineshape(TIMES), [double_integral(e, t) for t in TIMES], rtol=1e-11
    )


def test_lineshape_is_the_double_integral() -> None:
    e = Exponents(c=[0.5 - 0.1j, 0.3j, 0.2], gamma=[0.4 + 1j, 0.0, 50.0], delta=0.02)
    for t in (1e-4, 0.1, 3.0, 40.0):
        assert e.lineshape(t) == pytest.approx(double_integral(e, t) + 0.02 * t, rel=1e-11)
    assert e.g(-3.0) == e.g(3.0).conj()


def test_power_spectrum_is_the_fourier_transform() -> None:
    e = Exponents(c=[0.5 - 0.1j, 0.2 + 0.3j], gamma=[0.4 + 1j, 0.9])
    t, weights = panels(80.0)
    for w in (-2.0, 0.0, 1.3):
        half = weights @ (e.correlation(t) * np.exp(1j * w * t))
        assert e.S(w) == pytest.approx(2 * half.real, rel=1e-11)


def test_second_integral_has_no_cancellation() -> None:
    z = np.array([0, 1e-12, 1e-5, 0.1, 0.49999, 0.50001, 3.0, 700.0, 0.4j, 5j, 0.3 + 0.4j])
    series = [
        sum((-x) ** k / float(scipy.special.factorial(k + 2)) for k in range(60))
        if abs(x) < 6 else (np.exp(-x) - 1 + x) / x**2
        for x in z
    ]  # fmt: skip
    np.testing.assert_allclose(second_integral(z), series, rtol=1e-14)


def test_immutable_and_picklable() -> None:
    e = Exponents(c=[1.0], gamma=[0.5], delta=0.1)
    again = pickle.loads(pickle.dumps(e))
    assert again.digest == e.digest
    assert e.digest != Exponents(c=[1.0], gamma=[0.5]).digest
    with pytest.raises(ValueError, match="read-only"):
        e.c[0] = 2


@pytest.mark.parametrize(
    ("arguments", "name"),
    [
        ({"c": [1, 2], "gamma": [1]}, "gamma"),
        ({"c": [np.nan], "gamma": [1]}, "c"),
        ({"c": [1], "gamma": [np.inf]}, "gamma"),
        ({"c": [1], "gamma": [-0.1]}, "gamma"),
        ({"c": [1], "gamma": [0.1], "cbar": [1, 2]}, "cbar"),
        ({"c": [[1]], "gamma": [0.1]}, "c"),
        ({"c": ["a"], "gamma": [0.1]}, "c"),
        ({"c": [1], "gamma": [0.1], "read": [1j]}, "read"),
        ({"c": [1], "gamma": [0.1], "lateral": [(0, 0, 1.0)]}, "lateral"),
        ({"c": [1], "gamma": [0.1], "lateral": [(0, 1, 1.0)]}, "lateral"),
        ({"c": [1, 1], "gamma": [0.1, 0.1], "lateral": [(0, 1, 1j)]}, "lateral"),
        ({"c": [1, 1], "gamma": [0.1j, 0.1], "lateral": [(0, 1, 1.0)]}, "cbar"),
        ({"c": [1], "gamma": [0.1], "delta": np.nan}, "delta"),
    ],
)
def test_wrong_arguments_are_named(arguments: dict[str, object], name: str) -> None:
    with pytest.raises(InputError, match=f"`{name}`"):
        Exponents(**arguments)
