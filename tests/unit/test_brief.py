"""Methods and truncations as people read them; their reprs are what stores keep."""

from __future__ import annotations

import numpy as np
import pytest

import heomdask as hd
from heomdask.ensemble.axes import dimensions
from heomdask.ensemble.grid import Grid
from heomdask.results.wording import difference, in_short

TEXTS = [
    (hd.Pade(2), "Pade(N=2, coefficients='consistent')", "Pade(2)"),
    (hd.Pade(2, "exact"), "Pade(N=2, coefficients='exact')", "Pade(2, coefficients='exact')"),
    (
        hd.Matsubara(3),
        "Matsubara(N=3, terminator=True, coefficients='consistent')",
        "Matsubara(3)",
    ),
    (
        hd.Matsubara(3, terminator=False),
        "Matsubara(N=3, terminator=False, coefficients='consistent')",
        "Matsubara(3, terminator=False)",
    ),
    (hd.AAA(1e-3), "AAA(tol=0.001)", "AAA(0.001)"),
    (hd.ESPRIT(4), "ESPRIT(K=4)", "ESPRIT(4)"),
    (hd.Depth(4), "Depth(depth=4)", "4"),
    (hd.ModeLimits(3, (1, 2)), "ModeLimits(depth=3, limits=(1, 2))", "ModeLimits(3, (1, 2))"),
    (hd.Weighted(4), "Weighted(depth=4, power=1.0)", "Weighted(4)"),
    (hd.Weighted(4, 0.5), "Weighted(depth=4, power=0.5)", "Weighted(4, power=0.5)"),
]


@pytest.mark.parametrize(("value", "whole", "short"), TEXTS, ids=[t[2] for t in TEXTS])
def test_the_text_is_short_and_the_repr_whole(value: object, whole: str, short: str) -> None:
    assert repr(value) == whole
    assert str(value) == short
    assert in_short(whole) == short


def test_a_number_of_numpy_reads_as_a_number() -> None:
    assert str(hd.AAA(np.float64(1e-3))) == "AAA(0.001)"


@pytest.mark.parametrize(
    "text", ["", "77.0", "'auto'", "Pade(N=", "Pade(2)", "Pade(M=2)", "a(b=1)"]
)
def test_other_text_of_a_store_stays(text: str) -> None:
    assert in_short(text) == text


def test_what_differs_between_a_store_and_a_sweep_is_said_in_words() -> None:
    times = {"unit": "fs", "number": 101, "first": 0.0, "last": 1000.0, "digest": "a"}
    shorter = times | {"number": 51, "last": 500.0, "digest": "b"}
    there, here = "101 values from 0 to 1000 fs", "51 values from 0 to 500 fs"
    assert difference("times", times, shorter) == f"`times` is {there} there and {here} here"
    assert difference("samples", True, False) == "`samples` is given there and left out here"
    pair = {"dimension": "a", "names": ["a", "b"], "units": ["K", None], "kinds": ["f", "O"]}
    alone = {"dimension": "a", "names": ["a"], "units": ["K"], "kinds": ["f"]}
    assert difference("axes", [pair], [alone]) == (
        "`axes` is a / K, b (names) along a there and a / K here"
    )
    assert difference("error", None, 1e-3) == "`error` is None there and 0.001 here"


def test_a_point_is_described_in_short_and_stored_whole() -> None:
    grid = Grid(dimensions({"expansion": hd.axis([hd.Pade(1)])}), None)
    assert grid.describe((0,)) == "expansion = Pade(1)"
    assert grid.dimensions[0].keys == [("Pade(N=1, coefficients='consistent')",)]
