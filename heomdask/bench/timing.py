"""Timing on a machine that others use too: in turns, so that a disturbance meets all alike.

Takes: `Action`s by name.
Gives: seconds per call of each in every round, and `Spread`, what is said of them.
Next file: `machine.py`, the actions that find the machine's limits.

What runs on one thread is timed by that thread's processor time, which does not grow while it
waits for a processor; what runs on several, by the clock on the wall.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TypeVar

import numpy as np
from numpy.typing import NDArray

Seconds = NDArray[np.float64]  # (rounds,)
Name = TypeVar("Name")


@dataclass(frozen=True)
class Action:
    """What is timed, and on how many threads it runs."""

    call: Callable[[], object]
    threads: int = 1

    def seconds(self, repeats: int) -> float:
        """Of one call, over so many."""
        clock = time.thread_time if self.threads == 1 else time.perf_counter
        started = clock()
        for _ in range(repeats):
            self.call()
        return (clock() - started) / repeats


@dataclass(frozen=True)
class Spread:
    """A median and its quartiles."""

    median: float
    low: float
    high: float

    @classmethod
    def of(cls, values: Seconds) -> Spread:
        low, median, high = np.quantile(values, [0.25, 0.5, 0.75])
        return cls(float(median), float(low), float(high))


@dataclass(frozen=True)
class Effort:
    """How often each action is timed, and for how long each time."""

    rounds: int
    sample: float

    def interleave(self, actions: Mapping[Name, Action]) -> dict[Name, Seconds]:
        """Seconds of one call for each round and action: first all once, then all again."""
        repeats = {}
        for name, action in actions.items():
            once = action.seconds(1)
            if once < self.sample:  # the first call may have had caches to fill
                once = max(action.seconds(1), 1e-9)
            repeats[name] = max(1, round(self.sample / once))
        found: dict[Name, list[float]] = {name: [] for name in actions}
        for _ in range(self.rounds):
            for name, action in actions.items():
                found[name].append(action.seconds(repeats[name]))
        return {name: np.array(seconds) for name, seconds in found.items()}


FULL = Effort(rounds=15, sample=0.01)
QUICK = Effort(rounds=5, sample=0.005)
