"""What keeps large ensembles cheap: counted work, never seconds."""

from __future__ import annotations

import gc
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import stopping_support
from ensemble_support import PLUS, SZ

import heomdask as hd
from heomdask.ensemble import worker
from heomdask.ensemble.pools import ALIKE, Task
from heomdask.ensemble.runner import SerialRunner
from heomdask.ensemble.stopping import Stopping
from heomdask.results.chunks import Shard

FAULTS = """
import resource
from concurrent.futures import ThreadPoolExecutor

import numpy as np

from heomdask.ensemble import worker

def faults():
    before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
    for _ in range(50):
        np.ones(100_000)  # 196 pages
    return resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before

with ThreadPoolExecutor(1) as thread:  # as a worker's tasks run
    thread.submit(faults).result()
    eager = thread.submit(faults).result()
    worker._process.hold()
    thread.submit(faults).result()
    kept = thread.submit(faults).result()
    worker._process.release()
    after = thread.submit(faults).result()
print(eager > 5000, kept < 500, after > 5000)
"""


def test_arrays_of_a_worker_use_the_memory_of_those_before() -> None:
    """Also where Dask's nanny has it returned to the system at once; afterwards as before."""
    done = subprocess.run(
        [sys.executable, "-c", FAULTS], env={**os.environ, "MALLOC_TRIM_THRESHOLD_": "65536"},
        capture_output=True, text=True, timeout=300, check=False,
    )  # fmt: skip
    assert done.stdout == "True True True\n", done.stdout + done.stderr


def test_collections_of_a_worker_pass_over_what_was_there() -> None:
    assert gc.get_freeze_count() == 0
    worker._process.hold()
    worker._process.hold()
    assert gc.get_freeze_count() > 10_000
    worker._process.release()
    assert gc.get_freeze_count() > 10_000
    worker._process.release()
    assert gc.get_freeze_count() == 0


class _FirstTask(Exception):
    pass


class _Stopped(SerialRunner):
    """Ends the run when it would compute the first task."""

    def __init__(self) -> None:
        super().__init__()
        self.submitted: list[Task] = []

    def submit(self, task: Task, pool: str = ALIKE) -> None:
        self.submitted.append(task)

    def wait(self) -> Any:
        raise _FirstTask


def test_a_sweep_of_a_million_points_begins_without_building_them(tmp_path: Path) -> None:
    built = []

    def build(e: float, rng: np.random.Generator) -> Any:
        built.append(e)
        return hd.Problem(e * SZ), PLUS

    million = hd.Sweep(
        build, over={"e": np.linspace(0.1, 1, 10)}, samples=100_000, times=[0.0, 1.0],
        observables={"Z": SZ},
    )  # fmt: skip
    runner = _Stopped()
    with pytest.raises(_FirstTask):
        million.run(tmp_path / "s.zarr", client=runner, progress=False)
    assert runner.submitted
    assert len(built) <= 4
    names = [path for path in (tmp_path / "s.zarr").rglob("*") if path.is_file()]
    assert len(names) < 40


def test_the_driver_does_not_look_at_all_shards_for_each_task(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Where a rule decides, and most of the shards that wait are not likely to be needed."""
    asked: list[Shard] = []
    plain = Stopping.expects

    def counted(self: Stopping, shard: Shard) -> bool:
        asked.append(shard)
        return plain(self, shard)

    monkeypatch.setattr(Stopping, "expects", counted)
    what = stopping_support.sweep(samples=100 * 64, until=hd.StandardError("x", 0.1))
    runner = stopping_support.Drawing(slots=4)
    ds = stopping_support.run(what, tmp_path / "s.zarr", runner)
    assert np.count_nonzero(ds["status"] == hd.Outcome.NOT_NEEDED) > 0.8 * ds["status"].size
    shards = ds["status"].size // 64
    assert len(runner.places) > 10 * 64
    assert len(asked) < 3 * shards
