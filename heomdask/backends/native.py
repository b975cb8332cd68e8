"""Fused C++ kernels with OpenMP: batches of members, and single systems.

Takes: a `Plan`, lowered to tables by `_native/lower.py`.
Gives: `NativeBackend`. A state is a flat array in the kernels' own layout.
Next file: `_native/src/engine.hpp`, what the calls below arrive at.
"""

from __future__ import annotations

import functools
import weakref
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from heomdask import checks, topology
from heomdask._native import _core
from heomdask._native.lower import lower
from heomdask.backends.host import aligned, untouched
from heomdask.backends.local import LocalInverse, Shifted, local_inverse
from heomdask.backends.traits import (
    BackendBase,
    BackendInfo,
    Compiled,
    Selection,
    State,
    Weight,
    state_dtype,
)
from heomdask.errors import BackendUnavailable
from heomdask.plan import AnyArray, Plan, Scalars
from heomdask.topology import Topology

Engine = _core.Engine64 | _core.Engine32
Triad = tuple[NDArray[np.float64], NDArray[np.float64], NDArray[np.float64]]
LANES = {"generic": 2, "avx2": 4, "avx512": 8}  # doubles of a register: members side by side
ROW = 4  # doubles that the kernels for one system read at once
CACHE_LINE = 8  # doubles
MOST_COMBINED = 32  # arrays that the kernel takes in one pass
THREAD_BYTES = 131_072  # of a state: what one thread works through while others would start
NEW_BYTES = 33_554_432  # of a state: each thread first writes to its own part, and has it near
_local_solves: weakref.WeakKeyDictionary[LocalInverse, _core.LocalSolve | None]
_local_solves = weakref.WeakKeyDictionary()


@dataclass(frozen=True, eq=False)
class NativeCompiled:
    """A plan with its engine and its threads; `real` is the type that states are made of."""

    plan: Plan
    dtype: np.dtype[Any]
    real: np.dtype[Any]
    engine: Any
    threads: int
    backend: NativeBackend

    @property
    def nbytes(self) -> int:
        return int(self.engine.nbytes)

    @functools.cached_property
    def wide(self) -> NativeCompiled:
        """The same plan in double precision, for accumulators wider than the state."""
        return self.backend.compile(self.plan, "float64")

    def weights(self, *weights: Weight) -> NDArray[np.float64]:
        """Numbers, or one per member, as (n, M, planes) doubles."""
        scalar = np.complex128 if self.plan.form == "complex" else np.float64
        table = np.empty((len(weights), self.plan.n_members), dtype=scalar)
        for i, weight in enumerate(weights):
            table[i] = weight
        return table.view(np.float64)


class NativeBackend(BackendBase):
    """Compiled kernels; `layout="batch"` gives a member the same bits whatever its companions."""

    def __init__(
        self,
        threads: int | None = None,
        isa: str | None = None,
        layout: Literal["auto", "batch"] = "auto",
    ) -> None:
        checks.choice("layout", layout, ("auto", "batch"))
        if threads is not None:
            checks.whole_number("threads", threads, low=1)
        self._threads = threads or len(topology.allowed())
        self._isa = _choose_isa(isa)
        self._layout = layout

    @property
    def info(self) -> BackendInfo:
        return BackendInfo(
            "native", "cpu", self._isa, ("float64", "float32"), self._threads, True,
            notes=f"layout {self._layout}",
        )  # fmt: skip

    def compile(self, plan: Plan, dtype: str = "float64") -> NativeCompiled:
        full = state_dtype(plan, dtype)
        double = dtype == "float64"
        x = lower(plan)
        kind = _core.Engine64 if double else _core.Engine32
        threads = self._threads_for(plan)
        places = Topology.read().team(threads, _core.current_cpu()) if threads > 1 else ()
        engine = kind(
            x.shape, self._isa, threads, self._single(plan, double), places, x.table,
            x.diagonal, x.local, x.has_local, x.crossings, x.groups, x.named, x.named_diagonal,
        )  # fmt: skip
        return NativeCompiled(plan, full, np.dtype(dtype), engine, threads, self)

    def _threads_for(self, plan: Plan) -> int:
        """As many threads as have something to do: with less, they only wait for each other."""
        share = plan.state_nbytes // THREAD_BYTES
        return max(1, min(self._threads, share))

    def columns(self, d: int, n_members: int) -> float:
        if self._alone(n_members):
            return 1 if d == 2 else -(-d // ROW) * ROW / d  # a row, filled up; (2, 2) is one
        lanes = CACHE_LINE if d <= 2 else LANES[self._isa]
        return -(-n_members // lanes) * lanes

    def _single(self, plan: Plan, double: bool) -> bool:
        """Whether the kernels for one system, vectorised inside the ADO, are to be used."""
        return self._alone(plan.n_members) and double

    def _alone(self, n_members: int) -> bool:
        return self._layout == "auto" and n_members == 1

    def empty(self, compiled: Compiled) -> State:
        c = _native(compiled)
        shape = (c.engine.state_size,)
        if c.threads == 1 or shape[0] * c.real.itemsize < NEW_BYTES:
            return aligned(shape, c.real)
        x = untouched(shape, c.real)
        c.engine.clear(x)
        return x

    def put(self, compiled: Compiled, host: AnyArray) -> State:
        c, p = _native(compiled), compiled.plan
        full = np.empty((p.n_cols, p.d, p.d, p.n_members), dtype=c.dtype)
        full[...] = host[..., None] if host.ndim == 3 else host
        x = self.empty(c)
        c.engine.put(full.view(c.real), x)
        return x

    def fetch(self, compiled: Compiled, x: State) -> AnyArray:
        c, p = _native(compiled), compiled.plan
        host = np.empty((p.n_cols, p.d, p.d, p.n_members), dtype=c.dtype)
        c.engine.fetch(x, host.view(c.real))
        return host

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
        own, plan = _native(compiled), compiled.plan
        start, stop = (0, plan.n_rows) if rows is None else rows
        factors = None
        if plan.names:
            factors = np.empty((len(plan.names), plan.n_members))
            for row, value in zip(factors, plan.named(scalars).values(), strict=True):
                row[...] = value
        narrow = acc is None or acc.dtype == own.real
        weights = own.weights(a, b, c, 0.0, w)
        own.engine.apply(x, out, acc if narrow else None, weights, factors, start, stop)
        if not narrow:
            self._accumulate_wide(own, out, acc, w, slice(start, stop))

    def _accumulate_wide(
        self, own: NativeCompiled, out: State, acc: State, w: Weight, rows: slice
    ) -> None:
        """``acc += w out`` on the rows, for an accumulator in double precision."""
        step = self.fetch(own, out).astype(own.wide.dtype)
        mine = np.zeros_like(step)
        mine[rows] = step[rows]
        self.combine(own.wide, acc, [1.0, w], [acc, self.put(own.wide, mine)])

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
        c, members = _native(compiled), compiled.plan.n_members
        if compiled.plan.names:
            raise ValueError("a segment needs a generator without named scalars")
        scalar = np.complex128 if compiled.plan.form == "complex" else np.float64
        table = np.empty((len(coeffs), 4, members), dtype=scalar)
        table[...] = coeffs[..., None] if coeffs.ndim == 2 else coeffs
        probed = np.empty((len(coeffs), len(probe), members), dtype=c.dtype)
        norms = np.empty((len(coeffs), members))
        c.engine.recur(
            x, acc, *work, table.view(np.float64), start, *_elements(probe), probed.view(c.real),
            norms,
        )  # fmt: skip
        return probed, norms

    def combine(
        self, compiled: Compiled, out: State, weights: Sequence[Weight], arrays: Sequence[State]
    ) -> None:
        c = _native(compiled)
        terms = sorted(zip(weights, arrays, strict=True), key=lambda term: term[1] is not out)
        for first in range(
            0, len(terms), MOST_COMBINED - 1
        ):  # `out` is overwritten: it comes first
            chunk = terms[first : first + MOST_COMBINED - 1]
            if first > 0:
                chunk = [(1.0, out), *chunk]
            c.engine.combine(out, [x for _, x in chunk], c.weights(*(w for w, _ in chunk)))

    def dots(self, compiled: Compiled, xs: Sequence[State], y: State) -> AnyArray:
        c = _native(compiled)
        result = c.weights(*[0.0] * len(xs))
        c.engine.dots(list(xs), y, result)
        return result.view(np.complex128) if compiled.plan.form == "complex" else result

    def solve_local(self, compiled: Compiled, sigma: Weight, x: State, out: State) -> None:
        c = _native(compiled)
        lowered = lower_local(local_inverse(c, c.plan, sigma), self._isa)
        if lowered is None:
            super().solve_local(compiled, sigma, x, out)
        else:
            c.engine.solve_local(lowered, x, out)

    def error_norm(
        self, compiled: Compiled, error: State, x: State, y: State, atol: float, rtol: float
    ) -> NDArray[np.float64]:
        result = np.empty(compiled.plan.n_members)
        _native(compiled).engine.error_norm(error, x, y, atol, rtol, result)
        return result

    def pack(self, compiled: Compiled, x: State, selection: Selection) -> AnyArray:
        c = _native(compiled)
        buffer = np.empty((len(selection), c.plan.n_members), dtype=c.dtype)
        c.engine.pack(x, *_elements(selection), buffer.view(c.real))
        return buffer

    def unpack(self, compiled: Compiled, buffer: AnyArray, selection: Selection, x: State) -> None:
        c = _native(compiled)
        full = np.ascontiguousarray(buffer, dtype=c.dtype)
        c.engine.unpack(full.view(c.real), *_elements(selection), x)

    def multiply_adds(self, precision: str, rounds: int) -> float:
        """Do nothing but multiply-adds in registers, on all threads; how many operations."""
        single = np.dtype(precision) == np.float32
        return _core.multiply_adds(self._isa, single, self._threads, rounds)

    def triad_arrays(self, size: int) -> Triad:
        """Three arrays for `triads`, in memory near the threads that will work on them."""
        size = -(-size // CACHE_LINE) * CACHE_LINE
        a, b, c = (aligned((size,), np.dtype(np.float64)) for _ in range(3))
        for turned in ((a, b, c), (b, c, a), (c, a, b)):
            self.triads(turned, 1)  # who writes first has it near
        return a, b, c

    def triads(self, arrays: Triad, repeats: int) -> None:
        """``a = b + s c``, on all threads; a, b and c from `triad_arrays`."""
        _core.triads(self._isa, self._threads, *arrays, repeats)


def _native(compiled: Compiled) -> NativeCompiled:
    assert isinstance(compiled, NativeCompiled)
    return compiled


def lower_local(inverse: LocalInverse, isa: str) -> _core.LocalSolve | None:
    """For the kernels, if one basis serves all ADOs of every member; kept beside the original."""
    if inverse not in _local_solves:
        bases = [
            (own.into, own.back, _parts(own.values), _parts(own.shifts))
            for own in inverse.members
            if isinstance(own, Shifted)
        ]
        whole = len(bases) == len(inverse.members)
        _local_solves[inverse] = _core.LocalSolve(isa, bases) if whole else None
    return _local_solves[inverse]


def _parts(numbers: NDArray[np.complex128]) -> NDArray[np.float64]:
    return numbers.view(np.float64).reshape(-1, 2)


def _elements(s: Selection) -> tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.int64]]:
    ado, row, col = (np.ascontiguousarray(a, dtype=np.int64) for a in (s.ado, s.row, s.col))
    return ado, row, col


def _choose_isa(isa: str | None) -> str:
    """The widest instruction set that runs here, or the one asked for."""
    known = dict(_core.instruction_sets())
    if isa is None:
        return next(name for name, runs in known.items() if runs)
    checks.choice("isa", isa, tuple(known))
    if not known[isa]:
        usable = [name for name, runs in known.items() if runs]
        raise BackendUnavailable(
            f"The instruction set {isa!r} cannot run on this processor; use one of {usable}."
        )
    return isa
