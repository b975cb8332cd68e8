"""Tables that the commands print.

Takes: a sweep's plan, a dataset, a store, or the registry of backends.
Gives: rich tables.
Next file: `plot.py`.
"""

from __future__ import annotations

import itertools
import time
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
from numpy.typing import NDArray
from rich.markup import escape
from rich.table import Table

from heomdask.cli.plot import averaged, value_text
from heomdask.outcome import Outcome
from heomdask.progress import LOOK_BACK, duration

if TYPE_CHECKING:
    import xarray as xr

    from heomdask.ensemble.plan import SweepPlan

MOST_ROWS = 24
COARSE = "!"  # marks a convergence error above the standard error
MOST_OBSERVABLES = 2

Place = dict[str, int]  # dimension -> index


def plan_table(plan: SweepPlan) -> Table:
    """What a sweep needs, before it runs."""
    table = Table(title="Plan", title_justify="left", show_header=False)
    for name, value in plan.rows():
        table.add_row(name, value)
    return table


class _Column(NamedTuple):
    header: str
    cells: list[str]
    words: bool = False  # which may be broken into lines, as numbers may not

    @property
    def width(self) -> int:
        """Characters that it takes in the table, with its border."""
        lines = [*self.header.split("\n"), *self.cells]
        return 3 + max(map(len, lines))


def summary_table(dataset: xr.Dataset, width: int) -> Table:
    """The observables at the last time, mean and standard error, for each point of the grid.

    With a convergence check, its error beside the largest standard error of the same point: the
    picture can be trusted where the first lies below the second. Of the observables as many are
    shown as fit into `width` characters.
    """
    names = [str(n) for n in dataset.attrs["observables"] if n in dataset]
    dims = [str(d) for d in dataset["status"].dims if d != "sample"]
    grid = list(itertools.product(*(range(dataset.sizes[d]) for d in dims)))
    places = [dict(zip(dims, index, strict=True)) for index in grid[:MOST_ROWS]]
    means = averaged(dataset)
    before = [*(_axis(dataset, d, places) for d in dims), _done(dataset, places)]
    shown = [_last(means, name, places) for name in names[:MOST_OBSERVABLES]]
    errors = _largest_errors(means, names, places)
    after = [*_largest_error(errors), *_convergence_error(dataset, places, errors)]
    while shown and 1 + sum(c.width for c in (*before, *shown, *after)) > width:
        shown.pop()
    time = dataset["time"]
    last = f"{float(time[-1]):g} {time.attrs.get('units', '')}".rstrip()
    table = Table(title=f"Summary (observables at the last time, {last})", title_justify="left")
    columns = [*before, *shown, *after]
    for column in columns:
        table.add_column(column.header, justify="right", no_wrap=not column.words, overflow="fold")
    for row in zip(*(column.cells for column in columns), strict=True):
        table.add_row(*row)
    left_out = {"point": len(grid) - len(places), "observable": len(names) - len(shown)}
    words = [f"{n} more {what}{'s' * (n > 1)}" for what, n in left_out.items() if n > 0]
    notes = [f"In the store, for hd.open: {' and '.join(words)}."] if words else []
    spared = int(np.count_nonzero(dataset["status"].values == Outcome.NOT_NEEDED))
    if spared:
        notes.append(f"{spared:,} samples were not needed.")
    if any(cell.endswith(COARSE) for column in after for cell in column.cells):
        notes.append(
            f"{COARSE} A larger hierarchy changes the result by more than the standard error: more "
            "samples do not help, a larger depth or expansion does."
        )
    table.caption, table.caption_justify = "\n".join(notes) or None, "left"
    return table


def _axis(dataset: xr.Dataset, dim: str, places: list[Place]) -> _Column:
    known = dim in dataset.coords
    unit = dataset[dim].attrs.get("units", "") if known else ""
    cells = [value_text(dataset, dim, place[dim]) for place in places]
    words = known and dataset[dim].dtype.kind not in "if"
    return _Column(f"{dim} /\n{unit}" if unit else dim, cells, words)


def _done(dataset: xr.Dataset, places: list[Place]) -> _Column:
    """How many samples of each point are done, of those that are needed."""
    cells = []
    for place in places:
        status = np.atleast_1d(dataset["status"].isel(place).values)
        spared = int(np.count_nonzero(status == Outcome.NOT_NEEDED))
        cells.append(f"{np.count_nonzero(status == Outcome.DONE)} of {status.size - spared}")
    return _Column("done", cells)


def _last(means: xr.Dataset, name: str, places: list[Place]) -> _Column:
    """An observable at the last time, with its standard error if it has one."""
    last = means.isel(time=-1)
    cells = [f"{last[name].isel(place).values.real:.4f}" for place in places]
    if f"{name}_error" in means:
        errors = [last[f"{name}_error"].isel(place).values.real for place in places]
        cells = [f"{cell} ± {error:.4f}" for cell, error in zip(cells, errors, strict=True)]
    return _Column(name, cells)


def _largest_errors(means: xr.Dataset, names: list[str], places: list[Place]) -> list[float]:
    """The largest standard error of any observable at any time; nothing without samples."""
    errors = [f"{name}_error" for name in names if f"{name}_error" in means]
    if not errors:
        return []
    return [max(float(abs(means[e].isel(p)).max()) for e in errors) for p in places]


def _largest_error(errors: list[float]) -> list[_Column]:
    cells = [f"{error:.2g}" for error in errors]
    return [_Column("largest\nstd.\nerror", cells)] if errors else []


def _convergence_error(
    dataset: xr.Dataset, places: list[Place], standard: list[float]
) -> list[_Column]:
    """What a larger hierarchy changes; marked where that is more than the standard error."""
    if "convergence_error" not in dataset:
        return []
    errors = [float(dataset["convergence_error"].isel(place)) for place in places]
    marks = [COARSE * (e > s) for e, s in zip(errors, standard or errors, strict=True)]
    cells = [f"{error:.2g} {mark}".rstrip() for error, mark in zip(errors, marks, strict=True)]
    return [_Column("convergence\nerror", cells)]


def status_table(store: str) -> Table:
    """How many points are done, failed, pending; with the first errors, and how fast it goes."""
    from heomdask.results.dataset import failures
    from heomdask.results.dataset import open as open_store
    from heomdask.results.folder import folder_of
    from heomdask.results.store import Store

    status = open_store(store)["status"].values
    folder = folder_of(store)
    commits, driven = Store.open(folder).commits(), folder.driven()
    table = Table(title=f"{store}: {status.size} points", title_justify="left")
    table.caption, table.caption_justify = pace_text(status, commits, driven, time.time()), "left"
    if np.any(status == Outcome.FAILED):
        table.caption += " `heomdask run --retry-failed` tries those again that failed."
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


def pace_text(
    status: NDArray[np.uint8], commits: list[tuple[float, int]], driven: bool, now: float
) -> str:
    """How far a store is; how fast a run fills it, and what that makes, or how to go on."""
    needed = np.count_nonzero(status != Outcome.NOT_NEEDED)
    pending = np.count_nonzero(status == Outcome.PENDING)
    words = f"{needed - pending:,} of {needed:,} points that are needed are there"
    if not pending:
        return f"{words}."
    if commits:
        words += f", the last came {duration(max(now - commits[-1][0], 0.0))} ago"
    if not driven:
        return f"{words}. No run is active: the same `heomdask run`, or `Sweep.run`, goes on."
    recent = [(when, points) for when, points in commits if now - when < LOOK_BACK]
    if len(recent) < 2:
        return f"{words}."
    # what the first of these took nobody knows
    speed = sum(points for _, points in recent[1:]) / max(now - recent[0][0], 1e-3)
    left = duration(pending / speed)
    return f"{words}: {speed:.3g} points/s in the last minutes, about {left} left."


def backends_table() -> Table:
    """Every backend: where and how it runs here; below, the CPUs, and why others cannot run."""
    from heomdask.backends import registry
    from heomdask.backends.traits import BackendInfo
    from heomdask.topology import Topology

    table = Table(title="Backends", title_justify="left", caption_justify="left")
    for column in ("name", "device", "instruction set", "threads", "precision", "notes"):
        table.add_column(column)
    missing = []
    for name, found in registry.available():
        if isinstance(found, BackendInfo):
            precision = ", ".join(found.dtypes)
            table.add_row(name, found.device, found.isa, str(found.threads), precision, found.notes)
        else:
            missing.append(escape(str(found)))
    table.caption = "\n\n".join([str(Topology.read()), *missing])
    return table
