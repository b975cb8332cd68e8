"""Index sets against plain enumeration: which ADOs, in which order, linked how."""

import itertools
import math
import time

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from heomdask.errors import InputError, TooLarge
from heomdask.hierarchy import index_set as module
from heomdask.hierarchy.index_set import IndexSet, index_set
from heomdask.hierarchy.truncation import (
    Bounds,
    Depth,
    ModeLimits,
    Weighted,
    as_truncation,
)


def tuples(bounds):
    """The definition: every tuple within the bounds, in lexicographic order."""
    every = itertools.product(*(range(limit + 1) for limit in bounds.top))
    return [
        n
        for n in every
        if sum(w * v for w, v in zip(bounds.weights, n, strict=True)) <= bounds.budget
    ]


bounds_strategy = st.integers(0, 4).flatmap(
    lambda k: st.builds(
        Bounds,
        st.tuples(*[st.integers(1, 4)] * k),
        st.tuples(*[st.integers(0, 4)] * k),
        st.integers(0, 6),
    )
)


@given(bounds_strategy)
def test_every_truncation_is_what_its_definition_lists(bounds):
    expected = tuples(bounds)
    built = IndexSet(bounds)
    assert bounds.n_ado == built.n_ado == len(expected)
    assert [tuple(row) for row in built.indices.tolist()] == expected
    assert built.level.tolist() == [sum(n) for n in expected]
    rows = np.arange(built.n_ado)
    np.testing.assert_array_equal(built.rank(built.indices), rows)
    np.testing.assert_array_equal(built.unrank(rows), built.indices)


@given(bounds_strategy)
def test_links_join_the_tuples_they_should(bounds):
    expected = tuples(bounds)
    row_of = {n: row for row, n in enumerate(expected)}
    built = IndexSet(bounds)

    def matrix(moves, weight):
        dense = np.zeros((built.n_ado, built.n_ado))
        for row, n in enumerate(expected):
            col = row_of.get(tuple(v + moves.get(k, 0) for k, v in enumerate(n)))
            if col is not None:
                dense[row, col] = weight(n)
        return dense

    np.testing.assert_array_equal(built.identity.matrix.toarray(), np.eye(built.n_ado))
    for k in range(bounds.n_modes):
        for pattern, moves, weight in (
            (built.number(k), {}, lambda n, k=k: n[k]),
            (built.up(k), {k: 1}, lambda n, k=k: math.sqrt(n[k] + 1)),
            (built.down(k), {k: -1}, lambda n, k=k: math.sqrt(n[k])),
        ):
            np.testing.assert_array_equal(pattern.matrix.toarray(), matrix(moves, weight))
        for j in range(bounds.n_modes):
            if j != k:
                np.testing.assert_array_equal(
                    built.lateral(k, j).matrix.toarray(),
                    matrix({k: -1, j: 1}, lambda n, k=k, j=j: math.sqrt(n[k] * (n[j] + 1))),
                )


def test_rank_of_what_is_not_there():
    built = IndexSet(ModeLimits(3, (3, 1)).bounds(2))
    assert built.rank([[0, 0], [3, 0], [3, 1], [0, 2], [-1, 1], [4, 0]]).tolist() == [
        0, built.n_ado - 1, -1, -1, -1, -1,
    ]  # fmt: skip
    assert built.rank([2, 1]) == built.n_ado - 2
    with pytest.raises(ValueError, match="2 modes"):
        built.rank([[0, 0, 0]])
    with pytest.raises(ValueError, match="must lie in"):
        built.unrank([built.n_ado])


@pytest.mark.parametrize("n_modes", [0, 1, 5])
def test_depth_zero_is_the_reduced_density_matrix_alone(n_modes):
    built = index_set(Depth(0), n_modes)
    assert built.n_ado == 1
    assert built.indices.shape == (1, n_modes)
    assert all(built.up(k).is_empty and built.number(k).is_empty for k in range(n_modes))


def test_no_modes_at_any_depth():
    assert index_set(Depth(7), 0).n_ado == Depth(7).n_ado(0) == 1


@pytest.mark.parametrize("depth", [-1, 2.5, True, "3", None, 3.0])
def test_a_depth_is_a_whole_number(depth):
    for make in (Depth, as_truncation, Weighted, lambda d: ModeLimits(d, (1,))):
        with pytest.raises(InputError, match=r"`depth` must be a whole number of at least 0"):
            make(depth)


def test_limits_are_one_whole_number_per_mode():
    with pytest.raises(InputError, match="`limits` must be one whole number for each of the 3"):
        ModeLimits(2, (1, 1)).bounds(3)
    with pytest.raises(InputError, match="`limits`"):
        ModeLimits(2, (1, -1))


def test_counting_is_exact_without_listing():
    assert Depth(6).n_ado(28) == 1_344_904
    assert Depth(40).n_ado(100) == math.comb(140, 40)  # far beyond 64 bits
    assert ModeLimits(6, (6,) * 28).n_ado(28) == 1_344_904
    assert ModeLimits(40, (1,) * 100).n_ado(100) == sum(math.comb(100, k) for k in range(41))


def test_what_cannot_be_numbered_is_refused_at_once():
    with pytest.raises(TooLarge, match="lower `depth`"):
        index_set(Depth(40), 100)


def test_weighted_counts_fast_modes_more():
    rates = (1.0, 2.0, 8.0)
    built = index_set(Weighted(4), 3, rates)
    expected = [n for n in itertools.product(range(5), repeat=3) if n[0] + 2 * n[1] + 8 * n[2] <= 4]
    assert [tuple(n) for n in built.indices.tolist()] == expected
    assert Weighted(4).n_ado(3, rates) == len(expected)
    assert Weighted(3, power=0.0).n_ado(3, rates) == Depth(3).n_ado(3)
    assert Weighted(3).bounds(2, (0.0, 1.0)).weights == (64, 64)  # an undamped mode is a slow one
    with pytest.raises(ValueError, match="rates"):
        Weighted(3).bounds(2)
    with pytest.raises(InputError, match="`power`"):
        Weighted(3, power=-1.0)


def test_one_object_per_process_and_one_pattern_per_link():
    first = index_set(Depth(3), 2)
    assert index_set(Depth(3), 2, (1.0, 2.0)) is first
    assert index_set(ModeLimits(3, (3, 3)), 2) is first
    assert first.up(1) is first.up(1)
    assert first.down(1).rows is first.up(1).cols


def test_the_cache_is_bounded(monkeypatch):
    monkeypatch.setattr(module, "CACHE_BYTES", 0)
    monkeypatch.setattr(module, "_cache", module._cache.__class__())  # other tests filled the other
    first = index_set(Depth(2), 3)
    second = index_set(Depth(2), 4)
    assert index_set(Depth(2), 4) is second  # the newest stays
    assert index_set(Depth(2), 3) is not first


def test_a_million_ados_with_their_links():
    started = time.perf_counter()
    built = IndexSet(Depth(6).bounds(28))
    links = sum(len(built.up(k).entries()[0]) for k in range(28))
    assert sum(len(built.down(k).entries()[0]) for k in range(28)) == links
    assert time.perf_counter() - started < 10  # takes 0.7 s on an idle core
    assert (built.n_ado, links) == (1_344_904, 6_645_408)
    table = links * (4 + 4 + 8)  # row, column, weight: up and down share them
    assert built.nbytes == table + built.n_ado * 28
    some = np.linspace(0, built.n_ado - 1, 1000, dtype=np.int64)
    np.testing.assert_array_equal(built.rank(built.indices[some]), some)
    np.testing.assert_array_equal(built.unrank(some), built.indices[some])
