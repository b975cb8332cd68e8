"""The page `heomdask` of Dask's dashboard: how a running sweep gets on.

Takes: the views of a scheduler.
Gives: `attach` and `detach`, which bring the page and its tab to a scheduler with a dashboard and
    take the tab away; `document`, which Bokeh calls for every browser.
Next file: `pictures.py`, the parts of the page.

It is drawn only while a browser looks at it, about once a second, and from arrays whose size does
not grow with the sweep.
"""

from __future__ import annotations

import time
from html import escape
from typing import Any

from bokeh.document import Document
from bokeh.layouts import column, row
from bokeh.models import Div
from bokeh.server.tornado import BokehTornado
from distributed.dashboard.components import add_periodic_callback
from distributed.dashboard.components.scheduler import BOKEH_THEME, env
from distributed.dashboard.core import BokehApplication
from distributed.dashboard.scheduler import template_variables
from tornado.ioloop import IOLoop

from heomdask.ensemble.cluster import PAGE
from heomdask.ensemble.pictures import Map, Memory, Outcomes, Speed
from heomdask.ensemble.view import View, views
from heomdask.outcome import Outcome
from heomdask.progress import duration

EVERY = 1000  # milliseconds


def attach(scheduler: Any) -> bool:
    """Make the page and its tab, unless they are there; False without Dask's dashboard."""
    applications = scheduler.http_application.applications
    pages = [a for a in applications if isinstance(a, BokehTornado)]
    if not pages:
        return False
    shared = template_variables(scheduler)  # of all pages
    if not any(f"/{PAGE}" in a.app_paths for a in pages):
        own = BokehApplication({f"/{PAGE}": document}, scheduler, pages[0].prefix, shared)
        scheduler.http_application.add_application(own)
        own.initialize(IOLoop.current())
        own.start()
    if PAGE not in shared["pages"]:
        shared["pages"].append(PAGE)
    return True


def detach(scheduler: Any) -> None:
    """Take the tab away if no sweep is left; a browser that looks at the page is told so."""
    pages = template_variables(scheduler)["pages"]
    if PAGE in pages and not views(scheduler):
        pages.remove(PAGE)


def document(scheduler: Any, extra: dict[str, Any], page: Document) -> None:
    """The page, for one browser."""
    panel = Panel(scheduler)
    panel.update()
    add_periodic_callback(page, panel, EVERY)
    page.title = "Dask: heomdask"
    page.add_root(panel.root)
    page.template = env.get_template("simple.html")
    page.template_variables.update(extra)
    page.theme = BOKEH_THEME


class Panel:
    """All of the page; it shows the sweep that was begun last."""

    def __init__(self, scheduler: Any) -> None:
        self.scheduler = scheduler
        self.title = Div(sizing_mode="stretch_width")
        self.parts = cells, speed, memory, outcomes = Map(), Speed(), Memory(), Outcomes()
        self.body = column(
            row(cells.root, speed.root, sizing_mode="stretch_both"),
            row(memory.root, outcomes.root, sizing_mode="stretch_both"),
            sizing_mode="stretch_both",
        )
        self.root = column(self.title, self.body, sizing_mode="stretch_both")

    def update(self) -> None:
        """Draw what has changed."""
        running = views(self.scheduler)
        now = time.time()
        self.body.visible = bool(running)
        self.title.text = headline(running, now)
        if running:
            view = running[-1]
            cells, speed, memory, outcomes = self.parts
            cells.update(view)
            speed.update(view, now)
            memory.update(view)
            outcomes.update(view)


def headline(running: list[View], now: float) -> str:
    """What is going on, in a few words of HTML."""
    if not running:
        return (
            "<h2>No sweep is running here</h2>"
            "<p>This page comes to life when one begins. What a finished sweep has left to say is "
            "in its store: <code>heomdask status STORE</code>.</p>"
        )
    view = running[-1]
    outcomes = view.outcomes()
    needed = view.total - outcomes.get(Outcome.NOT_NEEDED, 0)
    pending = outcomes.get(Outcome.PENDING, 0)
    speed = view.history.speed(now)
    most = "at most " if view.overview.at_most else ""
    words = [
        f"<b>{needed - pending:,} of {most}{needed:,} points</b> "
        f"({100 * (needed - pending) / max(needed, 1):.0f} %)",
        f"{outcomes.get(Outcome.FAILED, 0):,} failed",
        f"{speed:.3g} points/s",
        f"running for {duration(now - view.history.start)}",
    ]
    if pending and speed:
        words.append(f"about {most}{duration(pending / speed)} left")
    if view.lost:
        words.append(f"{view.lost:,} tasks lost with their workers")
    more = len(running) - 1
    others = f" <small>(the latest of {more + 1} sweeps that run)</small>" if more else ""
    title = view.overview.title or "A sweep without a title"
    return f"<h2>{escape(title)}{others}</h2><p>{' &nbsp;·&nbsp; '.join(words)}</p>"
