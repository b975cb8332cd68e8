"""The parts of the page `heomdask`: what is done where, how fast, in how much memory, how it ended.

Takes: a `View`.
Gives: `Map`, `Speed`, `Memory` and `Outcomes`: Bokeh models that are updated in place.
Next file: none.
"""

from __future__ import annotations

from collections import Counter
from html import escape
from typing import Any

import numpy as np
from bokeh.layouts import column
from bokeh.models import (
    AdaptiveTicker,
    ColorBar,
    ColumnDataSource,
    DataTable,
    Div,
    FactorRange,
    FixedTicker,
    HoverTool,
    HTMLTemplateFormatter,
    LinearColorMapper,
    NumeralTickFormatter,
    Range1d,
    TableColumn,
)
from bokeh.palettes import Blues9, Category10
from bokeh.plotting import figure

from heomdask.ensemble.cells import Side
from heomdask.ensemble.history import EARLIER
from heomdask.ensemble.view import View
from heomdask.outcome import Outcome

MOST_LINES = 8  # of workers, else of machines, else of all together
MOST_BARS = 24
MOST_TICKS = 8
BAD = [o for o in Outcome if not o.good and o not in (Outcome.PENDING, Outcome.NOT_NEEDED)]
COMPUTED = "Points that are computed"
SHADES = ["#eceff3", *Blues9[-2::-1]]
BINARY = {"base": 1024, "mantissas": [2.0**n for n in range(10)]}  # ticks of bytes
RED = "#d62728"


class Map:
    """How much of each cell of the sweep's map is computed."""

    def __init__(self) -> None:
        names = ["x", "y", "column", "row", "share", "done", "points", "bad"]
        self.source = ColumnDataSource({name: [] for name in names})
        self.marks = ColumnDataSource({name: [] for name in ("x", "y")})
        self.root = figure(
            title=COMPUTED, x_range=Range1d(-0.5, 0.5), y_range=Range1d(-0.5, 0.5), tools="",
            toolbar_location=None, sizing_mode="stretch_both", min_height=260,
        )  # fmt: skip
        colours = LinearColorMapper(palette=SHADES, low=0, high=1)
        cells = self.root.rect(
            "x", "y", width=0.96, height=0.96, source=self.source,
            fill_color={"field": "share", "transform": colours}, line_color=None,
        )  # fmt: skip
        self.root.scatter("x", "y", source=self.marks, marker="x", size=9, color=RED, line_width=2)
        bar = ColorBar(color_mapper=colours, formatter=NumeralTickFormatter(format="0 %"), width=12)
        self.root.add_layout(bar, "right")
        self.hover = HoverTool(renderers=[cells])
        self.root.add_tools(self.hover)
        self.root.grid.visible = False
        self._sides: tuple[Side, ...] | None = None

    def update(self, view: View) -> None:
        cells = view.overview.cells
        if cells.sides != self._sides:
            self._lay_out(cells.sides)
        rows, columns = cells.shape
        y, x = (grid.ravel() for grid in np.indices((rows, columns)))
        points = view.counts.sum(axis=0)
        pending = view.counts[Outcome.PENDING]
        bad = view.cells_with(BAD)
        labels = [side.labels for side in cells.sides] + [("",), ("",)]
        self.source.data = {
            "x": x,
            "y": y,
            "column": [labels[0][i] for i in x],
            "row": [labels[1][i] for i in y],
            "share": 1 - pending / np.maximum(points, 1),
            "done": points - pending,
            "points": points,
            "bad": bad,
        }
        self.marks.data = {"x": x[bad > 0], "y": y[bad > 0]}
        self.root.title.text = COMPUTED + " (×: some failed or ended badly)" * bool(np.any(bad))

    def _lay_out(self, sides: tuple[Side, ...]) -> None:
        """Name the axes of a sweep."""
        self._sides = sides
        told = [("done", "@done of @points"), ("failed or bad", "@bad")]
        both = [(self.root.xaxis, self.root.x_range), (self.root.yaxis, self.root.y_range)]
        for (axis, extent), number, field in zip(both, range(2), ("column", "row"), strict=True):
            side = sides[number] if number < len(sides) else None
            count = 1 if side is None else len(side.labels)
            extent.start, extent.end = -0.5, count - 0.5
            shown = range(0, count, -(-count // MOST_TICKS))
            axis.visible = side is not None
            if side is not None:
                axis.axis_label = side.name
                axis.ticker = FixedTicker(ticks=list(shown))
                axis.major_label_overrides = {i: side.labels[i].split(" … ")[0] for i in shown}
                told.insert(number, (side.name, f"@{field}"))
        self.hover.tooltips = told


class Speed:
    """Points per second of each worker, while the sweep runs."""

    def __init__(self) -> None:
        self.source = ColumnDataSource({"xs": [], "ys": [], "who": [], "colour": []})
        self.root = figure(
            title="Speed", x_axis_label="time since the run began / min", y_axis_label="points/s",
            x_range=Range1d(0, 1), y_range=Range1d(0, 1), tools="", toolbar_location=None,
            sizing_mode="stretch_both", min_height=260,
        )  # fmt: skip
        self.root.multi_line(
            "xs", "ys", source=self.source, line_color="colour", line_width=2, legend_field="who"
        )
        self.root.legend.background_fill_alpha = 0.6
        self.root.legend.location = "bottom_left"
        self.root.legend.label_text_font_size = "11px"
        self.root.legend.spacing = 0

    def update(self, view: View, now: float) -> None:
        times, rates = view.history.rates(now)
        lines = _lines(view, rates)
        names = sorted(lines)
        colours = [Category10[10][i % 10] for i in range(len(names))]
        self.source.data = {
            "xs": [times / 60 for _ in names],
            "ys": [lines[name] for name in names],
            "who": names,
            "colour": colours,
        }
        most = max((float(y.max(initial=0)) for y in lines.values()), default=0.0)
        self.root.y_range.end = 1.1 * most or 1.0
        self.root.x_range.end = (now - view.history.start) / 60
        self.root.legend.visible = bool(names)


def _lines(view: View, rates: dict[str, Any]) -> dict[str, Any]:
    """Speeds by worker; of more than a few by machine, of more than a few machines together."""
    workers = view.scheduler.workers
    machine = {who: workers[who].host if who in workers else EARLIER for who in rates}
    if len(rates) <= MOST_LINES:
        return {_name(view, who): rate for who, rate in rates.items()}
    few = len(set(machine.values())) <= MOST_LINES
    members = Counter(machine.values())
    found: dict[str, Any] = {}
    for who, rate in rates.items():
        name = f"{machine[who]} ({members[machine[who]]} workers)" if few else "all workers"
        found[name] = found.get(name, 0) + rate
    return found


def _name(view: View, address: str) -> str:
    """What a worker is called; two of one machine must not have one name."""
    state = view.scheduler.workers.get(address)
    return address if state is None else f"worker {state.name}"


class Memory:
    """What the fullest workers have in memory, and what they may."""

    def __init__(self) -> None:
        self.source = ColumnDataSource({"who": [], "used": [], "limit": [], "colour": []})
        self.root = figure(
            title="Memory of the workers", x_axis_label="in use, of what may be used",
            x_range=Range1d(0, 1), y_range=FactorRange(), tools="", toolbar_location=None,
            sizing_mode="stretch_both", min_height=220,
        )  # fmt: skip
        limits = self.root.hbar(
            y="who", right="limit", height=0.8, source=self.source, color="#e8e8e8", line_color=None
        )
        self.root.hbar(y="who", right="used", height=0.8, source=self.source, color="colour")
        told = [("worker", "@who"), ("used", "@used{0.0 b}"), ("limit", "@limit{0.0 b}")]
        self.root.add_tools(HoverTool(renderers=[limits], tooltips=told))
        self.root.xaxis.ticker = AdaptiveTicker(**BINARY)
        self.root.xaxis.formatter = NumeralTickFormatter(format="0.0 b")
        self.root.ygrid.visible = False

    def update(self, view: View) -> None:
        states = view.scheduler.workers
        used = {who: int(state.metrics.get("memory", 0)) for who, state in states.items()}
        fullest = sorted(used, key=lambda who: -used[who])[:MOST_BARS]
        limits = [max(states[who].memory_limit, used[who]) for who in fullest]
        names = [_name(view, who) for who in fullest]
        close = [used[who] > 0.8 * limit for who, limit in zip(fullest, limits, strict=True)]
        self.root.y_range.factors = names[::-1]
        self.source.data = {
            "who": names,
            "used": [used[who] for who in fullest],
            "limit": limits,
            "colour": [RED if near else Blues9[2] for near in close],
        }
        self.root.x_range.end = max(limits, default=1)
        left_out = f", the fullest {MOST_BARS} of {len(used)}" if len(used) > MOST_BARS else ""
        self.root.title.text = f"Memory of the workers{left_out}"


class Outcomes:
    """How points ended, and what the last errors said."""

    def __init__(self) -> None:
        self.source = ColumnDataSource({"outcome": [], "points": [], "meaning": []})
        wrapped = HTMLTemplateFormatter(template='<span title="<%= value %>"><%= value %></span>')
        self.table = DataTable(
            source=self.source, index_position=None, sizing_mode="stretch_width", height=130,
            columns=[
                TableColumn(field="outcome", title="outcome", width=90),
                TableColumn(field="points", title="points", width=70),
                TableColumn(field="meaning", title="what it means", width=400, formatter=wrapped),
            ],
        )  # fmt: skip
        self.errors = Div(sizing_mode="stretch_width")
        heading = Div(text="<b>How points ended</b>")
        self.root = column(heading, self.table, self.errors, sizing_mode="stretch_both")

    def update(self, view: View) -> None:
        found = view.outcomes()
        self.source.data = {
            "outcome": [str(outcome) for outcome in found],
            "points": [f"{count:,}" for count in found.values()],
            "meaning": [outcome.advice for outcome in found],
        }
        self.errors.text = "".join(f"<p>{escape(text)}</p>" for text in view.errors)
