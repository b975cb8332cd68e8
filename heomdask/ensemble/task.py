"""What a worker does with a list of whole shards.

Takes: `Work` (sweep, store, what is asked for) and shards.
Gives: committed shards, and a small `Report`; never an array.
Next file: `driver.py`, which hands out the tasks.

Build the missing points; put those that share a hierarchy into batches that fit in memory; solve;
commit a shard as soon as its last point is there. A point that fails is recorded and stops nothing.
A task may run twice without harm: it finds committed points in `status` and leaves them alone. If
it outlives its run, since client or scheduler were killed, it commits nothing once the next one has
begun.
"""

from __future__ import annotations

import dataclasses
import sys
import time
import traceback
from collections.abc import Callable, Hashable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from heomdask import memory
from heomdask.backends import registry
from heomdask.batch import run_batch
from heomdask.ensemble import shards as shards_
from heomdask.ensemble.cells import Cells
from heomdask.ensemble.grid import Index, Match
from heomdask.ensemble.probe import Probe, prepare_point
from heomdask.ensemble.sweep import Point, Sweep
from heomdask.errors import BackendUnavailable, InputError, StoreError, TooLarge
from heomdask.expansion.notices import warn
from heomdask.outcome import Outcome
from heomdask.preparation import Prepared
from heomdask.results.chunks import Files, Shard
from heomdask.results.solution import BatchResult
from heomdask.results.store import record_failures

MOST_MEMBERS = 64  # of a batch; more gain nothing and commit later
TELL_EVERY = 1.0  # seconds, of a task that is not yet done
REAL_TO = 1e-10  # imaginary parts of real observables, relative to their size


@dataclass(frozen=True, eq=False)
class Work:
    """Everything that tasks share; small, and pickled once a worker.

    `card_levels` is set by a worker that has a card, for a sweep that leaves the backend open: the
    largest system that is computed on it.
    """

    sweep: Sweep
    match: Match
    files: Files
    extents: tuple[int, ...]
    card_levels: int = 0

    def sweep_for(self, d: int) -> Sweep:
        """The sweep, with the backend that computes systems of d levels here."""
        return self._on_card if d <= self.card_levels else self.sweep

    @cached_property
    def _on_card(self) -> Sweep:
        return dataclasses.replace(self.sweep, backend="cupy")

    @cached_property
    def cells(self) -> Cells:
        """The sweep's map."""
        return Cells.of(self.sweep.grid)

    def missing(self, shard: Shard, status: NDArray[np.uint8]) -> list[Shard]:
        """Places of a shard that are asked for and pending."""
        length = self.files.shard
        first = [s * n for s, n in zip(shard, length, strict=True)]
        rows = zip(self.match.order, first, length, strict=True)
        asked = shards_.product([order[f : f + n] >= 0 for order, f, n in rows])
        lacking = asked & (status[tuple(map(slice, asked.shape))] == Outcome.PENDING)
        return [tuple(place) for place in (np.argwhere(lacking) + first).tolist()]


@dataclass(frozen=True)
class Report:
    """What a task did."""

    points: int
    failed: int
    seconds: float


@dataclass(eq=False)
class _OpenShard:
    """A shard being filled: full chunks of every variable, and how many points it waits for."""

    shard: Shard
    values: dict[str, NDArray[Any]]
    waiting: int = 0
    failures: dict[Shard, tuple[str, str]] = field(default_factory=dict)


@dataclass(frozen=True, eq=False)
class _Job:
    """One point to be computed."""

    owner: _OpenShard
    place: Shard
    point: Point
    prepared: Prepared

    @property
    def group(self) -> Hashable:
        """Jobs of one group may share a batch."""
        return (self.prepared.key, self.point.tol)


def run_task(
    work: Work,
    shards: Sequence[Shard],
    memory_limit: int | None = None,
    tell: Callable[[float], None] | None = None,
    ended: Callable[[Index, Outcome, str], None] | None = None,
) -> Report:
    """Compute and commit what the shards lack, in batches within half of the memory.

    `tell` is called about once a second with how many points' worth of it is done; never by a
    task that takes less than that. `ended` is called for every point that is computed, with its
    index in the grid, its outcome, and the text of its error or none.
    """
    started = time.perf_counter()
    writer = _Writer(work, ended)
    told = None if tell is None else _Paced(tell)
    groups: dict[Hashable, list[_Job]] = {}
    for shard in shards:
        owner = writer.open(shard)
        places = work.missing(shard, owner.values["status"])
        owner.waiting = len(places)
        for job in _jobs(work, writer, owner, places):
            groups.setdefault(job.group, []).append(job)
    for jobs in groups.values():
        for batch in _batches(work, jobs, memory_limit or sys.maxsize):
            _solve(work, writer, batch, told)
    return Report(writer.points, writer.failed, time.perf_counter() - started)


def fail_shard(
    work: Work, shard: Shard, reason: str, ended: Callable[[Index, Outcome, str], None]
) -> Report:
    """Record all that a shard lacks as failed; for shards whose workers keep dying."""
    writer = _Writer(work, ended)
    owner = writer.open(shard)
    places = work.missing(shard, owner.values["status"])
    owner.waiting = len(places)
    for place in places:
        writer.fail(owner, place, reason, reason)
    return Report(writer.points, writer.failed, 0.0)


class _Paced:
    """Passes a number on, but at most once in `TELL_EVERY`, and not before that."""

    def __init__(self, tell: Callable[[float], None]) -> None:
        self._tell = tell
        self._next = time.monotonic() + TELL_EVERY

    def __call__(self, points: float) -> None:
        now = time.monotonic()
        if now >= self._next:
            self._next = now + TELL_EVERY
            self._tell(points)


class _Writer:
    """Collects points into shards and commits each shard once it is complete."""

    def __init__(
        self, work: Work, ended: Callable[[Index, Outcome, str], None] | None = None
    ) -> None:
        self.work = work
        self.ended = ended
        self.files = work.files
        self.points = 0
        self.failed = 0

    def open(self, shard: Shard) -> _OpenShard:
        """A shard as it stands: blank, or what an earlier run committed."""
        known = self.files.read("status", shard).any()
        return _OpenShard(shard, self.files.read_all(shard) if known else self.files.blanks())

    def put(
        self,
        owner: _OpenShard,
        places: Sequence[Shard],
        values: dict[str, NDArray[Any]],
        outcomes: Sequence[Outcome],
    ) -> None:
        """Some points of a shard; their values are (n, ...)."""
        first = [s * n for s, n in zip(owner.shard, self.files.shard, strict=True)]
        local = tuple((np.array(places) - first).T)
        for name, column in values.items():
            owner.values[name][local] = column
        owner.values["status"][local] = outcomes
        self.points += len(places)
        if self.ended is not None:
            for place, outcome in zip(places, outcomes, strict=True):
                if (asked := self.work.match.wanted(place)) is not None:
                    self.ended(asked, outcome, owner.failures.get(place, ("", ""))[0])
        owner.waiting -= len(places)
        if owner.waiting == 0:
            if owner.failures:
                record_failures(self.files.folder, owner.failures)
            self.files.commit(owner.shard, owner.values)
            owner.values = {}

    def fail(self, owner: _OpenShard, place: Shard, error: str, trace: str) -> None:
        """One point's failure."""
        self.failed += 1
        owner.failures[place] = (error, trace)
        self.put(owner, [place], {}, [Outcome.FAILED])

    def caught(self, owner: _OpenShard, place: Shard, error: Exception) -> None:
        """One point's failure, from what it raised."""
        asked = self.work.match.wanted(place)
        where = "" if asked is None else self.work.sweep.grid.describe(asked)
        text = f"{type(error).__name__}: {error} (at {where})"
        self.fail(owner, place, text, "".join(traceback.format_exception(error)))


def _jobs(
    work: Work, writer: _Writer, owner: _OpenShard, places: Sequence[Shard]
) -> Iterator[_Job]:
    """Build and prepare points, but those where that fails (which is recorded).

    A problem is prepared before the next is built: what its functions read may change then. Random
    numbers are made before all: beside `build` they would take twice as long, for want of cache.
    """
    asked = [index for place in places if (index := work.match.wanted(place)) is not None]
    rngs = [work.sweep.rng(index) for index in asked]
    for place, index, rng in zip(places, asked, rngs, strict=True):
        try:
            point = work.sweep.point(index, rng)
            prepared = prepare_point(work.sweep, point)
        except Exception as error:
            writer.caught(owner, place, error)
        else:
            yield _Job(owner, place, point, prepared)


def batch_nbytes(sweep: Sweep, prepared: Prepared, members: int) -> int:
    """Bytes that a batch of so many members takes."""
    backend = registry.get(sweep.backend, threads=1, layout="batch")
    columns = backend.columns(prepared.problem.d, members)
    return prepared.size.run_bytes(members, len(sweep.times), columns=columns, save=sweep.save)


def batch_members(sweep: Sweep, prepared: Prepared, room: int) -> int:
    """How many members may share a batch in so many bytes; at least one, which may not fit."""
    many = range(MOST_MEMBERS, 1, -1)
    return next((m for m in many if batch_nbytes(sweep, prepared, m) <= room), 1)


def require_memory(sweep: Sweep, found: Sequence[Probe], room: int) -> None:
    """Refuse a sweep of which a point cannot fit into a worker.

    Parameters
    ----------
    found : probe points; those whose size is unknown are left to the workers.
    room : bytes of the smallest worker.

    The workers may have a backend that cannot run here; then a state has the least room that any
    backend gives it.
    """
    for seen in found:
        if seen.prepared is None:
            continue
        try:
            need = batch_nbytes(sweep, seen.prepared, 1)
        except BackendUnavailable:
            need = seen.prepared.size.run_bytes(1, len(sweep.times), save=sweep.save)
        if need > room:
            raise TooLarge(
                f"A point needs about {memory.readable(need)} (at "
                f"{sweep.grid.describe(seen.index)}: {seen.prepared.index_set.n_ado:,} ADOs of "
                f"{seen.d} x {seen.d}) and a worker has {memory.readable(room)}; lower `depth`, "
                "use fewer exponents, or give fewer workers more memory each."
            )


def _batches(work: Work, jobs: list[_Job], limit: int) -> Iterator[list[_Job]]:
    """Slices of a group that fit into half of the memory that the backend may take."""
    prepared = jobs[0].prepared
    sweep = work.sweep_for(prepared.problem.d)
    room = min(registry.get(sweep.backend, threads=1, layout="batch").free(), limit) // 2
    members = batch_members(sweep, prepared, room)
    for first in range(0, len(jobs), members):
        yield jobs[first : first + members]


def _solve(
    work: Work, writer: _Writer, batch: list[_Job], told: _Paced | None, whole: bool = True
) -> None:
    """Solve a batch; if that raises, each member alone, so that only the culprit fails.

    If it has run out of memory, it is tried in two halves before.
    """
    started = time.perf_counter()
    sweep, before = work.sweep_for(batch[0].prepared.problem.d), writer.points
    progress = None if told is None else lambda part: told(before + len(batch) * part)
    try:
        result = run_batch(
            [j.prepared for j in batch],
            [j.point.rho0 for j in batch],
            sweep.times.vector,
            tol=batch[0].point.tol,
            observables=sweep.observables,
            save=sweep.save,
            method=sweep.method,
            backend=sweep.backend,
            threads=1,
            progress=progress,
        )
    except (StoreError, BackendUnavailable):  # of this machine, not of the points
        raise
    except Exception as error:
        if len(batch) == 1:
            writer.caught(batch[0].owner, batch[0].place, error)
            return
        parts = [[job] for job in batch]
        if whole and isinstance(error, MemoryError):
            half = -(-len(batch) // 2)
            parts = [batch[:half], batch[half:]]
            warn(f"{len(batch)} points did not fit into memory together; they go in two halves.")
    else:
        seconds = (time.perf_counter() - started) / len(batch)
        _keep(writer, batch, result, seconds)
        return
    for part in parts:  # now that nothing holds what the batch has left
        _solve(work, writer, part, told, whole=False)


def _keep(writer: _Writer, batch: list[_Job], result: BatchResult, seconds: float) -> None:
    """Write what became of each member.

    A value that does not fit into the store is that member's failure.
    """
    values, wrong = _values(writer.files, result, seconds)
    members: dict[_OpenShard, list[int]] = {}
    for m, job in enumerate(batch):
        if m in wrong:
            writer.caught(job.owner, job.place, wrong[m])
        else:
            members.setdefault(job.owner, []).append(m)
    for owner, who in members.items():
        own = {name: column[who] for name, column in values.items()}
        writer.put(owner, [batch[m].place for m in who], own, [result.outcomes[m] for m in who])


def _values(
    files: Files, result: BatchResult, seconds: float
) -> tuple[dict[str, NDArray[Any]], dict[int, InputError]]:
    """Values of all members, (M, ...), by the store's variables; whose do not fit, and why."""
    found: dict[str, NDArray[Any]] = {}
    wrong: dict[int, InputError] = {}
    for variable in files.variables[:-1]:
        name, column = variable.name, _column(variable.name, result, seconds)
        if column.shape[1:] != variable.shape:
            error = InputError(
                f"`build` must return problems of one size, got {name} of shape {column.shape[1:]} "
                f"where the store has {variable.shape}; use one store for each size."
            )
            return {}, dict.fromkeys(range(len(result)), error)
        if variable.dtype == "float64" and np.iscomplexobj(column):
            error = InputError(
                "`build` must return Hermitian initial states like those at the first points, got "
                f"one where the observable {name!r} is complex; use another store for it."
            )
            wrong.update(dict.fromkeys(_complex(column), error))
            column = column.real
        found[name] = column
    return found, wrong


def _column(name: str, result: BatchResult, seconds: float) -> NDArray[Any]:
    """One variable's values of all members, (M, ...)."""
    if name == "rho" and result.rho is not None:
        return result.rho
    if name in result.observables:
        return result.observables[name]
    if name == "seconds":
        return np.full(len(result), seconds)
    return np.array([own.get(name, np.nan) for own in result.stats], dtype=np.float64)


def _complex(values: NDArray[Any]) -> list[int]:
    """Members whose imaginary parts are more than rounding."""
    flat = values.reshape(len(values), -1)
    size = np.max(np.abs(flat), axis=1, initial=1.0)
    found: list[int] = np.flatnonzero(np.max(np.abs(flat.imag), axis=1) > REAL_TO * size).tolist()
    return found
