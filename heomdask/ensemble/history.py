"""How fast the workers have been: points over time, in a few numbers for each.

Takes: how many points' worth a worker has done, and when that was heard.
Gives: `History`, and from it points per second.
Next file: `view.py`.

A run of any length has at most `BINS` bins of time: when they are full, they grow twice as wide.
"""

from __future__ import annotations

from collections.abc import Container

import numpy as np
from numpy.typing import NDArray

BINS = 120
FIRST_WIDTH = 1.0  # seconds
LOOK_BACK = 300.0  # seconds over which the present speed is taken
EARLIER = "earlier workers"


class History:
    """Points by worker and time.

    Parameters
    ----------
    start : when the run began; seconds, as all times here.
    """

    def __init__(self, start: float) -> None:
        self.start = start
        self.width = FIRST_WIDTH
        self.points: dict[str, NDArray[np.float64]] = {}
        self._heard: dict[str, float] = {}  # when from a worker

    def add(self, worker: str, points: float, now: float) -> None:
        """So many points' worth were done, evenly since the worker was last heard of."""
        begun = self._heard.get(worker, self.start)
        now = self._heard[worker] = max(now, begun)  # clocks are set back, too
        while now >= self.start + BINS * self.width:
            self._widen()
        own = self.points.setdefault(worker, np.zeros(BINS))
        first, last = (int((t - self.start) / self.width) for t in (begun, now))
        edges = self.start + self.width * np.arange(first, last + 2)
        edges[0], edges[-1] = begun, now
        shares = np.diff(edges) if now > begun else np.ones(1)
        own[first : last + 1] += points * shares / shares.sum()

    def _widen(self) -> None:
        self.width *= 2
        for worker, own in self.points.items():
            pairs = own.reshape(-1, 2).sum(axis=1)
            self.points[worker] = np.concatenate([pairs, np.zeros(BINS - len(pairs))])

    def keep(self, alive: Container[str]) -> None:
        """Put the workers that are gone together."""
        for worker in [w for w in self.points if w not in alive and w != EARLIER]:
            own = self.points.pop(worker)
            del self._heard[worker]
            self.points[EARLIER] = self.points.get(EARLIER, np.zeros(BINS)) + own

    def rates(self, now: float) -> tuple[NDArray[np.float64], dict[str, NDArray[np.float64]]]:
        """The middle of each bin that is over, seconds since the start; points per second there."""
        count = min(max(int((now - self.start) / self.width), 0), BINS)
        middles = self.width * (np.arange(count, dtype=np.float64) + 0.5)
        return middles, {worker: own[:count] / self.width for worker, own in self.points.items()}

    def speed(self, now: float) -> float:
        """Points per second of all workers, in the last minutes."""
        since = max(self.start, now - LOOK_BACK)
        first = int((since - self.start) / self.width)
        done = sum(float(own[first:].sum()) for own in self.points.values())
        seconds = now - self.start - first * self.width
        return done / seconds if seconds > 0 else 0.0
