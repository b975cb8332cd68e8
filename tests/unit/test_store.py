"""The store on disk: zarr as others read it, atomic shards, growth, refusals."""

from __future__ import annotations

import json
import multiprocessing
import shutil
from pathlib import Path

import numpy as np
import pytest
import xarray as xr
import zarr
from store_support import filled, layout

from heomdask.errors import HeomdaskWarning, StoreError
from heomdask.outcome import Outcome
from heomdask.results.chunks import Files, Shard
from heomdask.results.dataset import open as open_dataset
from heomdask.results.folder import folder_of
from heomdask.results.store import Coordinate, Store, record_failures


def path_of(files: Files, name: str, shard: Shard) -> Path:
    return Path(str(files.folder), files.file(name, shard))


def test_what_is_committed_is_what_zarr_reads(tmp_path: Path) -> None:
    """A chunk file written here equals, byte for byte, the one that zarr writes."""
    files = Store.create(folder_of(tmp_path / "a.zarr"), layout()).files
    other = zarr.open_group(
        Store.create(folder_of(tmp_path / "b.zarr"), layout()).folder.zarr(), mode="r+"
    )
    values = filled(files, (1, 0), np.random.default_rng(0))
    group = zarr.open_group(str(tmp_path / "a.zarr"), mode="r")
    for name, value in values.items():
        np.testing.assert_array_equal(group[name][1:2, 0:2], value)
        other[name][1:2, 0:2] = value
        ours = path_of(files, name, (1, 0))
        theirs = Path(str(ours).replace("a.zarr", "b.zarr"))
        assert ours.read_bytes() == theirs.read_bytes()
        np.testing.assert_array_equal(files.read(name, (1, 0)), value)


def test_points_that_are_not_there_are_nan_never_zero(tmp_path: Path) -> None:
    files = Store.create(folder_of(tmp_path / "s.zarr"), layout()).files
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
    np.testing.assert_array_equal(
        Store.open(folder_of(tmp_path / "s.zarr")).status(), ds["status"].values
    )


def commit_one(files: Files, shard: Shard) -> None:
    filled(files, shard, np.random.default_rng(shard))


def test_many_writers_lose_nothing(tmp_path: Path) -> None:
    """Eight processes, one shard each, three rounds: every value of every member comes back."""
    for round_ in range(3):
        path = tmp_path / f"{round_}.zarr"
        files = Store.create(folder_of(path), layout((1, 1))).files
        shards = [(i, j) for i in range(2) for j in range(4)]
        with multiprocessing.get_context("fork").Pool(8) as pool:
            pool.starmap(commit_one, [(files, s) for s in shards])
        group = zarr.open_group(str(path), mode="r")
        for i, j in shards:
            rng = np.random.default_rng((i, j))
            real = rng.standard_normal((1, 1, 3, 2, 2))
            np.testing.assert_array_equal(group["rho"][i, j].real, real[0, 0])


def test_a_store_grows_and_keeps_what_it_has(tmp_path: Path) -> None:
    store = Store.create(folder_of(tmp_path / "s.zarr"), layout())
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
    store = Store.create(folder_of(tmp_path / "s.zarr"), layout())
    filled(store.files, (0, 0), np.random.default_rng(0))
    before = xr.open_zarr(tmp_path / "s.zarr", consolidated=False).load()
    for name, shape in {"rho": (4, 9, 3, 2, 2), "P": (4, 9, 3), "T": (4,)}.items():
        array = store.group[name]
        assert isinstance(array, zarr.Array)
        array.resize(shape)
    Store.open(folder_of(tmp_path / "s.zarr")).heal()
    xr.testing.assert_identical(
        xr.open_zarr(tmp_path / "s.zarr", consolidated=False).load(), before
    )


def test_leftovers_of_killed_writers_are_swept_away(tmp_path: Path) -> None:
    store = Store.create(folder_of(tmp_path / "s.zarr"), layout())
    filled(store.files, (0, 0), np.random.default_rng(0))
    leftover = path_of(store.files, "rho", (0, 0)).with_name("c.0.1234.partial")
    leftover.write_bytes(b"half a chunk")
    half = f".{'0f' * 16}.partial"
    for beside in ("s.zarr", "other.zarr", "s.zarr.v2"):
        (tmp_path / f"{beside}{half}" / "rho").mkdir(parents=True)
    with store.driving():
        assert not leftover.exists()
        left = sorted(p.name for p in tmp_path.glob("*.partial"))
        assert left == [f"other.zarr{half}", f"s.zarr.v2{half}"]
    assert path_of(store.files, "rho", (0, 0)).exists()


def test_a_store_has_one_driver(tmp_path: Path) -> None:
    store = Store.create(folder_of(tmp_path / "s.zarr"), layout())
    with (
        store.driving(),
        pytest.raises(StoreError, match="in use"),
        Store.open(store.folder).driving(),
    ):
        pass
    with store.driving():
        pass


def test_failures_are_kept_as_text(tmp_path: Path) -> None:
    store = Store.create(folder_of(tmp_path / "s.zarr"), layout())
    record_failures(store.folder, {(1, 3): ("no", "Traceback: no"), (0, 0): ("never", "")})
    ds = xr.open_zarr(str(store.folder), consolidated=False)
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
        store = Store.create(folder_of(path), layout())
        if kind == "format":
            store.group.attrs["heomdask_store"] = 99
        else:
            store.group.attrs["shard"] = [1, 1]  # two shards in one chunk: points would be lost
    with pytest.raises(StoreError, match=r"`store` must|damaged"):
        Store.open(folder_of(path))


@pytest.mark.parametrize("place", ["file/s.zarr", "file", "/proc/s.zarr"])
def test_a_place_that_cannot_be_written_is_refused(tmp_path: Path, place: str) -> None:
    (tmp_path / "file").write_text("not a folder")
    with pytest.raises(StoreError, match="choose another path"):
        folder_of(tmp_path / place).require_writable()


def test_a_damaged_chunk_is_named(tmp_path: Path) -> None:
    files = Store.create(folder_of(tmp_path / "s.zarr"), layout()).files
    filled(files, (0, 0), np.random.default_rng(0))
    path_of(files, "P", (0, 0)).write_bytes(b"short")
    with pytest.raises(StoreError, match="damaged"):
        files.read("P", (0, 0))


@pytest.mark.parametrize("how", ["cut", "gone"])
def test_points_of_damaged_chunks_are_pending_again_and_no_others(tmp_path: Path, how: str) -> None:
    store = Store.create(folder_of(tmp_path / "s.zarr"), layout())
    rng = np.random.default_rng(0)
    for shard in ((0, 0), (0, 1), (1, 0)):
        filled(store.files, shard, rng)
    kept = store.files.read("rho", (0, 1))
    broken = path_of(store.files, "P", (0, 1))
    if how == "cut":
        broken.write_bytes(broken.read_bytes()[:-1])
    else:
        broken.unlink()
    assert store.damaged() == [str(broken)]
    with pytest.raises(StoreError, match=rf"{broken} is damaged or missing; run the sweep again"):
        open_dataset(store.folder)
    expected = [[1, 1, 0, 0, 0], [1, 1, 0, 0, 0]]
    assert store.status().tolist() == expected  # before it is mended, too
    with pytest.warns(HeomdaskWarning, match="1 shards are damaged"):
        healed = store.heal()
    assert healed.damaged() == []
    assert healed.status().tolist() == expected
    np.testing.assert_array_equal(healed.files.read("rho", (0, 1)), kept)
    assert np.isnan(healed.files.read("P", (0, 1))).all()


def test_a_damaged_status_leaves_its_points_pending(tmp_path: Path) -> None:
    store = Store.create(folder_of(tmp_path / "s.zarr"), layout())
    filled(store.files, (0, 0), np.random.default_rng(0))
    path_of(store.files, "status", (0, 0)).write_bytes(b"")
    assert not store.status().any()
    with pytest.warns(HeomdaskWarning, match="damaged or missing"):
        assert store.heal().damaged() == []


def test_points_without_values_need_no_files(tmp_path: Path) -> None:
    """A copy made by other programs leaves out chunks that hold only NaN."""
    store = Store.create(folder_of(tmp_path / "s.zarr"), layout())
    values = store.files.blanks()
    values["status"][:] = Outcome.FAILED
    store.files.commit((0, 0), values)
    for name in ("rho", "P"):
        path_of(store.files, name, (0, 0)).unlink()
    assert store.damaged() == []


@pytest.mark.parametrize("text", ["", "{", "{}", '{"node_type": "array", "zarr_format": 3}', None])
@pytest.mark.parametrize("folder", [".", "rho", "status", "T", "time", "error"])
def test_damaged_metadata_is_named(tmp_path: Path, folder: str, text: str | None) -> None:
    path = Store.create(folder_of(tmp_path / "s.zarr"), layout()).folder
    file = Path(str(path)) / folder / "zarr.json"
    if text is None:
        document = json.loads(file.read_text())
        del document["attributes" if folder == "." else "fill_value"]
        text = json.dumps(document)
    file.write_text(text)
    with pytest.raises(StoreError, match=r"zarr\.json .*damaged.* put a copy of .* back") as caught:
        open_dataset(path)
    assert folder in str(caught.value)


@pytest.mark.parametrize("attribute", ["digest", "probes", "shard", "specification"])
def test_a_missing_attribute_is_named(tmp_path: Path, attribute: str) -> None:
    store = Store.create(folder_of(tmp_path / "s.zarr"), layout())
    del store.group.attrs[attribute]
    with pytest.raises(StoreError, match=rf"zarr\.json is damaged .*lacks .*'{attribute}'"):
        Store.open(store.folder)


@pytest.mark.parametrize("how", ["cut", "gone"])
def test_a_damaged_coordinate_is_named(tmp_path: Path, how: str) -> None:
    store = Store.create(folder_of(tmp_path / "s.zarr"), layout())
    chunk = Path(str(store.folder)) / "T" / "c" / "0"
    if how == "cut":
        chunk.write_bytes(b"1")
    else:
        chunk.unlink()
    with pytest.raises(StoreError, match=r"T is damaged .* put a copy of it back"):
        store.labels(("T",))


def test_an_empty_folder_is_filled_and_stays(tmp_path: Path) -> None:
    """It may be a mount point, which cannot be replaced; so may the target of a link."""
    folder, link, later = tmp_path / "disk", tmp_path / "link.zarr", tmp_path / "later.zarr"
    folder.mkdir()
    link.symlink_to(folder)
    later.symlink_to(tmp_path / "not yet")
    before = folder.stat().st_ino
    folder_of(link).require_writable()
    Store.create(folder_of(link), layout())
    assert folder.stat().st_ino == before
    assert Store.open(folder_of(folder)).extents == (2, 5)
    assert not list(folder.glob("*.partial"))
    Store.create(folder_of(later), layout())
    assert Store.open(folder_of(tmp_path / "not yet")).extents == (2, 5)


def test_a_store_that_was_deleted_is_not_written_to(tmp_path: Path) -> None:
    files = Store.create(folder_of(tmp_path / "s.zarr"), layout()).files
    shutil.rmtree(tmp_path / "s.zarr")
    for work in (
        lambda: files.read("status", (0, 0)),
        lambda: filled(files, (0, 0), np.random.default_rng(0)),
        lambda: record_failures(files.folder, {(0, 0): ("no", "no")}),
    ):
        with pytest.raises(StoreError, match="was deleted while the sweep ran; run"):
            work()
    assert list(tmp_path.iterdir()) == []
