"""Workers: local ones, one single-threaded process a core, loopback only; or those of a scheduler.

Takes: how many, or the address of a scheduler.
Gives: `Workers`, which start when they are needed, and `connect`, a client of some at once.
Next file: `runner.py`.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import signal
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from multiprocessing import resource_tracker, spawn
from typing import TYPE_CHECKING, Any, Self, TypeVar

from heomdask import checks, topology
from heomdask.errors import InputError

if TYPE_CHECKING:
    from types import TracebackType

    from distributed import Client, LocalCluster

STOPS = (signal.SIGINT, signal.SIGTERM)  # what a user or a batch system ends a run with
SECONDS_TO_REACH = 10  # a running scheduler answers at once
SECONDS_TO_START = 300
WORKER_PROCESS = "Dask Worker process"  # how distributed's nannies name what they start

Other = TypeVar("Other")


def worker_count(workers: int | None) -> int:
    """How many local workers: as many as asked for, or one a CPU that this process may use."""
    if workers is None:
        return len(topology.allowed())
    return checks.whole_number("workers", workers, low=1)


class Workers:
    """Workers that start when they are first needed, and end with the context.

    Local ones have no dashboard; who wants one starts a cluster and gives its address.

    Parameters
    ----------
    scheduler : address of a running scheduler; None starts local workers.
    workers : how many local ones; default: one a CPU that this process may use.
    """

    def __init__(self, *, scheduler: str | None = None, workers: int | None = None) -> None:
        self._scheduler = scheduler
        self._count = worker_count(workers)
        self._stack = contextlib.ExitStack()
        self._open = False
        self._cluster: LocalCluster | None = None
        self._client: Client | None = None

    def __enter__(self) -> Self:
        self._open = True
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self._open, self._cluster, self._client = False, None, None
        with _signals_held():
            self._stack.__exit__(kind, error, traceback)

    def require_open(self) -> None:
        """Refuse workers that nobody would end, or that have ended."""
        if not self._open:
            raise InputError(
                "`Workers` must be used inside their context, which ends them, got some outside of "
                "it; write `with Workers(...) as workers:` and use them in that block."
            )

    def start(self) -> None:
        """Begin to start local ones, which goes on by itself; or reach the scheduler."""
        self.require_open()
        if self._cluster is None and self._client is None:
            if self._scheduler is None:
                self._cluster = _local(self._stack, self._count)
            else:
                self._client = self._stack.enter_context(_reach(self._scheduler))

    def client(self) -> Client:
        """A client of workers that are all there."""
        from distributed import Client

        self.start()
        if self._client is None:
            with _signals_held():
                self._client = self._stack.enter_context(Client(self._cluster))
        if self._scheduler is None:
            self._client.wait_for_workers(self._count, timeout=SECONDS_TO_START)
        return self._client


@contextlib.contextmanager
def connect(*, scheduler: str | None = None, workers: int | None = None) -> Iterator[Client]:
    """A client of some `Workers`, which end with the context."""
    with Workers(scheduler=scheduler, workers=workers) as started:
        yield started.client()


def require_computing(client: object) -> None:
    """Refuse, before any work, what no sweep can be computed with."""
    from heomdask.ensemble.runner import as_runner

    if isinstance(client, Workers):
        client.require_open()
    elif client is not None:
        as_runner(client)


@contextlib.contextmanager
def ready(client: Client | Other | Workers | None) -> Iterator[Client | Other]:
    """What computes: a client of `Workers`, or of new local ones (None); others as they are."""
    with contextlib.ExitStack() as stack:
        if client is None:
            client = stack.enter_context(Workers())
        yield client.client() if isinstance(client, Workers) else client


def _reach(address: str) -> Client:
    from distributed import Client

    try:
        with ThreadPoolExecutor(1) as elsewhere:  # a notebook has an event loop in this thread
            elsewhere.submit(lambda: asyncio.run(_identify(address))).result()
    except Exception as error:  # of many kinds, by what is wrong with the address
        reason = str(error) or f"no answer within {SECONDS_TO_REACH} s"
        raise checks.refuse(
            "scheduler", "the address of a running Dask scheduler", address,
            f"start one with `dask scheduler`, which says its address, or leave it out ({reason})",
        ) from None  # fmt: skip
    return Client(address, timeout=SECONDS_TO_REACH)


async def _identify(address: str) -> None:
    """Ask for an answer; a `Client` that gets none cannot be closed in good order."""
    from distributed.core import rpc

    async with rpc(address) as scheduler:
        await asyncio.wait_for(scheduler.identity(), SECONDS_TO_REACH)


def _local(stack: contextlib.ExitStack, count: int) -> LocalCluster:
    """A cluster of `count` workers that are about to start, and end with the stack."""
    import dask
    from distributed import LocalCluster

    settings = {
        "distributed.scheduler.worker-saturation": 1.0,
        "distributed.scheduler.allowed-failures": 1,
        "distributed.scheduler.no-workers-timeout": f"{SECONDS_TO_START}s",  # not a hang
        "distributed.worker.memory.spill": False,
        "distributed.worker.memory.target": False,
        "distributed.worker.preload": [
            "heomdask.ensemble.worker",  # keeps it to a node
            "heomdask.ensemble.task",  # before the first task needs it
        ],
    }
    for context in (_same_environment(), _main_not_imported(), dask.config.set(settings)):
        stack.enter_context(context)
    with _signals_held():
        cluster = LocalCluster(
            n_workers=0, threads_per_worker=1, processes=True, host="127.0.0.1",
            # no address would mean port 8787, with a warning where that is taken
            dashboard_address="127.0.0.1:0", scheduler_kwargs={"dashboard": False},
            silence_logs=logging.CRITICAL,
        )  # fmt: skip
        stack.enter_context(cluster)
    cluster.scale(count)
    return cluster


def handled() -> list[signal.Signals]:
    """Those of `STOPS` whose handler can be put back: one that is not of Python cannot."""
    return [s for s in STOPS if signal.getsignal(s) is not None]


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
        handlers = {s: signal.signal(s, lambda number, _: held.append(number)) for s in handled()}
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
    import dask

    names = dask.config.get("distributed.nanny.pre-spawn-environ")
    before = {name: os.environ.get(name) for name in names}
    try:
        yield
    finally:
        for name, value in before.items():
            if value is None:
                os.environ.pop(name, None)
            else:
                os.environ[name] = value


@contextlib.contextmanager
def _main_not_imported() -> Iterator[None]:
    """Workers do not run the user's script again, so it needs no ``if __name__ == "__main__"``.

    What the script defines travels by value, pickled, with the script's own `__file__`: so what
    tells a new process where the script lies is left out, and the script itself is left as it is.
    """
    plain = spawn.get_preparation_data

    def without_main(name: str) -> dict[str, Any]:
        data: dict[str, Any] = plain(name)
        if name.startswith(WORKER_PROCESS):
            for key in ("init_main_from_name", "init_main_from_path"):
                data.pop(key, None)
        return data

    spawn.get_preparation_data = without_main
    try:
        yield
    finally:
        spawn.get_preparation_data = plain
