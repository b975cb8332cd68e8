"""The readable definition of every primitive, and the oracle for all other backends.

Takes: a `Plan`.
Gives: `NumpyBackend`. A state is a plain array (n, d, d, M).
Next file: `backends/native.py`, the same in fused C++ kernels.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from heomdask.backends.traits import BackendBase, BackendInfo, Compiled, Selection, Weight
from heomdask.plan import AnyArray, Operator, Plan, Scalars, Term


@dataclass(frozen=True, eq=False)
class NumpyCompiled:
    plan: Plan
    dtype: np.dtype[Any]

    @property
    def nbytes(self) -> int:
        return self.plan.nbytes


def state_dtype(plan: Plan, precision: str) -> np.dtype[Any]:
    """float64 or float32 for a real plan, complex128 or complex64 for a complex one."""
    if precision not in ("float64", "float32"):
        raise ValueError(f"`dtype` must be 'float64' or 'float32', got {precision!r}")
    if plan.form == "real":
        return np.dtype(precision)
    return np.dtype("complex128" if precision == "float64" else "complex64")


def weighted(weight: Weight, array: AnyArray) -> AnyArray:
    """``weight * array`` along the last (member) axis; a weight of 0 gives 0 even of NaN."""
    w = np.asarray(weight)
    result: AnyArray = np.where(w == 0, np.zeros((), array.dtype), (w * array).astype(array.dtype))
    return result


def product(op: Operator, x: AnyArray, side: str) -> AnyArray:
    """``L x`` or ``x R`` for a state (n, d, d, M)."""
    per_member = len(op.array) > 1
    rule = {
        ("left", True): "mij,njkm->nikm",
        ("left", False): "ij,njkm->nikm",
        ("right", True): "nijm,mjk->nikm",
        ("right", False): "nijm,jk->nikm",
    }[side, per_member]
    array = (op.array if per_member else op.array[0]).astype(x.dtype)
    result: AnyArray = np.einsum(rule, *((array, x) if side == "left" else (x, array)))
    return result


class NumpyBackend(BackendBase):
    """Plain numpy, term by term, as `plan.py` writes the generator."""

    def __init__(self, threads: int | None = None) -> None:
        del threads  # numpy's own threads are not ours to set

    @property
    def info(self) -> BackendInfo:
        return BackendInfo("numpy", "cpu", "numpy", ("float64", "float32"), 1, True)

    def compile(self, plan: Plan, dtype: str = "float64") -> NumpyCompiled:
        return NumpyCompiled(plan, state_dtype(plan, dtype))

    def empty(self, compiled: Compiled) -> AnyArray:
        p = compiled.plan
        return np.zeros((p.n_cols, p.d, p.d, p.n_members), dtype=compiled.dtype)

    def put(self, compiled: Compiled, host: AnyArray) -> AnyArray:
        x = self.empty(compiled)
        x[...] = host[..., None] if host.ndim == 3 else host
        return x

    def fetch(self, compiled: Compiled, x: AnyArray) -> AnyArray:
        return x.copy()

    def apply(
        self,
        compiled: Compiled,
        x: AnyArray,
        out: AnyArray,
        *,
        a: Weight = 1.0,
        b: Weight = 0.0,
        c: Weight = 0.0,
        acc: AnyArray | None = None,
        w: Weight = 0.0,
        scalars: Scalars | None = None,
        rows: tuple[int, int] | None = None,
    ) -> None:
        plan = compiled.plan
        start, stop = (0, plan.n_rows) if rows is None else rows
        names = plan.named(scalars)
        image = np.zeros((plan.n_rows, plan.d, plan.d, plan.n_members), dtype=compiled.dtype)
        for term in plan.terms:
            image += self._term(plan, term, x, names)
        mine = slice(start, stop)
        out[mine] = (
            weighted(a, image[mine]) + weighted(b, x[mine]) + weighted(c, out[mine])
        )
        if acc is not None:
            acc[mine] += weighted(w, out[mine])

    def _term(
        self, plan: Plan, term: Term, x: AnyArray, names: dict[str, NDArray[np.float64]]
    ) -> AnyArray:
        y = np.zeros((plan.n_rows, *x.shape[1:]), dtype=x.dtype)
        for s in term.shifts:
            scalar = s.scalar if s.name is None else s.scalar * names[s.name]
            moved = plan.patterns[s.pattern].matrix @ x.reshape(len(x), -1)
            y += (scalar * moved.reshape(y.shape)).astype(x.dtype)
        if term.left is not None:
            y = product(term.left, y, "left")
        if term.right is not None:
            y = product(term.right, y, "right")
        return y.transpose(0, 2, 1, 3) if term.transposed else y

    def combine(
        self, compiled: Compiled, out: AnyArray, weights: Sequence[Weight], arrays: Sequence[AnyArray]
    ) -> None:
        total = np.zeros_like(out)
        for weight, array in zip(weights, arrays, strict=True):
            total += weighted(weight, array)
        out[...] = total

    def dots(self, compiled: Compiled, xs: Sequence[AnyArray], y: AnyArray) -> AnyArray:
        n = compiled.plan.n_rows
        return np.stack([np.einsum("nijm,nijm->m", np.conj(x[:n]), y[:n]) for x in xs])

    def error_norm(
        self,
        compiled: Compiled,
        error: AnyArray,
        x: AnyArray,
        y: AnyArray,
        atol: float,
        rtol: float,
    ) -> NDArray[np.float64]:
        n = compiled.plan.n_rows
        scale = atol + rtol * np.maximum(np.abs(x[:n]), np.abs(y[:n]))
        return np.asarray(np.max(np.abs(error[:n]) / scale, axis=(0, 1, 2)), dtype=np.float64)

    def pack(self, compiled: Compiled, x: AnyArray, selection: Selection) -> AnyArray:
        return x[selection.ado, selection.row, selection.col]

    def unpack(
        self, compiled: Compiled, buffer: AnyArray, selection: Selection, x: AnyArray
    ) -> None:
        x[selection.ado, selection.row, selection.col] = buffer

    def solve_local(
        self, compiled: Compiled, sigma: Weight, x: AnyArray, out: AnyArray
    ) -> None:
        plan = compiled.plan
        d2 = plan.d * plan.d
        for m in range(plan.n_members):
            shift = np.broadcast_to(np.asarray(sigma), (plan.n_members,))[m]
            blocks = local_blocks(plan, m) - shift * np.eye(d2)
            solved = np.linalg.solve(blocks, x[: plan.n_rows, ..., m].reshape(-1, d2, 1))
            out[: plan.n_rows, ..., m] = solved.reshape(plan.n_rows, plan.d, plan.d)


def local_blocks(plan: Plan, member: int) -> AnyArray:
    """B_n for every ADO of one member: (n_rows, d^2, d^2)."""
    d = plan.d
    blocks = np.zeros((plan.n_rows, d * d, d * d), dtype=plan.dtype)
    swap = np.arange(d * d).reshape(d, d).T.ravel()
    for term in plan.terms:
        diagonal = np.zeros(plan.n_rows, dtype=plan.dtype)
        for s in term.shifts:
            if s.name is None:
                value = s.scalar[member if len(s.scalar) > 1 else 0]
                diagonal = diagonal + value * plan.patterns[s.pattern].matrix.diagonal()
        left = np.eye(d) if term.left is None else term.left.of(member)
        right = np.eye(d) if term.right is None else term.right.of(member)
        small = np.kron(left, right.T)
        blocks = blocks + diagonal[:, None, None] * (small[swap] if term.transposed else small)
    return blocks
