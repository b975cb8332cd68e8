"""What a backend does with a plan: one small set of primitives, none of which knows HEOM.

Takes: a `Plan`.
Gives: the protocol `BackendTraits`, its frozen `BackendInfo`, and `BackendBase` with the
    defaults that any backend may keep (`recur` as a loop over `apply`).
Next file: `backends/host.py` and `backends/numpy_.py`, the readable definition of every primitive.

Shapes. A state of M members on n ADOs is opaque outside its backend; `fetch` gives it as
(n, d, d, M) and `put` takes the same. `apply` writes the plan's rows and reads its columns.
Per-member numbers are scalars or arrays of shape (M,). A weight that is exactly 0 leaves the
member untouched by that array, whatever it holds (inf and NaN too): a member that has finished,
or exploded, is invisible to its companions.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Protocol, runtime_checkable

import numpy as np
from numpy.typing import NDArray

from heomdask import memory
from heomdask.backends.local import local_inverse
from heomdask.plan import AnyArray, Plan, Scalars

State = Any  # a backend's own array
Weight = float | complex | NDArray[Any]  # a number, or one per member

# One tolerance each, relative to max |G| |X|, for every backend and test.
APPLY_TOLERANCE = {"float64": 1e-12, "float32": 2e-6}
TRAJECTORY_TOLERANCE = {"float64": 1e-11, "float32": 1e-5}


@dataclass(frozen=True)
class BackendInfo:
    """Frozen facts about a backend as it runs here."""

    name: str
    device: str
    isa: str
    dtypes: tuple[str, ...]
    threads: int  # that it may use; of a compiled plan, those that it does use
    deterministic: bool
    notes: str = ""
    most_levels: int = sys.maxsize  # of a system


@runtime_checkable
class Compiled(Protocol):
    """A plan prepared by a backend: immutable, usable from several threads."""

    @property
    def plan(self) -> Plan: ...

    @property
    def dtype(self) -> np.dtype[Any]:
        """float64 or float32 for a real plan, complex128 or complex64 for a complex one."""
        ...

    @property
    def threads(self) -> int:
        """Threads that work on this plan: no more than `BackendInfo.threads`, which may."""
        ...

    @property
    def nbytes(self) -> int: ...


@dataclass(frozen=True)
class Selection:
    """Chosen elements of a state: `ado`, `row`, `col`, each of shape (n,)."""

    ado: NDArray[np.int64]
    row: NDArray[np.int64]
    col: NDArray[np.int64]

    def __len__(self) -> int:
        return len(self.ado)

    @classmethod
    def of(cls, pairs: Sequence[tuple[int, int, int]]) -> Selection:
        table = np.asarray(pairs, dtype=np.int64).reshape(-1, 3)
        return cls(*np.ascontiguousarray(table.T))

    @classmethod
    def whole(cls, ados: Sequence[int] | NDArray[np.int64], d: int) -> Selection:
        """Every element of the listed ADOs, ADO-major, in C order."""
        n, i, j = np.meshgrid(np.asarray(ados, np.int64), np.arange(d), np.arange(d), indexing="ij")
        return cls(n.ravel(), i.ravel().astype(np.int64), j.ravel().astype(np.int64))


class BackendTraits(Protocol):
    """The primitives. `dtype` is a precision, float64 or float32; the plan's form adds complex."""

    @property
    def info(self) -> BackendInfo: ...

    def compile(self, plan: Plan, dtype: str = "float64") -> Compiled:
        """All that can be paid once: layout, upload, analysis."""
        ...

    def columns(self, d: int, n_members: int) -> float:
        """Members that a state has room for: some backends fill up whole registers.

        It is no whole number where the rows of a single member are filled up.
        """
        ...

    def free(self) -> int:
        """Bytes that states may still take, in the memory where this backend has them."""
        ...

    def empty(self, compiled: Compiled) -> State:
        """A state over the plan's columns, zero."""
        ...

    def put(self, compiled: Compiled, host: AnyArray) -> State:
        """A new state from an array (n_cols, d, d) or (n_cols, d, d, M)."""
        ...

    def fetch(self, compiled: Compiled, x: State) -> AnyArray:
        """A host copy (n_cols, d, d, M)."""
        ...

    def apply(
        self,
        compiled: Compiled,
        x: State,
        out: State,
        *,
        a: Weight = 1.0,
        b: Weight = 0.0,
        c: Weight = 0.0,
        acc: State | None = None,
        w: Weight = 0.0,
        scalars: Scalars | None = None,
        rows: tuple[int, int] | None = None,
    ) -> None:
        """``out <- a G x + b x + c out``, then ``acc += w out``, in one pass over the rows.

        `out` is neither `x` nor `acc`. `rows` = (start, stop) limits the rows written.
        `scalars`: values of the plan's named scalars, (n_named,) or (n_named, M).
        """
        ...

    def recur(
        self,
        compiled: Compiled,
        x: State,
        coeffs: AnyArray,
        acc: State | None,
        probe: Selection,
        work: tuple[State, State],
        start: int = 0,
    ) -> tuple[AnyArray, NDArray[np.float64]]:
        """A polynomial segment: ``p_0 = x``, ``p_k = a_k G p_{k-1} + b_k p_{k-1} + c_k p_{k-2}``.

        `coeffs` is (K + 1, 4) or (K + 1, 4, M), rows (a, b, c, w); of row 0 only w counts;
        ``p_{-1} = 0``. `acc` is overwritten with ``sum_k w_k p_k``; None if only what is probed is
        wanted, which saves passes over memory. `x` is left as it was.
        `work` are two states to be overwritten.

        With `start` > 1 the polynomial goes on where an earlier call (same x, acc and work) ended:
        `coeffs` holds the rows from term `start` on, and `acc` grows by those terms. So a caller
        may look at the norms before it decides how far to go.

        Returns
        -------
        probed : (K + 1, len(probe), M), the chosen elements of every p_k of this call.
        norms : (K + 1, M), the largest absolute element of each.
        """
        ...

    def combine(
        self, compiled: Compiled, out: State, weights: Sequence[Weight], arrays: Sequence[State]
    ) -> None:
        """``out <- sum_i weights[i] arrays[i]`` in one pass; `out` may be one of `arrays`."""
        ...

    def dots(self, compiled: Compiled, xs: Sequence[State], y: State) -> AnyArray:
        """``<x_i, y>`` over owned rows, conjugating x; (len(xs), M); in a fixed order."""
        ...

    def error_norm(
        self, compiled: Compiled, error: State, x: State, y: State, atol: float, rtol: float
    ) -> NDArray[np.float64]:
        """``max |error| / (atol + rtol max(|x|, |y|))`` over owned rows, per member; (M,)."""
        ...

    def pack(self, compiled: Compiled, x: State, selection: Selection) -> Any:
        """The chosen elements, (len(selection), M), in the backend's own memory."""
        ...

    def unpack(self, compiled: Compiled, buffer: Any, selection: Selection, x: State) -> None:
        """Write them back."""
        ...

    def host(self, buffer: Any) -> AnyArray:
        """A packed buffer as a host array."""
        ...

    def solve_local(self, compiled: Compiled, sigma: Weight, x: State, out: State) -> None:
        """Per ADO, ``(B_n - sigma) out = x``, B_n the part of G that maps ADO n to itself.

        `out` may be `x`; the ADOs of a halo become 0.
        The first call with a `sigma` factorises; later ones with the same find it done.
        """
        ...

    def mark(self) -> Any:
        """A point in the queue of work; None on a CPU."""
        ...

    def wait(self, mark: Any) -> None:
        """Later work waits for `mark`."""
        ...

    def sync(self) -> None:
        """Return when all work is done; a timing without it means nothing."""
        ...


class BackendBase:
    """The defaults: `recur` as a loop over `apply`, a local solve on the host; a CPU's memory."""

    def columns(self, d: int, n_members: int) -> float:
        del d
        return n_members

    def free(self) -> int:
        return memory.available()

    def recur(
        self: BackendTraits,
        compiled: Compiled,
        x: State,
        coeffs: AnyArray,
        acc: State | None,
        probe: Selection,
        work: tuple[State, State],
        start: int = 0,
    ) -> tuple[AnyArray, NDArray[np.float64]]:
        members = compiled.plan.n_members
        table = np.broadcast_to(
            coeffs[..., None] if coeffs.ndim == 2 else coeffs, (len(coeffs), 4, members)
        )
        probed = np.empty((len(coeffs), len(probe), members), dtype=compiled.dtype)
        norms = np.empty((len(coeffs), members))
        zero = self.empty(compiled)
        odd = max(start, 1) % 2  # term k is in work[(k - 1) % 2]
        previous, current = work[1 - odd], work[odd]
        if start == 0:
            self.combine(compiled, previous, [0.0], [x])
            self.combine(compiled, current, [1.0], [x])
            if acc is not None:
                self.combine(compiled, acc, [table[0, 3]], [x])
        for k, (a, b, c, w) in enumerate(table):
            if start + k > 0:
                self.apply(compiled, current, previous, a=a, b=b, c=c, acc=acc, w=w)
                previous, current = current, previous
            probed[k] = self.host(self.pack(compiled, current, probe))
            norms[k] = self.error_norm(compiled, current, zero, zero, 1.0, 0.0)
        return probed, norms

    def solve_local(
        self: BackendTraits, compiled: Compiled, sigma: Weight, x: State, out: State
    ) -> None:
        inverse = local_inverse(compiled, compiled.plan, sigma)
        out[...] = self.put(compiled, inverse(self.fetch(compiled, x)))

    def host(self, buffer: Any) -> AnyArray:
        result: AnyArray = np.asarray(buffer)
        return result

    def mark(self) -> Any:
        return None

    def wait(self, mark: Any) -> None:
        del mark

    def sync(self) -> None:
        return None


def state_dtype(plan: Plan, precision: str) -> np.dtype[Any]:
    """float64 or float32 for a real plan, complex128 or complex64 for a complex one."""
    if precision not in ("float64", "float32"):
        raise ValueError(f"`dtype` must be 'float64' or 'float32', got {precision!r}")
    if plan.form == "real":
        return np.dtype(precision)
    return np.dtype("complex128" if precision == "float64" else "complex64")


def precision_of(compiled: Compiled) -> str:
    """float64 or float32: what `compile` was asked for."""
    return "float64" if compiled.dtype.itemsize == compiled.plan.dtype.itemsize else "float32"
