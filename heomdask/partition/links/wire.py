"""Messages to and from one other part, through a socket that never blocks.

Takes: a connected socket, plain or TLS.
Gives: `Wire`; `BLOCKED`, what a socket raises that cannot go on now; `as_bytes`.
Next file: `partition/links/shared_memory.py`, where only headers go through the socket.

In an exchange both ends of a wire send one message each, if an empty one. So neither is ever more
than one exchange ahead of the other, and what is read is never more than one message.
"""

from __future__ import annotations

import socket
import ssl

import numpy as np
from numpy.typing import NDArray

from heomdask.partition.links.frames import HEADER_SIZE, Frame, Place
from heomdask.plan import AnyArray

BLOCKED = (BlockingIOError, ssl.SSLWantReadError, ssl.SSLWantWriteError)
JOINED = 2**14  # bytes: up to here header and array are one piece, so one call and one packet

Bytes = NDArray[np.uint8]


class Wire:
    """One message out and one message in, for every exchange.

    Attributes
    ----------
    moved : bytes that went through so far, in and out.
    """

    def __init__(self, stream: socket.socket) -> None:
        self.stream, self.moved = stream, 0
        self._leaving: list[memoryview] = []
        self._header = memoryview(bytearray(HEADER_SIZE))
        self._arrived = 0  # bytes of the message that comes
        self._frame: Frame | None = None
        self._room: Bytes = np.empty(0, np.uint8)

    def put(self, number: int, array: AnyArray | None) -> None:
        """Begin an exchange: an array to be sent, or nothing."""
        self._arrived, self._frame = 0, None
        header = Frame.of(number, array, Place.BEHIND).encode()
        data = memoryview(b"") if array is None else as_bytes(array).data
        small = len(data) <= JOINED
        self._leaving = [memoryview(header + data)] if small else [memoryview(header), data]

    def flush(self) -> bool:
        """Send what the socket takes; whether all is gone."""
        try:
            while self._leaving:
                sent = self._send(self._leaving[0])
                self.moved += sent
                rest = self._leaving[0][sent:]
                self._leaving[:1] = [rest] if rest else []
        except BLOCKED:
            return False
        return True

    def read(self) -> bool:
        """Take what has come; whether the message is complete."""
        try:
            while len(room := self._vacant()):
                size = self._receive(room)
                if not size:
                    raise EOFError
                self._arrived += size
                self.moved += size
        except BLOCKED:
            return False
        return True

    @property
    def number(self) -> int:
        """The exchange that the message which came belongs to."""
        assert self._frame is not None
        return self._frame.number

    def message(self) -> AnyArray | None:
        """The array that came; it stays until the next exchange."""
        frame = self._frame
        assert frame is not None
        if frame.place is Place.NOWHERE:
            return None
        found: AnyArray = self._data(frame).view(frame.dtype).reshape(frame.shape)
        return found

    def close(self) -> None:
        self.stream.close()

    def _vacant(self) -> memoryview:
        """Where the next bytes belong: to the header, then to the array."""
        if self._arrived < HEADER_SIZE:
            return self._header[self._arrived :]
        if self._frame is None:
            frame = Frame.decode(self._header)
            self._admit(frame)
            self._frame = frame
        if self._frame.place is Place.BEHIND:
            return self._data(self._frame).data[self._arrived - HEADER_SIZE :]
        return memoryview(b"")

    def _admit(self, frame: Frame) -> None:
        """Raise a ValueError if such a message cannot come through this wire."""
        if frame.place is Place.SHARED:
            raise ValueError("there is no memory that both parts see")

    def _data(self, frame: Frame) -> Bytes:
        """The bytes of the array that comes."""
        if len(self._room) < frame.nbytes:
            self._room = np.empty(frame.nbytes, np.uint8)
        return self._room[: frame.nbytes]

    def _send(self, piece: memoryview) -> int:
        return self.stream.send(piece)

    def _receive(self, room: memoryview) -> int:
        return self.stream.recv_into(room)


def as_bytes(array: AnyArray) -> Bytes:
    """An array as it lies in memory."""
    return np.ascontiguousarray(array).reshape(-1).view(np.uint8)
