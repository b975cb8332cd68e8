"""How far a sweep's answers are from those of a larger hierarchy: really run, not estimated.

Takes: a sweep whose store is filled, and a Dask client.
Gives: `ensure_convergence`, which adds `convergence_error` to the store: for a point of the grid,
    the largest change of any observable when the depth grows by one, plus the same when the
    expansion grows by one term; sample 0 stands for all samples.
Next file: none.
"""

from __future__ import annotations

import itertools
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from heomdask.advice import advise
from heomdask.convergence import converge
from heomdask.ensemble.grid import Index
from heomdask.ensemble.sweep import Sweep
from heomdask.errors import HeomdaskError
from heomdask.results.store import Store, local_path, read_per_grid, write_per_grid

if TYPE_CHECKING:
    import xarray
    from distributed import Client

MOST_POINTS = 16  # of a grid; of a larger one, its corners
NAME = "convergence_error"
ATTRS = {"long_name": "largest change of an observable at depth + 1, plus that with one more term"}


def ensure_convergence(sweep: Sweep, path: str | Path, *, client: Client) -> xarray.Dataset:
    """Compute what `convergence_error` lacks, keep it in the store, and return the dataset.

    Up to 16 points of the grid are checked, of a larger grid its corners; the others stay NaN.
    """
    from heomdask.results.dataset import open as open_dataset

    store = Store.open(local_path(path))
    known = read_per_grid(store, NAME)
    cells = [c for c in _cells(sweep) if np.isnan(known[_place(sweep, store, c)])]
    futures = client.map(point_error, [sweep] * len(cells), cells, pure=False)
    for cell, error in zip(cells, client.gather(futures), strict=True):
        known[_place(sweep, store, cell)] = error
    write_per_grid(store, NAME, known, ATTRS)
    return open_dataset(path)


def _cells(sweep: Sweep) -> list[Index]:
    """Places on the dimensions without `sample`."""
    lengths = [len(d) for d in sweep.grid.dimensions]
    if int(np.prod(lengths)) <= MOST_POINTS:
        return list(itertools.product(*map(range, lengths)))
    corners = itertools.product(*(sorted({0, n - 1}) for n in lengths))
    return list(itertools.islice(corners, MOST_POINTS))


def _place(sweep: Sweep, store: Store, cell: Index) -> Index:
    """Where a point of the sweep's grid lies in the store."""
    place = []
    for dimension, i in zip(sweep.grid.dimensions, cell, strict=True):
        if dimension.unique:
            labels = store.labels(tuple(n for n, _ in dimension.axes))
            place.append(labels.index(dimension.keys[i]))
        else:
            place.append(i)
    return tuple(place)


def point_error(sweep: Sweep, cell: Index) -> float:
    """The error of one point of the grid; NaN if it cannot be solved."""
    index = cell if sweep.samples is None else (*cell, 0)
    times = np.array(sweep.times.internal)
    try:
        point = sweep.point(index)
        start = advise(
            point.problem, times, error=point.error, depth=point.depth, expansion=point.expansion
        )
        found = converge(
            point.problem, point.rho0, times, sweep.observables or None, point.error,
            start=start, most_steps=1, backend=sweep.backend, threads=1,
        )  # fmt: skip
    except HeomdaskError:  # a point that cannot be solved has its own record in the store
        return float("nan")
    return found.steps[-1].error
