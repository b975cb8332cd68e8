"""Fused kernels on a GPU, compiled by NVRTC through CuPy for the plan's dimension and structure.

Takes: a `Plan`, lowered to tables by `_cuda/lower.py`.
Gives: `CupyBackend`. A state is an array (n, d, d, M) in the memory of the card, and all work goes
    through one queue, so only what returns host arrays waits.
Next file: `_cuda/apply.cu`, the generator; `_cuda/vectors.cu`, all else.

The local solve runs on the host, and a segment is the loop of `BackendBase`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from heomdask._cuda import probe
from heomdask._cuda.device import Array, Device, Macros, number_macros, occupied
from heomdask._cuda.lower import lower
from heomdask.backends.local import local_inverse
from heomdask.backends.traits import (
    BackendBase,
    BackendInfo,
    Compiled,
    Selection,
    Weight,
    state_dtype,
)
from heomdask.errors import InputError
from heomdask.plan import AnyArray, Plan, Scalars

MOST_LEVELS = 32  # what two tiles of shared memory hold in any precision
THREADS = 256  # of a block, as in the kernels
WARP = 32
SECTOR = 4  # doubles that memory gives at once
COMBINED = 8  # arrays in one pass, as in vectors.cu
LEAVES, CHUNK = 32, 2048  # of a reduction, as in vectors.cu


@dataclass(frozen=True, eq=False)
class CupyCompiled:
    """A plan with its tables on the card, in the order of the kernel's arguments."""

    plan: Plan
    dtype: np.dtype[Any]
    tables: tuple[Any, ...]
    macros: Macros  # of apply.cu
    threads: int = 1

    @property
    def nbytes(self) -> int:
        return sum(occupied(getattr(table, "nbytes", 0)) for table in self.tables)

    @property
    def state_nbytes(self) -> int:
        """Bytes of the card that a state takes."""
        p = self.plan
        return occupied(p.n_cols * p.d**2 * p.n_members * self.dtype.itemsize)

    @property
    def numbers(self) -> Macros:
        """The macros of vectors.cu."""
        return number_macros(self.dtype)

    @property
    def wide(self) -> np.dtype[Any]:
        """What weights and sums are made of."""
        return self.plan.dtype

    @property
    def length(self) -> int:
        """Elements of the rows of one member."""
        return self.plan.n_rows * self.plan.d**2

    def weights(self, weights: Sequence[Weight]) -> AnyArray:
        """Numbers, or one per member, as (n, M)."""
        table = np.empty((len(weights), self.plan.n_members), self.wide)
        for row, weight in zip(table, weights, strict=True):
            row[...] = weight
        return table


class CupyBackend(BackendBase):
    """One card and one queue of work; `api` is CuPy, or what a test gives in its place."""

    def __init__(self, threads: int | None = None, api: Any = None) -> None:
        del threads  # one queue of work, whoever fills it
        self._device = Device(probe.load() if api is None else api)

    @property
    def info(self) -> BackendInfo:
        return BackendInfo(
            "cupy", self._device.name, self._device.capability, ("float64", "float32"), 1, True,
            most_levels=MOST_LEVELS,
        )  # fmt: skip

    def free(self) -> int:
        return self._device.free

    def compile(self, plan: Plan, dtype: str = "float64") -> CupyCompiled:
        full = state_dtype(plan, dtype)
        if plan.d > MOST_LEVELS:
            raise InputError(
                f"backend='cupy' serves systems of at most {MOST_LEVELS} levels, not {plan.d}; "
                "use backend='native'"
            )
        x = lower(plan)
        rates = None if x.rates is None else x.rates.astype(full)
        hosts = (x.start, x.links, rates, x.table.astype(full), x.names, x.terms)
        start, links, of_ados, table, names, terms = (
            None if host is None else self._device.upload(host) for host in hosts
        )
        tables = (
            start, links, of_ados, 0 if rates is None else rates.shape[1], table, names, terms,
            len(x.terms), plan.n_members,
        )  # fmt: skip
        structure = (
            ("HD_LEVELS", plan.d), ("HD_MIXES", int(x.mixes)), ("HD_NAMED", int(bool(plan.names))),
        )  # fmt: skip
        return CupyCompiled(plan, full, tables, (*number_macros(full), *structure))

    def empty(self, compiled: Compiled) -> Array:
        p = compiled.plan
        return self._device.zeros((p.n_cols, p.d, p.d, p.n_members), compiled.dtype)

    def put(self, compiled: Compiled, host: AnyArray) -> Array:
        p = compiled.plan
        full = np.empty((p.n_cols, p.d, p.d, p.n_members), compiled.dtype)
        full[...] = host[..., None] if host.ndim == 3 else host
        return self._device.upload(full)

    def fetch(self, compiled: Compiled, x: Array) -> AnyArray:
        return self._device.download(x)

    def apply(
        self,
        compiled: Compiled,
        x: Array,
        out: Array,
        *,
        a: Weight = 1.0,
        b: Weight = 0.0,
        c: Weight = 0.0,
        acc: Array | None = None,
        w: Weight = 0.0,
        scalars: Scalars | None = None,
        rows: tuple[int, int] | None = None,
    ) -> None:
        own, plan = _cupy(compiled), compiled.plan
        start, stop = (0, plan.n_rows) if rows is None else rows
        named = None
        if plan.names:
            values = np.empty((len(plan.names), plan.n_members))
            for row, value in zip(values, plan.named(scalars).values(), strict=True):
                row[...] = value
            named = self._device.upload(values)
        weights = self._device.upload(own.weights((a, b, c, w)))
        ados, lanes = block_shape(plan.d, plan.n_members)
        blocks = -(-(stop - start) // ados) * -(-plan.n_members // lanes)
        used = min(ados * lanes * plan.d**2, THREADS)
        wide = acc is not None and acc.dtype != own.dtype
        self._device.launch(
            "apply", "apply", (*own.macros, ("HD_WIDE_SUM", int(wide))),
            blocks, -(-used // WARP) * WARP,
            x, out, acc, weights, named, *own.tables, start, stop, ados, lanes,
        )  # fmt: skip

    def combine(
        self, compiled: Compiled, out: Array, weights: Sequence[Weight], arrays: Sequence[Array]
    ) -> None:
        own = _cupy(compiled)
        terms = sorted(zip(weights, arrays, strict=True), key=lambda term: term[1] is not out)
        for first in range(0, max(len(terms), 1), COMBINED - 1):  # `out` is overwritten: first
            chunk = terms[first : first + COMBINED - 1]
            if first > 0:
                chunk = [(1.0, out), *chunk]
            given = [x for _, x in chunk] + [None] * (COMBINED - len(chunk))
            table = self._device.upload(own.weights([w for w, _ in chunk]))
            length = len(out) * own.plan.d**2
            self._each(own, "combine", length, out, *given, table, len(chunk), length)

    def dots(self, compiled: Compiled, xs: Sequence[Array], y: Array) -> AnyArray:
        own, members = _cupy(compiled), compiled.plan.n_members
        columns, chunks = len(xs) * members, -(-own.length // CHUNK)
        sums = self._device.empty((chunks, columns), own.wide)
        for k, x in enumerate(xs):
            lanes, blocks, threads = _reduction(own.length, members)
            self._device.launch(
                "vectors", "dot", own.numbers, blocks, threads,
                x, y, sums, own.length, members, lanes, columns, k * members,
            )  # fmt: skip
        return self._fold(own, "add_up", sums).reshape(len(xs), members)

    def error_norm(
        self, compiled: Compiled, error: Array, x: Array, y: Array, atol: float, rtol: float
    ) -> NDArray[np.float64]:
        own, members = _cupy(compiled), compiled.plan.n_members
        lanes, blocks, threads = _reduction(own.length, members)
        peaks = self._device.empty((-(-own.length // CHUNK), members), np.float64)
        self._device.launch(
            "vectors", "largest", own.numbers, blocks, threads,
            error, x, y, peaks, float(atol), float(rtol), own.length, members, lanes,
        )  # fmt: skip
        return self._fold(own, "top", peaks)

    def pack(self, compiled: Compiled, x: Array, selection: Selection) -> Array:
        own = _cupy(compiled)
        buffer = self._device.empty((len(selection), own.plan.n_members), own.dtype)
        chosen = self._device.upload(_elements(own.plan, selection))
        self._each(own, "gather", len(selection), x, chosen, buffer, len(selection))
        return buffer

    def unpack(self, compiled: Compiled, buffer: Any, selection: Selection, x: Array) -> None:
        """From a packed buffer, or from a host array, which is uploaded first."""
        own = _cupy(compiled)
        if not self._device.is_on_card(buffer):
            full = np.empty((len(selection), own.plan.n_members), own.dtype)
            full[...] = buffer
            buffer = self._device.upload(full)
        chosen = self._device.upload(_elements(own.plan, selection))
        self._each(own, "scatter", len(selection), x, chosen, buffer, len(selection))

    def host(self, buffer: Array) -> AnyArray:
        return self._device.download(buffer)

    def solve_local(self, compiled: Compiled, sigma: Weight, x: Array, out: Array) -> None:
        inverse = local_inverse(compiled, compiled.plan, sigma)
        self._device.upload(inverse(self._device.download(x)), onto=out)

    def mark(self) -> Any:
        return self._device.record()

    def wait(self, mark: Any) -> None:
        self._device.wait(mark)

    def sync(self) -> None:
        self._device.synchronize()

    def _each(self, own: CupyCompiled, name: str, length: int, *arguments: Any) -> None:
        """A kernel with one thread for each element of each member, of which it is told last."""
        members = own.plan.n_members
        self._device.launch(
            "vectors", name, own.numbers, -(-length * members // THREADS), THREADS,
            *arguments, members,
        )  # fmt: skip

    def _fold(self, own: CupyCompiled, name: str, parts: Array) -> AnyArray:
        """The reductions of chunks reduced to one number per column, on the host."""
        while len(parts) > 1:
            length, columns = parts.shape
            lanes, blocks, threads = _reduction(length, columns)
            whole = self._device.empty((-(-length // CHUNK), columns), parts.dtype)
            self._device.launch(
                "vectors", name, own.numbers, blocks, threads, parts, whole, length, columns, lanes
            )
            parts = whole
        total: AnyArray = self._device.download(parts)[0]
        return total


def block_shape(d: int, members: int) -> tuple[int, int]:
    """ADOs and members of a block; whole sectors of members, where there are so many."""
    room = max(THREADS // d**2, 1)
    lanes = min(members, room)
    if SECTOR <= lanes < members:
        lanes -= lanes % SECTOR
    return room // lanes, lanes


def _reduction(length: int, columns: int) -> tuple[int, int, int]:
    """Columns side by side, blocks and threads."""
    lanes = min(columns, THREADS // LEAVES)
    return lanes, -(-length // CHUNK) * -(-columns // lanes), LEAVES * lanes


def _elements(plan: Plan, s: Selection) -> NDArray[np.int64]:
    """The places of chosen elements in the state of one member."""
    return np.ascontiguousarray((s.ado * plan.d + s.row) * plan.d + s.col, dtype=np.int64)


def _cupy(compiled: Compiled) -> CupyCompiled:
    assert isinstance(compiled, CupyCompiled)
    return compiled
