"""What parts do with each other, whatever lies between them.

Takes: arrays.
Gives: `Links`, the protocol, with the reduction that every way of sending may keep.
Next file: `partition/links/in_process.py`, parts as threads of one process.

Every part calls the same methods in the same order. A call that cannot be answered any more,
because a part failed or went away, raises `PartitionFailed`; it never waits forever.
"""

from __future__ import annotations

import abc
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Literal

import numpy as np

from heomdask.plan import AnyArray

PATIENCE = 60.0  # seconds in which nothing comes from a part that is waited for
_OPERATIONS = {"sum": np.add, "max": np.maximum}


@dataclass(frozen=True)
class Exchange:
    """One that has been started: its number, and the parts that are to be heard."""

    number: int
    sources: tuple[int, ...]


class Links(abc.ABC):
    """The links of the part `rank` of `size` parts."""

    rank: int
    size: int

    @abc.abstractmethod
    def start(self, sends: Mapping[int, AnyArray], sources: Iterable[int]) -> Exchange:
        """Send an array to each of some parts, and expect one from each of `sources`.

        Returns at once; the arrays stay as they are until `finish`. One exchange at a time.
        """

    @abc.abstractmethod
    def finish(self, exchange: Exchange) -> dict[int, AnyArray]:
        """Wait for what was expected: an array from each source, to be read, until the next start.

        What this part sent is then on its way.
        """

    @abc.abstractmethod
    def abort(self, reason: str) -> None:
        """Let every part's present and later calls raise `PartitionFailed`; from any thread."""

    @abc.abstractmethod
    def close(self) -> None:
        """Leave, and give back what the links hold; no call follows.

        Others get what was sent before. Who waits for more gets `PartitionFailed`.
        """

    def swap(self, sends: Mapping[int, AnyArray]) -> dict[int, AnyArray]:
        """Send some parts an array, and receive one of each of them."""
        return self.finish(self.start(sends, sends.keys()))

    def allreduce(self, array: AnyArray, operation: Literal["sum", "max"]) -> AnyArray:
        """The sum, or largest value, over all parts: in the order of ranks, the same for all."""
        others = [rank for rank in range(self.size) if rank != self.rank]
        heard = {**self.swap(dict.fromkeys(others, array)), self.rank: array}
        total = heard[0]
        for rank in range(1, self.size):
            total = _OPERATIONS[operation](total, heard[rank])
        return total
