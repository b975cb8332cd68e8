"""The memory of a card: what is predicted is what the allocator counts, and running out is said."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from gpuless.emulator import Compiler
from gpuless.pool import OutOfMemoryError
from gpuless.strict import StrictCupy

import heomdask as hd
from heomdask._cuda import probe
from heomdask.backends.cupy_ import CupyBackend
from heomdask.errors import TooLarge
from heomdask.preparation import Prepared, prepare
from heomdask.solve import Request, run
from heomdask.testing.random_plans import CASES, Case

SZ, SX = np.diag([1.0, -1.0]), np.array([[0.0, 1.0], [1.0, 0.0]])
BATH = hd.DrudeLorentz(lam=0.2, gamma=0.5, T=0.5)
TIMES = np.array([0.0, 0.5, 1.0])
TOGETHER = "8 points did not fit into memory together; they go in two halves"


def prepared(depth: int, *, driven: bool = False) -> Prepared:
    drives = [(np.sin, SX)] if driven else []
    problem = hd.Problem(0.5 * SX, [hd.Coupling(SZ, BATH)], drives=drives)
    return prepare(problem, depth=depth, expansion=hd.Pade(2), times=TIMES)


def solve(backend: CupyBackend, one: Prepared, members: int) -> None:
    request = Request(TIMES, 1e-6, None, ("rho",), "auto", backend, 1, "batch", False, None)
    run([one] * members, [np.diag([1.0, 0.0])] * members, request)


@pytest.mark.parametrize("case", CASES[::5], ids=str)
@pytest.mark.parametrize("dtype", ["float64", "float32"])
def test_tables_and_states_are_counted_as_the_allocator_does(
    compiler: Compiler, case: Case, dtype: str
) -> None:
    api = StrictCupy(compiler)
    backend = CupyBackend(api=api)
    compiled = backend.compile(case.plan(), dtype)
    assert api.pool.used_bytes() == compiled.nbytes
    states = [backend.empty(compiled), backend.put(compiled, case.state(case.plan()))]
    assert api.pool.used_bytes() == compiled.nbytes + 2 * compiled.state_nbytes
    del states, compiled
    assert api.pool.used_bytes() == 0


@pytest.mark.parametrize("driven", [False, True])
def test_a_batch_takes_no_more_than_was_predicted(compiler: Compiler, driven: bool) -> None:
    api, one, members = StrictCupy(compiler), prepared(4, driven=driven), 64
    backend = CupyBackend(api=api)
    need = one.size.run_bytes(members, len(TIMES), columns=backend.columns(2, members))
    solve(backend, one, members)
    assert 0.7 * need < api.pool.peak <= need
    assert api.pool.used_bytes() == 0


def test_what_a_batch_has_left_goes_back_before_the_next(compiler: Compiler) -> None:
    api = StrictCupy(compiler)
    solve(CupyBackend(api=api), prepared(2), 2)
    assert api.pool.free_bytes() > 0
    CupyBackend(api=api)
    assert api.pool.total_bytes() == 0


def test_free_memory_is_what_the_card_and_the_pool_have(compiler: Compiler) -> None:
    api = StrictCupy(compiler, card=2**20)
    backend = CupyBackend(api=api)
    compiled = backend.compile(CASES[0].plan())
    kept = [backend.empty(compiled) for _ in range(2)]
    assert backend.free() == 2**20 - compiled.nbytes - 2 * compiled.state_nbytes
    del kept[0]
    assert backend.free() == 2**20 - compiled.nbytes - compiled.state_nbytes
    api.pool.set_limit(size=api.pool.used_bytes() + 1024)
    assert backend.free() == 1024


def test_what_does_not_fit_is_refused_before_anything_runs(compiler: Compiler) -> None:
    """By the memory of the card, not of the host."""
    api, one = StrictCupy(compiler, card=2**24), prepared(20)
    with pytest.raises(TooLarge, match=r"needs about 3.* MB and 16.8 MB are free; lower `depth`"):
        solve(CupyBackend(api=api), one, 64)
    assert api.launches == []


def test_running_out_is_said_with_a_remedy(compiler: Compiler) -> None:
    api = StrictCupy(compiler, card=2**14)
    with pytest.raises(TooLarge, match=r"memory of strict 0 has run out, where .* run fewer memb"):
        solve(CupyBackend(api=api), prepared(4), 8)


def build(e: float) -> Any:
    return hd.Problem(e * SX, [hd.Coupling(SZ, BATH)]), np.diag([1.0, 0.0])


SWEEP = hd.Sweep(
    build, over={"e": np.linspace(0.1, 0.8, 8)}, times=TIMES, depth=4, expansion=hd.Pade(1),
    backend="cupy",
)  # fmt: skip


def test_a_batch_for_which_memory_runs_out_goes_in_halves(
    compiler: Compiler, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Others have taken memory of the card since it was asked what is free."""
    api = StrictCupy(compiler)
    monkeypatch.setattr(probe, "load", lambda: api)
    whole = SWEEP.run(tmp_path / "whole.zarr", client=hd.SerialRunner(), progress=False)
    most, take = 3 * api.pool.peak // 4, api.pool.take
    at_failure: list[int] = []

    def tight(nbytes: int, stream: int) -> int:
        if api.pool.used_bytes() + nbytes > most:
            at_failure.append(api.pool.used_bytes())
            raise OutOfMemoryError("Out of memory")
        if len(at_failure) == 1:  # the first of the first half: nothing of the whole is left
            at_failure.append(api.pool.used_bytes())
        return take(nbytes, stream)

    monkeypatch.setattr(api.pool, "take", tight)
    with pytest.warns(hd.HeomdaskWarning, match=TOGETHER):
        halves = SWEEP.run(tmp_path / "halves.zarr", client=hd.SerialRunner(), progress=False)
    assert at_failure[1] == 0
    assert len(at_failure) == 2
    assert np.all(halves["status"] == hd.Outcome.DONE)
    assert np.array_equal(halves["rho"], whole["rho"])
