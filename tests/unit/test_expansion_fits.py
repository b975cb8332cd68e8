"""AAA and ESPRIT against quadrature; the error report; the diagonal form."""

import re
import warnings
from collections.abc import Callable

import numpy as np
import pytest

import heomdask as hd
from heomdask.errors import HeomdaskWarning, InputError
from heomdask.expansion import diagonal_form, expand, expansion_error
from heomdask.expansion.real_modes import RealModes

BATHS = {
    "drude": hd.DrudeLorentz(lam=0.1, gamma=0.5, T=0.5),
    "drude T=0": hd.DrudeLorentz(lam=0.1, gamma=0.5, T=0.0),
    "brownian": hd.UnderdampedBrownian(lam=0.1, gamma=0.1, w0=1.0, T=0.5),
    "brownian T=0": hd.UnderdampedBrownian(lam=0.1, gamma=0.1, w0=1.0, T=0.0),
    "ohmic": hd.Ohmic(s=1, wc=1.0, T=0.5, lam=0.1),
    "ohmic T=0": hd.Ohmic(s=1, wc=1.0, T=0.0, lam=0.1),
    "sub-ohmic T=0": hd.Ohmic(s=0.5, wc=1.0, T=0.0, lam=0.1),
    "super-ohmic": hd.Ohmic(s=3, wc=1.0, T=0.1, lam=0.1),
}


def messages_of(call: Callable[[], object]) -> list[str]:
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        call()
    return [str(w.message) for w in caught if issubclass(w.category, HeomdaskWarning)]


MOST_MODES = {1e-2: 8, 1e-3: 13}  # no bath above needs more


@pytest.mark.parametrize("tol", MOST_MODES)
@pytest.mark.parametrize("name", BATHS)
def test_aaa_meets_its_tolerance(name: str, tol: float) -> None:
    bath = BATHS[name]
    e = expand(bath, hd.AAA(tol))
    w = np.linspace(0.003, 30, 3000)  # not the fit's own frequencies
    w = np.concatenate([-w[::-1], w])
    exact = bath.S(w)
    assert np.max(np.abs(e.S(w) - exact)) < 1.1 * tol * np.max(exact)
    assert e.n_modes <= MOST_MODES[tol]
    assert e.hermitian
    assert np.all(e.gamma.real > 0)


@pytest.mark.parametrize(("name", "tol", "error"), [
    ("drude", 1e-3, 3e-4), ("drude T=0", 1e-3, 3e-4), ("brownian T=0", 1e-3, 1e-2),
    ("ohmic T=0", 1e-4, 3e-4), ("sub-ohmic T=0", 1e-3, 1e-3), ("super-ohmic", 1e-3, 2e-3),
])  # fmt: skip
def test_aaa_gives_the_line_shape(name: str, tol: float, error: float) -> None:
    times = [0.0, 0.1, 1.0, 10.0, 50.0]
    found = expansion_error(BATHS[name], expand(BATHS[name], hd.AAA(tol)), spread=1.0, times=times)
    assert found < error
    twice = expansion_error(BATHS[name], expand(BATHS[name], hd.AAA(tol)), spread=2.0, times=times)
    assert twice == pytest.approx(4 * found, rel=1e-14)


def test_aaa_finds_the_poles_of_a_rational_bath() -> None:
    e = expand(BATHS["brownian"], hd.AAA(1e-6))
    c, gamma = diagonal_form(e)
    at = int(np.argmin(np.abs(gamma - (0.05 + 1j * np.sqrt(1 - 0.0025)))))
    assert gamma[at] == pytest.approx(0.05 + 0.9987492178j, abs=1e-6)
    exact, rates = diagonal_form(expand(BATHS["brownian"], hd.Pade(12)))
    assert rates[0] == pytest.approx(gamma[at], abs=1e-6)
    assert c[at] == pytest.approx(exact[0], abs=1e-6)


def test_aaa_on_samples_and_on_functions() -> None:
    w = np.linspace(0, 12, 241)
    sampled = hd.SpectralDensity((w, w * np.exp(-w)), T=0.4)
    function = hd.SpectralDensity(lambda w: w * np.exp(-w), T=0.4, points=(1.0,))
    t = np.array([0.3, 2.0, 10.0])
    exact = hd.Ohmic(s=1, wc=1.0, T=0.4, alpha=1.0).C(t)
    for bath in (sampled, function):
        np.testing.assert_allclose(expand(bath, hd.AAA(1e-3)).correlation(t), exact, atol=5e-3)


def test_aaa_of_an_uncoupled_bath() -> None:
    e = expand(hd.Ohmic(s=1, wc=1.0, T=0.0, lam=0.0), hd.AAA(1e-3))
    assert not np.any(e.c)
    assert np.all(e.gamma.real > 0)


def test_esprit_is_exact_on_exponentials() -> None:
    t = np.linspace(0, 60, 1201)
    c = (0.1 * np.cos(t) - 0.02j * np.sin(t)) * np.exp(-0.3 * t) + 0.05 * np.exp(-0.7 * t)
    e = expand(hd.CorrelationFunction((t, c)), hd.ESPRIT(3))
    assert e.n_modes == 3
    assert e.hermitian
    at = np.array([0.0, 0.33, 2.7, 11.0])
    exact = (0.1 * np.cos(at) - 0.02j * np.sin(at)) * np.exp(-0.3 * at) + 0.05 * np.exp(-0.7 * at)
    np.testing.assert_allclose(e.correlation(at), exact, atol=1e-6)
    _, gamma = diagonal_form(e)
    np.testing.assert_allclose(gamma, [0.7, 0.3 + 1j, 0.3 - 1j], atol=1e-5)


@pytest.mark.parametrize(("name", "error"), [("brownian T=0", 1e-4), ("ohmic T=0", 1e-2),
                                             ("sub-ohmic T=0", 1e-2)])  # fmt: skip
def test_esprit_on_baths(name: str, error: float) -> None:
    t = np.array([0.2, 0.5, 1.0, 3.0, 10.0, 30.0])
    exact = BATHS[name].C(t)
    e = expand(BATHS[name], hd.ESPRIT(8))
    assert e.n_modes <= 8
    assert np.max(np.abs(e.correlation(t) - exact)) < error * np.max(np.abs(exact))


def test_warnings_and_refusals() -> None:
    found = messages_of(lambda: expand(BATHS["drude T=0"], hd.ESPRIT(2)))
    assert any("ESPRIT(2) misses part of a DrudeLorentz bath" in text for text in found)
    assert any("The power spectrum of ESPRIT(2) is negative" in text for text in found)
    t = np.linspace(0, 40, 401)
    samples = hd.CorrelationFunction((t, np.exp(-t)))
    with pytest.raises(InputError, match=r"needs a bath with a spectral density.*hd.ESPRIT\(K\)"):
        expand(samples, hd.AAA(1e-3))
    with pytest.raises(InputError, match="`tol` must be a finite real number above 0"):
        hd.AAA(0.0)
    with pytest.raises(InputError, match="`K` must be a whole number of at least 1"):
        hd.ESPRIT(0)
    with pytest.raises(InputError, match="needs 2700 samples, got"):
        expand(samples, hd.ESPRIT(900))


def test_finer_methods() -> None:
    assert hd.Pade(2, coefficients="exact").finer() == hd.Pade(3, coefficients="exact")
    assert hd.Matsubara(0, terminator=False).finer() == hd.Matsubara(1, terminator=False)
    assert hd.AAA(3e-3).finer() == hd.AAA(1e-3)
    assert hd.ESPRIT(4).finer() == hd.ESPRIT(5)


def test_real_modes_are_their_exponents() -> None:
    modes = RealModes.of(np.array([0.5 + 2j, 3.0, 0.5 - 2j, 0.1]))
    c = np.array([0.3 - 0.1j, 0.7, 0.2j, -0.4])
    e = modes.exponents(c)
    t, w = np.array([0.0, 0.4, 3.0]), np.array([-1.0, 0.0, 2.5])
    np.testing.assert_allclose(e.correlation(t), modes.in_time(t) @ c, atol=1e-14)
    half = modes.in_frequency(w) @ c
    np.testing.assert_allclose(e.S(w), 2 * half.real, atol=1e-13)


def test_expansion_error_by_hand() -> None:
    bath = BATHS["drude"]
    e = expand(bath, hd.Matsubara(1))
    t = np.array([0.0, 1.0, 5.0])
    by_hand = 4 * np.max(np.abs(e.lineshape(t) - bath.g(t)))
    assert expansion_error(bath, e, spread=2.0, times=t) == pytest.approx(by_hand, rel=1e-14)
    assert by_hand > 1e-5


def test_esprit_sees_frequencies_that_only_the_samples_resolve() -> None:
    t = np.arange(0, 1000.01, 0.05)
    c = 0.01 * np.exp(-0.02 * t - 10j * t)
    e = expand(hd.CorrelationFunction((t, c)), hd.ESPRIT(2))
    _, gamma = diagonal_form(e)
    np.testing.assert_allclose(gamma, [0.02 + 10j, 0.02 - 10j], rtol=0, atol=1e-6)
    np.testing.assert_allclose(e.correlation(t), c, rtol=0, atol=1e-7)


def test_esprit_is_tested_on_the_samples() -> None:
    t = np.linspace(0, 60, 1201)
    c = 0.1 * np.exp(-0.3 * t) + 0.05 * np.exp(-(0.3 + 9j) * t)
    found = messages_of(lambda: expand(hd.CorrelationFunction((t, c)), hd.ESPRIT(1)))
    assert re.match(r"ESPRIT\(1\) leaves an error of [0-9.]+e-01 of C\(t\)", found[0])


@pytest.mark.parametrize(("s", "method"), [(0.2, hd.AAA(1e-3)), (0.5, hd.AAA(1e-2))], ids=str)
def test_a_fit_that_misses_the_bath_is_warned_of(s: float, method: hd.AAA) -> None:
    bath = hd.Ohmic(s=s, wc=1.0, T=0.5, lam=0.3)  # S(0) is infinite
    with pytest.warns(HeomdaskWarning, match=r"misses part of a Ohmic bath.*instead of 0\.3,"):
        e = expand(bath, method)
    assert expansion_error(bath, e, spread=1.0, times=[1.0]) > 0.4 * abs(bath.g(1.0))
    better = expand(bath, hd.ESPRIT(8))  # silent, and right
    assert expansion_error(bath, better, spread=1.0, times=[1.0]) < 2e-3 * abs(bath.g(1.0))


def test_a_run_warns_every_time() -> None:
    bath = hd.Ohmic(s=0.5, wc=1.0, T=0.5, lam=0.31)
    problem = hd.Problem(np.eye(2), [hd.Coupling(np.diag([1.0, -1.0]), bath)])

    def prepare() -> None:
        hd.prepare(problem, depth=1, expansion=hd.AAA(1e-2))

    first = messages_of(prepare)
    assert any("misses part of a Ohmic bath" in text for text in first)
    assert messages_of(prepare) == first
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        prepare()
    assert {w.filename for w in caught} == {__file__}  # the user's own line
