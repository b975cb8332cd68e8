"""How much one application of a plan is, whatever a backend makes of it.

Takes: a `Plan`.
Gives: `Work`: floating-point operations, bytes and non-zero elements per ADO and member.
Next file: `timing.py`, how long it takes.

An operation is counted for what the sum of all terms holds: a multiplication and an addition for
each element of G that is not zero, once for real numbers and four times for complex ones. This is
what a product with the assembled matrix does, and less than what kernels do that multiply zeros
and padding. Bytes are those that have to move if every number is read or written once: the state
in, the state out, and for each link a column and the number of a coefficient.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from heomdask.plan import Pattern, Plan

_LINK_BYTES = 8


@dataclass(frozen=True)
class Work:
    """Of one application, per ADO and member."""

    flops: float
    nbytes: float
    elements: float

    @property
    def intensity(self) -> float:
        """Operations per byte."""
        return self.flops / self.nbytes


def work_of(plan: Plan, precision: str = "float64") -> Work:
    """Count one application of a plan without named scalars."""
    blocks = _blocks(plan)
    own = np.zeros((plan.d**2, plan.d**2), dtype=bool)
    elements = links = 0
    for pattern, block in zip(plan.patterns, blocks, strict=True):
        if _stays(pattern):
            own |= block != 0
        elif np.any(block):
            count = len(pattern.entries()[0])
            links += count
            elements += count * int(np.count_nonzero(block))
    elements += plan.n_rows * int(np.count_nonzero(own))
    real = plan.form == "real"
    number = np.dtype(precision).itemsize * (1 if real else 2)
    moved = 2 * plan.d**2 * number + _LINK_BYTES * links / (plan.n_rows * plan.n_members)
    return Work((2 if real else 8) * elements / plan.n_rows, moved, elements / plan.n_rows)


def _stays(pattern: Pattern) -> bool:
    """Whether a pattern leaves every ADO where it is."""
    rows, cols, _ = pattern.entries()
    return pattern.is_identity or np.array_equal(rows, cols)


def _blocks(plan: Plan) -> NDArray[np.complex128]:
    """The (d^2, d^2) matrix that each pattern is multiplied with, of the first member."""
    blocks = np.zeros((len(plan.patterns), plan.d**2, plan.d**2), dtype=np.complex128)
    for term in plan.terms:
        small = term.superoperator(plan.d, 0)
        for shift in term.shifts:
            blocks[shift.pattern] += shift.scalar[0] * small
    return blocks
