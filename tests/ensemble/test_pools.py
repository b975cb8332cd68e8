"""Workers of unequal classes on one sweep: who gets what, and that all end together."""

from __future__ import annotations

import math
import os
import pickle
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from ensemble_support import PLUS, build, problem, sweep
from hypothesis import assume, given
from hypothesis import strategies as st
from pools_support import Class, Deadly, run

import heomdask as hd
from heomdask.backends.traits import BackendInfo
from heomdask.ensemble import pools, worker
from heomdask.ensemble.cluster import CARDS, Workers
from heomdask.ensemble.pools import (
    ABSENT,
    ALIKE,
    FULL_POINTS,
    SHORTEST,
    WINDOW,
    Pools,
    class_of,
    task_points,
)
from heomdask.ensemble.profiles import Local
from heomdask.ensemble.task import Work
from heomdask.ensemble.worker import WorkPlugin
from heomdask.errors import BackendUnavailable, HeomdaskWarning

ONE, TWO, THREE = ((0,),), ((1,),), ((2,),)
SPEEDS = st.floats(0.001, 1.0)


def known(**classes: tuple[int, float]) -> Pools:
    """Pools whose slots and seconds a point are given, with nothing under way."""
    found = Pools(1000)
    found.see({name: slots for name, (slots, _) in classes.items()}, 0.0)
    for name, (_, each) in classes.items():
        found.submitted(name, ONE, 100, 0.0)
        found.ended(ONE, 0.0, 100 * each, 100)
    return found


# --------------------------------------------------------------------------- the rule


def test_workers_that_are_all_alike_get_tasks_as_they_come() -> None:
    found = known(**{ALIKE: (2, 0.1)})
    for number in range(2 * WINDOW):
        pool, points = found.next(1000, 1, 0.0) or ("none", 0)
        assert (pool, points) == (ALIKE, task_points(1000, 1000, 2, 10.0, 100))
        found.submitted(pool, ((number,),), 50, 0.0)
    assert found.next(1000, 1, 0.0) is None
    assert found.next(1000, 1, 0.0, wanted=False) is None
    for number in range(2 * WINDOW - 1):
        found.ended(((number,),), 0.0, 5.0, 50)
    assert found.next(1000, 1, 0.0, wanted=False) is not None


def test_a_task_takes_as_long_in_each_class() -> None:
    found = known(fast=(1, 0.01), slow=(1, 0.05))
    tasks = {}
    for number in range(2):
        pool, tasks[pool] = found.next(1000, 1, 0.0) or ("none", 0)
        found.submitted(pool, ((number,),), int(tasks[pool]), 0.0)
    assert tasks["fast"] == pytest.approx(5 * tasks["slow"])
    assert tasks["slow"] * 0.05 == pytest.approx(1000 / 120 / 4)  # a quarter of what is to come


def test_nobody_starts_what_others_finish_sooner() -> None:
    """The fast one needs 1 s for the last ten points, the slow one 2 s for one of them."""
    found = known(fast=(1, 0.1), slow=(1, 2.0))
    assert found.next(10, 1, 0.0) == ("fast", pytest.approx(8.0))
    found.submitted("fast", TWO, 8, 0.0)
    assert (found.next(2, 2, 0.0) or "")[0] == "fast"  # which it begins in 0.8 s
    found.submitted("fast", THREE, 2, 0.0)
    assert found.next(1, 1, 0.0) == ("fast", pytest.approx(8.0))
    assert (found.next(1000, 1, 0.0) or "")[0] == "slow"  # of so many it gets some


def test_what_is_under_way_is_done_for_the_most_part_after_a_while() -> None:
    found = known(fast=(1, 0.1), slow=(1, 0.2))
    found.submitted("fast", TWO, 40, 0.0)
    assert (found.next(10, 10, 0.0) or "")[0] == "slow"  # done in 2 s, there in 4 + 1 s
    assert (found.next(10, 10, 3.5) or "")[0] == "fast"  # there in 0.5 + 1 s


def test_a_task_that_is_overdue_is_not_about_to_end() -> None:
    found = known(fast=(1, 0.1), slow=(1, 0.2))
    found.submitted("fast", TWO, 10, 0.0)
    assert (found.next(10, 10, 1.0) or "")[0] == "fast"  # done in 1 s, there in 2 s
    assert (found.next(10, 10, 1.9) or "")[0] == "fast"  # in 0.9 s more
    assert (found.next(10, 10, 2.1) or "")[0] == "slow"  # in 1.1 s more
    assert (found.next(10, 10, 1000.0) or "")[0] == "slow"


def test_a_class_shows_how_fast_it_is_before_it_gets_more() -> None:
    found = known(fast=(1, 0.1))
    found.see({"fast": 1, "late": 2}, 1.0)
    taken = []
    while (new := found.next(1000, 1, 1.0)) is not None:
        taken.append(new[0])
        found.submitted(new[0], ((len(taken),),), 10, 1.0)
    assert sorted(taken) == ["fast"] * WINDOW + ["late"] * 2


def test_tasks_of_a_class_that_is_gone_are_taken_back_after_a_while() -> None:
    found = known(fast=(1, 0.1), slow=(1, 0.2))
    found.submitted("slow", TWO, 10, 0.0)
    found.see({"fast": 1}, 5.0)
    assert found.stranded(4.0 + ABSENT) == []
    assert found.stranded(5.0 + ABSENT) == [TWO]
    assert found.ended(TWO, 5.0 + ABSENT) == "slow"
    assert (found.flying, found.stranded(99.0)) == (0, [])


def test_without_any_worker_all_stays_as_it_was() -> None:
    found = known(fast=(1, 0.1))
    found.submitted("fast", TWO, 10, 0.0)
    found.see({}, 5.0)
    assert found.stranded(999.0) == []
    assert (found.next(100, 1, 5.0) or "")[0] == "fast"


def test_what_any_worker_may_compute_is_not_taken_back() -> None:
    found = Pools(100)
    assert found.next(100, 1, 0.0) == (ALIKE, 16)  # nobody is there yet
    found.submitted(ALIKE, TWO, 16, 0.0)
    found.see({"late": 1}, 5.0)
    assert found.stranded(999.0) == []


# --------------------------------------------------------------------------- whole runs


@given(
    classes=st.dictionaries(
        st.sampled_from(["a", "b", "c"]),
        st.builds(Class, st.integers(1, 4), SPEEDS, overhead=st.floats(0, 0.05)),
        min_size=1,
    ),
    counts=st.lists(st.integers(1, 20), min_size=1, max_size=300),
)
def test_all_points_are_computed_once(classes: dict[str, Class], counts: list[int]) -> None:
    site, tally = run(classes, counts)
    assert tally.done == sum(counts)
    assert not site.queued and not site.running
    for name, most in site.most.items():
        assert most <= WINDOW * classes[name].slots


@given(data=st.data(), counts=st.lists(st.integers(1, 20), min_size=1, max_size=200))
def test_classes_come_and_go(data: Any, counts: list[int]) -> None:
    """One stays, or none but for a while; the others come late, and go in the middle of a task."""
    classes = {"a": Class(data.draw(st.integers(1, 3)), data.draw(SPEEDS))}
    if data.draw(st.booleans()):
        classes["a"].there = ((0.0, 1.0), (data.draw(st.floats(2, 60)), float("inf")))
    for name in ("b", "c"):
        times = sorted(data.draw(st.lists(st.floats(0, 60), min_size=4, max_size=4, unique=True)))
        there = ((times[0], times[1]), (times[2], times[3]))
        classes[name] = Class(data.draw(st.integers(1, 3)), data.draw(SPEEDS), there)
    site, tally = run(classes, counts)
    assert tally.done == sum(counts)
    assert not site.queued and not site.running


def shortest(each: float) -> float:
    """Seconds of a task of few points, in a class with this time a point."""
    return max(SHORTEST, FULL_POINTS * each)


@given(
    fast=st.builds(Class, st.integers(1, 4), SPEEDS),
    slower=st.floats(1, 20),
    slots=st.integers(1, 4),
    count=st.integers(1, 8),
    length=st.integers(4, 100),
)
def test_unequal_classes_end_within_a_task_of_each_other(
    fast: Class, slower: float, slots: int, count: int, length: int
) -> None:
    """In runs of four tasks of the slower, and more; the faster ones differ by a task, too."""
    slow = Class(slots, slower * fast.each)
    seconds = length * shortest(slow.each)
    points = seconds * (fast.slots / fast.each + slow.slots / slow.each)
    assume(points / count < 1000)
    site, _ = run({"fast": fast, "slow": slow}, [count] * math.ceil(points / count))
    last = {name: max(e for e in site.ends if e[1] == name) for name in ("fast", "slow")}
    task = max(shortest(slow.each), last["slow"][2])
    assert abs(last["fast"][0] - last["slow"][0]) <= task + shortest(fast.each)
    assert site.now <= seconds + task + shortest(fast.each)


def test_nothing_is_lost_by_the_slow_class() -> None:
    """One worker of ten takes ten times as long as the others."""
    counts = [4] * 500
    both, _ = run({"fast": Class(9, 0.05), "slow": Class(1, 0.5)}, counts)
    ideal = 2000 / (9 / 0.05 + 1 / 0.5)
    assert ideal <= both.now < 1.05 * ideal


def test_shards_of_a_deadly_task_go_out_alone_as_workers_are_free() -> None:
    """To whichever class is the best for each: the window holds for them, too."""
    classes = {"fast": Class(1, 0.01), "slow": Class(4, 0.05)}
    site, tally = run(classes, [1] * 2000, Deadly)
    assert tally.done == 2000
    assert isinstance(site, Deadly) and len(site.died) > 100
    assert all(site.most[name] <= WINDOW * own.slots for name, own in classes.items())
    ends = [max(end for end, name, _ in site.ends if name == own) for own in classes]
    assert max(ends) - min(ends) < 1.0


# --------------------------------------------------------------------------- with Dask


def test_a_worker_is_of_the_class_of_its_first_resource() -> None:
    assert class_of({}) == (ALIKE, sys.maxsize)
    assert class_of({"GPU": 2.0}) == ("GPU", 2)
    assert class_of({"memory": 1e9, "CPU": 1.0, "A": 0.5}) == ("CPU", 1)


@pytest.fixture
def work_on(monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[..., Work]]:
    """What a worker with such resources makes of a sweep whose backend is `asked`."""
    held: list[tuple[WorkPlugin, Any]] = []

    def make(resources: dict[str, float], asked: str, card: BackendInfo | None) -> Work:
        def get(name: str) -> Any:
            if card is None:
                raise BackendUnavailable("there is no card.")
            return SimpleNamespace(info=card)

        monkeypatch.setattr(worker.registry, "get", get)
        what: Any = sweep(build, over={"e": [0.1]}, backend=asked)
        files: Any = None
        plugin = WorkPlugin(pickle.dumps(Work(what, files, files, ())))
        at = SimpleNamespace(state=SimpleNamespace(total_resources=resources))
        plugin.setup(at)
        held.append((plugin, at))
        return plugin.work

    yield make
    for plugin, at in held:
        plugin.teardown(at)


CARD = BackendInfo("cupy", "a card", "sm_90", ("float64",), 1, True, most_levels=32)


@pytest.mark.parametrize(
    ("resources", "asked", "small", "large"),
    [
        ({"GPU": 1}, "auto", "cupy", "auto"),
        ({"GPU": 1}, "native", "native", "native"),
        ({"GPU": 0}, "auto", "auto", "auto"),
        ({"CPU": 1, "GPU": 1}, "auto", "auto", "auto"),  # of the class CPU
    ],
)
def test_a_worker_with_a_card_uses_it_for_what_it_can_take_where_the_backend_is_open(
    work_on: Callable[..., Work], resources: dict[str, float], asked: str, small: str, large: str
) -> None:
    work = work_on(resources, asked, CARD)
    assert (work.sweep_for(32).backend, work.sweep_for(33).backend) == (small, large)


def test_a_worker_whose_card_cannot_be_used_says_so_and_computes(
    work_on: Callable[..., Work],
) -> None:
    with pytest.warns(HeomdaskWarning, match=r"class GPU computes on its CPU: there is no card"):
        work = work_on({"GPU": 1}, "auto", None)
    assert work.sweep_for(2).backend == "auto"


def paced(k: float) -> Any:
    """Three times as long without a card."""
    time.sleep(0.06 if CARDS in os.environ else 0.18)
    return problem(k / 1000), PLUS


Ended = Callable[[str, float, float, int], None]  # by a class, when, its seconds, its points


@pytest.fixture
def watch(monkeypatch: pytest.MonkeyPatch) -> Callable[[Ended], None]:
    """Have a function called with every task that has ended."""
    monkeypatch.delenv(CARDS, raising=False)
    plain = Pools.ended

    def begin(seen: Ended) -> None:
        def ended(
            self: Pools, task: pools.Task, now: float, seconds: float = 0, points: int = 0
        ) -> str:
            name = plain(self, task, now, seconds, points)
            seen(name, now, seconds, points)
            return name

        monkeypatch.setattr(Pools, "ended", ended)

    return begin


def of(points: int) -> hd.Sweep:
    over = {"k": range(points)}
    return sweep(paced, over=over, depth=2, expansion=hd.Pade(1), backend="numpy")


@pytest.mark.cluster
def test_two_unequal_workers_end_within_a_task_of_each_other(
    tmp_path: Path, watch: Callable[[Ended], None]
) -> None:
    """By what a task of the slower really takes, on however busy a machine."""
    ends: dict[str, list[tuple[float, float, int]]] = {}
    watch(lambda name, *end: ends.setdefault(name, []).append(end))
    with Workers(cluster=Local(workers=1, gpus=1)) as workers:
        ds = of(100).run(tmp_path / "s.zarr", client=workers, progress=False)
    assert (ds["status"] == hd.Outcome.DONE).all()
    each = max(seconds / points for _, seconds, points in ends["CPU"])
    gap = abs(ends["CPU"][-1][0] - ends["GPU"][-1][0])
    assert gap < max(ends["CPU"][-1][1], FULL_POINTS * each), ends


@pytest.mark.cluster
def test_others_compute_what_waits_for_workers_that_are_gone(
    tmp_path: Path, watch: Callable[[Ended], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pools, "ABSENT", 0.5)
    with Workers(cluster=Local(workers=1, gpus=1)) as workers:
        client, seen = workers.client(), []

        def end_the_second(name: str, now: float, seconds: float, points: int) -> None:
            seen.append((name, seconds))
            if name == "GPU" and len(client.nthreads()) == 2:
                workers._cluster.scale(1)

        watch(end_the_second)
        ds = of(40).run(tmp_path / "s.zarr", client=workers, progress=False)
    assert (ds["status"] == hd.Outcome.DONE).all()
    assert ("GPU", 0) in seen  # taken back
    assert seen[-1][0] == "CPU"
