"""Groups of every kind of links, in threads of one process or with one member in another.

``python links_support.py KIND RANK SIZE PATIENCE WHAT FOLDER`` is that member: it prints its
address, reads all addresses as a line of JSON, meets the others and does WHAT for ever.
"""

from __future__ import annotations

import json
import ssl
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import numpy as np

from heomdask.partition.links.in_process import in_process, together
from heomdask.partition.links.meeting import Tls
from heomdask.partition.links.protocol import Links
from heomdask.partition.links.sockets import SocketLinks

TOKEN = b"known to the group"
KINDS = ("unix", "tcp", "tls", "memory")


def make(kind: str, rank: int, size: int, patience: float, folder: Path) -> SocketLinks:
    where = "tcp:127.0.0.1" if kind in ("tcp", "tls") else "unix"
    tls = contexts(folder) if kind == "tls" else None
    return SocketLinks(rank, size, TOKEN, where, tls=tls, patience=patience)


def address(kind: str, links: SocketLinks) -> str:
    """Where others find these links: of kind "memory" they share memory."""
    return links.address.replace("unix:", "memory:" if kind == "memory" else "unix:")


def contexts(folder: Path) -> Tls:
    """What the files of `write_certificate` make: both sides must have been signed by it."""
    found = []
    for purpose in (ssl.Purpose.CLIENT_AUTH, ssl.Purpose.SERVER_AUTH):
        context = ssl.create_default_context(purpose, cafile=folder / "ca.pem")
        context.load_cert_chain(folder / "cert.pem", folder / "key.pem")
        context.check_hostname, context.verify_mode = False, ssl.CERT_REQUIRED
        found.append(context)
    return Tls(*found)


def write_certificate(folder: Path) -> None:
    from distributed import Security

    security = Security.temporary()
    for name, text in (
        ("ca.pem", security.tls_ca_file),
        ("cert.pem", security.tls_worker_cert),
        ("key.pem", security.tls_worker_key),
    ):
        (folder / name).write_text(text)


@contextmanager
def group(
    kind: str, size: int, folder: Path, patience: float = 20.0
) -> Iterator[list[Links] | list[SocketLinks]]:
    """The links of all parts, which have met; closed in the end."""
    if kind == "threads":
        yield list(in_process(size, patience))
        return
    links = [make(kind, rank, size, patience, folder) for rank in range(size)]
    addresses = [address(kind, one) for one in links]
    try:
        together(links, lambda rank: links[rank].meet(addresses))
        yield links
    finally:
        for one in links:
            one.close()


def exchange_for_ever(links: Links) -> None:
    """A megabyte around the ring."""
    after, before = (links.rank + 1) % links.size, (links.rank - 1) % links.size
    array = np.full(2**17, float(links.rank))
    while True:
        heard = links.finish(links.start({after: array}, [before]))
        assert np.all(heard[before] == before)


def reduce_for_ever(links: Links) -> None:
    while True:
        assert links.allreduce(np.array([1.0]), "sum") == [links.size]


PHASES: dict[str, Callable[[Links], None]] = {
    "exchange": exchange_for_ever,
    "reduce": reduce_for_ever,
}


@contextmanager
def process(*arguments: str) -> Iterator[subprocess.Popen[str]]:
    """A member in a process of its own."""
    member = subprocess.Popen(
        [sys.executable, __file__, *arguments],
        stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
    )  # fmt: skip
    try:
        yield member
    finally:
        member.kill()
        member.communicate()


def tell(line: str) -> None:
    sys.stdout.write(f"{line}\n")
    sys.stdout.flush()


def main(kind: str, rank: str, size: str, patience: str, what: str, folder: str) -> None:
    links = make(kind, int(rank), int(size), float(patience), Path(folder))
    tell(address(kind, links))
    addresses = json.loads(sys.stdin.readline())
    links.meet(addresses)
    tell("met")
    PHASES[what](links)


if __name__ == "__main__":
    main(*sys.argv[1:])
