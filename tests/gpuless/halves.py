"""Two processes on one card, each with half of the ADOs; what they send goes over the host."""

from __future__ import annotations

import multiprocessing
from collections.abc import Callable, Iterable, Mapping
from typing import Any

import numpy as np

from heomdask.errors import PartitionFailed
from heomdask.partition.backend import PartitionedBackend
from heomdask.partition.links.protocol import Exchange, Links
from heomdask.partition.part import part_of
from heomdask.plan import AnyArray
from heomdask.testing.random_plans import Case

CASE = Case(seed=74, d=3, members=3, form="real", modes=3, depth=3)
PATIENCE = 60.0  # seconds


class Queued(Links):
    """The links of one of two processes: a queue for each."""

    def __init__(self, rank: int, queues: list[Any]) -> None:
        self.rank, self.size, self._queues, self._number = rank, 2, queues, 0

    def start(self, sends: Mapping[int, AnyArray], sources: Iterable[int]) -> Exchange:
        self._number += 1
        for target, array in sends.items():
            self._queues[target].put((self._number, np.array(array)))
        return Exchange(self._number, tuple(sources))

    def finish(self, exchange: Exchange) -> dict[int, AnyArray]:
        found = {}
        for source in exchange.sources:
            number, found[source] = self._queues[self.rank].get(timeout=PATIENCE)
            assert number == exchange.number
        return found

    def abort(self, reason: str) -> None:
        raise PartitionFailed(reason)

    def close(self) -> None: ...


def twice(backend: Any, plan: Any, state: AnyArray) -> AnyArray:
    """Two applications."""
    compiled = backend.compile(plan)
    x, out = backend.put(compiled, state), backend.empty(compiled)
    for _ in range(2):
        backend.apply(compiled, x, out, a=0.1)
        x, out = out, x
    found: AnyArray = backend.fetch(compiled, x)
    return found


def half(made: Callable[[], Any], rank: int, queues: list[Any], results: Any) -> None:
    """One of the two processes."""
    plan = CASE.plan()
    part = part_of(plan, np.arange(plan.n_rows) % 2, rank)
    backend = PartitionedBackend(made().backend(), Queued(rank, queues))
    found = twice(backend, part, CASE.state(plan)[part.columns])
    results.put((part.columns[: part.n_rows], found[: part.n_rows]))


def halves_apart(made: Callable[[], Any]) -> float:
    """How far two processes are from one; `made` gives what has a `backend`, in any process."""
    context = multiprocessing.get_context("spawn")
    queues, results = [context.Queue(), context.Queue()], context.Queue()
    both = [context.Process(target=half, args=(made, r, queues, results)) for r in range(2)]
    for process in both:
        process.start()
    plan = CASE.plan()
    whole = np.full((plan.n_rows, plan.d, plan.d, plan.n_members), np.nan)
    for _ in both:
        rows, values = results.get(timeout=PATIENCE)
        whole[rows] = values
    for process in both:
        process.join()
    return float(np.abs(whole - twice(made().backend(), plan, CASE.state(plan))).max())
