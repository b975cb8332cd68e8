"""A running sweep among the scheduler's metrics for Prometheus.

Takes: a `View`.
Gives: `add` and `discard`: its figures come and go at the scheduler's own address, `/metrics`.
Next file: none.
"""

from __future__ import annotations

import time
import weakref
from collections.abc import Iterator

from prometheus_client import REGISTRY
from prometheus_client.core import GaugeMetricFamily

from heomdask.ensemble.view import View


class _Sweeps:
    """All sweeps that run on schedulers of this process."""

    def __init__(self) -> None:
        self.views: weakref.WeakSet[View] = weakref.WeakSet()

    def describe(self) -> list[GaugeMetricFamily]:
        """Nothing before there is a sweep."""
        return []

    def collect(self) -> Iterator[GaugeMetricFamily]:
        points = GaugeMetricFamily(
            "heomdask_points", "Points of a running sweep by outcome", labels=["sweep", "outcome"]
        )
        speed = GaugeMetricFamily(
            "heomdask_points_per_second",
            "Points that a running sweep has computed per second in the last minutes",
            labels=["sweep"],
        )
        for view in sorted(self.views, key=lambda v: v.history.start):
            for outcome, count in view.outcomes().items():
                points.add_metric([view.name, str(outcome)], count)
            speed.add_metric([view.name], view.history.speed(time.time()))
        if self.views:
            yield from (points, speed)


_sweeps = _Sweeps()
REGISTRY.register(_sweeps)


def add(view: View) -> None:
    """Let a sweep be seen."""
    _sweeps.views.add(view)


def discard(view: View) -> None:
    """Let it be seen no more."""
    _sweeps.views.discard(view)
