"""The driver: hands out tasks until the store lacks nothing.

Takes: `Work`, the store, and a client or a runner (or neither: local workers).
Gives: `drive`; when it returns, everything that was asked for is committed.
Next file: `pools.py`, who gets a task and how long it is; `tally.py`.

Shards with most to do go out first. With a stopping rule they go out in the order of their samples,
and those that are not likely to be needed only to workers that would be idle. Of a task that its
runner gives up because workers died, each shard waits again, to go out alone; a shard that was
alone is recorded as failed. A task that waits for workers of a class of which none is left is
taken back.
"""

from __future__ import annotations

import contextlib
import dataclasses
import heapq
import time
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from heomdask.ensemble import shards as shards_
from heomdask.ensemble.cluster import Workers, ready
from heomdask.ensemble.pools import Pools, Task
from heomdask.ensemble.probe import Probe
from heomdask.ensemble.runner import Finished, Runner, Watchable, as_runner
from heomdask.ensemble.stopping import Stopping
from heomdask.ensemble.tally import Tally
from heomdask.ensemble.task import Work, fail_shard, require_memory
from heomdask.ensemble.view import Ended, Overview
from heomdask.outcome import Outcome
from heomdask.results.chunks import Shard
from heomdask.results.store import Store

if TYPE_CHECKING:
    from distributed import Client

MOST_NBYTES = 256 * 2**20  # of all shards of a task
LOST = (
    "The worker died each time this point was tried, most likely for want of memory; lower "
    "`depth`, or give the workers more memory."
)


def drive(
    work: Work,
    store: Store,
    found: list[Probe],
    client: Client | Runner | Workers | None,
    *,
    progress: bool,
) -> int:
    """Compute and commit all points that are needed and pending; how many of them failed."""
    status = store.status()
    stopping = Stopping(work, status)
    lacking = pending(work, status)
    missing = shards_.blocks(lacking, work.files.shard)
    todo = [(shard, count) for shard, count in missing if not stopping.needless(shard)]
    if not todo:
        return 0
    work = dataclasses.replace(work, files=work.files.begin())
    tally = Tally(sum(count for _, count in todo), progress)
    with contextlib.ExitStack() as stack:
        runner = as_runner(stack.enter_context(ready(client)))
        stack.enter_context(tally.shown())
        require_memory(work.sweep, found, runner.memory)
        runner.start(work)
        stack.callback(runner.stop)
        if progress and isinstance(runner, Watchable):
            overview = Overview.of(work.sweep, work.match, status)
            runner.watch(tally.under_way, overview)
        _Driver(work, todo, runner, tally, stopping).run()
    return int(np.count_nonzero(lacking & (store.status() == Outcome.FAILED)))


def pending(work: Work, status: NDArray[np.uint8]) -> NDArray[np.bool_]:
    """Which points, by their places in the grown store, are asked for and not there."""
    new = [(0, len(o) - n) for o, n in zip(work.match.order, status.shape, strict=True)]
    found: NDArray[np.bool_] = np.pad(status, new) == Outcome.PENDING
    for axis, order in enumerate(work.match.order):
        found &= (order >= 0).reshape([-1 if a == axis else 1 for a in range(found.ndim)])
    return found


class _Driver:
    """The state of one run: what waits, what flies, what was learnt about the cost."""

    def __init__(
        self,
        work: Work,
        todo: list[tuple[Shard, int]],
        runner: Runner,
        tally: Tally,
        stopping: Stopping,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.work = work
        self.counts = dict(todo)
        self.stopping = stopping
        ordered = sorted(self.counts, key=self._order)
        self.waiting = {shard: self.counts[shard] for shard in ordered}
        self.likely = [(self._order(s), s) for s in ordered if stopping.expects(s)]  # a heap
        self.alone: set[Shard] = set()  # that go out in a task of their own
        self.remaining = sum(self.counts.values())
        self.runner = runner
        self.pools = Pools(self.remaining, known_end=not work.sweep.until)
        self.tally = tally
        self.clock = clock
        point_nbytes = sum(v.point_nbytes for v in work.files.variables)
        shard_nbytes = point_nbytes * int(np.prod(work.files.shard))
        self.most_shards = max(1, MOST_NBYTES // max(shard_nbytes, 1))

    def run(self) -> None:
        self._fill()
        while self.pools.flying:
            for finished in self.runner.wait():
                self._account(finished)
            self.work.files.folder.require()
            self._fill()
            self.stopping.settle()

    def _fill(self) -> None:
        now = self.clock()
        self.pools.see(self.runner.pools, now)
        self._take_back(now)
        while self.waiting:
            first = self._first(likely=True)
            likely = first is not None
            least = self.counts[first or next(iter(self.waiting))]
            found = self.pools.next(self.remaining, least, now, wanted=likely)
            if found is None:
                break
            pool, points = found
            self._submit(pool, self._next(points, likely))

    def _order(self, shard: Shard) -> Any:
        return self.stopping.order(shard, self.counts[shard])

    def _first(self, likely: bool) -> Shard | None:
        """The next waiting shard, or the next of those that are likely to be needed."""
        if not likely:
            return next(iter(self.waiting), None)
        while self.likely:
            shard = self.likely[0][1]
            if shard in self.waiting and self.stopping.expects(shard):
                return shard
            heapq.heappop(self.likely)
        return None

    def _submit(self, pool: str, task: Task) -> None:
        self.runner.submit(task, pool)
        self.stopping.submitted(task)
        self.pools.submitted(pool, task, self._points(task), self.clock())

    def _points(self, task: Task) -> int:
        return sum(self.counts[shard] for shard in task)

    def _next(self, points: float, likely: bool) -> Task:
        """The next task: whole shards, only likely ones if so said, of about so many points."""
        task: list[Shard] = []
        count = 0
        while (shard := self._first(likely)) is not None:
            more = self.waiting[shard]
            full = count + more > points or len(task) == self.most_shards
            if task and (full or not self.alone.isdisjoint((task[0], shard))):
                break
            del self.waiting[shard]
            task.append(shard)
            count += more
        self.remaining -= count
        return tuple(task)

    def _account(self, finished: Finished) -> None:
        task, report = finished.task, finished.report
        self.stopping.returned(task)
        if report is None:
            self.pools.ended(task, self.clock())
            self._lost(task)
            return
        self.pools.ended(task, self.clock(), report.seconds, report.points)
        self.tally.ended(task, self._points(task), report.failed)
        self._committed(task)

    def _committed(self, task: Task) -> None:
        """Shards that are not needed since then are not handed out."""
        needless, likelier = self.stopping.committed(task)
        self._expect(likelier)
        if dropped := sum(self.waiting.pop(s, 0) for s in needless):
            self.remaining -= dropped
            self.tally.drop(dropped)

    def _expect(self, shards: Iterable[Shard]) -> None:
        """These are likely to be needed."""
        for shard in shards:
            if shard in self.waiting:
                heapq.heappush(self.likely, (self._order(shard), shard))

    def _lost(self, task: Task) -> None:
        """After the death of its workers: each shard alone; a shard alone is failed."""
        if len(task) > 1 or self.stopping.needless(task[0]):
            self.alone.update(task)
            self._put_back(task)
            return
        ended = Ended(self.work.cells)
        report = fail_shard(self.work, task[0], LOST, ended)
        if isinstance(self.runner, Watchable):
            self.runner.show(ended)
        self.tally.ended(task, report.points, report.failed)
        self._committed(task)

    def _take_back(self, now: float) -> None:
        """What waits for workers of a class that has none is for others to compute."""
        for task in self.pools.stranded(now):
            self.runner.withdraw(task)
            self.pools.ended(task, now)
            self.stopping.returned(task)
            self._put_back(task)

    def _put_back(self, task: Task) -> None:
        """Nobody computes these shards any more; those that are needed wait again."""
        self.tally.ended(task, 0, 0)
        needed = {s: self.counts[s] for s in task if not self.stopping.needless(s)}
        count = sum(needed.values())
        if dropped := self._points(task) - count:
            self.tally.drop(dropped)
        self.waiting |= needed
        self.remaining += count
        self._expect(needed)
