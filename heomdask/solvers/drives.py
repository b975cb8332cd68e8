"""Named scalars as functions of time, and where they may not be stepped over.

Takes: `value(t) -> (n_named, M)` for a time per member, and declared breakpoints per member.
Gives: `Drives`.
Next file: `runge_kutta.py`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from heomdask.solvers.trajectory import Floats


@dataclass(frozen=True)
class Drives:
    """The named scalars of a plan, in the plan's order.

    Attributes
    ----------
    value : times (M,) -> values (n_named, M); column m is evaluated at time m, for member m.
    breakpoints : per member, times which no step crosses.
    """

    value: Callable[[Floats], Floats]
    breakpoints: Sequence[Sequence[float]] = ()
