"""How parts find each other: addresses, a token that only the group knows, and TLS.

Takes: a `Member`, a socket that listens, and the addresses of all parts.
Gives: `listen`; `meet`, two connections to every other part: for arrays, and for words beside them.
Next file: `partition/links/wire.py`, messages on a connection.

Who connects is told 32 random bytes, and proves with them that it knows the token; then this part
proves the same. Nothing else is read or said before, of a fixed size and within a few seconds. Who
has no token is let go, and disturbs nobody. All talks go on at once, each a generator that yields
what it waits for. A unix socket has a name in Linux's abstract namespace: it leaves no file.

Addresses are ``tcp:HOST:PORT``, ``unix:NAME``, and ``memory:NAME``: the same socket, but arrays
pass through shared memory. Of two parts the one of higher rank connects, so its choice is theirs.
"""

from __future__ import annotations

import contextlib
import errno
import hmac
import os
import secrets
import select
import socket
import ssl
import struct
import time
from collections.abc import Generator, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

from heomdask.errors import PartitionFailed
from heomdask.partition.links.alarm import Alarm
from heomdask.partition.links.wire import BLOCKED

SHORTEST_TOKEN = 16  # bytes
GREETING = 5.0  # seconds that a visitor may take to prove that it belongs here
PARTING = 1.0  # seconds that a part which fails takes to introduce itself before it goes
VISITORS = 64  # who may be at that at once; others wait

_HELLO = struct.Struct("<4sBBH32s")  # magic, channel, whether memory is shared, rank, random bytes
_MAGIC = b"HEO1"
_RANDOM = 32  # bytes, of a challenge and of a proof
ARRAYS, WORDS = 0, 1  # channels


@dataclass(frozen=True)
class Tls:
    """What encrypts TCP: the contexts of a part that listens, and of one that connects."""

    server: ssl.SSLContext
    client: ssl.SSLContext


@dataclass(frozen=True)
class Member:
    """A part of a group."""

    rank: int
    size: int
    token: bytes
    tls: Tls | None = None

    def proof(self, side: Literal[b"connects", b"listens"], said: bytes) -> bytes:
        """That this part knows the token, and what has been said."""
        return hmac.digest(self.token, side + said, "sha256")


@dataclass(frozen=True)
class Connection:
    """A socket to another part; `shared` is whether its arrays lie in shared memory."""

    rank: int
    channel: int
    shared: bool
    stream: socket.socket


Steps = Generator[int, None, Connection]  # yields what poll is to wait for
Place = bytes | tuple[Any, ...]


def listen(where: str) -> tuple[socket.socket, str]:
    """A socket for the others to connect to, and its address; `where` is unix or tcp:HOST."""
    kind, _, host = where.partition(":")
    if kind == "unix" and not host:
        own = socket.socket(socket.AF_UNIX)
        name = f"heomdask-{secrets.token_hex(16)}"
        own.bind(b"\0" + name.encode())
        address = f"unix:{name}"
    elif kind == "tcp" and host:
        found = socket.getaddrinfo(host, 0, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)[0]
        own = socket.socket(found[0])
        own.bind(found[4])
        address = f"tcp:{host}:{own.getsockname()[1]}"
    else:
        raise ValueError(f"a part listens at 'unix' or 'tcp:HOST', not {where!r}")
    own.listen(2 * VISITORS)
    own.setblocking(False)
    return own, address


def meet(
    me: Member, listener: socket.socket, addresses: Sequence[str], alarm: Alarm, patience: float
) -> list[Connection]:
    """Two connections to every other part."""
    meeting = _Meeting(me, listener)
    until = time.monotonic() + patience
    try:
        for other in range(me.rank):
            for channel in (ARRAYS, WORDS):
                meeting.connect(other, addresses[other], channel, until)
        while waiting := meeting.missing():
            alarm.check()
            if time.monotonic() > until:
                names = " and ".join(map(str, sorted(waiting)))
                raise PartitionFailed(
                    f"part {me.rank} did not meet part {names} within {patience:g} s"
                )
            meeting.step(until, alarm)
    except BaseException:
        meeting.part()
        for connection in meeting.met.values():
            connection.stream.close()
        raise
    finally:
        meeting.end()
    return list(meeting.met.values())


@dataclass(eq=False)
class _Talk:
    """One that is under way."""

    number: int  # of the file
    steps: Steps
    until: float
    other: int | None  # with whom, if this part began it
    waits: int = field(default=0, init=False)


class _Meeting:
    """All talks of a part, and what came of them."""

    def __init__(self, me: Member, listener: socket.socket) -> None:
        self._me, self._listener = me, listener
        self._talks: dict[int, _Talk] = {}
        self.met: dict[tuple[int, int], Connection] = {}

    def missing(self) -> set[int]:
        """Who is not connected yet."""
        others = set(range(self._me.size)) - {self._me.rank}
        return {r for r in others if not {(r, ARRAYS), (r, WORDS)} <= self.met.keys()}

    def connect(self, other: int, address: str, channel: int, until: float) -> None:
        """Begin to connect to another part."""
        try:
            family, place = _find(address)
        except (OSError, ValueError) as error:
            raise self._unreached(other, error) from error
        stream = socket.socket(family)
        stream.setblocking(False)
        steps = _connect(self._me, stream, other, channel, address, place)
        self._begin(stream, steps, until, other)

    def step(self, until: float, alarm: Alarm | None = None) -> None:
        """Wait until something happens, and let it; without an alarm, others may leave."""
        poll, partners = select.poll(), {}
        if alarm is not None:
            poll.register(alarm, select.POLLIN)
            partners = {new.stream.fileno(): new.rank for new in self.met.values()}
        if sum(talk.other is None for talk in self._talks.values()) < VISITORS:
            poll.register(self._listener, select.POLLIN)
        for talk in self._talks.values():
            poll.register(talk.number, talk.waits)
        for number in partners:
            poll.register(number, select.POLLRDHUP)
        first = min([until, *(talk.until for talk in self._talks.values())])
        for number, _ in poll.poll(max(0.0, first - time.monotonic()) * 1000 + 1):
            if number == self._listener.fileno():
                self._welcome()
            elif number in partners:
                raise PartitionFailed(f"part {partners[number]} went away")
            elif number in self._talks:
                self._advance(self._talks[number])
        for talk in list(self._talks.values()):
            if talk.until < time.monotonic():
                talk.steps.close()
                del self._talks[talk.number]

    def part(self) -> None:
        """Let those whom this part connects to know it, so that they see it go."""
        until = time.monotonic() + PARTING
        while time.monotonic() < until and {t.other for t in self._talks.values()} - {None}:
            with contextlib.suppress(PartitionFailed):
                self.step(until)

    def end(self) -> None:
        """Nobody may come any more."""
        for talk in self._talks.values():
            talk.steps.close()
        self._listener.close()

    def _welcome(self) -> None:
        try:
            visitor, _ = self._listener.accept()
        except OSError:  # it has gone again
            return
        visitor.setblocking(False)
        until = time.monotonic() + GREETING
        self._begin(visitor, _receive(self._me, visitor), until, None)

    def _begin(self, stream: socket.socket, steps: Steps, until: float, other: int | None) -> None:
        talk = _Talk(stream.fileno(), steps, until, other)
        self._talks[talk.number] = talk
        self._advance(talk)

    def _advance(self, talk: _Talk) -> None:
        try:
            talk.waits = next(talk.steps)
            return
        except StopIteration as end:
            new: Connection = end.value
            if (new.rank, new.channel) in self.met:
                new.stream.close()
            else:
                self.met[new.rank, new.channel] = new
        except (OSError, EOFError, ValueError) as error:
            if talk.other is not None:
                del self._talks[talk.number]
                raise self._unreached(talk.other, error) from error
        del self._talks[talk.number]

    def _unreached(self, other: int, error: Exception) -> PartitionFailed:
        why = str(error) or "it hung up"
        return PartitionFailed(f"part {self._me.rank} cannot connect to part {other}: {why}")


def _find(address: str) -> tuple[int, Place]:
    """The family of sockets that reaches an address, and what to give to `connect`."""
    kind, _, name = address.partition(":")
    if kind in ("unix", "memory"):
        return socket.AF_UNIX, b"\0" + name.encode()
    if kind != "tcp":
        raise ValueError(f"no address of a part: {address!r}")
    host, _, port = name.rpartition(":")
    found = socket.getaddrinfo(host, int(port), type=socket.SOCK_STREAM)[0]
    return found[0], found[4]


def _connect(
    me: Member, stream: socket.socket, other: int, channel: int, address: str, place: Place
) -> Steps:
    """Connect to another part, and prove to each other that both know the token."""
    try:
        while (code := stream.connect_ex(place)) not in (0, errno.EISCONN):
            if code not in (errno.EINPROGRESS, errno.EALREADY):
                raise OSError(code, os.strerror(code))
            yield select.POLLOUT
        if stream.family != socket.AF_UNIX:
            host = address.removeprefix("tcp:").rpartition(":")[0]
            stream = yield from _secured(me, stream, host)
        challenge = yield from _hear(stream, _RANDOM)
        shared = address.startswith("memory:")
        hello = _HELLO.pack(_MAGIC, channel, shared, me.rank, secrets.token_bytes(_RANDOM))
        yield from _say(stream, hello + me.proof(b"connects", challenge + hello))
        proof = yield from _hear(stream, _RANDOM)
        if not hmac.compare_digest(proof, me.proof(b"listens", challenge + hello)):
            raise ValueError("it does not know the token of the group")
    except BaseException:
        stream.close()
        raise
    return Connection(other, channel, shared, stream)


def _receive(me: Member, stream: socket.socket) -> Steps:
    """Let a visitor prove that it is a part of this group."""
    try:
        if stream.family != socket.AF_UNIX:
            stream = yield from _secured(me, stream, None)
        challenge = secrets.token_bytes(_RANDOM)
        yield from _say(stream, challenge)
        heard = yield from _hear(stream, _HELLO.size + _RANDOM)
        hello, proof = heard[: _HELLO.size], heard[_HELLO.size :]
        if not hmac.compare_digest(proof, me.proof(b"connects", challenge + hello)):
            raise ValueError("a stranger")
        magic, channel, shared, rank, _ = _HELLO.unpack(hello)
        if magic != _MAGIC or channel not in (ARRAYS, WORDS) or not me.rank < rank < me.size:
            raise ValueError("not a part that is expected here")
        yield from _say(stream, me.proof(b"listens", challenge + hello))
    except BaseException:
        stream.close()
        raise
    return Connection(rank, channel, bool(shared), stream)


def _secured(
    me: Member, stream: socket.socket, host: str | None
) -> Generator[int, None, socket.socket]:
    """A TCP connection, encrypted if that is wanted; `host` is None where this part listens."""
    stream.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    if me.tls is None:
        return stream
    context = me.tls.server if host is None else me.tls.client
    secret = context.wrap_socket(
        stream, host is None, do_handshake_on_connect=False, server_hostname=host
    )
    try:
        while True:
            try:
                secret.do_handshake()
                return secret
            except ssl.SSLWantReadError:
                yield select.POLLIN
            except ssl.SSLWantWriteError:
                yield select.POLLOUT
    except BaseException:
        secret.close()
        raise


def _say(stream: socket.socket, words: bytes) -> Generator[int, None, None]:
    while words:
        try:
            words = words[stream.send(words) :]
        except BLOCKED:
            yield select.POLLOUT


def _hear(stream: socket.socket, size: int) -> Generator[int, None, bytes]:
    heard = b""
    while len(heard) < size:
        try:
            piece = stream.recv(size - len(heard))
        except BLOCKED:
            yield select.POLLIN
            continue
        if not piece:
            raise EOFError
        heard += piece
    return heard
