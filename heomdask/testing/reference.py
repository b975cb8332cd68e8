"""The hierarchy by brute force: loops over ADOs and matrix elements, nothing clever.

Takes: a problem after expansion, and the ADOs as a list of tuples.
Gives: `dense_generator`, the matrix of the unscaled equations, to compare a plan with.
Next file: `testing/strategies.py`, random problems to compare on.

It shares no code with `plan.py`, `hierarchy/` and `generator/`: the equation is read off
the docstring of `generator/build.py` and the derivative of each ADO is filled in column by column.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Mapping, Sequence

import numpy as np
from numpy.typing import NDArray

from heomdask.generator.expanded import Expanded

Complex = NDArray[np.complex128]
Tuples = Sequence[tuple[int, ...]]


def simplex(n_modes: int, depth: int) -> list[tuple[int, ...]]:
    """All tuples of `n_modes` numbers with a sum of at most `depth`, in lexicographic order."""
    every = itertools.product(range(depth + 1), repeat=n_modes)
    return [n for n in every if sum(n) <= depth]


def dense_generator(
    expanded: Expanded, ados: Tuples, values: Mapping[str, float] | None = None
) -> Complex:
    """G of ``d rho/dt = G rho`` with rho_n stacked in C order, (N d^2, N d^2), unscaled.

    Parameters
    ----------
    expanded : the problem.
    ados : tuples of occupation numbers, of all modes of all baths in order.
    values : what each named function of time is at this moment.
    """
    d, size = len(expanded.hamiltonian), len(ados)
    row_of = {n: row for row, n in enumerate(ados)}
    matrix = np.zeros((size, d, d, size, d, d), dtype=np.complex128)
    for element in itertools.product(range(size), range(d), range(d)):
        rho = np.zeros((size, d, d), dtype=np.complex128)
        rho[element] = 1.0
        column = np.zeros_like(rho)
        for row, n in enumerate(ados):
            column[row] = _derivative(expanded, row_of, rho, n, values or {})
        matrix[(slice(None), slice(None), slice(None), *element)] = column
    return matrix.reshape(size * d * d, size * d * d)


def _derivative(
    expanded: Expanded,
    row_of: Mapping[tuple[int, ...], int],
    rho: Complex,
    n: tuple[int, ...],
    values: Mapping[str, float],
) -> Complex:
    h = expanded.hamiltonian + sum(values[name] * h1 for name, h1 in expanded.drives)
    here = rho[row_of[n]]
    total: Complex = -1j * (h @ here - here @ h)
    for op in expanded.lindblad:
        dag = op.conj().T
        total = total + op @ here @ dag - 0.5 * (dag @ op @ here + here @ dag @ op)
    offset = 0
    for q0, exponents, name in expanded.baths:
        q = q0 if name is None else values[name] * q0
        inner = q @ here - here @ q
        total = total - exponents.delta * (q @ inner - inner @ q)
        gamma = np.diag(exponents.gamma).astype(complex)
        for k, other, value in exponents.lateral:
            gamma[k, other] += value

        def ado(k: int, step: int, j: int | None = None, offset: int = offset) -> Complex:
            moved = list(n)
            moved[offset + k] += step
            if j is not None:
                moved[offset + j] += 1
            found = row_of.get(tuple(moved))
            return np.zeros_like(here) if found is None else rho[found]

        for k in range(exponents.n_modes):
            n_k = n[offset + k]
            above, below = ado(k, +1), ado(k, -1)
            total = total - 1j * exponents.read[k] * (q @ above - above @ q)
            total = total - 1j * n_k * (
                exponents.c[k] * (q @ below) - exponents.cbar[k] * (below @ q)
            )
            for j in range(exponents.n_modes):
                neighbour = here if j == k else ado(k, -1, j)
                total = total - n_k * gamma[k, j] * neighbour
        offset += exponents.n_modes
    return total


def scale(expanded: Expanded, ados: Tuples) -> NDArray[np.float64]:
    """``prod_k a_k^n_k sqrt(n_k!)`` of each ADO, for baths without lateral rates, (N,)."""
    a = [
        math.sqrt(max(abs(c), abs(cbar))) or 1.0
        for _, e, _ in expanded.baths
        for c, cbar in zip(e.c, e.cbar, strict=True)
    ]
    return np.array(
        [math.prod(a[k] ** v * math.sqrt(math.factorial(v)) for k, v in enumerate(n)) for n in ados]
    )
