"""Messages as bytes: a header of fixed size, then the array as it lies in memory.

Takes: an array to be sent, or a header that came.
Gives: `Frame`, what a header says of an array; `Word`, what is said beside the arrays.
Next file: `partition/links/alarm.py`, how those who wait are woken.

Nothing that comes is ever run or unpickled: a header has one of a few types of numbers, at most
four axes and a limited size, or it is refused.
"""

from __future__ import annotations

import functools
import math
import struct
from dataclasses import dataclass
from enum import IntEnum

import numpy as np

from heomdask.plan import AnyArray

_MAGIC = b"HEOM"
_HEADER = struct.Struct("<4sBBBxQ4Q")  # magic, place, type, axes, number of the exchange, shape
HEADER_SIZE = _HEADER.size
_TYPES = tuple(np.dtype(name) for name in ("<f8", "<c16", "<f4", "<c8", "<i8"))
_AXES = 4
LARGEST = 2**36  # bytes of one message

_WORD = struct.Struct("<4sBxH")  # magic, kind, length of what is said
_LONGEST = 2**12  # bytes of a reason


class Place(IntEnum):
    """Where the array is that a header belongs to."""

    NOWHERE = 0  # there is none: the other part had nothing to send
    BEHIND = 1  # it follows the header
    SHARED = 2  # it lies in memory that both parts see


@dataclass(frozen=True)
class Frame:
    """What a header says."""

    number: int
    place: Place
    dtype: np.dtype[np.generic] = _TYPES[0]
    shape: tuple[int, ...] = ()

    @classmethod
    def of(cls, number: int, array: AnyArray | None, place: Place) -> Frame:
        """The header of an array of this part."""
        if array is None:
            return cls(number, Place.NOWHERE)
        if array.dtype not in _TYPES or array.ndim > _AXES or array.nbytes > LARGEST:
            types = ", ".join(t.name for t in _TYPES)
            raise ValueError(
                f"links carry arrays of {types}, up to {_AXES} axes and {LARGEST} bytes, got one "
                f"of {array.dtype} and shape {array.shape}"
            )
        return cls(number, place, array.dtype, array.shape)

    @functools.cached_property
    def nbytes(self) -> int:
        if self.place is Place.NOWHERE:
            return 0
        return math.prod(self.shape) * self.dtype.itemsize

    def encode(self) -> bytes:
        shape = (*self.shape, *[1] * (_AXES - len(self.shape)))
        kind = _TYPES.index(self.dtype)
        return _HEADER.pack(_MAGIC, self.place, kind, len(self.shape), self.number, *shape)

    @classmethod
    def decode(cls, header: bytes | memoryview) -> Frame:
        """The frame of a header, or a ValueError."""
        magic, place, kind, axes, number, *shape = _HEADER.unpack(header)
        if magic != _MAGIC or kind >= len(_TYPES) or axes > _AXES:
            raise ValueError("it is no message of a partition")
        frame = cls(number, Place(place), _TYPES[kind], tuple(shape[:axes]))
        if frame.nbytes > LARGEST:
            raise ValueError(f"a message of {frame.nbytes} bytes is too large")
        return frame


class Word(IntEnum):
    """What a part says beside its arrays."""

    LEFT = 0  # it has all that it needs, and sends no more
    ENDED = 1  # all must end, and why


def encode_word(word: Word, reason: str = "") -> bytes:
    """A word, and what is said with it, as bytes."""
    said = reason.encode()[:_LONGEST]
    return _WORD.pack(_MAGIC, word, len(said)) + said


def decode_word(data: bytes | bytearray) -> tuple[Word, str] | None:
    """The word at the beginning of `data`; None while it is incomplete."""
    if len(data) < _WORD.size:
        return None
    magic, word, length = _WORD.unpack_from(data)
    if magic != _MAGIC or length > _LONGEST:
        raise ValueError("it is no word of a partition")
    said = data[_WORD.size : _WORD.size + length]
    return (Word(word), said.decode(errors="replace")) if len(said) == length else None
