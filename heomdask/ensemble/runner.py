"""Who computes tasks: this process, or Dask workers.

Takes: `Work` and tasks (lists of whole shards).
Gives: `SerialRunner` and `DaskRunner`, both a `Runner`; `Finished`, how a task ended.
Next file: `cluster.py`, which starts local workers.
"""

from __future__ import annotations

import contextlib
import queue
import sys
import uuid
from collections import deque
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol, cast

import cloudpickle

from heomdask import checks, memory
from heomdask.results.chunks import Shard

if TYPE_CHECKING:
    from distributed import Client

    from heomdask.ensemble.task import Report, Work

Task = tuple[Shard, ...]
PATIENCE = 1.0  # seconds that a driver waits for a task before it looks at its store again
_RUNNER = ("slots", "memory", "start", "submit", "wait", "stop")


@dataclass(frozen=True)
class Finished:
    """A task that ended: with a report, or (None) because its workers died."""

    task: Task
    report: Report | None


class Runner(Protocol):
    """Computes tasks, in any order."""

    @property
    def slots(self) -> int:
        """How many tasks run at once, now."""
        ...

    @property
    def memory(self) -> int:
        """Bytes for a task in the smallest slot."""
        ...

    def start(self, work: Work) -> None:
        """Make `work` known; called once, before the first task."""
        ...

    def submit(self, task: Task) -> None: ...

    def wait(self) -> list[Finished]:
        """Finished tasks, or none after a while; an error that is not a point's own is raised."""
        ...

    def stop(self) -> None:
        """Forget everything; called once, after the last task or an error."""
        ...


class SerialRunner:
    """Computes in this process, one task after the other: for debugging."""

    slots = 1

    def __init__(self) -> None:
        self._queue: deque[Task] = deque()
        self._work: Work | None = None

    @property
    def memory(self) -> int:
        return memory.available()

    def start(self, work: Work) -> None:
        self._work = work

    def submit(self, task: Task) -> None:
        self._queue.append(task)

    def wait(self) -> list[Finished]:
        from heomdask.ensemble.task import run_task

        assert self._work is not None
        task = self._queue.popleft()
        return [Finished(task, run_task(self._work, task))]

    def stop(self) -> None:
        self._queue.clear()


class DaskRunner:
    """Computes on the workers of a Dask client.

    `Work` reaches every worker once, also those that join later, as a worker plugin; a task's
    arguments and its report are a few hundred bytes. Keys are explicit, so that equal tasks are
    never taken for one.
    """

    def __init__(self, client: Client) -> None:
        self._client = client
        self._name = f"heomdask-{uuid.uuid4().hex[:12]}"
        self._count = 0
        self._tasks: dict[Any, Task] = {}  # of futures
        self._completed: queue.SimpleQueue[Any] = queue.SimpleQueue()

    @property
    def slots(self) -> int:
        threads: dict[str, int] = self._client.nthreads()
        return max(1, sum(threads.values()))

    @property
    def memory(self) -> int:
        workers: dict[str, Any] = self._client.scheduler_info(n_workers=-1)["workers"]
        shares = [w["memory_limit"] // w["nthreads"] for w in workers.values() if w["memory_limit"]]
        return min(shares, default=sys.maxsize)

    def start(self, work: Work) -> None:
        from heomdask.ensemble.worker import WorkPlugin

        plugin = WorkPlugin(bytes(cloudpickle.dumps(work)))
        self._client.register_plugin(plugin, name=self._name)

    def submit(self, task: Task) -> None:
        from heomdask.ensemble.worker import run_on_worker

        self._count += 1
        key = f"{self._name}-{self._count}"
        future = self._client.submit(run_on_worker, self._name, task, key=key, pure=False)
        self._tasks[future] = task
        future.add_done_callback(self._completed.put)

    def wait(self) -> list[Finished]:
        from distributed import KilledWorker
        from distributed.client import FutureCancelledError

        try:
            batch = [self._completed.get(timeout=PATIENCE)]
        except queue.Empty:
            # batch jobs that cannot be replaced any more are an error, not a wait
            getattr(self._client.cluster, "require_jobs", lambda: None)()
            return []
        while not self._completed.empty():
            batch.append(self._completed.get())
        finished = []
        for future in batch:
            task = self._tasks.pop(future)
            try:
                finished.append(Finished(task, future.result()))
            except (KilledWorker, FutureCancelledError):
                finished.append(Finished(task, None))
            future.release()
        return finished

    def stop(self) -> None:
        # with tasks left, an error or Ctrl-C is on its way up, and is to be heard alone
        hidden = (Exception,) if self._tasks else ()
        with contextlib.suppress(*hidden):
            if self._tasks:
                self._client.cancel(list(self._tasks), force=True)
                self._tasks.clear()
            self._client.unregister_worker_plugin(self._name)


def as_runner(client: Any) -> Runner:
    """A Dask client as a runner; a runner as it is; anything else is refused."""
    from distributed import Client as DaskClient

    if isinstance(client, DaskClient) and not client.asynchronous:
        return DaskRunner(client)
    if isinstance(client, DaskClient) or not all(hasattr(client, n) for n in _RUNNER):
        raise checks.refuse(
            "client",
            "a Dask client that is not asynchronous, a SerialRunner() or None",
            client,
            "make one of a cluster or an address: distributed.Client(cluster)",
        )
    return cast("Runner", client)
