"""Links between processes: a wire to every other part, and what happens when one goes away.

Takes: a rank, a number of parts, the token of the group, where to listen; then all addresses.
Gives: `SocketLinks`.
Next file: `partition/backend.py`, a backend on such links.

What the sockets take at once is sent by `start` itself, and what has come is read by `finish`: so
small messages cost no change of threads. If a message is larger than that, a helper thread goes on
with the exchange while the part computes. One of them has the sockets at a time.

Beside the wire for arrays there is a connection for words: that a part leaves, or that all must end
and why. So a message that is under way never delays an end. Who learns of an end, or finds that a
part has vanished or is silent, tells all others.
"""

from __future__ import annotations

import contextlib
import select
import socket
import threading
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field

from heomdask.errors import PartitionFailed
from heomdask.partition.links.alarm import Alarm
from heomdask.partition.links.frames import Word, decode_word, encode_word
from heomdask.partition.links.meeting import ARRAYS, SHORTEST_TOKEN, Member, Tls, listen, meet
from heomdask.partition.links.protocol import PATIENCE, Exchange, Links
from heomdask.partition.links.shared_memory import SharedWire
from heomdask.partition.links.wire import BLOCKED, Wire
from heomdask.plan import AnyArray


@dataclass(eq=False)
class _Transfer:
    """What an exchange still has to send and to hear."""

    number: int
    unsent: set[int]
    unheard: set[int]
    helper: Future[None] | None = None


@dataclass(eq=False)
class _Words:
    """The other connection to a part."""

    stream: socket.socket
    heard: bytearray = field(default_factory=bytearray)
    left: bool = False  # the part has all that it needs


class SocketLinks(Links):
    """The links of one part through unix or TCP sockets, or shared memory with sockets as bells.

    Attributes
    ----------
    address : where the other parts find this one until `meet` has returned.
    """

    def __init__(
        self, rank: int, size: int, token: bytes, where: str,
        *, tls: Tls | None = None, patience: float = PATIENCE,
    ) -> None:  # fmt: skip
        if len(token) < SHORTEST_TOKEN:
            raise ValueError(f"a group's token has at least {SHORTEST_TOKEN} bytes")
        self.rank, self.size = rank, size
        self._member, self._patience = Member(rank, size, token, tls), patience
        self._listener, self.address = listen(where)
        self._alarm = Alarm()
        self._wires: dict[int, Wire] = {}
        self._words: dict[int, _Words] = {}
        self._number = 0
        self._transfer: _Transfer | None = None
        self._helpers: ThreadPoolExecutor | None = None
        self._sockets = threading.Lock()  # held by the thread that moves messages
        self._telling = threading.Lock()  # held by the thread that says or hears words
        self._closed = False

    def meet(self, addresses: Sequence[str]) -> None:
        """Connect with all other parts; `addresses` by rank. Nobody can connect afterwards."""
        with self._sockets:
            found = meet(self._member, self._listener, addresses, self._alarm, self._patience)
            with self._telling:
                for new in found:
                    if new.channel == ARRAYS:
                        make = SharedWire if new.shared else Wire
                        self._wires[new.rank] = make(new.stream)
                    else:
                        self._words[new.rank] = _Words(new.stream)

    def start(self, sends: Mapping[int, AnyArray], sources: Iterable[int]) -> Exchange:
        self._alarm.check()
        if self._transfer is not None:
            raise ValueError("an exchange is under way; finish it first")
        self._number += 1
        exchange = Exchange(self._number, tuple(sources))
        others = {*sends, *exchange.sources}
        for rank in others:
            self._wires[rank].put(self._number, sends.get(rank))
        transfer = _Transfer(self._number, others, set(others))
        with self._sockets:
            self._flush(transfer)
        if transfer.unsent:
            self._helpers = self._helpers or ThreadPoolExecutor(1, f"part-{self.rank}")
            transfer.helper = self._helpers.submit(self._complete, transfer)
        self._transfer = transfer
        return exchange

    def finish(self, exchange: Exchange) -> dict[int, AnyArray]:
        transfer, self._transfer = self._transfer, None
        if transfer is None or transfer.number != exchange.number:
            raise ValueError("this exchange is not under way")
        if transfer.helper is None:
            self._complete(transfer)
        else:
            transfer.helper.result()
        arrays = {rank: self._wires[rank].message() for rank in exchange.sources}
        heard = {rank: array for rank, array in arrays.items() if array is not None}
        for rank in arrays.keys() - heard.keys():
            raise self._found(f"part {rank} had nothing for part {self.rank}, which waited for it")
        return heard

    def abort(self, reason: str) -> None:
        self._end(f"part {self.rank} ended: {reason}")

    def close(self) -> None:
        with self._telling:
            if self._closed:
                return
            self._closed = True
            if self._alarm.reason is None:
                self._tell(Word.LEFT)
                self._alarm.ring(f"part {self.rank} closed its links")
        with self._sockets:  # who still has them heard the alarm
            pass
        if self._helpers is not None:
            self._helpers.shutdown()
        for wire in self._wires.values():
            wire.close()
        for words in self._words.values():
            with contextlib.suppress(OSError):
                words.stream.recv(2**12)  # closed with something unread, TCP might lose our word
            words.stream.close()
        self._listener.close()
        self._alarm.close()

    # ------------------------------------------------------------------ messages

    def _complete(self, transfer: _Transfer) -> None:
        """Send and hear all that an exchange is about."""
        with self._sockets:
            seen, since = -1, 0.0
            while True:
                self._flush(transfer)
                self._hear(transfer)
                if not transfer.unsent and not transfer.unheard:
                    return
                moved, now = sum(wire.moved for wire in self._wires.values()), time.monotonic()
                if moved != seen:
                    seen, since = moved, now
                elif now - since >= self._patience:
                    silent = min(transfer.unheard | transfer.unsent)
                    raise self._found(
                        f"part {self.rank} heard nothing of part {silent} for {self._patience:g} s"
                    )
                self._wait(transfer, since + self._patience - now)

    def _flush(self, transfer: _Transfer) -> None:
        """Send what the sockets take."""
        transfer.unsent -= {rank for rank in transfer.unsent if self._on(rank, Wire.flush)}

    def _hear(self, transfer: _Transfer) -> None:
        """Read what has come."""
        heard = {rank for rank in transfer.unheard if self._on(rank, Wire.read)}
        for rank in heard:
            if self._wires[rank].number != transfer.number:
                raise self._found(
                    f"part {self.rank} is at exchange {transfer.number}, part {rank} at "
                    f"{self._wires[rank].number}"
                )
        transfer.unheard -= heard

    def _on(self, rank: int, move: Callable[[Wire], bool]) -> bool:
        """Let messages of a wire go on, or find out what became of the other part."""
        try:
            return move(self._wires[rank])
        except (EOFError, OSError):
            raise self._found(f"part {rank} closed its links") from None
        except ValueError as error:
            raise self._found(f"part {self.rank} cannot read part {rank}: {error}") from error

    def _wait(self, transfer: _Transfer, seconds: float) -> None:
        """Until a wire can go on, or something is said."""
        poll = select.poll()
        poll.register(self._alarm, select.POLLIN)
        speakers = {w.stream.fileno(): rank for rank, w in self._words.items() if not w.left}
        for number in speakers:
            poll.register(number, select.POLLIN)
        for rank in transfer.unsent | transfer.unheard:
            events = select.POLLIN * (rank in transfer.unheard)
            events |= select.POLLOUT * (rank in transfer.unsent)
            poll.register(self._wires[rank].stream, events)
        for number, _ in poll.poll(seconds * 1000 + 1):
            if number in speakers:
                self._listen_to(speakers[number])
        self._alarm.check()

    # ------------------------------------------------------------------ words

    def _listen_to(self, rank: int) -> None:
        """Hear what a part says beside its arrays."""
        words = self._words[rank]
        with self._telling:
            try:
                data = words.stream.recv(2**12)
            except BLOCKED:
                return
            except OSError:
                data = b""
            words.heard += data
        if not data and not words.left:
            raise self._fail(f"part {rank} went away")
        try:
            said = decode_word(words.heard)
        except ValueError as error:
            raise self._fail(f"part {self.rank} cannot read part {rank}: {error}") from error
        if said is not None:
            word, reason = said
            words.left = word is Word.LEFT
            if word is Word.ENDED:
                raise self._fail(reason)

    def _found(self, reason: str) -> PartitionFailed:
        """The same for what this part found out, unless another has said why."""
        for rank in self._words:
            self._listen_to(rank)
        return self._fail(reason)

    def _fail(self, reason: str) -> PartitionFailed:
        """End all parts; what to raise here."""
        self._end(reason)
        return PartitionFailed(self._alarm.reason or reason)

    def _end(self, reason: str) -> None:
        with self._telling:
            if self._alarm.reason is None:
                self._tell(Word.ENDED, reason)
                self._alarm.ring(reason)

    def _tell(self, word: Word, reason: str = "") -> None:
        for words in self._words.values():
            with contextlib.suppress(OSError):  # who does not hear it finds the connection closed
                words.stream.send(encode_word(word, reason))
