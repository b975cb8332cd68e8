"""The readable definition of every primitive, and the oracle for all other backends.

Takes: a `Plan`.
Gives: `NumpyBackend`. A state is a plain array (M, n, d, d): each member is computed by itself,
    so its bits cannot depend on its companions.
Next file: `backends/native.py`, the same in fused C++ kernels.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from heomdask.backends.traits import (
    BackendBase,
    BackendInfo,
    Compiled,
    Selection,
    Weight,
    state_dtype,
)
from heomdask.plan import AnyArray, Plan, Scalars, Term


@dataclass(frozen=True, eq=False)
class NumpyCompiled:
    """A plan and a precision: there is nothing to prepare."""

    plan: Plan
    dtype: np.dtype[Any]

    @property
    def nbytes(self) -> int:
        return self.plan.nbytes


def numbers(weight: Weight, members: int) -> list[Any]:
    """A weight as one Python number per member."""
    listed: list[Any] = np.broadcast_to(np.asarray(weight), (members,)).tolist()
    return listed


def weighted(weight: Any, array: AnyArray) -> AnyArray:
    """``weight * array`` of one member; a weight of 0 gives 0 even of NaN."""
    return np.zeros_like(array) if weight == 0 else weight * array


def image(plan: Plan, m: int, x: AnyArray, names: Mapping[str, NDArray[np.float64]]) -> AnyArray:
    """``G x`` of one member, term by term; x is (n_cols, d, d)."""
    total = np.zeros((plan.n_rows, plan.d, plan.d), dtype=x.dtype)
    for term in plan.terms:
        y = mixed(plan, term, m, x, names)
        if term.left is not None:
            y = term.left.of(m).astype(x.dtype, copy=False) @ y
        if term.right is not None:
            y = y @ term.right.of(m).astype(x.dtype, copy=False)
        total += y.transpose(0, 2, 1) if term.transposed else y
    return total


def mixed(
    plan: Plan, term: Term, m: int, x: AnyArray, names: Mapping[str, NDArray[np.float64]]
) -> AnyArray:
    """The sum over the shifts of a term, ``sum_k s_k A_k x``, of one member."""
    total = np.zeros((plan.n_rows, plan.d, plan.d), dtype=x.dtype)
    flat = x.reshape(len(x), -1)
    for shift in term.shifts:
        value = shift.value(m, names)
        moved = (plan.patterns[shift.pattern].matrix @ flat).astype(x.dtype, copy=False)
        total += (value.real if plan.form == "real" else value) * moved.reshape(total.shape)
    return total


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
        return np.zeros((p.n_members, p.n_cols, p.d, p.d), dtype=compiled.dtype)

    def put(self, compiled: Compiled, host: AnyArray) -> AnyArray:
        x = self.empty(compiled)
        x[...] = host if host.ndim == 3 else np.moveaxis(host, -1, 0)
        return x

    def fetch(self, compiled: Compiled, x: AnyArray) -> AnyArray:
        return np.moveaxis(x, 0, -1).copy()

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
        names = plan.named(scalars)
        mine = slice(*((0, plan.n_rows) if rows is None else rows))
        weights = zip(*(numbers(v, plan.n_members) for v in (a, b, c, w)), strict=True)
        with np.errstate(all="ignore"):  # a member that exploded is the sentinel's affair
            for m, (am, bm, cm, wm) in enumerate(weights):
                new = weighted(bm, x[m, mine]) + weighted(cm, out[m, mine])
                if am != 0:
                    new += am * image(plan, m, x[m], names)[mine]
                out[m, mine] = new
                if acc is not None:
                    acc[m, mine] += weighted(wm, new.astype(acc.dtype))

    def combine(
        self,
        compiled: Compiled,
        out: AnyArray,
        weights: Sequence[Weight],
        arrays: Sequence[AnyArray],
    ) -> None:
        total = np.zeros_like(out)
        with np.errstate(all="ignore"):
            for weight, array in zip(weights, arrays, strict=True):
                for m, number in enumerate(numbers(weight, len(out))):
                    total[m] += weighted(number, array[m])
        out[...] = total

    def dots(self, compiled: Compiled, xs: Sequence[AnyArray], y: AnyArray) -> AnyArray:
        n = compiled.plan.n_rows
        result: AnyArray = np.array(
            [[np.sum(np.conj(xm[:n]) * ym[:n]) for xm, ym in zip(x, y, strict=True)] for x in xs]
        )
        return result

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
        with np.errstate(all="ignore"):
            scale = atol + rtol * np.maximum(np.abs(x[:, :n]), np.abs(y[:, :n]))
            worst = np.max(np.abs(error[:, :n]) / scale, axis=(1, 2, 3))
        return np.asarray(worst, dtype=np.float64)

    def pack(self, compiled: Compiled, x: AnyArray, selection: Selection) -> AnyArray:
        return x[:, selection.ado, selection.row, selection.col].T.copy()

    def unpack(
        self, compiled: Compiled, buffer: AnyArray, selection: Selection, x: AnyArray
    ) -> None:
        x[:, selection.ado, selection.row, selection.col] = buffer.T
