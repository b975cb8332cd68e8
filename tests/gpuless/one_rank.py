"""A stand-in for `cupy.cuda.nccl` with one rank, which sends to itself, and only in a group.

Real NCCL takes no two ranks on one card, so one card cannot show more than this.
"""

from __future__ import annotations

import ctypes
from types import SimpleNamespace
from typing import Any

from gpuless.strict import Misuse

NCCL_FLOAT64 = 8
Message = tuple[int, int, int]  # address, count, stream


def one_rank() -> Any:
    """The names of the module that a size-1 communicator needs."""
    grouped: list[dict[str, list[Message]]] = []

    class NcclCommunicator:
        def __init__(self, size: int, identity: tuple[int, ...], rank: int) -> None:
            if (size, rank) != (1, 0) or len(identity) != 128:
                raise Misuse("one rank, which is number 0")

        def send(self, address: int, count: int, kind: int, peer: int, stream: int) -> None:
            _note("send", (address, count, stream), kind, peer)

        def recv(self, address: int, count: int, kind: int, peer: int, stream: int) -> None:
            _note("recv", (address, count, stream), kind, peer)

        def destroy(self) -> None: ...

    def _note(what: str, message: Message, kind: int, peer: int) -> None:
        if not grouped:
            raise Misuse(f"{what} to oneself outside a group waits forever")
        if kind != NCCL_FLOAT64 or peer != 0 or message[2] == 0:
            raise Misuse(f"{what}: doubles, to rank 0, on a stream of one's own")
        grouped[0][what].append(message)

    def end() -> None:
        group = grouped.pop()
        for (source, sent, _), (target, asked, _) in zip(*group.values(), strict=True):
            if sent != asked:
                raise Misuse(f"{sent} numbers are sent, {asked} expected")
            ctypes.memmove(target, source, 8 * sent)

    return SimpleNamespace(
        available=True, NCCL_FLOAT64=NCCL_FLOAT64, NcclCommunicator=NcclCommunicator,
        get_unique_id=lambda: (0,) * 128, groupEnd=end, get_version=lambda: 0,
        groupStart=lambda: grouped.append({"send": [], "recv": []}),
    )  # fmt: skip
