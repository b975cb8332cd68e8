"""The page of a running sweep on Dask's dashboard, and its figures for Prometheus."""

from __future__ import annotations

import contextlib
import re
import sys
import time
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from ensemble_support import disordered, sweep

import heomdask as hd
from heomdask.ensemble import profiles
from heomdask.ensemble.cells import MOST_CELLS, Cells
from heomdask.ensemble.cluster import Workers
from heomdask.ensemble.grid import match
from heomdask.ensemble.history import BINS, EARLIER, History
from heomdask.ensemble.runner import DaskRunner, Finished, SerialRunner
from heomdask.ensemble.view import MOST_ERRORS, TOPIC, Ended, Overview, View, views
from heomdask.errors import HeomdaskWarning, InputError
from heomdask.outcome import Outcome

pytest.importorskip("bokeh", reason="needs bokeh, of the extra dashboard")


def anything(**axes: Any) -> Any:
    return None


def wide(samples: int = 3, **axes: Any) -> hd.Sweep:
    return hd.Sweep(lambda rng, **axes: None, over=axes, samples=samples, times=[0.0, 1.0])


# --------------------------------------------------------------------------- the map


@pytest.mark.parametrize(
    "lengths", [{}, {"a": 5}, {"a": 100, "b": 3}, {"a": 2, "b": 41, "c": 90}, {"a": 4, "b": 4}]
)
def test_every_point_lies_in_a_cell_of_the_two_longest_axes(lengths: dict[str, int]) -> None:
    grid = wide(**{name: np.linspace(0, 1, n).tolist() for name, n in lengths.items()}).grid
    cells = Cells.of(grid)
    longest = sorted(lengths.values(), reverse=True)[:2]
    assert [side.length for side in cells.sides] == longest
    assert cells.shape == tuple(min(n, MOST_CELLS) for n in [*longest, 1, 1][1::-1])
    points = np.random.default_rng(1).random(grid.shape) < 0.5
    expected = np.zeros(np.prod(cells.shape), dtype=int)
    for index in np.argwhere(points):
        expected[cells.cell(tuple(index.tolist()))] += 1
    assert cells.count(points).tolist() == expected.tolist()


def test_cells_are_named_by_the_values_of_the_axes() -> None:
    over = {"T": hd.axis([77, 300], "K"), ("a", "b"): (hd.axis(range(80)), hd.axis(["x"] * 80))}
    first, second = Cells.of(hd.Sweep(anything, over=over, times=[0.0, 1.0]).grid).sides
    assert (first.name, first.labels[0], first.labels[-1]) == (
        "a, b",
        "0, x … 1, x",
        "78, x … 79, x",
    )
    assert (second.name, second.labels) == ("T / K", ("77", "300"))
    table = hd.Sweep(anything, over=[{"a": 1.0}, {"a": 1.0}], times=[0.0, 1.0]).grid
    assert Cells.of(table).sides[0].labels == ("0", "1")


def test_an_overview_counts_points_where_they_lie_in_the_sweep() -> None:
    """The store has other places for them, and points that are not asked for."""
    grid = wide(samples=1, e=[1.0, 2.0, 3.0]).grid
    matched = match(grid, [[(3.0,), (9.0,), (1.0,)]], 2)
    status = np.array([[1, 1], [1, 1], [2, 1]], dtype=np.uint8)
    found = Overview.of(wide(samples=1, e=[1.0, 2.0, 3.0]), matched, status).counts
    assert found[Outcome.DONE].tolist() == [0, 0, 1]
    assert found[Outcome.FAILED].tolist() == [1, 0, 0]
    assert found[Outcome.PENDING].tolist() == [0, 1, 0]


# --------------------------------------------------------------------------- the history


def test_a_history_keeps_all_points_in_few_bins() -> None:
    history = History(1000.0)
    for second in range(1, 10_000):
        history.add("a", 2.0, 1000.0 + second)
        history.add("b", 1.0, 1000.0 + second)
    times, rates = history.rates(11_000.0)
    assert {len(own) for own in history.points.values()} == {BINS}
    assert sum(own.sum() for own in history.points.values()) == pytest.approx(3 * 9999)
    during = times < 9900
    assert np.allclose(rates["a"][during], 2.0)
    assert np.allclose(rates["b"][during], 1.0)
    assert history.speed(10_999.0) == pytest.approx(3.0)
    assert history.speed(12_000.0) == 0.0
    history.keep({"b"})
    assert set(history.points) == {"b", EARLIER}
    history.keep({})
    assert set(history.points) == {EARLIER}
    assert history.points[EARLIER].sum() == pytest.approx(3 * 9999)


def test_a_long_task_was_computed_since_the_worker_was_last_heard_of() -> None:
    history = History(0.0)
    history.add("a", 60.0, 60.0)
    assert np.allclose(history.rates(60.0)[1]["a"], 1.0)
    assert history.speed(60.0) == pytest.approx(1.0)


# --------------------------------------------------------------------------- the view and the page


def view_of(what: hd.Sweep) -> View:
    """A view on a scheduler that has nothing but it and two workers."""
    workers = {
        f"tcp://host:{n}": SimpleNamespace(
            name=n, host="host", metrics={"memory": 2**20}, memory_limit=2**30
        )
        for n in range(2)
    }
    scheduler = SimpleNamespace(plugins={}, workers=workers)
    matched = match(what.grid, [[] for _ in what.grid.dimensions], 0)
    overview = Overview.of(what, matched, np.zeros([0] * len(what.grid.shape), np.uint8))
    view = View(scheduler, "run", overview)
    scheduler.plugins["run"] = view
    return view


def test_a_view_does_not_grow_with_the_sweep() -> None:
    what = wide(samples=20, a=list(range(100)), b=list(range(50)))
    view = view_of(what)
    sizes = [view.counts.shape, Cells.of(what.grid).shape]
    for number, index in enumerate(np.ndindex(what.grid.shape)):
        if number % 1000 == 0:
            ended = Ended(view.overview.cells)
        ended(
            index,
            Outcome.FAILED if number % 100 == 0 else Outcome.DONE,
            "broken" * (number % 100 == 0),
        )
        if number % 1000 == 999:
            view.log_event(TOPIC, ended.event("run", f"k{number}", f"tcp://gone:{number}"))
    assert view.outcomes() == {Outcome.DONE: 99_000, Outcome.FAILED: 1000}
    assert view.counts.shape == sizes[0] == (max(Outcome) + 1, MOST_CELLS**2)
    assert len(view.errors) == MOST_ERRORS
    assert len(view.history.points) <= len(view.scheduler.workers) + 2
    assert view._told == {}


def test_work_under_way_counts_once_and_lost_tasks_are_known() -> None:
    view = view_of(wide(a=[1, 2]))
    for points in (1.0, 2.5):
        view.log_event("run", {"key": "k", "worker": "tcp://host:0", "points": points})
    ended = Ended(view.overview.cells)
    for sample in range(3):
        ended((0, sample), Outcome.DONE, "")
    view.log_event(TOPIC, ended.event("another run", "k", "tcp://host:0"))
    view.log_event(TOPIC, ended.event("run", "k", "tcp://host:0"))
    view.log_event(TOPIC, {"sweep": "run", "key": "m", "lost": 1})
    assert view.history.points["tcp://host:0"].sum() == pytest.approx(3.0)
    assert view.cells_with([Outcome.DONE]).tolist() == [3, 0]
    assert view.lost == 1


class Losing(SerialRunner):
    """Loses every task; what it is to show goes to a view."""

    def __init__(self, view: View) -> None:
        super().__init__()
        self.view = view

    def show(self, ended: Ended) -> None:
        self.view.log_event(TOPIC, ended.event("run"))

    def wait(self) -> list[Finished]:
        return [Finished(self._queue.popleft(), None)]


def test_points_that_are_given_up_are_seen_as_failed(tmp_path: Path) -> None:
    what = sweep(disordered, over={"T": [0.5, 1.0]}, samples=3)
    view = view_of(what)
    with pytest.warns(HeomdaskWarning, match="^6 of 6 points failed"):
        what.run(tmp_path / "s.zarr", client=Losing(view))
    assert view.outcomes() == {Outcome.FAILED: 6}
    assert view.history.points == {}  # no worker has computed them
    assert view.errors[-1].startswith("The worker died")


def test_a_scheduler_is_told_of_points_that_are_given_up() -> None:
    told: list[Any] = []
    client: Any = SimpleNamespace(id="me", log_event=lambda topic, msg: told.append((topic, msg)))
    ended = Ended(view_of(wide(a=[1, 2])).overview.cells)
    ended((0, 0), Outcome.FAILED, "lost")
    running = DaskRunner(client)
    running.show(ended)
    assert not told  # there is no dashboard
    running._viewed = True
    running.show(ended)
    ((topic, event),) = told
    assert (topic, event["sweep"], event["worker"]) == (TOPIC, running._name, "")
    assert event["counts"] == [[Outcome.FAILED, 0, 1]]


def page(view: View) -> Any:
    """The page as a browser gets it, every property of which has a value that it may have."""
    from bokeh.core.properties import without_property_validation
    from bokeh.document import Document

    from heomdask.ensemble import panel

    document = Document()
    panel.document(view.scheduler, {}, document)
    (drawn,) = document.components  # type: ignore[attr-defined]  # Dask's own way to keep it
    without_property_validation(drawn.update)()  # as Dask calls it ever after
    for model in document.models:
        for name, value in model.properties_with_values(include_defaults=False).items():
            model.lookup(name).property.validate(value)
    document.to_json()
    return document


def texts(document: Any) -> str:
    from bokeh.models import Div

    return "".join(div.text for div in document.select({"type": Div}))


def test_the_page_shows_what_is_done_where_how_fast_and_what_failed() -> None:
    view = view_of(wide(T=hd.axis([77, 150, 300], "K"), lam=hd.axis([1, 2], "cm^-1")))
    ended = Ended(view.overview.cells)
    ended((0, 0, 0), Outcome.DONE, "")
    ended((2, 1, 0), Outcome.FAILED, "a <broken> point")
    view.history.start -= 10.0
    view.log_event(TOPIC, ended.event("run", "k", "tcp://host:0"))
    document = page(view)
    cells, marks, lines, memory, table = sources(document)
    assert np.round(cells["share"], 2).tolist() == [0.33, 0, 0, 0, 0, 0.33]
    assert (cells["column"][5], cells["row"][5]) == ("300", "2")
    assert (marks["x"].tolist(), marks["y"].tolist()) == ([2], [1])
    assert lines["who"] == ["worker 0"]
    assert memory["used"] == [2**20, 2**20]
    assert table["outcome"] == ["pending", "done", "failed"]
    said = texts(document)
    assert "2 of 18 points" in said
    assert "1 failed" in said
    assert "points/s" in said
    assert "left" in said
    assert "a &lt;broken&gt; point" in said


def sources(document: Any) -> list[Any]:
    (panel,) = document.components
    cells, speed, memory, outcomes = panel.parts
    return [
        s.data for s in (cells.source, cells.marks, speed.source, memory.source, outcomes.source)
    ]


@pytest.mark.parametrize("axes", [{}, {"a": [1, 2]}, {"a": list(range(200)), "b": [1, 2]}])
def test_sweeps_of_all_shapes_have_a_page_from_the_start(axes: dict[str, Any]) -> None:
    cells, _, lines, *_ = sources(page(view_of(wide(**axes))))
    assert len(cells["share"]) == max(1, np.prod([min(len(v), MOST_CELLS) for v in axes.values()]))
    assert lines["who"] == []


def test_many_workers_are_shown_by_machine() -> None:
    view = view_of(wide(a=[1, 2]))
    state = next(iter(view.scheduler.workers.values()))
    view.scheduler.workers = {
        f"tcp://{n}": SimpleNamespace(**{**vars(state), "host": f"host {n % 3}", "name": n})
        for n in range(30)
    }
    for worker in view.scheduler.workers:
        view.log_event("run", {"key": worker, "worker": worker, "points": 1.0})
    _, _, lines, memory, _ = sources(page(view))
    assert lines["who"] == [f"host {n} (10 workers)" for n in range(3)]
    assert len(memory["who"]) == 24


def test_without_a_sweep_the_page_says_so() -> None:
    view = view_of(wide(a=[1]))
    view.scheduler.plugins.clear()
    assert "No sweep is running here" in texts(page(view))


# --------------------------------------------------------------------------- on a scheduler


@contextlib.contextmanager
def dashboard(prefix: str = "") -> Iterator[Any]:
    """A client of a cluster in this process, with a dashboard."""
    from distributed import Client, LocalCluster

    with (
        LocalCluster(
            n_workers=1,
            threads_per_worker=1,
            processes=False,
            dashboard_address="127.0.0.1:0",
            scheduler_kwargs={"http_prefix": prefix},
        ) as cluster,  # fmt: skip
        Client(cluster) as client,
    ):
        yield client


def fetch(client: Any, path: str) -> str:
    port = client.cluster.scheduler.http_server.port
    with urllib.request.urlopen(f"http://127.0.0.1:{port}/{path}", timeout=30) as answer:
        return str(answer.read().decode())


@pytest.mark.cluster
def test_the_page_is_there_while_a_sweep_runs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from heomdask.ensemble import driver

    seen: list[Any] = []
    with dashboard() as client:
        account = driver._Driver._account

        def looking(self: Any, finished: Any) -> None:
            account(self, finished)
            scheduler = client.cluster.scheduler
            (view,) = views(scheduler)
            until = time.monotonic() + 10
            while view.total - view.outcomes().get(Outcome.PENDING, 0) < self.tally.done:
                assert time.monotonic() < until
                time.sleep(0.01)
            seen.append(view.outcomes())
            seen.append([fetch(client, path) for path in ("status", "heomdask", "metrics")])

        monkeypatch.setattr(driver._Driver, "_account", looking)
        what = sweep(disordered, over={"T": [0.5, 1.0]}, samples=3, title="Two temperatures")
        what.run(tmp_path / "s.zarr", client=client)
        assert seen[-2] == {Outcome.DONE: 6}
        status, own, metrics = seen[-1]
        assert 'href="heomdask"' in status
        assert '"roots"' in own
        assert 'heomdask_points{outcome="done",sweep="heomdask-' in metrics
        assert "heomdask_points_per_second" in metrics
        assert views(client.cluster.scheduler) == []
        assert 'href="heomdask"' not in fetch(client, "status")
        assert "heomdask_points" not in fetch(client, "metrics")
        assert '"roots"' in fetch(client, "heomdask")  # a browser that looks at it goes on


@pytest.mark.cluster
def test_without_bokeh_a_sweep_runs_as_ever(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with dashboard() as client:
        monkeypatch.delitem(sys.modules, "heomdask.ensemble.panel", raising=False)
        monkeypatch.delattr("heomdask.ensemble.panel", raising=False)
        monkeypatch.setitem(sys.modules, "bokeh.document", None)
        ds = sweep(over={"e": [0.1]}).run(tmp_path / "s.zarr", client=client)
        assert ds["status"].values.tolist() == [1]
        assert client.get_events(TOPIC) == ()


@pytest.mark.cluster
def test_the_page_stands_beside_dasks_own() -> None:
    from heomdask.ensemble.watching import open_view

    overview = view_of(wide(a=[1])).overview
    with dashboard(prefix="below") as client:
        for name in ("one", "another"):
            assert client.run_on_scheduler(open_view, name, overview)
        assert fetch(client, "below/status").count('href="heomdask"') == 1
        assert '"roots"' in fetch(client, "below/heomdask")


@pytest.mark.cluster
def test_a_sweep_whose_client_is_gone_leaves_the_page() -> None:
    from distributed import Client

    from heomdask.ensemble import leftovers
    from heomdask.ensemble.watching import open_view

    overview = view_of(wide(a=[1])).overview
    with dashboard() as client:
        with Client(client.cluster) as other:
            other.run_on_scheduler(leftovers.attach, "run", other.id)
            assert other.run_on_scheduler(open_view, "run", overview)
            assert len(views(client.cluster.scheduler)) == 1
        until = time.monotonic() + 10
        while views(client.cluster.scheduler) and time.monotonic() < until:
            time.sleep(0.01)
        assert views(client.cluster.scheduler) == []


def test_dasks_own_pages_call_the_tasks_of_all_sweeps_by_one_name() -> None:
    from dask.utils import key_split

    assert key_split(f"{DaskRunner(SimpleNamespace())._name}-17") == "heomdask"  # type: ignore[arg-type]  # no call is made


@pytest.mark.cluster
def test_a_dashboard_is_opened_for_this_machine_where_one_is_asked_for() -> None:
    with Workers(workers=1, dashboard=True) as workers:
        assert re.fullmatch(r"http://127\.0\.0\.1:\d+/heomdask", workers.page)
        status = workers.page.replace("/heomdask", "/status")
        with urllib.request.urlopen(status, timeout=30) as answer:
            assert b"Dask" in answer.read()
        with Workers(scheduler=workers.client().scheduler.address) as others:
            assert others.page == workers.page


def test_a_dashboard_without_bokeh_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(profiles.importlib.util, "find_spec", lambda name: None)
    with pytest.raises(InputError, match=r"`dashboard` must have .* bokeh.*pip install"):
        Workers(workers=1, dashboard=True).__enter__()
