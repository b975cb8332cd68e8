"""Sweeps: specification, tasks, and the driver that hands them to workers.

Takes: a `Sweep` and a path.
Gives: a filled store.
Next file: `axes.py`; then `grid.py`, `shards.py`, `sweep.py`, `session.py`, `task.py`, `driver.py`.
"""
