"""Pools: workers of unequal classes on one sweep, and which of them takes the next task.

Takes: how many tasks the workers of each class run at once, and what finished tasks took there.
Gives: `Pools`, which says where the next task goes and how many points it has.
Next file: `driver.py`, which hands out the tasks.

About three tasks a slot are in flight in each pool, so that no worker waits for its next one; in
a pool that has not finished any yet, beside others, one.
Tasks shrink as the end comes near: each is a quarter of what its slot has still to do, so that all
end together, and none is so long that much is lost with a worker. A pool starts no task that the
others would finish sooner: not later than they would be done with all that is left, or with this
task alone. What a point costs in a pool is what it has cost there so far.

Nothing here knows Dask, and the time is given.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np

from heomdask.results.chunks import Shard

Task = tuple[Shard, ...]

ALIKE = ""  # the pool of workers that say no class, whose tasks any worker may compute
CPU, GPU = "CPU", "GPU"  # the classes of workers that are started here
WINDOW = 3  # tasks in flight, a slot
FIRST_POINTS = 16  # in a task while nothing is known about their cost
FULL_POINTS = 8  # members run side by side in a vector register: fewer take as long as these
SHORTEST = 0.15  # seconds of a task, unless a single shard is shorter
LONGEST = 20.0  # seconds of a task, unless a single shard is longer
ABSENT = 15.0  # seconds without a worker after which a pool's tasks are given to others


def class_of(resources: Mapping[str, float]) -> tuple[str, int]:
    """The class of a worker by its Dask resources, and how many tasks it runs at once at most."""
    offered = {name: int(amount) for name, amount in resources.items() if amount >= 1}
    return min(offered.items(), default=(ALIKE, sys.maxsize))


def task_points(remaining: int, total: int, slots: float, seconds: float, points: int) -> float:
    """How many points the next task should have.

    Parameters
    ----------
    remaining, total : points that are not handed out yet, and all of this run.
    slots : tasks that run at once; slots of other classes count by their speed.
    seconds, points : what finished tasks took and had.
    """
    share = max(remaining / (4 * slots), min(FULL_POINTS, total / slots))
    if not points:
        return min(share, FIRST_POINTS)
    each = max(seconds / points, 1e-6)
    return float(np.clip(share, SHORTEST / each, LONGEST / each))


@dataclass(eq=False)
class _Pool:
    """Workers of one class, the tasks that they have, and what points took there.

    Attributes
    ----------
    slots : tasks that run at once; none while there is no worker.
    running : points of each task that runs, and since when, as far as that can be told from here.
    queued : points of each task that waits for a slot, in order.
    seconds, points : what finished tasks took and had.
    left : since when there has been no worker.
    """

    slots: int = 0
    running: dict[Task, tuple[int, float]] = field(default_factory=dict)
    queued: dict[Task, int] = field(default_factory=dict)
    seconds: float = 0.0
    points: int = 0
    left: float = 0.0

    @property
    def flying(self) -> int:
        return len(self.running) + len(self.queued)

    def add(self, task: Task, points: int, now: float) -> None:
        self.queued[task] = points
        self.advance(now)

    def remove(self, task: Task, now: float) -> None:
        self.running.pop(task, None)
        self.queued.pop(task, None)
        self.advance(now)

    def advance(self, now: float) -> None:
        """Let queued tasks run in free slots."""
        while self.queued and len(self.running) < self.slots:
            task = next(iter(self.queued))
            self.running[task] = (self.queued.pop(task), now)

    def load(self, each: float, now: float) -> float:
        """Seconds that the slots have to work for what they have, all added up.

        A task that is overdue by some time takes as long again: a point may cost a thousand others.
        """
        rest = sum(abs(each * points - (now - begun)) for points, begun in self.running.values())
        return rest + each * sum(self.queued.values())

    def start(self, each: float, now: float) -> float:
        """Seconds until the next task could start."""
        return 0.0 if self.flying < self.slots else self.load(each, now) / self.slots


class Pools:
    """All pools of a run.

    Parameters
    ----------
    total : points of the run.
    known_end : whether all of them will be needed; else tasks are as short as pays.
    """

    def __init__(self, total: int, known_end: bool = True) -> None:
        self._total = total
        self._known_end = known_end
        self._pools = {ALIKE: _Pool(slots=1)}
        self._where: dict[Task, str] = {}

    # -- what happens ----------------------------------------------------------------------------

    def see(self, slots: Mapping[str, int], now: float) -> None:
        """How many slots each class has now; without any worker all stays as it was."""
        for name in slots:
            self._pools.setdefault(name, _Pool())
        for name, pool in self._pools.items() if slots else ():
            if pool.slots and name not in slots:
                pool.left = now
            pool.slots = slots.get(name, 0)
            pool.advance(now)

    def submitted(self, name: str, task: Task, points: int, now: float) -> None:
        """A pool was given a task."""
        self._where[task] = name
        self._pools[name].add(task, points, now)

    def ended(self, task: Task, now: float, seconds: float = 0.0, points: int = 0) -> str:
        """A task is not under way any more, and so many of its points took so long; its pool."""
        name = self._where.pop(task)
        pool = self._pools[name]
        pool.remove(task, now)
        pool.seconds += seconds
        pool.points += points
        return name

    # -- what follows ----------------------------------------------------------------------------

    @property
    def flying(self) -> int:
        """Tasks under way."""
        return len(self._where)

    def stranded(self, now: float) -> list[Task]:
        """Tasks of pools that have had no worker for a while; others could compute them."""
        return [
            task
            for name, pool in self._pools.items()
            if name != ALIKE and not pool.slots and now - pool.left >= ABSENT
            for task in (*pool.running, *pool.queued)
        ]

    def next(
        self, remaining: int, least: int, now: float, *, wanted: bool = True
    ) -> tuple[str, float] | None:
        """The pool that takes the next task, and how many points that should have; None for now.

        Parameters
        ----------
        remaining : points that are not handed out yet.
        least : points of the next shard, which no task has less than.
        wanted : False lets only idle workers have it.
        """
        costs = self._costs()
        found: list[tuple[float, str, float]] = []
        for name, each in costs.items():
            pool = self._pools[name]
            measured = pool.points or len(costs) == 1
            if pool.flying >= (WINDOW if wanted and measured else 1) * pool.slots:
                continue
            slots = sum(self._pools[n].slots * (each / cost) for n, cost in costs.items())
            rest = remaining if self._known_end else 0
            points = task_points(rest, self._total, slots, pool.seconds, pool.points)
            if len(costs) == 1:
                return name, points
            likely = min(max(points, least), max(remaining, least))
            end = pool.start(each, now) + likely * each
            if end <= self._without(name, costs, likely, remaining, now):
                found.append((end, name, points))
        return min(found)[1:] if found else None

    def _costs(self) -> dict[str, float]:
        """Seconds a point in each pool that has workers; one that is not known is a slow one."""
        present = {name: pool for name, pool in self._pools.items() if pool.slots}
        known = {n: max(p.seconds / p.points, 1e-6) for n, p in present.items() if p.points}
        return {name: known.get(name, max(known.values(), default=1.0)) for name in present}

    def _without(
        self, name: str, costs: Mapping[str, float], points: float, remaining: int, now: float
    ) -> float:
        """Seconds until the others would be done with all that is left, and with this task."""
        work, speed, alone = float(remaining), 0.0, float("inf")
        for other, each in costs.items():
            if other != name:
                pool = self._pools[other]
                work += pool.load(each, now) / each
                speed += pool.slots / each
                alone = min(alone, pool.start(each, now) + points * each)
        return max(work / speed, alone)
