"""The memory that arrays leave behind in a worker process: kept for the next ones.

Takes: nothing.
Gives: `keep` and `give_back`, for the whole process.
Next file: `worker.py`, which calls them.

Dask's nannies have the C library return memory to the system as soon as it is free, and this turns
off what the library would do by itself: learn how large the arrays are that come and go. Each array
of a batch is then mapped afresh, page by page, every time: a third of the time of small problems.
What is kept here is what the library keeps at most where nobody tells it anything.
"""

from __future__ import annotations

import ctypes
import os

TRIM, MMAP = -1, -3  # parameters of glibc's mallopt, beside the variables that set them too
VARIABLES = {TRIM: "MALLOC_TRIM_THRESHOLD_", MMAP: "MALLOC_MMAP_THRESHOLD_"}
KEPT = {TRIM: 64 * 2**20, MMAP: 32 * 2**20}  # free bytes that stay; larger arrays are mapped afresh
PLAIN = 128 * 2**10  # both, of a process that has just started


def keep() -> None:
    """Keep free memory, as far as `KEPT` says."""
    _tell(KEPT)


def give_back() -> None:
    """Return free memory to the system, now and as eagerly as the environment says."""
    _tell({which: int(os.environ.get(name, PLAIN)) for which, name in VARIABLES.items()})
    trim = getattr(ctypes.CDLL(None), "malloc_trim", None)
    if trim is not None:
        trim(0)


def _tell(limits: dict[int, int]) -> None:
    """Nothing happens with a C library that is not glibc."""
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None)
    if mallopt is not None:
        for which, nbytes in limits.items():
            mallopt(which, nbytes)
