"""One driver a store where the file system has no locks: a lease that is renewed while it is held.

Takes: the folder of a store.
Gives: `Lease`: a small file that says who drives the store since when; `leased`, whether somebody
    does.
Next file: `store.py`.

A process that ends in any way stops renewing, so its lease grows stale and the next one takes the
store over. Whoever claims a lease reads it again a moment later: of two that claim at once, the
last writer stays. Who lost its lease notices at its next renewal, at the latest.
"""

from __future__ import annotations

import contextlib
import getpass
import json
import os
import socket
import threading
import time
import uuid
import warnings
from collections.abc import Iterator
from datetime import datetime
from typing import TYPE_CHECKING, Any

import psutil

from heomdask.errors import HeomdaskWarning, StoreError

if TYPE_CHECKING:
    from heomdask.results.folder import Folder

LEASE = "status/driver.json"
RENEWED = 10.0  # seconds from one renewal to the next
STALE = 60.0  # seconds without a renewal after which nobody holds the lease
SETTLING = 0.3  # seconds for another claim of the same moment to be written


class Lease:
    """Holds a store for one driver.

    Attributes
    ----------
    lost : why the store is no longer this driver's, or None.
    """

    def __init__(self, folder: Folder) -> None:
        self.lost: str | None = None
        self._folder = folder
        self._ended = threading.Event()
        self._mine = {
            "token": uuid.uuid4().hex,
            "who": _user(),
            "host": socket.gethostname(),
            "pid": os.getpid(),
            "since": time.time(),
        }

    @contextlib.contextmanager
    def held(self) -> Iterator[None]:
        """Take the lease, or refuse; renew it until the context ends."""
        self._take()
        thread = threading.Thread(target=self._renew, name="heomdask-lease", daemon=True)
        thread.start()
        try:
            yield
        finally:
            self._ended.set()
            thread.join(timeout=RENEWED)
            with contextlib.suppress(OSError):  # it grows stale by itself
                if self._is_mine(self._holder()):
                    self._folder.delete([LEASE])

    def _take(self) -> None:
        holder = self._holder()
        if holder is None:
            self._folder.claim(LEASE, self._content())
        elif _stale(holder):
            self._folder.write({LEASE: self._content()})
            warnings.warn(
                f"the run of {_words(holder)} left the store {self._folder} without a word; this "
                "run takes it over.",
                HeomdaskWarning,
                stacklevel=8,
            )
        else:
            raise self._in_use(holder)
        time.sleep(SETTLING)
        holder = self._holder()
        if not self._is_mine(holder):
            raise self._in_use(holder or {})

    def _renew(self) -> None:
        while not self._ended.wait(RENEWED):
            with contextlib.suppress(OSError):  # out of reach: the next round tries again
                holder = self._holder()
                if not self._is_mine(holder):
                    said = "its lease was deleted" if holder is None else f"{_words(holder)} has it"
                    self.lost = (
                        f"this run no longer holds the store {self._folder}: {said}; run again "
                        "when no other run is on it: what is committed stays."
                    )
                    return
                self._folder.write({LEASE: self._content()})

    def _holder(self) -> dict[str, Any] | None:
        return _holder(self._folder)

    def _is_mine(self, holder: dict[str, Any] | None) -> bool:
        return holder is not None and holder.get("token") == self._mine["token"]

    def _content(self) -> bytes:
        return json.dumps({**self._mine, "renewed": time.time()}).encode()

    def _in_use(self, holder: dict[str, Any]) -> StoreError:
        return StoreError(
            f"the store {self._folder} is in use by another run, that of {_words(holder)}; wait "
            f"for it, or end it. A run that was killed is forgotten after {STALE:.0f} s."
        )


def leased(folder: Folder) -> bool:
    """Whether somebody holds a store by a lease."""
    holder = _holder(folder)
    return holder is not None and not _stale(holder)


def _holder(folder: Folder) -> dict[str, Any] | None:
    """What a lease says; nothing, if it was cut off, which is as good as stale."""
    content = folder.read([LEASE]).get(LEASE)
    if content is None:
        return None
    try:
        return dict(json.loads(content))
    except (ValueError, TypeError):
        return {}


def _user() -> str:
    try:
        return getpass.getuser()
    except (KeyError, OSError):  # a container may have users without names
        return f"user {os.getuid()}"


def _stale(holder: dict[str, Any]) -> bool:
    """Whether the holder has not renewed for long, or its process on this machine is gone."""
    if time.time() - holder.get("renewed", 0.0) > STALE:
        return True
    return holder["host"] == socket.gethostname() and not psutil.pid_exists(holder["pid"])


def _words(holder: dict[str, Any]) -> str:
    if not holder:
        return "somebody unknown"
    since = datetime.fromtimestamp(holder["since"]).astimezone().isoformat(" ", "seconds")
    return f"{holder['who']} on {holder['host']} (process {holder['pid']}, since {since})"
