"""How far a sweep's answers are from those of a larger hierarchy: really run, not estimated.

Takes: a sweep whose store is filled, and a Dask client.
Gives: `check_convergence`, the steps of `Sweep.check_convergence`, which adds `convergence_error`
    to the store: for a point of the grid, the largest change of any observable when the depth
    grows by one, plus the same when the expansion grows by one term.
Next file: none.
"""

from __future__ import annotations

import itertools
import warnings
from collections.abc import Iterator
from typing import TYPE_CHECKING

import numpy as np

from heomdask import checks
from heomdask.advice import advise
from heomdask.convergence import converge
from heomdask.ensemble.cluster import Workers, ready, require_computing
from heomdask.ensemble.grid import Index, Match
from heomdask.ensemble.runner import SerialRunner
from heomdask.ensemble.session import match_store, recognise
from heomdask.ensemble.sweep import Sweep
from heomdask.ensemble.tally import Tally
from heomdask.errors import HeomdaskWarning, StoreError, TooLarge
from heomdask.outcome import Outcome
from heomdask.results.folder import Folder
from heomdask.results.store import read_per_grid, write_per_grid

if TYPE_CHECKING:
    import xarray
    from distributed import Client

MOST_POINTS = 16  # of a grid; of a larger one, its corners
NAME = "convergence_error"
LOST = (
    "the worker died each time it was tried, most likely for want of memory; the next check tries "
    "it again."
)
ATTRS = {"long_name": "largest change of an observable at depth + 1, plus that with one more term"}


def check_convergence(
    sweep: Sweep, folder: Folder, client: Client | SerialRunner | Workers | None, *, progress: bool
) -> xarray.Dataset:
    """Compute what `convergence_error` lacks, keep it in the store, and return the dataset."""
    from heomdask.results.dataset import open as open_dataset

    require_computing(client)
    _require_map(client)
    store = recognise(sweep, folder)
    with store.driving():
        store = store.heal()
        matched = match_store(sweep, store)
        if any(matched.new):
            raise StoreError(
                f"the store {folder} lacks axis values of the sweep; run the sweep on it first."
            )
        known = read_per_grid(store, NAME)
        places = {cell: _place(matched, cell) for cell in _cells(sweep)}
        solved = store.status()
        missing = [
            cell
            for cell, place in places.items()
            if np.isnan(known[place]) and Outcome(int(solved[_first(sweep, place)])).good
        ]
        if missing:
            tally = Tally(len(missing), progress, "points checked for convergence")
            for cell, error in _errors(sweep, missing, client, tally):
                known[places[cell]] = error
                write_per_grid(store, NAME, known, ATTRS)
    return open_dataset(folder)


def _require_map(client: object) -> None:
    """Refuse, before any work, a runner that can only compute a sweep's tasks."""
    known = client is None or isinstance(client, (SerialRunner, Workers))
    if not known and not callable(getattr(client, "map", None)):
        raise checks.refuse("client", "a Dask client, a SerialRunner(), Workers or None", client)


def _errors(
    sweep: Sweep, cells: list[Index], client: Client | SerialRunner | Workers | None, tally: Tally
) -> Iterator[tuple[Index, float]]:
    """The errors of some points, computed by the client, by local workers (None), or here."""
    with ready(client) as computing, tally.shown():
        for cell, error in _solved(sweep, cells, computing):
            tally.ended(cell, 1, int(np.isnan(error)))
            yield cell, error


def _solved(
    sweep: Sweep, cells: list[Index], client: Client | SerialRunner
) -> Iterator[tuple[Index, float]]:
    if isinstance(client, SerialRunner):
        yield from ((cell, point_error(sweep, cell)) for cell in cells)
        return
    from distributed import KilledWorker, as_completed

    futures = client.map(point_error, [sweep] * len(cells), cells, pure=False)
    cell_of = dict(zip((f.key for f in futures), cells, strict=True))
    lost = []
    for future in as_completed(futures):
        try:
            yield cell_of[future.key], future.result()
        except KilledWorker:
            lost.append(cell_of[future.key])
    for cell in lost:  # each alone: it may have been another that killed its workers
        try:
            yield cell, client.submit(point_error, sweep, cell, pure=False).result()
        except KilledWorker:
            yield cell, _unknown(sweep, cell, LOST)


def _unknown(sweep: Sweep, cell: Index, why: object) -> float:
    """NaN, with a warning."""
    warnings.warn(
        f"no convergence error at {sweep.grid.describe(cell)}: {why}", HeomdaskWarning, stacklevel=3
    )
    return float("nan")


def _cells(sweep: Sweep) -> list[Index]:
    """Places on the dimensions without `sample`."""
    lengths = [len(d) for d in sweep.grid.dimensions]
    if int(np.prod(lengths)) <= MOST_POINTS:
        return list(itertools.product(*map(range, lengths)))
    corners = itertools.product(*(sorted({0, n - 1}) for n in lengths))
    return list(itertools.islice(corners, MOST_POINTS))


def _first(sweep: Sweep, cell: Index) -> Index:
    """Sample 0 of a point of the grid."""
    return cell if sweep.samples is None else (*cell, 0)


def _place(matched: Match, cell: Index) -> Index:
    """Where a point of the sweep's grid lies in the store."""
    return tuple(o.tolist().index(i) for o, i in zip(matched.order, cell, strict=False))


def point_error(sweep: Sweep, cell: Index) -> float:
    """The error of one point of the grid; NaN if it cannot be solved."""
    times = sweep.times.vector
    try:
        point = sweep.point(_first(sweep, cell))
        start = advise(
            point.problem, times, error=point.error, depth=point.depth, expansion=point.expansion
        )
        found = converge(
            point.problem, point.rho0, times, sweep.observables or None, point.error,
            start=start, most_steps=1, backend=sweep.backend, threads=1,
        )  # fmt: skip
        if found.too_large is not None:
            raise TooLarge(f"depth={found.too_large[0]} and {found.too_large[1]} do not fit.")
    except Exception as error:  # of a larger hierarchy: the point itself is in the store
        return _unknown(sweep, cell, error)
    return found.steps[-1].error
