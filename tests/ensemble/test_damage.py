"""Sweeps on stores that were damaged, or that go away while they are filled."""

from __future__ import annotations

import contextlib
import os
import shutil
import threading
import time
from pathlib import Path
from typing import Any

import pytest
from ensemble_support import assert_same_bits, build, sweep

from heomdask.ensemble.cluster import connect
from heomdask.ensemble.runner import SerialRunner
from heomdask.errors import HeomdaskWarning, StoreError

ENERGIES = {"e": [0.1 * k for k in range(6)]}


@pytest.mark.parametrize("how", ["cut", "gone"])
@pytest.mark.parametrize("name", ["rho", "seconds", "status"])
def test_points_of_a_damaged_file_are_computed_again(tmp_path: Path, name: str, how: str) -> None:
    what = sweep(over=ENERGIES)
    once = what.run(tmp_path / "s.zarr", client=SerialRunner(), progress=False).load()
    (file,) = (tmp_path / "s.zarr" / name).glob("c.3*")
    if how == "cut":
        file.write_bytes(file.read_bytes()[:-1])
    else:
        file.unlink()
    others = {p: p.stat().st_mtime_ns for p in (tmp_path / "s.zarr").glob("*/c.[!3]*")}
    assert what.plan(tmp_path / "s.zarr").pending == 1
    noticed = pytest.warns(HeomdaskWarning, match=f"the first is {file}; their points are pending")
    lost = (name, how) == ("status", "gone")  # as if its point was never computed
    with contextlib.nullcontext() if lost else noticed:
        again = what.run(tmp_path / "s.zarr", client=SerialRunner(), progress=False)
    assert_same_bits(once, again)
    assert others == {p: p.stat().st_mtime_ns for p in others}


def test_a_sweep_whose_store_is_deleted_ends_before_the_next_point(tmp_path: Path) -> None:
    calls: list[float] = []

    def deleting(e: float) -> Any:
        calls.append(e)
        if (tmp_path / "s.zarr").exists():
            shutil.rmtree(tmp_path / "s.zarr")
            calls.clear()
        return build(e)

    what = sweep(deleting, over={"e": [0.1 * k for k in range(40)]})
    with pytest.raises(StoreError, match=r"s\.zarr.* was deleted while the sweep ran; run"):
        what.run(tmp_path / "s.zarr", client=SerialRunner(), progress=False)
    assert not calls
    assert not (tmp_path / "s.zarr").exists()


@pytest.mark.cluster
def test_a_deleted_store_is_noticed_while_all_workers_are_in_long_points(tmp_path: Path) -> None:
    store = tmp_path / "s.zarr"
    hangs = tmp_path / "hangs"
    here = os.getpid()

    def hanging(e: float) -> Any:
        if os.getpid() != here:
            hangs.touch()
            time.sleep(600)
        return build(e)

    def delete() -> None:
        while not hangs.exists():
            time.sleep(0.02)
        shutil.rmtree(store)

    with connect(workers=1) as client:
        thread = threading.Thread(target=delete, daemon=True)
        thread.start()
        with pytest.raises(StoreError, match="was deleted while"):
            sweep(hanging, over=ENERGIES).run(store, client=client, progress=False)
        thread.join()
