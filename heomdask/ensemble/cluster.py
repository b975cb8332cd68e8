"""Local workers: one single-threaded process a core, loopback only.

Takes: how many.
Gives: `connect`, a context manager that yields a Dask client.
Next file: `runner.py`.
"""

from __future__ import annotations

import asyncio
import contextlib
import importlib
import logging
import os
import signal
import sys
import threading
from collections.abc import Iterator
from multiprocessing import resource_tracker
from typing import TYPE_CHECKING

from heomdask import checks

if TYPE_CHECKING:
    from distributed import Client

STOPS = (signal.SIGINT, signal.SIGTERM)  # what a user or a batch system ends a run with


def cores() -> int:
    """Cores that this process may use."""
    return len(os.sched_getaffinity(0))


@contextlib.contextmanager
def connect(*, scheduler: str | None = None, workers: int | None = None) -> Iterator[Client]:
    """A client of a running scheduler, or of local workers that end with the context.

    These have no dashboard; who wants one starts a cluster and gives its address.

    Parameters
    ----------
    scheduler : address of a running scheduler; None starts local workers.
    workers : how many local ones; default: one a core that this process may use.
    """
    import dask
    from distributed import Client, LocalCluster

    if scheduler is not None:
        with Client(scheduler, timeout=30) as client:
            yield client
        return
    count = cores() if workers is None else checks.whole_number("workers", workers, low=1)
    settings = {
        "distributed.scheduler.worker-saturation": 1.0,
        "distributed.scheduler.allowed-failures": 1,
        "distributed.scheduler.no-workers-timeout": "300s",  # an error then, not a hang
        "distributed.worker.memory.spill": False,
        "distributed.worker.memory.target": False,
    }
    with contextlib.ExitStack() as stack:
        for context in (_same_environment(), _main_not_imported(), dask.config.set(settings)):
            stack.enter_context(context)
        with _signals_held():
            cluster = LocalCluster(
                n_workers=count, threads_per_worker=1, processes=True, host="127.0.0.1",
                # no address would mean port 8787, with a warning where that is taken
                dashboard_address="127.0.0.1:0", scheduler_kwargs={"dashboard": False},
                silence_logs=logging.CRITICAL,
            )  # fmt: skip
            stack.enter_context(cluster)
        try:
            client = stack.enter_context(Client(cluster))
            client.run(_warm, wait=False)
            yield client
        finally:
            with _signals_held():
                stack.close()


async def _warm() -> None:
    """Let a worker import what it will need while the client still prepares the sweep."""
    await asyncio.to_thread(importlib.import_module, "heomdask.ensemble.task")


@contextlib.contextmanager
def _signals_held() -> Iterator[None]:
    """Let Ctrl-C and SIGTERM wait while local workers are started or ended.

    Workers never see them, though a terminal or a batch system sends them to all processes: those
    started here inherit that they are blocked, and so do the ones that take the place of dead
    workers. So it is this process alone that ends them, in good order. Any thread of it may catch
    a signal, so blocking does not hold it off here; a handler does, and only the main thread has
    one.
    """
    resource_tracker.ensure_running()  # its start would unblock what is blocked
    held: list[int] = []
    handlers = {}
    if threading.current_thread() is threading.main_thread():
        handlers = {s: signal.signal(s, lambda number, _: held.append(number)) for s in STOPS}
    blocked = signal.pthread_sigmask(signal.SIG_BLOCK, STOPS)
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, blocked)
        for number, handler in handlers.items():
            signal.signal(number, handler)
        if held:
            signal.raise_signal(held[0])


@contextlib.contextmanager
def _same_environment() -> Iterator[None]:
    """Undo what the workers' nannies write into this process's environment (OMP_NUM_THREADS)."""
    before = dict(os.environ)
    try:
        yield
    finally:
        os.environ.clear()
        os.environ.update(before)


@contextlib.contextmanager
def _main_not_imported() -> Iterator[None]:
    """Workers do not run the user's script again, so it needs no ``if __name__ == "__main__"``.

    What the script defines travels by value, pickled.
    """
    main = sys.modules["__main__"]
    hidden = {n: getattr(main, n) for n in ("__file__", "__spec__") if hasattr(main, n)}
    try:
        for name in hidden:
            setattr(main, name, None)
        yield
    finally:
        for name, value in hidden.items():
            setattr(main, name, value)
