"""Pictures of a store.

Takes: a store and a file name.
Gives: a picture: the observables against time, one column a temperature (or first axis), one row
    for each point of the other axes, the standard error over the samples as a band; `plot_store`
    draws it, `require_drawable` refuses before a run what could not be drawn after it; `beside`
    is the name of a picture that has none.
Next file: none.
"""

from __future__ import annotations

import itertools
import os
import re
import warnings
from pathlib import Path
from typing import TYPE_CHECKING

from heomdask import checks
from heomdask.errors import HeomdaskWarning, InputError
from heomdask.outcome import Outcome
from heomdask.results.wording import in_short

if TYPE_CHECKING:
    import numpy as np
    import xarray as xr
    from matplotlib.axes import Axes
    from numpy.typing import NDArray

MOST_ROWS = 6
TICKS = 5  # intervals of the time axis
# both change from curve to curve, so that neighbours which overlap differ in both
COLOURS = ("#0072b2", "#d55e00", "#009e73", "#cc4c9c", "#e69f00", "#000000", "#56b4e9")
STYLES = ("-", "-", "-", "--", "-.", ":", (0, (8, 2)), (0, (4, 1, 1, 1, 1, 1)))
SUFFIXES = (".png", ".pdf", ".svg", ".eps", ".jpg", ".webp")


def require_drawable(name: str, picture: Path) -> None:
    """Refuse a picture that could not be written, and make its folder."""
    if picture.suffix.lower() not in SUFFIXES:
        allowed = f"a file name that ends in {', '.join(SUFFIXES[:-1])} or {SUFFIXES[-1]}"
        raise checks.refuse(name, allowed, str(picture))
    try:
        picture.parent.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise checks.refuse(
            name, f"in a folder that can be made ({error.strerror})", str(picture)
        ) from None
    if picture.is_dir() or not os.access(picture.parent, os.W_OK):
        raise checks.refuse(name, "a file in a folder that can be written", str(picture))


def beside(store: str, suffix: str) -> Path:
    """The picture of a store beside it; of one behind a URL in the current folder."""
    place = store.rstrip("/").rsplit("/", 1)[-1] if "://" in store else store
    return Path(place).with_suffix(suffix)


def plot_store(store: str, picture: Path) -> Path:
    """Draw the store into `picture` (the suffix chooses the format) and return its name."""
    from heomdask.results.dataset import open as open_store

    draw(open_store(store), picture)
    return picture


def draw(dataset: xr.Dataset, picture: Path) -> None:
    """The picture of an opened store; see the module's head."""
    import matplotlib as mpl

    mpl.use("Agg")
    from matplotlib import pyplot as plt
    from matplotlib.layout_engine import ConstrainedLayoutEngine

    names = [str(n) for n in dataset.attrs["observables"] if n in dataset]
    if not names:
        raise InputError("`STORE` must hold observables to be plotted, got states only.")
    grid = [str(d) for d in dataset[names[0]].dims if d not in ("sample", "time")]
    across = "T" if "T" in grid else (grid[0] if grid else None)
    down = [g for g in grid if g != across]
    columns = _points(dataset, [across] if across else [])
    every_row = _points(dataset, down)
    rows = every_row[:MOST_ROWS]
    height = 2.7 if len(names) <= 4 else 3.7  # many curves need room
    figure, panels = plt.subplots(
        len(rows), len(columns), figsize=(3.9 * len(columns) + 1.6, height * len(rows) + 0.7),
        sharex=True, sharey=True, squeeze=False, layout=ConstrainedLayoutEngine(w_pad=0.1),
    )  # fmt: skip
    means = averaged(dataset)
    for (r, row), (c, column) in itertools.product(enumerate(rows), enumerate(columns)):
        panel = panels[r, c]
        _panel(panel, means.isel(row | column), names)
        panel.set_title(
            ", ".join(_label(dataset, k, i) for k, i in (column | row).items()), fontsize=9
        )
        if r == len(rows) - 1:
            unit = _raised(dataset["time"].attrs.get("units", ""))
            panel.set_xlabel(f"time / {unit}" if unit else "time")
    ticks = _ticks(dataset["time"].values)
    panels[0, 0].set_xticks(ticks, [f"{t:g}" for t in ticks])
    panels[0, 0].set_ylim(*_limits(means, names))
    for panel in panels[:, 0]:
        panel.set_ylabel("population" if _are_populations(names) else "expectation value")
    panels[0, -1].legend(
        loc="upper left", bbox_to_anchor=(1.01, 1.0), borderaxespad=0, frameon=False, handlelength=3
    )
    figure.suptitle(dataset.attrs.get("title", ""), fontsize=11)
    caption = _caption(dataset, means)
    if len(rows) < len(every_row):
        caption.append(f"the first {len(rows)} of {len(every_row)} rows")
    figure.supxlabel("; ".join(caption), fontsize=8)
    figure.savefig(picture, dpi=140)
    plt.close(figure)


def _points(dataset: xr.Dataset, dims: list[str]) -> list[dict[str, int]]:
    sizes = [range(dataset.sizes[d]) for d in dims]
    return [dict(zip(dims, index, strict=True)) for index in itertools.product(*sizes)]


def _caption(dataset: xr.Dataset, means: xr.Dataset) -> list[str]:
    """How it was solved (what is an axis stands above the panels), and what the bands are."""
    specification = dataset.attrs["specification"]
    solved = {n: in_short(str(specification[n])).strip("'") for n in ("depth", "expansion")}
    words = [f"{name} {value}" for name, value in solved.items() if value != "None"]
    if "sample" in dataset.dims:
        samples, fewest = dataset.sizes["sample"], int(means["count"].min())
        used = f"{samples}" if fewest == samples else f"at least {fewest} of {samples}"
        words += [f"mean of {used} samples", "bands: standard error"]
    return words


def value_text(dataset: xr.Dataset, dim: str, index: int) -> str:
    """The axis value at a place: a number or a method in short, other text as it stands."""
    if dim not in dataset.coords:
        return str(index)
    value = dataset[dim].values[index]
    return f"{value:g}" if dataset[dim].dtype.kind in "if" else in_short(str(value))


def _label(dataset: xr.Dataset, dim: str, index: int) -> str:
    unit = dataset[dim].attrs.get("units", "") if dim in dataset.coords else ""
    return f"{dim} = {value_text(dataset, dim, index)} {_raised(unit)}".rstrip()


def _raised(unit: str) -> str:
    """A unit with its powers as superscripts: "cm^-1" -> "cm⁻¹"."""
    superscripts = str.maketrans("-0123456789", "⁻⁰¹²³⁴⁵⁶⁷⁸⁹")
    return re.sub(
        r"(?:\^|\*\*|(?<=[A-Za-z])(?=-))(-?\d+)", lambda m: m[1].translate(superscripts), unit
    )


def _ticks(times: NDArray[np.float64]) -> list[float]:
    """Round times from the first on, and the last time, which is where the axis ends."""
    from matplotlib.ticker import MaxNLocator

    first, last = float(times[0]), float(times[-1])
    if first == last:
        return [last]
    marks = MaxNLocator(TICKS).tick_values(first, last)
    room = 0.6 * float(marks[1] - marks[0])  # for the label of the last
    return [*(float(t) for t in marks if first <= t < last - room), last]


def _panel(panel: Axes, point: xr.Dataset, names: list[str]) -> None:
    looks = zip(itertools.cycle(COLOURS), itertools.cycle(STYLES))
    for name, (colour, style) in zip(names, looks, strict=False):
        mean = point[name].values.real
        panel.plot(point["time"], mean, lw=1.4, color=colour, ls=style, label=name)
        if f"{name}_error" in point:
            error = point[f"{name}_error"].values.real
            panel.fill_between(
                point["time"], mean - error, mean + error, color=colour, alpha=0.15, lw=0
            )
    panel.margins(x=0)


def averaged(dataset: xr.Dataset) -> xr.Dataset:
    """Means over the finished samples with their errors; without samples, the finished points."""
    from heomdask.results.dataset import mean

    with warnings.catch_warnings():  # what is left out is said beside the numbers: `count`
        warnings.simplefilter("ignore", HeomdaskWarning)
        if "sample" in dataset.dims:
            return mean(dataset)
        names = [n for n in dataset.attrs["observables"] if n in dataset]
        return dataset[names].where(dataset["status"] == int(Outcome.DONE))


def _are_populations(names: list[str]) -> bool:
    return all(n[:1] == "P" and n[1:].isdigit() for n in names)


def _limits(dataset: xr.Dataset, names: list[str]) -> tuple[float, float]:
    if _are_populations(names):
        return -0.02, 1.02
    low = min(float(dataset[n].real.min()) for n in names)
    high = max(float(dataset[n].real.max()) for n in names)
    pad = 0.05 * (high - low or 1.0)
    return low - pad, high + pad
