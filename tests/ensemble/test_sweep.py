"""Sweeps in one process: values against exact ones, order, resumption, extension."""

from __future__ import annotations

import dataclasses
import threading
from math import comb
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import xarray as xr
from ensemble_support import (
    COHERENCE,
    DEPHASING,
    LAM,
    PLUS,
    SZ,
    TIMES,
    assert_same_bits,
    build,
    disordered,
    exact,
    problem,
    sweep,
)

import heomdask as hd
from heomdask.ensemble.runner import SerialRunner
from heomdask.errors import HeomdaskWarning, InputError, StoreError, TooLarge
from heomdask.outcome import Outcome
from heomdask.results.folder import folder_of
from heomdask.results.store import Store
from heomdask.units import K


def run(what: hd.Sweep, store: Path) -> xr.Dataset:
    return what.run(store, client=SerialRunner(), progress=False)


def run_with_failures(what: hd.Sweep, store: Path, failed: int) -> xr.Dataset:
    with pytest.warns(HeomdaskWarning, match=f"^{failed} of {what.grid.size} points failed"):
        return run(what, store)


class Counting(SerialRunner):
    """Counts the points that were computed."""

    def __init__(self) -> None:
        super().__init__()
        self.points = 0

    def wait(self) -> Any:
        finished = super().wait()
        self.points += sum(f.report.points for f in finished if f.report is not None)
        return finished


def test_every_member_is_exact_at_its_own_place(tmp_path: Path) -> None:
    energies = [0.7, -0.3, 0.0, 0.1]
    ds = run(sweep(over={"e": energies}), tmp_path / "s.zarr")
    np.testing.assert_array_equal(ds["e"], sorted(energies))
    assert ds["status"].values.tolist() == [Outcome.DONE] * 4
    for e in energies:
        one = ds.sel(e=e)
        np.testing.assert_allclose(one["c"], exact(e), atol=1e-6)
        np.testing.assert_allclose(one["rho"][:, 0, 1], exact(e), atol=1e-6)
        np.testing.assert_allclose(one["Z"], 0, atol=1e-12)
    assert ds["Z"].dtype == np.float64  # a Hermitian observable of Hermitian states
    assert ds["c"].dtype == np.complex128


def test_units_are_kept_and_build_gets_internal_numbers(tmp_path: Path) -> None:
    seen: list[float] = []

    def hot(T: float, lam: float) -> Any:
        seen.append(T)
        return problem(0.1, T, lam), PLUS

    over = {"T": hd.axis([300, 77], "K"), "lam": hd.axis([5, 35], "cm^-1")}
    ds = run(sweep(hot, over=over, times=hd.axis([0, 10, 20], "fs"), depth=2), tmp_path / "s.zarr")
    assert set(seen) == {300 * K, 77 * K}
    assert ds["T"].attrs["units"] == "K"
    assert ds["lam"].attrs["units"] == "cm^-1"
    assert ds["time"].attrs["units"] == "fs"
    assert ds.sel(T=77, lam=35)["rho"].shape == (3, 2, 2)
    assert ds["rho"].dims == ("T", "lam", "time", "i", "j")
    plain = xr.open_zarr(tmp_path / "s.zarr", consolidated=False)
    xr.testing.assert_equal(plain.sortby("T")["rho"].load(), ds["rho"].load())


def test_a_hundred_samples_are_a_hundred_numbers(tmp_path: Path) -> None:
    ds = run(sweep(disordered, over={"T": [1.0]}, samples=100, seed=3), tmp_path / "s.zarr")
    assert len(np.unique(ds["c"].isel(time=-1).values)) == 100
    draws = [0.3 * hd.ensemble.axes.sample_rng(3, s).standard_normal() for s in range(100)]
    expected = np.array([exact(e) for e in draws])
    np.testing.assert_allclose(ds["c"].isel(T=0), expected, atol=1e-6)


def test_all_points_of_a_grid_see_the_same_disorder(tmp_path: Path) -> None:
    ds = run(sweep(disordered, over={"T": [0.5, 1.0]}, samples=5), tmp_path / "s.zarr")
    phases = np.angle(ds["c"].isel(time=2).values)
    np.testing.assert_allclose(phases[0], phases[1], atol=1e-7)


def test_a_table_repeats_points_on_purpose(tmp_path: Path) -> None:
    points = [{"e": 0.3}, {"e": 0.3}, {"e": -1.0}, {"e": 0.3}]
    ds = run(sweep(over=points), tmp_path / "s.zarr")
    assert ds["rho"].dims == ("point", "time", "i", "j")
    np.testing.assert_array_equal(ds["e"], [0.3, 0.3, -1.0, 0.3])
    assert "e" in ds.coords
    c = ds["c"].values
    assert c[0].tobytes() == c[1].tobytes() == c[3].tobytes()
    np.testing.assert_allclose(c[2], exact(-1.0), atol=1e-6)
    more = run(sweep(over=[*points, {"e": 0.0}]), tmp_path / "s.zarr")
    np.testing.assert_allclose(more["c"][4], exact(0.0), atol=1e-6)
    with pytest.raises(StoreError, match="row 1"):
        run(sweep(over=[points[0], points[2]]), tmp_path / "s.zarr")


def test_zipped_axes_run_together(tmp_path: Path) -> None:
    def both(e: float, lam: float) -> Any:
        return problem(e, lam=lam), PLUS

    ds = run(sweep(both, over={("e", "lam"): ([0.1, 0.1, 0.4], [0.0, LAM, LAM])}), tmp_path / "s")
    assert ds["c"].dims == ("e_lam", "time")
    np.testing.assert_allclose(ds["c"][0], 0.5 * np.exp(-0.1j * np.array(TIMES)), atol=1e-7)
    np.testing.assert_allclose(ds["c"][2], exact(0.4), atol=1e-6)
    np.testing.assert_array_equal(ds["lam"], [0.0, LAM, LAM])


def test_axes_of_the_solver_go_to_the_solver(tmp_path: Path) -> None:
    methods = hd.axis([hd.Pade(1), hd.Pade(2)])
    over = {"e": [0.2], "depth": [1, 2, 8], "expansion": methods, "tol": [1e-4, 1e-8]}
    ds = run(sweep(over=over, depth=None, expansion=None, tol=1e-6), tmp_path / "s.zarr")
    assert ds["n_ado"].sel(tol=1e-4).values[0].tolist() == [[3, 4], [6, 10], [45, 165]]
    assert ds["expansion"].values.tolist() == [repr(hd.Pade(1)), repr(hd.Pade(2))]
    error = np.abs(ds["c"].sel(tol=1e-8).values - exact(0.2)).max(axis=-1)[0]
    assert error[0, 1] > 30 * error[2, 1]
    with pytest.raises(InputError, match="both"):
        sweep(over=over)


def test_running_again_computes_nothing_again(tmp_path: Path) -> None:
    what = sweep(disordered, over={"T": [0.5, 1.0]}, samples=40)
    first, second = Counting(), Counting()
    ds = what.run(tmp_path / "s.zarr", client=first, progress=False)
    files = {p: p.stat().st_mtime_ns for p in (tmp_path / "s.zarr").rglob("c.*")}
    again = what.run(tmp_path / "s.zarr", client=second, progress=False)
    assert (first.points, second.points) == (80, 0)
    assert files == {p: p.stat().st_mtime_ns for p in files}
    assert_same_bits(ds, again)


def test_an_extension_equals_the_sweep_in_one_go(tmp_path: Path) -> None:
    """New values before, between and after the old ones, and more samples, bit for bit."""
    grown, counting = tmp_path / "grown.zarr", Counting()
    run(sweep(disordered, over={"T": [0.7, 1.5]}, samples=70), grown)
    values = [2.0, 0.5, 0.7, 1.5, 1.0]
    large = sweep(disordered, over={"T": values}, samples=75)
    ds = large.run(grown, client=counting, progress=False)
    assert counting.points == 5 * 75 - 2 * 70
    once = run(large, tmp_path / "once.zarr")
    np.testing.assert_array_equal(ds["T"], sorted(values))
    assert_same_bits(ds, once)
    assert ds.attrs["shard"] == [1, 4]  # of the small sweep, read from the store ever after
    run(sweep(disordered, over={"T": [0.7]}, samples=3), grown)  # less than there is: nothing to do
    assert_same_bits(hd.open(grown), once)


def test_results_do_not_depend_on_batches_or_order(tmp_path: Path) -> None:
    """The same points, alone and in company, in another order, in other shards."""
    energies = [0.1 * k for k in range(12)]
    ds = run(sweep(over={"e": energies}), tmp_path / "s.zarr")
    backwards = run(sweep(over={"e": energies[::-1]}), tmp_path / "b.zarr")
    assert_same_bits(ds, backwards)
    table = run(sweep(over=[{"e": e} for e in energies] * 8), tmp_path / "t.zarr")
    assert table["c"].values[-12:].tobytes() == ds["c"].values.tobytes()
    alone = run(sweep(over={"e": [energies[5]]}), tmp_path / "a.zarr")
    assert alone["rho"].values[0].tobytes() == ds["rho"].values[5].tobytes()


def test_a_failing_point_is_recorded_and_stops_nothing(tmp_path: Path) -> None:
    def hot(T: float) -> Any:
        return problem(0.1, T), PLUS

    values = [1.0, 2.0, 3.0, -1.0, 4.0, 5.0]
    ds = run_with_failures(sweep(hot, over=[{"T": v} for v in values]), tmp_path / "s.zarr", 1)
    assert ds["status"].values.tolist() == [1, 1, 1, Outcome.FAILED, 1, 1]
    assert np.isnan(ds["c"].values[3]).all()
    np.testing.assert_allclose(ds["c"][0], exact(0.1), atol=1e-6)
    for k in (0, 1, 2, 4, 5):
        alone = hd.evolve(hot(values[k])[0], PLUS, TIMES, depth=5, expansion=hd.Pade(4), tol=1e-8)
        np.testing.assert_allclose(ds["rho"][k], alone.rho, atol=1e-7)
    ((where, error),) = hd.ensemble.failures(tmp_path / "s.zarr")
    assert "T = -1.0" in where
    assert "point 3" in where
    assert "`T`" in error
    assert "Traceback" in str(ds["traceback"].values[3])
    counting = Counting()
    sweep(hot, over=[{"T": v} for v in values]).run(
        tmp_path / "s.zarr", client=counting, progress=False
    )
    assert counting.points == 0  # a failure is an answer
    with pytest.warns(HeomdaskWarning, match="`T`"):
        sweep(hot, over=[{"T": v} for v in values]).run(
            tmp_path / "s.zarr", client=counting, progress=False, retry_failed=True
        )
    assert counting.points == 1


def test_a_failure_that_is_mended_leaves_no_trace(tmp_path: Path) -> None:
    resource = tmp_path / "needed"

    def fragile(e: float) -> Any:
        if e == 0.2 and not resource.exists():
            raise OSError("not mounted")
        return build(e)

    what = sweep(fragile, over={"e": [0.0, 0.1, 0.2, 0.3, 0.4, 0.5, 0.6]})
    ds = run_with_failures(what, tmp_path / "s.zarr", 1)
    assert ds["status"].values.tolist() == [1, 1, Outcome.FAILED, 1, 1, 1, 1]
    assert "not mounted" in str(ds["error"].values[2])
    resource.touch()
    ds = what.run(tmp_path / "s.zarr", client=SerialRunner(), progress=False, retry_failed=True)
    assert_same_bits(ds, run(sweep(over=what.over), tmp_path / "good.zarr"))


def test_a_member_that_fails_in_the_solver_leaves_its_batch_alone(tmp_path: Path) -> None:
    def sometimes(e: float) -> Any:
        return problem(e), PLUS if e != 0.2 else 0 * PLUS

    energies = [0.0, 0.1, 0.2, 0.3]
    ds = run_with_failures(sweep(sometimes, over={"e": energies}), tmp_path / "s.zarr", 1)
    assert ds["status"].values.tolist() == [1, 1, Outcome.FAILED, 1]
    assert "rho0" in str(ds["error"].values[2])
    good = run(sweep(over={"e": energies}), tmp_path / "g.zarr")
    assert ds["c"].values[3].tobytes() == good["c"].values[3].tobytes()


def test_a_point_of_another_size_or_kind_is_a_failure_of_its_own(tmp_path: Path) -> None:
    def odd(n: int) -> Any:
        if n == 2:
            return hd.Problem(np.eye(3)), np.eye(3) / 3
        start = PLUS if n != 5 else np.array([[0.0, 1.0], [0.0, 0.0]])
        return hd.Problem(0.3 * SZ + 0.1), start

    numbers = {"n": list(range(7))}
    what = sweep(odd, over=numbers, observables={"X": 1 - np.eye(2)})
    ds = run_with_failures(what, tmp_path / "s.zarr", 2)
    failed = (ds["status"].values == Outcome.FAILED).tolist()
    assert failed == [n in (2, 5) for n in range(7)]
    assert "Hermitian initial states" in str(ds["error"].values[5])


def test_a_point_is_prepared_before_the_next_is_built(tmp_path: Path) -> None:
    """What its functions read may be changed by the next call of `build`."""
    built: list[float] = []

    def noting(lam: float) -> Any:
        built.append(lam)
        return problem(0.3, lam=lam), PLUS

    class Checking(hd.Pade):
        def expand(self, bath: Any) -> hd.Exponents:
            assert bath.lam == built[-1]
            return super().expand(bath)

    lams = np.linspace(0.01, 0.02, 70)  # several in a shard
    ds = run(sweep(noting, over={"lam": lams}, depth=1, expansion=Checking(1)), tmp_path / "s.zarr")
    assert (ds["status"] == Outcome.DONE).all()
    assert set(built) == set(lams)


@pytest.mark.parametrize("kind", ["closure", "global", "attribute", "partial"])
def test_a_build_that_cannot_travel_is_refused_by_name(tmp_path: Path, kind: str) -> None:
    import functools

    the_lock = threading.Lock()

    def closure(e: float) -> Any:
        with the_lock:
            return build(e)

    def takes(e: float, the_lock: Any = None) -> Any:
        return build(e)

    class Builder:
        def __init__(self) -> None:
            self.the_lock = threading.Lock()

        def __call__(self, e: float) -> Any:
            return build(e)

    functions: dict[str, Any] = {
        "closure": closure,
        "global": functools.partial(closure),
        "attribute": Builder(),
        "partial": functools.partial(takes, the_lock=the_lock),
    }
    what = sweep(functions[kind], over={"e": [0.1]})
    with pytest.raises(InputError, match=r"`build` must be picklable.*the_lock"):
        run(what, tmp_path / "s.zarr")
    assert not (tmp_path / "s.zarr").exists()


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"tol": 1e-5}, "`tol` is 1e-08 there and 1e-05 here"),
        (
            {"times": [0.0, 1.0]},
            "`times` is 5 values from 0 to 4 there and 2 values from 0 to 1 here.",
        ),
        (
            {"times": [0.0, 0.4, 1.0, 2.0, 4.0]},
            "`times` is 5 values from 0 to 4 at both, with others between.",
        ),
        ({"depth": 3}, "`depth` is 5 there and 3 here"),
        ({"expansion": hd.Pade(1)}, "`expansion` is Pade(4) there and Pade(1) here"),
        ({"seed": 7}, "`seed` is 0 there and 7 here"),
        ({"observables": {"c": SZ}}, "`observables` is Z, c there and c here"),
        (
            {"observables": {"c": COHERENCE, "Z": 2 * SZ}},
            "`observables` has another operator here for Z.",
        ),
        ({"save": "rho"}, "`save` is rho and observables there and rho here"),
        ({"over": {"e": hd.axis([0.1], "fs")}}, "`axes` is e there and e / fs here"),
        ({"over": {"E": [0.1]}}, "`axes` is e there and E here"),
        ({"over": {"e": {"0.1": 0.1}}}, "`axes` is e there and e (names) here"),
        ({"over": [{"e": 0.1}]}, "`axes` is e there and e along point here"),
    ],
)
def test_a_store_of_another_sweep_is_refused(tmp_path: Path, changes: Any, said: str) -> None:
    run(sweep(over={"e": [0.1]}), tmp_path / "s.zarr")
    function = (lambda E: build(E)) if "E" in str(changes) else build
    with pytest.raises(StoreError, match="belongs to another sweep") as caught:
        run(sweep(function, **({"over": {"e": [0.1]}} | changes)), tmp_path / "s.zarr")
    assert said in str(caught.value)


def test_a_store_notices_other_physics_behind_the_same_specification(tmp_path: Path) -> None:
    run(sweep(over={"e": [0.1, 0.2]}), tmp_path / "s.zarr")

    def other(e: float) -> Any:
        return problem(e, lam=2 * LAM), PLUS

    with pytest.raises(StoreError, match=r"at e = 0\.1"):
        run(sweep(other, over={"e": [0.1, 0.3]}), tmp_path / "s.zarr")


def test_nothing_starts_in_a_place_that_cannot_be_written(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    calls: list[float] = []

    def counted(e: float) -> Any:
        calls.append(e)
        return build(e)

    with pytest.raises(StoreError, match="choose another path"):
        run(sweep(counted, over={"e": [0.1]}), tmp_path / "file" / "s.zarr")
    assert not calls


def test_what_cannot_fit_is_refused_with_both_numbers(tmp_path: Path) -> None:
    class Small(SerialRunner):
        memory = 100_000

    what = sweep(over={"e": [0.1]}, depth=15)
    with pytest.raises(
        TooLarge, match=r"needs about .*MB.* and a worker has 100 kB; lower `depth`"
    ):
        what.run(tmp_path / "s.zarr", client=Small(), progress=False)


def test_a_plan_adds_up_and_writes_nothing(tmp_path: Path) -> None:
    what = sweep(disordered, over={"T": [0.5, 1.0]}, samples=50)
    plan = what.plan(tmp_path / "s.zarr", workers=2)
    assert not (tmp_path / "s.zarr").exists()
    assert plan.points == plan.pending == 100
    assert plan.shape == {"T": 2, "sample": 50}
    assert {n for _, n, _ in plan.hierarchies} == {252}  # binomial(5 + 5, 5)
    assert plan.seconds > 0
    assert plan.store_nbytes >= 100 * 5 * (4 * 16 + 16 + 8)
    assert "100 (2 T x 50 sample)" in str(plan)
    run(sweep(disordered, over={"T": [0.5]}, samples=50), tmp_path / "s.zarr")
    assert what.plan(tmp_path / "s.zarr", workers=2).pending == 50


def test_a_plans_seconds_follow_the_size_of_each_hierarchy(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Fifty small points and two large ones; then, with the small ones there, the large ones."""

    def measured(_: hd.Sweep, seen: Any) -> tuple[float, str]:
        return 1e-3 * float(seen.prepared.index_set.n_ado), "numpy"

    monkeypatch.setattr("heomdask.ensemble.plan._measure", measured)
    depths = [1] * 50 + [7, 8]
    what = sweep(lambda: build(0.1), over=hd.Table({"depth": depths}), depth=None)
    ados = [comb(5 + depth, 5) for depth in depths]
    assert what.plan(workers=2).seconds == pytest.approx(1e-3 * sum(ados) / 2)
    assert ("backend", "numpy") in what.plan().rows()
    store = tmp_path / "s.zarr"
    run(dataclasses.replace(what, over=hd.Table({"depth": depths[:50]})), store)
    assert what.plan(store, workers=1).seconds == pytest.approx(1e-3 * sum(ados[50:]))
    run(what, store)
    assert what.plan(store, workers=1).seconds == 0


def test_the_convergence_check_adds_what_a_deeper_hierarchy_changes(tmp_path: Path) -> None:
    """For the stored axis order, kept when run again, refused for points that are not there."""
    store, axes = tmp_path / "s.zarr", {"depth": [4, 1]}
    what = sweep(lambda: build(0.1), over=axes, depth=None, expansion=hd.Pade(2), tol=1e-9)
    run(what, store)
    ds = what.check_convergence(store, client=SerialRunner())
    for depth in (1, 4):
        here, deeper, finer = (
            hd.evolve(*build(0.1), TIMES, depth=d, expansion=hd.Pade(n), tol=1e-9).rho[:, 0, 1]
            for d, n in ((depth, 2), (depth + 1, 2), (depth, 3))
        )
        changes = np.max(np.abs(deeper - here)) + np.max(np.abs(finer - here))
        found = float(ds["convergence_error"].sel(depth=depth))
        assert found == pytest.approx(changes, abs=2e-5)
    assert ds["convergence_error"].sel(depth=1) > 10 * ds["convergence_error"].sel(depth=4)
    modified = (store / "convergence_error" / "zarr.json").stat().st_mtime_ns
    what.check_convergence(store, client=SerialRunner())
    assert (store / "convergence_error" / "zarr.json").stat().st_mtime_ns == modified
    with pytest.raises(StoreError, match="run the sweep on it first"):
        dataclasses.replace(what, over={"depth": [1, 2]}).check_convergence(store)
    with Store.open(folder_of(store)).driving(), pytest.raises(StoreError, match="in use"):
        what.check_convergence(store, client=SerialRunner())


def test_the_convergence_check_leaves_out_what_cannot_be_solved(tmp_path: Path) -> None:
    def partly(e: float) -> Any:
        if e > 1:
            raise ValueError("no such point")
        return build(e)

    what = sweep(partly, over={"e": [0.1, 2.0]}, depth=2)
    with pytest.warns(HeomdaskWarning, match="1 of 2 points failed"):
        run(what, tmp_path / "s.zarr")
    error = what.check_convergence(tmp_path / "s.zarr", client=SerialRunner())["convergence_error"]
    assert error[0] > 0
    assert np.isnan(error[1])
    other = sweep(over={"e": [0.1]}, depth=hd.ModeLimits(3, [2] * 5))
    run(other, tmp_path / "o.zarr")
    with pytest.warns(HeomdaskWarning, match="no convergence error at e = 0.1: .*whole-number"):
        other.check_convergence(tmp_path / "o.zarr", client=SerialRunner())


def test_what_build_reuses_is_copied(tmp_path: Path) -> None:
    shared = np.zeros((2, 2))

    def reusing(e: float) -> Any:
        shared[:] = np.diag([e, 1 - e])
        return problem(0.1), shared

    up = {"up": np.diag([1.0, 0.0])}
    ds = run(sweep(reusing, over={"e": [0.1, 0.5, 0.9]}, observables=up), tmp_path / "s.zarr")
    np.testing.assert_allclose(ds["up"][:, 0], [0.1, 0.5, 0.9], atol=1e-12)


def test_a_probe_that_failed_does_not_lock_the_store(tmp_path: Path) -> None:
    mended = tmp_path / "mended"

    def once(e: float) -> Any:
        if e == 2.0 and not mended.exists():
            raise OSError("the network is away")
        return problem(e), PLUS

    what = sweep(once, over={"e": [1.0, 2.0, 3.0]})
    with pytest.warns(HeomdaskWarning, match="1 of 3 points failed"):
        run(what, tmp_path / "s.zarr")
    assert what.plan(tmp_path / "s.zarr").pending == 0
    mended.touch()
    assert what.plan(tmp_path / "s.zarr", retry_failed=True).pending == 1
    ds = what.run(tmp_path / "s.zarr", client=SerialRunner(), progress=False, retry_failed=True)
    assert (ds["status"] == hd.Outcome.DONE).all()


def test_no_disorder_no_rng_and_exact_dephasing() -> None:
    assert DEPHASING[0] == 1.0
    with pytest.raises(InputError, match="rng"):
        sweep(build, over={"e": [0.1]}, samples=2)
