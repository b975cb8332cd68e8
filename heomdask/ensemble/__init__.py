"""Sweeps: specification, tasks, and the driver that hands them to workers.

Takes: a function that builds one point, and axes.
Gives: a store filled by a Dask cluster, as a labelled dataset.
Next file: `axes.py`; then `grid.py`, `shards.py`, `stopping.py`, `sweep.py`, `session.py`,
`task.py`, `driver.py`, `pools.py`, `convergence_check.py`.
"""

from heomdask.ensemble.axes import Table, axis
from heomdask.ensemble.runner import SerialRunner
from heomdask.ensemble.stopping import StandardError
from heomdask.ensemble.sweep import Sweep
from heomdask.results.dataset import failures, mean, open

__all__ = [
    "SerialRunner",
    "StandardError",
    "Sweep",
    "Table",
    "axis",
    "failures",
    "mean",
    "open",
]
