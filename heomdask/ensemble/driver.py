"""The driver: hands out tasks until the store lacks nothing.

Takes: `Work`, the store, and a client or a runner (or neither: local workers).
Gives: `drive`; when it returns, everything that was asked for is committed.
Next file: `progress.py`.

About three tasks a slot are in flight, longest shards first. Tasks shrink as the end comes near
(remaining work / (slots x 4)), so that all workers finish together, and are never so long that
much is lost with a worker. The scheduler itself gives a task to other workers when one dies, a few
times; a task that it gives up then is split, and a single shard is recorded as failed.
"""

from __future__ import annotations

import contextlib
from collections import deque
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from heomdask.ensemble import shards as shards_
from heomdask.ensemble.cluster import Workers, ready
from heomdask.ensemble.probe import Probe
from heomdask.ensemble.progress import Progress
from heomdask.ensemble.runner import Finished, Runner, Task, as_runner
from heomdask.ensemble.task import Work, fail_shard, require_memory
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
    """Compute and commit all points that are asked for and pending; how many of them failed."""
    todo = missing(work, store)
    if not todo:
        return 0
    bar = Progress(sum(count for _, count in todo), progress)
    with contextlib.ExitStack() as stack:
        runner = as_runner(stack.enter_context(ready(client)))
        stack.enter_context(bar.shown())
        require_memory(work.sweep, found, runner.memory)
        runner.start(work)
        stack.callback(runner.stop)
        _Driver(work, todo, runner, bar).run()
    return bar.failed


def missing(work: Work, store: Store) -> list[tuple[Shard, int]]:
    """Shards that lack points that are asked for, and how many."""
    return shards_.blocks(pending(work, store), work.files.shard)


def pending(work: Work, store: Store) -> NDArray[np.bool_]:
    """Which points, by their places in the grown store, are asked for and not there."""
    status = store.status()
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
        self, work: Work, todo: list[tuple[Shard, int]], runner: Runner, bar: Progress
    ) -> None:
        self.work = work
        self.counts = dict(todo)
        self.waiting = deque(sorted(self.counts, key=lambda s: (-self.counts[s], s)))
        self.remaining = self.total = sum(self.counts.values())
        self.runner = runner
        self.bar = bar
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
            self._fill()

    def _fill(self) -> None:
        slots = self.runner.slots
        while self.waiting and self.flying < WINDOW * slots:
            self._submit(self._next(slots))

    def _submit(self, task: Task) -> None:
        self.runner.submit(task)
        self.flying += 1

    def _next(self, slots: int) -> Task:
        """The next task: whole shards with about the right number of points."""
        points = task_points(self.remaining, self.total, slots, self.seconds, self.points)
        task = [self.waiting.popleft()]
        count = self.counts[task[0]]
        while self.waiting and len(task) < self.most_shards:
            more = self.counts[self.waiting[0]]
            if count + more > points:
                break
            task.append(self.waiting.popleft())
            count += more
        self.remaining -= count
        return tuple(task)

    def _account(self, finished: Finished) -> None:
        report = finished.report
        if report is None:
            self._retry(finished.task)
            return
        self.seconds += report.seconds
        self.points += report.points
        self.bar.add(sum(self.counts[s] for s in finished.task), report.failed)

    def _retry(self, task: Task) -> None:
        """After the death of its workers: each shard alone; a shard alone is failed."""
        if len(task) > 1:
            for shard in task:
                self._submit((shard,))
        else:
            report = fail_shard(self.work, task[0], LOST)
            self.bar.add(report.points, report.failed)
