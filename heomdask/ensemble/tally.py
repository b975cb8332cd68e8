"""The points of a run that are committed, and those under way.

Takes: counts of points, and of each task how many points' worth of it is done.
Gives: `Tally`, which shows them if it is told to.
Next file: `driver.py`.
"""

from __future__ import annotations

import contextlib
from collections.abc import Hashable, Iterator

from heomdask.progress import Update, shown


class Tally:
    """Counts points, and shows them if it is told to.

    The bar and the time left follow all work that is done; the words count committed points only.

    Parameters
    ----------
    total : points to come.
    show : whether to show anything.
    what : the points, in a word or more.
    """

    def __init__(self, total: int, show: bool, what: str = "points") -> None:
        self.total = total
        self.done = 0
        self.failed = 0
        self._show = show
        self._what = what
        self._under_way: dict[Hashable, float] = {}  # points' worth, by task
        self._update: Update = lambda done, total, words: None

    def under_way(self, task: Hashable, points: float) -> None:
        """So many points' worth of a task are done, and none is committed yet."""
        self._under_way[task] = points
        self._tell()

    def ended(self, task: Hashable, points: int, failed: int) -> None:
        """A task has ended: so many points more are committed, so many of them as failed."""
        self._under_way.pop(task, None)
        self.done += points
        self.failed += failed
        self._tell()

    def drop(self, points: int) -> None:
        """So many points need not be computed."""
        self.total -= points
        self._tell()

    def _tell(self) -> None:
        words = f"{self.done} of {self.total} {self._what}, {self.failed} failed"
        worth = self.done + sum(self._under_way.values())
        self._update(worth, self.total, words)

    @contextlib.contextmanager
    def shown(self) -> Iterator[Tally]:
        """The bar or the lines, while the context lasts."""
        with shown(self._show, unit="points") as self._update:
            self._tell()
            yield self
