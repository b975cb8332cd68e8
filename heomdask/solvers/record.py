"""What all methods keep while they run: where each member is, outputs, counts, outcomes.

Takes: the arguments of `propagate`, checked, as a `Task`.
Gives: `Record`, which becomes the `Trajectory`.
Next file: `bounds.py`, the ellipse that holds the field of values.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from heomdask.backends.traits import BackendTraits, Compiled, Selection, State
from heomdask.outcome import Outcome
from heomdask.plan import AnyArray
from heomdask.solvers.bounds import Bounds, fastest_rate
from heomdask.solvers.drives import Drives
from heomdask.solvers.trajectory import Floats, Ints, Mask, Trajectory

GROWTH_LIMIT = 1e8  # of the state's largest element: then the generator is unstable


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
    drives: Drives | None
    save_states: tuple[int, ...]
    progress: Callable[[float], None] | None
    max_applications: int
    whole: float  # time over which `tol` is spread
    wants_end: bool  # whether the state at the last time is wanted

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
        self.bounds = task.bounds
        self.scan_resolution: float | None = None
        self.stopped_at = np.full(task.members, np.nan)
        self.start_size = self.size_of(x)
        self.largest = self.start_size.copy()
        self.reported = np.zeros(task.members)
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

    def limit(self) -> None:
        """Stop members that have used up their applications."""
        late = np.flatnonzero(self.active & (self.applications >= self.task.max_applications))
        self.stop(late, Outcome.TOO_MANY_STEPS, self.t[late])

    def report(self, ahead: Floats | float = 0.0) -> None:
        """Tell the caller how much of the time is done, on average over the members.

        `ahead` is what the steps under way have of theirs; one that is refused later takes nothing
        back.
        """
        task = self.task
        if task.progress is not None:
            part = np.minimum((self.t + ahead - task.times[0]) / task.span, 1.0)
            self.reported = np.maximum(self.reported, np.where(self.active, part, 1.0))
            task.progress(float(np.mean(self.reported)))

    def watch(self, size: Floats) -> None:
        """Note growth; stop members that are not finite, or grew beyond all bounds."""
        broken = self.active & ~np.isfinite(size)
        wild = self.active & ~broken & (size > GROWTH_LIMIT * self.start_size)
        seen = np.where(broken, np.inf, np.maximum(self.largest, size))
        self.largest = np.where(self.active, seen, self.largest)
        for mask, outcome in ((broken, Outcome.NOT_FINITE), (wild, Outcome.UNSTABLE)):
            idx = np.flatnonzero(mask)
            self.stop(idx, outcome, self.t[idx])

    def finish(self, x: State) -> Trajectory:
        """Everything as a `Trajectory`."""
        task = self.task
        with np.errstate(invalid="ignore"):  # a start that is infinite
            growth = self.largest / np.where(self.start_size > 0, self.start_size, 1.0)
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
            if self.scan_resolution is not None:
                own["scan_resolution"] = self.scan_resolution
            if early[m]:
                own |= {"stopped_at": float(self.stopped_at[m]), "fastest_rate": float(rates[m])}
            stats.append(own)
        return Trajectory(
            task.times,
            self.probed,
            x,
            self.states,
            tuple(self.outcomes),
            tuple(stats),
            growth,
            self.bounds,
        )
