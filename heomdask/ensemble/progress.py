"""The progress of a sweep.

Takes: counts of points.
Gives: `Progress`: on standard error a bar if that is a terminal, else a line now and then; or
    nothing.
Next file: `driver.py`.
"""

from __future__ import annotations

import contextlib
import sys
import time
from collections.abc import Callable, Iterator

FIRST_LINE = 5.0  # seconds; each later line waits longer, up to
LAST_LINES = 600.0


class Progress:
    """Counts points, and shows them if it is told to."""

    def __init__(self, total: int, show: bool, what: str = "points") -> None:
        self.total = total
        self.done = 0
        self.failed = 0
        self._show = show
        self._what = what
        self._advance: Callable[[int, int], None] = lambda points, failed: None

    def add(self, points: int, failed: int) -> None:
        """So many points more are committed, so many of them as failed."""
        self.done += points
        self.failed += failed
        self._advance(points, self.failed)

    def drop(self, points: int) -> None:
        """So many points need not be computed."""
        self.total -= points
        self._advance(0, self.failed)

    @contextlib.contextmanager
    def shown(self) -> Iterator[Progress]:
        """The bar or the lines, while the context lasts."""
        if not self._show:
            yield self
            return
        from rich import progress
        from rich.console import Console

        console = Console(stderr=True)
        if not console.is_terminal:
            self._advance = _Lines(self, self._what)
            yield self
            return
        columns = (
            progress.TextColumn(self._what),
            progress.BarColumn(),
            progress.MofNCompleteColumn(),
            progress.TextColumn("{task.fields[failed]} failed"),
            progress.TimeElapsedColumn(),
            progress.TextColumn("left"),
            progress.TimeRemainingColumn(),
        )
        with progress.Progress(*columns, console=console) as bar:
            task = bar.add_task(self._what, total=self.total, failed=0)
            self._advance = lambda points, failed: bar.update(
                task, advance=points, total=self.total, failed=failed
            )
            yield self


class _Lines:
    """Plain lines for a log: the first after some seconds, later ones ever rarer."""

    def __init__(self, progress: Progress, what: str) -> None:
        self._progress = progress
        self._what = what
        self._started = time.monotonic()
        self._wait = FIRST_LINE
        self._next = self._started + self._wait

    def __call__(self, points: int, failed: int) -> None:
        now, done, total = time.monotonic(), self._progress.done, self._progress.total
        if now < self._next or done in (0, total):
            return
        self._wait = min(2 * self._wait, LAST_LINES)
        self._next = now + self._wait
        left = duration((now - self._started) * (total / done - 1))
        sys.stderr.write(
            f"{time.strftime('%H:%M:%S')}  {done} of {total} {self._what}, {failed} failed, "
            f"about {left} left\n"
        )
        sys.stderr.flush()


def duration(seconds: float) -> str:
    """A time in the largest unit of which it has two."""
    for unit, size in (("h", 3600.0), ("min", 60.0)):
        if seconds >= 2 * size:
            return f"{seconds / size:.1f} {unit}"
    return f"{seconds:.1f} s"
