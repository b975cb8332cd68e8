"""Warnings of an expansion, which a cache can keep beside the exponents and give again.

Takes: a message.
Gives: `warn`, a `HeomdaskWarning` at the user's own line; `collected`, which keeps them instead.
Next file: `report.py`, which finds what to warn of.
"""

from __future__ import annotations

import contextlib
import contextvars
import sys
import warnings
from collections.abc import Iterator
from pathlib import Path

from heomdask.errors import HeomdaskWarning

_PACKAGE = str(Path(__file__).parent.parent)

_kept: contextvars.ContextVar[list[str] | None] = contextvars.ContextVar("_kept", default=None)


def warn(message: str) -> None:
    """Warn at the nearest line outside this package, or keep the message within `collected`."""
    kept = _kept.get()
    if kept is not None:
        kept.append(message)
        return
    frame, level = sys._getframe(), 1
    while frame.f_back is not None and frame.f_code.co_filename.startswith(_PACKAGE):
        frame, level = frame.f_back, level + 1
    warnings.warn(message, HeomdaskWarning, stacklevel=level)


@contextlib.contextmanager
def collected() -> Iterator[list[str]]:
    """Within this block `warn` fills the list; other threads warn as ever."""
    kept: list[str] = []
    token = _kept.set(kept)
    try:
        yield kept
    finally:
        _kept.reset(token)
