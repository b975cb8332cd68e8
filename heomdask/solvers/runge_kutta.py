"""Driven generators: an embedded Runge-Kutta pair, each member with its own steps.

Takes: a compiled plan, its named scalars as `Drives`, a state, output times.
Gives: `Stepper`, which drives itself to the end.
Next file: `propagate.py`, the front of this package.

A step ends where a drive jumps and where a state is to be saved; values at other output times
come from the pair's own interpolant. The step control is proportional-integral, on the largest
element of the estimated error.
"""

from __future__ import annotations

import numpy as np

from heomdask.backends.traits import State
from heomdask.outcome import Outcome
from heomdask.plan import AnyArray
from heomdask.solvers.drives import Pieces, scan
from heomdask.solvers.record import Record, Task
from heomdask.solvers.tableau import DOPRI5
from heomdask.solvers.trajectory import Floats, Ints, Mask, Trajectory

SHARE = 0.3  # of `tol`, for the estimated errors of all steps together
CAUTION, SHRINK, GROW = 0.9, 0.2, 4.0
ORDER = 4  # of error over length, with which a step is judged
PROPORTIONAL, INTEGRAL = 0.4 / ORDER, 0.7 / ORDER
SMALLEST = 1e-13  # of the run: a step that must be shorter than this has met an infinity

A = [[float(x) for x in row] for row in DOPRI5.a]
C = [float(x) for x in DOPRI5.c]
ERROR = [float(x) for x in DOPRI5.error]
SPARE = 1  # a stage that neither the step nor its interpolant uses; the error is put there


class Stepper:
    """Steps of all members; arrays of shape (M,)."""

    def __init__(self, task: Task, x0: State) -> None:
        self.task = task
        backend, compiled = task.backend, task.compiled
        self.y, self.new = backend.empty(compiled), backend.empty(compiled)
        backend.combine(compiled, self.y, [1.0], [x0])
        self.k = [backend.empty(compiled) for _ in range(DOPRI5.stages)]
        self.record = Record(task, self.y)
        self.record.method = ["rk"] * task.members
        self.step = np.full(task.members, task.span)
        self.before = np.ones(task.members)  # error of the last accepted step, relative
        self.low = np.full(task.members, -np.inf)
        self.high = np.full(task.members, np.inf)
        self.pieces: list[Pieces] = []
        if task.drives is not None:
            known = task.drives.pieces
            self.pieces = list(known) or scan(task.drives, task.times, task.members)
            self.record.scan_resolution = self.pieces[0].resolution

    def to_end(self) -> Trajectory:
        """Run all members to the last time, or to where they stop."""
        record = self.record
        self._enter(record.active.copy(), first=True)
        while record.active.any():
            self._step()
            record.report()
        record.active[:] = [outcome.good for outcome in record.outcomes]
        record.watch(record.size_of(self.y))
        return record.finish(self.y)

    def _scalars(self, t: Floats) -> Floats | None:
        """The drives at these times; a member for which they are not finite stops."""
        drives, record = self.task.drives, self.record
        if drives is None:
            return None
        inside = np.clip(t, self.low, self.high)
        values = np.array(drives.value(inside), dtype=np.float64)
        broken = record.active & ~np.all(np.isfinite(values), axis=0)
        if broken.any():
            idx = np.flatnonzero(broken)
            record.stop(idx, Outcome.NOT_FINITE, inside[idx])
        values[:, ~np.all(np.isfinite(values), axis=0)] = 0.0
        return values

    def _enter(self, who: Mask, first: bool = False) -> None:
        """Begin a smooth piece: its limits, and the derivative there as the first stage."""
        record, task = self.record, self.task
        for m in np.flatnonzero(who) if self.pieces else ():
            self.low[m], self.high[m] = self.pieces[m].piece(record.t[m])
        mask = np.where(who, 1.0, 0.0)
        task.backend.apply(
            task.compiled, self.y, self.k[0], a=mask, c=1.0 - mask, scalars=self._scalars(record.t)
        )
        record.applications[who & record.active] += 1
        if first or self.pieces:
            size, speed = record.size_of(self.y), record.size_of(self.k[0])
            with np.errstate(invalid="ignore"):  # a state that is infinite
                guess = np.where(speed > 0, 0.1 * size / np.where(speed > 0, speed, 1.0), task.span)
            self.step = np.where(who, np.minimum(self.step, guess), self.step)

    def _lengths(self, idx: Ints) -> tuple[Floats, Floats]:
        """Lengths of the steps of the active members, and their ends."""
        record = self.record
        t = record.t[idx]
        end = np.minimum(record.next_stop(idx), self.high[idx])
        if self.pieces:
            reach = np.array([self.pieces[m].reach(record.t[m]) for m in idx])
            limit = np.minimum(reach, end)
        else:
            limit = end
        wanted = np.minimum(self.step[idx], limit - t)
        left = end - t
        wanted = np.where(wanted >= left * (1 - 1e-9), left, wanted)
        wanted = np.where((wanted < left) & (wanted > 0.5 * left), 0.5 * left, wanted)
        return wanted, np.where(wanted == left, end, t + wanted)

    def _step(self) -> None:
        """One step of every active member, accepted or not."""
        task, record = self.task, self.record
        record.limit()
        idx = np.flatnonzero(record.active)
        if not len(idx):
            return
        h, end = np.zeros(task.members), record.t.copy()
        h[idx], end[idx] = self._lengths(idx)
        self._stages(h)
        error = self._error(h)
        ran = record.active.copy()
        record.applications[ran] += DOPRI5.stages - 1
        part = h / max(task.whole, 1e-300)  # errors of steps add up: each has its share by length
        allowed = np.maximum(SHARE * task.tol * part, 1e-15 * record.largest)
        with np.errstate(all="ignore"):
            ratio = error / allowed
        good = ran & (ratio <= 1.0)
        self._control(ran, good, ratio, h)
        self._outputs(np.flatnonzero(good), h, end)
        self._accept(good, end)
        small = ran & ~good & (self.step < SMALLEST * task.span)
        self._collapsed(np.flatnonzero(small), error)

    def _collapsed(self, idx: Ints, error: Floats) -> None:
        finite = np.isfinite(error[idx])
        self.record.stop(idx[~finite], Outcome.NOT_FINITE, self.record.t[idx[~finite]])
        self.record.stop(idx[finite], Outcome.TOO_MANY_STEPS, self.record.t[idx[finite]])

    def _stages(self, h: Floats) -> None:
        """All stages but the first; the last is the derivative at the new state."""
        task, k = self.task, self.k
        for i in range(1, DOPRI5.stages):
            weights: list[float | Floats] = [1.0]
            arrays = [self.y]
            for j, number in enumerate(A[i - 1]):
                if number != 0:
                    weights.append(number * h)
                    arrays.append(k[j])
            task.backend.combine(task.compiled, self.new, weights, arrays)
            scalars = self._scalars(self.record.t + C[i] * h)
            task.backend.apply(task.compiled, self.new, k[i], scalars=scalars)

    def _error(self, h: Floats) -> Floats:
        """The largest element of the difference to the embedded step."""
        task = self.task
        used = [i for i, e in enumerate(ERROR) if e != 0]
        spare = self.k[SPARE]
        task.backend.combine(
            task.compiled, spare, [ERROR[i] * h for i in used], [self.k[i] for i in used]
        )
        return task.backend.error_norm(task.compiled, spare, self.new, self.new, 1.0, 0.0)

    def _control(self, ran: Mask, good: Mask, ratio: Floats, h: Floats) -> None:
        """The next step of every member that tried one."""
        safe = np.where(np.isfinite(ratio), np.maximum(ratio, 1e-10), 1e10)
        factor = CAUTION * safe**-INTEGRAL * self.before**PROPORTIONAL
        factor = np.where(good, np.clip(factor, SHRINK, GROW), 1.0)
        worse = np.clip(CAUTION * safe ** (-1 / ORDER), SHRINK, CAUTION)
        # a step cut short by an end says nothing against the longer one that was planned
        kept = np.where(good, np.maximum(h * factor, np.minimum(self.step, GROW * h)), h * worse)
        kept = np.where(good & (factor < 1), h * factor, kept)
        self.step = np.where(ran, kept, self.step)
        self.before = np.where(good, np.maximum(safe, 1e-4), self.before)

    def _outputs(self, idx: Ints, h: Floats, end: Floats) -> None:
        """Values at the output times inside the accepted steps, by the interpolant."""
        record, task = self.record, self.task
        last = np.searchsorted(task.times, end[idx], side="right")
        first = record.next_output[idx]
        if not np.any(last > first):
            return
        backend, compiled = task.backend, task.compiled
        base = backend.host(backend.pack(compiled, self.y, task.probe))
        slopes = [backend.host(backend.pack(compiled, k, task.probe)) for k in self.k]
        for m, i, j in zip(idx.tolist(), first.tolist(), last.tolist(), strict=True):
            if j > i:
                s = np.minimum((task.times[i:j] - record.t[m]) / h[m], 1.0)
                record.probed[i:j, :, m] = _interpolate(base[:, m], slopes, m, h[m], s)
                record.next_output[m] = j

    def _accept(self, good: Mask, end: Floats) -> None:
        """Take the new states; start the next piece where one has ended."""
        task, record = self.task, self.record
        if not good.any():
            record.rejected[record.active] += 1
            return
        refused = record.active & ~good
        if good.all():
            self.y, self.new = self.new, self.y
            self.k[0], self.k[-1] = self.k[-1], self.k[0]
        else:
            take, keep = np.where(good, 1.0, 0.0), np.where(good, 0.0, 1.0)
            task.backend.combine(task.compiled, self.y, [keep, take], [self.y, self.new])
            task.backend.combine(task.compiled, self.k[0], [keep, take], [self.k[0], self.k[-1]])
        record.segments[good] += 1
        record.rejected[refused] += 1
        record.t = np.where(good, end, record.t)
        record.watch(record.size_of(self.y))
        record.keep_states(self.y, good)
        record.active &= record.t < task.times[-1]
        crossing = record.active & good & (record.t >= self.high)
        if crossing.any():
            self._enter(crossing)


def _interpolate(base: AnyArray, slopes: list[AnyArray], m: int, h: float, s: Floats) -> AnyArray:
    """``y + h sum_i w_i(s) k_i`` at the relative times s (n,); (n, n_probe)."""
    weights = h * DOPRI5.weights_at(s)
    result = np.repeat(base[None].astype(np.result_type(base, np.float64)), len(s), axis=0)
    for i, slope in enumerate(slopes):
        if i != SPARE:
            result += weights[i][:, None] * slope[:, m]
    return result
