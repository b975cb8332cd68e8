"""Units: CODATA 2018 constants, the parsing of names, and what is refused."""

from __future__ import annotations

import math
import re

import pytest

from heomdask import units
from heomdask.errors import InputError

# Reference case A41, CODATA 2018, asked for to 1e-6.
A41 = {
    "cm_to_rad_per_fs": 0.00018836515673088534,
    "kB_cm_per_K": 0.6950348004861274,
    "kT_300K_cm": 208.51044014583823,
    "kT_77K_cm": 53.51767963743181,
    "hbar_cm_fs": 5308.837458876144,
    "eV_to_cm": 8065.543937,
    "ev_to_rad_fs": 1.5192674478128472,
}
A41_BATH_TIMES = {50: 106.1767491775229, 100: 53.08837458876145, 166: 31.980948547446655}


@pytest.mark.parametrize(
    ("got", "name"),
    [
        (units.cm1, "cm_to_rad_per_fs"),
        (units.K / units.cm1, "kB_cm_per_K"),
        (300 * units.K / units.cm1, "kT_300K_cm"),
        (77 * units.K / units.cm1, "kT_77K_cm"),
        (1 / units.cm1, "hbar_cm_fs"),
        (units.eV / units.cm1, "eV_to_cm"),
        (units.eV, "ev_to_rad_fs"),
    ],
)
def test_constants_are_those_of_codata(got: float, name: str) -> None:
    assert got == pytest.approx(A41[name], rel=1e-9)


@pytest.mark.parametrize(("time", "wavenumber"), A41_BATH_TIMES.items())
def test_inverse_times_are_angular_rates(time: int, wavenumber: float) -> None:
    assert units.quantity(f"1/({time} fs)") / units.cm1 == pytest.approx(wavenumber, rel=1e-9)
    assert 1 / (time * units.fs) / units.cm1 == pytest.approx(wavenumber, rel=1e-9)


def test_bare_dimer_oscillates_with_two_pi() -> None:
    # A41: P1(t) = cos^2(J t / hbar) with J = 100 cm^-1
    J = units.quantity("100 cm^-1")
    assert math.cos(J * 50) ** 2 == pytest.approx(0.3461117346692637, abs=1e-9)
    assert math.pi / 2 / J == pytest.approx(83.391023799538, rel=1e-9)


@pytest.mark.parametrize(
    ("text", "value", "dimension"),
    [
        ("35 cm^-1", 35 * units.cm1, "energy"),
        ("35/cm", 35 * units.cm1, "energy"),
        ("35 cm⁻¹", 35 * units.cm1, "energy"),
        ("1e2 1/m", units.cm1, "energy"),
        ("-2.5 meV", -2.5e-3 * units.eV, "energy"),
        ("1 eV", units.eV, "energy"),
        ("1 hartree", 41.341373335, "energy"),
        ("4.184 kJ/mol", units.kcal_mol, "energy"),
        ("1 kcal/mol", 349.755088 * units.cm1, "energy"),
        ("3 rad/fs", 3.0, "energy"),
        ("2 ps^-1", 2e-3, "energy"),
        ("1.5 ps", 1500.0, "time"),
        ("20 as", 0.02, "time"),
        ("300 K", 300 * units.K, "temperature"),
        ("50 mK", 0.05 * units.K, "temperature"),
        ("2.5", 2.5, "dimensionless"),
    ],
)
def test_quantities(text: str, value: float, dimension: str) -> None:
    assert units.quantity(text) == pytest.approx(value, rel=1e-8)
    assert units.quantity(text, dimension) == units.quantity(text)


def test_thirty_five_wavenumbers() -> None:
    assert units.quantity("35 cm^-1") == pytest.approx(6.593e-3, rel=1e-4)


def test_convert_gives_value_and_dimension() -> None:
    assert units.convert(77, "K") == (pytest.approx(77 * units.K), "temperature")
    assert units.convert(3, "10 fs") == (30.0, "time")
    assert units.convert(0.5, "") == (0.5, "dimensionless")


@pytest.mark.parametrize("text", ["5 Hz", "1 THz", "3 kHz", "10 rpm"])
def test_hertz_is_refused(text: str) -> None:
    with pytest.raises(InputError, match="2 pi"):
        units.quantity(text)


@pytest.mark.parametrize(
    "text", ["3 cm", "fs^2", "1 foo", "35 cm^", "77 degC", "1 V", "1 cm^-0.5", "", "1 cm^-1/fs"]
)
def test_other_units_are_refused(text: str) -> None:
    with pytest.raises(InputError, match="`gamma` must be"):
        units.quantity(text, name="gamma")


@pytest.mark.parametrize("text", ["nan K", "inf", "1e400 K"])
def test_quantities_are_finite(text: str) -> None:
    with pytest.raises(InputError, match="finite"):
        units.quantity(text)


@pytest.mark.parametrize(
    ("unit", "dimension"), [("K", "time"), ("fs", "energy"), ("cm^-1", "temperature")]
)
def test_a_wrong_dimension_is_named(unit: str, dimension: str) -> None:
    expected = f"`x` must be of the dimension {dimension}, got '{unit}'"
    with pytest.raises(InputError, match=re.escape(expected)):
        units.convert(1.0, unit, dimension, name="x")


def test_exponents_may_be_written_without_a_caret():
    assert units.quantity("35 cm-1") == units.quantity("35 cm^-1")
    assert units.quantity("1e-3 eV") == pytest.approx(units.quantity("1 meV"))
