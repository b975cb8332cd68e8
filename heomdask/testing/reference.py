"""The hierarchy by brute force: a dictionary of ADOs and loops over them, nothing clever.

Takes: a problem after expansion, and the ADOs as a list of tuples.
Gives: `dense_generator`, the matrix of the unscaled equations, to compare a plan with.
Next file: `testing/strategies.py`, random problems to compare on.

It shares no code with `plan.py`, `hierarchy/` and `generator/`, and knows of no scale, no
pattern, no member: the equation in the docstring of `generator/build.py` is read term by term.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Mapping, Sequence

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
    functions, d = dict(values or {}), len(expanded.hamiltonian)
    row_of = {n: row for row, n in enumerate(ados)}
    matrix = np.zeros((len(ados), d * d, len(ados), d * d), dtype=np.complex128)
    system = _matrix(lambda rho: _system(expanded, functions, rho), d)
    for row, n in enumerate(ados):
        matrix[row, :, row] += system
        offset = 0
        for q0, exponents, name in expanded.baths:
            q = q0 if name is None else functions[name] * q0
            left, right = _matrix(q.__matmul__, d), _matrix(q.__rmatmul__, d)
            gamma = np.diag(exponents.gamma)
            for k, j, value in exponents.lateral:
                gamma[k, j] += value
            for k in range(exponents.n_modes):
                n_k = n[offset + k]
                above = row_of.get(_moved(n, {offset + k: 1}))
                if above is not None:
                    matrix[row, :, above] += -1j * exponents.read[k] * (left - right)
                below = row_of.get(_moved(n, {offset + k: -1}))
                if below is not None:
                    matrix[row, :, below] += (
                        -1j * n_k * (exponents.c[k] * left - exponents.cbar[k] * right)
                    )
                matrix[row, :, row] -= n_k * gamma[k, k] * np.eye(d * d)
                for j in range(exponents.n_modes):
                    beside = row_of.get(_moved(n, {offset + k: -1, offset + j: 1}))
                    if j != k and beside is not None:
                        matrix[row, :, beside] -= n_k * gamma[k, j] * np.eye(d * d)
            offset += exponents.n_modes
    return matrix.reshape(len(ados) * d * d, len(ados) * d * d)


def _system(expanded: Expanded, functions: Mapping[str, float], rho: Complex) -> Complex:
    """What happens within one ADO, without the decay."""
    h = expanded.hamiltonian.copy()
    for name, h1 in expanded.drives:
        h += functions[name] * h1
    total: Complex = -1j * (h @ rho - rho @ h)
    for op in expanded.lindblad:
        dag = op.conj().T
        total += op @ rho @ dag - 0.5 * (dag @ op @ rho + rho @ dag @ op)
    for q0, exponents, f_name in expanded.baths:
        q = q0 if f_name is None else functions[f_name] * q0
        inner = q @ rho - rho @ q
        total -= exponents.delta * (q @ inner - inner @ q)
    return total


def _matrix(action: Callable[[Complex], Complex], d: int) -> Complex:
    """The matrix (d^2, d^2) of a linear map of (d, d) matrices, column by column."""
    columns = [action(unit.reshape(d, d)).ravel() for unit in np.eye(d * d, dtype=np.complex128)]
    return np.array(columns).T


def _moved(n: tuple[int, ...], moves: Mapping[int, int]) -> tuple[int, ...]:
    return tuple(value + moves.get(k, 0) for k, value in enumerate(n))
