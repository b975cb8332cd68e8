"""The readable definition of `apply`, and the oracle for all other backends.

Takes: a `Plan`.
Gives: `NumpyBackend`; all that needs no generator is that of `backends/host.py`.
Next file: `backends/mkl.py`, the same with assembled matrices.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from heomdask.backends.host import HostBackend, numbers, weighted
from heomdask.backends.traits import BackendInfo, Compiled, Weight, state_dtype
from heomdask.plan import AnyArray, Plan, Scalars, Term


@dataclass(frozen=True, eq=False)
class NumpyCompiled:
    """A plan and a precision: there is nothing to prepare."""

    plan: Plan
    dtype: np.dtype[Any]
    threads: int = 1

    @property
    def nbytes(self) -> int:
        return self.plan.nbytes


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


class NumpyBackend(HostBackend):
    """Plain numpy, term by term, as `plan.py` writes the generator."""

    def __init__(self, threads: int | None = None) -> None:
        del threads  # numpy's own threads are not ours to set

    @property
    def info(self) -> BackendInfo:
        return BackendInfo("numpy", "cpu", "numpy", ("float64", "float32"), 1, True)

    def compile(self, plan: Plan, dtype: str = "float64") -> NumpyCompiled:
        return NumpyCompiled(plan, state_dtype(plan, dtype))

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
