"""The driver: hands out tasks until the store lacks nothing.

Takes: `Work`, the store, and a client or a runner (or neither: local workers).
Gives: `drive`; when it returns, everything that was asked for is committed.
Next file: `tally.py`.

About three tasks a slot are in flight, longest shards first. Tasks shrink as the end comes near
(remaining work / (slots x 4)), so that all workers finish together, and are never so long that
much is lost with a worker. With a stopping rule the shards go out in the order of their samples,
and those that are not likely to be needed only to workers that would be idle. A task that its
runner gives up because workers died is split, and a single shard is recorded as failed.
"""

from __future__ import annotations

import contextlib
import dataclasses
import heapq
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from heomdask.ensemble import shards as shards_
from heomdask.ensemble.cluster import Workers, ready
from heomdask.ensemble.probe import Probe
from heomdask.ensemble.runner import Finished, Runner, Task, Watchable, as_runner
from heomdask.ensemble.stopping import Stopping
from heomdask.ensemble.tally import Tally
from heomdask.ensemble.task import Work, fail_shard, require_memory
from heomdask.ensemble.view import Overview
from heomdask.outcome import Outcome
from heomdask.results.chunks import Shard
from heomdask.results.store import Store

if TYPE_CHECKING:
    from distributed import Client

WINDOW = 3  # tasks in flight, a slot
FIRST_POINTS = 16  # in a task while nothing is known about their cost
FULL_POINTS = 8  # members run side by side in a vector register: fewer take as long as these
SHORTEST = 0.15  # seconds of a task, unless a single shard is shorter
LONGEST = 20.0  # seconds of a task, unless a single shard is longer
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
    if not tally.failed:
        return 0
    return int(np.count_nonzero(lacking & (store.status() == Outcome.FAILED)))


def pending(work: Work, status: NDArray[np.uint8]) -> NDArray[np.bool_]:
    """Which points, by their places in the grown store, are asked for and not there."""
    new = [(0, len(o) - n) for o, n in zip(work.match.order, status.shape, strict=True)]
    found: NDArray[np.bool_] = np.pad(status, new) == Outcome.PENDING
    for axis, order in enumerate(work.match.order):
        found &= (order >= 0).reshape([-1 if a == axis else 1 for a in range(found.ndim)])
    return found


def task_points(remaining: int, total: int, slots: int, seconds: float, points: int) -> float:
    """How many points the next task should have.

    Parameters
    ----------
    remaining, total : points that are not handed out yet, and all of this run.
    slots : tasks that run at once.
    seconds, points : what finished tasks took and had.
    """
    share = max(remaining / (4 * slots), min(FULL_POINTS, total / slots))
    if not points:
        return min(share, FIRST_POINTS)
    each = max(seconds / points, 1e-6)
    return float(np.clip(share, SHORTEST / each, LONGEST / each))


class _Driver:
    """The state of one run: what waits, what flies, what was learnt about the cost."""

    def __init__(
        self,
        work: Work,
        todo: list[tuple[Shard, int]],
        runner: Runner,
        tally: Tally,
        stopping: Stopping,
    ) -> None:
        self.work = work
        self.counts = dict(todo)
        self.stopping = stopping
        ordered = sorted(self.counts, key=self._order)
        self.waiting = {shard: self.counts[shard] for shard in ordered}
        self.likely = [(self._order(s), s) for s in ordered if stopping.expects(s)]  # a heap
        self.remaining = self.total = sum(self.counts.values())
        self.runner = runner
        self.tally = tally
        self.flying = 0
        self.seconds = 0.0
        self.points = 0
        point_nbytes = sum(v.point_nbytes for v in work.files.variables)
        shard_nbytes = point_nbytes * int(np.prod(work.files.shard))
        self.most_shards = max(1, MOST_NBYTES // max(shard_nbytes, 1))

    def run(self) -> None:
        self._fill()
        while self.flying:
            for finished in self.runner.wait():
                self.flying -= 1
                self._account(finished)
            self.work.files.folder.require()
            self.stopping.settle()
            self._fill()

    def _fill(self) -> None:
        slots = self.runner.slots
        while self.waiting:
            likely = self._first(likely=True) is not None
            if self.flying >= (WINDOW * slots if likely else slots):
                break
            self._submit(self._next(slots, likely))

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

    def _submit(self, task: Task) -> None:
        self.runner.submit(task)
        self.stopping.submitted(task)
        self.flying += 1

    def _next(self, slots: int, likely: bool) -> Task:
        """The next task: whole shards, only likely ones if so said, of about the right size.

        How much is to come nobody knows where a rule decides: then tasks are as short as pays.
        """
        remaining = 0 if self.work.sweep.until else self.remaining
        points = task_points(remaining, self.total, slots, self.seconds, self.points)
        task: list[Shard] = []
        count = 0
        while (shard := self._first(likely)) is not None:
            more = self.waiting[shard]
            if task and (count + more > points or len(task) == self.most_shards):
                break
            del self.waiting[shard]
            task.append(shard)
            count += more
        self.remaining -= count
        return tuple(task)

    def _account(self, finished: Finished) -> None:
        report = finished.report
        self.stopping.returned(finished.task)
        if report is None:
            self._retry(finished.task)
            return
        self.seconds += report.seconds
        self.points += report.points
        points = sum(self.counts[s] for s in finished.task)
        self.tally.ended(finished.task, points, report.failed)
        self._committed(finished.task)

    def _committed(self, task: Task) -> None:
        """Shards that are not needed since then are not handed out."""
        needless, likelier = self.stopping.committed(task)
        for shard in likelier:
            if shard in self.waiting:
                heapq.heappush(self.likely, (self._order(shard), shard))
        if dropped := sum(self.waiting.pop(s, 0) for s in needless):
            self.tally.drop(dropped)

    def _retry(self, task: Task) -> None:
        """After the death of its workers: each shard alone; a shard alone is failed."""
        if len(task) == 1 and not self.stopping.needless(task[0]):
            report = fail_shard(self.work, task[0], LOST)
            self.tally.ended(task, report.points, report.failed)
            self._committed(task)
            return
        self.tally.ended(task, 0, 0)
        for shard in task:
            if self.stopping.needless(shard):
                self.tally.drop(self.counts[shard])
            else:
                self._submit((shard,))
