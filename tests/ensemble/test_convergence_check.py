"""The convergence check of a store: what an end leaves, and what cannot compute it."""

from __future__ import annotations

import os
import signal
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from ensemble_support import build, sweep

import heomdask as hd
from heomdask.ensemble import convergence_check
from heomdask.ensemble.cluster import connect
from heomdask.ensemble.runner import SerialRunner
from heomdask.errors import HeomdaskWarning, InputError


def test_what_is_known_is_kept_at_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    store, calls = tmp_path / "s.zarr", []

    def interrupted(_: Any, cell: Any) -> float:
        calls.append(cell)
        if len(calls) == 2:
            assert hd.open(store)["convergence_error"].values[0] == 0.25
            raise KeyboardInterrupt
        return 0.25

    what = sweep(over={"e": [0.1, 0.2, 0.3]})
    what.run(store, client=SerialRunner(), progress=False)
    monkeypatch.setattr(convergence_check, "point_error", interrupted)
    with pytest.raises(KeyboardInterrupt):
        what.check_convergence(store, client=SerialRunner(), progress=False)
    known = hd.open(store)["convergence_error"].values
    assert known[0] == 0.25
    assert np.all(np.isnan(known[1:]))
    what.check_convergence(store, client=SerialRunner(), progress=False)
    assert calls == [(0,), (1,), (1,), (2,)]


class Deadly:
    """From 0.15 on it ends any other process, once there is a file."""

    def __init__(self, flag: Path) -> None:
        self.flag, self.owner = flag, os.getpid()

    def __call__(self, e: float) -> Any:
        if e > 0.15 and self.flag.exists() and os.getpid() != self.owner:
            os.kill(os.getpid(), signal.SIGKILL)
        return build(e)


@pytest.mark.cluster
def test_a_point_whose_workers_died_is_left_out(tmp_path: Path) -> None:
    store, flag = tmp_path / "s.zarr", tmp_path / "flag"
    what = sweep(Deadly(flag), over={"e": [0.1, 0.2]})
    what.run(store, client=SerialRunner(), progress=False)
    flag.touch()
    with connect(workers=1) as client:
        with pytest.warns(HeomdaskWarning, match="no convergence error at e = 0.2: the worker"):
            ds = what.check_convergence(store, client=client, progress=False)
        assert np.isnan(ds["convergence_error"].values).tolist() == [False, True]
        flag.unlink()
        ds = what.check_convergence(store, client=client, progress=False)
    assert not np.isnan(ds["convergence_error"].values).any()


class OnlyTasks:
    """A runner, of which no more is asked than what `run` needs."""

    memory = 1
    pools = start = submit = withdraw = wait = stop = print


def test_a_runner_that_only_knows_tasks_is_refused_at_once(tmp_path: Path) -> None:
    runner: Any = OnlyTasks()
    with pytest.raises(InputError, match=r"^`client` must be a Dask client, a SerialRunner"):
        sweep(over={"e": [0.1]}).check_convergence(tmp_path / "none.zarr", client=runner)
