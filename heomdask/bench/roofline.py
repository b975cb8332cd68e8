"""The roofline: what the kernels reach, and the two limits of the machine above them.

Takes: a `Report` and a file name.
Gives: a picture, operations per byte against operations per second, on one thread.
Next file: none.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from heomdask.bench.kernels import Kernel
from heomdask.bench.machine import Limits
from heomdask.bench.suite import Report
from heomdask.errors import InputError

if TYPE_CHECKING:
    from matplotlib.axes import Axes

_LINE = 0.032  # of the height of the picture: a line of text


def draw(report: Report, picture: Path) -> Path:
    """Draw the report's kernels in double precision on one thread; the suffix is the format."""
    import matplotlib as mpl

    mpl.use("Agg")
    from matplotlib import pyplot as plt
    from matplotlib.ticker import LogLocator, NullFormatter

    kernels = [k for k in report.kernels if k.threads == 1 and k.precision == "float64"]
    if not kernels:
        raise InputError("`plot` needs at least one case of the kernels; choose one with `case`.")
    figure, panel = plt.subplots(figsize=(9.5, 6.0), layout="constrained")
    low = 0.6 * min(k.work.intensity for k in kernels)
    high = 2.2 * max(k.work.intensity for k in kernels)
    limits = report.machine.limits[0]
    _roof(panel, limits, low, high)
    for k, style in zip(kernels, _styles(kernels), strict=True):
        panel.plot(k.work.intensity, k.gflops.median, "o", color=style, ms=6, zorder=3)
    panel.set_xscale("log")
    panel.set_yscale("log")
    panel.xaxis.set_major_locator(LogLocator(subs=(1.0, 2.0, 5.0)))
    panel.yaxis.set_major_locator(LogLocator(subs=(1.0, 2.0, 5.0)))
    for axis in (panel.xaxis, panel.yaxis):
        axis.set_major_formatter("{x:g}")
        axis.set_minor_formatter(NullFormatter())
    panel.set_xlim(low, high * 2.2)  # labels stand to the right of the dots
    panel.set_ylim(0.5 * min(k.gflops.median for k in kernels), 1.8e-9 * limits.flops.median)
    _label(panel, kernels)
    panel.set_xlabel("operations per byte that has to move (FLOP/B)")
    panel.set_ylabel("GFLOP/s")
    panel.set_title(f"One thread, double precision: {report.machine.processor}", fontsize=10)
    figure.savefig(picture, dpi=140)
    plt.close(figure)
    return picture


def _roof(panel: Axes, limits: Limits, low: float, high: float) -> None:
    """Bandwidth as a slope, up to the peak."""
    peak, bandwidth = limits.flops.median * 1e-9, limits.bandwidth.median * 1e-9
    x = np.geomspace(low, high * 2.2, 200)
    panel.plot(x, np.minimum(peak, bandwidth * x), color="0.25", lw=1.6)
    panel.annotate(
        f"multiply-adds: {peak:.3g} GFLOP/s", (high * 2.1, peak), xytext=(0, 4),
        textcoords="offset points", ha="right", fontsize=8, color="0.25",
    )  # fmt: skip
    panel.annotate(
        f"triad out of memory: {bandwidth:.3g} GB/s", (0.5 * peak / bandwidth, 0.5 * peak),
        xytext=(-8, 4), textcoords="offset points", ha="right", fontsize=8, color="0.25",
    )  # fmt: skip


def _styles(kernels: Sequence[Kernel]) -> list[str]:
    """A colour for each system, single or in batches."""
    groups = [(k.case.rsplit("-", 1)[0], k.members > 1) for k in kernels]
    order = list(dict.fromkeys(groups))
    return [f"C{order.index(group) % 10}" for group in groups]


def _label(panel: Axes, kernels: Sequence[Kernel]) -> None:
    """A name for each dot, in columns to the right of each cluster, that keep apart."""
    to_axes = panel.transData + panel.transAxes.inverted()
    places = [
        tuple(to_axes.transform((k.work.intensity, k.gflops.median)).tolist()) for k in kernels
    ]
    columns: dict[int, list[int]] = {}
    for i, (x, _) in enumerate(places):
        columns.setdefault(round(x / 0.2), []).append(i)
    styles = _styles(kernels)
    for members in columns.values():
        right = max(places[i][0] for i in members) + 0.035
        order = sorted(members, key=lambda i: places[i][1])
        heights = np.array([places[i][1] for i in order])
        steps = _LINE * np.arange(len(order))
        apart = np.maximum.accumulate(heights - steps) + steps
        apart -= np.mean(apart - heights)
        for i, height in zip(order, apart, strict=True):
            panel.annotate(
                kernels[i].case, places[i], xytext=(right, height), xycoords="axes fraction",
                textcoords="axes fraction", va="center", fontsize=7.5, color=styles[i],
                arrowprops={"arrowstyle": "-", "color": styles[i], "lw": 0.5, "shrinkB": 3,
                            "relpos": (0, 0.5)},
            )  # fmt: skip
