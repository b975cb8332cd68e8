"""What is shown of a running sweep: work that is done, and points that are committed."""

from __future__ import annotations

import contextlib
import os
import re
import signal
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from ensemble_support import PLUS, SZ, sweep

import heomdask as hd
from heomdask import progress
from heomdask.ensemble import runner, tally, task
from heomdask.ensemble.cluster import connect
from heomdask.ensemble.runner import Finished, SerialRunner
from heomdask.errors import HeomdaskWarning

OVER = {"e": [0.1, 0.2, 0.3, 0.4]}
Shown = list[tuple[float, str]]


@pytest.fixture
def shown(monkeypatch: pytest.MonkeyPatch) -> Shown:
    """Everything that a sweep shows."""
    updates: Shown = []

    @contextlib.contextmanager
    def kept(show: bool, unit: str) -> Iterator[Any]:
        yield lambda done, total, words: updates.append((done / total, words))

    monkeypatch.setattr(tally, "shown", kept)
    return updates


def committed(words: str) -> int:
    return int(words.split()[0])


@pytest.mark.parametrize("commit", [True, False])
def test_a_log_has_a_line_now_and_then(
    commit: bool, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Also where a single long task is under way."""
    clock = [0.0]
    monkeypatch.setattr(progress.time, "monotonic", lambda: clock[0])
    with tally.Tally(100, show=True).shown() as counts:
        for k in range(100):
            clock[0] += 1.0
            if commit:
                counts.ended(k, 1, 0)
            else:
                counts.under_way("task", k + 1.0)
    lines = capsys.readouterr().err.splitlines()
    assert [int(line.split()[1]) for line in lines] == [5, 15, 35, 75]
    done = 75 if commit else 0
    said = rf"\d\d:\d\d:\d\d  75 %: {done} of 100 points, 0 failed, 1 points/s, about 25.0 s left"
    assert re.fullmatch(said, lines[-1])


def test_points_that_need_not_be_computed_leave_the_total(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    clock = [0.0]
    monkeypatch.setattr(progress.time, "monotonic", lambda: clock[0])
    with tally.Tally(100, show=True).shown() as counts:
        clock[0] = 10.0
        counts.ended("first", 20, 0)
        counts.drop(60)
        clock[0] = 30.0
        counts.ended("second", 10, 0)
    first, second = capsys.readouterr().err.splitlines()
    assert "20 of 100 points" in first
    assert second.endswith("30 of 40 points, 0 failed, 1 points/s, about 10.0 s left")


def test_long_points_move_the_bar_before_they_are_committed(
    tmp_path: Path, shown: Shown, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(task, "TELL_EVERY", 0.0)
    monkeypatch.setattr(task, "MOST_MEMBERS", 1)
    what = sweep(over=OVER, method="rk", depth=2, expansion=hd.Pade(1))
    what.run(tmp_path / "s.zarr", client=SerialRunner())
    done = [fraction for fraction, _ in shown]
    assert done == sorted(done)
    assert len(set(done)) > 20
    assert all(fraction >= committed(words) / 4 for fraction, words in shown)
    assert {committed(words) for fraction, words in shown if 0 < fraction < 1} == {0}  # one shard
    assert shown[-1] == (1.0, "4 of 4 points, 0 failed")


def test_short_tasks_tell_nothing(
    tmp_path: Path, shown: Shown, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(task, "TELL_EVERY", 1000.0)
    sweep(over=OVER).run(tmp_path / "s.zarr", client=SerialRunner())
    assert shown == [(0.0, "0 of 4 points, 0 failed"), (1.0, "4 of 4 points, 0 failed")]


class Own:
    """A user's runner, with what is asked of one and no more."""

    memory = 10**9

    def __init__(self) -> None:
        self._inner = SerialRunner()
        self.pools, self.start = self._inner.pools, self._inner.start
        self.submit, self.withdraw = self._inner.submit, self._inner.withdraw
        self.wait, self.stop = self._inner.wait, self._inner.stop


def test_a_runner_that_tells_nothing_is_served_as_ever(
    tmp_path: Path, shown: Shown, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(task, "TELL_EVERY", 0.0)
    ds = sweep(over=OVER).run(tmp_path / "s.zarr", client=Own())
    assert ds["status"].values.tolist() == [1] * 4
    assert [fraction for fraction, _ in shown] == [0.0, 1.0]


class Losing(SerialRunner):
    """Loses every task when it is half done."""

    tell: Callable[[Any, float], None]

    def watch(self, tell: Callable[[Any, float], None], overview: Any) -> None:
        self.tell = tell

    def wait(self) -> list[Finished]:
        lost = self._queue.popleft()
        self.tell(lost, len(lost) / 2)
        return [Finished(lost, None)]


def test_a_lost_task_leaves_nothing_in_the_bar(tmp_path: Path, shown: Shown) -> None:
    with pytest.warns(HeomdaskWarning, match="^4 of 4 points failed"):
        sweep(over=OVER).run(tmp_path / "s.zarr", client=Losing())
    together, alone = [0.0, 0.5, 0.0], [0.125, 0.25, 0.375, 0.5, 0.625, 0.75, 0.875, 1.0]
    assert [fraction for fraction, _ in shown] == together + alone
    assert [committed(words) for _, words in shown] == [0, 0, 0, 0, 1, 1, 2, 2, 3, 3, 4]


class Slow:
    """A drive that takes its time, and kills its process once, when there is a file `last`."""

    def __init__(self, folder: Path) -> None:
        self.last, self.killed = folder / "last", folder / "killed"

    def __call__(self, t: float) -> float:
        time.sleep(2e-4)
        if self.last.exists() and not self.killed.exists():
            self.killed.touch()
            os.kill(os.getpid(), signal.SIGKILL)
        return float(np.sin(t))


class Client:
    """What of a Dask client tells how far tasks are."""

    def __init__(self) -> None:
        self.workers = {"here": 1, "there": 1}
        self.put: Callable[[Any], None] = print
        self.topic: str | None = None

    def nthreads(self) -> dict[str, int]:
        return self.workers

    def subscribe_topic(self, topic: str, put: Callable[[Any], None]) -> None:
        self.topic, self.put = topic, put

    def unsubscribe_topic(self, topic: str) -> None:
        assert self.topic == topic
        self.topic = None

    def say(self, key: str, worker: str, points: float) -> None:
        self.put((time.time(), {"key": key, "worker": worker, "points": points}))


def test_events_are_passed_on_while_their_task_and_worker_live() -> None:
    told: list[tuple[runner.Task, float]] = []
    client: Any = Client()
    events = runner._Events(client, "topic", lambda task, points: told.append((task, points)))
    one, two = ((0,),), ((1,), (2,))
    client.say("a", "here", 1.5)
    client.say("b", "there", 0.5)
    client.say("ended before", "here", 7.0)
    events.pass_on({"a": one, "b": two})
    assert told == [(one, 1.5), (two, 0.5)]
    del client.workers["there"]
    events.pass_on({"a": one, "b": two})
    events.pass_on({"a": one, "b": two})
    assert told[2:] == [(two, 0.0)]
    client.say("b", "here", 0.25)  # begun anew
    events.pass_on({"b": two})
    client.workers.clear()
    events.pass_on({})  # all have finished
    assert told[3:] == [(two, 0.25)]
    events.stop()
    assert client.topic is None


def slow_sweep(drive: Slow) -> hd.Sweep:
    def driven(e: float) -> Any:
        return hd.Problem(e * SZ, drives=[(drive, np.array([[0.0, 1.0], [1.0, 0.0]]))]), PLUS

    return sweep(driven, over={"e": [0.1]})


@contextlib.contextmanager
def one_worker(tells_every: float) -> Iterator[Any]:
    """A client of one worker."""
    with connect(workers=1) as client:
        tell_every(client, tells_every)
        yield client


def tell_every(client: Any, seconds: float) -> None:
    def tell() -> None:
        task.TELL_EVERY = seconds

    client.run(tell)


@pytest.mark.cluster
def test_workers_tell_how_far_long_points_are(
    tmp_path: Path, shown: Shown, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(runner, "PATIENCE", 0.02)
    with one_worker(tells_every=0.02) as client:
        slow_sweep(Slow(tmp_path)).run(tmp_path / "s.zarr", client=client)
    done = [fraction for fraction, _ in shown]
    assert len(done) > 4
    assert done == sorted(done)
    assert done[-1] == 1.0
    assert [committed(words) for _, words in shown] == [0] * (len(shown) - 1) + [1]


@pytest.mark.cluster
def test_short_tasks_and_runs_that_show_nothing_send_no_events(tmp_path: Path) -> None:
    with one_worker(tells_every=1000.0) as client:
        sweep(over=OVER).run(tmp_path / "s.zarr", client=client)
        tell_every(client, 0.0)
        sweep(over=OVER).run(tmp_path / "t.zarr", client=client, progress=False)
        topics = [topic for topic in client.get_events() if topic.startswith("heomdask")]
        assert topics == []
        sweep(over=OVER).run(tmp_path / "u.zarr", client=client)
        topics = [topic for topic in client.get_events() if topic.startswith("heomdask")]
        assert len(topics) == 1


@pytest.mark.slow
@pytest.mark.cluster
def test_a_worker_that_dies_leaves_nothing_in_the_bar(
    tmp_path: Path, shown: Shown, monkeypatch: pytest.MonkeyPatch
) -> None:
    drive, tell = Slow(tmp_path), tally.Tally.under_way

    def and_then_kill(self: Any, task: Any, points: float) -> None:
        tell(self, task, points)
        if points > 0:
            drive.last.touch()

    monkeypatch.setattr(tally.Tally, "under_way", and_then_kill)
    monkeypatch.setattr(runner, "PATIENCE", 0.02)
    with one_worker(tells_every=0.02) as client:
        slow_sweep(drive).run(tmp_path / "s.zarr", client=client)
    done = [fraction for fraction, _ in shown]
    assert drive.killed.exists()
    assert 0.0 in done[done.index(next(filter(None, done))) :]
    assert (done[-1], committed(shown[-1][1])) == (1.0, 1)
