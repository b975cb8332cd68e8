"""A part whose process is killed, or stopped, ends the others, whatever they are doing."""

from __future__ import annotations

import json
import signal
import threading
import time

import pytest
from links_support import KINDS, PHASES, address, make, process

from heomdask.errors import PartitionFailed
from heomdask.partition.links.sockets import SocketLinks

PATIENCE = {signal.SIGKILL: 30.0, signal.SIGSTOP: 0.8}
NOTICED = 5.0  # seconds in which others know, on a machine with much else to do
VICTIM = 1  # it is connected to by the part above, and connects to the one below


class Survivor(threading.Thread):
    """A part that goes on until the group ends, and notes why and when."""

    def __init__(self, links: SocketLinks, addresses: list[str], phase: str) -> None:
        super().__init__()
        self.links, self.addresses, self.phase = links, addresses, phase
        self.reason, self.ended = "", 0.0

    def run(self) -> None:
        try:
            self.links.meet(self.addresses)
            PHASES[self.phase](self.links)
        except PartitionFailed as error:
            self.reason = str(error)
        self.ended = time.monotonic()


@pytest.mark.parametrize("kind", KINDS)
def test_who_cannot_meet_one_part_is_seen_to_go_by_the_others(kind, folder):
    links = {rank: make(kind, rank, 3, 30.0, folder) for rank in (0, 2)}
    addresses = [address(kind, links[0]), "unix:nobody", address(kind, links[2])]
    survivors = [Survivor(one, addresses, "reduce") for one in links.values()]
    started = time.monotonic()
    survivors[1].start()
    time.sleep(0.1)
    survivors[0].start()
    for one in survivors:
        one.join(60)
        one.links.close()
    assert [one.reason[:31] for one in survivors] == [
        "part 2 went away",
        "part 2 cannot connect to part 1",
    ]
    assert max(one.ended for one in survivors) - started < NOTICED


@pytest.mark.parametrize("how", PATIENCE, ids=lambda how: how.name)
@pytest.mark.parametrize("phase", ["connect", *PHASES])
@pytest.mark.parametrize("kind", KINDS)
def test_a_part_vanishes(kind, phase, how, folder):
    patience, what = PATIENCE[how], "reduce" if phase == "connect" else phase
    links = {rank: make(kind, rank, 3, patience, folder) for rank in (0, 2)}
    with process(kind, str(VICTIM), "3", "30", what, str(folder)) as victim:
        theirs = victim.stdout.readline().strip()
        addresses = [address(kind, links[0]), theirs, address(kind, links[2])]
        survivors = [Survivor(one, addresses, what) for one in links.values()]
        for one in survivors:
            one.start()
        if phase != "connect":
            victim.stdin.write(json.dumps(addresses) + "\n")
            victim.stdin.flush()
            assert victim.stdout.readline().strip() == "met"
            time.sleep(0.1)
        gone = time.monotonic()
        victim.send_signal(how)
        for one in survivors:
            one.join(60)
        for one in links.values():
            one.close()
    for one in survivors:
        assert one.reason
        assert one.ended - gone < NOTICED + (patience if how is signal.SIGSTOP else 0)
    told = " ".join(one.reason for one in survivors)
    assert any(word in told for word in ("part 1", "part 2 went away")), told
