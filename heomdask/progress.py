"""How far something is, for whoever waits: a bar in a terminal or a notebook, else lines.

Takes: how much of how much is done, and a few words.
Gives: `shown`, which shows them; `duration`, a time in words.
Next file: `ensemble/tally.py`, which counts the points of a sweep.
"""

from __future__ import annotations

import contextlib
import sys
import time
from collections import deque
from collections.abc import Callable, Iterator
from html import escape
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from rich.console import Console

FIRST_LINE = 5.0  # seconds; each later line waits longer, up to
LAST_LINES = 600.0
LOOK_BACK = 300.0  # seconds over which the speed is taken that tells the time left
REDRAWN = 0.5  # seconds between two pictures of a bar in a notebook

Update = Callable[[float, float, str], None]  # how much is done, of how much, and words about it


@contextlib.contextmanager
def shown(show: bool, *, unit: str = "", quiet: float = 0.0) -> Iterator[Update]:
    """A bar, or lines on standard error, while the context lasts; or nothing.

    Parameters
    ----------
    show : False shows nothing.
    unit : of what is done, in the plural; without one nobody is told how many a second.
    quiet : seconds before a bar appears; what has ended by then shows none.
    """
    if not show:
        yield lambda done, total, words: None
        return
    from rich.console import Console

    console = Console(stderr=True)
    pace = _Pace(unit)
    if console.is_jupyter:
        yield _Notebook(pace, quiet)
        return
    if not console.is_terminal:
        yield _Lines(pace)
        return
    with contextlib.ExitStack() as stack:
        yield _Bar(console, pace, quiet, stack)


class _Pace:
    """How fast it goes, from what was done in the last minutes."""

    def __init__(self, unit: str) -> None:
        self._unit = unit
        self._seen = deque([(time.monotonic(), 0.0)])  # when, and how much was done

    def see(self, done: float) -> None:
        now = time.monotonic()
        if now - self._seen[-1][0] >= LOOK_BACK / 100 or len(self._seen) == 1:
            self._seen.append((now, done))
        while len(self._seen) > 2 and now - self._seen[1][0] >= LOOK_BACK:
            self._seen.popleft()

    def speed(self, done: float) -> float:
        """How much a second."""
        since, before = self._seen[0]
        return max(done - before, 0.0) / max(time.monotonic() - since, 1e-9)

    def words(self, done: float) -> str:
        """The speed, to stand behind other words."""
        return f", {self.speed(done):.3g} {self._unit}/s" if self._unit and done else ""


class _Bar:
    """A bar in a terminal."""

    def __init__(
        self, console: Console, pace: _Pace, quiet: float, shown: contextlib.ExitStack
    ) -> None:
        from rich import progress

        columns = (
            progress.BarColumn(),
            progress.TaskProgressColumn(),
            progress.TextColumn("{task.fields[words]}"),
            progress.TimeElapsedColumn(),
            progress.TextColumn("gone,"),
            progress.TimeRemainingColumn(),
            progress.TextColumn("left"),
        )
        self._bar = progress.Progress(*columns, console=console, speed_estimate_period=LOOK_BACK)
        self._task = self._bar.add_task("", total=1.0, words="")
        self._pace = pace
        self._appears = time.monotonic() + quiet
        self._shown = shown

    def __call__(self, done: float, total: float, words: str) -> None:
        self._pace.see(done)
        fraction = _fraction(done, total)
        self._bar.update(self._task, completed=fraction, words=words + self._pace.words(done))
        if not self._bar.live.is_started and fraction < 1 and time.monotonic() >= self._appears:
            self._shown.enter_context(self._bar)


class _Lines:
    """Plain lines for a log: the first after some seconds, later ones ever rarer."""

    def __init__(self, pace: _Pace) -> None:
        self._pace = pace
        self._wait = FIRST_LINE
        self._next = time.monotonic() + self._wait

    def __call__(self, done: float, total: float, words: str) -> None:
        self._pace.see(done)
        now = time.monotonic()
        if now < self._next or not 0 < _fraction(done, total) < 1:
            return
        self._wait = min(2 * self._wait, LAST_LINES)
        self._next = now + self._wait
        line = f"{time.strftime('%H:%M:%S')}  {_line(self._pace, done, total, words)}\n"
        sys.stderr.write(line)
        sys.stderr.flush()


class _Notebook:
    """A bar in the output of a cell, which stays with its last words."""

    def __init__(self, pace: _Pace, quiet: float) -> None:
        from IPython.display import DisplayHandle

        self._handle: Any = DisplayHandle()
        self._pace = pace
        self._started = time.monotonic()
        self._next = self._started + quiet
        self._shown = False

    def __call__(self, done: float, total: float, words: str) -> None:
        self._pace.see(done)
        now, fraction = time.monotonic(), _fraction(done, total)
        if now < self._next and not (self._shown and fraction >= 1):
            return
        self._next = now + REDRAWN
        if fraction < 1:
            text = _line(self._pace, done, total, words)
        else:
            text = f"{words}, in {duration(now - self._started)}"
        bar = f'<progress value="{fraction:.4f}" max="1" style="width: 16em"></progress>'
        data = {"text/plain": text, "text/html": f"{bar} {escape(text)}"}
        (self._handle.update if self._shown else self._handle.display)(data, raw=True)
        self._shown = True


def _fraction(done: float, total: float) -> float:
    return done / total if total else 1.0


def _line(pace: _Pace, done: float, total: float, words: str) -> str:
    """All there is to say, in one line."""
    speed = pace.speed(done)
    left = f", about {duration((total - done) / speed)} left" if speed else ""
    return f"{100 * _fraction(done, total):.0f} %: {words}{pace.words(done)}{left}"


def duration(seconds: float) -> str:
    """A time in the largest unit of which it has two."""
    for unit, size in (("h", 3600.0), ("min", 60.0)):
        if seconds >= 2 * size:
            return f"{seconds / size:.1f} {unit}"
    return f"{seconds:.1f} s"
