"""Numbers with units in a TOML file, and the names of axes in their place.

Takes: the axes, then one key after the other with its value.
Gives: `Quantities`: internal numbers; refuses a file that leaves some units out.
Next file: `physics.py`, which builds problems from them.

The rule: every energy, rate, time and temperature of a file has a unit, or none has (then hbar =
kB = 1 and all numbers are in units of one another).
"""

from __future__ import annotations

import re
from collections.abc import Mapping

from heomdask import checks, units
from heomdask.cli.tables import AxisTable, Quantity
from heomdask.errors import InputError

_EXAMPLES = {"energy": "35 cm^-1", "temperature": "300 K"}


class Quantities:
    """Reads the quantities of one file.

    Attributes
    ----------
    used : names of the axes that a quantity refers to.
    """

    def __init__(self, axes: Mapping[str, AxisTable]) -> None:
        self.used: set[str] = set()
        self._axes = axes
        self._carrier = ""  # the first key that has a unit
        self._bare: tuple[str, str, str] | None = None  # the first that has none: see `note`

    def note(self, name: str, unit: str | None, got: str, remedy: str) -> None:
        """That the key `name` has a unit, or has none: then what it got, and what to do."""
        if unit is not None:
            self._carrier = self._carrier or name
        elif self._bare is None:
            self._bare = (name, got, remedy)

    def require_units_throughout(self) -> None:
        """Refuse a file in which one key has a unit and another has none."""
        if self._carrier and self._bare is not None:
            name, got, remedy = self._bare
            raise InputError(
                f"`{name}` must have a unit, because `{self._carrier}` has one, got {got}; {remedy}"
            )

    def read(self, name: str, value: Quantity, dimension: str, *, signed: bool = False) -> Quantity:
        """The internal number, or the name of the axis that gives it.

        Parameters
        ----------
        name, value : key and value in the file.
        dimension : "energy", "temperature" or "dimensionless".
        signed : whether it may be negative.
        """
        if not isinstance(value, str):
            number = checks.real_number(name, value, low=None if signed else 0.0)
            if dimension != "dimensionless":
                example = f'write for example {name} = "{_EXAMPLES[dimension]}".'
                self.note(name, None, f"the plain number {value:g}", example)
            return number
        if value in self._axes:
            self._check_axis(name, value, dimension, signed)
            return value
        number = self._text(name, value, dimension)
        if number < 0 and not signed:
            raise checks.refuse(name, "a quantity of at least 0", value)
        if dimension != "dimensionless":
            self.note(name, value, "", "")
        return number

    def _check_axis(self, name: str, axis: str, dimension: str, signed: bool) -> None:
        self.used.add(axis)
        unit, key = self._axes[axis].unit, f"sweep.axes.{axis}"
        found = "dimensionless" if unit is None else units.convert(1.0, unit, name=key).dimension
        if unit is not None and found != dimension:
            example = _EXAMPLES.get(dimension, "0.5")
            raise InputError(
                f"`{name}` must be of the dimension {dimension}, as in {example!r}, got the axis "
                f"`{axis}` in {unit!r}, which is of the dimension {found}."
            )
        lowest = min(self._axes[axis].numbers(key), default=0.0)
        if lowest < 0 and not signed:
            raise InputError(
                f"`{key}` must not be negative, because it gives `{name}`, got {lowest:g}."
            )
        if dimension != "dimensionless":
            example = _EXAMPLES[dimension].split(" ", 1)[1]
            remedy = f'give it a unit of the dimension {dimension}, as in unit = "{example}".'
            self.note(name, unit, f"the axis `{axis}` without", remedy)

    def _text(self, name: str, value: str, dimension: str) -> float:
        try:
            return units.quantity(value, dimension, name=name)
        except InputError as error:
            if re.fullmatch(r"\s*[A-Za-z_]\w*\s*", value):
                raise InputError(
                    f"`{name}` must be a quantity such as '35 cm^-1' or the name of an axis "
                    f"({', '.join(self._axes) or 'there is none'}), got {value!r}."
                ) from None
            raise error
