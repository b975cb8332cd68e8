"""Every ADO has one owner, parts have equal work, and nobody lists the hierarchy."""

from __future__ import annotations

import tracemalloc

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from heomdask.errors import InputError
from heomdask.hierarchy.index_set import IndexSet
from heomdask.hierarchy.numbering import Numbering
from heomdask.hierarchy.truncation import Bounds, Depth
from heomdask.partition import split as module
from heomdask.partition.split import Bisection, Levels, Lexicographic, Work

STRATEGIES = (Lexicographic, Levels, Bisection)

bounds_strategy = st.integers(0, 4).flatmap(
    lambda k: st.builds(
        Bounds,
        st.tuples(*[st.integers(1, 3)] * k),
        st.tuples(*[st.integers(0, 4)] * k),
        st.integers(0, 6),
    )
)


@pytest.mark.parametrize("strategy", STRATEGIES)
@given(bounds=bounds_strategy, parts=st.integers(1, 8), link=st.floats(0, 3))
def test_every_ado_has_one_owner(strategy, bounds, parts, link):
    every = IndexSet(bounds)
    split = strategy(Numbering(bounds), parts, Work(1.0, link))
    owner = split.owner(every.indices.astype(np.int64))
    assert np.all((owner >= 0) & (owner < parts))
    for part in range(parts):
        assert split.rows(part).tolist() == np.flatnonzero(owner == part).tolist()


@pytest.mark.parametrize("strategy", STRATEGIES)
@pytest.mark.parametrize("parts", [2, 3, 8])
def test_parts_have_equal_work_and_not_equal_numbers(strategy, parts):
    every, work = IndexSet(Depth(5).bounds(6)), Work(1.0, 2.0)
    split = strategy(every, parts, work)
    costs = work.of(every, every.indices.astype(np.int64))
    sums = np.array([costs[split.rows(part)].sum() for part in range(parts)])
    assert np.max(np.abs(sums - costs.sum() / parts)) <= parts * costs.max()
    if strategy is Levels:  # those at the bottom of the hierarchy have few links
        assert len(split.rows(parts - 1)) > 1.1 * len(split.rows(0))


@pytest.mark.parametrize("strategy", STRATEGIES)
def test_a_sample_is_enough(strategy, monkeypatch):
    monkeypatch.setattr(module, "SAMPLE", 2**11)
    monkeypatch.setattr(module, "PIECE", 1000)
    split = strategy(Numbering(Depth(6).bounds(9)), 4)
    counts = np.array([len(split.rows(part)) for part in range(4)])
    assert counts.sum() == split.numbering.n_ado
    assert np.max(counts) < 1.05 * np.mean(counts)


@pytest.mark.parametrize("strategy", STRATEGIES)
def test_what_cannot_be_listed_can_be_split(strategy, monkeypatch):
    monkeypatch.setattr(module, "SAMPLE", 2**11)
    numbering = Numbering(Depth(12).bounds(40))
    assert numbering.n_ado > 2e11
    tracemalloc.start()
    split = strategy(numbering, 64)
    owner = split.owner(numbering.unrank(np.arange(1000) * (numbering.n_ado // 1000)))
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 100e6
    assert set(owner.tolist()) == set(range(64))


def test_links_are_counted_from_tuples():
    every = IndexSet(Bounds((1, 2, 1), (3, 2, 1), 4))
    patterns = [p for k in range(3) for p in (every.up(k), every.down(k))]
    counted = sum(np.asarray(p.matrix.astype(bool).sum(axis=1)) for p in patterns)
    assert every.links(every.indices.astype(np.int64)).tolist() == counted.tolist()


def test_a_bisection_cuts_fewer_links_than_levels():
    every = IndexSet(Depth(5).bounds(6))
    severed = {}
    for strategy in (Levels, Bisection):
        split = strategy(every, 8)
        owner = split.owner(every.indices.astype(np.int64))
        links = [every.up(k).entries() for k in range(6)]
        severed[strategy] = sum(np.count_nonzero(owner[r] != owner[c]) for r, c, _ in links)
    assert severed[Bisection] < severed[Levels]


def test_parts_are_a_whole_number():
    with pytest.raises(InputError, match="`parts` must be a whole number of at least 1"):
        Lexicographic(Numbering(Depth(2).bounds(2)), 0)
