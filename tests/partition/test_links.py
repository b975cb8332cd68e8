"""Links within a process: what arrives, what is refused, and that nothing waits forever."""

from __future__ import annotations

import numpy as np
import pytest

from heomdask.errors import PartitionFailed
from heomdask.partition.links import in_process as module
from heomdask.partition.links.in_process import in_process, together


def test_arrays_arrive_as_they_were_sent():
    links = in_process(3)

    def run(rank: int):
        target = (rank + 1) % 3
        array = np.full(4, rank)
        exchange = links[rank].start({target: array}, [(rank + 2) % 3])
        array[:] = -1
        return links[rank].finish(exchange)

    for rank, heard in enumerate(together(links, run)):
        assert list(heard) == [(rank + 2) % 3]
        assert heard[(rank + 2) % 3].tolist() == [(rank + 2) % 3] * 4


def test_sums_are_in_the_order_of_ranks_for_every_part():
    links, numbers = in_process(3), [1e16, 1.0, -1e16]
    sums = together(links, lambda r: links[r].allreduce(np.array([numbers[r]]), "sum"))
    assert [s.tolist() for s in sums] == [[1e16 + 1.0 - 1e16]] * 3


def test_the_largest_value_is_nan_where_any_is():
    links, numbers = in_process(3), [[1.0, 5.0], [np.nan, 2.0], [3.0, 7.0]]
    for found in together(links, lambda r: links[r].allreduce(np.array(numbers[r]), "max")):
        assert np.isnan(found[0])
        assert found[1] == 7.0


def test_one_part_alone():
    (links,) = in_process(1)
    assert links.allreduce(np.array([2.0]), "sum").tolist() == [2.0]
    assert links.swap({}) == {}


def test_an_abort_wakes_those_who_wait():
    links = in_process(2)

    def run(rank: int):
        if rank == 0:
            links[0].abort("no more")
            return
        with pytest.raises(PartitionFailed, match="part 0 ended: no more"):
            links[1].finish(links[1].start({}, [0]))
        with pytest.raises(PartitionFailed, match="no more"):
            links[1].start({}, [])
        return

    together(links, run)


def test_close_ends_the_others_too():
    first, second = in_process(2)
    first.close()
    with pytest.raises(PartitionFailed, match="closed"):
        second.start({}, [])


def test_parts_that_have_lost_step_are_told():
    first, second = in_process(2)
    first.start({1: np.zeros(1)}, [])
    second.start({}, [])
    with pytest.raises(PartitionFailed, match="part 1 is at exchange 2, part 0 at 1"):
        second.finish(second.start({}, [0]))


def test_silence_is_an_error(monkeypatch):
    monkeypatch.setattr(module, "PATIENCE", 0.05)
    _, second = in_process(2)
    with pytest.raises(PartitionFailed, match=r"heard nothing of part 0 for 0.05 s"):
        second.finish(second.start({}, [0]))
