"""Named scalars as functions of time, and where they may not be stepped over.

Takes: `value(t) -> (n_named, M)` for a time per member, and declared breakpoints per member.
Gives: `Drives`, and `scan`, which finds out when they jump and how fast they vary.
Next file: `tableau.py`.

A stepper that sees f only at its own stages steps over a pulse. So f is sampled beforehand, at
`SAMPLES` times or more over the run and `PER_OUTPUT` per output interval. Jumps between samples
are located by bisection, to the last bit, and become breakpoints like those declared: a step
ends at the last time before and the next begins at the first time after. Elsewhere no step may
see more than `LARGEST_SHARE` of the local range of f go by. A pulse that is declared by no
breakpoint and lies between two samples is not seen: `Pieces` tell how far apart they are.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
import scipy.ndimage

from heomdask.solvers.trajectory import Floats, Mask

SAMPLES = 4096
PER_OUTPUT = 8
WINDOW = 257  # samples over which the local range is taken
LARGEST_SHARE = 0.5
SUSPECT = 3.0  # a change this many times that of the calmer neighbour may be a jump
HALVINGS = 5  # after which a continuous function has shown itself as one
CLOSE = 1e-12  # breakpoints this close, relative to the run, are one


@dataclass(frozen=True)
class Drives:
    """The named scalars of a plan, in the plan's order.

    Attributes
    ----------
    value : times (M,) -> values (n_named, M); column m is evaluated at time m, for member m.
    breakpoints : per member, times which no step crosses.
    pieces : per member, of a `scan` over a run that this one is a part of; () if there was none.
    """

    value: Callable[[Floats], Floats]
    breakpoints: Sequence[Sequence[float]] = ()
    pieces: Sequence[Pieces] = ()


@dataclass(frozen=True, eq=False)
class Pieces:
    """Smooth pieces of the drives of one member, and how far a step may go.

    Attributes
    ----------
    before, after : (n,), the last time before each breakpoint and the first one after it.
    grid : (G,), sample times.
    travelled : (G,), how much f has varied up to there, in units of its local range.
    zero : (n_named,), where a scalar is 0 at every sample.
    """

    before: Floats
    after: Floats
    grid: Floats
    travelled: Floats
    zero: Mask

    @property
    def resolution(self) -> float:
        """The longest time between two samples."""
        return float(np.max(np.diff(self.grid), initial=0.0))

    def piece(self, t: float) -> tuple[float, float]:
        """First and last time of the smooth piece that begins or continues at t."""
        n = int(np.searchsorted(self.before, t, side="right"))
        low = float(self.after[n - 1]) if n else -np.inf
        high = float(self.before[n]) if n < len(self.before) else np.inf
        return low, high

    def reach(self, t: float) -> float:
        """The latest end of a step that begins at t."""
        here = float(np.interp(t, self.grid, self.travelled))
        n = int(np.searchsorted(self.travelled, here + LARGEST_SHARE, side="left"))
        if n == len(self.grid):
            return np.inf
        n += int(self.grid[n] <= t)
        return float(self.grid[n]) if n < len(self.grid) else np.inf


def scan(drives: Drives, times: Floats, members: int) -> list[Pieces]:
    """Sample the drives over the run and find their pieces, for every member."""
    grid = sample_times(times)
    samples = np.stack([drives.value(np.full(members, t)) for t in grid.tolist()])
    found = _Search(drives, grid, samples).jumps()
    pieces = []
    for m in range(members):
        declared = np.array(drives.breakpoints[m] if len(drives.breakpoints) else (), np.float64)
        sides = np.nextafter(declared, -np.inf).tolist(), np.nextafter(declared, np.inf).tolist()
        pairs = list(zip(*sides, strict=True))
        before, after = _merged([*pairs, *found[m]], times)
        travelled = _travelled(grid, samples[:, :, m], before, after)
        zero = np.all(samples[:, :, m] == 0, axis=0)
        pieces.append(Pieces(before, after, grid, travelled, zero))
    return pieces


def sample_times(times: Floats) -> Floats:
    """At least `SAMPLES` over the run and `PER_OUTPUT` in each output interval."""
    outputs = np.unique(times)
    steps = np.arange(PER_OUTPUT) / PER_OUTPUT
    fine = (outputs[:-1, None] + np.diff(outputs)[:, None] * steps).ravel()
    even = np.linspace(outputs[0], outputs[-1], SAMPLES + 1)
    return np.unique(np.concatenate([even, fine, outputs[-1:]]))


def _change(a: Floats, b: Floats) -> Floats:
    """|b - a|; infinite where one of them is not finite and the other is."""
    one = np.isfinite(a) != np.isfinite(b)
    both = np.isfinite(a) & np.isfinite(b)
    change = np.abs(np.where(both, b, 0.0) - np.where(both, a, 0.0))
    result: Floats = np.where(one, np.inf, change)
    return result


class _Search:
    """Bisection for jumps, of all members side by side."""

    def __init__(self, drives: Drives, grid: Floats, samples: Floats) -> None:
        self.drives, self.grid, self.samples = drives, grid, samples

    def jumps(self) -> list[list[tuple[float, float]]]:
        """Per member, pairs of neighbouring times between which a drive jumps."""
        change = _change(self.samples[:-1], self.samples[1:])
        size = np.max(np.where(np.isfinite(self.samples), np.abs(self.samples), 0.0), axis=0)
        edge = np.zeros((1, *change.shape[1:]))
        padded = np.concatenate([edge, change, edge])
        calmer = np.minimum(padded[:-2], padded[2:])
        suspect = (change > SUSPECT * calmer) & (change > 1e-9 * size)
        members = suspect.shape[2]
        queue = [np.argwhere(suspect[:, :, m]).tolist() for m in range(members)]
        found: list[list[tuple[float, float]]] = [[] for _ in range(members)]
        for turn in range(max(map(len, queue), default=0)):
            busy = np.array([turn < len(q) for q in queue])
            picks = [q[turn] if turn < len(q) else [0, 0] for q in queue]
            low, high, real = self._bisect(np.array(picks).reshape(-1, 2), busy)
            for m in np.flatnonzero(real):
                found[m].append((float(low[m]), float(high[m])))
        return found

    def _bisect(self, picks: Floats, busy: Mask) -> tuple[Floats, Floats, Mask]:
        """One suspected interval of every busy member, halved until it is a jump or is not."""
        every = np.arange(len(busy))
        interval, name = picks[:, 0].astype(np.int64), picks[:, 1].astype(np.int64)
        low, high = self.grid[interval].copy(), self.grid[interval + 1].copy()
        at_low = self.samples[interval, name, every]
        at_high = self.samples[interval + 1, name, every]
        first = _change(at_low, at_high)
        busy = busy.copy()
        for turn in range(80):
            middle = low + (high - low) / 2
            open_ = busy & (middle > low) & (middle < high)
            if not open_.any():
                break
            at_middle = self.drives.value(np.where(open_, middle, low))[name, every]
            left, right = _change(at_low, at_middle), _change(at_middle, at_high)
            go_left = open_ & (left >= right)
            go_right = open_ & ~go_left
            high, at_high = np.where(go_left, middle, high), np.where(go_left, at_middle, at_high)
            low, at_low = np.where(go_right, middle, low), np.where(go_right, at_middle, at_low)
            if turn >= HALVINGS:
                busy &= _change(at_low, at_high) > 0.3 * np.minimum(first, 1e300)
        return low, high, busy


def _merged(pairs: list[tuple[float, float]], times: Floats) -> tuple[Floats, Floats]:
    """Breakpoints within the run, ascending, those that are the same joined."""
    near = CLOSE * max(float(times[-1] - times[0]), abs(float(times[0])), abs(float(times[-1])))
    joined: list[list[float]] = []
    for low, high in sorted(pairs):
        if high < times[0] or low > times[-1]:
            continue
        if joined and low <= joined[-1][1] + near:
            joined[-1][1] = max(joined[-1][1], high)
        else:
            joined.append([low, high])
    table = np.array(joined, dtype=np.float64).reshape(-1, 2)
    return table[:, 0].copy(), table[:, 1].copy()


def _travelled(grid: Floats, samples: Floats, before: Floats, after: Floats) -> Floats:
    """How far the scalars (G, n_named) have moved, in units of their local range; jumps apart."""
    total = np.zeros(len(grid))
    jump = np.zeros(len(grid) - 1, dtype=bool)
    first = np.clip(np.searchsorted(grid, before, side="right") - 1, 0, len(jump) - 1)
    last = np.clip(np.searchsorted(grid, after, side="left") - 1, 0, len(jump) - 1)
    for a, b in zip(first, last, strict=True):
        jump[a : b + 1] = True
    for f in samples.T:
        f = np.where(np.isfinite(f), f, 0.0)
        top = scipy.ndimage.maximum_filter1d(f, WINDOW, mode="nearest")
        bottom = scipy.ndimage.minimum_filter1d(f, WINDOW, mode="nearest")
        span = (top - bottom)[:-1]
        moved = np.abs(np.diff(f))
        moves = ~jump & (moved > 1e-12 * np.max(np.abs(f)))
        share = np.where(moves, moved / np.where(span > 0, span, 1.0), 0.0)
        total[1:] += np.cumsum(share)
    return total
