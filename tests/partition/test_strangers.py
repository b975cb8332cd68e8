"""Who does not know the group's token learns nothing and disturbs nobody; what is no message is
refused."""

from __future__ import annotations

import contextlib
import os
import socket
import ssl
import struct
import threading
import time

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from links_support import TOKEN, contexts, group, make, write_certificate

from heomdask.errors import PartitionFailed
from heomdask.partition.links import meeting
from heomdask.partition.links.frames import (
    HEADER_SIZE,
    LARGEST,
    Frame,
    Place,
    Word,
    decode_word,
    encode_word,
)
from heomdask.partition.links.in_process import together
from heomdask.partition.links.meeting import Member, Tls
from heomdask.partition.links.sockets import SocketLinks


def visit(address: str) -> socket.socket:
    kind, _, place = address.partition(":")
    stream = socket.socket(socket.AF_UNIX if kind == "unix" else socket.AF_INET)
    stream.settimeout(10)
    host, _, port = place.rpartition(":")
    try:
        stream.connect(b"\0" + place.encode() if kind == "unix" else (host, int(port)))
    except BaseException:
        stream.close()
        raise
    return stream


def all_that_is_said(stream: socket.socket) -> bytes:
    heard = b""
    try:
        while piece := stream.recv(4096):
            heard += piece
    except ConnectionResetError:
        pass
    return heard


def proven(rank: int, stream: socket.socket, token: bytes = TOKEN, **changes: int) -> bytes:
    """The hello of a part, with what is wrong about it."""
    challenge = stream.recv(32)
    parts = {"channel": 0, "shared": 0, "rank": rank} | changes
    hello = struct.pack("<4sBBH32s", b"HEO1", *parts.values(), os.urandom(32))
    return hello + Member(rank, 3, token).proof(b"connects", challenge + hello)


HELLO = 72  # bytes of it, with its proof
WORDS = {
    "nothing": lambda stream: b"",
    "noise": lambda stream: b"GET / HTTP/1.1\r\n\r\n" + bytes(200),
    "too much": lambda stream: os.urandom(2**16),
    "another token": lambda stream: proven(1, stream, b"of another group"),
    "no such rank": lambda stream: proven(7, stream),
    "this very rank": lambda stream: proven(0, stream),
    "no such channel": lambda stream: proven(1, stream, channel=9),
}


@pytest.mark.parametrize("kind", ["unix", "tcp", "tls"])
@pytest.mark.parametrize("says", WORDS)
def test_a_stranger_learns_nothing_and_disturbs_nobody(kind, says, folder, monkeypatch):
    monkeypatch.setattr(meeting, "GREETING", 0.2)
    links = [make(kind, rank, 2, 20.0, folder) for rank in range(2)]
    addresses = [one.address for one in links]
    first = threading.Thread(target=links[0].meet, args=[addresses])
    first.start()
    with visit(addresses[0]) as stranger:
        if kind != "tls":
            said = WORDS[says](stranger)
            with contextlib.suppress(ConnectionError):  # it may be shown out while it speaks
                stranger.sendall(said)
            assert len(all_that_is_said(stranger)) == (0 if len(said) == HELLO else 32)
        else:
            stranger.sendall(b"GET / HTTP/1.1\r\n\r\n" if says == "noise" else b"")
            assert len(all_that_is_said(stranger)) < 32  # an alert of TLS, if anything
    links[1].meet(addresses)
    first.join()
    assert together(links, lambda r: links[r].allreduce(np.ones(1), "sum")) == [2.0, 2.0]
    with pytest.raises(ConnectionRefusedError):
        visit(addresses[0])
    for one in links:
        one.close()


def test_a_crowd_of_strangers(folder, monkeypatch):
    monkeypatch.setattr(meeting, "GREETING", 0.2)
    monkeypatch.setattr(meeting, "VISITORS", 4)
    links = [make("tcp", rank, 2, 20.0, folder) for rank in range(2)]
    addresses = [one.address for one in links]
    crowd = [visit(addresses[0]) for _ in range(8)]
    together(links, lambda rank: links[rank].meet(addresses))
    for one in (*crowd, *links):
        one.close()


def test_who_has_another_token_is_told_nothing():
    links = [SocketLinks(rank, 2, bytes([rank]) * 16, "unix", patience=0.5) for rank in range(2)]
    addresses = [one.address for one in links]
    waiting = threading.Thread(
        target=pytest.raises, args=[PartitionFailed, links[0].meet, addresses]
    )
    waiting.start()
    with pytest.raises(PartitionFailed, match="part 1 cannot connect to part 0: it hung up"):
        links[1].meet(addresses)
    waiting.join()
    for one in links:
        one.close()


def test_who_listens_in_the_place_of_a_part_is_found_out():
    with socket.create_server(("127.0.0.1", 0)) as false:
        address = f"tcp:127.0.0.1:{false.getsockname()[1]}"
        links = SocketLinks(1, 2, TOKEN, "unix", patience=5.0)

        def answer() -> None:
            for _ in range(2):
                stream, _ = false.accept()
                with stream, contextlib.suppress(ConnectionError):  # found out by the first
                    stream.sendall(bytes(32))
                    stream.recv(HELLO)
                    stream.sendall(bytes(32))
                    stream.recv(1)

        lying = threading.Thread(target=answer)
        lying.start()
        with pytest.raises(PartitionFailed, match="does not know the token of the group"):
            links.meet([address, links.address])
        lying.join()
        links.close()


def test_another_authority_is_refused(folder, tmp_path):
    write_certificate(tmp_path)
    first = SocketLinks(0, 2, TOKEN, "tcp:127.0.0.1", tls=contexts(folder), patience=0.5)
    other = SocketLinks(1, 2, TOKEN, "tcp:127.0.0.1", tls=contexts(tmp_path), patience=0.5)
    waiting = threading.Thread(target=pytest.raises, args=[PartitionFailed, first.meet, ["", ""]])
    waiting.start()
    with pytest.raises(PartitionFailed, match=r"part 1 cannot connect to part 0: .*CERTIFICATE"):
        other.meet([first.address, other.address])
    waiting.join()
    first.close()
    other.close()


@pytest.mark.parametrize("address", ["tcp:127.0.0.1:1", "unix:nobody", "tcp:no host:1", "udp:here"])
def test_where_nobody_listens(address):
    links = SocketLinks(1, 2, TOKEN, "unix")
    with pytest.raises(PartitionFailed, match="part 1 cannot connect to part 0: "):
        links.meet([address, links.address])
    links.close()


def test_the_certificates_of_dask_serve():
    from distributed import Security

    security = Security.temporary()
    tls = Tls(
        security.get_listen_args("worker")["ssl_context"],
        security.get_connection_args("worker")["ssl_context"],
    )
    links = [SocketLinks(rank, 2, TOKEN, "tcp:127.0.0.1", tls=tls) for rank in range(2)]
    together(links, lambda rank: links[rank].meet([one.address for one in links]))
    for one in links:
        assert isinstance(one._wires[1 - one.rank].stream, ssl.SSLSocket)
        one.close()


def test_arguments_that_are_refused():
    with pytest.raises(ValueError, match="at least 16 bytes"):
        SocketLinks(0, 2, b"short", "unix")
    with pytest.raises(ValueError, match="listens at 'unix' or 'tcp:HOST', not 'udp:here'"):
        SocketLinks(0, 2, TOKEN, "udp:here")


# --------------------------------------------------------------------------- messages


@given(st.binary(min_size=HEADER_SIZE, max_size=HEADER_SIZE))
def test_a_header_is_understood_or_refused(data):
    for header in (data, b"HEOM" + data[4:], b"HEOM\1\0\1" + data[7:]):
        try:
            frame = Frame.decode(header)
        except ValueError:
            continue
        assert frame.nbytes <= LARGEST
        assert Frame.decode(frame.encode()) == frame


@given(st.binary(max_size=40))
def test_a_word_is_understood_or_refused(data):
    for said in (data, b"HEOM" + data):
        try:
            word = decode_word(said)
        except ValueError:
            continue
        assert word is None or word[0] in Word


def test_a_reason_is_not_longer_than_may_be():
    word, reason = decode_word(encode_word(Word.ENDED, "ä" * 10_000))
    assert word is Word.ENDED
    assert reason.startswith("ää")
    assert decode_word(encode_word(Word.ENDED, "why")[:-1]) is None


def huge() -> bytes:
    return Frame(1, Place.BEHIND, np.dtype("float64"), (LARGEST,)).encode()


FALSE = {
    "noise": (lambda: bytes(HEADER_SIZE), "it is no message"),
    "no such place": (lambda: b"HEOM\7" + huge()[5:], "7 is not a valid Place"),
    "too large": (huge, "too large"),
    "memory that is not there": (
        lambda: Frame(1, Place.SHARED, np.dtype("float64"), (8,)).encode(),
        "larger than the memory",
    ),
}


@pytest.mark.parametrize("kind", ["tcp", "memory"])
@pytest.mark.parametrize("says", FALSE)
def test_what_is_no_message_ends_the_group(kind, says, folder):
    make_header, why = FALSE[says]
    if (says, kind) == ("memory that is not there", "tcp"):
        why = "there is no memory"
    with group(kind, 2, folder) as links:
        links[1]._wires[0].stream.send(make_header())
        with pytest.raises(PartitionFailed, match=f"part 0 cannot read part 1: .*{why}"):
            links[0].finish(links[0].start({}, [1]))
        with pytest.raises(PartitionFailed, match=why):
            links[1].finish(links[1].start({}, [0]))


def test_memory_that_could_shrink_is_refused(folder):
    with group("memory", 2, folder) as links:
        descriptor = os.memfd_create("unsealed")
        os.ftruncate(descriptor, 2**16)
        header = Frame(1, Place.SHARED, np.dtype("float64"), (8,)).encode()
        socket.send_fds(links[1]._wires[0].stream, [header], [descriptor])
        os.close(descriptor)
        with pytest.raises(PartitionFailed, match="must be sealed"):
            links[0].finish(links[0].start({}, [1]))


def test_what_is_no_word_ends_the_group(folder):
    with group("unix", 2, folder) as links:
        links[1]._words[0].stream.send(bytes(64))
        with pytest.raises(PartitionFailed, match="part 0 cannot read part 1: it is no word"):
            links[0].finish(links[0].start({}, [1]))


def test_a_message_cut_short(folder):
    with group("tcp", 2, folder) as links:
        header = Frame(1, Place.BEHIND, np.dtype("float64"), (8,)).encode()
        links[1]._wires[0].stream.send(header + bytes(10))
        time.sleep(0.05)
        links[1].close()
        with pytest.raises(PartitionFailed, match="part 1 closed its links"):
            links[0].finish(links[0].start({}, [1]))
