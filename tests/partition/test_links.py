"""What all links do alike: arrays arrive, sums agree, nothing waits forever, nothing is left."""

from __future__ import annotations

import threading
import time
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from links_support import KINDS, group, make, reduce_for_ever

from heomdask.errors import PartitionFailed
from heomdask.partition.links.in_process import together

TYPES = ("float64", "complex128", "float32", "complex64", "int64")
SHAPES = ((), (0,), (1,), (3, 0, 2), (7,), (2, 3, 4, 5), (4097,), (300_000,))


def numbers(dtype: str, shape: tuple[int, ...], seed: int) -> np.ndarray:
    rng = np.random.default_rng(seed)
    found = rng.standard_normal(shape) * 1000
    if dtype.startswith("complex"):
        found = found + 1j * rng.standard_normal(shape)
    return np.asarray(found).astype(dtype)


every_kind = pytest.mark.parametrize("kind", ["threads", *KINDS])
between_processes = pytest.mark.parametrize("kind", KINDS)


@every_kind
@settings(max_examples=20)
@given(
    dtypes=st.lists(st.sampled_from(TYPES), min_size=3, max_size=3),
    shapes=st.lists(st.sampled_from(SHAPES), min_size=3, max_size=3),
    transposed=st.booleans(),
)
def test_arrays_arrive_as_they_were_sent(kind, folder, dtypes, shapes, transposed):
    arrays = [numbers(t, s, 1) for t, s in zip(dtypes, shapes, strict=True)]
    if transposed:
        arrays = [array.T for array in arrays]

    def run(rank: int):
        exchange = links[rank].start({(rank + 1) % 3: arrays[rank]}, [(rank + 2) % 3])
        heard = links[rank].finish(exchange)
        return {source: array.copy() for source, array in heard.items()}

    with group(kind, 3, folder) as links:
        for rank, heard in enumerate(together(links, run)):
            (array,) = heard.values()
            want = arrays[(rank + 2) % 3]
            assert list(heard) == [(rank + 2) % 3]
            assert (array.dtype, array.shape) == (want.dtype, want.shape)
            assert np.array_equal(array, want)


@every_kind
@settings(max_examples=10)
@given(seed=st.integers(0, 2**20), size=st.integers(2, 4))
def test_who_sends_whom_what_and_when_does_not_matter(kind, folder, seed, size):
    """Every exchange has other messages, and every part is late by another time."""
    rng = np.random.default_rng(seed)
    table = rng.choice([-1, 0, 10, 5000, 200_000], size=(12, size, size))  # -1: no message
    late = rng.exponential(0.002, size=(12, size, 2)) * rng.integers(2, size=(12, size, 2))

    def run(rank: int) -> None:
        for k, lengths in enumerate(table):
            time.sleep(late[k, rank, 0])
            others = [r for r in range(size) if r != rank]
            targets = [r for r in others if lengths[rank, r] > -1]
            sends = {r: np.full(lengths[rank, r], k + rank / 8) for r in targets}
            sources = [r for r in others if lengths[r, rank] > -1]
            exchange = links[rank].start(sends, sources)
            time.sleep(late[k, rank, 1])
            heard = links[rank].finish(exchange)
            assert list(heard) == sources
            for source, array in heard.items():
                assert array.tolist() == [k + source / 8] * lengths[source, rank]

    with group(kind, size, folder) as links:
        together(links, run)


@every_kind
def test_sums_are_in_the_order_of_ranks_for_every_part(kind, folder):
    each = [1e16, 1.0, -1e16]
    with group(kind, 3, folder) as links:
        sums = together(links, lambda r: links[r].allreduce(np.array([each[r]]), "sum"))
    assert [s.tolist() for s in sums] == [[1e16 + 1.0 - 1e16]] * 3


@every_kind
def test_the_largest_value_is_nan_where_any_is(kind, folder):
    each = [[1.0, 5.0], [np.nan, 2.0], [3.0, 7.0]]
    with group(kind, 3, folder) as links:
        found = together(links, lambda r: links[r].allreduce(np.array(each[r]), "max"))
    for largest in found:
        assert np.isnan(largest[0])
        assert largest[1] == 7.0


@every_kind
def test_one_part_alone(kind, folder):
    with group(kind, 1, folder) as (links,):
        assert links.allreduce(np.array([2.0]), "sum").tolist() == [2.0]
        assert links.swap({}) == {}


@every_kind
def test_all_send_all_of_them_much_at_once(kind, folder):
    with group(kind, 4, folder) as links:

        def run(rank: int) -> float:
            others = [r for r in range(4) if r != rank]
            heard = links[rank].swap(dict.fromkeys(others, np.full(10**6, float(rank))))
            return sum(array[0] + array[-1] for array in heard.values())

        assert together(links, run) == [12.0, 10.0, 8.0, 6.0]


@every_kind
def test_start_does_not_wait_for_the_other_part(kind, folder):
    started = threading.Event()
    with group(kind, 2, folder) as links:

        def run(rank: int) -> float:
            if rank == 1:
                assert started.wait(60)
            exchange = links[rank].start({1 - rank: np.full(4 * 10**6, rank + 1.0)}, [1 - rank])
            started.set()
            return links[rank].finish(exchange)[1 - rank].sum()

        assert together(links, run) == [8e6, 4e6]


@every_kind
@pytest.mark.parametrize("length", [1, 4 * 10**6])
def test_an_abort_wakes_those_who_wait(kind, folder, length):
    """Also where a message is under way that nobody takes."""
    with group(kind, 3, folder) as links:

        def run(rank: int) -> float:
            if rank == 0:
                links[0].start({1: np.zeros(length)}, [1])
                time.sleep(0.1)
                links[0].abort("no more")
                return time.monotonic()
            with pytest.raises(PartitionFailed, match="part 0 ended: no more"):
                links[rank].finish(links[rank].start({}, [0] if rank == 2 else [2]))
            ended = time.monotonic()
            with pytest.raises(PartitionFailed, match="no more"):
                links[rank].start({}, [])
            return ended

        first, *others = together(links, run)
        assert max(others) - first < 1


@every_kind
def test_an_abort_from_another_thread(kind, folder):
    with group(kind, 2, folder) as links:
        timer = threading.Timer(0.1, links[0].abort, ["asked to"])
        timer.start()
        for one in links:
            with pytest.raises(PartitionFailed, match="part 0 ended: asked to"):
                one.finish(one.start({}, [1 - one.rank]))
        timer.join()


@every_kind
def test_an_abort_in_a_reduction(kind, folder):
    with group(kind, 3, folder) as links:
        timer = threading.Timer(0.1, links[2].abort, ["changed my mind"])
        timer.start()

        def run(rank: int) -> None:
            with pytest.raises(PartitionFailed, match="part 2 ended: changed my mind"):
                reduce_for_ever(links[rank])

        together(links, run)
        timer.join()


@every_kind
def test_what_was_sent_before_a_part_left_arrives(kind, folder):
    with group(kind, 2, folder) as links:

        def run(rank: int) -> None:
            if rank == 1:
                time.sleep(0.1)
            heard = links[rank].swap({1 - rank: np.full(5, rank)})
            assert heard[1 - rank].tolist() == [1 - rank] * 5
            if rank == 0:
                links[0].close()

        together(links, run)
        with pytest.raises(PartitionFailed, match="part 0 closed its links"):
            links[1].finish(links[1].start({0: np.zeros(10**6)}, [0]))


@every_kind
def test_parts_that_have_lost_step_are_told(kind, folder):
    with group(kind, 3, folder) as links:

        def run(rank: int) -> None:
            def lose() -> None:
                if rank < 2:
                    links[rank].swap({1 - rank: np.zeros(1)})
                links[rank].allreduce(np.zeros(1), "sum")

            with pytest.raises(PartitionFailed, match=r"part \d is at exchange \d, part \d at"):
                lose()

        together(links, run)


@every_kind
@pytest.mark.parametrize("length", [1, 4 * 10**6])
def test_silence_is_an_error(kind, folder, length):
    with group(kind, 2, folder, patience=0.2) as links:
        exchange = links[1].start({0: np.zeros(length)}, [0])
        with pytest.raises(PartitionFailed, match=r"part 1 heard nothing of part 0 for 0.2 s"):
            links[1].finish(exchange)


# --------------------------------------------------------------------------- between processes


@between_processes
def test_large_messages_move_while_parts_compute(kind, folder):
    with group(kind, 2, folder) as links:
        array = np.zeros(4 * 10**6)
        exchanges = [one.start({1 - one.rank: array}, [1 - one.rank]) for one in links]
        until = time.monotonic() + 20
        helpers = [one._transfer.helper for one in links if one._transfer.helper]
        assert len(helpers) == (0 if kind == "memory" else 2)
        while not all(helper.done() for helper in helpers):
            assert time.monotonic() < until
            time.sleep(0.01)
        for one, exchange in zip(links, exchanges, strict=True):
            one.finish(exchange)


@between_processes
def test_an_abort_ends_the_meeting_too(kind, folder):
    first = make(kind, 0, 2, 20.0, folder)
    timer = threading.Timer(0.1, first.abort, ["never mind"])
    timer.start()
    with pytest.raises(PartitionFailed, match="never mind"):
        first.meet([first.address, first.address])
    timer.join()
    first.close()


@between_processes
def test_nothing_is_left(kind, folder):
    threads, files = set(threading.enumerate()), open_files()
    for end in ("close", "abort", "middle"):
        with group(kind, 3, folder) as links:
            together(links, lambda r: links[r].allreduce(np.zeros(10**5), "sum"))
            if end == "abort":
                links[1].abort("enough")
            if end == "middle":
                links[0].start({1: np.zeros(10**6)}, [1])
        for one in links:
            one.close()  # again
    assert set(threading.enumerate()) == threads
    assert open_files() == files
    assert "memfd:heomdask" not in Path("/proc/self/maps").read_text()


@between_processes
def test_an_exchange_must_be_finished(kind, folder):
    with group(kind, 2, folder) as links:
        exchange = links[0].start({1: np.zeros(1)}, [1])
        with pytest.raises(ValueError, match="finish it first"):
            links[0].start({}, [])
        links[1].swap({0: np.zeros(1)})
        links[0].finish(exchange)
        with pytest.raises(ValueError, match="not under way"):
            links[0].finish(exchange)


@between_processes
def test_what_cannot_be_sent(kind, folder):
    with group(kind, 2, folder) as links:
        for array in (np.zeros(1, bool), np.array([None]), np.zeros((1,) * 5)):
            with pytest.raises(ValueError, match="links carry arrays of float64, complex128"):
                links[0].start({1: array}, [])


@between_processes
def test_a_part_that_was_to_say_something_and_did_not(kind, folder):
    with group(kind, 2, folder) as links:

        def run(rank: int) -> None:
            with pytest.raises(PartitionFailed, match=r"part \d had nothing for part \d"):
                links[rank].finish(links[rank].start({}, [1 - rank]))

        together(links, run)


def open_files() -> int:
    return len(list(Path("/proc/self/fd").iterdir()))
