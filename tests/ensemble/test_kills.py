"""Sweeps whose processes are killed: nothing that is committed is lost, and no point is blamed."""

from __future__ import annotations

import os
import signal
import time
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, cast

import dask
import numpy as np
import pytest
from distributed import Client, LocalCluster
from ensemble_support import PLUS, assert_same_bits, problem, sweep
from kills_support import Site, build, plain

import heomdask as hd
from heomdask.ensemble import runner
from heomdask.ensemble.cluster import connect
from heomdask.ensemble.probe import probes
from heomdask.ensemble.runner import DEATHS, DaskRunner, SerialRunner
from heomdask.ensemble.session import layout, match_store
from heomdask.ensemble.task import Work, run_task
from heomdask.ensemble.worker import _Turns
from heomdask.errors import HeomdaskWarning, StoreError
from heomdask.outcome import Outcome
from heomdask.results.folder import folder_of
from heomdask.results.store import Store

KINDS = ["worker"] * 10 + ["nanny"] * 4 + ["client"] * 3 + ["scheduler"] * 3
POINTS = 1000
CLEAN = ("The connection to the Dask scheduler was lost", "`scheduler` must be the address of")


def killed_at_random(folder: Path, rounds: int, seed: int) -> Site:
    """A sweep that comes to its end under 20 kills, and is extended and killed again."""
    rng = np.random.default_rng(seed)
    site = Site(folder)
    try:
        for n in range(rounds):
            site.ask((n + 1) * POINTS)
            for kind in rng.permutation(KINDS).tolist():
                site.kill(kind, rng)
            site.finish()
    finally:
        site.close()
    return site


def assert_nothing_was_lost(site: Site) -> None:
    """As if nobody had killed anything, but for points that were under way."""
    lines = site.lines()
    for kill in site.kills:
        assert not [s for s in lines if s.time > kill.time and s.point in kill.committed]
    first = {line.point: line for line in reversed(lines)}
    for point, count in Counter(line.point for line in lines).items():
        assert count <= 1 + sum(kill.interrupted(first[point]) for kill in site.kills)
    what = plain(site.points)
    undisturbed = what.run(site.folder / "u.zarr", client=SerialRunner(), progress=False)
    assert_same_bits(hd.open(site.store), undisturbed)


def assert_nothing_is_left(site: Site) -> None:
    """Nothing that could hinder the next run, which finds nothing to do."""
    end = time.monotonic() + 60
    while left := site.left():
        assert time.monotonic() < end, left
        time.sleep(0.1)
    assert all(any(words in said for words in CLEAN) for said in site.said), site.said
    what = plain(site.points)
    assert what.plan(site.store).pending == 0
    what.run(site.store, client=SerialRunner(), progress=False)
    assert not list(site.folder.rglob("*.partial"))


@pytest.mark.cluster
@pytest.mark.parametrize(
    "rounds", [pytest.param(1, id="20"), pytest.param(10, id="200", marks=pytest.mark.slow)]
)
def test_random_kills_lose_nothing(tmp_path: Path, rounds: int) -> None:
    site = killed_at_random(tmp_path, rounds, seed=1)
    assert len(site.kills) == 20 * rounds
    assert_nothing_was_lost(site)
    assert_nothing_is_left(site)


def work_on(what: hd.Sweep, store: Store) -> Work:
    return Work(what, match_store(what, store), store.files.begin(), store.extents)


def test_a_task_that_outlives_its_run_commits_nothing(tmp_path: Path) -> None:
    """The next run is asked for other points of the same shard, and for one that both compute."""
    whole = sweep(build, over={"k": range(128)})
    store = Store.create(folder_of(tmp_path / "s.zarr"), layout(whole, probes(whole)))
    shard = (3,)
    assert store.files.shard == (4,)

    def outliving(k: float) -> Any:
        if k == 13:
            run_task(work_on(sweep(build, over={"k": [13, 14]}), store), [shard])
        return build(k)

    old = work_on(sweep(outliving, over={"k": [12, 13]}), store)
    with pytest.raises(StoreError, match="belongs to another run by now"):
        run_task(old, [shard])
    assert np.flatnonzero(store.status()).tolist() == [13, 14]
    run_task(work_on(sweep(build, over={"k": [12, 13, 14]}), store), [shard])
    assert np.flatnonzero(store.status()).tolist() == [12, 13, 14]


class Unheard(SerialRunner):
    """Every worker dies after its last commit, and before it reports: the task runs once more."""

    def wait(self) -> Any:
        task = self._queue[0]
        assert self._work is not None
        run_task(self._work, task)
        return super().wait()


def test_failures_of_a_worker_that_died_are_reported(tmp_path: Path) -> None:
    def cold(e: float) -> Any:
        if e > 0.5:
            raise ValueError("too warm")
        return problem(e), PLUS

    what = sweep(cold, over={"e": [0.1, 0.2, 0.9, 1.0]})
    with pytest.warns(HeomdaskWarning, match="^2 of 4 points failed.*too warm"):
        what.run(tmp_path / "s.zarr", client=Unheard(), progress=False)


@pytest.mark.cluster
def test_a_run_whose_client_is_gone_leaves_nothing_on_the_scheduler() -> None:
    with LocalCluster(
        n_workers=1, threads_per_worker=1, processes=False, dashboard_address=None
    ) as cluster:
        scheduler: Any = cluster.scheduler
        before = set(scheduler.plugins)
        with Client(cluster) as client:  # it goes without a stop of its runs, as if killed
            for _ in range(2):
                DaskRunner(client).start(cast("Work", None))
            assert len([n for n in scheduler.worker_plugins if n.startswith("heomdask-")]) == 2
            ended = DaskRunner(client)
            ended.start(cast("Work", None))
            ended.stop()
        end = time.monotonic() + 30
        while any(n.startswith("heomdask-") for n in scheduler.worker_plugins):
            assert time.monotonic() < end
            time.sleep(0.01)
        assert not [n for n in set(scheduler.plugins) - before if n.startswith("heomdask-")]


class Doomed:
    """A point that takes its worker with it, the first so many times."""

    def __init__(self, folder: Path, times: int) -> None:
        self.log, self.times, self.client = folder / "log", times, os.getpid()
        self.log.touch()

    def __call__(self, k: float) -> Any:
        if k == 0 and os.getpid() != self.client and self.log.stat().st_size < self.times:
            with self.log.open("a") as log:
                log.write("x")
            os.kill(os.getpid(), signal.SIGKILL)
        return build(k)


@pytest.mark.slow
@pytest.mark.cluster
def test_a_point_whose_workers_were_killed_is_tried_again(tmp_path: Path) -> None:
    """More often than Dask itself would, which has no idea of what kills them."""
    doomed = Doomed(tmp_path, times=DEATHS)
    with connect(workers=1) as client:
        what = sweep(doomed, over={"k": [0]})
        ds = what.run(tmp_path / "s.zarr", client=client, progress=False)
    assert ds["status"].values.tolist() == [Outcome.DONE]
    assert doomed.log.stat().st_size == DEATHS


@pytest.mark.slow
@pytest.mark.cluster
def test_a_point_beside_a_deadly_one_is_not_given_up(tmp_path: Path) -> None:
    """In a worker with two threads, where both die together until they are tried alone."""
    doomed = Doomed(tmp_path, times=1000)

    def beside(k: float) -> Any:
        time.sleep(0.3 * k)
        return doomed(k)

    what = sweep(beside, over={"k": [0, 1]}, depth=2)
    options: dict[str, Any] = {"dashboard_address": "127.0.0.1:0", "silence_logs": 50}
    with (
        dask.config.set({"distributed.scheduler.allowed-failures": 0}),
        LocalCluster(n_workers=1, threads_per_worker=2, **options) as cluster,
        Client(cluster) as client,
        pytest.warns(HeomdaskWarning, match="^1 of 2 points"),
    ):
        ds = what.run(tmp_path / "s.zarr", client=client, progress=False)
    assert ds["status"].values.tolist() == [Outcome.FAILED, Outcome.DONE]


class Scheduler:
    """What of a Dask client passes on that trials begin."""

    def __init__(self) -> None:
        self.put: Any = None

    def subscribe_topic(self, topic: str, put: Any) -> None:
        self.put = put

    def unsubscribe_topic(self, topic: str) -> None:
        self.put = None


def test_only_deaths_in_trials_count() -> None:
    client: Any = Scheduler()
    trials = runner._Trials(client, "topic")
    trials.stop()
    one, two = ((0,),), ((1,),)
    assert trials.deaths(one) == 0  # so far it may have been anybody's fault
    for task in (one, two, one):
        client.put((time.time(), task))
    assert trials.deaths(one) == 2
    assert trials.deaths(two) == 1
    trials.stop()
    assert client.put is None


def test_a_trial_is_alone_in_its_process() -> None:
    turns, running, most = _Turns(), Counter[bool](), Counter[bool]()

    def take(alone: bool) -> None:
        for _ in range(20):
            with turns.taken(alone):
                running[alone] += 1
                if alone:
                    assert running == {True: 1, False: 0}
                most[alone] = max(most[alone], running[alone])
                time.sleep(0.002)
                running[alone] -= 1

    with ThreadPoolExecutor(5) as threads:
        for done in [threads.submit(take, alone) for alone in (False, True, False, True, False)]:
            done.result(timeout=60)
    assert most[True] == 1
    assert most[False] > 1
