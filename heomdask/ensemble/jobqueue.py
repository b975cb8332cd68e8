"""Workers in batch jobs of Slurm.

Takes: a `Slurm` profile.
Gives: `SlurmJobs`, a Dask cluster whose jobs are submitted, watched, replaced and cancelled;
    `job_script`, what is submitted.
Next file: `remote.py`, what their workers load.

A job whose workers are missing and that is no longer in the queue is submitted again: it was killed
at its time limit, or with its node, or by hand. Dask's own ways do not see that of a job with
several workers, or that ended before they came. The queue is asked only while workers are missing,
and ever more rarely. Jobs of a class that end one after the other before their workers are there
are not submitted any more, until one of that class has come after all.
"""

from __future__ import annotations

import asyncio
import logging
import os
import shlex
import signal
import sys
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from distributed.core import Status
from distributed.deploy.cluster import Cluster
from tornado.ioloop import PeriodicCallback

from heomdask import checks
from heomdask.ensemble.profiles import Slurm, python
from heomdask.ensemble.tls import security, warn_if_open
from heomdask.errors import InputError

_interrupt = signal.getsignal(signal.SIGINT)
from dask_jobqueue import SLURMCluster  # noqa: E402 - its import sets a handler of Ctrl-C ...
from dask_jobqueue.slurm import SLURMJob  # noqa: E402 - as above

if _interrupt is not None:
    signal.signal(signal.SIGINT, _interrupt)  # ... that would end any program without a word

NAME = "heomdask"  # of the jobs
SECONDS_TO_FIND = 60  # the scheduler, for a job that starts; then it ends: its client is gone
LOOK, LOOK_RARELY = 1.0, 30.0  # seconds between two looks at the queue, first and at most
MOST_FAILURES = 3  # jobs in a row that end before their workers are there
LOG_LINES = 8
LOADED = ["--no-dashboard", "--preload", "heomdask.ensemble.remote"]
FOR_CARDS = ["--device-memory-limit", "0"]  # of dask-cuda: Dask keeps no data there
SETTINGS = {  # of the scheduler
    "distributed.scheduler.worker-saturation": 1.0,
    "distributed.scheduler.allowed-failures": 10,  # a time limit is nobody's fault
    "distributed.scheduler.no-workers-timeout": None,  # a queue may be long
}
ENVIRONMENT = {
    # a job inherits what the submitting shell has set
    **dict.fromkeys(("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS"), "1"),
    "PYTHONSAFEPATH": "1",  # see remote.py
    "DASK_DISTRIBUTED__WORKER__MEMORY__SPILL": "False",
    "DASK_DISTRIBUTED__WORKER__MEMORY__TARGET": "False",
}


def job_script(profile: Slurm) -> str:
    """The script of a job; of one of each class, where there are several."""
    jobs = [_Job("tcp://SCHEDULER:PORT", name=f"{NAME}-0", **_job(k)) for k in profile.kinds]
    return "\n".join(str(job.job_script()) for job in jobs)


def _job(profile: Slurm) -> dict[str, Any]:
    """What Dask's own class is told of a job."""
    scratch, log = profile.local_directory, _log(profile, "%j")
    resources = ["--resources", f"{profile.pool}=1"] if profile.pool else []
    exports = [f"export {name}={value}" for name, value in ENVIRONMENT.items()]
    return {
        "job_name": NAME,
        "cores": profile.processes_each,  # Dask's: one thread for each process
        "job_cpu": profile.cores,
        "processes": profile.processes_each,
        "memory": f"{profile.job_nbytes} B",
        "walltime": profile.walltime,
        "queue": profile.partition,
        "account": profile.account,
        "interface": profile.interface,
        "job_extra_directives": [f"--output={shlex.quote(str(log))}", *profile.directives],
        "job_script_prologue": [*profile.prologue, *exports],
        "python": python(profile),
        "local_directory": None if scratch is None else f'"{scratch}"',  # may hold a variable
        "death_timeout": SECONDS_TO_FIND,
        "worker_command": "dask_cuda.cli" if profile.dask_cuda else "distributed.cli.dask_worker",
        "worker_extra_args": [*LOADED, *resources, *FOR_CARDS * profile.dask_cuda],
    }


def _log(profile: Slurm, number: str) -> Path:
    """The file that holds what a job writes."""
    return Path(profile.log_directory).absolute() / f"{NAME}-{number}.log"


class _Job(SLURMJob):  # type: ignore[misc]  # dask_jobqueue has no types
    """One job, which says when it is closed."""

    async def close(self) -> None:
        await super().close()
        self.status = Status.closed


@dataclass(eq=False)
class _Kind:
    """The jobs of one class.

    Attributes
    ----------
    profile : theirs alone.
    failures : of them in a row that ended before their workers were there.
    log : of the last of these.
    error : why no more are submitted.
    held : what would be, by the names of the jobs, as Dask starts them.
    """

    profile: Slurm
    failures: int = 0
    log: Path = Path()
    error: InputError | None = None
    held: dict[str, Any] = field(default_factory=dict)

    def explain(self) -> InputError:
        try:
            end = "\n".join(self.log.read_text(errors="replace").splitlines()[-LOG_LINES:])
        except OSError:
            end = "(it is not there)"
        which = f"{self.profile.pool} jobs" if self.profile.pool else "jobs"
        return InputError(
            f"{self.failures} {which} of Slurm ended one after the other before their workers were "
            f"there; see `python` and `prologue` in the profile, and the end of {self.log}:\n{end}"
        )


class SlurmJobs(SLURMCluster):  # type: ignore[misc]  # dask_jobqueue has no types
    """A scheduler in this process, and the jobs of a profile."""

    job_cls = _Job

    def __init__(self, profile: Slurm, dashboard: bool) -> None:
        self._profile = profile
        self._kinds = [_Kind(kind) for kind in profile.kinds]
        self._kind_of: dict[str, _Kind] = {}  # all jobs by their names
        self._found: set[str] = set()  # jobs whose workers have been there
        self._next, self._pause, self._known = 0.0, LOOK, 0
        self._said = ""
        self._looking = asyncio.Lock()
        logs = Path(profile.log_directory).absolute()
        logs.mkdir(parents=True, exist_ok=True)
        super().__init__(
            name=NAME,
            security=security(profile.tls),
            shared_temp_directory=str(logs),
            scheduler_options={"dashboard_address": "127.0.0.1:0", "dashboard": dashboard},
            silence_logs=logging.CRITICAL,
            **_job(profile),
        )
        warn_if_open(self.scheduler_address)

    def submit(self) -> None:
        """Submit all jobs, and begin to watch them; refused if Slurm takes none."""
        self.sync(self._submit_all)

    def require_jobs(self) -> None:
        """Raise what is wrong with the jobs, if none is left to compute."""
        errors = [kind.error for kind in self._kinds if kind.error is not None]
        if len(errors) == len(self._kinds) and not self.scheduler.workers:
            raise errors[0]

    def wait_for_first(self) -> None:
        """Until a worker is there: that is as long as the queue is."""
        while not self.scheduler.workers:
            self.require_jobs()
            time.sleep(0.1)

    async def _submit_all(self) -> None:
        for kind in self._kinds:
            spec = self._spec(kind.profile)
            for _ in range(kind.profile.jobs):
                (name,) = self.new_worker_spec()
                self.worker_spec[name] = spec
                self._kind_of[name] = kind
        refused = await self._submit()
        if not self.workers:
            raise checks.refuse("cluster", "a profile whose jobs Slurm takes", refused)
        self._watch = PeriodicCallback(self._look, 1000 * LOOK)
        self._watch.start()

    def _spec(self, kind: Slurm) -> dict[str, Any]:
        """How to start such a job, and what its workers are called, in Dask's words."""
        own = {k: v for k, v in _job(kind).items() if k != "interface"}  # the site's for all
        spec = {"cls": self.job_cls, "options": self.new_spec["options"] | own}
        group = [f"-{number}" for number in range(kind.processes_each)]
        return spec | {"group": group} if len(group) > 1 else spec

    async def _submit(self) -> str:
        """Submit the jobs that are lacking; what Slurm says to those that it refuses."""
        refused = ""
        try:
            await self._correct_state()
        except RuntimeError as error:
            refused = str(error).partition("stderr:\n")[2].strip() or str(error)
        for name, job in list(self.workers.items()):
            if job.job_id is None:
                job.status = Status.failed
                del self.workers[name]
        return refused

    async def _look(self) -> None:
        """Find jobs that are gone, and replace them; say that there is nothing but waiting."""
        async with self._looking:
            names = [str(worker.name) for worker in self.scheduler.workers.values()]
            jobs = (name.rpartition("-")[0] for name in names)  # those with several workers
            found = {*names, *jobs}
            for name in (found - self._found) & self._kind_of.keys():
                self._resume(self._kind_of[name])
            self._found |= found
            if len(names) != self._known:
                self._known, self._pause, self._next = len(names), LOOK, 0.0
            full = sum(self._profile.pools.values())
            hopeful = any(kind.error is None for kind in self._kinds)
            if len(names) < full and hopeful and time.monotonic() >= self._next:
                await self._compare_with_queue()
                self._pause = min(2 * self._pause, LOOK_RARELY)
                self._next = time.monotonic() + self._pause

    async def _compare_with_queue(self) -> None:
        try:
            queue = await _queue()
        except (RuntimeError, OSError):  # Slurm is busy, or away for a while
            return
        for name, job in list(self.workers.items()):
            if job.job_id not in queue:
                await self._forget(name)
        for kind in self._kinds:
            if kind.failures >= MOST_FAILURES:
                self._hold(kind)
        if len(self.worker_spec) > len(self.workers):
            refused = await self._submit()
            if not refused and not any(kind.failures for kind in self._kinds):
                self._pause = LOOK / 2
            elif not self.workers:
                error = InputError(f"Slurm takes no more jobs; it says: {refused}.")
                for kind in self._kinds:
                    kind.error = kind.error or error
        if not self.scheduler.workers:
            self._say([queue[j.job_id] for j in self.workers.values() if j.job_id in queue])

    async def _forget(self, name: str) -> None:
        job = self.workers.pop(name)
        await job.close()
        known = {n for n in self._found if n == name or n.startswith(f"{name}-")}
        self._found -= known
        if not known:
            kind = self._kind_of[name]
            kind.failures += 1
            kind.log = _log(self._profile, job.job_id)

    def _hold(self, kind: _Kind) -> None:
        """Submit no more jobs of a class; say so, if the sweep can go on without."""
        for name in self.worker_spec.keys() - self.workers.keys():
            if self._kind_of[name] is kind:
                kind.held[name] = self.worker_spec.pop(name)
        if kind.error is None:
            kind.error = kind.explain()
            if self.scheduler.workers or any(other.error is None for other in self._kinds):
                sys.stderr.write(f"No more of these jobs are submitted: {kind.error}\n")

    def _resume(self, kind: _Kind) -> None:
        """A worker of a class is there."""
        kind.failures, kind.error = 0, None
        self.worker_spec.update(kind.held)
        kind.held.clear()

    def _say(self, states: list[tuple[str, str]]) -> None:
        """Once, until it changes."""
        pending = [reason for state, reason in states if state == "PENDING"]
        running = sum(state == "RUNNING" for state, _ in states)
        reasons = ", ".join(sorted(set(pending)))
        text = (
            f"waiting for Slurm: {len(pending)} job{'s' * (len(pending) != 1)} pending"
            + f" ({reasons})" * bool(reasons)
            + f", {running} running; the sweep goes on with the first worker, Ctrl-C cancels"
        )
        if text != self._said:
            self._said = text
            sys.stderr.write(text + "\n")
            sys.stderr.flush()

    def _update_worker_status(self, op: str, msg: Any) -> None:
        # between the two, Dask would cancel what by then has the name of a lost job
        Cluster._update_worker_status(self, op, msg)

    async def _close(self) -> None:
        watch = getattr(self, "_watch", None)
        if watch is not None:
            watch.stop()
        async with self._looking:  # until what is under way has ended
            pass
        await super()._close()
        for part in ("key", "cert", "ca_file"):  # Dask's own leaves these files to the collector
            file = getattr(self, f"_job_{part}", None)
            if file is not None:
                file.close()


async def _queue() -> dict[str, tuple[str, str]]:
    """State and reason of this user's jobs that wait or run, by their numbers."""
    unset = [part for name in os.environ if name.startswith("SQUEUE_") for part in ("-u", name)]
    asked = ["squeue", "--noheader", "--user", str(os.getuid()), "--format", "%i|%T|%r"]
    lines = (await SLURMJob._call(["env", *unset, *asked])).splitlines()
    jobs = (line.split("|", 2) for line in lines if line.count("|") >= 2)
    return {number: (state, reason) for number, state, reason in jobs}
