"""The part that lives in a Dask worker process.

Takes: pickled `Work`, once a worker.
Gives: `WorkPlugin`, which keeps it there, `run_on_worker`, the function of every task, and
    `dask_setup`, which Dask calls in local workers.
Next file: `task.py`, which that function calls.
"""

from __future__ import annotations

import contextlib
import functools
import gc
import os
import pickle
import sys
import threading
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from distributed import get_worker
from distributed.diagnostics.plugin import WorkerPlugin
from distributed.utils import sync
from threadpoolctl import ThreadpoolController, threadpool_limits

from heomdask.backends import registry
from heomdask.ensemble import heap
from heomdask.ensemble.pools import GPU, Task, class_of
from heomdask.errors import BackendUnavailable
from heomdask.expansion.notices import warn
from heomdask.topology import Topology

if TYPE_CHECKING:
    from heomdask.ensemble.task import Report, Work


def dask_setup(worker: Any) -> None:
    """Keep all threads of a local worker to the NUMA node whose turn it is, if there are several.

    Their number is their name. Memory that they use first is then on their node.
    """
    cpus = Topology.read().worker(worker.name)
    for thread in Path("/proc/self/task").iterdir() if cpus else ():
        with contextlib.suppress(OSError):  # it has ended meanwhile, or the CPUs are taken away
            os.sched_setaffinity(int(thread.name), cpus)


class _Process:
    """How the whole process works while any sweep is known here.

    BLAS has one thread, freed memory is kept for the next array, and what is there already is no
    garbage: collections would look through all modules again and again. No task may lift any of
    that: others run beside it.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._holders = 0
        self._limits: threadpool_limits | None = None

    def hold(self) -> None:
        with self._lock:
            self._holders += 1
            if self._limits is None:
                self._limits = threadpool_limits(limits=1, user_api="blas")
                heap.keep()
                gc.collect()
                gc.freeze()

    def release(self) -> None:
        with self._lock:
            self._holders -= 1
            if self._holders == 0 and self._limits is not None:
                self._limits.restore_original_limits()
                self._limits = None
                gc.unfreeze()
                heap.give_back()


_process = _Process()


class WorkPlugin(WorkerPlugin):
    """Keeps the shared part of a sweep's tasks; unpickled in the first task that needs it.

    Where a sweep leaves the backend open, a worker of the class `GPU` computes on its card what
    that can take.
    """

    def __init__(self, payload: bytes) -> None:
        self._payload = payload

    def setup(self, worker: Any) -> None:
        import heomdask.ensemble.task  # noqa: F401  # libraries can be limited once they are loaded

        self._lock = threading.Lock()
        self._work: Work | None = None
        self._has_card = class_of(worker.state.total_resources)[0] == GPU
        _process.hold()

    def teardown(self, worker: Any) -> None:
        _process.release()

    @property
    def work(self) -> Work:
        """The sweep, its store and what is asked for."""
        with self._lock:
            if self._work is None:
                work: Work = pickle.loads(self._payload)
                if self._has_card and work.sweep.backend == "auto":
                    work = replace(work, card_levels=_card_levels())
                self._work = work
            return self._work

    def __getstate__(self) -> dict[str, Any]:
        return {"_payload": self._payload}


def _card_levels() -> int:
    """The largest system that this worker's card computes; none if it has none that can be used."""
    try:
        return registry.get("cupy").info.most_levels
    except BackendUnavailable as error:
        warn(f"A worker of the class {GPU} computes on its CPU: {error}")
        return 0


class _Libraries:
    """The libraries with threads of their own, looked for again after every import."""

    def __init__(self) -> None:
        self._imported = 0
        self._controller: ThreadpoolController | None = None

    def one_thread(self) -> Any:
        """OpenMP with one thread, in this thread alone, until the context ends."""
        if self._controller is None or self._imported != len(sys.modules):
            self._imported = len(sys.modules)
            self._controller = ThreadpoolController()
        return self._controller.limit(limits=1, user_api="openmp")


_libraries = _Libraries()


class _Turns:
    """Tasks of this process: side by side, or one that is alone."""

    def __init__(self) -> None:
        self._changed = threading.Condition()
        self._running = 0
        self._claimed = False  # by one that is alone, or will be

    @contextlib.contextmanager
    def taken(self, alone: bool) -> Iterator[None]:
        """Run in this context, once it may."""
        with self._changed:
            self._changed.wait_for(lambda: not self._claimed)
            self._claimed = alone
            self._changed.wait_for(lambda: not (alone and self._running))
            self._running += 1
        try:
            yield
        finally:
            with self._changed:
                self._running -= 1
                self._claimed = self._claimed and not alone
                self._changed.notify_all()


_turns = _Turns()


def run_on_worker(name: str, task: Task, watched: bool, viewed: bool, trial: str | None) -> Report:
    """Compute a task of the sweep whose plugin has that name, with one thread.

    If it is watched, how far it is goes out under that name too, as an event; if it is viewed, so
    does what became of its points when it ends. If it is a trial, it is alone in this process, and
    an event says under the name of the trials that it begins.
    """
    from heomdask.ensemble.task import run_task
    from heomdask.ensemble.view import TOPIC, Ended

    worker: Any = get_worker()
    key = worker.get_current_task()
    limit: int | None = worker.memory_manager.memory_limit
    if limit is not None:
        limit //= worker.state.nthreads
    tell = functools.partial(_tell, worker, name, key) if watched else None
    with _turns.taken(alone=trial is not None), _libraries.one_thread():
        if trial is not None:
            sync(worker.loop, worker.scheduler.log_event, topic=trial, msg=task)
        work = worker.plugins[name].work
        ended = Ended(work.cells) if viewed else None
        report = run_task(work, task, limit, tell, ended)
    if ended is not None:
        worker.log_event(TOPIC, ended.event(name, key, worker.address))
    return report


def _tell(worker: Any, topic: str, key: str, points: float) -> None:
    """How many points' worth of a task is done, and where."""
    worker.log_event(topic, {"key": key, "worker": worker.address, "points": points})
