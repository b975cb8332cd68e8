"""Arrays in memory that two processes of one host share; the socket is the bell.

Takes: a unix socket between them.
Gives: `SharedWire`, a `Wire` whose larger arrays do not go through the socket.
Next file: `partition/links/sockets.py`, the links made of wires.

The sender has two rooms and fills them in turn. A message after next overwrites a room, and by
then the receiver has answered the next one, so it has done with the first. Memory has no name:
its descriptor goes through the socket, so nothing is left behind however a process ends. It is
sealed against shrinking, which would kill who reads it.
"""

from __future__ import annotations

import fcntl
import mmap
import os
import socket

import numpy as np

from heomdask.partition.links.frames import HEADER_SIZE, Frame, Place
from heomdask.partition.links.wire import Bytes, Wire, as_bytes
from heomdask.plan import AnyArray

SMALL = 2**15  # bytes: up to here the socket is as fast


class SharedWire(Wire):
    """A wire that passes memory."""

    def __init__(self, stream: socket.socket) -> None:
        super().__init__(stream)
        self._count = 0  # of messages, the same at both ends: which room is whose turn
        self._own = np.empty((2, 0), np.uint8)
        self._other = np.empty((2, 0), np.uint8)
        self._passed: int | None = None  # a descriptor that the other part does not have yet

    def put(self, number: int, array: AnyArray | None) -> None:
        self._count += 1
        if array is None or array.nbytes <= SMALL:
            super().put(number, array)
            return
        super().put(number, None)
        self._leaving = [memoryview(Frame.of(number, array, Place.SHARED).encode())]
        if self._own.shape[1] < array.nbytes:
            self._own, self._passed = _make(array.nbytes)
        self._own[self._count % 2, : array.nbytes] = as_bytes(array)

    def _admit(self, frame: Frame) -> None:
        if frame.place is Place.SHARED and self._other.shape[1] < frame.nbytes:
            raise ValueError("a message is larger than the memory that it should lie in")

    def _data(self, frame: Frame) -> Bytes:
        if frame.place is not Place.SHARED:
            return super()._data(frame)
        data: Bytes = self._other[self._count % 2, : frame.nbytes]
        return data

    def _send(self, piece: memoryview) -> int:
        if self._passed is None:
            return super()._send(piece)
        sent = socket.send_fds(self.stream, [piece], [self._passed])
        os.close(self._passed)
        self._passed = None
        return sent

    def _receive(self, room: memoryview) -> int:
        if self._arrived >= HEADER_SIZE:
            return super()._receive(room)
        data, passed, _, _ = socket.recv_fds(self.stream, len(room), 1, socket.MSG_CMSG_CLOEXEC)
        for descriptor in passed:
            self._other = _open(descriptor)
        room[: len(data)] = data
        return len(data)

    def close(self) -> None:
        super().close()
        self._own = self._other = np.empty((2, 0), np.uint8)
        if self._passed is not None:
            os.close(self._passed)
            self._passed = None


def _make(nbytes: int) -> tuple[Bytes, int]:
    """Two new rooms that hold so much each, and their descriptor."""
    size = -(-nbytes // mmap.PAGESIZE) * mmap.PAGESIZE
    descriptor = os.memfd_create("heomdask", os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING)
    try:
        os.posix_fallocate(descriptor, 0, 2 * size)  # says now if there is no room
        fcntl.fcntl(descriptor, fcntl.F_ADD_SEALS, fcntl.F_SEAL_SHRINK | fcntl.F_SEAL_SEAL)
        rooms = np.frombuffer(mmap.mmap(descriptor, 2 * size), np.uint8)
    except BaseException:
        os.close(descriptor)
        raise
    return rooms.reshape(2, size), descriptor


def _open(descriptor: int) -> Bytes:
    """The rooms of the other part, to be read."""
    try:
        if fcntl.fcntl(descriptor, fcntl.F_GET_SEALS) & fcntl.F_SEAL_SHRINK == 0:
            raise ValueError("shared memory must be sealed")
        size = os.fstat(descriptor).st_size
        rooms = np.frombuffer(mmap.mmap(descriptor, size, prot=mmap.PROT_READ), np.uint8)
    finally:
        os.close(descriptor)
    return rooms.reshape(2, -1)
