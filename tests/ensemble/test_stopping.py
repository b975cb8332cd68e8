"""Stopping rules: how many samples are needed, whoever computes them in whatever order."""

from __future__ import annotations

import contextlib
import dataclasses
import itertools
import shutil
import tempfile
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import xarray as xr
from ensemble_support import assert_same_bits, disordered
from ensemble_support import sweep as solved_sweep
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from rich.console import Console
from rich.table import Table
from stopping_support import LENGTH, Drawing, Interrupted, drawn, run, sweep

import heomdask as hd
from heomdask.cli.summary import status_table, summary_table
from heomdask.ensemble import pools, shards, stopping
from heomdask.ensemble.cluster import connect
from heomdask.ensemble.pools import ALIKE
from heomdask.ensemble.runner import Finished, SerialRunner
from heomdask.ensemble.tally import Tally
from heomdask.errors import HeomdaskWarning, InputError
from heomdask.outcome import Outcome
from heomdask.results.dataset import progress_text
from heomdask.results.folder import LocalFolder, folder_of
from heomdask.results.spare import Spare
from heomdask.results.store import Store

RULE = hd.StandardError("x", 0.25)


def shorten(patched: pytest.MonkeyPatch) -> None:
    """New stores have shards of `LENGTH` points."""
    patched.setattr(shards, "MOST_POINTS", LENGTH)
    patched.setattr(shards, "PIECES", 1)


@pytest.fixture(autouse=True)
def _short_shards(monkeypatch: pytest.MonkeyPatch) -> None:
    shorten(monkeypatch)


def enough(e: int, below: float = RULE.below, samples: int = 120) -> int:
    """How many samples a point needs, from all that it could have."""
    values = np.array([drawn((e, s)).real for s in range(samples)])
    for n in range(LENGTH, samples + 1, LENGTH):
        error = values[:n].std(axis=0, ddof=1).max() / np.sqrt(n)
        if n >= stopping.LEAST and error < below:
            return n
    return samples


def expected_status(cells: int, below: float = RULE.below, samples: int = 120) -> Any:
    status = np.full((cells, samples), Outcome.NOT_NEEDED)
    for e in range(cells):
        status[e, : enough(e, below, samples)] = Outcome.DONE
    return status.tolist()


def test_each_point_of_the_grid_has_the_shortest_prefix_that_is_good_enough(
    tmp_path: Path,
) -> None:
    runner = Drawing()
    ds = run(sweep(until=RULE), tmp_path / "s.zarr", runner)
    needed = [enough(e) for e in range(3)]
    assert len(set(needed)) == 3
    assert ds["status"].values.tolist() == expected_status(3)
    found = hd.mean(ds)  # without a warning
    assert found["count"].values.tolist() == needed
    for e, n in enumerate(needed):
        values = np.array([drawn((e, s)) for s in range(n)])
        np.testing.assert_allclose(found["x"][e], values.real.mean(axis=0), rtol=1e-12)
        np.testing.assert_allclose(found["z"][e], values.mean(axis=0), rtol=1e-12)
        error = values.imag.std(axis=0, ddof=1) / np.sqrt(n)
        np.testing.assert_allclose(found["z_error"][e].values.imag, error, rtol=1e-12, atol=1e-16)
        assert bool(np.all(found["x_error"][e] < RULE.below)) == (
            n < 120
        )  # the last has all samples
    assert np.isnan(ds["x"].values[ds["status"].values == Outcome.NOT_NEEDED]).all()
    assert len(runner.places) < sum(needed) + 3 * 6 * LENGTH  # a window beyond, not all samples
    assert ds.attrs["until"] == [{"observable": "x", "below": 0.25, "over": "sample"}]


@pytest.fixture(scope="module")
def once(tmp_path_factory: pytest.TempPathFactory) -> xr.Dataset:
    with pytest.MonkeyPatch.context() as patched:
        shorten(patched)
        return run(sweep(until=RULE), tmp_path_factory.mktemp("once") / "s.zarr").load()


@settings(max_examples=8, suppress_health_check=list(HealthCheck))
@given(seed=st.integers(0, 2**32 - 1), slots=st.integers(1, 9), lasting=st.integers(0, 20))
def test_neither_order_nor_workers_nor_interruptions_change_the_store(
    once: xr.Dataset, seed: int, slots: int, lasting: int
) -> None:
    what, order = sweep(until=RULE), np.random.default_rng(seed)
    with tempfile.TemporaryDirectory() as folder:
        store = Path(folder, "s.zarr")
        try:
            found = run(what, store, Drawing(slots, order, lasting=lasting))
        except Interrupted:
            found = run(what, store, Drawing(slots, order))
        assert_same_bits(found, once)


def test_a_kill_while_points_are_hidden_loses_at_most_time(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The process ends at every one of the steps with which points are put away or come back."""
    write, delete = LocalFolder.write, LocalFolder.delete
    run(sweep(2, 12), tmp_path / "s.zarr")
    for steps, what in itertools.product(range(20), ("hide", "recall")):
        store = tmp_path / f"{steps}-{what}.zarr"
        shutil.copytree(tmp_path / "s.zarr", store)
        files = Store.open(folder_of(store)).files
        points = np.arange(np.prod(files.shard)).reshape(files.shard) % 3 > 0
        before = files.read("x", (0, 0))
        if what == "recall":
            Spare(files).hide((0, 0), points)
        left = iter(range(steps))

        def step(left: Any = left) -> None:
            if next(left, None) is None:
                raise Interrupted

        def writing(self: LocalFolder, files: dict[str, Any], step: Any = step) -> None:
            for name, data in files.items():
                step()
                write(self, {name: data})

        def deleting(self: LocalFolder, names: Iterable[str], step: Any = step) -> None:
            for name in names:
                step()
                delete(self, [name])

        with monkeypatch.context() as patched:
            patched.setattr(LocalFolder, "write", writing)
            patched.setattr(LocalFolder, "delete", deleting)
            with contextlib.suppress(Interrupted):
                getattr(Spare(files), what)((0, 0), points)
        for _ in range(2):
            status, x = files.read("status", (0, 0)), files.read("x", (0, 0))
            done = status == Outcome.DONE
            assert done[~points].all()
            np.testing.assert_array_equal(x[done], before[done])
            Spare(files).hide((0, 0), points)
            assert (files.read("status", (0, 0))[points] == Outcome.NOT_NEEDED).all()
            hidden = files.read("x", (0, 0))
            assert np.isnan(hidden[points]).all()
            np.testing.assert_array_equal(hidden[~points], before[~points])
            Spare(files).recall((0, 0), points)


@pytest.mark.parametrize("place", ["local", "memory"], indirect=True)
@pytest.mark.parametrize("damage", ["cut off", "missing"])
def test_hidden_points_of_damaged_files_are_computed_again(place: str, damage: str) -> None:
    run(sweep(1, LENGTH), place)
    files = Store.open(folder_of(place)).files
    every = np.ones(files.shard, dtype=bool)
    before = files.read("x", (0, 0))
    Spare(files).hide((0, 0), every)
    (hidden,) = (name for name in files.folder.sizes("x") if name.startswith("spare"))
    if damage == "missing":
        files.folder.delete([f"x/{hidden}"])
    else:
        files.folder.write({f"x/{hidden}": b"short"})
    assert (Spare(files).recall((0, 0), every) == Outcome.PENDING).all()
    runner = Drawing()
    run(sweep(1, LENGTH), place, runner)
    assert len(runner.places) == LENGTH
    assert files.read("x", (0, 0)).tobytes() == before.tobytes()


def test_a_rule_holds_wherever_the_store_lies(place: str, tmp_path: Path) -> None:
    """No rule, then one that hides samples, then none again."""
    whole, ruled = sweep(1, 44), sweep(1, 44, until=RULE)
    assert enough(0) < 44
    first = run(whole, place).load()
    again = Drawing()
    once = run(ruled, tmp_path / "once.zarr")
    assert_same_bits(run(ruled, place, again), once)
    assert_same_bits(hd.mean(hd.open(place)), hd.mean(once))
    assert progress_text(place).endswith(f"points are in {place}")
    assert "not_needed" in rendered(status_table(place))
    assert_same_bits(run(whole, place, again), first)
    assert not again.places


@pytest.mark.parametrize("place", ["local", "memory"], indirect=True)
def test_no_computed_point_is_computed_again(place: str) -> None:
    """A stricter rule, a laxer one, none, more samples: as if that had been run at once."""
    seen: set[Any] = set()
    runs: list[dict[str, Any]] = [
        {"until": RULE},
        {"until": hd.StandardError("x", 0.15)},
        {"until": hd.StandardError("x", 0.5)},
        {"until": None, "samples": 60},
        {"until": hd.StandardError("x", 0.15), "samples": 180},
        {"until": None, "samples": 180},
    ]
    for number, changes in enumerate(runs):
        what, runner = sweep(2, **changes), Drawing(3, np.random.default_rng(number))
        ds = run(what, place, runner)
        assert not seen & set(runner.places)
        seen |= set(runner.places)
        until = changes["until"]
        if until is not None:
            expected = expected_status(2, until.below, ds.sizes["sample"])
            assert ds["status"].values.tolist() == expected
        elif what.samples == 180:
            assert (ds["status"] == Outcome.DONE).all()
        done = np.argwhere(ds["status"].values == Outcome.DONE).tolist()
        values = np.array([drawn(tuple(place)) for place in done])
        assert ds["z"].values[tuple(np.transpose(done))].tobytes() == values.tobytes()
        assert ds.attrs.get("until", []) == [rule.plain for rule in what.until]


def test_running_again_writes_nothing(tmp_path: Path) -> None:
    what = sweep(until=RULE)
    run(what, tmp_path / "s.zarr")
    files = {p: p.stat().st_mtime_ns for p in (tmp_path / "s.zarr").rglob("*") if p.is_file()}
    runner = Drawing()
    run(what, tmp_path / "s.zarr", runner)
    assert not runner.places
    assert files == {p: p.stat().st_mtime_ns for p in files}


def test_all_rules_must_hold_and_a_complex_one_counts_as_a_whole(tmp_path: Path) -> None:
    rules = [hd.StandardError("x", 0.25), hd.StandardError("z", 0.15)]
    found = hd.mean(run(sweep(2, until=rules), tmp_path / "s.zarr")).isel(e=0)
    count = int(found["count"])
    assert count > enough(0, 0.15)
    assert count < 120
    assert np.abs(found["z_error"].values).max() < 0.15
    fewer = np.array([drawn((0, s)) for s in range(count - LENGTH)])
    spread = np.sqrt(fewer.real.var(axis=0, ddof=1) + fewer.imag.var(axis=0, ddof=1))
    assert spread.max() / np.sqrt(count - LENGTH) >= 0.15


def test_failures_beyond_the_prefix_are_forgotten(tmp_path: Path) -> None:
    n = enough(0)
    failing = ((0, 3), (0, n + 1), (0, n + 2 * LENGTH))
    runner = Drawing(9, failing=failing)
    with pytest.warns(HeomdaskWarning, match=r"^1 of 240 points failed"):
        ds = run(sweep(2, until=RULE), tmp_path / "s.zarr", runner)
    assert set(failing) & set(runner.places) > {(0, 3)}
    assert np.argwhere(ds["status"].values == Outcome.FAILED).tolist() == [[0, 3]]
    assert np.argwhere(ds["error"].values != "").tolist() == [[0, 3]]
    with pytest.warns(HeomdaskWarning, match=f"leaves out 1 of {n + enough(1)} points"):
        assert hd.mean(ds)["count"].values.tolist() == [n - 1, enough(1)]


def test_points_that_share_their_shards_stop_together(tmp_path: Path) -> None:
    """A store that began with few samples; points that are not asked for stay as they are."""
    store = tmp_path / "s.zarr"
    run(sweep(100, 4), store)
    assert hd.open(store).attrs["shard"] == [3, 4]

    def counts(*e: float) -> list[int]:
        what = dataclasses.replace(sweep(until=hd.StandardError("x", 0.36)), over={"e": e})
        ds = run(what, store)
        others = ds["status"].drop_sel(e=list(e))
        assert (others[:, :4] == Outcome.DONE).all()
        assert (others[:, 4:] == Outcome.PENDING).sum() > 96 * 116
        found: list[int] = hd.mean(ds.sel(e=list(e)))["count"].values.tolist()
        return found

    apart = counts(0.0, 3.0)
    assert stopping.LEAST <= apart[0] < apart[1] < 120
    together = counts(0.0, 2.0)
    assert apart[0] < together[0] == together[1] < 120


def test_the_true_error_is_covered_about_as_often_as_it_should(tmp_path: Path) -> None:
    """Of normal numbers: 95 per cent within 1.96 standard errors, or a few less.

    The rule stops where the spread looks small. Of 150 points the share varies by 2 per cent.
    """
    ds = run(sweep(150, until=hd.StandardError("x", 0.36)), tmp_path / "s.zarr")
    found = hd.mean(ds).isel(e=slice(2, None), time=1)
    assert 60 < float(found["count"].mean()) < 85
    inside = np.abs(found["x"]) < 1.96 * found["x_error"]
    assert 0.90 < float(inside.mean()) < 0.98


@pytest.mark.cluster
def test_workers_fill_a_store_bit_for_bit_like_this_process(tmp_path: Path) -> None:
    rule = hd.StandardError("c", 0.03)
    what = solved_sweep(disordered, over={"T": [0.5, 2.0]}, samples=240, until=rule)
    once = what.run(tmp_path / "once.zarr", client=SerialRunner(), progress=False)
    counts = hd.mean(once)["count"].values
    assert np.all((counts >= stopping.LEAST) & (counts < 240))
    for workers in (1, 2):
        with connect(workers=workers) as client:
            ds = what.run(tmp_path / f"{workers}.zarr", client=client, progress=False)
        assert_same_bits(ds, once)


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"until": hd.StandardError("y", 1.0)}, "stored observable .* got 'y'; there are 'x', 'z'"),
        ({"until": RULE, "samples": None}, "`until` must come with `samples`"),
        ({"until": RULE, "save": "rho"}, "stored observable .* there are none"),
        ({"until": 1e-3}, "`until` must be a list"),
        ({"until": ["x"]}, "hd.StandardError"),
    ],
)
def test_rules_that_cannot_be_are_refused(changes: dict[str, Any], said: str) -> None:
    with pytest.raises(InputError, match=said):
        sweep(**changes)


@pytest.mark.parametrize("below", [0, -1.0, float("nan"), "1e-3"])
def test_a_limit_is_a_number_above_zero(below: Any) -> None:
    with pytest.raises(InputError, match="`below` must be a finite real number above 0"):
        hd.StandardError("x", below)
    with pytest.raises(InputError, match="`over` must be one of 'sample'"):
        hd.StandardError("x", 1.0, over="e")


def test_a_plan_says_at_most(tmp_path: Path) -> None:
    what, store = sweep(until=RULE), tmp_path / "s.zarr"
    assert "at most 360 (3 e x 120 sample)" in str(what.plan(store, workers=1))
    run(what, store)
    assert what.plan(store, workers=1).pending == 0
    stricter = sweep(until=hd.StandardError("x", 0.1)).plan(store, workers=1)
    assert stricter.pending == 360 - sum(enough(e) for e in range(3))
    assert f"at most {stricter.pending}" in str(stricter)


def test_a_mean_over_an_axis_says_that_samples_are_missing(tmp_path: Path) -> None:
    """Each value of the axis has a number of samples of its own: all others count less."""
    ds = run(sweep(2, until=RULE), tmp_path / "s.zarr")
    with pytest.warns(HeomdaskWarning, match="take the mean over them first"):
        hd.mean(ds, "e")
    hd.mean(ds).mean("e")  # without a word


def test_tables_count_what_is_needed(tmp_path: Path) -> None:
    what, store = sweep(2, until=RULE), str(tmp_path / "s.zarr")
    ds = run(what, Path(store))
    n = [enough(0), enough(1)]
    rows = rendered(summary_table(ds, 200))
    for e in range(2):
        assert f"{n[e]} of {n[e]}" in rows
    assert f"{240 - sum(n)} samples were not needed" in rows
    assert progress_text(store) == f"{sum(n)} of {sum(n)} points are in {store}"
    assert f"not_needed │ {240 - sum(n):>6}" in rendered(status_table(store))


def rendered(table: Table) -> str:
    console = Console(width=200)
    with console.capture() as captured:
        console.print(table)
    return captured.get()


def test_a_run_tells_its_progress_of_what_need_not_be_computed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    bars: list[Tally] = []
    monkeypatch.setattr(Tally, "shown", lambda bar: bars.append(bar) or contextlib.nullcontext(bar))
    runner = Drawing()
    run(sweep(until=RULE), tmp_path / "s.zarr", runner)
    assert bars[0].done == bars[0].total == len(runner.places) < 360


def test_tasks_whose_workers_died_are_tried_again_where_they_are_needed(tmp_path: Path) -> None:
    """The death of a task sends its shards out one by one; a shard alone has failed."""

    class Dying(Drawing):
        deaths = 0

        def wait(self) -> list[Finished]:
            for task in self.tasks:
                if self.deaths < 3 and (len(task) > 1 or len(self.places) > LENGTH):
                    self.deaths += 1
                    self.tasks.remove(task)
                    return [Finished(task, None)]
            return super().wait()

    rule = hd.StandardError("x", 0.1)
    what, store, runner = sweep(1, 600, until=rule), tmp_path / "s.zarr", Dying(2)
    with pytest.warns(HeomdaskWarning, match="points failed"):
        ds = run(what, store, runner)
    assert runner.deaths == 3
    assert set(np.unique(ds["status"])) == {Outcome.DONE, Outcome.FAILED, Outcome.NOT_NEEDED}
    ds = what.run(store, client=Drawing(), progress=False, retry_failed=True)
    assert_same_bits(ds, run(what, tmp_path / "once.zarr"))


class Leaving(Drawing):
    """Workers of a class are gone for good once a task of theirs is not needed any more."""

    def __init__(self) -> None:
        super().__init__()
        self.waiting: list[Any] = []
        self.withdrawn: list[Any] = []
        self.there = True

    @property
    def pools(self) -> dict[str, int]:
        return {"CPU": 1, "GPU": 1} if self.there else {"CPU": 1}

    def submit(self, task: Any, pool: str = ALIKE) -> None:
        beyond = task[0][-1] * LENGTH >= enough(0)
        (self.waiting if pool == "GPU" and beyond else self.tasks).append(task)

    def withdraw(self, task: Any) -> None:
        self.waiting.remove(task)
        self.withdrawn.append(task)

    def wait(self) -> list[Finished]:
        self.there = bool(self.tasks)
        return super().wait() if self.there else []


def test_what_is_taken_back_last_is_marked_as_not_needed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pools, "ABSENT", 0.0)
    runner = Leaving()
    ds = run(sweep(1, until=RULE), tmp_path / "s.zarr", runner)
    assert runner.withdrawn
    assert ds["status"].values.tolist() == expected_status(1)
