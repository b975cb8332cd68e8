"""Sweeps on worker processes: kills, retries, environment, threads."""

from __future__ import annotations

import asyncio
import contextlib
import os
import pickle
import signal
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from ensemble_support import PLUS, Logged, assert_same_bits, disordered, problem, sweep

import heomdask as hd
from heomdask.backends import registry
from heomdask.cli import main
from heomdask.ensemble import cluster
from heomdask.ensemble.cluster import Workers, connect
from heomdask.ensemble.runner import SerialRunner
from heomdask.errors import BackendUnavailable, HeomdaskWarning, InputError
from heomdask.outcome import Outcome
from heomdask.results.folder import folder_of
from heomdask.results.store import Store

pytestmark = pytest.mark.cluster

CLIENT = """
import pickle, sys
from pathlib import Path
what, store = pickle.loads(Path(sys.argv[1]).read_bytes())
from heomdask.ensemble.cluster import connect
with connect(workers=2) as client:
    what.run(store, client=client, progress=False)
"""  # no guard against re-import: a plain script must do

OVER = {"T": [0.5, 1.0]}
SAMPLES = 100


@pytest.fixture(scope="module")
def client() -> Iterator[Any]:
    with connect(workers=2) as two_workers:
        yield two_workers


def wait_for(condition: Callable[[], bool], process: Any = None, seconds: float = 300) -> None:
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end, "waited too long"
        assert process is None or process.poll() is None, "the client has ended"
        time.sleep(0.1)


def alive(pid: int) -> bool:
    """Whether a process runs (a zombie does not)."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0] != "Z"
    except FileNotFoundError:
        return False


class Interrupted:
    """One sweep in a process of its own, which can be killed."""

    def __init__(self, folder: Path) -> None:
        self.store = folder / "s.zarr"
        self.log = folder / "log"
        self.log.touch()
        self.allowed = folder / "allowed"
        self.allowed.touch()
        self.payload = folder / "sweep.pickle"
        what = sweep(Logged(self.log, self.allowed), over=OVER, samples=SAMPLES, seed=1)
        self.payload.write_bytes(pickle.dumps((what, self.store)))
        self.script = folder / "client.py"
        self.script.write_text(CLIENT)

    def start(self) -> subprocess.Popen[bytes]:
        paths = [str(Path(__file__).parent), os.environ.get("PYTHONPATH")]
        here = os.pathsep.join(filter(None, paths))  # an empty one would be the current folder
        return subprocess.Popen(
            [sys.executable, str(self.script), str(self.payload)],
            env={**os.environ, "PYTHONPATH": here},
            stderr=subprocess.DEVNULL,
        )

    def allow(self, calls: int) -> None:
        """Let that many points be built, those before and those built twice included."""
        os.truncate(self.allowed, calls)

    def committed(self) -> np.ndarray[Any, Any]:
        if not self.store.exists():
            return np.zeros((2, SAMPLES), dtype=bool)
        return np.asarray(Store.open(folder_of(self.store)).status() == Outcome.DONE)

    def lines(self) -> list[list[str]]:
        return [line.split() for line in self.log.read_text().splitlines()]


def test_kill_a_worker_then_the_client_and_run_again(tmp_path: Path) -> None:
    """No committed point is computed again; results equal those of an undisturbed run.

    A worker builds all points of a task before it commits any, and no task has more than 25: with
    60 points built at least 10 come to be committed, with 180 at least 80.
    """
    case = Interrupted(tmp_path)
    process = case.start()
    case.allow(60)
    wait_for(lambda: case.committed().sum() >= 10, process)
    workers = {int(pid) for pid, *_ in case.lines()} - {process.pid}
    os.kill(min(workers), signal.SIGKILL)
    case.allow(180)
    wait_for(lambda: case.committed().sum() >= 80, process)
    process.kill()
    process.wait()
    workers = {int(pid) for pid, *_ in case.lines()} - {process.pid}
    wait_for(lambda: not any(alive(pid) for pid in workers))

    kept = case.committed()
    assert 80 <= kept.sum() < 2 * SAMPLES
    files = Store.open(folder_of(case.store)).files
    chunks = [
        case.store / files.file(v.name, (i, j // files.shard[1]))
        for i, j in np.argwhere(kept).tolist()
        for v in files.variables
    ]
    identity = {c: (c.stat().st_ino, c.stat().st_mtime_ns) for c in chunks}
    log_before = len(case.lines())

    case.allow(1000)
    second = case.start()
    assert second.wait(timeout=120) == 0
    assert case.committed().all()
    assert identity == {c: (c.stat().st_ino, c.stat().st_mtime_ns) for c in chunks}
    computed = [(float(T), float(e)) for pid, T, e in case.lines()[log_before:]
                if int(pid) != second.pid]  # fmt: skip
    assert len(computed) == len(set(computed)) == (~kept).sum()

    undisturbed = sweep(disordered, over=OVER, samples=SAMPLES, seed=1).run(
        tmp_path / "undisturbed.zarr", client=SerialRunner(), progress=False
    )
    assert_same_bits(hd.open(case.store), undisturbed)
    leftovers = [p for p in case.store.rglob("*") if p.name.endswith(".partial")]
    assert not leftovers


class Deadly:
    """A point that takes its worker with it."""

    def __init__(self, at: float, here: int) -> None:
        self.at, self.client_process = at, here

    def __call__(self, e: float) -> Any:
        if e == self.at and os.getpid() != self.client_process:
            os.kill(os.getpid(), signal.SIGKILL)
        return problem(e), PLUS


@pytest.mark.slow
def test_a_point_that_kills_its_workers_is_given_up(tmp_path: Path) -> None:
    energies = [0.0, 0.1, 0.2, 0.3, 0.4, 0.5]
    with connect(workers=1) as client, pytest.warns(HeomdaskWarning, match="^1 of 6 points"):
        ds = sweep(Deadly(0.3, os.getpid()), over={"e": energies}, depth=3).run(
            tmp_path / "s.zarr", client=client, progress=False
        )
    assert ds["status"].values.tolist() == [1, 1, 1, Outcome.FAILED, 1, 1]
    assert "worker died" in str(ds["error"].values[3])


def test_workers_and_one_process_agree_to_the_last_bit(tmp_path: Path, client: Any) -> None:
    what = sweep(disordered, over=OVER, samples=30)
    parallel = what.run(tmp_path / "p.zarr", client=client, progress=False)
    serial = what.run(tmp_path / "s.zarr", client=SerialRunner(), progress=False)
    assert_same_bits(parallel, serial)


def test_lambdas_and_closures_travel(tmp_path: Path, client: Any) -> None:
    """Drives as lambda, nested function, partial and object, built here and sent to workers."""
    import functools

    amplitude = 0.7

    def nested(t: float) -> float:
        return amplitude * np.sin(1.3 * t)

    class Pulse:
        def __call__(self, t: float) -> float:
            return amplitude * np.sin(1.3 * t)

    def scaled(t: float, a: float) -> float:
        return a * np.sin(1.3 * t)

    shapes = [lambda t: 0.7 * np.sin(1.3 * t), nested, Pulse(), functools.partial(scaled, a=0.7)]

    def driven(k: int) -> Any:
        sx = np.array([[0.0, 1.0], [1.0, 0.0]])
        return hd.Problem(0.2 * np.diag([1.0, -1.0]), drives=[(shapes[k], sx)]), PLUS

    ds = sweep(driven, over={"k": range(4)}).run(tmp_path / "s.zarr", client=client, progress=False)
    assert ds["status"].values.tolist() == [1] * 4
    for k in range(1, 4):
        np.testing.assert_allclose(ds["rho"][k], ds["rho"][0], atol=1e-12)


def test_workers_use_one_thread(client: Any) -> None:
    def threads() -> list[int]:
        from threadpoolctl import threadpool_info, threadpool_limits

        with threadpool_limits(limits=1):
            return [pool["num_threads"] for pool in threadpool_info()]

    for pools in client.run(threads).values():
        assert set(pools) <= {1}
    variables = ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS")
    found = client.run(lambda: [os.environ.get(v) for v in variables])
    assert list(found.values()) == [["1"] * 3] * 2


def test_workers_are_placed_when_they_start(client: Any) -> None:
    """By the preload, and the number that is their name; the rest is a matter of the topology."""
    preloads = client.run(lambda dask_worker: [p.name for p in dask_worker.preloads])
    assert all("heomdask.ensemble.worker" in names for names in preloads.values())
    names = client.run(lambda dask_worker: dask_worker.name)
    assert sorted(names.values()) == [0, 1]


def test_workers_may_have_a_backend_that_the_client_lacks(
    tmp_path: Path, client: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    get = registry.get

    def lacking(name: str, **options: Any) -> Any:
        if name == "numpy":
            raise BackendUnavailable("not here")
        return get(name, **options)

    monkeypatch.setattr(registry, "get", lacking)
    what = sweep(over={"e": [0.1, 0.2]}, backend="numpy")
    ds = what.run(tmp_path / "s.zarr", client=client, progress=False)
    assert ds["status"].values.tolist() == [1, 1]
    with pytest.raises(BackendUnavailable, match="not here"):
        what.run(tmp_path / "t.zarr", client=SerialRunner(), progress=False)


def test_a_scheduler_is_reached_from_a_notebook(client: Any) -> None:
    """There an event loop runs in the thread of the user's code."""

    async def cell() -> int:
        with connect(scheduler=client.scheduler.address) as own:
            return len(own.nthreads())

    assert asyncio.run(cell()) == 2


def test_workers_are_used_inside_their_context_only(tmp_path: Path) -> None:
    workers, said = Workers(workers=1), "`Workers` must be used inside their context"
    what = sweep(over={"e": [0.1]})
    for _ in range(2):  # before they are there, and after their end
        with pytest.raises(InputError, match=said):
            workers.start()
        with pytest.raises(InputError, match=said):
            what.run(tmp_path / "s.zarr", client=workers, progress=False)
        assert not (tmp_path / "s.zarr").exists()
        with workers:
            assert workers.client().submit(sum, [1, 2]).result() == 3


BLAS = """
import threading, time
from threadpoolctl import threadpool_info
from ensemble_support import sweep
from distributed import Client, LocalCluster
from heomdask.ensemble import task

def threads():
    return {pool["num_threads"] for pool in threadpool_info() if pool["user_api"] == "blas"}

entered, seen, both = [], [], threading.Event()
def run_task(*arguments):
    entered.append(None)
    if len(entered) == 1:
        both.wait(60)
    else:
        both.set()
        time.sleep(1)  # the first task ends
        seen.append(threads())
    return plain(*arguments)

plain, task.run_task = task.run_task, run_task
if __name__ == "__main__":
    before = threads()
    options = dict(n_workers=1, threads_per_worker=2, processes=False, dashboard_address=None)
    with LocalCluster(**options) as cluster, Client(cluster) as client:
        ds = sweep(over={"e": [0.1, 0.2]}).run("s.zarr", client=client, progress=False)
        print(ds["status"].values.tolist(), seen, threads() == before)
"""


def test_a_task_that_ends_leaves_others_their_one_thread(tmp_path: Path) -> None:
    """In a worker with two threads; after the sweep it is as it was."""
    here = os.pathsep.join(filter(None, [str(Path(__file__).parent), os.environ.get("PYTHONPATH")]))
    plain = {k: v for k, v in os.environ.items() if not k.endswith("_NUM_THREADS")}
    done = subprocess.run(
        [sys.executable, "-c", BLAS], env={**plain, "PYTHONPATH": here},
        cwd=tmp_path, capture_output=True, text=True, timeout=300, check=False,
    )  # fmt: skip
    assert done.stdout == "[1, 1] [{1}] True\n", done.stdout + done.stderr


def test_a_signal_while_the_workers_end_waits_until_they_have(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    from distributed import LocalCluster

    close = LocalCluster.close

    def interrupted(self: LocalCluster, *args: Any) -> Any:
        signal.raise_signal(signal.SIGINT)
        return close(self, *args)

    monkeypatch.setattr(LocalCluster, "close", interrupted)
    connection = connect(workers=1)
    (pid,) = connection.__enter__().run(os.getpid).values()
    assert alive(pid)
    with pytest.raises(KeyboardInterrupt):
        connection.__exit__(None, None, None)
    assert not alive(pid)


def test_a_signal_while_the_client_connects_waits(monkeypatch: pytest.MonkeyPatch) -> None:
    """Ctrl-C there would leave a client that nobody closes."""
    import distributed

    done = []

    class Interrupted(distributed.Client):
        def __init__(self, *arguments: Any, **options: Any) -> None:
            super().__init__(*arguments, **options)
            done.append("made")
            signal.raise_signal(signal.SIGINT)

        def __exit__(self, *error: object) -> None:
            super().__exit__(*error)
            done.append("ended")

    monkeypatch.setattr(distributed, "Client", Interrupted)
    with pytest.raises(KeyboardInterrupt), connect(workers=1):
        pass
    assert done == ["made", "ended"]


def test_a_handler_that_is_not_of_python_is_left_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    before = {s: signal.getsignal(s) for s in cluster.STOPS}
    foreign = signal.SIGTERM
    monkeypatch.setattr(signal, "getsignal", lambda s: None if s == foreign else before[s])
    for held in (cluster._signals_held(), main._interruptible("none.zarr")):
        with held:
            now = {s: signal.signal(s, signal.SIG_DFL) for s in cluster.STOPS}
            for s, handler in now.items():
                signal.signal(s, handler)
        assert now[foreign] == before[foreign]
        assert now[signal.SIGINT] != before[signal.SIGINT]
        assert signal.signal(signal.SIGINT, before[signal.SIGINT]) == before[signal.SIGINT]


def test_the_clients_environment_is_left_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("OMP_NUM_THREADS", raising=False)
    main = sys.modules["__main__"]
    file = getattr(main, "__file__", None)
    monkeypatch.setenv("MKL_NUM_THREADS", "3")
    monkeypatch.setenv("OF_THE_USER", "before")
    with connect(workers=1) as client:
        assert client.submit(sum, [1, 2]).result() == 3
        os.environ["OF_THE_USER"] = "changed"
    assert "OMP_NUM_THREADS" not in os.environ
    assert os.environ["MKL_NUM_THREADS"] == "3"
    assert os.environ["OF_THE_USER"] == "changed"
    assert getattr(main, "__file__", None) == file


def test_no_dashboard_is_opened_and_a_port_in_use_is_no_matter() -> None:
    """Where another cluster has Dask's own port: not a word (a warning is an error in tests)."""
    with socket.socket() as other:
        with contextlib.suppress(OSError):  # then somebody has it already
            other.bind(("127.0.0.1", 8787))
            other.listen()
        with connect(workers=1) as client:
            assert ":8787" not in client.dashboard_link
            with pytest.raises(urllib.error.HTTPError, match="404") as caught:
                urllib.request.urlopen(client.dashboard_link, timeout=30)
            caught.value.close()


SCRIPT = """
from pathlib import Path
import numpy as np, os, signal, sys, time
import heomdask as hd
from heomdask.cli import main
from heomdask.ensemble import cluster
from heomdask.ensemble.cluster import Workers
print("imported")

def build(e):
    lam = float((Path(__file__).parent / "lam.txt").read_text())
    bath = hd.DrudeLorentz(lam=lam, gamma=0.5, T=1.0)
    sz = np.diag([1.0, -1.0])
    return hd.Problem(e * sz, [hd.Coupling(sz, bath)]), np.full((2, 2), 0.5)

sweep = hd.Sweep(build, over={"e": [0.1, 0.2, 0.3]}, times=[0.0, 1.0], depth=2,
                 expansion=hd.Pade(1))
with Workers(workers=1) as workers:
    client = workers.client()
    (pid,) = client.run(os.getpid).values()
    os.kill(pid, signal.SIGKILL)  # what takes its place does not import the script either
    while pid in client.run(os.getpid, on_error="return").values():
        time.sleep(0.1)
    client.wait_for_workers(1)
    ds = sweep.run("s.zarr", client=workers, progress=False)
assert ds["status"].values.tolist() == [1, 1, 1], ds["error"].values
"""


def test_build_finds_files_beside_its_script(tmp_path: Path) -> None:
    (tmp_path / "lam.txt").write_text("0.02")
    (tmp_path / "script.py").write_text(SCRIPT)
    done = subprocess.run(
        [sys.executable, "script.py"],
        cwd=tmp_path, capture_output=True, text=True, timeout=300, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert done.stdout.split() == ["imported"]
