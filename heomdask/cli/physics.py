"""From the tables of a TOML file to a `build` function: one point's `Problem`.

Takes: the tables [system], [[bath]], [[lindblad]] and [sweep.disorder], and what reads quantities.
Gives: `PhysicsBuild`, picklable, called with the point's axis values and its random generator.
Next file: `main.py`, the commands.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from heomdask import checks, units
from heomdask.cli.quantities import Quantities
from heomdask.cli.tables import (
    BathTable,
    DisorderTable,
    LindbladTable,
    Matrix,
    Quantity,
    SystemTable,
)
from heomdask.errors import InputError
from heomdask.model import Coupling, DrudeLorentz, Ohmic, Problem, UnderdampedBrownian

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
_DIMENSIONS = {"T": "temperature", "s": "dimensionless", "alpha": "dimensionless"}
TRACE_TO = 1e-6


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
    return checks.square_matrix(name, array)


def hermitian(name: str, value: Matrix, d: int) -> Operator:
    """The same, of a Hermitian operator."""
    return checks.hermitian(name, operator(name, value, d))


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
        quantities: Quantities,
    ) -> PhysicsBuild:
        rows, read = system.hamiltonian, quantities.read
        d = len(rows)
        lengths = [len(r) if isinstance(r, list) else 1 for r in rows]
        if lengths != [d] * d:
            raise InputError(f"`hamiltonian` must be square, got rows of {lengths} numbers.")
        energy = 1.0
        if system.unit is not None:
            energy = units.convert(1.0, system.unit, "energy", name="unit").value
        quantities.note(
            "hamiltonian", system.unit, "plain numbers",
            'write for example unit = "cm^-1" in [system], or unit = "rad/fs".',
        )  # fmt: skip
        if disorder is not None and disorder.site_energies is None:
            raise InputError(
                "`site_energies` must be given in [sweep.disorder], got `samples` alone, which "
                'would all be equal; write for example site_energies = "80 cm^-1".'
            )
        return cls(
            hamiltonian=energy * hermitian("hamiltonian", rows, d),
            terms=tuple(
                (
                    hermitian("operator", t.operator, d),
                    read("strength", t.strength, "energy", signed=True),
                )
                for t in system.terms
            ),
            baths=tuple(_bath(b, d, quantities) for b in baths),
            lindblad=tuple(
                (operator("operator", t.operator, d), read("rate", t.rate, "energy"))
                for t in lindblad
            ),
            rho0=_initial(system.initial, d),
            sigma=0.0
            if disorder is None or disorder.site_energies is None
            else read("site_energies", disorder.site_energies, "energy"),
        )

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
    rho0 = operator("initial", value, d)
    trace = complex(np.trace(rho0))
    if min(abs(trace - 1), abs(trace)) > TRACE_TO:
        raise InputError(
            "`initial` must have the trace 1 (a state) or 0 (an operator on one, for spectra), got "
            f"{trace:.6g}; divide its numbers by that."
        )
    return rho0


def _bath(
    table: BathTable, d: int, quantities: Quantities
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
    fields = {f: quantities.read(f, getattr(table, f), _DIMENSIONS.get(f, "energy")) for f in given}
    if table.coupling == "sites":
        return table.kind, tuple(operator("coupling", f"site {j + 1}", d) for j in range(d)), fields
    return table.kind, (hermitian("coupling", table.coupling, d),), fields
