"""Sweeps whose stores lie in a local folder, in memory, or on S3: one behaviour."""

from __future__ import annotations

import os
import signal
import threading
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import xarray as xr
from ensemble_support import assert_same_bits, build, disordered, sweep

import heomdask as hd
from heomdask.cli import main
from heomdask.ensemble.cluster import connect
from heomdask.ensemble.runner import SerialRunner
from heomdask.errors import HeomdaskWarning, StoreError
from heomdask.outcome import Outcome
from heomdask.results import dataset
from heomdask.results.folder import folder_of
from heomdask.results.store import Store

ENERGIES = [0.3, 0.1]


def run(what: hd.Sweep, store: Any) -> xr.Dataset:
    return what.run(store, client=SerialRunner(), progress=False)


def test_a_sweep_is_run_resumed_and_extended(place: str, tmp_path: Path) -> None:
    """New values and samples beside the old ones; all equal, bit for bit, to a sweep at once."""
    small = sweep(disordered, over={"T": [1.0]}, samples=3, save="observables")
    large = sweep(disordered, over={"T": [0.5, 1.0]}, samples=4, save="observables")
    run(small, place)
    assert small.plan(place).pending == 0
    assert large.plan(place).pending == 5
    grown = run(large, place)
    assert_same_bits(grown, run(large, tmp_path / "once.zarr"))
    assert_same_bits(grown, hd.open(place))
    status = folder_of(place).read(["status/c.0.0"])
    run(large, place)
    assert folder_of(place).read(["status/c.0.0"]) == status
    other = sweep(disordered, over={"T": [1.0]}, samples=3, save="observables", seed=7)
    with pytest.raises(StoreError, match="belongs to another sweep: `seed`"):
        run(other, place)


def test_a_mean_streams_from_where_the_store_lies(
    place: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    what = sweep(disordered, over={"T": [0.5, 1.0]}, samples=4)
    found = hd.mean(run(what, place).load())
    lazy = hd.open(place)
    monkeypatch.setattr(dataset, "BLOCK_NBYTES", lazy["rho"].nbytes // 4)
    blocks = hd.mean(lazy)
    assert not lazy["rho"].variable._in_memory
    for name in ("rho", "rho_error", "count"):
        np.testing.assert_allclose(blocks[name], found[name], rtol=1e-10, atol=1e-15)


def test_points_of_damaged_files_are_computed_again(place: str) -> None:
    what = sweep(over={"e": ENERGIES})
    once = run(what, place).load()
    folder = folder_of(place)
    folder.write({"rho/c.0.0.0.0": b"short"})
    folder.delete(["seconds/c.1"])
    with pytest.warns(HeomdaskWarning, match="2 shards are damaged"):
        again = run(what, place)
    assert_same_bits(once, again)


def test_failures_are_recorded_and_tried_again(place: str, tmp_path: Path) -> None:
    resource = tmp_path / "needed"

    def fragile(e: float) -> Any:
        if e == 0.1 and not resource.exists():
            raise OSError("not mounted")
        return build(e)

    what = sweep(fragile, over={"e": ENERGIES})
    with pytest.warns(HeomdaskWarning, match="^1 of 2 points failed"):
        dataset = run(what, place)
    assert "not mounted" in str(dataset["error"].sel(e=0.1).values)
    ((where, _),) = hd.ensemble.failures(place)
    assert where.endswith("e = 0.1")
    resource.touch()
    mended = what.run(place, client=SerialRunner(), progress=False, retry_failed=True)
    assert (mended["status"] == Outcome.DONE).all()
    assert (mended["error"] == "").all()


def test_a_second_client_is_refused(place: str) -> None:
    what = sweep(over={"e": ENERGIES})
    run(what, place)
    with (
        Store.open(folder_of(place)).driving(),
        pytest.raises(StoreError, match="is in use by another run"),
    ):
        run(what, place)


def test_the_convergence_check_is_kept(place: str) -> None:
    what = sweep(over={"e": [0.1]}, depth=2, expansion=hd.Pade(1))
    run(what, place)
    what.check_convergence(place, client=SerialRunner(), progress=False)
    assert hd.open(place)["convergence_error"].values[0] > 0


@pytest.mark.parametrize("place", ["memory", "s3"], indirect=True)
def test_a_sweep_whose_store_is_deleted_ends(place: str) -> None:
    def deleting(e: float) -> Any:
        folder_of(place).delete(["zarr.json"])
        return build(e)

    with pytest.raises(StoreError, match="was deleted while the sweep ran"):
        run(sweep(deleting, over={"e": ENERGIES}), place)


@pytest.mark.parametrize("place", ["s3"], indirect=True)
def test_a_place_that_cannot_be_written_is_refused_before_work(place: str) -> None:
    def never(e: float) -> Any:
        raise AssertionError("work has started")

    missing = place.replace("s3://", "s3://no-such-")
    with pytest.raises(StoreError, match="make its bucket first"):
        run(sweep(never, over={"e": ENERGIES}), missing)


FILE = """
[system]
unit = "cm^-1"
hamiltonian = [[100.0, 50.0], [50.0, 0.0]]
initial = "site 1"
[[bath]]
kind = "drude-lorentz"
coupling = "sites"
lam = "10 cm^-1"
gamma = "1/(100 fs)"
T = "T"
[sweep.axes]
T = { values = [300], unit = "K" }
[solve]
times = { start = 0, stop = 100, step = 50, unit = "fs" }
depth = 2
expansion = "pade 1"
[output]
store = "STORE"
"""


@pytest.mark.cluster
@pytest.mark.parametrize("place", ["s3"], indirect=True)
def test_the_commands_take_urls(
    place: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """With worker processes, which hear of the server by the store they are given."""
    monkeypatch.chdir(tmp_path)
    Path("one.toml").write_text(FILE.replace("STORE", place))
    for command in (["run", "one.toml", "--workers", "1"], ["status", place], ["plot", place]):
        monkeypatch.setattr("sys.argv", ["heomdask", *command])
        with pytest.raises(SystemExit) as ended:
            main.main()
        assert ended.value.code in (0, None)
    assert "1 points" in capsys.readouterr().out
    assert [p.name for p in tmp_path.iterdir() if p.suffix != ".toml"] == [
        f"{place.rsplit('/', 1)[1].removesuffix('.zarr')}.png"
    ]


@pytest.mark.cluster
@pytest.mark.parametrize("place", ["s3"], indirect=True)
def test_a_worker_killed_between_commits_leaves_a_consistent_store(
    place: str, tmp_path: Path
) -> None:
    """Killed while a shard has data and no status yet, or else halfway."""
    what = sweep(over={"e": list(np.arange(24) / 10)}, depth=2, expansion=hd.Pade(1))
    folder, seen = folder_of(place), []

    def committing() -> bool:
        data, status = (folder.sizes(name).keys() for name in ("seconds", "status"))
        return (
            len({name for name in data if name.startswith("c.")} - status) > 0 or len(status) > 12
        )

    def kill(worker: int) -> None:
        while not (folder.exists("zarr.json") and committing()):
            time.sleep(0.001)
        os.kill(worker, signal.SIGKILL)
        seen.append(Store.open(folder).damaged())

    with connect(workers=1) as client:
        (worker,) = client.run(os.getpid).values()
        thread = threading.Thread(target=kill, args=(worker,), daemon=True)
        thread.start()
        dataset = what.run(place, client=client, progress=False)
        thread.join(timeout=60)
    assert seen == [[]]
    assert_same_bits(dataset, run(what, tmp_path / "undisturbed.zarr"))
