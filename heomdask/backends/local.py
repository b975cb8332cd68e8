"""The local solve: every ADO by itself, factorised once per compiled plan and shift.

Takes: a `Plan` and a shift sigma.
Gives: `local_inverse`, which applies ``(B_n - sigma)^-1`` to all ADOs of a host array.
Next file: `backends/traits.py`, whose `solve_local` it is.

Where everything but a scalar is the same on all ADOs, ``B_n = B + w_n``, one eigenvalue
decomposition ``B = V diag(b) V^-1`` serves all of them and all shifts:

    (B_n - sigma)^-1 = V diag(1 / (b + w_n - sigma)) V^-1

so that a solve is two matrix products with the whole state, and nothing is kept per ADO but one
number. An anti-Hermitian B (a Hamiltonian alone) has a unitary V. Where the operators differ from
ADO to ADO, or V is far from unitary (B near an exceptional point), the blocks are inverted one by
one; equal blocks share an inverse.
"""

from __future__ import annotations

import weakref
from dataclasses import dataclass
from typing import Any

import numpy as np
import scipy.linalg
from numpy.typing import NDArray

from heomdask import memory
from heomdask.plan import AnyArray, Plan

WORST_CONDITION = 1e6  # of V: each digit of it is one lost in the solve
STATES = 9  # what it takes while it solves, where one V serves all ADOs
BLOCK_STATES = 4  # copies of all different blocks while they are inverted
MOST_SHIFTS = 4  # remembered per compiled plan
_known: weakref.WeakKeyDictionary[Any, dict[bytes, LocalInverse]] = weakref.WeakKeyDictionary()


def local_inverse(owner: object, plan: Plan, sigma: Any) -> LocalInverse:
    """The local solve of a compiled plan (the `owner`), made at the first call for a `sigma`."""
    shifts = np.broadcast_to(np.asarray(sigma), (plan.n_members,))
    key = shifts.tobytes()
    kept = _known.setdefault(owner, {})
    found = kept.get(key)
    if found is None:
        made = LocalInverse(tuple(factorise(plan, m, shift) for m, shift in enumerate(shifts)))
        if len(kept) >= MOST_SHIFTS:
            kept.clear()
        found = kept.setdefault(key, made)
    return found


@dataclass(frozen=True, eq=False)
class LocalInverse:
    """One factorisation per member."""

    members: tuple[Shifted | Blocks, ...]

    def __call__(self, x: AnyArray) -> AnyArray:
        """From x (n_cols, d, d, M) to the solutions of the same shape; those of a halo are 0."""
        result = np.zeros_like(x)
        for m, member in enumerate(self.members):
            n = member.n_rows
            flat = np.ascontiguousarray(x[:n, ..., m]).reshape(n, -1)
            result[:n, ..., m] = member(flat).reshape(x[:n, ..., m].shape)
        return result


@dataclass(frozen=True, eq=False)
class Shifted:
    """``V diag(1 / (b + w_n - sigma)) V^-1``, all transposed: states are rows.

    Everything is real: real and imaginary parts of the `m` modes lie side by side, and the `n`
    numbers of an ADO are its elements, of a complex plan their real and imaginary parts in turn.
    Of a real plan one of each pair of conjugate modes is kept.
    """

    into: NDArray[np.float64]  # (n, 2 m)
    back: NDArray[np.float64]  # (2 m, n)
    values: NDArray[np.complex128]  # (m,)
    shifts: NDArray[np.complex128]  # (n_rows,), less sigma

    @property
    def n_rows(self) -> int:
        return len(self.shifts)

    def __call__(self, x: AnyArray) -> AnyArray:
        modes, size = x.view(x.real.dtype) @ self.into, len(self.values)
        turned = modes[:, :size] + 1j * modes[:, size:]
        turned /= self.values + self.shifts[:, None]
        modes[:, :size], modes[:, size:] = turned.real, turned.imag
        result: AnyArray = modes @ self.back
        return result.view(turned.dtype) if np.iscomplexobj(x) else result


@dataclass(frozen=True, eq=False)
class Blocks:
    """One inverse for every different block; the rows in the order of their blocks."""

    inverses: AnyArray  # (number of blocks, d^2, d^2)
    order: NDArray[np.int64]  # (n_rows,)
    ends: NDArray[np.int64]  # of the rows of each block, in that order

    @classmethod
    def of(cls, inverses: AnyArray, which: NDArray[np.int64]) -> Blocks:
        """Of the number of each row's block, (n_rows,)."""
        order = np.argsort(which, kind="stable")
        return cls(inverses, order, np.cumsum(np.bincount(which, minlength=len(inverses))))

    @property
    def n_rows(self) -> int:
        return len(self.order)

    def __call__(self, x: AnyArray) -> AnyArray:
        sorted_x, result = x[self.order], np.empty_like(x)
        begin = 0
        for inverse, end in zip(self.inverses, self.ends.tolist(), strict=True):
            result[self.order[begin:end]] = sorted_x[begin:end] @ inverse.T
            begin = end
        return result


def factorise(plan: Plan, member: int, sigma: Any) -> Shifted | Blocks:
    """The cheaper of the two forms that is accurate."""
    weights = np.zeros((len(plan.terms), plan.n_rows), dtype=plan.dtype)
    for row, term in zip(weights, plan.terms, strict=True):
        row[:] = plan.local_weight(term, member)
    plain = [t.left is None and t.right is None and not t.transposed for t in plan.terms]
    scalar = np.array(plain, dtype=bool)
    operators = weights[~scalar]
    if np.all(operators == operators[:, :1]):
        shifts = weights[scalar].sum(axis=0)
        first = plan.local_blocks(member, np.array([0]))[0] - shifts[0] * np.eye(plan.d**2)
        values, vectors, inverse = _eigen(first)
        if np.linalg.norm(vectors, 2) * np.linalg.norm(inverse, 2) < WORST_CONDITION:
            return _shifted(plan.form == "real", values, vectors, inverse, shifts - sigma)
    _, first_rows, which = np.unique(weights, axis=1, return_index=True, return_inverse=True)
    memory.require(
        BLOCK_STATES * weights.itemsize * len(first_rows) * plan.d**4,
        f"A local solve of {len(first_rows):,} different blocks of {plan.d**2} x {plan.d**2}",
        "have fewer ADOs, or follow the state in time, which needs none",
    )
    blocks = plan.local_blocks(member, first_rows) - sigma * np.eye(plan.d**2)
    return Blocks.of(np.linalg.inv(blocks), np.asarray(which).reshape(-1))


def _shifted(
    real: bool, values: AnyArray, vectors: AnyArray, inverse: AnyArray, shifts: AnyArray
) -> Shifted:
    """Of a real B, of each pair of conjugate modes, which are exactly that, one counts twice."""
    kept = values.imag >= 0 if real else np.ones(len(values), dtype=bool)
    twice = np.where(real & (values[kept].imag > 0), 2.0, 1.0)
    w, v = inverse[kept].T, vectors[:, kept].T * twice[:, None]
    into = np.concatenate([w.real, w.imag], axis=1)
    back = np.concatenate([v.real, -v.imag], axis=0)
    if not real:
        into = np.stack([into, np.concatenate([-w.imag, w.real], axis=1)], axis=1)
        back = np.stack([back, np.concatenate([v.imag, v.real], axis=0)], axis=2)
    n = len(values) * (1 if real else 2)
    return Shifted(
        into.reshape(n, -1), back.reshape(-1, n), np.asarray(values[kept], np.complex128),
        np.asarray(shifts, np.complex128),
    )  # fmt: skip


def _eigen(matrix: AnyArray) -> tuple[AnyArray, AnyArray, AnyArray]:
    """Eigenvalues, eigenvectors V and V^-1; a unitary V where the matrix is anti-Hermitian.

    Those of a real matrix are real, or conjugate pairs to the last bit.
    """
    if np.array_equal(matrix, -matrix.conj().T):
        if not np.iscomplexobj(matrix):
            return _antisymmetric(matrix)
        values, vectors = np.linalg.eigh(1j * matrix)
        return -1j * values, vectors, vectors.conj().T
    values, vectors = np.linalg.eig(matrix)
    try:
        return values, vectors, np.linalg.inv(vectors)
    except np.linalg.LinAlgError:  # defective, to the last bit
        return values, vectors, np.full_like(vectors, np.inf)


def _antisymmetric(matrix: AnyArray) -> tuple[AnyArray, AnyArray, AnyArray]:
    """The eigenvectors of a real antisymmetric matrix, by its real Schur form.

    ``B = Q T Q^T``, where but for rounding T holds zeros and the blocks ``[[0, b], [-b, 0]]``, so
    that ``q_k +- i q_k+1`` go with ``+- i b``. A Hermitian solver for ``i B`` would mix the two
    vectors of a pair with small b, and all those of the null space, and tell by rounding only
    which of them belong together.
    """
    t, q = scipy.linalg.schur(matrix, output="real")
    first = np.flatnonzero(np.diagonal(t, -1))
    b = 0.5 * (t[first, first + 1] - t[first + 1, first])
    values, vectors = np.zeros(len(t), dtype=np.complex128), q.astype(np.complex128)
    values[first], values[first + 1] = 1j * b, -1j * b
    pair = (q[:, first] + 1j * q[:, first + 1]) / np.sqrt(2)
    vectors[:, first], vectors[:, first + 1] = pair, pair.conj()
    return values, vectors, vectors.conj().T
