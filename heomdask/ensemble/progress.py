"""The progress bar of a sweep.

Takes: counts of points.
Gives: `Progress`, a bar on the terminal's standard error, or nothing.
Next file: `driver.py`.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator


class Progress:
    """Counts points; shows them if it is told to and there is a terminal."""

    def __init__(self, total: int, show: bool) -> None:
        self.total = total
        self.done = 0
        self.failed = 0
        self._show = show
        self._advance: Callable[[int, int], None] = lambda points, failed: None

    def add(self, points: int, failed: int) -> None:
        """So many points more are committed, so many of them as failed."""
        self.done += points
        self.failed += failed
        self._advance(points, self.failed)

    @contextlib.contextmanager
    def shown(self) -> Iterator[Progress]:
        """The bar, while the context lasts."""
        if not self._show:
            yield self
            return
        from rich import progress
        from rich.console import Console

        console = Console(stderr=True)
        if not console.is_terminal:
            yield self
            return
        columns = (
            progress.TextColumn("points"),
            progress.BarColumn(),
            progress.MofNCompleteColumn(),
            progress.TextColumn("{task.fields[failed]} failed"),
            progress.TimeElapsedColumn(),
            progress.TextColumn("left"),
            progress.TimeRemainingColumn(),
        )
        with progress.Progress(*columns, console=console) as bar:
            task = bar.add_task("points", total=self.total, failed=0)
            self._advance = lambda points, failed: bar.update(task, advance=points, failed=failed)
            yield self
