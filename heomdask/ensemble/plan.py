"""What a sweep needs, said before it runs.

Takes: a `Sweep`, and the place of its store.
Gives: `SweepPlan`; or `TooLarge`, if a point or the store cannot fit.
Next file: `session.py`, which runs it.
"""

from __future__ import annotations

import time
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from heomdask import memory
from heomdask.ensemble.cluster import cores
from heomdask.ensemble.driver import missing, task_points
from heomdask.ensemble.probe import Probe, probes
from heomdask.ensemble.session import layout, match_store, occupied, recognise, require_disk
from heomdask.ensemble.session import store_nbytes as layout_nbytes
from heomdask.ensemble.sweep import Sweep
from heomdask.ensemble.task import Work, batch_members, batch_nbytes, require_memory
from heomdask.errors import TooLarge
from heomdask.solve import run_batch

CALIBRATION_MEMBERS = 8
CALIBRATION_SECONDS = 0.2


@dataclass(frozen=True)
class SweepPlan:
    """The needs of a sweep.

    Attributes
    ----------
    shape : dimension -> number of values.
    points : of the whole sweep; `pending` of them are not in the store yet.
    hierarchies : (point in words, ADOs, modes) at the probe points.
    members : of the largest batch; it takes `batch_nbytes` of a worker's `worker_nbytes`.
    shards, shard : how many are pending, and the points of one along each dimension.
    tasks : that the driver hands out, about.
    seconds : of computing on `workers` workers, from a short run here.
    store_nbytes : of the full store.
    """

    shape: dict[str, int]
    points: int
    pending: int
    hierarchies: tuple[tuple[str, int, int], ...]
    members: int
    batch_nbytes: int
    worker_nbytes: int
    workers: int
    shards: int
    shard: tuple[int, ...]
    tasks: int
    seconds: float
    store_nbytes: int

    def rows(self) -> list[tuple[str, str]]:
        """Name and value of every need, as text."""
        shape = " x ".join(f"{n} {name}" for name, n in self.shape.items())
        rows = [("points", f"{self.points:,} ({shape})")]
        if self.pending != self.points:
            rows.append(("still to do", f"{self.pending:,}"))
        rows += [
            (f"ADOs at {where}", f"{n_ado:,} of {modes} modes")
            for where, n_ado, modes in self.hierarchies
        ]
        shard = " x ".join(map(str, self.shard))
        rows += [
            (
                "largest batch",
                f"{self.members} points, {memory.readable(self.batch_nbytes)} of "
                f"{memory.readable(self.worker_nbytes)} a worker",
            ),
            ("shards", f"{self.shards:,} of {shard} points"),
            ("tasks", f"about {self.tasks:,} for {self.workers} workers"),
            ("computing", f"about {_duration(self.seconds)} on {self.workers} workers"),
            ("store", memory.readable(self.store_nbytes)),
        ]
        return rows

    def __str__(self) -> str:
        width = max(len(name) for name, _ in self.rows())
        return "\n".join(f"{name:<{width}}  {value}" for name, value in self.rows())


def make_plan(sweep: Sweep, path: Path | None, workers: int | None) -> SweepPlan:
    """Build a few points, time a short run of one, and add up. Writes nothing."""
    count = cores() if workers is None else workers
    found = probes(sweep)
    for seen in found:
        if isinstance(seen.error, TooLarge):
            raise seen.error
    room = memory.available() // count
    require_memory(sweep, found, room)
    new = layout(sweep, found)
    nbytes = layout_nbytes(new)
    pending, shards, shard = sweep.grid.size, 0, new.shard
    if path is not None and occupied(path):
        store = recognise(sweep, path)
        match = match_store(sweep, store)
        todo = missing(Work(sweep, match, store.files, tuple(map(len, match.order))), store)
        pending, shards, shard = sum(n for _, n in todo), len(todo), store.files.shard
    else:
        require_disk(path or Path(), nbytes)
        shards = int(np.prod([-(-n // s) for n, s in zip(new.extents, shard, strict=True)]))
    prepared = [p.prepared for p in found if p.prepared is not None]
    largest = max(prepared, key=lambda p: p.index_set.n_ado)
    members = min(batch_members(sweep, largest, room // 2), sweep.grid.size)
    each = _seconds_per_point(sweep, found)
    return SweepPlan(
        shape=dict(zip(sweep.grid.names, sweep.grid.shape, strict=True)),
        points=sweep.grid.size,
        pending=pending,
        hierarchies=tuple(
            (sweep.grid.describe(p.index), p.prepared.index_set.n_ado, p.prepared.index_set.n_modes)
            for p in found
            if p.prepared is not None
        ),
        members=members,
        batch_nbytes=batch_nbytes(sweep, largest, members),
        worker_nbytes=room,
        workers=count,
        shards=shards,
        shard=shard,
        tasks=_tasks(pending, max(1.0, pending / max(shards, 1)), count, each),
        seconds=each * pending / count,
        store_nbytes=nbytes,
    )


def _seconds_per_point(sweep: Sweep, found: list[Probe]) -> float:
    """Mean over the probe points, each from a batch over the first part of its times."""
    times = np.array(sweep.times.internal)
    measured = []
    for seen in found:
        if seen.prepared is None or seen.point is None:
            continue
        members = min(CALIBRATION_MEMBERS, sweep.grid.size)
        seconds, length = 0.0, min(2, len(times))
        while True:
            started = time.perf_counter()
            run_batch(
                [seen.prepared] * members,
                [seen.point.rho0] * members,
                times[:length],
                tol=seen.point.tol,
                observables=sweep.observables,
                save=sweep.save,
                method=sweep.method,
                backend=sweep.backend,
                threads=1,
            )
            seconds = time.perf_counter() - started
            if seconds >= CALIBRATION_SECONDS / len(found) or length == len(times):
                break
            length = min(4 * length, len(times))
        span = times[length - 1] - times[0]
        whole = (times[-1] - times[0]) / span if span > 0 else 1.0
        measured.append(seconds / members * whole)
    return float(np.mean(measured))


def _tasks(pending: int, shard_points: float, slots: int, each: float) -> int:
    """How many tasks the driver's rule gives."""
    count, left = 0, float(pending)
    while left > 0:
        points = max(task_points(int(left), pending, slots, each, 1), shard_points)
        left -= points // shard_points * shard_points
        count += 1
    return count


def _duration(seconds: float) -> str:
    for unit, size in (("h", 3600.0), ("min", 60.0)):
        if seconds >= 2 * size:
            return f"{seconds / size:.1f} {unit}"
    return f"{seconds:.1f} s"
