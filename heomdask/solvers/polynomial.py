"""Constant generators: guarded polynomial segments, each member at its own pace.

Takes: a compiled plan without named scalars, a state, output times.
Gives: `Run`, the state of all members between passes, which drives itself to the end.
Next file: `drives.py`, where generators begin to depend on time.

One pass is one call of `recur`: every member that is not done tries one segment, of its own
length and degree; rows beyond a member's degree, and members that are done, are zero rows.
Values at output times are read off the probed elements of the polynomial's terms, exactly. A
segment is accepted if what the series cut off and the rounding of its largest term are small
enough; if not, the state is left as it was, and the member tries something shorter.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from heomdask.backends.traits import State, precision_of
from heomdask.outcome import Outcome
from heomdask.plan import AnyArray
from heomdask.solvers.bounds import Bounds, field_of_values
from heomdask.solvers.faber import Faber
from heomdask.solvers.record import Record, Task
from heomdask.solvers.segment import Segments, Series
from heomdask.solvers.taylor import Taylor
from heomdask.solvers.trajectory import Floats, Ints, Mask, Trajectory

TRUNCATION_SHARE = 0.2  # of `tol`, for all that the series cut off over the whole run
ROUNDING = 45.0  # rounding error of a sum of terms, in units of the machine epsilon
FLOOR = 10.0  # of the state: so large may a term be, whatever its rounding does
SINGLE = 30.0  # of the state: larger terms would cost single precision too many of its digits
FEW = 60  # applications that Taylor may still need where auto prefers it to bounds and Faber
SMALLEST = 1e-13  # of the run: a segment that must be shorter than this has met an infinity
AT_ONCE = 4096  # output times of all members whose coefficients are made together
STRIDE = 64  # terms after which a segment may change its degree
SCOUT = 3  # applications that guess the size of G


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
        self.rate = TRUNCATION_SHARE * task.tol / max(task.whole, 1e-300)
        epsilon = ROUNDING * float(np.finfo(compiled.dtype).eps)
        self.single = precision_of(compiled) == "float32"
        self.largest = task.tol / epsilon
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
            record.limit()
            self._switch()
            if record.active.any():
                self._pass(size)
            record.report()
        if self.task.wants_end:
            record.active[:] = [outcome.good for outcome in record.outcomes]
            record.watch(record.size_of(self.x))
        return record.finish(self.x)

    def _scout(self) -> None:
        """A first guess at the size of G, from which Taylor takes its first step."""
        task = self.task
        table = np.zeros((SCOUT + 1, 4, task.members))
        table[1:, 0] = 1.0
        _, norms = task.backend.recur(task.compiled, self.x, table, None, task.probe, self.work)
        self.record.applications += SCOUT
        with np.errstate(all="ignore"):
            growth = np.max(norms[1:] / norms[:-1], axis=0)
        growth = np.where(np.isfinite(growth) & (growth > 0), growth, 1.0 / task.span)
        self.taylor = Taylor(np.minimum(1.0 / growth, task.span), task.tol)

    def _switch(self) -> None:
        """Who goes on with which series: a member's own decision, whatever its companions do."""
        record, task = self.record, self.task
        candidates = record.active & self.may_use_faber & ~self.uses_faber
        left = task.times[-1] - record.t
        ahead = left / self.taylor.length * self.taylor.order
        wants = candidates & ((task.method == "faber") | (ahead > FEW))
        if wants.any():
            self.uses_faber |= wants
            record.bound_applications[wants] = self._need_bounds().applications
        if self.faber is not None:
            lost = self.uses_faber & self.faber.given_up()
            self.uses_faber &= ~lost
            self.may_use_faber &= ~lost

    def _need_bounds(self) -> Bounds:
        """The ellipses of all members, made when the first one needs them."""
        bounds = self.record.bounds
        if bounds is None:
            compiled = self.task.compiled
            bounds = field_of_values(self.task.backend, compiled.plan, precision_of(compiled))
            self.record.bounds = bounds
        if self.faber is None:
            self.faber = Faber(bounds, self.task.span)
        return bounds

    def _groups(self) -> list[tuple[Series, Ints]]:
        """The series in use, and the members of each."""
        active = self.record.active
        by_taylor = np.flatnonzero(active & ~self.uses_faber)
        groups: list[tuple[Series, Ints]] = [(self.taylor, by_taylor)]
        if self.faber is not None:
            groups.append((self.faber, np.flatnonzero(active & self.uses_faber)))
        return [(series, idx) for series, idx in groups if len(idx)]

    def _pass(self, size: Floats) -> None:
        """One segment of every active member."""
        task, record = self.task, self.record
        ceiling = np.maximum(self.largest, FLOOR * size)
        if self.single:
            ceiling = np.minimum(ceiling, SINGLE * size)
        tried: list[tuple[Series, Segments]] = []
        for series, idx in self._groups():
            remaining = record.next_stop(idx) - record.t[idx]
            tried.append(
                (series, series.choose(idx, remaining, size[idx], self.rate[idx], ceiling[idx]))
            )
        acc = self.acc if task.wants_end or not self._finishing(tried) else None
        tried, probed, norms = self._terms(tried, acc)
        accepted = np.zeros(task.members, dtype=bool)
        for series, segments in tried:
            idx = segments.idx
            own = norms[: int(segments.degree.max()) + 1, idx]
            good = series.judge(segments, own, self.rate[idx], ceiling[idx])
            record.applications[idx] += segments.degree
            self._collapsed(segments, good, own)
            record.segments[idx] += good
            record.rejected[idx] += ~good
            for m in idx[good]:
                record.method[m] = series.name
            self._outputs(series, segments, good, probed)
            accepted[idx[good]] = True
        if acc is not None:
            self._accept(accepted)
        record.active &= record.t < task.times[-1]

    def _terms(
        self, tried: list[tuple[Series, Segments]], acc: State | None
    ) -> tuple[list[tuple[Series, Segments]], AnyArray, Floats]:
        """The terms of all segments, STRIDE at a time; between, each may change its degree."""
        task, start = self.task, 0
        parts: list[tuple[AnyArray, Floats]] = []
        while start <= (last := max(int(s.degree.max()) for _, s in tried)):
            if start:
                self._report(tried, start - 1)
            stop = min(start + STRIDE + (start == 0), last + 1)
            table = np.zeros((stop - start, 4, task.members))
            if start == 0:
                table[0, 3] = 1.0
            for series, segments in tried:
                rows = series.rows(segments)[start:stop]
                table[: len(rows), :, segments.idx] = rows
            parts.append(
                task.backend.recur(task.compiled, self.x, table, acc, task.probe, self.work, start)
            )
            start = stop
            norms = np.concatenate([n for _, n in parts])
            if (stop - 1) % STRIDE == 0:
                tried = [
                    (series, series.refine(s, norms[:, s.idx], self.rate[s.idx]))
                    for series, s in tried
                ]
        return tried, np.concatenate([p for p, _ in parts]), norms

    def _report(self, tried: list[tuple[Series, Segments]], terms: int) -> None:
        """Say how far all are, with so many terms of the segments under way."""
        ahead = np.zeros(self.task.members)
        for _, segments in tried:
            ahead[segments.idx] = segments.length * np.minimum(terms / segments.degree, 1.0)
        self.record.report(ahead)

    def _finishing(self, tried: list[tuple[Series, Segments]]) -> bool:
        """Whether all segments reach the last time, so that the state is of no more use."""
        left = [self.task.times[-1] - self.record.t[s.idx] for _, s in tried]
        return all(_reach(s, rest).all() for (_, s), rest in zip(tried, left, strict=True))

    def _collapsed(self, segments: Segments, good: Mask, norms: Floats) -> None:
        """Stop members for which no segment is short enough: G or the state is not finite."""
        idx = segments.idx[~good & (segments.length < SMALLEST * self.task.span)]
        finite = np.all(np.isfinite(norms), axis=0)[np.isin(segments.idx, idx)]
        for outcome, who in (
            (Outcome.NOT_FINITE, idx[~finite]),
            (Outcome.TOO_MANY_STEPS, idx[finite]),
        ):
            self.record.stop(who, outcome, self.record.t[who])

    def _outputs(self, series: Series, segments: Segments, good: Mask, probed: AnyArray) -> None:
        """Values at the output times inside the accepted segments; move the members on."""
        record, times = self.record, self.task.times
        idx = segments.idx
        remaining = record.next_stop(idx) - record.t[idx]
        ends_at_stop = _reach(segments, remaining)
        end = np.where(ends_at_stop, record.next_stop(idx), record.t[idx] + segments.length)
        first = record.next_output[idx]
        last = np.where(good, np.searchsorted(times, end, side="right"), first)
        for batch in _batches(first, last):
            which = np.concatenate([np.full(stop - start, i) for i, start, stop in batch])
            row = np.concatenate([np.arange(start, stop) for _, start, stop in batch])
            dt = np.minimum(times[row] - record.t[idx[which]], segments.length[which])
            values = series.values(segments, which, dt)
            at = 0
            for i, start, stop in batch:
                m, k = idx[i], int(segments.degree[i]) + 1
                weights = np.ascontiguousarray(values[:k, at : at + stop - start].T)
                record.probed[start:stop, :, m] = _sum(weights, probed[:k, :, m])
                at += stop - start
        record.next_output[idx] = last
        record.t[idx] = np.where(good, end, record.t[idx])

    def _accept(self, accepted: Mask) -> None:
        """Take the new state of those that were accepted."""
        task, record = self.task, self.record
        refused = record.active & ~accepted
        if refused.any():
            weights = [np.where(refused, 1.0, 0.0), np.where(refused, 0.0, 1.0)]
            task.backend.combine(task.compiled, self.acc, weights, [self.x, self.acc])
        self.x, self.acc = self.acc, self.x
        record.keep_states(self.x, accepted)


def _reach(segments: Segments, remaining: Floats) -> Mask:
    """Which segments end where the time `remaining` (n,) does, but for rounding."""
    return np.asarray(segments.length >= remaining * (1 - 1e-12))


def _batches(first: Ints, last: Ints) -> Iterator[list[tuple[int, int, int]]]:
    """Pieces (member, first output, last + 1), some together, of limited size.

    Where a member's outputs are cut depends on this member alone, since a sum may depend on it.
    """
    batch: list[tuple[int, int, int]] = []
    total = 0
    for i, (start, end) in enumerate(zip(first.tolist(), last.tolist(), strict=True)):
        for begin in range(start, end, AT_ONCE):
            stop = min(begin + AT_ONCE, end)
            if batch and total + stop - begin > AT_ONCE:
                yield batch
                batch, total = [], 0
            batch.append((i, begin, stop))
            total += stop - begin
    if batch:
        yield batch


def _sum(weights: Floats, terms: AnyArray) -> AnyArray:
    """``sum_k weights[j, k] terms[k, p]``, in one order whatever lies around these arrays."""
    terms = np.ascontiguousarray(terms)
    if np.iscomplexobj(terms):
        real = terms.view(terms.real.dtype)
        return np.ascontiguousarray(weights @ real).view(np.complex128)
    result: AnyArray = weights @ terms
    return result
