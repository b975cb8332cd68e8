"""What goes on while a call runs in another thread."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from typing import Any


def moments(
    call: Callable[..., object], arguments: tuple[Any, ...], every: float
) -> Iterator[None]:
    """One after the other while the call runs, so many seconds apart; none if it holds the lock."""
    worker = threading.Thread(target=call, args=arguments)
    worker.start()
    while worker.is_alive():
        yield
        time.sleep(every)
