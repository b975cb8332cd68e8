"""From the tables of a TOML file to a `build` function: one point's `Problem`.

Takes: [system], [[bath]], [[lindblad]], [sweep.disorder] and the axes with their units.
Gives: `PhysicsBuild`, picklable, called with the point's axis values and its random generator.
Next file: `main.py`, the commands.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from heomdask import units
from heomdask.errors import InputError
from heomdask.model import Coupling, DrudeLorentz, Ohmic, Problem, UnderdampedBrownian

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from heomdask.cli.config import BathTable, DisorderTable, LindbladTable, SystemTable

Quantity = str | float  # "35 cm^-1", a plain number, or the name of an axis
Matrix = str | list[list[float | str] | float | str]

Operator = NDArray[np.complex128]

_PAULI: dict[str, list[list[complex]]] = {
    "sx": [[0, 1], [1, 0]],
    "sy": [[0, -1j], [1j, 0]],
    "sz": [[1, 0], [0, -1]],
}
_BATHS: dict[str, tuple[Any, tuple[str, ...], tuple[str, ...]]] = {
    "drude-lorentz": (DrudeLorentz, ("lam", "gamma", "T"), ()),
    "underdamped": (UnderdampedBrownian, ("lam", "gamma", "w0", "T"), ()),
    "ohmic": (Ohmic, ("s", "wc", "T"), ("lam", "alpha")),
}
_EXAMPLES = {"energy": "35 cm^-1", "temperature": "300 K"}


def operator(name: str, value: Matrix, d: int) -> Operator:
    """A (d, d) operator: "site N", "sx", "sy", "sz", a list of rows, or a diagonal."""
    if isinstance(value, str):
        site = re.fullmatch(r"site\s+(\d+)", value.strip())
        if site and 1 <= int(site[1]) <= d:
            projector = np.zeros((d, d), dtype=np.complex128)
            projector[int(site[1]) - 1, int(site[1]) - 1] = 1
            return projector
        if value in _PAULI and d == 2:
            return np.array(_PAULI[value], dtype=np.complex128)
        raise InputError(
            f'`{name}` must be "site 1" to "site {d}", rows of numbers, a diagonal'
            + (', "sx", "sy" or "sz"' if d == 2 else "")
            + f", got {value!r}."
        )
    try:
        array = np.array([_numbers(row) for row in value], dtype=np.complex128)
    except ValueError:
        raise InputError(
            f"`{name}` must be rows of equal length, numbers or strings such as '0.5-1j', "
            f"got {value!r}."
        ) from None
    array = np.diag(array) if array.ndim == 1 else array
    if array.shape != (d, d):
        raise InputError(f"`{name}` must be {d} x {d} like the Hamiltonian, got {array.shape}.")
    return array


def _numbers(row: Any) -> Any:
    if isinstance(row, list):
        return [_numbers(x) for x in row]
    return complex(row.replace(" ", "")) if isinstance(row, str) else row


@dataclass(frozen=True)
class PhysicsBuild:
    """``build(**axes[, rng])`` -> (Problem, rho0) for one point; all numbers internal.

    A quantity is a number in internal units, or the name of the axis that gives it.
    """

    hamiltonian: Operator  # (d, d), internal units
    terms: tuple[tuple[Operator, Quantity], ...]
    baths: tuple[tuple[str, tuple[Operator, ...], dict[str, Quantity]], ...]
    lindblad: tuple[tuple[Operator, Quantity], ...]
    rho0: Operator
    sigma: Quantity  # standard deviation of the site energies

    @property
    def d(self) -> int:
        return len(self.hamiltonian)

    @classmethod
    def from_tables(
        cls,
        system: SystemTable,
        baths: Sequence[BathTable],
        lindblad: Sequence[LindbladTable],
        disorder: DisorderTable | None,
        axes: Mapping[str, str | None],  # name -> unit
    ) -> PhysicsBuild:
        used: set[str] = {"depth", "tol"}
        rows = system.hamiltonian
        d = len(rows)
        lengths = [len(r) if isinstance(r, list) else 1 for r in rows]
        if lengths != [d] * d:
            raise InputError(f"`hamiltonian` must be square, got rows of {lengths} numbers.")
        energy = 1.0
        if system.unit is not None:
            energy = units.convert(1.0, system.unit, "energy", name="unit").value

        def number(name: str, value: Quantity, dimension: str) -> Quantity:
            if isinstance(value, str) and value in axes:
                used.add(value)
            return _quantity(name, value, dimension, axes, system.unit is not None)

        built = cls(
            hamiltonian=energy * operator("hamiltonian", rows, d),
            terms=tuple(
                (operator("operator", t.operator, d), number("strength", t.strength, "energy"))
                for t in system.terms
            ),
            baths=tuple(_bath(b, d, number) for b in baths),
            lindblad=tuple(
                (operator("operator", t.operator, d), number("rate", t.rate, "energy"))
                for t in lindblad
            ),
            rho0=_initial(system.initial, d),
            sigma=0.0
            if disorder is None or disorder.site_energies is None
            else number("site_energies", disorder.site_energies, "energy"),
        )
        idle = [a for a in axes if a not in used]
        if idle:
            raise InputError(
                f"`sweep.axes` must each be used by a quantity, got {', '.join(idle)} that nothing "
                'refers to; write e.g. lam = "lam" in a [[bath]].'
            )
        return built

    def __call__(self, rng: np.random.Generator | None = None, **axes: float) -> Any:
        def value(q: Quantity) -> float:
            return axes[q] if isinstance(q, str) else q

        H = self.hamiltonian + sum(value(s) * op for op, s in self.terms)
        if rng is not None:
            H = H + np.diag(value(self.sigma) * rng.standard_normal(self.d))
        couplings = []
        for kind, operators, fields in self.baths:
            bath = _BATHS[kind][0](**{k: value(v) for k, v in fields.items()})
            couplings += [Coupling(Q, bath) for Q in operators]
        jumps = [np.sqrt(value(rate)) * op for op, rate in self.lindblad]
        return Problem(H, couplings, lindblad=jumps), self.rho0


def _initial(value: Matrix, d: int) -> Operator:
    if isinstance(value, list) and value and not isinstance(value[0], list):
        try:
            ket = np.array(_numbers(value), dtype=np.complex128)
        except ValueError:
            raise InputError(
                f"`initial` must be numbers or strings such as '0.5-1j', got {value!r}."
            ) from None
        if ket.shape != (d,) or not np.any(ket):
            raise InputError(
                f"`initial` as a vector must have {d} numbers, not all 0, got {value!r}."
            )
        ket = ket / np.linalg.norm(ket)
        return np.outer(ket, ket.conj())
    return operator("initial", value, d)


def _bath(
    table: BathTable, d: int, number: Any
) -> tuple[str, tuple[Operator, ...], dict[str, Quantity]]:
    _, needed, either = _BATHS[table.kind]
    every = ("T", "lam", "alpha", "gamma", "w0", "s", "wc")
    given = [f for f in every if getattr(table, f) is not None]
    wrong = [f for f in given if f not in needed + either]
    missing = [f for f in needed if f not in given]
    if wrong or missing or (either and sum(f in given for f in either) != 1):
        rule = " and ".join(f"`{f}`" for f in needed)
        rule += f" and one of {' or '.join(f'`{f}`' for f in either)}" if either else ""
        raise InputError(f"a {table.kind} [[bath]] must have {rule}, got {', '.join(given)}.")
    dimensions = {"T": "temperature", "s": "dimensionless", "alpha": "dimensionless"}
    fields = {f: number(f, getattr(table, f), dimensions.get(f, "energy")) for f in given}
    if table.coupling == "sites":
        return table.kind, tuple(operator("coupling", f"site {j + 1}", d) for j in range(d)), fields
    return table.kind, (operator("coupling", table.coupling, d),), fields


def _quantity(
    name: str, value: Quantity, dimension: str, axes: Mapping[str, str | None], has_units: bool
) -> Quantity:
    """Internal number, or the name of an axis; plain numbers only where nothing has units."""
    plain_is_wrong = has_units and dimension != "dimensionless"
    example = _EXAMPLES.get(dimension, "0.5")
    if isinstance(value, str) and value in axes:
        unit = axes[value]
        if unit is None and plain_is_wrong:
            raise InputError(
                f"`{name}` must have a unit, because [system] has one, got the axis `{value}` "
                f"without; give the axis a unit of the dimension {dimension}, as in {example!r}."
            )
        if unit is not None:
            found = units.convert(1.0, unit, name=f"sweep.axes.{value}.unit").dimension
            if found != dimension:
                raise InputError(
                    f"`{name}` must be of the dimension {dimension}, as in {example!r}, got the "
                    f"axis `{value}` in {unit!r}, which is of the dimension {found}."
                )
        return value
    if not isinstance(value, str):
        if plain_is_wrong:
            raise InputError(
                f"`{name}` must have a unit, because [system] has one, got the plain number "
                f'{value:g}; write for example {name} = "{example}".'
            )
        return float(value)
    try:
        return units.quantity(value, dimension, name=name)
    except InputError as error:
        if re.fullmatch(r"\s*[A-Za-z_]\w*\s*", value):
            raise InputError(
                f"`{name}` must be a quantity such as '35 cm^-1' or the name of an axis "
                f"({', '.join(axes) or 'there is none'}), got {value!r}."
            ) from None
        raise error
