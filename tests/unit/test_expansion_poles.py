"""Pole tables against an independent solve with 60 digits (the Bose one was also published by
Wilkins and Dattani, J. Chem. Theory Comput. 11, 3411 (2015))."""

import numpy as np
import pytest

from heomdask.errors import InputError
from heomdask.expansion import poles

TABLES = {
    ("bose", 1): ([7.74596669241483377], [2.5]),
    ("bose", 2): (
        [6.30593914422480847, 19.4996187529226655],
        [1.03282418102415522, 5.96717581897584478],
    ),
    ("bose", 3): (
        [6.28329033572127001, 12.9582866956637911, 36.1192894236585789],
        [1.000226988368729, 1.30091431446675285, 11.1988586971645182],
    ),
    ("bose", 10): (
        [6.28318530717958648, 12.566370614359173, 18.8495559215640514, 25.1327422748720828,
         31.4173400451052638, 37.8439036451724509, 46.1203736291541763, 61.5884507991759958,
         99.6270962538702254, 294.636475469611202],
        [1.0, 1.00000000000000001, 1.00000000005183594, 1.00000145020221136, 1.00131233986343206,
         1.08105170486239437, 1.69241374621920391, 3.54452789369219458, 10.2257057446695503,
         93.4549871204391775],
    ),
    ("fermi", 1): ([3.46410161513775459], [1.5]),
    ("fermi", 2): (
        [3.14246678645287868, 13.0431937230128004],
        [1.0023382711020464, 3.9976617288979536],
    ),
    ("fermi", 5): (
        [3.14159265358979583, 9.42478812850636333, 15.7621800307502119, 24.8765079488737347,
         70.5267098146476509],
        [1.00000000000001713, 1.00002020541722114, 1.0483930312954896, 2.32178225490388819,
         22.1298045083833839],
    ),
    ("fermi", 10): (
        [3.14159265358979324, 9.42477796076937972, 15.707963267949478, 21.9911486826633022,
         28.2746981319426375, 34.6264155550328929, 42.3031405780699565, 56.2524856035753394,
         90.7156697680093252, 267.897882477875564],
        [1.0, 1.0, 1.00000000000123364, 1.00000016903057655, 1.00038071291028005,
         1.04397105255672797, 1.53053162650175564, 3.20181720598166389, 9.27918764279716583,
         84.9441115902205964],
    ),
}  # fmt: skip


@pytest.mark.parametrize(("statistics", "n"), TABLES)
def test_pade_tables(statistics: poles.Statistics, n: int) -> None:
    xi, eta = TABLES[statistics, n]
    table = poles.pade(n, statistics)
    np.testing.assert_allclose(table.xi, xi, rtol=1e-13)
    np.testing.assert_allclose(table.eta, eta, rtol=1e-13)


@pytest.mark.parametrize("n", [1, 2, 7, 25, 60])
def test_sum_rules_hold_for_every_n(n: int) -> None:
    for statistics, total in (("bose", 1 / 12), ("fermi", 1 / 4)):
        table = poles.pade(n, statistics)
        assert np.sum(2 * table.eta / table.xi**2) == pytest.approx(total, rel=1e-13)
        assert np.all(np.diff(table.xi) > 0)


# |1/(1 - exp(-x)) - table| at x, computed with 60 digits
ERRORS = {(1, 5): 0.012666, (1, 50): 0.38234, (2, 5): 5.8564e-5, (3, 20): 0.0045446}


@pytest.mark.parametrize(("n", "x"), ERRORS)
def test_error_of_the_bose_function(n: int, x: float) -> None:
    table = poles.pade(n)
    approximate = 0.5 + 1 / x + np.sum(2 * table.eta * x / (x**2 + table.xi**2))
    error = abs(approximate - 1 / -np.expm1(-x))
    assert error == pytest.approx(ERRORS[n, x], rel=1e-4)


def test_matsubara_tables() -> None:
    np.testing.assert_array_equal(poles.matsubara(2).xi, 2 * np.pi * np.array([1, 2]))
    np.testing.assert_array_equal(poles.matsubara(2, "fermi").xi, np.pi * np.array([1.0, 3.0]))
    np.testing.assert_array_equal(poles.matsubara(2).eta, [1.0, 1.0])
    assert len(poles.matsubara(0)) == len(poles.pade(0)) == 0


def test_tables_are_cached_and_frozen() -> None:
    table = poles.pade(4)
    assert poles.pade(4) is table
    with pytest.raises(ValueError, match="read-only"):
        table.xi[0] = 1.0
    with pytest.raises(InputError, match="`N` must be a whole number of at least 0, got -1"):
        poles.pade(-1)


@pytest.mark.parametrize("temperature", [0.5, 0.01])
def test_tail_of_the_matsubara_sum(temperature: float) -> None:
    # sum over all k of 1/(nu_k^2 - g^2) = 1/(2 g^2) - cot(g/2T)/(4 T g)
    g, n = 0.7, 3
    nu = poles.matsubara(n).xi * temperature
    total = 1 / (2 * g**2) - 1 / np.tan(g / (2 * temperature)) / (4 * temperature * g)
    tail = poles.bose_tail(n, temperature, 2, np.array([1.0, 0.0, -(g**2)]))
    assert tail == pytest.approx(total - np.sum(1 / (nu**2 - g**2)), rel=1e-12)
