"""Whether anybody can look at a sweep, and for how long.

Takes: an `Overview`, from the client; the scheduler, in whose process these functions run.
Gives: `open_view` and `close_view`.
Next file: `view.py`.

Without bokeh, or on a scheduler without a dashboard, there is nothing to look at, and workers are
not asked for more than they say anyway.
"""

from __future__ import annotations

import contextlib
from typing import Any

from heomdask.ensemble.view import Overview, View


def open_view(name: str, overview: Overview, dask_scheduler: Any) -> bool:
    """Begin to look at a sweep, if the scheduler has a dashboard; whether it has."""
    try:
        from heomdask.ensemble import panel
    except ImportError:  # no bokeh
        return False
    if not panel.attach(dask_scheduler):
        return False
    view = View(dask_scheduler, name, overview)
    dask_scheduler.add_plugin(view, name=name)
    with contextlib.suppress(ImportError):  # no prometheus_client
        from heomdask.ensemble import metrics

        metrics.add(view)
    return True


def close_view(name: str, dask_scheduler: Any) -> None:
    """Forget a sweep; one that is not known is no matter."""
    view = dask_scheduler.plugins.get(name)
    if view is None:
        return
    from heomdask.ensemble import panel

    dask_scheduler.remove_plugin(name)
    panel.detach(dask_scheduler)
    with contextlib.suppress(ImportError):
        from heomdask.ensemble import metrics

        metrics.discard(view)
