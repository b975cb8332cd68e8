"""When there are enough disorder samples: the rule, and its bookkeeping during a run.

Takes: `StandardError`s, the `Work` of a sweep and its shards as they are committed.
Gives: `Stopping`, which tells the driver which shards nobody needs any more, and marks them.
Next file: `driver.py`, which asks it.

Shards that differ in their place along `sample` only form a column: those of one point of the grid,
or of a few where a store began with so few samples that a shard holds several. A column is
judged after each of its first 1, 2, 3, ... shards, in the order of their samples whoever finished
first, and ends with the first of these prefixes that satisfies every rule at each of its points.
What lies beyond becomes `not_needed`, also what was computed meanwhile. So the stored answer is a
function of the sweep and of the shape of its shards alone, but for the last digits of a point (and
a rule that they decide), which depend on the class of the worker that computed it. A run that needs
more samples than the one before it, with a stricter rule or none, takes them up again.

A rule that looks at its own data after every shard stops a little too readily, when the spread
happens to look small: asymptotically this does not matter (Chow and Robbins, Ann. Math. Stat. 36,
457 (1965); Glynn and Whitt, Ann. Appl. Probab. 2, 180 (1992)), but after few samples it does.
Hence no rule holds before `LEAST` samples. What the first samples miss, the rule cannot see.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from heomdask import checks
from heomdask.ensemble.shards import product
from heomdask.errors import InputError
from heomdask.outcome import Outcome
from heomdask.results.chunks import Shard
from heomdask.results.moments import Moments
from heomdask.results.spare import Spare
from heomdask.results.store import Store, record_failures

if TYPE_CHECKING:
    from heomdask.ensemble.task import Work

LEAST = 32  # samples: for normal numbers the standard error is then known to 13 per cent
AXES = ("sample",)
ATTRIBUTE = "until"  # where a store remembers the rules of the last run


@dataclass(frozen=True)
class StandardError:
    """Enough samples: the standard error of a mean is below a limit at every output time.

    Parameters
    ----------
    observable : its name in the sweep.
    below : the limit, in units of the observable; of a complex one for the absolute value.
    over : what the mean goes over, always "sample".

    No rule holds before 32 samples ended well. At the end the standard error is an estimate, from
    the samples that also decided to stop: expect the true error to exceed it a little more often
    than without a rule. A rare event that the first samples miss is missed altogether; with heavy
    tails, ask for a smaller error than needed, or for a number of samples.
    """

    observable: str
    below: float
    over: str = field(default="sample", kw_only=True)

    def __post_init__(self) -> None:
        if not isinstance(self.observable, str):
            raise checks.refuse("observable", "the name of an observable", self.observable)
        number = checks.real_number("below", self.below, low=0.0, strict=True)
        object.__setattr__(self, "below", number)
        checks.choice("over", self.over, AXES)

    @property
    def plain(self) -> dict[str, Any]:
        """As stores remember it."""
        return {"observable": self.observable, "below": self.below, "over": self.over}


def rules(until: Any, samples: int | None, stored: Sequence[str]) -> tuple[StandardError, ...]:
    """The stopping rules of a sweep, checked.

    Parameters
    ----------
    until : a rule, several, or None.
    samples : of the sweep.
    stored : the observables that its store keeps.
    """
    if until is None:
        return ()
    found = (until,) if isinstance(until, StandardError) else tuple(checks.sequence("until", until))
    for rule in found:
        if not isinstance(rule, StandardError):
            raise checks.refuse("until", "hd.StandardError(...), or several", rule)
        if samples is None:
            raise InputError(
                f"`until` must come with `samples`, the most that may be computed, got {rule!r} "
                "for a sweep without samples."
            )
        if rule.observable not in stored:
            names = ", ".join(map(repr, stored)) or "none: name `observables`, and `save` them"
            raise InputError(
                f"`until` must name a stored observable of the sweep, got {rule.observable!r}; "
                f"there are {names}."
            )
    return found


def remembered(until: Sequence[StandardError], store: Store) -> bool:
    """Whether these are the rules that decided what a store lacks."""
    return list(store.attrs.get(ATTRIBUTE, [])) == [rule.plain for rule in until]


def remember(until: Sequence[StandardError], store: Store) -> None:
    """Write the rules into a store, if it knows others or none."""
    if not remembered(until, store):
        store.group.attrs[ATTRIBUTE] = [rule.plain for rule in until]


@dataclass(eq=False)
class _Column:
    """Shards of the same points of the grid, and what is known of their first samples.

    Attributes
    ----------
    cells : which points of the grid in a shard are asked for.
    complete : shards, by their place along `sample`, that lack nothing and are not read yet.
    read : shards that are in `moments`, one `Moments` a rule.
    stop : how many shards are needed, once a prefix satisfied the rules.
    expected : how many will be, as the errors so far tell.
    """

    cells: NDArray[np.bool_]
    expected: int
    complete: set[int] = field(default_factory=set)
    read: int = 0
    moments: list[Moments] = field(default_factory=list)
    stop: int | None = None


class Stopping:
    """The stopping rules of one run.

    Parameters
    ----------
    work : the sweep, its store and what is asked for.
    status : of all points of the store; what is needed again is changed in it, and in the store.
    """

    def __init__(self, work: Work, status: NDArray[np.uint8]) -> None:
        self._work = work
        self._rules: tuple[StandardError, ...] = work.sweep.until
        self._files = work.files
        self._spare = Spare(work.files)
        self._columns: dict[Shard, _Column] = {}
        self._flying: Counter[Shard] = Counter()
        self._stopped: set[Shard] = set()  # and not marked yet
        self._status = status
        if not self._rules and not np.any(status == Outcome.NOT_NEEDED):
            return
        self._length = work.files.shard[-1]
        self._samples = work.sweep.samples or 0
        self._whole = self._samples // self._length
        wanted = [order >= 0 for order in work.match.order]
        shape = work.files.shard[:-1]
        counts = [-(-len(w) // n) for w, n in zip(wanted, work.files.shard, strict=True)]
        for at in np.ndindex(*counts[:-1]):
            parts = [w[i * n : (i + 1) * n] for w, i, n in zip(wanted, at, shape, strict=False)]
            asked = np.zeros(shape, dtype=bool)
            asked[tuple(slice(len(p)) for p in parts)] = product(parts)
            if asked.any():
                self._begin(at, asked)
        self.settle()

    # -- what the driver asks ----------------------------------------------------------------------

    def needless(self, shard: Shard) -> bool:
        """Whether a shard lies beyond the samples that its column needs."""
        if not self._rules:
            return False
        stop = self._columns[shard[:-1]].stop
        return stop is not None and shard[-1] >= stop

    def expects(self, shard: Shard) -> bool:
        """Whether a shard is likely to be needed."""
        return not self._rules or shard[-1] < self._columns[shard[:-1]].expected

    def order(self, shard: Shard, count: int) -> Any:
        """Sorts shards: by the order of samples; without rules, those with most to do first."""
        return (shard[-1], shard[:-1]) if self._rules else (-count, shard)

    def submitted(self, task: Sequence[Shard]) -> None:
        """Shards are on their way to a worker."""
        self._flying.update(shard[:-1] for shard in task)

    def returned(self, task: Sequence[Shard]) -> None:
        """Nobody computes these shards any more, whether they are committed or not."""
        self._flying.subtract(shard[:-1] for shard in task)

    def committed(self, task: Sequence[Shard]) -> tuple[list[Shard], list[Shard]]:
        """These shards lack nothing any more.

        Returns
        -------
        All those that nobody needs since then, and those that are likely to be needed since then.
        """
        needless: list[Shard] = []
        likelier: list[Shard] = []
        for shard in task if self._rules else ():
            at, column = shard[:-1], self._columns[shard[:-1]]
            if column.stop is None:
                column.complete.add(shard[-1])
                before = column.expected
                self._advance(at, column)
                needless += [(*at, k) for k in self._beyond(column)]
                likelier += [(*at, k) for k in range(before, column.expected)]
        return needless, likelier

    def settle(self) -> None:
        """Mark what lies beyond the rules where no task is under way any more."""
        for at in sorted(at for at in self._stopped if not self._flying[at]):
            self._stopped.remove(at)
            column = self._columns[at]
            for k in self._beyond(column):
                self._hide((*at, k), self._points(column.cells, k, self._work.extents[-1]))

    # -- how it knows ------------------------------------------------------------------------------

    def _begin(self, at: Shard, cells: NDArray[np.bool_]) -> None:
        """Judge what an earlier run left of a column, and take up what is needed again."""
        first = -(-LEAST // self._length)
        column = self._columns[at] = _Column(cells, min(first, self._whole))
        for k in range(-(-self._samples // self._length)):
            points = self._points(cells, k, self._samples)
            place, local = self._block((*at, k))
            if np.any(self._status[place][points[local]] == Outcome.NOT_NEEDED):
                self._status[place] = self._spare.recall((*at, k), points)[local]
            if self._rules and not np.any(self._status[place][points[local]] == Outcome.PENDING):
                column.complete.add(k)
                self._advance(at, column)
            if column.stop is not None:
                return

    def _advance(self, at: Shard, column: _Column) -> None:
        """Read the complete shards that come next, until the rules hold."""
        while column.stop is None and column.read < self._whole and column.read in column.complete:
            column.complete.remove(column.read)
            shard = (*at, column.read)
            good = self._files.read("status", shard) == Outcome.DONE
            good &= self._points(column.cells, column.read, self._work.extents[-1])
            new = [self._moments(rule, shard, good) for rule in self._rules]
            if column.read:
                new = [old.merge(more) for old, more in zip(column.moments, new, strict=True)]
            column.moments = new
            column.read += 1
            self._judge(at, column)

    def _beyond(self, column: _Column) -> range:
        """The shards of a column that are not needed, by their place along `sample`."""
        end = -(-self._work.extents[-1] // self._length)
        return range(end if column.stop is None else column.stop, end)

    def _moments(self, rule: StandardError, shard: Shard, good: NDArray[np.bool_]) -> Moments:
        """Of one shard's samples, for each of its points of the grid."""
        axis = good.ndim - 1
        values = self._files.read(rule.observable, shard)
        return Moments.of(np.moveaxis(values, axis, 0), np.moveaxis(good, axis, 0))

    def _judge(self, at: Shard, column: _Column) -> None:
        samples, enough = 0.0, True
        for rule, moments in zip(self._rules, column.moments, strict=True):
            error, count = moments.standard_error[column.cells], moments.count[column.cells]
            if self._work.files.variable(rule.observable).dtype == "complex128":
                error = np.sqrt((error**2).sum(axis=-1))
            fewest, largest = int(count.min()), float(error.max())
            enough &= fewest >= LEAST and largest < rule.below  # NaN is not below
            more = fewest * (largest / rule.below) ** 2
            samples = max(samples, LEAST, more if math.isfinite(more) else 0.0)
        if enough:
            column.stop, column.moments = column.read, []
            self._stopped.add(at)
        else:
            shards = min(samples / self._length, self._whole)
            column.expected = max(column.read + 1, math.ceil(shards))

    def _points(self, cells: NDArray[np.bool_], k: int, samples: int) -> NDArray[np.bool_]:
        """Points of the k-th shard of a column: its cells, of the first so many samples."""
        there = np.arange(k * self._length, (k + 1) * self._length) < samples
        return cells[..., np.newaxis] & there

    def _block(self, shard: Shard) -> tuple[tuple[slice, ...], tuple[slice, ...]]:
        """A shard's points in the store's grid; the same in the shard, without its padding."""
        whole = [(i * n, (i + 1) * n) for i, n in zip(shard, self._files.shard, strict=True)]
        ends = [min(b, n) for (_, b), n in zip(whole, self._work.extents, strict=True)]
        place = tuple(slice(a, e) for (a, _), e in zip(whole, ends, strict=True))
        return place, tuple(slice(e - a) for (a, _), e in zip(whole, ends, strict=True))

    def _hide(self, shard: Shard, points: NDArray[np.bool_]) -> None:
        place, local = self._block(shard)
        if np.all(self._status[place][points[local]] == Outcome.NOT_NEEDED):
            return
        failed = self._spare.hide(shard, points)
        first = [i * n for i, n in zip(shard, self._files.shard, strict=True)]
        places = [tuple(f + i for f, i in zip(first, p, strict=True)) for p in failed]
        if places:
            record_failures(self._files.folder, dict.fromkeys(places, ("", "")))
