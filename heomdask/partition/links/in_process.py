"""Parts as threads of one process: for tests, and to try a partition out.

Takes: a number of parts.
Gives: `in_process`, their links; `together`, which runs one function on all of them.
Next file: `partition/links/frames.py`, messages to other processes as bytes.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from queue import Empty, SimpleQueue
from typing import TypeVar

import numpy as np

from heomdask.errors import PartitionFailed
from heomdask.partition.links.protocol import PATIENCE, Exchange, Links
from heomdask.plan import AnyArray

T = TypeVar("T")


class _Group:
    """A box for every pair of parts, and the reason for which all of them ended."""

    def __init__(self, size: int, patience: float) -> None:
        self.patience = patience
        pairs = [(source, target) for source in range(size) for target in range(size)]
        self.boxes: dict[tuple[int, int], SimpleQueue[tuple[int, AnyArray] | None]]
        self.boxes = {pair: SimpleQueue() for pair in pairs}
        self.failure: str | None = None
        self.lock = threading.Lock()


class InProcess(Links):
    """The links of one part; see `in_process`."""

    def __init__(self, group: _Group, rank: int, size: int) -> None:
        self._group, self.rank, self.size = group, rank, size
        self._number = 0

    def start(self, sends: Mapping[int, AnyArray], sources: Iterable[int]) -> Exchange:
        self._check()
        self._number += 1
        for target, array in sends.items():
            self._group.boxes[self.rank, target].put((self._number, np.array(array)))
        return Exchange(self._number, tuple(sources))

    def finish(self, exchange: Exchange) -> dict[int, AnyArray]:
        return {source: self._receive(source, exchange.number) for source in exchange.sources}

    def abort(self, reason: str) -> None:
        group = self._group
        with group.lock:
            group.failure = group.failure or f"part {self.rank} ended: {reason}"
        for box in group.boxes.values():
            box.put(None)

    def close(self) -> None:
        for target in range(self.size):
            self._group.boxes[self.rank, target].put(None)

    def _receive(self, source: int, number: int) -> AnyArray:
        self._check()
        try:
            message = self._group.boxes[source, self.rank].get(timeout=self._group.patience)
        except Empty:
            raise PartitionFailed(
                f"part {self.rank} heard nothing of part {source} for {self._group.patience:g} s"
            ) from None
        if message is None:
            self._group.boxes[source, self.rank].put(None)  # for the next who asks
            self._check()
            raise PartitionFailed(f"part {source} closed its links")
        if message[0] != number:
            raise PartitionFailed(
                f"part {self.rank} is at exchange {number}, part {source} at {message[0]}"
            )
        return message[1]

    def _check(self) -> None:
        if self._group.failure is not None:
            raise PartitionFailed(self._group.failure)


def in_process(size: int, patience: float = PATIENCE) -> list[InProcess]:
    """The links of `size` parts that are threads of this process."""
    group = _Group(size, patience)
    return [InProcess(group, rank, size) for rank in range(size)]


def together(links: Sequence[Links], run: Callable[[int], T]) -> list[T]:
    """``run(rank)`` of all parts at once, in a thread each; what the first to fail raised."""

    def guarded(rank: int) -> T:
        try:
            return run(rank)
        except BaseException as error:
            failures.append(error)
            links[rank].abort(f"{type(error).__name__}: {error}")
            raise

    failures: list[BaseException] = []
    with ThreadPoolExecutor(len(links)) as pool:
        futures = [pool.submit(guarded, rank) for rank in range(len(links))]
    if failures:
        raise failures[0]
    return [future.result() for future in futures]
