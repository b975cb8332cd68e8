"""Workers of known speeds on a clock of their own: a runner that computes nothing."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any

from heomdask.ensemble.driver import _Driver
from heomdask.ensemble.pools import ALIKE, Task
from heomdask.ensemble.runner import PATIENCE, Finished
from heomdask.ensemble.tally import Tally
from heomdask.ensemble.task import Report
from heomdask.results.chunks import Shard


@dataclass
class Class:
    """Workers of one class: slots, seconds a point, and when they are there.

    `overhead` are seconds that every task takes besides.
    """

    slots: int
    each: float
    there: Sequence[tuple[float, float]] = ((0.0, float("inf")),)
    overhead: float = 0.0

    def present(self, now: float) -> bool:
        return any(begin <= now < end for begin, end in self.there)


@dataclass
class Site:
    """All workers; those of the first class present take what is for any of them.

    Attributes
    ----------
    ends : (when, class, seconds) of every task that has ended.
    """

    classes: dict[str, Class]
    counts: dict[Shard, int]
    now: float = 0.0
    memory: int = sys.maxsize
    ends: list[tuple[float, str, float]] = field(default_factory=list)
    queued: list[tuple[str, Task]] = field(default_factory=list)
    running: dict[Task, tuple[str, str, float]] = field(default_factory=dict)
    most: dict[str, int] = field(default_factory=dict)  # tasks of a class at once

    @property
    def pools(self) -> dict[str, int]:
        return {n: c.slots for n, c in self.classes.items() if c.present(self.now)}

    def submit(self, task: Task, pool: str = ALIKE) -> None:
        under_way = {s for t in (*(t for _, t in self.queued), *self.running) for s in t}
        assert not under_way & set(task), "handed out twice"
        self.queued.append((pool, task))
        flying = sum(p == pool for p, _ in self.queued)
        flying += sum(p == pool for p, _, _ in self.running.values())
        self.most[pool] = max(self.most.get(pool, 0), flying)
        self._begin()

    def withdraw(self, task: Task) -> None:
        assert task not in self.running
        self.queued = [(pool, t) for pool, t in self.queued if t != task]

    def wait(self) -> list[Finished]:
        """Until something happens: a task ends, or workers come or go, or nothing for a while."""
        changes = [t for c in self.classes.values() for span in c.there for t in span]
        ends = [end for _, _, end in self.running.values()]
        self.now = min(t for t in (*changes, *ends, self.now + PATIENCE) if t > self.now)
        finished = []
        for task, (_, name, end) in list(self.running.items()):
            if end <= self.now:
                del self.running[task]
                seconds = self._seconds(name, task)
                self.ends.append((self.now, name, seconds))
                finished.append(Finished(task, Report(self.points(task), 0, seconds)))
        for task, (pool, name, _) in list(self.running.items()):
            if not self.classes[name].present(self.now):  # begins anew, once there is a worker
                del self.running[task]
                self.queued.insert(0, (pool, task))
        self._begin()
        return finished

    def _begin(self) -> None:
        for pool, task in list(self.queued):
            for name, slots in self.pools.items():
                busy = sum(name == other for _, other, _ in self.running.values())
                if pool in (name, ALIKE) and busy < slots:
                    self.running[task] = (pool, name, self.now + self._seconds(name, task))
                    self.queued.remove((pool, task))
                    break

    def _seconds(self, name: str, task: Task) -> float:
        own = self.classes[name]
        return own.overhead + own.each * self.points(task)

    def points(self, task: Task) -> int:
        return sum(self.counts[shard] for shard in task)


class _All:
    """In place of stopping rules: every shard is needed."""

    def order(self, shard: Shard, count: int) -> Any:
        return (-count, shard)

    def expects(self, shard: Shard) -> bool:
        return True

    def needless(self, shard: Shard) -> bool:
        return False

    def submitted(self, task: Task) -> None: ...

    def returned(self, task: Task) -> None: ...

    def committed(self, task: Task) -> Any:
        return [], []

    def settle(self) -> None: ...


@dataclass
class Deadly(Site):
    """The first tasks of several shards that a class computes kill their workers."""

    deaths: tuple[str, int] = ("fast", 3)
    died: set[Shard] = field(default_factory=set)

    def submit(self, task: Task, pool: str = ALIKE) -> None:
        assert len(task) == 1 or self.died.isdisjoint(task), "not alone"
        super().submit(task, pool)

    def wait(self) -> list[Finished]:
        finished = super().wait()
        names = [name for _, name, _ in self.ends[len(self.ends) - len(finished) :]]
        return [self._after(one, name) for one, name in zip(finished, names, strict=True)]

    def _after(self, finished: Finished, name: str) -> Finished:
        deadly, left = self.deaths
        if name != deadly or not left or len(finished.task) == 1:
            return finished
        self.deaths = deadly, left - 1
        self.died.update(finished.task)
        return Finished(finished.task, None)


def run(
    classes: dict[str, Class], counts: Sequence[int], kind: type[Site] = Site
) -> tuple[Site, Tally]:
    """Drive a sweep of shards with so many points each, to its end."""
    todo = {(k,): count for k, count in enumerate(counts)}
    site = kind(classes, todo)
    tally = Tally(sum(counts), show=False)
    folder = SimpleNamespace(require=lambda: None)
    work: Any = SimpleNamespace(
        sweep=SimpleNamespace(until=()),
        files=SimpleNamespace(variables=(), shard=(64,), folder=folder),
    )
    stopping: Any = _All()
    _Driver(work, list(todo.items()), site, tally, stopping, clock=lambda: site.now).run()
    return site, tally
