"""Why a part ended, for all of its threads, and a way to wake those that wait.

Takes: a reason.
Gives: `Alarm`.
Next file: `partition/links/meeting.py`, which waits for the other parts.
"""

from __future__ import annotations

import socket

from heomdask.errors import PartitionFailed


class Alarm:
    """Rings at most once, and then for ever.

    Who waits for other things waits for `fileno()` too: it is readable once the alarm rings.
    """

    def __init__(self) -> None:
        self.reason: str | None = None
        self._bell, self._ear = socket.socketpair()

    def fileno(self) -> int:
        return self._ear.fileno()

    def ring(self, reason: str) -> None:
        self.reason = reason
        self._bell.send(b"!")

    def check(self) -> None:
        """Raise `PartitionFailed` if it rings."""
        if self.reason is not None:
            raise PartitionFailed(self.reason)

    def close(self) -> None:
        self._bell.close()
        self._ear.close()
