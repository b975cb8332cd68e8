"""Is the generator stable? Its rightmost eigenvalues, from a rational Krylov space.

Takes: the operator ``G - sigma`` with sigma > 0 and a preconditioner.
Gives: `rightmost`, what the space of ``(sigma - G)^-1`` knows of the eigenvalues near the
    imaginary axis.
Next file: `steady.py`.

The space is that of shift-and-invert Arnoldi (A. Ruhe, Linear Algebra Appl. 58, 391 (1984)), with
inverses from a few steps of GMRES. They may be inexact, since eigenvalues are taken from G itself:
the Ritz values of V^+ G V, each with the norm of its residual, |G v - theta v|.

A truncated hierarchy that is unstable has a stationary state like any other; only this tells. An
eigenvalue that grows many times slower than the state itself moves may stay unseen.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from heomdask.backends.traits import State
from heomdask.plan import AnyArray
from heomdask.solvers.gmres import Preconditioner, Shifted, cycle, orthogonalise

VECTORS = (12, 16, 20, 24)  # sizes of the space at which it is judged
INNER_TOLERANCE = 3e-2
INNER_STEPS = 30
EXHAUSTED = 1e-8  # what is left of a new vector, relative, when there is nothing new
ROUNDING = 1e-14  # of the squares of norms that come out of products of vectors, relative
CERTAIN = 0.5  # residual of a Ritz pair, relative to the real part, whose sign is believed


@dataclass(frozen=True)
class Rightmost:
    """The rightmost Ritz value.

    Attributes
    ----------
    value : of ``G v = value v``, trace 0, so that a stable generator has a negative real part.
    residual : ``|G v - value v|`` for a v of norm 1.
    smallest : ``|G v|`` for the v of norm 1 in the space for which it is least.
    """

    value: complex
    residual: float
    smallest: float

    @property
    def certain(self) -> bool:
        """Whether the sign of the real part is beyond doubt."""
        return self.residual < CERTAIN * abs(self.value.real)

    @property
    def settled(self) -> bool:
        """Whether the generator is at least likely to be stable."""
        return self.residual < -self.value.real

    @property
    def unstable(self) -> bool:
        return self.value.real > 0 and self.certain


def rightmost(operator: Shifted, precondition: Preconditioner, start: State) -> Rightmost:
    """The rightmost eigenvalue of G on states without trace.

    Parameters
    ----------
    operator : ``G - sigma``, sigma a fraction of the rates at which row 0 moves.
    start : of norm 1 and trace 0; it should contain something of everything.
    """
    plan = operator.compiled.plan
    dimension = plan.n_rows * plan.d**2 - (plan.d > 1)  # of the states without trace
    basis, images = [start], [_image(operator, start)]
    projected, gram = _grow(operator, basis, images, np.zeros((0, 0)), np.zeros((0, 0)))
    while True:
        size = len(basis)
        w = operator.empty()
        rhs = operator.empty()
        operator.sum_of(rhs, [1.0], [basis[-1]])
        cycle(operator, precondition, rhs, 1.0, w, target=INNER_TOLERANCE, restart=INNER_STEPS)
        along, left = orthogonalise(operator, basis, w)
        ended = size == dimension or not left > EXHAUSTED * np.linalg.norm(along)
        if not ended:
            basis.append(w)
            images.append(_image(operator, w))
            projected, gram = _grow(operator, basis, images, projected, gram)
            size += 1
        if ended or size in VECTORS:
            found = _judge(projected, gram, operator.sigma)
            if ended or found.certain or size == VECTORS[-1]:
                return found


def _image(operator: Shifted, v: State) -> State:
    image = operator.empty()
    operator(v, image)
    return image


def _grow(
    operator: Shifted,
    basis: list[State],
    images: list[State],
    projected: AnyArray,
    gram: AnyArray,
) -> tuple[AnyArray, AnyArray]:
    """``V^+ A V`` and ``(A V)^+ (A V)`` of A = G - sigma, with one more vector."""
    n = len(basis)
    larger = np.zeros((2, n, n), dtype=operator.compiled.dtype)
    larger[0, : n - 1, : n - 1], larger[1, : n - 1, : n - 1] = projected, gram
    larger[0, :, -1] = operator.dots(basis, images[-1])
    larger[0, -1, :] = np.conj(operator.dots(images, basis[-1]))
    larger[1, :, -1] = operator.dots(images, images[-1])
    larger[1, -1, :] = np.conj(larger[1, :, -1])
    return larger[0], larger[1]


def _judge(projected: AnyArray, gram: AnyArray, sigma: float) -> Rightmost:
    """A Ritz value that is certainly on the right if there is one, else the rightmost.

    NaN if something was not finite.
    """
    if not np.isfinite([projected, gram]).all():
        return Rightmost(complex("nan"), float("nan"), float("nan"))
    values, vectors = np.linalg.eig(projected)
    square: NDArray[np.complex128] = np.einsum("ik,ij,jk->k", vectors.conj(), gram, vectors)
    size = np.abs(values) ** 2
    residuals = np.sqrt(np.maximum(square.real - size, ROUNDING * size))
    one = np.eye(len(gram))
    squares = np.linalg.eigvalsh(gram + sigma * (projected + projected.conj().T + sigma * one))
    smallest = math.sqrt(max(squares[0], ROUNDING * np.linalg.norm(gram, 2)))
    found = [
        Rightmost(complex(value) + sigma, float(residual), smallest)
        for value, residual in zip(values, residuals, strict=True)
    ]
    return max(found, key=lambda pair: (pair.unstable, pair.value.real))
