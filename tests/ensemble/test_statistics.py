"""Means over members: quadrature, Monte Carlo, and what is missing."""

from __future__ import annotations

import dataclasses
import json
import tracemalloc
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import xarray as xr
from ensemble_support import DEPHASING, TIMES, disordered, sweep

import heomdask as hd
from heomdask.ensemble.runner import SerialRunner
from heomdask.errors import HeomdaskWarning, InputError
from heomdask.results import dataset
from heomdask.results.folder import folder_of
from heomdask.results.moments import Moments
from heomdask.results.store import Store

CASES = Path(__file__).parents[1] / "cases" / "data"
A07 = json.loads((CASES / "A07_static_disorder_ensemble.json").read_text())
NODES = A07["gauss_hermite_nodes"]
MEAN = np.array(A07["mean_rho01_exact"])


def run(what: hd.Sweep, store: Path) -> xr.Dataset:
    return what.run(store, client=SerialRunner(), progress=False)


@pytest.fixture(scope="module")
def nodes(tmp_path_factory: pytest.TempPathFactory) -> xr.Dataset:
    """The 20 Gauss-Hermite nodes as an explicit table."""
    return run(sweep(over=hd.Table({"e": NODES["e"]})), tmp_path_factory.mktemp("A07") / "s.zarr")


def test_a_quadrature_over_disorder_is_exact(nodes: xr.Dataset) -> None:
    found = hd.mean(nodes, "point", weights=NODES["weight"])
    np.testing.assert_allclose(found["c"], MEAN, atol=1e-6)
    np.testing.assert_array_equal(found["count"], 20)


def test_a_sample_mean_lies_within_four_standard_errors(tmp_path: Path) -> None:
    n = 400
    ds = run(sweep(disordered, over={"T": [1.0]}, samples=n), tmp_path / "s.zarr")
    found = hd.mean(ds).isel(T=0)
    s, t = 0.3, np.array(TIMES)
    spread = 1 + np.exp(-2 * s**2 * t**2) - 2 * np.exp(-(s**2) * t**2)
    exact_error = np.sqrt(0.125 * DEPHASING**2 * spread / n)
    assert np.all(np.abs(found["c"].values.real - MEAN) <= 4 * exact_error + 1e-5)
    np.testing.assert_allclose(found["c_error"].values.real, exact_error, rtol=0.25, atol=1e-9)


def test_a_mean_keeps_coordinates_and_their_units(tmp_path: Path) -> None:
    """Pictures draw against them, and `sel` needs them."""
    times, temperatures = hd.axis([0, 10, 20], "fs"), hd.axis([77, 300], "K")
    what = sweep(disordered, over={"T": temperatures}, times=times, samples=2)
    ds = run(what, tmp_path / "s.zarr")
    for found in (hd.mean(ds), hd.mean(ds, weights=[0.5, 0.5])):
        assert set(found.coords) == {"T", "time"}
        for name in ("T", "time"):
            xr.testing.assert_identical(found[name], ds[name])
        assert found["c"].sel(T=300, time=20).size == 1


def test_missing_members_are_never_averaged_as_zeros(tmp_path: Path, nodes: xr.Dataset) -> None:
    """17 of 20 members: the mean of those 17, and it says so."""
    what = sweep(over=hd.Table({"e": NODES["e"]}))
    run(what, tmp_path / "s.zarr")
    store = Store.open(folder_of(tmp_path / "s.zarr"))
    for point in (0, 9, 10):
        for variable in store.files.variables:
            store.folder.delete([store.files.file(variable.name, (point,))])
    ds = hd.open(tmp_path / "s.zarr")
    there = np.setdiff1d(np.arange(20), [0, 9, 10])
    with pytest.warns(HeomdaskWarning, match="leaves out 3 of 20"):
        found = hd.mean(ds, "point")
    assert int(found["count"]) == 17
    np.testing.assert_allclose(found["c"], nodes["c"].values[there].mean(axis=0), rtol=1e-13)
    weights = np.array(NODES["weight"])
    with pytest.warns(HeomdaskWarning):
        found = hd.mean(ds, "point", weights=weights)
    expected = weights[there] @ nodes["c"].values[there] / weights[there].sum()
    np.testing.assert_allclose(found["c"], expected, rtol=1e-12)


def test_a_mean_says_what_it_is(tmp_path: Path) -> None:
    found = hd.mean(run(sweep(disordered, over={"T": [1.0]}, samples=3), tmp_path / "s.zarr"))
    assert "flag_values" not in found["c"].attrs | found["c_error"].attrs | found["count"].attrs
    assert found["c_error"].attrs["long_name"] == "standard error of the mean of c over sample"


def test_a_mean_of_lost_numbers_is_nan(tmp_path: Path) -> None:
    run(sweep(disordered, over={"T": [1.0]}, samples=3), tmp_path / "s.zarr")
    store = Store.open(folder_of(tmp_path / "s.zarr"))
    store.folder.delete([store.files.file("c", (0, 1))])
    found = xr.open_zarr(tmp_path / "s.zarr", consolidated=False)
    assert np.isnan(hd.mean(found)["c"].values).all()


def test_where_nothing_is_there_the_mean_is_nan(tmp_path: Path) -> None:
    run(sweep(disordered, over={"T": [1.0]}, samples=3), tmp_path / "s.zarr")
    store = Store.open(folder_of(tmp_path / "s.zarr"))
    for sample in range(3):
        store.folder.delete([store.files.file("status", (0, sample))])
    with pytest.warns(HeomdaskWarning, match="at least 0 of 3"):
        found = hd.mean(hd.open(tmp_path / "s.zarr"))
    assert np.isnan(found["c"].values).all()


@pytest.mark.parametrize(
    ("over", "weights", "said"), [("sample", None, "`over`"), ("point", [1.0], "`weights`")]
)
def test_wrong_means_are_refused(nodes: xr.Dataset, over: str, weights: Any, said: str) -> None:
    with pytest.raises(InputError, match=said):
        hd.mean(nodes, over, weights=weights)


def test_a_mean_reads_one_block_at_a_time(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The statistics of a store that is larger than what may be in memory."""
    what = sweep(disordered, over={"T": [0.5, 1.0]}, samples=96, times=np.linspace(0, 1, 1600))
    ds = run(dataclasses.replace(what, depth=1, save="rho", expansion=hd.Pade(1)), tmp_path / "s")
    weights = np.linspace(1, 2, 96)
    whole, weighted = hd.mean(ds), hd.mean(ds, weights=weights)
    largest = ds["rho"].nbytes
    monkeypatch.setattr(dataset, "BLOCK_NBYTES", largest // 16)
    lazy = hd.open(tmp_path / "s")
    tracemalloc.start()
    found = hd.mean(lazy)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert not lazy["rho"].variable._in_memory
    assert peak < largest // 2
    np.testing.assert_allclose(found["rho"], whole["rho"], rtol=1e-13, atol=1e-16)
    np.testing.assert_allclose(found["rho_error"], whole["rho_error"], rtol=1e-10, atol=1e-15)
    again = hd.mean(lazy, weights=weights)
    np.testing.assert_allclose(again["rho"], weighted["rho"], rtol=1e-13, atol=1e-16)
    over_axis = hd.mean(lazy, "T")
    np.testing.assert_allclose(over_axis["rho"], ds["rho"].mean("T"), rtol=1e-13, atol=1e-16)


def test_merged_moments_do_not_cancel() -> None:
    """Numbers of spread 1 around a million million, one by one: variances to many digits."""
    values = 1e12 + np.random.default_rng(1).standard_normal((500, 3))
    good = np.random.default_rng(2).random((500, 3)) > 0.1
    merged = Moments.of(values[:1], good[:1])
    for k in range(1, 500):
        merged = merged.merge(Moments.of(values[k : k + 1], good[k : k + 1]))
    for j in range(3):
        kept = values[good[:, j], j]
        assert merged.count[j] == len(kept)
        assert merged.squares[j] == pytest.approx(kept.var() * len(kept), rel=1e-3)
