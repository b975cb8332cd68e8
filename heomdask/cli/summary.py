"""Tables that the commands print.

Takes: a sweep's plan, a dataset, a store, or the registry of backends.
Gives: rich tables.
Next file: `plot.py`.
"""

from __future__ import annotations

import itertools
from typing import TYPE_CHECKING

import numpy as np
from rich.table import Table

from heomdask.cli.plot import averaged, value_text
from heomdask.errors import HeomdaskError
from heomdask.outcome import Outcome

if TYPE_CHECKING:
    import xarray as xr

    from heomdask.ensemble.plan import SweepPlan

MOST_ROWS = 24
MOST_OBSERVABLES = 2


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
    table.add_column("done", justify="right", no_wrap=True)
    for name in names[:MOST_OBSERVABLES]:
        table.add_column(f"{name} (last time)", justify="right")
    if "sample" in dataset.dims:
        table.add_column("largest std. error", justify="right")
    if checked:
        table.add_column("convergence error", justify="right", no_wrap=True)
    means = averaged(dataset)
    grid = list(itertools.product(*(range(dataset.sizes[d]) for d in dims)))
    for index in grid[:MOST_ROWS]:
        place = dict(zip(dims, index, strict=True))
        row = [value_text(dataset, d, i) for d, i in place.items()]
        status = np.atleast_1d(dataset["status"].isel(place).values)
        row.append(f"{np.count_nonzero(status == Outcome.DONE)} of {status.size}")
        row += _summary_cells(means.isel(place), names)
        if checked:
            row.append(f"{float(dataset['convergence_error'].isel(place)):.2g}")
        table.add_row(*row)
    left_out = {"point": len(grid) - MOST_ROWS, "observable": len(names) - MOST_OBSERVABLES}
    words = [f"{n} more {what}{'s' * (n > 1)}" for what, n in left_out.items() if n > 0]
    if words:
        table.caption = f"In the store, for hd.open: {' and '.join(words)}."
    return table


def _summary_cells(point: xr.Dataset, names: list[str]) -> list[str]:
    """The first observables at the last time, and the largest standard error of any."""
    cells, largest = [], 0.0
    for name in names:
        text = f"{point[name].values[-1].real:.4f}"
        if f"{name}_error" in point:
            error = point[f"{name}_error"].values.real
            largest = max(largest, float(np.max(error)))
            text += f" ± {error[-1]:.4f}"
        cells.append(text)
    cells = cells[:MOST_OBSERVABLES]
    return [*cells, f"{largest:.2g}"] if names and f"{names[0]}_error" in point else cells


def status_table(store: str) -> Table:
    """How many points are done, failed, pending; with the first errors."""
    from heomdask.results.dataset import failures
    from heomdask.results.dataset import open as open_store

    status = open_store(store)["status"].values
    table = Table(title=f"{store}: {status.size} points", title_justify="left")
    table.add_column("status")
    table.add_column("points", justify="right")
    table.add_column("what it means")
    for outcome in Outcome:
        count = int(np.count_nonzero(status == outcome))
        if count:
            table.add_row(outcome.name.lower(), str(count), outcome.advice)
    for point, text in itertools.islice(failures(store), 5):
        table.add_row("failed", point, text)
    return table


def progress_text(store: str) -> str:
    """How many points a store holds, if it is one yet, in a few words."""
    from heomdask.results.folder import folder_of
    from heomdask.results.store import Store

    try:
        status = Store.open(folder_of(store)).status()
    except HeomdaskError:
        return "nothing was computed yet"
    held = np.count_nonzero(status != Outcome.PENDING)
    return f"{held} of {status.size} points are in {store}"


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
