"""Tables that the commands print.

Takes: a sweep's plan, a dataset, a store, or the registry of backends.
Gives: rich tables.
Next file: `plot.py`.
"""

from __future__ import annotations

import itertools
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
from rich.table import Table

from heomdask.cli.plot import mean_and_error
from heomdask.outcome import Outcome

if TYPE_CHECKING:
    import xarray as xr

    from heomdask.ensemble.plan import SweepPlan

MOST_ROWS = 24
MOST_OBSERVABLES = 4


def plan_table(plan: SweepPlan) -> Table:
    """What a sweep needs, before it runs."""
    table = Table(title="Plan", title_justify="left", show_header=False)
    for name, value in plan.rows():
        table.add_row(name, value)
    return table


def summary_table(dataset: xr.Dataset) -> Table:
    """The observables at the last time, mean and standard error, for each point of the grid.

    With a convergence check, its error beside the largest standard error of the same point: the
    picture can be trusted where the first lies below the second.
    """
    names = [str(n) for n in dataset.attrs["observables"] if n in dataset]
    dims = [str(d) for d in dataset["status"].dims if d != "sample"]
    checked = "convergence_error" in dataset
    table = Table(title="Summary", title_justify="left")
    for dim in dims:
        unit = dataset[dim].attrs.get("units", "") if dim in dataset.coords else ""
        table.add_column(f"{dim} / {unit}" if unit else dim, justify="right")
    table.add_column("done", justify="right")
    for name in names[:MOST_OBSERVABLES]:
        table.add_column(f"{name} (last time)", justify="right")
    if "sample" in dataset.dims:
        table.add_column("largest std. error", justify="right")
    if checked:
        table.add_column("convergence error", justify="right")
    grid = list(itertools.product(*(range(dataset.sizes[d]) for d in dims)))
    for index in grid[:MOST_ROWS]:
        point = dataset.isel(dict(zip(dims, index, strict=True)))
        table.add_row(*_summary_row(point, dims, names, checked))
    if len(grid) > MOST_ROWS:
        table.caption = f"{len(grid) - MOST_ROWS} more points are in the store."
    return table


def _summary_row(point: xr.Dataset, dims: list[str], names: list[str], checked: bool) -> list[str]:
    status = np.atleast_1d(point["status"].values)
    row = [f"{float(point[d]):g}" if d in point.coords else "" for d in dims]
    row.append(f"{np.count_nonzero(status == Outcome.DONE)} of {status.size}")
    largest = 0.0
    for j, name in enumerate(names):
        mean, error = mean_and_error(point[name])
        text = f"{mean[-1]:.4f}"
        if error is not None:
            largest = max(largest, float(np.nanmax(error)))
            text += f" ± {error[-1]:.4f}"
        if j < MOST_OBSERVABLES:
            row.append(text)
    if "sample" in point.dims:
        row.append(f"{largest:.2g}")
    if checked:
        row.append(f"{float(point['convergence_error']):.2g}")
    return row


def status_table(store: Path) -> Table:
    """How many points are done, failed, pending; with the first errors."""
    from heomdask.results.dataset import failures
    from heomdask.results.dataset import open as open_store

    status = open_store(str(store))["status"].values
    table = Table(title=f"{store}: {status.size} points", title_justify="left")
    table.add_column("status")
    table.add_column("points", justify="right")
    table.add_column("what it means")
    for outcome in Outcome:
        count = int(np.count_nonzero(status == outcome))
        if count:
            table.add_row(outcome.name.lower(), str(count), outcome.advice)
    for point, text in itertools.islice(failures(str(store)), 5):
        table.add_row("failed", point, text)
    return table


def backends_table() -> Table:
    """Every backend: where and how it runs here, or why it cannot."""
    from heomdask.backends import registry
    from heomdask.backends.traits import BackendInfo

    table = Table(title="Backends", title_justify="left")
    for column in ("name", "device", "instruction set", "threads", "precision", "notes"):
        table.add_column(column)
    for name, found in registry.available():
        if isinstance(found, BackendInfo):
            precision = ", ".join(found.dtypes)
            table.add_row(name, found.device, found.isa, str(found.threads), precision, found.notes)
        else:
            table.add_row(name, "-", "-", "-", "-", str(found))
    return table
