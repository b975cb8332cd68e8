"""What a killed client leaves on a scheduler that others use, too: taken away when it is gone.

Takes: the name of a run and its client; the scheduler, in whose process these functions run.
Gives: `attach` and `detach`.
Next file: `worker.py` and `watching.py`, whose plugin and view are what would be left.

The plugin would reach every new worker, and keep its process as it is while a sweep is known; and
the dashboard would show a sweep that nobody computes.
"""

from __future__ import annotations

from typing import Any

from distributed.diagnostics.plugin import SchedulerPlugin

from heomdask.ensemble.watching import close_view


class Leftovers(SchedulerPlugin):
    """Watches over the client of one run."""

    def __init__(self, run: str, client: str) -> None:
        self.name = _name(run)
        self._run = run
        self._client = client

    def remove_client(self, scheduler: Any, client: str) -> None:
        if client == self._client:
            detach(self._run, scheduler)
            close_view(self._run, scheduler)
            if self._run in scheduler.worker_plugins:
                scheduler.loop.add_callback(scheduler.unregister_worker_plugin, None, self._run)


def attach(run: str, client: str, dask_scheduler: Any) -> None:
    """From now on, what the run leaves behind goes with its client."""
    dask_scheduler.add_plugin(Leftovers(run, client))


def detach(run: str, dask_scheduler: Any) -> None:
    """The run has ended; one that is not known is no matter."""
    if _name(run) in dask_scheduler.plugins:
        dask_scheduler.remove_plugin(_name(run))


def _name(run: str) -> str:
    return f"{run}-leftovers"
