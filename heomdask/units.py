"""Units: floats that turn a number with a unit into internal units, and the parsing of unit names.

Takes: numbers and unit strings such as "cm^-1", "1/fs", "K", "meV".
Gives: internal numbers: angular frequency = energy/hbar in rad/fs, times in fs, hbar = kB = 1.
Next file: `model/__init__.py`.

Energies become angular frequencies: E/hbar, 2 pi c times a wavenumber, kB T/hbar. A plain 1/time is
an angular rate as it stands. Hertz is refused, for it leaves open whether 2 pi is meant. Problems
without units simply use plain numbers.

>>> from heomdask.units import cm1, fs
>>> round(35 * cm1, 9), round(1 / (50 * fs) / cm1, 4)
(0.00659278, 106.1767)
"""

from __future__ import annotations

import functools
import math
import re
from typing import Any, Final, NamedTuple

from heomdask import checks
from heomdask.errors import InputError

_HBAR: Final = 1.054571817646156e-34  # J s; exact: 6.62607015e-34 / (2 pi)
_KB: Final = 1.380649e-23  # J/K, exact
_E: Final = 1.602176634e-19  # C, exact
_NA: Final = 6.02214076e23  # 1/mol, exact
_C: Final = 2.99792458e-5  # cm/fs, exact
_HARTREE: Final = 4.3597447222071e-18  # J, CODATA 2018

fs: Final = 1.0
ps: Final = 1e3 * fs
ns: Final = 1e6 * fs
s: Final = 1e15 * fs
joule: Final = 1e-15 / _HBAR  # an energy of 1 J as an angular frequency in rad/fs
eV: Final = _E * joule
meV: Final = 1e-3 * eV
hartree: Final = _HARTREE * joule
kJ_mol: Final = 1e3 / _NA * joule
kcal_mol: Final = 4.184 * kJ_mol
cm1: Final = 2 * math.pi * _C  # a wavenumber of 1 cm^-1
K: Final = _KB * joule

# unit name as pint spells it -> (kind, internal size of one); prefixes come on top
_UNITS: Final = {
    "second": ("time", s),
    "minute": ("time", 60 * s),
    "meter": ("length", 100.0),  # in cm: only inverse lengths have a meaning here
    "electron_volt": ("energy", eV),
    "joule": ("energy", joule),
    "calorie": ("energy", 4.184 * joule),
    "hartree": ("energy", hartree),
    "kelvin": ("temperature", K),
    "mole": ("amount", _NA),
    "radian": ("number", 1.0),
    "dimensionless": ("number", 1.0),
    "percent": ("number", 0.01),
}
_PREFIXES: Final = {
    "": 0, "atto": -18, "femto": -15, "pico": -12, "nano": -9, "micro": -6, "milli": -3,
    "centi": -2, "kilo": 3, "mega": 6,
}  # fmt: skip
# what the exponents of the kinds together mean, and the factor that this meaning brings
_DIMENSIONS: Final[dict[frozenset[tuple[str, int]], tuple[str, float]]] = {
    frozenset(): ("dimensionless", 1.0),
    frozenset({("time", 1)}): ("time", 1.0),
    frozenset({("time", -1)}): ("energy", 1.0),
    frozenset({("length", -1)}): ("energy", cm1),
    frozenset({("energy", 1)}): ("energy", 1.0),
    frozenset({("energy", 1), ("amount", -1)}): ("energy", 1.0),
    frozenset({("temperature", 1)}): ("temperature", 1.0),
}
_EXAMPLES: Final = {
    "energy": "'cm^-1', 'meV' or '1/fs'",
    "time": "'fs' or 'ps'",
    "temperature": "'K'",
    "dimensionless": "a plain number",
}


class Converted(NamedTuple):
    """A number in internal units and its dimension.

    That is "energy" (angular rates too), "time", "temperature" or "dimensionless".
    """

    value: float
    dimension: str


def convert(
    value: float, unit: str, dimension: str | None = None, *, name: str = "unit"
) -> Converted:
    """A number with a unit, in internal units.

    Parameters
    ----------
    value : the number.
    unit : its unit, such as "cm^-1".
    dimension : what is needed; any other dimension is an error. None accepts all.
    name : of the argument, for the error message.
    """
    factor, found = _meaning(unit, name)
    if dimension is not None and found != dimension:
        got = f"{unit!r}, which is of the dimension {found}"
        if found == "dimensionless":
            got = "a number without a unit"
        raise InputError(
            f"`{name}` must be of the dimension {dimension}, got {got}; use {_EXAMPLES[dimension]}."
        )
    return Converted(checks.real_number(name, value) * factor, found)


def quantity(text: str, dimension: str | None = None, *, name: str = "quantity") -> float:
    """A number in internal units from text such as "35 cm^-1", "1/(50 fs)", "300 K" or "2.5"."""
    if not isinstance(text, str) or not text.strip():
        raise checks.refuse(name, "text such as '35 cm^-1'", text)
    parsed = _parse(text, name)
    unit = str(getattr(parsed, "units", ""))
    return convert(_magnitude(parsed), unit, dimension, name=name).value


@functools.lru_cache(maxsize=256)
def _meaning(unit: str, name: str) -> tuple[float, str]:
    """Internal size of one `unit`, and its dimension."""
    if not isinstance(unit, str):
        raise checks.refuse(name, "a unit such as 'cm^-1'", unit)
    parsed = _parse(unit, name) if unit.strip() else 1.0
    factor = _magnitude(parsed)
    powers: dict[str, int] = {}
    for word, power in _words(parsed):
        kind, size = _known(word, unit, name)
        if power != int(power):
            raise _unknown(unit, name)
        factor *= size**power
        if kind != "number":
            powers[kind] = powers.get(kind, 0) + int(power)
    found = _DIMENSIONS.get(frozenset(item for item in powers.items() if item[1]))
    if found is None:
        raise _unknown(unit, name)
    dimension, extra = found
    return factor * extra, dimension


def _known(word: str, unit: str, name: str) -> tuple[str, float]:
    """Kind and size of one word of a unit."""
    if "hertz" in word or word in {"counts_per_second", "revolutions_per_minute", "turn"}:
        raise InputError(
            f"`{name}` must not be in {unit!r}: it leaves open whether 2 pi is meant; "
            "use '1/fs' or 'rad/fs' for angular frequencies and 'cm^-1' for wavenumbers."
        )
    for base, (kind, size) in _UNITS.items():
        prefix = word.removesuffix(base)
        if word.endswith(base) and prefix in _PREFIXES:
            return kind, size * 10.0 ** _PREFIXES[prefix]
    raise _unknown(unit, name)


def _unknown(unit: str, name: str) -> InputError:
    return InputError(
        f"`{name}` must be an energy, a rate, a time, a temperature or a plain number, in a unit "
        f"that is known, got {unit!r}; use for example 'cm^-1', 'meV', '1/fs', 'fs' or 'K' (small "
        "and capital letters differ)."
    )


def _parse(text: str, name: str) -> Any:
    """A pint quantity, or a plain number; pint's own conversions are never used."""
    try:
        return _registry().parse_expression(text)
    except Exception:  # pint passes on whatever Python's tokenizer and arithmetic raise
        raise _unknown(text, name) from None


def _words(parsed: Any) -> list[tuple[str, float]]:
    """The unit's words as pint spells them, with their powers."""
    return list(parsed.unit_items()) if hasattr(parsed, "unit_items") else []


def _magnitude(parsed: Any) -> float:
    return float(getattr(parsed, "magnitude", parsed))


@functools.cache
def _registry() -> Any:
    import pint  # here, because it takes half a second and most problems name few units

    return pint.UnitRegistry(
        autoconvert_offset_to_baseunit=False,
        preprocessors=[lambda text: re.sub(r"\b([A-Za-z]+)-(\d)", r"\1^-\2", text)],  # cm-1
    )
