"""The store on disk: zarr as others read it, atomic shards, growth, refusals."""

from __future__ import annotations

import multiprocessing
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import xarray as xr
import zarr

from heomdask.errors import StoreError
from heomdask.outcome import Outcome
from heomdask.results.chunks import Files, Shard, Variable
from heomdask.results.store import (
    Coordinate,
    Layout,
    Store,
    check_writable,
    record_failures,
    status_variable,
)

RHO = Variable("rho", "complex128", (("time", 3), ("i", 2), ("j", 2)))
P = Variable("P", "float64", (("time", 3),))


def layout(shard: tuple[int, ...] = (1, 2)) -> Layout:
    return Layout(
        dimensions=("T", "sample"),
        extents=(2, 5),
        coordinates=(
            Coordinate("T", "T", np.array([300.0, 77.0]), "K"),
            Coordinate("sample", "sample", np.arange(5)),
            Coordinate("time", "time", np.array([0.0, 1.0, 2.0]), "fs"),
        ),
        variables=(RHO, P, status_variable()),
        shard=shard,
        attrs={"digest": "x"},
    )


def filled(files: Files, shard: Shard, rng: np.random.Generator) -> dict[str, Any]:
    values = {v.name: files.blank(v) for v in files.variables}
    values["rho"].real = rng.standard_normal(values["rho"].shape)
    values["rho"].imag = rng.standard_normal(values["rho"].shape)
    values["P"][:] = rng.standard_normal(values["P"].shape)
    values["status"][:] = Outcome.DONE
    files.commit(shard, values)
    return values


def test_what_is_committed_is_what_zarr_reads(tmp_path: Path) -> None:
    """A chunk file written here equals, byte for byte, the one that zarr writes."""
    files = Store.create(tmp_path / "a.zarr", layout()).files
    other = zarr.open_group(str(Store.create(tmp_path / "b.zarr", layout()).path), mode="r+")
    values = filled(files, (1, 0), np.random.default_rng(0))
    group = zarr.open_group(str(tmp_path / "a.zarr"), mode="r")
    for name, value in values.items():
        np.testing.assert_array_equal(group[name][1:2, 0:2], value)
        other[name][1:2, 0:2] = value
        ours = files.file(name, (1, 0))
        theirs = Path(str(ours).replace("a.zarr", "b.zarr"))
        assert ours.read_bytes() == theirs.read_bytes()
        np.testing.assert_array_equal(files.read(name, (1, 0)), value)


def test_points_that_are_not_there_are_nan_never_zero(tmp_path: Path) -> None:
    files = Store.create(tmp_path / "s.zarr", layout()).files
    filled(files, (0, 2), np.random.default_rng(0))  # holds sample 4, and padding
    ds = xr.open_zarr(tmp_path / "s.zarr", consolidated=False)
    assert ds["rho"].dims == ("T", "sample", "time", "i", "j")
    missing = ds["rho"].values[1]
    assert np.isnan(missing.real).all()
    assert np.isnan(missing.imag).all()
    assert np.isfinite(ds["rho"].values[0, 4]).all()
    assert ds["T"].attrs["units"] == "K"
    assert ds["status"].attrs["flag_meanings"].split()[Outcome.FAILED] == "failed"
    assert ds["status"].attrs["flag_values"] == [int(o) for o in Outcome]
    assert (ds["status"].values == Outcome.PENDING).sum() == 9
    np.testing.assert_array_equal(Store.open(tmp_path / "s.zarr").status(), ds["status"].values)


def commit_one(files: Files, shard: Shard) -> None:
    filled(files, shard, np.random.default_rng(shard))


def test_many_writers_lose_nothing(tmp_path: Path) -> None:
    """Eight processes, one shard each, three rounds: every value of every member comes back."""
    for round_ in range(3):
        path = tmp_path / f"{round_}.zarr"
        files = Store.create(path, layout((1, 1))).files
        shards = [(i, j) for i in range(2) for j in range(4)]
        with multiprocessing.get_context("fork").Pool(8) as pool:
            pool.starmap(commit_one, [(files, s) for s in shards])
        group = zarr.open_group(str(path), mode="r")
        for i, j in shards:
            rng = np.random.default_rng((i, j))
            real = rng.standard_normal((1, 1, 3, 2, 2))
            np.testing.assert_array_equal(group["rho"][i, j].real, real[0, 0])


def test_a_store_grows_and_keeps_what_it_has(tmp_path: Path) -> None:
    store = Store.create(tmp_path / "s.zarr", layout())
    values = filled(store.files, (0, 2), np.random.default_rng(0))
    values["rho"][0, 1] = np.nan  # what lies beyond the extents is padding
    values["P"][0, 1] = np.nan
    values["status"][0, 1] = Outcome.PENDING
    store.files.commit((0, 2), values)
    added = (
        Coordinate("T", "T", np.array([150.0]), "K"),
        Coordinate("sample", "sample", np.arange(5, 8)),
    )
    grown = store.extend((3, 8), added)
    assert grown.extents == (3, 8)
    assert grown.files.shard == (1, 2)
    ds = xr.open_zarr(tmp_path / "s.zarr", consolidated=False)
    np.testing.assert_array_equal(ds["T"], [300, 77, 150])
    np.testing.assert_array_equal(ds["sample"], np.arange(8))
    np.testing.assert_array_equal(ds["rho"][0, 4], values["rho"][0, 0])
    assert (ds["status"].values != Outcome.PENDING).sum() == 1
    assert np.isnan(ds["rho"].values).sum() == (24 - 1) * 12


def test_an_interrupted_growth_is_healed(tmp_path: Path) -> None:
    store = Store.create(tmp_path / "s.zarr", layout())
    filled(store.files, (0, 0), np.random.default_rng(0))
    before = xr.open_zarr(tmp_path / "s.zarr", consolidated=False).load()
    for name, shape in {"rho": (4, 9, 3, 2, 2), "P": (4, 9, 3), "T": (4,)}.items():
        array = store.group[name]
        assert isinstance(array, zarr.Array)
        array.resize(shape)
    Store.open(tmp_path / "s.zarr").heal()
    xr.testing.assert_identical(
        xr.open_zarr(tmp_path / "s.zarr", consolidated=False).load(), before
    )


def test_leftovers_of_killed_writers_are_swept_away(tmp_path: Path) -> None:
    store = Store.create(tmp_path / "s.zarr", layout())
    filled(store.files, (0, 0), np.random.default_rng(0))
    leftover = store.files.file("rho", (0, 0)).with_name("c.0.1234.partial")
    leftover.write_bytes(b"half a chunk")
    with store.driving():
        assert not leftover.exists()
    assert store.files.file("rho", (0, 0)).exists()


def test_a_store_has_one_driver(tmp_path: Path) -> None:
    store = Store.create(tmp_path / "s.zarr", layout())
    with (
        store.driving(),
        pytest.raises(StoreError, match="in use"),
        Store.open(store.path).driving(),
    ):
        pass
    with store.driving():
        pass


def test_failures_are_kept_as_text(tmp_path: Path) -> None:
    store = Store.create(tmp_path / "s.zarr", layout())
    record_failures(str(store.path), {(1, 3): ("no", "Traceback: no"), (0, 0): ("never", "")})
    ds = xr.open_zarr(store.path, consolidated=False)
    assert ds["error"].values[1, 3] == "no"
    assert ds["traceback"].values[1, 3] == "Traceback: no"
    assert (ds["error"].values == "").sum() == 8


@pytest.mark.parametrize("kind", ["file", "folder", "zarr", "format", "chunks"])
def test_what_is_not_our_store_is_refused(tmp_path: Path, kind: str) -> None:
    path = tmp_path / "s.zarr"
    if kind == "file":
        path.write_text("text")
    elif kind == "folder":
        path.mkdir()
        (path / "thesis.tex").write_text("text")
    elif kind == "zarr":
        zarr.create_group(str(path))
    else:
        store = Store.create(path, layout())
        if kind == "format":
            store.group.attrs["heomdask_store"] = 99
        else:
            store.group.attrs["shard"] = [1, 1]  # two shards in one chunk: points would be lost
    with pytest.raises(StoreError, match=r"`store` must|damaged"):
        Store.open(path)


@pytest.mark.parametrize("place", ["file/s.zarr", "file", "/proc/s.zarr"])
def test_a_place_that_cannot_be_written_is_refused(tmp_path: Path, place: str) -> None:
    (tmp_path / "file").write_text("not a folder")
    with pytest.raises(StoreError, match="choose another path"):
        check_writable(tmp_path / place)


def test_a_damaged_chunk_is_named(tmp_path: Path) -> None:
    files = Store.create(tmp_path / "s.zarr", layout()).files
    filled(files, (0, 0), np.random.default_rng(0))
    files.file("P", (0, 0)).write_bytes(b"short")
    with pytest.raises(StoreError, match="damaged"):
        files.read("P", (0, 0))
