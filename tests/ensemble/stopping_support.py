"""A sweep whose points cost nothing: their values are drawn from their place in the store."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import numpy as np
import xarray as xr
from numpy.typing import NDArray

import heomdask as hd
from heomdask.ensemble.pools import ALIKE, Task
from heomdask.ensemble.runner import Finished
from heomdask.ensemble.task import Report, Work
from heomdask.outcome import Outcome
from heomdask.results.chunks import Shard
from heomdask.results.store import record_failures

UP = np.diag([1.0, 0.0])
LENGTH = 12  # samples of a shard


def build(e: float, rng: np.random.Generator) -> Any:
    return hd.Problem(e * UP), UP


def sweep(cells: int = 3, samples: int = 120, **changes: Any) -> hd.Sweep:
    keywords: dict[str, Any] = {
        "over": {"e": [float(k) for k in range(cells)]},
        "samples": samples,
        "times": [0.0, 1.0, 2.0],
        "depth": 0,
        "observables": {"x": UP, "z": np.array([[0.0, 1.0], [0.0, 0.0]])},
    }
    return hd.Sweep(build, **(keywords | changes))


def drawn(place: Shard) -> NDArray[np.complex128]:
    """Values at the three times: all alike; of spread 1, 2, 3, 3, 3, ...; complex of spread 1."""
    rng = np.random.default_rng([*place, 7])
    a, b, c = rng.standard_normal(3)
    return np.array([0.25, min(1 + place[0], 3) * a, b + 1j * c])


class Interrupted(Exception):
    """What stops a run in its middle."""


class Drawing:
    """Finishes tasks in an order of its own, and keeps count.

    Parameters
    ----------
    slots : how many tasks run at once.
    order : a generator that picks which task ends next; None: the first.
    failing : places that fail.
    lasting : tasks after which the run is interrupted.
    """

    memory = sys.maxsize

    def __init__(
        self,
        slots: int = 1,
        order: np.random.Generator | None = None,
        failing: tuple[Shard, ...] = (),
        lasting: int = sys.maxsize,
    ) -> None:
        self.slots = slots
        self.order = order
        self.failing = failing
        self.lasting = lasting
        self.tasks: list[Task] = []
        self.places: list[Shard] = []

    def start(self, work: Work) -> None:
        self.work = work

    @property
    def pools(self) -> dict[str, int]:
        return {ALIKE: self.slots}

    def submit(self, task: Task, pool: str = ALIKE) -> None:
        self.tasks.append(task)

    def withdraw(self, task: Task) -> None:
        self.tasks.remove(task)

    def wait(self) -> list[Finished]:
        if self.lasting == 0:
            raise Interrupted
        self.lasting -= 1
        running = min(self.slots, len(self.tasks))
        task = self.tasks.pop(0 if self.order is None else int(self.order.integers(running)))
        before = len(self.places)
        failed = sum(self._shard(shard) for shard in task)
        return [Finished(task, Report(len(self.places) - before, failed, 0.02 * len(task)))]

    def _shard(self, shard: Shard) -> int:
        files, failed = self.work.files, 0
        values = files.read_all(shard)
        for place in self.work.missing(shard, values["status"]):
            local = tuple(p - s * n for p, s, n in zip(place, shard, files.shard, strict=True))
            self.places.append(place)
            values["status"][local] = Outcome.FAILED if place in self.failing else Outcome.DONE
            if place in self.failing:
                failed += 1
                record_failures(files.folder, {place: ("broken", "here")})
                continue
            values["x"][local] = drawn(place).real
            values["z"][local] = drawn(place)
            values["n_ado"][local] = 1
        files.commit(shard, values)
        return failed

    def stop(self) -> None:
        self.tasks.clear()


def run(what: hd.Sweep, store: Path | str, runner: Drawing | None = None) -> xr.Dataset:
    return what.run(store, client=runner or Drawing(), progress=False)
