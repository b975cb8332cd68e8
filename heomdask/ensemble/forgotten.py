"""A unit that was forgotten: plain numbers on one axis, while another has a unit.

Takes: a `Sweep` and some of its points, built.
Gives: a warning for each axis whose plain numbers `build` used as they stand, for a quantity that
    has a dimension; not so counts, ratios, and numbers that `build` converts itself.
Next file: `probe.py`, which builds the points.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

import numpy as np

from heomdask.ensemble.axes import Axis, Table
from heomdask.ensemble.grid import Index
from heomdask.ensemble.sweep import SOLVER_AXES, Point, Sweep
from heomdask.expansion.notices import warn
from heomdask.model.problem import Problem

_QUANTITIES = {"T": "K", "lam": "cm^-1", "gamma": "cm^-1", "w0": "cm^-1", "wc": "cm^-1"}  # of baths
_SHOWN = 3  # values in a message


def warn_of_forgotten_units(sweep: Sweep, built: Sequence[tuple[Index, Point]]) -> None:
    """Warn of every axis whose unit seems to be forgotten; a list of points never has units."""
    carrier = _carrier(sweep)
    if carrier is None or not isinstance(sweep.over, Mapping | Table):
        return
    for name, axis in _bare(sweep):
        values = [sweep.grid.parameters(index)[name] for index, _ in built]
        seen = [(v, p.problem) for v, (_, p) in zip(values, built, strict=True) if v != 0]
        uses = [set(_uses(problem, abs(value))) for value, problem in seen]
        common = sorted(set.intersection(*uses)) if uses else []
        if common:
            (what, unit), value = common[0], f"{values[0]:g}"
            text = ", ".join(f"{v:g}" for v in axis.values[:_SHOWN])
            text = f"[{text}{', ...' * (len(axis) > _SHOWN)}]"
            warn(
                f"The axis `{name}` has no unit while {carrier} has one, and `build` makes its "
                f"numbers {what}: {value} counts as {value} rad/fs. Write for example "
                f'hd.axis({text}, "{unit}"), or hd.axis({text}, "rad/fs") if that is meant.'
            )


def _carrier(sweep: Sweep) -> str | None:
    """The first axis that has a unit, or the times, in words."""
    named = [(f"`{name}`", a) for d in sweep.grid.dimensions for name, a in d.axes]
    return next((word for word, a in [*named, ("`times`", sweep.times)] if a.unit), None)


def _bare(sweep: Sweep) -> Iterator[tuple[str, Axis]]:
    """The axes of plain numbers that `build` receives."""
    for name, axis in (pair for d in sweep.grid.dimensions for pair in d.axes):
        plain = all(isinstance(v, int | float) and not isinstance(v, bool) for v in axis.values)
        if axis.unit is None and plain and not axis.named and name not in SOLVER_AXES:
            yield name, axis


def _uses(problem: Problem, size: float) -> Iterator[tuple[str, str]]:
    """What of a problem is as large as a number, with an example of a unit.

    Of the Hamiltonian also what is half as large: a splitting is often written as (e/2) sigma_z.
    """
    for coupling in problem.couplings:
        for name, unit in _QUANTITIES.items():
            if getattr(coupling.bath, name, None) == size:
                yield f"the `{name}` of a bath", unit
    if np.any(np.isin(np.abs(problem.H), [size, size / 2])):
        yield "elements of the Hamiltonian", "cm^-1"
