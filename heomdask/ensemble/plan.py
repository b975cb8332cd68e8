"""What a sweep needs, said before it runs.

Takes: a `Sweep`, and the place of its store.
Gives: `SweepPlan`; or `TooLarge`, if a point or the store cannot fit.
Next file: `session.py`, which runs it.
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from heomdask import memory
from heomdask.batch import run_batch
from heomdask.ensemble.cluster import Workers
from heomdask.ensemble.driver import pending
from heomdask.ensemble.grid import Index
from heomdask.ensemble.pools import GPU, task_points
from heomdask.ensemble.probe import Probe, probe, probes
from heomdask.ensemble.session import layout, match_store, recognise, require_disk
from heomdask.ensemble.session import store_nbytes as layout_nbytes
from heomdask.ensemble.shards import blocks
from heomdask.ensemble.stopping import remembered
from heomdask.ensemble.sweep import Sweep
from heomdask.ensemble.task import Work, batch_members, batch_nbytes, require_memory
from heomdask.errors import TooLarge
from heomdask.outcome import Outcome
from heomdask.progress import duration
from heomdask.results.folder import Folder, folder_of

CALIBRATION_MEMBERS = 8
SHORT = 0.1  # seconds of a run that is long enough to be extended
LONG = 1.0  # the same before its second segment, from which on times repeat themselves
DRAWN = 256  # points whose hierarchies are counted, for the mean
DRAWING_SECONDS = 1.0


@dataclass(frozen=True)
class SweepPlan:
    """The needs of a sweep.

    Attributes
    ----------
    shape : dimension -> number of values.
    points : of the whole sweep; `pending` of them are not in the store yet.
    hierarchies : (point in words, ADOs, modes) at the probe points.
    backends : that will be used for these; none if nothing is to be done.
    members : of the largest batch; it takes `batch_nbytes` of a worker's `worker_nbytes`.
    shards, shard : how many are pending, and the points of one along each dimension.
    pools : the classes of the workers, and how many there are of each.
    tasks : that the driver hands out, about.
    seconds : of computing without those of the class GPU, if there are others, from short runs here
        of hierarchies of each size.
    store_nbytes : of the full store.
    at_most : whether a stopping rule may leave some of all this out.
    """

    shape: dict[str, int]
    points: int
    pending: int
    hierarchies: tuple[tuple[str, int, int], ...]
    backends: tuple[str, ...]
    members: int
    batch_nbytes: int
    worker_nbytes: int
    pools: dict[str, int]
    shards: int
    shard: tuple[int, ...]
    tasks: int
    seconds: float
    store_nbytes: int
    at_most: bool

    @property
    def workers(self) -> int:
        return sum(self.pools.values())

    def rows(self) -> list[tuple[str, str]]:
        """Name and value of every need, as text."""
        shape = " x ".join(f"{n} {name}" for name, n in self.shape.items())
        most = "at most " if self.at_most else ""
        rows = [("points", f"{most}{self.points:,} ({shape})")]
        if self.pending != self.points:
            rows.append(("still to do", f"{most if self.pending else ''}{self.pending:,}"))
        sizes = {(n_ado, modes) for _, n_ado, modes in self.hierarchies}
        rows += [
            ("ADOs" if len(sizes) == 1 else f"ADOs at {where}", f"{n_ado:,} of {modes} modes")
            for where, n_ado, modes in self.hierarchies[: 1 if len(sizes) == 1 else None]
        ]
        if self.backends:
            rows.append(("backend", ", ".join(self.backends)))
        shard = " x ".join(map(str, self.shard))
        rows += [
            (
                "largest batch",
                f"{self.members} points, {memory.readable(self.batch_nbytes)} of "
                f"{memory.readable(self.worker_nbytes)} a worker",
            ),
            ("shards", f"{self.shards:,} of {shard} points"),
            ("tasks", f"about {self.tasks:,} for {_words(self.pools)}"),
            ("computing", f"about {duration(self.seconds)} on {_words(_known(self.pools))}"),
            ("store", memory.readable(self.store_nbytes)),
        ]
        return rows

    def __str__(self) -> str:
        width = max(len(name) for name, _ in self.rows())
        return "\n".join(f"{name:<{width}}  {value}" for name, value in self.rows())


def make_plan(
    sweep: Sweep,
    folder: Folder | None,
    workers: int | Workers | None,
    *,
    retry_failed: bool = False,
) -> SweepPlan:
    """Build a few points, time short runs of them, and add up. Writes nothing."""
    asked = workers if isinstance(workers, Workers) else Workers(workers=workers)
    pools, room = asked.share
    count = sum(_known(pools).values())
    found = probes(sweep)
    for seen in found:
        if isinstance(seen.error, TooLarge):
            raise seen.error
    require_memory(sweep, found, room)
    new = layout(sweep, found)
    nbytes = layout_nbytes(new)
    shard, order = new.shard, tuple(np.arange(n) for n in sweep.grid.shape)
    lacking = np.ones(sweep.grid.shape, dtype=bool)
    if folder is not None and folder.names():
        store = recognise(sweep, folder)
        match = match_store(sweep, store)
        shard, order = store.files.shard, match.order
        status = store.status()
        if not remembered(sweep.until, store):
            status[status == Outcome.NOT_NEEDED] = Outcome.PENDING
        if retry_failed:
            status[status == Outcome.FAILED] = Outcome.PENDING
        lacking = pending(Work(sweep, match, store.files, tuple(map(len, order))), status)
    else:
        require_disk(folder or folder_of("."), nbytes)
    todo, shards = np.argwhere(lacking), len(blocks(lacking, shard))
    prepared = [p.prepared for p in found if p.prepared is not None]
    largest = max(prepared, key=lambda p: p.index_set.n_ado)
    members = min(batch_members(sweep, largest, room // 2), sweep.grid.size)
    each, backends = _costs(sweep, found, _drawn(todo, order))
    return SweepPlan(
        shape=dict(zip(sweep.grid.names, sweep.grid.shape, strict=True)),
        points=sweep.grid.size,
        pending=len(todo),
        hierarchies=tuple(
            (sweep.grid.describe(p.index), p.prepared.index_set.n_ado, p.prepared.index_set.n_modes)
            for p in found
            if p.prepared is not None
        ),
        backends=backends,
        members=members,
        batch_nbytes=batch_nbytes(sweep, largest, members),
        worker_nbytes=room,
        pools=pools,
        shards=shards,
        shard=shard,
        tasks=_tasks(len(todo), max(1.0, len(todo) / max(shards, 1)), count, each),
        seconds=each * len(todo) / count,
        store_nbytes=nbytes,
        at_most=bool(sweep.until),
    )


def _known(pools: Mapping[str, int]) -> dict[str, int]:
    """The pools whose speed can be told from here: how fast GPUs are, the run finds out."""
    return {name: n for name, n in pools.items() if name != GPU or len(pools) == 1}


def _words(pools: Mapping[str, int]) -> str:
    """``4 workers``, or ``3 CPU and 1 GPU workers``."""
    counts = [f"{n} {name}".rstrip() for name, n in pools.items()]
    return f"{' and '.join(counts)} workers"


def _drawn(todo: NDArray[np.int64], order: Sequence[NDArray[np.int64]]) -> list[Index]:
    """Some of the points that are to be computed, in no order: any part of them stands for all.

    Parameters
    ----------
    todo : (n, dimensions), their places in the store.
    order : of each dimension, for each place in the store the index in the sweep's grid.
    """
    places = np.random.default_rng(0).permutation(todo)[:DRAWN]
    return [tuple(int(o[i]) for o, i in zip(order, p, strict=True)) for p in places]


def _costs(
    sweep: Sweep, found: list[Probe], drawn: Sequence[Index]
) -> tuple[float, tuple[str, ...]]:
    """Seconds per point, the mean over the drawn ones, and the backends that were used.

    A point takes time as its ADOs and the probes nearest in size, of which two are timed: the
    first of a grid and the last, which differ in all they can.
    """
    if not drawn:
        return 0.0, ()
    by_size: dict[int, list[float]] = {}
    backends = set()
    for seen in found:
        size = 0 if seen.prepared is None else seen.prepared.index_set.n_ado
        if size and len(by_size.get(size, ())) < 2:
            seconds, backend = _measure(sweep, seen)
            by_size.setdefault(size, []).append(seconds)
            backends.add(backend)
    measured = {size: float(np.mean(seconds)) for size, seconds in by_size.items()}
    sizes = _sizes(sweep, drawn) if len(measured) > 1 else []
    each = []
    for n in sizes or measured:
        near = min(measured, key=lambda size: abs(np.log(size / n)))
        each.append(measured[near] * n / near)
    return float(np.mean(each)), tuple(sorted(backends))


def _sizes(sweep: Sweep, drawn: Sequence[Index]) -> list[int]:
    """ADOs of as many points as can be laid out in a moment."""
    sizes: list[int] = []
    end = time.perf_counter() + DRAWING_SECONDS
    for index in drawn:
        if sizes and time.perf_counter() > end:
            break
        prepared = probe(sweep, index).prepared
        if prepared is not None:
            sizes.append(prepared.index_set.n_ado)
    return sizes


def _measure(sweep: Sweep, seen: Probe) -> tuple[float, str]:
    """Time of a probe point in a batch, from runs over the first part of its times; the backend.

    The rest takes as many applications of the generator, by the growth of their number, and each as
    long as those of the longest run: a number, which no load on the machine falsifies.
    """
    point, prepared = seen.point, seen.prepared
    assert point is not None and prepared is not None
    times = sweep.times.vector
    members = min(CALIBRATION_MEMBERS, sweep.grid.size)

    def until(last: int) -> tuple[float, dict[str, Any]]:
        started = time.perf_counter()
        result = run_batch(
            [prepared] * members,
            [point.rho0] * members,
            times[: last + 1],
            tol=point.tol,
            observables=sweep.observables,
            save=sweep.save,
            method=sweep.method,
            backend=sweep.backend,
            threads=1,
        )
        return time.perf_counter() - started, result.stats[0]

    end = len(times) - 1
    short, long, before = 0, min(1, end), 0
    spent, stats = until(long)
    while long < end and (short == 0 or spent < (SHORT if stats["segments"] > 1 else LONG)):
        short, before = long, stats["applications"]
        long = min(4 * long, end)
        spent, stats = until(long)
    rest, known = times[end] - times[long], times[long] - times[short]
    if rest > 0 and known > 0:
        more = (stats["applications"] - before) * float(rest / known)
        spent += stats["seconds"]["propagate"] * more / max(stats["applications"], 1)
    return spent / members, str(stats["backend"])


def _tasks(pending: int, shard_points: float, slots: int, each: float) -> int:
    """How many tasks the driver's rule gives."""
    count, left = 0, float(pending)
    while left > 0:
        points = max(task_points(int(left), pending, slots, each, 1), shard_points)
        left -= points // shard_points * shard_points
        count += 1
    return count
