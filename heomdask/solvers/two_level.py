"""The preconditioner of stationary problems: every ADO by itself, and a few of them together.

Takes: a compiled plan of one member, a shift sigma, the rows that are solved together.
Gives: `Parts`, what of the plan the preconditioner needs, and `TwoLevel`, ``out <- M^-1 v``.
Next file: `steady.py`.

With c the coarse rows and f the others, M is ``G - sigma`` whose fine rows keep, of each other,
only the blocks D on the diagonal,

    M = [ A_cc  A_cf ]      M^-1 by elimination of f:   S = A_cc - A_cf D^-1 A_fc
        [ A_fc   D   ]

so that only the matrix S of the coarse rows is dense, while its solution is that of the coarse
rows and all their neighbours together. The trace is conserved, which makes S singular for
sigma = 0: ``- rate |1/d><Tr|`` is added on row 0, and the trace of what comes out, which is
arbitrary then, is removed. So all that is ever added to a state has the trace 0.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import scipy.linalg
import scipy.sparse as sp
from numpy.typing import NDArray

from heomdask.backends.traits import Selection, State
from heomdask.plan import AnyArray, Plan
from heomdask.solvers.gmres import Shifted


@dataclass(frozen=True, eq=False)
class Parts:
    """The parts of G that touch the coarse rows; they serve every sigma."""

    rows: NDArray[np.int64]
    halo: NDArray[np.int64]  # the neighbours of the rows
    inner: AnyArray  # dense, rows by rows
    inward: sp.csr_array  # rows by halo
    outward: sp.csr_array  # halo by rows
    blocks: AnyArray  # (len(halo), d^2, d^2)

    @classmethod
    def of(cls, plan: Plan, coarse: NDArray[np.int64]) -> Parts:
        """Cut out of the plan's only member; `coarse` has row 0 among its rows."""
        rows = np.unique(coarse)
        halo = neighbours(plan, rows)
        both = np.concatenate([rows, halo])
        near, size = plan.to_sparse(rows=both, cols=both), len(rows) * plan.d**2
        inner, inward, outward = (
            near[:size, :size].toarray(),
            near[:size, size:],
            near[size:, :size],
        )
        return cls(rows, halo, inner, inward, outward, plan.local_blocks(0, halo))


class TwoLevel:
    """``out <- M^-1 v`` for one operator.

    Parameters
    ----------
    operator : ``G - sigma``; sigma > 0 keeps the blocks of a stable plan from being singular.
    parts : of the same plan.
    rate : positive, of the size of G: what the trace of row 0 decays with in S.
    """

    def __init__(self, operator: Shifted, parts: Parts, rate: float) -> None:
        sigma, self.operator, self.d = operator.sigma, operator, operator.compiled.plan.d
        one, trace = np.eye(self.d**2), np.eye(self.d).ravel()
        around = _block_diagonal(np.linalg.inv(parts.blocks - sigma * one))
        self.inward, self.outward = parts.inward @ around, parts.outward
        inner = parts.inner - sigma * np.eye(len(parts.inner))
        inner[: len(one), : len(one)] -= rate / self.d * np.outer(trace, trace)
        inner -= (self.inward @ self.outward).toarray()
        self.factors = scipy.linalg.lu_factor(inner, check_finite=False)
        self.rows = Selection.whole(parts.rows, self.d)
        self.both = Selection.whole(np.concatenate([parts.rows, parts.halo]), self.d)

    def __call__(self, v: State, out: State) -> None:
        backend, compiled = self.operator.backend, self.operator.compiled
        near = backend.host(backend.pack(compiled, v, self.both))[:, 0]
        own, halo = near[: len(self.rows)], near[len(self.rows) :]  # views
        right = own - self.inward @ halo
        coarse = scipy.linalg.lu_solve(self.factors, right, check_finite=False)  # NaN stays NaN
        first = coarse[: self.d**2].reshape(self.d, self.d)
        first -= np.trace(first) / self.d * np.eye(self.d)
        halo -= self.outward @ coarse
        backend.combine(compiled, out, [1.0], [v])
        backend.unpack(compiled, near[:, None], self.both, out)
        backend.solve_local(compiled, self.operator.sigma, out, out)
        backend.unpack(compiled, coarse[:, None], self.rows, out)


def neighbours(plan: Plan, rows: NDArray[np.int64]) -> NDArray[np.int64]:
    """The rows that `rows` read or are read by, without themselves, ascending."""
    inside = np.zeros(plan.n_rows, dtype=bool)
    inside[rows] = True
    beside = np.zeros(plan.n_rows, dtype=bool)
    for pattern in plan.patterns:
        if not pattern.is_identity:
            r, c, _ = pattern.entries()
            beside[c[inside[r]]] = True
            beside[r[inside[c]]] = True
    return np.flatnonzero(beside & ~inside)


def _block_diagonal(blocks: AnyArray) -> sp.csr_array:
    n = len(blocks)
    if n == 0:
        return sp.csr_array((0, 0), dtype=blocks.dtype)
    return sp.csr_array(sp.bsr_array((blocks, np.arange(n), np.arange(n + 1))))
