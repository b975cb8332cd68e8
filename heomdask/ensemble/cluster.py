"""Workers: local ones, one single-threaded process a core, loopback only; or those of a cluster.

Takes: how many, the address of a scheduler, or the profile of a cluster.
Gives: `Workers`, which start when they are needed, and `connect`, a client of some at once.
Next file: `profiles.py`, what a cluster may be; `runner.py`.
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
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self, TypeVar

from heomdask import checks
from heomdask.ensemble import profiles
from heomdask.ensemble.pools import CPU, GPU
from heomdask.ensemble.profiles import Address, Local, Profile, Slurm, Ssh
from heomdask.errors import InputError

if TYPE_CHECKING:
    from types import TracebackType

    from distributed import Client, LocalCluster, Security

STOPS = (signal.SIGINT, signal.SIGTERM)  # what a user or a batch system ends a run with
SECONDS_TO_REACH = 10  # a running scheduler answers at once
SECONDS_TO_START = 300
PAGE = "heomdask"  # of a sweep, on Dask's dashboard
CARDS = "CUDA_VISIBLE_DEVICES"  # of a process, in its environment
WORKER_PROCESS = "Dask Worker process"  # how distributed's nannies name what they start

Other = TypeVar("Other")


class Workers:
    """Workers that start when they are first needed, and end with the context.

    Parameters
    ----------
    cluster : "local", "slurm", "ssh:HOST,HOST", the address of a running scheduler, the path of a
        TOML file with a profile, or a `Profile`.
    scheduler : the address of a running scheduler, for short.
    workers : how many local ones, for short; default: one a CPU that this process may use.
    tls : encrypt what goes to and from the workers of a cluster.
    dashboard : give them a dashboard, which the machine of their scheduler alone can see; a
        scheduler that runs already has its own, or none.
    """

    def __init__(
        self,
        *,
        cluster: str | Path | Profile | None = None,
        scheduler: str | None = None,
        workers: int | None = None,
        tls: bool = False,
        dashboard: bool = False,
    ) -> None:
        profile = _profile(cluster, scheduler, workers)
        self._profile = profiles.with_tls(profile) if tls else profile
        self._dashboard = dashboard
        self._stack = contextlib.ExitStack()
        self._open = False
        self._cluster: Any = None  # each kind has a class of its own
        self._client: Client | None = None

    @property
    def share(self) -> tuple[dict[str, int], int]:
        """How many of each class there will be, and bytes for the smallest."""
        return self._profile.pools, self._profile.worker_nbytes

    @property
    def script(self) -> str:
        """Of a batch job, if the workers are in such."""
        if not isinstance(self._profile, Slurm):
            return ""
        profiles.require_package(self._profile)
        from heomdask.ensemble.jobqueue import job_script

        return job_script(self._profile)

    def __enter__(self) -> Self:
        profiles.require(self._profile)
        if self._dashboard:
            profiles.require_dashboard()
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
        """Begin to start them, which goes on by itself; or reach the scheduler."""
        self.require_open()
        if self._cluster is None and self._client is None:
            if isinstance(self._profile, Address):
                self._client = self._stack.enter_context(_reach(self._profile))
            else:
                self._cluster = _started(self._stack, self._profile, self._dashboard)

    @property
    def page(self) -> str:
        """Where a browser finds the page of a sweep; of own ones on their scheduler's machine."""
        self.start()
        if self._client is not None:
            return f"{self._client.dashboard_link.removesuffix('/status')}/{PAGE}"
        return f"http://127.0.0.1:{self._cluster.scheduler_info['services']['dashboard']}/{PAGE}"

    def client(self) -> Client:
        """A client of workers that are there: all local ones, or the first of a cluster."""
        from distributed import Client

        self.start()
        if self._client is None:
            with _signals_held():
                self._client = self._stack.enter_context(Client(self._cluster))
        if isinstance(self._profile, Slurm):
            self._cluster.wait_for_first()
        elif not isinstance(self._profile, Address):
            count = sum(self._profile.pools.values())
            self._client.wait_for_workers(count, timeout=SECONDS_TO_START)
        return self._client


def _profile(
    cluster: str | Path | Profile | None, scheduler: str | None, workers: int | None
) -> Profile:
    """The one way that was asked for; local workers are the default."""
    if workers is not None:
        checks.whole_number("workers", workers, low=1)
    given = {"cluster": cluster, "scheduler": scheduler, "workers": workers}
    both = [name for name, value in given.items() if value is not None]
    if len(both) > 1 and not (cluster == "local" and scheduler is None):
        raise InputError(
            f"One of `cluster`, `scheduler` and `workers` may be given, got {' and '.join(both)}; "
            "a cluster has as many workers as its profile says."
        )
    if scheduler is not None:
        return Address(address=scheduler)
    if cluster is None or cluster == "local":
        return Local(workers=workers)
    if isinstance(cluster, Profile):
        return cluster
    if not isinstance(cluster, (str, Path)):
        raise checks.refuse("cluster", profiles.ALLOWED, cluster)
    return profiles.read(cluster)


@contextlib.contextmanager
def connect(
    *,
    cluster: str | Path | Profile | None = None,
    scheduler: str | None = None,
    workers: int | None = None,
) -> Iterator[Client]:
    """A client of some `Workers`, which end with the context."""
    with Workers(cluster=cluster, scheduler=scheduler, workers=workers) as started:
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


def _reach(profile: Address) -> Client:
    from distributed import Client

    from heomdask.ensemble.tls import security

    address, private = profile.address, security(profile.tls)
    try:
        with ThreadPoolExecutor(1) as elsewhere:  # a notebook has an event loop in this thread
            elsewhere.submit(lambda: asyncio.run(_identify(address, private))).result()
        return Client(address, timeout=SECONDS_TO_REACH, security=private)
    except Exception as error:  # of many kinds, by what is wrong with the address
        reason = str(error) or f"no answer within {SECONDS_TO_REACH} s"
        raise checks.refuse(
            "scheduler", "the address of a running Dask scheduler", address,
            f"start one with `dask scheduler`, which says its address, or leave it out ({reason})",
        ) from None  # fmt: skip


async def _identify(address: str, private: Security | None) -> None:
    """Ask for an answer; a `Client` that gets none cannot be closed in good order."""
    from distributed import Security
    from distributed.core import rpc

    arguments = (private or Security()).get_connection_args("client")
    async with rpc(address, connection_args=arguments) as scheduler:
        await asyncio.wait_for(scheduler.identity(), SECONDS_TO_REACH)


def _started(stack: contextlib.ExitStack, profile: Local | Slurm | Ssh, dashboard: bool) -> Any:
    """A cluster whose workers are about to start, and end with the stack."""
    if isinstance(profile, Local):
        return _local(stack, profile, dashboard)
    import dask

    if isinstance(profile, Ssh):
        from heomdask.ensemble import ssh

        stack.enter_context(dask.config.set(ssh.SETTINGS))
        with _signals_held():
            return stack.enter_context(ssh.cluster(profile, dashboard))
    from heomdask.ensemble import jobqueue

    stack.enter_context(dask.config.set(jobqueue.SETTINGS))
    with _signals_held():
        jobs = stack.enter_context(jobqueue.SlurmJobs(profile, dashboard))
        jobs.submit()
    return jobs


def _local(stack: contextlib.ExitStack, profile: Local, dashboard: bool) -> LocalCluster:
    """A cluster of workers that are about to start, and end with the stack."""
    import dask
    from distributed import LocalCluster

    settings = {
        "distributed.scheduler.worker-saturation": 1.0,
        "distributed.scheduler.allowed-failures": 1,
        "distributed.scheduler.no-workers-timeout": f"{SECONDS_TO_START}s",  # not a hang
        "distributed.worker.memory.spill": False,
        "distributed.worker.memory.target": False,
        # what a dashboard would show; each process looks 50 and 100 times a second otherwise
        "distributed.admin.tick.interval": "500ms",
        "distributed.worker.profile.enabled": False,
        # at the usual intervals these two are most of what a process does that waits
        "distributed.admin.system-monitor.interval": "2s",
        "distributed.worker.memory.monitor-interval": "500ms",
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
            dashboard_address="127.0.0.1:0", scheduler_kwargs={"dashboard": dashboard},
            silence_logs=logging.CRITICAL,
        )  # fmt: skip
        stack.enter_context(cluster)
    count = sum(profile.pools.values())
    if profile.gpus:
        plain = [_of_class(cluster, CPU, {})] * (count - profile.gpus)
        on_cards = [_of_class(cluster, GPU, {CARDS: card}) for card in _cards(profile.gpus)]
        cluster.worker_spec.update(enumerate([*plain, *on_cards]))
    cluster.scale(count)
    return cluster


def _of_class(cluster: LocalCluster, pool: str, environment: dict[str, str]) -> dict[str, Any]:
    """How to start a worker that says its class."""
    options = cluster.new_spec["options"]
    own = {"resources": {pool: 1}, "env": environment}
    return {**cluster.new_spec, "options": {**options, **own}}


def _cards(count: int) -> list[str]:
    """Names of the first GPUs that this process may use."""
    named = os.environ.get(CARDS)
    cards = named.split(",") if named else [str(number) for number in range(count)]
    if len(cards) < count:
        raise checks.refuse("gpus", f"at most those of {CARDS} ({named})", count)
    return cards[:count]


def handled() -> list[signal.Signals]:
    """Those of `STOPS` whose handler can be put back: one that is not of Python cannot."""
    return [s for s in STOPS if signal.getsignal(s) is not None]


@contextlib.contextmanager
def _signals_held() -> Iterator[None]:
    """Let Ctrl-C and SIGTERM wait while workers are started or ended.

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
