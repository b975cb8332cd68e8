"""A backend whose states are spread over parts, each with a backend of its own.

Takes: a local backend and the `Links` of this part; to compile, a `Part`.
Gives: `PartitionedBackend`: solvers use it as any other, each part its own copy of the solver.
Next file: `testing/partitioned.py`, all parts of a group behind one backend of whole plans.

A state is one of the local backend, over the rows and the halo of this part. `apply` sends what
others read, computes the interior, receives, and computes the boundary. Whatever a solver decides
on (sums, largest errors, chosen elements of any ADO) is the same number for every part, so that
all take the same steps. `put`, `fetch` and row ranges are about the columns of this part.

A halo holds what it last received, else zeros: always of the size of the state, so what is not
received does not matter. A part without rows takes part in every exchange and computes nothing.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from heomdask.backends.traits import (
    BackendBase,
    BackendInfo,
    BackendTraits,
    Compiled,
    Selection,
    State,
    Weight,
    state_dtype,
)
from heomdask.partition.coupling import support
from heomdask.partition.halo import answer, asked, reads
from heomdask.partition.links.protocol import Links
from heomdask.partition.part import Part
from heomdask.plan import AnyArray, Plan, Scalars


@dataclass(frozen=True, eq=False)
class PartCompiled:
    """A part with its messages: what goes to whom, and what comes from whom to where.

    `local` is None for a part without rows.
    """

    plan: Part
    dtype: np.dtype[Any]
    local: Compiled | None
    sends: dict[int, Selection]
    receives: dict[int, Selection]

    @property
    def threads(self) -> int:
        return 1 if self.local is None else self.local.threads

    @property
    def nbytes(self) -> int:
        chosen = [*self.sends.values(), *self.receives.values()]
        tables = sum(s.ado.nbytes + s.row.nbytes + s.col.nbytes for s in chosen)
        return tables + (0 if self.local is None else self.local.nbytes)


class PartitionedBackend(BackendBase):
    """One part's side of a partitioned solve."""

    def __init__(self, local: BackendTraits, links: Links) -> None:
        self._local = local
        self._links = links

    @property
    def info(self) -> BackendInfo:
        own = self._local.info
        return BackendInfo(
            "partitioned", own.device, own.isa, own.dtypes, own.threads, own.deterministic,
            notes=f"part {self._links.rank} of {self._links.size}, each {own.name} {own.notes}",
        )  # fmt: skip

    def compile(self, plan: Plan, dtype: str = "float64") -> PartCompiled:
        """Prepare a part; all parts compile theirs at the same time, and tell what they read."""
        if not isinstance(plan, Part):
            raise ValueError("a partitioned backend compiles a `Part`, not a whole plan")
        wanted = reads(plan, support(plan))
        nothing = np.zeros((3, 0), dtype=np.int64)
        others = [rank for rank in range(self._links.size) if rank != self._links.rank]
        requests = self._links.swap(
            {o: asked(plan, wanted[o]) if o in wanted else nothing for o in others}
        )
        return PartCompiled(
            plan,
            state_dtype(plan, dtype),
            self._local.compile(plan, dtype) if plan.n_rows else None,
            {rank: answer(plan, r) for rank, r in requests.items() if r.size},
            wanted,
        )

    def columns(self, d: int, n_members: int) -> float:
        return self._local.columns(d, n_members)

    def free(self) -> int:
        return self._local.free()

    def empty(self, compiled: Compiled) -> State:
        local = _part(compiled).local
        return None if local is None else self._local.empty(local)

    def put(self, compiled: Compiled, host: AnyArray) -> State:
        c = _part(compiled)
        if c.local is None:
            return None
        own = np.array(host)
        own[c.plan.n_rows :] = 0
        return self._local.put(c.local, own)

    def fetch(self, compiled: Compiled, x: State) -> AnyArray:
        c = _part(compiled)
        if c.local is None:
            return np.zeros((0, c.plan.d, c.plan.d, c.plan.n_members), c.dtype)
        return self._local.fetch(c.local, x)

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
        own, local = _part(compiled), self._local
        start, stop = (0, own.plan.n_rows) if rows is None else rows
        middle = min(max(start, own.plan.n_interior), stop)

        def compute(first: int, last: int) -> None:
            if own.local is not None and first < last:
                local.apply(
                    own.local, x, out, a=a, b=b, c=c, acc=acc, w=w, scalars=scalars,
                    rows=(first, last),
                )  # fmt: skip

        sends = {
            rank: local.host(local.pack(own.local, x, chosen))
            for rank, chosen in own.sends.items()
            if own.local is not None
        }
        exchange = self._links.start(sends, own.receives)
        compute(start, middle)
        for rank, buffer in self._links.finish(exchange).items():
            assert own.local is not None
            local.unpack(own.local, buffer, own.receives[rank], x)
        compute(middle, stop)

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
        """The loop over `apply`; what is probed and the norms are reduced once, at the end."""
        alone = _Alone(self._local, self._links)
        probed, norms = BackendBase.recur(alone, compiled, x, coeffs, acc, probe, work, start)
        return self._agree(probed, "sum"), self._agree(norms, "max")

    def combine(
        self, compiled: Compiled, out: State, weights: Sequence[Weight], arrays: Sequence[State]
    ) -> None:
        local = _part(compiled).local
        if local is not None:
            self._local.combine(local, out, weights, arrays)

    def dots(self, compiled: Compiled, xs: Sequence[State], y: State) -> AnyArray:
        c = _part(compiled)
        own: AnyArray = np.zeros((len(xs), c.plan.n_members), c.plan.dtype)
        if c.local is not None:
            own[...] = self._local.dots(c.local, xs, y)
        return self._agree(own, "sum")

    def error_norm(
        self, compiled: Compiled, error: State, x: State, y: State, atol: float, rtol: float
    ) -> NDArray[np.float64]:
        c = _part(compiled)
        own = np.zeros(c.plan.n_members)
        if c.local is not None:
            own = self._local.error_norm(c.local, error, x, y, atol, rtol)
        return self._agree(own, "max")

    def pack(self, compiled: Compiled, x: State, selection: Selection) -> AnyArray:
        """The chosen elements of the whole, whoever owns them, for every part."""
        c = _part(compiled)
        buffer: AnyArray = np.zeros((len(selection), c.plan.n_members), c.dtype)
        mine, chosen = _own(c.plan, selection)
        if c.local is not None:
            buffer[mine] = self._local.host(self._local.pack(c.local, x, chosen))
        return self._agree(buffer, "sum")

    def unpack(self, compiled: Compiled, buffer: AnyArray, selection: Selection, x: State) -> None:
        """Write those that this part owns."""
        c = _part(compiled)
        mine, chosen = _own(c.plan, selection)
        if c.local is not None:
            self._local.unpack(c.local, np.ascontiguousarray(buffer[mine]), chosen, x)

    def solve_local(self, compiled: Compiled, sigma: Weight, x: State, out: State) -> None:
        local = _part(compiled).local
        if local is not None:
            self._local.solve_local(local, sigma, x, out)

    def _agree(self, own: AnyArray, operation: Literal["sum", "max"]) -> AnyArray:
        """One number for all parts, of what each found in its own rows."""
        return self._links.allreduce(own, operation)

    def mark(self) -> Any:
        return self._local.mark()

    def wait(self, mark: Any) -> None:
        self._local.wait(mark)

    def sync(self) -> None:
        self._local.sync()


class _Alone(PartitionedBackend):
    """The same, but reductions and chosen elements are those of the own rows."""

    def _agree(self, own: AnyArray, operation: Literal["sum", "max"]) -> AnyArray:
        del operation
        return own


def _part(compiled: Compiled) -> PartCompiled:
    assert isinstance(compiled, PartCompiled)
    return compiled


def _own(part: Part, selection: Selection) -> tuple[NDArray[np.bool_], Selection]:
    """Which elements of the whole this part owns, and these by own row."""
    rows = part.find(selection.ado)
    mine = rows >= 0
    return mine, Selection(rows[mine], selection.row[mine], selection.col[mine])
