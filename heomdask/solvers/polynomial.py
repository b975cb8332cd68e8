"""Constant generators: guarded polynomial segments, each member at its own pace.

Takes: a compiled plan without named scalars, a state, output times.
Gives: `Run`, the state of all members between passes, and `run`, which drives it to the end.
Next file: `propagate.py`, the front of this package.

One pass is one call of `recur`: every member that is not done tries one segment, of its own
length and degree; rows beyond a member's degree, and members that are done, are zero rows.
Values at output times are read off the probed elements of the polynomial's terms, exactly. A
segment is accepted if what the series cut off and the rounding of its largest term are small
enough; if not, the state is left as it was, and the member tries something shorter.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from heomdask.backends.traits import BackendTraits, Compiled, Selection, State
from heomdask.outcome import Outcome
from heomdask.plan import AnyArray
from heomdask.solvers.bounds import Bounds, fastest_rate, field_of_values
from heomdask.solvers.faber import Faber
from heomdask.solvers.segment import Segments, Series
from heomdask.solvers.taylor import Taylor
from heomdask.solvers.trajectory import Floats, Ints, Mask, Trajectory

TRUNCATION_SHARE = 0.1  # of `tol`, for all that the series cut off over the whole run
ROUNDING = 45.0  # rounding error of a sum of terms, in units of the machine epsilon
FLOOR = 10.0  # a tolerance below this times the rounding of the state itself cannot be met
GROWTH_LIMIT = 1e8  # of the state's largest element: then the generator is unstable
FEW = 60  # applications that Taylor may still need where auto prefers it to bounds and Faber
SCOUT = 3  # applications that guess the size of G


@dataclass(frozen=True, eq=False)
class Task:
    """What `propagate` was asked for, checked."""

    backend: BackendTraits
    compiled: Compiled
    times: Floats
    probe: Selection
    tol: Floats  # (M,)
    method: str
    bounds: Bounds | None
    save_states: tuple[int, ...]
    progress: Callable[[float], None] | None
    max_applications: int

    @property
    def members(self) -> int:
        return self.compiled.plan.n_members

    @property
    def span(self) -> float:
        return float(self.times[-1] - self.times[0])


class Record:
    """Outputs, saved states and counts of all members; shared by all methods."""

    def __init__(self, task: Task, x: State) -> None:
        self.task = task
        shape = (len(task.times), len(task.probe), task.members)
        plan = task.compiled.plan
        self.probed: AnyArray = np.full(shape, np.nan, dtype=plan.dtype)
        self.states: dict[int, State] = {}
        self.t = np.full(task.members, task.times[0])
        self.next_output = np.zeros(task.members, dtype=np.int64)
        self.active = np.ones(task.members, dtype=bool)
        self.outcomes = [Outcome.DONE] * task.members
        self.applications = np.zeros(task.members, dtype=np.int64)
        self.bound_applications = np.zeros(task.members, dtype=np.int64)
        self.segments = np.zeros(task.members, dtype=np.int64)
        self.rejected = np.zeros(task.members, dtype=np.int64)
        self.method = [task.method] * task.members
        self.stopped_at = np.full(task.members, np.nan)
        self.start_size = self.size_of(x)
        self.growth = np.ones(task.members)
        self.stops = np.unique([*(task.times[i] for i in task.save_states), task.times[-1]])
        self._outputs_at_start(x)

    def size_of(self, x: State) -> Floats:
        """The largest element of every member; (M,)."""
        return self.task.backend.error_norm(self.task.compiled, x, x, x, 1.0, 0.0)

    def _outputs_at_start(self, x: State) -> None:
        task = self.task
        first = int(np.searchsorted(task.times, task.times[0], side="right"))
        backend = task.backend
        self.probed[:first] = backend.host(backend.pack(task.compiled, x, task.probe))
        self.next_output[:] = first
        everyone = np.ones(task.members, dtype=bool)
        self.keep_states(x, everyone)
        if task.span == 0:
            self.active[:] = False

    def next_stop(self, idx: Ints) -> Floats:
        """The time at which the current segments must end at the latest."""
        after = np.searchsorted(self.stops, self.t[idx], side="right")
        return np.asarray(self.stops[np.minimum(after, len(self.stops) - 1)])

    def keep_states(self, x: State, arrived: Mask) -> None:
        """Copy the states of members that are at a time to be saved."""
        task = self.task
        for index in dict.fromkeys(task.save_states):
            here = arrived & (self.t == task.times[index])
            if not here.any():
                continue
            if index not in self.states:
                self.states[index] = task.backend.empty(task.compiled)
            saved = self.states[index]
            weights = [np.where(here, 0.0, 1.0), np.where(here, 1.0, 0.0)]
            task.backend.combine(task.compiled, saved, weights, [saved, x])

    def stop(self, members: Ints, outcome: Outcome, at: Floats) -> None:
        """End these members early."""
        for m, t in zip(members.tolist(), at.tolist(), strict=True):
            self.outcomes[m] = outcome
            self.stopped_at[m] = t
        self.active[members] = False

    def watch(self, size: Floats) -> None:
        """Note growth; stop members that are not finite, or grew beyond all bounds."""
        idx = np.flatnonzero(self.active)
        ratio = size[idx] / np.where(self.start_size[idx] > 0, self.start_size[idx], 1.0)
        broken = ~np.isfinite(size[idx])
        self.stop(idx[broken], Outcome.NOT_FINITE, self.t[idx[broken]])
        self.growth[idx] = np.where(broken, np.inf, np.maximum(self.growth[idx], ratio))
        wild = ~broken & (ratio > GROWTH_LIMIT)
        self.stop(idx[wild], Outcome.UNSTABLE, self.t[idx[wild]])

    def finish(self, x: State) -> Trajectory:
        """Everything as a `Trajectory`."""
        task = self.task
        early = ~np.isnan(self.stopped_at)
        rates = fastest_rate(task.compiled.plan) if early.any() else np.zeros(task.members)
        stats = []
        for m in range(task.members):
            own: dict[str, int | float | str] = {
                "applications": int(self.applications[m]),
                "bound_applications": int(self.bound_applications[m]),
                "segments": int(self.segments[m]),
                "rejected": int(self.rejected[m]),
                "method": self.method[m],
            }
            if early[m]:
                own |= {"stopped_at": float(self.stopped_at[m]), "fastest_rate": float(rates[m])}
            stats.append(own)
        return Trajectory(
            task.times, self.probed, x, self.states, tuple(self.outcomes), tuple(stats), self.growth
        )


class Run:
    """Passes of polynomial segments over all members."""

    def __init__(self, task: Task, x0: State) -> None:
        self.task = task
        backend, compiled = task.backend, task.compiled
        self.x = backend.empty(compiled)
        backend.combine(compiled, self.x, [1.0], [x0])
        self.acc = backend.empty(compiled)
        self.work = (backend.empty(compiled), backend.empty(compiled))
        self.record = Record(task, self.x)
        self.rate = TRUNCATION_SHARE * task.tol / max(task.span, 1e-300)
        self.epsilon = ROUNDING * float(np.finfo(compiled.dtype).eps)
        self.bounds = task.bounds
        self.faber: Faber | None = None
        self.taylor: Taylor
        self.uses_faber = np.zeros(task.members, dtype=bool)
        self.may_use_faber = np.full(task.members, task.method != "taylor")

    def to_end(self) -> Trajectory:
        """Run all members to the last time, or to where they stop."""
        record = self.record
        if record.active.any():
            self._scout()
        while record.active.any():
            size = record.size_of(self.x)
            record.watch(size)
            self._limit()
            self._switch()
            if record.active.any():
                self._pass(size)
            if self.task.progress is not None and self.task.span > 0:
                done = np.where(record.active, (record.t - self.task.times[0]) / self.task.span, 1)
                self.task.progress(float(np.mean(done)))
        size = record.size_of(self.x)
        alive = np.array([o.good for o in record.outcomes])
        record.active[:] = alive
        record.watch(size)
        record.active[:] = False
        return record.finish(self.x)

    def _scout(self) -> None:
        """A first guess at the size of G, from which Taylor takes its first step."""
        task = self.task
        table = np.zeros((SCOUT + 1, 4, task.members))
        table[1:, 0] = 1.0
        _, norms = task.backend.recur(
            task.compiled, self.x, table, self.acc, task.probe, self.work
        )
        self.record.applications += SCOUT
        with np.errstate(all="ignore"):
            growth = np.max(norms[1:] / norms[:-1], axis=0)
        growth = np.where(np.isfinite(growth) & (growth > 0), growth, 1.0 / task.span)
        self.taylor = Taylor(np.minimum(1.0 / growth, task.span), task.tol)

    def _limit(self) -> None:
        record = self.record
        late = np.flatnonzero(record.active & (record.applications >= self.task.max_applications))
        record.stop(late, Outcome.TOO_MANY_STEPS, record.t[late])

    def _switch(self) -> None:
        """Who goes on with which series: a member's own decision, whatever its companions do."""
        record, task = self.record, self.task
        candidates = record.active & self.may_use_faber & ~self.uses_faber
        left = task.times[-1] - record.t
        ahead = left / self.taylor.length * self.taylor.order
        wants = candidates & ((task.method == "faber") | (ahead > FEW))
        if wants.any():
            self._need_bounds()
            self.uses_faber |= wants
            record.bound_applications[wants] = 0 if self.bounds is None else self.bounds.applications
        if self.faber is not None:
            lost = self.uses_faber & self.faber.given_up()
            self.uses_faber &= ~lost
            self.may_use_faber &= ~lost

    def _need_bounds(self) -> None:
        if self.faber is None:
            if self.bounds is None:
                self.bounds = field_of_values(self.task.backend, self.task.compiled)
            self.faber = Faber(self.bounds, self.task.span)

    def _groups(self) -> list[tuple[Series, Ints]]:
        """The series in use, and the members of each."""
        active = self.record.active
        groups: list[tuple[Series, Ints]] = [(self.taylor, np.flatnonzero(active & ~self.uses_faber))]
        if self.faber is not None:
            groups.append((self.faber, np.flatnonzero(active & self.uses_faber)))
        return [(series, idx) for series, idx in groups if len(idx)]

    def _pass(self, size: Floats) -> None:
        """One segment of every active member."""
        task, record = self.task, self.record
        ceiling = np.maximum(task.tol, FLOOR * self.epsilon * size) / self.epsilon
        tried: list[tuple[Series, Segments]] = []
        for series, idx in self._groups():
            remaining = record.next_stop(idx) - record.t[idx]
            tried.append(
                (series, series.choose(idx, remaining, size[idx], self.rate[idx], ceiling[idx]))
            )
        height = max(int(s.degree.max()) for _, s in tried) + 1
        table = np.zeros((height, 4, task.members))
        table[0, 3] = 1.0
        for series, segments in tried:
            rows = series.rows(segments)
            table[: len(rows), :, segments.idx] = rows
        probed, norms = task.backend.recur(
            task.compiled, self.x, table, self.acc, task.probe, self.work
        )
        accepted = np.zeros(task.members, dtype=bool)
        for series, segments in tried:
            idx = segments.idx
            own = norms[: int(segments.degree.max()) + 1, idx]
            good = series.judge(segments, own, self.rate[idx], ceiling[idx])
            record.applications[idx] += segments.degree
            record.segments[idx] += good
            record.rejected[idx] += ~good
            for m in idx[good]:
                record.method[m] = series.name
            self._outputs(series, segments, good, probed)
            accepted[idx[good]] = True
        self._accept(accepted, size)

    def _outputs(self, series: Series, segments: Segments, good: Mask, probed: AnyArray) -> None:
        """Values at the output times inside the accepted segments; move the members on."""
        record, times = self.record, self.task.times
        idx = segments.idx
        remaining = record.next_stop(idx) - record.t[idx]
        ends_at_stop = segments.length >= remaining * (1 - 1e-12)
        end = np.where(ends_at_stop, record.next_stop(idx), record.t[idx] + segments.length)
        first = record.next_output[idx]
        last = np.where(good, np.searchsorted(times, end, side="right"), first)
        counts = last - first
        which = np.repeat(np.arange(len(idx)), counts)
        if len(which):
            offsets = np.concatenate([[0], np.cumsum(counts)])
            row = np.arange(len(which)) - offsets[which] + first[which]
            dt = np.minimum(times[row] - record.t[idx[which]], segments.length[which])
            values = series.values(segments, which, dt)
            for i in np.flatnonzero(counts):
                m, k = idx[i], int(segments.degree[i]) + 1
                weights = np.ascontiguousarray(values[:k, offsets[i] : offsets[i + 1]].T)
                record.probed[first[i] : last[i], :, m] = _sum(weights, probed[:k, :, m])
        record.next_output[idx] = last
        record.t[idx] = np.where(good, end, record.t[idx])

    def _accept(self, accepted: Mask, size: Floats) -> None:
        """Take the new state of those that were accepted; stop those at the end."""
        task, record = self.task, self.record
        refused = record.active & ~accepted
        if refused.any():
            weights = [np.where(refused, 1.0, 0.0), np.where(refused, 0.0, 1.0)]
            task.backend.combine(task.compiled, self.acc, weights, [self.x, self.acc])
        self.x, self.acc = self.acc, self.x
        record.keep_states(self.x, accepted)
        record.active &= record.t < task.times[-1]


def _sum(weights: Floats, terms: AnyArray) -> AnyArray:
    """``sum_k weights[j, k] terms[k, p]``, in one order whatever lies around these arrays."""
    terms = np.ascontiguousarray(terms)
    if np.iscomplexobj(terms):
        real = terms.view(terms.real.dtype)
        return np.ascontiguousarray(weights @ real).view(np.complex128)
    result: AnyArray = weights @ terms
    return result


def save_indices(save_states: Sequence[int], n_times: int) -> tuple[int, ...]:
    """Indices into the times, negative ones counted from the end."""
    return tuple(range(n_times)[i] for i in save_states)
