"""Whether anybody can look at a sweep, and for how long.

Takes: an `Overview`, from the client; the scheduler, in whose process these functions run.
Gives: `open_view` and `close_view`.
Next file: `view.py`.

Without bokeh, or on a scheduler without a dashboard, there is nothing to look at, and workers are
not asked for more than they say anyway.
"""

from __future__ import annotations

import contextlib
import functools
from typing import Any

from heomdask.ensemble.view import Overview, View


def open_view(name: str, client: str, overview: Overview, dask_scheduler: Any) -> bool:
    """Begin to look at a sweep, if the scheduler has a dashboard; whether it has."""
    try:
        from heomdask.ensemble import panel
    except ImportError:  # no bokeh
        return False
    if not panel.attach(dask_scheduler):
        return False
    close = functools.partial(close_view, name, dask_scheduler=dask_scheduler)
    view = View(dask_scheduler, name, overview, client, close)
    dask_scheduler.add_plugin(view, name=name)
    with contextlib.suppress(ImportError):  # no prometheus_client
        from heomdask.ensemble import metrics

        metrics.add(view)
    return True


def close_view(name: str, dask_scheduler: Any) -> None:
    """Forget a sweep; one that is not known is no matter."""
    from heomdask.ensemble import panel

    view = dask_scheduler.plugins.get(name)
    if view is None:
        return
    dask_scheduler.remove_plugin(name)
    panel.detach(dask_scheduler)
    with contextlib.suppress(ImportError):
        from heomdask.ensemble import metrics

        metrics.discard(view)
