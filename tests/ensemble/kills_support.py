"""A cluster on loopback whose processes are killed at random moments, and started again.

A scheduler, workers with their nannies, and a client with a sweep: each a process of its own. What
dies is started again as a user or a batch system would; a lost client, or a lost scheduler, means a
new run. Every point that is built leaves a line in a log.
"""

from __future__ import annotations

import contextlib
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import psutil
from ensemble_support import PLUS, problem, sweep

import heomdask as hd
from heomdask.ensemble.runner import SerialRunner
from heomdask.outcome import Outcome
from heomdask.results.folder import folder_of
from heomdask.results.store import Store

LINE = 60  # bytes
SECONDS = 0.005  # that a point takes at least
MOST_POINTS = 45  # built between two kills
FIRST = 128  # points that the store is made with, so that its shards are small
LIMIT = 120.0  # seconds for anything to happen
START = "import sys, kills_support as k; k.compute(*sys.argv[1:])"


class Paced:
    """Points that take a while and leave a line: run, process, time, point.

    Calls wait while the log is as long as a second file.
    """

    def __init__(self, folder: Path, run: int) -> None:
        self.log, self.allowed = folder / "log", folder / "allowed"
        self.run = run

    def __call__(self, k: float) -> Any:
        time.sleep(SECONDS)
        while self.log.stat().st_size >= self.allowed.stat().st_size:
            time.sleep(0.005)
        line = f"{self.run} {os.getpid()} {time.time():.6f} {k:.0f}"
        with self.log.open("a") as log:
            log.write(f"{line:<{LINE - 1}}\n")
        return build(k)


def build(k: float) -> Any:
    return problem(k / 1000), PLUS


def plain(points: int, function: Any = build) -> hd.Sweep:
    return sweep(function, over={"k": range(points)}, depth=2, expansion=hd.Pade(1))


def compute(folder: str, address: str, run: str, points: str) -> None:
    """What the client does."""
    from heomdask.ensemble.cluster import connect

    what = plain(int(points), Paced(Path(folder), int(run)))
    with connect(scheduler=address) as client:
        what.run(Path(folder, "s.zarr"), client=client, progress=False)


@dataclass(frozen=True)
class Line:
    """A point that a worker began to compute, in which run."""

    run: int
    time: float
    point: int


@dataclass(frozen=True)
class Kill:
    """A process that was killed: its kind, in which run and when; what was committed by then.

    `torn` are shards whose commit it interrupted.
    """

    kind: str
    run: int
    time: float
    committed: frozenset[int]
    torn: int

    def interrupted(self, line: Line) -> bool:
        """Whether a point was begun and not committed; orphans may begin some a little later."""
        ended = self.kind in ("client", "scheduler") and line.run <= self.run
        return (line.time <= self.time or ended) and line.point not in self.committed


class Site:
    """The processes, and what was done to them.

    Attributes
    ----------
    points : of the sweep.
    kills : so far.
    said : what clients wrote that were not killed and failed.
    """

    def __init__(self, folder: Path, workers: int = 2) -> None:
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            self.address = f"tcp://127.0.0.1:{free.getsockname()[1]}"
        self.folder, self.points = folder, FIRST
        self.store, self.log, self.allowed = (folder / n for n in ("s.zarr", "log", "allowed"))
        self.log.touch()
        self.allowed.touch()
        plain(FIRST).run(self.store, client=SerialRunner(), progress=False)
        self.kills: list[Kill] = []
        self.said: list[str] = []
        self._sessions: list[int] = []
        self._clients: set[int] = set()
        self._run = 0
        self._torn: set[str] = set()
        self._scheduler = self._start_scheduler()
        self._nannies = [self._start_worker() for _ in range(workers)]
        self._client: subprocess.Popen[bytes]

    # -- processes -------------------------------------------------------------------------------

    def _start(self, output: str, *command: str) -> subprocess.Popen[bytes]:
        paths = [str(Path(__file__).parent), os.environ.get("PYTHONPATH")]
        with (self.folder / output).open("ab") as file:
            process = subprocess.Popen(
                [sys.executable, *command], cwd=self.folder, stdout=file, stderr=file,
                env={
                    **os.environ,
                    "PYTHONPATH": os.pathsep.join(filter(None, paths)),
                    "DASK_TEMPORARY_DIRECTORY": str(self.folder),
                    "DASK_DISTRIBUTED__SCHEDULER__ALLOWED_FAILURES": "0",
                },
                start_new_session=True,
            )  # fmt: skip
        self._sessions.append(process.pid)
        return process

    def _start_scheduler(self) -> subprocess.Popen[bytes]:
        return self._start(
            "scheduler.txt", "-m", "distributed.cli.dask_scheduler", "--host", self.address,
            "--dashboard-address", "127.0.0.1:0",
        )  # fmt: skip

    def _start_worker(self) -> subprocess.Popen[bytes]:
        return self._start(
            "workers.txt", "-m", "distributed.cli.dask_worker", self.address,
            "--host", "127.0.0.1", "--nthreads", "1", "--no-dashboard",
        )  # fmt: skip

    def _start_client(self) -> subprocess.Popen[bytes]:
        self._run += 1
        arguments = (str(self.folder), self.address, str(self._run), str(self.points))
        client = self._start(f"client-{self._run}.txt", "-c", START, *arguments)
        self._clients.add(client.pid)
        return client

    def _ended(self) -> bool:
        """Whether the sweep has ended; all else that has is started again."""
        if self._scheduler.poll() is not None:
            self._scheduler = self._start_scheduler()
        self._nannies = [n if n.poll() is None else self._start_worker() for n in self._nannies]
        code = self._client.poll()
        if code not in (None, 0):
            if code != -signal.SIGKILL:
                self.said.append((self.folder / f"client-{self._run}.txt").read_text())
            self._client = self._start_client()
        return code == 0

    def _wait(self, condition: Callable[[], bool], seconds: float = LIMIT) -> bool:
        """Until something has happened, or not; what ends meanwhile is started again."""
        end = time.monotonic() + seconds
        while not condition():
            if time.monotonic() > end:
                return False
            assert not self._ended(), "the sweep has ended"
            time.sleep(0.002)
        return True

    def finish(self) -> None:
        """Let the sweep come to its end."""
        os.truncate(self.allowed, 10**12)
        end = time.monotonic() + LIMIT
        while not self._ended():
            assert time.monotonic() < end, "the sweep does not end"
            time.sleep(0.01)

    def ask(self, points: int) -> None:
        """Ask for so many points, in a new run."""
        self.points = points
        self._client = self._start_client()

    def close(self) -> None:
        """End what was started last; what was killed before is to have left nothing behind."""
        for process in (*self._nannies, self._scheduler, self._client):
            process.kill()
            process.wait()

    def left(self) -> list[str]:
        """Processes of this site that are there still."""
        found = []
        for process in psutil.process_iter():
            with contextlib.suppress(psutil.NoSuchProcess, ProcessLookupError):
                if os.getsid(process.pid) in self._sessions:
                    found.append(f"{process.status()} {process.cmdline()}")
        return found

    # -- what was computed -----------------------------------------------------------------------

    def lines(self) -> list[Line]:
        """What workers began to compute, in order; clients build a few points, too."""
        found = []
        for text in self.log.read_text().splitlines():
            run, pid, at, point = text.split()
            if int(pid) not in self._clients:
                found.append(Line(int(run), float(at), int(point)))
        return found

    def committed(self) -> frozenset[int]:
        if not self.store.exists():
            return frozenset()
        status = Store.open(folder_of(self.store)).status()
        return frozenset(np.flatnonzero(status == Outcome.DONE).tolist())

    def _shards(self, name: str) -> set[str]:
        """Those that have a file of a variable."""
        with contextlib.suppress(FileNotFoundError):
            return {file.name.split(".")[1] for file in (self.store / name).glob("c.*")}
        return set()

    # -- kills -----------------------------------------------------------------------------------

    def kill(self, kind: str, rng: np.random.Generator) -> None:
        """Kill a process of a kind: at any moment, after some points more, or within a commit."""
        size = self.log.stat().st_size
        os.truncate(self.allowed, size + LINE * MOST_POINTS)
        if (moment := rng.random()) < 0.25:
            self._wait(lambda: False, seconds=2 * rng.random())
        else:
            enough = size + LINE * int(rng.integers(MOST_POINTS))
            assert self._wait(lambda: self.log.stat().st_size >= enough), "nothing is computed"
        assert self._wait(lambda: bool(self._pids(kind))), "nothing is there to be killed"
        victim, run = int(rng.choice(self._pids(kind))), self._run
        if moment > 0.5:
            self._await_commit()
        orphans = _children(victim) if kind == "nanny" else []  # end soon by themselves
        with contextlib.suppress(ProcessLookupError):  # it followed another one
            os.kill(victim, signal.SIGKILL)
        assert self._wait(lambda: not any(map(psutil.pid_exists, orphans)))
        committed = self.committed()
        torn = self._shards("rho") - self._shards("status")
        self.kills.append(Kill(kind, run, time.time(), committed, len(torn - self._torn)))
        self._torn = torn

    def _await_commit(self) -> None:
        end, known = time.monotonic() + 1, len(self._shards("rho"))
        while len(self._shards("rho")) == known and time.monotonic() < end:
            pass

    def _pids(self, kind: str) -> list[int]:
        if kind == "worker":
            return [pid for nanny in self._nannies for pid in _children(nanny.pid)]
        processes = {"nanny": self._nannies, "client": [self._client]}
        return [p.pid for p in processes.get(kind, [self._scheduler]) if p.poll() is None]


def _children(nanny: int) -> list[int]:
    """The worker that a nanny watches, if it is there."""
    with contextlib.suppress(psutil.NoSuchProcess):
        children = psutil.Process(nanny).children()
        return [c.pid for c in children if "spawn_main" in " ".join(c.cmdline())]
    return []
