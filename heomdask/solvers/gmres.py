"""Restarted GMRES with a preconditioner on the right, on the primitives of a backend.

Takes: a compiled plan of one member, a shift sigma, a preconditioner.
Gives: `Shifted`, the operator ``G - sigma`` with its count of applications, and `gmres`.
Next file: `fraction.py`, the preconditioner.

Y. Saad and M. H. Schultz, SIAM J. Sci. Stat. Comput. 7, 856 (1986). A preconditioner M on the right
leaves the residual what it is: ``(G - sigma) M^-1 u = b``, ``x = M^-1 u``. The basis is
orthogonalised twice (classical Gram-Schmidt: two reductions of all vectors at once).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Protocol

import numpy as np

from heomdask.backends.traits import BackendTraits, Compiled, State
from heomdask.plan import AnyArray

RESTART = 50
STALLED = 0.9  # a cycle that leaves more of the residual than this is the last one
INVARIANT = 1e-14  # what is left of a vector, relative, that lies in the space of the others


class Preconditioner(Protocol):
    """``out <- M^-1 v``, linear and always the same."""

    def __call__(self, v: State, out: State) -> None: ...


@dataclass(eq=False)
class Shifted:
    """``G - sigma`` on the states of one member; counts its applications."""

    backend: BackendTraits
    compiled: Compiled
    sigma: float = 0.0
    applications: int = field(default=0)

    def __call__(self, x: State, out: State) -> None:
        self.applications += 1
        self.backend.apply(self.compiled, x, out, b=-self.sigma)

    def empty(self) -> State:
        return self.backend.empty(self.compiled)

    def sum_of(self, out: State, weights: Sequence[complex], states: Sequence[State]) -> None:
        """``out <- sum_i weights[i] states[i]``."""
        self.backend.combine(self.compiled, out, list(weights), states)

    def dots(self, states: Sequence[State], y: State) -> AnyArray:
        """``<states_i, y>``, (len(states),)."""
        products: AnyArray = self.backend.dots(self.compiled, states, y)[:, 0]
        return products

    def norm(self, x: State) -> float:
        return float(np.sqrt(np.abs(self.dots([x], x)[0])))


def orthogonalise(operator: Shifted, basis: Sequence[State], w: State) -> tuple[AnyArray, float]:
    """Take the span of an orthonormal basis out of w and normalise it.

    Returns
    -------
    along : (len(basis),), the components taken out.
    left : norm of what was left; 0, and w of no use, if that is rounding.
    """
    along, before = _along(operator, basis, w)
    operator.sum_of(w, [1.0, *(-along)], [w, *basis])
    again, size = _along(operator, basis, w)
    taken = float(np.linalg.norm(again))
    left = math.sqrt(max(size * size - taken * taken, 0.0))
    if not left > INVARIANT * before:
        return along + again, 0.0
    operator.sum_of(w, [1.0 / left, *(-again / left)], [w, *basis])
    return along + again, left


def _along(operator: Shifted, basis: Sequence[State], w: State) -> tuple[AnyArray, float]:
    """The components of w along the basis, and its norm."""
    products = operator.dots([*basis, w], w)
    return products[:-1], math.sqrt(abs(products[-1]))


def gmres(
    operator: Shifted,
    precondition: Preconditioner,
    rhs: State | None,
    x: State,
    *,
    target: float,
    most: int,
    restart: int = RESTART,
) -> float:
    """Solve ``(G - sigma) x = rhs`` (0 if None) from the x given, which is overwritten.

    Parameters
    ----------
    target : norm of the residual at which to stop.
    most : applications after which no further cycle begins.

    Returns
    -------
    The norm of the residual, computed anew. It is above `target` where rounding, a singular
    operator or `most` stopped the iteration, and NaN where something was not finite.
    """
    spent = operator.applications
    residual = operator.empty()
    previous = np.inf
    while True:
        operator(x, residual)
        if rhs is None:
            operator.sum_of(residual, [-1.0], [residual])
        else:
            operator.sum_of(residual, [1.0, -1.0], [rhs, residual])
        size = operator.norm(residual)
        used_up = operator.applications - spent >= most
        if size <= target or not size < STALLED * previous or used_up:
            return size
        previous = size
        cycle(operator, precondition, residual, size, x, target=target, restart=restart)


def cycle(
    operator: Shifted,
    precondition: Preconditioner,
    residual: State,
    size: float,
    x: State,
    *,
    target: float,
    restart: int,
) -> None:
    """At most `restart` steps, and ``x += M^-1 V y`` for the y of the smallest residual.

    `residual`, of norm `size`, is that of x, and is overwritten. Where something was not finite,
    x is NaN afterwards.
    The vector n with ``n^+ H = 0`` and n_0 = 1 grows by one number a step, and the norm of the
    residual is ``size / |n|``: no factorisation is needed to know it.
    """
    operator.sum_of(residual, [1.0 / size], [residual])
    basis, step = [residual], operator.empty()
    matrix = np.zeros((restart + 1, restart), dtype=operator.compiled.dtype)
    null = np.ones(1, dtype=matrix.dtype)
    for k in range(restart):
        precondition(basis[k], step)
        w = operator.empty()
        operator(step, w)
        along, left = orthogonalise(operator, basis, w)
        if not np.isfinite([*along, left]).all():
            operator.sum_of(x, [np.nan], [x])
            return
        matrix[: k + 1, k], matrix[k + 1, k] = along, left
        if left == 0.0:
            break
        null = np.append(null, -np.conj(np.conj(null) @ along / left))
        basis.append(w)
        if size / np.linalg.norm(null) <= target:
            break
    first = np.zeros(k + 2, dtype=matrix.dtype)
    first[0] = size
    weights = np.linalg.lstsq(matrix[: k + 2, : k + 1], first, rcond=None)[0]
    combined = operator.empty()
    operator.sum_of(combined, list(weights), basis[: k + 1])
    precondition(combined, step)
    operator.sum_of(x, [1.0, 1.0], [x, step])
