"""Memory: what is free here, and the refusal of what cannot fit.

Takes: predicted bytes.
Gives: nothing, or `TooLarge` with both numbers and a remedy, before any work starts.
Next file: `preparation.py`, which counts a hierarchy before it is built.
"""

from __future__ import annotations

from pathlib import Path

import psutil

from heomdask.errors import TooLarge

SMALL = 32_000_000  # bytes that always fit: asking the system takes longer than using them
_CGROUP = Path("/sys/fs/cgroup")


def available() -> int:
    """Bytes that this process may still take: free memory, or less where a cgroup says so."""
    free = int(psutil.virtual_memory().available)
    try:
        limit = (_CGROUP / "memory.max").read_text().strip()
        used = int((_CGROUP / "memory.current").read_text())
    except (OSError, ValueError):
        return free
    return free if limit == "max" else max(0, min(free, int(limit) - used))


def readable(nbytes: float) -> str:
    """1234567890 -> '1.23 GB'."""
    for unit in ("B", "kB", "MB", "GB"):
        if nbytes < 1000:
            return f"{nbytes:.3g} {unit}"
        nbytes /= 1000
    return f"{nbytes:,.3g} TB"


def require(nbytes: float, what: str, remedy: str) -> None:
    """Raise `TooLarge` if `nbytes` is more than what is free."""
    if nbytes < SMALL:
        return
    free = available()
    if nbytes > free:
        raise TooLarge(
            f"{what} needs about {readable(nbytes)} and {readable(free)} are free; {remedy}."
        )
