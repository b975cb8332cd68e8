"""What a worker on another machine loads before its first task.

Takes: nothing; `dask worker --preload` names this file's module.
Gives: the modules of tasks, imported, and the folder of the job as the last of Python's path, where
    a `build` function may lie.
Next file: `worker.py`.
"""

from __future__ import annotations

import sys
from pathlib import Path

import heomdask.ensemble.task  # noqa: F401  # before the first task needs it


def dask_setup(_: object) -> None:
    """Dask calls this in every worker process that starts."""
    sys.path.append(str(Path.cwd()))  # last: in a clone of this repository lies another heomdask
