"""Axes, dimensions, points, and the random numbers of samples."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import heomdask as hd
from heomdask.ensemble.axes import Table, axis, dimensions, sample_rng
from heomdask.ensemble.grid import Grid, match
from heomdask.errors import InputError, StoreError
from heomdask.units import K, cm1


def test_an_axis_keeps_values_and_unit_and_gives_internal_numbers() -> None:
    T = axis([77, 300], "K")
    assert T.values == (77.0, 300.0)
    assert T.unit == "K"
    np.testing.assert_allclose(T.internal, [77 * K, 300 * K], rtol=1e-14)
    np.testing.assert_allclose(axis([35], "cm^-1").internal, [35 * cm1], rtol=1e-14)
    assert axis(np.array([0.5, 1.0])).internal == (0.5, 1.0)


def test_whole_numbers_stay_whole_for_build_and_objects_have_labels() -> None:
    assert axis(np.arange(3)).internal == (0, 1, 2)
    assert all(type(v) is int for v in axis(np.arange(3)).internal)
    assert axis(range(3)).labels.dtype == np.float64  # so that a store takes 1.5, too
    assert Grid(dimensions({"depth": [3]}), None).describe((0,)) == "depth = 3"
    methods = axis([hd.Pade(1), hd.Pade(2)])
    assert methods.labels.tolist() == [repr(hd.Pade(1)), repr(hd.Pade(2))]
    assert axis(["a", "b"]).labels.tolist() == ["a", "b"]


@pytest.mark.parametrize(
    ("values", "unit"),
    [
        ([], None),
        ([np.nan], None),
        ([np.inf], "K"),
        (["a"], "K"),
        ([1j], None),
        (3.0, None),
        ("ab", None),
    ],
)
def test_wrong_values_are_refused(values: Any, unit: str | None) -> None:
    with pytest.raises(InputError, match="`values`"):
        axis(values, unit)


@pytest.mark.parametrize(
    "value",
    [np.zeros(2000), object(), hd.Pade, lambda w: w, [np.zeros(2)], hd.AAA],
)
def test_an_object_whose_text_does_not_tell_it_needs_a_name(value: Any) -> None:
    with pytest.raises(InputError, match=r'`values`.*; give them names .* hd.axis\(\{"name"'):
        axis([value])
    named = axis({"one": value, "two": 2.0})
    assert named.labels.tolist() == ["one", "two"]
    assert named.internal == (value, 2.0)


@pytest.mark.parametrize(
    ("over", "said"),
    [
        ({"T": [1.0, 2.0, 1.0]}, "repeat"),
        ({("a", "b"): ([1, 1], [2, 2])}, "repeat"),
        ({("a", "b"): ([1, 2], [2])}, "one length"),
        ({("a", "b"): ([1, 2],)}, "2 axes"),
        ({"T": [1.0], ("T", "b"): ([1], [2])}, "twice"),
        ({"two words": [1.0]}, "names"),
        ({("n", "ado"): ([1], [2])}, "n_ado"),
        ({("T", "lam"): ([1], [2]), "T_lam": [3]}, "T_lam twice"),
        ({("a", "b_c"): ([1], [2]), ("a_b", "c"): ([3], [4])}, "a_b_c twice"),
        ({"T": {}}, "non-empty mapping"),
        ({"sample": [1.0]}, "sample"),
        ([{"a": 1.0}, {"b": 1.0}], "first point"),
        (Table({"a": [1, 2], "b": [1]}), "one length"),
        (3, "mapping"),
    ],
)
def test_wrong_axes_are_refused(over: Any, said: str) -> None:
    with pytest.raises(InputError, match=said):
        dimensions(over)


def test_a_grid_is_the_product_of_its_dimensions_and_samples() -> None:
    over = {"T": axis([77, 300], "K"), ("lam", "gamma"): ([1.0, 2.0, 2.0], [3.0, 4.0, 5.0])}
    grid = Grid(dimensions(over), 4)
    assert grid.names == ("T", "lam_gamma", "sample")
    assert grid.shape == (2, 3, 4)
    assert grid.parameters((1, 2, 3)) == {"T": 300 * K, "lam": 2.0, "gamma": 5.0}
    assert grid.describe((1, 2, 3)) == "T = 300.0 K, lam = 2.0, gamma = 5.0, sample 3"


def test_a_table_keeps_its_rows_repeated_ones_too() -> None:
    grid = Grid(dimensions([{"e": 1.0, "n": 2}, {"e": 1.0, "n": 2}, {"e": 0.5, "n": 3}]), None)
    assert grid.names == ("point",)
    assert [grid.parameters((i,)) for i in range(3)] == [
        {"e": 1.0, "n": 2}, {"e": 1.0, "n": 2}, {"e": 0.5, "n": 3},
    ]  # fmt: skip


def test_a_sample_knows_its_numbers_whatever_else_there_is() -> None:
    first = sample_rng(1, 5).standard_normal(3)
    np.testing.assert_array_equal(first, sample_rng(1, 5).standard_normal(3))
    draws = {sample_rng(seed, s).standard_normal() for seed in (1, 2) for s in range(50)}
    assert len(draws) == 100


def test_a_store_grows_by_values_and_samples() -> None:
    grid = Grid(dimensions({"T": [3.0, 1.0, 2.0]}), 4)
    found = match(grid, [[(1.0,), (9.0,)]], 2)
    np.testing.assert_array_equal(found.order[0], [1, -1, 0, 2])  # the store: 1, 9, then 3, 2
    np.testing.assert_array_equal(found.order[1], [0, 1, 2, 3])
    assert found.new == ((0, 2),)
    assert found.wanted((2, 3)) == (0, 3)
    assert found.wanted((1, 0)) is None


def test_a_store_may_hold_more_samples_than_asked_for() -> None:
    found = match(Grid(dimensions({"T": [1.0]}), 2), [[(1.0,)]], 3)
    np.testing.assert_array_equal(found.order[1], [0, 1, -1])


def test_a_table_grows_at_its_end_only() -> None:
    grid = Grid(dimensions([{"e": 1.0}, {"e": 1.0}, {"e": 2.0}]), None)
    assert match(grid, [[(1.0,), (1.0,)]], None).new == ((2,),)
    with pytest.raises(StoreError, match="row 1"):
        match(grid, [[(1.0,), (3.0,)]], None)
