"""The places of stores: the same contract on local paths, in memory and on S3."""

from __future__ import annotations

import errno
import fcntl
import json
import pickle
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import xarray as xr
import zarr
from store_support import filled, layout

import heomdask as hd
from heomdask.errors import HeomdaskWarning, StoreError
from heomdask.outcome import Outcome
from heomdask.results import lease
from heomdask.results.folder import LOCK, Folder, folder_of
from heomdask.results.lease import LEASE
from heomdask.results.store import Coordinate, Store, record_failures


@pytest.fixture
def folder(place: str) -> Folder:
    return folder_of(place)


@pytest.fixture(params=["local", "memory", "s3"])
def leased(
    request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Store:
    """A store that is held by a lease; a local one on a file system without locks."""

    def without_locks(*_: Any) -> None:
        raise OSError(errno.ENOLCK, "No locks available")

    monkeypatch.setattr(fcntl, "flock", without_locks)
    monkeypatch.setattr(lease, "RENEWED", 0.05)
    name = f"{tmp_path.name}-{time.time_ns()}.zarr"
    places = {"local": str(tmp_path / name), "memory": f"memory://stores/{name}"}
    place = places.get(request.param) or f"{request.getfixturevalue('s3_bucket')}/{name}"
    return Store.create(folder_of(place), layout())


def held_by(store: Store, **changes: Any) -> bytes:
    """A lease of another run, as it lies in the store."""
    now = time.time()
    holder = {"token": "x", "who": "emmy", "host": "far", "pid": 7, "since": now, "renewed": now}
    store.folder.write({LEASE: json.dumps(holder | changes).encode()})
    return store.folder.read([LEASE])[LEASE]


def test_files_are_read_written_listed_and_deleted(folder: Folder) -> None:
    assert folder.names() == []
    folder.create({"zarr.json": b"{}", "status/zarr.json": b"{}"})
    assert sorted(folder.names()) == ["status", "zarr.json"]
    folder.write({"status/c.0": b"old", "status/c.[1]*": b"2"})
    folder.write({"status/c.0": memoryview(b"new ones")})
    folder.claim("status/c.0", b"never")
    folder.claim("status/c.3", b"first")
    found = folder.read(["status/c.0", "status/c.[1]*", "status/c.2", "zarr.json/c.0"])
    assert found == {"status/c.0": b"new ones", "status/c.[1]*": b"2"}
    sizes = folder.sizes("status")
    assert sizes == {"zarr.json": 2, "c.0": 8, "c.[1]*": 1, "c.3": 5}
    written = folder.written("status")
    assert written.keys() == sizes.keys()
    assert all(abs(when - time.time()) < 60 for when in written.values())
    folder.delete(["status/c.0", "status/c.2"])
    assert folder.exists("status/c.3")
    assert not folder.exists("status/c.0")


@pytest.mark.parametrize("place", ["local", "s3"], indirect=True)
def test_a_folder_travels_without_its_lease(place: str, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = Store.create(folder_of(place), layout()).folder
    with folder._leased():
        copy = pickle.loads(pickle.dumps(folder))
    monkeypatch.setattr("fsspec.config.conf", {})  # elsewhere, it is another
    assert copy._lease is None
    assert str(copy) == str(folder)
    assert copy.read(["zarr.json"]) == folder.read(["zarr.json"])


def test_what_is_in_memory_does_not_travel() -> None:
    with pytest.raises(StoreError, match=r"memory of this process; give client=SerialRunner\(\)"):
        pickle.dumps(folder_of("memory://stores/x.zarr"))


def test_what_is_committed_is_what_zarr_and_xarray_read(folder: Folder) -> None:
    files = Store.create(folder, layout()).files
    values = filled(files, (1, 0), np.random.default_rng(0))
    group = zarr.open_group(folder.zarr(), mode="r")
    for name, value in values.items():
        np.testing.assert_array_equal(group[name][1:2, 0:2], value)
        np.testing.assert_array_equal(files.read(name, (1, 0)), value)
    dataset = xr.open_zarr(folder.zarr(), consolidated=False, chunks=None)
    assert np.isnan(dataset["P"].values[0]).all()
    np.testing.assert_array_equal(Store.open(folder).status(), dataset["status"].values)


def test_a_store_grows_and_an_interrupted_growth_is_healed(folder: Folder) -> None:
    store = Store.create(folder, layout())
    filled(store.files, (0, 0), np.random.default_rng(0))
    before = hd.open(str(folder)).load()
    for name, shape in {"rho": (4, 9, 3, 2, 2), "T": (4,)}.items():
        array: Any = store.group[name]
        array.resize(shape)
    healed = Store.open(folder).heal()
    xr.testing.assert_identical(hd.open(str(folder)).load(), before)
    grown = healed.extend((2, 6), (Coordinate("sample", "sample", np.array([5])),))
    assert grown.extents == (2, 6)
    assert hd.open(str(folder))["sample"].values.tolist() == list(range(6))


@pytest.mark.parametrize("how", ["cut", "gone"])
@pytest.mark.parametrize("name", ["P", "status"])
def test_damaged_files_are_named_and_their_points_are_pending(
    folder: Folder, name: str, how: str
) -> None:
    store = Store.create(folder, layout())
    for shard in ((0, 0), (0, 1)):
        filled(store.files, shard, np.random.default_rng(0))
    broken = store.files.file(name, (0, 1))
    if how == "cut":
        folder.write({broken: b"short"})
    else:
        folder.delete([broken])
    assert store.status().tolist() == [[1, 1, 0, 0, 0], [0] * 5]
    if (name, how) == ("status", "gone"):  # as if it was never written
        return
    with pytest.raises(StoreError, match=rf"{folder}/{broken} is damaged or missing"):
        hd.open(str(folder))
    with pytest.warns(HeomdaskWarning, match=f"the first is {folder}/{broken}"):
        assert store.heal().damaged() == []
    assert store.status().tolist() == [[1, 1, 0, 0, 0], [0] * 5]


def test_failures_are_kept_and_forgotten(folder: Folder) -> None:
    store = Store.create(folder, layout((1, 1)))
    record_failures(folder, {(1, 3): ("no", "Traceback: no")})
    values = store.files.blanks()
    values["status"][:] = Outcome.FAILED
    store.files.commit((1, 3), values)
    assert hd.open(str(folder))["error"].values[1, 3] == "no"
    store.forget(Outcome.FAILED)
    assert not store.status().any()
    assert (hd.open(str(folder))["error"].values == "").all()


def test_a_store_that_was_deleted_is_not_written_to(folder: Folder) -> None:
    files = Store.create(folder, layout()).files
    folder.delete(["zarr.json"])
    for work in (
        lambda: files.read("status", (0, 0)),
        lambda: filled(files, (0, 0), np.random.default_rng(0)),
        lambda: record_failures(folder, {(0, 0): ("no", "no")}),
        folder.require,
    ):
        with pytest.raises(StoreError, match="was deleted while the sweep ran; run"):
            work()
    assert folder.sizes("rho").keys() == {"zarr.json"}


def test_what_is_no_store_is_refused(folder: Folder) -> None:
    with pytest.raises(StoreError, match="where nothing is"):
        Store.open(folder)
    folder.create({"zarr.json": b"{}", "thesis.tex": b"text"})
    folder.delete(["zarr.json"])
    assert folder.names() == ["thesis.tex"]
    with pytest.raises(StoreError, match=r"which has no zarr\.json"):
        Store.open(folder)


def test_a_store_has_one_driver(folder: Folder) -> None:
    store = Store.create(folder, layout())
    for _ in range(2):
        with (
            store.driving(),
            pytest.raises(StoreError, match=f"{folder} is in use by another run"),
            Store.open(folder_of(str(folder))).driving(),
        ):
            pass


def test_a_store_tells_whether_it_has_a_driver(folder: Folder, leased: Store) -> None:
    for store in (Store.create(folder, layout()), leased):
        looking = folder_of(store.folder)
        assert not looking.driven()
        with store.driving():
            assert looking.driven()
        assert not looking.driven()


def test_who_looks_for_a_driver_keeps_none_away(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = Store.create(folder_of(tmp_path / "s.zarr"), layout())
    with (tmp_path / "s.zarr" / LOCK).open("wb") as looking:
        fcntl.flock(looking, fcntl.LOCK_SH)
        monkeypatch.setattr(time, "sleep", lambda seconds: fcntl.flock(looking, fcntl.LOCK_UN))
        with store.driving():
            assert store.folder.driven()


def test_a_lease_says_who_holds_the_store_since_when(leased: Store) -> None:
    before = held_by(leased, since=1e9)
    said = r"of emmy on far \(process 7, since 2001-09-0\d .*\); wait for it, or end it\."
    with pytest.raises(StoreError, match=said), leased.driving():
        pass
    assert leased.folder.read([LEASE])[LEASE] == before


@pytest.mark.parametrize("how", ["old", "process gone", "cut"])
def test_a_stale_lease_is_taken_over_with_a_word(
    leased: Store, how: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    if how == "cut":
        leased.folder.write({LEASE: b'{"tok'})
    elif how == "old":
        held_by(leased, renewed=time.time() - 61)
    else:
        monkeypatch.setattr(lease.psutil, "pid_exists", lambda pid: pid != 7)
        held_by(leased, host=lease.socket.gethostname())
    said = "without a word; this run takes it over"
    with pytest.warns(HeomdaskWarning, match=said), leased.driving():
        pass
    assert not leased.folder.exists(LEASE)


def test_a_lease_is_renewed_while_it_is_held(leased: Store) -> None:
    with leased.driving():
        first = leased.folder.read([LEASE])[LEASE]
        wait_until(lambda: leased.folder.read([LEASE])[LEASE] != first)
        leased.folder.require()


@pytest.mark.parametrize("how", ["taken", "deleted"])
def test_a_driver_that_lost_its_lease_stops(leased: Store, how: str) -> None:
    """A machine that was suspended, say, while another run took the store over."""

    def lost() -> bool:  # again and again, since a renewal may be on its way
        if how == "deleted":
            leased.folder.delete([LEASE])
        else:
            held_by(leased)
        return refused(leased.folder)

    with leased.driving():
        wait_until(lost)
        with pytest.raises(StoreError, match=r"no longer holds the store .*(emmy|deleted)"):
            leased.folder.require()
    assert leased.folder.exists(LEASE) == (how == "taken")  # which is the other's


def test_of_two_claims_at_once_one_holds(leased: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    def other_writes(_: float) -> None:
        held_by(leased)

    monkeypatch.setattr(lease.time, "sleep", other_writes)
    with pytest.raises(StoreError, match="in use by another run, that of emmy"), leased.driving():
        pass


def refused(folder: Folder) -> bool:
    try:
        folder.require()
    except StoreError:
        return True
    return False


def wait_until(condition: Any) -> None:
    end = time.monotonic() + 60
    while not condition():
        assert time.monotonic() < end, "waited too long"
        time.sleep(0.02)


@pytest.mark.parametrize("place", ["memory", "s3"], indirect=True)
def test_half_a_store_of_a_killed_run_is_made_again(place: str) -> None:
    """Its lease marks it; files of an array that the new one has not are gone."""
    folder = folder_of(place)
    gone = {"token": "x", "who": "emmy", "host": "far", "pid": 7, "since": 0.0, "renewed": 0.0}
    folder.write({LEASE: json.dumps(gone).encode(), "old/zarr.json": b"{}"})
    assert folder.names() == []
    with pytest.warns(HeomdaskWarning, match="takes it over"):
        store = Store.create(folder, layout())
    assert "old" not in folder.names()
    assert store.damaged() == []
    with pytest.raises(StoreError, match="has just been made by another run"):
        Store.create(folder, layout())


@pytest.mark.parametrize("place", ["memory", "s3"], indirect=True)
def test_a_store_that_cannot_be_made_leaves_nothing(
    place: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = folder_of(place)
    write = folder.write

    def failing(files: Any) -> None:
        if "zarr.json" in files:
            raise StoreError("the network is away")
        write(files)

    monkeypatch.setattr(folder, "write", failing)
    with pytest.raises(StoreError, match="away"):
        Store.create(folder, layout())
    assert folder_of(place).names() == []


def test_a_file_url_is_a_local_path(tmp_path: Path) -> None:
    store = Store.create(folder_of(f"file://{tmp_path}/s.zarr"), layout())
    assert str(store.folder) == str(tmp_path / "s.zarr")
    assert hd.open(f"file://{tmp_path}/s.zarr").sizes["sample"] == 5


@pytest.mark.parametrize(
    ("url", "said"),
    [
        ("nowhere://bucket/x.zarr", r"Protocol not known: nowhere\); install .*heomdask\[s3\]"),
        ("memory://", "must be one URL with a name"),
        ("simplecache::memory://x.zarr", "must be one URL with a name"),
        (Path("s3://bucket/x.zarr"), "must be text if it is a URL"),
    ],
)
def test_a_url_that_cannot_be_used_is_refused(url: Any, said: str) -> None:
    with pytest.raises(StoreError, match=said):
        folder_of(url)


def test_a_missing_package_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    def missing(*_: Any, **__: Any) -> None:
        raise ImportError("Install s3fs to access S3")

    monkeypatch.setattr("fsspec.core.url_to_fs", missing)
    with pytest.raises(StoreError, match=r"Install s3fs to access S3\); .*pip install 'heomdask\["):
        folder_of("s3://bucket/x.zarr")


def test_a_missing_bucket_is_refused(s3_bucket: str) -> None:
    folder = folder_of(s3_bucket + "-not-there/x.zarr")
    with pytest.raises(StoreError, match=r"bucket does not exist\); make its bucket first"):
        folder.require_writable()
    with pytest.raises(StoreError, match="where nothing is"):
        Store.open(folder)


def test_missing_credentials_are_refused(
    s3_bucket: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    import fsspec

    settings = {**fsspec.config.conf["s3"], "config_kwargs": {"user_agent_extra": "nobody"}}
    monkeypatch.setitem(fsspec.config.conf, "s3", settings)  # a session of its own
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"):
        monkeypatch.delenv(name)
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")
    monkeypatch.setenv("AWS_SHARED_CREDENTIALS_FILE", str(tmp_path / "none"))
    monkeypatch.setenv("AWS_CONFIG_FILE", str(tmp_path / "none"))
    folder = folder_of(f"{s3_bucket}/x.zarr")
    for use in (folder.require_writable, lambda: Store.open(folder)):
        with pytest.raises(StoreError, match=r"locate credentials\); set .*AWS_ACCESS_KEY_ID"):
            use()


def test_a_place_out_of_reach_is_refused(s3_bucket: str, monkeypatch: pytest.MonkeyPatch) -> None:
    import fsspec

    away = {"endpoint_url": "http://127.0.0.1:9", "config_kwargs": {"retries": {"max_attempts": 0}}}
    monkeypatch.setitem(fsspec.config.conf, "s3", away)
    monkeypatch.setattr("s3fs.core.S3FileSystem.retries", 1)
    with pytest.raises(StoreError, match=r"127\.0\.0\.1:9.*check the URL, its endpoint, and the"):
        folder_of(f"{s3_bucket}/x.zarr").require_writable()
