"""The part that lives in the Dask scheduler: what becomes of the points of a running sweep.

Takes: what workers say when a task ends or is under way, as events.
Gives: `View`, a few arrays of fixed size for each sweep that runs; `Overview`, with which it
    begins; `Ended`, what workers say.
Next file: `panel.py`, which draws a view; `metrics.py`, which gives its numbers to Prometheus.
"""

from __future__ import annotations

import time
from collections import Counter, deque
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from distributed.diagnostics.plugin import SchedulerPlugin
from numpy.typing import NDArray

from heomdask.ensemble.cells import Cells
from heomdask.ensemble.grid import Index, Match
from heomdask.ensemble.history import History
from heomdask.ensemble.sweep import Sweep
from heomdask.outcome import Outcome

TOPIC = "heomdask"  # of the events of tasks that have ended, of all sweeps
MOST_ERRORS = 5  # texts of failures that are kept
ERROR_CHARACTERS = 200


@dataclass(frozen=True)
class Overview:
    """A sweep as it stands before a run; small, and sent to the scheduler once.

    Attributes
    ----------
    title : of the sweep.
    cells : its map.
    counts : (outcome, cell), points of the sweep by the code of their outcome.
    at_most : whether a stopping rule may leave points out.
    """

    title: str
    cells: Cells
    counts: NDArray[np.int64]
    at_most: bool

    @classmethod
    def of(cls, sweep: Sweep, matched: Match, status: NDArray[np.uint8]) -> Overview:
        """From the status of all points in the store, which may have grown since it was read."""
        new = [(0, len(o) - n) for o, n in zip(matched.order, status.shape, strict=True)]
        # a place of the store for every place of the grid
        places = [np.argsort(o, kind="stable")[np.count_nonzero(o < 0) :] for o in matched.order]
        codes = np.pad(status, new)[np.ix_(*places)]
        cells = Cells.of(sweep.grid)
        counts = [cells.count(codes == code) for code in range(max(Outcome) + 1)]
        return cls(sweep.title, cells, np.array(counts), bool(sweep.until))


class Ended:
    """What became of the points of one task, as plain data for an event."""

    def __init__(self, cells: Cells) -> None:
        self._cells = cells
        self._counts: Counter[tuple[int, int]] = Counter()
        self._error = ""

    def __call__(self, index: Index, outcome: Outcome, error: str) -> None:
        """One point of the grid."""
        self._counts[int(outcome), self._cells.cell(index)] += 1
        self._error = self._error or error[:ERROR_CHARACTERS]

    def event(self, sweep: str, key: str = "", worker: str = "") -> dict[str, Any]:
        """For a view; without a worker, of points that were given up."""
        return {
            "sweep": sweep,
            "key": key,
            "worker": worker,
            "counts": [[code, cell, n] for (code, cell), n in self._counts.items()],
            "error": self._error,
        }


class View(SchedulerPlugin):
    """One running sweep.

    Parameters
    ----------
    name : of the run; also the topic on which its workers say how far their tasks are.

    Attributes
    ----------
    counts : as in `Overview`, now.
    history : points over time, by worker.
    errors : the last ones.
    lost : tasks whose workers died once too often; they are tried again, in smaller ones or alone.
    """

    def __init__(self, scheduler: Any, name: str, overview: Overview) -> None:
        self.scheduler = scheduler
        self.name = name
        self.overview = overview
        self.counts = overview.counts.copy()
        self.history = History(time.time())
        self.errors: deque[str] = deque(maxlen=MOST_ERRORS)
        self.lost = 0
        self._told: dict[str, float] = {}  # points' worth of each task that is under way

    @property
    def total(self) -> int:
        return int(self.counts.sum())

    def outcomes(self) -> dict[Outcome, int]:
        """How many points have each outcome, of those that any has."""
        sums = self.counts.sum(axis=1)
        return {outcome: int(sums[outcome]) for outcome in Outcome if sums[outcome]}

    def cells_with(self, outcomes: Sequence[Outcome]) -> NDArray[np.int64]:
        """Points in each cell that have one of these outcomes."""
        return np.asarray(self.counts[[int(o) for o in outcomes]].sum(axis=0), dtype=np.int64)

    # -- what the scheduler calls ----------------------------------------------------------------

    def log_event(self, topic: str | Sequence[str], msg: Any) -> None:
        if topic == self.name:
            self._work_done(msg["key"], msg["worker"], msg["points"])
        elif topic == TOPIC and msg["sweep"] == self.name:
            self._ended(msg)

    def _ended(self, event: dict[str, Any]) -> None:
        self.lost += event.get("lost", 0)
        for code, cell, points in event.get("counts", ()):
            self.counts[code, cell] += points
            self.counts[Outcome.PENDING, cell] -= points
        if event.get("worker"):
            points = sum(n for _, _, n in event["counts"])
            self._work_done(event["key"], event["worker"], points)
        self._told.pop(event["key"], None)
        if event.get("error"):
            self.errors.append(event["error"])

    def _work_done(self, key: str, worker: str, points: float) -> None:
        """So many points' worth of a task are done."""
        if worker not in self.history.points:
            self.history.keep(self.scheduler.workers)
        news = points - self._told.get(key, 0.0)
        self._told[key] = points
        self.history.add(worker, max(news, 0.0), time.time())


def views(scheduler: Any) -> list[View]:
    """Of all sweeps that run on a scheduler."""
    return [p for p in list(scheduler.plugins.values()) if isinstance(p, View)]
