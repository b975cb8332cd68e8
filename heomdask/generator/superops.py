"""The three superoperators of the hierarchy, in complex and in real terms.

Takes: stacks of small operators, one per member or one for all.
Gives: `comm`, `anti`, `sandwich` as lists of `Factor`, the form that a plan's terms have.
Next file: `generator/real_form.py`, the packing behind the real terms.

All three map Hermitian matrices to Hermitian ones, for a Hermitian Q and any L:

    comm(Q) X = -i [Q, X]        anti(Q) X = {Q, X}        sandwich(L) X = L X L^+

In the real form X is packed as Z = Re X + Im X. With Q = A + i B, L = A + i B they are

    comm:      [A, Z]^T + [B, Z]
    anti:      {A, Z} - {B, Z}^T
    sandwich:  A Z A^T + B Z B^T + (A Z B^T)^T - (B Z A^T)^T
"""

from __future__ import annotations

import functools
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from heomdask.plan import AnyArray, Form, Operator

RealStack = NDArray[np.float64]


@dataclass(frozen=True, eq=False)
class Stack:
    """An operator A + i B of every member: two arrays (1, d, d) or (M, d, d).

    `has_imag` says whether B belongs to the structure (it may be zero for some members).
    """

    real: RealStack
    imag: RealStack
    has_imag: bool

    @classmethod
    def of(cls, operators: Sequence[AnyArray], has_imag: bool) -> Stack:
        """One operator per member; shared if they are equal."""
        first = operators[0]
        if all(op is first for op in operators[1:]):
            stack = np.asarray(first)[None]
        else:
            stack = np.stack(operators)
            if (stack == stack[0]).all():
                stack = stack[:1]
        real = np.ascontiguousarray(stack.real, dtype=np.float64)
        return cls(real, np.ascontiguousarray(stack.imag, dtype=np.float64), has_imag)

    @functools.cached_property
    def whole(self) -> Operator:
        """A + i B."""
        array = np.empty(self.real.shape, dtype=np.complex128)
        array.real, array.imag = self.real, self.imag
        return Operator(array)

    @functools.cached_property
    def dagger(self) -> Operator:
        """(A + i B)^+."""
        return self.whole.map(np.conj(self.whole.array).swapaxes(1, 2))

    @functools.cached_property
    def parts(self) -> tuple[Operator, Operator | None]:
        """A and B; None for a B that is absent."""
        return Operator(self.real), Operator(self.imag) if self.has_imag else None

    @functools.cached_property
    def transposed_parts(self) -> tuple[Operator, Operator | None]:
        """A^T and B^T; None for a B that is absent."""
        a = Operator(np.ascontiguousarray(self.real.swapaxes(1, 2)))
        b = Operator(np.ascontiguousarray(self.imag.swapaxes(1, 2))) if self.has_imag else None
        return a, b

    def gram(self) -> Stack:
        """``L^+ L``, in real arithmetic whose rounding does not depend on the other members."""
        a, b = self.real, self.imag
        if not self.has_imag:
            return Stack(_product(a, a), np.zeros_like(a), False)
        real = _product(a, a) + _product(b, b)
        return Stack(real, _product(a, b) - _product(b, a), self.has_imag)

    def scaled(self, weight: RealStack) -> Stack:
        """``weight * (A + i B)`` with a weight (M,) per member."""
        w = weight[:, None, None]
        return Stack(w * self.real, w * self.imag, self.has_imag)


def _product(a: RealStack, b: RealStack) -> RealStack:
    """``a^T b`` of each member, element by element: BLAS may round by position in memory."""
    total = np.zeros(np.broadcast_shapes(a.shape, b.shape))
    for k in range(a.shape[1]):
        total += a[:, k, :, None] * b[:, k, None, :]
    return total


@dataclass(frozen=True, eq=False)
class Factor:
    """``X -> weight L X R``, transposed if so flagged; None means identity."""

    weight: complex
    left: Operator | None
    right: Operator | None
    transposed: bool = False


def comm(q: Stack, form: Form) -> list[Factor]:
    """``-i [Q, .]``."""
    if form == "complex":
        return [Factor(-1j, q.whole, None), Factor(1j, None, q.whole)]
    a, b = q.parts
    factors = [Factor(1, a, None, True), Factor(-1, None, a, True)]
    return factors if b is None else [*factors, Factor(1, b, None), Factor(-1, None, b)]


def anti(q: Stack, form: Form) -> list[Factor]:
    """``{Q, .}``."""
    if form == "complex":
        return [Factor(1, q.whole, None), Factor(1, None, q.whole)]
    a, b = q.parts
    factors = [Factor(1, a, None), Factor(1, None, a)]
    if b is None:
        return factors
    return [*factors, Factor(-1, b, None, True), Factor(-1, None, b, True)]


def sandwich(operator: Stack, form: Form) -> list[Factor]:
    """``L . L^+``."""
    if form == "complex":
        return [Factor(1, operator.whole, operator.dagger)]
    a, b = operator.parts
    at, bt = operator.transposed_parts
    factors = [Factor(1, a, at)]
    if b is None:
        return factors
    return [*factors, Factor(1, b, bt), Factor(1, a, bt, True), Factor(-1, b, at, True)]


IDENTITY = (Factor(1, None, None),)
