"""Every exception and warning that heomdask raises.

Takes: nothing.
Gives: the exception tree below.
Next file: `brief.py`, then `checks.py`, the only place where argument errors are worded.

::

    HeomdaskError
    ├── InputError (ValueError)            an argument is wrong; raised before any work starts
    ├── TooLarge (MemoryError)             the plan cannot fit; raised before any work starts
    ├── BackendUnavailable (RuntimeError)  a backend was asked for by name and cannot run here
    ├── StoreError (OSError)               a store is not ours, not writable, or in use
    ├── SolveFailed (RuntimeError)         a solve ended with an outcome that is not `done`
    └── PartitionFailed (RuntimeError)     a part of a partitioned solve failed or went away
    HeomdaskWarning (UserWarning)          the run goes on, but its numbers need a look
"""

from __future__ import annotations


class HeomdaskError(Exception):
    """Base of every error raised on purpose."""


class InputError(HeomdaskError, ValueError):
    """An argument is wrong. The message names it, what was given, what is allowed."""


class TooLarge(HeomdaskError, MemoryError):
    """What was asked for cannot fit in memory. The message gives both numbers and a remedy."""


class BackendUnavailable(HeomdaskError, RuntimeError):
    """A backend asked for by name cannot run here. The message gives the reason and a remedy."""

    @classmethod
    def because(cls, name: str, cause: str, remedy: str) -> BackendUnavailable:
        """The one sentence for it."""
        return cls(f"The backend {name!r} cannot run here: {cause}; {remedy}.")


class StoreError(HeomdaskError, OSError):
    """A store cannot be used: another sweep's, not writable, or not a store at all."""


class SolveFailed(HeomdaskError, RuntimeError):
    """A solve ended with an outcome other than `done`; the message is that outcome's advice."""


class PartitionFailed(HeomdaskError, RuntimeError):
    """A part of a partitioned solve failed or went away; the message says which, and why."""


class HeomdaskWarning(UserWarning):
    """The run goes on, but its numbers need a look."""
