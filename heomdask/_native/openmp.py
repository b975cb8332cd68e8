"""GNU's OpenMP as it is loaded, with the compiled kernels: how its threads wait for each other.

Takes: the environment of the process; what the user has set there counts.
Gives: `loading`, a context in which the kernels are imported.
Next file: `lower.py`.

A thread that waits spins, and sleeps after a while. By default that is several milliseconds: where
another process has its core, the one waited for cannot run meanwhile, and an application takes
ten times as long. The library reads the number of spins when it is loaded and never again, so
nothing changes where another package has loaded it before.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator

SPINS = "GOMP_SPINCOUNT"
FEW = "1000"  # some ten microseconds, as long as waking a thread takes


@contextlib.contextmanager
def loading() -> Iterator[None]:
    """Have threads spin a short time only, and leave environment and affinity as they were.

    With OMP_PROC_BIND the library binds the thread that loads it to one CPU. So one CPU would be
    all that is counted later, and all that worker processes inherit.
    """
    chosen = SPINS in os.environ or "OMP_WAIT_POLICY" in os.environ
    affinity = os.sched_getaffinity(0) if hasattr(os, "sched_getaffinity") else None
    if not chosen:
        os.environ[SPINS] = FEW
    try:
        yield
    finally:
        if not chosen:
            del os.environ[SPINS]
        if affinity is not None:
            os.sched_setaffinity(0, affinity)
