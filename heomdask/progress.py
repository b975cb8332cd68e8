"""How far something is, for whoever waits: a bar in a terminal, else a line now and then.

Takes: fractions that are done, and a few words.
Gives: `shown`, which shows them on standard error; `duration`, a time in words.
Next file: `ensemble/tally.py`, which counts the points of a sweep.
"""

from __future__ import annotations

import contextlib
import sys
import time
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from rich.console import Console

FIRST_LINE = 5.0  # seconds; each later line waits longer, up to
LAST_LINES = 600.0
LOOK_BACK = 300.0  # seconds over which a bar takes the speed that tells the time left

Update = Callable[[float, str], None]  # the fraction that is done, and words about it


@contextlib.contextmanager
def shown(show: bool, *, quiet: float = 0.0) -> Iterator[Update]:
    """A bar or lines on standard error while the context lasts, or nothing.

    Parameters
    ----------
    show : False shows nothing.
    quiet : seconds before a bar appears; what has ended by then shows none.
    """
    if not show:
        yield lambda fraction, words: None
        return
    from rich.console import Console

    console = Console(stderr=True)
    if not console.is_terminal:
        yield _Lines()
        return
    with contextlib.ExitStack() as stack:
        yield _Bar(console, quiet, stack)


class _Bar:
    """A bar in a terminal."""

    def __init__(self, console: Console, quiet: float, shown: contextlib.ExitStack) -> None:
        from rich import progress

        columns = (
            progress.BarColumn(),
            progress.TaskProgressColumn(),
            progress.TextColumn("{task.fields[words]}"),
            progress.TimeElapsedColumn(),
            progress.TextColumn("left"),
            progress.TimeRemainingColumn(),
        )
        self._bar = progress.Progress(*columns, console=console, speed_estimate_period=LOOK_BACK)
        self._task = self._bar.add_task("", total=1.0, words="")
        self._appears = time.monotonic() + quiet
        self._shown = shown

    def __call__(self, fraction: float, words: str) -> None:
        self._bar.update(self._task, completed=fraction, words=words)
        if not self._bar.live.is_started and fraction < 1 and time.monotonic() >= self._appears:
            self._shown.enter_context(self._bar)


class _Lines:
    """Plain lines for a log: the first after some seconds, later ones ever rarer."""

    def __init__(self) -> None:
        self._started = time.monotonic()
        self._wait = FIRST_LINE
        self._next = self._started + self._wait

    def __call__(self, fraction: float, words: str) -> None:
        now = time.monotonic()
        if now < self._next or not 0 < fraction < 1:
            return
        self._wait = min(2 * self._wait, LAST_LINES)
        self._next = now + self._wait
        left = duration((now - self._started) * (1 / fraction - 1))
        sys.stderr.write(
            f"{time.strftime('%H:%M:%S')}  {100 * fraction:.0f} %: {words}, about {left} left\n"
        )
        sys.stderr.flush()


def duration(seconds: float) -> str:
    """A time in the largest unit of which it has two."""
    for unit, size in (("h", 3600.0), ("min", 60.0)):
        if seconds >= 2 * size:
            return f"{seconds / size:.1f} {unit}"
    return f"{seconds:.1f} s"
