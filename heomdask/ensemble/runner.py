"""Who computes tasks: this process, or Dask workers.

Takes: `Work` and tasks (lists of whole shards).
Gives: `SerialRunner` and `DaskRunner`, both a `Runner` and `Watchable`; `Finished`, how a task
    ended.
Next file: `cluster.py`, which starts local workers.

Dask gives the tasks of a worker that dies to others, a few times, and then gives them up, whatever
the worker died of and whether it had begun them. So that is no verdict here. A task of several
shards goes back to the driver, which splits it; a single shard is tried again, alone in its worker
process, and only deaths while it is computed there speak against it.
"""

from __future__ import annotations

import contextlib
import functools
import queue
import sys
import uuid
from collections import Counter, deque
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol, cast, runtime_checkable

import cloudpickle

from heomdask import checks, memory
from heomdask.ensemble.pools import ALIKE, Task, class_of
from heomdask.errors import HeomdaskError

if TYPE_CHECKING:
    from distributed import Client

    from heomdask.ensemble.task import Report, Work
    from heomdask.ensemble.view import Ended, Overview

Tell = Callable[[Task, float], None]  # how many points' worth of a task under way is done
PATIENCE = 1.0  # seconds that a driver waits for a task before it looks at its store again
DEATHS = 4  # of workers that computed a shard and nothing else, after which it is given up
_RUNNER = ("pools", "memory", "start", "submit", "withdraw", "wait", "stop")


@dataclass(frozen=True)
class Finished:
    """A task that ended: with a report, or (None) because its workers died.

    A single shard ends so only if that seems to be its own doing.
    """

    task: Task
    report: Report | None


class Runner(Protocol):
    """Computes tasks, in any order."""

    @property
    def pools(self) -> Mapping[str, int]:
        """How many tasks run at once, now, by class; those that say none are of class `ALIKE`."""
        ...

    @property
    def memory(self) -> int:
        """Bytes for a task in the smallest slot."""
        ...

    def start(self, work: Work) -> None:
        """Make `work` known; called once, before the first task."""
        ...

    def submit(self, task: Task, pool: str = ALIKE) -> None:
        """Only workers of that class compute the task; any worker, if it is `ALIKE`."""
        ...

    def withdraw(self, task: Task) -> None:
        """Forget a task that waits for workers of its class."""
        ...

    def wait(self) -> list[Finished]:
        """Finished tasks, or none after a while; an error that is not a point's own is raised."""
        ...

    def stop(self) -> None:
        """Forget everything; called once, after the last task or an error."""
        ...


@runtime_checkable
class Watchable(Protocol):
    """What a runner may do besides: say how far the tasks are that it computes."""

    def watch(self, tell: Tell, overview: Overview) -> None:
        """Call `tell` within `wait`, now and then; asked for before the first task, if at all.

        With the overview of the sweep it may show others, too, what becomes of its points.
        A task that begins anew, because its worker died, is told to be at 0; one that has finished
        is not told of any more.
        """
        ...

    def show(self, ended: Ended) -> None:
        """Let those others know of points that were given up; no task of a worker tells of them."""
        ...


class SerialRunner:
    """Computes in this process, one task after the other: for debugging."""

    def __init__(self) -> None:
        self._queue: deque[Task] = deque()
        self._work: Work | None = None
        self._tell: Tell | None = None

    @property
    def pools(self) -> dict[str, int]:
        return {ALIKE: 1}

    @property
    def memory(self) -> int:
        return memory.available()

    def watch(self, tell: Tell, overview: Overview) -> None:
        self._tell = tell

    def show(self, ended: Ended) -> None:
        """Nobody looks."""

    def start(self, work: Work) -> None:
        self._work = work

    def submit(self, task: Task, pool: str = ALIKE) -> None:
        self._queue.append(task)

    def withdraw(self, task: Task) -> None:
        self._queue.remove(task)

    def wait(self) -> list[Finished]:
        from heomdask.ensemble.task import run_task

        assert self._work is not None
        task = self._queue.popleft()
        tell = None if self._tell is None else functools.partial(self._tell, task)
        return [Finished(task, run_task(self._work, task, tell=tell))]

    def stop(self) -> None:
        self._queue.clear()


@contextlib.contextmanager
def _connected(*lost: type[Exception]) -> Iterator[None]:
    """Say plainly that the scheduler is gone; its workers may be at their tasks still.

    `lost` are errors that mean so here, besides those that always do.
    """
    from distributed.client import FutureCancelledError
    from distributed.comm.core import CommClosedError

    always: tuple[type[Exception], ...] = (FutureCancelledError, CommClosedError)
    try:
        yield
    except always + lost as error:
        raise HeomdaskError(
            "The connection to the Dask scheduler was lost, or somebody cancelled the tasks; run "
            "the sweep again: what is committed stays."
        ) from error


class DaskRunner:
    """Computes on the workers of a Dask client.

    `Work` reaches every worker once, also those that join later, as a worker plugin; a task's
    arguments and its report are a few hundred bytes. Keys are explicit, so that equal tasks are
    never taken for one. How far a long task is comes as an event, which Dask passes on from any
    worker; so does what became of its points, if the scheduler has a dashboard to show it on.

    A worker's class is the first of its Dask resources, in the order of their names, and it runs at
    most as many tasks at once as it has of that. Dask does not queue tasks for a class: they go to
    the workers at once, so it is the driver that must not hand out too many.
    """

    def __init__(self, client: Client) -> None:
        self._client = client
        self._name = f"heomdask-{uuid.uuid4().hex[:12]}"
        self._count = 0
        self._tasks: dict[Any, tuple[Task, str]] = {}  # of futures, with their pools
        self._classes: dict[str, tuple[str, int]] = {}  # of workers, and how many tasks at once
        self._completed: queue.SimpleQueue[Any] = queue.SimpleQueue()
        self._events: _Events | None = None
        self._swept = False  # whether the scheduler clears up after a killed client
        self._viewed = False  # whether the scheduler shows the sweep on its dashboard
        self._trials = _Trials(client, f"{self._name}-trials")

    @property
    @_connected(OSError)
    def pools(self) -> dict[str, int]:
        threads: dict[str, int] = self._client.nthreads()
        if not threads.keys() <= self._classes.keys():
            workers = self._client.scheduler_info(n_workers=-1)["workers"]
            self._classes = {a: class_of(w["resources"]) for a, w in workers.items()}
        found: Counter[str] = Counter()
        for address in threads.keys() & self._classes.keys():
            pool, most = self._classes[address]
            found[pool] += min(threads[address], most)
        return dict(found)

    @property
    @_connected(OSError)
    def memory(self) -> int:
        workers: dict[str, Any] = self._client.scheduler_info(n_workers=-1)["workers"]
        shares = [w["memory_limit"] // w["nthreads"] for w in workers.values() if w["memory_limit"]]
        return min(shares, default=sys.maxsize)

    def watch(self, tell: Tell, overview: Overview) -> None:
        from heomdask.ensemble.watching import open_view

        self._events = _Events(self._client, self._name, tell)
        with contextlib.suppress(Exception):  # a scheduler without heomdask, or that obeys nobody
            self._viewed = self._client.run_on_scheduler(open_view, self._name, overview)

    def show(self, ended: Ended) -> None:
        from heomdask.ensemble.view import TOPIC

        if self._viewed:
            self._client.log_event(TOPIC, ended.event(self._name))

    @_connected(OSError)
    def start(self, work: Work) -> None:
        from heomdask.ensemble import leftovers
        from heomdask.ensemble.worker import WorkPlugin

        plugin = WorkPlugin(bytes(cloudpickle.dumps(work)))
        self._client.register_plugin(plugin, name=self._name)
        with contextlib.suppress(Exception):  # a scheduler without heomdask, or that obeys nobody
            self._client.run_on_scheduler(leftovers.attach, self._name, self._client.id)
            self._swept = True

    def submit(self, task: Task, pool: str = ALIKE) -> None:
        self._submit(task, pool)

    def _submit(self, task: Task, pool: str, trial: str | None = None) -> None:
        from heomdask.ensemble.worker import run_on_worker

        self._count += 1
        key, watched = f"{self._name}-{self._count}", self._events is not None
        future = self._client.submit(
            run_on_worker, self._name, task, watched, self._viewed, trial,
            key=key, pure=False, resources=None if pool == ALIKE else {pool: 1},
        )  # fmt: skip
        self._tasks[future] = task, pool
        future.add_done_callback(self._completed.put)

    def withdraw(self, task: Task) -> None:
        futures = [future for future, (known, _) in self._tasks.items() if known == task]
        for future in futures:
            del self._tasks[future]
        self._client.cancel(futures, force=True)

    @_connected()
    def wait(self) -> list[Finished]:
        from distributed import KilledWorker

        finished = []
        for future in self._ended():
            if future not in self._tasks:  # withdrawn
                continue
            task, pool = self._tasks.pop(future)
            try:
                finished.append(Finished(task, future.result()))
            except KilledWorker:
                self._view_lost(future.key)
                if len(task) > 1 or self._trials.deaths(task) >= DEATHS:
                    finished.append(Finished(task, None))
                else:
                    self._submit(task, pool, self._trials.topic)
            future.release()
        if self._events is not None:
            self._events.pass_on({f.key: task for f, (task, _) in self._tasks.items()})
        return finished

    def _view_lost(self, key: str) -> None:
        """Let those who look at the sweep know of a task whose workers died."""
        from heomdask.ensemble.view import TOPIC

        if self._viewed:
            self._client.log_event(TOPIC, {"sweep": self._name, "key": key, "lost": 1})

    def _ended(self) -> list[Any]:
        """Futures that are done; none after a while."""
        ended = []
        with contextlib.suppress(queue.Empty):
            ended.append(self._completed.get(timeout=PATIENCE))
            while True:
                ended.append(self._completed.get_nowait())
        if not ended:  # batch jobs that cannot be replaced any more are an error, not a wait
            getattr(self._client.cluster, "require_jobs", lambda: None)()
        return ended

    def stop(self) -> None:
        from heomdask.ensemble import leftovers
        from heomdask.ensemble.watching import close_view

        # with tasks left, an error or Ctrl-C is on its way up, and is to be heard alone;
        # without, all is committed, and a scheduler that is gone has nothing to forget
        hidden = Exception if self._tasks else OSError
        with contextlib.suppress(hidden), contextlib.ExitStack() as stack:
            if self._swept:
                stack.callback(self._client.run_on_scheduler, leftovers.detach, self._name)
            stack.callback(self._client.unregister_worker_plugin, self._name)
            stack.callback(self._trials.stop)
            if self._viewed:
                stack.callback(self._client.run_on_scheduler, close_view, self._name)
            if self._events is not None:
                stack.callback(self._events.stop)
            if self._tasks:
                self._client.cancel(list(self._tasks), force=True)
                self._tasks.clear()


class _Events:
    """How far the tasks of a Dask client are, as their workers say."""

    def __init__(self, client: Client, topic: str, tell: Tell) -> None:
        self._client = client
        self._topic = topic
        self._tell = tell
        self._arrived: queue.SimpleQueue[Any] = queue.SimpleQueue()
        self._workers: dict[Task, str] = {}  # of the tasks that were told of
        client.subscribe_topic(topic, self._arrived.put)

    def pass_on(self, tasks: Mapping[str, Task]) -> None:
        """Tell the news of these tasks, by key; one whose worker is gone begins anew."""
        known = set(tasks.values())
        self._workers = {t: worker for t, worker in self._workers.items() if t in known}
        while not self._arrived.empty():
            _, event = self._arrived.get()
            if (task := tasks.get(event["key"])) is not None:
                self._workers[task] = event["worker"]
                self._tell(task, event["points"])
        alive = self._client.nthreads() if self._workers else {}
        for task in [t for t, worker in self._workers.items() if worker not in alive]:
            del self._workers[task]
            self._tell(task, 0.0)

    def stop(self) -> None:
        self._client.unsubscribe_topic(self._topic)


class _Trials:
    """Single shards that are computed alone after their workers died: how often each was begun.

    Their workers say so before they begin. That may be heard a little after a death, and counts
    with the next one then.
    """

    def __init__(self, client: Client, topic: str) -> None:
        self.topic = topic
        self._client = client
        self._arrived: queue.SimpleQueue[Any] = queue.SimpleQueue()
        self._begun: Counter[Task] = Counter()
        self._started = False

    def deaths(self, task: Task) -> int:
        """How many workers died of a task that is not under way."""
        if not self._started:
            self._client.subscribe_topic(self.topic, self._arrived.put)
            self._started = True
        while not self._arrived.empty():
            _, begun = self._arrived.get()
            self._begun[begun] += 1
        return self._begun[task]

    def stop(self) -> None:
        if self._started:
            self._client.unsubscribe_topic(self.topic)


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
