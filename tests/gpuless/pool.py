"""CuPy's memory pool, counted: whole pieces, kept for the stream that they were taken on.

Memory that is freed stays with its stream until there is no other, or `free_all_blocks`. It counts
sizes only: fragments, and blocks that are split, it does not know.
"""

from __future__ import annotations

import threading
from collections import Counter


class OutOfMemoryError(MemoryError):
    """As CuPy's."""


class Pool:
    """The memory of one card, and what of it the pool has."""

    piece = 512

    def __init__(self, card: int) -> None:
        self.card = card
        self.peak = 0
        self._used = 0
        self._limit = 0
        self._kept: Counter[tuple[int, int]] = Counter()  # (stream, size) -> blocks
        self._lock = threading.RLock()

    def take(self, nbytes: int, stream: int) -> int:
        """A block; its size."""
        size = -(-nbytes // self.piece) * self.piece
        with self._lock:
            if self._kept[stream, size]:
                self._kept[stream, size] -= 1
            elif self.total_bytes() + size > (self._limit or self.card):
                self.free_all_blocks()
                if self._used + size > (self._limit or self.card):
                    raise OutOfMemoryError(f"Out of memory allocating {nbytes:,} bytes")
            self._used += size
            self.peak = max(self.peak, self._used)
        return size

    def give(self, size: int, stream: int) -> None:
        with self._lock:
            self._used -= size
            self._kept[stream, size] += 1

    def used_bytes(self) -> int:
        return self._used

    def free_bytes(self) -> int:
        return sum(size * blocks for (_, size), blocks in self._kept.items())

    def total_bytes(self) -> int:
        return self._used + self.free_bytes()

    def get_limit(self) -> int:
        return self._limit

    def set_limit(self, *, size: int) -> None:
        self._limit = size

    def free_all_blocks(self) -> None:
        with self._lock:
            self._kept.clear()
