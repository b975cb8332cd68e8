import numpy as np
import pytest
import scipy.special

from heomdask.solvers.bounds import Bounds
from heomdask.solvers.faber import Faber, coefficients

ELLIPSES = [  # centre, real and imaginary semi-axis, time
    (-1.0, 1.0, 1.0, 3.0),
    (-0.041, 0.043, 0.178, 1000.0),
    (-50.0, 51.0, 26.0, 2.0),
    (-50.0, 51.0, 7.5, 10.0),
    (-3.0, 0.003, 40.0, 3.0),
    (-30.0, 30.0, 0.03, 20.0),
    (-1.0, 1.2, 1.3, 1e-9),
    (-10.0, 10.0, 11.0, 8.0),
]


def of(c, a, b, t, degree=400):
    one = np.ones(1)
    return coefficients(c * one, (a + b) / 2 * one, (a - b) / (a + b) * one, t * one, degree)[:, 0]


@pytest.mark.parametrize(("c", "a", "b", "t"), ELLIPSES)
def test_series_gives_the_exponential_everywhere_on_the_ellipse(c, a, b, t):
    e = of(c, a, b, t)
    phi = np.linspace(0, 2 * np.pi, 37)
    r = (a - b) / (a + b)
    w = np.exp(1j * phi)
    z = c + (a + b) / 2 * (w + r / w)
    k = np.arange(1, len(e))[:, None]
    series = e[0] + np.sum(e[1:, None] * (w**k + (r / w) ** k), axis=0)
    largest = np.max(np.abs(np.exp(z * t)))
    assert np.max(np.abs(series - np.exp(z * t))) <= 2e-13 * largest * max(1.0, abs(c * t))


@pytest.mark.parametrize(("c", "a", "b", "t"), [e for e in ELLIPSES if e[1] > e[2]])
def test_flat_ellipse_means_modified_bessel_functions(c, a, b, t):
    d, r = np.sqrt(a * a - b * b), (a - b) / (a + b)
    k = np.arange(60)
    expected = np.exp(c * t + d * t) * scipy.special.ive(k, d * t) / np.sqrt(r) ** k
    assert of(c, a, b, t, 59) == pytest.approx(expected, rel=1e-11)


@pytest.mark.parametrize(("c", "a", "b", "t"), [e for e in ELLIPSES if e[1] < e[2]])
def test_tall_ellipse_means_bessel_functions(c, a, b, t):
    q, r = np.sqrt(b * b - a * a), (b - a) / (a + b)
    k = np.arange(60)
    expected = np.exp(c * t) * scipy.special.jv(k, q * t) / np.sqrt(r) ** k
    found = of(c, a, b, t, 59)
    assert np.max(np.abs(found - expected) / np.max(np.abs(expected))) < 1e-12


def test_circle_means_taylor():
    k = np.arange(40)
    expected = np.exp(-3.0) * 3.0**k / scipy.special.factorial(k)
    assert of(-1.0, 1.0, 1.0, 3.0, 39) == pytest.approx(expected, rel=1e-12)


def test_small_coefficients_are_accurate_relative_to_themselves():
    c, a, b, t = -50.0, 51.0, 20.0, 1.0
    d, r = np.sqrt(a * a - b * b), (a - b) / (a + b)
    k = np.arange(40, 110, 10)
    expected = np.exp(c * t + d * t) * scipy.special.ive(k, d * t) / np.sqrt(r) ** k
    assert expected[-1] < 1e-9
    assert of(c, a, b, t)[k] == pytest.approx(expected, rel=1e-12)


def test_one_element_does_not_depend_on_its_companions():
    rng = np.random.default_rng(3)
    n = 23
    a, b, t = rng.uniform(0.5, 40, n), rng.uniform(0.5, 40, n), rng.uniform(0, 5, n)
    t[4] = 0.0
    args = (-a, (a + b) / 2, (a - b) / (a + b), t)
    together = coefficients(*args, 200)
    for i in range(n):
        alone = coefficients(*(x[i : i + 1] for x in args), 200)
        assert np.array_equal(alone[:, 0], together[:, i])
    assert together[0, 4] == 1.0
    assert np.max(np.abs(together[1:, 4])) < 1e-50


def test_steps_too_long_for_numbers_are_not_taken():
    """Coefficients that differ by more than numbers can: NaN, which no segment is built on."""
    c, g, r = np.array([-31.9]), np.array([42.0]), np.array([-0.17])
    assert np.isnan(coefficients(c, g, r, np.array([34.0]), 600)).any()
    bounds = Bounds(centre=c, real=g * (1 + r), imag=g * (1 - r))
    series = Faber(bounds, 34.0)
    series.length[:] = 34.0
    one = np.ones(1)
    segments = series.choose(np.zeros(1, dtype=int), 34.0 * one, one, 1e-6 * one, 1e8 * one)
    assert segments.length[0] < 17.0
    assert np.isfinite(segments.weights).all()
