"""All parts of a partition behind one backend of whole plans, so that any test can use it.

Takes: a local backend for each part, and who owns which of n ADOs.
Gives: `Together`, a backend; every call runs on all parts at once, each in a thread.
Next file: `testing/conformance.py`, which it passes.

What the parts decide on must be the same for all, to the last bit: every call checks it.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from heomdask.backends.traits import (
    BackendInfo,
    BackendTraits,
    Compiled,
    Selection,
    Weight,
)
from heomdask.partition.backend import PartCompiled, PartitionedBackend
from heomdask.partition.links.in_process import in_process, together
from heomdask.partition.part import part_of
from heomdask.plan import AnyArray, Plan, Scalars

States = list[Any]  # one state for each part


@dataclass(frozen=True, eq=False)
class TogetherCompiled:
    """A whole plan, and its parts."""

    plan: Plan
    parts: list[PartCompiled]

    @property
    def dtype(self) -> np.dtype[Any]:
        return self.parts[0].dtype

    @property
    def threads(self) -> int:
        return max(part.threads for part in self.parts)

    @property
    def nbytes(self) -> int:
        return sum(part.nbytes for part in self.parts)


class Together:
    """One backend made of the parts of a group; one call at a time."""

    def __init__(
        self, locals_: Sequence[BackendTraits], owner: Callable[[int], NDArray[np.int64]]
    ) -> None:
        self._owner = owner
        self._links = in_process(len(locals_))
        self._parts = [
            PartitionedBackend(local, links)
            for local, links in zip(locals_, self._links, strict=True)
        ]
        self._lock = threading.Lock()

    def _all(self, run: Callable[[PartitionedBackend, int], Any]) -> list[Any]:
        with self._lock:
            return together(self._links, lambda rank: run(self._parts[rank], rank))

    def _same(self, run: Callable[[PartitionedBackend, int], Any]) -> Any:
        """What all parts agree on."""
        first, *others = self._all(run)
        for other in others:
            pairs = zip(first, other, strict=True) if isinstance(first, tuple) else [(first, other)]
            assert all(np.array_equal(one, two, equal_nan=True) for one, two in pairs)
        return first

    @property
    def info(self) -> BackendInfo:
        return self._parts[0].info

    def compile(self, plan: Plan, dtype: str = "float64") -> TogetherCompiled:
        owner = self._owner(plan.n_rows)
        parts = self._all(lambda be, rank: be.compile(part_of(plan, owner, rank), dtype))
        return TogetherCompiled(plan, parts)

    def columns(self, d: int, n_members: int) -> float:
        return self._parts[0].columns(d, n_members)

    def free(self) -> int:
        return min(part.free() for part in self._parts)

    def empty(self, compiled: Compiled) -> States:
        c = _whole(compiled)
        return self._all(lambda be, rank: be.empty(c.parts[rank]))

    def put(self, compiled: Compiled, host: AnyArray) -> States:
        c = _whole(compiled)
        return self._all(lambda be, rank: be.put(c.parts[rank], host[c.parts[rank].plan.columns]))

    def fetch(self, compiled: Compiled, x: States) -> AnyArray:
        c = _whole(compiled)
        host = np.zeros((c.plan.n_rows, c.plan.d, c.plan.d, c.plan.n_members), c.dtype)
        fetched = self._all(lambda be, rank: be.fetch(c.parts[rank], x[rank]))
        for part, own in zip(c.parts, fetched, strict=True):
            host[part.plan.columns[: part.plan.n_rows]] = own[: part.plan.n_rows]
        return host

    def apply(
        self,
        compiled: Compiled,
        x: States,
        out: States,
        *,
        a: Weight = 1.0,
        b: Weight = 0.0,
        c: Weight = 0.0,
        acc: States | None = None,
        w: Weight = 0.0,
        scalars: Scalars | None = None,
        rows: tuple[int, int] | None = None,
    ) -> None:
        whole = _whole(compiled)
        ranges = [_ranges(part, rows) for part in whole.parts]
        most = max(len(own) for own in ranges)

        def run(be: PartitionedBackend, rank: int) -> None:
            own = ranges[rank] + [(0, 0)] * (most - len(ranges[rank]))
            for piece in own:
                be.apply(
                    whole.parts[rank], x[rank], out[rank], a=a, b=b, c=c,
                    acc=None if acc is None else acc[rank], w=w, scalars=scalars, rows=piece,
                )  # fmt: skip

        self._all(run)

    def recur(
        self,
        compiled: Compiled,
        x: States,
        coeffs: AnyArray,
        acc: States | None,
        probe: Selection,
        work: tuple[States, States],
        start: int = 0,
    ) -> tuple[AnyArray, NDArray[np.float64]]:
        c = _whole(compiled)

        def run(be: PartitionedBackend, rank: int) -> tuple[AnyArray, NDArray[np.float64]]:
            own = None if acc is None else acc[rank]
            rooms = (work[0][rank], work[1][rank])
            return be.recur(c.parts[rank], x[rank], coeffs, own, probe, rooms, start)

        probed, norms = self._same(run)
        return probed, norms

    def combine(
        self, compiled: Compiled, out: States, weights: Sequence[Weight], arrays: Sequence[States]
    ) -> None:
        c = _whole(compiled)
        self._all(lambda be, rank: be.combine(c.parts[rank], out[rank], weights, _of(arrays, rank)))

    def dots(self, compiled: Compiled, xs: Sequence[States], y: States) -> AnyArray:
        c = _whole(compiled)
        found: AnyArray = self._same(
            lambda be, rank: be.dots(c.parts[rank], _of(xs, rank), y[rank])
        )
        return found

    def error_norm(
        self, compiled: Compiled, error: States, x: States, y: States, atol: float, rtol: float
    ) -> NDArray[np.float64]:
        c = _whole(compiled)

        def run(be: PartitionedBackend, rank: int) -> NDArray[np.float64]:
            return be.error_norm(c.parts[rank], error[rank], x[rank], y[rank], atol, rtol)

        norms: NDArray[np.float64] = self._same(run)
        return norms

    def pack(self, compiled: Compiled, x: States, selection: Selection) -> Any:
        c = _whole(compiled)
        return self._same(lambda be, rank: be.pack(c.parts[rank], x[rank], selection))

    def unpack(self, compiled: Compiled, buffer: Any, selection: Selection, x: States) -> None:
        c = _whole(compiled)
        self._all(lambda be, rank: be.unpack(c.parts[rank], buffer, selection, x[rank]))

    def host(self, buffer: Any) -> AnyArray:
        return self._parts[0].host(buffer)

    def solve_local(self, compiled: Compiled, sigma: Weight, x: States, out: States) -> None:
        c = _whole(compiled)
        self._all(lambda be, rank: be.solve_local(c.parts[rank], sigma, x[rank], out[rank]))

    def mark(self) -> Any:
        return self._parts[0].mark()

    def wait(self, mark: Any) -> None:
        self._parts[0].wait(mark)

    def sync(self) -> None:
        self._all(lambda be, _: be.sync())


def _whole(compiled: Compiled) -> TogetherCompiled:
    assert isinstance(compiled, TogetherCompiled)
    return compiled


def _of(states: Sequence[States], rank: int) -> list[Any]:
    return [state[rank] for state in states]


def _ranges(part: PartCompiled, rows: tuple[int, int] | None) -> list[tuple[int, int]]:
    """The own rows of a part that lie in a range of the whole, as ranges."""
    own = part.plan.columns[: part.plan.n_rows]
    if rows is None:
        return [(0, len(own))]
    inside = np.concatenate([[False], (own >= rows[0]) & (own < rows[1]), [False]])
    first, last = (
        np.flatnonzero(inside[1:] & ~inside[:-1]),
        np.flatnonzero(inside[:-1] & ~inside[1:]),
    )
    return list(zip(first.tolist(), last.tolist(), strict=True))
